//! Claims, volumes and their classes.

use kinds::field_error::FieldError;
use serde_json::{Value, json};

use super::Strategy;
use super::fill::{absent, blank, given, text, within};

pub struct Claims;
pub struct Volumes;
pub struct StorageClasses;
pub struct Drivers;
pub struct AttributesClasses;

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

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
        for mode in spec.get("accessModes").and_then(Value::as_array).into_iter().flatten() {
            let mode = mode.as_str().unwrap_or_default();
            if !ACCESS_MODES.contains(&mode) {
                errors.push(FieldError::not_supported("spec.accessModes", mode, &ACCESS_MODES));
            }
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

    /// A claim may grow, be bound, and change its attributes class; the rest of its spec is final.
    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let fixed = |object: &Value| {
            let mut spec = object["spec"].clone();
            if let Value::Object(map) = &mut spec {
                map.remove("volumeAttributesClassName");
                map.remove("resources");
                map.remove("volumeName");
            }
            spec
        };
        let renamed = text(&old["spec"], "volumeName") != text(&object["spec"], "volumeName")
            && !text(&old["spec"], "volumeName").is_empty();
        if renamed || fixed(object) != fixed(old) {
            return vec![FieldError::forbidden(
                "spec",
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
            )];
        }
        let size = |object: &Value| {
            let text = object.pointer("/spec/resources/requests/storage").and_then(Value::as_str)?;
            quantity::Quantity::parse(text).ok().map(|quantity| quantity.amount())
        };
        let allocated = old.pointer("/status/capacity/storage").and_then(Value::as_str);
        let floor = allocated.and_then(|text| quantity::Quantity::parse(text).ok()).map(|quantity| quantity.amount());
        if size(object) < size(old) && size(object) < floor.or(size(old)) {
            let detail = "field can not be less than status.capacity";
            return vec![FieldError::forbidden("spec.resources.requests.storage", detail)];
        }
        Vec::new()
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
        if object.pointer("/spec/capacity/storage").is_none() {
            errors.push(FieldError::required("spec.capacity", ""));
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
