//! What must be so on our server after the load: every command has its event and its usage, every refusal is in the audit trail, and
//! nothing else happened meanwhile.

use std::collections::HashMap;

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::http::{Connection, JSON};
use super::orgs_lanes::Lane;
use super::servers::Server;

#[derive(Deserialize)]
struct Page<T> {
    items: Vec<T>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Event {
    event_type: String,
    org_id: Option<String>,
    aggregate_type: String,
    aggregate_id: String,
    aggregate_seq: u64,
}

/// Whatever is listed there, page by page.
async fn pages<T: serde::de::DeserializeOwned>(
    connection: &mut Connection,
    path: &str,
    mut each: impl FnMut(T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut after = String::from("0");
    loop {
        let bytes = connection.get(&format!("{path}?limit=1000&after={after}"), JSON).await?;
        let page: Page<T> = serde_json::from_slice(&bytes)?;
        page.items.into_iter().try_for_each(&mut each)?;
        match page.next {
            Some(next) => after = next,
            None => return Ok(()),
        }
    }
}

/// `instances` is what each organization runs, where its lanes are not all of it; `scaled` are the commands before the load.
pub async fn check(server: &Server, lanes: &[&Lane], scaled: u64, runs: impl Fn(&str) -> u64) -> anyhow::Result<()> {
    let mut connection = server.target.connect().await?;
    let (mut told, mut drained, mut last) = (0_u64, 0_u64, HashMap::new());
    pages(&mut connection, "/v1/events", |event: Event| {
        told += u64::from(event.event_type == "env.scale_set");
        drained += u64::from(event.event_type == "instance.desired_state_changed");
        let aggregate = (event.aggregate_type, event.org_id, event.aggregate_id);
        let before = last.insert(aggregate, event.aggregate_seq).unwrap_or(0);
        ensure!(event.aggregate_seq == before + 1, "event {} of an aggregate follows {before}", event.aggregate_seq);
        Ok(())
    })
    .await?;
    let changed: u64 = lanes.iter().map(|lane| lane.changed()).sum();
    ensure!(told == scaled + changed, "{told} events of {scaled} and {changed} commands");
    ensure!(drained == 0, "{drained} instances were drained");
    for lane in lanes.iter().filter(|lane| lane.is_full).take(3) {
        let mut refused = 0;
        pages(&mut connection, &format!("/v1/orgs/{}/audit", lane.org), |_: Value| {
            refused += 1;
            Ok(())
        })
        .await?;
        ensure!(refused == lane.refused(), "{refused} in the audit trail of {} refusals", lane.refused());
    }
    let mut more: HashMap<&str, u64> = HashMap::new();
    lanes.iter().for_each(|lane| *more.entry(&lane.org).or_default() += lane.more());
    for (org, more) in more {
        let usage = connection.get_json(&format!("/v1/orgs/{org}/usage")).await?;
        let mut rows = usage["items"].as_array().into_iter().flatten();
        let instances = rows.find(|row| row["dimension"] == "max_instances").context("no max_instances")?;
        let used = instances["usage"].as_u64().unwrap_or(0);
        ensure!(used == runs(org) + more, "{org} uses {used}, and not {} and {more}", runs(org));
    }
    Ok(())
}
