//! JSON merge patch, RFC 7396: null removes, objects merge, everything else replaces.

use serde_json::{Map, Value};

use super::PatchError;

/// Applies a merge patch to an object. A patch that is not an object would replace the stored object by something that
/// is none, so it is refused as Kubernetes does.
pub fn merge_patch(original: Value, patch: &Value) -> Result<Value, PatchError> {
    if !patch.is_object() {
        return Err(PatchError::BadRequest("Invalid JSON Patch".into()));
    }
    let mut result = original;
    merge(&mut result, patch);
    Ok(result)
}

/// Recursion follows the patch, whose depth the decoder has bounded.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.as_str()).or_insert(Value::Null), change);
        }
    }
}
