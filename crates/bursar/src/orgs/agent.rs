//! `bursar orgs agent`: plays a node, for tests and for trying things out. It is alive, starts what is to run and stops what is to
//! stop, by saying so.

use std::time::Duration;

use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::send::{all, send};

/// Between two rounds.
const ROUND: Duration = Duration::from_millis(500);

/// So many rounds, or for ever. The last thing it says is how many instances run.
pub async fn play(client: &Client, node: &str, rounds: Option<u64>) -> anyhow::Result<String> {
    let mut round = 0;
    loop {
        let ready = once(client, node).await?;
        round += 1;
        if rounds.is_some_and(|rounds| round >= rounds) {
            return Ok(format!("{node}: {ready} ready\n"));
        }
        tokio::time::sleep(ROUND).await;
    }
}

async fn once(client: &Client, node: &str) -> anyhow::Result<usize> {
    let alive = http::Request::post(format!("/v1/nodes/{node}/heartbeat")).body(Body::empty())?;
    let (status, answer) = send(client, alive).await?;
    if !status.is_success() {
        anyhow::bail!("{}", answer["detail"].as_str().unwrap_or("the server gave no reason"));
    }
    let mut ready = 0;
    for org in all(client, "/v1/orgs").await? {
        let org = org["id"].as_str().unwrap_or_default();
        let list = all(client, &format!("/v1/orgs/{org}/instances")).await?;
        for one in list.iter().filter(|one| one["node"] == node) {
            let wanted = if one["desired_state"] == "running" { "ready" } else { "stopped" };
            if one["reported"]["status"] != wanted {
                report(client, org, one, wanted).await?;
            }
            ready += usize::from(wanted == "ready");
        }
    }
    Ok(ready)
}

/// What is gone by now needs no report.
async fn report(client: &Client, org: &str, one: &Value, status: &str) -> anyhow::Result<()> {
    let path = format!("/v1/orgs/{org}/instances/{}/status", one["id"].as_str().unwrap_or_default());
    let body = json!({"status": status, "node": one["node"]}).to_string();
    let request = http::Request::put(path).header("content-type", "application/json");
    send(client, request.body(Body::from(body.into_bytes()))?).await.map(drop)
}
