//! ClaimCreationPolicy: which objects come with a claim, and with which. The claim is written with the object, decided with it, changes
//! with it and goes with it ([`super::company`]); an object whose claim would not be granted is refused, and leaves nothing behind.

use std::sync::Arc;

use kinds::field_error::{FieldError, Path};
use kinds::fields::{at, given, text};
use rules::GroupResource;
use serde_json::{Map, Value, json};

use super::made::{self, templated, templates};
use super::template::{Inputs, Template};
use super::trigger::Trigger;
use super::{CLAIM_POLICIES, GROUP, VERSION};
use crate::capsule::Target;
use crate::{Parsed, Refusal, Sources, World, Writing};

/// Resources of one template.
const RESOURCES_MAX: usize = 20;
/// Says which policy made a claim.
pub const POLICY_LABEL: &str = "quota.datumapis.com/policy";

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
        let base = at(object, &["spec", "target", "resourceClaimTemplate"]);
        let labels = made::labels(base, &metadata, &mut errors);
        let annotations = made::annotations(base, &metadata, &mut errors);
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
    pub fn claim(&self, writing: &Writing<'_>, inputs: &Inputs<'_>) -> Result<(String, Value), Refusal> {
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

/// A policy as it is stored. One that cannot be read any more refuses whatever it would have looked at: it is not known what it asks.
pub struct Kept {
    pub name: String,
    target: Target,
    pub policy: Result<ClaimPolicy, String>,
}

impl Kept {
    /// None where it is switched off.
    fn read(object: &Value) -> Option<Kept> {
        if object["spec"]["disabled"] == true {
            return None;
        }
        let name = text(object, &["metadata", "name"]).to_owned();
        let target = Target::read(&given(object, &["spec", "trigger", "resource"]).cloned().unwrap_or_default());
        let policy = match ClaimPolicy::read(object) {
            Ok(policy) => Ok(policy?),
            Err(errors) => Err(kinds::field_error::join(&errors)),
        };
        Some(Kept { name, target, policy })
    }
}

/// The policies that look at a resource.
pub fn policies_of(resource: &GroupResource, world: &dyn World) -> Vec<Arc<Kept>> {
    type ByResource = std::collections::HashMap<GroupResource, Vec<Arc<Kept>>>;
    let (policies, kinds) =
        (CLAIM_POLICIES.resource(), GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions"));
    let resources = [policies.clone(), kinds];
    let made = world.derived("datum claim policies", Sources { resources: &resources, ledger: false }, &|| {
        let mut all = ByResource::new();
        let read = |object: &Value| -> Parsed { Arc::new(Kept::read(object).map(Arc::new)) };
        for one in world.parsed_everywhere(&policies, &read) {
            if let Some(Some(policy)) = one.downcast_ref::<Option<Arc<Kept>>>() {
                let resource = policy.target.resolve(world).resource;
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

/// What is wrong with a policy.
pub fn validate(object: &Value, world: &dyn World) -> Vec<FieldError> {
    let mut errors = ClaimPolicy::read(object).err().unwrap_or_default();
    let spec = Path::new("spec");
    let trigger = spec.child("trigger");
    let target = Target::read(&given(object, &["spec", "trigger", "resource"]).cloned().unwrap_or_default());
    let resolved = target.resolve(world);
    if resolved.known && !resolved.namespaced {
        let resource = trigger.child("resource");
        let why = "its objects are in no namespace, and so in no project that could have quota";
        errors.push(FieldError::invalid(resource.child("kind"), target.kind.as_str(), why));
    }
    errors
}
