//! ResourceQuotaClaim, read: what is asked for, and by which dimensions.

use std::collections::BTreeSet;

use kinds::field_error::{FieldError, Path};
use kinds::fields::{at, given, items, text};
use ledger::CHARGE_MAX;
use quantity::Amount;
use serde_json::{Value, json};

use super::catalog::{Catalog, as_text, is_scope};
use super::company;
use super::selector::{Dimensions, check_value};
use super::units::Unit;
use crate::{Admission, Must, PolicyObject, View};

/// Holds a claim until what it has is let go of.
pub const FINALIZER: &str = "quota.datumapis.com/usage-release";
/// Requests of one claim.
const RESOURCES_MAX: usize = 64;
const DIMENSIONS_MAX: usize = 32;
/// No quantity is longer.
pub const QUANTITY_BYTES_MAX: usize = 64;
pub const NAME_BYTES_MAX: usize = 253;
/// No definition allows a dimension with a longer name: a prefix, a slash and 63 bytes.
const KEY_BYTES_MAX: usize = NAME_BYTES_MAX + 1 + 63;

/// One resource of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub name: String,
    pub amount: Amount,
    pub unit: Unit,
    pub dimensions: Dimensions,
}

/// A claim, as far as it can be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub requests: Vec<Request>,
    /// Namespace and name of the grant it names.
    pub grant: Option<(String, String)>,
}

/// Why it cannot, in the words of conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    pub reason: &'static str,
    pub message: String,
    /// The resource that cannot be counted, and its place in the claim; none where it is the claim as a whole.
    pub resource: Option<String>,
    pub entry: Option<usize>,
}

/// What of a claim can be counted, and what is wrong with the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    pub claim: Claim,
    pub invalid: Vec<Invalid>,
}

impl Parts {
    pub fn read(object: &Value, catalog: &Catalog) -> Parts {
        let mut invalid = Vec::new();
        let reference = |field: &str| text(object, &["spec", "resourceRef", field]);
        if reference("kind").is_empty() || reference("name").is_empty() {
            let message = "spec.resourceRef: kind and name are required".into();
            invalid.push(Invalid { reason: "InvalidResourceRef", message, resource: None, entry: None });
        }
        let listed = items(object, &["spec", "resources"]);
        if listed.is_empty() || listed.len() > RESOURCES_MAX {
            let message = format!("spec.resources: must have 1 to {RESOURCES_MAX} entries");
            invalid.push(Invalid { reason: "InvalidResourceRef", message, resource: None, entry: None });
        }
        let mut requests: Vec<Request> = Vec::with_capacity(listed.len());
        for (index, entry) in listed.iter().take(RESOURCES_MAX).enumerate() {
            let (request, wrong) = Request::read(index, entry, object, catalog);
            requests.extend(request);
            invalid.extend(wrong);
        }
        let grant = given(object, &["spec", "grantRef"]).map(|grant| {
            let namespace = match text(grant, &["namespace"]) {
                "" => text(object, &["metadata", "namespace"]),
                named => named,
            };
            (namespace.to_owned(), text(grant, &["name"]).to_owned())
        });
        Parts { claim: Claim { requests, grant }, invalid }
    }
}

impl Request {
    /// What is asked for, where that can be counted, and what is wrong with it. A dimension that its definition allows no more keeps
    /// it from being granted, and not from being counted: it may have been granted before.
    fn read(index: usize, entry: &Value, object: &Value, catalog: &Catalog) -> (Option<Request>, Option<Invalid>) {
        let name = text(entry, &["name"]);
        let resource = || Some(name.to_owned());
        let invalid =
            |reason, message: String| Some(Invalid { reason, message, resource: resource(), entry: Some(index) });
        let Some(definition) = catalog.get(name) else {
            let why = format!("spec.resources[{index}].name: no ServiceQuotaDefinition defines {name:?}");
            return (None, invalid("UnknownResourceName", why));
        };
        let dimensions = dimensions_of(entry, object);
        let strange = dimensions.keys().find(|key| is_scope(key) || !definition.allows(key));
        let strange = strange.and_then(|key| {
            let why = format!("spec.resources[{index}].dimensions: {key:?} is no dimension of {name:?}");
            invalid("InvalidDimension", why)
        });
        let quantity = given(entry, &["quantity"]).map(as_text).unwrap_or_default();
        let amount = match definition.unit.read(&quantity) {
            Ok(amount) if amount.is_zero() => Err("must be greater than 0".to_owned()),
            Ok(amount) if amount > CHARGE_MAX => Err("is more than can be counted of one object".to_owned()),
            other => other,
        };
        match amount {
            Ok(amount) => (Some(Request { name: name.into(), amount, unit: definition.unit, dimensions }), strange),
            Err(why) => {
                let why = format!("spec.resources[{index}].quantity: {quantity:?} {why}");
                (None, strange.or_else(|| invalid("InvalidQuantity", why)))
            }
        }
    }
}

/// The dimensions of one resource of a claim: its own before those of the claim.
pub fn dimensions_of(entry: &Value, object: &Value) -> Dimensions {
    let mut dimensions = Dimensions::new();
    for source in [at(object, &["spec", "dimensions"]), at(entry, &["dimensions"])] {
        for (key, value) in source.and_then(Value::as_object).into_iter().flatten() {
            dimensions.insert(key.clone(), value.as_str().unwrap_or_default().to_owned());
        }
    }
    dimensions
}

/// What is wrong with a claim whatever is defined and granted.
pub fn validate(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = Path::new("spec");
    let reference = spec.child("resourceRef");
    for field in ["kind", "name"] {
        if text(object, &["spec", "resourceRef", field]).is_empty() {
            errors.push(FieldError::required(reference.child(field), "the object that will consume"));
        }
    }
    dimensions(at(object, &["spec", "dimensions"]), &spec.child("dimensions"), &mut errors);
    let (listed, resources) = (items(object, &["spec", "resources"]), spec.child("resources"));
    if listed.is_empty() {
        errors.push(FieldError::required(resources, "at least one resource"));
    }
    if listed.len() > RESOURCES_MAX {
        errors.push(FieldError::too_many(resources, listed.len(), RESOURCES_MAX));
    }
    let mut known = BTreeSet::new();
    for (index, entry) in listed.iter().take(RESOURCES_MAX).enumerate() {
        let place = resources.index(index);
        let name = text(entry, &["name"]);
        if name.is_empty() {
            errors.push(FieldError::required(place.child("name"), "the name of a defined resource"));
        }
        let quantity = given(entry, &["quantity"]).map(as_text).unwrap_or_default();
        if quantity.is_empty() {
            errors.push(FieldError::required(place.child("quantity"), "how much of it"));
        } else if quantity.starts_with('-') {
            errors.push(FieldError::invalid(place.child("quantity"), quantity.as_str(), "must be greater than 0"));
        }
        // All of this is told again in reasons, events and journals.
        check_length(&quantity, QUANTITY_BYTES_MAX, &place.child("quantity"), &mut errors);
        check_length(name, NAME_BYTES_MAX, &place.child("name"), &mut errors);
        dimensions(at(entry, &["dimensions"]), &place.child("dimensions"), &mut errors);
        let said = at(entry, &["dimensions"]).map(Value::to_string).unwrap_or_default();
        if !known.insert((name, said)) {
            errors.push(FieldError::duplicate(place.child("name"), name));
        }
    }
    if let Some(grant) = given(object, &["spec", "grantRef"]) {
        let place = spec.child("grantRef");
        if text(grant, &["name"]).is_empty() {
            errors.push(FieldError::required(place.child("name"), "the grant to claim from"));
        }
        for field in ["namespace", "name"] {
            check_length(text(grant, &[field]), NAME_BYTES_MAX, &place.child(field), &mut errors);
        }
    }
    for field in ["apiGroup", "kind", "name", "namespace", "uid"] {
        let said = text(object, &["spec", "resourceRef", field]);
        check_length(said, NAME_BYTES_MAX, &reference.child(field), &mut errors);
    }
    errors
}

pub fn check_length(said: &str, bytes_max: usize, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if said.len() > bytes_max {
        errors.push(FieldError::too_long(path, bytes_max));
    }
}

fn dimensions(given: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let entries = given.and_then(Value::as_object);
    if let Some(many) = entries.filter(|entries| entries.len() > DIMENSIONS_MAX) {
        errors.push(FieldError::too_many(path, many.len(), DIMENSIONS_MAX));
    }
    for (key, value) in entries.into_iter().flatten() {
        if is_scope(key) {
            errors
                .push(FieldError::forbidden(path.key(key), "its value is the project's, and not the claim's to give"));
        }
        if key.len() > KEY_BYTES_MAX {
            errors.push(FieldError::too_long(path, KEY_BYTES_MAX));
        }
        check_value(value.as_str().unwrap_or_default(), &path.key(key), errors);
    }
}

/// A claim is held until it is released.
pub fn admit(request: &mut Admission<'_>) {
    let leaves = at(request.object, &["metadata", "deletionTimestamp"]).is_some_and(|time| !time.is_null());
    if leaves || request.old.is_some() {
        return;
    }
    let Some(metadata) = request.object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if finalizers.is_null() {
        *finalizers = json!([]);
    }
    if let Some(list) = finalizers.as_array_mut()
        && !list.iter().any(|one| one == FINALIZER)
    {
        list.push(FINALIZER.into());
    }
}

/// What a claim must be: gone with the object it was made for, or for whose sake it waits, and released where it is on its way out.
/// Its status is the ledger's word, by which others provision: whoever writes one is not heard.
pub fn must_be(object: &PolicyObject<'_>, view: &dyn View) -> Must {
    let claim = object.object;
    let must = match company::lives(claim, view) {
        _ if leaves(claim) => released(claim),
        Some(false) => Must::Gone,
        _ if company::outlived(claim, view) => Must::Gone,
        _ => company::owned_while_waiting(object, view),
    };
    let Some(stored) = view.get(object.resource, object.namespace, object.name) else { return must };
    let decided = |claim: &Value| stored.get("status").is_some() && stored.get("status") != claim.get("status");
    match must {
        Must::AsItIs if decided(claim) => Must::Be(with_status(claim.clone(), &stored)),
        Must::Be(claim) if decided(&claim) => Must::Be(with_status(claim, &stored)),
        must => must,
    }
}

fn with_status(mut claim: Value, stored: &Value) -> Value {
    claim["status"] = stored["status"].clone();
    claim
}

/// The claim without what holds it; gone where nothing else does.
fn released(claim: &Value) -> Must {
    let held = items(claim, &["metadata", "finalizers"]);
    let others: Vec<Value> = held.iter().filter(|one| *one != FINALIZER).cloned().collect();
    if others.is_empty() {
        return Must::Gone;
    }
    let mut claim_now = claim.clone();
    claim_now["metadata"]["finalizers"] = Value::Array(others);
    Must::differ(claim, claim_now)
}

/// Whether it is on its way out.
pub fn leaves(claim: &Value) -> bool {
    given(claim, &["metadata", "deletionTimestamp"]).is_some()
}

/// Whether it has let go, or may: nothing is left that holds it for the sake of its charge.
pub fn is_released(claim: &Value) -> bool {
    leaves(claim) && !items(claim, &["metadata", "finalizers"]).iter().any(|one| one == FINALIZER)
}
