//! What happened, and what follows from it: every view can be made again from the events alone.

use std::collections::BTreeMap;

use kinds::fields::text;
use serde::ser::{Serialize, SerializeMap, Serializer};
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

/// The same, to be written down without a copy of it.
pub struct State<'a>(pub &'a Value);

impl Serialize for State<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(spec) = self.0.get("spec") else { return serializer.serialize_unit() };
        let Value::Object(fields) = spec else { return spec.serialize(serializer) };
        let mut told = serializer.serialize_map(None)?;
        for (field, value) in fields.iter().filter(|(field, _)| !DERIVED.contains(&field.as_str())) {
            told.serialize_entry(field, value)?;
        }
        told.end()
    }
}

/// One change of one aggregate, in the order in which its fields are written.
#[derive(serde::Serialize)]
pub struct Event<'a> {
    pub actor_id: &'a str,
    pub actor_type: &'a str,
    pub aggregate_id: &'a str,
    pub aggregate_seq: i64,
    pub aggregate_type: &'a str,
    pub app_id: Option<&'a Value>,
    pub correlation_id: Option<&'a str>,
    pub env_id: Option<&'a Value>,
    pub event_type: &'a str,
    pub event_version: i64,
    pub idempotency_key: Option<&'a str>,
    pub new: Option<State<'a>>,
    pub occurred_at: &'a str,
    pub occurred_at_ms: i64,
    pub old: Option<State<'a>>,
    pub org_id: Option<&'a str>,
    pub payload: &'a Value,
    pub request_id: &'a str,
}

impl Event<'_> {
    pub fn written(&self) -> Told {
        let line = serde_json::to_vec(self).expect("fields that have names are JSON");
        Told { event_type: self.event_type.to_owned(), line }
    }
}

/// An event as it is written down.
#[derive(Clone, Debug)]
pub struct Told {
    pub event_type: String,
    pub line: Vec<u8>,
}

impl Told {
    pub fn read(&self) -> Value {
        serde_json::from_slice(&self.line).unwrap_or_default()
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
