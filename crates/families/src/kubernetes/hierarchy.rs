//! Quota over a tree of namespaces (hnc.x-k8s.io): a HierarchicalResourceQuota binds the namespace it lives in and
//! every namespace below it.
//!
//! Who is below whom is written in the labels `<ancestor>.tree.hnc.x-k8s.io/depth` of every namespace, so a rule only
//! has to look at one namespace. [`tree_labels`] says what they are; [`super::tree`] keeps them so, whatever anybody writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use kinds::field_error::{FieldError, Path};
use kinds::fields::text;
use rules::selector::dns_subdomain_problems;
use rules::{GroupResource, Reach};
use serde_json::Value;

use super::validate;
use crate::family::World;

pub const GROUP: &str = "hnc.x-k8s.io";
pub const QUOTAS: &str = "hierarchicalresourcequotas";
pub const CONFIGURATIONS: &str = "hierarchyconfigurations";
pub const ANCHORS: &str = "subnamespaceanchors";

/// The only name a HierarchyConfiguration may have: there is one in a namespace.
pub const CONFIGURATION_NAME: &str = "hierarchy";
const TREE_LABEL: &str = ".tree.hnc.x-k8s.io/depth";

/// The deepest tree that is followed. Each level is a label on every namespace below, and a namespace with more than
/// this many ancestors is a mistake.
pub const DEPTH_MAX: usize = 64;

/// The longest name of a namespace.
const NAMESPACE_NAME_MAX: usize = 63;

/// What keeps an anchor until its namespace has gone.
pub const FINALIZER: &str = "hnc.x-k8s.io";

/// The annotation by which a subnamespace remembers who asked for it.
pub const SUBNAMESPACE_OF: &str = "hnc.x-k8s.io/subnamespace-of";

pub fn configurations() -> GroupResource {
    GroupResource::new(GROUP, CONFIGURATIONS)
}

pub fn anchors() -> GroupResource {
    GroupResource::new(GROUP, ANCHORS)
}

pub fn namespaces() -> GroupResource {
    GroupResource::core("namespaces")
}

pub fn reach(namespace: &str) -> Reach {
    let own: Arc<str> = namespace.into();
    let label = format!("{namespace}{TREE_LABEL}");
    Reach::Selected(Arc::new(move |namespace| namespace.name == own || namespace.labels.contains_key(&label)))
}

/// Only `hard`: a hierarchical quota has no scopes.
pub fn validate_quota(quota: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = Path::new("spec");
    validate::amounts(kinds::fields::at(quota, &["spec", "hard"]), &spec.child("hard"), &mut errors);
    errors
}

/// A namespace has at most one parent, which exists, and no namespace is above itself.
pub fn validate_configuration(
    configuration: &Value,
    namespace: &str,
    name: &str,
    world: &dyn World,
) -> Vec<FieldError> {
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
pub fn validate_anchor(anchor: &Value, name: &str, allowed: &[String]) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = Vec::new();
    let is_label = dns_subdomain_problems(name).is_empty() && !name.contains('.') && name.len() <= NAMESPACE_NAME_MAX;
    if !is_label {
        let detail = "must be the name of a namespace: at most 63 lower case alphanumeric characters or '-', beginning and \
                      ending with an alphanumeric character";
        errors.push(FieldError::invalid("metadata.name", name, detail));
    }
    for field in ["labels", "annotations"] {
        for (at, pair) in kinds::fields::items(anchor, &["spec", field]).iter().enumerate() {
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
pub fn parent_of(namespace: &str, world: &dyn World) -> Option<String> {
    let configuration = world.get(&configurations(), namespace, CONFIGURATION_NAME)?;
    Some(text(&configuration, &["spec", "parent"]).to_string()).filter(|parent| !parent.is_empty())
}

/// A tree deeper than [`DEPTH_MAX`], or one that bites its tail.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TooDeep;

/// The namespaces above one, nearest first.
pub fn ancestors(namespace: &str, parent_of: impl Fn(&str) -> Option<String>) -> Result<Vec<String>, TooDeep> {
    let mut above: Vec<String> = Vec::new();
    let mut next = parent_of(namespace);
    while let Some(parent) = next {
        if above.len() == DEPTH_MAX || parent == namespace {
            return Err(TooDeep);
        }
        next = parent_of(&parent);
        above.push(parent);
    }
    Ok(above)
}

/// The labels that say where in the tree a namespace stands: itself at depth 0, its parent at 1, and so on.
pub fn tree_labels(
    namespace: &str,
    parent_of: impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>, TooDeep> {
    let above = ancestors(namespace, parent_of)?;
    let line = std::iter::once(namespace.to_string()).chain(above);
    Ok(line.enumerate().map(|(depth, name)| (format!("{name}{TREE_LABEL}"), depth.to_string())).collect())
}

/// Whether a label is one of those that [`tree_labels`] decides about.
pub fn is_tree_label(name: &str) -> bool {
    name.ends_with(TREE_LABEL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(of: &str) -> Option<String> {
        let parents = [("team", "org"), ("app", "team"), ("loop-a", "loop-b"), ("loop-b", "loop-a")];
        parents.iter().find(|(child, _)| *child == of).map(|(_, parent)| parent.to_string())
    }

    #[test]
    fn a_namespace_is_labelled_with_everything_above_it() {
        let labels = tree_labels("app", parent).unwrap();
        let shown: Vec<_> = labels.iter().map(|(name, depth)| format!("{name}={depth}")).collect();
        assert_eq!(
            shown,
            ["app.tree.hnc.x-k8s.io/depth=0", "org.tree.hnc.x-k8s.io/depth=2", "team.tree.hnc.x-k8s.io/depth=1"]
        );
        assert!(labels.keys().all(|name| is_tree_label(name)) && !is_tree_label("team"));
        assert_eq!(tree_labels("org", parent).unwrap().len(), 1);
    }

    #[test]
    fn a_circle_is_found() {
        assert_eq!(ancestors("loop-a", parent), Err(TooDeep));
        assert_eq!(
            ancestors("child", |name| Some(if name == "child" { "loop-a".into() } else { parent(name)? })),
            Err(TooDeep)
        );
    }
}
