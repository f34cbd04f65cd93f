//! Three replicas over an etcd of three members, and everything that can go away: no acknowledged write is lost, somebody leads
//! again soon, and only who leads is ready.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, ResourceQuota};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::etcd::Cluster;
use crate::failover::{PATIENCE, Replica, leader, map, stored, until};
use crate::object;
use crate::proxy::{Mode, Proxy};

/// How soon somebody else has to lead.
const TAKEOVER: Duration = Duration::from_secs(5);

/// Replicas that reach the members each by connections of their own, which can be cut.
struct Land {
    etcd: Cluster,
    replicas: Vec<Replica>,
    roads: Vec<Vec<Proxy>>,
    acknowledged: BTreeSet<String>,
}

/// A text that takes as much room as it is long, however it is stored.
fn noise(length: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'A' + (state >> 59).to_le_bytes()[0])
    };
    (0..length).map(|_| letter()).collect()
}

impl Land {
    fn start(folder: &Path) -> Land {
        let etcd = Cluster::start_limited(folder, Some(2));
        let roads: Vec<Vec<Proxy>> = (0..3).map(|_| etcd.ports.iter().map(|port| Proxy::to(*port)).collect()).collect();
        let mut land = Land { etcd, replicas: Vec::new(), roads, acknowledged: BTreeSet::new() };
        land.replicas = (0..3).map(|number| land.replica(folder, number)).collect();
        land
    }

    fn replica(&self, folder: &Path, number: usize) -> Replica {
        let ports: Vec<u16> = self.roads[number].iter().map(|road| road.port).collect();
        Replica::start_over(folder, &format!("r{number}"), &ports)
    }

    /// Creates one until it is acknowledged by any but this one; how long that took.
    async fn write(&mut self, name: &str, bytes: usize, but: Option<usize>) -> Duration {
        let start = Instant::now();
        let mut map = map(name);
        map.data = Some([("k".to_owned(), noise(bytes))].into());
        loop {
            for (index, replica) in self.replicas.iter().enumerate() {
                let Some(client) = replica.client().await.filter(|_| Some(index) != but) else { continue };
                let maps: Api<ConfigMap> = Api::namespaced(client, "default");
                match maps.create(&PostParams::default(), &map).await {
                    Ok(_) => {}
                    // An earlier attempt was done, and its answer lost.
                    Err(kube::Error::Api(status)) if status.code == 409 => {}
                    Err(_) => continue,
                }
                assert!(self.acknowledged.insert(name.to_owned()), "every name is new");
                return start.elapsed();
            }
            assert!(start.elapsed() < PATIENCE, "nobody takes {name}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Everything acknowledged is there and nothing else, the quota has counted it, and nobody but the leader is ready.
    async fn is_whole(&mut self) {
        let leads = leader(&self.replicas).await;
        let client = self.replicas[leads].leads().await;
        assert_eq!(stored(&client).await, self.acknowledged, "lost, or there without having been acknowledged");
        // And the certificates of the authority.
        let wanted = (self.acknowledged.len() + 1).to_string();
        until("the quota has counted them", async || used(&client).await == Some(wanted.clone())).await;
        assert!(self.replicas.iter_mut().all(Replica::is_running));
    }
}

async fn used(client: &Client) -> Option<String> {
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), "default");
    let used = quotas.get("all").await.ok()?.status?.used?;
    Some(used.get("configmaps")?.0.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_killed_frozen_cut_off_and_the_disk_of_a_member_full() {
    server::tls::install_provider();
    let folder = tempfile::tempdir().expect("a folder");
    let mut land = Land::start(folder.path());
    land.write("first", 0, None).await;
    let leads = leader(&land.replicas).await;
    let quotas: Api<ResourceQuota> = Api::namespaced(land.replicas[leads].leads().await, "default");
    let quota = object(json!({"metadata": {"name": "all"}, "spec": {"hard": {"configmaps": "100000"}}}));
    quotas.create(&PostParams::default(), &quota).await.expect("a quota");

    // Each twice: a busy machine may be slow once.
    for fault in ["killed", "frozen", "cut off"] {
        let mut quickest = PATIENCE;
        for round in 0..2 {
            let hit = leader(&land.replicas).await;
            match fault {
                "killed" => land.replicas[hit].signal("-KILL"),
                "frozen" => land.replicas[hit].signal("-STOP"),
                _ => land.roads[hit].iter().for_each(|road| road.set(Mode::Silent)),
            }
            quickest = quickest.min(land.write(&format!("{}-{round}", &fault[..3]), 0, Some(hit)).await);
            match fault {
                "killed" => land.replicas[hit] = land.replica(folder.path(), hit),
                "frozen" => land.replicas[hit].signal("-CONT"),
                _ => {
                    // It has noticed by itself: somebody else leads, and it is not ready.
                    until("not ready", async || !land.replicas[hit].is_ready().await).await;
                    land.roads[hit].iter().for_each(|road| road.set(Mode::Open));
                }
            }
        }
        assert!(quickest < TAKEOVER, "leader {fault}: nobody wrote for {quickest:?}");
        land.is_whole().await;
    }

    // etcd ends on a disk without room, whether it leads or not; the others go on.
    for number in 0.. {
        assert!(number < 150, "the small disk is large enough");
        land.write(&format!("large-{number}"), 700_000, None).await;
        if land.etcd.members[2].0.try_wait().expect("asked").is_some() {
            break;
        }
    }
    for number in 0..5 {
        land.write(&format!("without-{number}"), 0, None).await;
    }
    land.is_whole().await;
    let hit = leader(&land.replicas).await;
    land.replicas[hit].signal("-KILL");
    land.replicas[hit].process.0.wait().expect("ended");
    land.replicas.remove(hit);
    land.write("after-all", 0, None).await;
    land.is_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_restored_by_its_own_tools_is_noticed() {
    server::tls::install_provider();
    let folder = tempfile::tempdir().expect("a folder");
    let mut etcd = Cluster::start(folder.path());
    let replica = Replica::start_over(folder.path(), "before", &etcd.ports);
    let maps: Api<ConfigMap> = Api::namespaced(replica.leads().await, "default");
    maps.create(&PostParams::default(), &map("in-it")).await.expect("it leads");
    let snapshot = folder.path().join("bursar.db");
    etcd.save(&snapshot);
    let lost = maps.create(&PostParams::default(), &map("lost")).await.expect("it leads");
    let remembered = lost.resource_version().expect("a version");
    drop(replica);
    etcd.restore(&snapshot);

    let replica = Replica::start_over(folder.path(), "after", &etcd.ports);
    let client = replica.leads().await;
    assert_eq!(stored(&client).await, BTreeSet::from(["in-it".to_owned()]));
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let next = maps.create(&PostParams::default(), &map("next")).await.expect("it leads");
    assert!(next.resource_version().expect("a version").parse::<u64>().expect("a number") > 1_000_000_000);
    let mut events = Box::pin(maps.watch(&Default::default(), &remembered).await.expect("a watch"));
    match futures::StreamExt::next(&mut events).await {
        Some(Ok(kube::api::WatchEvent::Error(status))) => assert_eq!(status.code, 410, "{status:?}"),
        other => panic!("what happened since is not known: {other:?}"),
    }
}
