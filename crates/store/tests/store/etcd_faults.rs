//! The etcd store on a network and over an etcd that misbehave: nothing is lost, nothing is done twice, and whoever cannot
//! lead any more says so.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use store::etcd::Config;
use store::{Batch, EtcdStore, Store, StoreError, Table};

use crate::etcd::{Etcd, get, put};
use crate::proxy::{Mode, Proxy};
use crate::scripted::{Line, Scripted};
use crate::{load, noise, one_row};

/// How long what happens by itself may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

fn until(what: &str, mut done: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
    started.elapsed()
}

fn config(replica: &str, ports: &[u16]) -> Config {
    let endpoints = ports.iter().map(|port| format!("http://127.0.0.1:{port}")).collect();
    Config::new(endpoints, "test", replica)
}

fn lead(config: Config) -> EtcdStore {
    let mut store = EtcdStore::lead(config).unwrap();
    load(&mut store).unwrap();
    store
}

/// A standby on a thread of its own; its store is sent when it leads.
fn stand_by(config: Config) -> std::sync::mpsc::Receiver<Result<EtcdStore, StoreError>> {
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        // A test that has failed listens no more.
        let _gone = tell.send(EtcdStore::lead(config));
    });
    told
}

/// Asks etcd by its JSON gateway, which needs no client: what a person would do with etcdctl.
fn ask(port: u16, path: &str, token: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("POST /v3/{path} HTTP/1.0\r\nAuthorization: {token}\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 200 "), "{path}: {answer}");
    answer
}

fn number(etcd: &Etcd) -> u64 {
    let found = etcd.talk(async |client| get(&client, "commit").await.unwrap());
    u64::from_be_bytes(found.value.try_into().unwrap())
}

#[test]
fn a_commit_whose_answer_was_lost_is_done_once() {
    let etcd = Etcd::start();
    let (first, second) = (Proxy::to(etcd.client_port), Proxy::to(etcd.client_port));
    let mut store = lead(config("a", &[first.port, second.port]));
    store.commit(&one_row(b"a", b"1")).unwrap();
    let before = number(&etcd);
    first.set(Mode::AnswersLost);
    store.commit(&one_row(b"a", b"2")).unwrap();
    assert_eq!(number(&etcd), before + 1, "once, by the attempt whose answer was lost or by the next");
    store.commit(&one_row(b"b", b"1")).unwrap();
    assert_eq!(number(&etcd), before + 2);
    first.set(Mode::Open);
    first.reset();
    Box::new(store).close().unwrap();
    let (_, rows) = etcd.lead("b");
    assert_eq!(rows[&(Table::OBJECTS, b"a".to_vec())], b"2");
}

#[test]
fn an_attempt_that_arrives_late_does_nothing() {
    let etcd = Etcd::start();
    let (first, second) = (Proxy::to(etcd.client_port), Proxy::to(etcd.client_port));
    let mut store = lead(config("a", &[first.port, second.port]));
    for round in 0_u32..2 {
        first.set(Mode::Silent);
        // Too large for one transaction: it is staged, and what was staged is taken away in the end.
        let mut large = Batch::new();
        for row in 0_u32..300 {
            large.put(Table::OBJECTS, &row.to_be_bytes(), &round.to_be_bytes());
        }
        store.commit(&large).unwrap();
        // Whatever was held back arrives now, in the midst of the next ones.
        first.set(Mode::Open);
        for _ in 0..2 {
            store.commit(&large).unwrap();
            store.commit(&one_row(b"after", &round.to_be_bytes())).unwrap();
        }
        let found = etcd.talk(async |client| (get(&client, "marker").await, get(&client, "staged/00000000").await));
        assert_eq!(found, (None, None));
    }
    drop(store);
    let (_, rows) = etcd.lead("b");
    assert_eq!(rows.len(), 301);
    assert!(rows.values().all(|value| value == &1_u32.to_be_bytes()));
}

#[test]
fn a_silent_member_is_left_out_and_the_leader_stays() {
    let etcd = Etcd::start();
    let (first, second) = (Proxy::to(etcd.client_port), Proxy::to(etcd.client_port));
    let mut store = lead(config("a", &[first.port, second.port]));
    let term = store.term();
    store.commit(&one_row(b"a", b"")).unwrap();
    first.set(Mode::Silent);
    let started = Instant::now();
    let mut commits = 0;
    // Longer than two leases.
    while started.elapsed() < Duration::from_secs(7) {
        store.commit(&one_row(b"a", b"")).unwrap();
        commits += 1;
        assert!(!term.is_lost());
    }
    assert!(commits > 100, "one wait, and not one for every commit: {commits}");
    until("sure again", || !term.is_in_doubt());
    // The other one now: the first is found to be back.
    first.set(Mode::Open);
    store.commit(&one_row(b"a", b"")).unwrap();
    second.set(Mode::Silent);
    store.commit(&one_row(b"a", b"")).unwrap();
    assert!(!term.is_lost());
}

#[test]
fn a_standby_whose_connection_fell_silent_takes_over() {
    let etcd = Etcd::start();
    let leader = lead(etcd.config("a"));
    let (silent, other) = (Proxy::to(etcd.client_port), Proxy::to(etcd.client_port));
    let standby = stand_by(config("b", &[silent.port, other.port]));
    assert!(standby.recv_timeout(Duration::from_millis(1500)).is_err());
    silent.set(Mode::Silent);
    Box::new(leader).close().unwrap();
    let started = Instant::now();
    standby.recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn a_standby_and_a_leader_outlive_an_etcd_that_goes_away() {
    let mut etcd = Etcd::start();
    let mut leader = lead(etcd.config("a"));
    let standby = stand_by(etcd.config("b"));
    assert!(standby.recv_timeout(Duration::from_millis(1500)).is_err());
    etcd.kill();
    // The standby sees it gone, and for longer than a first start would wait for it.
    assert!(standby.recv_timeout(Duration::from_secs(11)).is_err(), "a standby gave up");
    assert!(leader.term().is_in_doubt());
    assert!(leader.term().is_lost(), "two leases went by");
    assert!(matches!(leader.commit(&one_row(b"a", b"1")), Err(StoreError::Fenced { .. })));
    etcd.restart();
    let mut next = standby.recv_timeout(PATIENCE).unwrap().unwrap();
    load(&mut next).unwrap();
    next.commit(&one_row(b"a", b"2")).unwrap();
}

#[test]
fn a_leader_that_is_cut_off_is_in_doubt_then_gone() {
    let etcd = Etcd::start();
    let proxy = Proxy::to(etcd.client_port);
    let mut leader = lead(config("a", &[proxy.port]));
    let standby = stand_by(etcd.config("b"));
    leader.commit(&one_row(b"a", b"1")).unwrap();
    let term = leader.term();

    // A hiccup: it is in doubt, and then still the leader.
    proxy.set(Mode::Slow(Duration::from_millis(200)));
    leader.commit(&one_row(b"a", b"2")).unwrap();
    proxy.set(Mode::Open);
    proxy.reset();
    leader.commit(&one_row(b"a", b"3")).unwrap();
    until("sure again", || !term.is_in_doubt());

    proxy.set(Mode::Silent);
    let cut = Instant::now();
    let committing = thread::spawn(move || leader.commit(&one_row(b"a", b"late")));
    until("in doubt", || term.is_in_doubt());
    let mut next = standby.recv_timeout(PATIENCE).unwrap().unwrap();
    until("lost", || term.is_lost());
    assert!(cut.elapsed() < PATIENCE);
    assert!(matches!(committing.join().unwrap(), Err(StoreError::Fenced { .. })));
    // What it held back arrives after all, and is refused.
    proxy.set(Mode::Open);
    assert_eq!(load(&mut next).unwrap()[&(Table::OBJECTS, b"a".to_vec())], b"3");
    next.commit(&one_row(b"a", b"4")).unwrap();
}

#[test]
fn updates_beyond_the_quota_do_not_fill_etcd() {
    let etcd = Etcd::start_with(&["--quota-backend-bytes=16777216"]);
    let (mut store, _) = etcd.lead("a");
    let value = noise(27_000);
    for round in 0_u32..1_500 {
        store.commit(&one_row(&(round % 10).to_be_bytes(), &value)).unwrap();
    }
    let usage = store.usage();
    assert!(usage.compactions() > 0);
    assert_eq!(usage.bytes_max(), 16 << 20);
    assert!(usage.bytes() > 0 && usage.bytes() < usage.bytes_max(), "{usage:?}");
    drop(store);
    assert_eq!(etcd.lead("b").1.len(), 10, "and the next leader starts");
}

#[test]
fn growth_is_refused_before_etcd_is_full_and_deletions_still_fit() {
    let etcd = Etcd::start_with(&["--quota-backend-bytes=16777216"]);
    let (mut store, _) = etcd.lead("a");
    let space = store.space();
    let mut stored = 0_u32;
    until("low", || {
        store.commit(&one_row(&stored.to_be_bytes(), &noise(20_000))).unwrap();
        stored += 1;
        space.is_low()
    });
    assert!(!space.is_full(), "there is room left for deletions");
    for row in 0..stored {
        let mut batch = Batch::new();
        batch.delete(Table::OBJECTS, &row.to_be_bytes());
        store.commit(&batch).unwrap();
    }
    assert!(!space.is_full());
    // The file does not shrink by itself, as etcd has it.
    until("room again", || {
        ask(etcd.client_port, "maintenance/defragment", "", "{}");
        thread::sleep(Duration::from_millis(500));
        !space.is_low()
    });
}

#[test]
fn a_no_space_alarm_is_waited_out() {
    let etcd = Etcd::start();
    let (mut store, _) = etcd.lead("a");
    let space = store.space();
    store.commit(&one_row(b"a", b"1")).unwrap();
    ask(etcd.client_port, "maintenance/alarm", "", r#"{"action":"ACTIVATE","memberID":0,"alarm":"NOSPACE"}"#);
    let committing = thread::spawn(move || {
        let outcome = store.commit(&one_row(b"a", b"2"));
        (store, outcome)
    });
    until("full", || space.is_full() && space.is_low());
    let status = ask(etcd.client_port, "maintenance/status", "", "{}");
    let member = status.split("\"member_id\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    for member in [member, "0"] {
        let body = format!("{{\"action\":\"DEACTIVATE\",\"memberID\":\"{member}\",\"alarm\":\"NOSPACE\"}}");
        ask(etcd.client_port, "maintenance/alarm", "", &body);
    }
    let (store, outcome) = committing.join().unwrap();
    outcome.unwrap();
    until("room again", || !space.is_full() && !space.is_low());
    drop(store);
    assert_eq!(etcd.lead("b").1[&(Table::OBJECTS, b"a".to_vec())], b"2");
}

#[test]
fn an_etcd_with_authentication_is_used_and_a_wrong_password_named() {
    let etcd = Etcd::start_with(&["--auth-token-ttl=2"]);
    let port = etcd.client_port;
    let range = r#"{"name":"bursar","perm":{"permType":"READWRITE","key":"L2J1cnNhci8=","range_end":"L2J1cnNhcjA="}}"#;
    for (path, body) in [
        ("auth/user/add", r#"{"name":"root","password":"r"}"#),
        ("auth/user/grant", r#"{"user":"root","role":"root"}"#),
        ("auth/user/add", r#"{"name":"bursar","password":"it's/secret"}"#),
        ("auth/role/add", r#"{"name":"bursar"}"#),
        ("auth/role/grant", range),
        ("auth/user/grant", r#"{"user":"bursar","role":"bursar"}"#),
        ("auth/enable", "{}"),
    ] {
        ask(port, path, "", body);
    }
    let config = |user: &str| Config::from_url(&format!("etcd://{user}127.0.0.1:{port}/test"), "a").unwrap();
    let mut store = lead(config("bursar:it's%2Fsecret@"));
    store.commit(&one_row(b"a", b"1")).unwrap();
    // Tokens that nobody uses for two seconds are forgotten; the renewals use theirs, so it is taken away.
    let answer = ask(port, "auth/authenticate", "", r#"{"name":"root","password":"r"}"#);
    let token = answer.split("\"token\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    ask(port, "auth/user/changepw", token, r#"{"name":"bursar","password":"it's/secret"}"#);
    store.commit(&one_row(b"a", b"2")).unwrap();
    // Its size is not for everybody: history is dropped by what was written.
    let usage = store.usage();
    let mut written = 0;
    while usage.compactions() == 0 {
        store.commit(&one_row(b"a", &noise(300_000))).unwrap();
        written += 1;
        assert!(written < 600, "never compacted");
    }
    assert!(written > 100, "{written}: not for a little");
    Box::new(store).close().unwrap();
    for (user, complaint) in [("bursar:wrong@", "invalid user ID or password"), ("", "user name is empty")] {
        let error = EtcdStore::lead(config(user)).err().unwrap().to_string();
        assert!(error.contains(complaint), "{error}");
        assert!(!error.contains("wrong@") && !error.contains("secret"), "{error}");
    }
}

#[test]
fn an_etcd_that_was_restored_is_told_until_the_numbers_are_written_again() {
    let etcd = Etcd::start();
    let numbers = |value: &[u8]| {
        let mut batch = one_row(b"a", value);
        batch.put(Table::META, b"revision", value);
        batch
    };
    let (mut store, _) = etcd.lead("a");
    assert!(!store.rewound());
    store.commit(&numbers(b"1")).unwrap();
    Box::new(store).close().unwrap();
    let (store, _) = etcd.lead("b");
    assert!(!store.rewound(), "another leader is no restored backup");
    Box::new(store).close().unwrap();
    // What a restored etcd looks like from here: its log is shorter than it ever was, by far, for its revision.
    etcd.talk(async |client| put(&client, &[("lead", &(-1_000_000_i64).to_be_bytes())]).await);
    let (mut store, _) = etcd.lead("c");
    assert!(store.rewound());
    store.commit(&one_row(b"a", b"2")).unwrap();
    Box::new(store).close().unwrap();
    let (mut store, _) = etcd.lead("d");
    assert!(store.rewound(), "nobody has written the numbers yet");
    store.commit(&numbers(b"3")).unwrap();
    Box::new(store).close().unwrap();
    assert!(!etcd.lead("e").0.rewound());
}

#[test]
fn a_group_as_large_as_the_store_asks_for_is_one_transaction() {
    let etcd = Etcd::start();
    let (mut store, _) = etcd.lead("a");
    let before = number(&etcd);
    // As many again for the ledger, and a few that the commands share.
    let rows = u32::try_from(store.group_rows()).unwrap() * 2 + 10;
    let mut batch = Batch::new();
    for row in 0..rows {
        batch.put(Table::OBJECTS, &row.to_be_bytes(), &[7; 2000]);
    }
    store.commit(&batch).unwrap();
    assert_eq!(number(&etcd), before + 1);
}

/// gRPC's numbers of what etcd says.
const RESOURCE_EXHAUSTED: u16 = 8;
const UNAVAILABLE: u16 = 14;

#[test]
fn what_etcd_asks_to_be_asked_again_is_done_once() {
    let etcd = Etcd::start();
    let scripted = Scripted::before(etcd.client_port);
    let line = |method, code, says, done| Line { method, code, says, done };
    let busy = |method| line(method, RESOURCE_EXHAUSTED, "etcdserver: too many requests", false);
    // On the way to lead and to load.
    scripted.say(&["Range", "LeaseGrant", "Txn", "Txn", "Range", "Range"].map(busy));
    let mut store = lead(config("a", &[scripted.port]));
    assert_eq!(scripted.left(), 0, "the script was played");
    let term = store.term();
    for (round, lines) in [
        vec![busy("Txn"), busy("Txn"), busy("Txn")],
        vec![line("Txn", UNAVAILABLE, "etcdserver: leader changed", false)],
        vec![line("Txn", UNAVAILABLE, "etcdserver: request timed out", true)],
        // Done, and told that it was not, twice over.
        vec![
            line("Txn", UNAVAILABLE, "etcdserver: request timed out, possibly due to previous leader failure", true),
            busy("Txn"),
        ],
        vec![line("Txn", RESOURCE_EXHAUSTED, "etcdserver: too many requests", true)],
    ]
    .into_iter()
    .enumerate()
    {
        let before = number(&etcd);
        scripted.say(&lines);
        let value = [u8::try_from(round).unwrap()];
        store.commit(&one_row(b"a", &value)).unwrap_or_else(|error| panic!("{lines:?}: {error}"));
        assert_eq!((scripted.left(), number(&etcd)), (0, before + 1), "{lines:?}");
        assert!(!term.is_lost());
    }
    // Renewals, too: two in a row may fail before anybody doubts.
    scripted.say(&[busy("LeaseKeepAlive"), busy("LeaseKeepAlive")]);
    until("renewed", || scripted.left() == 0 && !term.is_in_doubt());
    store.commit(&one_row(b"b", b"1")).unwrap();
    Box::new(store).close().unwrap();
    let (_, rows) = etcd.lead("b");
    assert_eq!(rows[&(Table::OBJECTS, b"a".to_vec())], [4]);
}
