//! The one interface between a quota system and whatever runs it.

use std::any::Any;
use std::sync::Arc;

use kinds::field_error::FieldError;
use ledger::{Balance, ExplainedLine, Explanation, SubjectId};
use quantity::{Amount, Format};
use rules::{Compiled, GroupResource, Namespace, Reach};
use serde_json::Value;

use crate::metrics::{Metric, Samples, Survey};
use crate::relief::{ChargeLine, Companion, Plea, Upkeep};

/// A stored object that is a policy of some family.
pub struct PolicyObject<'a> {
    pub resource: &'a GroupResource,
    pub namespace: &'a str,
    pub name: &'a str,
    pub object: &'a Value,
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
}

/// What a family made of a stored object, to be used again while the object stays as it is.
pub type Made = Arc<dyn Any + Send + Sync>;

/// What a family may look up while it admits, validates or projects: a consistent enough view of stored objects.
pub trait World {
    /// Every object of a resource in a namespace ("" for cluster-scoped ones), by name.
    fn list(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Value>>;
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Value>>;

    /// The same for every object of a resource, wherever it is.
    fn made_everywhere(&self, resource: &GroupResource, make: &dyn Fn(&Value) -> Made) -> Vec<Made> {
        self.made(resource, "", make)
    }

    /// What `make` makes of every object of a resource in a namespace, by name. A world that keeps objects remembers it
    /// with them, so that a rule read on every create is compiled once: the next state of an object is another object.
    fn made(&self, resource: &GroupResource, namespace: &str, make: &dyn Fn(&Value) -> Made) -> Vec<Made> {
        self.list(resource, namespace).iter().map(|object| make(object)).collect()
    }
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

    /// What only the owner of the ledger can tell. `None` for readers, who then leave what depends on it as it was
    /// last published.
    fn near(&self) -> Option<&dyn Near> {
        None
    }
}

/// Ledger and stored objects from near: a view within one step, consistent to the last charge.
pub trait Near: World + Balances {
    fn now_ms(&self) -> i64;

    /// Objects charged on the accounts of a policy ([`Family::naming`]), by namespace, resource and name: the first
    /// `max` of them.
    fn charged(&self, policy: &str, max: usize) -> Vec<SubjectLine>;

    /// Objects charged on one account of a policy, or on a part of it: what each takes of the policy's accounts, those
    /// who came first first. Unlike [`Near::charged`] this costs what it finds, however many others wait.
    fn holders(&self, policy: &str, account: &str, bucket: &str, max: usize) -> Vec<SubjectLine>;

    /// The balances of one part of a policy's accounts.
    fn part(&self, policy: &str, bucket: &str) -> Vec<BalanceLine>;

    /// Whether a subject stands in line. Cheaper than to have it explained.
    fn waits(&self, subject: SubjectId) -> bool;

    /// Objects that wait for the accounts of a policy, with what each wants of them: in the order of service for each
    /// account, the first `max` of it.
    fn waiting(&self, policy: &str, max: usize) -> Vec<SubjectLine>;

    /// The namespaces a policy's rules look into now, sorted. Empty for a policy over objects without a namespace.
    fn namespaces(&self, policy: &str) -> Vec<Arc<str>>;

    /// Whether a policy's rules look into this namespace now.
    fn looks_into(&self, policy: &str, namespace: &str) -> bool {
        self.namespaces(policy).iter().any(|one| &**one == namespace)
    }

    fn explain(&self, subject: SubjectId) -> Explanation;

    /// The accounts for which a subject waits. Unlike [`Near::explain`] this does not count who is ahead.
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

/// A change to an object of the family's own kinds, at the moment it is decided.
pub struct Change<'a> {
    pub resource: &'a GroupResource,
    pub namespace: &'a str,
    pub name: &'a str,
    pub old: &'a Value,
    /// `None` when the object is deleted.
    pub new: Option<&'a Value>,
}

/// One account of a policy.
#[derive(Clone, Debug)]
pub struct BalanceLine {
    pub resource: Arc<str>,
    pub bucket: Arc<str>,
    pub balance: Balance,
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

/// The accounts of one policy that said no to one request, with the numbers a person needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub policy: Arc<str>,
    pub resource: GroupResource,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    /// What was refused.
    pub operation: Operation,
    pub lines: Vec<DenialLine>,
    /// Set when a rule refused in its own words ([`rules::Refusal`]) instead of an account.
    pub message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenialLine {
    pub account: Arc<str>,
    pub requested: Amount,
    pub requested_format: Format,
    pub used: Amount,
    pub held: Amount,
    pub used_format: Format,
    pub limit: Amount,
    /// The limit as the policy writes it.
    pub limit_text: Arc<str>,
}

/// A namespaced resource that is not stored: its objects are made from others when somebody asks, or a document posted
/// to it becomes a write elsewhere.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct VirtualResource {
    pub group: &'static str,
    pub version: &'static str,
    /// The plural, as in the address.
    pub resource: &'static str,
    pub singular: &'static str,
    pub kind: &'static str,
    /// `get` and `list` ([`Family::virtual_objects`]), or `create` ([`Family::virtual_write`]).
    pub verbs: &'static [&'static str],
    pub short: &'static [&'static str],
    /// What is printed between name and age: the name of a column and the path of its cells, all of them text.
    pub columns: &'static [(&'static str, &'static str)],
}

/// A write of an object's status, on condition that the object still has this resource version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualWrite {
    pub resource: GroupResource,
    pub name: String,
    pub resource_version: String,
    pub status: Value,
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

/// An object whose status another object's status goes into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependent {
    pub resource: GroupResource,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

/// An object that a policy keeps in step with its balances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub resource: GroupResource,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

/// One of the quota systems.
pub trait Family: Send + Sync {
    fn name(&self) -> &'static str;

    /// The custom kinds the family brings, as CustomResourceDefinition objects; served from the first start on.
    fn definitions(&self) -> Vec<Value> {
        Vec::new()
    }

    /// The resources whose objects are policies of this family.
    fn policies(&self) -> Vec<GroupResource>;

    /// Resources besides the policies whose status is a projection of the ledger (claims, say).
    fn projected(&self) -> Vec<GroupResource> {
        Vec::new()
    }

    /// The policies in whose line the family's projected objects wait. What other policies charge such an object is
    /// charged at once or refused: waiting for one thing is no way around another.
    fn queueing(&self) -> Vec<GroupResource> {
        Vec::new()
    }

    /// The policies whose status names what they count, so that [`Near::charged`] finds it without looking around.
    fn naming(&self) -> Vec<GroupResource> {
        Vec::new()
    }

    /// The object that a policy keeps in a namespace, stored or not.
    fn kept(&self, _policy: &GroupResource, _name: &str, _namespace: &str) -> Option<Kept> {
        None
    }

    /// The spec that an object has because a policy keeps it so. It is written in the step that moved the policy's
    /// balances, and takes the place of whatever anybody else writes there: nobody can use what was just given back,
    /// nor give himself more.
    fn keep(&self, _resource: &GroupResource, _namespace: &str, _name: &str, _near: &dyn Near) -> Option<Value> {
        None
    }

    /// The whole object of that name, where a policy keeps one and it is not stored. It is made in the step that misses it:
    /// there is no moment in which a namespace is under a policy and nothing limits it.
    fn provide(&self, _resource: &GroupResource, _namespace: &str, _name: &str, _near: &dyn Near) -> Option<Value> {
        None
    }

    /// Turns a (valid) policy object into accounts and rules.
    fn compile(&self, policy: &PolicyObject<'_>) -> Result<Compiled, Vec<FieldError>>;

    /// The same for a family whose policies mean something else when other objects change: a quota that names a kind
    /// depends on that kind's definition.
    fn compile_among(&self, policy: &PolicyObject<'_>, _world: &dyn World) -> Result<Compiled, Vec<FieldError>> {
        self.compile(policy)
    }

    /// Where a policy that does not compile would look, had it compiled: as far as that can be told, and rather too much
    /// than too little. Everything there is refused until the policy is mended.
    fn would_look_at(&self, policy: &PolicyObject<'_>, world: &dyn World) -> Vec<(GroupResource, Reach)>;

    /// What of the operator's settings decides how much objects are charged. When it is not what it was before a restart,
    /// everything is counted again.
    fn measuring(&self) -> String {
        String::new()
    }

    /// Resources whose objects [`Family::compile_among`] looks up. When one changes, the family's policies are
    /// compiled again.
    fn depends_on(&self) -> Vec<GroupResource> {
        Vec::new()
    }

    /// Refuses a change or deletion of the family's own objects that usage forbids. Asked in the step that decides,
    /// so that what it reads cannot be stale.
    fn guard(&self, _change: &Change<'_>, _near: &dyn Near) -> Result<(), String> {
        Ok(())
    }

    /// Whether [`Family::check`] has anything to say.
    fn checks(&self) -> bool {
        false
    }

    /// Refuses a write of any object for what only the state it is decided on can tell: another write that is not durable
    /// yet counts. `old` is null when the object is created. Not asked about what reports a status.
    fn check(&self, _change: &Change<'_>, _near: &dyn Near) -> Result<(), String> {
        Ok(())
    }

    /// What a write needs of its author besides the right to make it. `change.old` is null for a new object. Asked before
    /// anything is said about the objects it names, so that refusals tell nobody what exists.
    fn rights(&self, _change: &Change<'_>, _world: &dyn World) -> Vec<Right> {
        Vec::new()
    }

    /// The policies that pick namespaces by what is written on them. Whoever may write on a namespace could leave such a
    /// policy, or enter one, so that this takes a right of its own.
    fn selecting(&self) -> Vec<GroupResource> {
        Vec::new()
    }

    /// Which namespaces such a policy picks; `None` where none are.
    fn picks(&self, policy: &PolicyObject<'_>) -> Option<Picks> {
        let compiled = self.compile(policy).ok()?;
        compiled.rules.into_iter().find_map(|rule| match rule.reach {
            Reach::Selected(accepts) => Some(accepts),
            _ => None,
        })
    }

    /// Resources whose objects the family has a say in ([`Family::derive`]).
    fn derived(&self) -> Vec<GroupResource> {
        Vec::new()
    }

    /// The object as it has to be, when that is not as it is: stored in the place of what anybody writes. `Err` refuses
    /// the write. Asked in the step that decides.
    fn derive(&self, _object: &PolicyObject<'_>, _near: &dyn Near) -> Result<Option<Value>, String> {
        Ok(None)
    }

    /// Resources whose objects decide what derived objects are.
    fn leads(&self) -> Vec<GroupResource> {
        Vec::new()
    }

    /// Whether a change of an object of this resource, there, can have followers at all: asked of every write of a
    /// resource that leads, before anything is read.
    fn may_lead(&self, resource: &GroupResource, _namespace: &str, _world: &dyn World) -> bool {
        self.leads().contains(resource)
    }

    /// The derived objects to look at again, in the same commit, after this change.
    fn followers(&self, _change: &Change<'_>, _near: &dyn Near) -> Vec<Dependent> {
        Vec::new()
    }

    /// What would let a refused object in: objects to be made with it, which go with it. `None` where nothing would.
    fn relieve(&self, _plea: &Plea<'_>, _near: &dyn Near) -> Option<Vec<Companion>> {
        None
    }

    /// What becomes of such a companion now that its object is charged so; nothing when that is gone.
    fn attend(&self, _companion: &Value, _charges: &[ChargeLine]) -> Upkeep {
        Upkeep::AsItIs
    }

    /// Objects whose projected status depends on this object's, beside the ones whose accounts changed.
    fn dependents(&self, _resource: &GroupResource, _object: &Value, _near: &dyn Near) -> Vec<Dependent> {
        Vec::new()
    }

    /// Where several policies of the family refuse, the lowest rank speaks first.
    fn rank(&self, _denial: &Denial) -> Amount {
        Amount::ZERO
    }

    /// Fills in and refuses before validation: defaults that depend on other objects (LimitRange), for instance.
    /// `Err` is the text behind `<resource> "<name>" is forbidden: `.
    fn admit(&self, _request: &mut Admission<'_>, _world: &dyn World) -> Result<(), String> {
        Ok(())
    }

    /// Checks objects of the family's own kinds beyond their schema.
    fn validate(&self, _request: &Admission<'_>, _world: &dyn World) -> Vec<FieldError> {
        Vec::new()
    }

    /// Warnings shown to the client beside a successful write.
    fn warnings(&self, _request: &Admission<'_>) -> Vec<String> {
        Vec::new()
    }

    /// Writes what the ledger knows into the object's status.
    fn project(&self, resource: &GroupResource, object: &mut Value, balances: &dyn Balances) -> Projected;

    /// The family's words for a denial, without the wrapper that names the refused object.
    fn words(&self, denial: &Denial) -> String;

    /// What the family does in its own time, over a Kubernetes API and nothing else; runs until the process ends.
    fn controllers(&self, _client: kube::Client) -> Vec<futures::future::BoxFuture<'static, ()>> {
        Vec::new()
    }

    /// What the family tells whoever monitors it.
    fn metrics(&self) -> &'static [&'static Metric] {
        &[]
    }

    /// The values of [`Family::metrics`] at this moment.
    fn sample(&self, _survey: &dyn Survey, _out: &mut Samples) {}

    /// The resources that are answered without being stored.
    fn virtual_resources(&self) -> Vec<VirtualResource> {
        Vec::new()
    }

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

/// All families, asked by resource.
#[derive(Clone)]
pub struct Families {
    list: Arc<[Arc<dyn Family>]>,
}

impl Families {
    pub fn new(list: Vec<Arc<dyn Family>>) -> Self {
        Self { list: list.into() }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Family>> {
        self.list.iter()
    }

    /// The family whose policy this resource is.
    pub fn of_policy(&self, resource: &GroupResource) -> Option<&Arc<dyn Family>> {
        self.list.iter().find(|family| family.policies().contains(resource))
    }

    /// The place, in the order of the list, of the family whose policy this resource is.
    pub fn place(&self, resource: &GroupResource) -> Option<usize> {
        self.list.iter().position(|family| family.policies().contains(resource))
    }

    /// Puts the refusals of several policies in the order in which they are told: families as listed, within a
    /// family by rank, then by name.
    pub fn arrange(&self, denials: &mut [Denial]) {
        denials.sort_by_cached_key(|denial| {
            let place = self.place(&denial.resource);
            let rank = place.map_or(Amount::ZERO, |place| self.list[place].rank(denial));
            (place, rank, denial.policy.clone())
        });
    }

    /// The family that fills in the status of this resource.
    pub fn of_projected(&self, resource: &GroupResource) -> Option<&Arc<dyn Family>> {
        self.list.iter().find(|family| family.policies().contains(resource) || family.projected().contains(resource))
    }
}
