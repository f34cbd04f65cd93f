//! `bursar orgs rebuild`: makes the views again from the events, and compares them with those that the server shows.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use families::orgs::commands::{Rebuilding, kind_word};
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

/// Plays all events over the views that were written down before them, and compares what comes out with what the server shows.
async fn compare(client: &Client) -> anyhow::Result<(String, Vec<String>)> {
    let again = |why: &str| Ok((String::new(), vec![why.to_owned()]));
    let of = |view: &Value, field: &str| view[field].as_str().unwrap_or_default().to_owned();
    let (mut begun, mut after) = (Rebuilding::default(), String::new());
    let from = loop {
        let page = get(client, &format!("/v1/inventory{after}")).await?;
        for view in page["items"].as_array().into_iter().flatten() {
            begun.begin_with(of(view, "kind"), of(view, "org_id"), of(view, "id"), view["state"].clone());
        }
        match page["next"].as_str() {
            Some(next) => after = format!("?after={next}"),
            None => break page["as_of_event_id"].as_u64().unwrap_or(0),
        }
    };
    let mut live: BTreeMap<(String, String, String), Value> = BTreeMap::new();
    let (mut moments, mut after) = (BTreeSet::new(), String::new());
    loop {
        let mut page = get(client, &format!("/v1/views{after}")).await?;
        for view in page["items"].as_array_mut().into_iter().flatten() {
            let key = (kind_word(&of(view, "kind")), of(view, "org_id"), of(view, "id"));
            live.insert(key, view["state"].take());
        }
        moments.insert(page["as_of_event_id"].as_u64());
        match page["next"].as_str() {
            Some(next) => after = format!("?after={next}"),
            None => break,
        }
    }
    // All of it is of one moment, or it is read again.
    let Some(Some(as_of)) = moments.pop_first().filter(|_| moments.is_empty()) else {
        return again("commands ran while the views were read");
    };
    let mut after = from;
    while after < as_of {
        let page = get(client, &format!("/v1/events?after={after}")).await?;
        for event in page["items"].as_array().into_iter().flatten() {
            after = event["event_id"].as_u64().unwrap_or(as_of);
            if after <= as_of {
                begun.play(event);
            }
        }
        match page["next"].as_str().and_then(|next| next.parse::<u64>().ok()) {
            Some(next) => after = after.max(next),
            None => break,
        }
    }
    // Events that another inventory tells of may have gone while they were read.
    if get(client, "/v1/inventory?limit=1").await?["as_of_event_id"].as_u64() != Some(from) {
        return again("old events went while they were read");
    }
    let rebuilt = begun.done();
    let mut differing = rebuilt.gaps.clone();
    for key in live.keys().chain(rebuilt.views.keys()).collect::<BTreeSet<_>>() {
        if live.get(key) != rebuilt.views.get(key) {
            differing.push(format!("{} {}/{}: the view is not what the events say", key.0, key.1, key.2));
        }
    }
    let (views, events) = (rebuilt.views.len(), rebuilt.events);
    let since = if from > 0 { format!(" after event {from}") } else { String::new() };
    Ok((format!("{views} views made from {events} events{since} are those that the server shows\n"), differing))
}
