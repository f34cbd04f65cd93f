//! Documents of custom resources. Their schema is the CRD's own, with what every object has put around it.

use serde_json::{Map, Value, json};

use super::schemas::{Schemas, reference};
use super::{Document, document, paths};
use crate::builtin::STORED;
use crate::facts::facts;

/// One version of a custom resource, as its CRD has it.
#[derive(Clone, Debug)]
pub struct CustomResource<'a> {
    pub kind: &'a str,
    pub list_kind: &'a str,
    pub plural: &'a str,
    pub namespaced: bool,
    /// `openAPIV3Schema`.
    pub schema: &'a Value,
    pub status: bool,
    pub scale: bool,
}

/// The document of a group-version that custom resources make up.
pub fn custom(group: &str, version: &str, resources: &[CustomResource<'_>]) -> Document {
    let mut schemas = Schemas::new(facts());
    let mut all = Map::new();
    for resource in resources {
        let &CustomResource { kind, list_kind, plural, namespaced, .. } = resource;
        let (schema, list) = (name(group, version, kind), name(group, version, list_kind));
        let object = object(&mut schemas, group, version, resource);
        schemas.insert(schema.clone(), object);
        let listed = list_of(&mut schemas, group, version, list_kind, &schema);
        schemas.insert(list.clone(), listed);
        let mut subresources = Vec::new();
        if resource.status {
            let schema = schema.clone();
            subresources.push(paths::Sub { name: "status", group, version, kind, verbs: READ_WRITE, schema });
        }
        if let Some(scale) = facts().kind("autoscaling", "v1", "Scale").filter(|_| resource.scale) {
            let (group, version, kind) = ("autoscaling", "v1", "Scale");
            let schema = schemas.kind(group, version, kind, scale);
            subresources.push(paths::Sub { name: "scale", group, version, kind, verbs: READ_WRITE, schema });
        }
        let list = Some(list);
        let verbs = STORED;
        let strategic = false;
        let endpoint =
            paths::Endpoint { group, version, kind, plural, namespaced, verbs, strategic, schema, list, subresources };
        paths::add(&mut all, &endpoint);
    }
    schemas.shared(group, version);
    document(group, version, all, schemas.finish())
}

const READ_WRITE: &[&str] = &["get", "patch", "update"];

/// `com.example.stable.v1.CronTab` for stable.example.com.
fn name(group: &str, version: &str, kind: &str) -> String {
    let reversed: Vec<&str> = group.rsplit('.').collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}

fn object(schemas: &mut Schemas<'_>, group: &str, version: &str, resource: &CustomResource<'_>) -> Value {
    let mut schema = match resource.schema {
        Value::Object(map) => Value::Object(map.clone()),
        _ => json!({"type": "object"}),
    };
    let properties = match schema["properties"].take() {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    let mut properties = properties;
    for (name, words) in TYPE_META {
        properties.insert(name.into(), json!({"type": "string", "description": words}));
    }
    let mut metadata = schemas.object_meta();
    metadata["description"] = "What every object has: name, namespace, labels, annotations, owners.".into();
    properties.insert("metadata".into(), metadata);
    schema["properties"] = properties.into();
    schema["x-kubernetes-group-version-kind"] = json!([{"group": group, "version": version, "kind": resource.kind}]);
    schema
}

const TYPE_META: [(&str, &str); 2] =
    [("apiVersion", "The group and version whose schema this object has."), ("kind", "The kind of this object.")];

fn list_of(schemas: &mut Schemas<'_>, group: &str, version: &str, list_kind: &str, item: &str) -> Value {
    let mut properties = Map::new();
    for (name, words) in TYPE_META {
        properties.insert(name.into(), json!({"type": "string", "description": words}));
    }
    properties.insert("metadata".into(), schemas.list_meta());
    properties.insert("items".into(), json!({"type": "array", "items": reference(item)}));
    json!({
        "type": "object",
        "description": format!("A list of {}.", item.rsplit('.').next().unwrap_or(item)),
        "properties": properties,
        "required": ["items"],
        "x-kubernetes-group-version-kind": [{"group": group, "version": version, "kind": list_kind}],
    })
}
