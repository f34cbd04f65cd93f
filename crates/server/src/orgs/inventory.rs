//! How all organizations stood at one moment, written down in a journal of its own: then their events before it need not stay for the
//! sake of views, and the oldest go once all of them take more room than they may.
//!
//! ```text
//!   events ─▶ too long together ─▶ inventory: views in parts, then as_of_event_id ─▶ events up to there may go
//!   rebuild: the views of the inventory, then events after it
//! ```
//!
//! Nothing stands still for it. Events that come while the views are looked at are played over them, so that what is written down is
//! what the events up to that moment tell, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use families::orgs::commands::{is_rebuilt, kind_word, state};
use families::orgs::names::{KINDS, ORGS};
use kinds::fields::text;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Journal, Journals, PageLimit, Retention, StoreError};
use uuid::Uuid;

use super::carry::{barrier, origin, write_entries};
use crate::api::{Api, Parts};
use crate::core::Listing;

/// Between two looks at how much room events take.
const LOOK: Duration = Duration::from_secs(5);
/// The longest part. One view always fits: it was told in an event, which is no longer.
const PART_BYTES_MAX: usize = 200 * 1024;
const _: () = assert!(PART_BYTES_MAX > families::orgs::commands::EVENT_BYTES_MAX + 256);
const PAGE: PageLimit = PageLimit { entries: 1000, bytes: 1 << 20 };

/// Where an inventory is in its journal, and up to which event it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inventory {
    pub first: u64,
    /// The entry that says that it is complete.
    pub last: u64,
    pub as_of: u64,
}

/// The last one that is complete.
#[derive(Default)]
pub struct Latest(Mutex<Option<Inventory>>);

impl Latest {
    pub fn get(&self) -> Option<Inventory> {
        *self.0.lock()
    }
}

/// The entry that ends an inventory.
#[derive(Deserialize)]
struct End {
    first: u64,
    as_of_event_id: u64,
}

/// Looks for the last one that is complete. Parts behind it are of one that was interrupted.
pub fn find(journals: &Journals) -> Result<Option<Inventory>, StoreError> {
    let mut before = u64::MAX;
    loop {
        let page = journals.backward(Journal::VIEWS, before, PAGE)?;
        let Some(oldest) = page.entries.last() else { return Ok(None) };
        before = oldest.sequence;
        let ends = page.entries.iter().filter(|entry| entry.value.starts_with(b"{\"as_of"));
        for entry in ends {
            if let Ok(End { first, as_of_event_id }) = serde_json::from_slice(&entry.value) {
                return Ok(Some(Inventory { first, last: entry.sequence, as_of: as_of_event_id }));
            }
        }
    }
}

/// How long events stay: the oldest go when all take more room than this, and none that no inventory tells of.
fn retain(journals: &Journals, kept: u64, latest: Option<Inventory>) {
    let stays_from = Some(latest.map_or(0, |latest| latest.as_of.saturating_add(1)));
    journals.retain(Journal::EVENTS, Retention { age_ms: None, bytes: Some(kept), stays_from });
    let stays_from = latest.map(|latest| latest.first);
    let bytes = stays_from.map(|_| 0);
    journals.retain(Journal::VIEWS, Retention { age_ms: None, bytes, stays_from });
}

/// Sees to it that events take no more room than `kept` and what comes until somebody looks, for as long as the server runs.
pub async fn run(api: Api, kept: u64) {
    let parts = Arc::clone(api.shared_parts());
    let mut tick = tokio::time::interval(LOOK);
    let mut is_known = false;
    loop {
        tick.tick().await;
        let (journals, known) = (parts.journals.clone(), is_known);
        let look = move || -> Result<(u64, Option<Inventory>), StoreError> {
            let found = if known { None } else { find(&journals)? };
            Ok((journals.bytes(Journal::EVENTS)?, found))
        };
        let (bytes, found) = match tokio::task::spawn_blocking(look).await {
            Ok(Ok(looked)) => looked,
            Ok(Err(error)) => {
                tracing::warn!(%error, "how much room the events of organizations take cannot be told");
                continue;
            }
            Err(_) => return tracing::error!("events of organizations are no longer retired: a bug"),
        };
        if !is_known {
            is_known = true;
            *api.inventory().0.lock() = found;
            retain(&parts.journals, kept, found);
        }
        // Entries go in large pieces: somewhat more stays in any case.
        if bytes <= kept.saturating_add(kept / 4) {
            continue;
        }
        match take(&parts).await {
            Ok(taken) => {
                tracing::info!(as_of_event_id = taken.as_of, bytes, "organizations were written down: old events go");
                *api.inventory().0.lock() = Some(taken);
                retain(&parts.journals, kept, Some(taken));
                parts.journals.retire((parts.clock)());
            }
            Err(why) => tracing::warn!(why, "organizations could not be written down: their events stay"),
        }
    }
}

type Key = (String, String, String);

/// What events told while views were looked at.
#[derive(Default)]
struct Meanwhile {
    views: BTreeMap<Key, Option<Value>>,
    /// Organizations that left.
    left: BTreeSet<String>,
}

impl Meanwhile {
    fn play(&mut self, event: &mut Value) {
        let of = |field: &str| text(event, &[field]).to_owned();
        let key = (of("aggregate_type"), of("org_id"), of("aggregate_id"));
        if of("event_type") == "org.deleted" {
            self.views.retain(|(_, org, _), _| *org != key.1);
            self.left.insert(key.1.clone());
        }
        let new = event["new"].take();
        self.views.insert(key, Some(new).filter(|new| !new.is_null()));
    }

    fn read(journals: &Journals, mut from: u64, end: u64) -> Result<Meanwhile, StoreError> {
        let mut meanwhile = Meanwhile::default();
        while from < end {
            let page = journals.forward(Journal::EVENTS, from, PAGE)?;
            let Some(last) = page.entries.last().map(|entry| entry.sequence) else { break };
            for entry in page.entries.iter().filter(|entry| entry.sequence < end) {
                if let Ok(mut event) = serde_json::from_slice(&entry.value) {
                    meanwhile.play(&mut event);
                }
            }
            from = last.saturating_add(1);
        }
        Ok(meanwhile)
    }
}

/// The views that are still to be written, one after the other.
struct Views {
    kinds: Vec<(&'static str, Listing)>,
    orgs: Listing,
    /// The kind that is next, and the last place of it.
    at: usize,
    after: Option<(Arc<str>, Arc<str>)>,
    meanwhile: Meanwhile,
}

impl Views {
    fn new(parts: &Parts) -> Views {
        let kinds = KINDS.iter().filter(|(_, plural)| is_rebuilt(*plural));
        let kinds = kinds.map(|(kind, plural)| (*kind, parts.cache.list(&plural.resource()))).collect();
        let orgs = parts.cache.list(&ORGS.resource());
        Views { kinds, orgs, at: 0, after: None, meanwhile: Meanwhile::default() }
    }

    /// With an organization goes what is left of it, of which nothing is told.
    fn is_there(&self, org: &str) -> bool {
        org.is_empty() || (!self.meanwhile.left.contains(org) && self.orgs.range(org, None).next().is_some())
    }

    fn next(&mut self) -> Option<(Key, Value)> {
        while let Some((kind, listing)) = self.kinds.get(self.at) {
            let next = listing.range("", self.after.as_ref()).next();
            let Some(object) = next else {
                (self.at, self.after) = (self.at + 1, None);
                continue;
            };
            let (org, name) = (Arc::clone(&object.key.namespace), Arc::clone(&object.key.name));
            let key = (kind_word(kind), org.to_string(), name.to_string());
            let told = self.meanwhile.views.remove(&key);
            let is_there = told.is_some() || self.is_there(&org);
            let view = told.unwrap_or_else(|| Some(state(&object.value())));
            self.after = Some((org, name));
            if let Some(view) = view.filter(|_| is_there) {
                return Some((key, view));
            }
        }
        // What came meanwhile, and was not among those that were looked at.
        loop {
            let (key, view) = self.meanwhile.views.pop_first()?;
            if let Some(view) = view {
                return Some((key, view));
            }
        }
    }
}

/// The views, in parts that fit into an entry each.
struct Writing {
    views: Views,
    /// One that did not fit into the part before.
    left: Option<String>,
    id: String,
    parts: u64,
    count: u64,
}

impl Writing {
    fn part(&mut self) -> Option<Vec<u8>> {
        let mut text = format!("{{\"inventory\":\"{}\",\"part\":{},\"views\":[", self.id, self.parts);
        let head = text.len();
        loop {
            let next = self.left.take().or_else(|| {
                let ((kind, org, id), view) = self.views.next()?;
                Some(json!({"kind": kind, "org_id": org, "id": id, "state": view}).to_string())
            });
            let Some(view) = next else { break };
            if text.len() > head && text.len() + view.len() + 3 > PART_BYTES_MAX {
                self.left = Some(view);
                break;
            }
            if text.len() > head {
                text.push(',');
            }
            text.push_str(&view);
            self.count += 1;
        }
        if text.len() == head {
            return None;
        }
        self.parts += 1;
        text.push_str("]}");
        Some(text.into_bytes())
    }
}

/// Writes down how all organizations stand.
async fn take(parts: &Arc<Parts>) -> Result<Inventory, String> {
    let end = |journal: Journal| {
        let journals = parts.journals.clone();
        async move {
            let span = tokio::task::spawn_blocking(move || journals.span(journal)).await.map_err(|e| e.to_string())?;
            span.map(|span| span.end).map_err(|error| error.to_string())
        }
    };
    let not_written = || "the store does not take it".to_owned();
    let from = end(Journal::EVENTS).await?;
    // All that was told by then is shown, and all that is shown was told by the second.
    if !barrier(parts).await {
        return Err(not_written());
    }
    let mut views = Views::new(parts);
    if !barrier(parts).await {
        return Err(not_written());
    }
    let until = end(Journal::EVENTS).await?;
    let first = end(Journal::VIEWS).await?;
    let journals = parts.journals.clone();
    let read = tokio::task::spawn_blocking(move || Meanwhile::read(&journals, from, until)).await;
    views.meanwhile = read.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    let mut writing = Writing { views, left: None, id: Uuid::new_v4().simple().to_string(), parts: 0, count: 0 };
    loop {
        let made = tokio::task::spawn_blocking(move || {
            let part = writing.part();
            (writing, part)
        });
        let part;
        (writing, part) = made.await.map_err(|error| error.to_string())?;
        let Some(part) = part else { break };
        if !write_entries(parts, vec![(Journal::VIEWS, part)], origin(Uuid::nil())).await {
            return Err(not_written());
        }
    }
    let as_of = until.saturating_sub(1);
    let (id, count) = (&writing.id, writing.count);
    let last = format!(
        "{{\"as_of_event_id\":{as_of},\"first\":{first},\"inventory\":\"{id}\",\"parts\":{},\"count\":{count}}}",
        writing.parts
    );
    if !write_entries(parts, vec![(Journal::VIEWS, last.into_bytes())], origin(Uuid::nil())).await {
        return Err(not_written());
    }
    let last = end(Journal::VIEWS).await?.saturating_sub(1);
    Ok(Inventory { first, last, as_of })
}

/// The views of a part, as they are written in it.
pub fn views_of(part: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(part).ok()?;
    text.split_once("\"views\":[")?.1.strip_suffix("]}")
}

#[cfg(test)]
mod tests {
    use store::{Batch, MemoryStore, Store};

    use super::*;

    fn appended(entries: &[&str]) -> Journals {
        let mut store = MemoryStore::new();
        let mut batch = Batch::new();
        entries.iter().for_each(|entry| batch.append(Journal::VIEWS, 0, entry.as_bytes()));
        store.commit(&batch).unwrap();
        store.journals()
    }

    #[test]
    fn the_last_one_that_is_complete_is_found() {
        let part = |id: &str, part: u64| format!("{{\"inventory\":\"{id}\",\"part\":{part},\"views\":[]}}");
        let end = |first: u64, as_of: u64| format!("{{\"as_of_event_id\":{as_of},\"first\":{first}}}");
        let entries = [part("a", 0), end(1, 7), part("b", 0), part("b", 1), end(3, 9), part("c", 0), part("c", 1)];
        let found = |count: usize| {
            let entries: Vec<&str> = entries[..count].iter().map(String::as_str).collect();
            find(&appended(&entries)).unwrap()
        };
        let first = Some(Inventory { first: 1, last: 2, as_of: 7 });
        let second = Some(Inventory { first: 3, last: 5, as_of: 9 });
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(found), [None, None, first, first, first, second, second, second]);
        // However many parts of one that was interrupted there are.
        let many = vec![part("c", 1); 3000];
        let entries: Vec<&str> = entries[..2].iter().chain(&many).map(String::as_str).collect();
        assert_eq!(find(&appended(&entries)).unwrap(), first);
    }

    #[test]
    fn what_is_told_meanwhile_is_played_in_its_order() {
        let event = |kind: &str, org: &str, id: &str, new: Value| {
            json!({"aggregate_type": kind, "org_id": org, "aggregate_id": id, "new": new,
                "event_type": if kind == "org" && new.is_null() { "org.deleted" } else { "x" }})
        };
        let mut meanwhile = Meanwhile::default();
        for mut event in [
            event("app", "acme", "a", json!(1)),
            event("app", "acme", "b", json!(1)),
            event("app", "acme", "b", Value::Null),
            event("app", "rival", "a", json!(1)),
            event("org", "rival", "rival", Value::Null),
            event("app", "rival", "c", json!(2)),
        ] {
            meanwhile.play(&mut event);
        }
        let view = |org: &str, id: &str| meanwhile.views.get(&("app".into(), org.into(), id.into())).cloned();
        assert_eq!(view("acme", "a"), Some(Some(json!(1))));
        assert_eq!(view("acme", "b"), Some(None));
        assert_eq!([view("rival", "a"), view("rival", "c")], [None, Some(Some(json!(2)))]);
        assert!(meanwhile.left.contains("rival"));
    }

    #[test]
    fn views_are_handed_on_as_they_were_written() {
        let part = br#"{"inventory":"a","part":0,"views":[{"id":"x","state":{"views":["]}"]}},{"id":"y"}]}"#;
        assert_eq!(views_of(part), Some(r#"{"id":"x","state":{"views":["]}"]}},{"id":"y"}"#));
        assert_eq!(views_of(br#"{"as_of_event_id":7,"first":1}"#), None);
    }
}
