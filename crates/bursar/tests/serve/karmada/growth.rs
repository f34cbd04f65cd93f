//! 2a: two Spark jobs, one in each member, whose executors come and go at random. What runs never is more than the quota, whether
//! those that do not fit wait or are refused, and in the end the quota says what runs.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::elastic::{add, all, is_gated, lending, remove, running, used};
use super::elastic_outage::grow;
use super::fleet::{Fleet, until};
use super::{api, bindings, leases, placed, policies, quotas, slices, spark, sparks};
use crate::harness::PATIENCE;

/// For how long executors come and go, where `BURSAR_EXECUTOR_SECONDS` says nothing else.
const SECONDS: u64 = 20;
/// What both may have; four of it are for drivers and the executors that the jobs begin with.
const MOST: u32 = 12;

fn how_long() -> Duration {
    let asked = std::env::var("BURSAR_EXECUTOR_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(asked.unwrap_or(SECONDS))
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Two jobs that run, and a quota over both members.
struct Jobs {
    fleet: Fleet,
    clients: [kube::Client; 2],
    _operators: Vec<tokio::task::JoinHandle<()>>,
}

async fn jobs(elastic: Value) -> Jobs {
    let fleet = Fleet::start(&["m1", "m2"], "").await;
    let clients = [fleet.members[0].client.clone(), fleet.members[1].client.clone()];
    let operators = clients.iter().map(|client| spark::tend(client.clone())).collect();
    lending(&fleet, json!({"cpu": MOST.to_string(), "memory": "64Gi"}), elastic).await;
    for (name, cluster) in [("one", "m1"), ("two", "m2")] {
        let selectors =
            json!([{"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "name": name}]);
        let placement = json!({"clusterAffinity": {"clusterNames": [cluster]}});
        fleet.create(&policies(), name, json!({"resourceSelectors": selectors, "placement": placement})).await;
        fleet.create(&sparks(), name, spark::application(1, Value::Null)).await;
        fleet.until(&bindings(), &format!("{name}-sparkapplication"), |one| placed(one) == [cluster]).await;
    }
    let jobs = Jobs { fleet, clients, _operators: operators };
    jobs.until_running(4).await;
    jobs
}

impl Jobs {
    /// How many pods run in both; never too many.
    async fn sum(&self) -> u32 {
        // Only the test takes pods away, so that there are no fewer than are seen.
        let sum = running(&self.clients[0]).await.len() + running(&self.clients[1]).await.len();
        let sum = u32::try_from(sum).expect("a few");
        assert!(sum <= MOST, "{sum} run where {MOST} may");
        sum
    }

    async fn until_running(&self, wanted: u32) {
        let running = async {
            while self.sum().await != wanted {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, running).await.unwrap_or_else(|_| panic!("{wanted} never run"));
    }

    /// Pods that came at run time.
    async fn executors(&self, member: usize) -> Vec<Pod> {
        let is_one = |pod: &Pod| pod.metadata.generate_name.as_deref() == Some("executor-");
        all(&self.clients[member]).await.into_iter().filter(is_one).collect()
    }

    /// Executors come, one at a time, and go; how many of them did not fit.
    async fn live(&self, mut dice: Dice, comes: impl AsyncFn(&kube::Client) -> bool) -> u32 {
        let (begun, mut misfits) = (Instant::now(), 0);
        while begun.elapsed() < how_long() {
            let member = usize::from(dice.below(2) == 0);
            let there = self.executors(member).await;
            if dice.below(3) == 0 && !there.is_empty() {
                remove(&self.clients[member], &there[dice.below(there.len() as u64) as usize]).await;
            } else if !comes(&self.clients[member]).await {
                misfits += 1;
            }
            let sum = self.sum().await;
            let quota = api(&self.fleet.client, &quotas()).get("q").await.expect("the quota");
            assert!(used(&quota) <= MOST, "{} are charged where there are {MOST}, and {sum} run", used(&quota));
        }
        misfits
    }

    /// Takes away all that came at run time but one in each member.
    async fn calm_down(&self) {
        for (member, client) in self.clients.iter().enumerate() {
            for pod in self.executors(member).await.iter().skip(1) {
                remove(client, pod).await;
            }
        }
        // Who has none gets one now: until here others may have had all there is.
        for (member, client) in self.clients.iter().enumerate() {
            let is_alone = self.executors(member).await.is_empty();
            let grown = async {
                while is_alone && !grow(client).await {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            tokio::time::timeout(PATIENCE, grown).await.unwrap_or_else(|_| panic!("member {member} never grows again"));
        }
        self.until_running(6).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn case_2a_executors_that_do_not_fit_wait_and_the_quota_holds() {
    // Nothing in hand: each executor waits until there is room for it, and then that is lent.
    let jobs = jobs(json!({"chunk": {"cpu": "0", "memory": "0"}, "whenFull": "Gate"})).await;
    let waited = jobs.live(Dice(7), async |client| !is_gated(&add(client).await)).await;
    assert!(waited > 0, "somebody had to wait");
    // More want to run than may: all of the quota is used in the end.
    for client in &jobs.clients {
        for _ in 0..MOST {
            add(client).await;
        }
    }
    jobs.until_running(MOST).await;
    // And when only some are left, it says what those take.
    jobs.calm_down().await;
    jobs.fleet.until(&quotas(), "q", |quota| used(quota) == 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_2a_executors_that_do_not_fit_are_refused_and_the_quota_holds() {
    let jobs = jobs(json!({"chunk": {"cpu": "2", "memory": "2Gi"}, "whenFull": "Refuse"})).await;
    let refused = jobs.live(Dice(11), async |client| grow(client).await).await;
    assert!(refused > 0, "somebody had to be refused");
    jobs.calm_down().await;
    // What each uses is what runs there; what both were lent is what the quota says.
    for client in &jobs.clients {
        until(client, &slices(), "q-elastic", |slice| slice.data["status"]["used"]["cpu"] == "3").await;
    }
    for name in ["q.m1", "q.m2"] {
        jobs.fleet.until(&leases(), name, |lease| lease.data["status"]["used"]["cpu"] == "3").await;
    }
    let settled = async {
        loop {
            let lent = api(&jobs.fleet.client, &leases()).list(&Default::default()).await.expect("leases").items;
            let hard = |one: &kube::api::DynamicObject| {
                one.data["spec"]["hard"]["cpu"].as_str().and_then(|text| text.parse::<u32>().ok()).expect("a number")
            };
            let quota = api(&jobs.fleet.client, &quotas()).get("q").await.expect("the quota");
            let each: Vec<u32> = lent.iter().map(hard).collect();
            // Three and a chunk more, or twice that: it does not go to and fro.
            if each.iter().all(|one| (5..=7).contains(one)) && each.iter().sum::<u32>() == used(&quota) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, settled).await.expect("each has what it uses and a chunk more");
}
