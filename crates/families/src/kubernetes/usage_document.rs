//! ResourceQuotaUsage: a posted document that sets the observed usage of a ResourceQuota, on condition that the quota
//! is still the one its author read.

use kinds::fields::text;
use rules::GroupResource;
use serde_json::{Value, json};

use crate::VirtualWrite;

pub const RESOURCE: &str = "resourcequotausages";

/// The write that a document asks for, or what it lacks.
pub fn read(namespace: &str, document: &Value) -> Result<VirtualWrite, String> {
    let name = text(document, &["metadata", "name"]);
    if name.is_empty() {
        return Err("metadata.name: Required value: the ResourceQuota whose usage this is".into());
    }
    let stated = text(document, &["metadata", "namespace"]);
    if !stated.is_empty() && stated != namespace {
        return Err(format!(
            "the namespace of the provided object does not match the namespace sent on the request ({stated} != {namespace})"
        ));
    }
    let resource_version = text(document, &["metadata", "resourceVersion"]);
    if resource_version.is_empty() {
        return Err(
            "metadata.resourceVersion: Required value: usage is set on the ResourceQuota that was read, or not \
            at all"
                .into(),
        );
    }
    Ok(VirtualWrite {
        resource: GroupResource::core("resourcequotas"),
        name: name.to_string(),
        resource_version: resource_version.to_string(),
        status: document.get("status").cloned().unwrap_or_else(|| json!({})),
    })
}
