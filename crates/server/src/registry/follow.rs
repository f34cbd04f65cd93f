//! Definitions as they are stored.

use std::sync::Arc;

use rules::GroupResource;

use super::Registry;
use crate::core::{Cache, EventKind};

/// Serves the stored CustomResourceDefinitions, and every change of them before its write is answered.
pub fn follow(registry: &Arc<Registry>, cache: &Cache) {
    let definitions = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
    for definition in cache.list(&definitions).range("", None) {
        registry.definition_changed(&definition.key.name, Some(&definition.value()));
    }
    let registry = Arc::clone(registry);
    cache.observe(move |event| {
        if event.object.key.resource == definitions {
            let value = (event.kind != EventKind::Deleted).then(|| event.object.value());
            registry.definition_changed(&event.object.key.name, value.as_ref());
        }
    });
}
