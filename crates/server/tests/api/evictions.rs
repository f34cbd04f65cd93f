//! Evictions and the budgets that forbid them.

use crate::harness::Server;

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
