//! An engine with nothing but memory behind it: for tests of families, and for trying one out. It keeps what a store would
//! keep, in the form in which a store would, so that it can be started again from that.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use families::{BalanceLine, Balances, Families, Record};
use ledger::{Balance, Ledger, SubjectId};
use rules::GroupResource;

use crate::command::{Foreseen, Postponed, PostponedAll, Refused, Write, Writes, Written, WrittenAll};
use crate::effects::{Decided, Effect, Effects, EventKind, Fact};
use crate::engine::Engine;
use crate::hold::{Held, Hold};
use crate::load::Loaded;
use crate::object::{Object, ObjectKey};
use crate::see::Sight;
use crate::slices::{Counted, Found};

pub struct Desk {
    pub engine: Engine,
    families: Families,
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    pub(crate) rows: BTreeMap<Vec<u8>, Vec<u8>>,
    revision: u64,
    clock_ms: Option<i64>,
    measuring: Option<u64>,
    due: BTreeMap<ObjectKey, i64>,
    /// What was written down, in order, each with its moment.
    pub records: Vec<(i64, Record)>,
    /// What was decided so far.
    pub decided: Decided,
    shown: Shown,
}

/// The balances of one policy, by resource and bucket.
type Lines = BTreeMap<(Arc<str>, Arc<str>), Balance>;

/// What readers would see.
#[derive(Default)]
struct Shown {
    balances: HashMap<Arc<str>, Lines>,
    status_written: HashSet<ObjectKey>,
    is_stale: bool,
    due_ms: Option<i64>,
}

impl Desk {
    pub fn new(families: Families) -> Desk {
        let (engine, effects) = Engine::start(Loaded::default(), families.clone());
        let mut desk = Desk {
            engine,
            families,
            objects: BTreeMap::new(),
            rows: BTreeMap::new(),
            revision: 0,
            clock_ms: None,
            measuring: None,
            due: BTreeMap::new(),
            records: Vec::new(),
            decided: Decided::default(),
            shown: Shown::default(),
        };
        desk.keep_facts(effects);
        desk
    }

    /// What a start would be given.
    pub fn loaded(&self) -> Loaded {
        let rows = self.rows.iter().map(|(key, value)| (&**key, &**value));
        let ledger = Ledger::load(rows).expect("the rows are the ledger's own");
        let due = self.due.iter().map(|(key, at)| Fact::Due(key.clone(), Some(*at)));
        let clock = self.clock_ms.map(Fact::Clock).into_iter();
        let facts = clock.chain(self.measuring.map(Fact::Measuring)).chain(due).collect();
        // Nothing that the engine may have kept with an object.
        let again = |object: &Arc<Object>| Arc::new(object.said_again(object.revision, object.json.clone()));
        Loaded { objects: self.objects.values().map(again).collect(), ledger, revision: self.revision, facts }
    }

    /// Forgets what is only in memory and starts again, with these families.
    pub fn restart(mut self, families: Families) -> Desk {
        let (engine, effects) = Engine::start(self.loaded(), families.clone());
        (self.engine, self.families, self.shown) = (engine, families, Shown { is_stale: true, ..Shown::default() });
        self.keep_facts(effects);
        self
    }

    /// [`Desk::restart`] as it was.
    pub fn again(self) -> Desk {
        let families = self.families.clone();
        self.restart(families)
    }

    /// Decides one write, and keeps what it did.
    pub fn write(&mut self, write: Write) -> Result<Written, Refused> {
        self.try_write(write).unwrap_or_else(|put_off| Err(Refused::Bug(format!("a write was put off: {put_off:?}"))))
    }

    /// The same for a write that may come back for expressions that take long.
    pub fn try_write(&mut self, write: Write) -> Result<Result<Written, Refused>, Box<Postponed>> {
        let written = self.engine.write(write);
        self.keep();
        written
    }

    /// Decides several writes at once, and keeps what they did.
    pub fn write_all(&mut self, writes: Writes) -> Result<Vec<Written>, (usize, Refused)> {
        let written = self.engine.write_all(writes);
        self.keep();
        written
    }

    /// The same for writes that may come back for expressions that take long.
    pub fn try_write_all(&mut self, writes: Writes, foreseen: Foreseen) -> Result<WrittenAll, Box<PostponedAll>> {
        let written = self.engine.write_all_foreseen(writes, foreseen);
        self.keep();
        written
    }

    /// Decides a write that is stored elsewhere ([`Engine::hold`]).
    pub fn hold(&mut self, hold: Hold) -> Result<Result<Held, Refused>, Box<Postponed>> {
        let held = self.engine.hold(hold);
        self.keep();
        held
    }

    /// Takes up what is stored elsewhere ([`Engine::see`]).
    pub fn see(&mut self, sight: Sight) {
        let key = sight.key.clone();
        self.engine.see(sight);
        match self.engine.stored(&key) {
            Some(seen) => drop(self.objects.insert(key, seen.clone())),
            None => drop(self.objects.remove(&key)),
        }
        self.revision = self.engine.revision();
        self.keep();
    }

    /// Gives that up ([`Engine::drop_hold`]).
    pub fn drop_hold(&mut self, subject: SubjectId, now_ms: i64) -> bool {
        let was_held = self.engine.drop_hold(subject, now_ms);
        self.keep();
        was_held
    }

    /// A write whose sender goes on with what has to be counted before it ([`Engine::stage`]).
    pub fn stage(&mut self, write: Write) -> Result<Result<Written, Refused>, Box<Postponed>> {
        let written = self.engine.stage(write);
        self.keep();
        written
    }

    /// Counts the next slice of that ([`Engine::count_on`]).
    pub fn count_on(&mut self, ticket: u64, found: Vec<Found>, now_ms: i64) -> Counted {
        let counted = self.engine.count_on(ticket, found, now_ms);
        self.keep();
        counted
    }

    /// Writes statuses that are behind; how many are left.
    pub fn publish(&mut self, now_ms: i64) -> usize {
        let remaining = self.engine.publish_status(now_ms);
        self.keep();
        remaining
    }

    /// Keeps what the engine did, as one group.
    pub fn keep(&mut self) {
        for Effect { kind, object, .. } in self.engine.take_writes() {
            self.revision = object.revision;
            match kind {
                EventKind::Deleted => drop(self.objects.remove(&object.key)),
                EventKind::Added | EventKind::Modified => drop(self.objects.insert(object.key.clone(), object)),
            }
        }
        self.records.extend(self.engine.take_records());
        let rows = &mut self.rows;
        let effects = self.engine.seal(&mut |row| match row.value {
            Some(value) => drop(rows.insert(row.key.to_vec(), value.to_vec())),
            None => drop(rows.remove(row.key)),
        });
        self.keep_facts(effects);
    }

    fn keep_facts(&mut self, effects: Effects) {
        for fact in effects.facts {
            match fact {
                Fact::Clock(ms) => self.clock_ms = Some(ms),
                Fact::Measuring(by) => self.measuring = Some(by),
                Fact::Due(key, Some(at)) => drop(self.due.insert(key, at)),
                Fact::Due(key, None) => drop(self.due.remove(&key)),
            }
        }
        self.decided.add(&effects.decided);
        let shown = &mut self.shown;
        effects.closed.iter().for_each(|policy| drop(shown.balances.remove(policy)));
        for (policy, line) in effects.balances {
            shown.balances.entry(policy).or_default().insert((line.resource, line.bucket), line.balance);
        }
        for (key, by_user) in effects.status_written {
            let _ = if by_user { shown.status_written.insert(key) } else { shown.status_written.remove(&key) };
        }
        shown.is_stale |= effects.stale_status;
        shown.due_ms = effects.due_ms;
    }

    pub fn families(&self) -> Families {
        self.families.clone()
    }

    /// The number of the last write that was kept.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    pub fn list(&self, resource: &GroupResource) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.values().filter(move |object| object.key.resource == *resource)
    }

    /// Those of one namespace.
    pub fn within(&self, resource: &GroupResource, namespace: &str) -> impl Iterator<Item = &Arc<Object>> {
        self.list(resource).filter(move |object| *object.key.namespace == *namespace)
    }

    /// When objects and policies have to be looked at again, as a start would be told.
    pub fn due(&self) -> &BTreeMap<ObjectKey, i64> {
        &self.due
    }

    /// Whether the engine wants to be told the time.
    pub fn is_due(&self, now_ms: i64) -> bool {
        self.shown.due_ms.is_some_and(|at| at <= now_ms)
    }

    /// Whether a user's own words stand in this policy's status for the moment.
    pub fn status_is_written(&self, key: &ObjectKey) -> bool {
        self.shown.status_written.contains(key)
    }

    /// Whether some status has to be published, asked and reset.
    pub fn take_stale_status(&mut self) -> bool {
        std::mem::take(&mut self.shown.is_stale)
    }
}

impl Balances for Desk {
    fn of(&self, policy: &str) -> Vec<BalanceLine> {
        let lines = self.shown.balances.get(policy).into_iter().flatten();
        let line = |((resource, bucket), balance): (&(Arc<str>, Arc<str>), &Balance)| BalanceLine {
            resource: resource.clone(),
            bucket: bucket.clone(),
            balance: balance.clone(),
        };
        lines.map(line).collect()
    }
}
