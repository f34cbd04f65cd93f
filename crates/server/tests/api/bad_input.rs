//! Whatever a client sends: the right 4xx, no panic.

use axum::body::Body;
use http::Request;

use crate::harness::Server;

#[tokio::test]
async fn malformed_bodies() {
    let server = Server::start();
    server
        .play(
            r#"
POST /api/v1/namespaces
  {"metadata": {"name": "a"}}
  201
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "x"
  400  reason=BadRequest  message~the object provided is unrecognized (must be of type ConfigMap)
POST /api/v1/namespaces/a/configmaps
  []
  400
POST /api/v1/namespaces/a/configmaps
  400
POST /api/v1/namespaces/a/configmaps
  {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x"}}
  400  message~Pod in version "v1" cannot be handled as a ConfigMap
POST /api/v1/namespaces/a/configmaps
  {"kind": "ConfigMap", "apiVersion": "v2", "metadata": {"name": "x"}}
  400  message=the API version in the data (v2) does not match the expected API version (v1)
POST /api/v1/namespaces/a/configmaps
  {"metadata": "x"}
  400
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": 5}}
  400
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "x"}, "data": {"k": 5}}
  400  message~ConfigMap in version "v1" cannot be handled as a ConfigMap
POST /api/v1/namespaces/a/configmaps Content-Type:text/html
  {"metadata": {"name": "x"}}
  415  reason=UnsupportedMediaType
POST /api/v1/namespaces/a/configmaps Content-Type:application/vnd.kubernetes.protobuf
  {"metadata": {"name": "x"}}
  400
POST /api/v1/namespaces/a/configmaps Content-Type:application/yaml
  a: &a [x, x, x, x, x, x, x, x, x, x]
  b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]
  c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]
  d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]
  e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]
  f: &f [*e, *e, *e, *e, *e, *e, *e, *e, *e, *e]
  g: [*f, *f, *f, *f, *f, *f, *f, *f, *f, *f]
  400
POST /api/v1/namespaces/a/configmaps Content-Type:application/yaml
  metadata: {name: from-yaml}
  data: {k: v}
  201  data.k=v
GET /api/v1/namespaces/a/configmaps?labelSelector=(((
  400
GET /api/v1/namespaces/a/configmaps?limit=-5
  200
GET /api/v1/namespaces/a/configmaps?limit=x
  400
GET /api/v1/namespaces/a/configmaps?watch=1&resourceVersion=-1
  400
DELETE /api/v1/namespaces/a/configmaps/from-yaml
  {"gracePeriodSeconds": "soon"}
  400
TRACE /api/v1/namespaces/a/configmaps
  405
"#,
        )
        .await;
}

#[tokio::test]
async fn too_much() {
    let server = Server::start();
    server.play("POST /api/v1/namespaces\n  {\"metadata\": {\"name\": \"a\"}}\n  201").await;
    let post = |body: String| {
        Request::builder()
            .method("POST")
            .uri("/api/v1/namespaces/a/configmaps")
            .body(Body::from(body))
            .expect("a request")
    };
    let reply = server.send(post(format!("{{\"data\":{{\"k\":\"{}\"}}}}", "x".repeat(10_000_000)))).await;
    assert_eq!((reply.code.as_u16(), reply.value["reason"].as_str()), (413, Some("RequestEntityTooLarge")));
    let reply = server.send(post(format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)))).await;
    assert_eq!(reply.code.as_u16(), 400, "{}", reply.text);
    let deep = format!("{{\"metadata\":{{\"name\":\"x\"}},\"data\":{}1{}}}", "{\"a\":".repeat(5000), "}".repeat(5000));
    assert_eq!(server.send(post(deep)).await.code.as_u16(), 400);
    let query = format!("GET /api/v1/configmaps?labelSelector={}", "a,".repeat(20_000));
    assert_eq!(server.send(crate::harness::request(&query, "")).await.code.as_u16(), 400);
}
