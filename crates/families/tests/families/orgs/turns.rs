//! Whose turn it is in a pass, and what passes end without anybody having asked.

use std::collections::{BTreeMap, BTreeSet};

use families::orgs::commands::Op;
use families::orgs::names::*;
use families::orgs::scheduler::board::Board;
use families::orgs::scheduler::plan::{ACTIONS_MAX, Action, FORCED_MS, STARTUP_MS, plan, plan_for};
use families::orgs::scheduler::state::{Objects, Seen};
use serde_json::{Value, json};

use super::cluster::{Cluster, GIB};

const PROD: [(&str, &str); 2] = [("app", "shop"), ("env", "prod")];

fn seen(org: &str, name: &str, spec: Value) -> Seen {
    Seen { org: org.into(), name: name.into(), spec, status: json!({"heartbeat_at_ms": 0}) }
}

/// An environment that wants so many.
fn env(org: &str, name: &str, desired: i64) -> Seen {
    let unit = json!({"memory_bytes": 1, "vmm_overhead_bytes": 0, "cpu": 1});
    let process = json!({"desired": desired, "release": "shop.1", "unit": unit, "secrets_version": 0});
    let spec = json!({"app": "shop", "env": name, "changed_seq": 1, "processes": {"web": process}});
    seen(org, &env_name("shop", name), spec)
}

/// One organization has a thousand instances to drain, a thousand to remove and a thousand to start, another one to start.
#[test]
fn a_thousand_of_one_stand_before_nobody_of_another() {
    let mut objects = Objects::default();
    let node = json!({"state": "active", "allocatable_memory_bytes": 1 << 20, "cpu_cores": 1, "addresses_max": 65535});
    objects.nodes.push(seen("", "n1", node));
    objects.envs.push(env("big", "old", 0));
    for number in 0..1000 {
        for (prefix, state, reported) in [("d", "running", "ready"), ("s", "stopped", "stopped")] {
            let spec = json!({
                "app": "shop", "env": "old", "process_type": "web", "node": "n1", "desired_state": state,
                "spec_hash": "shop.1/0/", "reported": {"status": reported}, "allocated_at_ms": number,
                "resources": {"memory_bytes": 1, "vmm_overhead_bytes": 0, "cpu": 1},
            });
            objects.instances.push(seen("big", &format!("{prefix}{number}"), spec));
        }
    }
    for number in 0..10 {
        objects.envs.push(env("big", &format!("new{number}"), 100));
    }
    objects.envs.push(env("small", "prod", 1));
    let board = Board::of(&objects);
    let all: BTreeSet<String> = board.orgs().cloned().collect();
    let plan = plan_for(&board, &all, BTreeMap::new(), &Default::default(), 0);
    let at = plan.actions.iter().position(|one| matches!(one, Action::Allocate { org, .. } if org == "small"));
    assert!(at.is_some_and(|at| at < 2), "{at:?}: it is among the first of the first pass");
    assert!(plan.actions.len() < ACTIONS_MAX + 8, "{}", plan.actions.len());
    assert_eq!(plan.left, BTreeSet::from(["big".to_owned()]), "the rest of it has the next pass");
    // Whoever has much is served in all he wants at once: none of it waits for all of the other.
    let of = |is: &dyn Fn(&Action) -> bool| plan.actions.iter().filter(|one| one.org() == "big" && is(one)).count();
    assert!(of(&|one| matches!(one, Action::Allocate { .. })) > 32);
    assert!(of(&|one| matches!(one, Action::SetState { .. } | Action::Remove { .. })) > 64);
    assert!(of(&|one| matches!(one, Action::Status { .. })) > 8);
}

#[test]
fn sessions_end_with_an_event_when_their_lease_their_instance_or_their_hour_does() {
    let mut cluster = Cluster::new(&[("n1", GIB)]);
    cluster.org("acme", 2);
    cluster.settle();
    let ids: Vec<String> = cluster.platform.list(INSTANCES, "acme").iter().map(name).collect();
    let grant = |cluster: &mut Cluster, at: usize| {
        let path = [("instance", ids[at].as_str())];
        let made = cluster.platform.run("acme", Op::GrantExec, &path, Value::Null).unwrap();
        made.body["id"].as_str().unwrap().to_owned()
    };
    let (unused, lost, cut) = (grant(&mut cluster, 0), grant(&mut cluster, 0), grant(&mut cluster, 1));
    for id in [&lost, &cut] {
        cluster.platform.run("acme", Op::ConnectExec, &[("session", id)], Value::Null).unwrap();
    }
    let reasons = |cluster: &Cluster| -> BTreeMap<String, String> {
        let ended = cluster.platform.events.iter().filter(|event| event["event_type"] == "exec_session.ended");
        let of = |event: &Value, at: &str| event.pointer(at).unwrap().as_str().unwrap().to_owned();
        ended.map(|event| (of(event, "/aggregate_id"), of(event, "/payload/reason"))).collect()
    };
    let stop = json!({"desired_state": "stopped"});
    cluster.platform.run("acme", Op::SetInstanceState, &[("instance", &ids[1])], stop).unwrap();
    cluster.settle();
    assert_eq!(reasons(&cluster), BTreeMap::from([(cut.clone(), "instance_stopped".into())]));
    cluster.platform.pass(60_000);
    cluster.settle();
    assert_eq!(reasons(&cluster)[&unused], "connect_timeout");
    assert_eq!(reasons(&cluster)[&lost], "connection_lost");
    assert_eq!(cluster.platform.list(EXEC_SESSIONS, "acme").len(), 3, "they are counted by the hour");
    cluster.platform.pass(60 * 60_000);
    cluster.settle();
    assert!(cluster.platform.list(EXEC_SESSIONS, "acme").is_empty());
    assert_eq!(cluster.platform.rebuilt().views, cluster.platform.live());
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

#[test]
fn what_does_not_come_up_in_two_minutes_has_failed() {
    let mut cluster = Cluster::new(&[("n1", GIB)]);
    cluster.agents = false;
    cluster.org("acme", 1);
    cluster.settle();
    let first = name(&cluster.platform.list(INSTANCES, "acme")[0]);
    cluster.platform.pass(STARTUP_MS - 1000);
    cluster.pass();
    let state = |cluster: &Cluster, id: &str| cluster.platform.get(INSTANCES, "acme", id).unwrap()["spec"].clone();
    assert_eq!(state(&cluster, &first)["reported"]["status"], "booting");
    cluster.platform.pass(2000);
    cluster.settle();
    let spec = state(&cluster, &first);
    assert_eq!(spec["reported"]["failed_for"], "startup_timeout", "{spec}");
    assert_eq!(spec["desired_state"], "stopped", "another has its slot");
    assert_eq!(cluster.nodes_of("acme"), ["n1"]);
}

#[test]
fn a_volume_is_taken_from_who_never_says_that_it_stopped() {
    let mut cluster = Cluster::new(&[("n1", GIB)]);
    cluster.org("acme", 1);
    let volume = cluster.platform.run("acme", Op::CreateVolume, &[], json!({"size_bytes": GIB})).unwrap();
    let body = json!({"volume": volume.body["id"], "mount_path": "/data"});
    cluster.platform.run("acme", Op::CreateAttachment, &PROD, body).unwrap();
    cluster.settle();
    let first = name(&cluster.platform.list(INSTANCES, "acme")[0]);
    cluster.agents = false;
    cluster.platform.run("acme", Op::CreateDeploy, &PROD, json!({"release": 1})).unwrap();
    let release = json!({"processes": {"web": {"memory_bytes": 32 << 20, "cpu": 0.5}}});
    cluster.platform.run("acme", Op::CreateRelease, &PROD[..1], release).unwrap();
    cluster.platform.run("acme", Op::CreateDeploy, &PROD, json!({"release": 2})).unwrap();
    cluster.settle();
    cluster.platform.pass(FORCED_MS);
    cluster.settle();
    assert_eq!(cluster.platform.list(INSTANCES, "acme").len(), 1, "it is waited for");
    cluster.platform.pass(15_000);
    cluster.settle();
    let old = cluster.platform.get(INSTANCES, "acme", &first).unwrap();
    assert_eq!((&old["spec"]["desired_state"], &old["spec"]["drain_reason"]), (&json!("stopped"), &json!("forced")));
    assert_eq!(cluster.nodes_of("acme"), ["n1"]);
}

/// A volume on a node that is offline has nobody who could mount it: that is told beside why nothing is placed.
#[test]
fn an_environment_is_degraded_while_the_node_of_its_volume_is_offline() {
    let mut cluster = Cluster::new(&[("n1", GIB), ("n2", GIB)]);
    cluster.org("acme", 1);
    let body = json!({"size_bytes": GIB, "home_node": "n1"});
    let volume = cluster.platform.run("acme", Op::CreateVolume, &[], body).unwrap();
    let body = json!({"volume": volume.body["id"], "mount_path": "/data"});
    cluster.platform.run("acme", Op::CreateAttachment, &PROD, body).unwrap();
    cluster.settle();
    for (state, told) in [("offline", json!("volume_home_node_offline")), ("active", Value::Null)] {
        cluster.platform.run("", Op::SetNodeState, &[("node", "n1")], json!({"state": state})).unwrap();
        cluster.settle();
        let actions = plan(&cluster.objects(), &cluster.memory, cluster.platform.now_ms);
        let status = actions.iter().find_map(|action| match action {
            Action::Status { groups, .. } => Some(&groups[0]),
            _ => None,
        });
        let status = status.expect("it is told of");
        assert_eq!(status["degraded_reason"], told, "{status}");
        assert_eq!(status["status"] == "healthy", state == "active", "{status}");
    }
}

/// Only what a node does is held against it.
#[test]
fn a_node_is_avoided_for_its_own_faults() {
    for (reason, avoided) in [("exit_code_1", false), ("firecracker_start_failed", true), ("disk_full", true)] {
        let instance = |at: i64| {
            let spec = json!({
                "app": "shop", "env": "x", "process_type": "web", "node": "n1", "desired_state": "stopped",
                "reported": {"status": "failed", "failed_at_ms": at, "failed_for": reason},
            });
            seen("acme", &format!("i{at}"), spec)
        };
        let node = json!({"state": "active", "allocatable_memory_bytes": 9, "cpu_cores": 1, "addresses_max": 9});
        let objects = Objects {
            nodes: vec![seen("", "n1", node)],
            instances: (0..3).map(instance).collect(),
            ..Objects::default()
        };
        assert_eq!(Board::of(&objects).nodes(0)[0].failures == 3, avoided, "{reason}");
    }
}
