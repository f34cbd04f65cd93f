//! Quotas through the API: the words of a refusal, the numbers in a status, who may write it.

use serde_json::json;

use crate::harness::{Server, request};

const START: &str = r#"
POST /api/v1/namespaces
  {"metadata": {"name": "a"}}
  201
POST /api/v1/namespaces/a/resourcequotas
  {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2", "requests.cpu": "1", "configmaps": "1"}}}
  201  kind=ResourceQuota  metadata.resourceVersion>created
"#;

fn pod(name: &str, cpu: &str) -> String {
    format!(
        r#"{{"metadata": {{"name": "{name}"}}, "spec": {{"containers": [{{"name": "c", "image": "i", "resources": {{"requests": {{"cpu": "{cpu}"}}}}}}]}}}}"#
    )
}

#[tokio::test]
async fn a_quota_refuses_in_kubernetes_words_and_counts_what_is_there() {
    let server = Server::start();
    server.play(START).await;
    server
        .play(&format!("POST /api/v1/namespaces/a/pods\n  {}\n  201  status.phase=Pending", pod("one", "600m")))
        .await;
    server
        .play(&format!(
            "POST /api/v1/namespaces/a/pods\n  {}\n  403  reason=Forbidden  details.name=two  details.kind=pods  \
             message=pods \"two\" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1",
            pod("two", "500m")
        ))
        .await;
    server.play(&format!("POST /api/v1/namespaces/a/pods?dryRun=All\n  {}\n  403", pod("two", "500m"))).await;
    server
        .play(
            r#"
GET /api/v1/namespaces/a/resourcequotas/q
  200  /status/hard/pods=2  /status/used/pods=1  /status/used/requests.cpu=600m  /status/used/configmaps=0
GET /api/v1/namespaces/a/resourcequotas Accept:application/json;as=Table;v=v1;g=meta.k8s.io
  200  rows.0.cells.1=configmaps: 0/1, pods: 1/2, requests.cpu: 600m/1
DELETE /api/v1/namespaces/a/pods/one
  200  kind=Pod
GET /api/v1/namespaces/a/resourcequotas
  200  /items/0/status/used/pods=0
GET /debug/audit
  200  differences=[]
DELETE /api/v1/namespaces/a/resourcequotas/q
  200  kind=ResourceQuota  metadata.name=q
"#,
        )
        .await;
}

#[tokio::test]
async fn every_quota_that_says_no_is_named() {
    let server = Server::start();
    server.play(START).await;
    server
        .play(
            r#"
POST /api/v1/namespaces/a/resourcequotas
  {"metadata": {"name": "r"}, "spec": {"hard": {"configmaps": "0"}}}
  201
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "x"}}
  403  message=configmaps "x" is forbidden: exceeded quota: r, requested: configmaps=1, used: configmaps=0, limited: configmaps=0
PATCH /api/v1/namespaces/a/resourcequotas/q Content-Type:application/merge-patch+json
  {"spec": {"hard": {"configmaps": "0"}}}
  200  spec.hard.configmaps=0
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "x"}}
  403  message~exceeded quota: q  details.causes.0.message~exceeded quota: r  details.causes.0.reason=QuotaExceeded
       details.causes.1.reason=QuotaNeverFits  details.causes.1.field=configmaps
       details.causes.1.message~configmaps is limited to 0 by q: this asks for more than that
POST /api/v1/namespaces/a/resourcequotas
  {"metadata": {"name": "bad"}, "spec": {"hard": {"foo": "1"}}}
  422  message~spec.hard[foo]: Invalid value: "foo"
POST /api/v1/namespaces/a/resourcequotas
  {"metadata": {"name": "bad"}, "spec": {"hard": {"pods": "x"}}}
  400  message~ResourceQuota in version "v1" cannot be handled as a ResourceQuota: quantities must match the regular expression
"#,
        )
        .await;
}

#[tokio::test]
async fn a_written_status_is_shown_as_written() {
    let server = Server::start();
    server.play(START).await;
    server
        .play(
            r#"
PATCH /api/v1/namespaces/a/resourcequotas/q/status Content-Type:application/merge-patch+json
  {"status": {"hard": {"pods": "7"}}}
  200  status.hard.pods=7  spec.hard.pods=2
GET /api/v1/namespaces/a/resourcequotas/q
  200  status.hard.pods=7  metadata.resourceVersion>now
POST /api/v1/namespaces/a/resourcequotausages
  {"metadata": {"name": "q", "resourceVersion": "1"}, "status": {"hard": {"pods": "5"}, "used": {"pods": "4"}}}
  409
POST /api/v1/namespaces/a/resourcequotausages
  {"metadata": {"name": "q", "resourceVersion": "${now}"}, "status": {"hard": {"pods": "5"}, "used": {"pods": "4"}}}
  201  status=Success
GET /api/v1/namespaces/a/resourcequotas/q
  200  status.used.pods=4
GET /apis/quota.openshift.io/v1/namespaces/a/appliedclusterresourcequotas
  200  kind=AppliedClusterResourceQuotaList  items=[]
GET /api/v1/namespaces/a/resourcequotausages
  405
"#,
        )
        .await;
}

#[tokio::test]
async fn pods_are_bound_deleted_with_grace_and_evicted() {
    let server = Server::start();
    server.play("POST /api/v1/namespaces\n  {\"metadata\": {\"name\": \"a\"}}\n  201").await;
    for name in ["one", "two", "three"] {
        server
            .play(&format!("POST /api/v1/namespaces/a/pods\n  {}\n  201  metadata.generation?", pod(name, "1")))
            .await;
    }
    server
        .play(
            r#"
GET /api/v1/namespaces/a/pods?fieldSelector=status.phase%3DPending,spec.nodeName%3D
  200  items.2.metadata.name=two
POST /api/v1/namespaces/a/pods/one/binding
  {"target": {"kind": "Node", "name": "n1"}}
  201  status=Success
POST /api/v1/namespaces/a/pods/one/binding
  {"target": {"kind": "Node", "name": "n2"}}
  409  message~pod one is already assigned to node "n1"
POST /api/v1/namespaces/a/bindings
  {"metadata": {"name": "two"}, "target": {"kind": "Node", "name": "n1"}}
  201
GET /api/v1/namespaces/a/pods/one
  200  spec.nodeName=n1
GET /api/v1/namespaces/a/pods?fieldSelector=spec.nodeName%3Dn1
  200  items.1.metadata.name=two  items.2!
# Scheduled: its node would have to stop it first.
DELETE /api/v1/namespaces/a/pods/one
  200  kind=Pod  metadata.deletionGracePeriodSeconds=30
GET /api/v1/namespaces/a/pods/one
  200  metadata.deletionTimestamp?
DELETE /api/v1/namespaces/a/pods/one
  {"gracePeriodSeconds": 0}
  200
GET /api/v1/namespaces/a/pods/one
  404
POST /api/v1/namespaces/a/pods/three/eviction
  {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "three"}}
  201
GET /api/v1/namespaces/a/pods/three
  404
PATCH /api/v1/namespaces/a/pods/two/resize Content-Type:application/strategic-merge-patch+json
  {"metadata": {"labels": {"x": "y"}}, "spec": {"containers": [{"name": "c", "image": "other", "resources": {"requests": {"cpu": "2"}}}]}}
  200  spec.containers.0.resources.requests.cpu=2  spec.containers.0.image=i  metadata.labels!
PATCH /api/v1/namespaces/a/pods/two Content-Type:application/strategic-merge-patch+json
  {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}}
  422
"#,
        )
        .await;
}

#[tokio::test]
async fn amounts_below_zero_give_nothing_back() {
    let server = Server::start();
    server
        .play(
            r#"
POST /api/v1/namespaces
  {"metadata": {"name": "a"}}
  201
POST /api/v1/namespaces/a/resourcequotas
  {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "1"}}}
  201
POST /api/v1/namespaces/a/pods
  {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "-5"}}}]}}
  422  message=Pod "p" is invalid: spec.containers[0].resources.requests[cpu]: Invalid value: "-5": must be greater than or equal to 0
POST /api/v1/namespaces/a/pods
  {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]}}
  201
PATCH /api/v1/namespaces/a/pods/p/resize Content-Type:application/merge-patch+json
  {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "-5"}}}]}}
  422  message~spec.containers[0].resources.requests[cpu]: Invalid value: "-5": must be greater than or equal to 0
POST /apis/resource.k8s.io/v1/namespaces/a/resourceclaims
  {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "d", "count": -5}}]}}}
  422  message~spec.devices.requests[0].exactly.count: Invalid value: -5: must be greater than zero
POST /api/v1/namespaces/a/persistentvolumeclaims
  {"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "-5"}}}}
  422  message~spec.resources[storage]: Invalid value: "-5": must be greater than zero
"#,
        )
        .await;
}

/// A pod that a LimitRange gives its requests is no pod without requests, and no quota takes it for one.
#[tokio::test]
async fn the_class_of_a_pod_follows_from_what_it_is_given() {
    let server = Server::start();
    server
        .play(
            r#"
POST /api/v1/namespaces
  {"metadata": {"name": "a"}}
  201
POST /api/v1/namespaces/a/limitranges
  {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "100m"}}]}}
  201
POST /api/v1/namespaces/a/resourcequotas
  {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}, "scopes": ["NotBestEffort"]}}
  201
POST /api/v1/namespaces/a/pods
  {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
  201  status.qosClass=Burstable
GET /api/v1/namespaces/a/resourcequotas/q
  200  status.used.pods=1
POST /api/v1/namespaces/a/pods
  {"metadata": {"name": "two"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
  403  message~exceeded quota: q
"#,
        )
        .await;
}

/// Expressions that take long are evaluated by the request: on what is there when the quota comes or changes, several of one quota
/// on one object, and on what comes later.
#[tokio::test]
async fn a_quota_with_long_expressions_counts_what_is_there_and_what_comes() {
    let server = Server::start();
    server.define_kinds().await;
    let long = |one: u32, other: u32| format!("lists.range(2000).all(x, x < 10000{one}) ? {one} : {other}");
    let sources = |amounts: &[u32]| {
        let source = |one: &u32| format!(r#"{{"apiVersion": "v1", "kind": "ConfigMap", "cel": "{}"}}"#, long(*one, 9));
        amounts.iter().map(source).collect::<Vec<_>>().join(", ")
    };
    let (three, two) = (sources(&[1, 2, 3]), sources(&[3, 1]));
    server
        .play(&format!(
            r#"
POST /api/v1/namespaces
  {{"metadata": {{"name": "a"}}}}
  201
POST /api/v1/namespaces/a/configmaps
  {{"metadata": {{"name": "one"}}}}
  201
POST /api/v1/namespaces/a/configmaps
  {{"metadata": {{"name": "two"}}}}
  201
POST /apis/capsule.clastix.io/v1beta2/namespaces/a/customquotas
  {{"apiVersion": "capsule.clastix.io/v1beta2", "kind": "CustomQuota", "metadata": {{"name": "x"}}, "spec": {{"limit": "18", "sources": [{three}]}}}}
  201
GET /apis/capsule.clastix.io/v1beta2/namespaces/a/customquotas/x
  200  status.usage.used=12
GET /debug/audit
  200  differences=[]
POST /api/v1/namespaces/a/configmaps
  {{"metadata": {{"name": "three"}}}}
  201
POST /api/v1/namespaces/a/configmaps
  {{"metadata": {{"name": "four"}}}}
  403  message~x
PATCH /apis/capsule.clastix.io/v1beta2/namespaces/a/customquotas/x Content-Type:application/merge-patch+json
  {{"spec": {{"sources": [{two}]}}}}
  200
GET /apis/capsule.clastix.io/v1beta2/namespaces/a/customquotas/x
  200  status.usage.used=12
POST /api/v1/namespaces/a/configmaps
  {{"metadata": {{"name": "four"}}}}
  201
POST /api/v1/namespaces/a/resourcequotas
  {{"metadata": {{"name": "q"}}, "spec": {{"hard": {{"configmaps": "9", "resourcequotas": "2"}}}}}}
  201
GET /api/v1/namespaces/a/resourcequotas/q
  200  status.used.configmaps=4  status.used.resourcequotas=1
GET /apis/capsule.clastix.io/v1beta2/namespaces/a/customquotas/x
  200  status.usage.used=16
GET /debug/audit
  200  differences=[]
"#
        ))
        .await;
}

/// A quota over many clusters refuses as every quota does: whoever looks at the reason sees `Forbidden`, and the words are Karmada's.
#[tokio::test]
async fn a_federated_quota_refuses_with_a_whole_status() {
    let server = Server::start();
    server.define_kinds().await;
    let quotas = "/apis/policy.karmada.io/v1alpha1/namespaces/a/federatedresourcequotas";
    let bindings = "/apis/work.karmada.io/v1alpha2/namespaces/a/resourcebindings";
    let binding = r#"{"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "metadata": {"name": "web-deployment"}, "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "a", "name": "web"}, "replicas": 6, "replicaRequirements": {"resourceRequest": {"cpu": "1"}}, "clusters": [{"name": "m1", "replicas": 6}]}}"#;
    server
        .play(&format!(
            r#"
POST /api/v1/namespaces
  {{"metadata": {{"name": "a"}}}}
  201
POST {quotas}
  {{"apiVersion": "policy.karmada.io/v1alpha1", "kind": "FederatedResourceQuota", "metadata": {{"name": "q"}}, "spec": {{"overall": {{"cpu": "4"}}}}}}
  201
"#
        ))
        .await;
    let reply = server.send(request(&format!("POST {bindings}"), binding)).await;
    let message = "resourcebindings.work.karmada.io \"web-deployment\" is forbidden: FederatedResourceQuota(a/q) exceeded \
                   for resource cpu: requested sum 6, limit 4.";
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 403, "reason": "Forbidden",
        "message": message,
        "details": {"name": "web-deployment", "group": "work.karmada.io", "kind": "resourcebindings", "causes": [
            {"reason": "QuotaNeverFits", "field": "cpu", "message": "cpu is limited to 4 by q: this asks for more than that"},
        ]},
    });
    assert_eq!(reply.value, status);
}
