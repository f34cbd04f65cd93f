//! Evictions and the budgets that forbid them.

use serde_json::json;

use crate::harness::Server;
use crate::hook_server::{HookServer, Reply};

/// A pod that runs and is ready, as far as anybody says.
async fn running(server: &Server, name: &str, ready: &str) {
    let script = format!(
        r#"
POST /api/v1/namespaces/a/pods
  {{"metadata": {{"name": "{name}", "labels": {{"app": "web"}}}}, "spec": {{"containers": [{{"name": "c", "image": "i"}}]}}}}
  201
PATCH /api/v1/namespaces/a/pods/{name}/status Content-Type:application/merge-patch+json
  {{"status": {{"phase": "Running", "conditions": [{{"type": "Ready", "status": "{ready}"}}]}}}}
  200
"#
    );
    server.play(&script).await;
}

async fn evict(server: &Server, name: &str, expected: &str) {
    let body = format!(r#"{{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {{"name": "{name}"}}}}"#);
    server.play(&format!("POST /api/v1/namespaces/a/pods/{name}/eviction\n  {body}\n  {expected}")).await;
}

#[tokio::test]
async fn a_budget_keeps_the_pods_it_needs() {
    let server = Server::start();
    server
        .play(
            r#"
POST /api/v1/namespaces
  {"metadata": {"name": "a"}}
  201
POST /apis/policy/v1/namespaces/a/poddisruptionbudgets
  {"metadata": {"name": "web"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}}
  201
"#,
        )
        .await;
    for name in ["one", "two", "three"] {
        running(&server, name, "True").await;
    }
    running(&server, "sick", "False").await;
    evict(&server, "one", "201").await;
    let refused = "429  reason=TooManyRequests  message=Cannot evict pod as it would violate the pod's disruption budget.  \
                   details.causes.0.message=The disruption budget web needs 2 healthy pods and has 2 currently";
    evict(&server, "two", refused).await;
    // What is not healthy may go while enough are; so may what was never started.
    evict(&server, "sick", "201").await;
    server
        .play(
            r#"
POST /api/v1/namespaces/a/pods
  {"metadata": {"name": "new", "labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
  201
"#,
        )
        .await;
    evict(&server, "new", "201").await;
    // Half of the pods, of which one is rounded up to stay.
    let change = |spec: &str| {
        format!(
            "PATCH /apis/policy/v1/namespaces/a/poddisruptionbudgets/web Content-Type:application/merge-patch+json\n  \
             {{\"spec\": {spec}}}\n  200"
        )
    };
    server.play(&change(r#"{"minAvailable": "50%"}"#)).await;
    evict(&server, "two", "201").await;
    evict(&server, "three", "429").await;
    server.play(&change(r#"{"minAvailable": null, "maxUnavailable": 1}"#)).await;
    evict(&server, "three", "201").await;
    // Two budgets for one pod are one too many.
    running(&server, "last", "True").await;
    server
        .play(
            r#"
POST /apis/policy/v1/namespaces/a/poddisruptionbudgets
  {"metadata": {"name": "all"}, "spec": {"minAvailable": 0, "selector": {}}}
  201
"#,
        )
        .await;
    evict(&server, "last", "500  message~more than one PodDisruptionBudget").await;
}

/// A Deployment in charge of itself, one in charge of a StatefulSet, and sets in a circle: the budget is answered, from the
/// first owner that asks for a number.
#[tokio::test]
async fn owners_in_a_circle_are_counted_once() {
    let server = Server::start();
    server.play("POST /api/v1/namespaces\n  {\"metadata\": {\"name\": \"a\"}}\n  201").await;
    let owned = |kind: &str, name: &str, by: (&str, &str)| {
        let owner = format!(
            r#"[{{"apiVersion": "apps/v1", "kind": "{}", "name": "{}", "uid": "u", "controller": true}}]"#,
            by.0, by.1
        );
        let spec = r#"{"replicas": 1, "serviceName": "s", "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}"#;
        let spec = if kind == "statefulsets" { spec.to_owned() } else { spec.replace(r#""serviceName": "s", "#, "") };
        format!(
            "POST /apis/apps/v1/namespaces/a/{kind}\n  {{\"metadata\": {{\"name\": \"{name}\", \"ownerReferences\": {owner}}}, \
             \"spec\": {spec}}}\n  201"
        )
    };
    for (kind, name, by) in [
        ("deployments", "self", ("Deployment", "self")),
        ("deployments", "ping", ("Deployment", "pong")),
        ("deployments", "pong", ("Deployment", "ping")),
        ("replicasets", "left", ("ReplicaSet", "right")),
        ("replicasets", "right", ("ReplicaSet", "left")),
        ("replicasets", "below", ("Deployment", "self")),
        ("statefulsets", "state", ("Deployment", "ping")),
    ] {
        server.play(&owned(kind, name, by)).await;
    }
    server
        .play(
            r#"
POST /apis/policy/v1/namespaces/a/poddisruptionbudgets
  {"metadata": {"name": "web"}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}}}
  201
"#,
        )
        .await;
    let owners = [
        ("Deployment", "self"),
        ("Deployment", "ping"),
        ("ReplicaSet", "left"),
        ("ReplicaSet", "below"),
        ("StatefulSet", "state"),
    ];
    for (kind, owner) in owners {
        running(&server, owner, "True").await;
        let owner_reference = format!(
            r#"{{"metadata": {{"ownerReferences": [{{"apiVersion": "apps/v1", "kind": "{kind}", "name": "{owner}", "uid": "u", "controller": true}}]}}}}"#
        );
        server.play(&format!("PATCH /api/v1/namespaces/a/pods/{owner} Content-Type:application/merge-patch+json\n  {owner_reference}\n  200")).await;
    }
    // Five pods; self and below share one wish, so that four are needed.
    evict(&server, "self", "201").await;
    let refused = "429  details.causes.0.message=The disruption budget web needs 4 healthy pods and has 4 currently";
    evict(&server, "ping", refused).await;
}

/// While one eviction waits for a webhook, evictions of others go on: also in the same namespace.
#[tokio::test]
async fn a_slow_webhook_holds_up_its_own_eviction_alone() {
    let hooks = HookServer::start(|_, asked| match (asked["operation"].as_str(), asked["name"].as_str()) {
        (Some("DELETE"), _) | (_, Some("slow")) => Reply::Hang,
        _ => Reply::Response(json!({"allowed": true})),
    })
    .await;
    let server = Server::start();
    for namespace in ["a", "b"] {
        server
            .play(&format!("POST /api/v1/namespaces\n  {{\"metadata\": {{\"name\": \"{namespace}\"}}}}\n  201"))
            .await;
    }
    for name in ["slow", "quick", "last"] {
        running(&server, name, "True").await;
    }
    let hook = json!({"metadata": {"name": "slow"}, "webhooks": [{
        "name": "slow.example.com", "clientConfig": {"url": format!("{}/slow", hooks.url), "caBundle": hooks.ca_bundle},
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["pods", "pods/eviction"]}],
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 30,
    }]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    server.play(&format!("POST {path}\n  {hook}\n  201")).await;
    let evict_slow = evict(&server, "slow", "500");
    let evict_others = async {
        while !hooks.seen().iter().any(|(_, review)| review["request"]["name"] == "slow") {
            tokio::task::yield_now().await;
        }
        evict(&server, "quick", "201").await;
        evict(&server, "last", "201").await;
    };
    tokio::select! {
        () = evict_slow => panic!("the webhook never answers"),
        () = evict_others => {}
    }
    // What an eviction comes to is no second question.
    let asked: Vec<_> = hooks.seen().into_iter().map(|(_, review)| review["request"]["operation"].clone()).collect();
    assert!(asked.iter().all(|operation| operation == "CREATE"), "{asked:?}");
}
