//! Sixteen writers, an operator that is killed again and again, and a watch that counts.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::api::{WatchEvent, WatchParams};

use super::*;
use crate::etcd::Etcd;
use crate::failover::PATIENCE;

const LIMIT: usize = 10;
const WRITERS: usize = 16;
const LASTS: Duration = Duration::from_secs(12);

/// The most that were there at once, in the order in which the API server stored and deleted them.
async fn most(maps: Api<ConfigMap>, stop: Arc<AtomicBool>) -> usize {
    let (mut there, mut most, mut version) = (BTreeSet::new(), 0, "0".to_owned());
    loop {
        let params = WatchParams::default().labels("load=yes").timeout(5);
        // While the API server is away: it goes on where it was.
        let Ok(events) = maps.watch(&params, &version).await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        futures::pin_mut!(events);
        while let Some(Ok(event)) = events.next().await {
            match event {
                WatchEvent::Added(map) | WatchEvent::Modified(map) => {
                    version = map.resource_version().expect("a version");
                    there.insert(map.name_any());
                }
                WatchEvent::Deleted(map) => {
                    version = map.resource_version().expect("a version");
                    there.remove(&map.name_any());
                }
                WatchEvent::Bookmark(_) => {}
                // An API server that was started again knows no events from before.
                WatchEvent::Error(error) => {
                    assert_eq!(error.code, 410, "{error:?}");
                    let Ok(listed) = maps.list(&ListParams::default().labels("load=yes")).await else { break };
                    version = listed.metadata.resource_version.clone().expect("a version");
                    there = listed.into_iter().map(|map| map.name_any()).collect();
                }
            }
            most = most.max(there.len());
        }
        if stop.load(Ordering::Acquire) && names(&maps).await.len() == there.len() {
            return most;
        }
    }
}

async fn write(maps: Api<ConfigMap>, writer: usize, stop: Arc<AtomicBool>, denied: Arc<AtomicU64>) {
    for turn in 0.. {
        if stop.load(Ordering::Acquire) {
            return;
        }
        let name = format!("w{writer}-{}", turn % 3);
        let mut wanted = map(&name);
        if turn % 40 == 39 {
            // The other webhook refuses it, after it was granted.
            wanted.labels_mut().insert("refused".into(), "yes".into());
        }
        match maps.create(&PostParams::default(), &wanted).await {
            Ok(_) => {
                let _ = maps.delete(&name, &DeleteParams::default()).await;
            }
            Err(error) if is_denied(&error) => drop(denied.fetch_add(1, Ordering::AcqRel)),
            // Nobody answers, or it is there from before: its deletion failed.
            Err(_) => {
                let _ = maps.delete(&name, &DeleteParams::default()).await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// Operators, of which one answers.
enum Operators {
    /// One, which is started again.
    Alone(Ended),
    /// Those that stand by, and those that led, in the order in which they did.
    Replicas {
        etcd: Etcd,
        running: Vec<(usize, Ended)>,
        led: mpsc::Receiver<usize>,
        leads: mpsc::Sender<usize>,
        started: usize,
    },
}

impl Operators {
    fn alone(land: &Land) -> Operators {
        Operators::Alone(land.operator())
    }

    fn replicas(land: &Land) -> Operators {
        let (leads, led) = mpsc::channel();
        let mut all =
            Operators::Replicas { etcd: Etcd::start(land.data()), running: Vec::new(), led, leads, started: 0 };
        (0..3).for_each(|_| all.start(land));
        if let Operators::Replicas { led, leads, .. } = &all {
            let first = led.recv_timeout(PATIENCE).expect("somebody leads");
            leads.send(first).expect("there is a receiver");
        }
        all
    }

    /// One more that stands by.
    fn start(&mut self, land: &Land) {
        let Operators::Replicas { etcd, running, leads, started, .. } = self else { return };
        let mut process = land.replica(etcd.port);
        let (output, leads, number) = (process.0.stdout.take().expect("a pipe"), leads.clone(), *started);
        std::thread::spawn(move || {
            let mut line = String::new();
            // Ends without a line where it never led.
            if BufReader::new(output).read_line(&mut line).is_ok_and(|length| length > 0) {
                let _ = leads.send(number);
            }
        });
        running.push((number, process));
        *started += 1;
    }

    /// Kills whoever answers, and waits until somebody does again; how long that took.
    fn kill(&mut self, land: &Land) -> Duration {
        let end = |process: &mut Ended| {
            process.0.kill().expect("killed");
            process.0.wait().expect("gone");
        };
        let begun = Instant::now();
        match self {
            Operators::Alone(process) => {
                end(process);
                *process = land.operator();
            }
            Operators::Replicas { running, led, .. } => {
                // The last who said so leads.
                let leader = led.recv_timeout(PATIENCE).expect("somebody leads");
                let at = running.iter().position(|(number, _)| *number == leader).expect("it runs");
                end(&mut running.remove(at).1);
                self.start(land);
                let Operators::Replicas { led, leads, .. } = self else { unreachable!("replicas stay replicas") };
                let next = led.recv_timeout(PATIENCE).expect("somebody takes over");
                // For the next who asks.
                leads.send(next).expect("there is a receiver");
            }
        }
        begun.elapsed()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_stored_beyond_a_limit_whoever_writes_and_however_often_the_operator_dies() {
    storm(Operators::alone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_stored_beyond_a_limit_whoever_leads() {
    storm(Operators::replicas).await;
}

async fn storm(start: impl Fn(&Land) -> Operators) {
    let mut land = Land::start().await;
    let mut operators = start(&land);
    land.namespace("team-a", json!({"tier": "gold"})).await;
    land.global_quota("gold", LIMIT as u64 + 5, json!({"tier": "gold"}), load()).await;
    let cluster_quota = json!({
        "apiVersion": "quota.openshift.io/v1", "kind": "ClusterResourceQuota", "metadata": {"name": "maps"},
        "spec": {"selector": {"labels": {"matchLabels": {"tier": "gold"}}, "annotations": null},
                 "quota": {"hard": {"count/configmaps": "12"}}},
    });
    let cluster_quotas = "/apis/quota.openshift.io/v1/clusterresourcequotas";
    land.call("POST", cluster_quotas, cluster_quota).await.expect("a quota");
    land.quota("team-a", "load", LIMIT as u64, load()).await;
    let maps = land.maps("team-a");
    // Full first, so that everybody is at the limit from the beginning.
    until("the quota is in force", async || {
        let name = format!("first-{}", names(&maps).await.len());
        let created = land.create("team-a", &name).await;
        created.is_err_and(|error| is_denied(&error))
    })
    .await;
    for name in names(&maps).await {
        delete(&maps, &name).await;
    }
    land.shows(&custom("team-a", "load"), "0").await;

    land.other_webhook().await;
    let (stop, denied) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let counting = tokio::spawn(most(maps.clone(), stop.clone()));
    let writers: Vec<_> =
        (0..WRITERS).map(|writer| tokio::spawn(write(maps.clone(), writer, stop.clone(), denied.clone()))).collect();
    let begun = Instant::now();
    let mut away = Vec::new();
    while begun.elapsed() < LASTS {
        tokio::time::sleep(LASTS / 5).await;
        away.push(operators.kill(&land));
        if away.len() == 1 {
            land.cluster.restart();
        }
    }
    stop.store(true, Ordering::Release);
    for writer in writers {
        writer.await.expect("a writer");
    }
    let most = counting.await.expect("the count");
    assert!(most <= LIMIT, "{most} of {LIMIT} were there at once");
    let denied = denied.load(Ordering::Acquire);
    println!("{most} of {LIMIT} at once, {denied} denied, away for {away:?}");
    assert!(most >= LIMIT - 3 && denied > 0 && away.len() > 1, "{most}: the writers hardly met");

    // Nothing is left behind.
    let left = names(&maps).await.len();
    land.shows(&custom("team-a", "load"), &left.to_string()).await;
    until("all of the limit is there to be had", async || {
        let count = names(&maps).await.len();
        if count < LIMIT {
            // Refused for as long as something is held for what never came.
            let _ = land.create("team-a", &format!("last-{count}")).await;
        }
        count == LIMIT
    })
    .await;
    assert!(is_denied(&land.create("team-a", "beyond").await.expect_err("10 of 10")));
    land.shows(&custom("team-a", "load"), &LIMIT.to_string()).await;
    // Statuses are written one after the other.
    until("the other quota shows as much", async || {
        let quota = land.call("GET", &format!("{cluster_quotas}/maps"), Value::Null).await.expect("a quota");
        quota["status"]["total"]["used"]["count/configmaps"] == "10"
    })
    .await;
}
