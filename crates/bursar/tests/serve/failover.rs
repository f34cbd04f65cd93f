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

use crate::etcd::{Cluster, Ended, Etcd, free_port, signal};
use crate::object;
use crate::proxy::{Mode, Proxy};

pub const PATIENCE: Duration = Duration::from_secs(60);

/// One replica. All of them share their certificates, as replicas of one service do.
pub struct Replica {
    pub process: Ended,
    pub kubeconfig: PathBuf,
}

impl Replica {
    fn start(folder: &Path, name: &str, etcd: u16) -> Replica {
        Replica::start_over(folder, name, &[etcd])
    }

    pub fn start_over(folder: &Path, name: &str, etcd: &[u16]) -> Replica {
        let members: Vec<String> = etcd.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let store = format!("etcd://{}", members.join(","));
        let config = folder.join("bursar.yaml");
        std::fs::write(&config, format!("pki: {}\nlog: error\n", folder.join("pki").display())).expect("writes");
        let kubeconfig = folder.join(format!("{name}.kubeconfig"));
        let child = Command::new(env!("CARGO_BIN_EXE_bursar"))
            .args(["serve", "--listen", "127.0.0.1:0", "--store", &store, "--data"])
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
    pub async fn leads(&self) -> Client {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "nobody leads");
            match self.client().await {
                Some(client) if client.apiserver_version().await.is_ok() => return client,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// A client of a replica that has led at some time, and may be anything now.
    pub async fn client(&self) -> Option<Client> {
        let kubeconfig = kube::config::Kubeconfig::read_from(&self.kubeconfig).ok()?;
        // It may be half written.
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.ok()?;
        config.connect_timeout = Some(Duration::from_secs(2));
        config.read_timeout = Some(Duration::from_secs(4));
        Client::try_from(config).ok()
    }

    /// What it says of its readiness, if it says anything.
    pub async fn is_ready(&self) -> bool {
        match self.client().await {
            Some(client) => readiness(&client).await == Some(200),
            None => false,
        }
    }

    pub fn is_running(&mut self) -> bool {
        self.process.0.try_wait().expect("asked").is_none()
    }

    pub fn signal(&self, name: &str) {
        signal(&self.process, name);
    }
}

/// The code of `/readyz`.
async fn readiness(client: &Client) -> Option<u16> {
    let request = http::Request::get("/readyz").body(Vec::new()).expect("a request");
    match client.request_text(request).await {
        Ok(_) => Some(200),
        Err(kube::Error::Api(status)) => Some(status.code),
        Err(_) => None,
    }
}

pub async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !done().await {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    start.elapsed()
}

/// The replica that is ready, and no other may be.
pub async fn leader(replicas: &[Replica]) -> usize {
    let start = Instant::now();
    loop {
        let mut ready = Vec::new();
        for (index, replica) in replicas.iter().enumerate() {
            if replica.is_ready().await {
                ready.push(index);
            }
        }
        match ready.as_slice() {
            [one] => return *one,
            _ => assert!(start.elapsed() < PATIENCE, "ready: {ready:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub fn map(name: &str) -> ConfigMap {
    object(json!({"metadata": {"name": name, "labels": {"load": "yes"}}}))
}

/// Creates one until it is acknowledged, by whoever leads then; how long that took. That it is there already means that an
/// earlier attempt was done and its answer lost.
async fn write(replicas: &[Replica], name: &str) -> Duration {
    let start = Instant::now();
    loop {
        for replica in replicas {
            let Some(client) = replica.client().await else { continue };
            let maps: Api<ConfigMap> = Api::namespaced(client, "default");
            match maps.create(&PostParams::default(), &map(name)).await {
                Ok(_) => return start.elapsed(),
                Err(kube::Error::Api(status)) if status.code == 409 => return start.elapsed(),
                Err(_) => {}
            }
        }
        assert!(start.elapsed() < PATIENCE, "nobody takes {name}");
        tokio::time::sleep(Duration::from_millis(50)).await;
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

pub async fn stored(client: &Client) -> BTreeSet<String> {
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
    // It stands by again: when the new one goes, it leads, and knows what it had slept through.
    assert!(old.is_running(), "a replaced leader ended");
    assert_eq!(stored(&new_client).await, BTreeSet::from(["from-new".to_owned()]));
    drop(new);
    let again = old.leads().await;
    assert_eq!(stored(&again).await, BTreeSet::from(["from-new".to_owned()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_is_not_ready_closes_its_watches_and_stands_by() {
    server::tls::install_provider();
    let folder = tempfile::tempdir().expect("a folder");
    let etcd = Etcd::start(folder.path());
    let proxy = Proxy::to(etcd.port);
    let mut old = Replica::start_over(folder.path(), "old", &[proxy.port]);
    let old_client = old.leads().await;
    let new = Replica::start(folder.path(), "new", etcd.port);
    assert_eq!(readiness(&old_client).await, Some(200));
    let maps: Api<ConfigMap> = Api::namespaced(old_client.clone(), "default");
    maps.create(&PostParams::default(), &map("before")).await.expect("it leads");
    let mut watch = Box::pin(maps.watch(&Default::default(), "0").await.expect("a watch"));

    proxy.set(Mode::Silent);
    // Until it is in doubt it is ready; from then on it never is again, whatever else it answers or does not.
    until("not ready", async || readiness(&old_client).await != Some(200)).await;
    assert_ne!(readiness(&old_client).await, Some(200));
    let closed = async { while let Some(Ok(_)) = futures::StreamExt::next(&mut watch).await {} };
    tokio::time::timeout(PATIENCE, closed).await.expect("the watch of a leader in doubt is closed");
    maps.get("before").await.expect_err("what it remembers may be the past");

    let new_client = new.leads().await;
    let there: Api<ConfigMap> = Api::namespaced(new_client, "default");
    there.create(&PostParams::default(), &map("after")).await.expect("the new one leads");
    until("gone", async || readiness(&old_client).await.is_none()).await;
    assert!(old.is_running(), "it stands by");
    proxy.set(Mode::Open);
    drop(new);
    let again = old.leads().await;
    assert_eq!(stored(&again).await, BTreeSet::from(["before", "after"].map(str::to_owned)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_replicas_over_three_members_outlive_each_of_them() {
    server::tls::install_provider();
    let folder = tempfile::tempdir().expect("a folder");
    let mut etcd = Cluster::start(folder.path());
    let mut replicas: Vec<Replica> =
        (0..3).map(|number| Replica::start_over(folder.path(), &format!("r{number}"), &etcd.ports)).collect();
    let mut acknowledged = BTreeSet::new();
    let mut note = |name: &str| assert!(acknowledged.insert(name.to_owned()), "every name is new");
    write(&replicas, "first").await;
    note("first");
    // Members frozen one by one, the one that leads etcd among them: a majority is always there.
    for member in 0..3 {
        signal(&etcd.members[member], "-STOP");
        for number in 0..5 {
            let name = format!("frozen-{member}-{number}");
            write(&replicas, &name).await;
            note(&name);
        }
        signal(&etcd.members[member], "-CONT");
        let name = format!("thawed-{member}");
        write(&replicas, &name).await;
        note(&name);
        assert!(replicas.iter_mut().all(Replica::is_running), "a replica ended because a member was frozen");
    }
    // A member is gone for good; then the leader freezes, and wakes up replaced.
    etcd.members.remove(2);
    write(&replicas, "two-members").await;
    note("two-members");
    let frozen = leader(&replicas).await;
    replicas[frozen].signal("-STOP");
    let took = write(&replicas, "leader-frozen").await;
    note("leader-frozen");
    assert!(took < PATIENCE / 2, "{took:?}");
    replicas[frozen].signal("-CONT");
    // And the next one dies.
    let dead = leader(&replicas).await;
    assert_ne!(dead, frozen);
    replicas[dead].signal("-KILL");
    replicas[dead].process.0.wait().expect("ended");
    replicas.remove(dead);
    write(&replicas, "leader-dead").await;
    note("leader-dead");
    let last = leader(&replicas).await;
    let client = replicas[last].leads().await;
    assert_eq!(stored(&client).await, acknowledged, "lost, or there without having been acknowledged");
    assert!(replicas.iter_mut().all(Replica::is_running));
}

/// Asks etcd by its JSON gateway, as a person would with etcdctl.
async fn ask(port: u16, path: &str, body: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("etcd listens");
    let request = format!("POST /v3/{path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers");
    assert!(answer.contains(" 200 "), "{answer}");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_without_space_is_read_and_writes_are_told() {
    server::tls::install_provider();
    let folder = tempfile::tempdir().expect("a folder");
    let etcd = Etcd::start(folder.path());
    let replica = Replica::start(folder.path(), "r", etcd.port);
    let client = replica.leads().await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    maps.create(&PostParams::default(), &map("before")).await.expect("there is room");
    let status = ask(etcd.port, "maintenance/status", "{}").await;
    let member = status.split("\"member_id\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an id");
    let alarm = async |action: &str| {
        let body = format!("{{\"action\":\"{action}\",\"memberID\":\"{member}\",\"alarm\":\"NOSPACE\"}}");
        ask(etcd.port, "maintenance/alarm", &body).await
    };
    alarm("ACTIVATE").await;
    let refused = async || match maps.create(&PostParams { dry_run: true, ..Default::default() }, &map("dry")).await {
        Err(kube::Error::Api(status)) => status.code == 507,
        _ => false,
    };
    until("refused", refused).await;
    maps.get("before").await.expect("reading goes on");
    assert_eq!(readiness(&client).await, Some(200));
    alarm("DEACTIVATE").await;
    until("room again", async || maps.create(&PostParams::default(), &map("after")).await.is_ok()).await;
    let metrics = client.request_text(http::Request::get("/metrics").body(Vec::new()).expect("a request")).await;
    let metrics = metrics.expect("metrics");
    for name in ["bursar_store_bytes ", "bursar_store_in_use_bytes ", "bursar_store_quota_bytes "] {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}"));
        assert!(line.trim().parse::<u64>().expect("a number") > 0, "{name}{line}");
    }
}

#[tokio::test]
async fn a_password_in_the_address_is_never_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    for store in [format!("etcd://bursar:hunter2@127.0.0.1:{port}"), "etcd://bursar:hunter2@a/b/c".to_owned()] {
        let (code, complaint) =
            crate::process::Process::fail(folder.path(), &["--store", &store, "--log", "debug"]).await;
        assert_ne!(code, Some(0));
        assert!(complaint.contains("bursar:…@") && !complaint.contains("hunter2"), "{complaint}");
    }
}
