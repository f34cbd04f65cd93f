//! Random commands, restarts and time, judged after each by a count of the stored objects that shares nothing with what charges.

use std::collections::{BTreeMap, BTreeSet};

use families::orgs::commands::Op;
use families::orgs::names::*;
use families::orgs::tiers;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::platform::Platform;

const ORGS_HERE: [&str; 2] = ["acme", "umbrella"];
const APPS_HERE: [&str; 2] = ["shop", "blog"];
const ENVS_HERE: [&str; 2] = ["prod", "test"];
const NANO: i128 = 1_000_000_000;

/// Nanos of a decimal text, by hand.
fn nanos(text: &str) -> i128 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let part: String = part.chars().chain("000000000".chars()).take(9).collect();
    whole.parse::<i128>().unwrap() * NANO + part.parse::<i128>().unwrap()
}

/// What an organization uses, from its objects alone.
fn recount(platform: &Platform, org: &str) -> BTreeMap<String, i128> {
    let count = |plural| platform.list(plural, org).len() as i128 * NANO;
    let mut counts = BTreeMap::new();
    counts.insert("max_apps".to_owned(), count(APPS));
    counts.insert("max_envs".into(), count(ENVS));
    counts.insert("max_routes".into(), count(ROUTES));
    counts.insert("max_volumes".into(), count(VOLUMES));
    counts.insert("max_volume_attachments".into(), count(ATTACHMENTS));
    let sizes =
        platform.list(VOLUMES, org).iter().map(|v| v["spec"]["size_bytes"].as_i64().unwrap() as i128).sum::<i128>();
    counts.insert("max_total_volume_bytes".into(), sizes * NANO);
    let (mut ports, mut hostnames) = (BTreeSet::new(), BTreeSet::new());
    for route in platform.list(ROUTES, org) {
        let spec = &route["spec"];
        ports.insert(format!("shared {}", spec["listen_port"]));
        if spec["ipv4_required"] == true {
            ports.insert(format!("{} {} {}", spec["app"], spec["env"], spec["listen_port"]));
        }
        if spec["hostname"] != "" {
            hostnames.insert(spec["hostname"].to_string());
        }
    }
    counts.insert("max_public_ports".into(), ports.len() as i128 * NANO);
    counts.insert("max_hostnames".into(), hostnames.len() as i128 * NANO);
    let addresses = platform.list(ENVS, org).iter().filter(|env| env["spec"]["ipv4"]["enabled"] == true).count();
    counts.insert("max_ipv4_allocations".into(), addresses as i128 * NANO);
    let jobs = platform.list(RESTORE_JOBS, org);
    let open = jobs.iter().filter(|job| job["spec"]["status"] == "queued" || job["spec"]["status"] == "running");
    counts.insert("max_restore_jobs".into(), open.count() as i128 * NANO);
    let now = platform.now_ms;
    let sessions = platform.list(EXEC_SESSIONS, org);
    let open = sessions.iter().filter(|s| {
        let lives = now < s["spec"]["expires_at_ms"].as_i64().unwrap();
        lives && (s["spec"]["state"] == "connected" || s["spec"]["state"] == "granted")
    });
    counts.insert("max_exec_sessions".into(), open.count() as i128 * NANO);
    let fresh = sessions.iter().filter(|s| now - s["spec"]["granted_at_ms"].as_i64().unwrap() < 3_600_000);
    counts.insert("max_exec_sessions_per_hour".into(), fresh.count() as i128 * NANO);
    let streams = platform.list(LOG_STREAMS, org);
    let open = streams.iter().filter(|s| now < s["spec"]["expires_at_ms"].as_i64().unwrap());
    counts.insert("max_log_streams".into(), open.count() as i128 * NANO);
    counts.extend(compute(platform, org));
    counts
}

/// Instances, memory and vCPUs: allocated, and with what is promised.
fn compute(platform: &Platform, org: &str) -> BTreeMap<String, i128> {
    let names = ["max_instances", "max_total_memory_bytes", "max_total_cpu_request"];
    let of = |resources: &Value| {
        let bytes = |field: &str| resources[field].as_i64().unwrap() as i128;
        let memory = bytes("memory_bytes") + bytes("vmm_overhead_bytes");
        [NANO, memory * NANO, nanos(resources["cpu"].as_str().unwrap())]
    };
    // Leaving; what fills slots, one by one; how many slots, and of what.
    type Amounts = [i128; 3];
    type Standing = (Amounts, Vec<Amounts>, usize, Amounts);
    let mut groups: BTreeMap<String, Standing> = BTreeMap::new();
    let group = |spec: &Value, process: &str| format!("{}/{}/{process}", spec["app"], spec["env"]);
    let mut counted = [0; 3];
    for instance in platform.list(INSTANCES, org) {
        let spec = &instance["spec"];
        if spec["desired_state"] == "stopped" {
            continue;
        }
        let takes = of(&spec["resources"]);
        let leaving = spec["desired_state"] == "draining" && spec["drain_reason"] == "scale_down";
        let entry = groups.entry(group(spec, spec["process_type"].as_str().unwrap())).or_default();
        for place in 0..3 {
            counted[place] += takes[place];
            entry.0[place] += if leaving { takes[place] } else { 0 };
        }
        if !leaving {
            entry.1.push(takes);
        }
    }
    let exact = platform.get(ORGS, org, org).unwrap()["spec"]["reservations"] == "exact";
    for env in platform.list(ENVS, org) {
        let spec = &env["spec"];
        for (name, process) in spec["processes"].as_object().unwrap() {
            let surge = usize::from(process["rollout"]["mode"] == "surge");
            let wanted = process["desired"].as_u64().unwrap() as usize + surge;
            let entry = groups.entry(group(spec, name)).or_default();
            (entry.2, entry.3) = (if exact { wanted } else { 0 }, of(&process["unit"]));
        }
    }
    let mut all = BTreeMap::new();
    for (place, name) in names.into_iter().enumerate() {
        let mut used = 0;
        for (leaving, filling, slots, unit) in groups.values() {
            // Every slot has what fills it, or what is wanted if that is more; the largest are those too many.
            let mut filling: Vec<i128> = filling.iter().map(|one| one[place]).collect();
            filling.sort();
            filling.resize(filling.len().max(*slots), 0);
            for has in &mut filling[..*slots] {
                *has = (*has).max(unit[place]);
            }
            used += leaving[place] + filling.iter().sum::<i128>();
        }
        all.insert(name.to_owned(), used);
        all.insert(format!("counted.{name}"), counted[place]);
    }
    all
}

fn check(platform: &Platform) {
    for org in ORGS_HERE {
        for (account, counted) in recount(platform, org) {
            assert_eq!(platform.used(org, &account), counted, "{org} {account}");
        }
        for volume in platform.list(VOLUMES, org) {
            let name = volume["metadata"]["name"].as_str().unwrap();
            let open = platform.list(SNAPSHOTS, org).into_iter().filter(|one| {
                one["spec"]["volume"] == name
                    && (one["spec"]["status"] == "queued" || one["spec"]["status"] == "running")
            });
            assert_eq!(platform.snapshots(org, name), open.count() as i128, "{org} {name}");
        }
    }
    let rebuilt = platform.rebuilt();
    assert_eq!(rebuilt.views, platform.live(), "views made again from the events are the views");
    assert!(rebuilt.gaps.is_empty(), "{:?}", rebuilt.gaps);
    // A hostname is as long as its route.
    let held: BTreeSet<String> =
        platform.list(HOSTNAMES, "").iter().map(|one| one["metadata"]["name"].to_string()).collect();
    let routes = ORGS_HERE.iter().flat_map(|org| platform.list(ROUTES, org));
    let wanted: BTreeSet<String> =
        routes.map(|one| one["spec"]["hostname"].to_string()).filter(|name| name != "\"\"").collect();
    assert_eq!(held, wanted);
}

/// One thing somebody does; numbers pick among what there is.
#[derive(Clone, Debug)]
struct Deed {
    what: u8,
    org: u8,
    one: u8,
    two: u8,
}

fn deed() -> impl Strategy<Value = Deed> {
    (0u8..31, 0u8..2, any::<u8>(), any::<u8>()).prop_map(|(what, org, one, two)| Deed { what, org, one, two })
}

fn pick(list: &[Value], number: u8) -> Option<String> {
    let chosen = list.get(usize::from(number) % list.len().max(1))?;
    Some(chosen["metadata"]["name"].as_str().unwrap().to_owned())
}

/// What an organization uses of each account, and how much it may: its limit, or what it has where that is more.
fn bounds(platform: &Platform, org: &str) -> Vec<(String, i128)> {
    let status = platform.get(ORGS, org, org).unwrap();
    let rows = status["status"]["usage"].as_array().cloned().unwrap_or_default();
    let mut bounds = Vec::new();
    for row in rows.iter().filter(|row| !row["limit"].is_null()) {
        let limit = nanos(&row["limit"].to_string());
        let name = row["dimension"].as_str().unwrap();
        for account in [name.to_owned(), format!("counted.{name}")] {
            let used = platform.used(org, &account);
            bounds.push((account, used.max(limit)));
        }
    }
    bounds
}

fn act(platform: &mut Platform, deed: &Deed) {
    let Deed { what, one, two, .. } = *deed;
    let org = ORGS_HERE[usize::from(deed.org)];
    let app = APPS_HERE[usize::from(one) % 2];
    let env = ENVS_HERE[usize::from(two) % 2];
    let path = [("app", app), ("env", env)];
    let before = bounds(platform, org);
    let raises = matches!(what, 21 | 22 | 26 | 27);
    let named = |plural, number: u8, platform: &Platform| pick(&platform.list(plural, org), number).unwrap_or_default();
    let outcome = match what {
        0 => platform.run(org, Op::CreateApp, &[], json!({"name": app})),
        1 => platform.run(org, Op::DeleteApp, &path[..1], Value::Null),
        2 => platform.run(org, Op::CreateEnv, &path[..1], json!({"name": env})),
        3 => platform.run(org, Op::DeleteEnv, &path, Value::Null),
        4 => {
            let web = json!({"memory_bytes": (i64::from(two) + 1) << 20, "cpu": f64::from(one % 8 + 1) / 8.0});
            let mut processes = json!({"web": web});
            if one % 3 == 0 {
                processes["job"] = json!({"memory_bytes": 1 << 24});
            }
            platform.run(org, Op::CreateRelease, &path[..1], json!({"processes": processes}))
        }
        5 | 6 => platform.run(org, Op::CreateDeploy, &path, json!({"release": one % 3 + 1})),
        7 => platform.run(org, Op::CreateRollback, &path, Value::Null),
        8 | 9 => {
            let scales =
                json!({"scales": [{"process_type": if one % 4 == 0 { "job" } else { "web" }, "desired": two % 5}]});
            platform.run(org, Op::SetScale, &path, scales)
        }
        10..=12 => {
            let process_type = if one % 5 == 0 { "job" } else { "web" };
            let mut body = json!({"app": app, "env": env, "process_type": process_type, "node": "n1"});
            if one % 4 == 0 {
                body["replaces"] = json!(named(INSTANCES, two, platform));
            }
            platform.run(org, Op::AllocateInstance, &[], body)
        }
        13 | 14 => {
            let state = if two % 2 == 0 { "draining" } else { "stopped" };
            let reason = if one % 2 == 0 { "scale_down" } else { "rollout_replace" };
            let id = named(INSTANCES, one, platform);
            platform.run(
                org,
                Op::SetInstanceState,
                &[("instance", &id)],
                json!({"desired_state": state, "reason": reason}),
            )
        }
        15 => {
            let id = named(INSTANCES, one, platform);
            platform.run(org, Op::RemoveInstance, &[("instance", &id)], Value::Null)
        }
        16 => {
            let mut body = json!({"listen_port": 400 + u16::from(two % 4), "ipv4_required": one % 3 == 0});
            if two % 3 > 0 {
                body["hostname"] = json!(format!("h{}.example.com", one % 5));
            }
            platform.run(org, Op::CreateRoute, &path, body)
        }
        17 => {
            let route = platform.list(ROUTES, org).into_iter().nth(usize::from(one) % 5).unwrap_or_default();
            let text = |field: &str| route["spec"][field].as_str().unwrap_or("x").to_owned();
            let id = route["metadata"]["name"].as_str().unwrap_or("x").to_owned();
            let (a, e) = (text("app"), text("env"));
            let path = [("app", a.as_str()), ("env", e.as_str()), ("route", id.as_str())];
            match two % 2 {
                0 => platform.run(org, Op::DeleteRoute, &path, Value::Null),
                _ => platform.run(org, Op::UpdateRoute, &path, json!({"ipv4_required": two % 4 == 1})),
            }
        }
        18 => platform.run(org, if one % 3 > 0 { Op::EnableIpv4 } else { Op::DisableIpv4 }, &path, Value::Null),
        19 => match two % 3 {
            0 => {
                let id = named(VOLUMES, one, platform);
                platform.run(org, Op::DeleteVolume, &[("volume", &id)], Value::Null)
            }
            _ => platform.run(org, Op::CreateVolume, &[], json!({"size_bytes": i64::from(one % 3 + 1) << 30})),
        },
        20 => {
            let id = named(VOLUMES, one, platform);
            platform.run(org, Op::CreateAttachment, &path, json!({"volume": id, "mount_path": "/data"}))
        }
        21 => {
            let dimension = families::orgs::Dimension::ALL[usize::from(one) % 17].name();
            let limit = if dimension.contains("bytes") { i64::from(two % 8) << 30 } else { i64::from(two % 6) };
            platform.run(org, Op::SetQuota, &[("dimension", dimension)], json!({"limit": limit, "reason": "storm"}))
        }
        22 => {
            let dimension = families::orgs::Dimension::ALL[usize::from(one) % 17].name();
            platform.run(org, Op::DeleteQuota, &[("dimension", dimension)], Value::Null)
        }
        23 => {
            let id = named(VOLUMES, one, platform);
            match two % 2 {
                0 => platform.run(org, Op::CreateSnapshot, &[("volume", &id)], Value::Null),
                _ => {
                    let snapshot = named(SNAPSHOTS, two, platform);
                    platform.run(org, Op::CreateRestore, &[("volume", &id)], json!({"snapshot": snapshot}))
                }
            }
        }
        24 => {
            let word = ["running", "succeeded", "failed"][usize::from(two) % 3];
            let status = json!({"status": word});
            let (snapshot, job) = (named(SNAPSHOTS, one, platform), named(RESTORE_JOBS, one, platform));
            let _ = platform.run(org, Op::SetSnapshotStatus, &[("snapshot", &snapshot)], status.clone());
            platform.run(org, Op::SetRestoreStatus, &[("job", &job)], status)
        }
        25 => {
            let (instance, session) = (named(INSTANCES, one, platform), named(EXEC_SESSIONS, one, platform));
            match two % 4 {
                0 => platform.run(org, Op::ConnectExec, &[("session", &session)], Value::Null),
                1 => platform.run(org, Op::EndExec, &[("session", &session)], Value::Null),
                _ => platform.run(org, Op::GrantExec, &[("instance", &instance)], Value::Null),
            }
        }
        26 => {
            let tier = ["free", "standard"][usize::from(one) % 2];
            platform.run(org, Op::SetTier, &[], json!({"tier": tier, "reason": "storm"}))
        }
        27 => {
            let mut spec = tiers::built_in().remove(usize::from(one) % 2).1;
            spec["limits"]["max_apps"] = json!(two % 4);
            spec["limits"]["max_snapshots_per_volume"] = json!(two % 3);
            platform.set_tier(["free", "standard"][usize::from(one) % 2], spec);
            platform.run(org, Op::SetPolicy, &[], json!({"reservations": if two % 2 == 0 { "exact" } else { "check" }}))
        }
        28 => {
            let _ = platform.run(org, Op::OpenLogStream, &path, Value::Null);
            let id = named(LOG_STREAMS, one, platform);
            platform.run(
                org,
                if two % 2 == 0 { Op::RenewLogStream } else { Op::CloseLogStream },
                &[("stream", &id)],
                Value::Null,
            )
        }
        29 => {
            let deploy = named(DEPLOYS, one, platform);
            let state = ["rolling", "succeeded", "failed"][usize::from(two) % 3];
            platform.run(org, Op::SetDeployState, &[("deploy", &deploy)], json!({"state": state}))
        }
        _ => {
            if two % 3 == 0 {
                platform.restart();
            } else {
                platform.pass(i64::from(one) * 30_000);
            }
            return;
        }
    };
    if outcome.is_ok() && !raises {
        for (account, most) in before {
            let used = platform.used(org, &account);
            assert!(used <= most, "{org} {account} has {used}, more than {most}, by {deed:?}");
        }
    }
}

fn begin() -> Platform {
    let mut platform = Platform::new();
    let node = json!({"allocatable_memory_bytes": 1_i64 << 40, "cpu_cores": 8});
    platform.run("", Op::RegisterNode, &[("node", "n1")], node).unwrap();
    for (org, tier) in ORGS_HERE.into_iter().zip(["free", "standard"]) {
        platform.with_org(org, tier);
        for app in APPS_HERE {
            platform.run(org, Op::CreateApp, &[], json!({"name": app})).unwrap();
            platform.run(org, Op::CreateEnv, &[("app", app)], json!({"name": "prod"})).unwrap();
            let release = json!({"processes": {"web": {"memory_bytes": 1 << 26, "cpu": 0.25}}});
            platform.run(org, Op::CreateRelease, &[("app", app)], release).unwrap();
            platform.run(org, Op::CreateDeploy, &[("app", app), ("env", "prod")], json!({"release": 1})).unwrap();
        }
    }
    check(&platform);
    platform
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn usage_is_what_a_count_of_the_objects_says(deeds in prop::collection::vec(deed(), 60..160)) {
        let mut platform = begin();
        for deed in &deeds {
            act(&mut platform, deed);
            check(&platform);
        }
        platform.restart();
        check(&platform);
    }
}
