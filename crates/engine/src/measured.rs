//! What rules see of an object: what was written of it, and nothing that the server adds when it stores it. Otherwise the
//! same object would be charged one amount when it is written and another when it is counted again; and a quota over
//! quotas would count what it says itself.

use std::borrow::Cow;

use kinds::fields::{at, text};
use serde_json::Value;

/// The object as rules see it. `told` says whether its status is the server's to tell.
pub(crate) fn measured(value: &Value, told: bool) -> Cow<'_, Value> {
    let revision = text(value, &["metadata", "resourceVersion"]);
    let managed = at(value, &["metadata", "managedFields"]).is_some();
    if revision.is_empty() && !managed && !(told && value.get("status").is_some()) {
        return Cow::Borrowed(value);
    }
    let mut value = value.clone();
    strip(&mut value, told);
    Cow::Owned(value)
}

/// Takes away what rules do not see.
pub(crate) fn strip(value: &mut Value, told: bool) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        // As in a draft, which does not know its revision yet.
        if let Some(revision) = metadata.get_mut("resourceVersion") {
            *revision = Value::String(String::new());
        }
    }
    if let Some(object) = value.as_object_mut().filter(|_| told) {
        object.remove("status");
    }
}
