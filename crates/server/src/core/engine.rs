//! The state machine behind the API: objects, namespaces, rules and the ledger, changed one command at a time.
//!
//! [`Engine::step`] is a decide-then-apply ladder: every refusal comes first, most specific first; after the ledger
//! said yes nothing can fail, and object and charge go into the same batch.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use families::{Change, Families, Family, Refusal};
use kinds::field_error::FieldError;
use ledger::{AccountId, Ledger, SubjectId, Terms};
use rules::cel::{Foresight, Program};
use rules::{Compiled, GroupResource, Namespace, Rulebook};
use serde_json::Value;
use store::{Batch, Space, Table};

use super::command::{Answer, Command, Expect, Postponed, Refused, Write, WriteKind, Written};
use super::counted::CountedObjects;
use super::encryption::Encryption;
use super::event::{Decided, Event, EventKind, Publication};
use super::follow::Changed;
use super::object::{Draft, NAMES_BYTES_MAX, Object, ObjectKey};
use super::policies::Policies;
use super::put::Put;
use super::relief::{RefusedDraft, Relief};
use super::room::{is_renewal, makes_room};
use super::status::REVISION_ROW;

/// The objects of one resource. Copies share what they have in common.
pub(super) type Shelf = imbl::OrdMap<(Arc<str>, Arc<str>), Arc<Object>>;

/// The one owner of objects and ledger.
pub struct Engine {
    pub(super) families: Families,
    pub(super) policy_resources: HashSet<GroupResource>,
    pub(super) projected_resources: HashSet<GroupResource>,
    /// Resources whose objects decide what policies mean.
    pub(super) meaning: HashSet<GroupResource>,
    /// Resources in whose objects families have a say, those whose writes may concern others, and policies that keep others.
    pub(super) shaped: HashSet<GroupResource>,
    pub(super) watched: HashSet<GroupResource>,
    pub(super) keeping: HashSet<GroupResource>,
    /// Whether some family is asked about every write.
    pub(super) checks_everything: bool,
    pub(super) shelves: HashMap<GroupResource, Shelf>,
    pub(super) namespaces: BTreeMap<Arc<str>, NamespaceState>,
    pub(super) rulebook: Rulebook,
    pub(super) ledger: Ledger,
    pub(super) policies: Policies,
    pub(super) revision: u64,
    /// Resources written in this group, with the revision of their last change.
    pub(super) last_changes: BTreeMap<GroupResource, u64>,
    /// Projected objects whose status is behind the ledger.
    pub(super) stale: BTreeSet<ObjectKey>,
    /// Policies whose status a user wrote, and when the ledger takes it back.
    pub(super) written_status: BTreeMap<ObjectKey, i64>,
    /// Accounts that changed in this group.
    pub(super) touched: Vec<AccountId>,
    /// Where each subject that may wait is stored, so that its status can be mended when it wakes.
    pub(super) subjects: HashMap<SubjectId, ObjectKey>,
    /// What was written in this step, until what follows from it is known; and where policies came to look.
    pub(super) changed: Vec<Changed>,
    pub(super) reached: Vec<(ObjectKey, Arc<str>)>,
    /// Objects that have to be looked at in the next steps, because they were too many for one.
    pub(super) behind: BTreeSet<ObjectKey>,
    /// Objects that were granted in this step what they waited for.
    pub(super) woken: Vec<ObjectKey>,
    /// Policies whose status names what they count, and what that is.
    pub(super) naming: HashSet<GroupResource>,
    pub(super) counted: CountedObjects,
    /// Policies and claims as trees, by revision.
    pub(super) trees: RefCell<HashMap<ObjectKey, (u64, Arc<Value>)>>,
    /// The latest time a command told.
    pub(super) clock_ms: i64,
    /// Whether that is what the store said, and no command yet; and whether the store is to be told.
    pub(super) is_restored: bool,
    pub(super) clock_unsaved: bool,
    /// Objects that mean something else from these moments on.
    pub(super) due: BTreeSet<(i64, ObjectKey)>,
    /// Custom resources whose definition is being removed, or was: what is created now would be left behind.
    pub(super) leaving: HashSet<GroupResource>,
    /// What measures now, and whether the store has been told.
    pub(super) measuring: u64,
    pub(super) measuring_unsaved: bool,
    /// Whether the store has room for more.
    pub(super) space: Space,
    /// What was decided in this group.
    pub(super) decided: Decided,
    /// What the write at hand knows of the expressions it will be asked about.
    pub(super) foresight: Foresight,
    /// The expressions it should have known of, on what, and the write itself, on its way back.
    pub(super) wanted: Vec<Program>,
    pub(super) wanted_of: Value,
    pub(super) postponed: Option<Box<Postponed>>,
    pub(super) encryption: Arc<Encryption>,
    /// Objects that are stored otherwise than they would be now.
    pub(super) outdated: Vec<ObjectKey>,
}

/// Rows, and about how many bytes of them, written again in one step: others are let in between, and no store finds them too many.
const ENCRYPTED_MAX: usize = 64;
const ENCRYPTED_BYTES_MAX: usize = 256 * 1024;

pub(super) struct NamespaceState {
    pub seen: Namespace,
    pub terminating: bool,
}

impl sequencer::Engine for Engine {
    type Command = Command;
    type Answer = Answer;
    type Publication = Publication;

    fn step(&mut self, command: Command, batch: &mut Batch, publication: &mut Publication) -> Answer {
        match command {
            Command::Write(write) => {
                let counts = !write.dry_run;
                let written = self.write(*write, batch, publication);
                if let Some(postponed) = self.postponed.take() {
                    return Answer::Postponed(postponed);
                }
                if let Err(refused) = &written
                    && counts
                {
                    self.note_refused(refused);
                }
                Answer::Written(written)
            }
            Command::PublishStatus { now_ms } => self.publish_status(now_ms, batch, publication),
            Command::Snapshot => Answer::Snapshot(Box::new(self.snapshot())),
            Command::Encrypt => self.encrypt_again(batch),
        }
    }

    fn seal(&mut self, batch: &mut Batch, publication: &mut Publication) {
        self.seal_group(batch, publication);
    }
}

impl Engine {
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// How many objects are stored otherwise than the configuration of encryption says.
    pub fn outdated(&self) -> usize {
        self.outdated.len()
    }

    /// Writes some of them again. Nothing changes but the rows: no revision, no event.
    fn encrypt_again(&mut self, batch: &mut Batch) -> Answer {
        if self.space.is_low() {
            return Answer::Encrypted { remaining: self.outdated.len() };
        }
        let begun = batch.bytes();
        for _ in 0..ENCRYPTED_MAX {
            let Some(key) = self.outdated.pop() else { break };
            if let Some(object) = self.stored(&key).cloned() {
                self.put_row(&object, batch);
            }
            if batch.bytes() - begun >= ENCRYPTED_BYTES_MAX {
                break;
            }
        }
        // A row in any case: the store acts at its next commit.
        batch.put(Table::META, REVISION_ROW, &self.revision.to_le_bytes());
        Answer::Encrypted { remaining: self.outdated.len() }
    }

    fn write(&mut self, write: Write, batch: &mut Batch, publication: &mut Publication) -> Result<Written, Refused> {
        self.advance(write.now_ms, batch, publication);
        let (now_ms, moved_from) = (write.now_ms, self.touched.len());
        let written = self.write_one(write, batch, publication)?;
        self.follow(moved_from, now_ms, batch, publication);
        Ok(written)
    }

    fn write_one(
        &mut self,
        write: Write,
        batch: &mut Batch,
        publication: &mut Publication,
    ) -> Result<Written, Refused> {
        let Write { key, kind, dry_run, now_ms, foresight } = write;
        if !self.space.admits(batch.bytes()) && !dry_run {
            return Err(Refused::NoSpace);
        }
        self.foresight = foresight;
        let stored = self.stored(&key).cloned();
        match kind {
            WriteKind::Create(draft) => {
                self.check_namespace(&key)?;
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
                if self.space.is_low() {
                    return Err(Refused::NoSpace);
                }
                let draft = self.shape(&key, draft, now_ms)?;
                let compiled = self.compile(&key, &draft.value)?;
                self.check_policies(&key, compiled.is_some())?;
                self.check(&key, None, Some(&draft.value), now_ms)?;
                let (ruling, relief) = match self.decide(&key, &draft, None) {
                    Err(Refused::Denied(denials)) => {
                        let refused = RefusedDraft { key: &key, draft: &draft, terms: None, now_ms };
                        self.relieve(&refused, denials)?
                    }
                    Err(why) => return Err(self.put_off(WriteKind::Create(draft), why)),
                    Ok(ruling) => (ruling, Relief::default()),
                };
                if dry_run {
                    return Ok(self.preview(draft, key, None));
                }
                let put = Put { key, draft, before: None, compiled, ruling, status_at: None };
                Ok(self.put_with(put, relief, batch, publication))
            }
            WriteKind::Update { draft, expect, status } => {
                let stored = stored.ok_or(Refused::NotFound)?;
                check(&stored, expect)?;
                let draft = self.shape(&key, draft, now_ms)?;
                let renews = is_renewal(&key, &stored, &draft) && self.space.admits_renewal(batch.bytes());
                if self.space.is_low() && !renews && !makes_room(&stored, &draft) {
                    return Err(Refused::NoSpace);
                }
                if !status {
                    self.check(&key, Some(&stored), Some(&draft.value), now_ms)?;
                }
                let compiled = if status { None } else { self.compile(&key, &draft.value)? };
                // What happened is adopted. Labels and annotations did not happen, though they come with a status.
                let reports = status && stored.has_marks_of(&draft.value);
                let terms = if reports { Terms::Adopted } else { Terms::Enforced };
                let (ruling, relief) = match self.decide(&key, &draft, Some(terms)) {
                    Err(Refused::Denied(denials)) => {
                        let refused = RefusedDraft { key: &key, draft: &draft, terms: Some(terms), now_ms };
                        self.relieve(&refused, denials)?
                    }
                    Err(why) => return Err(self.put_off(WriteKind::Update { draft, expect, status }, why)),
                    Ok(ruling) => (ruling, Relief::default()),
                };
                if dry_run {
                    return Ok(self.preview(draft, key, Some(stored.revision)));
                }
                let status_at = status.then_some(now_ms);
                let put = Put { key, draft, before: Some(stored), compiled, ruling, status_at };
                Ok(self.put_with(put, relief, batch, publication))
            }
            WriteKind::Delete { expect, last } => {
                let stored = stored.ok_or(Refused::NotFound)?;
                check(&stored, expect)?;
                self.check(&key, Some(&stored), None, now_ms)?;
                if dry_run {
                    return Ok(Written { object: stored, sequence: self.ledger.sequence() });
                }
                Ok(self.delete(stored, last, batch, publication))
            }
        }
    }

    /// Asks the families whether the state as it is lets an object be written so, or deleted. What is in a namespace that is
    /// being removed goes without asking.
    fn check(&self, key: &ObjectKey, old: Option<&Object>, new: Option<&Value>, now_ms: i64) -> Result<(), Refused> {
        if !self.checks_everything && !self.is_projected(&key.resource) {
            return Ok(());
        }
        let removed = self.namespaces.get(&key.namespace).is_some_and(|namespace| namespace.terminating);
        let leaves = new.is_none_or(|new| new.pointer("/metadata/deletionTimestamp").is_some());
        let mut old_value = None;
        for (place, family) in self.families.iter().enumerate() {
            let manifest = family.manifest();
            if !manifest.checks_everything && (!manifest.projects(&key.resource) || (leaves && removed)) {
                continue;
            }
            let old = &*old_value.get_or_insert_with(|| old.map_or(Value::Null, Object::value));
            let change = Change { resource: &key.resource, namespace: &key.namespace, name: &key.name, old, new };
            let checked = family.check(&change, &self.view(now_ms));
            checked.map_err(|refusal| Refused::Said { family: place, refusal })?;
        }
        Ok(())
    }

    /// A refusal in plain words, on behalf of the family that the object is of.
    pub(super) fn refusal(&self, key: &ObjectKey, why: String) -> Refused {
        let is_of = |family: &Arc<dyn Family>| family.manifest().projects(&key.resource);
        let family = self.families.iter().position(is_of).unwrap_or_default();
        Refused::Said { family, refusal: Refusal::forbidden(why) }
    }

    /// Whether objects of this resource may stand in a line.
    pub(super) fn may_wait(&self, resource: &GroupResource) -> bool {
        self.projected_resources.contains(resource) && !self.policy_resources.contains(resource)
    }

    /// Why a write was refused; one that waits for expressions is kept for its sender.
    fn put_off(&mut self, kind: WriteKind, why: Refused) -> Refused {
        if !self.wanted.is_empty() {
            let (wanted, object) = (std::mem::take(&mut self.wanted), std::mem::take(&mut self.wanted_of));
            self.postponed = Some(Box::new(Postponed { kind, wanted, object }));
        }
        why
    }

    /// Gives the object its revision and writes it.
    pub(super) fn store(
        &mut self,
        draft: Draft,
        key: &ObjectKey,
        previous: Option<Arc<Object>>,
        batch: &mut Batch,
        publication: &mut Publication,
    ) -> (Arc<Object>, Value) {
        self.revision += 1;
        let born = previous.as_ref().map_or(self.revision, |previous| previous.born);
        let (object, value) = draft.finish(key.clone(), self.revision, born);
        let object = Arc::new(object);
        let place = (key.namespace.clone(), key.name.clone());
        self.shelves.entry(key.resource.clone()).or_default().insert(place, object.clone());
        self.last_changes.insert(key.resource.clone(), self.revision);
        self.put_row(&object, batch);
        let kind = if previous.is_some() { EventKind::Modified } else { EventKind::Added };
        publication.events.push(Event::new(kind, object.clone(), previous));
        publication.revision = self.revision;
        (object, value)
    }

    /// The object's row, encrypted where that is configured.
    pub(super) fn put_row(&self, object: &Object, batch: &mut Batch) {
        let row = object.key.row();
        batch.put(Table::OBJECTS, &row, &self.encryption.seal(&object.key, &row, object.encode()));
    }

    /// What else a stored object means: a policy is installed, a namespace is shown to selectors again.
    /// `status_at` is set when only the status was written.
    pub(super) fn settle(
        &mut self,
        (object, value): (Arc<Object>, Value),
        compiled: Option<Compiled>,
        status_at: Option<i64>,
        publication: &mut Publication,
    ) -> Written {
        let key = &object.key;
        self.name_subject(key, object.uid);
        if key.resource.is("", "namespaces") {
            self.namespace_stored(&key.name, &value, publication);
        }
        self.note_leaving(key, &value);
        if self.is_projected(&key.resource) {
            self.subjects.insert(object.uid, key.clone());
            match status_at {
                Some(now_ms) => self.status_written(key, now_ms, publication),
                None => self.mark_stale(key.clone(), publication),
            }
        }
        if let Some(compiled) = compiled {
            self.install(key, compiled, publication);
        }
        if self.meaning.contains(&key.resource) {
            self.recompile_dependents(&key.resource, publication);
        }
        Written { object, sequence: self.ledger.sequence() }
    }

    pub(super) fn delete(
        &mut self,
        stored: Arc<Object>,
        last: Option<Draft>,
        batch: &mut Batch,
        publication: &mut Publication,
    ) -> Written {
        let key = stored.key.clone();
        self.revision += 1;
        self.release(&stored, publication);
        self.name_subject(&key, stored.uid);
        let draft = last.or_else(|| Draft::new(stored.value()).ok());
        let object = match draft {
            Some(draft) => Arc::new(draft.finish(key.clone(), self.revision, stored.born).0),
            None => stored.clone(),
        };
        if let Some(shelf) = self.shelves.get_mut(&key.resource) {
            shelf.remove(&(key.namespace.clone(), key.name.clone()));
        }
        self.last_changes.insert(key.resource.clone(), self.revision);
        batch.delete(Table::OBJECTS, &key.row());
        self.changed.push(Changed { before: Some(stored.clone()), after: None });
        publication.events.push(Event::new(EventKind::Deleted, object.clone(), Some(stored)));
        publication.revision = self.revision;
        if key.resource.is("", "namespaces") {
            self.namespace_removed(&key.name, publication);
        }
        if let Some(defined) = defined_by(&key) {
            self.leaving.insert(defined);
        }
        if self.is_projected(&key.resource) {
            self.subjects.remove(&object.uid);
            self.stale.remove(&key);
            if self.written_status.remove(&key).is_some() {
                publication.status_written.push((key.clone(), false));
            }
        }
        if self.policy_resources.contains(&key.resource) {
            self.uninstall(&key, publication);
        }
        if self.meaning.contains(&key.resource) {
            self.recompile_dependents(&key.resource, publication);
        }
        Written { object, sequence: self.ledger.sequence() }
    }

    /// Takes note of whether a definition is on its way out.
    pub(super) fn note_leaving(&mut self, key: &ObjectKey, value: &Value) {
        let Some(defined) = defined_by(key) else { return };
        if value.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) {
            self.leaving.insert(defined);
        } else {
            self.leaving.remove(&defined);
        }
    }

    pub(super) fn is_projected(&self, resource: &GroupResource) -> bool {
        self.projected_resources.contains(resource)
    }

    fn preview(&self, draft: Draft, key: ObjectKey, revision: Option<u64>) -> Written {
        Written { object: Arc::new(draft.preview(key, revision)), sequence: self.ledger.sequence() }
    }

    pub(super) fn stored(&self, key: &ObjectKey) -> Option<&Arc<Object>> {
        self.shelves.get(&key.resource)?.get(&(key.namespace.clone(), key.name.clone()))
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

/// The resource that a CustomResourceDefinition defines, as its name says.
fn defined_by(key: &ObjectKey) -> Option<GroupResource> {
    if !key.resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
        return None;
    }
    let (plural, group) = key.name.split_once('.')?;
    // No definition decides about what is built in, whatever it is called.
    let is_builtin = kinds::builtin().iter().any(|one| one.group == group && one.plural == plural);
    (!is_builtin).then(|| GroupResource::new(group, plural))
}

fn check(stored: &Object, expect: Expect) -> Result<(), Refused> {
    if expect.uid.is_some_and(|uid| uid != stored.uid) {
        return Err(Refused::UidMismatch { stored: stored.uid });
    }
    match expect.revision {
        Some(revision) if revision != stored.revision => Err(Refused::Conflict { revision: stored.revision }),
        _ => Ok(()),
    }
}
