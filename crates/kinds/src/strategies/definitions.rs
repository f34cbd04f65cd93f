//! CustomResourceDefinitions: names, versions and schemas that can be served the moment they are stored.

use serde_json::{Value, json};

use super::Strategy;
use super::fill::{absent, blank, given, text, within};
use crate::field_error::{FieldError, Path};
use crate::names::{NameRule, name_problems};
use crate::structural::Structural;

pub struct Definitions;

/// Held until a controller has removed every object of the kind.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Most versions of one definition. Each has a schema that is compiled; the most that projects carry along is a dozen.
const VERSIONS_MAX: usize = 64;

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
        note_stored_version(object);
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
        note_stored_version(object);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = names(object);
        errors.extend(versions(object));
        errors.extend(stored_versions(object));
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
        // What was let in unapproved stays as it is; an approval is not taken back.
        if unapproved(old).is_none() {
            errors.extend(unapproved(object));
        }
        errors
    }

    fn validate_subresource(&self, _: &str, object: &Value, _: &Value) -> Vec<FieldError> {
        stored_versions(object)
    }

    fn counts_generations(&self) -> bool {
        true
    }
}

/// From the moment a version is the stored one, there may be objects of it.
pub fn note_stored_version(object: &mut Value) {
    let versions = object.pointer("/spec/versions").and_then(Value::as_array).cloned().unwrap_or_default();
    let stored = versions.iter().find(|version| version["storage"] == true).map(|version| version["name"].clone());
    let Some(status) = within(object, "status") else { return };
    absent(status, "storedVersions", json!([]));
    if let (Some(Value::Array(list)), Some(stored)) = (status.get_mut("storedVersions"), stored)
        && !list.contains(&stored)
    {
        list.push(stored);
    }
}

/// Objects may be stored under these versions, so none of them may go; only a status says that they were migrated.
fn stored_versions(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let names = |pointer: &str| -> Vec<&str> {
        let list = object.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(|one| one.as_str().or_else(|| one.get("name")?.as_str())).collect()
    };
    let (stored, known) = (names("/status/storedVersions"), names("/spec/versions"));
    for (number, version) in stored.iter().enumerate().filter(|(_, version)| !known.contains(version)) {
        let detail = format!(
            "missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions until \
             a storage migration ensures no data remains persisted in {version} and removes {version} from \
             status.storedVersions"
        );
        errors.push(FieldError::invalid(format!("status.storedVersions[{number}]"), *version, detail));
    }
    errors
}

const APPROVAL: &str = "api-approved.kubernetes.io";
const APPROVAL_POLICY: &str = "https://github.com/kubernetes/enhancements/pull/1111";

/// Groups of the Kubernetes project are for what it has approved, or for those who say openly that it has not.
pub fn unapproved(object: &Value) -> Option<FieldError> {
    let group = text(&object["spec"], "group");
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
    if !is_protected {
        return None;
    }
    let field = format!("metadata.annotations[{APPROVAL}]");
    let approval = object.pointer("/metadata/annotations").and_then(|all| all.get(APPROVAL)).and_then(Value::as_str);
    match approval.unwrap_or_default() {
        "" => {
            let detail =
                format!("protected groups must have approval annotation \"{APPROVAL}\", see {APPROVAL_POLICY}");
            Some(FieldError::required(field, detail))
        }
        given if given.starts_with("unapproved") || is_address(given) => None,
        given => {
            let detail = format!(
                "protected groups must have approval annotation \"{APPROVAL}\" with either a URL or a reason starting \
                 with \"unapproved\", see {APPROVAL_POLICY}"
            );
            Some(FieldError::invalid(field, given, detail))
        }
    }
}

fn is_address(text: &str) -> bool {
    text.parse::<http::Uri>().is_ok_and(|uri| uri.scheme().is_some() && uri.host().is_some_and(|host| !host.is_empty()))
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
    for field in ["plural", "singular"] {
        errors.extend(not_a_label(&format!("spec.names.{field}"), text(&spec["names"], field)));
    }
    for field in ["kind", "listKind"] {
        let name = text(&spec["names"], field);
        errors.extend(not_a_label(&format!("spec.names.{field}"), &name.to_lowercase()).map(|error| {
            let detail = format!("may have mixed case, but should otherwise match: {}", error.detail);
            FieldError::invalid(error.path, name, detail)
        }));
    }
    for (list, names) in ["shortNames", "categories"].iter().map(|list| (*list, &spec["names"][*list])) {
        for (number, name) in names.as_array().into_iter().flatten().enumerate() {
            let name = name.as_str().unwrap_or_default();
            errors.extend(not_a_label(&format!("spec.names.{list}[{number}]"), name));
        }
    }
    if text(&spec["names"], "kind") == text(&spec["names"], "listKind") && !text(&spec["names"], "kind").is_empty() {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid("spec.names.listKind", text(&spec["names"], "listKind"), detail));
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

/// What is wrong with a name that is a part of paths: it has to be a DNS label, except that absence is told elsewhere.
fn not_a_label(field: &str, name: &str) -> Option<FieldError> {
    if name.is_empty() {
        return None;
    }
    let problem = name_problems(name, NameRule::Label1035).into_iter().next()?;
    Some(FieldError::invalid(field, name, problem))
}

fn versions(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let versions = object.pointer("/spec/versions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let stored = versions.iter().filter(|version| version["storage"] == true).count();
    if stored != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", json!(versions.len()), detail));
    }
    if versions.len() > VERSIONS_MAX {
        errors.push(FieldError::too_many("spec.versions", versions.len(), VERSIONS_MAX));
        return errors;
    }
    let unique: std::collections::HashSet<&str> = versions.iter().map(|version| text(version, "name")).collect();
    if unique.len() < versions.len() {
        let detail = "must contain unique version names";
        errors.push(FieldError::invalid("spec.versions", json!(versions.len()), detail));
    }
    for (number, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{number}]");
        if text(version, "name").is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        errors.extend(not_a_label(&format!("{path}.name"), text(version, "name")));
        if version.pointer("/schema/openAPIV3Schema").is_none() {
            let field = format!("{path}.schema.openAPIV3Schema");
            errors.push(FieldError::required(field, "schemas are required"));
            continue;
        }
        if let Err(found) = structural(version, number) {
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

/// The compiled schema of the n-th version. A version without one keeps whatever it is sent.
pub fn structural(version: &Value, number: usize) -> Result<Structural, Vec<FieldError>> {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = version.pointer("/schema/openAPIV3Schema").unwrap_or(&open);
    let (spec, versions) = (Path::new("spec"), "versions");
    let versions = spec.child(versions);
    let version = versions.index(number);
    let inner = version.child("schema");
    Structural::compile(schema, &inner.child("openAPIV3Schema"))
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
    fn a_definition_can_be_served_as_soon_as_it_is_stored() {
        let mut object = definition();
        Definitions.default(&mut object);
        Definitions.prepare_create(&mut object);
        assert_eq!(Definitions.validate(&object), []);
        assert_eq!(object["spec"]["names"]["listKind"], "WidgetList");
        assert_eq!(object["status"]["storedVersions"], json!(["v1"]));
        let schema = structural(&object["spec"]["versions"][0], 0).unwrap();
        assert_eq!(schema.validate(&json!({"spec": {"size": 11}}), None).len(), 1);
    }

    #[test]
    fn a_version_that_objects_may_be_stored_under_stays() {
        let mut old = definition();
        Definitions.prepare_create(&mut old);
        let mut new = old.clone();
        new["spec"]["versions"][0]["name"] = "v2".into();
        Definitions.prepare_update(&mut new, &old);
        assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
        let errors: Vec<String> = Definitions.validate(&new).iter().map(ToString::to_string).collect();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(
            errors[0]
                .starts_with("status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was")
        );
        new["status"]["storedVersions"] = json!(["v2"]);
        assert_eq!(Definitions.validate_subresource("status", &new, &old), []);
        new["status"]["storedVersions"] = json!([]);
        note_stored_version(&mut new);
        assert_eq!(new["status"]["storedVersions"], json!(["v2"]));
    }

    #[test]
    fn groups_of_the_kubernetes_project_need_an_approval() {
        for (group, approval, refused) in [
            ("example.com", "", false),
            ("mykubernetes.io", "", false),
            ("hnc.x-k8s.io", "", false),
            ("k8s.io", "", true),
            ("rbac.authorization.k8s.io", "", true),
            ("a.kubernetes.io", "", true),
            ("a.kubernetes.io", "unapproved, for a test", false),
            ("a.kubernetes.io", "https://github.com/kubernetes/kubernetes/pull/78458", false),
            ("a.kubernetes.io", "yes", true),
        ] {
            let object = json!({"metadata": {"annotations": {(APPROVAL): approval}}, "spec": {"group": group}});
            assert_eq!(unapproved(&object).is_some(), refused, "{group} {approval}");
        }
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
        check(|o| o["spec"]["names"]["plural"] = "wid.gets".into(), "spec.names.plural: Invalid value");
        check(|o| o["spec"]["names"]["kind"] = "Wid/get".into(), "spec.names.kind: Invalid value");
        check(|o| o["spec"]["names"]["shortNames"] = json!(["W W"]), "spec.names.shortNames[0]: Invalid value");
        check(|o| o["spec"]["names"]["listKind"] = "Widget".into(), "kind and listKind may not be the same");
        check(|o| o["spec"]["versions"][0]["name"] = "v/1".into(), "spec.versions[0].name: Invalid value");
        check(
            |o| {
                let version = o["spec"]["versions"][0].clone();
                o["spec"]["versions"] = json!([version.clone(), version]);
            },
            "unique version names",
        );
        check(|o| o["spec"]["conversion"] = json!({"strategy": "Webhook"}), "spec.conversion.strategy");
    }
}
