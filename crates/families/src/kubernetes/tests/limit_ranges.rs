use std::sync::Arc;

use rules::GroupResource;
use serde_json::{Value, json};

use crate::kubernetes::{Kubernetes, Settings};
use crate::{Admission, Family, Operation, World};

/// A world of LimitRanges.
struct Ranges(Vec<Arc<Value>>);

impl World for Ranges {
    fn list(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Value>> {
        assert!(resource.is("", "limitranges") && namespace == "ns");
        self.0.clone()
    }

    fn get(&self, _: &GroupResource, _: &str, _: &str) -> Option<Arc<Value>> {
        None
    }
}

fn admit_as(
    operation: Operation,
    (resource, subresource): (&str, &str),
    items: Value,
    object: Value,
) -> Result<Value, String> {
    let mut range = json!({"metadata": {"name": "r"}, "spec": {"limits": items}});
    let family = Kubernetes::new(Settings::default());
    let write = |resource: &str, operation, subresource: &str, object: &mut Value, world: &Ranges| {
        let resource = GroupResource::core(resource);
        let mut request = Admission {
            operation,
            resource: &resource,
            subresource,
            namespace: "ns",
            name: "x",
            object,
            old: None,
            origin: &crate::Origin::default(),
        };
        family.admit(&mut request, world)?;
        let errors = family.validate(&request, world).errors;
        if errors.is_empty() { Ok(()) } else { Err(kinds::field_error::join(&errors)) }
    };
    write("limitranges", Operation::Create, "", &mut range, &Ranges(Vec::new()))?;
    let mut object = object;
    write(resource, operation, subresource, &mut object, &Ranges(vec![Arc::new(range)]))?;
    Ok(object)
}

fn admit(items: Value, object: Value) -> Result<Value, String> {
    admit_as(Operation::Create, ("pods", ""), items, object)
}

fn pod(requests: Value, limits: Value) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests, "limits": limits}}]}})
}

#[test]
fn containers_get_the_defaults_they_do_not_state() {
    let items = json!([{
        "type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "500m"},
    }]);
    let spec = json!({
        "containers": [{"name": "a"}, {"name": "b", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}}],
        "initContainers": [{"name": "i", "resources": {"limits": {"memory": "2Gi"}}}],
    });
    let admitted = admit(items, json!({"spec": spec})).unwrap();
    let all = json!({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}});
    assert_eq!(admitted["spec"]["containers"][0]["resources"], all);
    assert_eq!(
        admitted["spec"]["containers"][1]["resources"],
        json!({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "3", "memory": "1Gi"}})
    );
    assert_eq!(
        admitted["spec"]["initContainers"][0]["resources"],
        json!({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}})
    );
    assert_eq!(
        admitted["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu, memory request for container a; cpu, memory limit for container a; \
         memory request for container b; memory limit for container b; \
         cpu, memory request for init container i; cpu limit for init container i"
    );
}

#[test]
fn nothing_is_said_when_nothing_was_missing() {
    let items = json!([{"type": "Container", "default": {"cpu": "1"}}]);
    let whole = pod(json!({"cpu": "1"}), json!({"cpu": "1"}));
    assert_eq!(admit(items, whole.clone()).unwrap(), whole);
    let items = json!([{"type": "Pod", "max": {"cpu": "1"}}]);
    assert_eq!(admit(items, whole.clone()).unwrap(), whole);
}

#[test]
fn a_limit_range_completes_itself() {
    let family = Kubernetes::new(Settings::default());
    let mut range = json!({"spec": {"limits": [
        {"type": "Container", "max": {"cpu": "4", "memory": "1500u"}, "min": {"cpu": "1", "a/b": "1"}, "default": {"cpu": "2"}},
        {"type": "Container", "min": {"cpu": "1"}},
        {"type": "Pod", "max": {"cpu": "4"}},
    ]}});
    let resource = GroupResource::core("limitranges");
    let mut request = Admission {
        operation: Operation::Create,
        resource: &resource,
        subresource: "",
        namespace: "ns",
        name: "r",
        object: &mut range,
        old: None,
        origin: &crate::Origin::default(),
    };
    family.admit(&mut request, &Ranges(Vec::new())).unwrap();
    assert_eq!(
        range["spec"]["limits"],
        json!([
            {
                "type": "Container", "max": {"cpu": "4", "memory": "2m"}, "min": {"cpu": "1", "a/b": "1"},
                "default": {"cpu": "2", "memory": "2m"}, "defaultRequest": {"cpu": "2", "memory": "2m", "a/b": "1"},
            },
            {"type": "Container", "min": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}},
            {"type": "Pod", "max": {"cpu": "4"}},
        ])
    );
}

#[test]
fn every_refusal_in_kubernetes_words() {
    let least = |kind: &str| json!([{"type": kind, "min": {"cpu": "100m"}}]);
    let most = |kind: &str| json!([{"type": kind, "max": {"memory": "1Gi"}}]);
    let ratio = |kind: &str| json!([{"type": kind, "maxLimitRequestRatio": {"cpu": "2"}}]);
    let none = json!({});
    let cases = vec![
        // The default request of a container with a minimum is the minimum, so only a pod can state nothing.
        (least("Pod"), pod(none.clone(), none.clone()), "minimum cpu usage per Pod is 100m.  No request is specified"),
        (
            least("Container"),
            pod(json!({"cpu": "50m"}), none.clone()),
            "minimum cpu usage per Container is 100m, but request is 50m",
        ),
        (
            least("Container"),
            pod(json!({"cpu": "1"}), json!({"cpu": "50m"})),
            "minimum cpu usage per Container is 100m, but limit is 50m",
        ),
        (most("Pod"), pod(none.clone(), none.clone()), "maximum memory usage per Pod is 1Gi.  No limit is specified"),
        (
            most("Pod"),
            pod(none.clone(), json!({"memory": "2Gi"})),
            "maximum memory usage per Pod is 1Gi, but limit is 2Gi",
        ),
        (
            most("Container"),
            pod(json!({"memory": "2Gi"}), json!({"memory": "1Gi"})),
            "maximum memory usage per Container is 1Gi, but request is 2Gi",
        ),
        (
            ratio("Container"),
            pod(json!({"cpu": "1"}), json!({"cpu": "4"})),
            "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000",
        ),
        (
            ratio("Container"),
            pod(json!({"cpu": "3"}), json!({"cpu": "7"})),
            "cpu max limit to request ratio per Container is 2, but provided ratio is 2.333333",
        ),
        (
            ratio("Pod"),
            pod(json!({"cpu": "0"}), json!({"cpu": "4"})),
            "cpu max limit to request ratio per Pod is 2, but no request is specified or request is 0",
        ),
        (
            ratio("Pod"),
            pod(json!({"cpu": "1"}), none.clone()),
            "cpu max limit to request ratio per Pod is 2, but no limit is specified or limit is 0",
        ),
    ];
    for (items, pod, wanted) in cases {
        assert_eq!(admit(items.clone(), pod.clone()).unwrap_err(), wanted, "{items} {pod}");
    }
    admit(ratio("Container"), pod(json!({"cpu": "1"}), json!({"cpu": "2"}))).unwrap();
    let both = json!([{"type": "Container", "min": {"cpu": "100m"}, "max": {"memory": "1Gi"}}]);
    let twice = json!({"spec": {"containers": [
        {"name": "a", "resources": {"requests": {"cpu": "50m"}, "limits": {"memory": "2Gi", "cpu": "1"}}},
        {"name": "b", "resources": {"requests": {"cpu": "50m"}, "limits": {"memory": "1Gi", "cpu": "1"}}},
    ]}});
    assert_eq!(
        admit(both, twice).unwrap_err(),
        "[minimum cpu usage per Container is 100m, but request is 50m, \
         maximum memory usage per Container is 1Gi, but limit is 2Gi]"
    );
}

#[test]
fn volume_claims_are_bounded_on_create_and_update() {
    let items = json!([{"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}]);
    let claim = |requests: Value| json!({"spec": {"resources": {"requests": requests}}});
    for operation in [Operation::Create, Operation::Update] {
        let write = |requests| admit_as(operation, ("persistentvolumeclaims", ""), items.clone(), claim(requests));
        write(json!({"storage": "1536Mi"})).unwrap();
        let small = "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi";
        assert_eq!(write(json!({"storage": "1Mi"})).unwrap_err(), small);
        let large = "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi";
        assert_eq!(write(json!({"storage": "3Gi"})).unwrap_err(), large);
        let none = "[minimum storage usage per PersistentVolumeClaim is 1Gi.  No request is specified, \
            maximum storage usage per PersistentVolumeClaim is 2Gi.  No request is specified]";
        assert_eq!(write(json!({})).unwrap_err(), none);
    }
    admit_as(Operation::Status, ("persistentvolumeclaims", ""), items, claim(json!({"storage": "3Gi"}))).unwrap();
}

#[test]
fn pods_are_looked_at_when_created_or_resized() {
    let items = json!([{"type": "Container", "max": {"cpu": "1"}}]);
    let large = pod(json!({"cpu": "1"}), json!({"cpu": "2"}));
    let write = |operation, subresource| admit_as(operation, ("pods", subresource), items.clone(), large.clone());
    assert!(write(Operation::Create, "").is_err());
    assert!(write(Operation::Update, "resize").is_err());
    write(Operation::Update, "").unwrap();
    write(Operation::Status, "status").unwrap();
    let silent = pod(json!({}), json!({}));
    let resized = admit_as(Operation::Update, ("pods", "resize"), items.clone(), silent);
    assert_eq!(resized.unwrap_err(), "maximum cpu usage per Container is 1.  No limit is specified");
}

#[test]
fn what_may_not_be_written_in_a_limit_range() {
    let write = |items| admit_as(Operation::Create, ("configmaps", ""), items, json!({})).err().unwrap_or_default();
    let cases = vec![
        (
            json!([{"type": "Nothing"}]),
            "spec.limits[0].type: Invalid value: \"Nothing\": must be a standard limit type or fully qualified",
        ),
        (json!([{"type": "Pod"}, {"type": "Pod"}]), "spec.limits[1].type: Duplicate value: \"Pod\""),
        (
            json!([{"type": "Pod", "default": {"cpu": "1"}}]),
            "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
        ),
        (
            json!([{"type": "Pod", "defaultRequest": {"cpu": "1"}}]),
            "spec.limits[0].defaultRequest: Forbidden: may not be specified when `type` is 'Pod'",
        ),
        (
            json!([{"type": "Pod", "max": {"storage": "1"}}]),
            "spec.limits[0].max[storage]: Invalid value: \"storage\": must be a standard resource for containers",
        ),
        (
            json!([{"type": "PersistentVolumeClaim"}]),
            "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided",
        ),
        (
            json!([{"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]),
            "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
        ),
        (
            json!([{"type": "Container", "min": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}]),
            "spec.limits[0].defaultRequest[cpu]: Invalid value: \"1\": min value 2 is greater than default request value 1",
        ),
        (
            json!([{"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}}]),
            "spec.limits[0].defaultRequest[cpu]: Invalid value: \"2\": default request value 2 is greater than default limit value 1",
        ),
        (
            json!([{"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}]),
            "spec.limits[0].default[cpu]: Invalid value: \"1\": default value 2 is greater than max value 1",
        ),
        (
            json!([{"type": "Container", "min": {"cpu": "2"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}}]),
            "[spec.limits[0].defaultRequest[cpu]: Invalid value: \"1\": min value 2 is greater than default request value 1, spec.limits[0].default[cpu]: Invalid value: \"2\": min value 2 is greater than default value 1]",
        ),
        (
            json!([{"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}}]),
            "[spec.limits[0].defaultRequest[cpu]: Invalid value: \"2\": default request value 2 is greater than max value 1, spec.limits[0].defaultRequest[cpu]: Invalid value: \"2\": default request value 2 is greater than default limit value 1]",
        ),
        (
            json!([{"type": "Pod", "maxLimitRequestRatio": {"cpu": "900m"}}]),
            "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"900m\": ratio 900m is less than 1",
        ),
        (
            json!([{"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}}]),
            "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"3\": ratio 3 is greater than max/min = 2.000000",
        ),
        (
            json!([{"type": "Container", "default": {"example.com/gpu": "2"}, "defaultRequest": {"example.com/gpu": "1"}}]),
            "spec.limits[0].defaultRequest[example.com/gpu]: Invalid value: \"1\": default value 2 must equal to defaultRequest value 1 in example.com/gpu",
        ),
        (
            json!([{"type": "Container", "max": {"requests.x/y": "2"}}]),
            "[spec.limits[0].max[requests.x/y]: Invalid value: \"requests.x/y\": doesn't follow extended resource name standard, spec.limits[0].default[requests.x/y]: Invalid value: \"requests.x/y\": doesn't follow extended resource name standard, spec.limits[0].defaultRequest[requests.x/y]: Invalid value: \"requests.x/y\": doesn't follow extended resource name standard]",
        ),
        (json!([{"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "2"}}]), ""),
    ];
    for (items, wanted) in cases {
        assert_eq!(write(items.clone()), wanted, "{items}");
    }
}
