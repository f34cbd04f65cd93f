//! The one way in which an object is stored: charged, written, put in force, and noted as a cause of what follows.

use std::sync::Arc;

use families::Projected;
use ledger::{SubjectId, Terms};
use rules::Compiled;
use rules::cel::{Foresight, STEP_COST_MAX};
use serde_json::Value;

use crate::command::{Refused, Written};
use crate::decide::Ruling;
use crate::engine::Engine;
use crate::follow::Changed;
use crate::identity::{moment, named_uid};
use crate::object::{Draft, Object, ObjectKey};
use crate::recount::namespace_seen;
use crate::relief::Relief;

/// An object that nothing refuses any more.
pub(crate) struct Put {
    pub key: ObjectKey,
    pub draft: Draft,
    pub before: Option<Arc<Object>>,
    pub compiled: Option<Compiled>,
    pub ruling: Ruling,
    /// Set when only the status was written.
    pub status_at: Option<i64>,
}

impl Engine {
    pub(crate) fn put(&mut self, put: Put) -> Written {
        let Put { key, mut draft, before, compiled, ruling, status_at } = put;
        self.note_due(&key, ruling.until_ms);
        self.apply(ruling);
        if status_at.is_none() {
            draft = self.with_standing(&key, draft);
        }
        self.note_missed(&key, draft.uid);
        let is_whole = draft.is_whole();
        let (object, value) = self.store(draft, &key, before.clone());
        let written = self.settle(object, &value, compiled, status_at);
        if self.meaning.contains(&key.resource) {
            self.recompile_after(&key, before.as_deref(), Some(&value));
        }
        if before.is_some() || self.watched.contains(&key.resource) {
            let tree = is_whole.then(|| self.tree_as_stored(&written.object, value, before.is_some()));
            self.changed.push(Changed { before, after: Some(written.object.clone()), tree });
        }
        written
    }

    /// What was just stored as a tree. Of what was changed it is kept: it may be changed again.
    fn tree_as_stored(&mut self, object: &Object, mut value: Value, is_changed: bool) -> Arc<Value> {
        value["metadata"]["resourceVersion"] = Value::String(object.revision.to_string());
        let tree = Arc::new(value);
        if is_changed && self.shaped.contains(&object.key.resource) {
            object.written_from(&tree);
            self.trees.get_mut().keep(object, tree.clone());
        }
        tree
    }

    /// The same with the objects that let it in. What was decided for all of them is applied first.
    pub(crate) fn put_with(&mut self, put: Put, relief: Relief) -> Written {
        if relief.companions.is_empty() && relief.without.is_empty() {
            return self.put(put);
        }
        let Put { ruling, .. } = put;
        let until_ms = ruling.until_ms;
        self.apply(ruling);
        for gone in relief.without {
            self.delete(gone, None);
        }
        let is_companioned = !relief.companions.is_empty();
        for companion in relief.companions {
            self.put(companion);
        }
        for quota in &relief.quotas {
            self.conform(quota);
        }
        let written = self.put(Put { ruling: Ruling::until(until_ms), ..put });
        if is_companioned {
            self.companioned.insert(written.object.uid, written.object.key.clone());
        }
        // A quota whose rules are others now counts the object by those.
        self.recount_one(&written.object);
        written
    }

    /// The draft of an object that may wait, with its status as it is now that the ledger has decided.
    fn with_standing(&self, key: &ObjectKey, draft: Draft) -> Draft {
        let Some(family) = self.families.of_projected(&key.resource).filter(|_| self.may_wait(&key.resource)) else {
            return draft;
        };
        let mut value = draft.value.clone();
        match family.project(&key.resource, &mut value, &self.view(self.clock_ms)) {
            Projected::Unchanged => draft,
            Projected::Changed => {
                let mut tree = draft.tree().into_owned();
                tree["status"] = value["status"].take();
                // What it is made from was a draft already, so that it can be made again.
                Draft::new(tree).unwrap_or(draft)
            }
        }
    }

    /// Stores an object on nobody's request: whoever counts it is charged, and nobody refuses. A policy that cannot be compiled
    /// is written as well, and refuses all it would look at: there is no moment without limit.
    pub(crate) fn impose(&mut self, key: &ObjectKey, value: Value, before: Option<Arc<Object>>) {
        let decided = Draft::new(value).map_err(|error| Refused::Bug(error.to_string())).and_then(|draft| {
            let ruling = self.decide_in_time(key, &draft)?;
            Ok((ruling, draft))
        });
        match decided {
            Ok((None, _)) => self.put_behind(key.clone()),
            Ok((Some(ruling), draft)) => {
                let compiled = self.compile_or_deny(key, &draft.value);
                let put = Put { key: key.clone(), draft, before, compiled, ruling, status_at: None };
                self.put(put);
            }
            Err(refused) => tracing::error!(%key, ?refused, "an object cannot follow what it depends on"),
        }
    }

    /// What is charged for an object that nobody asked for. None for a namespace on which expressions take more than is left of the
    /// step: it is for one of its own. Nobody could bring what they give, so there they take what they take.
    fn decide_in_time(&mut self, key: &ObjectKey, draft: &Draft) -> Result<Option<Ruling>, Refused> {
        // Nothing else may be late: what a claim, or a lease, is charged is what others have given up in this step.
        if !key.resource.is("", "namespaces") {
            return self.decide(key, draft, Some(Terms::Adopted)).map(Some);
        }
        let is_first = self.allowance == STEP_COST_MAX;
        if !self.brings_expressions(key, draft) {
            self.foresight = Foresight::Asked;
            let decided = self.decide(key, draft, Some(Terms::Adopted));
            if std::mem::take(&mut self.wanted).is_empty() {
                return decided.map(Some);
            }
            self.wanted_of = Value::Null;
        }
        self.allowance = 0;
        if is_first { self.decide(key, draft, Some(Terms::Adopted)).map(Some) } else { Ok(None) }
    }

    /// Whether a namespace comes under policies, or leaves some, that evaluate expressions on what is in it.
    fn brings_expressions(&self, key: &ObjectKey, draft: &Draft) -> bool {
        self.namespace_evaluates(namespace_seen(&key.name, &draft.value))
    }

    /// Gives an object that is to be made its uid and its time; whether it can be made.
    pub(crate) fn complete(&self, key: &ObjectKey, value: &mut Value) -> bool {
        let within = key.namespace.is_empty()
            || self.namespaces.get(&key.namespace).is_some_and(|namespace| !namespace.terminating);
        if !within {
            return false;
        }
        if !key.fits_a_row() {
            tracing::error!(%key, "an object that is to be made has too long a name");
            return false;
        }
        let uid = self.unused_uid(key);
        value["metadata"]["uid"] = Value::String(kinds::uid::text(uid));
        value["metadata"]["creationTimestamp"] = Value::String(moment(self.clock_ms));
        true
    }

    /// A uid for an object that nobody asked for. The engine has no source of chance: it is made from what is unique, the
    /// object's place and the revision.
    fn unused_uid(&self, key: &ObjectKey) -> SubjectId {
        let mut text = key.row();
        text.extend_from_slice(&self.revision.to_le_bytes());
        loop {
            let uid = named_uid(&text);
            if !self.ledger.is_live(uid) && !self.subjects.contains_key(&uid) {
                return uid;
            }
            text.push(0);
        }
    }
}
