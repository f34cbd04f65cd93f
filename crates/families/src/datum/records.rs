//! What is written down with a claim, in the commit that decides it: its denials, which outlive it, and what it changed of usage,
//! for whoever meters that elsewhere.
//!
//! An entry of the outbox tells a difference between two stored states of one claim, so that all of a claim's entries add up to
//! what it has. Its id is made of the claim's uid and the number of the write, and stays the same however often it is sent.

use std::collections::{BTreeMap, BTreeSet};

use kinds::fields::{at, given, items, text};
use quantity::Amount;
use serde_json::{Map, Value, json};

use super::catalog::{Catalog, as_text};
use super::claim::{dimensions_of, is_released};
use super::entity::Entities;
use super::metrics::Decisions;
use crate::{Allowances, Book, Change, Record, RefusedNote, View};

/// Longest text of a reason that is kept.
const MESSAGE_CHARS_MAX: usize = 4096;
/// How much of what was asked for is written down with a denial: nobody's denials push out those of others.
const ASKED_BYTES_MAX: usize = 8 * 1024;
/// How much is told in one entry: a journal takes none that is longer than some times this.
const LINES_BYTES_MAX: usize = 32 * 1024;

/// Of one project's denials so much is written down at once, and in the long run so much a second: all share one journal, which keeps
/// thirty days or a gibibyte, and nobody's part of it is more than a thirteenth.
const OF_PROJECT_BYTES_MAX: u64 = 16 * 1024 * 1024;
const OF_PROJECT_BYTES_PER_SECOND: u64 = 24;

pub fn allowances() -> Allowances {
    Allowances::new(OF_PROJECT_BYTES_MAX, OF_PROJECT_BYTES_PER_SECOND)
}

pub fn of_claim(change: &Change<'_>, revision: u64, view: &dyn View, denials: &Denials<'_>) -> Vec<Record> {
    let denied = denied(change, view.now_ms()).and_then(|entry| denials.record(change.namespace, entry, view));
    let told = told(change, revision, view).into_iter().map(|entry| Record { book: Book::Outbox, entry });
    denied.into_iter().chain(told).collect()
}

fn short(message: &str) -> String {
    message.chars().take(MESSAGE_CHARS_MAX).collect()
}

/// That a claim is denied now, for this reason, and was not before.
fn denied(change: &Change<'_>, now_ms: i64) -> Option<Value> {
    let new = change.new?;
    let said = |object: &Value| {
        let status = |field: &str| text(object, &["status", field]).to_owned();
        (status("phase"), status("reason"), at(object, &["spec"]).cloned())
    };
    let now = said(new);
    if now.0 != "Denied" || said(change.old) == now {
        return None;
    }
    let (_, reason, _) = now;
    let mut left = ASKED_BYTES_MAX;
    let mut fits = |one: &Value| {
        let bytes = one.to_string().len();
        let fits = bytes <= left;
        left = if fits { left - bytes } else { 0 };
        fits
    };
    let resources = items(new, &["spec", "resources"]);
    let listed: Vec<&Value> = resources.iter().take_while(|one| fits(one)).collect();
    let mut entry = json!({
        "time": kinds::time::text(now_ms), "user": change.origin.identity.user, "reason": reason,
        "message": short(text(new, &["status", "message"])),
        "claim": {
            "namespace": change.namespace, "name": change.name, "uid": text(new, &["metadata", "uid"]),
            "generation": at(new, &["metadata", "generation"]),
        },
        "resourceRef": at(new, &["spec", "resourceRef"]).filter(|one| fits(one)), "resources": listed,
        "dimensions": at(new, &["spec", "dimensions"]).filter(|one| fits(one)),
    });
    if listed.len() < resources.len() {
        entry["resourcesLeftOut"] = json!(resources.len() - listed.len());
    }
    Some(entry)
}

/// Where denials are written down, as far as their project may have that.
pub struct Denials<'a> {
    pub allowances: &'a Allowances,
    pub decisions: &'a Decisions,
}

impl Denials<'_> {
    fn record(&self, namespace: &str, mut entry: Value, view: &dyn View) -> Option<Record> {
        let entities = Entities::of(view);
        let whose = entities.project(namespace).unwrap_or(namespace);
        let bytes = u64::try_from(entry.to_string().len()).unwrap_or(u64::MAX);
        let Some(more) = self.allowances.take(whose, bytes, view.now_ms()) else {
            self.decisions.note_left_out();
            return None;
        };
        if more > 0 {
            entry["leftOut"] = json!(more);
        }
        Some(Record { book: Book::Denials, entry })
    }
}

/// That a write was refused: an object whose claim does not fit, a claim that does not grow.
pub fn refused(note: &RefusedNote<'_>, view: &dyn View, denials: &Denials<'_>) -> Vec<Record> {
    let entry = json!({
        "time": kinds::time::text(note.now_ms), "user": note.origin.identity.user, "reason": note.reason,
        "message": short(note.message),
        "refused": {
            "group": &*note.resource.group, "resource": &*note.resource.resource, "namespace": note.namespace,
            "name": note.name,
        },
    });
    denials.record(note.namespace, entry, view).into_iter().collect()
}

/// What a claim has: by resource and dimensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Has {
    project: String,
    /// As they are written: one may be asked for twice under the same dimensions.
    amounts: BTreeMap<(String, BTreeMap<String, String>), Vec<String>>,
}

/// Nothing where it is not granted, or has let go.
fn has(claim: &Value) -> Has {
    if text(claim, &["status", "phase"]) != "Granted" || is_released(claim) {
        return Has::default();
    }
    let mut amounts = BTreeMap::new();
    for entry in items(claim, &["spec", "resources"]) {
        let dimensions = dimensions_of(entry, claim);
        let quantity = given(entry, &["quantity"]).map(as_text).unwrap_or_default();
        amounts.entry((text(entry, &["name"]).to_owned(), dimensions)).or_insert_with(Vec::new).push(quantity);
    }
    Has { project: text(claim, &["status", "project"]).to_owned(), amounts }
}

/// What a write changed of usage that somebody wants to be told of.
fn told(change: &Change<'_>, revision: u64, view: &dyn View) -> Vec<Value> {
    let catalog = Catalog::of(view);
    if !catalog.iter().any(|one| one.sink.is_some()) {
        return Vec::new();
    }
    let (old, new) = (has(change.old), change.new.map(has).unwrap_or_default());
    let object = change.new.unwrap_or(change.old);
    let uid = text(object, &["metadata", "uid"]);
    let nothing = Has::default();
    // Who moved to another project has let go in the one, and is granted in the other.
    let moved = !old.project.is_empty() && !new.project.is_empty() && old.project != new.project;
    let steps = if moved { vec![(&old, &nothing), (&nothing, &new)] } else { vec![(&old, &new)] };
    let mut told = Vec::new();
    for (step, (from, to)) in steps.into_iter().enumerate() {
        let lines = differences(from, to, &catalog);
        if lines.is_empty() {
            continue;
        }
        let project = if to.project.is_empty() { &from.project } else { &to.project };
        let organization = Entities::of(view).organization(project).unwrap_or_default().to_owned();
        let changed = match (from.amounts.is_empty(), to.amounts.is_empty()) {
            (true, _) => "granted",
            (_, true) => "released",
            _ => "scaled",
        };
        for (part, lines) in in_parts(lines).into_iter().enumerate() {
            let id = match part {
                0 => format!("{uid}.{revision}.{step}"),
                part => format!("{uid}.{revision}.{step}-{part}"),
            };
            told.push(json!({
                "id": id, "time": kinds::time::text(view.now_ms()), "change": changed,
                "project": project, "organization": organization,
                "claim": format!("{}/{}", change.namespace, change.name), "lines": lines,
            }));
        }
    }
    told
}

/// Lines, as many to an entry as it may have.
fn in_parts(lines: Vec<Value>) -> Vec<Vec<Value>> {
    let (mut parts, mut bytes): (Vec<Vec<Value>>, usize) = (Vec::new(), 0);
    for line in lines {
        bytes += line.to_string().len();
        match parts.last_mut().filter(|_| bytes <= LINES_BYTES_MAX) {
            Some(part) => part.push(line),
            None => {
                bytes = line.to_string().len();
                parts.push(vec![line]);
            }
        }
    }
    parts
}

fn differences(from: &Has, to: &Has, catalog: &Catalog) -> Vec<Value> {
    let keys: BTreeSet<_> = from.amounts.keys().chain(to.amounts.keys()).collect();
    let mut lines = Vec::new();
    for key in keys {
        let (name, dimensions) = key;
        let Some(definition) = catalog.get(name) else { continue };
        let Some(sink) = &definition.sink else { continue };
        let amount = |has: &Has| {
            let written = has.amounts.get(key).into_iter().flatten();
            written.map(|one| definition.unit.read(one).ok()).try_fold(Amount::ZERO, |sum, one| sum.checked_add(one?))
        };
        let (Some(before), Some(after)) = (amount(from), amount(to)) else { continue };
        let Some(difference) = after.checked_sub(before).filter(|difference| !difference.is_zero()) else { continue };
        let dimensions: Map<String, Value> =
            dimensions.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        lines.push(json!({
            "definition": definition.object, "resource": name, "unit": definition.unit_name,
            "value": definition.unit.exact(difference), "total": definition.unit.exact(after),
            "dimensions": dimensions, "sink": sink.written,
        }));
    }
    lines
}
