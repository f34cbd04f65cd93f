//! The tree of namespaces as it is: who is whose parent.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use kinds::fields::text;
use rules::GroupResource;
use serde_json::Value;

use super::labels::{DEPTH_MAX, ancestors};
use super::{CONFIGURATION_NAME, anchors, configurations, namespaces, subnamespace_of};
use crate::{Parsed, Sources, World};

/// A parent and a child, as one object states it.
struct Edge {
    parent: String,
    child: String,
}

/// What all objects state.
#[derive(Default)]
struct Stated {
    configured: HashMap<String, String>,
    /// What anchors ask for. One whose namespace was there before it asks in vain.
    anchored: HashMap<String, Vec<String>>,
    parents: HashSet<String>,
}

/// Who is whose parent.
pub(super) struct Tree<'a> {
    world: &'a dyn World,
    stated: Arc<Stated>,
    /// A subnamespace that is just being written.
    pub(super) confirmed: Option<(String, String)>,
}

impl Stated {
    fn read(world: &dyn World) -> Stated {
        let edges = |resource: &GroupResource, make: fn(&Value) -> Edge| -> Vec<Parsed> {
            world.parsed_everywhere(resource, &move |object| -> Parsed { Arc::new(make(object)) })
        };
        let mut stated = Stated::default();
        for made in edges(&configurations(), stated_by_configuration) {
            let Some(edge) = made.downcast_ref::<Edge>().filter(|edge| !edge.parent.is_empty()) else { continue };
            stated.parents.insert(edge.parent.clone());
            stated.configured.insert(edge.child.clone(), edge.parent.clone());
        }
        for made in edges(&anchors(), stated_by_anchor) {
            let Some(edge) = made.downcast_ref::<Edge>() else { continue };
            stated.parents.insert(edge.parent.clone());
            stated.anchored.entry(edge.child.clone()).or_default().push(edge.parent.clone());
        }
        stated
    }
}

impl<'a> Tree<'a> {
    pub(super) fn read(world: &'a dyn World) -> Tree<'a> {
        let sources = [configurations(), anchors()];
        let of = Sources { resources: &sources, ledger: false };
        let stated = world.derived("kubernetes/tree", of, &|| Arc::new(Stated::read(world)));
        let stated = stated.downcast::<Stated>().unwrap_or_default();
        Tree { world, stated, confirmed: None }
    }

    pub(super) fn parent(&self, of: &str) -> Option<String> {
        self.anchor_of(of).or_else(|| self.stated.configured.get(of).cloned())
    }

    pub(super) fn is_anchored(&self, child: &str, parent: &str) -> bool {
        self.stated.anchored.get(child).is_some_and(|parents| parents.iter().any(|one| one == parent))
    }

    /// The namespace whose subnamespace this is.
    pub(super) fn anchor_of(&self, child: &str) -> Option<String> {
        if let Some((_, parent)) = self.confirmed.as_ref().filter(|(confirmed, _)| confirmed == child) {
            return Some(parent.clone());
        }
        if !self.stated.anchored.contains_key(child) {
            return None;
        }
        let namespace = self.world.get(&namespaces(), "", child)?;
        let parent = subnamespace_of(&namespace);
        self.is_anchored(child, parent).then(|| parent.to_string())
    }

    pub(super) fn above(&self, namespace: &str) -> Result<Vec<String>, String> {
        let too_deep = |_| format!("the tree above \"{namespace}\" is deeper than {DEPTH_MAX} namespaces, or a circle");
        ancestors(namespace, |one| self.parent(one)).map_err(too_deep)
    }

    /// Whether the namespace has a parent or a child.
    pub(super) fn involves(&self, namespace: &str) -> bool {
        self.parent(namespace).is_some() || self.stated.parents.contains(namespace)
    }

    /// The namespaces below one, level by level.
    pub(super) fn levels_below(&self, namespace: &str) -> Vec<Vec<String>> {
        let mut children: HashMap<String, Vec<String>> = HashMap::new();
        for child in self.stated.configured.keys().chain(self.stated.anchored.keys()).collect::<BTreeSet<_>>() {
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

    pub(super) fn height(&self, namespace: &str) -> usize {
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
