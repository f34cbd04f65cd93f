//! What is told of every change, given once, and kept where it is.

use engine::Refused;
use families::orgs::commands::{Op, Problem};
use families::orgs::names::*;
use families::orgs::scheduler::plan::{Action, Memory, plan};
use serde_json::{Value, json};

use super::cluster::{Cluster, GIB};
use super::platform::Platform;

const PROD: [(&str, &str); 2] = [("app", "shop"), ("env", "prod")];

/// The views are those that the events tell.
fn is_told(platform: &Platform) {
    let rebuilt = platform.rebuilt();
    assert_eq!(rebuilt.gaps, Vec::<String>::new());
    assert_eq!(rebuilt.views, platform.live());
}

fn empty() -> Platform {
    let mut platform = Platform::new();
    platform.with_org("acme", "standard");
    platform.run("acme", Op::CreateApp, &[], json!({"name": "shop"})).unwrap();
    platform.run("acme", Op::CreateEnv, &PROD[..1], json!({"name": "prod"})).unwrap();
    platform
}

fn release(platform: &mut Platform, process: Value) -> Result<i64, Problem> {
    let body = json!({"processes": {"web": process}});
    let made = platform.run("acme", Op::CreateRelease, &PROD[..1], body)?;
    Ok(made.body["number"].as_i64().unwrap())
}

#[test]
fn secrets_of_an_environment_in_which_nothing_runs_are_told() {
    let mut platform = empty();
    for value in ["hunter2", "hunter3"] {
        platform.run("acme", Op::SetSecrets, &PROD, json!({"secrets": {"DATABASE": value}})).unwrap();
        is_told(&platform);
    }
    let told: Vec<&Value> = platform.events.iter().filter(|event| event["event_type"] == "env.secrets_set").collect();
    assert_eq!(told.iter().map(|event| &event["payload"]["version"]).collect::<Vec<_>>(), [1, 2]);
    assert!(!platform.events.iter().any(|event| event.to_string().contains("hunter")));
}

#[test]
fn a_number_of_a_release_is_given_once() {
    let mut platform = empty();
    let unit = || json!({"memory_bytes": 1});
    assert_eq!([1, 2, 3].map(|_| release(&mut platform, unit()).unwrap()), [1, 2, 3]);
    let delete = |platform: &mut Platform, number: &str| {
        platform.run("acme", Op::DeleteRelease, &[("app", "shop"), ("release", number)], Value::Null).unwrap();
        is_told(platform);
    };
    delete(&mut platform, "2");
    assert_eq!(release(&mut platform, unit()).unwrap(), 4);
    delete(&mut platform, "4");
    delete(&mut platform, "3");
    delete(&mut platform, "1");
    assert_eq!(release(&mut platform, unit()).unwrap(), 5);
    is_told(&platform);
}

#[test]
fn the_longest_release_can_still_be_changed_in_every_way() {
    let mut platform = empty();
    let long = || json!({"memory_bytes": 1, "command": vec!["x".repeat(4096); 40]});
    for number in [1, 2] {
        assert_eq!(release(&mut platform, long()).unwrap(), number);
    }
    let names: serde_json::Map<String, Value> = (0..64).map(|n| (format!("{n:0>250}"), json!("x"))).collect();
    platform.run("acme", Op::SetSecrets, &PROD, json!({"secrets": names})).unwrap();
    for number in [1, 2, 1] {
        platform.run("acme", Op::CreateDeploy, &PROD, json!({"release": number})).unwrap();
        let scales = json!({"scales": [{"process_type": "web", "desired": 2 + number}]});
        platform.run("acme", Op::SetScale, &PROD, scales).unwrap();
    }
    is_told(&platform);
    let names: serde_json::Map<String, Value> = (0..80).map(|n| (format!("{n:0>250}"), json!("x"))).collect();
    assert!(platform.run("acme", Op::SetSecrets, &PROD, json!({"secrets": names})).is_err());
    let names: Vec<String> = (0..80).map(|n| format!("{n:0>250}")).collect();
    assert!(release(&mut platform, json!({"memory_bytes": 1, "secrets": names})).is_err());
}

#[test]
fn no_two_nodes_have_one_prefix() {
    let mut platform = Platform::new();
    let mut register = |name: &str, prefix: Value| {
        let node = json!({"allocatable_memory_bytes": GIB, "cpu_cores": 1, "ipv6_prefix": prefix});
        platform.run("", Op::RegisterNode, &[("node", name)], node).map(drop).map_err(|problem| problem.code)
    };
    register("n1", json!("fd12::/64")).unwrap();
    register("n1", json!("fd12::")).unwrap();
    assert_eq!(register("n2", json!("fd12::/64")), Err("prefix_in_use".into()));
    assert_eq!(register("n2", json!("FD12:0:0:0::")), Err("prefix_in_use".into()));
    for wrong in ["banana", "fd12::/48", "fd12::1", "::", "10.0.0.0", "fd12::/64/64"] {
        assert_eq!(register("n2", json!(wrong)), Err("invalid_argument".into()), "{wrong}");
    }
    register("n2", json!("fd13::/64")).unwrap();
    register("n3", Value::Null).unwrap();
    register("n4", Value::Null).unwrap();
}

#[test]
fn a_prefix_stays_a_nodes_while_an_instance_has_an_address_behind_it() {
    let mut cluster = Cluster::new(&[("n1", GIB)]);
    cluster.org("acme", 1);
    cluster.settle();
    let register = |cluster: &mut Cluster, name: &str, prefix: &str| {
        let node = json!({"allocatable_memory_bytes": GIB, "cpu_cores": 1, "ipv6_prefix": prefix});
        let done = cluster.platform.run("", Op::RegisterNode, &[("node", name)], node);
        done.map(drop).map_err(|problem| problem.code)
    };
    assert_eq!(register(&mut cluster, "n1", "fd12::/64"), Err("prefix_in_use".into()));
    let scales = json!({"scales": [{"process_type": "web", "desired": 0}]});
    cluster.platform.run("acme", Op::SetScale, &PROD, scales).unwrap();
    cluster.settle();
    register(&mut cluster, "n1", "fd12::/64").unwrap();
    // Whoever tells its capacity keeps its prefix.
    let more = json!({"allocatable_memory_bytes": 2 * GIB, "cpu_cores": 4});
    cluster.platform.run("", Op::RegisterNode, &[("node", "n1")], more).unwrap();
    assert_eq!(register(&mut cluster, "n2", "fd12::/64"), Err("prefix_in_use".into()));
}

#[test]
fn a_rollout_that_another_replaced_has_not_succeeded() {
    let mut cluster = Cluster::new(&[("n1", 64 * GIB)]);
    cluster.org("acme", 3);
    cluster.settle();
    let body = json!({"processes": {"web": {"memory_bytes": 32 << 20, "cpu": 0.5}}});
    cluster.platform.run("acme", Op::CreateRelease, &PROD[..1], body).unwrap();
    let deploy = |cluster: &mut Cluster, release: i64| {
        cluster.platform.pass(1);
        let made = cluster.platform.run("acme", Op::CreateDeploy, &PROD, json!({"release": release})).unwrap();
        made.body["id"].as_str().unwrap().to_owned()
    };
    let (first, second) = (deploy(&mut cluster, 2), deploy(&mut cluster, 1));
    cluster.settle();
    let state = |id: &str| cluster.platform.get(DEPLOYS, "acme", id).unwrap()["spec"]["state"].clone();
    assert_eq!((state(&first), state(&second)), (json!("failed"), json!("succeeded")));
    is_told(&cluster.platform);
}

#[test]
fn a_rollout_of_which_the_environment_is_not_known_yet_goes_on() {
    let mut cluster = Cluster::new(&[("n1", 64 * GIB)]);
    cluster.org("acme", 2);
    cluster.settle();
    let before = cluster.objects();
    let body = json!({"processes": {"web": {"memory_bytes": 32 << 20, "cpu": 0.5}}});
    cluster.platform.run("acme", Op::CreateRelease, &PROD[..1], body).unwrap();
    cluster.platform.run("acme", Op::CreateDeploy, &PROD, json!({"release": 2})).unwrap();
    // News of the rollout came, and those of its environment did not.
    let mut objects = cluster.objects();
    objects.envs = before.envs;
    let planned = plan(&objects, &Memory::default(), cluster.platform.now_ms);
    assert!(!planned.iter().any(|action| matches!(action, Action::Deploy { .. })), "{planned:?}");
    let planned = plan(&cluster.objects(), &Memory::default(), cluster.platform.now_ms);
    let rolls = |action: &Action| matches!(action, Action::Deploy { state: "rolling", .. });
    assert!(planned.iter().any(rolls), "{planned:?}");
}

fn volume(platform: &mut Platform) -> String {
    let made = platform.run("acme", Op::CreateVolume, &[], json!({"size_bytes": GIB})).unwrap();
    made.body["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_volume_stays_where_it_was_first_mounted() {
    let mut cluster = Cluster::new(&[("n1", 64 * GIB), ("n2", 64 * GIB)]);
    cluster.org("acme", 1);
    let id = volume(&mut cluster.platform);
    let body = json!({"volume": id, "mount_path": "/data"});
    cluster.platform.run("acme", Op::CreateAttachment, &PROD, body).unwrap();
    cluster.settle();
    let home = cluster.nodes_of("acme").remove(0);
    assert_eq!(cluster.platform.get(VOLUMES, "acme", &id).unwrap()["spec"]["home_node"], home.as_str());
    is_told(&cluster.platform);
    // Elsewhere it is not, whatever becomes of that node.
    cluster.platform.run("", Op::SetNodeState, &[("node", &home)], json!({"state": "offline"})).unwrap();
    let reasons: Vec<String> = cluster.settle().into_values().collect();
    assert_eq!(reasons, ["volume_locality_no_node"]);
}

#[test]
fn a_volume_and_a_second_replica_do_not_meet() {
    let mut cluster = Cluster::new(&[]);
    cluster.org("acme", 1);
    let id = volume(&mut cluster.platform);
    let attach = (Op::CreateAttachment, &PROD[..], json!({"volume": id, "mount_path": "/data"}));
    let scale = (Op::SetScale, &PROD[..], json!({"scales": [{"process_type": "web", "desired": 3}]}));
    let [first, second] = cluster.platform.race_of("acme", [attach, scale]);
    first.unwrap();
    let Err(Refused::Said { refusal, .. }) = second else { panic!("both were done") };
    assert_eq!(&*refusal.causes[0].reason, "volume_replica_limit");
}

#[test]
fn what_is_restored_is_not_deleted_meanwhile() {
    let mut platform = empty();
    let id = volume(&mut platform);
    let snapshot = platform.run("acme", Op::CreateSnapshot, &[("volume", &id)], Value::Null).unwrap();
    let snapshot = snapshot.body["id"].as_str().unwrap().to_owned();
    let path = [("snapshot", snapshot.as_str())];
    platform.run("acme", Op::SetSnapshotStatus, &path, json!({"status": "succeeded"})).unwrap();
    let restore = (Op::CreateRestore, &[("volume", id.as_str())][..], json!({"snapshot": snapshot}));
    let [first, second] = platform.race_of("acme", [(Op::DeleteSnapshot, &path[..], Value::Null), restore.clone()]);
    first.unwrap();
    assert!(matches!(second, Err(Refused::Said { .. })), "{second:?}");

    let mut platform = empty();
    let id = volume(&mut platform);
    let snapshot = platform.run("acme", Op::CreateSnapshot, &[("volume", &id)], Value::Null).unwrap();
    let snapshot = snapshot.body["id"].as_str().unwrap().to_owned();
    let path = [("snapshot", snapshot.as_str())];
    platform.run("acme", Op::SetSnapshotStatus, &path, json!({"status": "succeeded"})).unwrap();
    let job = platform.run("acme", Op::CreateRestore, &[("volume", &id)], json!({"snapshot": snapshot})).unwrap();
    let refused = platform.run("acme", Op::DeleteSnapshot, &path, Value::Null).unwrap_err();
    assert_eq!(refused.code, "snapshot_in_use");
    let job = job.body["id"].as_str().unwrap().to_owned();
    let forget = |platform: &mut Platform| platform.run("acme", Op::DeleteRestore, &[("job", &job)], Value::Null);
    assert_eq!(forget(&mut platform).unwrap_err().code, "restore_in_progress");
    platform.run("acme", Op::SetRestoreStatus, &[("job", &job)], json!({"status": "succeeded"})).unwrap();
    // What has ended takes no room among the records for ever.
    let records = platform.units("acme", "records");
    forget(&mut platform).unwrap();
    assert_eq!(platform.units("acme", "records"), records - 1);
    assert_eq!(platform.list(VOLUMES, "acme").len(), 2, "what was restored stays");
    platform.run("acme", Op::DeleteSnapshot, &path, Value::Null).unwrap();
    is_told(&platform);
}

#[test]
fn a_release_that_is_gone_is_not_rolled_back_to_and_what_it_lacked_comes_back_as_it_was() {
    let mut cluster = Cluster::new(&[("n1", 64 * GIB)]);
    cluster.org("acme", 1);
    let run = |cluster: &mut Cluster, op, path: &[(&'static str, &str)], body| {
        cluster.platform.pass(1);
        cluster.platform.run("acme", op, path, body).map(|done| done.body)
    };
    let one = json!({"memory_bytes": 1});
    for processes in [json!({"web": one, "worker": one}), json!({"web": one})] {
        let release = run(&mut cluster, Op::CreateRelease, &PROD[..1], json!({"processes": processes})).unwrap();
        run(&mut cluster, Op::CreateDeploy, &PROD, json!({"release": release["number"]})).unwrap();
        if release["number"] == 2 {
            let scales = json!({"scales": [{"process_type": "worker", "desired": 3}]});
            run(&mut cluster, Op::SetScale, &PROD, scales).unwrap();
        }
        cluster.settle();
    }
    let wants = |cluster: &Cluster| {
        let env = cluster.platform.get(ENVS, "acme", "shop.prod").unwrap();
        env["spec"]["processes"]["worker"]["desired"].clone()
    };
    assert_eq!(wants(&cluster), 0);
    // It is only waited for: nobody asks for more of it.
    let scales = json!({"scales": [{"process_type": "worker", "desired": 1}]});
    let refused = run(&mut cluster, Op::SetScale, &PROD, scales).unwrap_err();
    assert_eq!(refused.code, "invalid_argument");
    assert_eq!(run(&mut cluster, Op::CreateRollback, &PROD, Value::Null).unwrap()["release"], "shop.2");
    assert_eq!(wants(&cluster), 3);
    cluster.settle();
    // The one before it is gone: the next one back is taken.
    run(&mut cluster, Op::DeleteRelease, &[PROD[0], ("release", "3")], Value::Null).unwrap();
    assert_eq!(run(&mut cluster, Op::CreateRollback, &PROD, Value::Null).unwrap()["release"], "shop.1");
}

#[test]
fn a_secret_that_somebody_else_made_is_not_taken_for_a_race() {
    let mut cluster = Cluster::new(&[]);
    cluster.org("acme", 0);
    let key = engine::ObjectKey::new(rules::GroupResource::core("secrets"), "acme", "secrets.shop.prod.1");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secrets.shop.prod.1",
        "namespace": "acme", "uid": kinds::uid::text(ledger::SubjectId(77))}});
    let create = engine::WriteKind::Create(engine::Draft::new(secret).unwrap());
    cluster.platform.write(key, create, families::Origin::internal("test")).unwrap();
    let refused = cluster.platform.run("acme", Op::SetSecrets, &PROD, json!({"secrets": {"A": "1"}})).unwrap_err();
    assert_eq!(refused.code, "secret_exists");
}

#[test]
fn addresses_that_the_platform_does_not_have_are_no_matter_of_quota() {
    let settings = families::Settings {
        orgs: families::orgs::Settings { ipv4_addresses: Some(2) },
        ..families::Settings::default()
    };
    let mut platform = Platform::with(&settings);
    for org in ["a", "b", "c"] {
        platform.with_org(org, "standard");
        platform.run(org, Op::CreateApp, &[], json!({"name": "shop"})).unwrap();
        platform.run(org, Op::CreateEnv, &PROD[..1], json!({"name": "prod"})).unwrap();
    }
    let enable = |platform: &mut Platform, org: &str| platform.run(org, Op::EnableIpv4, &PROD, Value::Null);
    for org in ["a", "b", "a"] {
        enable(&mut platform, org).unwrap();
    }
    let refused = enable(&mut platform, "c").unwrap_err();
    assert_eq!((refused.code.as_str(), refused.violations.len()), ("ipv4_pool_exhausted", 0));
    assert_eq!(platform.units("c", "max_ipv4_allocations"), 0);
    // One account is told as all of them are.
    let desk = platform.reading();
    let view = desk.engine.view(platform.now_ms);
    let policy = rules::policy_name(&ORGS.resource(), "a", "a");
    let lines = families::Balances::of(desk, &policy);
    assert!(lines.len() > 20);
    for line in lines.iter().filter(|line| line.bucket.is_empty()) {
        let one = families::Balances::balance(&view, &policy, &line.resource).unwrap();
        assert_eq!(format!("{one:?}"), format!("{:?}", line.balance), "{}", line.resource);
    }
    // Neither does a restart make more of them.
    platform.restart();
    assert_eq!(enable(&mut platform, "c").unwrap_err().code, "ipv4_pool_exhausted");
    platform.run("a", Op::DisableIpv4, &PROD, Value::Null).unwrap();
    enable(&mut platform, "c").unwrap();
    is_told(&platform);
}
