//! What the API checks beyond the guard: nobody grants what they do not hold.

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use tower::{Service, ServiceExt};

use crate::harness::{Server, request};

#[tokio::test]
async fn nobody_grants_what_they_do_not_hold() {
    let server = Server::start();
    server
        .play(
            r#"
POST /api/v1/namespaces
  {"metadata": {"name": "a"}}
  201
POST /apis/rbac.authorization.k8s.io/v1/namespaces/a/roles
  {"metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}
  201
POST /apis/rbac.authorization.k8s.io/v1/namespaces/a/rolebindings
  {"metadata": {"name": "eve"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}, "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "eve"}]}
  201
POST /apis/authorization.k8s.io/v1/subjectaccessreviews
  {"spec": {"user": "eve", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "a"}}}
  201  status.allowed=true
"#,
        )
        .await;
    let ask = async |line: &str, body: &str| {
        let mut service = server.as_user("eve", &[]);
        let service = ServiceExt::<Request<Body>>::ready(&mut service).await.expect("infallible");
        let answer = service.call(request(line, body)).await.expect("infallible");
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
        (code, String::from_utf8_lossy(&bytes).into_owned())
    };
    let roles = "POST /apis/rbac.authorization.k8s.io/v1/namespaces/a/roles";
    let same =
        r#"{"metadata": {"name": "copy"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}"#;
    assert_eq!(ask(roles, same).await.0, 201);
    let more =
        r#"{"metadata": {"name": "more"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}"#;
    let (code, text) = ask(roles, more).await;
    assert_eq!(code, 403, "{text}");
    assert!(text.contains("is attempting to grant RBAC permissions not currently held"), "{text}");
    let (code, _) = ask("GET /debug/audit", "").await;
    assert_eq!(code, 403);
}

#[tokio::test]
async fn a_request_from_nobody_is_refused() {
    let server = Server::start();
    let mut api = server.api.clone();
    let service = ServiceExt::<Request<Body>>::ready(&mut api).await.expect("infallible");
    let answer = service.call(request("GET /api/v1/pods", "")).await.expect("infallible");
    assert_eq!(answer.status().as_u16(), 401);
}
