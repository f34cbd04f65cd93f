//! What is left of an organization, or of a right in it, when it is gone.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::platform::{Platform, of_env, try_send};
use super::rights::member;
use crate::harness::PATIENCE;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_under_the_name_of_another_learns_nothing_of_it() {
    let mut platform = Platform::start(&[], false).await;
    platform.done("POST /v1/orgs", json!({"id": "passing", "tier": "standard"})).await;
    platform.done("POST /v1/orgs/passing/apps", json!({"name": "secret-project"})).await;
    let limit = json!({"limit": 1, "reason": "a test"});
    platform.done("PUT /v1/orgs/passing/quotas/max_apps", limit).await;
    let refused = try_send(&platform.client, "POST /v1/orgs/passing/apps", &json!({"name": "more"}), None).await;
    assert_eq!(refused.expect("an answer").0, 409);
    platform.done("DELETE /v1/orgs/passing/apps/secret-project", Value::Null).await;
    platform.done("DELETE /v1/orgs/passing", Value::Null).await;
    platform.until("GET /api/v1/namespaces/passing", &Value::Null, |answer| answer.0 == 404).await;
    platform.done("POST /v1/orgs", json!({"id": "passing", "tier": "free"})).await;
    let events = platform.get("/v1/orgs/passing/events").await;
    let told: Vec<&Value> = events["items"].as_array().expect("events").iter().map(|one| &one["event_type"]).collect();
    assert_eq!(told, ["org.created"]);
    assert_eq!(platform.get("/v1/orgs/passing/audit").await["items"], json!([]));
    // Operators see all of it.
    let all = platform.get("/v1/events?limit=1000").await;
    assert!(all.to_string().contains("secret-project"));
    assert!(platform.get("/v1/audit").await["items"].as_array().is_some_and(|items| !items.is_empty()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_when_the_right_to_it_does() {
    let mut platform = Platform::start(&[], false).await;
    let member = member(&mut platform).await;
    let request = http::Request::get(of_env("prod", "logs/stream")).body(kube::client::Body::empty());
    let stream = member.send(request.expect("a request")).await.expect("a stream");
    assert_eq!(stream.status(), 200);
    let begun = Instant::now();
    platform.done("DELETE /apis/rbac.authorization.k8s.io/v1/namespaces/acme/rolebindings/ci", Value::Null).await;
    let ended = tokio::time::timeout(PATIENCE, stream.into_body().collect_bytes()).await;
    assert!(ended.is_ok() && begun.elapsed() < Duration::from_secs(30), "it is renewed no more");
    let free = |(_, usage): &(u16, Value)| {
        let mut rows = usage["items"].as_array().into_iter().flatten();
        rows.any(|row| row["dimension"] == "max_log_streams" && row["usage"] == 0)
    };
    platform.until("GET /v1/orgs/acme/usage", &Value::Null, free).await;
}
