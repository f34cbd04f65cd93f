//! What real clients do: kube-rs without a socket, and the protobuf bodies of client-go.

use axum::body::Body;
use futures::{StreamExt, TryStreamExt};
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event, watcher};
use server::identity::Identity;

use crate::harness::Server;

fn map(name: &str) -> ConfigMap {
    let metadata = kube::api::ObjectMeta { name: Some(name.into()), ..Default::default() };
    ConfigMap { metadata, ..Default::default() }
}

#[tokio::test]
async fn kube_rs_informers_follow_without_a_socket() {
    let server = Server::start();
    server.play("POST /api/v1/namespaces\n  {\"metadata\": {\"name\": \"a\"}}\n  201").await;
    let client = server.api.client_as(Identity::internal("test"));
    let maps: kube::Api<ConfigMap> = kube::Api::namespaced(client, "a");
    maps.create(&PostParams::default(), &map("one")).await.expect("created");
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let mut events = watcher(maps.clone(), config).boxed();
        let mut seen = Vec::new();
        maps.create(&PostParams::default(), &map("two")).await.expect("created");
        let mut deleted = false;
        while !seen.contains(&"delete two".to_owned()) {
            match events.try_next().await.expect("an event").expect("no end") {
                Event::Init | Event::InitDone => {}
                Event::InitApply(object) | Event::Apply(object) => {
                    seen.push(format!("apply {}", object.metadata.name.unwrap_or_default()));
                }
                Event::Delete(object) => seen.push(format!("delete {}", object.metadata.name.unwrap_or_default())),
            }
            if seen.contains(&"apply two".to_owned()) && !std::mem::replace(&mut deleted, true) {
                maps.delete("two", &DeleteParams::default()).await.expect("deleted");
            }
        }
        assert_eq!(seen.first().map(String::as_str), Some("apply one"), "{seen:?}");
    }
    let labelled = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": {"a": "b"}}});
    let applied = maps.patch("one", &PatchParams::apply("me"), &Patch::Apply(&labelled)).await.expect("applied");
    assert_eq!(applied.metadata.labels.and_then(|labels| labels.get("a").cloned()).as_deref(), Some("b"));
    let error = maps.create(&PostParams::default(), &map("one")).await.expect_err("it exists");
    assert!(matches!(&error, kube::Error::Api(status) if status.reason == "AlreadyExists"), "{error}");
}

/// A length-delimited field of a protobuf message; everything here is shorter than 128 bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).expect("short")];
    out.extend_from_slice(bytes);
    out
}

#[tokio::test]
async fn bodies_may_be_protobuf() {
    let server = Server::start();
    let envelope = |kind: &str, raw: Vec<u8>| {
        let type_meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [b"k8s\0".to_vec(), field(1, &type_meta), field(2, &raw)].concat()
    };
    let send = |method: &str, uri: &str, body: Vec<u8>| {
        Request::builder()
            .method(method)
            .uri(uri)
            .header("Content-Type", "application/vnd.kubernetes.protobuf")
            .header("Accept", "application/vnd.kubernetes.protobuf,application/json")
            .body(Body::from(body))
            .expect("a request")
    };
    let namespace = envelope("Namespace", field(1, &field(1, b"p")));
    let reply = server.send(send("POST", "/api/v1/namespaces", namespace)).await;
    assert_eq!((reply.code.as_u16(), reply.value["metadata"]["name"].as_str()), (201, Some("p")), "{}", reply.text);
    server.play("POST /api/v1/namespaces/p/configmaps\n  {\"metadata\": {\"name\": \"x\"}}\n  201").await;
    // DeleteOptions { propagationPolicy = 4 }
    let options = envelope("DeleteOptions", field(4, b"Orphan"));
    let reply = server.send(send("DELETE", "/api/v1/namespaces/p/configmaps/x", options)).await;
    assert_eq!(reply.value["metadata"]["finalizers"][0], "orphan", "{}", reply.text);
    let reply = server.send(send("POST", "/api/v1/namespaces", b"k8s\0\xff\xff".to_vec())).await;
    assert_eq!(reply.code.as_u16(), 400, "{}", reply.text);
}
