//! A CustomResourceDefinition that is deleted while the binary's own controllers are at work: its objects go with what
//! they are charged, and nothing else goes.

use std::time::{Duration, Instant};

use http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::harness::PATIENCE;
use crate::process::Process;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/shop.example/v1/namespaces/default/widgets";
const GADGETS: &str = "/apis/shop.example/v1/namespaces/default/gadgets";
const QUOTA: &str = "/api/v1/namespaces/default/resourcequotas/shop";
const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";

/// The status code, and the object or what the refusal says.
async fn send(client: &Client, method: &str, path: &str, body: Value) -> (u16, Value) {
    let form = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("content-type", form).body(body);
    match client.request::<Value>(request.expect("a request")).await {
        Ok(object) => (200, object),
        Err(kube::Error::Api(status)) => (status.code, Value::from(status.message.clone())),
        Err(error) => panic!("{method} {path}: {error}"),
    }
}

async fn create(client: &Client, path: &str, object: Value) {
    let (code, said) = send(client, "POST", path, object).await;
    assert_eq!(code, 200, "{path}: {said}");
}

/// Asks until the answer is as wanted.
async fn until(client: &Client, path: &str, wanted: impl Fn(u16, &Value) -> bool) {
    let start = Instant::now();
    loop {
        let (code, said) = send(client, "GET", path, Value::Null).await;
        if wanted(code, &said) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{path} never answered as wanted, last: {code} {said}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn until_used(client: &Client, widgets: &str, gadgets: &str) {
    let used = json!({"count/widgets.shop.example": widgets, "count/gadgets.shop.example": gadgets});
    until(client, QUOTA, |_, quota| quota["status"]["used"] == used).await;
}

fn definition(group: &str, plural: &str, kind: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    json!({
        "metadata": {
            "name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "https://example.com/approved"},
        },
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}

async fn define(client: &Client, plural: &str, kind: &str) {
    create(client, DEFINITIONS, definition("shop.example", plural, kind)).await;
    let is_established = |one: &Value| one["type"] == "Established" && one["status"] == "True";
    let path = format!("{DEFINITIONS}/{plural}.shop.example");
    until(client, &path, |_, one| {
        one["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(is_established))
    })
    .await;
}

fn named(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "shop.example/v1", "kind": kind, "metadata": {"name": name}})
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|one| one["metadata"]["name"].as_str()).collect()
}

#[tokio::test]
async fn a_definition_takes_its_objects_and_their_charges_along_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &[]).await;
    let client = &process.client().await;
    let hard = json!({"count/widgets.shop.example": "4", "count/gadgets.shop.example": "4"});
    let quota = json!({"metadata": {"name": "shop"}, "spec": {"hard": hard}});
    create(client, "/api/v1/namespaces/default/resourcequotas", quota).await;
    create(client, "/api/v1/namespaces", json!({"metadata": {"name": "other"}})).await;
    define(client, "widgets", "Widget").await;
    define(client, "gadgets", "Gadget").await;
    let elsewhere = "/apis/shop.example/v1/namespaces/other/widgets";
    for (path, kind, name) in [
        (WIDGETS, "Widget", "one"),
        (WIDGETS, "Widget", "two"),
        (elsewhere, "Widget", "one"),
        (GADGETS, "Gadget", "one"),
    ] {
        create(client, path, named(kind, name)).await;
    }
    let mut held = named("Widget", "held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(client, WIDGETS, held).await;
    create(client, "/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "one"}})).await;
    until_used(client, "3", "1").await;

    let widgets = format!("{DEFINITIONS}/widgets.shop.example");
    assert_eq!(send(client, "DELETE", &widgets, Value::Null).await.0, 200);
    until(client, "/apis/shop.example/v1/widgets", |_, list| names(list) == ["held"]).await;
    until_used(client, "1", "1").await;
    // While one is held the definition stays, and lets nothing in.
    let (code, said) = send(client, "POST", WIDGETS, named("Widget", "late")).await;
    assert!(code == 403 && said.to_string().contains("definition is terminating"), "{code} {said}");
    assert_eq!(send(client, "GET", &widgets, Value::Null).await.0, 200);
    let let_go = json!({"metadata": {"finalizers": null}});
    assert_eq!(send(client, "PATCH", &format!("{WIDGETS}/held"), let_go).await.0, 200);
    until(client, &widgets, |code, _| code == 404).await;
    until(client, WIDGETS, |code, _| code == 404).await;
    until_used(client, "0", "1").await;
    for path in [&*format!("{GADGETS}/one"), "/api/v1/namespaces/default/configmaps/one", QUOTA] {
        assert_eq!(send(client, "GET", path, Value::Null).await.0, 200, "{path}");
    }

    // Made again it begins with nothing.
    define(client, "widgets", "Widget").await;
    assert_eq!(names(&send(client, "GET", WIDGETS, Value::Null).await.1), [""; 0]);
    create(client, WIDGETS, named("Widget", "late")).await;
    until_used(client, "1", "1").await;
}

#[tokio::test]
async fn a_definition_with_the_names_of_a_built_in_resource_is_refused_and_takes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &[]).await;
    let client = &process.client().await;
    let policy = json!({"metadata": {"name": "deny"}, "spec": {"podSelector": {}}});
    create(client, POLICIES, policy).await;
    let (_, before) = send(client, "GET", &format!("{POLICIES}/deny"), Value::Null).await;
    for (plural, kind) in [("networkpolicies", "NetworkPolicy"), ("networkpolicies", "Mine"), ("mine", "NetworkPolicy")]
    {
        let (code, said) = send(client, "POST", DEFINITIONS, definition("networking.k8s.io", plural, kind)).await;
        let is_told = said.to_string().contains("it is not a custom resource");
        assert!(code == 422 && is_told, "{plural} {kind}: {code} {said}");
        let path = format!("{DEFINITIONS}/{plural}.networking.k8s.io");
        assert_eq!(send(client, "DELETE", &path, Value::Null).await.0, 404);
    }
    let (code, after) = send(client, "GET", &format!("{POLICIES}/deny"), Value::Null).await;
    assert_eq!((code, &after["metadata"]["uid"]), (200, &before["metadata"]["uid"]));
}
