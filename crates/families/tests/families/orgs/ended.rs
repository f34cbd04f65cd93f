//! What ends by itself, and what holds a volume meanwhile.

use families::orgs::commands::{Op, Problem};
use families::orgs::names::*;
use serde_json::{Value, json};

use super::cluster::{Cluster, GIB};

const PROD: [(&str, &str); 2] = [("app", "shop"), ("env", "prod")];

fn report(cluster: &mut Cluster, instance: &str, status: &str) -> Result<Value, Problem> {
    let body = json!({"status": status, "reason": "a test"});
    cluster.platform.run("acme", Op::ReportInstance, &[("instance", instance)], body).map(|done| done.body)
}

/// Instances that have not stopped, with what is wanted of each.
fn alive(cluster: &Cluster, env: &str) -> Vec<(String, String)> {
    let list = cluster.platform.list(INSTANCES, "acme").into_iter();
    let alive = list.filter(|one| one["spec"]["env"] == env && one["spec"]["reported"]["status"] != "stopped");
    let of = |value: &Value| value.as_str().unwrap().to_owned();
    alive.map(|one| (of(&one["metadata"]["name"]), of(&one["spec"]["desired_state"]))).collect()
}

fn volume(cluster: &mut Cluster) -> String {
    let made = cluster.platform.run("acme", Op::CreateVolume, &[], json!({"size_bytes": GIB})).unwrap();
    made.body["id"].as_str().unwrap().to_owned()
}

fn attach(cluster: &mut Cluster, env: &str, volume: &str) -> String {
    let body = json!({"volume": volume, "mount_path": "/data"});
    let made = cluster.platform.run("acme", Op::CreateAttachment, &[PROD[0], ("env", env)], body).unwrap();
    made.body["id"].as_str().unwrap().to_owned()
}

fn detach(cluster: &mut Cluster, env: &str, attachment: &str) {
    let path = [PROD[0], ("env", env), ("attachment", attachment)];
    cluster.platform.run("acme", Op::DeleteAttachment, &path, Value::Null).unwrap();
}

#[test]
fn what_stops_by_itself_is_replaced_in_its_slot_and_not_for_ever() {
    let mut cluster = Cluster::new(&[("n1", 4 * GIB)]);
    cluster.org("acme", 2);
    cluster.platform.limit("acme", "max_instances", 2);
    cluster.settle();
    for _ in 0..3 {
        let (first, _) = alive(&cluster, "prod").remove(0);
        report(&mut cluster, &first, "stopped").unwrap();
        cluster.settle();
        let now = alive(&cluster, "prod");
        assert_eq!(now.len(), 2, "{now:?}");
        assert!(now.iter().all(|(id, state)| *id != first && state == "running"), "{now:?}");
        assert_eq!(cluster.platform.units("acme", "counted.max_instances"), 2);
    }
    // What ends again and again is left alone, until the failures are of long ago.
    for _ in 0..12 {
        let Some((first, _)) = alive(&cluster, "prod").pop() else { break };
        report(&mut cluster, &first, "stopped").unwrap();
        cluster.settle();
    }
    assert_eq!(alive(&cluster, "prod"), []);
    cluster.platform.pass(10 * 60 * 1000);
    cluster.settle();
    assert_eq!(alive(&cluster, "prod").len(), 2);
}

#[test]
fn a_volume_is_in_one_instance_whichever_environment_has_it_by_now() {
    let mut cluster = Cluster::new(&[("n1", 4 * GIB), ("n2", 4 * GIB)]);
    cluster.org("acme", 1);
    cluster.env("acme", "other", 1).unwrap();
    let volume = volume(&mut cluster);
    let attachment = attach(&mut cluster, "prod", &volume);
    cluster.settle();
    cluster.agents = false;
    detach(&mut cluster, "prod", &attachment);
    attach(&mut cluster, "other", &volume);
    let mounts = |cluster: &Cluster| {
        let list = cluster.platform.list(INSTANCES, "acme").into_iter();
        let mounting = list.filter(|one| one["spec"]["volumes"] == json!([volume]));
        mounting.filter(|one| one["spec"]["reported"]["status"] != "stopped").collect::<Vec<_>>()
    };
    let holder = mounts(&cluster)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let mut reasons = Vec::new();
    for _ in 0..40 {
        cluster.platform.pass(1000);
        reasons.extend(cluster.pass().1.into_values());
        // All do as they are told but the one that has the volume.
        for (id, state) in [alive(&cluster, "prod"), alive(&cluster, "other")].concat() {
            if id != holder {
                report(&mut cluster, &id, if state == "running" { "ready" } else { "stopped" }).unwrap();
            }
        }
        assert_eq!(mounts(&cluster).len(), 1, "nobody else has it");
    }
    assert!(reasons.iter().any(|reason| reason == "volume_in_use"), "{reasons:?}");
    // Nor does it go, with the bytes that are written to.
    let path = [("volume", volume.as_str())];
    let (_, second) = (detach_all(&mut cluster), cluster.platform.run("acme", Op::DeleteVolume, &path, Value::Null));
    assert_eq!(second.unwrap_err().code, "volume_in_use");
    attach(&mut cluster, "other", &volume);
    report(&mut cluster, &holder, "stopped").unwrap();
    cluster.agents = true;
    cluster.settle();
    let having = mounts(&cluster);
    assert_eq!(having.len(), 1);
    assert_eq!(having[0]["spec"]["env"], "other");
}

fn detach_all(cluster: &mut Cluster) {
    for one in cluster.platform.list(ATTACHMENTS, "acme") {
        let env = one["spec"]["env"].as_str().unwrap().to_owned();
        detach(cluster, &env, one["metadata"]["name"].as_str().unwrap());
    }
}

#[test]
fn one_that_does_not_come_up_keeps_its_volume_until_it_has_stopped() {
    let mut cluster = Cluster::new(&[("n1", 4 * GIB)]);
    cluster.org("acme", 0);
    let volume = volume(&mut cluster);
    attach(&mut cluster, "prod", &volume);
    cluster.scale("acme", "prod", 1).unwrap();
    cluster.agents = false;
    cluster.pass();
    let first = alive(&cluster, "prod").remove(0).0;
    // Nothing is heard of it: it has failed, and may still come up.
    cluster.platform.pass(2 * 60 * 1000 + 1);
    for _ in 0..5 {
        cluster.platform.pass(1000);
        cluster.pass();
        assert_eq!(alive(&cluster, "prod").len(), 1);
    }
    assert_eq!(alive(&cluster, "prod"), [(first.clone(), "draining".to_owned())]);
    report(&mut cluster, &first, "stopped").unwrap();
    cluster.pass();
    let second = alive(&cluster, "prod").remove(0);
    assert!(second.0 != first && second.1 == "running", "{second:?}");
}

#[test]
fn a_volume_that_is_being_restored_stays() {
    let mut cluster = Cluster::new(&[("n1", GIB)]);
    cluster.org("acme", 0);
    let volume = volume(&mut cluster);
    let run = |cluster: &mut Cluster, op, path: &[(&'static str, &str)], body| {
        cluster.platform.run("acme", op, path, body).map(|done| done.body)
    };
    let id = |body: &Value| body["id"].as_str().unwrap().to_owned();
    let snapshot = id(&run(&mut cluster, Op::CreateSnapshot, &[("volume", &volume)], Value::Null).unwrap());
    let done = json!({"status": "succeeded"});
    run(&mut cluster, Op::SetSnapshotStatus, &[("snapshot", &snapshot)], done.clone()).unwrap();
    let job = run(&mut cluster, Op::CreateRestore, &[("volume", &volume)], json!({"snapshot": snapshot})).unwrap();
    let target = job["target_volume"].as_str().unwrap();
    let refused = run(&mut cluster, Op::DeleteVolume, &[("volume", target)], Value::Null).unwrap_err();
    assert_eq!(refused.code, "volume_in_use");
    assert_eq!(cluster.platform.units("acme", "max_volumes"), 2);
    run(&mut cluster, Op::SetRestoreStatus, &[("job", &id(&job))], done).unwrap();
    run(&mut cluster, Op::DeleteVolume, &[("volume", target)], Value::Null).unwrap();
}
