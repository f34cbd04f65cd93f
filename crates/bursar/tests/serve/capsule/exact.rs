//! Exactness: two hundred parallel creates in twenty namespaces against one quota of ten, again and again, and with the
//! server killed in the middle; and a pool that never gives the same amount twice.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ResourceQuota};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{Land, kind, labelled};
use crate::harness::Server;
use crate::object;

const NAMESPACES: usize = 20;
const EACH: usize = 10;
const LIMIT: usize = 10;
const ROUNDS: usize = 5;

#[derive(Default)]
struct Outcome {
    granted: Vec<(String, String)>,
    refused: usize,
    /// Asked and never answered: the connection ended.
    unknown: usize,
}

/// Creates config maps in all namespaces, all at once.
async fn storm(client: &Client, round: &str) -> Outcome {
    let mut tasks = JoinSet::new();
    for at in 0..NAMESPACES * EACH {
        let namespace = format!("n{}", at % NAMESPACES);
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
        let name = format!("{round}-{at}");
        tasks.spawn(async move {
            let map = object(json!({"metadata": {"name": name, "labels": {"counted": "yes"}}}));
            (namespace, name, maps.create(&PostParams::default(), &map).await)
        });
    }
    let mut outcome = Outcome::default();
    while let Some(done) = tasks.join_next().await {
        let (namespace, name, created) = done.expect("no panic");
        match created {
            Ok(_) => outcome.granted.push((namespace, name)),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                assert!(status.message.contains("exceeds limit for GlobalCustomQuota \"ten\""), "{}", status.message);
                outcome.refused += 1;
            }
            Err(_) => outcome.unknown += 1,
        }
    }
    outcome
}

async fn stored(client: &Client) -> Vec<(String, String)> {
    let maps: Api<ConfigMap> = Api::all(client.clone());
    let list = maps.list(&ListParams::default().labels("counted=yes")).await.expect("a list");
    list.iter().map(|map| (map.namespace().unwrap_or_default(), map.name_any())).collect()
}

async fn used(client: &Client) -> String {
    let quotas: Api<DynamicObject> = Api::all_with(client.clone(), &kind("GlobalCustomQuota"));
    let quota = quotas.get("ten").await.expect("the quota");
    quota.data["status"]["usage"]["used"].as_str().unwrap_or("").to_owned()
}

async fn prepare(client: &Client) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for at in 0..NAMESPACES {
        let labels = json!({"tenant": "solar"});
        let namespace = object(json!({"metadata": {"name": format!("n{at}"), "labels": labels}}));
        namespaces.create(&PostParams::default(), &namespace).await.expect("a namespace");
    }
    let quotas: Api<DynamicObject> = Api::all_with(client.clone(), &kind("GlobalCustomQuota"));
    let quota = json!({
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "GlobalCustomQuota", "metadata": {"name": "ten"},
        "spec": {
            "limit": LIMIT,
            "namespaceSelectors": labelled("tenant", "solar"),
            "sources": [{"kind": "ConfigMap", "op": "count", "selectors": labelled("counted", "yes")}],
        },
    });
    quotas.create(&PostParams::default(), &object(quota)).await.expect("a quota");
}

async fn clear(client: &Client) {
    for (namespace, name) in stored(client).await {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
        maps.delete(&name, &DeleteParams::default()).await.expect("deleted");
    }
    assert_eq!(used(client).await, "0");
}

#[tokio::test]
async fn two_hundred_parallel_creates_find_exactly_ten_places_every_time() {
    let land = Land::start().await;
    prepare(&land.client).await;
    for round in 0..ROUNDS {
        let outcome = storm(&land.client, &format!("r{round}")).await;
        assert_eq!((outcome.granted.len(), outcome.refused), (LIMIT, NAMESPACES * EACH - LIMIT), "round {round}");
        let (mut granted, mut there) = (outcome.granted, stored(&land.client).await);
        granted.sort();
        there.sort();
        assert_eq!(granted, there, "round {round}");
        assert_eq!(used(&land.client).await, LIMIT.to_string(), "round {round}");
        clear(&land.client).await;
    }
    land.end().await;
}

async fn client(server: &Server) -> Client {
    server::tls::install_provider();
    let kubeconfig = kube::config::Kubeconfig::read_from(server.kubeconfig()).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("a configuration");
    Client::try_from(config).expect("a client")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_in_the_middle_of_the_storm_changes_nothing_of_it() {
    let mut server = Server::start();
    prepare(&client(&server).await).await;
    for (round, pause_ms) in [5, 40, 15].into_iter().enumerate() {
        let before = client(&server).await;
        let raging = tokio::spawn(async move { storm(&before, &format!("k{round}")).await });
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        server = tokio::task::spawn_blocking(move || {
            server.kill_and_restart();
            server
        })
        .await
        .expect("restarted");
        let first = raging.await.expect("no panic");
        let client = client(&server).await;
        let there = stored(&client).await;
        for granted in &first.granted {
            assert!(there.contains(granted), "round {round}: what was acknowledged is gone: {granted:?}");
        }
        assert!(there.len() <= LIMIT, "round {round}: {} are there", there.len());
        assert_eq!(used(&client).await, there.len().to_string(), "round {round}");
        // The rest of the storm finds exactly the places that are left.
        let second = storm(&client, &format!("l{round}")).await;
        assert_eq!((second.granted.len(), second.unknown), (LIMIT - there.len(), 0), "round {round}");
        assert_eq!(stored(&client).await.len(), LIMIT, "round {round}");
        assert_eq!(used(&client).await, LIMIT.to_string(), "round {round}");
        clear(&client).await;
    }
}

/// A line of claims, and what they have, after a kill: whoever was next is next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_and_its_line_survive_a_kill() {
    let mut server = Server::start();
    let yaml = r#"
apiVersion: v1
kind: Namespace
metadata: {name: kept, labels: {pool: kept}}
---
apiVersion: capsule.clastix.io/v1beta2
kind: ResourcePool
metadata: {name: kept}
spec:
  config: {orderedQueue: true, defaultsZero: true}
  quota: {hard: {pods: "3"}}
  selectors: [{matchLabels: {pool: kept}}]
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: few, namespace: kept}
spec: {hard: {count/resourcepoolclaims.capsule.clastix.io: "4"}}
"#;
    server.kubectl_with("apply -f -", yaml);
    let claim = |name: &str, pods: u32| {
        format!(
            "apiVersion: capsule.clastix.io/v1beta2\nkind: ResourcePoolClaim\nmetadata: {{name: {name}, namespace: kept}}\n\
             spec: {{pool: kept, claim: {{pods: \"{pods}\"}}}}\n"
        )
    };
    for (name, pods) in [("a-has", 2), ("b-waits", 3), ("c-behind", 1), ("d-behind", 1)] {
        server.kubectl_with("create -f -", &claim(name, pods));
    }
    server.until("-n kept get resourcequota capsule-pool-kept -o jsonpath={.spec.hard.pods}", |out| out == "2");
    let standing =
        "-n kept get resourcepoolclaims -o jsonpath={.items[*].status.conditions[?(@.type==\"Exhausted\")].reason}";
    let wanted = "NoExhaustions PoolExhausted QueueExhausted QueueExhausted";
    assert_eq!(server.kubectl(standing), wanted);
    server.kill_and_restart();
    assert_eq!(server.kubectl(standing), wanted);
    let (done, _, refused) = server.try_kubectl("create -f -", &claim("e-fifth", 1));
    assert!(!done && refused.contains("exceeded quota: few"), "{refused}");
    server.kubectl("-n kept delete resourcepoolclaim a-has");
    server.until(standing, |out| out == "NoExhaustions PoolExhausted QueueExhausted");
    let hard = "-n kept get resourcequota capsule-pool-kept -o jsonpath={.spec.hard.pods}";
    assert_eq!(server.kubectl(hard), "3");
    server.kill_and_restart();
    assert_eq!(server.kubectl(hard), "3");
    server.kubectl("-n kept delete resourcepoolclaim b-waits");
    assert_eq!(server.kubectl(standing), "NoExhaustions NoExhaustions");
}

/// Claims come and go in two namespaces while pods grab whatever their quota allows: what the pods of both namespaces
/// use together never exceeds the pool.
#[tokio::test]
async fn what_a_claim_gave_back_is_never_used_twice() {
    const POOL: usize = 4;
    let land = Land::start().await;
    for namespace in ["left", "right"] {
        land.namespace(namespace, json!({"twice": "no"})).await;
    }
    let spec = json!({
        "config": {"defaultsZero": true}, "quota": {"hard": {"pods": POOL.to_string()}},
        "selectors": labelled("twice", "no"),
    });
    land.pool("twice", spec).await;
    for namespace in ["left", "right"] {
        land.hard(namespace, "twice").await;
    }
    let deadline = Instant::now() + Duration::from_secs(4);
    let mut tasks = JoinSet::new();
    for namespace in ["left", "right"] {
        for worker in 0..2 {
            let claims: Api<DynamicObject> =
                Api::namespaced_with(land.client.clone(), namespace, &kind("ResourcePoolClaim"));
            tasks.spawn(async move {
                let mut turn = 0;
                while Instant::now() < deadline {
                    turn += 1;
                    let name = format!("c{worker}-{turn}");
                    let claim = object(json!({
                        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "ResourcePoolClaim",
                        "metadata": {"name": name}, "spec": {"pool": "twice", "claim": {"pods": POOL.to_string()}},
                    }));
                    claims.create(&PostParams::default(), &claim).await.expect("a claim");
                    // In use, it stays until the pods are gone.
                    while claims.delete(&name, &DeleteParams::default()).await.is_err() {
                        tokio::task::yield_now().await;
                    }
                }
                turn
            });
            let pods: Api<Pod> = Api::namespaced(land.client.clone(), namespace);
            tasks.spawn(async move {
                let mut made = 0;
                while Instant::now() < deadline {
                    let name = format!("p{worker}-{made}");
                    if pods.create(&PostParams::default(), &crate::pod(&name)).await.is_ok() {
                        made += 1;
                        pods.delete(&name, &DeleteParams::default().grace_period(0)).await.expect("deleted");
                    }
                }
                made
            });
        }
    }
    // The quotas of both namespaces are read in one list, which is one moment.
    let quotas: Api<ResourceQuota> = Api::all(land.client.clone());
    let mut looks = 0;
    while Instant::now() < deadline {
        let list = quotas.list(&ListParams::default().labels("projectcapsule.dev/pool=twice")).await.expect("a list");
        let hard = |quota: &ResourceQuota| -> usize {
            let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref()).and_then(|hard| hard.get("pods"));
            hard.and_then(|pods| pods.0.parse().ok()).unwrap_or(0)
        };
        let sum: usize = list.iter().map(hard).sum();
        assert!(sum <= POOL, "both namespaces together are allowed {sum} of {POOL}");
        looks += 1;
    }
    let mut done = 0;
    while let Some(count) = tasks.join_next().await {
        done += count.expect("no panic");
    }
    assert!(done > 50 && looks > 50, "{done} turns, {looks} looks");
    let audit: Value = land
        .client
        .request(http::Request::get("/debug/audit").body(Vec::new()).expect("a request"))
        .await
        .expect("an audit");
    assert_eq!(audit["over"], json!([]), "{audit}");
    land.end().await;
}
