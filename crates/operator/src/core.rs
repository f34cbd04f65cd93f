//! The state machine: an engine over a mirror of the cluster, what is held, and what is to be done in the cluster. It has no
//! thread, no clock and no socket, and changes only by commands; the sequencer makes what they did durable before it answers.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use engine::{
    Draft, Effect, Engine, Expect, Fact, Hold, Loaded, ObjectKey, Postponed, Refused, Sight, Snapshot, Write, WriteKind,
};
use families::{Families, Origin};
use ledger::SubjectId;
use rules::GroupResource;
use rules::cel::{Foresight, Known};
use serde_json::{Map, Value};
use store::Batch;

use crate::holds::Holds;
use crate::journal::{Identity, Journal};
use crate::kept_back::{Amounts, KeptBack};
use crate::metrics::State;
use crate::push::{Does, Push};
use crate::registration::is_converted;
use crate::sight::Seen;

/// Holds end when they are decided, never by themselves: who is not seen may have been stored all the same.
const FOREVER_MS: i64 = 100 * 365 * 24 * 60 * 60 * 1000;
/// Looked for at a time.
const OVERDUE_MAX: usize = 256;

#[derive(Debug)]
pub enum Command {
    /// Decides what somebody is about to store.
    Review(Box<Review>),
    /// What lists and watches showed, in their order.
    See { seen: Vec<Seen>, now_ms: i64 },
    /// All that there is of a resource, by namespace and name: what is not among these is gone.
    Listed { resource: GroupResource, names: HashSet<(Arc<str>, Arc<str>)>, now_ms: i64 },
    /// A resource whose objects cannot be seen, until they are listed.
    Blind { resource: GroupResource, why: String },
    /// Which holds should have been decided by now?
    Overdue { before_ms: i64, now_ms: i64 },
    /// What was found when one of them was looked for.
    Found { looked_for: LookFor, found: Option<(SubjectId, u64)>, now_ms: i64 },
    /// Brings statuses up to date, a bounded number at a time.
    Publish { now_ms: i64 },
    /// Everything as it is at this moment, for an audit.
    Snapshot,
    /// What metrics tell.
    State,
}

/// A write that the cluster's API server asks about.
#[derive(Debug)]
pub struct Review {
    pub key: ObjectKey,
    pub wanted: Wanted,
    /// The version of the object that the write rests on; 0 where it is to be created.
    pub base: u64,
    pub dry_run: bool,
    pub now_ms: i64,
    pub foresight: Foresight,
    pub origin: Origin,
}

#[derive(Debug)]
pub enum Wanted {
    /// The object as it is going to be stored.
    Object(Draft),
    /// The same object with other replicas: a scale says no more. In the version in which it was written.
    Replicas { uid: SubjectId, version: String, replicas: Value },
    /// That it goes.
    Gone { uid: SubjectId },
}

#[derive(Debug)]
pub enum Answer {
    Granted,
    Refused(Refused),
    /// The mirror has not yet seen what the write rests on. Nothing has changed; to be asked again when more was seen.
    Behind(Box<Review>),
    /// Only to reviews whose foresight allows it.
    Postponed(Box<Postponed>),
    Seen,
    Overdue(Vec<LookFor>),
    /// How many statuses are left.
    Published(usize),
    Snapshot(Box<Snapshot>),
    State(Box<State>),
}

/// An object that something is held for, to be looked for in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookFor {
    pub uid: SubjectId,
    pub key: ObjectKey,
    /// Which grant it is about: a later one is not decided by this.
    pub since_ms: i64,
}

/// What a group did, for whoever acts on it once it is durable.
#[derive(Debug, Default)]
pub struct Publication {
    pub pushes: Vec<Push>,
    /// Whether something was seen: who was behind may ask again.
    pub saw: bool,
    pub stale_status: bool,
    /// When the engine wants to be told the time.
    pub due_ms: Option<i64>,
    /// The resources that policies count, where that may be others than before.
    pub counted: Option<Counted>,
}

/// Resources, and the only namespaces where their objects are counted; none of these where it may be any.
pub type Counted = BTreeMap<GroupResource, Option<Namespaces>>;
pub type Namespaces = BTreeSet<Arc<str>>;

pub struct Core {
    engine: Engine,
    seen: HashMap<ObjectKey, (SubjectId, u64)>,
    holds: Holds,
    /// What was given up here and may still be had in the cluster.
    kept_back: KeptBack,
    /// What is to be done in the cluster since the last command.
    pushes: Vec<Push>,
    identity: Identity,
    /// What cannot be seen, and why.
    blind: HashMap<GroupResource, String>,
    /// The state of the rules for which it was told what they count.
    told_counted: Option<u64>,
}

impl Core {
    /// Starts from what the store has and from what the cluster listed.
    pub fn start(journal: Journal, listed: Vec<Seen>, families: Families, now_ms: i64) -> Core {
        let Journal { mut ledger, mut holds, identity } = journal;
        holds.begin(now_ms);
        // One that was listed again counts as it was the last time.
        let mut latest: HashMap<ObjectKey, Seen> = HashMap::new();
        for one in listed {
            match one.draft {
                Some(_) => drop(latest.insert(one.key.clone(), one)),
                None => drop(latest.remove(&one.key)),
            }
        }
        let mut listed: Vec<Seen> = latest.into_values().collect();
        let created = |seen: &Seen| {
            let created = seen.draft.as_ref().and_then(|draft| draft.value["metadata"]["creationTimestamp"].as_str());
            (created.unwrap_or_default().to_owned(), seen.key.clone())
        };
        listed.sort_by_cached_key(created);
        let mut kept_back = KeptBack::default();
        for one in &listed {
            kept_back.see(&one.key, one.version, one.draft.as_ref().map(|draft| &draft.value));
        }
        let policy = |key: &ObjectKey| listed.iter().find(|one| one.key == *key)?.draft.as_ref();
        kept_back.begin(&mut ledger, |keeping, name| {
            let key = ObjectKey::new(keeping.policies.resource(), "", name);
            policy(&key).map_or_else(Amounts::new, |draft| (keeping.free)(&draft.value))
        });
        let (mut objects, mut seen, mut decided) = (Vec::with_capacity(listed.len()), HashMap::new(), Vec::new());
        for (revision, one) in (1..).zip(listed) {
            let Some(draft) = one.draft else { continue };
            if holds.get(one.uid).is_some() && !holds.seen(one.uid, one.version) {
                decided.push(one.uid);
            }
            seen.insert(one.key.clone(), (one.uid, one.version));
            objects.push(Arc::new(draft.finish(one.key, revision, revision).0));
        }
        // Without a word on what measured the stored charges: all that is there is counted again.
        let (revision, facts) = (objects.len() as u64, vec![Fact::Clock(now_ms)]);
        let (mut engine, _) = Engine::start(Loaded { objects, ledger, revision, facts }, families);
        for uid in decided {
            engine.drop_hold(uid, now_ms);
        }
        let pushes = Vec::new();
        let mut core =
            Core { engine, seen, holds, kept_back, pushes, identity, blind: HashMap::new(), told_counted: None };
        core.settle(core.kept_back.keys(), now_ms);
        core.reconcile_holds(now_ms);
        core
    }

    /// What the ledger holds and no row tells of, nobody would ever look for; and the other way round.
    fn reconcile_holds(&mut self, now_ms: i64) {
        let strangers: Vec<SubjectId> =
            self.engine.ledger().held().filter(|uid| self.holds.get(*uid).is_none()).collect();
        let strangers = strangers.into_iter().filter(|uid| !self.kept_back.holds(*uid));
        let strangers: Vec<SubjectId> = strangers.collect();
        strangers.into_iter().for_each(|uid| self.engine.give_up(uid, now_ms));
        let unheld = self.holds.uids().into_iter().filter(|uid| !self.engine.ledger().is_held(*uid));
        let unheld: Vec<SubjectId> = unheld.collect();
        unheld.into_iter().for_each(|uid| self.holds.remove(uid));
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn holds(&self) -> &Holds {
        &self.holds
    }

    pub fn kept_back(&self) -> &KeptBack {
        &self.kept_back
    }

    fn review(&mut self, review: Box<Review>) -> Answer {
        // What cannot be counted is not let in.
        if let Some(why) = self.blind.get(&review.key.resource)
            && let Some(policy) = self.engine.counting(&review.key.resource, &review.key.namespace).into_iter().next()
        {
            let message = format!("{} cannot be listed: {why}", review.key.resource);
            return Answer::Refused(Refused::Unmeasurable { policy, message });
        }
        let uid = match &review.wanted {
            Wanted::Object(draft) => draft.uid,
            Wanted::Replicas { uid, .. } | Wanted::Gone { uid } => *uid,
        };
        let seen = self.seen.get(&review.key).filter(|(seen, _)| *seen == uid).map_or(0, |(_, version)| *version);
        if seen < review.base || !self.knows_namespace(&review.key.namespace) {
            return Answer::Behind(review);
        }
        let Review { key, wanted, base, dry_run, now_ms, foresight, origin } = *review;
        let draft = match wanted {
            Wanted::Object(draft) => draft,
            Wanted::Replicas { version, replicas, .. } => match self.scaled(&key, &version, replicas) {
                Ok(draft) => draft,
                Err(refused) => return Answer::Refused(refused),
            },
            Wanted::Gone { .. } => return self.review_end(key, now_ms, origin),
        };
        // What rests on an older version than is there cannot be stored.
        let holds = !dry_run && seen == base;
        let hold = Hold {
            key: key.clone(),
            draft,
            expires_at_ms: now_ms.saturating_add(FOREVER_MS),
            dry_run: !holds,
            now_ms,
            foresight,
            origin,
        };
        match self.engine.hold(hold) {
            Err(postponed) => Answer::Postponed(postponed),
            Ok(Err(refused)) => Answer::Refused(refused),
            Ok(Ok(held)) => {
                if holds && held.expires_at_ms.is_some() {
                    self.holds.add(uid, key, base, now_ms);
                }
                Answer::Granted
            }
        }
    }

    /// Whether an object may go. Nothing is held for that: what it has it has until it is seen to be gone.
    fn review_end(&mut self, key: ObjectKey, now_ms: i64, origin: Origin) -> Answer {
        let kind = WriteKind::Delete { expect: Expect::default(), last: None };
        let write = Write { key, kind, dry_run: true, now_ms, foresight: Foresight::None, origin };
        match self.engine.write(write) {
            Ok(Ok(_) | Err(Refused::NotFound)) => Answer::Granted,
            Ok(Err(refused)) => Answer::Refused(refused),
            Err(postponed) => Answer::Postponed(postponed),
        }
    }

    fn knows_namespace(&self, namespace: &str) -> bool {
        let key = || ObjectKey::new(GroupResource::core("namespaces"), "", namespace);
        namespace.is_empty() || self.seen.contains_key(&key())
    }

    /// A stored object with other replicas.
    fn scaled(&self, key: &ObjectKey, version: &str, replicas: Value) -> Result<Draft, Refused> {
        let stored = self.engine.shelves().get(key).ok_or(Refused::NotFound)?;
        let mut value = stored.read().map_err(|error| Refused::Bug(error.to_string()))?;
        let path = self.replicas_path(key, version, value["apiVersion"].as_str().unwrap_or_default());
        put_at(&mut value, &path, replicas)
            .ok_or_else(|| Refused::Bug(format!("{key} has something else at .{}", path.join("."))))?;
        Draft::new(value).map_err(|error| Refused::Bug(error.to_string()))
    }

    /// Where an object says how many replicas it wants: a definition may name another place, and another one in each version. Where
    /// nobody converts, a scale writes to the place of its own version; otherwise what it writes is shown in the place of the version
    /// that is seen here.
    fn replicas_path(&self, key: &ObjectKey, written: &str, seen: &str) -> Vec<String> {
        let name = format!("{}.{}", key.resource.resource, key.resource.group);
        let definitions = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
        let definition =
            self.engine.shelves().get(&ObjectKey::new(definitions, "", &name)).map(|object| object.value());
        let is_converted = definition.as_ref().is_some_and(is_converted);
        let version = if is_converted { seen.rsplit('/').next().unwrap_or_default() } else { written };
        let versions = definition.as_ref().and_then(|value| value.pointer("/spec/versions")?.as_array());
        let told = versions.into_iter().flatten().find(|one| one["name"] == version);
        let told = told.and_then(|version| version.pointer("/subresources/scale/specReplicasPath")?.as_str());
        told.unwrap_or(".spec.replicas").trim_start_matches('.').split('.').map(str::to_owned).collect()
    }

    fn see(&mut self, seen: Seen, now_ms: i64) {
        let Seen { key, uid, version, draft } = seen;
        let before = self.seen.get(&key).copied();
        match draft {
            Some(draft) => {
                // A list and a watch may overtake each other; of one object the later version is the truth.
                if before.is_some_and(|(known, seen)| known == uid && version <= seen) {
                    return;
                }
                let keeps_hold = self.holds.seen(uid, version);
                self.see_with(before.filter(|(known, _)| *known != uid));
                self.seen.insert(key.clone(), (uid, version));
                self.take_up(Sight { key, draft: Some(draft), keeps_hold, now_ms }, version);
            }
            None => {
                if before.is_some_and(|(known, _)| known == uid) {
                    self.gone(key, uid, now_ms);
                }
            }
        }
    }

    /// Whoever had the name before is gone, and with it what was held for it.
    fn see_with(&mut self, before: Option<(SubjectId, u64)>) {
        if let Some((uid, _)) = before {
            self.holds.remove(uid);
        }
    }

    fn gone(&mut self, key: ObjectKey, uid: SubjectId, now_ms: i64) {
        self.seen.remove(&key);
        self.holds.remove(uid);
        self.take_up(Sight { key, draft: None, keeps_hold: false, now_ms }, 0);
    }

    /// What is given up with a sight is nobody else's as long as the cluster allows it to whoever had it.
    fn take_up(&mut self, sight: Sight, version: u64) {
        let (key, now_ms) = (sight.key.clone(), sight.now_ms);
        let mut concerned = match self.may_give_up(&sight) {
            true => self.kept_back.concerned(&key),
            false => Vec::new(),
        };
        concerned.iter().for_each(|kept| self.kept_back.hold_all(kept, &mut self.engine, now_ms));
        if self.kept_back.see(&key, version, sight.draft.as_ref().map(|draft| &draft.value)) {
            concerned.push(key);
        }
        self.engine.see(sight);
        self.note_effects();
        self.settle(concerned, now_ms);
    }

    /// Whether an object says something else than before, its status aside.
    fn may_give_up(&self, sight: &Sight) -> bool {
        if !KeptBack::may_concern(&sight.key) {
            return false;
        }
        let Some(stored) = self.engine.shelves().get(&sight.key) else {
            // What a policy of that name kept may be there.
            return self.engine.is_policy(&sight.key.resource);
        };
        let Some(draft) = &sight.draft else { return true };
        let says = |value: &Value| {
            let of = |path: &str| value.pointer(path).cloned();
            ["/spec", "/metadata/uid", "/metadata/labels", "/metadata/annotations", "/metadata/deletionTimestamp"]
                .map(of)
        };
        says(&stored.value()) != says(&draft.value)
    }

    fn settle(&mut self, kept: Vec<ObjectKey>, now_ms: i64) {
        for key in kept {
            self.kept_back.settle(&key, &mut self.engine, now_ms);
            // Whoever waited for it may have it now.
            self.note_effects();
        }
    }

    fn listed(&mut self, resource: &GroupResource, names: &HashSet<(Arc<str>, Arc<str>)>, now_ms: i64) {
        let is_gone =
            |key: &&ObjectKey| key.resource == *resource && !names.contains(&(key.namespace.clone(), key.name.clone()));
        let mut gone: Vec<ObjectKey> = self.seen.keys().filter(is_gone).cloned().collect();
        gone.sort();
        for key in gone {
            if let Some((uid, _)) = self.seen.get(&key).copied() {
                self.gone(key, uid, now_ms);
            }
        }
    }

    fn found(&mut self, looked_for: &LookFor, found: Option<(SubjectId, u64)>, now_ms: i64) {
        let LookFor { uid, key, since_ms } = looked_for;
        if self.holds.get(*uid).is_none_or(|held| held.since_ms != *since_ms) {
            return;
        }
        let seen = self.seen.get(key).filter(|(known, _)| known == uid).map(|(_, version)| *version);
        let is_decided = match found.filter(|(known, _)| known == uid) {
            // What is there later than what was seen decides it, when it is seen.
            Some((_, version)) => seen.is_some_and(|seen| seen >= version),
            // The same where it was seen, and is gone. Nobody is believed who did not see it once: an API server that stood still
            // answers before it goes on with what it was about to store.
            None => seen.is_none() && self.holds.missed(*uid),
        };
        if !is_decided {
            return;
        }
        self.holds.remove(*uid);
        match seen {
            Some(_) => {
                self.engine.drop_hold(*uid, now_ms);
            }
            // It is nowhere, though it may have been before this start.
            None => self.engine.give_up(*uid, now_ms),
        }
    }

    /// What the engine did is to be done in the cluster, on what was last seen there.
    fn note_effects(&mut self) {
        for Effect { kind, object, previous, .. } in self.engine.take_writes() {
            let there = self.seen.get(&object.key).copied();
            let does = Does::of(kind, &object, previous.as_deref(), there.is_some());
            let (uid, version) = there.unwrap_or((object.uid, 0));
            if does.concerns_more_than_status() {
                let is_there = does != Does::End;
                self.kept_back.send(&object.key, version, is_there.then(|| object.value()).as_ref());
            }
            self.pushes.push(Push { object, uid, version, does });
        }
        // What families write down is nobody's here.
        self.engine.take_records();
    }

    /// Writes once more what is as it is to be, so that nothing that rests on the same version can be stored after it.
    fn stamp(&mut self) {
        for (key, version) in self.kept_back.to_stamp(&self.engine) {
            let there = self.seen.get(&key).copied().filter(|(_, seen)| *seen == version);
            if let (Some((uid, version)), Some(object)) = (there, self.engine.shelves().get(&key).cloned()) {
                self.pushes.push(Push { object, uid, version, does: Does::Stamp });
            }
        }
    }
}

impl sequencer::Engine for Core {
    type Command = Command;
    type Answer = Answer;
    type Publication = Publication;

    fn step(&mut self, command: Command, _: &mut Batch, publication: &mut Publication) -> Answer {
        let answer = match command {
            Command::Review(review) => self.review(review),
            Command::See { seen, now_ms } => {
                seen.into_iter().for_each(|one| self.see(one, now_ms));
                publication.saw = true;
                Answer::Seen
            }
            Command::Listed { resource, names, now_ms } => {
                self.listed(&resource, &names, now_ms);
                self.blind.remove(&resource);
                publication.saw = true;
                Answer::Seen
            }
            Command::Blind { resource, why } => {
                if !self.blind.contains_key(&resource) {
                    tracing::warn!(%resource, why, "cannot be listed: what quotas count of it is refused");
                }
                self.blind.insert(resource, why);
                Answer::Seen
            }
            Command::Overdue { before_ms, now_ms } => {
                let overdue = self.holds.overdue(before_ms, now_ms, OVERDUE_MAX).into_iter();
                Answer::Overdue(overdue.map(|(uid, key, since_ms)| LookFor { uid, key, since_ms }).collect())
            }
            Command::Found { looked_for, found, now_ms } => {
                self.found(&looked_for, found, now_ms);
                Answer::Seen
            }
            Command::Publish { now_ms } => {
                let left = self.engine.publish_status(now_ms);
                self.note_effects();
                self.stamp();
                Answer::Published(left)
            }
            Command::State => Answer::State(Box::new(State::of(&self.engine, self.holds.len(), &self.kept_back))),
            Command::Snapshot => Answer::Snapshot(Box::new(self.engine.snapshot())),
        };
        self.note_effects();
        publication.pushes.append(&mut self.pushes);
        answer
    }

    fn seal(&mut self, batch: &mut Batch, publication: &mut Publication) {
        let effects = self.engine.seal(&mut |row| match row.value {
            Some(value) => batch.put(store::Table::LEDGER, row.key, value),
            None => batch.delete(store::Table::LEDGER, row.key),
        });
        self.identity.save(batch);
        self.holds.save(batch);
        publication.stale_status |= effects.stale_status;
        publication.due_ms = effects.due_ms;
        let rules = self.engine.rules_changed();
        if self.told_counted != Some(rules) {
            self.told_counted = Some(rules);
            publication.counted = Some(self.engine.counted_resources());
        }
    }
}

impl Answer {
    /// The draft of a review that was put off, and what its expressions give: to be asked again with that. Takes long.
    pub fn evaluate(postponed: Postponed) -> Option<(Draft, Known)> {
        match postponed.evaluate() {
            (WriteKind::Create(draft) | WriteKind::Update { draft, .. }, known) => Some((draft, known)),
            (WriteKind::Delete { .. }, _) => None,
        }
    }
}

/// Sets a value at a path of fields, making those that are missing.
fn put_at(value: &mut Value, path: &[String], new: Value) -> Option<()> {
    let (last, parents) = path.split_last()?;
    let parent = parents.iter().try_fold(value, |value, field| {
        let next = value.as_object_mut()?.entry(field.clone()).or_insert(Value::Null);
        if next.is_null() {
            *next = Value::Object(Map::new());
        }
        Some(next)
    })?;
    parent.as_object_mut()?.insert(last.clone(), new);
    Some(())
}
