//! Charges that change with time, without a write of their object.

use serde_json::{Value, json};

use super::*;

const DELETED: &str = "1970-01-01T00:00:30Z";
/// The last moment at which a pod deleted so, with a grace period of 30 seconds, is waited for.
const PATIENCE_MS: i64 = 60_000;

fn rig() -> Bench {
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    let hard = json!({"pods": "1", "count/pods": "5", "requests.cpu": "1"});
    bench.create("", "resourcequotas", "a", "q", json!({"spec": {"hard": hard}})).unwrap();
    bench
}

fn pod() -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}})
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::core("pods"), "a", name)
}

impl Bench {
    fn used_now(&self) -> String {
        let lines = self.desk.of(&policy_name(&GroupResource::core("resourcequotas"), "a", "q"));
        let show = |line: &families::BalanceLine| format!("{}={}", line.resource, line.balance.used);
        lines.iter().map(show).collect::<Vec<_>>().join(" ")
    }

    fn mark_deleted(&mut self, name: &str) {
        self.change(&key(name), |pod| {
            pod["metadata"]["deletionTimestamp"] = DELETED.into();
            pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
        })
        .unwrap();
    }
}

#[test]
fn a_pod_whose_deletion_is_overdue_lets_go_when_the_time_has_come() {
    let mut bench = rig();
    bench.create("", "pods", "a", "x", pod()).unwrap();
    bench.mark_deleted("x");
    assert!(!bench.desk.is_due(PATIENCE_MS));
    assert!(bench.desk.is_due(PATIENCE_MS + 1), "somebody has to tell the time then");
    bench.desk.publish(PATIENCE_MS);
    assert_eq!(bench.used_now(), "count/pods=1 pods=1 requests.cpu=1");
    bench.audit();
    bench.desk.publish(PATIENCE_MS + 1);
    assert_eq!(bench.used_now(), "count/pods=1 pods=0 requests.cpu=0");
    assert!(!bench.desk.is_due(i64::MAX - 1), "once");
    bench.audit();
    bench.create("", "pods", "a", "y", pod()).unwrap();
    // Time does not go back.
    bench.change(&key("x"), |pod| pod["metadata"]["labels"] = json!({"a": "b"})).unwrap();
    assert_eq!(bench.used_now(), "count/pods=2 pods=1 requests.cpu=1");
    bench.audit();
}

#[test]
fn the_write_that_comes_after_the_moment_finds_the_room() {
    let mut bench = rig();
    bench.create("", "pods", "a", "x", pod()).unwrap();
    bench.mark_deleted("x");
    let draft = bench.draft("a", "y", pod());
    let early = bench.write_at(PATIENCE_MS, key("y"), WriteKind::Create(draft), false);
    assert!(matches!(early, Err(Refused::Denied(_))));
    let draft = bench.draft("a", "y", pod());
    bench.write_at(PATIENCE_MS + 1, key("y"), WriteKind::Create(draft), false).unwrap();
    bench.audit();
}

/// Another replica's clock was ahead, or this machine's was set right: the charge is what the present clock says.
#[test]
fn after_a_restart_the_clock_of_that_time_counts() {
    let mut bench = rig();
    bench.create("", "pods", "a", "x", pod()).unwrap();
    bench.mark_deleted("x");
    bench.desk.publish(PATIENCE_MS + 1);
    assert_eq!(bench.used_now(), "count/pods=1 pods=0 requests.cpu=0");
    let mut bench = bench.restart();
    bench.desk.publish(PATIENCE_MS - 1);
    assert_eq!(bench.used_now(), "count/pods=1 pods=1 requests.cpu=1");
    bench.audit();
    assert!(bench.desk.is_due(PATIENCE_MS + 1) && !bench.desk.is_due(PATIENCE_MS), "and it is let go once more");
    bench.desk.publish(PATIENCE_MS + 1);
    assert_eq!(bench.used_now(), "count/pods=1 pods=0 requests.cpu=0");
    bench.audit();
}

/// The same of a pod that was never counted, because its deletion was overdue by that clock from the beginning.
#[test]
fn what_a_clock_that_was_ahead_never_counted_is_counted_after_a_restart() {
    let mut bench = rig();
    bench.desk.publish(PATIENCE_MS + 1);
    bench.create("", "pods", "a", "x", pod()).unwrap();
    bench.mark_deleted("x");
    assert_eq!(bench.used_now(), "count/pods=1 pods=0 requests.cpu=0");
    let mut bench = bench.restart();
    bench.desk.publish(PATIENCE_MS);
    assert_eq!(bench.used_now(), "count/pods=1 pods=1 requests.cpu=1");
    bench.audit();
}

/// Who verifies a folder has no clock but his own, and the server that wrote it may have ended before a moment or after it.
#[test]
fn what_was_let_go_in_time_is_no_damage() {
    let verified = |bench: &mut Bench, now_ms: i64| {
        let families = families::all(&families::Settings::default());
        let (loaded, stored) = (bench.desk.loaded(), bench.desk.loaded().ledger);
        Engine::start(loaded, families).0.verify(&stored, now_ms).problems
    };
    let mut bench = rig();
    bench.create("", "pods", "a", "x", pod()).unwrap();
    bench.mark_deleted("x");
    for now_ms in [PATIENCE_MS, PATIENCE_MS + 1] {
        assert_eq!(verified(&mut bench, now_ms), Vec::<String>::new(), "before it, at {now_ms}");
    }
    bench.desk.publish(PATIENCE_MS + 1);
    for now_ms in [PATIENCE_MS, PATIENCE_MS + 1] {
        assert_eq!(verified(&mut bench, now_ms), Vec::<String>::new(), "after it, at {now_ms}");
    }
}

#[test]
fn what_is_due_is_found_again_after_a_restart() {
    let mut bench = rig();
    bench.create("", "pods", "a", "x", pod()).unwrap();
    bench.mark_deleted("x");
    let mut bench = bench.restart();
    bench.audit();
    bench.desk.publish(PATIENCE_MS + 1);
    assert_eq!(bench.used_now(), "count/pods=1 pods=0 requests.cpu=0");
    let mut bench = bench.restart();
    bench.desk.publish(PATIENCE_MS + 2);
    assert_eq!(bench.used_now(), "count/pods=1 pods=0 requests.cpu=0");
    bench.audit();
    // A quota that comes later counts what is there now.
    bench.create("", "resourcequotas", "a", "late", json!({"spec": {"hard": {"pods": "5"}}})).unwrap();
    let late = bench.desk.of(&policy_name(&GroupResource::core("resourcequotas"), "a", "late"));
    assert_eq!(late[0].balance.used, units(0));
    bench.audit();
}
