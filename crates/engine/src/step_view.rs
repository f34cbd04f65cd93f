//! The engine as families see it while one step is decided: objects, rules and ledger, consistent to the last charge.

use std::sync::Arc;

use families::{BalanceLine, Balances, Parsed, Place, Sources, SubjectLine, View, World, companion_uid};
use ledger::{AccountId, AccountKey, Balance, Charge, ExplainedLine, Explanation, Planner, SubjectId, SubjectView};
use rules::{GroupResource, PolicyId};
use serde_json::Value;
use smallvec::SmallVec;

use crate::engine::{Derived, Engine};
use crate::foretell::Ahead;
use crate::object::ObjectKey;
use crate::shelves::Shelves;

/// See [`Engine::view`].
pub struct StepView<'a> {
    engine: &'a Engine,
    now_ms: i64,
    /// What is planned already, and shows in balances.
    plan: Option<&'a Planner<'a>>,
    /// Objects as a write, and what follows from it, is going to make them.
    ahead: Option<&'a Ahead>,
}

impl Engine {
    /// Objects and ledger as they are, at this time: what families are asked with in a step, and between two.
    pub fn view(&self, now_ms: i64) -> StepView<'_> {
        StepView { engine: self, now_ms, plan: None, ahead: None }
    }

    /// With balances as a plan would leave them.
    pub(crate) fn view_of<'a>(&'a self, plan: &'a Planner<'a>, now_ms: i64) -> StepView<'a> {
        StepView { engine: self, now_ms, plan: Some(plan), ahead: None }
    }

    /// With objects as they are going to be, and balances as they are.
    pub(crate) fn view_ahead<'a>(&'a self, ahead: &'a Ahead) -> StepView<'a> {
        StepView { engine: self, now_ms: self.clock_ms, plan: None, ahead: Some(ahead) }
    }
}

/// What is remembered of what families made of many objects.
const DERIVED_MAX: usize = 256;

impl World for StepView<'_> {
    fn derived(&self, name: &str, of: Sources<'_>, make: &dyn Fn() -> Parsed) -> Parsed {
        if self.plan.is_some() && of.ledger {
            return make();
        }
        let Engine { ledger, derived, subjects, .. } = self.engine;
        let shelves = self.shelves();
        let changed: SmallVec<[u64; 4]> = of.resources.iter().map(|resource| shelves.changed(resource)).collect();
        // What is made of objects that are not there yet is nobody else's.
        let is_ahead = |resource: &GroupResource| shelves.changed(resource) != self.engine.shelves.changed(resource);
        let derived = match self.ahead.filter(|_| of.resources.iter().any(is_ahead)) {
            Some(ahead) => &ahead.derived,
            None => derived,
        };
        // An object is known by name a moment after it is charged.
        let sequence = if of.ledger { (ledger.sequence(), subjects.len()) } else { (0, 0) };
        if let Some(known) = derived.borrow().get(name)
            && known.changed == changed
            && known.sequence == sequence
        {
            return known.made.clone();
        }
        let made = make();
        let mut derived = derived.borrow_mut();
        if derived.len() >= DERIVED_MAX {
            derived.clear();
        }
        derived.insert(name.to_owned(), Derived { changed, sequence, made: made.clone() });
        made
    }

    fn gathered(&self, resource: &GroupResource, namespace: &str, make: &dyn Fn() -> Parsed) -> Parsed {
        if self.ahead.is_some_and(|ahead| ahead.writes_in(resource, namespace)) {
            return make();
        }
        if let Some(known) = self.engine.gathered.borrow().get(resource, namespace) {
            return known;
        }
        let made = make();
        self.engine.gathered.borrow_mut().keep(resource, namespace, made.clone());
        made
    }

    fn now_ms(&self) -> i64 {
        self.now_ms
    }

    fn list(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Value>> {
        self.shelves().within(resource, &namespace.into()).map(|object| object.tree()).collect()
    }

    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let key = ObjectKey::new(resource.clone(), namespace, name);
        let object = self.shelves().get(&key)?;
        if self.ahead.is_some_and(|ahead| ahead.wrote(&key)) {
            return Some(object.tree());
        }
        if !self.engine.projected_resources.contains(resource) {
            return Some(self.engine.tree_of(object));
        }
        // Every claim asks for its pool, whose status is long, and for the claims beside it.
        if let Some(tree) = self.engine.trees.borrow().get(object) {
            return Some(tree);
        }
        let tree = Arc::new(object.value());
        self.engine.trees.borrow_mut().keep(object, tree.clone());
        Some(tree)
    }

    fn names(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<str>> {
        self.shelves().within(resource, &namespace.into()).map(|object| object.key.name.clone()).collect()
    }

    fn parsed_one(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
        make: &dyn Fn(&Value) -> Parsed,
    ) -> Option<Parsed> {
        let key = ObjectKey::new(resource.clone(), namespace, name);
        self.shelves().get(&key).map(|object| object.parsed(make))
    }

    fn parsed(&self, resource: &GroupResource, namespace: &str, make: &dyn Fn(&Value) -> Parsed) -> Vec<Parsed> {
        self.shelves().within(resource, &namespace.into()).map(|object| object.parsed(make)).collect()
    }

    fn parsed_everywhere(&self, resource: &GroupResource, make: &dyn Fn(&Value) -> Parsed) -> Vec<Parsed> {
        let shelf = self.shelves().of(resource);
        shelf.into_iter().flat_map(|shelf| shelf.values()).map(|object| object.parsed(make)).collect()
    }
}

impl Balances for StepView<'_> {
    fn of(&self, policy: &str) -> Vec<BalanceLine> {
        let mut lines: Vec<BalanceLine> =
            self.engine.ledger.accounts_of(policy).filter_map(|id| self.balance_line(id)).collect();
        lines.sort_by(|a, b| (&a.resource, &a.bucket).cmp(&(&b.resource, &b.bucket)));
        lines
    }

    fn balance(&self, policy: &str, account: &str) -> Option<Balance> {
        let key = AccountKey::new(policy, account, "");
        let account = match self.plan {
            Some(plan) => plan.account(&key),
            None => self.engine.ledger.account(&key),
        };
        self.balance_line(account?).map(|line| line.balance)
    }

    fn view(&self) -> Option<&dyn View> {
        Some(self)
    }
}

impl View for StepView<'_> {
    fn charged(&self, policy: &str, max: usize) -> Vec<SubjectLine> {
        let Engine { rulebook, counted, .. } = self.engine;
        let Some(id) = rulebook.id(policy) else { return Vec::new() };
        let mut found = Vec::new();
        for (uid, key) in counted.of(id) {
            self.lines(id, uid, key, &mut found);
            if found.len() >= max {
                break;
            }
        }
        found
    }

    fn holders(&self, policy: &str, account: &str, bucket: &str, max: usize) -> Vec<SubjectLine> {
        let Engine { rulebook, ledger, subjects, counted, .. } = self.engine;
        let key = AccountKey::new(policy, account, bucket);
        let (Some(id), Some(account)) = (rulebook.id(policy), ledger.account(&key)) else { return Vec::new() };
        let mut found = Vec::new();
        for uid in ledger.subjects_of(account).into_iter().take(max) {
            if let Some(key) = subjects.get(&uid).or_else(|| counted.key(uid)) {
                self.lines(id, uid, key, &mut found);
            }
        }
        found
    }

    fn part(&self, policy: &str, bucket: &str) -> Vec<BalanceLine> {
        let account = |key: &AccountKey| match self.plan {
            Some(plan) => plan.account(key),
            None => self.engine.ledger.account(key),
        };
        let accounts = self.engine.policies.part(account, policy, bucket).into_iter();
        accounts.filter_map(|id| self.balance_line(id)).collect()
    }

    fn uncharged(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Value>> {
        let all = self.shelves().within(resource, &namespace.into());
        all.filter(|object| !self.engine.ledger.is_live(object.uid)).map(|object| object.tree()).collect()
    }

    fn waits(&self, subject: SubjectId) -> bool {
        self.engine.ledger.is_waiting(subject)
    }

    fn waiting(&self, policy: &str, max: usize) -> Vec<SubjectLine> {
        let Engine { ledger, subjects, .. } = self.engine;
        let mut found = Vec::new();
        for account in ledger.accounts_of(policy) {
            let Some(key) = ledger.key(account).filter(|key| key.bucket.is_empty()) else { continue };
            for uid in ledger.first_waiting_for(account, max) {
                let (Some(object), Some(view)) = (subjects.get(&uid), ledger.subject(uid)) else { continue };
                let Some(charge) = view.charges.iter().find(|charge| charge.account == account) else { continue };
                found.push(line(uid, object, self.born(object), &key.resource, charge));
            }
        }
        found
    }

    fn in_line(&self, policy: &str, max: usize) -> Vec<Place> {
        let Engine { ledger, subjects, .. } = self.engine;
        let whole = |account: &AccountId| ledger.key(*account).is_some_and(|key| key.bucket.is_empty());
        let waiting = ledger.accounts_of(policy).filter(whole);
        let waiting = waiting.flat_map(|account| ledger.first_waiting_for(account, max));
        let keys = waiting.filter_map(|uid| subjects.get(&uid));
        keys.map(|key| Place::new(key.resource.clone(), &key.namespace, &key.name)).collect()
    }

    fn namespaces(&self, policy: &str) -> Vec<Arc<str>> {
        let Some(id) = self.engine.rulebook.id(policy) else { return Vec::new() };
        self.engine.rulebook.namespaces_of(id)
    }

    fn looks_into(&self, policy: &str, namespace: &str) -> bool {
        self.engine.rulebook.id(policy).is_some_and(|id| self.engine.rulebook.looks_into(id, namespace))
    }

    fn looking_at(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<str>> {
        self.engine.rulebook.looking_at(resource, namespace)
    }

    fn companion(&self, of: SubjectId, number: usize) -> Option<Place> {
        let key = self.engine.subjects.get(&companion_uid(of, number))?;
        Some(Place::new(key.resource.clone(), &key.namespace, &key.name))
    }

    fn lives(&self, subject: SubjectId) -> bool {
        self.engine.companioned.contains_key(&subject)
    }

    fn explain(&self, subject: SubjectId) -> Explanation {
        self.engine.ledger.explain(subject)
    }

    fn blocking(&self, subject: SubjectId) -> Vec<ExplainedLine> {
        self.engine.ledger.blocking(subject)
    }
}

impl StepView<'_> {
    fn shelves(&self) -> &Shelves {
        self.ahead.map_or(&self.engine.shelves, |ahead| &ahead.shelves)
    }

    fn balance_line(&self, account: AccountId) -> Option<BalanceLine> {
        let ledger = &self.engine.ledger;
        let (key, balance) = match self.plan {
            Some(plan) => (plan.key(account)?.clone(), plan.balance(account)?),
            None => (ledger.key(account)?.clone(), ledger.balance(account)?),
        };
        Some(BalanceLine { resource: key.resource, bucket: key.bucket, balance })
    }

    /// What an object is charged on the accounts of a policy; nothing of what it waits for.
    fn lines(&self, policy: PolicyId, uid: SubjectId, object: &ObjectKey, out: &mut Vec<SubjectLine>) {
        let Engine { ledger, policies, .. } = self.engine;
        let born = self.born(object);
        let charges = ledger.subject(uid).map_or_else(Vec::new, SubjectView::into_charged);
        for charge in charges.iter().filter(|charge| policies.owns(ledger, policy, charge.account)) {
            let Some(key) = ledger.key(charge.account).filter(|key| key.bucket.is_empty()) else { continue };
            out.push(line(uid, object, born, &key.resource, charge));
        }
    }

    fn born(&self, object: &ObjectKey) -> u64 {
        self.engine.stored(object).map_or(0, |stored| stored.born)
    }
}

fn line(uid: SubjectId, object: &ObjectKey, born: u64, account: &Arc<str>, charge: &Charge) -> SubjectLine {
    SubjectLine {
        uid,
        resource: object.resource.clone(),
        namespace: object.namespace.clone(),
        name: object.name.clone(),
        born,
        account: account.clone(),
        amount: charge.amount,
        format: charge.format,
    }
}
