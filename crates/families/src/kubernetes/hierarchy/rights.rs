//! Who may change the tree.

use kinds::fields::text;
use serde_json::Value;

use super::tree::Tree;
use super::{CONFIGURATION_NAME, configurations, namespaces, subnamespace_of};
use crate::{Change, Right, World};

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
