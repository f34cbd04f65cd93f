//! The one interface between a quota system and whatever runs it.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use kinds::field_error::{FieldError, join};
use quantity::Amount;
use rules::{Compiled, GroupResource, Namespace, Reach};
use serde_json::Value;

use crate::consequence::{Affected, Cause, Company, Must, Writing};
use crate::identity::Origin;
use crate::manifest::{Manifest, Plural, Plurals, holds};
use crate::metrics::{Samples, Survey};
use crate::record::{Noted, Outbox, Record};
use crate::refusal::{Denial, Refusal};
use crate::view::{Balances, Nothing, View, World};
use crate::virtuals::VirtualWrite;

/// An object where it is stored, or would be: a policy of some family, mostly.
#[derive(Clone, Copy)]
pub struct PolicyObject<'a> {
    pub resource: &'a GroupResource,
    pub namespace: &'a str,
    pub name: &'a str,
    pub object: &'a Value,
    /// What the policy of this name is in force as, where that is known: rules may be taken over ([`rules::Measure::essence`]).
    pub in_force: Option<&'a Compiled>,
}

/// Why an object is being looked at.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    Create,
    Update,
    /// A write of a subresource that reports what already happened (`status`): charged, never refused.
    Status,
}

/// A write on its way in, before it is decided.
pub struct Admission<'a> {
    pub operation: Operation,
    pub resource: &'a GroupResource,
    /// Empty for the object itself, else `resize`, `scale` …
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub object: &'a mut Value,
    pub old: Option<&'a Value>,
    pub origin: &'a Origin,
}

/// A change to an object of the family's own kinds, at the moment it is decided.
pub struct Change<'a> {
    pub resource: &'a GroupResource,
    pub namespace: &'a str,
    pub name: &'a str,
    pub old: &'a Value,
    /// `None` when the object is deleted.
    pub new: Option<&'a Value>,
    /// Who made it; or who made what it follows from.
    pub origin: &'a Origin,
}

/// What a projection found out.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Projected {
    Unchanged,
    Changed,
}

/// Puts a projected status in its place, and says whether that changed anything.
pub(crate) fn put_status(object: &mut Value, status: serde_json::Map<String, Value>) -> Projected {
    let status = Value::Object(status);
    let Some(object) = object.as_object_mut() else { return Projected::Unchanged };
    if object.get("status") == Some(&status) {
        return Projected::Unchanged;
    }
    object.insert("status".into(), status);
    Projected::Changed
}

/// Why a policy does not compile.
#[derive(Clone)]
pub struct Uncompiled {
    pub errors: Vec<FieldError>,
    /// Where it would look, had it compiled: as far as that can be told, and rather too much than too little. A stored policy
    /// that does not compile refuses everything there until it is mended.
    pub would_look_at: Vec<(GroupResource, Reach)>,
}

impl fmt::Debug for Uncompiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&join(&self.errors))
    }
}

/// What a family has to say about a request, before it is decided.
#[derive(Default, Debug)]
pub struct Remarks {
    pub errors: Vec<FieldError>,
    /// Shown to the client beside a successful write.
    pub warnings: Vec<String>,
}

impl From<Vec<FieldError>> for Remarks {
    fn from(errors: Vec<FieldError>) -> Self {
        Self { errors, warnings: Vec::new() }
    }
}

/// How a denial is told.
pub struct Words {
    /// Without the wrapper that names the refused object.
    pub text: String,
    /// Where several policies of the family refuse, the lowest rank speaks first.
    pub rank: Amount,
}

impl From<String> for Words {
    fn from(text: String) -> Self {
        Self { text, rank: Amount::ZERO }
    }
}

/// A right that a write needs besides the right to make it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    pub verb: &'static str,
    pub resource: GroupResource,
    /// Empty for the whole cluster.
    pub namespace: String,
    pub name: String,
}

/// Whether a policy looks into a namespace.
pub type Picks = Arc<dyn Fn(&Namespace) -> bool + Send + Sync>;

/// One of the quota systems.
pub trait Family: Send + Sync {
    /// Its name, and what it has to do with which resources.
    fn manifest(&self) -> &Manifest;

    /// Turns a (valid) policy object into accounts and rules. What it looks up in the world is of
    /// [`Manifest::meaning`]: a quota that names a kind depends on that kind's definition.
    fn compile(&self, policy: &PolicyObject<'_>, world: &dyn World) -> Result<Compiled, Uncompiled>;

    /// Whether a policy may mean something else because an object of [`Manifest::meaning`] changed: its text as it is stored is all that
    /// is looked at, since there may be ten thousand of them, and saying yes too often costs no more than time.
    fn may_mean_otherwise(&self, _change: &Change<'_>, _policy: &str) -> bool {
        true
    }

    /// What of the operator's settings decides how much objects are charged. When it is not what it was before a restart,
    /// everything is counted again.
    fn measuring(&self) -> String {
        String::new()
    }

    /// Which objects a cause concerns. Asked in the step that decides, as the next three.
    fn affected(&self, _cause: &Cause<'_>, _view: &dyn View) -> Vec<Affected> {
        Vec::new()
    }

    /// Whether a write of an object of this resource, there, can concern others, or come with any, at all: asked before
    /// anything is read, of every write of what the family watches, and of every write where [`Manifest::accompanies`] is set.
    fn may_concern(&self, _resource: &GroupResource, _namespace: &str, _world: &dyn World) -> bool {
        true
    }

    /// What an object comes with: written, decided and refused together with it. Asked in the step, before it is decided, and not
    /// about what reports a status. Expressions on `writing.object` are evaluated by the sender where they take long. `Err` refuses the write.
    fn accompany(&self, _writing: &Writing<'_>, _view: &dyn View) -> Result<Company, Refusal> {
        Ok(Company::default())
    }

    /// Other namespaces than this one in which there may be what limits it ([`Manifest::limiting`]).
    fn limited_from(&self, _namespace: &str, _world: &dyn World) -> Vec<Arc<str>> {
        Vec::new()
    }

    /// What an object must be, whoever wrote it. `object.object` is null for one that is not there. `Err` refuses the write,
    /// if somebody asked for one.
    fn must_be(&self, _object: &PolicyObject<'_>, _view: &dyn View) -> Result<Must, Refusal> {
        Ok(Must::AsItIs)
    }

    /// Refuses a write or a deletion for what only the state it is decided on can tell: usage that forbids it, another write
    /// that is not durable yet. `change.old` is null when the object is created. Not asked about what reports a status.
    fn check(&self, _change: &Change<'_>, _view: &dyn View) -> Result<(), Refusal> {
        Ok(())
    }

    /// What a write needs of its author besides the right to make it. `change.old` is null for a new object. Asked before
    /// anything is said about the objects it names, so that refusals tell nobody what exists.
    fn rights(&self, _change: &Change<'_>, _world: &dyn World) -> Vec<Right> {
        Vec::new()
    }

    /// Fills in and refuses before validation: defaults that depend on other objects (LimitRange), for instance.
    /// `Err` is the text behind `<resource> "<name>" is forbidden: `.
    fn admit(&self, _request: &mut Admission<'_>, _world: &dyn World) -> Result<(), String> {
        Ok(())
    }

    /// Checks objects of the family's own kinds beyond their schema.
    fn validate(&self, _request: &Admission<'_>, _world: &dyn World) -> Remarks {
        Remarks::default()
    }

    /// Writes what the ledger knows into the object's status.
    fn project(&self, resource: &GroupResource, object: &mut Value, balances: &dyn Balances) -> Projected;

    /// The family's words for a denial.
    fn words(&self, denial: &Denial) -> Words;

    /// What the family does in its own time, over a Kubernetes API and what it has written down to be sent, and over nothing
    /// else; runs until the process ends.
    fn controllers(&self, _client: kube::Client, _outbox: Arc<dyn Outbox>) -> Vec<BoxFuture<'static, ()>> {
        Vec::new()
    }

    /// What is written down of a write of [`Manifest::recorded`], in its commit, where nothing can be refused any more; and of
    /// one that the family refused, where [`Manifest::records_refusals`] is set.
    fn records(&self, _noted: &Noted<'_>, _view: &dyn View) -> Vec<Record> {
        Vec::new()
    }

    /// The values of [`Manifest::metrics`] at this moment.
    fn sample(&self, _survey: &dyn Survey, _out: &mut Samples) {}

    /// The objects of a virtual resource in a namespace, by name.
    fn virtual_objects(
        &self,
        _resource: &GroupResource,
        _namespace: &str,
        _world: &dyn World,
        _balances: &dyn Balances,
    ) -> Vec<Value> {
        Vec::new()
    }

    /// What posting a document to a virtual resource writes; `None` when nothing can be posted to it. `Err` says what
    /// is wrong with the document.
    fn virtual_write(
        &self,
        _resource: &GroupResource,
        _namespace: &str,
        _document: &Value,
    ) -> Option<Result<VirtualWrite, String>> {
        None
    }
}

/// Which namespaces a policy picks by what is written on them; `None` where none are.
pub fn picks(family: &dyn Family, policy: &PolicyObject<'_>) -> Option<Picks> {
    let compiled = family.compile(policy, &Nothing).ok()?;
    compiled.rules.into_iter().find_map(|rule| match rule.reach {
        Reach::Selected(accepts) => Some(accepts),
        _ => None,
    })
}

/// All families, asked by resource.
#[derive(Clone)]
pub struct Families {
    list: Arc<[Arc<dyn Family>]>,
}

impl Families {
    pub fn new(list: Vec<Arc<dyn Family>>) -> Self {
        Self { list: list.into() }
    }

    /// Every resource that a part of the families' manifests names.
    pub fn resources<Set: FromIterator<GroupResource>>(&self, part: impl Fn(&Manifest) -> Plurals) -> Set {
        self.list.iter().flat_map(|family| part(family.manifest())).map(Plural::resource).collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Family>> {
        self.list.iter()
    }

    /// The family whose policy this resource is.
    pub fn of_policy(&self, resource: &GroupResource) -> Option<&Arc<dyn Family>> {
        self.list.iter().find(|family| holds(family.manifest().policies, resource))
    }

    /// The place, in the order of the list, of the family whose policy this resource is.
    pub fn place(&self, resource: &GroupResource) -> Option<usize> {
        self.list.iter().position(|family| holds(family.manifest().policies, resource))
    }

    /// Puts the refusals of several policies in the order in which they are told: families as listed, within a
    /// family by rank, then by name.
    pub fn arrange(&self, denials: &mut [Denial]) {
        denials.sort_by_cached_key(|denial| {
            let place = self.place(&denial.resource);
            let rank = place.map_or(Amount::ZERO, |place| self.list[place].words(denial).rank);
            (place, rank, denial.policy.clone())
        });
    }

    /// The family that fills in the status of this resource.
    pub fn of_projected(&self, resource: &GroupResource) -> Option<&Arc<dyn Family>> {
        self.list.iter().find(|family| family.manifest().projects(resource))
    }
}
