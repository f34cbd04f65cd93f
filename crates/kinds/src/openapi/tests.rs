use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{CustomResource, Document, custom, documents, index};

fn document(path: &str) -> Value {
    let found = documents().iter().find(|document| document.path == path).expect(path);
    serde_json::from_slice(&found.body).expect("JSON")
}

/// Every reference of a document, wherever it stands.
fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(map) => {
            if let Some(name) = map.get("$ref").and_then(Value::as_str) {
                found.insert(name);
            }
            map.values().for_each(|child| references(child, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

fn holds_together(document: &Document) {
    let value: Value = serde_json::from_slice(&document.body).expect("JSON");
    let mut found = BTreeSet::new();
    references(&value, &mut found);
    for name in found {
        let name = name.strip_prefix("#/components/schemas/").expect(name);
        assert!(value["components"]["schemas"].get(name).is_some(), "{}: {name}", document.path);
    }
}

#[test]
fn every_reference_leads_somewhere() {
    assert!(documents().len() >= 15);
    documents().iter().for_each(holds_together);
}

#[test]
fn the_index_names_every_document_with_its_hash() {
    let index = index(documents());
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
    assert!(url.starts_with("/openapi/v3/apis/apps/v1?hash="), "{url}");
    assert_eq!(index["paths"].as_object().unwrap().len(), documents().len());
}

#[test]
fn kubectl_finds_what_it_looks_for() {
    let core = document("api/v1");
    let patch = &core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"], json!({"group": "", "version": "v1", "kind": "Pod"}));
    assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_some());
    let names: Vec<_> = patch["parameters"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert!(names.contains(&&json!("fieldValidation")) && names.contains(&&json!("dryRun")));

    let schemas = &core["components"]["schemas"];
    let spec = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"];
    assert_eq!(spec["containers"]["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(spec["containers"]["x-kubernetes-list-type"], "map");
    assert_eq!(spec["volumes"]["x-kubernetes-patch-strategy"], "merge,retainKeys");
    assert_eq!(schemas["io.k8s.api.core.v1.ObjectReference"]["x-kubernetes-map-type"], "atomic");
    let volume = &schemas["io.k8s.api.core.v1.PersistentVolumeSpec"]["properties"];
    assert_eq!(volume["claimRef"]["x-kubernetes-map-type"], "granular");
    let quota = &schemas["io.k8s.api.core.v1.ResourceQuota"];
    assert_eq!(
        quota["x-kubernetes-group-version-kind"],
        json!([{"group": "", "version": "v1", "kind": "ResourceQuota"}])
    );
    assert!(quota["properties"]["spec"]["description"].as_str().is_some_and(|words| !words.is_empty()));
    assert_eq!(
        schemas["io.k8s.apimachinery.pkg.api.resource.Quantity"]["oneOf"],
        json!([{"type": "string"}, {"type": "number"}])
    );
}

#[test]
fn a_custom_resource_has_its_own_document() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "description": "Wanted."}}});
    let crontab = CustomResource {
        kind: "CronTab",
        list_kind: "CronTabList",
        plural: "crontabs",
        namespaced: true,
        schema: &schema,
        status: true,
        scale: true,
    };
    let made = custom("stable.example.com", "v1", &[crontab]);
    holds_together(&made);
    assert_eq!(made.path, "apis/stable.example.com/v1");
    let value: Value = serde_json::from_slice(&made.body).unwrap();
    let schema = &value["components"]["schemas"]["com.example.stable.v1.CronTab"];
    assert_eq!(schema["properties"]["spec"]["description"], "Wanted.");
    let patch = &value["paths"]["/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}"]["patch"];
    assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_none());
    assert!(value["paths"].get("/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}/scale").is_some());
    let again = custom("stable.example.com", "v1", &[]);
    assert_ne!(again.hash, made.hash);
}
