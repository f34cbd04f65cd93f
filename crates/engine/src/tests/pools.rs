//! Pools on the real engine: after every single command the quotas of all namespaces together are exactly what is
//! claimed, and never more than the pool.

use serde_json::{Value, json};

use super::*;

const NAMESPACES: [&str; 3] = ["n0", "n1", "n2"];
const COMMANDS: u64 = 3_000;
const POOL: &str = "capsule.clastix.io";

type Edit = fn(&mut Value);

fn rig() -> Bench {
    rig_with(&families::Settings::default())
}

fn rig_with(settings: &families::Settings) -> Bench {
    let mut bench = Bench::with(families::all(settings));
    for name in NAMESPACES {
        bench.create("", "namespaces", "", name, json!({"labels": {"tenant": "solar"}})).unwrap();
    }
    let spec = json!({
        "quota": {"hard": {"pods": "6"}}, "selectors": [{"matchLabels": {"tenant": "solar"}}],
        "defaults": {"pods": "0"},
    });
    bench.create(POOL, "resourcepools", "", "p", json!({"spec": spec})).unwrap();
    bench
}

impl Bench {
    fn claim(&mut self, namespace: &str, name: &str, pods: u64) -> Result<Written, Refused> {
        let spec = json!({"pool": "p", "claim": {"pods": pods.to_string()}});
        self.create(POOL, "resourcepoolclaims", namespace, name, json!({"spec": spec}))
    }

    fn remove(&mut self, group: &str, resource: &str, namespace: &str, name: &str) -> Result<Written, Refused> {
        let key = ObjectKey::new(GroupResource::new(group, resource), namespace, name);
        self.write(key, WriteKind::Delete { expect: Expect::default(), last: None }, false)
    }

    fn shown(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = ObjectKey::new(GroupResource::new(group, resource), namespace, name);
        self.desk.get(&key).map(|object| object.value())
    }

    /// What a namespace's quota allows, and what its claims that have their resources say they have.
    fn allowed_and_claimed(&self, namespace: &str) -> (u64, u64) {
        let quota = self.shown("", "resourcequotas", namespace, "capsule-pool-p").expect("there is always one");
        let number = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap();
        let kind = GroupResource::new(POOL, "resourcepoolclaims");
        let claims = self.desk.within(&kind, namespace).map(|claim| claim.value());
        let has = |claim: &Value| {
            let conditions = claim["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|one| one["type"] == "Exhausted" && one["status"] == "False")
        };
        let claimed = claims.filter(has).map(|claim| number(&claim["spec"]["claim"]["pods"])).sum();
        (number(&quota["spec"]["hard"]["pods"]), claimed)
    }
}

/// The next of a row of numbers that looks like chance, below a bound.
fn next(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

#[test]
fn after_every_command_the_quotas_are_what_is_claimed() {
    let mut bench = rig();
    let mut state = 7;
    let (mut granted, mut refused) = (0, 0);
    for turn in 0..COMMANDS {
        let namespace = NAMESPACES[next(&mut state, 3) as usize];
        let (claim, pod) = (format!("c{}", next(&mut state, 6)), format!("p{}", next(&mut state, 8)));
        let done = match next(&mut state, 12) {
            0..=3 => {
                let pods = 1 + next(&mut state, 4);
                bench.claim(namespace, &claim, pods)
            }
            4..=5 => bench.remove(POOL, "resourcepoolclaims", namespace, &claim),
            6..=8 => bench.create("", "pods", namespace, &pod, json!({"spec": {"containers": [{"name": "c"}]}})),
            9..=10 => bench.remove("", "pods", namespace, &pod),
            _ if turn % 3 == 0 => bench.remove("", "resourcequotas", namespace, "capsule-pool-p"),
            _ => {
                let hard = 4 + next(&mut state, 5);
                let key = ObjectKey::new(GroupResource::new(POOL, "resourcepools"), "", "p");
                bench.change(&key, |pool| pool["spec"]["quota"]["hard"]["pods"] = json!(hard.to_string()))
            }
        };
        match done {
            Ok(_) => granted += 1,
            Err(Refused::Bug(why)) => panic!("{why}"),
            Err(_) => refused += 1,
        }
        let sides = NAMESPACES.map(|namespace| bench.allowed_and_claimed(namespace));
        for (namespace, (allowed, claimed)) in NAMESPACES.iter().zip(sides) {
            assert_eq!(allowed, claimed, "turn {turn}: {namespace} is allowed what its claims do not have");
        }
        let pool = bench.shown(POOL, "resourcepools", "", "p").unwrap();
        let hard: u64 = pool["spec"]["quota"]["hard"]["pods"].as_str().unwrap().parse().unwrap();
        let sum: u64 = sides.iter().map(|(allowed, _)| allowed).sum();
        assert!(sum <= hard, "turn {turn}: {sum} of {hard}");
        if turn % 500 == 499 {
            let digest = bench.desk.engine.ledger.digest();
            bench = bench.restart();
            assert_eq!(bench.desk.engine.ledger.digest(), digest, "turn {turn}");
            bench.audit();
        }
    }
    assert!(granted > 500 && refused > 200, "{granted} granted, {refused} refused");
}

#[test]
fn the_same_commands_make_the_same_state() {
    let run = || {
        let mut bench = rig();
        bench.claim("n0", "one", 4).unwrap();
        bench.claim("n1", "two", 4).unwrap();
        bench.remove(POOL, "resourcepoolclaims", "n0", "one").unwrap();
        let quota = bench.shown("", "resourcequotas", "n1", "capsule-pool-p").unwrap();
        (bench.desk.engine.ledger.digest(), quota)
    };
    assert_eq!(run(), run());
}

#[test]
fn a_pool_that_is_edited_or_made_again_keeps_what_it_has_given() {
    let edits: [(&str, Edit); 5] = [
        ("a further resource", |pool| pool["spec"]["quota"]["hard"]["configmaps"] = json!("3")),
        ("the order of the line", |pool| pool["spec"]["config"]["orderedQueue"] = json!(true)),
        ("a further selector", |pool| {
            let more = json!({"matchLabels": {"tenant": "wind"}});
            pool["spec"]["selectors"].as_array_mut().unwrap().push(more);
        }),
        ("the size", |pool| pool["spec"]["quota"]["hard"]["pods"] = json!("5")),
        ("the defaults", |pool| drop(pool["spec"].as_object_mut().unwrap().remove("defaults"))),
    ];
    let key = ObjectKey::new(GroupResource::new(POOL, "resourcepools"), "", "p");
    for (what, edit) in edits {
        let mut bench = rig();
        bench.claim("n0", "one", 4).unwrap();
        bench.change(&key, edit).unwrap();
        assert_eq!(bench.allowed_and_claimed("n0"), (4, 4), "after a change of {what}");
        bench.audit();
        let mut bench = bench.restart();
        assert_eq!(bench.allowed_and_claimed("n0"), (4, 4), "after a change of {what} and a restart");
        let pod = json!({"spec": {"containers": [{"name": "c"}]}});
        let made = (0..6).filter(|n| bench.create("", "pods", "n0", &format!("p{n}"), pod.clone()).is_ok()).count();
        assert_eq!(made, 4, "after a change of {what}");
        bench.audit();
    }

    let mut bench = rig();
    bench.claim("n0", "one", 4).unwrap();
    let spec = bench.shown(POOL, "resourcepools", "", "p").unwrap()["spec"].clone();
    bench.remove(POOL, "resourcepools", "", "p").unwrap();
    bench.create(POOL, "resourcepools", "", "p", json!({"spec": spec})).unwrap();
    assert_eq!(bench.allowed_and_claimed("n0"), (4, 4), "made again");
    bench.audit();
}

#[test]
fn a_name_that_no_account_can_have_is_refused_and_moves_no_other() {
    let mut bench = rig();
    let key = ObjectKey::new(GroupResource::new(POOL, "resourcepools"), "", "p");
    let long = "a".repeat(ledger::KEY_TEXT_BYTES_MAX + 1);
    let refused = bench.change(&key, |pool| pool["spec"]["quota"]["hard"][&long] = json!("1")).unwrap_err();
    assert!(matches!(refused, Refused::Invalid(_)), "{refused:?}");
    bench.claim("n0", "one", 4).unwrap();
    assert_eq!(bench.allowed_and_claimed("n0"), (4, 4));
}

#[test]
fn who_came_first_is_served_first_whatever_the_clock_said() {
    let key = ObjectKey::new(GroupResource::new(POOL, "resourcepools"), "", "p");
    let claims = GroupResource::new(POOL, "resourcepoolclaims");
    for (what, restart, remade) in [("as it is", false, false), ("restarted", true, false), ("made again", false, true)]
    {
        let mut bench = rig();
        bench.change(&key, |pool| pool["spec"]["config"]["orderedQueue"] = json!(true)).unwrap();
        let come = |bench: &mut Bench, name: &str, pods: u64, created: &str| {
            let spec = json!({"pool": "p", "claim": {"pods": pods.to_string()}});
            let mut value = bench.draft("n0", name, json!({"spec": spec})).value;
            value["metadata"]["creationTimestamp"] = json!(created);
            let draft = Draft::new(value).unwrap();
            bench.write(ObjectKey::new(claims.clone(), "n0", name), WriteKind::Create(draft), false).unwrap();
        };
        come(&mut bench, "has", 4, "2026-01-02T00:00:00Z");
        come(&mut bench, "first", 5, "2026-01-02T00:00:01Z");
        come(&mut bench, "second", 3, "2026-01-01T00:00:00Z");
        if restart {
            bench = bench.restart();
        }
        if remade {
            let spec = bench.shown(POOL, "resourcepools", "", "p").unwrap()["spec"].clone();
            bench.remove(POOL, "resourcepools", "", "p").unwrap();
            bench.create(POOL, "resourcepools", "", "p", json!({"spec": spec})).unwrap();
        }
        bench.remove(POOL, "resourcepoolclaims", "n0", "has").unwrap();
        let uid = |name: &str| bench.desk.get(&ObjectKey::new(claims.clone(), "n0", name)).unwrap().uid;
        let waits = ["first", "second"].map(|name| bench.desk.engine.ledger.is_waiting(uid(name)));
        assert_eq!(waits, [false, true], "{what}");
        bench.audit();
    }
}

#[test]
fn a_namespace_has_so_many_claims_and_no_more() {
    let mut bench = rig();
    for at in 0..install::CLAIMS_MAX {
        bench.claim("n0", &format!("c{at}"), 1).unwrap();
    }
    let refused = bench.claim("n0", "one-more", 1).unwrap_err();
    assert!(format!("{refused:?}").contains("claims in namespace \\\"n0\\\" already"), "{refused:?}");
    bench.claim("n1", "elsewhere", 1).unwrap();
    bench.remove(POOL, "resourcepoolclaims", "n0", "c7").unwrap();
    bench.claim("n0", "one-more", 1).unwrap();
}

/// A commit is bounded: quotas that do not fit into the one of the pool's edit follow in the next, also after a crash between.
#[test]
fn quotas_too_long_for_one_commit_follow_in_bounded_steps() {
    const SPACES: usize = 100;
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    let namespaces: Vec<String> = (0..SPACES).map(|number| format!("n{number}")).collect();
    for name in &namespaces {
        bench.create("", "namespaces", "", name, json!({"labels": {"tenant": "solar"}})).unwrap();
    }
    let spec = json!({
        "quota": {"hard": {"pods": "6"}}, "selectors": [{"matchLabels": {"tenant": "solar"}}],
        "defaults": {"pods": "0"},
    });
    bench.create(POOL, "resourcepools", "", "p", json!({"spec": spec})).unwrap();
    // What their owners write on them makes them long.
    let long = "x".repeat(250_000);
    for namespace in &namespaces {
        let quota = ObjectKey::new(GroupResource::core("resourcequotas"), namespace, "capsule-pool-p");
        bench.change(&quota, |quota| quota["metadata"]["annotations"] = json!({"long": long})).unwrap();
    }
    let listed = |bench: &Bench| {
        let quotas = namespaces.iter().map(|namespace| bench.shown("", "resourcequotas", namespace, "capsule-pool-p"));
        quotas.filter(|quota| quota.as_ref().unwrap()["spec"]["hard"].get("services").is_some()).count()
    };
    assert_eq!(listed(&bench), 0);
    // The step of the edit, as the sequencer makes it.
    let pool = ObjectKey::new(GroupResource::new(POOL, "resourcepools"), "", "p");
    let mut value = bench.desk.get(&pool).unwrap().value();
    value["spec"]["quota"]["hard"]["services"] = json!("3");
    value["spec"]["defaults"]["services"] = json!("0");
    let kind = WriteKind::Update { draft: Draft::new(value).unwrap(), expect: Expect::default(), status: false };
    let write =
        Write { key: pool, kind, dry_run: false, now_ms: 0, foresight: Foresight::None, origin: Origin::default() };
    bench.desk.engine.write(write).unwrap().unwrap();
    let bytes = bench.desk.engine.written_bytes;
    assert!(bytes < 20 << 20, "{bytes} bytes in one commit");
    bench.desk.keep();
    let first = listed(&bench);
    assert!(first > 5 && first < SPACES, "{first} of {SPACES}");
    bench.audit();
    bench = bench.restart();
    let mut steps = 0;
    while listed(&bench) < SPACES {
        assert!(bench.desk.take_stale_status(), "somebody has to go on");
        bench.desk.publish(0);
        steps += 1;
        assert!(steps < 20);
    }
    bench.audit();
}

#[test]
fn a_claim_that_waits_for_more_keeps_what_it_has() {
    let mut settings = families::Settings::default();
    settings.capsule.reading = families::capsule::Reading::Releases;
    let mut bench = rig_with(&settings);
    bench.claim("n0", "first", 3).unwrap();
    bench.claim("n1", "other", 2).unwrap();
    bench.claim("n0", "large", 9).unwrap();
    let resize = |bench: &mut Bench, pods: &str| {
        let key = ObjectKey::new(GroupResource::new(POOL, "resourcepoolclaims"), "n0", "first");
        let mut claim = bench.desk.get(&key).unwrap().value();
        claim["spec"]["claim"]["pods"] = json!(pods);
        let draft = Draft::new(claim).unwrap();
        bench.write(key, WriteKind::Update { draft, expect: Expect::default(), status: false }, false)
    };
    let allowed = |bench: &Bench| {
        bench.shown("", "resourcequotas", "n0", "capsule-pool-p").unwrap()["spec"]["hard"]["pods"].clone()
    };
    let bound = |bench: &Bench| {
        let claim = bench.shown(POOL, "resourcepoolclaims", "n0", "first").unwrap();
        let conditions = claim["status"]["conditions"].as_array().unwrap().clone();
        conditions.into_iter().find(|one| one["type"] == "Bound").unwrap()["reason"].clone()
    };
    // Five and two do not fit into six: it waits, and its three stay its own, whoever asks for them.
    resize(&mut bench, "5").unwrap();
    assert_eq!(allowed(&bench), "3");
    assert_eq!(bound(&bench), "Failed");
    bench.claim("n2", "late", 2).unwrap();
    assert_eq!(bench.shown("", "resourcequotas", "n2", "capsule-pool-p").unwrap()["spec"]["hard"]["pods"], "0");
    bench.create("", "pods", "n0", "a", json!({"spec": {"containers": [{"name": "c"}]}})).unwrap();
    while bench.desk.publish(0) > 0 {}
    bench.audit();
    // What it keeps is in use, and cannot be taken away.
    assert_eq!(bound(&bench), "InUse");
    assert!(bench.remove(POOL, "resourcepoolclaims", "n0", "first").is_err());
    assert!(resize(&mut bench, "1").is_err());
    let mut bench = bench.restart();
    assert_eq!(allowed(&bench), "3");
    bench.remove(POOL, "resourcepoolclaims", "n1", "other").unwrap();
    assert_eq!(allowed(&bench), "5");
    bench.audit();
}

#[test]
fn the_limits_of_a_pool_change_together() {
    let mut bench = rig();
    let pool = ObjectKey::new(GroupResource::new(POOL, "resourcepools"), "", "p");
    bench.change(&pool, |pool| pool["spec"]["quota"]["hard"] = json!({"pods": "1", "requests.cpu": "2"})).unwrap();
    let spec = json!({"pool": "p", "claim": {"pods": "2", "requests.cpu": "2"}});
    bench.create(POOL, "resourcepoolclaims", "n0", "waits", json!({"spec": spec})).unwrap();
    // There are pods enough now, and at no moment cpus to go with them.
    bench.change(&pool, |pool| pool["spec"]["quota"]["hard"] = json!({"pods": "2", "requests.cpu": "0"})).unwrap();
    assert_eq!(bench.allowed_and_claimed("n0"), (0, 0));
    assert_eq!(bench.report().over, Vec::<String>::new());
    bench.audit();
    bench.change(&pool, |pool| pool["spec"]["quota"]["hard"] = json!({"pods": "2", "requests.cpu": "2"})).unwrap();
    assert_eq!(bench.allowed_and_claimed("n0"), (2, 2));
}
