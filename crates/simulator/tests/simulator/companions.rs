//! Claims made with workloads, pools sized by nodes and pods whose deletion is overdue, on the simulated disk: whatever
//! fails in between, what comes back is whole. Every live workload has the claim it needs, no claim is without one, the
//! pool's quotas are what its claims add up to, and the audit agrees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rules::GroupResource;
use rules::cel::Foresight;
use sequencer::Engine as _;
use serde_json::{Value, json};
use server::core::{Answer, Cache, Command, Draft, Engine, Expect, ObjectKey, Publication, Refused, Write, WriteKind};
use simulator::disk::SimDisk;
use simulator::rng::Rng;
use store::embedded::{EmbeddedStore, Options};
use store::{Batch, Store};

const OPTIONS: Options =
    Options { segment_bytes: 32 * 1024, checkpoint_bytes: 64 * 1024, background: false, accept_loss: false };
const CAPSULE: &str = "capsule.clastix.io";
const NAMESPACES: [&str; 2] = ["blue", "green"];
const SEEDS: u64 = 12;
const STEPS: u64 = 400;
const STEP_MS: i64 = 1_000;
const GRACE_MS: i64 = 2_000;

#[test]
fn what_belongs_together_survives_together() {
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 1..=SEEDS {
        let mut house = House::new(seed);
        house.live().unwrap_or_else(|trouble| panic!("seed {seed}: {trouble}"));
        house.met.into_iter().for_each(|(name, count)| *met.entry(name).or_default() += count);
    }
    let rare = ["claimed", "refused", "deleted", "restart", "overdue", "resized"];
    assert!(rare.iter().all(|name| met.get(name).is_some_and(|count| *count > 3)), "{met:?}");
}

struct House {
    rng: Rng,
    disk: SimDisk,
    running: Option<(Engine, Box<dyn Store>, Cache)>,
    uids: u128,
    now_ms: i64,
    met: BTreeMap<&'static str, u64>,
}

impl House {
    fn new(seed: u64) -> House {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(rng.fork(), false);
        House { rng, disk, running: None, uids: 0, now_ms: 0, met: BTreeMap::new() }
    }

    fn met(&mut self, name: &'static str) {
        *self.met.entry(name).or_default() += 1;
    }

    fn live(&mut self) -> Result<(), String> {
        self.start()?;
        self.furnish()?;
        for _ in 0..STEPS {
            self.now_ms += STEP_MS;
            if self.running.is_none() {
                self.start()?;
                continue;
            }
            if self.rng.one_in(30) {
                self.stop(true);
                continue;
            }
            if self.rng.one_in(25) {
                self.disk.die_after(1 + self.rng.below(30));
            }
            self.act()?;
            if self.rng.one_in(10) {
                self.inspect()?;
            }
        }
        self.disk.heal();
        while self.running.is_none() {
            self.start()?;
        }
        self.inspect()
    }

    fn stop(&mut self, power_fails: bool) {
        self.running = None;
        match power_fails || self.disk.has_died() {
            true => self.disk.crash(),
            false => self.disk.restart_process(),
        }
    }

    fn start(&mut self) -> Result<(), String> {
        let opened = EmbeddedStore::open(Arc::new(self.disk.clone()), OPTIONS).map_err(|error| error.to_string());
        let loaded = opened.and_then(|store| {
            let mut store: Box<dyn Store> = Box::new(store);
            let families = families::all(&families::Settings::default());
            let (engine, cache) = Engine::load(&mut *store, families).map_err(|error| error.to_string())?;
            Ok((engine, store, cache))
        });
        match loaded {
            Ok(running) => {
                self.running = Some(running);
                self.met("restart");
                self.inspect()
            }
            Err(_) if !self.disk.take_failed().is_empty() || self.disk.has_died() => {
                self.stop(false);
                Ok(())
            }
            Err(trouble) => Err(format!("it does not start: {trouble}")),
        }
    }

    /// One command in a group of its own. `None` when the disk gave way under it.
    fn run(&mut self, command: Command) -> Option<Answer> {
        let (engine, store, cache) = self.running.as_mut()?;
        let (mut batch, mut publication) = (Batch::new(), Publication::default());
        let answer = engine.step(command, &mut batch, &mut publication);
        engine.seal(&mut batch, &mut publication);
        if store.commit(&batch).is_err() {
            self.stop(false);
            return None;
        }
        cache.publish(publication);
        Some(answer)
    }

    fn write(&mut self, key: ObjectKey, kind: WriteKind) -> Option<Result<(), Refused>> {
        let write = Write {
            key,
            kind,
            dry_run: false,
            now_ms: self.now_ms,
            foresight: Foresight::None,
            origin: families::Origin::default(),
        };
        Some(self.run(Command::Write(Box::new(write)))?.written().map(|_| ()))
    }

    fn create(&mut self, key: ObjectKey, mut value: Value) -> Option<Result<(), Refused>> {
        self.uids += 1;
        let uid = format!("00000000-0000-4000-8000-{:012x}", self.uids);
        let labels = value["labels"].take();
        value["metadata"] = json!({"name": &*key.name, "namespace": &*key.namespace, "uid": uid, "labels": labels});
        let draft = Draft::new(value).expect("the object has a uid");
        self.write(key, WriteKind::Create(draft))
    }

    fn furnish(&mut self) -> Result<(), String> {
        let done = |made: Option<Result<(), Refused>>| match made {
            Some(Ok(())) => Ok(()),
            other => Err(format!("the house is not furnished: {other:?}")),
        };
        for namespace in NAMESPACES {
            done(self.create(core("namespaces", "", namespace), json!({"labels": {"tenant": "solar"}})))?;
        }
        done(self.create(core("nodes", "", "n0"), node(4)))?;
        let spec = json!({
            "selectors": [{"matchLabels": {"tenant": "solar"}}],
            "config": {"jitClaims": true, "defaultsZero": true},
            "defaults": {"pods": "0", "requests.cpu": "0"},
            "quota": {"hard": {"pods": "8"}},
            "nodes": {"selector": {"matchLabels": {"pool": "solar"}}, "shares": {"requests.cpu": "3/4"}},
        });
        done(self.create(pool(), json!({"spec": spec})))?;
        Ok(())
    }

    fn act(&mut self) -> Result<(), String> {
        let namespace = NAMESPACES[self.rng.index(2)];
        let key = core("pods", namespace, &format!("one-{}", self.rng.below(7)));
        let done = match self.rng.below(12) {
            0..=4 => {
                let cpu = format!("{}m", (1 + self.rng.below(15)) * 100);
                let spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]});
                let made = self.create(key, json!({"apiVersion": "v1", "kind": "Pod", "spec": spec}));
                self.count(&made, "claimed");
                made
            }
            5 | 6 => {
                let made = self.write(key, WriteKind::Delete { expect: Expect::default(), last: None });
                self.count(&made, "deleted");
                made
            }
            7 => {
                let cpu = format!("{}m", (1 + self.rng.below(15)) * 100);
                self.change(key, |pod| pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu))
            }
            8 => {
                let deleted = stamp(self.now_ms + GRACE_MS);
                self.change(key, |pod| {
                    pod["metadata"]["deletionTimestamp"] = json!(deleted);
                    pod["metadata"]["deletionGracePeriodSeconds"] = json!(GRACE_MS / 1_000);
                })
            }
            9 => {
                let name = format!("n{}", self.rng.below(3));
                let cpus = 1 + self.rng.below(5);
                let (key, gone) = (core("nodes", "", &name), self.rng.one_in(3));
                let made = if gone {
                    self.write(key, WriteKind::Delete { expect: Expect::default(), last: None })
                } else {
                    self.create(key, node(cpus))
                };
                self.count(&made, "resized");
                made
            }
            _ => {
                let before = self.claimed();
                let published = self.run(Command::PublishStatus { now_ms: self.now_ms });
                if published.is_some() && self.claimed() != before {
                    self.met("overdue");
                }
                return Ok(());
            }
        };
        match done {
            None | Some(Ok(()) | Err(Refused::AlreadyExists | Refused::NotFound)) => Ok(()),
            Some(Err(Refused::Denied(_) | Refused::Said { .. })) => {
                self.met("refused");
                Ok(())
            }
            Some(Err(other)) => Err(format!("{other:?}")),
        }
    }

    fn count(&mut self, made: &Option<Result<(), Refused>>, name: &'static str) {
        if matches!(made, Some(Ok(()))) {
            self.met(name);
        }
    }

    fn change(&mut self, key: ObjectKey, change: impl FnOnce(&mut Value)) -> Option<Result<(), Refused>> {
        let (_, _, cache) = self.running.as_ref()?;
        let Some(stored) = cache.get(&key) else { return Some(Err(Refused::NotFound)) };
        let mut value = stored.value();
        change(&mut value);
        let draft = Draft::new(value).expect("it was stored");
        self.write(key, WriteKind::Update { draft, expect: Expect::default(), status: false })
    }

    fn stored(&self, resource: GroupResource, namespace: &str) -> Vec<Value> {
        let Some((_, _, cache)) = &self.running else { return Vec::new() };
        cache.list(&resource).range(namespace, None).map(|object| object.value()).collect()
    }

    /// How many claims there are.
    fn claimed(&self) -> usize {
        NAMESPACES.iter().map(|namespace| self.stored(claims(), namespace).len()).sum()
    }

    fn inspect(&mut self) -> Result<(), String> {
        if self.running.is_none() || self.stored(GroupResource::core("resourcequotas"), "green").is_empty() {
            return Ok(());
        }
        // What is due by now has been done.
        if self.run(Command::PublishStatus { now_ms: self.now_ms }).is_none() {
            return Ok(());
        }
        for namespace in NAMESPACES {
            let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
            for pod in self.stored(GroupResource::core("pods"), namespace) {
                let deleted = pod["metadata"]["deletionTimestamp"].as_str().map(moment);
                let is_over = deleted.is_some_and(|deleted| self.now_ms > deleted + GRACE_MS);
                if !is_over {
                    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
                    wanted.insert(
                        format!("jit-{uid}"),
                        milli(&pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]),
                    );
                }
            }
            let mut there: BTreeMap<String, u64> = BTreeMap::new();
            for claim in self.stored(claims(), namespace) {
                let name = claim["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                there.insert(name, milli(&claim["spec"]["claim"]["requests.cpu"]));
            }
            let names = |map: &BTreeMap<String, u64>| map.keys().cloned().collect::<BTreeSet<_>>();
            if names(&wanted) != names(&there) {
                return Err(format!("{namespace}: workloads {wanted:?}, claims {there:?}"));
            }
            let quotas = self.stored(GroupResource::core("resourcequotas"), namespace);
            let hard = milli(&quotas[0]["spec"]["hard"]["requests.cpu"]);
            if hard != there.values().sum::<u64>() {
                return Err(format!("{namespace}: the quota allows {hard}m, the claims are {there:?}"));
            }
        }
        match self.run(Command::Snapshot) {
            None => Ok(()),
            Some(Answer::Snapshot(snapshot)) => match snapshot.audit() {
                report if report.differences.is_empty() => Ok(()),
                report => Err(format!("audit: {report:?}")),
            },
            other => Err(format!("audit: {other:?}")),
        }
    }
}

fn core(resource: &str, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::core(resource), namespace, name)
}

fn pool() -> ObjectKey {
    ObjectKey::new(GroupResource::new(CAPSULE, "resourcepools"), "", "p")
}

fn claims() -> GroupResource {
    GroupResource::new(CAPSULE, "resourcepoolclaims")
}

fn node(cpus: u64) -> Value {
    json!({"labels": {"pool": "solar"}, "status": {"allocatable": {"cpu": cpus.to_string()}}})
}

/// A moment of the first hour of time, as objects write it; and back.
fn stamp(ms: i64) -> String {
    let seconds = ms / 1_000;
    assert!(seconds < 3_600, "a house lives less than an hour");
    format!("1970-01-01T00:{:02}:{:02}Z", seconds / 60, seconds % 60)
}

fn moment(text: &str) -> i64 {
    let number = |from: usize| text[from..from + 2].parse::<i64>().expect("two digits");
    (number(14) * 60 + number(17)) * 1_000
}

/// Thousandths of a cpu; nothing stated is nothing.
fn milli(text: &Value) -> u64 {
    let text = text.as_str().unwrap_or("0");
    let whole = |digits: &str| digits.parse::<u64>().expect("a number");
    text.strip_suffix('m').map_or_else(|| whole(text) * 1000, whole)
}
