//! CustomQuotas and GlobalCustomQuotas: what they count, refuse and show.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Land, labelled};

#[tokio::test]
async fn custom_quotas() {
    let land = Land::start().await;
    let definition = json!({
        "metadata": {"name": "buckets.s3.example.com"},
        "spec": {
            "group": "s3.example.com", "scope": "Namespaced",
            "names": {"kind": "Bucket", "plural": "buckets", "singular": "bucket", "listKind": "BucketList"},
            "versions": [version("v1", true), version("v2", false)],
        },
    });
    land.create("CustomResourceDefinition", "", definition).await.expect("a definition");
    land.until("CustomResourceDefinition", "", "buckets.s3.example.com", |it| {
        let conditions = it["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Established" && one["status"] == "True")
    })
    .await;
    futures::join!(
        custom_kinds_are_summed_and_growth_is_refused(&land),
        several_sources_add_and_subtract(&land),
        expressions_measure_and_select(&land),
        long_expressions_count_like_short_ones(&land),
        selectors_are_alternatives_of_conjunctions(&land),
        a_global_quota_follows_its_namespaces(&land),
        all_quotas_or_none(&land),
        the_quota_with_the_least_left_speaks(&land),
        the_status_names_the_first_of_many(&land),
        an_object_that_cannot_be_evaluated_blocks_nobody(&land),
        ledgers_are_shown_settled(&land),
        an_unknown_kind_is_told_and_counted_once_it_is_defined(&land),
        an_older_excess_may_shrink(&land),
        another_version_is_no_way_around(&land),
        objects_without_a_namespace_are_counted_by_global_quotas(&land),
    );
    hostile_expressions_are_refused_with_their_quota(&land).await;
    land.end().await;
}

fn version(name: &str, storage: bool) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}})
}

fn bucket(name: &str, size: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"maxSize": size}})
}

fn map(name: &str, labels: Value, data: Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels}, "data": data})
}

/// Config maps with this label, counted. Each namespace gets one of its own accord, which must not be.
fn counted() -> Value {
    json!([{"kind": "ConfigMap", "op": "count", "selectors": labelled("counted", "yes")}])
}

fn counted_map(name: &str) -> Value {
    map(name, json!({"counted": "yes"}), json!({}))
}

async fn custom_kinds_are_summed_and_growth_is_refused(land: &Land) {
    land.namespace("sum", json!({})).await;
    let spec = json!({
        "limit": "5Gi",
        "sources": [{"apiVersion": "s3.example.com/v1", "kind": "Bucket", "path": ".spec.maxSize"}],
    });
    land.make("CustomQuota", "sum", "buckets", spec).await.expect("a quota");
    land.create("Bucket", "sum", bucket("one", "2Gi")).await.expect("fits, in the moment the quota is there");
    land.create("Bucket", "sum", bucket("two", "1Gi")).await.expect("fits");
    assert_eq!(land.usage("CustomQuota", "sum", "buckets").await, "3Gi/2Gi");
    let refused = land.create("Bucket", "sum", bucket("three", "3Gi")).await.expect_err("too much");
    let words = "creating resource exceeds limit for CustomQuota \"buckets\" (requested=3Gi, currentUsed=6Gi, \
                 available=2Gi, limit=5Gi, inflightReserved=0)";
    assert!(refused.starts_with("403 ") && refused.contains(words), "{refused}");
    let grown = json!({"spec": {"maxSize": "4Gi"}});
    let refused = land.patch("Bucket", "sum", "two", grown).await.expect_err("too much");
    assert!(
        refused.contains("updating resource exceeds limit for CustomQuota \"buckets\" (requested=3Gi"),
        "{refused}"
    );
    land.patch("Bucket", "sum", "two", json!({"spec": {"maxSize": "3Gi"}})).await.expect("just fits");
    land.delete("Bucket", "sum", "one").await.expect("deleted");
    assert_eq!(land.usage("CustomQuota", "sum", "buckets").await, "3Gi/2Gi");
}

async fn several_sources_add_and_subtract(land: &Land) {
    land.namespace("net", json!({})).await;
    let of = |op: &str, path: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "op": op, "path": path});
    let spec = json!({"limit": 10, "sources": [
        of("sub", ".data.free"), of("add", ".data.size"),
        {"apiVersion": "s3.example.com/v1", "kind": "Bucket", "op": "count"},
    ]});
    land.make("CustomQuota", "net", "net", spec).await.expect("a quota");
    let sized = |name: &str, data: Value| map(name, json!({}), data);
    land.create("ConfigMap", "net", sized("one", json!({"size": "7", "free": "3"}))).await.expect("4");
    land.create("ConfigMap", "net", sized("two", json!({"size": "1", "free": "100"}))).await.expect("gives back");
    assert_eq!(land.usage("CustomQuota", "net", "net").await, "0/10");
    land.delete("ConfigMap", "net", "two").await.expect("deleted");
    land.create("Bucket", "net", bucket("one", "1")).await.expect("1");
    assert_eq!(land.usage("CustomQuota", "net", "net").await, "5/5");
    land.create("ConfigMap", "net", sized("three", json!({"size": "6"}))).await.expect_err("6 of 5");
    let refused = land.patch("ConfigMap", "net", "one", json!({"data": {"free": "0", "size": "10"}})).await;
    assert!(refused.expect_err("the discount goes").contains("requested=6"));
    land.create("ConfigMap", "net", sized("three", json!({"size": "5"}))).await.expect("5 of 5");
}

async fn expressions_measure_and_select(land: &Land) {
    land.namespace("cel", json!({})).await;
    let spec = json!({"limit": "3", "sources": [{
        "kind": "Pod",
        "cel": "object.spec.containers.map(c, quantity(c.resources.?requests[?'cpu'].orValue('0')))",
        "selectors": [{"celExpressions": ["object.metadata.name.startsWith('web')"]}],
    }]});
    land.make("CustomQuota", "cel", "cpu", spec).await.expect("a quota");
    land.pod("cel", "web-1", "1500m").await.expect("fits");
    land.pod("cel", "job-1", "20").await.expect("is not meant");
    assert_eq!(land.usage("CustomQuota", "cel", "cpu").await, "1500m/1500m");
    let refused = land.pod("cel", "web-2", "2").await.expect_err("too much");
    assert!(refused.contains("(requested=2, currentUsed=3500m, available=1500m, limit=3, "), "{refused}");
}

/// They are evaluated before the decision, and the write is sent again with what they gave.
async fn long_expressions_count_like_short_ones(land: &Land) {
    land.namespace("long", json!({})).await;
    let pairs = "object.data.all(a, object.data.all(b, a + b != '')) ? object.data.size() : 0";
    // Every namespace has a ConfigMap of its own.
    let selectors = json!([{"celExpressions": ["object.metadata.name != 'kube-root-ca.crt'"]}]);
    let spec = json!({"limit": "500", "sources": [{"kind": "ConfigMap", "cel": pairs, "selectors": selectors}]});
    land.make("CustomQuota", "long", "entries", spec).await.expect("a quota");
    let entries = |name: &str, count: usize| {
        let data: serde_json::Map<String, Value> = (0..count).map(|i| (format!("k{i}"), "".into())).collect();
        json!({"metadata": {"name": name}, "data": data})
    };
    land.create("ConfigMap", "long", entries("one", 250)).await.expect("fits");
    land.create("ConfigMap", "long", entries("two", 240)).await.expect("fits");
    assert_eq!(land.usage("CustomQuota", "long", "entries").await, "490/10");
    land.create("ConfigMap", "long", entries("three", 260)).await.expect_err("too much");
    land.create("ConfigMap", "long", entries("four", 10)).await.expect("fits");
}

async fn selectors_are_alternatives_of_conjunctions(land: &Land) {
    land.namespace("or", json!({})).await;
    let selectors = json!([
        {"matchLabels": {"team": "platform"}, "fieldSelectors": [".spec.type[?(@==\"LoadBalancer\")]"]},
        {"matchExpressions": [{"key": "team", "operator": "In", "values": ["web"]}], "fieldSelectors": [".spec.type!=ClusterIP"]},
    ]);
    let spec = json!({
        "limit": 2, "scopeSelectors": labelled("scope", "in"),
        "sources": [{"kind": "Service", "op": "count", "selectors": selectors}],
    });
    land.make("CustomQuota", "or", "balancers", spec).await.expect("a quota");
    let service = |name: &str, scope: &str, team: &str, of: &str| {
        json!({
            "metadata": {"name": name, "labels": {"scope": scope, "team": team}},
            "spec": {"type": of, "ports": [{"port": 80}]},
        })
    };
    for (name, scope, team, of, used) in [
        ("platform", "in", "platform", "LoadBalancer", "1/1"),
        ("inside", "in", "platform", "ClusterIP", "1/1"),
        ("out", "out", "platform", "LoadBalancer", "1/1"),
        ("web-inside", "in", "web", "ClusterIP", "1/1"),
        ("web", "in", "web", "NodePort", "2/0"),
        ("else", "in", "else", "LoadBalancer", "2/0"),
    ] {
        land.create("Service", "or", service(name, scope, team, of)).await.expect("fits");
        assert_eq!(land.usage("CustomQuota", "or", "balancers").await, used, "{name}");
    }
    land.create("Service", "or", service("third", "in", "web", "LoadBalancer")).await.expect_err("a third");
    // A label decides: coming in is refused, going out gives back.
    let label = |scope: &str| json!({"metadata": {"labels": {"scope": scope}}});
    land.patch("Service", "or", "out", label("in")).await.expect_err("a third");
    land.patch("Service", "or", "platform", label("out")).await.expect("leaves");
    land.patch("Service", "or", "out", label("in")).await.expect("comes in its place");
}

async fn a_global_quota_follows_its_namespaces(land: &Land) {
    land.namespace("glob-a", json!({"glob": "solar"})).await;
    land.namespace("glob-b", json!({"glob": "wind"})).await;
    let spec = json!({
        "limit": 2, "namespaceSelectors": [{"matchLabels": {"glob": "solar"}}, {"matchLabels": {"glob": "sun"}}],
        "sources": counted(),
    });
    land.make("GlobalCustomQuota", "", "glob", spec).await.expect("a quota");
    for (namespace, name) in [("glob-a", "one"), ("glob-b", "two"), ("glob-b", "three")] {
        land.create("ConfigMap", namespace, counted_map(name)).await.expect("fits");
    }
    assert_eq!(land.usage("GlobalCustomQuota", "", "glob").await, "1/1");
    let label = |value: &str| json!({"metadata": {"labels": {"glob": value}}});
    land.patch("Namespace", "", "glob-b", label("sun")).await.expect("labelled");
    assert_eq!(land.usage("GlobalCustomQuota", "", "glob").await, "3/0", "from the moment of the label");
    land.create("ConfigMap", "glob-a", counted_map("four")).await.expect_err("over");
    let both = |quota: &Value| quota["status"]["namespaces"] == json!(["glob-a", "glob-b"]);
    land.until("GlobalCustomQuota", "", "glob", both).await;
    land.patch("Namespace", "", "glob-b", label("wind")).await.expect("labelled");
    land.create("ConfigMap", "glob-a", counted_map("four")).await.expect("fits again");
}

async fn all_quotas_or_none(land: &Land) {
    land.namespace("vector", json!({"vector": "yes"})).await;
    let spec = json!({"limit": 9, "sources": counted()});
    land.make("CustomQuota", "vector", "wide", spec).await.expect("a quota");
    let spec = json!({"limit": 1, "namespaceSelectors": labelled("vector", "yes"), "sources": counted()});
    land.make("GlobalCustomQuota", "", "vector-narrow", spec).await.expect("a quota");
    let hard = json!({"hard": {"count/configmaps": "9"}});
    land.make("ResourceQuota", "vector", "native", hard).await.expect("a quota");
    land.create("ConfigMap", "vector", counted_map("one")).await.expect("fits");
    let native = |quota: Value| quota["status"]["used"]["count/configmaps"].clone();
    let before = native(land.get("ResourceQuota", "vector", "native").await);
    for _ in 0..5 {
        let refused = land.create("ConfigMap", "vector", counted_map("two")).await.expect_err("the narrow one refuses");
        assert!(refused.contains("GlobalCustomQuota \"vector-narrow\""), "{refused}");
    }
    assert_eq!(land.usage("CustomQuota", "vector", "wide").await, "1/8");
    assert_eq!(native(land.get("ResourceQuota", "vector", "native").await), before);
}

async fn the_quota_with_the_least_left_speaks(land: &Land) {
    land.namespace("least-a", json!({"least": "yes"})).await;
    land.namespace("least-b", json!({"least": "yes"})).await;
    let spec = json!({"limit": 6, "namespaceSelectors": labelled("least", "yes"), "sources": counted()});
    land.make("GlobalCustomQuota", "", "least", spec).await.expect("a quota");
    land.make("CustomQuota", "least-a", "least", json!({"limit": 3, "sources": counted()})).await.expect("a quota");
    for name in ["one", "two", "three"] {
        land.create("ConfigMap", "least-a", counted_map(name)).await.expect("fits");
    }
    let refused = land.create("ConfigMap", "least-a", counted_map("four")).await.expect_err("full");
    let words =
        "creating resource exceeds limit for CustomQuota \"least\" (requested=1, currentUsed=4, available=0, limit=3";
    assert!(refused.contains(words), "{refused}");
    for name in ["one", "two", "three"] {
        land.create("ConfigMap", "least-b", counted_map(name)).await.expect("fits");
    }
    let refused = land.create("ConfigMap", "least-b", counted_map("four")).await.expect_err("full");
    assert!(refused.contains("GlobalCustomQuota \"least\" (requested=1, currentUsed=7"), "{refused}");
}

async fn the_status_names_the_first_of_many(land: &Land) {
    land.namespace("many", json!({})).await;
    let spec = json!({"limit": 1000, "sources": counted(), "options": {"emitMetricPerClaimUsage": true}});
    let quota = land.make("CustomQuota", "many", "many", spec).await.expect("a quota");
    assert_eq!(quota["spec"]["options"], json!({"emitMetricPerClaimUsage": true}));
    let one = land.create("ConfigMap", "many", counted_map("m-000")).await.expect("fits");
    let shown = |count: usize| {
        move |quota: &Value| quota["status"]["claims"].as_array().is_some_and(|claims| claims.len() == count)
    };
    let quota = land.until("CustomQuota", "many", "many", shown(1)).await;
    let claim = json!({
        "group": "", "version": "v1", "kind": "ConfigMap", "name": "m-000", "namespace": "many", "usage": "1",
        "uid": one["metadata"]["uid"],
    });
    assert_eq!(quota["status"]["claims"], json!([claim]));
    let target = json!([{
        "group": "", "version": "v1", "kind": "ConfigMap", "op": "count", "scope": "namespace",
        "selectors": [{"matchLabels": {"counted": "yes"}}],
    }]);
    assert_eq!(quota["status"]["targets"], target);
    assert_eq!(quota["status"]["observedGeneration"], quota["metadata"]["generation"]);
    let rest: Vec<String> = (1..520).map(|at| format!("m-{at:03}")).collect();
    for names in rest.chunks(64) {
        let made = names.iter().map(|name| land.create("ConfigMap", "many", counted_map(name)));
        assert!(futures::future::join_all(made).await.iter().all(Result::is_ok));
    }
    let quota = land.until("CustomQuota", "many", "many", shown(500)).await;
    assert_eq!(quota["status"]["claimCount"], 520, "the total is told beside them");
    assert_eq!(quota["status"]["usage"], json!({"used": "520", "available": "480"}));
}

async fn an_object_that_cannot_be_evaluated_blocks_nobody(land: &Land) {
    land.namespace("odd", json!({})).await;
    land.create("Bucket", "odd", bucket("odd", "plenty")).await.expect("there is no quota yet");
    let spec = json!({
        "limit": "5Gi",
        "sources": [{"apiVersion": "s3.example.com/v1", "kind": "Bucket", "path": ".spec.maxSize"}],
    });
    land.make("CustomQuota", "odd", "buckets", spec).await.expect("a quota");
    let message = |quota: &Value| quota["status"]["conditions"][0]["message"].as_str().unwrap_or("").to_string();
    let told = "1 objects cannot be evaluated and are not counted: buckets.s3.example.com odd/odd";
    let why = "op \"add\" did not resolve to a valid quantity: invalid quantity \"plenty\"";
    let says = |quota: &Value| message(quota).starts_with(told) && message(quota).contains(why);
    let quota = land.until("CustomQuota", "odd", "buckets", says).await;
    assert_eq!(quota["status"]["conditions"][0]["status"], "False");
    land.create("Bucket", "odd", bucket("fine", "4Gi")).await.expect("its kind is not blocked");
    land.create("Bucket", "odd", bucket("large", "4Gi")).await.expect_err("and the limit holds");
    let refused = land.create("Bucket", "odd", bucket("odd-too", "lots")).await.expect_err("not another one");
    let words = "creating resource odd/odd-too (s3.example.com/v1, Kind=Bucket) cannot be admitted because custom quota \
                 usage could not be calculated: CustomQuota \"buckets\" source path \".spec.maxSize\" cel \"\" op \"add\" \
                 did not resolve to a valid quantity: invalid quantity \"lots\"";
    assert!(refused.contains(words), "{refused}");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    land.patch("Bucket", "odd", "odd", label).await.expect("it may be labelled as it is");
    land.patch("Bucket", "odd", "odd", json!({"spec": {"maxSize": "1Gi"}})).await.expect("and mended");
    land.until("CustomQuota", "odd", "buckets", |quota| message(quota) == "reconciled").await;
    assert_eq!(land.usage("CustomQuota", "odd", "buckets").await, "5Gi/0");
}

async fn ledgers_are_shown_settled(land: &Land) {
    land.namespace("books", json!({"books": "yes"})).await;
    land.namespace("capsule-system", json!({})).await;
    let quota = json!({"limit": 3, "sources": counted()});
    let quota = land.make("CustomQuota", "books", "own", quota).await.expect("a quota");
    let spec = json!({"limit": 5, "namespaceSelectors": labelled("books", "yes"), "sources": counted()});
    land.make("GlobalCustomQuota", "", "books-all", spec).await.expect("a quota");
    land.create("ConfigMap", "books", counted_map("one")).await.expect("fits");
    let ledger = land.get("QuantityLedger", "books", "own").await;
    assert_eq!(
        ledger["spec"]["targetRef"],
        json!({
            "apiGroup": "capsule.clastix.io", "kind": "CustomQuota", "namespace": "books", "name": "own",
            "uid": quota["metadata"]["uid"],
        })
    );
    assert_eq!(ledger["status"], json!({"reserved": "0", "allocated": "1"}));
    assert_eq!(ledger["metadata"]["labels"], json!({"capsule.clastix.io/managed-by": "controller"}));
    assert_eq!(ledger["metadata"]["ownerReferences"][0]["name"], "own");
    let global = land.get("QuantityLedger", "capsule-system", "books-all").await;
    assert_eq!(global["spec"]["targetRef"]["kind"], "GlobalCustomQuota");
    assert_eq!(global["status"]["allocated"], "1");
    assert!(land.names("QuantityLedger", "").await.contains(&"own".to_string()));
}

async fn an_unknown_kind_is_told_and_counted_once_it_is_defined(land: &Land) {
    land.namespace("unknown", json!({})).await;
    let spec = json!({"limit": 1, "sources": [{"apiVersion": "none.example.com/v1", "kind": "Thing", "op": "count"}]});
    land.make("CustomQuota", "unknown", "things", spec).await.expect("a quota");
    let message = |quota: &Value| quota["status"]["conditions"][0]["message"].as_str().unwrap_or("").to_string();
    let told = "failed to resolve REST mapping for none.example.com/v1, Kind=Thing";
    land.until("CustomQuota", "unknown", "things", |quota| message(quota).starts_with(told)).await;
    let spec = json!({"limit": 1, "sources": [{"kind": "Namespace", "op": "count"}]});
    land.make("CustomQuota", "unknown", "spaces", spec).await.expect("a quota");
    let told = "GVK /v1, Kind=Namespace is not namespaced";
    land.until("CustomQuota", "unknown", "spaces", |quota| message(quota) == told).await;
}

async fn an_older_excess_may_shrink(land: &Land) {
    land.namespace("excess", json!({})).await;
    land.create("Bucket", "excess", bucket("one", "9Gi")).await.expect("there is no quota yet");
    let spec = json!({
        "limit": "5Gi",
        "sources": [{"apiVersion": "s3.example.com/v1", "kind": "Bucket", "path": ".spec.maxSize"}],
    });
    land.make("CustomQuota", "excess", "buckets", spec).await.expect("a quota");
    assert_eq!(land.usage("CustomQuota", "excess", "buckets").await, "9Gi/0");
    land.patch("Bucket", "excess", "one", json!({"metadata": {"labels": {"a": "b"}}})).await.expect("labelled");
    land.patch("Bucket", "excess", "one", json!({"spec": {"maxSize": "8Gi"}})).await.expect("smaller");
    land.patch("Bucket", "excess", "one", json!({"spec": {"maxSize": "9Gi"}})).await.expect_err("larger");
    // Whoever asks for a rebuild is answered: there is nothing to rebuild.
    let asked =
        json!({"metadata": {"annotations": {"reconcile.projectcapsule.dev/requestedAt": "2026-01-01T00:00:00Z"}}});
    let quota = land.patch("CustomQuota", "excess", "buckets", asked).await.expect("asked");
    assert!(quota["metadata"]["annotations"].get("reconcile.projectcapsule.dev/requestedAt").is_none(), "{quota}");
}

async fn another_version_is_no_way_around(land: &Land) {
    land.namespace("versions", json!({})).await;
    let spec = json!({"limit": 1, "sources": [{"apiVersion": "s3.example.com/v1", "kind": "Bucket", "op": "count"}]});
    land.make("CustomQuota", "versions", "buckets", spec).await.expect("a quota");
    let create = |name: &str| {
        let mut body = bucket(name, "1Gi");
        body["apiVersion"] = json!("s3.example.com/v2");
        body["kind"] = json!("Bucket");
        let request = http::Request::post("/apis/s3.example.com/v2/namespaces/versions/buckets")
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes());
        land.client.request::<Value>(request.expect("a request"))
    };
    create("one").await.expect("fits");
    assert_eq!(land.usage("CustomQuota", "versions", "buckets").await, "1/0");
    let refused = create("two").await.expect_err("full").to_string();
    assert!(refused.contains("exceeds limit for CustomQuota \"buckets\""), "{refused}");
}

async fn objects_without_a_namespace_are_counted_by_global_quotas(land: &Land) {
    let source = json!({"kind": "Namespace", "op": "count", "selectors": labelled("numbered", "yes")});
    let quota = json!({"limit": 2, "sources": [source]});
    land.make("GlobalCustomQuota", "", "numbered", quota).await.expect("a quota");
    for name in ["numbered-1", "numbered-2"] {
        land.namespace(name, json!({"numbered": "yes"})).await;
    }
    let third = json!({"metadata": {"name": "numbered-3", "labels": {"numbered": "yes"}}});
    let refused = land.create("Namespace", "", third).await.expect_err("a third");
    assert!(refused.contains("exceeds limit for GlobalCustomQuota \"numbered\""), "{refused}");
    let everywhere = |quota: &Value| quota["status"]["namespaces"] == json!(["*"]);
    let quota = land.until("GlobalCustomQuota", "", "numbered", everywhere).await;
    assert_eq!(quota["status"]["targets"][0]["scope"], "cluster");
}

async fn hostile_expressions_are_refused_with_their_quota(land: &Land) {
    land.namespace("hostile", json!({})).await;
    let begun = Instant::now();
    let long = format!(".{}", "a".repeat(2000));
    let braces = ".a}5{.b";
    for path in ["", "spec.a", ".a\tb", ".a[", braces, "........", "..*..*..*", &long] {
        let spec = json!({"limit": 1, "sources": [{"kind": "Pod", "path": path}]});
        let refused = land.make("CustomQuota", "hostile", "q", spec).await.expect_err(path);
        assert!(refused.starts_with("422 "), "{path}: {refused}");
        let selectors = json!([{"fieldSelectors": [path]}]);
        let spec = json!({"limit": 1, "sources": [{"kind": "Pod", "op": "count", "selectors": selectors}]});
        let refused = land.make("CustomQuota", "hostile", "q", spec).await.expect_err(path);
        assert!(refused.starts_with("422 "), "{path}: {refused}");
    }
    let nested = "object.a.all(a, object.b.all(b, object.c.all(c, object.d.all(d, a == b && c == d))))";
    let long = format!("object.a == '{}'", "a".repeat(5000));
    let parentheses = format!("{}true{}", "(".repeat(2000), ")".repeat(2000));
    for cel in [nested, "nothing.here", "unknown(object)", "object.", &long, &parentheses] {
        let spec = json!({"limit": 1, "sources": [{"kind": "Pod", "cel": cel}]});
        let refused = land.make("GlobalCustomQuota", "", "hostile", spec).await.expect_err(cel);
        assert!(refused.starts_with("422 "), "{cel}: {refused}");
        let selectors = json!([{"celExpressions": [cel]}]);
        let spec = json!({"limit": 1, "sources": [{"kind": "Pod", "op": "count", "selectors": selectors}]});
        let refused = land.make("GlobalCustomQuota", "", "hostile", spec).await.expect_err(cel);
        assert!(refused.starts_with("422 "), "{cel}: {refused}");
    }
    let sources: Vec<Value> = (0..65).map(|_| json!({"kind": "Pod", "op": "count"})).collect();
    let refused = land.make("CustomQuota", "hostile", "q", json!({"limit": 1, "sources": sources})).await;
    assert!(refused.expect_err("too many").contains("Too many: 65"));
    // A path that is cheap on ordinary objects and not on this one refuses this one, and quickly.
    let spec = json!({"limit": 1, "sources": [{"kind": "ConfigMap", "path": "..size"}]});
    land.make("CustomQuota", "hostile", "q", spec).await.expect("an ordinary path");
    let wide: serde_json::Map<String, Value> = (0..20_000).map(|at| (format!("k{at}"), json!("v"))).collect();
    let asked = Instant::now();
    let _ = land.create("ConfigMap", "hostile", map("wide", json!({}), Value::Object(wide))).await;
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}
