//! What of the families runs as a guest in somebody's cluster, and what it may do there: count, refuse and show. What keeps
//! other objects in step, waits in line or comes with others is not among it; v1 ResourceQuotas stay the API server's own.

use std::sync::Arc;

use families::{
    Balances, Change, Denial, Families, Family, Manifest, Plural, Plurals, PolicyObject, Projected, Refusal, Settings,
    Uncompiled, View, Words, World,
};
use rules::{Compiled, GroupResource};
use serde_json::Value;

const CAPSULE: Plurals =
    &[Plural("capsule.clastix.io", "customquotas"), Plural("capsule.clastix.io", "globalcustomquotas")];
const KUBERNETES: Plurals = &[Plural("quota.openshift.io", "clusterresourcequotas")];

/// The families that can be switched on, with the policies of each that are kept here.
pub const GUESTS: &[(&str, Plurals)] = &[("capsule", CAPSULE), ("kubernetes", KUBERNETES)];

/// The chosen families as guests.
pub fn guests(settings: &Settings, chosen: impl Fn(&str) -> bool) -> Families {
    let all = families::all(settings);
    let as_guest = |family: &Arc<dyn Family>| {
        let name = family.manifest().name;
        let (_, policies) = GUESTS.iter().find(|(known, _)| *known == name && chosen(name))?;
        Some(Arc::new(Guest::new(family.clone(), policies)) as Arc<dyn Family>)
    };
    Families::new(all.iter().filter_map(as_guest).collect())
}

/// What has to be seen for policies to be understood: the policies themselves, and the namespaces.
pub fn understood_by(families: &Families) -> Vec<GroupResource> {
    let mut resources: Vec<GroupResource> = families.resources(|manifest| manifest.policies);
    resources.push(GroupResource::core("namespaces"));
    resources
}

/// What decides what policies mean, where the cluster has it.
pub fn explained_by(families: &Families) -> Vec<GroupResource> {
    families.resources(|manifest| manifest.meaning)
}

/// The kinds of the guests' policies, as CustomResourceDefinitions.
pub fn definitions(families: &Families) -> Vec<Value> {
    let of = |family: &Arc<dyn Family>| {
        let manifest = *family.manifest();
        (manifest.definitions)().into_iter().filter(move |definition| {
            let text = |path: &str| definition.pointer(path).and_then(Value::as_str).unwrap_or_default();
            manifest.policies.iter().any(|one| one.0 == text("/spec/group") && one.1 == text("/spec/names/plural"))
        })
    };
    families.iter().flat_map(of).collect()
}

/// A family that has a say in some of its policies, and in nothing else.
struct Guest {
    family: Arc<dyn Family>,
    manifest: Manifest,
}

impl Guest {
    fn new(family: Arc<dyn Family>, policies: Plurals) -> Guest {
        let of = family.manifest();
        let kept = |plurals: Plurals| if plurals.iter().any(|one| policies.contains(one)) { plurals } else { &[] };
        let manifest = Manifest {
            name: of.name,
            definitions: of.definitions,
            policies,
            told: kept(of.told),
            naming: kept(of.naming),
            selecting: kept(of.selecting),
            meaning: of.meaning,
            ..Manifest::EMPTY
        };
        Guest { family, manifest }
    }
}

impl Family for Guest {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn compile(&self, policy: &PolicyObject<'_>, world: &dyn World) -> Result<Compiled, Uncompiled> {
        self.family.compile(policy, world)
    }

    fn measuring(&self) -> String {
        self.family.measuring()
    }

    fn check(&self, change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
        self.family.check(change, view)
    }

    fn project(&self, resource: &GroupResource, object: &mut Value, balances: &dyn Balances) -> Projected {
        self.family.project(resource, object, balances)
    }

    fn words(&self, denial: &Denial) -> Words {
        self.family.words(denial)
    }
}
