//! Tiers, overrides, and who may write.

use engine::{Bounds, Draft, Expect, ObjectKey, Refused, WriteKind};
use families::orgs::commands::{LIMITS_TOLD, Op, Told};
use families::orgs::names::*;
use families::orgs::tiers;
use families::{Balances, Identity, Origin};
use rules::policy_name;
use serde_json::{Value, json};
use std::sync::Arc;

use super::platform::{Platform, service};

fn apps(platform: &mut Platform, names: &[&str]) -> Vec<bool> {
    let made = names.iter().map(|name| platform.run("acme", Op::CreateApp, &[], json!({"name": name})).is_ok());
    made.collect()
}

#[test]
fn tiers_and_overrides_decide_together() {
    let mut platform = Platform::new();
    platform.with_org("acme", "free");
    assert_eq!(apps(&mut platform, &["a", "b", "c", "d"]), [true, true, true, false]);
    platform.limit("acme", "max_apps", 4);
    assert_eq!(apps(&mut platform, &["d", "e"]), [true, false]);
    platform.run("acme", Op::SetTier, &[], json!({"tier": "standard", "reason": "paid"})).unwrap();
    assert_eq!(apps(&mut platform, &["e"]), [false], "an override stands above the tier");
    platform.run("acme", Op::DeleteQuota, &[("dimension", "max_apps")], Value::Null).unwrap();
    assert_eq!(apps(&mut platform, &["e"]), [true]);
    // Lowered below usage: nobody is evicted, nothing grows.
    platform.limit("acme", "max_apps", 2);
    assert_eq!(apps(&mut platform, &["f"]), [false]);
    let event = platform.events.iter().rev().find(|event| event["event_type"] == "org.quota_set").unwrap();
    assert_eq!(event["payload"]["over_limit_after"], true);
    assert_eq!(event["payload"]["effective_before"], 20);
    for name in ["a", "b", "c"] {
        platform.run("acme", Op::DeleteApp, &[("app", name)], Value::Null).unwrap();
    }
    assert_eq!(apps(&mut platform, &["f"]), [false]);
    platform.limit("acme", "max_apps", "unlimited");
    assert_eq!(apps(&mut platform, &["f"]), [true]);
    assert_eq!(platform.rebuilt().views, platform.live());
    assert!(platform.rebuilt().gaps.is_empty(), "{:?}", platform.rebuilt().gaps);
}

#[test]
fn a_reloaded_tier_counts_at_once() {
    let mut platform = Platform::new();
    platform.with_org("acme", "free");
    assert_eq!(apps(&mut platform, &["a", "b", "c", "d"]), [true, true, true, false]);
    let mut spec = tiers::built_in().remove(0).1;
    spec["limits"]["max_apps"] = json!(4);
    spec["limits"]["max_snapshots_per_volume"] = json!(3);
    let volume = platform.run("acme", Op::CreateVolume, &[], json!({"size_bytes": 1 << 30})).unwrap().body;
    platform.set_tier("free", spec);
    assert_eq!(apps(&mut platform, &["d", "e"]), [true, false]);
    let path = [("volume", volume["id"].as_str().unwrap())];
    let made = (0..4).map(|_| platform.run("acme", Op::CreateSnapshot, &path, Value::Null).is_ok());
    assert_eq!(made.collect::<Vec<_>>(), [true, true, true, false]);
}

/// A tier of many organizations is not one long step, and nobody can tell: what is decided is decided by what it says now.
#[test]
fn a_tier_of_many_counts_at_once_for_each_of_them() {
    let mut platform = Platform::new();
    let names: Vec<String> = (0..12).map(|number| format!("o{number:02}")).collect();
    let mut volumes = Vec::new();
    for name in &names {
        platform.with_org(name, "free");
        platform.run(name, Op::CreateApp, &[], json!({"name": "a"})).unwrap();
        let volume = platform.run(name, Op::CreateVolume, &[], json!({"size_bytes": 1 << 30})).unwrap().body;
        volumes.push(volume["id"].as_str().unwrap().to_owned());
    }
    let limit = |platform: &Platform, org: &str| {
        let lines = platform.reading().of(&policy_name(&ORGS.resource(), org, org));
        let line = lines.iter().find(|line| &*line.resource == "max_apps").unwrap();
        line.balance.limit.amount().unwrap().to_units().unwrap()
    };
    for (round, apps) in [1, 7, 2].into_iter().enumerate() {
        let few = Bounds { looked: 3, judged: 3, caught_up: 1, ..Bounds::default() };
        platform.desk().engine.set_bounds(few);
        let mut spec = tiers::built_in().remove(0).1;
        spec["limits"]["max_apps"] = json!(apps);
        spec["limits"]["max_snapshots_per_volume"] = json!(apps - 1);
        platform.put_tier("free", spec);
        let late = names.iter().filter(|name| limit(&platform, name) != apps).count();
        assert_eq!(late, names.len() - 3, "those beyond the bound follow later");
        // Also where nothing follows before the next command.
        let last = names.len() - 1 - round;
        let path = [("volume", volumes[last].as_str())];
        let outcome = platform.decided(&names[last], Op::CreateSnapshot, &path, &Value::Null);
        assert_eq!(platform.write_steps(&outcome).is_ok(), apps > 1, "{apps}");
        assert_eq!(limit(&platform, &names[last]), apps);
        let outcome = platform.decided(&names[last], Op::CreateApp, &[], &json!({"name": format!("b{round}")}));
        assert_eq!(platform.write_steps(&outcome).is_ok(), apps > 1, "{apps}");
        // A start that comes between forgets nothing of it.
        if round == 1 {
            platform.restart();
        }
        platform.desk().engine.set_bounds(Bounds::default());
        platform.pass(1);
        assert!(names.iter().all(|name| limit(&platform, name) == apps));
    }
}

#[test]
fn an_override_ends_by_itself() {
    let mut platform = Platform::new();
    platform.with_org("acme", "free");
    let body = json!({"limit": 5, "reason": "a fair", "expires_at": "2027-01-15T08:10:00Z"});
    platform.run("acme", Op::SetQuota, &[("dimension", "max_apps")], body).unwrap();
    assert_eq!(apps(&mut platform, &["a", "b", "c", "d"]), [true, true, true, true]);
    let at = kinds::time::read_ms("2027-01-15T08:10:00Z").unwrap();
    platform.pass(at - platform.now_ms);
    assert_eq!(apps(&mut platform, &["e"]), [false]);
    platform.restart();
    assert_eq!(apps(&mut platform, &["e"]), [false]);
    for wrong in [
        json!({"limit": -1, "reason": "x"}),
        json!({"limit": 1}),
        json!({"limit": "5", "reason": "x"}),
        json!({"limit": 1, "reason": ""}),
        json!({"limit": 1, "reason": "x", "expires_at": "2020-01-01T00:00:00Z"}),
        json!({"limit": 1, "reason": "x", "more": 1}),
        json!([]),
        Value::Null,
    ] {
        let refused = platform.run("acme", Op::SetQuota, &[("dimension", "max_apps")], wrong.clone());
        assert_eq!(refused.unwrap_err().code, "invalid_argument", "{wrong}");
    }
}

#[test]
fn limits_that_change_by_themselves_are_told_once() {
    let mut platform = Platform::new();
    platform.with_org("acme", "free");
    apps(&mut platform, &["a", "b"]);
    let told = |platform: &mut Platform| {
        let done = platform.run("acme", Op::TellThresholds, &[], Value::Null).unwrap();
        let set = done.events.iter().filter(|told| told.event_type == "org.quota_set").map(Told::read);
        let fields =
            ["dimension", "old_limit", "new_limit", "effective_before", "effective_after", "limit_source_after"];
        let row = |event: Value| json!(fields.map(|field| event["payload"][field].clone()));
        set.map(row).collect::<Vec<_>>()
    };
    assert_eq!(told(&mut platform), Vec::<Value>::new(), "nothing has changed");
    // A tier that is edited, up, down, and to no limit at all.
    for (apps, said) in [
        (json!(9), json!(["max_apps", null, null, 3, 9, "tier"])),
        (json!(1), json!(["max_apps", null, null, 9, 1, "tier"])),
        (json!("unlimited"), json!(["max_apps", null, null, 1, null, "tier"])),
        (json!(3), json!(["max_apps", null, null, null, 3, "tier"])),
    ] {
        let mut spec = tiers::built_in().remove(0).1;
        spec["limits"]["max_apps"] = apps;
        platform.set_tier("free", spec);
        assert_eq!(told(&mut platform), [said]);
        assert_eq!(told(&mut platform), Vec::<Value>::new());
    }
    // What somebody says is told when it is said, and its end when it ends.
    let ends = kinds::time::text(platform.now_ms + 60_000);
    let body = json!({"limit": 5, "reason": "a fair", "expires_at": ends});
    platform.run("acme", Op::SetQuota, &[("dimension", "max_apps")], body).unwrap();
    assert_eq!(told(&mut platform), Vec::<Value>::new());
    platform.pass(59_999);
    assert_eq!(told(&mut platform), Vec::<Value>::new());
    platform.pass(1);
    // Others that are changed meanwhile do not hide it.
    platform.limit("acme", "max_envs", 1);
    assert_eq!(told(&mut platform), [json!(["max_apps", 5, null, 5, 3, "tier"])]);
    let org = platform.get(ORGS, "acme", "acme").unwrap();
    assert!(org["spec"]["overrides"].get("max_apps").is_none(), "{org}");
    // Another tier tells it all with one event.
    platform.run("acme", Op::SetTier, &[], json!({"tier": "standard", "reason": "paid"})).unwrap();
    assert_eq!(told(&mut platform), Vec::<Value>::new());
    assert_eq!(platform.rebuilt().views, platform.live());
    assert!(platform.rebuilt().gaps.is_empty(), "{:?}", platform.rebuilt().gaps);
}

/// As an earlier version left it: its limits were never told, so that nothing but an override's end is news.
#[test]
fn an_organization_of_an_earlier_version_is_told_what_ends() {
    let mut platform = Platform::new();
    platform.with_org("acme", "free");
    let key = ObjectKey::new(ORGS.resource(), "acme", "acme");
    let mut old = (*platform.get(ORGS, "acme", "acme").unwrap()).clone();
    old["spec"].as_object_mut().unwrap().remove(LIMITS_TOLD);
    old["spec"]["overrides"] = json!({"max_apps": {"limit": 7, "expires_at": "2020-01-01T00:00:00Z"}});
    let draft = Draft::new(old).unwrap();
    platform.write(key, WriteKind::Update { draft, expect: Expect::default(), status: false }, service()).unwrap();
    let done = platform.run("acme", Op::TellThresholds, &[], Value::Null).unwrap();
    let set: Vec<_> = done.events.iter().map(|told| told.read()["payload"].take()).collect();
    assert_eq!(set.len(), 1, "{set:?}");
    assert_eq!(json!([set[0]["effective_before"], set[0]["effective_after"]]), json!([7, 3]));
    assert!(platform.run("acme", Op::TellThresholds, &[], Value::Null).unwrap().events.is_empty());
}

#[test]
fn an_override_for_snapshots_ends_for_every_volume() {
    let mut platform = Platform::new();
    platform.with_org("acme", "free");
    let volume = platform.run("acme", Op::CreateVolume, &[], json!({"size_bytes": 1 << 30})).unwrap().body;
    let path = [("volume", volume["id"].as_str().unwrap())];
    let ends = kinds::time::text(platform.now_ms + 60_000);
    let body = json!({"limit": 2, "reason": "a move", "expires_at": ends});
    platform.run("acme", Op::SetQuota, &[("dimension", "max_snapshots_per_volume")], body).unwrap();
    let snapshot = |platform: &mut Platform| platform.run("acme", Op::CreateSnapshot, &path, Value::Null).is_ok();
    assert_eq!([snapshot(&mut platform), snapshot(&mut platform), snapshot(&mut platform)], [true, true, false]);
    platform.pass(60_000);
    for one in platform.list(SNAPSHOTS, "acme") {
        let done = json!({"status": "succeeded"});
        let id = one["metadata"]["name"].as_str().unwrap().to_owned();
        platform.run("acme", Op::SetSnapshotStatus, &[("snapshot", &id)], done).unwrap();
    }
    assert_eq!([snapshot(&mut platform), snapshot(&mut platform)], [true, false]);
    assert_eq!(platform.rebuilt().views, platform.live());
}

#[test]
fn only_the_service_writes_and_a_tier_in_use_stays() {
    let mut platform = Platform::new();
    platform.with_org("acme", "free");
    apps(&mut platform, &["a"]);
    let tenant = || Origin { identity: Arc::new(Identity::authenticated("tenant", ["system:masters"])), request: 1 };
    let said = |refused: Result<(), Refused>| match refused {
        Err(Refused::Said { refusal, .. }) => refusal.message,
        other => panic!("{other:?}"),
    };
    let org = platform.get(ORGS, "acme", "acme").unwrap();
    let mut wider = (*org).clone();
    wider["spec"]["overrides"] = json!({"max_apps": {"limit": 1000}});
    let key = ObjectKey::new(ORGS.resource(), "acme", "acme");
    let update = |object: &Value| WriteKind::Update {
        draft: Draft::new(object.clone()).unwrap(),
        expect: Expect::default(),
        status: false,
    };
    assert!(said(platform.write(key.clone(), update(&wider), tenant())).contains("written through /v1/orgs"));
    let delete = || WriteKind::Delete { expect: Expect::default(), last: None };
    assert!(said(platform.write(key, delete(), tenant())).contains("written through /v1/orgs"));
    let app = ObjectKey::new(APPS.resource(), "acme", "a");
    assert!(said(platform.write(app, delete(), tenant())).contains("written through /v1/orgs"));
    let free = ObjectKey::new(TIERS.resource(), "", "free");
    assert!(said(platform.write(free, delete(), tenant())).contains("has the tier"));
    platform.write(ObjectKey::new(TIERS.resource(), "", "scale"), delete(), tenant()).unwrap();
    assert!(platform.families().iter().any(|family| family.manifest().name == "orgs"));
    let _ = service();
}

#[test]
fn an_organization_without_its_tier_may_have_nothing_more() {
    let mut platform = Platform::new();
    platform.with_org("acme", "free");
    // As another version could have stored it: the limits cannot be told, so that nothing is granted.
    let key = ObjectKey::new(ORGS.resource(), "acme", "acme");
    let mut lost = (*platform.get(ORGS, "acme", "acme").unwrap()).clone();
    lost["spec"]["tier"] = json!("gone");
    let draft = Draft::new(lost).unwrap();
    let refused = platform.write(key, WriteKind::Update { draft, expect: Expect::default(), status: false }, service());
    assert!(matches!(refused, Err(Refused::Invalid(_))), "{refused:?}");
}

#[test]
fn who_comes_near_to_a_limit_is_told_once_and_again_when_he_goes_back() {
    let mut platform = Platform::new();
    platform.with_org("acme", "standard");
    platform.limit("acme", "max_apps", 20);
    let told = |platform: &mut Platform| {
        let done = platform.run("acme", Op::TellThresholds, &[], json!(null)).unwrap();
        let crossed = done.events.iter().map(|told| told.read()["payload"].take());
        crossed
            .map(|one| json!([one["dimension"], one["threshold"], one["direction"], one["usage"]]))
            .collect::<Vec<_>>()
    };
    let names: Vec<String> = (0..20).map(|number| format!("a{number}")).collect();
    let mut made = names.iter();
    let mut make = |platform: &mut Platform, count: usize| {
        for name in made.by_ref().take(count) {
            platform.run("acme", Op::CreateApp, &[], json!({"name": name})).unwrap();
        }
    };
    make(&mut platform, 15);
    assert_eq!(told(&mut platform), Vec::<Value>::new());
    make(&mut platform, 1);
    assert_eq!(told(&mut platform), [json!(["max_apps", 80, "up", 16])]);
    assert_eq!(told(&mut platform), Vec::<Value>::new());
    // One less is no news, and neither is that one again.
    platform.run("acme", Op::DeleteApp, &[("app", "a0")], json!(null)).unwrap();
    assert_eq!(told(&mut platform), Vec::<Value>::new());
    make(&mut platform, 4);
    assert_eq!(told(&mut platform), [json!(["max_apps", 95, "up", 19])]);
    for name in ["a1", "a2", "a3", "a4", "a5"] {
        platform.run("acme", Op::DeleteApp, &[("app", name)], json!(null)).unwrap();
    }
    assert_eq!(told(&mut platform), [json!(["max_apps", 95, "down", 14])]);
    // An operator's stroke of the pen does the same.
    platform.limit("acme", "max_apps", 14);
    assert_eq!(told(&mut platform), [json!(["max_apps", 95, "up", 14])]);
    assert_eq!(platform.rebuilt().views, platform.live());
}

#[test]
fn a_tier_means_something_to_those_who_have_it() {
    let family = families::orgs::Orgs::default();
    let (resource, origin) = (TIERS.resource(), Origin::internal("test"));
    let (old, new) = (json!({"spec": {}}), json!({"spec": {"limits": {}}}));
    let change = families::Change {
        resource: &resource,
        namespace: "",
        name: "free",
        old: &old,
        new: Some(&new),
        origin: &origin,
    };
    let mut platform = Platform::new();
    platform.with_org("acme", "free");
    platform.with_org("umbrella", "standard");
    platform.run("acme", Op::CreateVolume, &[], json!({"size_bytes": 1 << 30, "name": "free"})).unwrap();
    let is_meant = |stored: &Value| families::Family::may_mean_otherwise(&family, &change, &stored.to_string());
    let org = |name: &str| platform.get(ORGS, name, name).unwrap();
    assert!(is_meant(&org("acme")) && !is_meant(&org("umbrella")) && !is_meant(&platform.list(VOLUMES, "acme")[0]));
}
