//! The family's settings: Capsule's releases instead of its documentation, and quotas that only observe.

use serde_json::{Value, json};

use super::{IN_USE, Land, UNUSED, labelled};

fn storage() -> Value {
    json!([{"kind": "PersistentVolumeClaim", "path": ".spec.resources.requests.storage"}])
}

fn balancers() -> Value {
    let selectors = json!([{"fieldSelectors": [".spec.type[?(@==\"LoadBalancer\")]"]}]);
    json!([{"kind": "Service", "op": "count", "selectors": selectors}])
}

fn service(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}})
}

fn bare(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {}})
}

/// Counts a field that config maps may or may not have.
fn sizes() -> Value {
    json!([{"kind": "ConfigMap", "path": ".data.size", "selectors": labelled("sized", "yes")}])
}

fn sized(name: &str, data: Value) -> Value {
    json!({"metadata": {"name": name, "labels": {"sized": "yes"}}, "data": data})
}

#[tokio::test]
async fn the_documentation_counts_what_is_missing_as_nothing() {
    let land = Land::start().await;
    land.namespace("doc", json!({})).await;
    land.make("CustomQuota", "doc", "sizes", json!({"limit": 5, "sources": sizes()})).await.expect("a quota");
    land.create("ConfigMap", "doc", sized("bare", json!({}))).await.expect("nothing is zero");
    land.make("CustomQuota", "doc", "lb", json!({"limit": 1, "sources": balancers()})).await.expect("a quota");
    land.create("Service", "doc", service("one")).await.expect("fits");
    land.create("Service", "doc", service("two")).await.expect_err("a filter may look at one value");
    land.make("CustomQuota", "doc", "none", json!({"limit": 0, "sources": storage()})).await.expect("none at all");
    let lower = json!({"spec": {"limit": 0}});
    land.patch("CustomQuota", "doc", "lb", lower).await.expect("a limit may go below usage");
    let other = json!({"spec": {"sources": storage()}});
    land.patch("CustomQuota", "doc", "lb", other).await.expect("and sources may change");
    assert_eq!(land.usage("CustomQuota", "doc", "lb").await, "0/0");
    land.end().await;
}

#[tokio::test]
async fn the_releases_refuse_what_they_cannot_evaluate() {
    let land = Land::start_with("capsule: {reading: releases, namespace: books}").await;
    land.namespace("rel", json!({"rel": "yes"})).await;
    land.namespace("books", json!({})).await;
    land.make("CustomQuota", "rel", "sizes", json!({"limit": 5, "sources": sizes()})).await.expect("a quota");
    let refused = land.create("ConfigMap", "rel", sized("bare", json!({}))).await.expect_err("nothing is no quantity");
    assert!(refused.contains("quantity path did not resolve to any value"), "{refused}");
    land.create("ConfigMap", "rel", bare("other")).await.expect("is not meant");
    land.create("ConfigMap", "rel", sized("full", json!({"size": "4"}))).await.expect("fits");

    land.make("CustomQuota", "rel", "lb", json!({"limit": 1, "sources": balancers()})).await.expect("a quota");
    let refused = land.create("Service", "rel", service("one")).await.expect_err("a filter wants a list");
    assert!(refused.contains("is not array or slice and cannot be filtered"), "{refused}");

    let refused = land.make("CustomQuota", "rel", "none", json!({"limit": 0, "sources": storage()})).await;
    let refused = refused.expect_err("no limit of zero");
    assert!(refused.contains("invalid spec.limit: quantity must not be negative or 0: \"0\""), "{refused}");
    let refused =
        land.patch("CustomQuota", "rel", "sizes", json!({"spec": {"limit": 3}})).await.expect_err("below use");
    assert!(refused.contains("spec.limit cannot be lowered below current usage (4); requested limit: 3"), "{refused}");
    let changed = json!({"spec": {"sources": storage()}});
    let refused = land.patch("CustomQuota", "rel", "sizes", changed).await.expect_err("in use");
    let words = "spec.sources cannot be changed while usage is recorded (usage: 4); create a new CustomQuota instead";
    assert!(refused.contains(words), "{refused}");

    // The lowest limit speaks, not the one with the least left.
    let spec = json!({"limit": 6, "namespaceSelectors": labelled("rel", "yes"), "sources": sizes()});
    land.make("GlobalCustomQuota", "", "rel-all", spec).await.expect("a quota");
    land.namespace("rel-b", json!({"rel": "yes"})).await;
    land.create("ConfigMap", "rel-b", sized("two", json!({"size": "2"}))).await.expect("fits");
    let refused = land.create("ConfigMap", "rel", sized("more", json!({"size": "2"}))).await.expect_err("full");
    assert!(refused.contains("CustomQuota \"sizes\""), "{refused}");
    assert!(land.find("QuantityLedger", "books", "rel-all").await.is_some(), "where the configuration says");

    // Unused claims are resized, and usage binds whoever covers most of it.
    let spec = json!({"quota": {"hard": {"requests.cpu": "9"}}, "selectors": labelled("rel", "yes")});
    land.pool("rel", spec).await;
    land.hard("rel", "rel").await;
    land.claim("rel", "a-small", "rel", json!({"requests.cpu": "1"})).await;
    land.claim("rel", "b-large", "rel", json!({"requests.cpu": "2"})).await;
    let larger = json!({"spec": {"claim": {"requests.cpu": "4"}}});
    land.patch("ResourcePoolClaim", "rel", "b-large", larger).await.expect("unused");
    assert_eq!(land.hard("rel", "rel").await, json!({"requests.cpu": "5"}));
    land.pod("rel", "web", "3").await.expect("fits");
    land.until_claim("rel", "b-large", IN_USE).await;
    land.until_claim("rel", "a-small", UNUSED).await;
    land.end().await;
}

#[tokio::test]
async fn observing_refuses_nothing() {
    let land = Land::start_with("capsule: {observeOnly: true}").await;
    land.namespace("watch", json!({})).await;
    land.make("CustomQuota", "watch", "sizes", json!({"limit": 5, "sources": sizes()})).await.expect("a quota");
    for name in ["one", "two"] {
        land.create("ConfigMap", "watch", sized(name, json!({"size": "4"}))).await.expect("is only observed");
    }
    land.create("ConfigMap", "watch", sized("odd", json!({"size": "lots"}))).await.expect("even this");
    assert_eq!(land.usage("CustomQuota", "watch", "sizes").await, "8/0");
    let told = "1 objects cannot be evaluated and are not counted: configmaps watch/odd";
    let says = |quota: &Value| {
        let message = quota["status"]["conditions"][0]["message"].as_str().unwrap_or("");
        message.starts_with(told) && message.contains("invalid quantity \"lots\"")
    };
    land.until("CustomQuota", "watch", "sizes", says).await;
    // Pools are not custom quotas: they go on as ever.
    land.end().await;
}
