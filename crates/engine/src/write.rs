//! Writes, alone and several at once: every refusal comes first, most specific first; after the ledger said yes nothing can
//! fail.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use families::Company;
use kinds::field_error::FieldError;
use ledger::Terms;
use rules::cel::{Foresight, STEP_COST_MAX};
use rules::{Compiled, GroupResource};

use crate::accompany::Accompanied;
use crate::command::{
    Expect, Foreseen, Postponed, PostponedAll, Refused, Write, WriteKind, Writes, Written, WrittenAll,
};
use crate::decide::{Asked, Planned, Ruling};
use crate::engine::Engine;
use crate::measured::strip;
use crate::object::{Draft, NAMES_BYTES_MAX, Object, ObjectKey};
use crate::put::Put;
use crate::recount::namespace_seen;
use crate::relief::{RefusedDraft, Relief};
use crate::room::{is_renewal, makes_room};
use crate::slices::Wanted;
use crate::staging::Stages;
use crate::together::{Foresights, Unwritten};

/// Writes that are decided at once.
pub const WRITES_MAX: usize = 64;

/// A write that only the ledger can refuse.
#[expect(clippy::large_enum_variant, reason = "nearly every write is the large one, and none is kept")]
pub(crate) enum Ready {
    Put(ReadyPut),
    Delete { stored: Arc<Object>, last: Option<Draft> },
}

pub(crate) struct ReadyPut {
    pub key: ObjectKey,
    pub draft: Draft,
    before: Option<Arc<Object>>,
    compiled: Option<Compiled>,
    /// What an update is charged under; a create decides by its rules.
    pub terms: Option<Terms>,
    /// Of an update: what it expects, and whether it is only of the status.
    expect: Expect,
    status: bool,
}

impl Engine {
    /// Decides one write. One that needs expressions that take long, or counts too much, comes back, and nothing has changed.
    pub fn write(&mut self, write: Write) -> Result<Result<Written, Refused>, Box<Postponed>> {
        let counts = !write.dry_run;
        self.origin = self.own.clone();
        self.advance(write.now_ms);
        self.bring_up(&write.key.namespace, write.now_ms);
        let (now_ms, moved_from) = (write.now_ms, self.touched.len());
        let key = write.key.clone();
        let mut written = self.write_one(write);
        if let Some(postponed) = self.postponed.take() {
            return Err(postponed);
        }
        match &mut written {
            Ok(written) => {
                self.follow(moved_from, now_ms);
                self.end_staging();
                self.look_again(written);
            }
            Err(refused) if counts => {
                self.note_refused(refused);
                self.record_refused(&key, refused, now_ms);
            }
            Err(_) => {}
        }
        Ok(written)
    }

    /// Decides one write whose sender goes on with it: if it still counts too much, that is begun ([`Engine::count_on`]).
    pub fn stage(&mut self, write: Write) -> Result<Result<Written, Refused>, Box<Postponed>> {
        self.prepares = true;
        let written = self.write(write);
        self.prepares = false;
        written
    }

    /// Decides several writes, all of them or none: the place of the first that is refused comes with why. Each is judged by
    /// the state before them all, but that a namespace which one of them makes is there for those after it; what rules that
    /// come into force with them have to say is charged, and refuses none of them.
    pub fn write_all(&mut self, writes: Writes) -> Result<Vec<Written>, (usize, Refused)> {
        let written = self.decide_all(writes, None);
        written.unwrap_or_else(|_| Err((0, Refused::Bug("several writes were put off that nobody sends again".into()))))
    }

    /// The same for a sender who finds out what is wanted of their objects where that takes long, and sends them again: they come
    /// back for it, all of them, and nothing has changed.
    pub fn write_all_foreseen(&mut self, writes: Writes, foreseen: Foreseen) -> Result<WrittenAll, Box<PostponedAll>> {
        self.decide_all(writes, Some(foreseen))
    }

    fn decide_all(&mut self, writes: Writes, foreseen: Option<Foreseen>) -> Result<WrittenAll, Box<PostponedAll>> {
        let (now_ms, counts) = (writes.now_ms, !writes.dry_run);
        self.origin = self.own.clone();
        self.advance(now_ms);
        // In an order of their own: what follows is numbered as it is done.
        let namespaces: BTreeSet<Arc<str>> = writes.writes.iter().map(|(key, _)| key.namespace.clone()).collect();
        namespaces.iter().for_each(|namespace| self.bring_up(namespace, now_ms));
        let moved_from = self.touched.len();
        let keys: Vec<ObjectKey> = writes.writes.iter().map(|(key, _)| key.clone()).collect();
        let mut written = match self.write_together(writes, foreseen) {
            Ok(written) => Ok(written),
            Err(Unwritten::Refused(place, refused)) => Err((place, refused)),
            Err(Unwritten::PutOff(put_off)) => return Err(put_off),
        };
        match &mut written {
            Ok(written) => {
                self.follow(moved_from, now_ms);
                written.iter_mut().for_each(|one| self.look_again(one));
            }
            Err((place, refused)) if counts => {
                self.note_refused(refused);
                if let Some(key) = keys.get(*place) {
                    self.record_refused(key, refused, now_ms);
                }
            }
            Err(_) => {}
        }
        Ok(written)
    }

    /// The sender is told what is stored at the end of the step: families may have changed what was written.
    fn look_again(&self, written: &mut Written) {
        let stored = self.stored(&written.object.key).filter(|stored| stored.uid == written.object.uid);
        if let Some(stored) = stored.filter(|stored| stored.revision > written.object.revision) {
            written.object = stored.clone();
        }
    }

    fn write_one(&mut self, write: Write) -> Result<Written, Refused> {
        let Write { key, kind, dry_run, now_ms, foresight, origin } = write;
        let may_ask = matches!(foresight, Foresight::Asked | Foresight::Known(_));
        let is_last = matches!(foresight, Foresight::Last(_));
        (self.origin, self.foresight, self.allowance) = (origin, foresight, STEP_COST_MAX);
        self.known.clear();
        self.missed.clear();
        self.check_room(dry_run)?;
        let stored = self.stored(&key).cloned();
        let expect = kind.expect();
        let put = match self.ready(key, kind, stored, now_ms, &HashSet::new())? {
            Ready::Put(put) => put,
            Ready::Delete { stored, .. } if dry_run => return Ok(self.would_be(stored)),
            Ready::Delete { stored, last } => {
                let stages = if may_ask { self.stages_of(&stored.key, Some(&stored), None, None) } else { None };
                return match stages {
                    Some(stages) => Err(self.put_aside(&stored.key, WriteKind::Delete { expect, last }, stages)),
                    None => Ok(self.delete(stored, last)),
                };
            }
        };
        let company = match put.status {
            true => Company::default(),
            false => match self.company(&put.accompanied(now_ms)) {
                Ok(company) => company,
                Err(why) => return Err(self.put_off(put, why)),
            },
        };
        let (ruling, relief) = if company != Company::default() {
            let asked = match self.ask(&put.key, &put.draft, put.terms) {
                Ok(asked) => asked,
                Err(why) => return Err(self.put_off(put, why)),
            };
            self.rule_with(&put.accompanied(now_ms), asked, company)?
        } else {
            match self.decide(&put.key, &put.draft, put.terms) {
                Err(Refused::Denied(denials)) => {
                    let refused = RefusedDraft { key: &put.key, draft: &put.draft, terms: put.terms, now_ms };
                    self.relieve(&refused, denials)?
                }
                Err(why) => return Err(self.put_off(put, why)),
                Ok(ruling) => (ruling, Relief::default()),
            }
        };
        if dry_run {
            return Ok(self.preview(put));
        }
        if (may_ask || is_last)
            && (!put.status || put.compiled.is_some())
            && let Some(stages) = self.stages_of(&put.key, put.before.as_ref(), Some(&put.draft), put.compiled.as_ref())
        {
            let key = put.key.clone();
            match may_ask {
                true => return Err(self.put_aside(&key, put.kind(), stages)),
                // Nobody waits for expressions, not even now.
                false if stages.evaluates => return Err(Refused::Conflict { revision: self.revision }),
                false => {}
            }
        }
        Ok(self.put_with(put.ruled(ruling, now_ms), relief))
    }

    /// What has to be counted before a write; `after` is none for what is deleted.
    fn stages_of(
        &self,
        key: &ObjectKey,
        before: Option<&Arc<Object>>,
        after: Option<&Draft>,
        compiled: Option<&Compiled>,
    ) -> Option<Stages> {
        let changes = after.filter(|_| key.resource.is("", "namespaces"));
        let namespace = changes.map(|draft| namespace_seen(&key.name, &draft.value));
        self.to_stage(key, namespace, self.foretold(key, before, after, compiled))
    }

    fn write_together(&mut self, writes: Writes, foreseen: Option<Foreseen>) -> Result<Vec<Written>, Unwritten> {
        let Writes { writes, dry_run, now_ms, origin } = writes;
        let mut foresights = Foresights::of(foreseen);
        (self.origin, self.foresight, self.allowance) = (origin.clone(), Foresight::None, STEP_COST_MAX);
        self.known.clear();
        self.missed.clear();
        self.check_room(dry_run).map_err(|refused| (0, refused))?;
        if writes.len() > WRITES_MAX {
            let why = format!("at most {WRITES_MAX} writes are decided at once, and these are {}", writes.len());
            return Err((WRITES_MAX, Refused::Bug(why)).into());
        }
        let (mut made, mut seen) = (HashSet::new(), HashSet::new());
        let (mut expected, mut wanted) = (Vec::with_capacity(writes.len()), Vec::new());
        let mut ready: Vec<(Ready, Option<Asked>)> = Vec::with_capacity(writes.len());
        for (place, (key, kind)) in writes.into_iter().enumerate() {
            if !seen.insert(key.clone()) {
                return Err((place, Refused::Bug(format!("{key} is written twice at once"))).into());
            }
            expected.push(kind.expect());
            let makes_namespace = key.resource.is("", "namespaces") && matches!(kind, WriteKind::Create(_));
            let namespace = makes_namespace.then(|| key.name.clone());
            let stored = self.stored(&key).cloned();
            let one = self.ready(key, kind, stored, now_ms, &made).map_err(|refused| (place, refused))?;
            made.extend(namespace);
            let asked = match &one {
                Ready::Put(put) => {
                    self.foresight = foresights.take(put.draft.uid);
                    match self.ask_among_others(put, now_ms) {
                        Err(_) if !self.wanted.is_empty() => {
                            let (questions, object) =
                                (std::mem::take(&mut self.wanted), std::mem::take(&mut self.wanted_of));
                            wanted.push(Wanted { subject: put.draft.uid, object, questions });
                            None
                        }
                        asked => asked.map_err(|refused| (place, refused))?,
                    }
                }
                Ready::Delete { .. } => None,
            };
            ready.push((one, asked));
        }
        self.foresight = Foresight::None;
        if !wanted.is_empty() {
            let writes = ready.into_iter().zip(expected).map(|((one, _), expect)| one.back(expect)).collect();
            let writes = Writes { writes, dry_run, now_ms, origin };
            return Err(Unwritten::PutOff(Box::new(PostponedAll { writes, wanted })));
        }
        let (ruling, rules) = (self.rule_together(&ready)?, self.rulebook.changes());
        if dry_run {
            let previews = ready.into_iter().map(|(one, _)| match one {
                Ready::Put(put) => self.preview(put),
                Ready::Delete { stored, .. } => self.would_be(stored),
            });
            return Ok(previews.collect());
        }
        self.apply(ruling);
        let mut written = Vec::with_capacity(ready.len());
        for (one, asked) in ready {
            written.push(match one {
                Ready::Put(put) => {
                    let until_ms = asked.and_then(|asked| asked.verdict.until_ms);
                    self.put(put.ruled(Ruling::until(until_ms), now_ms))
                }
                Ready::Delete { stored, last } => self.delete(stored, last),
            });
        }
        // Policies among them were compiled before anything was there that others of them define, or gone.
        let written_of: BTreeSet<GroupResource> = written.iter().map(|one| one.object.key.resource.clone()).collect();
        for resource in written_of {
            if self.meaning.contains(&resource) {
                self.recompile_dependents(&resource, None);
            }
        }
        // Rules that came into force with them look at them, too. Where none did, each is charged what it was just measured at; but
        // whoever may wait was measured before it was known in which order they are created.
        let measured_by_others = self.rulebook.changes() != rules;
        for one in &written {
            if !measured_by_others && !self.may_wait(&one.object.key.resource) {
                continue;
            }
            if let Some(stored) = self.stored(&one.object.key).cloned() {
                self.recount_one(&stored);
            }
        }
        Ok(written)
    }

    /// What rules say of one of several; none of them comes with others.
    fn ask_among_others(&mut self, put: &ReadyPut, now_ms: i64) -> Result<Option<Asked>, Refused> {
        if !put.status && self.company(&put.accompanied(now_ms))? != Company::default() {
            let why = format!("{} comes with other objects, and is written alone", put.key);
            return Err(self.refusal(&put.key, why));
        }
        self.ask(&put.key, &put.draft, put.terms)
    }

    /// What the ledger says to all of them. Changes nothing.
    fn rule_together(&self, ready: &[(Ready, Option<Asked>)]) -> Result<Ruling, (usize, Refused)> {
        let mut plan = self.ledger.plan();
        let (mut charges, mut places) = (Vec::new(), Vec::new());
        for (place, (one, asked)) in ready.iter().enumerate() {
            let planned = match (one, asked) {
                (Ready::Put(put), Some(asked)) => self.plan_asked(put.draft.uid, asked, &mut plan),
                (Ready::Put(_), None) => Ok(Vec::new()),
                (Ready::Delete { stored, .. }, _) => {
                    plan.release(stored.uid).map(|()| Vec::new()).map_err(|error| Refused::Bug(error.to_string()))
                }
            };
            let planned = planned.map_err(|refused| (place, refused))?;
            places.extend(planned.iter().map(|charge| (charge.account, place)));
            charges.extend(planned);
        }
        let step = plan.decide().map_err(|denied| {
            // The first that asks for anything of the account that said no.
            let account = denied.lines.first().map(|line| line.account);
            let place = places.iter().find(|(one, _)| Some(*one) == account).map_or(0, |(_, place)| *place);
            let operation = ready.get(place).and_then(|(_, asked)| asked.as_ref()).map(|asked| asked.operation);
            (place, self.denied(denied, &charges, operation.unwrap_or(families::Operation::Create)))
        })?;
        let mut ruling = Ruling::default();
        for (one, asked) in ready {
            if let (Ready::Put(put), Some(asked)) = (one, asked) {
                ruling.join(Ruling::of(asked, step.queues(put.draft.uid), false, self));
            }
        }
        ruling.plan = Some(Planned::Step(step));
        Ok(ruling)
    }

    pub(crate) fn check_room(&self, dry_run: bool) -> Result<(), Refused> {
        if self.room.writes || dry_run { Ok(()) } else { Err(Refused::NoSpace) }
    }

    /// Everything but the ledger's word. `stored` is what is there under its name; `made` are namespaces that are made with it.
    pub(crate) fn ready(
        &mut self,
        key: ObjectKey,
        kind: WriteKind,
        stored: Option<Arc<Object>>,
        now_ms: i64,
        made: &HashSet<Arc<str>>,
    ) -> Result<Ready, Refused> {
        match kind {
            WriteKind::Create(draft) => {
                if !made.contains(&key.namespace) {
                    self.check_namespace(&key)?;
                }
                if !key.fits_a_row() {
                    return Err(Refused::Invalid(vec![FieldError::too_long("metadata.name", NAMES_BYTES_MAX)]));
                }
                if self.leaving.contains(&key.resource) {
                    return Err(Refused::DefinitionTerminating);
                }
                if stored.is_some() {
                    return Err(Refused::AlreadyExists);
                }
                // What is left is for deletions, and for the updates that lead to them.
                if !self.room.growth {
                    return Err(Refused::NoSpace);
                }
                let draft = self.shape(&key, draft, now_ms)?;
                let compiled = self.compile(&key, &draft.value)?;
                self.check_policies(&key, compiled.is_some())?;
                self.check(&key, None, Some(&draft.value), now_ms)?;
                let expect = Expect::default();
                let put = ReadyPut { key, draft, before: None, compiled, terms: None, expect, status: false };
                Ok(Ready::Put(put))
            }
            WriteKind::Update { draft, expect, status } => {
                let stored = stored.ok_or(Refused::NotFound)?;
                // What is charged to an object stays charged to it: another one is no update.
                let expect = Expect { uid: expect.uid.or(Some(draft.uid)), ..expect };
                check_expected(&stored, expect)?;
                let draft = self.shape(&key, draft, now_ms)?;
                let renews = is_renewal(&key, &stored, &draft) && self.room.renewals;
                if !self.room.growth && !renews && !makes_room(&stored, &draft) {
                    return Err(Refused::NoSpace);
                }
                if !status {
                    self.check(&key, Some(&stored), Some(&draft.value), now_ms)?;
                }
                // Whoever wrote only a status: the families may have changed more of it.
                let is_policy = !status || self.is_respecified(&stored, &draft);
                let compiled = if is_policy { self.compile(&key, &draft.value)? } else { None };
                // What happened is adopted. Labels and annotations did not happen, though they come with a status.
                let reports = status && stored.has_marks_of(&draft.value);
                let terms = Some(if reports { Terms::Adopted } else { Terms::Enforced });
                let put = ReadyPut { key, draft, before: Some(stored), compiled, terms, expect, status };
                Ok(Ready::Put(put))
            }
            WriteKind::Delete { expect, last } => {
                let stored = stored.ok_or(Refused::NotFound)?;
                check_expected(&stored, expect)?;
                self.check(&key, Some(&stored), None, now_ms)?;
                Ok(Ready::Delete { stored, last })
            }
        }
    }

    /// Whether a policy says something else than the stored one, its status aside.
    fn is_respecified(&self, stored: &Object, draft: &Draft) -> bool {
        if !self.policy_resources.contains(&stored.key.resource) {
            return false;
        }
        let [mut before, mut after] = [stored.value(), draft.value.clone()];
        strip(&mut before, true);
        strip(&mut after, true);
        before != after
    }

    /// Why a write was refused; one that waits for expressions is kept for its sender.
    pub(crate) fn put_off(&mut self, put: ReadyPut, why: Refused) -> Refused {
        if !self.wanted.is_empty() {
            let (wanted, object) = (std::mem::take(&mut self.wanted), std::mem::take(&mut self.wanted_of));
            self.postponed = Some(Box::new(Postponed { kind: put.kind(), wanted, object, recount: None }));
        }
        why
    }

    /// What a write would store.
    fn preview(&self, put: ReadyPut) -> Written {
        let revision = put.before.map(|before| before.revision);
        self.would_be(Arc::new(put.draft.preview(put.key, revision)))
    }

    fn would_be(&self, object: Arc<Object>) -> Written {
        Written { object, sequence: self.ledger.sequence() }
    }

    fn check_namespace(&self, key: &ObjectKey) -> Result<(), Refused> {
        if key.namespace.is_empty() {
            return Ok(());
        }
        match self.namespaces.get(&key.namespace) {
            None => Err(Refused::NamespaceNotFound),
            Some(namespace) if namespace.terminating => Err(Refused::NamespaceTerminating),
            Some(_) => Ok(()),
        }
    }
}

impl Ready {
    /// The write itself, on its way back to its sender.
    fn back(self, expect: Expect) -> (ObjectKey, WriteKind) {
        match self {
            Ready::Put(put) => (put.key.clone(), put.kind()),
            Ready::Delete { stored, last } => (stored.key.clone(), WriteKind::Delete { expect, last }),
        }
    }
}

impl ReadyPut {
    pub(crate) fn accompanied(&self, now_ms: i64) -> Accompanied<'_> {
        Accompanied { key: &self.key, draft: &self.draft, before: self.before.as_deref(), terms: self.terms, now_ms }
    }

    /// The write itself, on its way back to its sender.
    fn kind(self) -> WriteKind {
        let ReadyPut { draft, before, expect, status, .. } = self;
        match before {
            None => WriteKind::Create(draft),
            Some(_) => WriteKind::Update { draft, expect, status },
        }
    }

    /// As it is stored, once it is known what the ledger says.
    fn ruled(self, ruling: Ruling, now_ms: i64) -> Put {
        let ReadyPut { key, draft, before, compiled, status, .. } = self;
        Put { key, draft, before, compiled, ruling, status_at: status.then_some(now_ms) }
    }
}

fn check_expected(stored: &Object, expect: Expect) -> Result<(), Refused> {
    if expect.uid.is_some_and(|uid| uid != stored.uid) {
        return Err(Refused::UidMismatch { stored: stored.uid });
    }
    match expect.revision {
        Some(revision) if revision != stored.revision => Err(Refused::Conflict { revision: stored.revision }),
        _ => Ok(()),
    }
}
