//! Tells whoever meters elsewhere what was granted, scaled and released: the entries of the outbox ([`super::super::records`]), in
//! their order, to each definition's sink.
//!
//! One task a definition, so that a receiver that is down holds up nobody else's. An entry is sent until it is accepted, and how far
//! each has come is kept in a ConfigMap: after a restart at most what was sent last is sent again, under the same ids. An event that is
//! refused while others are accepted is given up, and said to be: nobody's usage goes untold for the sake of one that cannot be.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use metering::{EVENTS_MAX, Event, Failure};
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
/// Events of a request that is refused of which is asked whether the receiver takes any.
const PROBED_MAX: usize = 8;
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
        let (mut from, mut pause) = (saved, FIRST_PAUSE);
        // Of the events from there on so many are with their receiver; and so often it would not have the rest.
        let (mut done, mut tries) = (0, 0);
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
                (from, done) = (posted.begin, 0);
            }
            let events: Vec<(Event, &Value)> =
                posted.entries.iter().flat_map(|entry| events(entry, &self.name)).collect();
            let delivered = self.deliver_from(&mut done, &events, tries).await;
            if let Err(why) = delivered {
                self.decisions.outbox(&self.name, |counts| counts.failed += 1);
                tracing::debug!(definition = self.name, why, "events were not accepted");
                tokio::time::sleep(pause).await;
                (pause, tries) = ((pause * 2).min(LONGEST_PAUSE), tries + 1);
                continue;
            }
            (pause, done, tries) = (FIRST_PAUSE, 0, 0);
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

    /// Sends what is left of some events, as many to a request as one takes; `done` says how far that came.
    async fn deliver_from(&self, done: &mut usize, events: &[(Event, &Value)], tries: usize) -> Result<(), String> {
        while *done < events.len() {
            let some = &events[*done..events.len().min(*done + EVENTS_MAX)];
            match self.tell(some).await {
                Ok(()) => self.accepted(some.len()),
                Err(Failure::Wrong(why)) if !self.takes_any(&events[*done..], tries).await? => return Err(why),
                Err(Failure::Wrong(_)) => self.deliver_apart(some).await?,
                Err(Failure::Unavailable(why)) => return Err(why),
            }
            *done += some.len();
        }
        Ok(())
    }

    /// Whether the receiver takes any of these. One that takes none is itself what is to be mended, and all of them wait for that.
    async fn takes_any(&self, events: &[(Event, &Value)], tries: usize) -> Result<bool, String> {
        for at in probes(events.len(), tries) {
            match self.tell(&events[at..=at]).await {
                Ok(()) => return Ok(true),
                Err(Failure::Wrong(_)) => {}
                Err(Failure::Unavailable(why)) => return Err(why),
            }
        }
        Ok(false)
    }

    /// Some events, one by one: those that are refused by a receiver that takes others are given up.
    async fn deliver_apart(&self, events: &[(Event, &Value)]) -> Result<(), String> {
        let mut refused = 0;
        for one in events {
            match self.tell(std::slice::from_ref(one)).await {
                Ok(()) => {}
                Err(Failure::Wrong(why)) => {
                    let (definition, Event { id, subject, value, .. }) = (&self.name, &one.0);
                    tracing::error!(definition, id, subject, value, why, "an event is refused for good, and given up");
                    refused += 1;
                }
                Err(Failure::Unavailable(why)) => return Err(why),
            }
        }
        self.accepted(events.len() - refused);
        self.decisions.outbox(&self.name, |counts| counts.refused += refused as u64);
        Ok(())
    }

    fn accepted(&self, count: usize) {
        self.decisions.outbox(&self.name, |counts| counts.sent += count as u64);
    }

    /// Sends events once. Whoever mends the sink meanwhile is heard; of a definition that is gone what it said at the time counts.
    async fn tell(&self, events: &[(Event, &Value)]) -> Result<(), Failure> {
        let definition = api(&self.client, "ServiceQuotaDefinition", DEFINITIONS.1).get_opt(&self.name).await;
        let definition = definition.map_err(|error| Failure::Unavailable(error.to_string()))?;
        let now = definition.map(|one| whole(&one)["spec"]["usageSink"].clone()).filter(|sink| !sink.is_null());
        let (mut rest, mut batch) = (events.iter().peekable(), Vec::new());
        while let Some((event, then)) = rest.next() {
            let sink = now.as_ref().unwrap_or(then);
            // One that cannot be read is to be mended, and no event's fault.
            let (event, to) = addressed(event, sink).map_err(Failure::Unavailable)?;
            batch.push(event);
            let ends = rest.peek().is_none_or(|(_, next)| now.is_none() && next != then);
            if ends {
                meter(&self.client, &to.to, &mut Secrets::default()).await.tell(&batch).await?;
                batch.clear();
            }
        }
        Ok(())
    }
}

/// Which of so many events are tried by themselves: from all over them, and with every try others. Whoever has events made that are
/// refused has most of them, and not all.
fn probes(count: usize, tries: usize) -> BTreeSet<usize> {
    (0..PROBED_MAX.min(count)).map(|number| (number * count / PROBED_MAX.min(count) + tries) % count).collect()
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
        let said_of = line["dimensions"].as_object().into_iter().flatten();
        let mut dimensions: Vec<(String, String)> =
            said_of.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect();
        // A dimension may be called like one of these, and its value is the claim's: what is said here comes after it, and counts.
        for field in ["resource", "unit", "total"] {
            dimensions.push((field.into(), of_line(field)));
        }
        for field in ["change", "project", "organization", "claim"] {
            dimensions.push((field.into(), said(field).to_owned()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_tried_by_itself_in_the_end() {
        for count in [0, 1, 2, 7, 8, 9, 100, 1000] {
            assert!(probes(count, 3).len() <= PROBED_MAX.min(count));
            let tried: BTreeSet<usize> = (0..=count / PROBED_MAX).flat_map(|tries| probes(count, tries)).collect();
            assert!(tried.into_iter().eq(0..count), "{count}");
        }
    }
}
