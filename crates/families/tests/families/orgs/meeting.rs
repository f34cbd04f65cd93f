//! Two commands that read the same state: the later one is refused in its step for what the earlier one did, whichever is first.

use engine::Refused;
use families::orgs::commands::{Op, Problem, Sort};
use families::orgs::names::*;
use serde_json::{Value, json};

use super::cluster::GIB;
use super::platform::Platform;

const PROD: [(&str, &str); 2] = [("app", "shop"), ("env", "prod")];

type Command = (Op, Vec<(&'static str, String)>, Value);

/// An organization with a release that runs nowhere yet and one that does.
fn shop() -> Platform {
    let mut platform = Platform::new();
    let node = json!({"allocatable_memory_bytes": GIB, "cpu_cores": 4});
    platform.run("", Op::RegisterNode, &[("node", "n1")], node).unwrap();
    platform.with_org("acme", "scale");
    platform.run("acme", Op::CreateApp, &[], json!({"name": "shop"})).unwrap();
    for env in ["prod", "other"] {
        platform.run("acme", Op::CreateEnv, &PROD[..1], json!({"name": env})).unwrap();
    }
    for bytes in [1, 2] {
        let release = json!({"processes": {"web": {"memory_bytes": bytes}}});
        platform.run("acme", Op::CreateRelease, &PROD[..1], release).unwrap();
    }
    platform.run("acme", Op::CreateDeploy, &PROD, json!({"release": 1})).unwrap();
    let scales = json!({"scales": [{"process_type": "web", "desired": 8}]});
    platform.run("acme", Op::SetScale, &PROD, scales).unwrap();
    platform
}

fn within(more: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    PROD.iter().chain(more).map(|(name, value)| (*name, (*value).to_owned())).collect()
}

/// What becomes of the second of two who read the same, after the first was done; and which code it has.
fn second(platform: &mut Platform, [first, second]: [&Command; 2]) -> Problem {
    let org = |op: Op| if op == Op::RegisterNode { "" } else { "acme" };
    assert_eq!(org(first.0), org(second.0));
    let paths = [first, second].map(|(_, path, _)| path.iter().map(|(n, v)| (*n, v.as_str())).collect::<Vec<_>>());
    let two = [(first.0, &paths[0][..], first.2.clone()), (second.0, &paths[1][..], second.2.clone())];
    let [one, other] = platform.race_of(org(first.0), two);
    one.unwrap_or_else(|why| panic!("{:?}: {why:?}", first.0));
    match other {
        Err(Refused::Said { refusal, .. }) => Problem::of(refusal),
        other => panic!("{:?} after {:?}: {other:?}", second.0, first.0),
    }
}

/// Each of the two after the other.
fn meet(make: impl Fn() -> (Platform, Command, Command), codes: [&str; 2]) {
    let (mut platform, one, other) = make();
    assert_eq!(second(&mut platform, [&one, &other]).code, codes[0]);
    let (mut platform, one, other) = make();
    assert_eq!(second(&mut platform, [&other, &one]).code, codes[1]);
}

#[test]
fn a_route_that_requires_ipv4_and_an_environment_that_gives_it_up() {
    let enabled = || {
        let mut platform = shop();
        platform.run("acme", Op::EnableIpv4, &PROD, Value::Null).unwrap();
        platform
    };
    let disable = || (Op::DisableIpv4, within(&[]), Value::Null);
    let route = json!({"hostname": "a.example.com", "ipv4_required": true});
    meet(
        || (enabled(), disable(), (Op::CreateRoute, within(&[]), route.clone())),
        ["ipv4_not_enabled", "routes_require_ipv4"],
    );
    let updated = || {
        let mut platform = enabled();
        let route = platform.run("acme", Op::CreateRoute, &PROD, json!({"hostname": "a.example.com"})).unwrap();
        let path = within(&[("route", route.body["id"].as_str().unwrap())]);
        (platform, disable(), (Op::UpdateRoute, path, json!({"ipv4_required": true})))
    };
    meet(updated, ["ipv4_not_enabled", "routes_require_ipv4"]);
}

#[test]
fn a_release_that_goes_and_one_that_comes_to_run() {
    let delete = || (Op::DeleteRelease, within(&[("release", "2")]), Value::Null);
    let deploy = || (Op::CreateDeploy, within(&[]), json!({"release": 2}));
    meet(|| (shop(), delete(), deploy()), ["release_not_found", "release_in_use"]);
}

#[test]
fn two_raw_routes_of_one_environment_on_one_port() {
    let route = || (Op::CreateRoute, within(&[]), json!({"listen_port": 25}));
    meet(|| (shop(), route(), route()), ["port_in_use"; 2]);
    // Of another environment, or with a hostname, nobody minds.
    let mut platform = shop();
    platform.run("acme", Op::CreateRoute, &PROD, json!({"listen_port": 25})).unwrap();
    platform.run("acme", Op::CreateRoute, &[PROD[0], ("env", "other")], json!({"listen_port": 25})).unwrap();
    platform.run("acme", Op::CreateRoute, &PROD, json!({"listen_port": 25, "hostname": "a.example.com"})).unwrap();
}

#[test]
fn two_nodes_with_one_prefix() {
    let node = |name: &str| {
        let body = json!({"allocatable_memory_bytes": 1, "cpu_cores": 1, "ipv6_prefix": "fd12::/64"});
        (Op::RegisterNode, vec![("node", name.to_owned())], body)
    };
    meet(|| (Platform::new(), node("n2"), node("n3")), ["prefix_in_use"; 2]);
    // One that had another.
    meet(|| (shop(), node("n1"), node("n3")), ["prefix_in_use"; 2]);
}

/// A platform with so many instances, and their ids.
fn running(count: usize) -> (Platform, Vec<String>) {
    let mut platform = shop();
    let mut allocate = || {
        let body = json!({"app": "shop", "env": "prod", "process_type": "web", "node": "n1"});
        let made = platform.run("acme", Op::AllocateInstance, &[], body).unwrap();
        made.body["id"].as_str().unwrap().to_owned()
    };
    let ids = (0..count).map(|_| allocate()).collect();
    (platform, ids)
}

fn exec(instance: &str) -> Command {
    (Op::GrantExec, vec![("instance", instance.to_owned())], Value::Null)
}

#[test]
fn sessions_beyond_those_of_an_instance_and_of_an_environment() {
    let in_instance = || {
        let (mut platform, ids) = running(1);
        platform.run("acme", Op::GrantExec, &[("instance", &ids[0])], Value::Null).unwrap();
        (platform, exec(&ids[0]), exec(&ids[0]))
    };
    meet(in_instance, ["rate_limited"; 2]);
    let in_env = || {
        let (mut platform, ids) = running(7);
        for at in 0..9 {
            platform.run("acme", Op::GrantExec, &[("instance", &ids[at / 2])], Value::Null).unwrap();
        }
        (platform, exec(&ids[5]), exec(&ids[6]))
    };
    meet(in_env, ["rate_limited"; 2]);
    let (mut platform, one, other) = in_instance();
    assert_eq!(second(&mut platform, [&one, &other]).sort, Sort::Limited);
}

#[test]
fn a_session_in_an_instance_that_is_to_stop() {
    let (mut platform, ids) = running(1);
    let stop = (Op::SetInstanceState, vec![("instance", ids[0].clone())], json!({"desired_state": "stopped"}));
    assert_eq!(second(&mut platform, [&stop, &exec(&ids[0])]).code, "instance_stopped");
    let (mut platform, ids) = running(1);
    let session = platform.run("acme", Op::GrantExec, &[("instance", &ids[0])], Value::Null).unwrap();
    let session = session.body["id"].as_str().unwrap().to_owned();
    let stop = (Op::SetInstanceState, vec![("instance", ids[0].clone())], json!({"desired_state": "stopped"}));
    let connect = (Op::ConnectExec, vec![("session", session)], Value::Null);
    assert_eq!(second(&mut platform, [&stop, &connect]).code, "instance_stopped");
}

#[test]
fn an_app_that_goes_and_a_release_that_comes() {
    let empty = || {
        let mut platform = shop();
        platform.run("acme", Op::CreateApp, &[], json!({"name": "blog"})).unwrap();
        platform
    };
    let blog = [("app", "blog")];
    let release = (Op::CreateRelease, &blog[..], json!({"processes": {"web": {"memory_bytes": 1}}}));
    let delete = (Op::DeleteApp, &blog[..], Value::Null);
    for two in [[release.clone(), delete.clone()], [delete, release]] {
        let [first, second] = empty().race_of("acme", two);
        first.unwrap();
        // It is made anew from what is there now.
        let is_refused = matches!(second, Err(Refused::Conflict { .. } | Refused::NotFound | Refused::Said { .. }));
        assert!(is_refused, "{second:?}");
    }
}

#[test]
fn a_number_that_was_given_and_taken_back_meanwhile_is_not_given_again() {
    let mut platform = shop();
    let release = || json!({"processes": {"web": {"memory_bytes": 3}}});
    let stale = platform.decided("acme", Op::CreateRelease, &PROD[..1], &release());
    let made = platform.run("acme", Op::CreateRelease, &PROD[..1], release()).unwrap();
    assert_eq!(made.body["number"], 3);
    platform.run("acme", Op::DeleteRelease, &[PROD[0], ("release", "3")], Value::Null).unwrap();
    let given = platform.write_steps(&stale);
    assert!(matches!(given, Err(Refused::Conflict { .. })), "{given:?}");
}

/// Whatever belongs to an app, or to an environment, goes with it, however much it is: the next of the name has nothing of it.
#[test]
fn nothing_is_left_for_the_next_of_the_name() {
    let mut platform = shop();
    platform.run("acme", Op::CreateApp, &[], json!({"name": "blog"})).unwrap();
    let blog = [("app", "blog"), ("env", "prod")];
    platform.run("acme", Op::CreateEnv, &blog[..1], json!({"name": "prod"})).unwrap();
    for _ in 0..120 {
        let release = json!({"processes": {"web": {"memory_bytes": 1}}});
        platform.run("acme", Op::CreateRelease, &blog[..1], release).unwrap();
    }
    for _ in 0..60 {
        platform.run("acme", Op::CreateDeploy, &blog, json!({"release": 1})).unwrap();
    }
    let refused = platform.run("acme", Op::DeleteApp, &blog[..1], Value::Null).unwrap_err();
    assert_eq!((refused.code.as_str(), platform.list(RELEASES, "acme").len()), ("app_not_empty", 122));
    platform.run("acme", Op::DeleteEnv, &blog, Value::Null).unwrap();
    platform.run("acme", Op::DeleteApp, &blog[..1], Value::Null).unwrap();
    let left = |plural| platform.list(plural, "acme").iter().filter(|one| one["spec"]["app"] == "blog").count();
    assert_eq!([APPS, ENVS, RELEASES, DEPLOYS].map(left), [0; 4]);
    let rebuilt = platform.rebuilt();
    assert_eq!((rebuilt.gaps, rebuilt.views), (Vec::<String>::new(), platform.live()));
}

#[test]
fn a_volume_stays_for_as_long_as_its_snapshots() {
    let mut platform = shop();
    let volume = platform.run("acme", Op::CreateVolume, &[], json!({"size_bytes": GIB})).unwrap();
    let volume = volume.body["id"].as_str().unwrap().to_owned();
    let path = [("volume", volume.as_str())];
    let snapshot = platform.run("acme", Op::CreateSnapshot, &path, Value::Null).unwrap();
    let snapshot = snapshot.body["id"].as_str().unwrap().to_owned();
    let taken = [("snapshot", snapshot.as_str())];
    platform.run("acme", Op::SetSnapshotStatus, &taken, json!({"status": "succeeded"})).unwrap();
    let refused = platform.run("acme", Op::DeleteVolume, &path, Value::Null).unwrap_err();
    assert_eq!(refused.code, "volume_in_use", "without its volume it could not be restored");
    platform.run("acme", Op::DeleteSnapshot, &taken, Value::Null).unwrap();
    platform.run("acme", Op::DeleteVolume, &path, Value::Null).unwrap();
}
