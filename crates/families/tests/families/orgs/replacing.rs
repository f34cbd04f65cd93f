//! Instances that go elsewhere though nothing else is wanted of them: nodes that are left, and volumes that came or went.

use families::orgs::commands::Op;
use families::orgs::names::*;
use serde_json::{Value, json};

use super::cluster::{Cluster, GIB};

const PROD: [(&str, &str); 2] = [("app", "shop"), ("env", "prod")];

/// The least and the most instances of `acme` that were ready, and that were counted, while so many half seconds passed.
fn watch(cluster: &mut Cluster, halves: usize) -> ((usize, usize), i128) {
    let (mut least, mut most, mut counted) = (usize::MAX, 0, 0);
    for _ in 0..halves {
        cluster.platform.pass(500);
        cluster.pass();
        let all = cluster.platform.list(INSTANCES, "acme");
        let is_ready =
            |one: &&Value| one["spec"]["desired_state"] == "running" && one["spec"]["reported"]["status"] == "ready";
        let ready = all.iter().filter(is_ready).count();
        (least, most) = (least.min(ready), most.max(ready));
        counted = counted.max(cluster.platform.units("acme", "counted.max_instances"));
    }
    ((least, most), counted)
}

fn deploys(cluster: &Cluster, kind: &str) -> Vec<Value> {
    let all = cluster.platform.list(DEPLOYS, "acme").into_iter();
    all.map(|one| one["spec"].clone()).filter(|spec| spec["kind"] == kind).collect()
}

fn drain(cluster: &mut Cluster, node: &str) {
    cluster.platform.run("", Op::SetNodeState, &[("node", node)], json!({"state": "draining"})).unwrap();
}

#[test]
fn a_node_is_left_with_a_surge_where_there_is_room_and_without_where_there_is_none() {
    for (limit, least, mode, policy) in
        [(9, 4, "surge", "drain_first"), (4, 3, "drain_first", "drain_first"), (4, 3, "drain_first", "reject")]
    {
        let mut cluster = Cluster::new(&[("n1", GIB), ("n2", GIB)]);
        cluster.org("acme", 4);
        cluster.platform.run("acme", Op::SetPolicy, &[], json!({"surge_policy": policy})).unwrap();
        cluster.platform.limit("acme", "max_instances", limit);
        cluster.settle();
        drain(&mut cluster, "n1");
        let ((fewest, _), counted) = watch(&mut cluster, 60);
        assert_eq!(fewest, least, "{limit}");
        assert!(counted <= i128::from(limit).min(5));
        assert_eq!(cluster.nodes_of("acme"), ["n2"; 4]);
        let made = deploys(&cluster, "node_drain");
        assert_eq!(made.len(), 1, "one is enough: {made:?}");
        assert_eq!((&made[0]["state"], &made[0]["processes"]["web"]["mode"]), (&json!("succeeded"), &json!(mode)));
        if mode == "drain_first" {
            let message = made[0]["message"].as_str().unwrap();
            assert!(
                message.starts_with("rollout_mode=drain_first reason=org_quota_exceeded:max_instances"),
                "{message}"
            );
        }
        // What was held for it is given back.
        assert_eq!(cluster.platform.units("acme", "max_instances"), 4);
        assert_eq!(cluster.platform.rebuilt().views, cluster.platform.live());
    }
}

#[test]
fn nobody_leaves_a_node_for_nowhere() {
    let mut cluster = Cluster::new(&[("n1", GIB)]);
    cluster.org("acme", 2);
    cluster.settle();
    drain(&mut cluster, "n1");
    assert_eq!(watch(&mut cluster, 20), ((2, 2), 2));
    assert!(deploys(&cluster, "node_drain").is_empty());
}

#[test]
fn a_rollout_of_something_else_leaves_the_node_as_well() {
    let mut cluster = Cluster::new(&[("n1", GIB), ("n2", GIB)]);
    cluster.org("acme", 2);
    cluster.settle();
    let release = json!({"processes": {"web": {"memory_bytes": 32 << 20}}});
    cluster.platform.run("acme", Op::CreateRelease, &PROD[..1], release).unwrap();
    cluster.platform.run("acme", Op::CreateDeploy, &PROD, json!({"release": 2})).unwrap();
    drain(&mut cluster, "n1");
    watch(&mut cluster, 40);
    assert_eq!(cluster.nodes_of("acme"), ["n2"; 2]);
    let made = deploys(&cluster, "deploy");
    assert!(made.iter().all(|one| one["state"] != "rolling"), "{made:?}");
}

#[test]
fn a_volume_that_comes_is_waited_for_and_one_that_goes_is_surged_away_from() {
    let mut cluster = Cluster::new(&[("n1", 4 * GIB)]);
    cluster.org("acme", 1);
    cluster.settle();
    let volume = cluster.platform.run("acme", Op::CreateVolume, &[], json!({"size_bytes": GIB})).unwrap().body;
    let body = json!({"volume": volume["id"], "mount_path": "/data"});
    let made = cluster.platform.run("acme", Op::CreateAttachment, &PROD, body).unwrap().body;
    let ((fewest, _), counted) = watch(&mut cluster, 20);
    assert_eq!((fewest, counted), (0, 1), "in place");
    assert!(deploys(&cluster, "volumes_changed").is_empty());
    let path = [PROD[0], PROD[1], ("attachment", made["id"].as_str().unwrap())];
    cluster.platform.run("acme", Op::DeleteAttachment, &path, Value::Null).unwrap();
    let ((fewest, most), _) = watch(&mut cluster, 20);
    assert_eq!((fewest, most), (1, 2), "one more, then one less");
    assert_eq!(deploys(&cluster, "volumes_changed").len(), 1);
    let all = cluster.platform.list(INSTANCES, "acme");
    assert!(all.iter().all(|one| one["spec"]["volumes"] == json!([])), "{all:?}");
}

#[test]
fn a_replacement_comes_beside_no_other_rollout_and_of_nothing_that_is_not_there() {
    let mut cluster = Cluster::new(&[("n1", GIB)]);
    cluster.org("acme", 1);
    let ask = |cluster: &mut Cluster, body: Value| {
        cluster.platform.run("acme", Op::CreateReplacement, &PROD, body).map(|done| done.body).map_err(|why| why.code)
    };
    let body = json!({"reason": "node_drain", "process_types": ["web"]});
    assert_eq!(ask(&mut cluster, body.clone()).unwrap_err(), "rollout_under_way", "the first is not done yet");
    cluster.settle();
    for wrong in [
        json!({"reason": "node_drain", "process_types": ["worker"]}),
        json!({"reason": "node_drain", "process_types": []}),
        json!({"reason": "node_drain", "process_types": [1]}),
        json!({"reason": "whim", "process_types": ["web"]}),
        json!({"process_types": ["web"]}),
    ] {
        assert_eq!(ask(&mut cluster, wrong.clone()).unwrap_err(), "invalid_argument", "{wrong}");
    }
    assert_eq!(ask(&mut cluster, body).unwrap()["kind"], "node_drain");
}
