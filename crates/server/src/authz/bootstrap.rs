//! The roles and bindings a new server starts with, as data: `bootstrap.yaml`.
//!
//! They follow Kubernetes' defaults with one difference: nothing is bound to `system:unauthenticated`, because an
//! anonymous caller gets health and nothing else.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::Kind;
use super::rules::{Rule, parse_rules};

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

/// A stored role or binding with what is missing of its default added; none when nothing is, or when its owner keeps the
/// server's hands off it. Nothing is taken away: more rights than the default were given by somebody.
pub fn mended(stored: &Value, default: &Value) -> Option<Value> {
    if stored["metadata"]["annotations"][AUTOUPDATE] == "false" {
        return None;
    }
    let mut mended = stored.clone();
    for map in ["labels", "annotations"] {
        for (key, value) in default["metadata"][map].as_object().into_iter().flatten() {
            if mended["metadata"][map].get(key).is_none() {
                mended["metadata"][map][key] = value.clone();
            }
        }
    }
    // The rules of an aggregated role are made of other roles'.
    if default.get("aggregationRule").is_none() {
        let held = parse_rules(stored);
        let missing = |rule: &&Value| !held.iter().any(|held| held.covers(&Rule::parse(rule)));
        extend(&mut mended, "rules", default["rules"].as_array().into_iter().flatten().filter(missing));
    }
    let bound = |subject: &Value| ["kind", "name", "namespace"].map(|field| subject[field].clone());
    let known: Vec<_> = stored["subjects"].as_array().into_iter().flatten().map(bound).collect();
    let missing = |subject: &&Value| !known.contains(&bound(subject));
    extend(&mut mended, "subjects", default["subjects"].as_array().into_iter().flatten().filter(missing));
    (mended != *stored).then_some(mended)
}

fn extend<'a>(object: &mut Value, field: &str, more: impl Iterator<Item = &'a Value>) {
    let more: Vec<Value> = more.cloned().collect();
    if more.is_empty() {
        return;
    }
    match object[field].as_array_mut() {
        Some(list) => list.extend(more),
        None => object[field] = Value::Array(more),
    }
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
