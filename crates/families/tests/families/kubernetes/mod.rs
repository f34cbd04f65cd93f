//! Kubernetes: ResourceQuota, and quotas over several namespaces.

use engine::ObjectKey;
use families::kubernetes::Settings;
use rules::GroupResource;
use serde_json::{Value, json};

use crate::desk::{Desk, resource};

mod flow;
mod relatives;
mod scoped;

fn quotas() -> GroupResource {
    resource("resourcequotas")
}

/// A pod whose one container requests this much.
fn pod(requests: Value) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}})
}

impl Desk {
    /// A desk with the namespace `ns`.
    fn in_ns() -> Desk {
        Desk::in_ns_with(Settings::default())
    }

    fn in_ns_with(kubernetes: Settings) -> Desk {
        let mut desk = Desk::with(families::Settings { kubernetes, ..families::Settings::default() });
        desk.namespace("ns", &[]);
        desk
    }

    fn quota(&mut self, name: &str, hard: Value) {
        self.scoped_quota(name, json!({"hard": hard}));
    }

    fn scoped_quota(&mut self, name: &str, spec: Value) {
        self.apply(&quotas(), "ns", name, json!({"spec": spec})).unwrap();
    }

    /// Creates an object in the namespace `ns`: where it is now, or why not.
    fn create(&mut self, of: &str, object: Value) -> Result<ObjectKey, String> {
        self.create_in("ns", of, object)
    }

    fn create_in(&mut self, namespace: &str, of: &str, object: Value) -> Result<ObjectKey, String> {
        let key = ObjectKey::new(resource(of), namespace, &format!("x{}", self.uids));
        self.update(&key, object).map(|()| key)
    }

    fn update(&mut self, key: &ObjectKey, object: Value) -> Result<(), String> {
        self.apply(&key.resource, &key.namespace, &key.name, object)
    }

    fn remove(&mut self, key: &ObjectKey) {
        self.delete(&key.resource, &key.namespace, &key.name).unwrap();
    }

    /// `name=used` of a quota in the namespace `ns`, as its status shows it.
    fn used(&self, quota: &str) -> String {
        let used = self.status(&quotas(), "ns", quota)["used"].as_object().cloned().unwrap_or_default();
        used.iter().map(|(name, used)| format!("{name}={}", used.as_str().unwrap())).collect::<Vec<_>>().join(" ")
    }
}
