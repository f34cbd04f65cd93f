//! Pools in a cluster whose own API server, quota controller and garbage collector do the rest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::*;

const POOLS: &str = "/apis/capsule.clastix.io/v1beta2/resourcepools";

fn claims(namespace: &str) -> String {
    format!("/apis/capsule.clastix.io/v1beta2/namespaces/{namespace}/resourcepoolclaims")
}

fn quota(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/resourcequotas/capsule-pool-gold")
}

fn claim(name: &str, amount: u64) -> Value {
    json!({
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "ResourcePoolClaim", "metadata": {"name": name},
        "spec": {"pool": "gold", "claim": {"limits.cpu": amount.to_string()}},
    })
}

fn pod(name: &str, amount: u64) -> Value {
    let limits = json!({"limits": {"cpu": amount.to_string()}});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": limits}]},
    })
}

fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// A number of processors.
fn cpu(object: &Value, path: &str) -> u64 {
    object.pointer(path).and_then(Value::as_str).map_or(0, |text| text.parse().expect("a whole number"))
}

/// What is told to Prometheus.
fn scrape(port: u16) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: operator\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut told = String::new();
    stream.read_to_string(&mut told).expect("it answers");
    told
}

impl Land {
    /// What of kube-controller-manager quotas need.
    fn controllers(&self) -> Ended {
        let kubeconfig = self.data().join("kubeconfig");
        Ended::start(
            Command::new(crate::harness::part("kube-controller-manager"))
                .arg(format!("--kubeconfig={}", kubeconfig.display()))
                .arg("--controllers=resourcequota-controller,garbage-collector-controller,namespace-controller")
                .args(["--leader-elect=false", "--bind-address=127.0.0.1", "--resource-quota-sync-period=5s"])
                .arg(format!("--secure-port={}", free_port()))
                .arg(format!("--cert-dir={}", self.data().join("controllers").display())),
        )
    }

    async fn pool(&self, limit: u64) {
        let pool = json!({
            "apiVersion": "capsule.clastix.io/v1beta2", "kind": "ResourcePool", "metadata": {"name": "gold"},
            "spec": {
                "selectors": [{"matchLabels": {"tier": "gold"}}], "config": {"defaultsZero": true},
                "quota": {"hard": {"limits.cpu": limit.to_string()}},
            },
        });
        self.call("POST", POOLS, pool).await.expect("a pool");
    }

    async fn at(&self, path: &str, pointer: &str) -> Value {
        let found = self.call("GET", path, Value::Null).await.unwrap_or_default();
        found.pointer(pointer).cloned().unwrap_or_default()
    }

    /// Waits until the API server goes by a quota of this size.
    async fn is_given(&self, namespace: &str, amount: u64) {
        until(&format!("{namespace} has {amount}"), async || {
            self.at(&quota(namespace), "/status/hard").await["limits.cpu"].as_str() == Some(&amount.to_string())
        })
        .await;
    }

    async fn condition(&self, namespace: &str, name: &str, of: &str) -> String {
        let conditions = self.at(&format!("{}/{name}", claims(namespace)), "/status/conditions").await;
        let mut conditions = conditions.as_array().into_iter().flatten();
        let found = conditions.find(|one| one["type"] == of);
        found.map_or_else(String::new, |one| one["reason"].as_str().unwrap_or_default().to_owned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_share_a_pool_and_what_one_gives_up_is_the_next_ones() {
    let land = Land::start().await;
    let (_controllers, mut operator) = (land.controllers(), land.operator());
    for team in ["a", "b"] {
        land.namespace(team, json!({"tier": "gold"})).await;
    }
    land.pool(4).await;
    land.is_given("a", 0).await;
    let refused = land.call("POST", &pods("a"), pod("p", 1)).await.expect_err("nothing is claimed");
    assert!(refused.to_string().contains("exceeded quota: capsule-pool-gold"), "{refused}");

    // One without a pool finds it.
    let mut found = claim("x", 3);
    found["spec"] = json!({"claim": {"limits.cpu": "3"}});
    land.call("POST", &claims("a"), found).await.expect("a claim");
    land.is_given("a", 3).await;
    assert_eq!(land.at(&format!("{}/x", claims("a")), "/spec/pool").await, "gold");
    land.call("POST", &pods("a"), pod("p", 2)).await.expect("2 of 3");
    land.call("POST", &pods("a"), pod("q", 2)).await.expect_err("4 of 3");
    land.call("POST", &claims("b"), claim("y", 2)).await.expect("it waits");
    until("y waits", async || land.condition("b", "y", "Exhausted").await == "PoolExhausted").await;
    until("x is in use", async || land.condition("a", "x", "Bound").await == "InUse").await;
    let path = format!("{}/x", claims("a"));
    let used = land.call("DELETE", &path, json!({})).await.expect_err("it is in use");
    assert!(is_denied(&used) && used.to_string().contains("claim is used"), "{used}");

    // A mistake is told at once, and who writes over a quota is written over.
    let wrong = land.call("POST", &claims("a"), claim("w", 1)).await.map(drop);
    wrong.expect("one of the pool's last");
    let mut negative = claim("n", 1);
    negative["spec"]["claim"]["limits.cpu"] = json!("-1");
    assert!(is_denied(&land.call("POST", &claims("a"), negative).await.expect_err("less than nothing")));
    land.is_given("a", 4).await;
    land.call("PATCH", &quota("a"), json!({"spec": {"hard": {"limits.cpu": "9"}}})).await.expect("written");
    until("it is written over", async || land.at(&quota("a"), "/spec/hard").await["limits.cpu"] == "4").await;
    land.is_given("a", 4).await;

    // The operator dies; whoever waits is served by the next one, once nothing is in use any more.
    operator.0.kill().expect("killed");
    operator.0.wait().expect("gone");
    land.call("DELETE", &path, json!({})).await.expect_err("nobody answers");
    let metrics = free_port();
    let _operator = land.operator_with(&["--metrics", &format!("127.0.0.1:{metrics}")]);
    land.call("DELETE", &format!("{}/p", pods("a")), json!({})).await.expect("deleted");
    until("it may go", async || land.call("DELETE", &path, json!({})).await.is_ok()).await;
    land.is_given("a", 1).await;
    land.is_given("b", 2).await;
    until("y has it", async || land.condition("b", "y", "Exhausted").await == "NoExhaustions").await;
    until("the pool says so", async || {
        land.at(&format!("{POOLS}/gold"), "/status/allocation").await
            == json!({"hard": {"limits.cpu": "4"}, "used": {"limits.cpu": "3"}, "available": {"limits.cpu": "1"}})
    })
    .await;

    let told = scrape(metrics);
    for line in [
        "bursar_operator_leads 1",
        "bursar_operator_kept_back 0",
        "bursar_operator_reviews_total{result=\"not_yet\"} 0",
        "capsule_pool_usage{pool=\"gold\",resource=\"limits.cpu\"} 3",
        "capsule_pool_limit{pool=\"gold\",resource=\"limits.cpu\"} 4",
    ] {
        assert!(told.lines().any(|found| found == line), "{line}\n{told}");
    }

    // A namespace goes with all that is in it, and so does the pool.
    land.call("DELETE", "/api/v1/namespaces/b", json!({})).await.expect("deleted");
    until("its claims are let go of", async || {
        land.at(&format!("{POOLS}/gold"), "/status/allocation/used").await["limits.cpu"] == "1"
    })
    .await;
    land.call("DELETE", &format!("{POOLS}/gold"), json!({})).await.expect("deleted");
    until("the pool and its quota are gone", async || {
        let gone =
            |found: Result<Value, kube::Error>| matches!(found, Err(kube::Error::Api(status)) if status.code == 404);
        gone(land.call("GET", &format!("{POOLS}/gold"), Value::Null).await)
            && gone(land.call("GET", &quota("a"), Value::Null).await)
    })
    .await;
    until("the claim says so", async || land.condition("a", "w", "Ready").await == "Failed").await;
}

const LIMIT: u64 = 6;
const TEAMS: [&str; 3] = ["a", "b", "c"];
const LASTS: Duration = Duration::from_secs(10);

/// Claims come and go, pods use what is there.
async fn live(land: Arc<Land>, team: &'static str, stop: Arc<AtomicBool>) -> u64 {
    let mut done = 0;
    for turn in 0_u64.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let (name, amount) = (format!("c{}", turn % 3), 1 + (turn + team.len() as u64) % 4);
        let all = [
            land.call("POST", &claims(team), claim(&name, amount)).await,
            land.call("POST", &pods(team), pod(&format!("p{turn}"), 1)).await,
            land.call("DELETE", &format!("{}/c{}", claims(team), (turn + 1) % 3), json!({})).await,
            land.call("DELETE", &format!("{}/p{}", pods(team), turn.saturating_sub(2)), json!({})).await,
        ];
        done += all.iter().filter(|one| one.is_ok()).count() as u64;
    }
    done
}

#[tokio::test(flavor = "multi_thread")]
async fn quotas_never_allow_more_than_the_pool_whoever_dies() {
    let land = Arc::new(Land::start().await);
    let (_controllers, mut operator) = (land.controllers(), land.operator());
    for team in TEAMS {
        land.namespace(team, json!({"tier": "gold"})).await;
    }
    land.pool(LIMIT).await;
    for team in TEAMS {
        land.is_given(team, 0).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writers = TEAMS.map(|team| tokio::spawn(live(land.clone(), team, stop.clone())));
    let (begun, mut most, mut looks, mut killed) = (Instant::now(), 0, 0, Instant::now());
    while begun.elapsed() < LASTS {
        // One list is one moment: what each namespace may have, or has.
        let listed = land.call("GET", "/api/v1/resourcequotas", Value::Null).await.expect("a list");
        let allowed = listed["items"].as_array().into_iter().flatten().map(|quota| {
            let paths = ["/spec/hard/limits.cpu", "/status/hard/limits.cpu", "/status/used/limits.cpu"];
            let most = paths.iter().map(|path| cpu(quota, path)).max().unwrap_or_default();
            (quota["metadata"]["namespace"].to_string(), most)
        });
        let allowed: BTreeMap<String, u64> = allowed.collect();
        assert!(allowed.values().sum::<u64>() <= LIMIT, "{allowed:?} of {LIMIT}");
        (most, looks) = (most.max(allowed.values().sum()), looks + 1);
        if killed.elapsed() > LASTS / 4 {
            operator.0.kill().expect("killed");
            operator.0.wait().expect("gone");
            operator = land.operator();
            killed = Instant::now();
        }
    }
    stop.store(true, Ordering::Release);
    let mut done = 0;
    for writer in writers {
        done += writer.await.expect("it ends");
    }
    assert!(most == LIMIT && looks > 50 && done > 50, "{most} of {LIMIT} in {looks} looks, {done} writes");
    // In the end nothing is kept back: all of the pool can be claimed once more.
    for team in TEAMS {
        land.call("DELETE", &pods(team), json!({})).await.expect("deleted");
        until(&format!("the claims of {team} go"), async || {
            land.call("DELETE", &claims(team), json!({})).await.is_ok()
                && land.at(&claims(team), "/items").await.as_array().is_some_and(Vec::is_empty)
        })
        .await;
    }
    land.call("POST", &claims("b"), claim("all", LIMIT)).await.expect("a claim");
    land.is_given("b", LIMIT).await;
}
