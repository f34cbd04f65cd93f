//! How commands read and write: objects with their versions, and an event for every change.

use std::sync::Arc;

use kinds::fields::{given, text};
use kinds::time;
use ledger::SubjectId;
use rules::policy_name;
use serde_json::{Map, Value, json};

use super::super::OrgFacts;
use super::super::dimensions::Dimension;
use super::super::footprint::Footprint;
use super::super::names::*;
use super::super::status::{Row, rows};
use super::super::words::Violation;
use super::events::{Event, State, Told, state};
use super::problem::Problem;
use super::{Actor, Around};
use crate::{Parsed, Place, Plural};

/// One request as commands see it.
pub struct Asking<'a> {
    pub org: &'a str,
    pub actor: &'a Actor,
    pub request_id: &'a str,
    pub idempotency_key: Option<&'a str>,
    /// The version that whoever asks wants to change.
    pub expected_version: Option<i64>,
    pub around: Around<'a>,
}

/// A stored object.
#[derive(Clone)]
pub struct Stored {
    pub plural: Plural,
    pub name: String,
    pub object: Arc<Value>,
}

impl Stored {
    pub fn spec(&self) -> &Value {
        &self.object["spec"]
    }

    pub fn revision(&self) -> u64 {
        text(&self.object, &["metadata", "resourceVersion"]).parse().unwrap_or(0)
    }

    pub fn version(&self) -> i64 {
        given(&self.object, &["spec", "version"]).and_then(Value::as_i64).unwrap_or(0)
    }
}

/// What is asked of releases and rollouts over all of them.
pub struct RecordFacts {
    pub name: String,
    pub app: String,
    /// The environment's name, of a rollout.
    pub env: String,
    pub number: i64,
    pub release: String,
    pub is_open: bool,
    pub started_at_ms: Option<i64>,
}

impl RecordFacts {
    fn parse(object: &Value) -> Parsed {
        let spec = &object["spec"];
        let of = |field: &str| text(spec, &[field]).to_owned();
        Arc::new(RecordFacts {
            name: text(object, &["metadata", "name"]).to_owned(),
            app: of("app"),
            env: env_name(text(spec, &["app"]), text(spec, &["env"])),
            number: spec["number"].as_i64().unwrap_or(0),
            release: of("release"),
            is_open: matches!(text(spec, &["state"]), "queued" | "rolling"),
            started_at_ms: spec["started_at_ms"].as_i64(),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    Create,
    /// Of the object at this revision.
    Update(u64),
    Delete(u64),
    /// Whatever there is.
    UpdateAny,
    DeleteAny,
}

/// One write.
#[derive(Clone, Debug)]
pub struct Step {
    pub place: Place,
    pub kind: StepKind,
    /// The object as it is to be stored; as it was, where it goes.
    pub object: Value,
}

/// What is answered when all is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    Created,
    Changed,
    /// It was as asked before: nothing is written.
    AsItWas,
    Deleted,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub done: Done,
    pub body: Value,
    pub steps: Vec<Step>,
    pub events: Vec<Told>,
    /// Whether it is a part of what was asked for: the same command, run again after this step, goes on.
    pub goes_on: bool,
    /// How many process types surge in it: with fewer it may fit.
    pub surges: usize,
    /// Whether a rollout that cannot surge is refused.
    pub surges_or_nothing: bool,
}

impl Outcome {
    pub fn new(done: Done) -> Outcome {
        Outcome {
            done,
            body: Value::Null,
            steps: Vec::new(),
            events: Vec::new(),
            goes_on: false,
            surges: 0,
            surges_or_nothing: false,
        }
    }

    pub fn as_it_was(stored: &Stored) -> Outcome {
        Outcome { body: row(&stored.object), ..Outcome::new(Done::AsItWas) }
    }

    pub fn showing(self, row: Value) -> Outcome {
        Outcome { body: row, ..self }
    }
}

/// An object as it is answered: its id, its version and its spec, without what is the server's own business.
pub fn row(object: &Value) -> Value {
    let mut row = Map::new();
    row.insert("id".into(), object["metadata"]["name"].clone());
    row.insert("created_at".into(), object["metadata"]["creationTimestamp"].clone());
    if let Value::Object(state) = state(object) {
        row.extend(state);
    }
    Value::Object(row)
}

/// A copy of an object without its spec, for one that gets another.
fn without_spec(object: &Value) -> Value {
    let fields = object.as_object().into_iter().flatten().filter(|(field, _)| *field != "spec");
    Value::Object(fields.map(|(field, value)| (field.clone(), value.clone())).collect())
}

/// What events call a kind: `volume_attachment`.
pub fn kind_word(kind: &str) -> String {
    let mut word = String::new();
    for (place, c) in kind.chars().enumerate() {
        if c.is_ascii_uppercase() && place > 0 {
            word.push('_');
        }
        word.push(c.to_ascii_lowercase());
    }
    word
}

/// The rollout that something belongs to.
fn correlation<'a>(plural: Plural, name: &'a str, spec: &'a Value, payload: &'a Value) -> Option<&'a str> {
    let deploy = match plural {
        DEPLOYS => name,
        INSTANCES => text(spec, &["deploy"]),
        _ => text(payload, &["deploy_id"]),
    };
    (!deploy.is_empty()).then_some(deploy)
}

impl Asking<'_> {
    pub fn find(&self, plural: Plural, name: &str) -> Option<Stored> {
        let namespace = if is_global(plural) { "" } else { self.org };
        let object = self.around.world.get(&plural.resource(), namespace, name)?;
        Some(Stored { plural, name: name.into(), object })
    }

    pub fn load(&self, plural: Plural, name: &str) -> Result<Stored, Problem> {
        self.find(plural, name).ok_or_else(|| Problem::not_found(&kind_word(kind_of(plural)).replace('_', " "), name))
    }

    /// The object that a command changes, at the version that was expected.
    pub fn load_to_change(&self, plural: Plural, name: &str) -> Result<Stored, Problem> {
        let stored = self.load(plural, name)?;
        self.check_version(&stored)?;
        Ok(stored)
    }

    /// Whether it is the version that was expected.
    pub fn check_version(&self, stored: &Stored) -> Result<(), Problem> {
        match self.expected_version {
            Some(expected) if expected != stored.version() => {
                let why = format!("version {expected} was expected, and it is {}", stored.version());
                Err(Problem::conflict("version_conflict", why))
            }
            _ => Ok(()),
        }
    }

    pub fn list(&self, plural: Plural) -> Vec<Stored> {
        let namespace = if is_global(plural) { "" } else { self.org };
        let all = self.around.world.list(&plural.resource(), namespace).into_iter();
        let stored = |object: Arc<Value>| {
            let name = text(&object, &["metadata", "name"]).to_owned();
            Stored { plural, name, object }
        };
        all.map(stored).collect()
    }

    /// What is asked of records of one kind. There may be many and long ones: nothing else of them is kept in mind.
    pub fn records(&self, plural: Plural) -> Vec<Arc<RecordFacts>> {
        let all = self.around.world.parsed(&plural.resource(), self.org, &RecordFacts::parse);
        all.into_iter().filter_map(|one| one.downcast::<RecordFacts>().ok()).collect()
    }

    /// Of records with these facts the objects.
    pub fn stored<'f>(&self, plural: Plural, facts: impl IntoIterator<Item = &'f Arc<RecordFacts>>) -> Vec<Stored> {
        facts.into_iter().filter_map(|one| self.find(plural, &one.name)).collect()
    }

    /// A new id that sorts by time.
    pub fn new_id(&mut self, prefix: &str) -> String {
        let moment = self.around.now_ms.max(0);
        format!("{prefix}-{moment:011x}{:08x}", (self.around.ids)() & 0xffff_ffff)
    }

    fn metadata(&mut self, plural: Plural, name: &str) -> Value {
        let uid = kinds::uid::text(SubjectId((self.around.ids)()));
        let created = time::text(self.around.now_ms);
        let mut metadata = json!({"name": name, "uid": uid, "creationTimestamp": created, "generation": 1});
        if !is_global(plural) {
            metadata["namespace"] = json!(self.org);
        }
        metadata
    }

    /// A new object of one of our kinds.
    pub fn object(&mut self, plural: Plural, name: &str, spec: Value) -> Value {
        let metadata = self.metadata(plural, name);
        json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind_of(plural), "metadata": metadata, "spec": spec,
        })
    }

    fn place(&self, plural: Plural, name: &str) -> Place {
        Place::new(plural.resource(), if is_global(plural) { "" } else { self.org }, name)
    }

    /// Writes a new object, and tells it; how it is answered.
    pub fn create(
        &mut self,
        out: &mut Outcome,
        plural: Plural,
        name: &str,
        mut spec: Value,
        event: &str,
        more: Value,
    ) -> Value {
        spec["version"] = json!(1);
        let object = self.object(plural, name, spec);
        out.events.push(self.tell((plural, name), (event, 1), &more, None, Some(&object)));
        self.put(out, plural, name, StepKind::Create, object)
    }

    /// Writes what is not told in an event: leases and keys.
    pub fn create_quietly(&mut self, out: &mut Outcome, plural: Plural, name: &str, spec: Value) -> Value {
        let object = self.object(plural, name, spec);
        self.put(out, plural, name, StepKind::Create, object)
    }

    fn put(&self, out: &mut Outcome, plural: Plural, name: &str, kind: StepKind, object: Value) -> Value {
        let row = row(&object);
        out.steps.push(Step { place: self.place(plural, name), kind, object });
        row
    }

    /// Writes a changed object, and tells each change; how it is answered.
    pub fn change(&mut self, out: &mut Outcome, stored: &Stored, mut spec: Value, events: &[(&str, Value)]) -> Value {
        let told = i64::try_from(events.len().max(1)).unwrap_or(1);
        spec["version"] = json!(stored.version().saturating_add(told));
        let mut object = without_spec(&stored.object);
        let generation = object["metadata"]["generation"].as_i64().unwrap_or(0).saturating_add(1);
        object["metadata"]["generation"] = json!(generation);
        object["spec"] = spec;
        for (number, (event, more)) in (1..).zip(events) {
            let sequence = stored.version().saturating_add(number);
            let what = (stored.plural, stored.name.as_str());
            out.events.push(self.tell(what, (event, sequence), more, Some(&stored.object), Some(&object)));
        }
        self.put(out, stored.plural, &stored.name, StepKind::Update(stored.revision()), object)
    }

    pub fn delete(&mut self, out: &mut Outcome, stored: &Stored, event: &str, more: Value) {
        let place = self.place(stored.plural, &stored.name);
        let kind = StepKind::Delete(stored.revision());
        out.steps.push(Step { place, kind, object: (*stored.object).clone() });
        let sequence = stored.version().saturating_add(1);
        let what = (stored.plural, stored.name.as_str());
        out.events.push(self.tell(what, (event, sequence), &more, Some(&stored.object), None));
    }

    /// The event of an object that was one and is another.
    fn tell(
        &self,
        (plural, name): (Plural, &str),
        (event, sequence): (&str, i64),
        payload: &Value,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Told {
        let spec = new.or(old).and_then(|object| object.get("spec")).unwrap_or(&Value::Null);
        let told = Event {
            occurred_at: &time::text(self.around.now_ms),
            occurred_at_ms: self.around.now_ms,
            aggregate_type: &kind_word(kind_of(plural)),
            aggregate_id: name,
            aggregate_seq: sequence,
            event_type: event,
            event_version: 1,
            actor_type: self.actor.kind,
            actor_id: &self.actor.id,
            org_id: (!is_global(plural)).then_some(self.org),
            app_id: spec.get("app"),
            env_id: spec.get("env"),
            request_id: self.request_id,
            idempotency_key: self.idempotency_key,
            correlation_id: correlation(plural, name, spec, payload),
            payload,
            old: old.map(State),
            new: new.map(State),
        };
        told.written()
    }

    /// The usage of the organization, as it was last published.
    pub fn usage(&self) -> Vec<Row> {
        let Some(org) = self.find(ORGS, self.org) else { return Vec::new() };
        let policy = policy_name(&ORGS.resource(), self.org, self.org);
        rows(&org.object, &self.around.balances.of(&policy))
    }

    /// Looks whether so much more would fit, without taking it.
    pub fn look(&self, more: Footprint) -> Result<(), Problem> {
        // Whoever asks for no more needs no room: what is scaled down is looked at by nobody.
        if more == Footprint::NONE {
            return Ok(());
        }
        let usage = self.usage();
        let mut violations = Vec::new();
        for (dimension, requested) in Dimension::COMPUTE.into_iter().zip(more.amounts()) {
            let Some(row) = usage.iter().find(|row| row.dimension == dimension) else { continue };
            let Some(limit) = row.limit.filter(|_| !requested.is_zero() && !requested.is_negative()) else { continue };
            let fits = row.usage.checked_add(requested).is_some_and(|sum| sum <= limit);
            if !fits {
                let current = row.usage;
                violations.push(Violation { dimension, limit, current, requested, counted_only: false, key: None });
            }
        }
        if violations.is_empty() { Ok(()) } else { Err(Problem::quota(violations)) }
    }

    pub fn reserves(&self) -> bool {
        OrgFacts::reserves(self.org, self.around.world)
    }
}
