//! `bursar orgs rebuild`: makes the views again from the events, and compares them with those that the server shows.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use kube::Client;
use serde_json::Value;

use super::send::get;

/// How often views are read again until all pages of them are of one moment.
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
    bail!("{} differences:\n{}", differing.len(), differing.join("\n"));
}

/// Reads all events, plays them, and compares what comes out with what the server shows.
async fn compare(client: &Client) -> anyhow::Result<(String, Vec<String>)> {
    let (mut views, mut moments, mut after) = (Vec::new(), BTreeSet::new(), String::new());
    loop {
        let page = get(client, &format!("/v1/views{after}")).await?;
        views.extend(page["items"].as_array().cloned().unwrap_or_default());
        moments.insert(page["as_of_event_id"].as_u64());
        match page["next"].as_str() {
            Some(next) => after = format!("?after={next}"),
            None => break,
        }
    }
    // All of it is of one moment, or it is read again.
    let Some(Some(as_of)) = moments.pop_first().filter(|_| moments.is_empty()) else {
        return Ok((String::new(), vec!["commands ran while the views were read".into()]));
    };
    let (mut events, mut after) = (Vec::new(), String::from("0"));
    loop {
        let page = get(client, &format!("/v1/events?after={after}")).await?;
        let read = page["items"].as_array().cloned().unwrap_or_default();
        events.extend(read.into_iter().filter(|event| event["event_id"].as_u64().is_some_and(|id| id <= as_of)));
        match page["next"].as_str().filter(|next| next.parse::<u64>().is_ok_and(|next| next < as_of)) {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    let rebuilt = families::orgs::commands::rebuild(&events);
    let mut live: BTreeMap<(String, String, String), Value> = BTreeMap::new();
    for view in &views {
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
