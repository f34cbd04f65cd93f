//! The engine in memory, as these tests speak to it. After every write it is audited: whatever a story is about, nothing
//! may be charged, kept or made otherwise than a recount from the objects alone says.

use std::sync::Arc;

use engine::{Draft, Expect, ObjectKey, Recount, Refused, Sight, Write, WriteKind};
use families::metrics::{Samples, Survey};
use families::{Admission, BalanceLine, Balances, Change, Families, Family, Operation, Origin, PolicyObject, Settings};
use kinds::field_error::{FieldError, join};
use ledger::SubjectId;
use rules::GroupResource;
use rules::cel::Foresight;
use serde_json::{Map, Value, json};

pub struct Desk {
    desk: engine::desk::Desk,
    pub families: Families,
    /// How many were given.
    pub uids: u128,
    /// The moment of the next write, and who asks for it.
    pub now_ms: i64,
    pub origin: Origin,
    /// Whether more than two objects are counted before a write, and not with it; and in how many slices they were.
    is_narrow: bool,
    pub slices: usize,
}

/// `pods` or `buckets.s3.example.com`.
pub fn resource(text: &str) -> GroupResource {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    GroupResource::new(group, resource)
}

impl Desk {
    pub fn new() -> Desk {
        Desk::with(Settings::default())
    }

    pub fn with(settings: Settings) -> Desk {
        let families = families::all(&settings);
        Desk {
            desk: engine::desk::Desk::new(families.clone()),
            families,
            uids: 0,
            now_ms: 0,
            origin: Origin::default(),
            is_narrow: false,
            slices: 0,
        }
    }

    /// Counts no more than two objects in the step of a write.
    pub fn narrow(mut self) -> Desk {
        self.desk.engine.count_at_once(2);
        Desk { is_narrow: true, ..self }
    }

    /// Forgets what is only in memory and starts again from what was kept.
    pub fn restarted(self) -> Desk {
        let again = Desk { desk: self.desk.again(), ..self };
        if again.is_narrow { again.narrow() } else { again }
    }

    /// The same by other settings.
    pub fn restarted_with(self, settings: Settings) -> Desk {
        let families = families::all(&settings);
        let again = Desk { desk: self.desk.restart(families.clone()), families, ..self };
        if again.is_narrow { again.narrow() } else { again }
    }

    /// The stored objects of a resource in a namespace, by name.
    pub fn stored(&self, of: &GroupResource, namespace: &str) -> Vec<Value> {
        self.desk.within(of, namespace).map(|object| object.value()).collect()
    }

    /// Makes a namespace, or gives it other labels.
    pub fn namespace(&mut self, name: &str, labels: &[(&str, &str)]) {
        let labels: Map<String, Value> = labels.iter().map(|(key, value)| (key.to_string(), json!(value))).collect();
        self.apply(&resource("namespaces"), "", name, json!({"metadata": {"labels": labels}})).unwrap();
    }

    /// Creates or replaces an object as a write through the API would; or why not.
    pub fn apply(&mut self, of: &GroupResource, namespace: &str, name: &str, object: Value) -> Result<(), String> {
        self.apply_at_length(of, namespace, name, object, |_, _| {})
    }

    /// The same by a sender that goes on with what has to be counted before the write; what happens between, before each slice.
    pub fn apply_at_length(
        &mut self,
        of: &GroupResource,
        namespace: &str,
        name: &str,
        object: Value,
        between: impl FnMut(&mut Desk, usize),
    ) -> Result<(), String> {
        let key = ObjectKey::new(of.clone(), namespace, name);
        let old = self.desk.get(&key).map(|stored| stored.value());
        let object = self.admitted(&key, old.as_ref(), object)?;
        let draft = Draft::new(object).map_err(|error| error.to_string())?;
        let (key, kind) = match old {
            None => (key, WriteKind::Create(draft)),
            Some(_) => (key, WriteKind::Update { draft, expect: Expect::default(), status: false }),
        };
        self.write_at_length(key, kind, between)
    }

    /// Stores an object as a version before might have, which refused other things.
    pub fn store(&mut self, of: &GroupResource, namespace: &str, name: &str, object: Value) {
        let draft = self.stored_as(namespace, name, object);
        let key = ObjectKey::new(of.clone(), namespace, name);
        self.write((key, WriteKind::Create(draft))).unwrap();
    }

    /// Shows an object that somebody else has stored, whatever would have been refused here.
    pub fn see(&mut self, of: &GroupResource, namespace: &str, name: &str, object: Value) {
        let draft = Some(self.stored_as(namespace, name, object));
        let key = ObjectKey::new(of.clone(), namespace, name);
        self.desk.see(Sight { key, draft, keeps_hold: false, now_ms: self.now_ms });
        assert!((0..64).any(|_| self.desk.publish(self.now_ms) == 0), "every status comes to rest");
    }

    fn stored_as(&mut self, namespace: &str, name: &str, mut object: Value) -> Draft {
        self.uids += 1;
        object["metadata"]["name"] = json!(name);
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        object["metadata"]["uid"] = json!(kinds::uid::text(SubjectId(self.uids)));
        Draft::new(object).unwrap()
    }

    /// Writes a status as whoever may write one does.
    pub fn tell(&mut self, of: &GroupResource, namespace: &str, name: &str, status: Value) -> Result<(), String> {
        let mut object = self.projected(of, namespace, name);
        object["status"] = status;
        let draft = Draft::new(object).map_err(|error| error.to_string())?;
        let kind = WriteKind::Update { draft, expect: Expect::default(), status: true };
        self.write((ObjectKey::new(of.clone(), namespace, name), kind))
    }

    pub fn delete(&mut self, of: &GroupResource, namespace: &str, name: &str) -> Result<(), String> {
        let key = ObjectKey::new(of.clone(), namespace, name);
        self.write((key, WriteKind::Delete { expect: Expect::default(), last: None }))
    }

    /// What a request passes before it is decided: names, and what families fill in and refuse.
    fn admitted(&mut self, key: &ObjectKey, old: Option<&Value>, mut object: Value) -> Result<Value, String> {
        self.uids += 1;
        let uid = json!(kinds::uid::text(SubjectId(self.uids)));
        object["metadata"]["name"] = json!(&*key.name);
        if !key.namespace.is_empty() {
            object["metadata"]["namespace"] = json!(&*key.namespace);
        }
        object["metadata"]["uid"] = old.map_or(uid, |old| old["metadata"]["uid"].clone());
        // Who replaces an object does not replace what is told of it.
        if let Some(status) = old.and_then(|old| old.get("status")).filter(|_| object.get("status").is_none()) {
            object["status"] = status.clone();
        }
        let (view, origin) = (self.desk.engine.view(0), Origin::default());
        for family in self.families.iter() {
            family.admit(&mut request(key, old, &mut object, &origin), &view)?;
        }
        let validate =
            |family: &Arc<dyn Family>| family.validate(&request(key, old, &mut object, &origin), &view).errors;
        let errors: Vec<FieldError> = self.families.iter().flat_map(validate).collect();
        if errors.is_empty() { Ok(object) } else { Err(join(&errors)) }
    }

    /// What a stored policy is made into: its accounts, and a fingerprint of all that decides whom it charges how much.
    pub fn compiled(&self, of: &GroupResource, name: &str) -> (Vec<String>, Vec<u8>) {
        let object = self.desk.get(&ObjectKey::new(of.clone(), "", name)).unwrap().value();
        let policy = PolicyObject { resource: of, namespace: "", name, object: &object, in_force: None };
        let family = self.families.of_policy(of).unwrap();
        let compiled = family.compile(&policy, &self.desk.engine.view(self.now_ms)).ok().unwrap();
        (compiled.accounts.iter().map(|account| account.resource.to_string()).collect(), compiled.fingerprint)
    }

    /// What else than the right to make it a write takes of its author: `verb resource namespace/name`.
    pub fn rights(&self, of: &GroupResource, namespace: &str, name: &str, new: Option<&Value>) -> Vec<String> {
        let old = self.desk.get(&ObjectKey::new(of.clone(), namespace, name)).map_or(Value::Null, |old| old.value());
        let change = Change { resource: of, namespace, name, old: &old, new, origin: &self.origin };
        let view = self.desk.engine.view(self.now_ms);
        let rights = self.families.iter().flat_map(|family| family.rights(&change, &view));
        rights.map(|one| format!("{} {} {}/{}", one.verb, one.resource, one.namespace, one.name)).collect()
    }

    fn write(&mut self, (key, kind): (ObjectKey, WriteKind)) -> Result<(), String> {
        self.write_at_length(key, kind, |_, _| {})
    }

    fn write_at_length(
        &mut self,
        key: ObjectKey,
        mut kind: WriteKind,
        mut between: impl FnMut(&mut Desk, usize),
    ) -> Result<(), String> {
        let (mut slices, mut begins) = (0, false);
        let written = loop {
            // Somebody who is put off again and again has it counted at once.
            let foresight = if slices < 100 && self.is_narrow { Foresight::Asked } else { Foresight::None };
            let (key, origin) = (key.clone(), self.origin.clone());
            let write = Write { key, kind, dry_run: false, now_ms: self.now_ms, foresight, origin };
            let answer = if begins { self.desk.stage(write) } else { self.desk.try_write(write) };
            let postponed = match answer {
                Ok(written) => break written,
                Err(postponed) => postponed,
            };
            match postponed.recount {
                None => panic!("no expression takes long here"),
                Some(Recount::ToBegin) => begins = true,
                Some(Recount::Begun(ticket)) => loop {
                    between(self, slices);
                    (slices, self.slices) = (slices + 1, self.slices + 1);
                    if self.desk.count_on(ticket, Vec::new(), self.now_ms).is_last != Some(false) {
                        break;
                    }
                },
            }
            kind = postponed.kind;
        };
        // What one status tells may be told by another.
        assert!((0..64).any(|_| self.desk.publish(self.now_ms) == 0), "every status comes to rest");
        let report = self.desk.engine.snapshot().audit();
        assert_eq!((report.differences, report.missing, report.broken), (vec![], 0, vec![]));
        written.map(drop).map_err(|refused| self.words(refused))
    }

    /// What the client is told first.
    fn words(&self, refused: Refused) -> String {
        match refused {
            Refused::Denied(denials) => self.families.of_policy(&denials[0].resource).unwrap().words(&denials[0]).text,
            Refused::Said { refusal, .. } => refusal.message,
            Refused::Unmeasurable { policy, message } => format!("{policy}: {message}"),
            Refused::Invalid(errors) => join(&errors),
            other => format!("{other:?}"),
        }
    }

    /// Forgets what is only in memory and starts again.
    pub fn restart(&mut self) {
        let desk = std::mem::replace(&mut self.desk, engine::desk::Desk::new(self.families.clone()));
        self.desk = desk.again();
        assert!((0..64).any(|_| self.desk.publish(self.now_ms) == 0), "every status comes to rest");
    }

    /// All objects of a resource, as they are stored.
    pub fn all(&self, of: &GroupResource) -> Vec<Value> {
        self.desk.list(of).map(|object| object.value()).collect()
    }

    /// An object as readers see it.
    pub fn projected(&self, of: &GroupResource, namespace: &str, name: &str) -> Value {
        let mut object = self.desk.get(&ObjectKey::new(of.clone(), namespace, name)).unwrap().value();
        if let Some(family) = self.families.of_projected(of) {
            family.project(of, &mut object, self);
        }
        object
    }

    pub fn status(&self, of: &GroupResource, namespace: &str, name: &str) -> Value {
        self.projected(of, namespace, name)["status"].clone()
    }

    /// The objects of a resource that is not stored.
    pub fn virtual_objects(&self, of: &GroupResource, namespace: &str) -> Vec<Value> {
        let view = self.desk.engine.view(0);
        let shown = self.families.iter().map(|family| family.virtual_objects(of, namespace, &view, self));
        shown.flatten().collect()
    }

    /// What was written down since the last time.
    pub fn take_records(&mut self) -> Vec<families::Record> {
        std::mem::take(&mut self.desk.records).into_iter().map(|(_, record)| record).collect()
    }

    /// What monitoring is told.
    pub fn sample(&self) -> String {
        let mut samples = Samples::default();
        self.families.iter().for_each(|family| family.sample(self, &mut samples));
        samples.text()
    }
}

fn request<'a>(key: &'a ObjectKey, old: Option<&'a Value>, object: &'a mut Value, origin: &'a Origin) -> Admission<'a> {
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    let (resource, namespace, name) = (&key.resource, &*key.namespace, &*key.name);
    Admission { operation, resource, subresource: "", namespace, name, object, old, origin }
}

impl Balances for Desk {
    fn of(&self, policy: &str) -> Vec<BalanceLine> {
        self.desk.of(policy)
    }
}

impl Survey for Desk {
    fn each(&self, resource: &GroupResource, look: &mut dyn FnMut(&Value)) {
        self.desk.list(resource).for_each(|object| look(&object.value()));
    }
}
