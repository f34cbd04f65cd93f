//! What a family has to do with which resources, as one value.

use rules::GroupResource;
use serde_json::Value;

use crate::metrics::Metric;
use crate::virtuals::VirtualResource;

/// A resource by its group and its plural.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plural(pub &'static str, pub &'static str);

impl Plural {
    pub fn is(&self, resource: &GroupResource) -> bool {
        resource.is(self.0, self.1)
    }

    pub fn resource(&self) -> GroupResource {
        GroupResource::new(self.0, self.1)
    }
}

pub type Plurals = &'static [Plural];

#[derive(Clone, Copy, Debug)]
pub struct Manifest {
    pub name: &'static str,
    /// The custom kinds the family brings, as CustomResourceDefinition objects; served from the first start on.
    pub definitions: fn() -> Vec<Value>,
    /// Resources whose objects are policies of this family.
    pub policies: Plurals,
    /// Policies that nobody makes but the steps that write what they are made of. They are not counted among those of which there may
    /// be so many: each looks into namespaces of its own.
    pub made: Plurals,
    /// Resources besides the policies whose status is a projection of the ledger (claims, say).
    pub projected: Plurals,
    /// Policies of whose status others tell a part: what the ledger knows of it is right for readers in the very commit. Elsewhere a
    /// status that somebody wrote is shown for a while.
    pub told: Plurals,
    /// Policies whose status names what they count, so that [`View::charged`](crate::View::charged) finds it without looking
    /// around.
    pub naming: Plurals,
    /// Policies that pick namespaces by what is written on them. Whoever may write on a namespace could leave such a policy,
    /// or enter one, so that this takes a right of its own.
    pub selecting: Plurals,
    /// Policies that keep other objects in step with their balances: each part that moves is a
    /// [`Cause`](crate::Cause::Moved).
    pub keeping: Plurals,
    /// Resources whose objects have others made, of which nobody would know after a start that they are missing: an end may have come
    /// before the last of them was made. At a start, and in an audit, it is looked for what each of these objects
    /// concerns ([`Cause::Written`](crate::Cause::Written)) and is not there.
    pub making: Plurals,
    /// Resources that are no policies and say what limits: where such an object is to follow what was written, it does before anything
    /// is decided in its namespace, or in one that is [limited from there](crate::Family::limited_from).
    pub limiting: Plurals,
    /// Resources in whose objects the family has a say, whoever writes them.
    pub shaped: Plurals,
    /// Resources whose writes may concern other objects.
    pub watched: Plurals,
    /// Resources whose objects decide what the family's policies mean. When one changes, the policies are compiled again.
    pub meaning: Plurals,
    /// Whether the family is asked about every write ([`Family::check`](crate::Family::check)), and not only about those of its
    /// own policies, of what it projects and of what it checks.
    pub checks_everything: bool,
    /// Resources about whose writes the family is asked besides those of its policies and of what it projects.
    pub checked: Plurals,
    /// Whether objects that others write may come with objects of the family's ([`Family::accompany`](crate::Family::accompany)).
    pub accompanies: bool,
    /// Resources whose writes and deletions are written down ([`Family::records`](crate::Family::records)), and whether refusals are.
    pub recorded: Plurals,
    pub records_refusals: bool,
    /// Resources that are answered without being stored.
    pub virtuals: &'static [VirtualResource],
    /// What the family tells whoever monitors it.
    pub metrics: &'static [&'static Metric],
}

impl Manifest {
    /// A family without anything, to begin with.
    pub const EMPTY: Manifest = Manifest {
        name: "",
        definitions: Vec::new,
        policies: &[],
        made: &[],
        projected: &[],
        told: &[],
        naming: &[],
        selecting: &[],
        keeping: &[],
        making: &[],
        limiting: &[],
        shaped: &[],
        watched: &[],
        meaning: &[],
        checks_everything: false,
        checked: &[],
        accompanies: false,
        recorded: &[],
        records_refusals: false,
        virtuals: &[],
        metrics: &[],
    };

    /// Whether the family is asked about every write of this resource, also where its namespace goes.
    pub fn checks(&self, resource: &GroupResource) -> bool {
        self.checks_everything || holds(self.checked, resource)
    }

    /// Whether the family fills in the status of this resource.
    pub fn projects(&self, resource: &GroupResource) -> bool {
        holds(self.policies, resource) || holds(self.projected, resource)
    }
}

/// Whether a resource is among these.
pub fn holds(plurals: Plurals, resource: &GroupResource) -> bool {
    plurals.iter().any(|one| one.is(resource))
}
