//! What commands take, and what they are refused for.

use families::orgs::commands::{Op, Problem, state};
use families::orgs::names::*;
use serde_json::{Value, json};

use super::platform::Platform;

const ENV: &[(&str, &str)] = &[("app", "shop"), ("env", "prod")];

fn memory(bytes: i64) -> Value {
    json!({"processes": {"web": {"memory_bytes": bytes, "cpu": 0.5}}})
}

/// An organization with an app, an environment and a release of 192 MiB, 256 MiB with what runs it.
fn shop() -> Platform {
    let mut platform = Platform::new();
    platform
        .run(
            "acme",
            Op::RegisterNode,
            &[("node", "n1")],
            json!({"allocatable_memory_bytes": 1_i64 << 40, "cpu_cores": 8}),
        )
        .unwrap();
    platform.with_org("acme", "standard");
    platform.run("acme", Op::CreateApp, &[], json!({"name": "shop"})).unwrap();
    platform.run("acme", Op::CreateEnv, &[("app", "shop")], json!({"name": "prod"})).unwrap();
    platform.run("acme", Op::CreateRelease, &[("app", "shop")], memory(192 << 20)).unwrap();
    platform
}

fn allocate(platform: &mut Platform) -> Result<String, Problem> {
    let body = json!({"app": "shop", "env": "prod", "process_type": "web", "node": "n1"});
    let outcome = platform.run("acme", Op::AllocateInstance, &[], body)?;
    Ok(outcome.body["id"].as_str().unwrap().into())
}

fn scale(platform: &mut Platform, desired: i64) -> Result<(), Problem> {
    let body = json!({"scales": [{"process_type": "web", "desired": desired}]});
    platform.run("acme", Op::SetScale, ENV, body).map(drop)
}

fn numbers(problem: &Problem) -> Vec<(&'static str, i128, i128, i128)> {
    let unit = 1_000_000_000;
    let one = |v: &families::orgs::words::Violation| {
        (v.dimension.name(), v.limit.nanos() / unit, v.current.nanos() / unit, v.requested.nanos() / unit)
    };
    problem.violations.iter().map(one).collect()
}

#[test]
fn what_is_accepted_is_charged_before_it_is_allocated() {
    let mut platform = shop();
    platform.limit("acme", "max_instances", 5);
    platform.run("acme", Op::CreateDeploy, ENV, json!({"release": 1})).unwrap();
    assert_eq!((platform.units("acme", "max_instances"), platform.units("acme", "counted.max_instances")), (1, 0));
    scale(&mut platform, 4).unwrap();
    let events = platform.events.len();
    let refused = scale(&mut platform, 6).unwrap_err();
    assert_eq!((refused.code.as_str(), numbers(&refused)), ("quota_exceeded", vec![("max_instances", 5, 4, 2)]));
    assert_eq!(platform.events.len(), events);
    scale(&mut platform, 5).unwrap();
    for done in 1..=5 {
        if done == 4 {
            // The limit is lowered before all is allocated: the promise stays, and what is allocated stops at it.
            platform.limit("acme", "max_instances", 3);
            let refused = allocate(&mut platform).unwrap_err();
            assert_eq!(numbers(&refused), [("max_instances", 3, 3, 1)]);
            platform.limit("acme", "max_instances", 5);
        }
        allocate(&mut platform).unwrap();
        assert_eq!(platform.units("acme", "max_instances"), 5);
        assert_eq!(platform.units("acme", "counted.max_instances"), done);
        assert_eq!(platform.units("acme", "counted.max_total_memory_bytes"), done * (256 << 20));
        assert_eq!(platform.used("acme", "counted.max_total_cpu_request"), done * 500_000_000);
    }
    assert_eq!(allocate(&mut platform).unwrap_err().code, "nothing_wanted");
}

#[test]
fn what_nobody_asked_for_is_not_allocated_though_it_would_fit() {
    let mut platform = shop();
    platform.run("acme", Op::CreateEnv, &[("app", "shop")], json!({"name": "test"})).unwrap();
    for env in ["prod", "test"] {
        platform.run("acme", Op::CreateDeploy, &[("app", "shop"), ("env", env)], json!({"release": 1})).unwrap();
    }
    platform.limit("acme", "max_instances", 2);
    let first = allocate(&mut platform).unwrap();
    // One is counted, one more is promised to the other: a second one here would be a third.
    assert_eq!(platform.units("acme", "counted.max_instances"), 1);
    assert_eq!(allocate(&mut platform).unwrap_err().code, "nothing_wanted");
    // Nor is one scaled down that is wanted: it would count beside the slot it left.
    let drain = json!({"desired_state": "draining", "reason": "scale_down"});
    let wanted = platform.run("acme", Op::SetInstanceState, &[("instance", &first)], drain).unwrap_err();
    assert_eq!((wanted.code.as_str(), platform.units("acme", "max_instances")), ("instance_wanted", 2));
}

#[test]
fn a_surge_to_less_is_held_as_what_it_takes_at_its_peak() {
    let mut platform = shop();
    platform.run("acme", Op::CreateDeploy, ENV, json!({"release": 1})).unwrap();
    scale(&mut platform, 2).unwrap();
    let deploy = platform.list(DEPLOYS, "acme")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    platform.run("acme", Op::SetDeployState, &[("deploy", &deploy)], json!({"state": "succeeded"})).unwrap();
    let old: Vec<String> = (0..2).map(|_| allocate(&mut platform).unwrap()).collect();
    platform.run("acme", Op::CreateRelease, &[("app", "shop")], memory(64 << 20)).unwrap();
    platform.run("acme", Op::CreateDeploy, ENV, json!({"release": 2})).unwrap();
    // Two of 256 MiB and, while it surges, one of 128.
    let peak = (2 * 256 + 128) << 20;
    assert_eq!(platform.units("acme", "max_total_memory_bytes"), peak);
    platform.limit("acme", "max_total_memory_bytes", i64::try_from(peak).unwrap());
    allocate(&mut platform).unwrap();
    assert_eq!(platform.units("acme", "counted.max_total_memory_bytes"), peak);
    let stop = json!({"desired_state": "stopped", "reason": "rollout_replace"});
    platform.run("acme", Op::SetInstanceState, &[("instance", &old[0])], stop).unwrap();
    assert_eq!(platform.units("acme", "max_total_memory_bytes"), (256 + 2 * 128) << 20);
}

#[test]
fn instances_count_until_they_are_to_be_stopped() {
    let mut platform = shop();
    platform.limit("acme", "max_instances", 3);
    platform.run("acme", Op::CreateDeploy, ENV, json!({"release": 1})).unwrap();
    scale(&mut platform, 3).unwrap();
    let ids: Vec<String> = (0..3).map(|_| allocate(&mut platform).unwrap()).collect();
    let report = json!({"status": "failed", "reason": "firecracker_start_failed"});
    platform.run("acme", Op::ReportInstance, &[("instance", &ids[0])], report).unwrap();
    assert_eq!(platform.units("acme", "max_instances"), 3);
    scale(&mut platform, 1).unwrap();
    assert_eq!(platform.units("acme", "max_instances"), 3);
    for id in &ids[..2] {
        let drain = json!({"desired_state": "draining", "reason": "scale_down"});
        platform.run("acme", Op::SetInstanceState, &[("instance", id)], drain).unwrap();
    }
    assert_eq!(platform.units("acme", "max_instances"), 3);
    let refused = scale(&mut platform, 2).unwrap_err();
    assert_eq!(numbers(&refused), [("max_instances", 3, 3, 1)]);
    platform.run("acme", Op::SetInstanceState, &[("instance", &ids[0])], json!({"desired_state": "stopped"})).unwrap();
    assert_eq!(platform.units("acme", "max_instances"), 2);
    scale(&mut platform, 2).unwrap();
    // Stopped is the end of it.
    let back =
        platform.run("acme", Op::SetInstanceState, &[("instance", &ids[0])], json!({"desired_state": "draining"}));
    assert_eq!(back.unwrap_err().code, "instance_stopped");
}

#[test]
fn a_group_over_a_lowered_limit_does_not_erode() {
    let mut platform = shop();
    platform.run("acme", Op::CreateDeploy, ENV, json!({"release": 1})).unwrap();
    scale(&mut platform, 3).unwrap();
    let ids: Vec<String> = (0..3).map(|_| allocate(&mut platform).unwrap()).collect();
    platform.limit("acme", "max_instances", 2);
    assert_eq!(platform.units("acme", "counted.max_instances"), 3);
    assert!(allocate(&mut platform).is_err());
    let body = json!({"app": "shop", "env": "prod", "process_type": "web", "node": "n1", "replaces": ids[0]});
    platform.run("acme", Op::AllocateInstance, &[], body).unwrap();
    assert_eq!(platform.units("acme", "counted.max_instances"), 3);
    let other = json!({"app": "shop", "env": "prod", "process_type": "web", "node": "n1", "replaces": ids[0]});
    assert!(platform.run("acme", Op::AllocateInstance, &[], other).is_err(), "a slot is given away once");
}

#[test]
fn a_rollout_without_room_to_surge_drains_first_or_is_refused() {
    let mut platform = shop();
    platform.limit("acme", "max_instances", 3);
    platform.run("acme", Op::CreateDeploy, ENV, json!({"release": 1})).unwrap();
    scale(&mut platform, 3).unwrap();
    platform.run("acme", Op::CreateRelease, &[("app", "shop")], memory(192 << 20)).unwrap();
    let deploy = platform.run("acme", Op::CreateDeploy, ENV, json!({"release": 2})).unwrap().body;
    assert_eq!(deploy["processes"]["web"]["mode"], "drain_first");
    let message = deploy["message"].as_str().unwrap();
    assert!(
        message.starts_with("rollout_mode=drain_first reason=org_quota_exceeded:max_instances limit=3"),
        "{message}"
    );
    platform.run("acme", Op::SetPolicy, &[], json!({"surge_policy": "reject"})).unwrap();
    let refused = platform.run("acme", Op::CreateDeploy, ENV, json!({"release": 1})).unwrap_err();
    assert_eq!(numbers(&refused), [("max_instances", 3, 3, 1)]);
    // What does not fit in the end is refused, whatever the way.
    platform.run("acme", Op::SetPolicy, &[], json!({"surge_policy": "drain_first"})).unwrap();
    platform.limit("acme", "max_total_memory_bytes", 1_i64 << 30);
    platform.run("acme", Op::CreateRelease, &[("app", "shop")], memory(512 << 20)).unwrap();
    let refused = platform.run("acme", Op::CreateDeploy, ENV, json!({"release": 3})).unwrap_err();
    assert_eq!(numbers(&refused), [("max_total_memory_bytes", 1 << 30, 768 << 20, 3 * (576 << 20) - (768 << 20))]);
    // With room it surges, and the room is held until the rollout ends.
    platform.limit("acme", "max_instances", 4);
    let deploy = platform.run("acme", Op::CreateDeploy, ENV, json!({"release": 1})).unwrap().body;
    assert_eq!(deploy["message"], "rollout_mode=surge");
    assert_eq!(platform.units("acme", "max_instances"), 4);
    let id = deploy["id"].as_str().unwrap();
    platform.run("acme", Op::SetDeployState, &[("deploy", id)], json!({"state": "succeeded"})).unwrap();
    assert_eq!(platform.units("acme", "max_instances"), 3);
}

#[test]
fn ports_are_counted_once_however_many_routes_share_them() {
    let mut platform = shop();
    platform.limit("acme", "max_public_ports", 2);
    let route = |hostname: &str| json!({"hostname": hostname});
    let mut routes = Vec::new();
    for n in 0..4 {
        let made = platform.run("acme", Op::CreateRoute, ENV, route(&format!("H{n}.Example.com."))).unwrap();
        routes.push(made.body["id"].as_str().unwrap().to_owned());
    }
    assert_eq!((platform.units("acme", "max_public_ports"), platform.units("acme", "max_hostnames")), (1, 4));
    let taken = platform.run("acme", Op::CreateRoute, ENV, route("h1.example.com")).unwrap_err();
    assert_eq!(taken.code, "hostname_in_use");
    let needs = json!({"hostname": "v4.example.com", "ipv4_required": true});
    assert_eq!(platform.run("acme", Op::CreateRoute, ENV, needs.clone()).unwrap_err().code, "ipv4_not_enabled");
    platform.run("acme", Op::EnableIpv4, ENV, Value::Null).unwrap();
    platform.run("acme", Op::CreateRoute, ENV, needs).unwrap();
    assert_eq!(platform.units("acme", "max_public_ports"), 2);
    let tcp = platform.run("acme", Op::CreateRoute, ENV, json!({"listen_port": 5432})).unwrap_err();
    assert_eq!(numbers(&tcp), [("max_public_ports", 2, 2, 1)]);
    // Whoever was charged goes: another of those that share it takes it over.
    for id in &routes[..3] {
        let path = [ENV[0], ENV[1], ("route", id.as_str())];
        platform.run("acme", Op::DeleteRoute, &path, Value::Null).unwrap();
        assert_eq!(platform.units("acme", "max_public_ports"), 2);
    }
    platform.run("acme", Op::CreateRoute, ENV, route("h1.example.com")).unwrap();
    assert_eq!(platform.run("acme", Op::DisableIpv4, ENV, Value::Null).unwrap_err().code, "routes_require_ipv4");
    platform.restart();
    assert_eq!(platform.units("acme", "max_public_ports"), 2);
}

#[test]
fn a_scale_says_what_the_step_finds_that_it_takes() {
    let mut platform = shop();
    platform.run("acme", Op::CreateDeploy, ENV, json!({"release": 1})).unwrap();
    let scaled = |platform: &mut Platform, desired: i64| {
        let body = json!({"scales": [{"process_type": "web", "desired": desired}]});
        let said = platform.run("acme", Op::SetScale, ENV, body).unwrap().steps[0].object["spec"]["held"].take();
        (said, platform.list(ENVS, "acme")[0]["spec"]["held"].take())
    };
    for desired in [4, 2, 5, 3] {
        let (said, found) = scaled(&mut platform, desired);
        assert_eq!((&said, &found["instances"]), (&found, &json!(desired)));
    }
    // Whatever runs beyond what is wanted is found by the step alone.
    allocate(&mut platform).unwrap();
    allocate(&mut platform).unwrap();
    assert_eq!(scaled(&mut platform, 1).1["instances"], 2);
    assert_eq!(scaled(&mut platform, 2).1["instances"], 2);
    // Where nothing is reserved, what is wanted takes nothing yet.
    platform.run("acme", Op::SetPolicy, &[], json!({"reservations": "check"})).unwrap();
    let (said, found) = scaled(&mut platform, 3);
    assert_eq!((&said, &found["instances"]), (&found, &json!(2)));
}

#[test]
fn an_event_tells_what_was_and_what_is_without_what_follows_from_others() {
    let mut platform = shop();
    platform.run("acme", Op::CreateDeploy, ENV, json!({"release": 1})).unwrap();
    let before = platform.list(ENVS, "acme").remove(0);
    scale(&mut platform, 3).unwrap();
    let after = platform.list(ENVS, "acme").remove(0);
    assert!(before["spec"]["held"].is_object() && after["spec"]["held"].is_object());
    let event = platform.events.last().unwrap();
    assert_eq!((&event["old"], &event["new"]), (&state(&before), &state(&after)));
    assert_eq!((&event["event_type"], &event["app_id"]), (&json!("env.scale_set"), &json!("shop")));
    assert_eq!((&event["org_id"], &event["idempotency_key"]), (&json!("acme"), &Value::Null));
}

#[test]
fn addresses_are_counted_by_environment() {
    let mut platform = shop();
    platform.limit("acme", "max_ipv4_allocations", 1);
    platform.run("acme", Op::CreateEnv, &[("app", "shop")], json!({"name": "test"})).unwrap();
    let test: &[(&str, &str)] = &[("app", "shop"), ("env", "test")];
    platform.run("acme", Op::EnableIpv4, ENV, Value::Null).unwrap();
    let refused = platform.run("acme", Op::EnableIpv4, test, Value::Null).unwrap_err();
    assert_eq!(numbers(&refused), [("max_ipv4_allocations", 1, 1, 1)]);
    let again = platform.run("acme", Op::EnableIpv4, ENV, Value::Null).unwrap();
    assert!(again.events.is_empty());
    platform.run("acme", Op::DisableIpv4, ENV, Value::Null).unwrap();
    platform.run("acme", Op::EnableIpv4, test, Value::Null).unwrap();
}

#[test]
fn volumes_snapshots_and_restores_are_counted() {
    let gib = 1_i64 << 30;
    let mut platform = shop();
    platform.limit("acme", "max_total_volume_bytes", 10 * gib);
    let volume =
        |platform: &mut Platform, size: i64| platform.run("acme", Op::CreateVolume, &[], json!({"size_bytes": size}));
    let first = volume(&mut platform, 8 * gib).unwrap().body["id"].as_str().unwrap().to_owned();
    let refused = volume(&mut platform, 3 * gib).unwrap_err();
    assert_eq!(numbers(&refused), [("max_total_volume_bytes", 10_737_418_240, 8_589_934_592, 3_221_225_472)]);
    let second = volume(&mut platform, 2 * gib).unwrap().body["id"].as_str().unwrap().to_owned();
    let snapshot =
        |platform: &mut Platform, of: &str| platform.run("acme", Op::CreateSnapshot, &[("volume", of)], Value::Null);
    let made = snapshot(&mut platform, &first).unwrap().body["id"].as_str().unwrap().to_owned();
    let refused = snapshot(&mut platform, &first).unwrap_err();
    assert_eq!(numbers(&refused), [("max_snapshots_per_volume", 1, 1, 1)]);
    snapshot(&mut platform, &second).unwrap();
    // A limit of the organization is that of its volumes, there before or not.
    platform.limit("acme", "max_snapshots_per_volume", 2);
    snapshot(&mut platform, &first).unwrap();
    assert_eq!(platform.snapshots("acme", &first), 2);
    let restore = json!({"snapshot": made});
    let early = platform.run("acme", Op::CreateRestore, &[("volume", &first)], restore.clone()).unwrap_err();
    assert_eq!(early.code, "snapshot_not_ready");
    platform.run("acme", Op::SetSnapshotStatus, &[("snapshot", &made)], json!({"status": "succeeded"})).unwrap();
    assert_eq!(platform.snapshots("acme", &first), 1);
    // A restore is a volume, too.
    let refused = platform.run("acme", Op::CreateRestore, &[("volume", &first)], restore.clone()).unwrap_err();
    assert_eq!(
        numbers(&refused),
        [("max_total_volume_bytes", 10 * i128::from(gib), 10 * i128::from(gib), 8 * i128::from(gib))]
    );
    assert_eq!(platform.units("acme", "max_restore_jobs"), 0);
    platform.limit("acme", "max_total_volume_bytes", 40 * gib);
    platform.limit("acme", "max_restore_jobs", 1);
    let job = platform.run("acme", Op::CreateRestore, &[("volume", &first)], restore.clone()).unwrap().body;
    let refused = platform.run("acme", Op::CreateRestore, &[("volume", &first)], restore).unwrap_err();
    assert_eq!(refused.dimension(), Some("max_restore_jobs"));
    assert_eq!((platform.units("acme", "max_volumes"), platform.units("acme", "max_restore_jobs")), (3, 1));
    let done = json!({"status": "failed"});
    platform.run("acme", Op::SetRestoreStatus, &[("job", job["id"].as_str().unwrap())], done).unwrap();
    assert_eq!((platform.units("acme", "max_volumes"), platform.units("acme", "max_restore_jobs")), (3, 0));
}

/// What counts for nothing is ended, and then gone, each with an event.
fn forget_sessions(platform: &mut Platform) {
    let before = platform.events.len();
    let sessions: Vec<Value> = platform.list(EXEC_SESSIONS, "acme");
    let open = sessions.iter().filter(|one| one["spec"]["state"] != "ended").count();
    for _ in 0..2 {
        for session in platform.list(EXEC_SESSIONS, "acme") {
            let path = [("session", session["metadata"]["name"].as_str().unwrap())];
            platform.run("acme", Op::EndExec, &path, Value::Null).unwrap();
        }
    }
    assert!(platform.list(EXEC_SESSIONS, "acme").is_empty(), "what counts for nothing is gone");
    assert_eq!(platform.events.len() - before, open + sessions.len());
}

#[test]
fn a_session_counts_while_it_is_open_and_a_grant_for_an_hour() {
    let mut platform = shop();
    platform.run("acme", Op::CreateDeploy, ENV, json!({"release": 1})).unwrap();
    let instance = allocate(&mut platform).unwrap();
    platform.limit("acme", "max_exec_sessions", 1);
    platform.limit("acme", "max_exec_sessions_per_hour", 3);
    let grant = |platform: &mut Platform| platform.run("acme", Op::GrantExec, &[("instance", &instance)], Value::Null);
    let first = grant(&mut platform).unwrap().body["id"].as_str().unwrap().to_owned();
    assert_eq!(grant(&mut platform).unwrap_err().dimension(), Some("max_exec_sessions"));
    platform.pass(59_999);
    assert!(grant(&mut platform).is_err());
    // Nobody connected.
    platform.pass(1);
    assert_eq!(platform.units("acme", "max_exec_sessions"), 0);
    assert_eq!(
        platform.run("acme", Op::ConnectExec, &[("session", &first)], Value::Null).unwrap_err().code,
        "session_ended"
    );
    let second = grant(&mut platform).unwrap().body["id"].as_str().unwrap().to_owned();
    platform.run("acme", Op::ConnectExec, &[("session", &second)], Value::Null).unwrap();
    for _ in 0..20 {
        platform.pass(30_000);
        platform.run("acme", Op::ConnectExec, &[("session", &second)], Value::Null).unwrap();
    }
    assert_eq!(platform.units("acme", "max_exec_sessions"), 1, "a connected session counts however long it lasts");
    platform.run("acme", Op::EndExec, &[("session", &second)], Value::Null).unwrap();
    grant(&mut platform).unwrap();
    platform.pass(60_000);
    let refused = grant(&mut platform).unwrap_err();
    assert_eq!(numbers(&refused), [("max_exec_sessions_per_hour", 3, 3, 1)]);
    platform.restart();
    assert_eq!(platform.units("acme", "max_exec_sessions_per_hour"), 3);
    // The first grant is an hour old.
    platform.pass(48 * 60_000);
    assert_eq!(platform.units("acme", "max_exec_sessions_per_hour"), 2);
    grant(&mut platform).unwrap();
    platform.pass(2 * 60 * 60_000);
    assert_eq!(platform.units("acme", "max_exec_sessions_per_hour"), 0);
    forget_sessions(&mut platform);
    assert_eq!(platform.rebuilt().views, platform.live());
}

#[test]
fn a_session_of_a_client_that_crashed_counts_no_longer() {
    let mut platform = shop();
    platform.run("acme", Op::CreateDeploy, ENV, json!({"release": 1})).unwrap();
    let instance = allocate(&mut platform).unwrap();
    platform.limit("acme", "max_exec_sessions", 1);
    let grant = |platform: &mut Platform| platform.run("acme", Op::GrantExec, &[("instance", &instance)], Value::Null);
    let connect = |platform: &mut Platform, id: &str| {
        platform.run("acme", Op::ConnectExec, &[("session", id)], Value::Null).map(drop).map_err(|refused| refused.code)
    };
    let first = grant(&mut platform).unwrap().body["id"].as_str().unwrap().to_owned();
    platform.pass(50_000);
    connect(&mut platform, &first).unwrap();
    platform.restart();
    platform.pass(59_999);
    assert!(grant(&mut platform).is_err());
    platform.pass(1);
    assert_eq!(platform.units("acme", "max_exec_sessions"), 0, "nobody said that it is still there");
    assert_eq!(connect(&mut platform, &first), Err("session_ended".into()));
    let second = grant(&mut platform).unwrap().body["id"].as_str().unwrap().to_owned();
    connect(&mut platform, &second).unwrap();
    // With its instance a session ends, however much its client would like it to go on.
    let stop = json!({"desired_state": "stopped"});
    platform.run("acme", Op::SetInstanceState, &[("instance", &instance)], stop).unwrap();
    platform.pass(40_000);
    assert_eq!(connect(&mut platform, &second), Err("session_ended".into()));
    platform.pass(20_000);
    assert_eq!(platform.units("acme", "max_exec_sessions"), 0);
    platform.pass(2 * 60 * 60_000);
    forget_sessions(&mut platform);
    assert_eq!(platform.rebuilt().views, platform.live());
}

#[test]
fn a_stream_that_nobody_renews_counts_no_longer() {
    let mut platform = shop();
    platform.limit("acme", "max_log_streams", 1);
    let open = |platform: &mut Platform| platform.run("acme", Op::OpenLogStream, ENV, Value::Null);
    let first = open(&mut platform).unwrap().body["id"].as_str().unwrap().to_owned();
    assert_eq!(open(&mut platform).unwrap_err().dimension(), Some("max_log_streams"));
    for _ in 0..5 {
        platform.pass(20_000);
        platform.run("acme", Op::RenewLogStream, &[("stream", &first)], Value::Null).unwrap();
    }
    platform.restart();
    assert_eq!(platform.units("acme", "max_log_streams"), 1);
    platform.pass(30_000);
    assert_eq!(platform.units("acme", "max_log_streams"), 0);
    assert!(platform.list(LOG_STREAMS, "acme").is_empty());
    let second = open(&mut platform).unwrap().body["id"].as_str().unwrap().to_owned();
    platform.run("acme", Op::CloseLogStream, &[("stream", &second)], Value::Null).unwrap();
    open(&mut platform).unwrap();
}

#[test]
fn nothing_goes_while_others_need_it() {
    let mut platform = shop();
    let delete = |platform: &mut Platform, op, path: &[(&'static str, &str)]| {
        platform.run("acme", op, path, Value::Null).map(drop).map_err(|problem| problem.code)
    };
    assert_eq!(delete(&mut platform, Op::DeleteApp, &[("app", "shop")]), Err("app_not_empty".into()));
    assert_eq!(delete(&mut platform, Op::DeleteOrg, &[]), Err("org_not_empty".into()));
    let made = platform.run("acme", Op::CreateRoute, ENV, json!({"hostname": "a.example.com"})).unwrap();
    assert_eq!(delete(&mut platform, Op::DeleteEnv, ENV), Err("env_not_empty".into()));
    let route = made.body["id"].as_str().unwrap().to_owned();
    delete(&mut platform, Op::DeleteRoute, &[ENV[0], ENV[1], ("route", &route)]).unwrap();
    platform.run("acme", Op::SetSecrets, ENV, json!({"secrets": {"TOKEN": "hush"}})).unwrap();
    delete(&mut platform, Op::DeleteEnv, ENV).unwrap();
    delete(&mut platform, Op::DeleteApp, &[("app", "shop")]).unwrap();
    assert_eq!((platform.units("acme", "max_apps"), platform.units("acme", "max_envs")), (0, 0));
    assert!(!json!(platform.events).to_string().contains("hush"), "no secret is told");
    delete(&mut platform, Op::DeleteOrg, &[]).unwrap();
    assert_eq!(platform.rebuilt().views, platform.live());
}

#[test]
fn two_orgs_know_nothing_of_each_other() {
    let mut platform = shop();
    platform.with_org("other", "free");
    platform.run("other", Op::CreateApp, &[], json!({"name": "shop"})).unwrap();
    assert_eq!(platform.units("other", "max_apps"), 1);
    assert_eq!(
        platform
            .run("other", Op::SetScale, ENV, json!({"scales": [{"process_type": "web", "desired": 1}]}))
            .unwrap_err()
            .code,
        "not_found"
    );
    let volume = platform.run("acme", Op::CreateVolume, &[], json!({"size_bytes": 1 << 30})).unwrap().body;
    let theirs = [("volume", volume["id"].as_str().unwrap())];
    assert_eq!(platform.run("other", Op::CreateSnapshot, &theirs, Value::Null).unwrap_err().code, "not_found");
    assert_eq!(platform.run("acme", Op::CreateOrg, &[], json!({"id": "other"})).unwrap_err().code, "org_exists");
    assert_eq!(
        platform.run("acme", Op::CreateOrg, &[], json!({"id": "default-x", "tier": "gold"})).unwrap_err().code,
        "invalid_argument"
    );
}

#[test]
fn what_is_too_long_to_tell_is_refused() {
    let mut platform = shop();
    let words =
        |count: usize| json!({"processes": {"web": {"memory_bytes": 1, "command": vec!["x".repeat(4096); count]}}});
    let path = [("app", "shop")];
    let refused = platform.run("acme", Op::CreateRelease, &path, words(64)).unwrap_err();
    assert_eq!(refused.code, "invalid_argument");
    platform.run("acme", Op::CreateRelease, &path, words(20)).unwrap();
    // What releases no longer have does not pile up in the environment.
    for number in 3..40 {
        let mut release = json!({"processes": {}});
        release["processes"][format!("p{number}")] = json!({"memory_bytes": 1});
        platform.run("acme", Op::CreateRelease, &path, release).unwrap();
        platform.run("acme", Op::CreateDeploy, ENV, json!({"release": number})).unwrap();
    }
    let env = platform.get(ENVS, "acme", "shop.prod").unwrap();
    assert_eq!(env["spec"]["processes"].as_object().unwrap().len(), 2, "the last one, and the one before it");
}

#[test]
fn a_mixed_scale_gives_no_credit() {
    let mut platform = shop();
    let two = json!({"processes": {"web": {"memory_bytes": 1 << 20}, "job": {"memory_bytes": 1 << 20}}});
    platform.run("acme", Op::CreateRelease, &[("app", "shop")], two).unwrap();
    platform.limit("acme", "max_instances", 4);
    platform.run("acme", Op::CreateDeploy, ENV, json!({"release": 2})).unwrap();
    scale(&mut platform, 3).unwrap();
    let swap = json!({"scales": [{"process_type": "web", "desired": 1}, {"process_type": "job", "desired": 2}]});
    assert_eq!(numbers(&platform.run("acme", Op::SetScale, ENV, swap).unwrap_err()), [("max_instances", 4, 4, 1)]);
}

#[test]
fn of_two_that_race_for_the_last_room_one_wins_ten_thousand_times() {
    let mut platform = shop();
    platform.limit("acme", "max_instances", 5);
    let envs = ["a", "b"];
    for env in envs {
        platform.run("acme", Op::CreateEnv, &[("app", "shop")], json!({"name": env})).unwrap();
        let path = [("app", "shop"), ("env", env)];
        platform.run("acme", Op::CreateDeploy, &path, json!({"release": 1})).unwrap();
    }
    let body = |desired: u32| json!({"scales": [{"process_type": "web", "desired": desired}]});
    let mut seed: u32 = 7;
    for round in 0..10_000 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Between them they ask for more than five, each for less.
        let (one, other) = (3 + seed % 2, 3 + (seed >> 8) % 2);
        let first = (seed >> 16) as usize % 2;
        let path = |at: usize| [("app", "shop"), ("env", envs[at])];
        let (winner, loser) = (path(first), path(1 - first));
        let answers = platform.race("acme", Op::SetScale, [(&winner, body(one)), (&loser, body(other))]);
        assert_eq!(answers[0], Ok(()), "{round}");
        let Err(engine::Refused::Denied(denials)) = &answers[1] else { panic!("{round}: {answers:?}") };
        let said = families::orgs::words::violations(denials);
        assert_eq!((said[0].dimension.name(), said[0].current.to_units()), ("max_instances", Some(i64::from(one) + 1)));
        assert_eq!(platform.units("acme", "max_instances"), i128::from(one) + 1);
        // Back to one each: who lost has one, and says so again.
        platform.race("acme", Op::SetScale, [(&winner, body(1)), (&winner, body(1))])[0].as_ref().unwrap();
    }
}
