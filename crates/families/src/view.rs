//! What families see: stored objects, balances, and (in the step that decides) everything else the ledger knows.

use std::any::Any;
use std::sync::Arc;

use ledger::{Balance, ExplainedLine, Explanation, SubjectId};
use quantity::{Amount, Format};
use rules::GroupResource;
use serde_json::Value;

use crate::consequence::Place;

/// What a family made of a stored object, to be used again while the object stays as it is.
pub type Parsed = Arc<dyn Any + Send + Sync>;

/// What a family may look up while it admits, validates or projects: a consistent enough view of stored objects.
pub trait World {
    /// Every object of a resource in a namespace ("" for cluster-scoped ones), by name.
    fn list(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Value>>;
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Value>>;

    /// The names of those in a namespace: none of them is read for that, where objects are kept.
    fn names(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<str>> {
        let names = |object: &Arc<Value>| object.pointer("/metadata/name").and_then(Value::as_str).map(Arc::from);
        self.list(resource, namespace).iter().filter_map(names).collect()
    }

    /// What `make` makes of one object. A world that keeps objects remembers it with them, as [`World::parsed`] does.
    fn parsed_one(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
        make: &dyn Fn(&Value) -> Parsed,
    ) -> Option<Parsed> {
        self.get(resource, namespace, name).map(|object| make(&object))
    }

    /// The moment of the decision; zero where nothing is decided.
    fn now_ms(&self) -> i64 {
        0
    }

    /// What `make` makes of objects, and of the ledger where it depends on that, under a name of its own. A world that keeps
    /// objects remembers it until one of these resources changes, or the ledger does: what many objects ask for in one step
    /// is made once.
    fn derived(&self, _name: &str, _of: Sources<'_>, make: &dyn Fn() -> Parsed) -> Parsed {
        make()
    }

    /// What `make` makes of all objects of a resource in a namespace together, and of nothing else. A world that keeps objects
    /// remembers it until one of them is another. A resource belongs to one family, which always makes the same.
    fn gathered(&self, _resource: &GroupResource, _namespace: &str, make: &dyn Fn() -> Parsed) -> Parsed {
        make()
    }

    /// The same for every object of a resource, wherever it is.
    fn parsed_everywhere(&self, resource: &GroupResource, make: &dyn Fn(&Value) -> Parsed) -> Vec<Parsed> {
        self.parsed(resource, "", make)
    }

    /// What `make` makes of every object of a resource in a namespace, by name. A world that keeps objects remembers it
    /// with them, so that a rule read on every create is compiled once: the next state of an object is another object.
    fn parsed(&self, resource: &GroupResource, namespace: &str, make: &dyn Fn(&Value) -> Parsed) -> Vec<Parsed> {
        self.list(resource, namespace).iter().map(|object| make(object)).collect()
    }
}

/// What something is made of.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    pub resources: &'a [GroupResource],
    pub ledger: bool,
}

/// A world in which nothing is stored.
pub struct Nothing;

impl World for Nothing {
    fn list(&self, _: &GroupResource, _: &str) -> Vec<Arc<Value>> {
        Vec::new()
    }

    fn get(&self, _: &GroupResource, _: &str, _: &str) -> Option<Arc<Value>> {
        None
    }
}

/// Usage as the ledger has it.
pub trait Balances {
    /// Every account of a policy ([`rules::policy_name`]), by resource, then bucket.
    fn of(&self, policy: &str) -> Vec<BalanceLine>;

    /// One account of a policy, not divided.
    fn balance(&self, policy: &str, account: &str) -> Option<Balance> {
        let lines = self.of(policy).into_iter();
        lines.filter(|line| line.bucket.is_empty()).find(|line| &*line.resource == account).map(|line| line.balance)
    }

    /// What only the owner of the ledger can tell. `None` for readers, who then leave what depends on it as it was
    /// last published.
    fn view(&self) -> Option<&dyn View> {
        None
    }
}

/// Ledger and stored objects within one step, consistent to the last charge.
pub trait View: World + Balances {
    /// Objects charged on the accounts of a policy ([`Manifest::naming`](crate::Manifest::naming)), by namespace, resource and name: the first
    /// `max` of them.
    fn charged(&self, policy: &str, max: usize) -> Vec<SubjectLine>;

    /// Objects charged on one account of a policy, or on a part of it: what each takes of the policy's accounts, those
    /// who came first first. Unlike [`View::charged`] this costs what it finds, however many others wait.
    fn holders(&self, policy: &str, account: &str, bucket: &str, max: usize) -> Vec<SubjectLine>;

    /// The balances of one part of a policy's accounts.
    fn part(&self, policy: &str, bucket: &str) -> Vec<BalanceLine>;

    /// Every object of a resource in a namespace of which nothing is charged, and which waits for nothing: those alone are read.
    fn uncharged(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Value>> {
        self.list(resource, namespace)
    }

    /// Whether a subject stands in line. Cheaper than to have it explained.
    fn waits(&self, subject: SubjectId) -> bool;

    /// Objects that wait for the accounts of a policy, with what each wants of them: in the order of service for each
    /// account, the first `max` of it.
    fn waiting(&self, policy: &str, max: usize) -> Vec<SubjectLine>;

    /// Where those are who wait for the accounts of a policy, the first `max` for each account: cheaper than what they want.
    fn in_line(&self, policy: &str, max: usize) -> Vec<Place>;

    /// The namespaces a policy's rules look into now, sorted. Empty for a policy over objects without a namespace.
    fn namespaces(&self, policy: &str) -> Vec<Arc<str>>;

    /// Whether a policy's rules look into this namespace now.
    fn looks_into(&self, policy: &str, namespace: &str) -> bool {
        self.namespaces(policy).iter().any(|one| &**one == namespace)
    }

    /// The policies whose rules look at objects of a resource in a namespace now, by name.
    fn looking_at(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<str>>;

    /// Where an object's n-th companion is, if it is stored.
    fn companion(&self, of: SubjectId, number: usize) -> Option<Place>;

    /// Whether an object that companions were made for is still stored.
    fn lives(&self, subject: SubjectId) -> bool;

    fn explain(&self, subject: SubjectId) -> Explanation;

    /// The accounts for which a subject waits. Unlike [`View::explain`] this does not count who is ahead.
    fn blocking(&self, subject: SubjectId) -> Vec<ExplainedLine> {
        self.explain(subject).blocking().cloned().collect()
    }
}

/// How much one stored object is charged on one account of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectLine {
    pub uid: SubjectId,
    pub resource: GroupResource,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    /// The place of the object among all that were created; zero for one that is older than this count.
    pub born: u64,
    pub account: Arc<str>,
    pub amount: Amount,
    pub format: Format,
}

/// One account of a policy.
#[derive(Clone, Debug)]
pub struct BalanceLine {
    pub resource: Arc<str>,
    pub bucket: Arc<str>,
    pub balance: Balance,
}
