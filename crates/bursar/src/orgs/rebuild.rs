//! `bursar orgs rebuild`: makes the views again from the events, and compares them with those that the server shows.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use kube::Client;
use serde_json::Value;

use super::send::get;

/// How often both are read again: a command that ran between the two reads is no difference.
const ROUNDS: usize = 5;

pub async fn rebuild(client: &Client) -> anyhow::Result<String> {
    let mut differing = Vec::new();
    for _ in 0..ROUNDS {
        let (said, found) = compare(client).await?;
        if found.is_empty() {
            return Ok(said);
        }
        differing = found;
    }
    bail!("{} differences (commands that ran meanwhile count as such):\n{}", differing.len(), differing.join("\n"));
}

/// Reads all events, plays them, and compares what comes out with what the server shows.
async fn compare(client: &Client) -> anyhow::Result<(String, Vec<String>)> {
    let views = get(client, "/v1/views").await?;
    let (mut events, mut after) = (Vec::new(), String::from("0"));
    loop {
        let page = get(client, &format!("/v1/events?after={after}")).await?;
        events.extend(page["items"].as_array().cloned().unwrap_or_default());
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    let rebuilt = families::orgs::commands::rebuild(&events, views["now_ms"].as_i64().unwrap_or(0));
    let mut live: BTreeMap<(String, String, String), Value> = BTreeMap::new();
    for view in views["items"].as_array().into_iter().flatten() {
        let of = |field: &str| view[field].as_str().unwrap_or_default().to_owned();
        let kind = of("kind").chars().enumerate().fold(String::new(), |word, (at, c)| {
            let edge = if c.is_ascii_uppercase() && at > 0 { "_" } else { "" };
            format!("{word}{edge}{}", c.to_ascii_lowercase())
        });
        live.insert((kind, of("org_id"), of("id")), view["state"].clone());
    }
    let mut differing = rebuilt.gaps.clone();
    for key in live.keys().chain(rebuilt.views.keys()).collect::<BTreeSet<_>>() {
        if live.get(key) != rebuilt.views.get(key) {
            differing.push(format!("{} {}/{}: the view is not what the events say", key.0, key.1, key.2));
        }
    }
    let (views, events) = (rebuilt.views.len(), rebuilt.events);
    Ok((format!("{views} views made from {events} events are those that the server shows\n"), differing))
}
