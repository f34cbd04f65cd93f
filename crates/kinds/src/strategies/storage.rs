//! Claims, volumes and their classes.

use quantity::Amount;
use serde_json::{Value, json};

use super::Strategy;
use super::fill::{absent, blank, given, text, within};
use crate::field_error::FieldError;
use crate::resources::quantity_of;

pub struct Claims;
pub struct Volumes;
pub struct StorageClasses;
pub struct Drivers;
pub struct AttributesClasses;

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// The older way to name a claim's class, which wins.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

fn annotated_class(claim: &Value) -> Option<&str> {
    claim.get("metadata")?.get("annotations")?.get(CLASS_ANNOTATION)?.as_str()
}

/// Storage is counted by class: a claim does not change it, by whichever way it is named. An annotation may give way to the
/// field that says the same.
fn class_is_final(object: &Value, old: &Value) -> Vec<FieldError> {
    let (now, before) = (annotated_class(object), annotated_class(old));
    let field = object["spec"].get("storageClassName").and_then(Value::as_str);
    let moved = now.is_none() && before.is_some() && field == before;
    if now == before || moved {
        return Vec::new();
    }
    let path = format!("metadata.annotations.{CLASS_ANNOTATION}");
    vec![FieldError::invalid(path, now.unwrap_or_default(), "field is immutable")]
}

/// Makes a field that may differ the same.
fn carry(field: &str, from: &Value, to: &mut Value) {
    let Value::Object(to) = to else { return };
    match from.get(field) {
        Some(value) => to.insert(field.to_owned(), value.clone()),
        None => to.remove(field),
    };
}

fn amount(value: &Value) -> Option<Amount> {
    quantity_of("storage", value).ok().map(|quantity| quantity.amount())
}

fn size(claim: &Value) -> Option<Amount> {
    claim.pointer("/spec/resources/requests/storage").and_then(amount)
}

/// Adds a finalizer that is not there yet.
fn protect(object: &mut Value, finalizer: &str) {
    let Some(metadata) = within(object, "metadata") else { return };
    absent(metadata, "finalizers", json!([]));
    if let Some(Value::Array(list)) = metadata.get_mut("finalizers")
        && !list.iter().any(|one| one == finalizer)
    {
        list.push(finalizer.into());
    }
}

impl Strategy for Claims {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = within(object, "spec") {
            absent(spec, "volumeMode", "Filesystem");
        }
        if let Some(status) = within(object, "status") {
            blank(status, "phase", "Pending");
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({"phase": "Pending"});
        protect(object, "kubernetes.io/pvc-protection");
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let mut errors = Vec::new();
        if spec.get("accessModes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            errors.push(FieldError::required("spec.accessModes", "at least 1 access mode is required"));
        }
        let (mut alone, mut shared) = (false, false);
        for mode in spec.get("accessModes").and_then(Value::as_array).into_iter().flatten() {
            let mode = mode.as_str().unwrap_or_default();
            if !ACCESS_MODES.contains(&mode) {
                errors.push(FieldError::not_supported("spec.accessModes", mode, &ACCESS_MODES));
            } else if mode == "ReadWriteOncePod" {
                alone = true;
            } else {
                shared = true;
            }
        }
        if alone && shared {
            let detail = "may not use ReadWriteOncePod with other access modes";
            errors.push(FieldError::forbidden("spec.accessModes", detail));
        }
        match spec.pointer("/resources/requests/storage").and_then(Value::as_str) {
            None => errors.push(FieldError::required("spec.resources[storage]", "")),
            Some(size) => {
                let amount = quantity::Quantity::parse(size).map(|quantity| quantity.amount()).unwrap_or_default();
                if amount.is_zero() || amount.is_negative() {
                    errors.push(FieldError::invalid("spec.resources[storage]", size, "must be greater than zero"));
                }
            }
        }
        let mode = text(spec, "volumeMode");
        if !matches!(mode, "" | "Block" | "Filesystem") {
            errors.push(FieldError::not_supported("spec.volumeMode", mode, &["Block", "Filesystem"]));
        }
        errors
    }

    /// What a claim was charged for is final, but for what a bound one may become: larger where its class allows that, and of
    /// another attributes class.
    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = class_is_final(object, old);
        let (mut new_spec, mut old_spec) = (object["spec"].clone(), old["spec"].clone());
        if text(&old_spec, "volumeName").is_empty() {
            carry("volumeName", &new_spec, &mut old_spec);
        }
        // A default class that came later may still be given to a claim without one; so may the annotation's, as a field.
        let is_classless = old_spec.get("storageClassName").is_none_or(Value::is_null);
        let annotated = annotated_class(old);
        let named = new_spec.get("storageClassName").and_then(Value::as_str).map(str::to_owned);
        if is_classless && annotated.is_none_or(|class| named.as_deref() == Some(class)) {
            carry("storageClassName", &new_spec, &mut old_spec);
        }
        let is_bound = text(&object["status"], "phase") == "Bound";
        let (size, old_size) = (size(object), size(old));
        if is_bound || size == old_size {
            let known = old_spec["resources"]["requests"]["storage"].clone();
            new_spec["resources"]["requests"]["storage"] = known;
        }
        if is_bound {
            carry("volumeAttributesClassName", &new_spec, &mut old_spec);
        }
        if new_spec != old_spec {
            errors.push(FieldError::forbidden(
                "spec",
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
            ));
        }
        // Down to what the volume has, so that a growth that failed can be taken back.
        let has = old.pointer("/status/capacity/storage").and_then(amount);
        if size < old_size && has.is_none_or(|has| size <= Some(has)) {
            let detail = "field can not be less than status.capacity";
            errors.push(FieldError::forbidden("spec.resources.requests.storage", detail));
        }
        let attributes = |object: &Value| text(&object["spec"], "volumeAttributesClassName").to_owned();
        let applied = !text(&old["status"], "currentVolumeAttributesClassName").is_empty();
        if applied && attributes(object).is_empty() && !attributes(old).is_empty() {
            let detail = "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil";
            errors.push(FieldError::forbidden("spec.volumeAttributesClassName", detail));
        }
        errors
    }

    fn validate_subresource(&self, _subresource: &str, object: &Value, old: &Value) -> Vec<FieldError> {
        class_is_final(object, old)
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["name"]
    }
}

impl Strategy for Volumes {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = within(object, "spec") {
            blank(spec, "persistentVolumeReclaimPolicy", "Retain");
            absent(spec, "volumeMode", "Filesystem");
            if let Some(path) = given(spec, "hostPath") {
                absent(path, "type", "");
            }
        }
        if let Some(status) = within(object, "status") {
            blank(status, "phase", "Pending");
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({"phase": "Pending"});
        protect(object, "kubernetes.io/pv-protection");
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        match object.pointer("/spec/capacity/storage") {
            None => errors.push(FieldError::required("spec.capacity", "")),
            Some(size) if amount(size).is_none_or(|amount| amount.is_zero() || amount.is_negative()) => {
                errors.push(FieldError::invalid("spec.capacity[storage]", size.clone(), "must be greater than zero"));
            }
            Some(_) => {}
        }
        if object.pointer("/spec/accessModes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            errors.push(FieldError::required("spec.accessModes", ""));
        }
        errors
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["name"]
    }
}

impl Strategy for StorageClasses {
    fn default(&self, object: &mut Value) {
        absent(object, "reclaimPolicy", "Delete");
        absent(object, "volumeBindingMode", "Immediate");
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        if text(object, "provisioner").is_empty() { vec![FieldError::required("provisioner", "")] } else { Vec::new() }
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}

impl Strategy for Drivers {
    fn default(&self, object: &mut Value) {
        let Some(spec) = within(object, "spec") else { return };
        absent(spec, "attachRequired", true);
        for field in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
            absent(spec, field, false);
        }
        absent(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        if spec.get("volumeLifecycleModes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            spec["volumeLifecycleModes"] = json!(["Persistent"]);
        }
    }

    fn counts_generations(&self) -> bool {
        true
    }

    /// Changes are counted, the beginning is not.
    fn first_generation(&self) -> Option<i64> {
        None
    }
}

impl Strategy for AttributesClasses {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        if text(object, "driverName").is_empty() { vec![FieldError::required("driverName", "")] } else { Vec::new() }
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}
