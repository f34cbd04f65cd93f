//! What the scheduler knows is the same, whether it was told change by change or all at once; and what it gives is given once.

use std::collections::{BTreeMap, BTreeSet};

use families::Plural;
use families::orgs::commands::Op;
use families::orgs::names::*;
use families::orgs::scheduler::board::{Board, FOLLOWED};
use families::orgs::scheduler::plan::{Action, plan, plan_for};
use families::orgs::scheduler::state::{Objects, Seen};
use proptest::prelude::*;
use serde_json::json;

use super::cluster::{Cluster, GIB};

const ORGS_OF: [&str; 2] = ["acme", "evil"];

/// An object with names from so small a world that all of them meet.
fn seen() -> impl Strategy<Value = (usize, Seen)> {
    let words = (0usize..FOLLOWED.len(), 0usize..2, 0usize..3, 0usize..3, 0i64..4);
    words.prop_map(|(kind, org, one, other, number)| {
        let (app, env, unit) = ("shop", format!("e{one}"), json!({"memory_bytes": 64 + number, "vmm_overhead_bytes": 1, "cpu": 1}));
        let process = json!({"desired": number, "release": "shop.1", "unit": unit, "rollout": {"mode": "surge", "deploy": "d0"}});
        let (name, spec) = match FOLLOWED[kind] {
            NODES => (format!("n{one}"), json!({"state": (["active", "offline", "draining"][other]), "allocatable_memory_bytes": 1000})),
            ENVS => (env_name(app, &env), json!({"app": app, "env": env, "changed_seq": number, "processes": {format!("p{other}"): process}})),
            INSTANCES => (format!("i{number}"), json!({
                "app": app, "env": env, "process_type": format!("p{other}"), "node": format!("n{other}"), "resources": unit,
                "desired_state": (["running", "draining", "stopped"][one]), "overlay_ipv6": format!("fd00::{number}"),
                "reported": {"status": (["ready", "stopped", "failed"][other]), "failed_at_ms": number},
            })),
            ATTACHMENTS => (format!("a{number}"), json!({"app": app, "env": env, "process_type": format!("p{other}"), "volume": "v0"})),
            VOLUMES => (format!("v{one}"), json!({"home_node": format!("n{other}")})),
            EXEC_SESSIONS => (format!("x{one}"), json!({"state": (["granted", "connected", "ended"][other]), "expires_at_ms": number,
                "granted_at_ms": 0, "instance": format!("i{number}"), "version": 1})),
            _ => (format!("d{one}"), json!({"state": (["queued", "rolling", "failed"][other])})),
        };
        let org = if FOLLOWED[kind] == NODES { "" } else { ORGS_OF[org] };
        (kind, Seen { org: org.into(), name, spec, status: json!({"heartbeat_at_ms": 0}) })
    })
}

proptest! {
    #[test]
    fn a_board_is_what_its_objects_say_however_they_came(changes in prop::collection::vec((seen(), 0u8..4), 0..60)) {
        let (mut board, mut stored) = (Board::default(), BTreeMap::new());
        for ((kind, seen), what) in changes {
            let key = (kind, seen.org.clone(), seen.name.clone());
            if what == 0 {
                board.remove(FOLLOWED[kind], &seen.org, &seen.name);
                stored.remove(&key);
            } else {
                board.put(FOLLOWED[kind], seen.clone());
                stored.insert(key, seen);
            }
        }
        let of = |plural: Plural| -> Vec<Seen> {
            stored.iter().filter(|((kind, ..), _)| FOLLOWED[*kind] == plural).map(|(_, seen)| seen.clone()).collect()
        };
        let objects = Objects {
            nodes: of(NODES), orgs: Vec::new(), envs: of(ENVS), instances: of(INSTANCES), attachments: of(ATTACHMENTS),
            volumes: of(VOLUMES), deploys: of(DEPLOYS), sessions: of(EXEC_SESSIONS),
        };
        prop_assert_eq!(&board, &Board::of(&objects));
        // What is planned for all is what is planned for each, where nobody is in anybody's way.
        let all: BTreeSet<String> = board.orgs().cloned().collect();
        let memory = Default::default();
        let whole = plan_for(&board, &all, BTreeMap::new(), &memory, 1).actions;
        prop_assert_eq!(&whole, &plan(&objects, &memory, 1));
        let quiet = |action: &&Action| !matches!(action, Action::Allocate { .. } | Action::Status { .. } | Action::Deploy { .. });
        let mut apart: Vec<Action> = Vec::new();
        for org in &all {
            apart.extend(plan_for(&board, &BTreeSet::from([org.clone()]), BTreeMap::new(), &memory, 1).actions);
        }
        let sorted = |actions: &[Action]| {
            let mut texts: Vec<String> = actions.iter().filter(quiet).map(|action| format!("{action:?}")).collect();
            texts.sort();
            texts
        };
        prop_assert_eq!(sorted(&whole), sorted(&apart));
    }
}

/// Addresses of instances that have not stopped.
fn addresses(cluster: &Cluster) -> Vec<String> {
    let all = ["acme", "evil"].into_iter().flat_map(|org| cluster.platform.list(INSTANCES, org));
    let live = all.filter(|one| one["spec"]["reported"]["status"] != "stopped");
    live.map(|one| one["spec"]["overlay_ipv6"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn no_two_instances_have_one_address_whoever_comes_and_goes() {
    let mut cluster = Cluster::new(&[("n2", 64 * GIB), ("n3", 64 * GIB)]);
    cluster.org("acme", 6);
    cluster.org("evil", 6);
    cluster.settle();
    for round in 0..6 {
        cluster.scale("acme", "prod", [2, 7, 4][round % 3]).unwrap();
        cluster.scale("evil", "prod", [5, 1, 8][round % 3]).unwrap();
        cluster.settle();
        cluster.platform.pass(11_000);
        cluster.settle();
        if round == 2 {
            // It comes before the others in the alphabet.
            let node = json!({"allocatable_memory_bytes": 64 * GIB, "cpu_cores": 4, "ipv6_prefix": "fd12:3456::"});
            cluster.platform.run("", Op::RegisterNode, &[("node", "n1")], node).unwrap();
        }
        let all = addresses(&cluster);
        let distinct: BTreeSet<&String> = all.iter().collect();
        assert!(all.iter().all(|one| one.parse::<std::net::Ipv6Addr>().is_ok()), "{all:?}");
        assert_eq!(distinct.len(), all.len(), "{all:?}");
    }
    assert!(addresses(&cluster).iter().any(|one| one.starts_with("fd12:3456::")));
}

#[test]
fn what_needs_secrets_waits_for_them_and_for_nothing_else() {
    let mut cluster = Cluster::new(&[]);
    cluster.org("acme", 0);
    let release = json!({"processes": {"web": {"memory_bytes": 64 << 20, "cpu": 0.5, "secrets": ["DATABASE"]}}});
    cluster.platform.run("acme", Op::CreateRelease, &[("app", "shop")], release).unwrap();
    let path = [("app", "shop"), ("env", "prod")];
    cluster.platform.run("acme", Op::CreateDeploy, &path, json!({"release": 2})).unwrap();
    cluster.scale("acme", "prod", 1).unwrap();
    // Before quota, and before nodes.
    cluster.platform.limit("acme", "max_instances", 0);
    let reason = |cluster: &mut Cluster| cluster.settle().into_values().collect::<Vec<_>>();
    assert_eq!(reason(&mut cluster), ["secrets_missing"]);
    cluster.platform.run("acme", Op::SetSecrets, &path, json!({"secrets": {"OTHER": "x"}})).unwrap();
    assert_eq!(reason(&mut cluster), ["secrets_missing"]);
    cluster.platform.run("acme", Op::SetSecrets, &path, json!({"secrets": {"DATABASE": "hunter2"}})).unwrap();
    assert_eq!(reason(&mut cluster), ["org_quota_exceeded:max_instances"]);
    assert!(!cluster.platform.events.iter().any(|event| event.to_string().contains("hunter2")));
    for wrong in [json!("DATABASE"), json!([1]), json!([""]), json!({"a": 1})] {
        let release = json!({"processes": {"web": {"memory_bytes": 1, "secrets": wrong}}});
        let refused = cluster.platform.run("acme", Op::CreateRelease, &[("app", "shop")], release).unwrap_err();
        assert_eq!(refused.code, "invalid_argument", "{wrong}");
    }
}
