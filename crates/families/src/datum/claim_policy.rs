//! ClaimCreationPolicy: which objects come with a claim. The claim is written with the object, decided with it, changes with it and goes
//! with it; an object whose claim would not be granted is refused, and leaves nothing behind.

use std::sync::Arc;

use kinds::field_error::{FieldError, Path};
use kinds::fields::{at, given, items, text};
use ledger::SubjectId;
use rules::GroupResource;
use rules::cel::Program;
use serde_json::{Map, Value, json};

use super::template::{Inputs, Template, VARIABLES};
use super::{CLAIM_POLICIES, CLAIMS, GROUP, VERSION};
use crate::capsule::Target;
use crate::{
    COMPANIONS_MAX, Change, Companion, Must, Origin, Parsed, Refusal, Sources, View, World, Writing, companion_uid,
};

/// Conditions of one policy.
const CONSTRAINTS_MAX: usize = 10;
const EXPRESSION_BYTES_MAX: usize = 1024;
/// Resources of one template.
const RESOURCES_MAX: usize = 20;
/// Says which policy made a claim.
pub const POLICY_LABEL: &str = "quota.datumapis.com/policy";

/// When a policy speaks.
#[derive(Clone, Debug)]
pub struct Trigger {
    pub target: Target,
    constraints: Vec<(Program, String)>,
}

impl Trigger {
    pub fn read(policy: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Trigger {
        let resource = given(policy, &["spec", "trigger", "resource"]).cloned().unwrap_or_default();
        let target = Target::read(&resource);
        if target.kind.is_empty() {
            let place = path.child("resource");
            errors.push(FieldError::required(place.child("kind"), "the kind of the objects that are meant"));
        }
        let (listed, place) = (items(policy, &["spec", "trigger", "constraints"]), path.child("constraints"));
        if listed.len() > CONSTRAINTS_MAX {
            errors.push(FieldError::too_many(place, listed.len(), CONSTRAINTS_MAX));
        }
        let mut constraints = Vec::new();
        for (index, one) in listed.iter().take(CONSTRAINTS_MAX).enumerate() {
            let source = text(one, &["expression"]);
            let place = place.index(index);
            if source.len() > EXPRESSION_BYTES_MAX {
                errors.push(FieldError::too_long(place.child("expression"), EXPRESSION_BYTES_MAX));
                continue;
            }
            match Program::compile(source, VARIABLES) {
                Ok(program) => constraints.push((program, text(one, &["message"]).to_owned())),
                Err(why) => errors.push(FieldError::invalid(place.child("expression"), source, why.to_string())),
            }
        }
        Trigger { target, constraints }
    }

    /// Whether all conditions hold. One that cannot be evaluated refuses the write: no answer is no leave.
    pub fn holds(&self, policy: &str, inputs: &Inputs<'_>) -> Result<bool, Refusal> {
        for (program, message) in &self.constraints {
            match program.eval_bool(&inputs.all()) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(why) => {
                    let said = if message.is_empty() { program.source() } else { message };
                    return Err(Refusal::forbidden(format!("policy \"{policy}\" cannot be evaluated ({said}): {why}")));
                }
            }
        }
        Ok(true)
    }
}

/// Name, quantity and dimensions of one resource.
type Claimed = (Template, Template, Vec<(String, Template)>);

/// A policy, read.
pub struct ClaimPolicy {
    pub name: String,
    pub trigger: Trigger,
    claim_name: Template,
    labels: Map<String, Value>,
    annotations: Vec<(String, Template)>,
    resources: Vec<Claimed>,
    dimensions: Vec<(String, Template)>,
    grant: Option<Value>,
}

impl ClaimPolicy {
    /// Reads one; none where it is switched off.
    pub fn read(object: &Value) -> Result<Option<ClaimPolicy>, Vec<FieldError>> {
        let mut errors = Vec::new();
        let spec = Path::new("spec");
        let trigger = Trigger::read(object, &spec.child("trigger"), &mut errors);
        if trigger.target.group == GROUP {
            let place = spec.child("trigger");
            errors.push(FieldError::forbidden(
                place.child("resource"),
                "a claim for quota's own objects would claim itself",
            ));
        }
        let target = spec.child("target");
        let template = target.child("resourceClaimTemplate");
        let metadata = template.child("metadata");
        let at_template = |path: &[&str]| {
            let base = at(object, &["spec", "target", "resourceClaimTemplate"])?;
            given(base, path)
        };
        let name =
            at_template(&["metadata", "name"]).and_then(Value::as_str).unwrap_or("{{ object.metadata.name }}-claim");
        let claim_name = templated(name, &metadata.child("name"), &mut errors);
        let labels = at_template(&["metadata", "labels"]).and_then(Value::as_object).cloned().unwrap_or_default();
        let annotations =
            templates(at_template(&["metadata", "annotations"]), &metadata.child("annotations"), &mut errors);
        let claim = template.child("spec");
        let dimensions = templates(at_template(&["spec", "dimensions"]), &claim.child("dimensions"), &mut errors);
        let listed = at_template(&["spec", "resources"]).and_then(Value::as_array).cloned().unwrap_or_default();
        let place = claim.child("resources");
        if listed.is_empty() {
            errors.push(FieldError::required(place, "at least one resource"));
        }
        if listed.len() > RESOURCES_MAX {
            errors.push(FieldError::too_many(place, listed.len(), RESOURCES_MAX));
        }
        let mut resources = Vec::new();
        for (index, one) in listed.iter().take(RESOURCES_MAX).enumerate() {
            let place = place.index(index);
            let name = templated(text(one, &["name"]), &place.child("name"), &mut errors);
            let quantity = given(one, &["quantity"]).map(super::catalog::as_text).unwrap_or_default();
            if quantity.is_empty() {
                errors.push(FieldError::required(place.child("quantity"), "how much of it"));
            }
            let quantity = templated(&quantity, &place.child("quantity"), &mut errors);
            let dimensions = templates(at(one, &["dimensions"]), &place.child("dimensions"), &mut errors);
            resources.push((name, quantity, dimensions));
        }
        let grant = at_template(&["spec", "grantRef"]).cloned();
        if !errors.is_empty() {
            return Err(errors);
        }
        if object["spec"]["disabled"] == true {
            return Ok(None);
        }
        let name = text(object, &["metadata", "name"]).to_owned();
        Ok(Some(ClaimPolicy { name, trigger, claim_name, labels, annotations, resources, dimensions, grant }))
    }

    /// The claim of an object, but for its number.
    fn claim(&self, writing: &Writing<'_>, inputs: &Inputs<'_>) -> Result<(String, Value), Refusal> {
        let failed = |why: String| Refusal::forbidden(format!("policy \"{}\" cannot make a claim: {why}", self.name));
        let map = |templates: &[(String, Template)]| -> Result<Map<String, Value>, Refusal> {
            let one = |(key, template): &(String, Template)| {
                Ok((key.clone(), Value::String(template.render(inputs).map_err(failed)?)))
            };
            templates.iter().map(one).collect()
        };
        let name = self.claim_name.render(inputs).map_err(failed)?;
        if !rules::selector::dns_subdomain_problems(&name).is_empty() {
            return Err(failed(format!("{name:?} is no name for a claim")));
        }
        let mut resources = Vec::with_capacity(self.resources.len());
        for (resource, quantity, dimensions) in &self.resources {
            let (resource, quantity) =
                (resource.render(inputs).map_err(failed)?, quantity.render(inputs).map_err(failed)?);
            let mut one = json!({"name": resource, "quantity": quantity});
            if !dimensions.is_empty() {
                one["dimensions"] = Value::Object(map(dimensions)?);
            }
            resources.push(one);
        }
        let mut labels = self.labels.clone();
        labels.insert(POLICY_LABEL.into(), json!(self.name));
        let mut spec = json!({
            "resourceRef": {
                "apiGroup": &*writing.resource.group, "kind": self.trigger.target.kind, "name": writing.name,
                "uid": text(writing.object, &["metadata", "uid"]),
            },
            "resources": resources,
        });
        if !self.dimensions.is_empty() {
            spec["dimensions"] = Value::Object(map(&self.dimensions)?);
        }
        if let Some(grant) = &self.grant {
            spec["grantRef"] = grant.clone();
        }
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ResourceQuotaClaim",
            "metadata": {
                "name": name, "namespace": writing.namespace, "generation": 1, "labels": labels,
                "annotations": map(&self.annotations)?,
            },
            "spec": spec,
        });
        let errors = super::claim::validate(&object);
        if !errors.is_empty() {
            return Err(failed(kinds::field_error::join(&errors)));
        }
        Ok((name, object))
    }
}

fn templated(text: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Template {
    Template::read(text).unwrap_or_else(|why| {
        errors.push(FieldError::invalid(path, text, why));
        Template::read("").expect("nothing is wrong with nothing")
    })
}

fn templates(map: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Vec<(String, Template)> {
    let entries = map.and_then(Value::as_object).into_iter().flatten();
    let entries = entries.map(|(key, value)| {
        let source = value.as_str().unwrap_or_default();
        (key.clone(), templated(source, &path.key(key), errors))
    });
    entries.collect()
}

/// The policies that look at a resource.
fn policies_of(resource: &GroupResource, world: &dyn World) -> Vec<Arc<ClaimPolicy>> {
    type ByResource = std::collections::HashMap<GroupResource, Vec<Arc<ClaimPolicy>>>;
    let (policies, kinds) =
        (CLAIM_POLICIES.resource(), GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions"));
    let resources = [policies.clone(), kinds];
    let made = world.derived("datum claim policies", Sources { resources: &resources, ledger: false }, &|| {
        let mut all = ByResource::new();
        let read = |object: &Value| -> Parsed { Arc::new(ClaimPolicy::read(object).ok().flatten().map(Arc::new)) };
        for one in world.parsed_everywhere(&policies, &read) {
            if let Some(Some(policy)) = one.downcast_ref::<Option<Arc<ClaimPolicy>>>() {
                let resource = policy.trigger.target.resolve(world).resource;
                all.entry(resource).or_default().push(policy.clone());
            }
        }
        all.values_mut().for_each(|policies| policies.sort_by(|a, b| a.name.cmp(&b.name)));
        Arc::new(all) as Parsed
    });
    let found = made.downcast_ref::<ByResource>().and_then(|all| all.get(resource));
    found.cloned().unwrap_or_default()
}

/// Whether some policy looks at a resource.
pub fn looks_at(resource: &GroupResource, world: &dyn World) -> bool {
    !policies_of(resource, world).is_empty()
}

/// Who writes, and what, as expressions see it.
fn told(writing: &Writing<'_>) -> (Value, Value) {
    let Origin { identity, .. } = writing.origin;
    let user = json!({"name": identity.user, "uid": identity.uid, "groups": identity.groups, "extra": identity.extra});
    let request = json!({
        "verb": if writing.old.is_some() { "update" } else { "create" }, "apiGroup": &*writing.resource.group,
        "resource": &*writing.resource.resource, "namespace": writing.namespace, "name": writing.name,
    });
    (user, request)
}

/// The claims that an object comes with.
pub fn companions(writing: &Writing<'_>, view: &dyn View) -> Result<Vec<Companion>, Refusal> {
    let policies = policies_of(writing.resource, view);
    if policies.is_empty() {
        return Ok(Vec::new());
    }
    let (user, request) = told(writing);
    let inputs = Inputs { object: writing.object, user: &user, request: &request };
    let subject = kinds::uid::parse(text(writing.object, &["metadata", "uid"])).unwrap_or(SubjectId(0));
    let mut companions: Vec<Companion> = Vec::new();
    for policy in &policies {
        if !policy.trigger.holds(&policy.name, &inputs)? {
            continue;
        }
        let (name, object) = policy.claim(writing, &inputs)?;
        let stored = view.get(&CLAIMS.resource(), writing.namespace, &name);
        if let Some(old) = writing.old
            && stored.is_none()
        {
            // One that was there before the policy is asked for nothing as long as it asks for nothing else.
            let before = Writing { object: old, old: None, ..*writing };
            let inputs = Inputs { object: old, ..inputs };
            let is_same = policy
                .claim(&before, &inputs)
                .is_ok_and(|(_, before)| before["spec"]["resources"] == object["spec"]["resources"]);
            if is_same {
                continue;
            }
        }
        let own = |number: &usize| {
            let uid = kinds::uid::text(companion_uid(subject, *number));
            stored.as_deref().is_some_and(|stored| text(stored, &["metadata", "uid"]) == uid)
        };
        let is_free = |number: &usize| {
            let taken = companions.iter().any(|one| one.number == *number);
            !taken && view.explain(companion_uid(subject, *number)).state.is_none()
        };
        let number = (0..COMPANIONS_MAX).find(own).or_else(|| (0..COMPANIONS_MAX).find(is_free));
        let Some(number) = number else {
            let why = format!("more than {COMPANIONS_MAX} policies want a claim for {}", writing.name);
            return Err(Refusal::forbidden(why));
        };
        companions.push(Companion { resource: CLAIMS.resource(), number, name, object, quota: None });
    }
    Ok(companions)
}

/// The object that a claim was made for, if one was: nobody else gives a claim such a uid.
fn made_for(claim: &Value) -> Option<SubjectId> {
    let own = kinds::uid::parse(text(claim, &["metadata", "uid"]))?;
    let of = kinds::uid::parse(text(claim, &["spec", "resourceRef", "uid"]))?;
    (0..COMPANIONS_MAX).any(|number| companion_uid(of, number) == own).then_some(of)
}

/// What a claim must be that was made for an object: it goes with it, and when its policy no longer asks for it.
pub fn must_be(claim: &Value, view: &dyn View) -> Must {
    let Some(of) = made_for(claim) else { return Must::AsItIs };
    if !view.lives(of) {
        return Must::Gone;
    }
    let policy = text(claim, &["metadata", "labels", POLICY_LABEL]);
    let Some((object, resource)) = object_of(claim, view) else { return Must::AsItIs };
    let policies = policies_of(&resource, view);
    // One whose policy is gone counts on: what it was made for is still there.
    let Some(policy) = policies.iter().find(|one| one.name == policy) else { return Must::AsItIs };
    let origin = Origin::default();
    let (namespace, name) = (text(claim, &["metadata", "namespace"]), text(&object, &["metadata", "name"]));
    let writing =
        Writing { resource: &resource, namespace, name, object: &object, old: Some(&object), origin: &origin };
    let (user, request) = told(&writing);
    match policy.trigger.holds(&policy.name, &Inputs { object: &object, user: &user, request: &request }) {
        Ok(false) => Must::Gone,
        Ok(true) | Err(_) => Must::AsItIs,
    }
}

fn object_of(claim: &Value, view: &dyn View) -> Option<(Arc<Value>, GroupResource)> {
    let reference = at(claim, &["spec", "resourceRef"])?;
    let kind = json!({"group": text(reference, &["apiGroup"]), "version": "v1", "kind": text(reference, &["kind"])});
    let resolved = Target::read(&kind).resolve(view);
    let namespace = if resolved.namespaced { text(claim, &["metadata", "namespace"]) } else { "" };
    let object = view.get(&resolved.resource, namespace, text(reference, &["name"]))?;
    let is_it = text(&object, &["metadata", "uid"]) == text(reference, &["uid"]);
    is_it.then_some((object, resolved.resource))
}

/// A claim that was made for an object is that object's: it cannot be made to say anything else, nor be deleted before it.
pub fn check(change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
    let Some(of) = (!change.old.is_null()).then(|| made_for(change.old)).flatten() else { return Ok(()) };
    if !view.lives(of) {
        return Ok(());
    }
    let leaves = change.new.is_none_or(super::claim::leaves);
    let object = object_of(change.old, view);
    let is_leaving =
        object.as_ref().is_some_and(|(object, _)| given(object, &["metadata", "deletionTimestamp"]).is_some());
    let name = text(change.old, &["spec", "resourceRef", "name"]);
    if leaves && !is_leaving {
        return Err(Refusal::forbidden(format!(
            "it was made for {name:?}, which is there: delete that, or let it take less"
        )));
    }
    let is_changed = change.new.is_some_and(|new| {
        let label = |object| text(object, &["metadata", "labels", POLICY_LABEL]).to_owned();
        new.get("spec") != change.old.get("spec") || label(new) != label(change.old)
    });
    match is_changed && !leaves {
        true => Err(Refusal::forbidden(format!("it was made for {name:?}, and changes with it"))),
        false => Ok(()),
    }
}
