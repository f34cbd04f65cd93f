//! A snapshot as families see it: stored objects, balances, and where policies look. What only matters to whoever stands
//! in a line is not told; no family asks for it to say what an object has to be.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use families::{BalanceLine, Balances, Parsed, Place, Sources, SubjectLine, View, World};
use ledger::{Explanation, SubjectId};
use rules::GroupResource;
use serde_json::Value;

use crate::audit::{Fresh, Snapshot};
use crate::object::ObjectKey;

pub(crate) struct SnapshotView<'a> {
    snapshot: &'a Snapshot,
    /// None while the policies are being compiled.
    fresh: Option<&'a Fresh>,
    balances: HashMap<Arc<str>, Vec<BalanceLine>>,
    /// What families made of many objects, which do not change here.
    derived: RefCell<HashMap<String, Parsed>>,
}

impl<'a> SnapshotView<'a> {
    pub fn new(snapshot: &'a Snapshot, fresh: Option<&'a Fresh>) -> Self {
        let mut balances: HashMap<Arc<str>, Vec<BalanceLine>> = HashMap::new();
        for (key, balance) in snapshot.ledger.balances().filter(|_| fresh.is_some()) {
            let (resource, bucket, balance) = (key.resource.clone(), key.bucket.clone(), balance.clone());
            balances.entry(key.policy.clone()).or_default().push(BalanceLine { resource, bucket, balance });
        }
        for lines in balances.values_mut() {
            lines.sort_by(|a, b| (&a.resource, &a.bucket).cmp(&(&b.resource, &b.bucket)));
        }
        Self { snapshot, fresh, balances, derived: RefCell::default() }
    }

    /// The namespaces that a policy looks into.
    pub fn namespaces_of(&self, policy: &str) -> Vec<Arc<str>> {
        let rulebook = self.fresh.map(|fresh| &fresh.rulebook);
        rulebook.and_then(|book| Some(book.namespaces_of(book.id(policy)?))).unwrap_or_default()
    }

    /// The balances alone, as readers see them.
    pub fn numbers(&self) -> Numbers<'_> {
        Numbers(self)
    }
}

pub(crate) struct Numbers<'a>(&'a SnapshotView<'a>);

impl Balances for Numbers<'_> {
    fn of(&self, policy: &str) -> Vec<BalanceLine> {
        self.0.of(policy)
    }
}

impl World for SnapshotView<'_> {
    fn now_ms(&self) -> i64 {
        self.snapshot.clock_ms
    }

    fn derived(&self, name: &str, _: Sources<'_>, make: &dyn Fn() -> Parsed) -> Parsed {
        if let Some(known) = self.derived.borrow().get(name) {
            return known.clone();
        }
        let made = make();
        self.derived.borrow_mut().insert(name.to_owned(), made.clone());
        made
    }

    fn list(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Value>> {
        let objects = self.snapshot.objects(resource).filter(|object| &*object.key.namespace == namespace);
        objects.map(|object| Arc::new(object.value())).collect()
    }

    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let key = ObjectKey::new(resource.clone(), namespace, name);
        self.snapshot.get(&key).map(|object| Arc::new(object.value()))
    }

    fn parsed(&self, resource: &GroupResource, namespace: &str, make: &dyn Fn(&Value) -> Parsed) -> Vec<Parsed> {
        let objects = self.snapshot.objects(resource).filter(|object| &*object.key.namespace == namespace);
        objects.map(|object| object.parsed(make)).collect()
    }

    fn parsed_everywhere(&self, resource: &GroupResource, make: &dyn Fn(&Value) -> Parsed) -> Vec<Parsed> {
        self.snapshot.objects(resource).map(|object| object.parsed(make)).collect()
    }
}

impl Balances for SnapshotView<'_> {
    fn of(&self, policy: &str) -> Vec<BalanceLine> {
        self.balances.get(policy).cloned().unwrap_or_default()
    }

    fn view(&self) -> Option<&dyn View> {
        Some(self)
    }
}

impl View for SnapshotView<'_> {
    fn charged(&self, _: &str, _: usize) -> Vec<SubjectLine> {
        Vec::new()
    }

    fn holders(&self, _: &str, _: &str, _: &str, _: usize) -> Vec<SubjectLine> {
        Vec::new()
    }

    fn part(&self, policy: &str, bucket: &str) -> Vec<BalanceLine> {
        let lines = self.balances.get(policy).into_iter().flatten();
        lines.filter(|line| &*line.bucket == bucket).cloned().collect()
    }

    fn waits(&self, _: SubjectId) -> bool {
        false
    }

    fn waiting(&self, _: &str, _: usize) -> Vec<SubjectLine> {
        Vec::new()
    }

    fn in_line(&self, _: &str, _: usize) -> Vec<Place> {
        Vec::new()
    }

    fn namespaces(&self, policy: &str) -> Vec<Arc<str>> {
        self.namespaces_of(policy)
    }

    fn looks_into(&self, policy: &str, namespace: &str) -> bool {
        let rulebook = self.fresh.map(|fresh| &fresh.rulebook);
        rulebook.is_some_and(|book| book.id(policy).is_some_and(|id| book.looks_into(id, namespace)))
    }

    fn looking_at(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<str>> {
        self.fresh.map_or_else(Vec::new, |fresh| fresh.rulebook.looking_at(resource, namespace))
    }

    fn companion(&self, _: SubjectId, _: usize) -> Option<Place> {
        None
    }

    fn lives(&self, _: SubjectId) -> bool {
        true
    }

    fn explain(&self, _: SubjectId) -> Explanation {
        Explanation { state: None, lines: Vec::new() }
    }
}
