//! What was too much for one step is never late for whoever writes where it limits.

use rules::cel::evaluations;
use serde_json::{Value, json};

use super::*;

const CAPSULE: &str = "capsule.clastix.io";

fn pool_key() -> ObjectKey {
    ObjectKey::new(GroupResource::new(CAPSULE, "resourcepools"), "", "p")
}

fn quota_key(namespace: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::core("resourcequotas"), namespace, "capsule-pool-p")
}

fn pool(config: Value) -> Value {
    json!({"spec": {
        "selectors": [{"matchLabels": {"tenant": "solar"}}],
        "quota": {"hard": {"requests.cpu": "5", "pods": "900"}},
        "defaults": {"requests.cpu": "0", "pods": "0"},
        "config": config,
    }})
}

fn pod(cpu: &str) -> Value {
    let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}})
}

fn claim(cpu: &str) -> Value {
    json!({"spec": {"pool": "p", "claim": {"requests.cpu": cpu, "pods": "1"}}})
}

/// Namespaces of one tenant, named so that the last comes last.
fn spaces(count: usize) -> (Bench, Vec<String>) {
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    let names: Vec<String> = (0..count).map(|number| format!("n{number:04}")).collect();
    for name in &names {
        bench.create("", "namespaces", "", name, json!({"labels": {"tenant": "solar"}})).unwrap();
    }
    (bench, names)
}

impl Bench {
    fn millis_of(&self, key: &ObjectKey, resource: &str) -> i64 {
        let lines = self.desk.of(&policy_name(&key.resource, &key.namespace, &key.name));
        let line = lines.iter().find(|line| &*line.resource == resource && line.bucket.is_empty());
        i64::try_from(line.map_or(0, |line| line.balance.used.nanos()) / 1_000_000).unwrap()
    }

    /// Millicpus that pods use, against those that the pool has given away.
    fn covered(&self, namespaces: &[String]) -> (i64, i64) {
        let used = namespaces.iter().map(|namespace| self.millis_of(&quota_key(namespace), "requests.cpu")).sum();
        (used, self.millis_of(&pool_key(), "requests.cpu"))
    }

    fn caught_up(&mut self) {
        while self.desk.publish(0) > 0 {}
        self.audit();
    }
}

#[test]
fn a_pool_limits_the_last_of_its_namespaces_from_its_first_moment() {
    let (mut bench, names) = spaces(600);
    bench.create(CAPSULE, "resourcepools", "", "p", pool(json!({}))).unwrap();
    let last = &names[599];
    assert!(bench.desk.get(&quota_key(last)).is_none(), "it was too much for one step");
    assert!(matches!(bench.create("", "pods", last, "x", pod("1")), Err(Refused::Denied(_))));
    assert!(bench.desk.get(&quota_key(last)).is_some());
    // The same after an end in the middle of it.
    let mut bench = bench.restart();
    let near = &names[598];
    assert!(matches!(bench.create("", "pods", near, "x", pod("1")), Err(Refused::Denied(_))));
    bench.caught_up();
}

/// Quotas that somebody made long fill a step before the one comes that has to shrink.
#[test]
fn a_namespace_that_gave_back_cannot_use_it_because_others_are_long() {
    let (mut bench, names) = spaces(14);
    bench.create(CAPSULE, "resourcepools", "", "p", pool(json!({}))).unwrap();
    let (last, others) = names.split_last().unwrap();
    let long: serde_json::Map<String, Value> =
        (0..1400).map(|number| (format!("note-{number}"), "x".repeat(1000).into())).collect();
    for name in others {
        bench.change(&quota_key(name), |quota| quota["metadata"]["annotations"] = long.clone().into()).unwrap();
    }
    bench.create(CAPSULE, "resourcepoolclaims", last, "c", claim("5")).unwrap();
    for name in others {
        bench.create(CAPSULE, "resourcepoolclaims", name, "c", claim("380m")).unwrap();
    }
    let claim = ObjectKey::new(GroupResource::new(CAPSULE, "resourcepoolclaims"), last, "c");
    bench.write(claim, WriteKind::Delete { expect: Expect::default(), last: None }, false).unwrap();
    let stale = bench.desk.get(&quota_key(last)).unwrap().value()["spec"]["hard"]["requests.cpu"].clone();
    assert_eq!(stale, "5", "it was too much for one step");
    assert!(
        matches!(bench.create("", "pods", last, "x", pod("1")), Err(Refused::Denied(_))),
        "it has nothing any more"
    );
    bench.caught_up();
    let (used, given) = bench.covered(&names);
    assert_eq!((used, given), (0, 13 * 380));
}

#[test]
fn claims_made_for_workloads_outlive_the_absence_of_their_quota() {
    let (mut bench, names) = spaces(300);
    bench.create(CAPSULE, "resourcepools", "", "p", pool(json!({"jitClaims": true}))).unwrap();
    let homes = [&names[0], &names[299]];
    for home in homes {
        bench.create("", "pods", home, "x", pod("1")).unwrap();
    }
    let claims = |bench: &Bench| bench.desk.list(&GroupResource::new(CAPSULE, "resourcepoolclaims")).count();
    assert_eq!((claims(&bench), bench.covered(&names)), (2, (2000, 2000)));
    // Selected no longer, and again; what is written meanwhile makes no difference.
    let select = |bench: &mut Bench, tenant: &str| {
        let selectors = json!([{"matchLabels": {"tenant": tenant}}]);
        bench.change(&pool_key(), |pool| pool["spec"]["selectors"] = selectors).unwrap();
    };
    select(&mut bench, "nobody");
    let pod_key = ObjectKey::new(GroupResource::core("pods"), homes[1], "x");
    bench.change(&pod_key, |pod| pod["metadata"]["labels"] = json!({"a": "b"})).unwrap();
    bench.caught_up();
    select(&mut bench, "solar");
    bench.caught_up();
    assert_eq!((claims(&bench), bench.covered(&names)), (2, (2000, 2000)));
    // The pool goes and comes back, with a restart in between.
    bench.write(pool_key(), WriteKind::Delete { expect: Expect::default(), last: None }, false).unwrap();
    bench.caught_up();
    let mut bench = bench.restart();
    bench.caught_up();
    assert_eq!(claims(&bench), 2);
    bench.create(CAPSULE, "resourcepools", "", "p", pool(json!({"jitClaims": true}))).unwrap();
    bench.caught_up();
    assert_eq!((claims(&bench), bench.covered(&names)), (2, (2000, 2000)));
    // A workload that ends while nothing counts it leaves nothing behind once something does; one that goes takes its claim along.
    select(&mut bench, "nobody");
    bench.caught_up();
    bench.change(&pod_key, |pod| pod["status"] = json!({"phase": "Succeeded"})).unwrap();
    bench
        .write(
            ObjectKey::new(GroupResource::core("pods"), homes[0], "x"),
            WriteKind::Delete { expect: Expect::default(), last: None },
            false,
        )
        .unwrap();
    assert_eq!(claims(&bench), 1);
    select(&mut bench, "solar");
    bench.caught_up();
    assert_eq!((claims(&bench), bench.covered(&names)), (0, (0, 0)));
}

#[test]
fn a_claim_with_the_name_of_another_s_is_nobody_s() {
    let (mut bench, names) = spaces(2);
    bench.create(CAPSULE, "resourcepools", "", "p", pool(json!({"jitClaims": true}))).unwrap();
    let pod = bench.create("", "pods", &names[0], "x", pod("1")).unwrap();
    let forged = format!("jit-{}", kinds::uid::text(pod.object.uid));
    bench.create(CAPSULE, "resourcepoolclaims", &names[1], &forged, claim("3")).unwrap();
    let key = |namespace: &str| ObjectKey::new(GroupResource::new(CAPSULE, "resourcepoolclaims"), namespace, &forged);
    let delete = || WriteKind::Delete { expect: Expect::default(), last: None };
    assert!(matches!(bench.write(key(&names[0]), delete(), false), Err(Refused::Said { .. })), "that one is the pod's");
    bench.write(key(&names[1]), delete(), false).unwrap();
    assert_eq!(bench.millis_of(&pool_key(), "requests.cpu"), 1000);
    bench.caught_up();
}

/// A status that somebody writes on a quota which is behind: it must not become what it has to be only in words.
#[test]
fn a_status_does_not_hide_that_a_quota_changed_with_it() {
    let (mut bench, names) = spaces(1);
    bench.create(CAPSULE, "resourcepools", "", "p", pool(json!({}))).unwrap();
    bench.create(CAPSULE, "resourcepoolclaims", &names[0], "c", claim("5")).unwrap();
    let key = quota_key(&names[0]);
    // As it was, before its pool gave less.
    let mut value = bench.desk.get(&key).unwrap().value();
    let (stale, _) = Draft::new(value.clone()).unwrap().finish(key.clone(), bench.desk.engine.revision(), 1);
    let gone = ObjectKey::new(GroupResource::new(CAPSULE, "resourcepoolclaims"), &names[0], "c");
    bench.desk.engine.set_bounds(Bounds { bytes: 0, ..Bounds::default() });
    bench.write(gone, WriteKind::Delete { expect: Expect::default(), last: None }, false).unwrap();
    assert_eq!(bench.desk.get(&key).unwrap().json, stale.json, "too much for its step");
    bench.desk.engine.set_bounds(Bounds::default());
    value["status"] = json!({"used": {"pods": "7"}});
    let draft = Draft::new(value).unwrap();
    let update = WriteKind::Update { draft, expect: Expect::default(), status: true };
    bench.write(key, update, false).unwrap();
    assert!(matches!(bench.create("", "pods", &names[0], "x", pod("1")), Err(Refused::Denied(_))));
    bench.desk.publish(60_000);
    bench.caught_up();
}

/// A world in which every step is too small for what follows: pools, claims, pods and namespaces are edited in a random order,
/// with restarts. Whoever is let in is covered by claims, counted from the stored objects alone.
#[test]
fn nobody_gains_from_steps_that_are_too_small() {
    for seed in 1..=120 {
        small_steps(seed);
    }
}

fn small_steps(seed: u64) {
    let mut state = seed;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut bench, names) = spaces(4);
    bench.create(CAPSULE, "resourcepools", "", "p", pool(json!({"jitClaims": seed.is_multiple_of(3)}))).unwrap();
    let mut let_in = 0;
    for number in 0..60 {
        let small =
            Bounds { bytes: [0, 1, 3000][draw(3) as usize], made: draw(2) as usize, caught_up: 1, ..Bounds::default() };
        bench.desk.engine.set_bounds(small);
        let home = &names[draw(4) as usize];
        let any = |bench: &Bench, kind: &GroupResource, pick: u64| {
            let all: Vec<ObjectKey> = bench.desk.within(kind, home).map(|one| one.key.clone()).collect();
            all.get(usize::try_from(pick).unwrap() % all.len().max(1)).cloned()
        };
        let (claims, pods) = (GroupResource::new(CAPSULE, "resourcepoolclaims"), GroupResource::core("pods"));
        let delete = WriteKind::Delete { expect: Expect::default(), last: None };
        let pick = draw(9);
        match draw(9) {
            0 | 1 => drop(bench.create(CAPSULE, "resourcepoolclaims", home, &format!("c{number}"), claim("2"))),
            2 => drop(any(&bench, &claims, pick).map(|key| bench.write(key, delete, false))),
            3 => drop(any(&bench, &pods, pick).map(|key| bench.write(key, delete, false))),
            4 => {
                let tenant = if pick < 3 { "nobody" } else { "solar" };
                let key = ObjectKey::new(GroupResource::core("namespaces"), "", home);
                bench.change(&key, |one| one["metadata"]["labels"] = json!({"tenant": tenant})).unwrap();
            }
            5 => {
                let cpu = (pick + 1).to_string();
                let _ = bench.change(&pool_key(), |pool| pool["spec"]["quota"]["hard"]["requests.cpu"] = cpu.into());
            }
            6 => drop(bench.desk.publish(0)),
            7 if pick == 0 => bench = bench.restart(),
            _ => {
                let selected =
                    bench.desk.engine.shelves.get(&ObjectKey::new(GroupResource::core("namespaces"), "", home));
                let selected = selected.unwrap().value()["metadata"]["labels"]["tenant"] == "solar";
                if bench.create("", "pods", home, &format!("x{number}"), pod("1")).is_ok() && selected {
                    let_in += 1;
                    let (used, covered) = (millis_of_pods(&bench, home), millis_of_claims(&bench, home));
                    assert!(used <= covered, "seed {seed}, step {number}: {used} used in {home}, {covered} claimed");
                }
            }
        }
    }
    bench.desk.engine.set_bounds(Bounds::default());
    bench.caught_up();
    assert!(let_in > 0 || !seed.is_multiple_of(3), "seed {seed}: nobody was let in");
}

fn millis_of_pods(bench: &Bench, namespace: &str) -> usize {
    1000 * bench.desk.within(&GroupResource::core("pods"), namespace).count()
}

/// What the claims there that have their resources say they have. Each asks for whole cpus.
fn millis_of_claims(bench: &Bench, namespace: &str) -> usize {
    let kind = GroupResource::new(CAPSULE, "resourcepoolclaims");
    let claims = bench.desk.within(&kind, namespace);
    let has = claims.filter(|claim| {
        let state = bench.desk.engine.ledger.explain(claim.uid).state;
        matches!(state, Some(ledger::State::Charged))
    });
    has.map(|claim| 1000 * claim.value()["spec"]["claim"]["requests.cpu"].as_str().unwrap().parse::<usize>().unwrap())
        .sum()
}

/// What limits from outside of namespaces and was left behind is not forgotten by an end in between.
#[test]
fn a_pool_that_is_to_shrink_grants_nothing_after_a_restart() {
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    bench.create("", "namespaces", "", "t", json!({"labels": {"tenant": "solar"}})).unwrap();
    let node = |cpu: &str| json!({"labels": {"pool": "solar"}, "status": {"allocatable": {"cpu": cpu}}});
    bench.create("", "nodes", "", "n", node("10")).unwrap();
    for name in ["a", "m", "z"] {
        let spec = json!({
            "selectors": [{"matchLabels": {"tenant": "solar"}}],
            "quota": {"hard": {"requests.cpu": "1000"}},
            "nodes": {"selector": {"matchLabels": {"pool": "solar"}}, "shares": {"requests.cpu": "100%"}},
        });
        bench.create(CAPSULE, "resourcepools", "", name, json!({"spec": spec})).unwrap();
    }
    bench.desk.engine.bounds.bytes = 1;
    let of_node = ObjectKey::new(GroupResource::core("nodes"), "", "n");
    bench.change(&of_node, |one| one["status"]["allocatable"]["cpu"] = "2".into()).unwrap();
    let of_last = ObjectKey::new(GroupResource::new(CAPSULE, "resourcepools"), "", "z");
    let hard =
        |bench: &Bench| bench.desk.get(&of_last).unwrap().value()["spec"]["quota"]["hard"]["requests.cpu"].clone();
    assert_eq!(hard(&bench), "10", "it was too much for one step");
    let mut bench = bench.restart();
    let claim = json!({"spec": {"pool": "z", "claim": {"requests.cpu": "9"}}});
    bench.create(CAPSULE, "resourcepoolclaims", "t", "c", claim).unwrap();
    assert_eq!((hard(&bench), bench.millis_of(&of_last, "requests.cpu")), ("2".into(), 0), "the claim waits");
    bench.caught_up();
}

/// Takes a step of its own.
const LONG: &str = "lists.range(200).exists(x, lists.range(200).exists(y, x * y == -1)) ? 1 : 1";

/// A quota by an expression over all objects of a kind.
fn counted_by_expression(kind: &str) -> Value {
    json!({"spec": {"limit": "1000", "sources": [{"apiVersion": "v1", "kind": kind, "cel": LONG}]}})
}

/// A tree below one namespace, with a quota over it, that is not yet below the root: what it has in each namespace is in `each`.
fn tree(children: usize, quota: &Value, each: &[(&str, &str)]) -> (Bench, Vec<String>) {
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    let names: Vec<String> = (0..children).map(|number| format!("n{number}")).collect();
    for name in ["root", "team"].into_iter().chain(names.iter().map(String::as_str)) {
        bench.create("", "namespaces", "", name, json!({})).unwrap();
    }
    for name in &names {
        bench.put_below(name, "team").unwrap();
        for (resource, object) in each {
            bench.create("", resource, name, object, json!({})).unwrap();
        }
    }
    let hard = json!({"spec": {"hard": {"secrets": "3"}}});
    bench.create("hnc.x-k8s.io", "hierarchicalresourcequotas", "root", "whole", hard).unwrap();
    bench.create(CAPSULE, "globalcustomquotas", "", "long", quota.clone()).unwrap();
    while bench.desk.publish(0) > 0 {}
    (bench, names)
}

impl Bench {
    fn depth_below_root(&self, name: &str) -> Option<String> {
        let labels = self.desk.get(&namespace_key(name)).unwrap().value();
        labels["metadata"]["labels"]["root.tree.hnc.x-k8s.io/depth"].as_str().map(str::to_owned)
    }

    fn counted(&self) -> String {
        let key = ObjectKey::new(GroupResource::new(CAPSULE, "globalcustomquotas"), "", "long");
        let lines = self.desk.of(&policy_name(&key.resource, "", "long"));
        lines.iter().find(|line| &*line.resource == "usage").map(|line| line.balance.used.to_string()).unwrap()
    }

    /// The most expressions that one step evaluated, until nothing is behind.
    fn most_until_caught_up(&mut self) -> u64 {
        let mut most = 0;
        loop {
            let before = evaluations();
            let left = self.desk.publish(0);
            most = most.max(evaluations() - before);
            if left == 0 {
                return most;
            }
        }
    }
}

fn namespace_key(name: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::core("namespaces"), "", name)
}

/// Nobody could bring what expressions give on namespaces that nobody wrote: where they take long, there is one in a step.
#[test]
fn what_follows_a_write_and_takes_long_has_steps_of_its_own() {
    let (mut bench, names) = tree(8, &counted_by_expression("Namespace"), &[]);
    let before = (bench.counted(), evaluations());
    bench.put_below("team", "root").unwrap();
    assert!(evaluations() - before.1 <= 1, "{} in the step of the write", evaluations() - before.1);
    let late: Vec<&String> = names.iter().filter(|name| bench.depth_below_root(name).is_none()).collect();
    assert!(late.len() >= 7, "{late:?}");
    // Whoever writes in one of them is limited by what is above it all the same.
    let (first, last) = (late[0].clone(), late[late.len() - 1].clone());
    for name in ["a", "b", "c"] {
        bench.create("", "secrets", &last, name, json!({})).unwrap();
    }
    assert_eq!(bench.depth_below_root(&last).as_deref(), Some("2"));
    assert!(matches!(bench.create("", "secrets", &last, "d", json!({})), Err(Refused::Denied(_))));
    assert!(matches!(bench.create("", "secrets", &first, "d", json!({})), Err(Refused::Denied(_))));
    // An end in between forgets none of them.
    let mut bench = bench.restart();
    assert!(bench.most_until_caught_up() <= 1);
    assert!(names.iter().all(|name| bench.depth_below_root(name).as_deref() == Some("2")));
    assert_eq!(bench.counted(), before.0);
    bench.audit();
}

/// The same where a namespace comes under a policy, or leaves it, with all that is in it.
#[test]
fn what_comes_along_with_a_namespace_of_a_tree_and_takes_long_has_a_step_a_namespace() {
    let mut quota = counted_by_expression("ConfigMap");
    let below = json!({"key": "root.tree.hnc.x-k8s.io/depth", "operator": "Exists"});
    quota["spec"]["namespaceSelectors"] = json!([{"matchExpressions": [below]}]);
    let (mut bench, names) = tree(5, &quota, &[("configmaps", "x"), ("configmaps", "y")]);
    assert_eq!(bench.counted(), "0");
    let before = evaluations();
    bench.put_below("team", "root").unwrap();
    assert!(evaluations() - before <= 2, "{} in the step of the write", evaluations() - before);
    assert!(bench.most_until_caught_up() <= 2);
    assert!(names.iter().all(|name| bench.depth_below_root(name).as_deref() == Some("2")));
    assert_eq!(bench.counted(), "10");
    bench.audit();
}
