//! What of the families runs as a guest in somebody's cluster, and what it may do there. v1 ResourceQuotas stay the API server's own:
//! pools keep some, and read in their status what is used.

use std::sync::Arc;

use families::capsule;
use families::metrics::{Samples, Survey};
use families::{
    Admission, Affected, Balances, Cause, Change, Denial, Families, Family, Manifest, Must, Operation, Plural, Plurals,
    PolicyObject, Projected, Refusal, Settings, Uncompiled, View, Words, World, holds,
};
use kinds::field_error::join;
use rules::{Compiled, GroupResource};
use serde_json::Value;

use crate::kept_back::Amounts;

const CAPSULE: Plurals = &[CUSTOM, GLOBAL, POOLS];
/// While Capsule's own controller keeps pools, nobody else does.
const BESIDE_CAPSULE: Plurals = &[CUSTOM, GLOBAL];
const CUSTOM: Plural = Plural(capsule::GROUP, capsule::CUSTOM_QUOTAS);
const GLOBAL: Plural = Plural(capsule::GROUP, capsule::GLOBAL_CUSTOM_QUOTAS);
const POOLS: Plural = Plural(capsule::GROUP, capsule::RESOURCE_POOLS);
const CLAIMS: Plural = Plural(capsule::GROUP, capsule::RESOURCE_POOL_CLAIMS);
const KUBERNETES: Plurals = &[Plural("quota.openshift.io", "clusterresourcequotas")];
const QUOTAS: Plural = Plural("", "resourcequotas");

/// The families that can be switched on, with the policies of each that are kept here.
pub const GUESTS: &[(&str, Plurals)] = &[("capsule", CAPSULE), ("kubernetes", KUBERNETES)];

/// Objects by which the cluster's API server gives what a policy has: what it may still give is kept back.
pub struct Keeping {
    pub policies: Plural,
    pub kept: Plural,
    /// Whose sights may give something up, besides those of the policies and of namespaces.
    pub from: Plural,
    pub policy_of: fn(&str) -> Option<&str>,
    pub name_for: fn(&str) -> String,
    /// What an object allows, or shows to be used.
    pub allowed: fn(&Value) -> Amounts,
    /// What of that a policy gives to everybody.
    pub free: fn(&Value) -> Amounts,
}

pub const KEEPING: &[Keeping] = &[Keeping {
    policies: POOLS,
    kept: QUOTAS,
    from: CLAIMS,
    policy_of: capsule::pool_of,
    name_for: capsule::quota_name,
    allowed: capsule::allowed,
    free: capsule::defaults,
}];

/// By whom objects of a resource are kept.
pub fn keeping(resource: &GroupResource) -> Option<&'static Keeping> {
    KEEPING.iter().find(|keeping| keeping.kept.is(resource))
}

/// The chosen families as guests.
pub fn guests(settings: &Settings, chosen: impl Fn(&str) -> bool) -> Families {
    guests_with(settings, chosen, |policies| policies)
}

/// The same while Capsule's own controller is at work: its pools stay its own.
pub fn guests_beside_capsule(settings: &Settings, chosen: impl Fn(&str) -> bool) -> Families {
    guests_with(settings, chosen, |policies| if policies == CAPSULE { BESIDE_CAPSULE } else { policies })
}

fn guests_with(settings: &Settings, chosen: impl Fn(&str) -> bool, kept: impl Fn(Plurals) -> Plurals) -> Families {
    let all = families::all(settings);
    let as_guest = |family: &Arc<dyn Family>| {
        let name = family.manifest().name;
        let (_, policies) = GUESTS.iter().find(|(known, _)| *known == name && chosen(name))?;
        let policies = kept(policies);
        Some(Arc::new(Guest::new(family.clone(), policies)) as Arc<dyn Family>)
    };
    Families::new(all.iter().filter_map(as_guest).collect())
}

/// What has to be seen for policies to be understood: the policies themselves, what they keep and what tells of them, and the
/// namespaces.
pub fn understood_by(families: &Families) -> Vec<GroupResource> {
    let mut resources = own(families);
    resources.push(GroupResource::core("namespaces"));
    resources.extend(families.resources::<Vec<_>>(|manifest| manifest.shaped));
    resources.sort();
    resources.dedup();
    resources
}

/// The guests' own kinds.
pub fn own(families: &Families) -> Vec<GroupResource> {
    let mut resources: Vec<GroupResource> = families.resources(|manifest| manifest.policies);
    resources.extend(families.resources::<Vec<_>>(|manifest| manifest.projected));
    resources
}

/// Those of which it writes more than a status.
pub fn filled_in(families: &Families) -> Vec<GroupResource> {
    let mut own = own(families);
    own.retain(|one| {
        let is_filled_in = |manifest: &Manifest| holds(manifest.shaped, one) || holds(manifest.projected, one);
        families.iter().any(|family| is_filled_in(family.manifest()))
    });
    own
}

/// What policies keep that is nobody's kind here.
pub fn kept_by(families: &Families) -> Vec<GroupResource> {
    let own = own(families);
    let keeping = KEEPING.iter().filter(|keeping| own.contains(&keeping.policies.resource()));
    keeping.map(|keeping| keeping.kept.resource()).collect()
}

/// The names of the definitions of all guests' kinds.
pub fn own_definitions() -> Vec<String> {
    let own =
        GUESTS.iter().flat_map(|(_, policies)| policies.iter()).chain(KEEPING.iter().map(|keeping| &keeping.from));
    own.map(|one| format!("{}.{}", one.1, one.0)).collect()
}

/// Of which own kinds deletions are asked about: their families may say no to them.
pub fn guards_deletion(families: &Families, resource: &GroupResource) -> bool {
    families.iter().any(|family| holds(family.manifest().projected, resource))
}

/// What decides what policies mean, and how large they are, where the cluster has it.
pub fn explained_by(families: &Families) -> Vec<GroupResource> {
    let mut resources: Vec<GroupResource> = families.resources(|manifest| manifest.meaning);
    resources.extend(families.resources::<Vec<_>>(|manifest| manifest.watched));
    let understood = understood_by(families);
    resources.retain(|resource| !understood.contains(resource));
    resources
}

/// The kinds of the guests, as CustomResourceDefinitions.
pub fn definitions(families: &Families) -> Vec<Value> {
    let of = |family: &Arc<dyn Family>| {
        let manifest = *family.manifest();
        (manifest.definitions)().into_iter().filter(move |definition| {
            let text = |path: &str| definition.pointer(path).and_then(Value::as_str).unwrap_or_default();
            let own = manifest.policies.iter().chain(manifest.projected);
            own.into_iter().any(|one| one.0 == text("/spec/group") && one.1 == text("/spec/names/plural"))
        })
    };
    families.iter().flat_map(of).collect()
}

/// A family that has a say in some of its policies, and in what belongs to them.
struct Guest {
    family: Arc<dyn Family>,
    manifest: Manifest,
}

impl Guest {
    fn new(family: Arc<dyn Family>, policies: Plurals) -> Guest {
        let of = family.manifest();
        let kept = |plurals: Plurals| if plurals.iter().any(|one| policies.contains(one)) { plurals } else { &[] };
        // What belongs to policies of which none is kept is nobody's here.
        let keeps = !kept(of.keeping).is_empty();
        let of_kept = |plurals: Plurals| if keeps { plurals } else { &[] };
        let manifest = Manifest {
            name: of.name,
            definitions: of.definitions,
            policies,
            projected: of_kept(of.projected),
            told: kept(of.told),
            naming: kept(of.naming),
            selecting: kept(of.selecting),
            keeping: kept(of.keeping),
            shaped: of_kept(of.shaped),
            watched: of_kept(of.watched),
            meaning: of.meaning,
            metrics: of.metrics,
            ..Manifest::EMPTY
        };
        Guest { family, manifest }
    }

    /// What is wrong with one of its own objects beyond what the API server finds, and what cannot be done here.
    fn validate_own(&self, change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
        let Some(new) = change.new else { return Ok(()) };
        let own = holds(self.manifest.policies, change.resource) || holds(self.manifest.projected, change.resource);
        let is_respecified = new.get("spec") != change.old.get("spec");
        if !own || !is_respecified {
            return Ok(());
        }
        let old = Some(change.old).filter(|old| !old.is_null());
        let request = Admission {
            operation: if old.is_some() { Operation::Update } else { Operation::Create },
            resource: change.resource,
            subresource: "",
            namespace: change.namespace,
            name: change.name,
            object: &mut new.clone(),
            old,
            origin: change.origin,
        };
        let errors = self.family.validate(&request, view).errors;
        if !errors.is_empty() {
            return Err(Refusal::forbidden(join(&errors)));
        }
        if POOLS.is(change.resource) { capsule::check_as_guest(new, old).map_err(Refusal::forbidden) } else { Ok(()) }
    }
}

impl Family for Guest {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn compile(&self, policy: &PolicyObject<'_>, world: &dyn World) -> Result<Compiled, Uncompiled> {
        self.family.compile(policy, world)
    }

    fn may_mean_otherwise(&self, change: &Change<'_>, policy: &str) -> bool {
        self.family.may_mean_otherwise(change, policy)
    }

    fn measuring(&self) -> String {
        self.family.measuring()
    }

    fn affected(&self, cause: &Cause<'_>, view: &dyn View) -> Vec<Affected> {
        let mut affected = self.family.affected(cause, view);
        // A status that is somebody else's to write is shown with its object.
        if let Cause::Written(Change { resource, old, new: Some(new), .. }) = cause
            && QUOTAS.is(resource)
            && old.get("status") != new.get("status")
        {
            affected.extend(self.family.affected(&Cause::Shown { resource, object: new }, view));
        }
        affected
    }

    fn must_be(&self, object: &PolicyObject<'_>, view: &dyn View) -> Result<Must, Refusal> {
        let must = self.family.must_be(object, view)?;
        if !POOLS.is(object.resource) || must == Must::Gone {
            return Ok(must);
        }
        // Nothing here keeps an object of a cluster from going: what belongs to a pool goes with it.
        let mut kept = match must {
            Must::Be(kept) => kept,
            _ => object.object.clone(),
        };
        capsule::let_go(&mut kept);
        Ok(Must::differ(object.object, kept))
    }

    fn check(&self, change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
        self.validate_own(change, view)?;
        self.family.check(change, view)
    }

    fn project(&self, resource: &GroupResource, object: &mut Value, balances: &dyn Balances) -> Projected {
        self.family.project(resource, object, balances)
    }

    fn words(&self, denial: &Denial) -> Words {
        self.family.words(denial)
    }

    fn sample(&self, survey: &dyn Survey, out: &mut Samples) {
        self.family.sample(survey, out);
    }
}
