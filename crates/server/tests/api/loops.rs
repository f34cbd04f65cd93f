//! The built-in controllers over the API, in process: rollouts, owners, subnamespaces. Pods become ready when the test says so,
//! as a kubelet would.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use server::identity::Identity;
use tokio::task::JoinSet;

use crate::harness::{Server, request};

/// A server with a namespace `a` and some of its controllers.
async fn started(controllers: &[&str]) -> (Server, JoinSet<()>) {
    let server = Server::start();
    server.define_kinds().await;
    server.play("POST /api/v1/namespaces\n  {\"metadata\": {\"name\": \"a\"}}\n  201").await;
    let settings = controllers::Settings {
        root_ca_pem: String::new(),
        event_ttl: std::time::Duration::from_secs(3600),
        chosen: controllers::Choice::read(controllers, &families::controller_names()).expect("known controllers"),
    };
    let mut of_families = families::Settings::default();
    of_families.choose_controllers(|name| settings.chosen.runs(name));
    let client = server.api.client_as(Identity::internal("controllers"));
    let mut loops = controllers::start(client.clone(), settings);
    for family in families::all(&of_families).iter() {
        for controller in family.controllers(client.clone(), Arc::new(NothingToSend)) {
            loops.spawn(controller);
        }
    }
    (server, loops)
}

/// What nobody has written down, nobody sends.
struct NothingToSend;

impl families::Outbox for NothingToSend {
    fn read(&self, _: u64) -> BoxFuture<'static, Result<families::Posted, String>> {
        Box::pin(async { Ok(families::Posted::default()) })
    }
}

async fn items(server: &Server, path: &str) -> Vec<Value> {
    let answer = server.send(request(&format!("GET {path}"), "")).await;
    answer.value["items"].as_array().cloned().unwrap_or_default()
}

/// Waits until what is listed is as wanted; asks again after every change of it.
async fn settles(server: &Server, path: &str, mut is_as_wanted: impl FnMut(&[Value]) -> bool) -> Vec<Value> {
    let mut watch = server.watch(&format!("{path}?watch=true")).await;
    loop {
        let items = items(server, path).await;
        if is_as_wanted(&items) {
            return items;
        }
        watch.next().await.unwrap_or_else(|| panic!("{path} stays {items:#?}"));
    }
}

const SETS: &str = "/apis/apps/v1/namespaces/a/replicasets";
const PODS: &str = "/api/v1/namespaces/a/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/a/deployments";

fn deployment(replicas: i32, image: &str) -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}}}})
}

async fn create(server: &Server, path: &str, body: &Value) -> Value {
    let answer = server.send(request(&format!("POST {path}"), &body.to_string())).await;
    assert_eq!(answer.code, 201, "{}", answer.text);
    answer.value
}

async fn patch(server: &Server, path: &str, body: &Value) {
    let line = format!("PATCH {path} Content-Type:application/merge-patch+json");
    let answer = server.send(request(&line, &body.to_string())).await;
    assert_eq!(answer.code, 200, "{}", answer.text);
}

/// What a kubelet tells of pods that run.
async fn make_ready(server: &Server) {
    for pod in items(server, PODS).await {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        if pod["status"]["phase"] != "Running" {
            let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
            let line = format!("PATCH {PODS}/{name}/status Content-Type:application/merge-patch+json");
            // It may have gone meanwhile.
            server.send(request(&line, &ready.to_string())).await;
        }
    }
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn sum(sets: &[Value], pointer: &str) -> i64 {
    sets.iter().filter_map(|set| set.pointer(pointer)).map(number).sum()
}

/// The sizes of the sets by the image of their template: wanted and available.
fn sized(sets: &[Value], image: &str) -> (i64, i64) {
    let of = |set: &&Value| set["spec"]["template"]["spec"]["containers"][0]["image"] == image;
    let found = sets.iter().find(of).cloned().unwrap_or_default();
    (number(&found["spec"]["replicas"]), number(&found["status"]["availableReplicas"]))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_update_stays_within_what_its_quota_allows() {
    let (server, _loops) = started(&["deployment", "replicaset"]).await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}});
    create(&server, "/api/v1/namespaces/a/resourcequotas", &quota).await;
    create(&server, DEPLOYMENTS, &deployment(4, "one")).await;
    settles(&server, PODS, |pods| pods.len() == 4).await;
    make_ready(&server).await;
    settles(&server, SETS, |sets| sized(sets, "one") == (4, 4)).await;
    patch(&server, &format!("{DEPLOYMENTS}/web"), &deployment(4, "two")).await;
    // Nothing becomes ready: it waits with one more than wanted, and with no more than one missing.
    settles(&server, SETS, |sets| {
        assert!(sum(sets, "/spec/replicas") <= 5, "beyond the surge: {sets:#?}");
        (sized(sets, "one"), sized(sets, "two").0) == ((3, 3), 2)
    })
    .await;
    let mut watch = server.watch(&format!("{SETS}?watch=true")).await;
    loop {
        make_ready(&server).await;
        let sets = items(&server, SETS).await;
        assert!(sum(&sets, "/spec/replicas") <= 5, "beyond the surge: {sets:#?}");
        if (sized(&sets, "one").0, sized(&sets, "two")) == (0, (4, 4)) {
            break;
        }
        watch.next().await.expect("the rollout goes on");
    }
    settles(&server, PODS, |pods| pods.len() == 4).await;
    // Recreate: the last old one goes before the first new one comes, also with no room to spare.
    patch(&server, "/api/v1/namespaces/a/resourcequotas/q", &json!({"spec": {"hard": {"pods": "4"}}})).await;
    let mut recreate = deployment(4, "three");
    recreate["spec"]["strategy"] = json!({"type": "Recreate", "rollingUpdate": null});
    patch(&server, &format!("{DEPLOYMENTS}/web"), &recreate).await;
    settles(&server, SETS, |sets| (sized(sets, "two").0, sized(sets, "three").0) == (0, 4)).await;
    settles(&server, PODS, |pods| {
        pods.len() == 4 && pods.iter().all(|pod| pod["spec"]["containers"][0]["image"] == "three")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_sets_of_one_template_the_older_wins_and_that_is_that() {
    let (server, _loops) = started(&["deployment", "replicaset"]).await;
    let web = create(&server, DEPLOYMENTS, &deployment(1, "one")).await;
    let first = settles(&server, SETS, |sets| sized(sets, "one").0 == 1).await;
    let mut twin = first[0].clone();
    twin["metadata"] = json!({"name": "web-twin", "labels": {"app": "web"},
        "annotations": {"deployment.kubernetes.io/revision": "7"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": web["metadata"]["uid"],
            "controller": true}]});
    twin["spec"]["replicas"] = json!(1);
    create(&server, SETS, &twin).await;
    let revision = |sets: &[Value], name: &Value| {
        let set = sets.iter().find(|set| set["metadata"]["name"] == *name).cloned().unwrap_or_default();
        let revision = &set["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
        (number(&set["spec"]["replicas"]), revision.as_str().unwrap_or_default().to_owned())
    };
    let older = first[0]["metadata"]["name"].clone();
    let is_settled = |sets: &[Value]| {
        revision(sets, &older) == (1, "8".into()) && revision(sets, &json!("web-twin")) == (0, "7".into())
    };
    settles(&server, SETS, is_settled).await;
    settles(&server, PODS, |pods| pods.len() == 1).await;
    let at_rest = settles(&server, SETS, |sets| is_settled(sets) && sum(sets, "/status/replicas") == 1).await;
    // Every further look finds nothing to write.
    for round in 0..5 {
        patch(
            &server,
            &format!("{DEPLOYMENTS}/web"),
            &json!({"metadata": {"annotations": {"round": round.to_string()}}}),
        )
        .await;
        settles(&server, DEPLOYMENTS, |all| all[0]["status"]["observedGeneration"] == all[0]["metadata"]["generation"])
            .await;
    }
    let versions =
        |sets: &[Value]| -> Vec<Value> { sets.iter().map(|set| set["metadata"]["generation"].clone()).collect() };
    assert_eq!(versions(&items(&server, SETS).await), versions(&at_rest));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_takes_what_its_selector_finds_and_lets_go_of_what_it_does_not() {
    let (server, _loops) = started(&["replicaset"]).await;
    let pod = json!({"metadata": {"name": "stray", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    create(&server, PODS, &pod).await;
    let set = json!({"metadata": {"name": "set"}, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    create(&server, SETS, &set).await;
    let owned = |pod: &Value| pod["metadata"]["ownerReferences"][0]["name"] == "set";
    settles(&server, PODS, |pods| pods.len() == 2 && pods.iter().all(owned)).await;
    patch(&server, &format!("{PODS}/stray"), &json!({"metadata": {"labels": {"app": "other"}}})).await;
    settles(&server, PODS, |pods| {
        let free = pods.iter().filter(|pod| pod["metadata"]["ownerReferences"].is_null()).count();
        pods.len() == 3 && free == 1
    })
    .await;
}

const MAPS: &str = "/api/v1/namespaces/a/configmaps";

/// A ConfigMap with these owners, each holding up its owner's going.
async fn map(server: &Server, name: &str, owners: &[&Value]) -> Value {
    let owner = |owner: &&Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true})
    };
    let owners: Vec<Value> = owners.iter().map(owner).collect();
    create(server, MAPS, &json!({"metadata": {"name": name, "ownerReferences": owners}})).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_owner_holds_outlives_a_deletion_in_the_foreground() {
    let (server, _loops) = started(&["garbagecollector"]).await;
    let (one, other) = (map(&server, "one", &[]).await, map(&server, "other", &[]).await);
    map(&server, "both", &[&one, &other]).await;
    map(&server, "only", &[&one]).await;
    server.play(&format!("DELETE {MAPS}/one?propagationPolicy=Foreground\n  200")).await;
    let left = settles(&server, MAPS, |maps| maps.len() == 2).await;
    let names: Vec<&Value> = left.iter().map(|map| &map["metadata"]["name"]).collect();
    assert_eq!(names, ["both", "other"]);
    let owners = left[0]["metadata"]["ownerReferences"].as_array().expect("owners");
    assert_eq!((owners.len(), &owners[0]["name"]), (1, &json!("other")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_in_a_circle_do_not_wait_for_each_other() {
    let (server, _loops) = started(&["garbagecollector"]).await;
    let one = map(&server, "one", &[]).await;
    let two = map(&server, "two", &[&one]).await;
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "two", "uid": two["metadata"]["uid"],
        "blockOwnerDeletion": true}]);
    patch(&server, &format!("{MAPS}/one"), &json!({"metadata": {"ownerReferences": owner}})).await;
    server.play(&format!("DELETE {MAPS}/one?propagationPolicy=Foreground\n  200")).await;
    settles(&server, MAPS, <[Value]>::is_empty).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_anchor_names_a_namespace_and_takes_it_with_it() {
    let (server, _loops) = started(&["namespace"]).await;
    let anchor = |name: &str, spec: Value| {
        json!({"apiVersion": "hnc.x-k8s.io/v1alpha2", "kind": "SubnamespaceAnchor",
        "metadata": {"name": name}, "spec": spec})
    };
    let path = "/apis/hnc.x-k8s.io/v1alpha2/namespaces/a/subnamespaceanchors";
    for (body, why) in [
        (anchor("b.c", json!({})), "metadata.name: Invalid value: \"b.c\": must be the name of a namespace"),
        (
            anchor("kid", json!({"labels": [{"key": "pool", "value": "rich"}]})),
            "spec.labels[0].key: Invalid value: \"pool\"",
        ),
        (anchor("kid", json!({"annotations": [{"key": "x", "value": "y"}]})), "spec.annotations[0].key"),
    ] {
        server.play(&format!("POST {path}\n  {body}\n  422  message~{why}")).await;
    }
    create(&server, path, &anchor("kid", json!({}))).await;
    let kid = |all: &[Value]| all.iter().find(|one| one["metadata"]["name"] == "kid").cloned();
    settles(&server, "/api/v1/namespaces", |all| {
        kid(all).is_some_and(|kid| kid["metadata"]["labels"]["a.tree.hnc.x-k8s.io/depth"] == "1")
    })
    .await;
    settles(&server, path, |all| all[0]["status"]["status"] == "Ok" && !all[0]["metadata"]["finalizers"].is_null())
        .await;
    server.play(&format!("DELETE {path}/kid\n  200")).await;
    settles(&server, "/api/v1/namespaces", |all| kid(all).is_none()).await;
    settles(&server, path, <[Value]>::is_empty).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_anchor_that_always_fails_keeps_no_other_waiting() {
    let (server, _loops) = started(&["namespace"]).await;
    let path = "/apis/hnc.x-k8s.io/v1alpha2/namespaces/a/subnamespaceanchors";
    let anchor = |name: &str| json!({"apiVersion": "hnc.x-k8s.io/v1alpha2", "kind": "SubnamespaceAnchor", "metadata": {"name": name}});
    let is_there = |name: &'static str| {
        move |all: &[Value]| all.iter().any(|one| one["metadata"]["name"] == name && one["status"]["status"] == "Ok")
    };
    create(&server, path, &anchor("first")).await;
    settles(&server, path, is_there("first")).await;
    // The first one's configuration is gone and cannot be made again.
    let configurations = "/apis/hnc.x-k8s.io/v1alpha2/namespaces/first/hierarchyconfigurations";
    settles(&server, configurations, |all| !all.is_empty()).await;
    let hard = json!({"count/hierarchyconfigurations.hnc.x-k8s.io": "0"});
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": hard}});
    create(&server, "/api/v1/namespaces/first/resourcequotas", &quota).await;
    server.play(&format!("DELETE {configurations}/hierarchy\n  200")).await;
    for name in ["later", "last"] {
        create(&server, path, &anchor(name)).await;
        settles(&server, path, is_there(name)).await;
    }
    server.play(&format!("GET {configurations}/hierarchy\n  404")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_somebody_wrote_puts_no_quota_into_foreign_namespaces() {
    let (server, _loops) = started(&["resourcepool"]).await;
    server.play("POST /api/v1/namespaces\n  {\"metadata\": {\"name\": \"victim\"}}\n  201").await;
    let path = "/apis/capsule.clastix.io/v1beta2/resourcepools";
    let spec = json!({"quota": {"hard": {"pods": "1"}}, "selectors": [{"matchLabels": {"none": "such"}}]});
    let pool = json!({"apiVersion": "capsule.clastix.io/v1beta2", "kind": "ResourcePool",
        "metadata": {"name": "p"}, "spec": spec});
    create(&server, path, &pool).await;
    // What pools provision, and whether they are held, is decided by what they select, in the commit of each write.
    let written = json!({"status": {"namespaces": ["victim"], "namespaceCount": 1, "claimCount": 0, "conditions": [],
        "namespaceUsage": {"victim": {"pods": "0"}}}});
    patch(&server, &format!("{path}/p/status"), &written).await;
    let shown = items(&server, path).await;
    assert_eq!(shown[0]["status"]["namespaces"], json!(["victim"]), "it is shown for a while");
    assert_eq!(shown[0]["metadata"]["finalizers"], Value::Null);
    assert_eq!(items(&server, "/api/v1/namespaces/victim/resourcequotas").await, Vec::<Value>::new());
    patch(&server, "/api/v1/namespaces/victim", &json!({"metadata": {"labels": {"none": "such"}}})).await;
    assert_eq!(items(&server, "/api/v1/namespaces/victim/resourcequotas").await.len(), 1);
    assert_ne!(items(&server, path).await[0]["metadata"]["finalizers"], Value::Null);
}

const CAPSULE: &str = "/apis/capsule.clastix.io/v1beta2";

/// A pool over namespace `a`, which has nothing without a claim.
async fn pool(server: &Server) {
    patch(server, "/api/v1/namespaces/a", &json!({"metadata": {"labels": {"tier": "gold"}}})).await;
    let spec = json!({"selectors": [{"matchLabels": {"tier": "gold"}}], "config": {"defaultsZero": true},
        "quota": {"hard": {"secrets": "2"}}});
    let pool = json!({"apiVersion": "capsule.clastix.io/v1beta2", "kind": "ResourcePool", "metadata": {"name": "p"}, "spec": spec});
    create(server, &format!("{CAPSULE}/resourcepools"), &pool).await;
}

/// A claim whose owner is gone is collected as soon as nothing uses it; a namespace that leaves the pool uses nothing of it. What
/// it used is nobody's then, and nothing can be had twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_without_its_owner_goes_when_its_namespace_leaves_the_pool() {
    let (server, _loops) = started(&["garbagecollector", "resourcepool"]).await;
    pool(&server).await;
    let owner = map(&server, "owner", &[]).await;
    let claims = format!("{CAPSULE}/namespaces/a/resourcepoolclaims");
    let reference =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    let claim = json!({"apiVersion": "capsule.clastix.io/v1beta2", "kind": "ResourcePoolClaim",
        "metadata": {"name": "c", "ownerReferences": reference}, "spec": {"pool": "p", "claim": {"secrets": "2"}}});
    create(&server, &claims, &claim).await;
    for name in ["one", "two"] {
        create(&server, "/api/v1/namespaces/a/secrets", &json!({"metadata": {"name": name}})).await;
    }
    server.play(&format!("DELETE {MAPS}/owner\n  200")).await;
    // Something else is collected after it was tried: by then it was refused.
    let second = map(&server, "second", &[]).await;
    map(&server, "dependent", &[&second]).await;
    server.play(&format!("DELETE {MAPS}/second\n  200")).await;
    settles(&server, MAPS, <[Value]>::is_empty).await;
    assert_eq!(items(&server, &claims).await.len(), 1, "in use");

    patch(&server, "/api/v1/namespaces/a", &json!({"metadata": {"labels": {"tier": "lead"}}})).await;
    settles(&server, &claims, <[Value]>::is_empty).await;
    patch(&server, "/api/v1/namespaces/a", &json!({"metadata": {"labels": {"tier": "gold"}}})).await;
    server
        .play(
            r#"
GET /api/v1/namespaces/a/resourcequotas/capsule-pool-p
  200  spec.hard.secrets=0
POST /api/v1/namespaces/a/secrets
  {"metadata": {"name": "three"}}
  403  message~exceeded quota: capsule-pool-p
GET /apis/capsule.clastix.io/v1beta2/resourcepools/p
  200  status.allocation.used.secrets=0
"#,
        )
        .await;
}
