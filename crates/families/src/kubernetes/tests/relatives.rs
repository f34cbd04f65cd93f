//! What depends on other objects: usage that is posted, trees of namespaces, resources that need a quota.

use std::sync::Arc;

use rules::GroupResource;
use serde_json::{Value, json};

use crate::kubernetes::{Kubernetes, Settings, limited};
use crate::{Admission, Change, Family, Operation, World};

/// A pod whose one container requests this much.
fn pod(requests: Value) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}})
}

/// Stored objects by resource, namespace and name.
#[derive(Default)]
struct Shelf(Vec<(GroupResource, String, Arc<Value>)>);

impl Shelf {
    fn with(mut self, resource: GroupResource, namespace: &str, object: Value) -> Self {
        self.0.push((resource, namespace.into(), Arc::new(object)));
        self
    }
}

impl World for Shelf {
    fn list(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Value>> {
        let found = self.0.iter().filter(|(of, at, _)| of == resource && at == namespace);
        found.map(|(_, _, object)| object.clone()).collect()
    }

    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.list(resource, namespace).into_iter().find(|object| object["metadata"]["name"] == name)
    }
}

#[test]
fn usage_is_posted_on_the_version_that_was_read() {
    let family = Kubernetes::new(Settings::default());
    let resource = GroupResource::core("resourcequotausages");
    let post = |document: Value| family.virtual_write(&resource, "ns", &document).unwrap();
    let status = json!({"hard": {"pods": "2"}, "used": {"pods": "1"}});
    let write = post(json!({"metadata": {"name": "q", "resourceVersion": "7"}, "status": status})).unwrap();
    assert!(write.resource.is("", "resourcequotas"));
    assert_eq!((&*write.name, &*write.resource_version, &write.status), ("q", "7", &status));
    for (document, wanted) in [
        (json!({"metadata": {"name": "q"}}), "metadata.resourceVersion: Required value"),
        (json!({"metadata": {"resourceVersion": "7"}}), "metadata.name: Required value"),
        (
            json!({"metadata": {"name": "q", "namespace": "other", "resourceVersion": "7"}}),
            "the namespace of the provided",
        ),
    ] {
        let error = post(document).unwrap_err();
        assert!(error.starts_with(wanted), "{error}");
    }
    assert!(family.virtual_write(&GroupResource::core("pods"), "ns", &json!({})).is_none());
}

#[test]
fn a_tree_has_one_parent_each_and_no_circles() {
    let configurations = GroupResource::new("hnc.x-k8s.io", "hierarchyconfigurations");
    let namespace = |name: &str| json!({"metadata": {"name": name}});
    let parent = |name: &str| json!({"metadata": {"name": "hierarchy"}, "spec": {"parent": name}});
    let world = Shelf::default()
        .with(GroupResource::core("namespaces"), "", namespace("org"))
        .with(GroupResource::core("namespaces"), "", namespace("team"))
        .with(GroupResource::core("namespaces"), "", namespace("app"))
        .with(configurations.clone(), "team", parent("org"))
        .with(configurations.clone(), "app", parent("team"));
    let family = Kubernetes::new(Settings::default());
    let write = |at: &str, name: &str, mut object: Value| {
        let request = Admission {
            operation: Operation::Create,
            resource: &configurations,
            subresource: "",
            namespace: at,
            name,
            object: &mut object,
            old: None,
            origin: &crate::Origin::default(),
        };
        kinds::field_error::join(&family.validate(&request, &world).errors)
    };
    assert_eq!(write("app", "hierarchy", parent("org")), "[]");
    assert_eq!(write("app", "hierarchy", json!({})), "[]");
    for (at, name, object, wanted) in [
        ("app", "tree", parent("org"), "metadata.name: Invalid value: \"tree\": must be \"hierarchy\""),
        (
            "org",
            "hierarchy",
            parent("org"),
            "spec.parent: Invalid value: \"org\": a namespace cannot be its own parent",
        ),
        ("org", "hierarchy", parent("gone"), "spec.parent: Invalid value: \"gone\": requested parent does not exist"),
        ("org", "hierarchy", parent("app"), "spec.parent: Invalid value: \"app\": cycle when setting parent"),
    ] {
        let error = write(at, name, object);
        assert!(error.starts_with(wanted), "{error}");
    }
}

#[test]
fn limited_resources_need_a_quota() {
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "ResourceQuotaConfiguration",
        "limitedResources": [
            {"resource": "pods", "matchContains": ["cpu", "pods"]},
            {"resource": "services", "matchContains": ["loadbalancers"]},
            {"resource": "pods", "matchScopes": [{"scopeName": "PriorityClass", "operator": "In", "values": ["pc1", "pc2"]}]},
        ],
    });
    let limited = limited::read_configuration(&configuration).unwrap();
    let family = Kubernetes::new(Settings { limited, ..Settings::default() });
    let quotas = GroupResource::core("resourcequotas");
    let write = |resource: &str, object: Value, old: Option<Value>, specs: &[Value]| {
        let mut world = Shelf::default();
        for spec in specs {
            world = world.with(quotas.clone(), "ns", json!({"spec": spec}));
        }
        let resource = GroupResource::core(resource);
        let (resource, old) = (&resource, old.unwrap_or_default());
        let change = Change {
            resource,
            namespace: "ns",
            name: "x",
            old: &old,
            new: Some(&object),
            origin: &crate::Origin::default(),
        };
        family.check_limited(&change, &world).err().unwrap_or_default()
    };
    let plain = || pod(json!({"cpu": "1", "memory": "1"}));
    let insufficient = "insufficient quota to consume: count/pods,cpu,pods,requests.cpu";
    assert_eq!(write("pods", plain(), None, &[]), insufficient);
    let most = json!({"hard": {"count/pods": "1", "cpu": "1", "requests.cpu": "1"}});
    assert_eq!(write("pods", plain(), None, std::slice::from_ref(&most)), "insufficient quota to consume: pods");
    let elsewhere = json!({"hard": {"pods": "1"}, "scopes": ["Terminating"]});
    assert_eq!(write("pods", plain(), None, &[most.clone(), elsewhere]), "insufficient quota to consume: pods");
    let rest = json!({"hard": {"pods": "1"}});
    assert_eq!(write("pods", plain(), None, &[most.clone(), rest.clone()]), "");
    assert_eq!(write("pods", plain(), Some(plain()), &[]), "", "nothing grows");

    let mut classed = plain();
    classed["spec"]["priorityClassName"] = json!("pc1");
    assert_eq!(
        write("pods", classed.clone(), None, &[most.clone(), rest.clone()]),
        "insufficient quota to match these scopes: [{PriorityClass In [pc1 pc2]}]"
    );
    let covering = json!({"hard": {"pods": "1"}, "scopes": ["PriorityClass"]});
    assert_eq!(write("pods", classed, None, &[most, rest, covering]), "");

    let service = |kind: &str| json!({"spec": {"type": kind, "ports": [{"port": 1}]}});
    assert_eq!(write("services", service("ClusterIP"), None, &[]), "");
    let refused = "insufficient quota to consume: services.loadbalancers";
    assert_eq!(write("services", service("LoadBalancer"), None, &[]), refused);
    assert_eq!(write("services", service("LoadBalancer"), Some(service("NodePort")), &[]), refused);
    assert_eq!(write("configmaps", json!({}), None, &[]), "");
}

#[test]
fn a_wrong_configuration_is_refused() {
    for (document, wanted) in [
        (json!({}), "no kind \"\" is known"),
        (json!({"apiVersion": "v1", "kind": "ResourceQuotaConfiguration"}), "no kind \"ResourceQuotaConfiguration\""),
        (
            json!({"apiVersion": "resourcequota.admission.k8s.io/v1beta1", "kind": "Configuration", "limits": []}),
            "strict decoding error: unknown field \"limits\"",
        ),
        (
            json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration", "limitedResources": [{}]}),
            "limitedResources: resource: Required value",
        ),
    ] {
        let error = limited::read_configuration(&document).unwrap_err();
        assert!(error.starts_with(wanted), "{error}");
    }
}
