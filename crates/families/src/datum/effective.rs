//! EffectiveQuotaGrant: what all grants of one project or organization come to. It is the policy that claims are held against;
//! nobody writes it but the step that writes a grant, a namespace or a project.
//!
//! A project's and its organization's are two objects, and a claim may be charged by both. So that no claim slips through between the
//! writes of the two, each believes of the other only what is stored: what has left one and is not in the other yet is
//! *unsettled*, and whoever wants it waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kinds::field_error::Path;
use kinds::fields::{given, items, text};
use rules::policy_name;
use serde_json::{Map, Value, json};

use super::catalog::Catalog;
use super::entity::{Entities, Entity, Level, project_of};
use super::limits::{self, Limits};
use super::{CLAIMS, EFFECTIVE, GRANTS, GROUP, VERSION};
use crate::{Change, Must, Parsed, Place, Refusal, Sources, View, World};

/// A grant, read.
#[derive(Clone, Debug)]
pub struct Grant {
    pub namespace: String,
    pub name: String,
    created: String,
    pub entity: Option<Entity>,
    pub limits: Vec<Limits>,
}

impl Grant {
    pub fn read(object: &Value) -> Grant {
        let spec = given(object, &["spec"]);
        Grant {
            namespace: text(object, &["metadata", "namespace"]).into(),
            name: text(object, &["metadata", "name"]).into(),
            created: text(object, &["metadata", "creationTimestamp"]).into(),
            entity: given(object, &["spec", "resourceRef"]).and_then(Entity::referred),
            limits: limits::read(spec, &Path::new("spec"), &mut Vec::new()),
        }
    }
}

/// All grants, by whom they are for; the oldest first.
pub fn grants_of(entity: &Entity, world: &dyn World) -> Vec<Arc<Grant>> {
    type ByEntity = BTreeMap<Entity, Vec<Arc<Grant>>>;
    let resource = GRANTS.resource();
    let resources = [resource.clone()];
    let made = world.derived("datum grants", Sources { resources: &resources, ledger: false }, &|| {
        let mut all = ByEntity::new();
        let read = |object: &Value| -> Parsed { Arc::new(Arc::new(Grant::read(object))) };
        for one in world.parsed_everywhere(&resource, &read) {
            if let Some(grant) = one.downcast_ref::<Arc<Grant>>()
                && let Some(entity) = &grant.entity
            {
                all.entry(entity.clone()).or_default().push(grant.clone());
            }
        }
        for grants in all.values_mut() {
            grants.sort_by(|a, b| (&a.created, &a.namespace, &a.name).cmp(&(&b.created, &b.namespace, &b.name)));
        }
        Arc::new(all) as Parsed
    });
    let found = made.downcast_ref::<ByEntity>().and_then(|all| all.get(entity));
    found.cloned().unwrap_or_default()
}

pub fn place(entity: &Entity) -> Place {
    Place::new(EFFECTIVE.resource(), "", &entity.object_name())
}

/// What is stored for an entity.
pub fn stored(entity: &Entity, world: &dyn World) -> Option<Arc<Value>> {
    world.get(&EFFECTIVE.resource(), "", &entity.object_name())
}

/// Whether claims in a namespace are counted as a project's.
pub fn counts(project: &Entity, namespace: &str, world: &dyn World) -> bool {
    stored(project, world).is_some_and(|stored| names(&stored, &["spec", "namespaces"]).contains(namespace))
}

/// The entities of which a written object may change what their grants come to.
pub fn concerned(change: &Change<'_>, view: &dyn View) -> Vec<Place> {
    let entities = Entities::of(view);
    let both = || [Some(change.old), change.new].into_iter().flatten().filter(|object| !object.is_null());
    let mut found: BTreeSet<Entity> = BTreeSet::new();
    let with_organization = |project: &str, found: &mut BTreeSet<Entity>| {
        found.insert(Entity::project(project));
        found.extend(entities.organization(project).map(Entity::organization));
    };
    if change.resource.is("", "namespaces") {
        both().for_each(|namespace| with_organization(project_of(namespace), &mut found));
        // Nothing is counted yet, unless it was before.
        if Catalog::of(view).is_empty() && !found.iter().any(|entity| stored(entity, view).is_some()) {
            found.clear();
        }
    } else if GRANTS.is(change.resource) {
        for entity in both().filter_map(|grant| Entity::referred(given(grant, &["spec", "resourceRef"])?)) {
            match entity.level {
                Level::Project => with_organization(&entity.name, &mut found),
                Level::Organization => {
                    found.extend(entities.members(&entity.name).map(|project| Entity::project(project)));
                    found.insert(entity);
                }
            }
        }
    } else if super::PROJECTS.is(change.resource) {
        for project in both() {
            found.insert(Entity::project(change.name));
            let organization = super::entity::organization_of(project);
            found.extend((!organization.is_empty()).then(|| Entity::organization(organization)));
        }
    } else if super::DEFINITIONS.is(change.resource) {
        // The first definition makes them; what the others change is looked up.
        let missing = |entity: &Entity| stored(entity, view).is_none();
        found.extend(entities.projects().map(|project| Entity::project(project)).filter(missing));
        found.extend(entities.organizations().map(|name| Entity::organization(name)).filter(missing));
        // What was measured of it may not be measured any more.
        let names: Vec<&str> = both().map(|one| text(one, &["spec", "resourceName"])).collect();
        let is_of_it = |sample: &Value| names.iter().any(|name| text(sample, &["account"]).starts_with(name));
        let is_metered = both().any(|one| given(one, &["spec", "usageSource"]).is_some());
        for kept in if is_metered { view.list(&EFFECTIVE.resource(), "") } else { Vec::new() } {
            if items(&kept, &["spec", "usage"]).iter().any(is_of_it) {
                found.extend(Entity::of_object_name(text(&kept, &["metadata", "name"])));
            }
        }
    } else if EFFECTIVE.is(change.resource) {
        found.extend(Entity::of_object_name(change.name));
        follow_each_other(change, view, &mut found);
    }
    found.iter().map(place).collect()
}

/// Of a project that changed its organization is told, and the other way round; of namespaces that came, whoever had them.
fn follow_each_other(change: &Change<'_>, view: &dyn View, found: &mut BTreeSet<Entity>) {
    let both = [Some(change.old), change.new].into_iter().flatten();
    for object in both {
        let organization = text(object, &["spec", "organization"]);
        found.extend((!organization.is_empty()).then(|| Entity::organization(organization)));
    }
    // Of what an organization says a project believes what is said of it, and which resources are limited.
    fn projects(object: &Value) -> BTreeMap<&str, &Value> {
        items(object, &["spec", "projects"]).iter().map(|one| (text(one, &["name"]), one)).collect()
    }
    let (before, after) = (projects(change.old), change.new.map(projects).unwrap_or_default());
    let is_same = change.new.is_some_and(|new| listed(change.old) == listed(new));
    let concerned = before.keys().chain(after.keys()).filter(|name| !is_same || before.get(*name) != after.get(*name));
    found.extend(concerned.map(|name| Entity::project(name)));
    let namespaces = |object: &Value| -> BTreeSet<String> {
        let listed = items(object, &["spec", "namespaces"]).iter();
        listed.filter_map(|one| one.as_str().map(str::to_owned)).collect()
    };
    let (old, new) = (namespaces(change.old), change.new.map(namespaces).unwrap_or_default());
    let came: Vec<&String> = new.difference(&old).collect();
    if came.is_empty() {
        return;
    }
    for policy in came.iter().flat_map(|namespace| view.looking_at(&CLAIMS.resource(), namespace)) {
        found.extend(entity_of(&policy));
    }
}

/// What the object of an entity must be.
pub fn must_be(name: &str, object: &Value, view: &dyn View) -> Must {
    let Some(entity) = Entity::of_object_name(name) else {
        return if object.is_null() { Must::AsItIs } else { Must::Gone };
    };
    let entities = Entities::of(view);
    let spec = match entity.level {
        Level::Project => project_spec(&entity, object, &entities, view),
        Level::Organization => organization_spec(&entity, object, &entities, view),
    };
    let Some(mut spec) = spec else {
        return if object.is_null() { Must::AsItIs } else { Must::Gone };
    };
    // With nothing defined there is nothing to count, unless somebody was charged before.
    if object.is_null() && Catalog::of(view).is_empty() && !are_counted(&spec, view) {
        return Must::AsItIs;
    }
    spec.insert("entity".into(), json!({"kind": entity.kind(), "name": entity.name}));
    let samples = super::metered::kept_samples(object, &spec, &entity, view);
    spec.insert("usage".into(), samples);
    let mut must = match object {
        Value::Null => json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "EffectiveQuotaGrant",
            "metadata": {"name": name, "generation": 1},
        }),
        stored => stored.clone(),
    };
    must["spec"] = Value::Object(spec);
    Must::differ(object, must)
}

/// What grants come to is not anybody's to delete: whoever was granted something would have to ask for it again.
pub fn check(change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
    match change.new.is_none() && must_be(change.name, change.old, view) != Must::Gone {
        true => Err(Refusal::forbidden(
            "it is what grants come to, and goes when nothing of its project or organization is left",
        )),
        false => Ok(()),
    }
}

/// Whether somebody counts what is in these namespaces.
fn are_counted(spec: &Map<String, Value>, view: &dyn View) -> bool {
    let wanted = spec.get("namespaces").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let mut looking = wanted.flat_map(|namespace| view.looking_at(&CLAIMS.resource(), namespace));
    looking.any(|policy| entity_of(&policy).is_some())
}

/// Whose grants a policy is made of, where it is made of any.
fn entity_of(policy: &str) -> Option<Entity> {
    policy.strip_prefix(&*policy_name(&EFFECTIVE.resource(), "", "")).and_then(Entity::of_object_name)
}

fn references(grants: &[Arc<Grant>]) -> Value {
    grants.iter().map(|grant| json!({"namespace": grant.namespace, "name": grant.name})).collect()
}

fn names(object: &Value, path: &[&str]) -> BTreeSet<String> {
    items(object, path).iter().filter_map(|one| one.as_str().map(str::to_owned)).collect()
}

fn listed(object: &Value) -> BTreeSet<String> {
    items(object, &["spec", "limits"]).iter().map(|one| text(one, &["name"]).to_owned()).collect()
}

fn project_spec(entity: &Entity, object: &Value, entities: &Entities, view: &dyn View) -> Option<Map<String, Value>> {
    let mut namespaces: BTreeSet<String> =
        entities.namespaces(&entity.name).iter().map(|one| one.to_string()).collect();
    // One that went to another project is counted here until it is counted there.
    for left in names(object, &["spec", "namespaces"]).difference(&namespaces.clone()) {
        let now = entities.project(left).map(Entity::project);
        let there = now.as_ref().and_then(|now| stored(now, view));
        let is_there = there.is_some_and(|there| names(&there, &["spec", "namespaces"]).contains(left));
        if now.is_some() && !is_there {
            namespaces.insert(left.clone());
        }
    }
    if namespaces.is_empty() {
        return None;
    }
    let grants = grants_of(entity, view);
    let own = limits::merged(grants.iter().flat_map(|grant| grant.limits.iter().cloned()));
    let mut spec = Map::new();
    let organization = entities.organization(&entity.name).map(Entity::organization);
    if let Some(organization) = &organization {
        let theirs = grants_of(organization, view);
        let wanted: BTreeSet<String> =
            theirs.iter().flat_map(|grant| grant.limits.iter().map(|one| one.name.clone())).collect();
        let there = stored(organization, view);
        let (settled, excluded) =
            there.as_deref().map_or_else(Default::default, |there| settled(there, &entity.name, &namespaces));
        let mine: BTreeSet<&str> = own.iter().map(|one| one.name.as_str()).collect();
        let is_settled =
            |name: &&String| settled.contains(*name) && (mine.contains(name.as_str()) || !excluded.contains(*name));
        let (covered, unsettled): (Vec<&String>, Vec<&String>) = wanted.iter().partition(is_settled);
        let unsettled: Vec<&&String> = unsettled.iter().filter(|name| !mine.contains(name.as_str())).collect();
        spec.insert("organization".into(), json!(organization.name));
        spec.insert("organizationLimits".into(), json!(covered));
        spec.insert("organizationGrants".into(), references(&theirs));
        if !unsettled.is_empty() {
            spec.insert("unsettled".into(), json!(unsettled));
        }
    }
    spec.insert("namespaces".into(), json!(namespaces));
    spec.insert("grants".into(), references(&grants));
    spec.insert("limits".into(), limits::written(&own));
    Some(spec)
}

/// What an organization's object charges a project's namespaces, and what of it it leaves to the project.
fn settled(organization: &Value, project: &str, namespaces: &BTreeSet<String>) -> (BTreeSet<String>, BTreeSet<String>) {
    let entry = items(organization, &["spec", "projects"]).iter().find(|one| text(one, &["name"]) == project);
    match entry.filter(|entry| names(entry, &["namespaces"]) == *namespaces) {
        Some(entry) => (listed(organization), names(entry, &["lists"])),
        None => Default::default(),
    }
}

fn organization_spec(
    entity: &Entity,
    object: &Value,
    entities: &Entities,
    view: &dyn View,
) -> Option<Map<String, Value>> {
    // One that left is counted here until it counts itself elsewhere.
    let before = items(object, &["spec", "projects"]).iter().map(|one| text(one, &["name"]).to_owned());
    let mut members: BTreeMap<String, Arc<Value>> = BTreeMap::new();
    let current: BTreeSet<String> = entities.members(&entity.name).cloned().collect();
    for project in before.chain(current.iter().cloned()) {
        if let Some(there) = stored(&Entity::project(&project), view)
            && (current.contains(&project) || text(&there, &["spec", "organization"]) == entity.name)
        {
            members.insert(project, there);
        }
    }
    let grants = grants_of(entity, view);
    if members.is_empty() || (grants.is_empty() && object.is_null()) {
        return None;
    }
    let mut limits = limits::merged(grants.iter().flat_map(|grant| grant.limits.iter().cloned()));
    // What is no longer granted is counted until every project knows.
    let believed: BTreeSet<String> =
        members.values().flat_map(|there| names(there, &["spec", "organizationLimits"])).collect();
    let kept = limits::read(given(object, &["spec"]), &Path::new("spec"), &mut Vec::new());
    for one in kept.into_iter().filter(|one| believed.contains(&one.name)) {
        if !limits.iter().any(|known| known.name == one.name) {
            limits.push(one);
        }
    }
    limits.sort_by(|a, b| a.name.cmp(&b.name));
    let known = items(object, &["spec", "projects"]);
    let project = |(name, there): (&String, &Arc<Value>)| {
        let mut project =
            json!({"name": name, "namespaces": names(there, &["spec", "namespaces"]), "lists": listed(there)});
        // Of one that was there before this was kept it is not known.
        let since = match known.iter().find(|one| text(one, &["name"]) == name) {
            Some(before) => before.get("since").cloned(),
            None => Some(json!(view.now_ms())),
        };
        project
            .as_object_mut()
            .into_iter()
            .for_each(|project| project.extend(since.clone().map(|at| ("since".into(), at))));
        project
    };
    let mut spec = Map::new();
    spec.insert("projects".into(), members.iter().map(project).collect());
    spec.insert("grants".into(), references(&grants));
    spec.insert("limits".into(), limits::written(&limits));
    Some(spec)
}
