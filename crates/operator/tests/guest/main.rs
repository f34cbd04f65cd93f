//! The core by itself: what it is asked, shown and told, without a cluster and without time.

use std::collections::HashSet;
use std::sync::Arc;

use engine::{Draft, ObjectKey, Refused};
use families::{Families, Origin, Settings};
use ledger::SubjectId;
use quantity::Amount;
use rules::cel::Foresight;
use rules::{GroupResource, policy_name};
use sequencer::core::{Group, commit};
use serde_json::{Value, json};
use store::SharedMemory;

use operator::Journal;
use operator::core::{Answer, Command, Core, LookFor, Review, Wanted};
use operator::guests::guests;
use operator::push::Push;
use operator::sight::Seen;

mod calls;
mod cases;
mod certificates;
mod cluster;
mod metrics;
mod pools;
mod statuses;
mod storm;
mod town;

fn families() -> Families {
    guests(&Settings::default(), |_| true)
}

fn quotas() -> GroupResource {
    GroupResource::new("capsule.clastix.io", "customquotas")
}

fn map(name: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::core("configmaps"), "a", name)
}

/// A core on a place that outlives it.
struct Bench {
    core: sequencer::core::Core<Core>,
    place: SharedMemory,
    pushes: Vec<Push>,
    now_ms: i64,
}

fn value(key: &ObjectKey, uid: u128, version: u64, rest: Value) -> Value {
    let mut value = rest;
    let labels = value["labels"].take();
    value["metadata"] = json!({
        "name": &*key.name, "namespace": &*key.namespace, "uid": kinds::uid::text(SubjectId(uid)),
        "resourceVersion": version.to_string(), "labels": labels,
    });
    value
}

fn seen(key: &ObjectKey, uid: u128, version: u64, rest: Value) -> Seen {
    Seen::there(&key.resource, value(key, uid, version, rest)).unwrap()
}

fn gone(key: &ObjectKey, uid: u128, version: u64) -> Seen {
    Seen::gone(&key.resource, &value(key, uid, version, json!({}))).unwrap()
}

fn amount(amount: u64) -> Value {
    json!({"data": {"amount": amount.to_string()}})
}

fn namespace(name: &str, version: u64, labels: Value) -> Seen {
    let key = ObjectKey::new(GroupResource::core("namespaces"), "", name);
    seen(&key, 1, version, json!({"labels": labels}))
}

/// A quota on the amounts that config maps in namespace `a` name.
fn quota(limit: u64, version: u64) -> Seen {
    let key = ObjectKey::new(quotas(), "a", "amounts");
    let source = json!({"apiVersion": "v1", "kind": "ConfigMap", "op": "add", "path": ".data.amount"});
    seen(&key, 2, version, json!({"spec": {"limit": limit.to_string(), "sources": [source]}}))
}

impl Bench {
    fn start(place: SharedMemory, listed: Vec<Seen>, now_ms: i64) -> Bench {
        let journal = Journal::load(&mut place.acquire(), "one").unwrap();
        let core = Core::start(journal, listed, families(), now_ms);
        let mut bench =
            Bench { core: sequencer::core::Core::new(core, Default::default()), place, pushes: Vec::new(), now_ms };
        bench.see(Vec::new());
        bench
    }

    fn with_limit(limit: u64) -> Bench {
        Bench::start(SharedMemory::new(), vec![namespace("a", 1, json!({})), quota(limit, 2)], 0)
    }

    /// Starts again from what the store has and from what is there now.
    fn restart(mut self, listed: Vec<Seen>, limit: u64) -> Bench {
        self.restart_in_place(listed, limit);
        self
    }

    /// As policies are before everything else, the rest is listed after the start.
    fn restart_in_place(&mut self, listed: Vec<Seen>, limit: u64) {
        let policies = vec![namespace("a", 1, json!({})), quota(limit, 2)];
        *self = Bench::start(self.place.clone(), policies, self.now_ms);
        self.relist(&GroupResource::core("configmaps"), listed);
    }

    fn ask(&mut self, command: Command) -> Answer {
        let mut group: Group<Core, ()> = self.core.decide_group(&mut std::iter::once(((), command)));
        self.pushes.append(&mut group.publication.pushes);
        let mut store = self.place.acquire();
        // A place takes commits of whoever loaded it.
        store::Store::load(&mut store, &mut |_, _, _| {}).unwrap();
        commit(&mut store, &mut |_| {}, &mut group).unwrap();
        group.answers.pop().unwrap().1
    }

    fn review(&mut self, key: &ObjectKey, uid: u128, base: u64, rest: Value) -> Answer {
        self.review_with(key, uid, base, rest, false)
    }

    fn review_with(&mut self, key: &ObjectKey, uid: u128, base: u64, rest: Value, dry_run: bool) -> Answer {
        let wanted = Wanted::Object(Draft::new(value(key, uid, base, rest)).unwrap());
        let (key, now_ms, origin) = (key.clone(), self.now_ms, Origin::default());
        self.ask(Command::Review(Box::new(Review {
            key,
            wanted,
            base,
            dry_run,
            now_ms,
            foresight: Foresight::Asked,
            origin,
        })))
    }

    fn is_granted(&mut self, key: &ObjectKey, uid: u128, base: u64, rest: Value) -> bool {
        match self.review(key, uid, base, rest) {
            Answer::Granted => true,
            Answer::Refused(Refused::Denied(_)) => false,
            other => panic!("{other:?}"),
        }
    }

    fn see(&mut self, seen: Vec<Seen>) {
        let now_ms = self.now_ms;
        self.ask(Command::See { seen, now_ms });
    }

    fn relist(&mut self, resource: &GroupResource, seen: Vec<Seen>) {
        let names: HashSet<(Arc<str>, Arc<str>)> =
            seen.iter().map(|one| (one.key.namespace.clone(), one.key.name.clone())).collect();
        self.see(seen);
        let (resource, now_ms) = (resource.clone(), self.now_ms);
        self.ask(Command::Listed { resource, names, now_ms });
    }

    /// Those who should have been seen by now.
    fn overdue(&mut self) -> Vec<LookFor> {
        self.now_ms += 10_000;
        let now_ms = self.now_ms;
        match self.ask(Command::Overdue { before_ms: now_ms - 1_000, now_ms }) {
            Answer::Overdue(overdue) => overdue,
            other => panic!("{other:?}"),
        }
    }

    fn found(&mut self, looked_for: LookFor, found: Option<(u128, u64)>) {
        let found = found.map(|(uid, version)| (SubjectId(uid), version));
        let now_ms = self.now_ms;
        self.ask(Command::Found { looked_for, found, now_ms });
    }

    fn publish(&mut self) {
        let now_ms = self.now_ms;
        self.ask(Command::Publish { now_ms });
    }

    /// Used and held of the quota.
    fn sums(&self) -> (i128, i128) {
        let ledger = self.core.engine.engine().ledger();
        let name = policy_name(&quotas(), "a", "amounts");
        let balances = ledger.accounts_of(&name).filter_map(|one| ledger.balance(one));
        let units = |amount: Amount| amount.nanos() / 1_000_000_000;
        balances.fold((0, 0), |(used, held), one| (used + units(one.used), held + units(one.held)))
    }

    fn audit(&self) {
        let engine = self.core.engine.engine();
        engine.ledger().audit().unwrap();
        assert_eq!(engine.snapshot().audit().differences, Vec::<String>::new());
        let kept_back = self.core.engine.kept_back();
        let held: HashSet<SubjectId> = engine.ledger().held().filter(|held| !kept_back.holds(*held)).collect();
        let known: HashSet<SubjectId> = self.core.engine.holds().uids().into_iter().collect();
        assert_eq!(held, known, "what the ledger holds and what is looked for");
    }
}
