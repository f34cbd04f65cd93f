//! Grants that make themselves: GrantCreationPolicy says which projects and organizations get one when they appear, QuotaPlan what
//! those with that plan have. Each project and organization has a namespace of its own, in which these grants are.
//!
//! A grant that was made is as its policy or plan says in the commit that changes either; whoever edits it sees it mended.

use std::sync::Arc;

use kinds::field_error::{FieldError, Path};
use kinds::fields::{at, given, items, text};
use rules::GroupResource;
use rules::cel::{Budget, within};
use serde_json::{Map, Value, json};

use super::claim_policy::POLICY_LABEL;
use super::entity::{Entities, Entity, Level, plan_of, project_of};
use super::made;
use super::template::{Inputs, Template};
use super::trigger::{Speaks, Trigger};
use super::{GRANT_POLICIES, GRANTS, GROUP, NAMESPACES, ORGANIZATIONS, PLANS, PROJECTS, RESOURCES_GROUP, VERSION};
use crate::{Change, Must, Parsed, Place, Refusal, View, World};

/// Says that a grant was made, and by what.
pub const PLAN_LABEL: &str = "quota.datumapis.com/plan";
const FROM_POLICY: &str = "policy-";
const FROM_PLAN: &str = "plan";
/// What all expressions of one grant may take together, about half a millisecond.
const EXPRESSIONS: Budget = Budget { here: 5_000, elsewhere: 0 };
/// The namespaces of organizations.
const ORGANIZATION_NAMESPACE: &str = "organization-";

pub struct GrantPolicy {
    name: String,
    trigger: Trigger,
    labels: Map<String, Value>,
    annotations: Vec<(String, Template)>,
    limits: Value,
}

impl GrantPolicy {
    /// Reads one; none where it is switched off.
    pub fn read(object: &Value) -> Result<Option<GrantPolicy>, Vec<FieldError>> {
        let mut errors = Vec::new();
        let spec = Path::new("spec");
        let place = spec.child("trigger");
        let trigger = Trigger::read(object, &place, &mut errors);
        let target = &trigger.target;
        if !["Project", "Organization"].contains(&target.kind.as_str()) || target.group != RESOURCES_GROUP {
            let resource = place.child("resource");
            let why = format!("must be Project or Organization of {RESOURCES_GROUP}: these have grants");
            errors.push(FieldError::invalid(resource.child("kind"), target.kind.as_str(), why));
        }
        let base = at(object, &["spec", "target", "resourceGrantTemplate"]);
        let template = spec.child("target");
        let template = template.child("resourceGrantTemplate");
        let given_at = |path: &[&str]| base.and_then(|base| given(base, path));
        super::limits::read(given_at(&["spec"]), &template.child("spec"), &mut errors);
        if given_at(&["spec", "limits"]).and_then(Value::as_array).is_none_or(Vec::is_empty) {
            let place = template.child("spec");
            errors.push(FieldError::required(place.child("limits"), "what is granted"));
        }
        let place = template.child("metadata");
        let labels = made::labels(base, &place, &mut errors);
        let annotations = made::annotations(base, &place, &mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        if object["spec"]["disabled"] == true {
            return Ok(None);
        }
        let limits = given_at(&["spec", "limits"]).cloned().unwrap_or_default();
        let name = text(object, &["metadata", "name"]).to_owned();
        Ok(Some(GrantPolicy { name, trigger, labels, annotations, limits }))
    }
}

/// What is wrong with a plan.
pub fn plan_errors(plan: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    super::limits::read(given(plan, &["spec"]), &Path::new("spec"), &mut errors);
    errors
}

fn policies(world: &dyn World) -> Vec<Arc<GrantPolicy>> {
    let read = |object: &Value| -> Parsed { Arc::new(GrantPolicy::read(object).ok().flatten().map(Arc::new)) };
    let parsed = world.parsed_everywhere(&GRANT_POLICIES.resource(), &read);
    parsed.iter().filter_map(|one| one.downcast_ref::<Option<Arc<GrantPolicy>>>()?.clone()).collect()
}

/// The namespace of an entity, which is made with it.
pub fn home(entity: &Entity) -> String {
    match entity.level {
        Level::Project => entity.name.clone(),
        Level::Organization => format!("{ORGANIZATION_NAMESPACE}{}", entity.name),
    }
}

/// The homes of whose a namespace is: there are the grants that policies and plans make.
pub fn homes_of(namespace: &str, world: &dyn World) -> Vec<Arc<str>> {
    let entities = Entities::of(world);
    let Some(project) = entities.project(namespace) else { return Vec::new() };
    let organization = entities.organization(project).map(Entity::organization);
    let all = [Some(Entity::project(project)), organization].into_iter().flatten();
    all.map(|entity| home(&entity).into()).filter(|home: &Arc<str>| **home != *namespace).collect()
}

/// What a namespace of this name would be the home of: names that begin as those of organizations' homes are for nothing else.
fn meant(namespace: &str) -> Entity {
    match namespace.strip_prefix(ORGANIZATION_NAMESPACE) {
        Some(organization) => Entity::organization(organization),
        None => Entity::project(namespace),
    }
}

fn object_of(entity: &Entity, world: &dyn World) -> Option<Arc<Value>> {
    let resource = if entity.level == Level::Project { PROJECTS } else { ORGANIZATIONS };
    world.get(&resource.resource(), "", &entity.name)
}

/// Whose home a namespace is, where there is such a project or organization. One that is there is an organization's only if that
/// owns it, and a project's only if it is no other project's: what was somebody else's before stays that.
fn at_home(namespace: &str, world: &dyn World) -> Option<(Entity, Arc<Value>)> {
    let entity = meant(namespace);
    let object = object_of(&entity, world)?;
    let stored = world.get(&NAMESPACES.resource(), "", namespace);
    let is_its = stored.is_none_or(|stored| match entity.level {
        Level::Project => project_of(&stored) == entity.name,
        Level::Organization => is_owned(&stored, &object),
    });
    is_its.then_some((entity, object))
}

fn is_owned(namespace: &Value, owner: &Value) -> bool {
    let uid = text(owner, &["metadata", "uid"]);
    items(namespace, &["metadata", "ownerReferences"]).iter().any(|one| text(one, &["uid"]) == uid)
}

/// What is wrong with the name of a project or an organization. A project whose namespace would be an organization's home has none.
pub fn name_errors(entity: &Entity) -> Vec<FieldError> {
    let mut errors = made::home_errors(&entity.name, &home(entity));
    if entity.level == Level::Project && entity.name.starts_with(ORGANIZATION_NAMESPACE) {
        let why = format!("names that begin with {ORGANIZATION_NAMESPACE:?} are those of organizations' namespaces");
        errors.push(FieldError::invalid("metadata.name", entity.name.as_str(), why));
    }
    errors
}

/// A new organization does not take over a namespace that somebody made before.
pub fn check_home(change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
    let Some(new) = change.new.filter(|_| change.old.is_null()) else { return Ok(()) };
    let home = home(&Entity::organization(change.name));
    match view.get(&NAMESPACES.resource(), "", &home).is_some_and(|stored| !is_owned(&stored, new)) {
        true => Err(Refusal::conflict(format!("its home would be namespace {home:?}, which is there and not its own"))),
        false => Ok(()),
    }
}

/// Whose home a namespace would come to be by this write, though it was not made for that.
pub fn enters_home(change: &Change<'_>, world: &dyn World) -> Option<Entity> {
    let entity = meant(change.name);
    let object = object_of(&entity, world).filter(|_| entity.level == Level::Organization)?;
    let comes = change.old.is_null() || !is_owned(change.old, &object);
    change.new.filter(|_| comes).is_some_and(|new| change.old.is_null() || is_owned(new, &object)).then_some(entity)
}

/// Everything made that a written object may change.
pub fn concerned(change: &Change<'_>, view: &dyn View) -> Vec<Place> {
    let grant = |entity: &Entity, name: &str| Place::new(GRANTS.resource(), &home(entity), name);
    if PROJECTS.is(change.resource) || ORGANIZATIONS.is(change.resource) {
        let entity = match PROJECTS.is(change.resource) {
            true => Entity::project(change.name),
            false => Entity::organization(change.name),
        };
        let mut places =
            vec![Place::new(GroupResource::core("namespaces"), "", &home(&entity)), grant(&entity, FROM_PLAN)];
        places.extend(policies(view).iter().map(|policy| grant(&entity, &format!("{FROM_POLICY}{}", policy.name))));
        return places;
    }
    if change.resource.is("", "namespaces") {
        // What is made in a home comes and goes with whose it is.
        let entity = meant(change.name);
        let whose = |namespace: &Value| {
            (project_of(namespace).to_owned(), given(namespace, &["metadata", "ownerReferences"]).cloned())
        };
        let changed = change.new.is_none_or(|new| change.old.is_null() || whose(change.old) != whose(new));
        let Some(object) = object_of(&entity, view).filter(|_| changed) else { return Vec::new() };
        let mut places = vec![grant(&entity, FROM_PLAN)];
        // One that was made for a namesake before goes with that, and whoever has the name now gets his own.
        if change.new.is_none() && !is_owned(change.old, &object) {
            places.push(Place::new(NAMESPACES.resource(), "", change.name));
        }
        places.extend(policies(view).iter().map(|policy| grant(&entity, &format!("{FROM_POLICY}{}", policy.name))));
        return places;
    }
    if GRANTS.is(change.resource) {
        // One that was made is made again by whatever made it.
        let is_made = change.name == FROM_PLAN || change.name.starts_with(FROM_POLICY);
        let gone = is_made && change.new.is_none();
        return gone.then(|| Place::new(GRANTS.resource(), change.namespace, change.name)).into_iter().collect();
    }
    let name = match () {
        () if GRANT_POLICIES.is(change.resource) => format!("{FROM_POLICY}{}", change.name),
        () if PLANS.is(change.resource) => FROM_PLAN.to_owned(),
        () => return Vec::new(),
    };
    let mut places = Vec::new();
    for (resource, of) in [(PROJECTS, Entity::project as fn(&str) -> Entity), (ORGANIZATIONS, Entity::organization)] {
        for object in view.list(&resource.resource(), "") {
            let is_meant = !PLANS.is(change.resource) || plan_of(&object) == change.name;
            let entity = of(text(&object, &["metadata", "name"]));
            places.extend(is_meant.then(|| grant(&entity, &name)));
        }
    }
    places
}

/// The namespace of a project or organization, where it is missing.
pub fn namespace(name: &str, object: &Value, view: &dyn View) -> Must {
    if !object.is_null() {
        return Must::AsItIs;
    }
    let Some((entity, owner)) = at_home(name, view) else { return Must::AsItIs };
    if given(&owner, &["metadata", "deletionTimestamp"]).is_some() {
        return Must::AsItIs;
    }
    Must::Be(json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": name, "labels": {"kubernetes.io/metadata.name": name},
            "ownerReferences": [{
                "apiVersion": format!("{RESOURCES_GROUP}/{VERSION}"), "kind": entity.kind(), "name": entity.name,
                "uid": text(&owner, &["metadata", "uid"]),
            }],
        },
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }))
}

/// What a grant must be: one that a policy or a plan makes is as that says, and goes with it.
pub fn must_be(namespace: &str, name: &str, object: &Value, view: &dyn View) -> Must {
    let is_made = |label: &str| !text(object, &["metadata", "labels", label]).is_empty();
    let wanted = match name.strip_prefix(FROM_POLICY) {
        Some(policy) => from_policy(policy, namespace, view),
        None if name == FROM_PLAN => from_plan(namespace, view),
        None => return Must::AsItIs,
    };
    match wanted {
        None if object.is_null() => Must::AsItIs,
        None if is_made(POLICY_LABEL) || is_made(PLAN_LABEL) => Must::Gone,
        // Somebody's own, under a name that means nothing here.
        None => Must::AsItIs,
        Some((labels, annotations, entity, limits)) => {
            let mut must = match object {
                Value::Null => json!({
                    "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ResourceQuotaGrant",
                    "metadata": {"name": name, "namespace": namespace, "generation": 1},
                }),
                stored => stored.clone(),
            };
            for (field, entries) in [("labels", labels), ("annotations", annotations)] {
                for (key, value) in entries {
                    must["metadata"][field][&key] = value;
                }
            }
            let group = RESOURCES_GROUP;
            must["spec"] = json!({
                "resourceRef": {"apiGroup": group, "kind": entity.kind(), "name": entity.name}, "limits": limits,
            });
            Must::differ(object, must)
        }
    }
}

type Made = (Map<String, Value>, Map<String, Value>, Entity, Value);

/// Whose home a namespace that is there is.
fn in_home(namespace: &str, world: &dyn World) -> Option<(Entity, Arc<Value>)> {
    world.get(&NAMESPACES.resource(), "", namespace)?;
    at_home(namespace, world)
}

fn from_policy(policy: &str, namespace: &str, view: &dyn View) -> Option<Made> {
    let (entity, object) = in_home(namespace, view)?;
    let policy = policies(view).into_iter().find(|one| one.name == policy)?;
    if policy.trigger.target.kind != entity.kind() {
        return None;
    }
    let (user, request) = (json!({}), json!({}));
    let inputs = Inputs { object: &object, user: &user, request: &request };
    let mut labels = policy.labels.clone();
    labels.insert(POLICY_LABEL.into(), json!(policy.name));
    let annotations = || -> Option<Map<String, Value>> {
        if policy.trigger.speaks(&policy.name, &inputs) != Ok(Speaks::Yes) {
            return None;
        }
        let one = |(key, template): &(String, Template)| Some((key.clone(), json!(template.render(&inputs).ok()?)));
        policy.annotations.iter().map(one).collect()
    };
    // What cannot be evaluated grants nothing, and neither does what takes long: many may be made in one step.
    let (annotations, put_off) = within(&mut { EXPRESSIONS }, &mut None, &object, annotations);
    let annotations = annotations.filter(|_| put_off.is_none())?;
    Some((labels, annotations, entity, policy.limits.clone()))
}

fn from_plan(namespace: &str, view: &dyn View) -> Option<Made> {
    let (entity, object) = in_home(namespace, view)?;
    let name = plan_of(&object);
    let plan = view.get(&PLANS.resource(), "", name).filter(|_| !name.is_empty())?;
    let limits = items(&plan, &["spec", "limits"]);
    let mut labels = Map::new();
    labels.insert(PLAN_LABEL.into(), json!(name));
    (!limits.is_empty()).then(|| (labels, Map::new(), entity, Value::Array(limits.to_vec())))
}
