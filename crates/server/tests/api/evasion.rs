//! Ways to use more than is charged: amounts below zero, statements smaller than what they stand for, classes changed behind a
//! charge. Each is refused where Kubernetes refuses it; some only ever worked here.

use serde_json::{Value, json};

use crate::harness::Server;

/// A namespace under quotas that count what the attempts try to hide.
const QUOTAS: &str = r#"
POST /api/v1/namespaces
  {"metadata": {"name": "a"}}
  201
POST /api/v1/namespaces/a/resourcequotas
  {"metadata": {"name": "all"}, "spec": {"hard": {"requests.cpu": "8", "limits.cpu": "8", "requests.storage": "10Gi", "services.nodeports": "2",
   "fast.storageclass.storage.k8s.io/requests.storage": "4Gi"}}}
  201
POST /api/v1/namespaces/a/resourcequotas
  {"metadata": {"name": "ours"}, "spec": {"hard": {"pods": "5", "requests.cpu": "4"}, "scopes": ["NotBestEffort"]}}
  201
POST /apis/node.k8s.io/v1/runtimeclasses
  {"metadata": {"name": "sandbox"}, "handler": "sandbox", "overhead": {"podFixed": {"cpu": "250m", "memory": "64Mi"}}}
  201
POST /apis/node.k8s.io/v1/runtimeclasses
  {"metadata": {"name": "plain"}, "handler": "plain"}
  201
"#;

async fn quoted() -> Server {
    let server = Server::start();
    server.play(QUOTAS).await;
    server
}

/// A pod as it is posted: its container's resources, and more of its spec.
fn pod(resources: Value, more: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i", "resources": resources}]});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"metadata": {"name": "p"}, "spec": spec})
}

/// Plays a create of each body that must be refused so.
async fn refused(server: &Server, path: &str, cases: Vec<(Value, u16, &str)>) {
    for (body, code, why) in cases {
        server.play(&format!("POST {path}\n  {body}\n  {code}  message~{why}")).await;
    }
}

#[tokio::test]
async fn a_pod_states_no_less_than_it_takes() {
    let server = quoted().await;
    let both = |list: Value| json!({"requests": list, "limits": list});
    let one = both(json!({"cpu": "1"}));
    let sidecar =
        json!([{"name": "s", "image": "i", "restartPolicy": "Always", "resources": both(json!({"cpu": "2"}))}]);
    let cases = vec![
        (
            pod(one.clone(), json!({"overhead": {"cpu": "-900m"}})),
            422,
            "spec.overhead.limits[cpu]: Invalid value: \"-900m\": must be greater than or equal to 0",
        ),
        (
            pod(one.clone(), json!({"overhead": {"cpu": "1m"}, "runtimeClassName": "plain"})),
            403,
            "Overhead set without",
        ),
        (
            pod(one.clone(), json!({"overhead": {"cpu": "-1"}, "runtimeClassName": "sandbox"})),
            403,
            "Overhead doesn't match",
        ),
        (pod(one.clone(), json!({"runtimeClassName": "none"})), 403, "RuntimeClass \"none\" not found"),
        (
            pod(one.clone(), json!({"resources": both(json!({"cpu": "10m"}))})),
            422,
            "spec.resources.requests[cpu]: Invalid value: \"10m\": must be greater than or equal to aggregate container requests of 1",
        ),
        (
            pod(one.clone(), json!({"resources": both(json!({"cpu": "2"})), "initContainers": sidecar})),
            422,
            "must be greater than or equal to aggregate container requests of 3",
        ),
        (
            pod(one.clone(), json!({"resources": {"requests": {"cpu": "-1"}}})),
            422,
            "spec.resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (pod(json!({}), json!({"resources": {"requests": {"example.com/gpu": "1"}}})), 422, "Unsupported value"),
        (pod(json!({"requests": {"cpu": "-1"}}), json!({})), 422, "must be greater than or equal to 0"),
        (pod(both(json!({"example.com/gpu": "1500m"})), json!({})), 422, "must be an integer"),
        (
            pod(json!({"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "2"}}), json!({})),
            422,
            "must be equal to example.com/gpu limit of 2",
        ),
        (pod(both(json!({"hugepages-2Mi": "2Mi"})), json!({})), 422, "HugePages require cpu or memory"),
        (
            pod(both(json!({"cpu": "1", "hugepages-2Mi": "3Mi"})), json!({})),
            422,
            "3Mi is not positive integer multiple of hugepages-2Mi",
        ),
        (
            pod(one.clone(), json!({"ephemeralContainers": [{"name": "e", "image": "i", "resources": one}]})),
            422,
            "spec.ephemeralContainers: Forbidden: cannot be set on create",
        ),
    ];
    refused(&server, "/api/v1/namespaces/a/pods", cases).await;
    let bad = json!({"metadata": {"name": "negative"}, "handler": "h", "overhead": {"podFixed": {"cpu": "-1"}}});
    let why = "overhead.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0";
    refused(&server, "/apis/node.k8s.io/v1/runtimeclasses", vec![(bad, 422, why)]).await;
    let template = |spec: Value| {
        json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec["spec"]}}})
    };
    let cases = vec![
        (
            template(pod(one.clone(), json!({"overhead": {"cpu": "-1"}}))),
            422,
            "spec.template.spec.overhead.limits[cpu]",
        ),
        (
            template(pod(one.clone(), json!({"resources": {"requests": {"cpu": "1m"}}}))),
            422,
            "aggregate container requests",
        ),
        (
            template(pod(json!({}), json!({"ephemeralContainers": [{"name": "e", "image": "i"}]}))),
            422,
            "ephemeral containers not allowed in pod template",
        ),
    ];
    refused(&server, "/apis/apps/v1/namespaces/a/deployments", cases).await;
    // Nothing of all this was charged; the cost of a class is.
    let sandboxed =
        pod(json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}), json!({"runtimeClassName": "sandbox"}));
    server
        .play(&format!(
            r#"
GET /api/v1/namespaces/a/resourcequotas/all
  200  /status/used/requests.cpu=0
POST /api/v1/namespaces/a/pods
  {sandboxed}
  201  spec.overhead.cpu=250m  spec.overhead.memory=64Mi
GET /api/v1/namespaces/a/resourcequotas/all
  200  /status/used/requests.cpu=1250m  /status/used/limits.cpu=1250m
"#
        ))
        .await;
}

#[tokio::test]
async fn a_resize_moves_amounts_and_nothing_else() {
    let server = quoted().await;
    let both = |cpu: &str| json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}});
    let bodies = [
        ("idle", pod(json!({}), json!({}))),
        ("busy", pod(both("1"), json!({}))),
        ("whole", pod(both("500m"), json!({"resources": both("2")}))),
        (
            "device",
            pod(
                json!({"requests": {"cpu": "1", "memory": "1Mi"}, "limits": {"cpu": "2", "example.com/gpu": "1"}}),
                json!({}),
            ),
        ),
    ];
    // The quotas ask for cpu everywhere; these pods are made before there are any.
    server.play("DELETE /api/v1/namespaces/a/resourcequotas/all\n  200").await;
    for (name, mut body) in bodies {
        body["metadata"]["name"] = json!(name);
        server.play(&format!("POST /api/v1/namespaces/a/pods\n  {body}\n  201")).await;
    }
    server
        .play(
            r#"
PATCH /api/v1/namespaces/a/pods/idle/resize Content-Type:application/strategic-merge-patch+json
  {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "8"}}}]}}
  422  message~Pod QOS Class may not change as a result of resizing
PATCH /api/v1/namespaces/a/pods/busy/resize Content-Type:application/strategic-merge-patch+json
  {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "-3"}, "limits": {"cpu": "1"}}}]}}
  422  message~must be greater than or equal to 0
PATCH /api/v1/namespaces/a/pods/busy/resize Content-Type:application/strategic-merge-patch+json
  {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": null}, "limits": {"cpu": null}}}]}}
  422  message~resource requests cannot be removed
PATCH /api/v1/namespaces/a/pods/busy/resize Content-Type:application/strategic-merge-patch+json
  {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}}]}}
  200  spec.containers.0.resources.requests.cpu=100m
PATCH /api/v1/namespaces/a/pods/whole/resize Content-Type:application/strategic-merge-patch+json
  {"spec": {"resources": {"requests": {"cpu": "1m"}}}}
  422  message~must be greater than or equal to aggregate container requests of 500m
PATCH /api/v1/namespaces/a/pods/whole/resize Content-Type:application/strategic-merge-patch+json
  {"spec": {"resources": {"requests": {"cpu": "-2"}}}}
  422  message~must be greater than or equal to 0
PATCH /api/v1/namespaces/a/pods/device/resize Content-Type:application/strategic-merge-patch+json
  {"spec": {"containers": [{"name": "c", "resources": {"limits": {"example.com/gpu": "3"}, "requests": {"example.com/gpu": "3"}}}]}}
  422  message~only cpu and memory resources are mutable
PATCH /api/v1/namespaces/a/pods/busy/ephemeralcontainers Content-Type:application/strategic-merge-patch+json
  {"spec": {"ephemeralContainers": [{"name": "look", "image": "i", "resources": {"requests": {"cpu": "64"}}}]}}
  422  message~spec.ephemeralContainers[0].resources: Forbidden: cannot be set for an Ephemeral Container
PATCH /api/v1/namespaces/a/pods/busy/ephemeralcontainers Content-Type:application/strategic-merge-patch+json
  {"spec": {"ephemeralContainers": [{"name": "look", "image": "i"}]}}
  200
PATCH /api/v1/namespaces/a/pods/busy/ephemeralcontainers Content-Type:application/merge-patch+json
  {"spec": {"ephemeralContainers": [{"name": "other", "image": "i"}]}}
  422  message~existing ephemeral containers "look" may not be removed
GET /api/v1/namespaces/a/resourcequotas/ours
  200  /status/used/requests.cpu=3100m  status.used.pods=3
"#,
        )
        .await;
}

#[tokio::test]
async fn a_pods_deadline_tolerations_and_gates_go_one_way() {
    let server = quoted().await;
    server.play("DELETE /api/v1/namespaces/a/resourcequotas/all\n  200").await;
    let body = pod(
        json!({}),
        json!({"activeDeadlineSeconds": 50, "schedulingGates": [{"name": "g"}], "tolerations": [{"key": "k", "operator": "Exists"}]}),
    );
    server.play(&format!("POST /api/v1/namespaces/a/pods\n  {body}\n  201")).await;
    for (patch, code, why) in [
        (json!({"activeDeadlineSeconds": null}), 422, "must not update from a positive integer to nil value"),
        (json!({"activeDeadlineSeconds": 51}), 422, "must be less than or equal to previous value"),
        (json!({"activeDeadlineSeconds": 40}), 200, ""),
        (json!({"tolerations": []}), 422, "existing toleration can not be modified except its tolerationSeconds"),
        (json!({"schedulingGates": [{"name": "g"}, {"name": "h"}]}), 422, "only deletion is allowed"),
        (json!({"terminationGracePeriodSeconds": 5}), 422, "pod updates may not change fields other than"),
        (json!({"schedulingGates": null}), 200, ""),
    ] {
        let body = json!({"spec": patch});
        let line = "PATCH /api/v1/namespaces/a/pods/p Content-Type:application/merge-patch+json";
        let says = if why.is_empty() { String::new() } else { format!("  message~{why}") };
        server.play(&format!("{line}\n  {body}\n  {code}{says}")).await;
    }
}

#[tokio::test]
async fn a_claim_keeps_its_class_and_grows_only_where_it_can() {
    let server = quoted().await;
    server
        .play(
            r#"
POST /apis/storage.k8s.io/v1/storageclasses
  {"metadata": {"name": "fast"}, "provisioner": "x", "allowVolumeExpansion": true}
  201
POST /apis/storage.k8s.io/v1/storageclasses
  {"metadata": {"name": "fixed"}, "provisioner": "x"}
  201
POST /api/v1/namespaces/a/persistentvolumeclaims
  {"metadata": {"name": "c"}, "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
  201
POST /api/v1/namespaces/a/persistentvolumeclaims
  {"metadata": {"name": "f"}, "spec": {"storageClassName": "fixed", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
  201
# Another class in the annotation would win over the field, and move the charge.
PATCH /api/v1/namespaces/a/persistentvolumeclaims/c Content-Type:application/merge-patch+json
  {"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "free"}}}
  422  message~metadata.annotations.volume.beta.kubernetes.io/storage-class: Invalid value: "free": field is immutable
PATCH /api/v1/namespaces/a/persistentvolumeclaims/c/status Content-Type:application/merge-patch+json
  {"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "free"}}}
  422  message~field is immutable
PATCH /api/v1/namespaces/a/persistentvolumeclaims/c Content-Type:application/merge-patch+json
  {"spec": {"storageClassName": "free"}}
  422  message~spec is immutable after creation
# Not bound: nothing moves.
PATCH /api/v1/namespaces/a/persistentvolumeclaims/c Content-Type:application/merge-patch+json
  {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
  422  message~spec is immutable after creation
PATCH /api/v1/namespaces/a/persistentvolumeclaims/c Content-Type:application/merge-patch+json
  {"spec": {"resources": {"requests": {"storage": "1Mi"}}}}
  422  message~spec is immutable after creation
PATCH /api/v1/namespaces/a/persistentvolumeclaims/c Content-Type:application/merge-patch+json
  {"spec": {"volumeAttributesClassName": "gold"}}
  422  message~spec is immutable after creation
PATCH /api/v1/namespaces/a/persistentvolumeclaims/c Content-Type:application/merge-patch+json
  {"spec": {"resources": {"requests": {"storage": "1024Mi"}}, "volumeName": "v"}}
  200
PATCH /api/v1/namespaces/a/persistentvolumeclaims/c/status Content-Type:application/merge-patch+json
  {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
  200
PATCH /api/v1/namespaces/a/persistentvolumeclaims/f/status Content-Type:application/merge-patch+json
  {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
  200
PATCH /api/v1/namespaces/a/persistentvolumeclaims/f Content-Type:application/merge-patch+json
  {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
  403  message~only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize
PATCH /api/v1/namespaces/a/persistentvolumeclaims/c Content-Type:application/merge-patch+json
  {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
  200
PATCH /api/v1/namespaces/a/persistentvolumeclaims/c Content-Type:application/merge-patch+json
  {"spec": {"resources": {"requests": {"storage": "5Gi"}}}}
  403  message~exceeded quota
PATCH /api/v1/namespaces/a/persistentvolumeclaims/c Content-Type:application/merge-patch+json
  {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}
  422  message~field can not be less than status.capacity
PATCH /api/v1/namespaces/a/persistentvolumeclaims/c Content-Type:application/merge-patch+json
  {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
  200
PATCH /api/v1/namespaces/a/persistentvolumeclaims/c Content-Type:application/merge-patch+json
  {"spec": {"accessModes": ["ReadWriteMany"]}}
  422  message~spec is immutable after creation
PATCH /api/v1/namespaces/a/persistentvolumeclaims/c Content-Type:application/merge-patch+json
  {"spec": {"volumeName": "w"}}
  422  message~spec is immutable after creation
GET /api/v1/namespaces/a/resourcequotas/all
  200  /status/used/requests.storage=3Gi  body~"fast.storageclass.storage.k8s.io/requests.storage":"2Gi"
"#,
        )
        .await;
}

#[tokio::test]
async fn a_claim_of_devices_can_be_counted() {
    let server = quoted().await;
    let claim = |requests: Value| json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}});
    let exactly = |more: Value| {
        let mut wish = json!({"deviceClassName": "gpu"});
        for (field, value) in more.as_object().into_iter().flatten() {
            wish[field] = value.clone();
        }
        wish
    };
    let asks = |wish: Value| claim(json!([{"name": "r", "exactly": wish}]));
    let many: Vec<Value> = (0..33).map(|at| json!({"name": format!("r{at}"), "exactly": exactly(json!({}))})).collect();
    let alternatives: Vec<Value> =
        (0..9).map(|at| json!({"name": format!("r{at}"), "deviceClassName": "gpu"})).collect();
    let cases = vec![
        (
            asks(exactly(json!({"allocationMode": "Most"}))),
            422,
            "Unsupported value: \"Most\": supported values: \"All\", \"ExactCount\"",
        ),
        (
            asks(exactly(json!({"allocationMode": "All", "count": 1}))),
            422,
            "must not be specified when allocationMode is 'All'",
        ),
        (asks(exactly(json!({"count": -4}))), 422, "spec.devices.requests[0].exactly.count: Invalid value: -4"),
        (asks(json!({"deviceClassName": ""})), 422, "spec.devices.requests[0].exactly.deviceClassName: Required value"),
        (
            claim(
                json!([{"name": "r", "exactly": exactly(json!({})), "firstAvailable": [{"name": "s", "deviceClassName": "gpu"}]}]),
            ),
            422,
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        ),
        (claim(json!([{"name": "r"}])), 422, "exactly one of `exactly` or `firstAvailable` is required"),
        (claim(json!([{"name": "r", "firstAvailable": alternatives}])), 422, "must have at most 8 items"),
        (claim(json!(many)), 422, "must have at most 32 items"),
        (
            claim(json!([{"name": "r", "exactly": exactly(json!({}))}, {"name": "r", "exactly": exactly(json!({}))}])),
            422,
            "Duplicate value",
        ),
    ];
    let template = |claim: &Value| json!({"metadata": {"name": "t"}, "spec": {"spec": claim["spec"]}});
    let unknown = template(&asks(exactly(json!({"allocationMode": "Most"}))));
    refused(&server, "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims", cases).await;
    let why = "spec.spec.devices.requests[0].exactly.allocationMode";
    refused(&server, "/apis/resource.k8s.io/v1/namespaces/a/resourceclaimtemplates", vec![(unknown, 422, why)]).await;
    let fine = asks(exactly(json!({"count": 2})));
    server.play(&format!("POST /apis/resource.k8s.io/v1/namespaces/a/resourceclaims\n  {fine}\n  201")).await;
}

#[tokio::test]
async fn a_service_holds_only_the_node_ports_that_are_counted() {
    let server = quoted().await;
    server
        .play(
            r#"
POST /api/v1/namespaces/a/services
  {"metadata": {"name": "s"}, "spec": {"healthCheckNodePort": 31000, "ports": [{"port": 80}]}}
  422  message~spec.healthCheckNodePort: Invalid value: 31000: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'
POST /api/v1/namespaces/a/services
  {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000, "ports": [{"port": 80}]}}
  422  message~may only be set when `type` is 'LoadBalancer'
POST /api/v1/namespaces/a/services
  {"metadata": {"name": "s"}, "spec": {"externalTrafficPolicy": "Local", "ports": [{"port": 80}]}}
  422  message~may only be set for externally-accessible services
POST /api/v1/namespaces/a/services
  {"metadata": {"name": "s"}, "spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 80}]}}
  422  message~spec.ports[1]: Duplicate value
POST /api/v1/namespaces/a/services
  {"metadata": {"name": "lb"}, "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000, "ports": [{"port": 80}]}}
  201  spec.healthCheckNodePort=31000
PATCH /api/v1/namespaces/a/services/lb Content-Type:application/merge-patch+json
  {"spec": {"healthCheckNodePort": 31001}}
  422  message~field is immutable
PATCH /api/v1/namespaces/a/services/lb Content-Type:application/merge-patch+json
  {"spec": {"type": "ClusterIP"}}
  200  spec.healthCheckNodePort!  spec.externalTrafficPolicy!
POST /api/v1/namespaces/a/services
  {"metadata": {"name": "again"}, "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000, "ports": [{"port": 80}]}}
  201
"#,
        )
        .await;
}

/// About as many items as an object may have, in lists that are compared with each other. Linear work on them is a
/// fraction of a second even on a busy machine without optimisation; what is quadratic takes minutes.
#[tokio::test]
async fn long_lists_cost_no_more_than_their_length() {
    let server = quoted().await;
    let ports: Vec<Value> = (0..8_000).map(|at| json!({"name": format!("p{at}"), "port": at + 1})).collect();
    let service = json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": ports}});
    let finalizers: Vec<String> = (0..8_000).map(|at| format!("example.com/f{at}")).collect();
    let tolerations: Vec<Value> = (0..8_000).map(|at| json!({"key": format!("k{at}"), "operator": "Exists"})).collect();
    server
        .play(&format!(
            r#"
POST /api/v1/namespaces/a/services
  {service}
  500  message~failed to allocate a nodePort: range is full
POST /api/v1/namespaces/a/services
  {plain}
  201
PATCH /api/v1/namespaces/a/services/s Content-Type:application/merge-patch+json
  {{"metadata": {{"labels": {{"x": "y"}}}}}}
  200
POST /api/v1/namespaces/a/configmaps
  {map}
  201
DELETE /api/v1/namespaces/a/configmaps/m
  200
PATCH /api/v1/namespaces/a/configmaps/m Content-Type:application/merge-patch+json
  {{"metadata": {{"labels": {{"x": "y"}}}}}}
  200
DELETE /api/v1/namespaces/a/resourcequotas/all
  200
POST /api/v1/namespaces/a/pods
  {tolerant}
  201
PATCH /api/v1/namespaces/a/pods/p Content-Type:application/merge-patch+json
  {{"metadata": {{"labels": {{"x": "y"}}}}}}
  200
"#,
            plain = {
                let mut plain = service.clone();
                plain["spec"]["type"] = json!("ClusterIP");
                plain
            },
            map = json!({"metadata": {"name": "m", "finalizers": finalizers}}),
            tolerant = pod(json!({}), json!({"tolerations": tolerations})),
        ))
        .await;
}

/// A claim in use is not deleted, in whatever way it is asked for.
#[tokio::test]
async fn a_claim_in_use_is_not_even_marked_for_deletion() {
    let server = Server::start();
    server.define_kinds().await;
    server
        .play(
            r#"
POST /api/v1/namespaces
  {"metadata": {"name": "a", "labels": {"tier": "gold"}}}
  201
POST /apis/capsule.clastix.io/v1beta2/resourcepools
  {"apiVersion": "capsule.clastix.io/v1beta2", "kind": "ResourcePool", "metadata": {"name": "p"}, "spec": {"selectors": [{"matchLabels": {"tier": "gold"}}], "config": {"defaultsZero": true}, "quota": {"hard": {"secrets": "2"}}}}
  201
POST /apis/capsule.clastix.io/v1beta2/namespaces/a/resourcepoolclaims
  {"apiVersion": "capsule.clastix.io/v1beta2", "kind": "ResourcePoolClaim", "metadata": {"name": "c", "finalizers": ["example.com/mine"]}, "spec": {"pool": "p", "claim": {"secrets": "1"}}}
  201
POST /api/v1/namespaces/a/secrets
  {"metadata": {"name": "s"}}
  201
DELETE /apis/capsule.clastix.io/v1beta2/namespaces/a/resourcepoolclaims/c
  403  message~while claim is used
DELETE /apis/capsule.clastix.io/v1beta2/namespaces/a/resourcepoolclaims/c?propagationPolicy=Foreground
  403  message~while claim is used
DELETE /apis/capsule.clastix.io/v1beta2/namespaces/a/resourcepoolclaims/c?propagationPolicy=Orphan
  403  message~while claim is used
DELETE /apis/capsule.clastix.io/v1beta2/namespaces/a/resourcepoolclaims
  403
GET /apis/capsule.clastix.io/v1beta2/namespaces/a/resourcepoolclaims/c
  200  metadata.deletionTimestamp!
DELETE /api/v1/namespaces/a/secrets/s
  200
DELETE /apis/capsule.clastix.io/v1beta2/namespaces/a/resourcepoolclaims/c
  200  metadata.deletionTimestamp?
# Already leaving, it is used again, and can still be let go of where nothing uses it.
PATCH /apis/capsule.clastix.io/v1beta2/namespaces/a/resourcepoolclaims/c Content-Type:application/merge-patch+json
  {"metadata": {"finalizers": null}}
  200
GET /api/v1/namespaces/a/resourcequotas/capsule-pool-p
  200  spec.hard.secrets=0
"#,
        )
        .await;
}
