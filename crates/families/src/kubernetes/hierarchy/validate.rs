//! What is wrong with the objects of the tree, each looked at alone.

use kinds::field_error::{FieldError, Path};
use kinds::fields::{at, items, text};
use rules::selector::dns_subdomain_problems;
use serde_json::Value;

use super::super::validate::amounts;
use super::labels::{DEPTH_MAX, TooDeep, ancestors};
use super::{CONFIGURATION_NAME, configurations, namespaces};
use crate::World;

/// The longest name of a namespace.
const NAMESPACE_NAME_MAX: usize = 63;

/// Only `hard`: a hierarchical quota has no scopes.
pub fn quota(quota: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = Path::new("spec");
    amounts(at(quota, &["spec", "hard"]), &spec.child("hard"), &mut errors);
    errors
}

/// A namespace has at most one parent, which exists, and no namespace is above itself.
pub fn configuration(configuration: &Value, namespace: &str, name: &str, world: &dyn World) -> Vec<FieldError> {
    if name != CONFIGURATION_NAME {
        let detail = format!("must be \"{CONFIGURATION_NAME}\": there is one HierarchyConfiguration in a namespace");
        return vec![FieldError::invalid("metadata.name", name, detail)];
    }
    let parent = text(configuration, &["spec", "parent"]);
    let invalid = |detail: String| vec![FieldError::invalid("spec.parent", parent, detail)];
    if parent.is_empty() {
        return Vec::new();
    }
    if parent == namespace {
        return invalid("a namespace cannot be its own parent".into());
    }
    if world.get(&namespaces(), "", parent).is_none() {
        return invalid("requested parent does not exist".into());
    }
    match ancestors(parent, |namespace| parent_of(namespace, world)) {
        Err(TooDeep) => invalid(format!("the tree would be deeper than {DEPTH_MAX} namespaces, or a circle")),
        Ok(above) if above.iter().any(|one| one == namespace) => {
            invalid(format!("cycle when setting parent: \"{parent}\" is a descendant of \"{namespace}\""))
        }
        Ok(_) => Vec::new(),
    }
}

/// An anchor is named as the namespace it asks for, so its name has to be one. What it wants written on the namespace is from a
/// list: the namespace is made with more rights than the anchor's author has, and quotas select namespaces by labels.
pub fn anchor(anchor: &Value, name: &str, allowed: &[String]) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = Vec::new();
    let is_label = dns_subdomain_problems(name).is_empty() && !name.contains('.') && name.len() <= NAMESPACE_NAME_MAX;
    if !is_label {
        let detail = "must be the name of a namespace: at most 63 lower case alphanumeric characters or '-', beginning and \
                      ending with an alphanumeric character";
        errors.push(FieldError::invalid("metadata.name", name, detail));
    }
    for field in ["labels", "annotations"] {
        for (at, pair) in items(anchor, &["spec", field]).iter().enumerate() {
            let key = text(pair, &["key"]);
            let path = format!("spec.{field}[{at}].key");
            if !allowed.iter().any(|allowed| allowed == key) {
                let detail =
                    "is not among those that a subnamespace may be given (subnamespaceLabels of the configuration)";
                errors.push(FieldError::invalid(path, key, detail));
            }
        }
    }
    errors
}

/// The parent that a namespace's configuration names.
fn parent_of(namespace: &str, world: &dyn World) -> Option<String> {
    let configuration = world.get(&configurations(), namespace, CONFIGURATION_NAME)?;
    Some(text(&configuration, &["spec", "parent"]).to_string()).filter(|parent| !parent.is_empty())
}
