//! The labels that follow from who is whose parent ([`Tree`]). They are written in the commit
//! that changes the tree and put right in every other write of a namespace, so nobody leaves a quota by editing a label.
//!
//! A namespace's parent is the one its HierarchyConfiguration names. A subnamespace, which an anchor asked for and whose
//! annotation says so, is below the anchor's namespace from its first moment on, and stays there as long as the anchor does.

use std::collections::{BTreeMap, BTreeSet};

use kinds::fields::{at, text};
use serde_json::{Value, json};

use super::labels::{DEPTH_MAX, is_tree_label, tree_labels};
use super::tree::Tree;
use super::{CONFIGURATION_NAME, SUBNAMESPACE_OF, anchors, configurations, namespaces, subnamespace_of};
use crate::{Change, Must, Place, PolicyObject, View};

/// Puts a namespace's labels right, and refuses what would make the tree a circle.
pub fn must_be(object: &PolicyObject<'_>, view: &dyn View) -> Result<Must, String> {
    let mut tree = Tree::read(view);
    if *object.resource == namespaces() {
        return shape_namespace(object, &mut tree, view);
    }
    if *object.resource == anchors() {
        let closes = tree.above(object.namespace)?.iter().any(|above| above == object.name);
        return if closes { Err(circle(object.namespace, object.name)) } else { Ok(Must::AsItIs) };
    }
    check_configuration(object, &tree).map(|()| Must::AsItIs)
}

fn shape_namespace(object: &PolicyObject<'_>, tree: &mut Tree<'_>, view: &dyn View) -> Result<Must, String> {
    let name = object.name;
    let stored = view.get(&namespaces(), "", name);
    let kept = stored.as_deref().map(subnamespace_of).filter(|parent| tree.is_anchored(name, parent));
    let said = subnamespace_of(object.object);
    let parent = kept.unwrap_or(said);
    if tree.is_anchored(name, parent) {
        tree.confirmed = Some((name.to_string(), parent.to_string()));
    }
    let wanted = if tree.involves(name) {
        tree_labels(name, |one| tree.parent(one)).map_err(|_| circle(parent, name))?
    } else {
        BTreeMap::new()
    };
    let labels = at(object.object, &["metadata", "labels"]).and_then(Value::as_object);
    let shown: BTreeMap<&str, &str> = labels
        .into_iter()
        .flatten()
        .filter(|(label, _)| is_tree_label(label))
        .map(|(label, depth)| (label.as_str(), depth.as_str().unwrap_or("")))
        .collect();
    if shown == wanted.iter().map(|(label, depth)| (label.as_str(), depth.as_str())).collect() && parent == said {
        return Ok(Must::AsItIs);
    }
    let mut namespace = object.object.clone();
    let mut labels = labels.cloned().unwrap_or_default();
    labels.retain(|label, _| !is_tree_label(label));
    labels.extend(wanted.into_iter().map(|(label, depth)| (label, Value::String(depth))));
    namespace["metadata"]["labels"] = Value::Object(labels);
    if parent != said {
        namespace["metadata"]["annotations"][SUBNAMESPACE_OF] = json!(parent);
    }
    Ok(Must::Be(namespace))
}

/// What the write of a configuration finds in the step that decides it; two writes that close a circle together are both
/// valid when each is looked at alone.
fn check_configuration(object: &PolicyObject<'_>, tree: &Tree<'_>) -> Result<(), String> {
    let (namespace, parent) = (object.namespace, text(object.object, &["spec", "parent"]));
    if object.name != CONFIGURATION_NAME || parent.is_empty() {
        return Ok(());
    }
    if let Some(fixed) = tree.anchor_of(namespace).filter(|fixed| fixed != parent) {
        return Err(format!("namespace \"{namespace}\" is a subnamespace of \"{fixed}\" and cannot be moved"));
    }
    let above = tree.above(parent)?;
    if parent == namespace || above.iter().any(|one| one == namespace) {
        return Err(circle(parent, namespace));
    }
    if above.len() + 1 + tree.height(namespace) > DEPTH_MAX {
        return Err(format!("the tree would be deeper than {DEPTH_MAX} namespaces"));
    }
    Ok(())
}

fn circle(parent: &str, namespace: &str) -> String {
    format!("cycle when setting parent: \"{parent}\" is a descendant of \"{namespace}\"")
}

/// The namespaces whose place in the tree this change may have moved.
pub fn moved_by(change: &Change<'_>, view: &dyn View) -> Vec<Place> {
    let (old, new) = (change.old, change.new.unwrap_or(&Value::Null));
    let mut moved: BTreeSet<String> = BTreeSet::new();
    let child = if *change.resource == configurations() {
        moved.extend([old, new].map(|one| text(one, &["spec", "parent"]).to_string()));
        change.namespace
    } else if *change.resource == anchors() {
        moved.insert(change.namespace.to_string());
        change.name
    } else if subnamespace_of(old) != subnamespace_of(new) {
        moved.insert(subnamespace_of(new).to_string());
        change.name
    } else {
        return Vec::new();
    };
    let tree = Tree::read(view);
    moved.extend(tree.levels_below(child).into_iter().flatten());
    moved.insert(child.to_string());
    let follower = |name: String| Place::new(namespaces(), "", &name);
    moved.into_iter().filter(|name| !name.is_empty()).map(follower).collect()
}
