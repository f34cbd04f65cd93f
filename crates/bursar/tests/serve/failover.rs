//! Several replicas over one etcd: one leads, the others stand by, and nothing acknowledged is lost when it dies.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::etcd::{Ended, Etcd};
use crate::object;

const PATIENCE: Duration = Duration::from_secs(60);

/// One replica. All of them share their certificates, as replicas of one service do.
struct Replica {
    process: Ended,
    kubeconfig: PathBuf,
}

impl Replica {
    fn start(folder: &Path, name: &str, etcd: u16) -> Replica {
        let config = folder.join("bursar.yaml");
        std::fs::write(&config, format!("pki: {}\nlog: error\n", folder.join("pki").display())).expect("writes");
        let kubeconfig = folder.join(format!("{name}.kubeconfig"));
        let child = Command::new(env!("CARGO_BIN_EXE_bursar"))
            .args(["serve", "--listen", "127.0.0.1:0", "--store", &format!("etcd://127.0.0.1:{etcd}"), "--data"])
            .arg(folder.join(name))
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .arg("--config")
            .arg(config)
            .stdout(Stdio::null())
            .spawn()
            .expect("bursar starts");
        Replica { process: Ended(child), kubeconfig }
    }

    /// A client, once the replica leads: only then does it write its kubeconfig.
    async fn leads(&self) -> Client {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "nobody leads");
            if let Ok(kubeconfig) = kube::config::Kubeconfig::read_from(&self.kubeconfig) {
                let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await;
                let client = Client::try_from(config.expect("a configuration")).expect("a client");
                if client.apiserver_version().await.is_ok() {
                    return client;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.process.0.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().expect("kill runs").success());
    }
}

/// Creates config maps until told to stop or the server is gone; returns the names that were acknowledged.
fn load(client: Client, round: usize, stop: Arc<AtomicBool>) -> tokio::task::JoinHandle<Vec<String>> {
    tokio::spawn(async move {
        let maps: Api<ConfigMap> = Api::namespaced(client, "default");
        let mut acknowledged = Vec::new();
        for number in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let name = format!("m{round}-{number}");
            let map = object(json!({"metadata": {"name": name, "labels": {"load": "yes"}}}));
            match maps.create(&PostParams::default(), &map).await {
                Ok(_) => acknowledged.push(name),
                Err(_) => break,
            }
        }
        acknowledged
    })
}

async fn stored(client: &Client) -> BTreeSet<String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let list = maps.list(&ListParams::default().labels("load=yes")).await.expect("a list");
    list.items.iter().map(|map| map.name_any()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_takes_over_and_nothing_acknowledged_is_lost() {
    server::tls::install_provider();
    let folder = tempfile::tempdir().expect("a folder");
    let etcd = Etcd::start(folder.path());
    let mut acknowledged = BTreeSet::new();
    let mut slowest = Duration::ZERO;
    let mut leader = Replica::start(folder.path(), "r0", etcd.port);
    let mut client = leader.leads().await;
    for round in 0..3 {
        let standby = Replica::start(folder.path(), &format!("r{}", round + 1), etcd.port);
        let loads: Vec<_> = (0..4).map(|n| load(client.clone(), round * 4 + n, Arc::default())).collect();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        leader.signal("-KILL");
        let killed = Instant::now();
        client = standby.leads().await;
        slowest = slowest.max(killed.elapsed());
        for one in loads {
            acknowledged.extend(one.await.expect("no panic"));
        }
        let found = stored(&client).await;
        let lost: Vec<_> = acknowledged.difference(&found).collect();
        assert_eq!(lost, Vec::<&String>::new(), "acknowledged and lost");
        leader = standby;
    }
    assert!(acknowledged.len() > 20, "the load was none: {}", acknowledged.len());
    assert!(slowest < Duration::from_secs(5), "the slowest of three takeovers took {slowest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_slept_through_its_replacement_neither_reads_nor_writes() {
    server::tls::install_provider();
    let folder = tempfile::tempdir().expect("a folder");
    let etcd = Etcd::start(folder.path());
    let mut old = Replica::start(folder.path(), "old", etcd.port);
    let old_client = old.leads().await;
    let new = Replica::start(folder.path(), "new", etcd.port);
    old.signal("-STOP");
    let new_client = new.leads().await;
    let name = |name: &str| object::<ConfigMap>(json!({"metadata": {"name": name, "labels": {"load": "yes"}}}));
    let maps: Api<ConfigMap> = Api::namespaced(new_client.clone(), "default");
    maps.create(&PostParams::default(), &name("from-new")).await.expect("the new leader writes");
    old.signal("-CONT");
    let stale: Api<ConfigMap> = Api::namespaced(old_client, "default");
    // Nor may it speak: what it remembers is the past, "not found" included.
    match stale.get("from-new").await.expect_err("the old one does not know it") {
        kube::Error::Api(status) => assert_eq!(status.code, 503, "{status:?}"),
        _connection_ended => {}
    }
    stale.create(&PostParams::default(), &name("from-old")).await.expect_err("the old one must not");
    let start = Instant::now();
    let status = loop {
        if let Some(status) = old.process.0.try_wait().expect("asked") {
            break status;
        }
        assert!(start.elapsed() < PATIENCE, "a fenced leader goes on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(!status.success(), "a fenced leader ends with an error");
    assert_eq!(stored(&new_client).await, BTreeSet::from(["from-new".to_owned()]));
}
