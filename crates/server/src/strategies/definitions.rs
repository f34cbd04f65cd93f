//! CustomResourceDefinitions: names, versions and schemas that can be served the moment they are stored.

use kinds::field_error::FieldError;
use serde_json::{Value, json};

use super::Strategy;
use super::fill::{absent, blank, given, text, within};
use crate::registry;

pub struct Definitions;

/// Held until a controller has removed every object of the kind.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

impl Strategy for Definitions {
    fn default(&self, object: &mut Value) {
        let Some(spec) = within(object, "spec") else { return };
        if let Some(names) = within(spec, "names") {
            let kind = text(names, "kind").to_owned();
            blank(names, "singular", &kind.to_lowercase());
            blank(names, "listKind", &format!("{kind}List"));
        }
        if let Some(conversion) = within(spec, "conversion") {
            blank(conversion, "strategy", "None");
            let service = given(conversion, "webhook").and_then(|hook| given(hook, "clientConfig"));
            if let Some(service) = service.and_then(|config| given(config, "service")) {
                absent(service, "port", 443);
            }
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({});
        accept(object);
        if let Some(metadata) = within(object, "metadata") {
            absent(metadata, "finalizers", json!([]));
            if let Some(Value::Array(list)) = metadata.get_mut("finalizers")
                && !list.iter().any(|one| one == CLEANUP)
            {
                list.push(CLEANUP.into());
            }
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        object["status"] = old["status"].clone();
        accept(object);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = names(object);
        errors.extend(versions(object));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (field, pointer) in [
            ("spec.group", "/spec/group"),
            ("spec.scope", "/spec/scope"),
            ("spec.names.kind", "/spec/names/kind"),
            ("spec.names.plural", "/spec/names/plural"),
        ] {
            let value = object.pointer(pointer);
            if value != old.pointer(pointer) {
                errors.push(FieldError::invalid(field, value.cloned().unwrap_or_default(), "field is immutable"));
            }
        }
        errors
    }

    fn counts_generations(&self) -> bool {
        true
    }
}

/// The status of a definition whose names and schemas were just found good: it is served from here on.
fn accept(object: &mut Value) {
    let names = object.pointer("/spec/names").cloned().unwrap_or_default();
    let versions = object.pointer("/spec/versions").and_then(Value::as_array).cloned().unwrap_or_default();
    let stored = versions.iter().find(|version| version["storage"] == true).map(|version| version["name"].clone());
    let since = object.pointer("/metadata/creationTimestamp").cloned().unwrap_or_default();
    let Some(status) = within(object, "status") else { return };
    status["acceptedNames"] = names;
    absent(status, "storedVersions", json!([]));
    if let (Some(Value::Array(list)), Some(stored)) = (status.get_mut("storedVersions"), stored)
        && !list.contains(&stored)
    {
        list.push(stored);
    }
    absent(status, "conditions", json!([]));
    if status["conditions"].as_array().is_some_and(Vec::is_empty) {
        let condition = |kind: &str, reason: &str, message: &str| {
            json!({
                "type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since,
            })
        };
        status["conditions"] = json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ]);
    }
}

fn names(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    let (group, plural) = (text(spec, "group"), text(&spec["names"], "plural"));
    let required = [
        ("spec.group", group),
        ("spec.scope", text(spec, "scope")),
        ("spec.names.plural", plural),
        ("spec.names.kind", text(&spec["names"], "kind")),
    ];
    for (field, value) in required {
        if value.is_empty() {
            errors.push(FieldError::required(field, ""));
        }
    }
    if !group.is_empty() && !group.contains('.') {
        errors.push(FieldError::invalid("spec.group", group, "should be a domain with at least one dot"));
    }
    let scope = text(spec, "scope");
    if !scope.is_empty() && !matches!(scope, "Cluster" | "Namespaced") {
        errors.push(FieldError::not_supported("spec.scope", scope, &["Cluster", "Namespaced"]));
    }
    let (name, wanted) = (text(&object["metadata"], "name"), format!("{plural}.{group}"));
    if !group.is_empty() && !plural.is_empty() && name != wanted {
        errors.push(FieldError::invalid("metadata.name", name, "must be spec.names.plural+\".\"+spec.group"));
    }
    errors
}

fn versions(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let versions = object.pointer("/spec/versions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let stored = versions.iter().filter(|version| version["storage"] == true).count();
    if stored != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", json!(versions.len()), detail));
    }
    for (number, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{number}]");
        if text(version, "name").is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        if version.pointer("/schema/openAPIV3Schema").is_none() {
            let field = format!("{path}.schema.openAPIV3Schema");
            errors.push(FieldError::required(field, "schemas are required"));
            continue;
        }
        if let Err(found) = registry::structural(version, number) {
            errors.extend(found);
        }
        for (at, column) in version["additionalPrinterColumns"].as_array().into_iter().flatten().enumerate() {
            if let Err(error) = rules::jsonpath::JsonPath::compile(text(column, "jsonPath")) {
                let field = format!("{path}.additionalPrinterColumns[{at}].jsonPath");
                errors.push(FieldError::invalid(field, text(column, "jsonPath"), error.to_string()));
            }
        }
    }
    let webhook = text(&object["spec"]["conversion"], "strategy") == "Webhook";
    if webhook {
        let field = "spec.conversion.strategy";
        errors.push(FieldError::not_supported(field, "Webhook", &["None"]));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> Value {
        json!({
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
        })
    }

    #[test]
    fn a_definition_is_served_as_soon_as_it_is_stored() {
        let mut object = definition();
        Definitions.default(&mut object);
        Definitions.prepare_create(&mut object);
        assert_eq!(Definitions.validate(&object), []);
        assert_eq!(object["spec"]["names"]["listKind"], "WidgetList");
        assert_eq!(object["status"]["storedVersions"], json!(["v1"]));
        assert_eq!(object["status"]["conditions"][1]["type"], "Established");
        let served = registry::define(&object).unwrap();
        assert_eq!(&*served[0].kind, "Widget");
        let errors = served[0].custom.as_ref().unwrap().structural.validate(&json!({"spec": {"size": 11}}), None);
        assert_eq!(errors.len(), 1);
    }

    #[test]
    fn every_fault_of_a_definition_is_named() {
        let check = |change: fn(&mut Value), wanted: &str| {
            let mut object = definition();
            change(&mut object);
            let errors: Vec<String> = Definitions.validate(&object).iter().map(ToString::to_string).collect();
            assert!(errors.iter().any(|error| error.contains(wanted)), "{wanted}: {errors:?}");
        };
        check(|o| o["metadata"]["name"] = "x".into(), "must be spec.names.plural");
        check(|o| o["spec"]["group"] = "example".into(), "should be a domain");
        check(|o| o["spec"]["scope"] = "Galaxy".into(), "Unsupported value");
        check(|o| o["spec"]["versions"][0]["storage"] = false.into(), "exactly one version");
        check(|o| o["spec"]["versions"][0]["schema"] = json!({}), "schemas are required");
        check(|o| o["spec"]["conversion"] = json!({"strategy": "Webhook"}), "spec.conversion.strategy");
    }
}
