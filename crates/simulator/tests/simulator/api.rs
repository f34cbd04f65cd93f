//! The server's own engine on the simulated disk: objects and their charges in the same commits, with real quotas.
//!
//! What should happen is worked out here a second time, from the stored objects alone: a few sums over pods and config
//! maps. Every write must be answered accordingly, every event must follow on the one before, and after every crash
//! exactly the durable objects must be there, with a ledger that the server's audit finds equal to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use rules::GroupResource;
use rules::cel::Foresight;
use sequencer::Limits;
use sequencer::core::{Core, Group, commit};
use serde_json::{Value, json};
use server::core::{
    Answer, Cache, Command, Draft, Engine, EventKind, Expect, Object, ObjectKey, Refused, Write, WriteKind, Written,
};
use simulator::disk::SimDisk;
use simulator::rng::Rng;
use store::embedded::{EmbeddedStore, Options};
use store::{Batch, Store, StoreError, Table, Visit};

const OPTIONS: Options =
    Options { segment_bytes: 32 * 1024, checkpoint_bytes: 64 * 1024, background: false, accept_loss: false };
const LIMITS: Limits = Limits { queue: 64, group_commands: 5, group_bytes: 64 * 1024, group_rows: usize::MAX };
const COMMANDS: u64 = 600;
const SEEDS: u64 = 25;
const NAMESPACES: [&str; 2] = ["blue", "green"];

#[test]
fn objects_and_charges_survive_everything_together() {
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 1..=SEEDS {
        let mut service = Service::new(seed, false);
        service.live().unwrap_or_else(|trouble| panic!("seed {seed}: {trouble}"));
        service.met.into_iter().for_each(|(name, count)| *met.entry(name).or_default() += count);
    }
    let rare = ["written", "denied", "exists", "not found", "conflict", "restart", "found after all", "gone after all"];
    assert!(rare.iter().all(|name| met.get(name).is_some_and(|count| *count > 3)), "{met:?}");
}

/// The check can fail: on a disk that only says that it synced, something acknowledged is soon missing.
#[test]
fn a_disk_that_lies_is_noticed() {
    assert!((1..=SEEDS).any(|seed| Service::new(seed, true).live().is_err()));
}

/// Objects by key, and the revision of the last change.
#[derive(Clone, Default)]
struct Objects {
    revision: u64,
    stored: BTreeMap<String, Arc<Object>>,
}

/// What one namespace uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Usage {
    pods: u64,
    cpu_milli: u64,
    configmaps: u64,
}

impl Usage {
    fn of(resource: &str, value: &Value) -> Usage {
        let phase = value.pointer("/status/phase").and_then(Value::as_str).unwrap_or("Pending");
        match resource {
            "configmaps" => Usage { configmaps: 1, ..Usage::default() },
            "pods" if !matches!(phase, "Succeeded" | "Failed") => {
                Usage { pods: 1, cpu_milli: cpu_milli(value), configmaps: 0 }
            }
            _ => Usage::default(),
        }
    }

    fn amounts(self) -> [(&'static str, u64); 3] {
        [("pods", self.pods), ("requests.cpu", self.cpu_milli), ("count/configmaps", self.configmaps)]
    }

    fn plus(self, other: Usage) -> Usage {
        Usage {
            pods: self.pods + other.pods,
            cpu_milli: self.cpu_milli + other.cpu_milli,
            configmaps: self.configmaps + other.configmaps,
        }
    }
}

fn cpu_milli(pod: &Value) -> u64 {
    let text = pod.pointer("/spec/containers/0/resources/requests/cpu").and_then(Value::as_str).unwrap_or("0m");
    text.strip_suffix('m').and_then(|number| number.parse().ok()).expect("pods here ask in milli")
}

/// A hard limit of this file's quotas: cpu in milli, the rest plain.
fn hard_of(text: &str) -> u64 {
    text.trim_end_matches('m').parse().expect("quotas here are whole numbers")
}

impl Objects {
    fn of<'a>(&'a self, resource: &'a str, namespace: &'a str) -> impl Iterator<Item = &'a Arc<Object>> {
        self.stored
            .values()
            .filter(move |object| object.key.resource.is("", resource) && &*object.key.namespace == namespace)
    }

    fn usage(&self, namespace: &str) -> Usage {
        let counted = ["pods", "configmaps"]
            .into_iter()
            .flat_map(|resource| self.of(resource, namespace).map(move |object| Usage::of(resource, &object.value())));
        counted.fold(Usage::default(), Usage::plus)
    }

    /// Whether every quota of the namespace has room where the write grows.
    fn fits(&self, namespace: &str, before: Usage, after: Usage) -> bool {
        let used = self.usage(namespace);
        self.of("resourcequotas", namespace).all(|quota| {
            let value = quota.value();
            let grows = before.amounts().into_iter().zip(after.amounts()).zip(used.amounts());
            grows.into_iter().all(|(((name, before), (_, after)), (_, used))| {
                let hard = value["spec"]["hard"].get(name).and_then(Value::as_str).map(hard_of);
                after <= before || hard.is_none_or(|hard| used + after - before <= hard)
            })
        })
    }
}

struct Running {
    core: Core<Engine>,
    store: Box<dyn Store>,
    cache: Cache,
}

struct Service {
    rng: Rng,
    disk: SimDisk,
    running: Option<Running>,
    /// What is durable, and what the running engine has decided on top of it.
    durable: Objects,
    decided: Objects,
    /// After a failed commit: what is durable if it took effect after all.
    perhaps: Option<Objects>,
    uids: u128,
    now_ms: i64,
    met: BTreeMap<&'static str, u64>,
}

impl Service {
    fn new(seed: u64, disk_lies: bool) -> Service {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(rng.fork(), disk_lies);
        let (durable, decided, met) = Default::default();
        Service { rng, disk, running: None, durable, decided, perhaps: None, uids: 0, now_ms: 0, met }
    }

    fn met(&mut self, name: &'static str) {
        *self.met.entry(name).or_default() += 1;
    }

    fn live(&mut self) -> Result<(), String> {
        self.start()?;
        for namespace in NAMESPACES {
            let (key, draft) = self.new_object("namespaces", "", namespace, json!({"kind": "Namespace"}));
            self.group(vec![write(key, WriteKind::Create(draft))])?;
        }
        for turn in 0..COMMANDS {
            self.now_ms += 100;
            if self.running.is_none() {
                self.start()?;
                continue;
            }
            self.misfortune();
            let count = 1 + self.rng.below(7);
            let mut commands = Vec::new();
            for _ in 0..count {
                commands.extend(self.command());
            }
            self.group(commands)?;
            if turn % 40 == 39 {
                self.audit()?;
            }
        }
        self.disk.heal();
        while self.running.is_none() {
            self.start()?;
        }
        self.statuses_tell_the_truth()
    }

    fn misfortune(&mut self) {
        if self.rng.one_in(40) {
            self.stop(true);
        } else if self.rng.one_in(25) {
            self.disk.die_after(1 + self.rng.below(40));
        } else if self.rng.one_in(60) {
            let call = simulator::disk::CALLS[self.rng.index(simulator::disk::CALLS.len())];
            self.disk.fail(call, self.rng.below(4));
        }
    }

    fn stop(&mut self, power_fails: bool) {
        self.running = None;
        match power_fails || self.disk.has_died() {
            true => self.disk.crash(),
            false => self.disk.restart_process(),
        }
    }

    /// Starts from the disk, and compares every object with what is durable.
    fn start(&mut self) -> Result<(), String> {
        let opened = EmbeddedStore::open(Arc::new(self.disk.clone()), OPTIONS).map_err(server_error);
        let mut spy = match opened {
            Ok(store) => Spy { inner: Box::new(store), found: Objects::default() },
            Err(trouble) => return self.start_failed(&trouble),
        };
        let (engine, cache) = match Engine::load(&mut spy, families::all(&families::Settings::default())) {
            Ok(loaded) => loaded,
            Err(error) => return self.start_failed(&error.to_string()),
        };
        let mut found = spy.found;
        found.revision = engine.revision();
        self.met("restart");
        match self.perhaps.take() {
            Some(perhaps) if same(&perhaps, &found).is_ok() => {
                self.durable = perhaps;
                self.met("found after all");
            }
            perhaps => {
                same(&self.durable, &found)?;
                if perhaps.is_some() {
                    self.met("gone after all");
                }
            }
        }
        self.decided = self.durable.clone();
        self.running = Some(Running { core: Core::new(engine, LIMITS), store: spy.inner, cache });
        self.audit()
    }

    fn start_failed(&mut self, trouble: &str) -> Result<(), String> {
        let failed = !self.disk.take_failed().is_empty() || self.disk.has_died();
        self.stop(false);
        if failed { Ok(()) } else { Err(format!("the service does not start: {trouble}")) }
    }

    /// Decides commands into groups, checks each answer, commits.
    fn group(&mut self, commands: Vec<Command>) -> Result<(), String> {
        let mut commands = commands.into_iter().peekable();
        while commands.peek().is_some() && self.running.is_some() {
            let mut group: Group<Engine, ()> = Group::default();
            while let Some(command) = commands.next_if(|_| self.has_room(&group)) {
                self.step(&mut group, command)?;
            }
            let Some(running) = self.running.as_mut() else { return Ok(()) };
            running.core.seal(&mut group);
            let cache = &running.cache;
            let done = commit(&mut *running.store, &mut |publication| cache.publish(publication), &mut group);
            match done {
                Ok(()) => self.durable = self.decided.clone(),
                Err(_) => {
                    self.perhaps = Some(self.decided.clone());
                    self.stop(false);
                }
            }
        }
        Ok(())
    }

    fn has_room(&self, group: &Group<Engine, ()>) -> bool {
        self.running.as_ref().is_some_and(|running| running.core.has_room(group))
    }

    /// One command: its answer is the one that the objects ask for, and its events lead from one state to the next.
    fn step(&mut self, group: &mut Group<Engine, ()>, command: Command) -> Result<(), String> {
        let expected = self.expected(&command);
        let asked = format!("{command:?}").chars().take(300).collect::<String>();
        let Some(running) = self.running.as_mut() else { return Ok(()) };
        let before = group.publication.events.len();
        running.core.step(group, (), command);
        let Some(((), answer)) = group.answers.last() else { return Err("no answer".into()) };
        let said = match answer {
            Answer::Written(Ok(_)) => "written",
            Answer::Written(Err(Refused::Denied(_))) => "denied",
            Answer::Written(Err(Refused::AlreadyExists)) => "exists",
            Answer::Written(Err(Refused::NotFound)) => "not found",
            Answer::Written(Err(Refused::Conflict { .. })) => "conflict",
            Answer::Published { .. } => "published",
            other => return Err(format!("{asked}: {other:?}")),
        };
        if said != expected {
            return Err(format!("{asked}: {said}, expected {expected}; {answer:?}"));
        }
        *self.met.entry(said).or_default() += 1;
        let events = &group.publication.events[before..];
        if !matches!(said, "written" | "published") && !events.is_empty() {
            return Err(format!("{asked}: {said}, and still something changed"));
        }
        for event in events {
            self.decided.revision += 1;
            let (name, object) = (event.object.key.to_string(), event.object.clone());
            let known = match event.kind {
                EventKind::Deleted => self.decided.stored.remove(&name).is_some(),
                EventKind::Added => self.decided.stored.insert(name, object).is_none(),
                EventKind::Modified => self.decided.stored.insert(name, object).is_some(),
            };
            if !known || event.revision() != self.decided.revision {
                return Err(format!("{asked}: {:?} at revision {} does not follow", event.kind, event.revision()));
            }
        }
        Ok(())
    }

    fn expected(&self, command: &Command) -> &'static str {
        let Command::Write(write) = command else { return "published" };
        let stored = self.decided.stored.get(&write.key.to_string());
        let resource: &str = &write.key.resource.resource;
        let counted = |value: &Value| Usage::of(resource, value);
        let fits = |before, after| self.decided.fits(&write.key.namespace, before, after);
        match (&write.kind, stored) {
            (WriteKind::Create(_), Some(_)) => "exists",
            (WriteKind::Create(draft), None) if fits(Usage::default(), counted(&draft.value)) => "written",
            (WriteKind::Create(_), None) => "denied",
            (WriteKind::Update { .. } | WriteKind::Delete { .. }, None) => "not found",
            (WriteKind::Update { expect, .. } | WriteKind::Delete { expect, .. }, Some(stored))
                if expect.revision.is_some_and(|revision| revision != stored.revision) =>
            {
                "conflict"
            }
            (WriteKind::Update { draft, status, .. }, Some(stored)) => {
                let (before, after) = (counted(&stored.value()), counted(&draft.value));
                if *status || fits(before, after) { "written" } else { "denied" }
            }
            (WriteKind::Delete { .. }, Some(_)) => "written",
        }
    }

    fn command(&mut self) -> Option<Command> {
        let namespace = NAMESPACES[self.rng.index(2)];
        let name = format!("one-{}", self.rng.below(9));
        match self.rng.below(16) {
            0..=4 => {
                let cpu = format!("{}m", self.rng.below(6) * 100);
                let spec = json!({"containers": [{"name": "app", "resources": {"requests": {"cpu": cpu}}}]});
                let pod = json!({"kind": "Pod", "spec": spec, "status": {"phase": "Pending"}});
                let (key, draft) = self.new_object("pods", namespace, &name, pod);
                Some(write(key, WriteKind::Create(draft)))
            }
            5 | 6 => {
                let (key, draft) = self.new_object("configmaps", namespace, &name, json!({"kind": "ConfigMap"}));
                Some(write(key, WriteKind::Create(draft)))
            }
            7 | 8 => {
                let quota = json!({"kind": "ResourceQuota", "spec": {"hard": self.hard()}});
                let (key, draft) = self.new_object("resourcequotas", namespace, &name[..5], quota);
                Some(write(key, WriteKind::Create(draft)))
            }
            9 => self.update("resourcequotas", namespace, |service, value| value["spec"]["hard"] = service.hard()),
            10 => self.update("pods", namespace, |service, value| {
                let cpu = format!("{}m", service.rng.below(8) * 100);
                value["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
            }),
            11 => self.update("pods", namespace, |service, value| {
                let phase = ["Running", "Succeeded", "Failed"][service.rng.index(3)];
                value["status"]["phase"] = json!(phase);
            }),
            12..=14 => {
                let resource = ["pods", "pods", "configmaps", "resourcequotas"][self.rng.index(4)];
                let key = ObjectKey::new(GroupResource::core(resource), namespace, &name);
                let expect = Expect { revision: self.rng.one_in(8).then_some(3), uid: None };
                Some(write(key, WriteKind::Delete { expect, last: None }))
            }
            _ => Some(Command::PublishStatus { now_ms: self.now_ms }),
        }
    }

    /// Some of the limits, low enough to be met.
    fn hard(&mut self) -> Value {
        let mut hard = serde_json::Map::new();
        for (name, text) in [
            ("pods", self.rng.below(6).to_string()),
            ("requests.cpu", format!("{}m", self.rng.below(16) * 100)),
            ("count/configmaps", self.rng.below(4).to_string()),
        ] {
            if !self.rng.one_in(3) {
                hard.insert(name.into(), json!(text));
            }
        }
        Value::Object(hard)
    }

    /// A write over an object that is there, sometimes with an old revision. Only the phase is a status write.
    fn update(
        &mut self,
        resource: &str,
        namespace: &str,
        change: impl FnOnce(&mut Service, &mut Value),
    ) -> Option<Command> {
        let there: Vec<Arc<Object>> = self.decided.of(resource, namespace).cloned().collect();
        let object = there.get(self.rng.index(there.len()))?;
        let before = object.value();
        let mut value = before.clone();
        change(self, &mut value);
        let status = value["spec"] == before["spec"];
        let revision = if self.rng.one_in(10) { object.revision - 1 } else { object.revision };
        let expect = Expect { revision: Some(revision), uid: None };
        let draft = Draft::new(value).ok()?;
        Some(write(object.key.clone(), WriteKind::Update { draft, expect, status }))
    }

    fn new_object(&mut self, resource: &str, namespace: &str, name: &str, mut value: Value) -> (ObjectKey, Draft) {
        self.uids += 1;
        let uid = format!("00000000-0000-4000-8000-{:012x}", self.uids);
        value["apiVersion"] = json!("v1");
        value["metadata"] = json!({"name": name, "namespace": namespace, "uid": uid});
        let draft = Draft::new(value).expect("the object has a uid");
        (ObjectKey::new(GroupResource::core(resource), namespace, name), draft)
    }

    fn ask(&mut self, command: Command) -> Result<Answer, String> {
        let running = self.running.as_mut().ok_or("nobody is running")?;
        let (mut batch, mut publication) = (Batch::new(), Default::default());
        Ok(sequencer::Engine::step(&mut running.core.engine, command, &mut batch, &mut publication))
    }

    /// B4: the ledger is what the stored objects add up to.
    fn audit(&mut self) -> Result<(), String> {
        if self.running.is_none() {
            return Ok(());
        }
        match self.ask(Command::Snapshot)? {
            Answer::Snapshot(snapshot) => match snapshot.audit() {
                report if report.differences.is_empty() => Ok(()),
                report => Err(format!("audit: {report:?}")),
            },
            other => Err(format!("audit: {other:?}")),
        }
    }

    /// B5: in the end each quota's status shows what its namespace uses.
    fn statuses_tell_the_truth(&mut self) -> Result<(), String> {
        self.now_ms += 1_000_000;
        for _ in 0..4 {
            self.group(vec![Command::PublishStatus { now_ms: self.now_ms }])?;
        }
        for namespace in NAMESPACES {
            let used: BTreeMap<&str, u64> = self.durable.usage(namespace).amounts().into_iter().collect();
            for quota in self.durable.of("resourcequotas", namespace) {
                let value = quota.value();
                let hard = value["spec"]["hard"].as_object().cloned().unwrap_or_default();
                for name in hard.keys() {
                    let text = value["status"]["used"][name].as_str().unwrap_or("nothing");
                    let shown = quantity::Quantity::parse(text).map(|shown| shown.amount());
                    let amount = i64::try_from(used[&**name]).map_err(|error| error.to_string())?;
                    let expected = match &**name {
                        "requests.cpu" => quantity::Amount::from_millis(amount),
                        _ => quantity::Amount::from_units(amount),
                    };
                    if shown != Ok(expected) {
                        return Err(format!("{} shows {name} {text}, used is {expected}: {value}", quota.key));
                    }
                }
            }
        }
        self.audit()
    }
}

fn write(key: ObjectKey, kind: WriteKind) -> Command {
    Command::Write(Box::new(Write {
        key,
        kind,
        dry_run: false,
        now_ms: 0,
        foresight: Foresight::None,
        origin: families::Origin::default(),
    }))
}

fn server_error(error: StoreError) -> String {
    error.to_string()
}

/// Names the first difference between two states.
fn same(expected: &Objects, found: &Objects) -> Result<(), String> {
    if expected.revision != found.revision {
        return Err(format!("A7: revision {} was durable, {} came back", expected.revision, found.revision));
    }
    let shown = |objects: &Objects| -> BTreeMap<String, (u64, Vec<u8>)> {
        let show = |object: &Arc<Object>| (object.revision, object.json.to_vec());
        objects.stored.iter().map(|(key, object)| (key.clone(), show(object))).collect()
    };
    let (expected, found) = (shown(expected), shown(found));
    let keys = expected.keys().chain(found.keys());
    match keys.into_iter().find(|key| expected.get(*key) != found.get(*key)) {
        Some(key) => Err(format!("A7: {key} was {:?}, came back as {:?}", expected.get(key), found.get(key))),
        None => Ok(()),
    }
}

/// Reads the objects by the way, independently of the engine.
struct Spy {
    inner: Box<dyn Store>,
    found: Objects,
}

impl Store for Spy {
    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let found = &mut self.found;
        self.inner.load(&mut |table, key, value| {
            if table == Table::OBJECTS
                && let Some(object) = ObjectKey::from_row(key).and_then(|key| server::core::row::decode(key, value))
            {
                found.stored.insert(object.key.to_string(), Arc::new(object));
            }
            visit(table, key, value);
        })
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.inner.commit(batch)
    }

    fn confirm(&mut self) -> Result<(), StoreError> {
        self.inner.confirm()
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        self.inner.close()
    }
}

/// Dry runs answer as if and change nothing.
#[test]
fn a_dry_run_leaves_no_trace() {
    let mut service = Service::new(7, false);
    service.start().unwrap();
    let (key, draft) = service.new_object("namespaces", "", "blue", json!({"kind": "Namespace"}));
    service.group(vec![write(key, WriteKind::Create(draft))]).unwrap();
    let (key, draft) = service.new_object("configmaps", "blue", "one", json!({"kind": "ConfigMap"}));
    let command = Write {
        key,
        kind: WriteKind::Create(draft),
        dry_run: true,
        now_ms: 0,
        foresight: Foresight::None,
        origin: families::Origin::default(),
    };
    let answer = service.ask(Command::Write(Box::new(command))).unwrap();
    let Answer::Written(Ok(Written { sequence, .. })) = answer else { panic!("{answer:?}") };
    assert_eq!(sequence, 0);
    service.stop(true);
    service.start().unwrap();
    assert_eq!(service.durable.stored.len(), 1);
}
