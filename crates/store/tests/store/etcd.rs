//! Against a real etcd, which `scripts/parts` builds on the first run.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use store::etcd::Config;
use store::etcd::client::Client;
use store::etcd::messages::{KeyValue, RangeRequest, RequestOp, TxnRequest};
use store::{Batch, EtcdStore, Store, StoreError, Table};

use crate::{Rows, load, noise, one_row};

/// How long a start of etcd may take on a busy machine.
const START: Duration = Duration::from_secs(60);

pub struct Etcd {
    process: Child,
    folder: tempfile::TempDir,
    pub client_port: u16,
    peer_port: u16,
    more: Vec<String>,
}

impl Etcd {
    pub fn start() -> Etcd {
        Etcd::start_with(&[])
    }

    /// With further flags.
    pub fn start_with(more: &[&str]) -> Etcd {
        let folder = tempfile::tempdir().unwrap();
        // Both are bound at once, so they differ. Somebody else may take one before etcd does; then the start below is seen
        // to fail and is made again with others.
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [client_port, peer_port] = free.each_ref().map(|listener| listener.local_addr().unwrap().port());
        drop(free);
        let more: Vec<String> = more.iter().map(|&flag| flag.to_owned()).collect();
        let process = Etcd::spawn(&folder, client_port, peer_port, &more);
        let mut etcd = Etcd { process, folder, client_port, peer_port, more };
        let started = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", client_port)).is_err() {
            assert!(started.elapsed() < START, "etcd did not start");
            if etcd.process.try_wait().unwrap().is_some() {
                let more: Vec<&str> = etcd.more.iter().map(String::as_str).collect();
                return Etcd::start_with(&more);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        etcd
    }

    fn spawn(folder: &tempfile::TempDir, client_port: u16, peer_port: u16, more: &[String]) -> Child {
        let (client, peer) = (format!("http://127.0.0.1:{client_port}"), format!("http://127.0.0.1:{peer_port}"));
        Command::new(etcd_binary())
            .arg("--data-dir")
            .arg(folder.path().join("data"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--log-level", "error"])
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub fn restart(&mut self) {
        self.process = Etcd::spawn(&self.folder, self.client_port, self.peer_port, &self.more);
    }

    pub fn config(&self, replica: &str) -> Config {
        Config::new(vec![format!("http://127.0.0.1:{}", self.client_port)], "test", replica)
    }

    /// Speaks to etcd behind the back of every store.
    pub fn talk<T>(&self, work: impl AsyncFnOnce(Client) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { work(Client::new(&self.config("").endpoints, None).unwrap()).await })
    }

    /// A leader that has read everything, and what it read.
    pub fn lead(&self, replica: &str) -> (EtcdStore, Rows) {
        let mut store = EtcdStore::lead(self.config(replica)).unwrap();
        let rows = load(&mut store).unwrap();
        (store, rows)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may be dead already.
        let _dead = self.process.kill();
        let _reaped = self.process.wait();
    }
}

fn etcd_binary() -> PathBuf {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/parts");
    let output = Command::new(script).arg("etcd").stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "scripts/parts could not provide etcd");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// Many rows, more than one transaction takes, some of them deletions.
fn large_batch(rows: &mut Rows, start: u32, value: &[u8]) -> Batch {
    let mut batch = Batch::new();
    for number in start..start + 300 {
        let (table, key) = (Table(u8::try_from(number % 3).unwrap()), number.to_be_bytes());
        if number % 7 == 0 {
            batch.delete(table, &key);
            rows.remove(&(table, key.to_vec()));
        } else {
            batch.put(table, &key, b"first");
            batch.put(table, &key, value);
            rows.insert((table, key.to_vec()), value.to_vec());
        }
    }
    batch
}

#[test]
fn rows_are_there_for_the_next_leader() {
    let etcd = Etcd::start();
    let (mut store, mut expected) = etcd.lead("a");
    assert!(expected.is_empty());
    store.commit(&one_row(b"a", b"1")).unwrap();
    store.commit(&one_row(b"a", b"2")).unwrap();
    store.commit(&Batch::new()).unwrap();
    expected.insert((Table::OBJECTS, b"a".to_vec()), b"2".to_vec());
    // Any bytes, and as many as need several pages.
    store.commit(&one_row(&[0, 255, b'/', 10], b"")).unwrap();
    expected.insert((Table::OBJECTS, vec![0, 255, b'/', 10]), Vec::new());
    for round in 0..4 {
        store.commit(&large_batch(&mut expected, round * 250, &[7; 10])).unwrap();
    }
    // More bytes than one transaction takes.
    store.commit(&large_batch(&mut expected, 100_000, &[9; 9000])).unwrap();
    Box::new(store).close().unwrap();
    let (mut store, rows) = etcd.lead("b");
    assert_eq!(rows.len(), expected.len());
    assert!(rows == expected);
    let mut oversize = one_row(b"fits", b"");
    oversize.put(Table::OBJECTS, b"x", &vec![0; store::VALUE_BYTES_MAX + 1]);
    assert!(matches!(store.commit(&oversize), Err(StoreError::Oversize { .. })));
}

#[test]
fn a_row_longer_than_a_request_is_kept_in_parts_that_go_with_it() {
    let etcd = Etcd::start();
    let parts = || {
        etcd.talk(async |client| {
            let (key, range_end) = (b"/bursar/test/parts/".to_vec(), b"/bursar/test/parts0".to_vec());
            client.range(RangeRequest { key, range_end, ..RangeRequest::default() }).await.unwrap().kvs.len()
        })
    };
    let (mut store, _) = etcd.lead("0");
    for (round, (length, expected_parts)) in
        [(3_000_000, 6), (600_000, 2), (1_500_000, 3), (10, 0), (700_000, 2)].into_iter().enumerate()
    {
        let value = noise(length);
        store.commit(&one_row(b"long/00000000", &value)).unwrap();
        assert_eq!(parts(), expected_parts);
        Box::new(store).close().unwrap();
        let rows;
        (store, rows) = etcd.lead(&round.to_string());
        assert!(rows[&(Table::OBJECTS, b"long/00000000".to_vec())] == value, "{length}");
    }
    // What can be packed into one request is not cut.
    let text = b"{\"kind\":\"ConfigMap\"}".repeat(100_000);
    store.commit(&one_row(b"long/00000000", &text)).unwrap();
    assert_eq!(parts(), 0);
    Box::new(store).close().unwrap();
    let (mut store, rows) = etcd.lead("packed");
    assert!(rows[&(Table::OBJECTS, b"long/00000000".to_vec())] == text);
    let mut batch = Batch::new();
    batch.delete(Table::OBJECTS, b"long/00000000");
    store.commit(&batch).unwrap();
    assert_eq!(parts(), 0);
}

#[test]
fn a_replaced_leader_is_fenced_and_a_dead_one_is_replaced_in_time() {
    let etcd = Etcd::start();
    let (mut first, _) = etcd.lead("first");
    first.commit(&one_row(b"a", b"1")).unwrap();
    // The lease ends behind the back of the leader, as it does when its process is paused.
    etcd.talk(async |client| {
        let leader = get(&client, "leader").await.unwrap();
        client.lease_revoke(leader.lease).await.unwrap();
    });
    let (mut second, rows) = etcd.lead("second");
    assert_eq!(rows.len(), 1);
    match first.commit(&one_row(b"a", b"from the grave")) {
        Err(StoreError::Fenced { leader }) => assert_eq!(leader, "second"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(first.commit(&one_row(b"a", b"again")), Err(StoreError::Unusable { .. })));
    second.commit(&one_row(b"a", b"2")).unwrap();

    // Dropped without closing: its lease is no longer renewed.
    let config = etcd.config("third");
    let standby = std::thread::spawn(move || {
        let store = EtcdStore::lead(config).unwrap();
        (store, Instant::now())
    });
    let died = Instant::now();
    drop(second);
    let (mut third, leads) = standby.join().unwrap();
    let took = leads - died;
    assert!(took < Duration::from_secs(8), "the takeover took {took:?}");
    assert_eq!(load(&mut third).unwrap()[&(Table::OBJECTS, b"a".to_vec())], b"2");
}

#[test]
fn a_batch_with_its_marker_set_is_finished_by_the_next_leader_and_one_without_is_dropped() {
    let etcd = Etcd::start();
    let (mut store, mut expected) = etcd.lead("a");
    store.commit(&large_batch(&mut expected, 0, b"old")).unwrap();

    // Staged, but the leader dies before the marker.
    etcd.talk(async |client| put(&client, &[("staged/00000000", b"half of something")]).await);
    Box::new(store).close().unwrap();
    let (store, rows) = etcd.lead("b");
    assert!(rows == expected);
    assert!(etcd.talk(async |client| get(&client, "staged/00000000").await).is_none());

    // Staged in two pieces and marked, but the leader dies before the rows are written.
    let mut wanted = expected.clone();
    let encoded = encode(&large_batch(&mut wanted, 100, b"new"));
    let (first, second) = encoded.split_at(1000);
    let marker = [2_u64.to_be_bytes(), u64::from(crc32fast::hash(&encoded)).to_be_bytes()].concat();
    etcd.talk(async |client| {
        let commits = get(&client, "commit").await.unwrap().value;
        let next = u64::from_be_bytes(commits.try_into().unwrap()) + 1;
        let pieces = [("staged/00000000", first), ("staged/00000001", second)];
        put(&client, &pieces).await;
        put(&client, &[("marker", &marker), ("commit", &next.to_be_bytes())]).await;
    });
    Box::new(store).close().unwrap();
    let (mut store, rows) = etcd.lead("c");
    assert!(rows == wanted);
    assert!(etcd.talk(async |client| get(&client, "marker").await).is_none());
    store.commit(&one_row(b"next", b"")).unwrap();
    Box::new(store).close().unwrap();
    assert_eq!(etcd.lead("d").1.len(), wanted.len() + 1);
}

#[test]
fn a_marked_batch_with_a_piece_missing_is_refused() {
    let etcd = Etcd::start();
    let (store, _) = etcd.lead("a");
    let marker = [2_u64.to_be_bytes(), 0_u64.to_be_bytes()].concat();
    etcd.talk(async |client| put(&client, &[("marker", &marker)]).await);
    Box::new(store).close().unwrap();
    let mut store = EtcdStore::lead(etcd.config("b")).unwrap();
    match load(&mut store) {
        Err(StoreError::Corrupt { file, .. }) => assert_eq!(file, "/bursar/test/staged/00000000"),
        other => panic!("{other:?}"),
    }
}

/// The stored form of staged rows, written down once more: table 0, lengths, the key in etcd, a zero for "whole", the value.
fn encode(batch: &Batch) -> Vec<u8> {
    let mut encoded = Vec::new();
    let last: std::collections::BTreeMap<_, _> = batch.rows().map(|row| ((row.table, row.key), row)).collect();
    for row in last.into_values() {
        let key = [format!("/bursar/test/rows/{:02x}/", row.table.0).as_bytes(), row.key].concat();
        encoded.push(0);
        encoded.extend(u32::try_from(key.len()).unwrap().to_le_bytes());
        encoded.extend(row.value.map_or(u32::MAX, |value| u32::try_from(value.len() + 1).unwrap()).to_le_bytes());
        encoded.extend(key);
        if let Some(value) = row.value {
            encoded.push(0);
            encoded.extend(value);
        }
    }
    encoded
}

pub async fn get(client: &Client, name: &str) -> Option<KeyValue> {
    let key = format!("/bursar/test/{name}").into_bytes();
    client.range(RangeRequest { key, ..RangeRequest::default() }).await.unwrap().kvs.into_iter().next()
}

pub async fn put(client: &Client, pairs: &[(&str, &[u8])]) {
    let puts = pairs.iter().map(|(name, value)| RequestOp::put(format!("/bursar/test/{name}").as_bytes(), value));
    client.txn(TxnRequest { success: puts.collect(), ..TxnRequest::default() }).await.unwrap();
}

#[test]
fn a_commit_outlives_a_restart_of_etcd() {
    let mut etcd = Etcd::start();
    let (mut store, _) = etcd.lead("a");
    store.commit(&one_row(b"a", b"1")).unwrap();
    etcd.kill();
    let committing = std::thread::spawn(move || {
        let outcome = store.commit(&one_row(b"a", b"2"));
        (store, outcome)
    });
    etcd.restart();
    let (store, outcome) = committing.join().unwrap();
    outcome.unwrap();
    Box::new(store).close().unwrap();
    assert_eq!(etcd.lead("b").1[&(Table::OBJECTS, b"a".to_vec())], b"2");
}

#[test]
fn an_etcd_that_is_not_there_is_an_error() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let error = EtcdStore::lead(Config::new(vec![address.clone()], "test", "a")).err().unwrap();
    assert!(error.to_string().contains(&address), "{error}");
}
