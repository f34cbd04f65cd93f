//! Tells whoever meters elsewhere what was granted, scaled and released: the entries of the outbox ([`super::super::records`]), in
//! their order, to each definition's sink.
//!
//! One task a definition, so that a receiver that is down holds up nobody else's. An entry is sent until it is accepted, and how far
//! each has come is kept in a ConfigMap: after a restart at most what was sent last is sent again, under the same ids.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use metering::{EVENTS_MAX, Event};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::super::DEFINITIONS;
use super::super::catalog::Sink;
use super::super::metrics::Decisions;
use super::meters::{api, whole};
use super::questions::{Secrets, meter};
use crate::{Outbox, PostedEntry};

/// How often is looked whether there is anything to send, and who has a sink.
const LOOK: Duration = Duration::from_millis(250);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Who has come back is told everything soon.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Entries of others that are passed over before that is kept.
const PASSED_MAX: u64 = 10_000;
/// Where is kept how far each sink has come.
const NAMESPACE: &str = "kube-system";
const POSITIONS: &str = "datum-outbox";
/// Who says so, in events.
const SOURCE: &str = "quota.datumapis.com";

pub async fn run(client: Client, outbox: Arc<dyn Outbox>, decisions: Decisions) {
    let (tell_end, end) = watch::channel(0);
    let mut known = HashSet::new();
    let mut tasks = JoinSet::new();
    loop {
        match sinks(&client).await {
            Ok(names) => {
                for name in names {
                    if known.insert(name.clone()) {
                        let sender = Sender {
                            client: client.clone(),
                            outbox: outbox.clone(),
                            decisions: decisions.clone(),
                            name,
                        };
                        tasks.spawn(sender.run(end.clone()));
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "it could not be seen who is told of usage"),
        }
        if !known.is_empty() {
            // Beyond all entries: only where they end is asked for.
            match outbox.read(u64::MAX).await {
                Ok(posted) => drop(tell_end.send_replace(posted.end)),
                Err(error) => tracing::debug!(error, "the outbox could not be read"),
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn positions(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), NAMESPACE)
}

/// The definitions that have a sink, and those that had one and may have something left.
async fn sinks(client: &Client) -> Result<Vec<String>, kube::Error> {
    let definitions = api(client, "ServiceQuotaDefinition", DEFINITIONS.1).list(&ListParams::default()).await?;
    let with_sink = definitions.items.iter().filter(|one| !one.data["spec"]["usageSink"].is_null());
    let mut names: Vec<String> = with_sink.map(ResourceExt::name_any).collect();
    let kept = positions(client).get_opt(POSITIONS).await?;
    if kept.is_none() && !names.is_empty() {
        let empty = json!({"metadata": {"name": POSITIONS}});
        if let Ok(empty) = serde_json::from_value(empty) {
            positions(client).create(&PostParams::default(), &empty).await?;
        }
    }
    names.extend(kept.and_then(|map| map.data).into_iter().flatten().map(|(name, _)| name));
    Ok(names)
}

struct Sender {
    client: Client,
    outbox: Arc<dyn Outbox>,
    decisions: Decisions,
    /// The definition's.
    name: String,
}

impl Sender {
    async fn run(self, mut end: watch::Receiver<u64>) {
        let mut saved = loop {
            match self.position().await {
                Ok(position) => break position,
                Err(error) => {
                    tracing::debug!(%error, "how far a sink has come could not be read");
                    tokio::time::sleep(FIRST_PAUSE).await;
                }
            }
        };
        let mut from = saved;
        loop {
            let behind = end.borrow_and_update().saturating_sub(from);
            self.decisions.outbox(&self.name, |counts| counts.waiting = behind);
            if behind == 0 {
                if end.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let posted = match self.outbox.read(from).await {
                Ok(posted) => posted,
                Err(error) => {
                    tracing::debug!(error, "the outbox could not be read");
                    tokio::time::sleep(LONGEST_PAUSE).await;
                    continue;
                }
            };
            if from > 1 && posted.begin > from {
                tracing::error!(
                    definition = self.name,
                    from,
                    until = posted.begin,
                    "events were retired before they were sent"
                );
                self.decisions.outbox(&self.name, |counts| counts.lost += posted.begin - from);
            }
            let events: Vec<(Event, &Value)> =
                posted.entries.iter().flat_map(|entry| events(entry, &self.name)).collect();
            for some in events.chunks(EVENTS_MAX) {
                self.deliver(some).await;
            }
            // Numbers may leap; nothing below the end is added later.
            from = posted.entries.last().map_or(posted.end, |last| last.sequence + 1).max(from);
            if !events.is_empty() || from - saved >= PASSED_MAX {
                match self.save(from).await {
                    Ok(()) => saved = from,
                    // It is sent again after a restart, under the same ids.
                    Err(error) => tracing::debug!(%error, "how far a sink has come could not be kept"),
                }
            }
        }
    }

    async fn position(&self) -> Result<u64, kube::Error> {
        let kept = positions(&self.client).get_opt(POSITIONS).await?.and_then(|map| map.data);
        let kept = kept.and_then(|data| data.get(&self.name)?.parse().ok());
        Ok(kept.unwrap_or(1))
    }

    async fn save(&self, position: u64) -> Result<(), kube::Error> {
        let patch = json!({"data": {&self.name: position.to_string()}});
        positions(&self.client).patch(POSITIONS, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    /// Sends events until they are accepted. Whoever mends the sink meanwhile is heard; of a definition that is gone what it
    /// said at the time counts.
    async fn deliver(&self, events: &[(Event, &Value)]) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.try_deliver(events).await {
                Ok(()) => {
                    let count = events.len() as u64;
                    return self.decisions.outbox(&self.name, |counts| counts.sent += count);
                }
                Err(why) => {
                    self.decisions.outbox(&self.name, |counts| counts.failed += 1);
                    tracing::debug!(definition = self.name, why, "events were not accepted");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn try_deliver(&self, events: &[(Event, &Value)]) -> Result<(), String> {
        let definition = api(&self.client, "ServiceQuotaDefinition", DEFINITIONS.1).get_opt(&self.name).await;
        let definition = definition.map_err(|error| error.to_string())?;
        let now = definition.map(|one| whole(&one)["spec"]["usageSink"].clone()).filter(|sink| !sink.is_null());
        let (mut rest, mut batch) = (events.iter().peekable(), Vec::new());
        while let Some((event, then)) = rest.next() {
            let sink = now.as_ref().unwrap_or(then);
            let (event, to) = addressed(event, sink)?;
            batch.push(event);
            let ends = rest.peek().is_none_or(|(_, next)| now.is_none() && next != then);
            if ends {
                let told = meter(&self.client, &to.to, &mut Secrets::default()).await.tell(&batch).await;
                told.map_err(|failure| failure.message().to_owned())?;
                batch.clear();
            }
        }
        Ok(())
    }
}

/// An event as a sink wants it: under its name of the meter and of dimensions.
fn addressed(event: &Event, sink: &Value) -> Result<(Event, Sink), String> {
    let mut errors = Vec::new();
    let read = Sink::read(Some(sink), &kinds::field_error::Path::new("usageSink"), &mut errors);
    let read = read.filter(|_| errors.is_empty()).ok_or_else(|| kinds::field_error::join(&errors))?;
    let mut event = event.clone();
    event.meter = read.to.meter.clone();
    for (key, _) in &mut event.dimensions {
        *key = read.to.label(key);
    }
    Ok((event, read))
}

/// The events of an entry that are a definition's, each with the sink of its time.
fn events<'a>(entry: &'a PostedEntry, definition: &str) -> Vec<(Event, &'a Value)> {
    let said = |field: &str| entry.entry[field].as_str().unwrap_or_default();
    let lines = entry.entry["lines"].as_array().into_iter().flatten().enumerate();
    let own = lines.filter(|(_, line)| line["definition"] == definition);
    let event = |(place, line): (usize, &'a Value)| {
        let of_line = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
        let mut dimensions: Vec<(String, String)> = vec![
            ("resource".into(), of_line("resource")),
            ("unit".into(), of_line("unit")),
            ("total".into(), of_line("total")),
        ];
        for field in ["change", "project", "organization", "claim"] {
            dimensions.push((field.into(), said(field).to_owned()));
        }
        for (key, value) in line["dimensions"].as_object().into_iter().flatten() {
            dimensions.push((key.clone(), value.as_str().unwrap_or_default().to_owned()));
        }
        let event = Event {
            id: format!("{}.{place}", said("id")),
            source: SOURCE.into(),
            meter: String::new(),
            subject: said("project").to_owned(),
            at_ms: entry.at_ms,
            time: said("time").to_owned(),
            value: of_line("value"),
            dimensions,
        };
        (event, &line["sink"])
    };
    own.map(event).collect()
}
