//! Watches: what they begin with, what they show, how they end.

use crate::harness::Server;

async fn with_namespace() -> Server {
    let server = Server::start();
    server.play("POST /api/v1/namespaces\n  {\"metadata\": {\"name\": \"a\"}}\n  201").await;
    server
}

async fn create(server: &Server, name: &str, labels: &str) {
    let body = format!(r#"{{"metadata": {{"name": "{name}", "labels": {labels}}}}}"#);
    server.play(&format!("POST /api/v1/namespaces/a/configmaps\n  {body}\n  201")).await;
}

#[tokio::test]
async fn a_watch_from_nothing_begins_with_what_is_there() {
    let server = with_namespace().await;
    create(&server, "one", "{}").await;
    let mut watch = server.watch("/api/v1/namespaces/a/configmaps?watch=1").await;
    assert_eq!(watch.says().await, "ADDED one");
    create(&server, "two", "{}").await;
    assert_eq!(watch.says().await, "ADDED two");
    server.play("DELETE /api/v1/namespaces/a/configmaps/one\n  200").await;
    assert_eq!(watch.says().await, "DELETED one");
    server.closing.cancel();
    assert_eq!(watch.says().await, "end");
}

#[tokio::test]
async fn a_watch_from_a_version_shows_what_followed() {
    let server = with_namespace().await;
    create(&server, "one", "{}").await;
    let known = server.play("GET /api/v1/configmaps\n  200  metadata.resourceVersion>now").await;
    create(&server, "two", "{}").await;
    let mut watch = server.watch(&format!("/api/v1/configmaps?watch=1&resourceVersion={}", known["now"])).await;
    assert_eq!(watch.says().await, "ADDED two");
    let mut other = server
        .watch(&format!("/api/v1/namespaces/b/configmaps?watch=1&timeoutSeconds=1&resourceVersion={}", known["now"]))
        .await;
    assert_eq!(other.says().await, "end");
}

#[tokio::test]
async fn watch_list_ends_the_initial_events_with_a_bookmark() {
    let server = with_namespace().await;
    create(&server, "one", "{}").await;
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = server.watch(&format!("/api/v1/configmaps?{query}")).await;
    assert_eq!(watch.says().await, "ADDED one");
    let bookmark = watch.next().await.expect("a bookmark");
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["kind"], "ConfigMap");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    create(&server, "two", "{}").await;
    assert_eq!(watch.says().await, "ADDED two");
    // An empty collection has its bookmark as well.
    let mut empty = server.watch(&format!("/api/v1/secrets?{query}")).await;
    assert_eq!(empty.says().await, "BOOKMARK ");
    server
        .play("GET /api/v1/configmaps?watch=true&sendInitialEvents=true\n  422  message~requires setting resourceVersionMatch to NotOlderThan")
        .await;
}

#[tokio::test]
async fn an_object_that_leaves_the_selection_is_deleted_from_it() {
    let server = with_namespace().await;
    let mut watch = server.watch("/api/v1/namespaces/a/configmaps?watch=1&labelSelector=app%3Dweb").await;
    let relabel = |to: &str| {
        format!(
            "PATCH /api/v1/namespaces/a/configmaps/one Content-Type:application/merge-patch+json\n  {{\"metadata\":{{\"labels\":{{\"app\":\"{to}\"}}}}}}\n  200  metadata.resourceVersion>now"
        )
    };
    create(&server, "one", r#"{"app": "db"}"#).await;
    create(&server, "two", r#"{"app": "web"}"#).await;
    assert_eq!(watch.says().await, "ADDED two");
    server.play(&relabel("web")).await;
    assert_eq!(watch.says().await, "ADDED one");
    let known = server.play(&relabel("cache")).await;
    let gone = watch.next().await.expect("an event");
    assert_eq!(gone["type"], "DELETED");
    assert_eq!(gone["object"]["metadata"]["labels"]["app"], "web");
    assert_eq!(gone["object"]["metadata"]["resourceVersion"], known["now"].as_str());
    let mut named = server.watch("/api/v1/namespaces/a/configmaps?watch=1&fieldSelector=metadata.name%3Dtwo").await;
    assert_eq!(named.says().await, "ADDED two");
}

#[tokio::test]
async fn a_watch_ends_in_time() {
    let server = with_namespace().await;
    let mut watch = server.watch("/api/v1/configmaps?watch=1&timeoutSeconds=1").await;
    assert_eq!(watch.says().await, "end");
}

#[tokio::test]
async fn a_restarted_server_has_the_same_objects_at_the_same_versions() {
    let server = with_namespace().await;
    create(&server, "one", "{}").await;
    let known = server
        .play("GET /api/v1/namespaces/a/configmaps/one\n  200  metadata.resourceVersion>one  metadata.uid>uid")
        .await;
    let Server { place, running, api, .. } = server;
    drop(api);
    running.shutdown().await.expect("a clean end");
    let server = Server::start_on(place);
    server
        .play(&format!(
            "GET /api/v1/namespaces/a/configmaps/one\n  200  metadata.resourceVersion={}  metadata.uid={}",
            known["one"], known["uid"]
        ))
        .await;
    // What was before the start is no longer remembered.
    server.play("GET /api/v1/configmaps?resourceVersion=1&resourceVersionMatch=Exact\n  410  reason=Expired").await;
    let mut watch = server.watch(&format!("/api/v1/configmaps?watch=1&resourceVersion={}", known["one"])).await;
    create(&server, "two", "{}").await;
    assert_eq!(watch.says().await, "ADDED two");
    let mut old = server.watch("/api/v1/configmaps?watch=1&resourceVersion=1").await;
    let error = old.next().await.expect("an event");
    assert_eq!((error["type"].as_str(), error["object"]["reason"].as_str()), (Some("ERROR"), Some("Expired")));
    assert_eq!(error["object"]["code"], 410);
    assert_eq!(old.says().await, "end");
}

#[tokio::test]
async fn tables_are_watched_row_by_row() {
    let server = with_namespace().await;
    create(&server, "one", "{}").await;
    let request = crate::harness::request(
        "GET /api/v1/configmaps?watch=1&timeoutSeconds=1 Accept:application/json;as=Table;v=v1;g=meta.k8s.io",
        "",
    );
    let reply = server.send(request).await;
    assert!(reply.text.contains("\"kind\":\"Table\"") && reply.text.contains("columnDefinitions"), "{}", reply.text);
}
