//! Why something waits: one reason at a time, in one order, and how long.

use std::collections::BTreeMap;

use families::orgs::Dimension;
use families::orgs::commands::Op;
use families::orgs::names::*;
use families::orgs::scheduler::plan::{Action, BACKOFF_MS, Exceeded, plan};
use families::orgs::scheduler::state::{groups, rooms};
use serde_json::{Value, json};

use super::cluster::{Cluster, GIB};

const PROD: [(&str, &str); 2] = [("app", "shop"), ("env", "prod")];

/// A volume on a node, mounted by `web` of the first environment.
fn mount(cluster: &mut Cluster, node: &str) -> String {
    let volume = json!({"size_bytes": GIB, "home_node": node});
    let id =
        cluster.platform.run("acme", Op::CreateVolume, &[], volume).unwrap().body["id"].as_str().unwrap().to_owned();
    let path = format!("/data/{id}");
    cluster.platform.run("acme", Op::CreateAttachment, &PROD, json!({"volume": id, "mount_path": path})).unwrap();
    id
}

fn only(reasons: BTreeMap<String, String>) -> String {
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons.into_values().next().unwrap()
}

#[test]
fn gates_are_asked_in_one_order_and_the_first_is_told() {
    // Everything is wrong at once; one after the other is mended, and the next is told.
    let mut cluster = Cluster::new(&[]);
    cluster.org("acme", 0);
    cluster.platform.limit("acme", "max_instances", 0);
    let (one, other) = (mount(&mut cluster, "n1"), mount(&mut cluster, "n2"));
    cluster.platform.run("acme", Op::SetPolicy, &[], json!({"reservations": "check"})).unwrap();
    // A command that only looks is not what this is about.
    cluster.platform.limit("acme", "max_instances", 1);
    cluster.scale("acme", "prod", 1).unwrap();
    cluster.platform.limit("acme", "max_instances", 0);
    // What is configured: two volumes in two places.
    assert_eq!(only(cluster.settle()), "volume_constraints_invalid");
    let detach = |cluster: &mut Cluster, volume: &str| {
        let list = cluster.platform.list(ATTACHMENTS, "acme");
        let found = list.iter().find(|one| one["spec"]["volume"] == volume).unwrap();
        let id = found["metadata"]["name"].as_str().unwrap().to_owned();
        let path = [PROD[0], PROD[1], ("attachment", id.as_str())];
        cluster.platform.run("acme", Op::DeleteAttachment, &path, Value::Null).unwrap();
    };
    detach(&mut cluster, &other);
    // Quota, before any node is looked for.
    assert_eq!(only(cluster.settle()), "org_quota_exceeded:max_instances");
    cluster.platform.limit("acme", "max_instances", 1);
    // Nodes: none at all, then none where the volume is, then none with room.
    assert_eq!(only(cluster.settle()), "no_nodes_active");
    let node = |memory: i64, addresses: i64| json!({"allocatable_memory_bytes": memory, "cpu_cores": 4, "addresses_max": addresses});
    cluster.platform.run("", Op::RegisterNode, &[("node", "n2")], node(GIB, 10)).unwrap();
    assert_eq!(only(cluster.settle()), "volume_locality_no_node");
    cluster.platform.run("", Op::RegisterNode, &[("node", "n1")], node(64 << 20, 0)).unwrap();
    assert_eq!(only(cluster.settle()), "no_capacity_memory");
    // Addresses last.
    cluster.platform.run("", Op::RegisterNode, &[("node", "n1")], node(GIB, 0)).unwrap();
    assert_eq!(only(cluster.settle()), "ipam_exhausted");
    cluster.platform.run("", Op::RegisterNode, &[("node", "n1")], node(GIB, 1)).unwrap();
    assert_eq!(cluster.settle(), BTreeMap::new());
    assert_eq!(cluster.nodes_of("acme"), ["n1"]);
    let instance = &cluster.platform.list(INSTANCES, "acme")[0];
    assert_eq!(instance["spec"]["volumes"], json!([one]));
}

#[test]
fn of_several_dimensions_the_first_is_the_reason() {
    let mut cluster = Cluster::new(&[("n1", GIB)]);
    cluster.org("acme", 2);
    for (dimension, limit) in [("max_total_cpu_request", 0), ("max_total_memory_bytes", 1), ("max_instances", 0)] {
        cluster.platform.limit("acme", dimension, limit);
        assert_eq!(only(cluster.settle()), format!("org_quota_exceeded:{dimension}"));
    }
}

#[test]
fn a_node_that_is_silent_or_out_of_service_gets_nothing() {
    let mut cluster = Cluster::new(&[("n1", GIB)]);
    cluster.org("acme", 1);
    for state in ["draining", "disabled", "degraded", "offline"] {
        cluster.platform.run("", Op::SetNodeState, &[("node", "n1")], json!({"state": state})).unwrap();
        assert_eq!(only(cluster.settle()), "no_nodes_active", "{state}");
    }
    cluster.platform.run("", Op::SetNodeState, &[("node", "n1")], json!({"state": "active"})).unwrap();
    let mut objects = cluster.objects();
    for (age, placed) in [(60_000, true), (60_001, false)] {
        objects.nodes[0].status = json!({"heartbeat_at_ms": cluster.platform.now_ms - age});
        let actions = plan(&objects, &cluster.memory, cluster.platform.now_ms);
        assert_eq!(actions.iter().any(|action| matches!(action, Action::Allocate { .. })), placed, "{age}");
    }
}

#[test]
fn a_refused_allocation_is_left_alone_unless_something_changes() {
    let mut cluster = Cluster::new(&[("n1", GIB)]);
    cluster.org("acme", 2);
    let now = cluster.platform.now_ms;
    let objects = cluster.objects();
    let group = groups(&objects).remove(0);
    let room = rooms(&objects.orgs)["acme"].clone();
    let tried = |cluster: &Cluster, objects: &families::orgs::scheduler::state::Objects, now: i64| {
        let actions = plan(objects, &cluster.memory, now);
        actions.iter().any(|action| matches!(action, Action::Allocate { .. }))
    };
    assert!(tried(&cluster, &objects, now));
    // The ledger said no although it seemed to fit.
    let refused = |counted: i128, limit: Option<i128>| Exceeded { dimension: Dimension::MemoryBytes, counted, limit };
    let as_seen = refused(room.counted[1], room.limits[1]);
    cluster.memory.block(&group, as_seen, now);
    assert!(!tried(&cluster, &objects, now));
    assert!(!tried(&cluster, &objects, now + BACKOFF_MS - 1));
    assert!(tried(&cluster, &objects, now + BACKOFF_MS), "its time has come");
    let shown = |objects: &families::orgs::scheduler::state::Objects, field: &str, change: i64| {
        let mut other = objects.clone();
        for row in other.orgs[0].status["usage"].as_array_mut().unwrap() {
            if row["dimension"] == "max_total_memory_bytes" {
                row[field] = json!(row[field].as_i64().unwrap() + change);
            }
        }
        other
    };
    // As it was refused there was one more.
    cluster.memory.block(&group, refused(room.counted[1] + 1_000_000_000, room.limits[1]), now);
    assert!(tried(&cluster, &objects, now + 1), "usage fell");
    // And the limit was lower than when the pass began.
    cluster.memory.block(&group, refused(room.counted[1], room.limits[1].map(|limit| limit - 1)), now);
    assert!(tried(&cluster, &objects, now + 1), "the limit rose since it was refused, to less than it had been");
    cluster.memory.block(&group, as_seen, now);
    assert!(!tried(&cluster, &shown(&objects, "counted", 1), now + 1), "usage grew");
    assert!(tried(&cluster, &shown(&objects, "limit", 1), now + 1), "the limit rose");
    assert!(!tried(&cluster, &shown(&objects, "limit", -1), now + 1), "the limit fell");
    let mut other = objects.clone();
    other.envs[0].spec["changed_seq"] = json!(now + 1);
    assert!(tried(&cluster, &other, now + 1), "something else is wanted");
}

#[test]
fn a_surge_that_finds_no_room_any_more_drains_first_and_says_so() {
    let mut cluster = Cluster::new(&[("n1", 64 * GIB)]);
    cluster.org("acme", 3);
    cluster.settle();
    let release = json!({"processes": {"web": {"memory_bytes": 32 << 20}}});
    cluster.platform.run("acme", Op::CreateRelease, &[("app", "shop")], release).unwrap();
    let deploy = cluster.platform.run("acme", Op::CreateDeploy, &PROD, json!({"release": 2})).unwrap().body;
    assert_eq!(deploy["message"], "rollout_mode=surge");
    assert_eq!(cluster.platform.units("acme", "max_instances"), 4);
    // Before anything is replaced an operator takes the room away.
    cluster.platform.limit("acme", "max_instances", 3);
    for _ in 0..80 {
        cluster.platform.pass(500);
        cluster.pass();
        assert!(cluster.platform.units("acme", "counted.max_instances") <= 3);
    }
    let deploy = cluster.platform.get(DEPLOYS, "acme", deploy["id"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&deploy["spec"]["state"], &deploy["spec"]["processes"]["web"]["mode"]),
        (&json!("succeeded"), &json!("drain_first"))
    );
    let message = deploy["spec"]["message"].as_str().unwrap();
    assert!(message.starts_with("rollout_mode=drain_first reason=org_quota_exceeded:max_instances"), "{message}");
    let downgraded = cluster.platform.events.iter().filter(|event| event["event_type"] == "env.rollout_downgraded");
    assert_eq!(downgraded.count(), 1, "once");
    let all = cluster.platform.list(INSTANCES, "acme");
    assert_eq!(all.iter().filter(|one| one["spec"]["release"] == "shop.2").count(), 3, "{all:?}");
    assert_eq!(cluster.platform.rebuilt().views, cluster.platform.live());
}

#[test]
fn a_single_replica_gives_way_where_nodes_have_no_memory_for_two() {
    let mut cluster = Cluster::new(&[("n1", 128 << 20)]);
    cluster.org("acme", 1);
    cluster.settle();
    let release = json!({"processes": {"web": {"memory_bytes": 32 << 20}}});
    cluster.platform.run("acme", Op::CreateRelease, &[("app", "shop")], release).unwrap();
    cluster.platform.run("acme", Op::CreateDeploy, &PROD, json!({"release": 2})).unwrap();
    assert_eq!(cluster.settle(), BTreeMap::new());
    let all = cluster.platform.list(INSTANCES, "acme");
    assert!(all.iter().all(|one| one["spec"]["release"] == "shop.2"), "{all:?}");
}

#[test]
fn a_release_that_cannot_run_is_tried_three_times_more() {
    let mut cluster = Cluster::new(&[("n1", 64 * GIB)]);
    cluster.org("acme", 1);
    cluster.settle();
    cluster.failing = true;
    let release = json!({"processes": {"web": {"memory_bytes": 32 << 20}}});
    cluster.platform.run("acme", Op::CreateRelease, &[("app", "shop")], release).unwrap();
    let deploy = cluster.platform.run("acme", Op::CreateDeploy, &PROD, json!({"release": 2})).unwrap().body;
    cluster.attempts = 0;
    for _ in 0..60 {
        cluster.platform.pass(1000);
        cluster.pass();
    }
    assert_eq!(cluster.attempts, 4, "once, and three times more");
    let stored = cluster.platform.get(DEPLOYS, "acme", deploy["id"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&stored["spec"]["state"], &stored["spec"]["message"]),
        (&json!("failed"), &json!("4 instances failed"))
    );
    let all = cluster.platform.list(INSTANCES, "acme");
    assert!(all.iter().any(|one| one["spec"]["release"] == "shop.1" && one["spec"]["desired_state"] == "running"));
}

#[test]
fn a_node_that_is_left_is_left_one_by_one() {
    let mut cluster = Cluster::new(&[("n1", GIB), ("n2", GIB)]);
    cluster.org("acme", 4);
    cluster.platform.limit("acme", "max_instances", 4);
    cluster.settle();
    cluster.platform.run("", Op::SetNodeState, &[("node", "n1")], json!({"state": "draining"})).unwrap();
    for _ in 0..60 {
        cluster.platform.pass(500);
        cluster.pass();
        let all = cluster.platform.list(INSTANCES, "acme");
        let running = all.iter().filter(|one| one["spec"]["desired_state"] == "running").count();
        assert!(running >= 3, "one at a time");
        assert!(cluster.platform.units("acme", "counted.max_instances") <= 4);
    }
    assert_eq!(cluster.nodes_of("acme"), ["n2"; 4]);
}

#[test]
fn of_what_a_lost_node_ran_only_what_is_still_wanted_runs_elsewhere() {
    let mut cluster = Cluster::new(&[("n1", GIB), ("n2", GIB)]);
    cluster.org("acme", 4);
    cluster.settle();
    cluster.platform.run("", Op::SetNodeState, &[("node", "n1")], json!({"state": "offline"})).unwrap();
    cluster.scale("acme", "prod", 3).unwrap();
    assert_eq!(cluster.settle(), BTreeMap::new());
    assert_eq!(cluster.nodes_of("acme"), ["n2"; 3]);
    assert_eq!(cluster.platform.units("acme", "max_instances"), 3);
}

#[test]
fn why_a_node_is_out_of_service_is_known_until_it_is_back() {
    let mut cluster = Cluster::new(&[("n1", GIB)]);
    let path = [("node", "n1")];
    let mut said = |state: Value, reason: Value| {
        let mut body = json!({"state": state});
        if !reason.is_null() {
            body["reason"] = reason;
        }
        let told = cluster.platform.run("", Op::SetNodeState, &path, body).unwrap().body["reason"].clone();
        // An agent that registers its node again changes nothing about it.
        let node = json!({"allocatable_memory_bytes": GIB, "cpu_cores": 8});
        let kept = cluster.platform.run("", Op::RegisterNode, &path, node).unwrap().body;
        assert_eq!((&kept["state"], &kept["reason"]), (&state, &told));
        told
    };
    assert_eq!(said(json!("offline"), json!("no_heartbeat")), "no_heartbeat");
    // Somebody says it, too, and means it: no heartbeat brings it back.
    assert_eq!(said(json!("offline"), Value::Null), Value::Null);
    assert_eq!(said(json!("offline"), json!("repair")), "repair");
    assert_eq!(said(json!("active"), Value::Null), Value::Null);
}
