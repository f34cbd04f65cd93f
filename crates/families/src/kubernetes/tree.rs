//! The tree of namespaces as it is: who is whose parent, and the labels that follow from it. They are written in the commit
//! that changes the tree and put right in every other write of a namespace, so nobody leaves a quota by editing a label.
//!
//! A namespace's parent is the one its HierarchyConfiguration names. A subnamespace, which an anchor asked for and whose
//! annotation says so, is below the anchor's namespace from its first moment on, and stays there as long as the anchor does.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kinds::fields::{at, text};
use rules::GroupResource;
use serde_json::{Value, json};

use super::hierarchy::{
    CONFIGURATION_NAME, DEPTH_MAX, SUBNAMESPACE_OF, ancestors, anchors, configurations, is_tree_label, namespaces,
    tree_labels,
};
use crate::family::{Change, Dependent, Made, Near, PolicyObject, Right, World};

/// The kinds whose objects are derived here.
pub fn derived() -> Vec<GroupResource> {
    vec![namespaces(), configurations(), anchors()]
}

/// The kinds that namespaces follow.
pub fn leads() -> Vec<GroupResource> {
    derived()
}

/// Puts a namespace's labels right, and refuses what would make the tree a circle.
pub fn derive(object: &PolicyObject<'_>, near: &dyn Near) -> Result<Option<Value>, String> {
    let mut tree = Tree::read(near);
    if *object.resource == namespaces() {
        return derive_namespace(object, &mut tree, near);
    }
    if *object.resource == anchors() {
        let closes = tree.above(object.namespace)?.iter().any(|above| above == object.name);
        return if closes { Err(circle(object.namespace, object.name)) } else { Ok(None) };
    }
    check_configuration(object, &tree).map(|()| None)
}

fn derive_namespace(object: &PolicyObject<'_>, tree: &mut Tree<'_>, near: &dyn Near) -> Result<Option<Value>, String> {
    let name = object.name;
    let stored = near.get(&namespaces(), "", name);
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
        return Ok(None);
    }
    let mut namespace = object.object.clone();
    let mut labels = labels.cloned().unwrap_or_default();
    labels.retain(|label, _| !is_tree_label(label));
    labels.extend(wanted.into_iter().map(|(label, depth)| (label, Value::String(depth))));
    namespace["metadata"]["labels"] = Value::Object(labels);
    if parent != said {
        namespace["metadata"]["annotations"][SUBNAMESPACE_OF] = json!(parent);
    }
    Ok(Some(namespace))
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

/// What moving a namespace takes, as HNC asks for it: to write HierarchyConfigurations where the new parent is, and where the
/// old tree and the new one meet, or else at the root of the old one. Without it the administrator of a namespace could leave
/// the quotas above, or fill those of somebody else. To let a configuration go is to leave the tree.
pub fn rights(change: &Change<'_>, world: &dyn World) -> Vec<Right> {
    let new = change.new.unwrap_or(&Value::Null);
    if *change.resource == namespaces() {
        let (old, new) = (subnamespace_of(change.old), subnamespace_of(new));
        // A namespace that was there before its anchor asks to become its subnamespace.
        let adopts = !change.old.is_null() && !new.is_empty() && old != new;
        return if adopts { vec![relabel(change.name)] } else { Vec::new() };
    }
    if *change.resource != configurations() || change.name != CONFIGURATION_NAME {
        return Vec::new();
    }
    let parent = |configuration| text(configuration, &["spec", "parent"]).to_string();
    let (old, new) = (parent(change.old), parent(new));
    if old == new {
        return Vec::new();
    }
    let tree = Tree::read(world);
    let chain = |parent: &String| -> Vec<String> {
        let above = if parent.is_empty() { Ok(Vec::new()) } else { tree.above(parent) };
        std::iter::once(parent.clone()).chain(above.unwrap_or_default()).filter(|one| !one.is_empty()).collect()
    };
    let (old_chain, new_chain) = (chain(&old), chain(&new));
    let authorities = match old_chain.iter().find(|above| new_chain.contains(above)) {
        Some(shared) => vec![shared.clone()],
        None => old_chain.last().into_iter().cloned().chain(Some(new).filter(|new| !new.is_empty())).collect(),
    };
    let right =
        |namespace| Right { verb: "update", resource: configurations(), namespace, name: CONFIGURATION_NAME.into() };
    authorities.into_iter().map(right).collect()
}

/// The right to write on a namespace what quotas go by.
fn relabel(namespace: &str) -> Right {
    Right { verb: "relabel", resource: namespaces(), namespace: String::new(), name: namespace.into() }
}

/// The namespaces whose place in the tree this change may have moved.
pub fn followers(change: &Change<'_>, near: &dyn Near) -> Vec<Dependent> {
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
    let tree = Tree::read(near);
    moved.extend(tree.levels_below(child).into_iter().flatten());
    moved.insert(child.to_string());
    let follower = |name: String| Dependent { resource: namespaces(), namespace: "".into(), name: name.into() };
    moved.into_iter().filter(|name| !name.is_empty()).map(follower).collect()
}

fn subnamespace_of(namespace: &Value) -> &str {
    text(namespace, &["metadata", "annotations", SUBNAMESPACE_OF])
}

/// A parent and a child, as one object states it.
struct Edge {
    parent: String,
    child: String,
}

/// Who is whose parent.
struct Tree<'a> {
    world: &'a dyn World,
    configured: HashMap<String, String>,
    /// What anchors ask for. One whose namespace was there before it asks in vain.
    anchored: HashMap<String, Vec<String>>,
    /// A subnamespace that is just being written.
    confirmed: Option<(String, String)>,
}

impl<'a> Tree<'a> {
    fn read(world: &'a dyn World) -> Tree<'a> {
        let edges = |resource: &GroupResource, make: fn(&Value) -> Edge| -> Vec<Made> {
            world.made_everywhere(resource, &move |object| -> Made { Arc::new(make(object)) })
        };
        let mut tree = Tree { world, configured: HashMap::new(), anchored: HashMap::new(), confirmed: None };
        for made in edges(&configurations(), stated_by_configuration) {
            let Some(edge) = made.downcast_ref::<Edge>().filter(|edge| !edge.parent.is_empty()) else { continue };
            tree.configured.insert(edge.child.clone(), edge.parent.clone());
        }
        for made in edges(&anchors(), stated_by_anchor) {
            let Some(edge) = made.downcast_ref::<Edge>() else { continue };
            tree.anchored.entry(edge.child.clone()).or_default().push(edge.parent.clone());
        }
        tree
    }

    fn parent(&self, of: &str) -> Option<String> {
        self.anchor_of(of).or_else(|| self.configured.get(of).cloned())
    }

    fn is_anchored(&self, child: &str, parent: &str) -> bool {
        self.anchored.get(child).is_some_and(|parents| parents.iter().any(|one| one == parent))
    }

    /// The namespace whose subnamespace this is.
    fn anchor_of(&self, child: &str) -> Option<String> {
        if let Some((_, parent)) = self.confirmed.as_ref().filter(|(confirmed, _)| confirmed == child) {
            return Some(parent.clone());
        }
        if !self.anchored.contains_key(child) {
            return None;
        }
        let namespace = self.world.get(&namespaces(), "", child)?;
        let parent = subnamespace_of(&namespace);
        self.is_anchored(child, parent).then(|| parent.to_string())
    }

    fn above(&self, namespace: &str) -> Result<Vec<String>, String> {
        let too_deep = |_| format!("the tree above \"{namespace}\" is deeper than {DEPTH_MAX} namespaces, or a circle");
        ancestors(namespace, |one| self.parent(one)).map_err(too_deep)
    }

    /// Whether the namespace has a parent or a child.
    fn involves(&self, namespace: &str) -> bool {
        self.parent(namespace).is_some()
            || self.configured.values().chain(self.anchored.values().flatten()).any(|parent| parent == namespace)
    }

    /// The namespaces below one, level by level.
    fn levels_below(&self, namespace: &str) -> Vec<Vec<String>> {
        let mut children: HashMap<String, Vec<String>> = HashMap::new();
        for child in self.configured.keys().chain(self.anchored.keys()).collect::<BTreeSet<_>>() {
            if let Some(parent) = self.parent(child) {
                children.entry(parent).or_default().push(child.clone());
            }
        }
        let mut levels = Vec::new();
        let mut level = vec![namespace.to_string()];
        // Each namespace has one parent, so a walk down meets it once; the bound is for a tree that is no tree.
        for _ in 0..DEPTH_MAX {
            level = level.iter().flat_map(|parent| children.get(parent).into_iter().flatten().cloned()).collect();
            if level.is_empty() {
                break;
            }
            levels.push(level.clone());
        }
        levels
    }

    fn height(&self, namespace: &str) -> usize {
        self.levels_below(namespace).len()
    }
}

fn stated_by_configuration(configuration: &Value) -> Edge {
    let named = text(configuration, &["metadata", "name"]) == CONFIGURATION_NAME;
    let parent = if named { text(configuration, &["spec", "parent"]) } else { "" };
    Edge { parent: parent.to_string(), child: text(configuration, &["metadata", "namespace"]).to_string() }
}

fn stated_by_anchor(anchor: &Value) -> Edge {
    let text = |field| text(anchor, &["metadata", field]).to_string();
    Edge { parent: text("namespace"), child: text("name") }
}
