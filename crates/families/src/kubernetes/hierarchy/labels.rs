//! The labels that say where in the tree a namespace stands, and what is above it.

use std::collections::BTreeMap;
use std::sync::Arc;

use rules::Reach;

const TREE_LABEL: &str = ".tree.hnc.x-k8s.io/depth";

/// The deepest tree that is followed. Each level is a label on every namespace below, and a namespace with more than
/// this many ancestors is a mistake.
pub const DEPTH_MAX: usize = 64;

/// The namespace and everything below it.
pub fn reach(namespace: &str) -> Reach {
    let own: Arc<str> = namespace.into();
    let label = format!("{namespace}{TREE_LABEL}");
    Reach::Selected(Arc::new(move |namespace| namespace.name == own || namespace.labels.contains_key(&label)))
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
