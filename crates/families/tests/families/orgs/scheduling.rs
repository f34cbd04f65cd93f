//! What the scheduler makes of what was granted: where it goes, and how rollouts and lost nodes are lived through.

use std::collections::BTreeMap;

use families::orgs::commands::Op;
use families::orgs::names::*;
use serde_json::json;

use super::cluster::{Cluster, GIB};

#[test]
fn what_was_granted_is_placed_and_spread_the_same_way_each_time() {
    let run = || {
        let mut cluster = Cluster::new(&[("n1", GIB), ("n2", GIB), ("n3", GIB)]);
        cluster.org("acme", 5);
        assert_eq!(cluster.settle(), BTreeMap::new());
        let mut nodes = cluster.nodes_of("acme");
        nodes.sort();
        (nodes, cluster.platform.units("acme", "counted.max_instances"))
    };
    assert_eq!(run(), (["n1", "n1", "n2", "n2", "n3"].map(str::to_owned).to_vec(), 5));
    assert_eq!(run(), run());
}

#[test]
fn a_full_cluster_is_no_matter_of_quota() {
    let mut cluster = Cluster::new(&[("n1", 256 << 20)]);
    cluster.org("acme", 3);
    assert_eq!(cluster.settle(), BTreeMap::from([("acme/shop.prod 1".into(), "no_capacity_memory".into())]));
    assert_eq!(cluster.nodes_of("acme").len(), 2);
    let mut none = Cluster::new(&[]);
    none.org("acme", 1);
    assert_eq!(none.settle(), BTreeMap::from([("acme/shop.prod 1".into(), "no_nodes_active".into())]));
    // Without quota, and without a node: it is told of the quota.
    none.platform.limit("acme", "max_instances", 0);
    assert_eq!(none.settle().into_values().collect::<Vec<_>>(), ["org_quota_exceeded:max_instances"]);
}

#[test]
fn commands_that_only_look_leave_it_to_the_scheduler_to_stop_at_the_limit() {
    let mut cluster = Cluster::new(&[("n1", 64 * GIB)]);
    cluster.org("acme", 0);
    cluster.env("acme", "other", 0).unwrap();
    cluster.settle();
    cluster.platform.run("acme", Op::SetPolicy, &[], json!({"reservations": "check"})).unwrap();
    cluster.platform.limit("acme", "max_instances", 5);
    cluster.scale("acme", "prod", 4).unwrap();
    cluster.scale("acme", "other", 4).unwrap();
    let reasons = cluster.settle();
    assert_eq!(reasons, BTreeMap::from([("acme/shop.other 3".into(), "org_quota_exceeded:max_instances".into())]));
    assert_eq!(cluster.platform.units("acme", "counted.max_instances"), 5);
    let attempts = cluster.attempts;
    for _ in 0..29 {
        cluster.platform.pass(1000);
        cluster.pass();
    }
    assert!(cluster.attempts - attempts <= 1, "{} attempts in half a minute", cluster.attempts - attempts);
    // The other gives way: what waits goes on at once.
    cluster.scale("acme", "prod", 1).unwrap();
    assert_eq!(cluster.settle(), BTreeMap::new());
    assert_eq!(cluster.platform.units("acme", "counted.max_instances"), 5);
}

#[test]
fn a_limit_that_is_lowered_before_anything_is_placed_holds() {
    let mut cluster = Cluster::new(&[("n1", 64 * GIB)]);
    cluster.org("acme", 4);
    cluster.platform.limit("acme", "max_instances", 2);
    let reasons = cluster.settle();
    assert_eq!(reasons, BTreeMap::from([("acme/shop.prod 2".into(), "org_quota_exceeded:max_instances".into())]));
    cluster.platform.limit("acme", "max_instances", 10);
    assert_eq!(cluster.settle(), BTreeMap::new());
}

#[test]
fn a_rollout_without_room_never_has_more_than_the_limit() {
    let mut cluster = Cluster::new(&[("n1", 64 * GIB)]);
    cluster.org("acme", 3);
    cluster.platform.limit("acme", "max_instances", 3);
    cluster.settle();
    let release = json!({"processes": {"web": {"memory_bytes": 32 << 20}}});
    cluster.platform.run("acme", Op::CreateRelease, &[("app", "shop")], release).unwrap();
    let path = [("app", "shop"), ("env", "prod")];
    let deploy = cluster.platform.run("acme", Op::CreateDeploy, &path, json!({"release": 2})).unwrap().body;
    assert_eq!(deploy["processes"]["web"]["mode"], "drain_first");
    for _ in 0..60 {
        cluster.platform.pass(500);
        cluster.pass();
        assert!(cluster.platform.units("acme", "counted.max_instances") <= 3);
    }
    let live = cluster.platform.list(INSTANCES, "acme");
    assert_eq!(
        live.iter()
            .filter(|one| one["spec"]["release"] == "shop.2" && one["spec"]["desired_state"] == "running")
            .count(),
        3
    );
    let deploy = cluster.platform.get(DEPLOYS, "acme", deploy["id"].as_str().unwrap()).unwrap();
    assert_eq!(deploy["spec"]["state"], "succeeded");
}

#[test]
fn a_rollout_with_room_surges_and_is_never_short() {
    let mut cluster = Cluster::new(&[("n1", 64 * GIB)]);
    cluster.org("acme", 3);
    cluster.settle();
    let release = json!({"processes": {"web": {"memory_bytes": 32 << 20}}});
    cluster.platform.run("acme", Op::CreateRelease, &[("app", "shop")], release).unwrap();
    let path = [("app", "shop"), ("env", "prod")];
    cluster.platform.run("acme", Op::CreateDeploy, &path, json!({"release": 2})).unwrap();
    for _ in 0..60 {
        cluster.platform.pass(500);
        cluster.pass();
        let ready =
            cluster.platform.list(INSTANCES, "acme").into_iter().filter(|one| {
                one["spec"]["desired_state"] == "running" && one["spec"]["reported"]["status"] == "ready"
            });
        assert!(ready.count() >= 3);
        assert!(cluster.platform.units("acme", "counted.max_instances") <= 4);
    }
    let all = cluster.platform.list(INSTANCES, "acme");
    assert!(all.iter().all(|one| one["spec"]["release"] == "shop.2"), "{all:?}");
}

#[test]
fn a_thousand_of_one_do_not_stand_before_one_of_another() {
    let mut cluster = Cluster::new(&[("n1", 4096 * GIB)]);
    cluster.org("loud", 0);
    cluster.platform.limit("loud", "max_instances", 2000);
    cluster.platform.limit("loud", "max_total_cpu_request", 2000);
    cluster.platform.limit("loud", "max_total_memory_bytes", 2048 * GIB);
    cluster.scale("loud", "prod", 100).unwrap();
    for n in 0..9 {
        cluster.env("loud", &format!("e{n}"), 100).unwrap();
    }
    cluster.org("quiet", 1);
    cluster.pass();
    assert_eq!(cluster.nodes_of("quiet").len(), 1, "one pass is enough");
    assert!(cluster.nodes_of("loud").len() >= 60);
}

#[test]
fn what_a_lost_node_ran_runs_elsewhere_even_over_a_lowered_limit() {
    let mut cluster = Cluster::new(&[("n1", GIB), ("n2", GIB)]);
    cluster.org("acme", 4);
    cluster.settle();
    cluster.platform.limit("acme", "max_instances", 2);
    let lost = json!({"state": "offline", "reason": "silent"});
    cluster.platform.run("", Op::SetNodeState, &[("node", "n1")], lost).unwrap();
    cluster.settle();
    assert_eq!(cluster.nodes_of("acme"), ["n2"; 4]);
    assert_eq!(cluster.platform.units("acme", "counted.max_instances"), 4);
}
