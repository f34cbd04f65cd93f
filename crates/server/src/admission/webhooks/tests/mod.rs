//! Webhooks over a bare cache: who is asked, in which order, and what becomes of the answers.

mod calls;
mod matches;
mod server;

use std::collections::HashMap;
use std::sync::Arc;

use rules::GroupResource;
use serde_json::{Value, json};

use super::*;
use crate::core::{Draft, Object, ObjectKey, Publication};

/// A cache, the webhooks that follow it, and a shop to put objects in.
struct Bench {
    cache: Arc<Cache>,
    webhooks: Webhooks,
}

impl Bench {
    fn new() -> Bench {
        let cache = Arc::new(Cache::new(std::iter::empty(), &HashMap::new(), 1));
        let registry = Arc::new(Registry::new());
        let metrics = Arc::new(Metrics::new(registry.clone(), &families::Families::new(Vec::new())));
        Bench { webhooks: Webhooks::follow(&cache, &registry, &metrics), cache }
    }

    /// Stores an object, as the sequencer would.
    fn store(&self, resource: GroupResource, namespace: &str, mut value: Value) {
        value["metadata"]["uid"] = "6f1c1a52-5b1e-4d36-9a43-6f0b0a6c2d11".into();
        let name = value["metadata"]["name"].as_str().expect("a name").to_owned();
        let key = ObjectKey::new(resource, namespace, &name);
        let revision = self.cache.revision() + 1;
        let (object, _): (Object, Value) = Draft::new(value).expect("an object").finish(key, revision, revision);
        let event = Event::new(EventKind::Added, Arc::new(object), None);
        self.cache.publish(Publication { events: vec![event], revision, ..Publication::default() });
    }

    fn configure(&self, resource: &str, name: &str, hooks: Value) {
        self.store(GroupResource::new(GROUP, resource), "", json!({"metadata": {"name": name}, "webhooks": hooks}));
    }

    fn namespace(&self, name: &str, labels: Value) {
        self.store(GroupResource::core("namespaces"), "", json!({"metadata": {"name": name, "labels": labels}}));
    }
}

/// A request, owned: `OPERATION [group/]version/resource[/subresource] [namespace/]name`.
struct Asked {
    operation: Operation,
    resource: GroupResource,
    version: String,
    subresource: String,
    namespace: String,
    name: String,
    identity: Identity,
    old: Option<Value>,
    options: Value,
    dry_run: bool,
}

impl Asked {
    fn new(line: &str) -> Asked {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [operation, resource, object] = words[..] else { panic!("three words: {line}") };
        let operation = match operation {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            _ => Operation::Delete,
        };
        let (resource, subresource) = resource.split_once(':').unwrap_or((resource, ""));
        let parts: Vec<&str> = resource.split('/').collect();
        let (group, version, resource) = match parts[..] {
            [version, resource] => ("", version, resource),
            [group, version, resource] => (group, version, resource),
            _ => panic!("[group/]version/resource: {line}"),
        };
        let (namespace, name) = object.split_once('/').unwrap_or(("", object));
        Asked {
            operation,
            resource: GroupResource::new(group, resource),
            version: version.into(),
            subresource: subresource.into(),
            namespace: namespace.into(),
            name: name.into(),
            identity: Identity::authenticated("alice", ["dev"]),
            old: None,
            options: json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}),
            dry_run: false,
        }
    }

    fn request(&self) -> Request<'_> {
        Request {
            operation: self.operation,
            resource: &self.resource,
            version: &self.version,
            kind: [&self.resource.group, &self.version, "ConfigMap"],
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
            identity: &self.identity,
            old: self.old.as_ref(),
            options: &self.options,
            dry_run: self.dry_run,
        }
    }
}

/// A webhook for everything at `url`, with some fields changed.
fn hook(name: &str, url: &str, ca_bundle: &str, change: Value) -> Value {
    let mut hook = json!({
        "name": name,
        "clientConfig": {"url": url, "caBundle": ca_bundle},
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}],
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
    });
    for (field, value) in change.as_object().into_iter().flatten() {
        hook[field] = value.clone();
    }
    hook
}
