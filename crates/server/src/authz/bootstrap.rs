//! The roles and bindings a new server starts with, as data: `bootstrap.yaml`.
//!
//! They follow Kubernetes' defaults with one difference: nothing is bound to `system:unauthenticated`, because an
//! anonymous caller gets health and nothing else.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::Kind;

const DATA: &str = include_str!("bootstrap.yaml");
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

static OBJECTS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let objects: Vec<Value> = serde_saphyr::from_str(DATA).expect("bootstrap.yaml is part of the program and tested");
    objects.into_iter().map(complete).collect()
});

/// Whole objects, ready to be created where they are missing.
pub fn objects() -> &'static [Value] {
    &OBJECTS
}

/// Which kind a bootstrap object is, and its name.
pub fn key(object: &Value) -> Option<(Kind, &str)> {
    Some((Kind::from_kind(object["kind"].as_str()?)?, object["metadata"]["name"].as_str()?))
}

/// The file holds what differs between the objects; what they share is added here.
fn complete(mut object: Value) -> Value {
    object["apiVersion"] = json!(format!("{}/v1", Kind::GROUP));
    let metadata = &mut object["metadata"];
    metadata["annotations"] = json!({AUTOUPDATE: "true"});
    let mut labels = metadata["labels"].as_object().cloned().unwrap_or_else(Map::new);
    labels.insert("kubernetes.io/bootstrapping".into(), json!("rbac-defaults"));
    metadata["labels"] = Value::Object(labels);
    if let Some(role) = object["roleRef"].as_object_mut() {
        role.insert("apiGroup".into(), json!(Kind::GROUP));
    }
    for subject in object["subjects"].as_array_mut().into_iter().flatten() {
        subject["apiGroup"] = json!(Kind::GROUP);
    }
    let Some(fields) = object.as_object_mut() else { return object };
    fields.retain(|_, value| !value.is_null());
    if fields.get("kind").is_some_and(|kind| kind == "ClusterRole") {
        fields.entry("rules").or_insert(Value::Array(Vec::new()));
    }
    object
}
