//! A CustomResourceDefinition as something that can be served.

use std::sync::Arc;

use kinds::field_error::FieldError;
use kinds::strategies;
use kinds::strategies::definitions::structural;
use kinds::structural::Structural;
use rules::GroupResource;
use serde_json::Value;

use super::{Schema, Served, ServedSubresource, Shelved};

/// What a definition says beyond names and schema.
pub struct CustomKind {
    /// The definition's own name, `widgets.example.com`.
    pub definition: Arc<str>,
    /// Prunes, defaults and validates objects.
    pub structural: Arc<Structural>,
    pub columns: Vec<PrinterColumn>,
    pub scale: Option<ScalePaths>,
    /// Fields that a field selector may ask for, as paths without the leading dot.
    pub selectable_fields: Vec<Arc<str>>,
    /// The version objects are stored under.
    pub stored_version: Arc<str>,
}

/// One `additionalPrinterColumns` entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrinterColumn {
    pub name: String,
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    pub json_path: String,
}

impl PrinterColumn {
    pub fn text(name: &str, json_path: &str) -> PrinterColumn {
        PrinterColumn {
            name: name.into(),
            kind: "string".into(),
            format: String::new(),
            description: name.into(),
            priority: 0,
            json_path: json_path.into(),
        }
    }
}

/// Where the scale subresource reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

const STORED: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const READ_WRITE: &[&str] = &["get", "patch", "update"];

/// Every served version of a definition.
pub fn define(definition: &Value) -> Result<Vec<Arc<Served>>, Vec<FieldError>> {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    // A name that was asked for and is not accepted yet is not served.
    let names = match definition.pointer("/status/acceptedNames") {
        Some(accepted) if accepted.get("kind").is_some() => accepted,
        _ => &definition["spec"]["names"],
    };
    let name = |field: &str| names.get(field).and_then(Value::as_str).unwrap_or_default();
    let words = |field: &str| -> Vec<Arc<str>> {
        let list = names.get(field).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
    };
    let resource = GroupResource::new(text("/spec/group"), text("/spec/names/plural"));
    let kind = text("/spec/names/kind");
    let list_kind = match name("listKind") {
        "" => format!("{kind}List"),
        named => named.to_owned(),
    };
    let singular = match name("singular") {
        "" => kind.to_lowercase(),
        named => named.to_owned(),
    };
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let is = |version: &Value, flag: &str| version.get(flag).and_then(Value::as_bool) == Some(true);
    let stored = versions.iter().find(|version| is(version, "storage")).and_then(|version| version["name"].as_str());
    let terminating = definition.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
    // A kind that is served under no version is shown under the stored one while it goes, so that its objects go too.
    let is_hidden = !versions.iter().any(|version| is(version, "served"));
    let shown = if terminating && is_hidden { "storage" } else { "served" };
    let mut served = Vec::new();
    for (number, version) in versions.iter().enumerate().filter(|(_, version)| is(version, shown)) {
        let name: Arc<str> = version["name"].as_str().unwrap_or_default().into();
        let structural = Arc::new(structural(version, number)?);
        let schema = Schema { ty: structural.root(), catalogue: Shelved::Custom(structural.clone()) };
        served.push(Arc::new(Served {
            resource: resource.clone(),
            version: name.clone(),
            kind: kind.into(),
            list_kind: list_kind.as_str().into(),
            singular: singular.as_str().into(),
            short_names: words("shortNames"),
            categories: words("categories"),
            namespaced: text("/spec/scope") == "Namespaced",
            verbs: STORED.to_vec(),
            subresources: subresources(version, &resource, &name, kind, &schema),
            schema,
            strategy: strategies::custom(),
            custom: Some(Arc::new(CustomKind {
                definition: text("/metadata/name").into(),
                structural,
                columns: columns(version),
                scale: scale(version),
                selectable_fields: selectable_fields(version),
                stored_version: stored.unwrap_or(&name).into(),
            })),
            printed: Vec::new(),
            alias: None,
        }));
    }
    Ok(served)
}

fn subresources(
    version: &Value,
    resource: &GroupResource,
    name: &Arc<str>,
    kind: &str,
    schema: &Schema,
) -> Vec<ServedSubresource> {
    let mut all = Vec::new();
    if version.pointer("/subresources/scale").is_some() {
        let facts = &kinds::facts::facts().catalogue;
        if let Some(ty) = facts.named("io.k8s.api.autoscaling.v1.Scale") {
            all.push(ServedSubresource {
                name: "scale".into(),
                group: "autoscaling".into(),
                version: "v1".into(),
                kind: "Scale".into(),
                verbs: READ_WRITE.to_vec(),
                schema: Schema { catalogue: Shelved::Builtin(facts), ty },
            });
        }
    }
    if version.pointer("/subresources/status").is_some() {
        all.push(ServedSubresource {
            name: "status".into(),
            group: resource.group.clone(),
            version: name.clone(),
            kind: kind.into(),
            verbs: READ_WRITE.to_vec(),
            schema: schema.clone(),
        });
    }
    all
}

fn columns(version: &Value) -> Vec<PrinterColumn> {
    let list = version.get("additionalPrinterColumns").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .map(|column| {
            let text = |field: &str| column.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            PrinterColumn {
                name: text("name"),
                kind: text("type"),
                format: text("format"),
                description: text("description"),
                priority: column.get("priority").and_then(Value::as_i64).unwrap_or(0),
                json_path: text("jsonPath"),
            }
        })
        .collect()
}

fn scale(version: &Value) -> Option<ScalePaths> {
    let scale = version.pointer("/subresources/scale")?;
    let text = |field: &str| scale.get(field).and_then(Value::as_str).map(str::to_owned);
    Some(ScalePaths {
        spec_replicas: text("specReplicasPath")?,
        status_replicas: text("statusReplicasPath")?,
        label_selector: text("labelSelectorPath"),
    })
}

fn selectable_fields(version: &Value) -> Vec<Arc<str>> {
    let list = version.get("selectableFields").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(|field| field.get("jsonPath").and_then(Value::as_str))
        .map(|path| path.trim_start_matches('.').into())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_is_served_as_soon_as_it_is_stored() {
        let mut object = json!({
            "metadata": {"name": "widgets.example.com", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {"size": {"type": "integer", "maximum": 10}}},
                    }}},
                }],
            },
        });
        let strategy = strategies::of("apiextensions.k8s.io", "customresourcedefinitions");
        strategy.default(&mut object);
        strategy.prepare_create(&mut object);
        let served = define(&object).unwrap();
        assert_eq!(&*served[0].kind, "Widget");
        let errors = served[0].custom.as_ref().unwrap().structural.validate(&json!({"spec": {"size": 11}}), None);
        assert_eq!(errors.len(), 1);
    }
}
