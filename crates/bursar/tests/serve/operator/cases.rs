//! What is granted, what becomes of it, and what happens while nobody looks.

use super::*;
use crate::etcd::signal;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_granted_and_not_stored_costs_no_more_than_a_moment() {
    let land = Land::start().await;
    let _operator = land.operator();
    land.namespace("team-a", json!({})).await;
    land.quota("team-a", "amounts", 5, amounts()).await;
    land.in_force("team-a", holding("probe", 9)).await;
    let maps = land.maps("team-a");
    let post = PostParams::default();
    let create = async |value: Value| maps.create(&post, &object(value)).await;

    // Dry runs are decided, and take nothing.
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    maps.create(&dry, &object(holding("dry", 5))).await.expect("it would fit");
    let stored = create(holding("x", 2)).await.expect("it fits");
    assert_eq!(stored.name_any(), "x");

    // A name that is taken: it was admitted before the API server knew.
    let taken = create(holding("x", 3)).await.expect_err("it is there");
    assert!(matches!(taken, kube::Error::Api(status) if status.code == 409));
    until("what is not stored is given back", async || create(holding("y", 3)).await.is_ok()).await;
    let full = create(holding("z", 1)).await.expect_err("5 of 5");
    assert!(is_denied(&full), "{full}");
    assert!(full.to_string().contains("amounts"), "{full}");
    land.shows(&custom("team-a", "amounts"), "5").await;

    // Another webhook that refuses afterwards, because nobody answers there.
    delete(&maps, "y").await;
    land.shows(&custom("team-a", "amounts"), "2").await;
    land.other_webhook().await;
    let mut refused = holding("refused", 3);
    refused["metadata"]["labels"] = json!({"refused": "yes"});
    until("the other webhook refuses", async || {
        let tried = maps.create(&dry, &object(refused.clone())).await;
        tried.is_err_and(|error| error.to_string().contains("other.example.com"))
    })
    .await;
    create(refused).await.expect_err("the other one says no");
    until("what was refused later is given back", async || create(holding("y", 3)).await.is_ok()).await;

    // A name that the API server makes.
    delete(&maps, "y").await;
    let mut generated = holding("", 3);
    generated["metadata"] = json!({"generateName": "made-"});
    until("it was let go of", async || create(generated.clone()).await.is_ok()).await;
    land.shows(&custom("team-a", "amounts"), "5").await;

    // Updates: what grows is asked about, what shrinks makes room once it was seen.
    let patch = async |amount: u64| {
        let path = "/api/v1/namespaces/team-a/configmaps/x";
        land.call("PATCH", path, json!({"data": {"amount": amount.to_string()}})).await
    };
    assert!(is_denied(&patch(3).await.expect_err("it grows")));
    patch(1).await.expect("it shrinks");
    until("there is room again", async || create(holding("w", 1)).await.is_ok()).await;
    land.shows(&custom("team-a", "amounts"), "5").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happened_while_the_operator_was_down_is_counted_and_replicas_are_the_objects_own() {
    let land = Land::start().await;
    let mut operator = land.operator();
    land.namespace("team-a", json!({"tier": "gold"})).await;
    land.namespace("team-b", json!({})).await;
    let global = "/apis/capsule.clastix.io/v1beta2/globalcustomquotas/gold";
    land.global_quota("gold", 3, json!({"tier": "gold"}), load()).await;
    land.create("team-a", "one").await.expect("it fits");
    land.shows(global, "1").await;
    for name in ["one", "two", "three"] {
        land.create("team-b", name).await.expect("it is not counted there");
    }

    // A namespace comes under a quota, and leaves it.
    let label = async |namespace: &str, tier: Value| {
        let path = format!("/api/v1/namespaces/{namespace}");
        land.call("PATCH", &path, json!({"metadata": {"labels": {"tier": tier}}})).await.expect("a label");
    };
    label("team-b", json!("gold")).await;
    land.shows(global, "4").await;
    assert!(is_denied(&land.create("team-a", "two").await.expect_err("4 of 3")));
    label("team-b", Value::Null).await;
    land.shows(global, "1").await;
    land.create("team-a", "two").await.expect("2 of 3");

    // Nobody is let in while nobody counts; what goes, goes.
    operator.0.kill().expect("killed");
    operator.0.wait().expect("gone");
    land.create("team-a", "three").await.expect_err("nobody answers");
    delete(&land.maps("team-a"), "one").await;
    // Whoever takes the registration away is free.
    let registered = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/bursar-quota";
    land.call("DELETE", registered, json!({})).await.expect("taken away");
    until("the cluster is free", async || land.create("team-a", "free").await.is_ok()).await;
    land.create("team-a", "free-2").await.expect("nobody asks");
    land.create("team-a", "free-3").await.expect("nobody asks");
    let _operator = land.operator();
    land.shows(global, "4").await;
    until("it refuses again", async || {
        let tried = land.create("team-a", "more").await;
        match tried {
            Ok(_) => panic!("it was ready, and let somebody in"),
            Err(error) => is_denied(&error),
        }
    })
    .await;

    // Replicas, however they are written.
    let replicas = json!({"apiVersion": "apps/v1", "kind": "Deployment", "op": "add", "path": ".spec.replicas"});
    land.quota("team-b", "replicas", 5, replicas).await;
    let web = |replicas: u64| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        }})
    };
    let deployments = "/apis/apps/v1/namespaces/team-b/deployments";
    let dry = format!("{deployments}?dryRun=All");
    until("the quota is in force", async || {
        land.call("POST", &dry, web(6)).await.is_err_and(|error| is_denied(&error))
    })
    .await;
    land.call("POST", deployments, web(2)).await.expect("2 of 5");
    let scale = async |replicas: u64| {
        let path = format!("{deployments}/web/scale");
        land.call("PATCH", &path, json!({"spec": {"replicas": replicas}})).await
    };
    assert!(is_denied(&scale(6).await.expect_err("6 of 5")));
    scale(5).await.expect("5 of 5");
    land.shows(&custom("team-b", "replicas"), "5").await;

    // Expressions that take long are evaluated before the decision.
    let long = "lists.range(2000).all(x, x < 100001) ? 2 : 9";
    land.quota("team-b", "long", 5, json!({"apiVersion": "v1", "kind": "Secret", "cel": long})).await;
    let mut made = 0;
    until("the quota is full", async || {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("s{made}")}});
        let tried = land.call("POST", "/api/v1/namespaces/team-b/secrets", secret).await;
        made += u32::from(tried.is_ok());
        tried.is_err_and(|error| is_denied(&error))
    })
    .await;
    land.shows(&custom("team-b", "long"), &(2 * made).to_string()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_with_a_store_of_its_own_does_not_start_beside_another() {
    let land = Land::start().await;
    let mut operator = land.operator();
    let second = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["operator", "--log", "error", "--listen", "127.0.0.1:0", "--kubeconfig"])
        .arg(land.data().join("kubeconfig"))
        .arg("--data")
        .arg(land.data().join("other"))
        .output()
        .expect("bursar runs");
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("another operator") && said.contains("kubectl delete"), "{said}");
    // Somebody changes the registration: it is written again. Somebody takes it away: the cluster is free.
    let registered = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/bursar-quota";
    let policy = async || -> Option<String> {
        let configuration = land.call("GET", registered, Value::Null).await.ok()?;
        Some(configuration.pointer("/webhooks/0/failurePolicy")?.as_str()?.to_owned())
    };
    let change = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]);
    let request = http::Request::patch(registered).header("Content-Type", "application/json-patch+json");
    let request = request.body(change.to_string().into_bytes()).expect("a request");
    land.client.request::<Value>(request).await.expect("changed");
    until("it is written again", async || policy().await.as_deref() == Some("Fail")).await;
    // Told to end, it ends, and stays registered: nobody is let in meanwhile.
    signal(&operator, "-TERM");
    assert!(operator.0.wait().expect("ended").success());
    assert_eq!(policy().await.as_deref(), Some("Fail"));
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_capsules_own_webhooks_it_does_not_start_unless_it_is_told_to() {
    let land = Land::start().await;
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "capsule-validating-webhook-configuration"},
        "webhooks": [{
            "name": "calculation.custom-quotas.projectcapsule.dev", "failurePolicy": "Ignore", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "clientConfig": {"url": format!("https://127.0.0.1:{}/", free_port())},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
        }],
    });
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    land.call("POST", hooks, hook).await.expect("a webhook");
    let start = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        command.args(["operator", "--log", "error", "--listen", "127.0.0.1:0", "--kubeconfig"]);
        command.arg(land.data().join("kubeconfig")).arg("--data").arg(land.data().join("data")).args(more);
        command
    };
    let refused = start(&[]).output().expect("bursar runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    assert!(said.contains("capsule-validating-webhook-configuration") && said.contains("--beside-capsule"), "{said}");
    // Whoever keeps other quotas is not concerned, and whoever moves is let.
    for more in [["--families", "kubernetes"].as_slice(), &["--beside-capsule"]] {
        let mut process = Ended(start(more).stdout(Stdio::piped()).spawn().expect("bursar starts"));
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        assert!(line.contains("ready"), "{more:?}: {line:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_come_and_go_and_are_served_otherwise() {
    let land = Land::start().await;
    let _operator = land.operator();
    land.namespace("team-a", json!({})).await;
    // A quota on what does not exist yet.
    let buckets = json!({"apiVersion": "example.com/v1", "kind": "Bucket", "op": "count"});
    land.quota("team-a", "buckets", 2, buckets).await;
    land.shows(&custom("team-a", "buckets"), "0").await;
    let version = |name: &str, served: bool| {
        json!({"name": name, "served": served, "storage": name == "v2",
               "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let definition = |versions: Value| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
               "metadata": {"name": "buckets.example.com"},
               "spec": {"group": "example.com", "scope": "Namespaced", "versions": versions,
                        "names": {"plural": "buckets", "singular": "bucket", "kind": "Bucket", "listKind": "BucketList"}}})
    };
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let both = json!([version("v1", true), version("v2", true)]);
    land.call("POST", definitions, definition(both)).await.expect("a definition");
    let create = async |version: &str, name: &str, dry: bool| {
        let path =
            format!("/apis/example.com/{version}/namespaces/team-a/buckets{}", if dry { "?dryRun=All" } else { "" });
        let bucket =
            json!({"apiVersion": format!("example.com/{version}"), "kind": "Bucket", "metadata": {"name": name}});
        land.call("POST", &path, bucket).await
    };
    until("the kind is served", async || create("v1", "one", false).await.is_ok()).await;
    land.shows(&custom("team-a", "buckets"), "1").await;
    until("a second fits", async || create("v2", "two", false).await.is_ok()).await;
    let refuses = async |version: &str| {
        let tried = create(version, "three", true).await;
        tried.is_err_and(|error| is_denied(&error))
    };
    for version in ["v1", "v2"] {
        until("in whatever version it is written", async || refuses(version).await).await;
    }
    // The version in which it was watched is served no more.
    let one = json!([version("v1", true), version("v2", false)]);
    let path = format!("{definitions}/buckets.example.com");
    land.call("PATCH", &path, json!({"spec": {"versions": one}})).await.expect("another version");
    until("v2 is gone", async || create("v2", "three", true).await.is_err_and(|error| !is_denied(&error))).await;
    until("it refuses in the other", async || refuses("v1").await).await;
    let bucket = "/apis/example.com/v1/namespaces/team-a/buckets/one";
    land.call("DELETE", bucket, json!({})).await.expect("deleted");
    land.shows(&custom("team-a", "buckets"), "1").await;
    land.call("DELETE", &path, json!({})).await.expect("the kind goes");
    land.shows(&custom("team-a", "buckets"), "0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn its_rights_are_enough_and_what_it_may_not_see_is_refused() {
    let land = Land::start().await;
    let printed = Command::new(env!("CARGO_BIN_EXE_bursar")).arg("manifests").output().expect("bursar starts");
    let manifests = String::from_utf8(printed.stdout).expect("text");
    let (made, _, why) = land.cluster.run("create namespace quota-system", "");
    assert!(made, "{why}");
    let (applied, _, why) = land.cluster.run("apply -f -", &manifests);
    assert!(applied && !why.contains("Warning"), "{why}");
    let (made, token, why) = land.cluster.run("create token bursar -n quota-system", "");
    assert!(made, "{why}");
    land.operate_as(token.trim());
    let mut operator = land.operator();
    land.namespace("team-a", json!({"tier": "gold"})).await;
    land.namespace("team-b", json!({})).await;
    land.quota("team-a", "amounts", 5, amounts()).await;
    land.in_force("team-a", holding("probe", 9)).await;
    land.maps("team-a").create(&PostParams::default(), &object(holding("x", 5))).await.expect("5 of 5");
    land.shows(&custom("team-a", "amounts"), "5").await;
    // It may not list Secrets.
    let secrets = json!({"apiVersion": "v1", "kind": "Secret", "op": "count"});
    land.quota("team-a", "secrets", 9, secrets).await;
    let create = async |namespace: &str| {
        let path = format!("/api/v1/namespaces/{namespace}/secrets?dryRun=All");
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
        land.call("POST", &path, secret).await
    };
    let refuses = async || {
        create("team-a").await.is_err_and(|error| is_denied(&error) && error.to_string().contains("cannot be listed"))
    };
    until("what it cannot count is refused", refuses).await;
    create("team-b").await.expect("nobody counts there");
    // Nor does that keep it from starting.
    operator.0.kill().expect("killed");
    operator.0.wait().expect("gone");
    let _operator = land.operator();
    until("it refuses again", refuses).await;
    land.maps("team-a").create(&PostParams::default(), &object(holding("y", 1))).await.expect_err("5 of 5");
    let reading = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "bursar-counted"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get", "list", "watch"]}]});
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/bursar-counted";
    land.call("PATCH", role, reading).await.expect("more rights");
    until("it counts them", async || create("team-a").await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_goes_while_nobody_answers_and_what_nests_too_deep_blinds_nobody() {
    let land = Land::start().await;
    let mut operator = land.operator();
    land.namespace("team-a", json!({})).await;
    land.namespace("free", json!({})).await;
    // A kind that the preferred version of its group does not serve.
    let definition = |plural: &str, kind: &str, version: &str| {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
               "metadata": {"name": format!("{plural}.example.com")},
               "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                        "versions": [{"name": version, "served": true, "storage": true, "schema": schema}]}})
    };
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    land.call("POST", definitions, definition("buckets", "Bucket", "v1")).await.expect("a definition");
    land.call("POST", definitions, definition("pails", "Pail", "v2")).await.expect("a definition");
    let create = async |namespace: &str, name: &str, deep: usize, dry: bool| {
        let spec = format!("{}1{}", "[".repeat(deep), "]".repeat(deep));
        let bucket = format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Bucket","metadata":{{"name":"{name}"}},"spec":{{"deep":{spec}}}}}"#
        );
        let dry = if dry { "?dryRun=All" } else { "" };
        let request = http::Request::post(format!("/apis/example.com/v1/namespaces/{namespace}/buckets{dry}"));
        let request = request.header("Content-Type", "application/json").body(bucket.into_bytes());
        land.client.request_text(request.expect("a request")).await
    };
    until("the kind is served", async || create("free", "first", 0, false).await.is_ok()).await;
    until("so is the other", async || {
        let pails = "/apis/example.com/v2/namespaces/free/pails";
        land.call("GET", pails, Value::Null).await.is_ok()
    })
    .await;
    let buckets = json!({"apiVersion": "example.com/v1", "kind": "Bucket", "op": "count"});
    land.quota("team-a", "buckets", 9, buckets).await;
    until("somebody decides", async || {
        create("team-a", "deep", 200, true).await.is_err_and(|error| error.to_string().contains("nests deeper"))
    })
    .await;
    create("team-a", "one", 0, false).await.expect("1 of 9");
    land.shows(&custom("team-a", "buckets"), "1").await;
    for (number, deep) in [121, 130, 5_000].into_iter().enumerate() {
        create("free", &format!("deep-{number}"), deep, false).await.expect("nobody counts there");
    }
    create("team-a", "two", 0, false).await.expect("2 of 9");
    land.shows(&custom("team-a", "buckets"), "2").await;

    // What is deleted while nobody answers loses its last finalizer, and nothing else changes with that.
    land.quota("team-a", "load", 5, load()).await;
    until("it is in force", async || {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        land.maps("team-a").create(&dry, &map("probe")).await.is_ok()
            && land.used(&custom("team-a", "load")).await.is_some()
    })
    .await;
    let mut held = map("held");
    held.metadata.finalizers = Some(vec!["example.com/held".into()]);
    land.maps("team-a").create(&PostParams::default(), &held).await.expect("1 of 5");
    land.shows(&custom("team-a", "load"), "1").await;
    operator.0.kill().expect("killed");
    operator.0.wait().expect("gone");
    let path = "/api/v1/namespaces/team-a/configmaps/held";
    land.call("DELETE", path, json!({})).await.expect("it is going");
    let free = json!({"metadata": {"finalizers": null}});
    let grown = json!({"metadata": {"finalizers": null}, "data": {"amount": "9"}});
    land.call("PATCH", path, grown).await.expect_err("that is more");
    land.call("PATCH", path, free).await.expect("it goes");
    until("it is gone", async || land.call("GET", path, Value::Null).await.is_err()).await;
    let _operator = land.operator();
    land.shows(&custom("team-a", "load"), "0").await;
    land.shows(&custom("team-a", "buckets"), "2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_asked_about_when_they_are_resized_and_let_go_of_when_they_are_evicted() {
    let land = Land::start().await;
    let _operator = land.operator();
    land.namespace("team-a", json!({})).await;
    let path = ".spec.containers[*].resources.limits.cpu";
    land.quota("team-a", "cpu", 5, json!({"apiVersion": "v1", "kind": "Pod", "op": "add", "path": path})).await;
    let containers = |cpu: u64| {
        let amount = json!({"cpu": cpu.to_string()});
        json!([{"name": "c", "image": "i", "resources": {"limits": amount, "requests": amount}}])
    };
    let pod = |name: &str, cpu: u64| {
        let spec = json!({"containers": containers(cpu)});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    };
    let pods = "/api/v1/namespaces/team-a/pods";
    until("the quota is in force", async || {
        let tried = land.call("POST", &format!("{pods}?dryRun=All"), pod("probe", 9)).await;
        tried.is_err_and(|error| is_denied(&error))
    })
    .await;
    land.call("POST", pods, pod("one", 2)).await.expect("2 of 5");
    land.shows(&custom("team-a", "cpu"), "2").await;
    let resize = async |cpu: u64| {
        land.call("PATCH", &format!("{pods}/one/resize"), json!({"spec": {"containers": containers(cpu)}})).await
    };
    let larger = resize(6).await.expect_err("6 of 5");
    assert!(is_denied(&larger), "{larger}");
    resize(4).await.expect("4 of 5");
    land.shows(&custom("team-a", "cpu"), "4").await;
    assert!(is_denied(&land.call("POST", pods, pod("two", 2)).await.expect_err("6 of 5")));
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}});
    land.call("POST", &format!("{pods}/one/eviction"), eviction).await.expect("evicted");
    land.shows(&custom("team-a", "cpu"), "0").await;
    until("there is room again", async || land.call("POST", pods, pod("two", 5)).await.is_ok()).await;
}
