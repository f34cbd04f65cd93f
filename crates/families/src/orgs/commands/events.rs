//! What happened, and what follows from it: every view can be made again from the events alone.

use std::collections::BTreeMap;

use kinds::fields::text;
use serde_json::Value;

use super::super::names::*;
use crate::Plural;

/// What follows from other objects.
pub const DERIVED: [&str; 4] = ["held", "charged_bindings", "snapshots_max", "snapshots_expires_at_ms"];

/// What of an object is told in events and shown in views: its spec, without what follows from other objects.
pub fn state(object: &Value) -> Value {
    match object.get("spec") {
        Some(Value::Object(fields)) => {
            let own = fields.iter().filter(|(field, _)| !DERIVED.contains(&field.as_str()));
            Value::Object(own.map(|(field, value)| (field.clone(), value.clone())).collect())
        }
        other => other.cloned().unwrap_or(Value::Null),
    }
}

/// Whether objects of this kind are told in events. Leases and keys pass by themselves, tiers are a file's, and a hostname
/// follows from its route.
pub fn is_rebuilt(plural: Plural) -> bool {
    ![TIERS, HOSTNAMES, LOG_STREAMS, IDEMPOTENCY_KEYS].contains(&plural)
}

/// Views made again from events, and what is wrong with the events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rebuilt {
    /// By kind of aggregate, organization and id.
    pub views: BTreeMap<(String, String, String), Value>,
    pub events: u64,
    /// Gaps in the numbering of an aggregate's events: something was not told.
    pub gaps: Vec<String>,
}

/// Views as they are made from events, one after the other. All that happens to what is told is told: nothing passes by itself.
#[derive(Debug, Default)]
pub struct Rebuilding {
    rebuilt: Rebuilt,
    sequences: BTreeMap<(String, String, String), i64>,
}

impl Rebuilding {
    /// A view as it was written down, before the events that are played.
    pub fn begin_with(&mut self, kind: String, org: String, id: String, view: Value) {
        let key = (kind, org, id);
        self.sequences.insert(key.clone(), view["version"].as_i64().unwrap_or(0));
        self.rebuilt.views.insert(key, view);
    }

    pub fn play(&mut self, event: &Value) {
        let Rebuilding { rebuilt, sequences } = self;
        rebuilt.events += 1;
        let of = |field: &str| text(event, &[field]).to_owned();
        let key = (of("aggregate_type"), of("org_id"), of("aggregate_id"));
        let sequence = event["aggregate_seq"].as_i64().unwrap_or(0);
        let before = sequences.get(&key).copied().unwrap_or(0);
        // An aggregate that comes back under the same name begins again.
        if sequence != before + 1 && sequence != 1 {
            rebuilt.gaps.push(format!("{}/{}/{}: {sequence} follows {before}", key.0, key.1, key.2));
        }
        sequences.insert(key.clone(), sequence);
        match event.get("new").filter(|new| !new.is_null()) {
            Some(new) => drop(rebuilt.views.insert(key, new.clone())),
            None => drop(rebuilt.views.remove(&key)),
        }
        // With an organization goes what is left of it.
        if text(event, &["event_type"]) == "org.deleted" {
            let org = of("org_id");
            rebuilt.views.retain(|(_, of, _), _| *of != org);
            sequences.retain(|(_, of, _), _| *of != org);
        }
    }

    pub fn done(self) -> Rebuilt {
        self.rebuilt
    }
}

/// Plays events in their order, from the first one on.
pub fn rebuild<'a>(events: impl IntoIterator<Item = &'a Value>) -> Rebuilt {
    let mut rebuilding = Rebuilding::default();
    events.into_iter().for_each(|event| rebuilding.play(event));
    rebuilding.done()
}
