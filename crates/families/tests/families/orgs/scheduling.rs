//! What the scheduler makes of what was granted: where it goes, and how rollouts and lost nodes are lived through.

use std::collections::BTreeMap;

use families::orgs::commands::Op;
use families::orgs::names::*;
use families::orgs::scheduler::plan::{Action, Exceeded, plan};
use serde_json::{Value, json};

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

/// Deploys a release of the same size.
fn deploy_again(cluster: &mut Cluster) -> String {
    let release = json!({"processes": {"web": {"memory_bytes": 64 << 20, "cpu": 0.5, "command": ["other"]}}});
    cluster.platform.run("acme", Op::CreateRelease, &[("app", "shop")], release).unwrap();
    let path = [("app", "shop"), ("env", "prod")];
    let deploy = cluster.platform.run("acme", Op::CreateDeploy, &path, json!({"release": 2})).unwrap().body;
    deploy["id"].as_str().unwrap().to_owned()
}

/// Lets a minute pass, in which never more than so many are counted, and in the end so many of the second release run.
fn rolls_within(cluster: &mut Cluster, most: i128) {
    for _ in 0..120 {
        cluster.platform.pass(500);
        cluster.pass();
        assert!(cluster.platform.units("acme", "counted.max_instances") <= most);
    }
    let all = cluster.platform.list(INSTANCES, "acme");
    let running = all.iter().filter(|one| one["spec"]["desired_state"] == "running");
    let releases: Vec<&str> = running.map(|one| one["spec"]["release"].as_str().unwrap()).collect();
    assert_eq!(releases, vec!["shop.2"; usize::try_from(most).unwrap()]);
}

#[test]
fn a_rollout_goes_on_with_the_instances_that_quota_leaves() {
    for reservations in ["exact", "check"] {
        let mut cluster = Cluster::new(&[("n1", 64 * GIB)]);
        cluster.org("acme", 5);
        cluster.platform.run("acme", Op::SetPolicy, &[], json!({"reservations": reservations})).unwrap();
        cluster.platform.limit("acme", "max_instances", 3);
        cluster.settle();
        deploy_again(&mut cluster);
        rolls_within(&mut cluster, 3);
    }
}

#[test]
fn a_surge_for_which_a_lowered_limit_leaves_no_room_goes_on_without() {
    let mut cluster = Cluster::new(&[("n1", 64 * GIB)]);
    cluster.org("acme", 3);
    cluster.settle();
    cluster.scale("acme", "prod", 6).unwrap();
    let deploy = deploy_again(&mut cluster);
    let mode = |cluster: &Cluster| {
        cluster.platform.get(DEPLOYS, "acme", &deploy).unwrap()["spec"]["processes"]["web"]["mode"].clone()
    };
    assert_eq!(mode(&cluster), "surge");
    cluster.platform.limit("acme", "max_instances", 3);
    rolls_within(&mut cluster, 3);
    assert_eq!(mode(&cluster), "drain_first");
}

/// The groups whose status is written next, if any is.
fn told(cluster: &Cluster, shown: &Value) -> Option<Value> {
    let mut objects = cluster.objects();
    objects.envs[0].status = json!({"groups": shown});
    let actions = plan(&objects, &cluster.memory, cluster.platform.now_ms);
    actions.into_iter().find_map(|action| match action {
        Action::Status { groups, .. } => Some(groups),
        _ => None,
    })
}

#[test]
fn who_waits_is_told_since_when_and_for_how_much_once() {
    let mut cluster = Cluster::new(&[("n1", 64 * GIB)]);
    cluster.org("acme", 4);
    cluster.platform.limit("acme", "max_instances", 2);
    cluster.settle();
    let since = kinds::time::text(cluster.platform.now_ms);
    let first = told(&cluster, &Value::Null).unwrap();
    assert_eq!(first[0]["since"], json!(since));
    assert_eq!(first[0]["details"], json!({"limit": 2, "current_usage": 2, "requested_delta": 1}));
    assert_eq!((&first[0]["attempts"], &first[0]["next_retry_at"]), (&json!(0), &Value::Null));
    // It waits on, and nothing is written.
    cluster.platform.pass(10_000);
    assert_eq!(told(&cluster, &first), None);
    // Other numbers, and the same wait.
    cluster.platform.limit("acme", "max_instances", 1);
    let second = told(&cluster, &first).unwrap();
    assert_eq!((&second[0]["since"], &second[0]["details"]["limit"]), (&json!(since), &json!(1)));
    // Another reason, another wait; and none at all.
    cluster.platform.limit("acme", "max_instances", 9);
    let lost = json!({"state": "disabled"});
    cluster.platform.run("", Op::SetNodeState, &[("node", "n1")], lost).unwrap();
    let third = told(&cluster, &second).unwrap();
    assert_eq!(third[0]["unschedulable_reason"], "no_nodes_active");
    assert_eq!(third[0]["since"], json!(kinds::time::text(cluster.platform.now_ms)));
    assert_eq!(third[0]["details"], Value::Null);
    cluster.platform.run("", Op::SetNodeState, &[("node", "n1")], json!({"state": "active"})).unwrap();
    cluster.settle();
    assert_eq!(told(&cluster, &third).unwrap()[0]["since"], Value::Null);
}

#[test]
fn an_allocation_that_the_ledger_refuses_is_told_with_when_it_is_tried_again() {
    let mut cluster = Cluster::new(&[("n1", 64 * GIB)]);
    cluster.org("acme", 4);
    // The limit falls between the look and the step.
    let objects = cluster.objects();
    cluster.platform.limit("acme", "max_instances", 0);
    let all = families::orgs::scheduler::state::groups(&objects);
    let room = &families::orgs::scheduler::state::rooms(&objects.orgs)["acme"];
    for attempts in 1..3 {
        let dimension = families::orgs::Dimension::Instances;
        let refused = Exceeded { dimension, counted: room.counted[0], limit: room.limits[0] };
        cluster.memory.block(&all[0], refused, cluster.platform.now_ms);
        let told = told(&cluster, &Value::Null).unwrap();
        assert_eq!(told[0]["attempts"], json!(attempts));
        assert_eq!(told[0]["next_retry_at"], json!(kinds::time::text(cluster.platform.now_ms + 30_000)));
    }
}
