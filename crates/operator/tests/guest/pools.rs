//! Pools: what a claim has given up is nobody else's before the cluster allows it no more to whoever had it.

use simulator::rng::Rng;

use super::town::{Town, claim, claims, cpu, kept, pools};
use super::*;

const NAMESPACES: [&str; 3] = ["a", "b", "c"];

fn asking(amount: u64) -> Value {
    json!({"spec": {"pool": "gold", "claim": {"limits.cpu": amount.to_string()}}})
}

fn hard(town: &Town, namespace: &str) -> u64 {
    town.stored.get(&kept(namespace)).map_or(0, |quota| cpu(quota, "/spec/hard/limits.cpu"))
}

fn said(refused: Result<(), Refused>) -> String {
    match refused {
        Err(Refused::Said { refusal, .. }) => refusal.message,
        other => panic!("{other:?}"),
    }
}

fn is_waiting(town: &Town, namespace: &str, name: &str) -> bool {
    let claim = &town.stored[&claim(namespace, name)];
    let conditions = claim["status"]["conditions"].as_array().unwrap();
    conditions.iter().any(|one| one["type"] == "Exhausted" && one["status"] == "True")
}

#[test]
fn a_claim_gets_its_quota_and_the_next_one_waits_until_what_was_given_up_is_allowed_no_more() {
    let mut town = Town::new(10, &NAMESPACES);
    town.write(&claim("a", "x"), asking(10)).unwrap();
    town.write(&claim("b", "y"), asking(4)).unwrap();
    town.rest();
    assert_eq!((hard(&town, "a"), hard(&town, "b")), (10, 0));
    assert!(!is_waiting(&town, "a", "x") && is_waiting(&town, "b", "y"));
    // What is in use stays, and the status of the quota tells that.
    assert!(town.run("a", 3));
    town.tell_all();
    assert!(said(town.end(&claim("a", "x"))).contains("claim is used"));
    assert!(said(town.write(&claim("a", "x"), asking(2))).contains("cannot change"));
    town.pods.clear();
    town.rest();
    town.end(&claim("a", "x")).unwrap();
    // Pods come at the last moment, before the quota is smaller.
    assert!(town.run("a", 7));
    town.tell(&claims(), 9);
    assert!(town.keeps_back());
    town.rest();
    assert_eq!((hard(&town, "a"), hard(&town, "b")), (0, 0), "7 are in use, 4 would be too much");
    assert!(is_waiting(&town, "b", "y"));
    town.pods.insert("a".into(), 6);
    town.rest();
    assert_eq!((hard(&town, "a"), hard(&town, "b")), (0, 4));
    assert!(town.keeps_back(), "6 are still in use, and nobody's");
    town.pods.clear();
    town.rest();
    assert!(!town.keeps_back());
    town.bench.audit();
}

#[test]
fn what_the_api_server_goes_by_counts_and_not_what_a_quota_says() {
    let mut town = Town::new(10, &NAMESPACES);
    town.write(&claim("a", "x"), asking(10)).unwrap();
    town.rest();
    town.end(&claim("a", "x")).unwrap();
    town.write(&claim("b", "y"), asking(10)).unwrap();
    town.tell_all();
    let pushes = std::mem::take(&mut town.under_way);
    pushes.iter().for_each(|push| town.carry_out(push));
    town.tell_all();
    assert_eq!((hard(&town, "a"), town.allowed("a")), (0, 10), "nobody told the API server yet");
    town.publish();
    assert!(town.keeps_back() && hard(&town, "b") == 0);
    town.control("a");
    town.rest();
    assert_eq!((hard(&town, "a"), hard(&town, "b")), (0, 10));
    // A start finds out again what may still be had.
    town.end(&claim("b", "y")).unwrap();
    town.crash();
    town.write(&claim("c", "z"), asking(10)).unwrap();
    town.tell_all();
    assert!(town.keeps_back());
    town.rest();
    assert_eq!((hard(&town, "b"), hard(&town, "c")), (0, 10));
    assert!(!town.keeps_back());
    town.bench.audit();
}

#[test]
fn a_larger_quota_that_was_sent_and_not_seen_counts_until_it_cannot_be_stored_any_more() {
    let mut town = Town::new(10, &NAMESPACES);
    town.write(&claim("a", "x"), asking(10)).unwrap();
    town.tell_all();
    // It is on its way, for long.
    let late = std::mem::take(&mut town.under_way);
    town.end(&claim("a", "x")).unwrap();
    town.write(&claim("b", "y"), asking(10)).unwrap();
    town.tell_all();
    assert!(town.keeps_back());
    assert_eq!(hard(&town, "b"), 0);
    // Whether it comes or not: somebody writes once more what is there, and then it cannot.
    town.rest();
    assert_eq!((hard(&town, "a"), hard(&town, "b")), (0, 10));
    late.iter().for_each(|push| town.carry_out(push));
    assert_eq!(town.allowed("a"), 0);
    town.rest();
    assert!(!town.keeps_back());
    // The same with a start in between.
    town.end(&claim("b", "y")).unwrap();
    town.rest();
    town.write(&claim("a", "x"), asking(10)).unwrap();
    town.tell_all();
    let late = std::mem::take(&mut town.under_way);
    town.end(&claim("a", "x")).unwrap();
    town.crash();
    town.write(&claim("b", "y"), asking(10)).unwrap();
    town.rest();
    late.iter().for_each(|push| town.carry_out(push));
    assert_eq!((town.allowed("a"), hard(&town, "b")), (0, 10));
    town.rest();
    assert!(!town.keeps_back());
    town.bench.audit();
}

#[test]
fn claims_without_a_pool_get_one_and_what_is_written_wrongly_is_refused() {
    let mut town = Town::new(10, &NAMESPACES);
    let mut asked = asking(3);
    asked["spec"]["pool"] = json!("");
    town.write(&claim("a", "x"), asked).unwrap();
    town.rest();
    assert_eq!(town.stored[&claim("a", "x")]["spec"]["pool"], "gold");
    assert_eq!(hard(&town, "a"), 3);
    let wrong = json!({"spec": {"pool": "gold", "claim": {"limits.cpu": "-1"}}});
    assert!(said(town.write(&claim("a", "y"), wrong)).contains("greater than or equal to 0"));
    let gold = ObjectKey::new(pools(), "", "gold");
    let there = town.stored[&gold].clone();
    assert!(there["metadata"]["finalizers"].is_null(), "nothing here keeps it from going");
    let with = |path: &str, value: Value| {
        let mut pool = there.clone();
        *pool.pointer_mut(path).unwrap() = value;
        pool
    };
    let smaller = with("/spec/quota/hard", json!({"limits.cpu": "2"}));
    assert!(said(town.write(&gold, smaller)).contains("can not reduce limits.cpu"));
    let scoped = with("/spec/quota", json!({"hard": {"limits.cpu": "10"}, "scopes": ["Terminating"]}));
    assert!(said(town.write(&gold, scoped)).contains("make another pool"));
    let offering = with("/spec", json!({"quota": there["spec"]["quota"], "config": {"jitClaims": true}}));
    assert!(said(town.write(&gold, offering)).contains("jitClaims"));
    let zero = json!({"spec": {"quota": {"hard": {"pods": "2"}}, "config": {"defaultsZero": true}}});
    town.write(&ObjectKey::new(pools(), "", "zero"), zero).unwrap();
    town.rest();
    assert_eq!(town.stored[&ObjectKey::new(pools(), "", "zero")]["spec"]["defaults"], json!({"pods": "0"}));
    // One that somebody else held is let go of, also on its way out.
    for leaves in [Value::Null, json!("2026-01-01T00:00:00Z")] {
        let mut held = town.stored[&gold].clone();
        held["metadata"]["finalizers"] = json!(["controller.projectcapsule.dev/finalize"]);
        held["metadata"]["deletionTimestamp"] = leaves;
        town.store(&gold, held);
        town.rest();
        assert!(town.stored.get(&gold).is_none_or(|pool| pool["metadata"]["finalizers"].is_null()));
    }
}

#[test]
fn who_writes_over_a_quota_or_deletes_it_is_written_over_and_nobody_else_has_it_meanwhile() {
    let mut town = Town::new(10, &NAMESPACES);
    town.write(&claim("a", "x"), asking(4)).unwrap();
    town.rest();
    let mut larger = town.stored[&kept("a")].clone();
    larger["spec"]["hard"]["limits.cpu"] = json!("9");
    town.store(&kept("a"), larger);
    town.tell_all();
    town.write(&claim("b", "y"), asking(3)).unwrap();
    town.tell_all();
    assert!(town.keeps_back());
    town.rest();
    assert_eq!((hard(&town, "a"), hard(&town, "b")), (4, 3));
    town.remove(&kept("a"));
    town.rest();
    assert_eq!(hard(&town, "a"), 4);
    assert!(!town.keeps_back());
    // A namespace that leaves, with what it has.
    town.relabel("a", false);
    town.write(&claim("b", "z"), asking(7)).unwrap();
    town.tell_all();
    assert!(town.keeps_back(), "its quota is still there");
    town.rest();
    assert_eq!((town.stored.get(&kept("a")), hard(&town, "b")), (None, 10));
    assert!(!town.keeps_back());
    town.bench.audit();
}

const LIMIT: u64 = 10;

/// How much happened: asked and granted, refused, pods that came, and steps in which something was kept back.
fn play(seed: u64, steps: u64) -> [u64; 4] {
    let (mut town, mut rng) = (Town::new(LIMIT, &NAMESPACES), Rng::new(seed));
    let (mut granted, mut refused, mut ran, mut kept_back) = (0, 0, 0, 0);
    for step in 0..steps {
        let namespace = NAMESPACES[rng.index(NAMESPACES.len())];
        let key = claim(namespace, &format!("c{}", rng.below(4)));
        let amount = 1 + rng.below(7);
        match rng.below(100) {
            0..15 => {
                let asked = match town.stored.get(&key).cloned() {
                    None => asking(amount),
                    Some(mut there) => {
                        there["spec"] = asking(amount)["spec"].clone();
                        there["metadata"]["annotations"] = json!({"projectcapsule.dev/release": "true"});
                        there
                    }
                };
                match town.write(&key, asked) {
                    Ok(()) => granted += 1,
                    Err(_) => refused += 1,
                }
            }
            15..26 if town.stored.contains_key(&key) => match town.end(&key) {
                Ok(()) => granted += 1,
                Err(_) => refused += 1,
            },
            26..50 => {
                let resources: Vec<GroupResource> = town.events.keys().cloned().collect();
                if !resources.is_empty() {
                    let resource = &resources[rng.index(resources.len())];
                    town.tell(resource, 1 + rng.index(6));
                }
            }
            50..68 if !town.under_way.is_empty() => {
                for _ in 0..rng.index(town.under_way.len().min(4)) + 1 {
                    let at = rng.index(town.under_way.len());
                    let push = town.under_way.swap_remove(at);
                    town.carry_out(&push);
                }
            }
            68..76 => town.control(namespace),
            76..85 => ran += u64::from(town.run(namespace, 1 + rng.below(2))),
            85..88 => drop(town.pods.insert(namespace.to_owned(), 0)),
            88..94 => town.publish(),
            94..96 => {
                // Pods of a namespace that left are nobody's.
                let leaves = rng.one_in(2);
                if leaves && town.stored.contains_key(&kept(namespace)) {
                    town.pods.insert(namespace.to_owned(), 0);
                    town.control(namespace);
                }
                town.relabel(namespace, !leaves);
            }
            96..98 => {
                // What it was about to write is lost, or is stored after all.
                town.under_way.retain(|_| rng.one_in(2));
                town.crash();
            }
            _ => {}
        }
        let allowed: Vec<u64> = NAMESPACES.iter().map(|namespace| town.allowed(namespace)).collect();
        assert!(allowed.iter().sum::<u64>() <= LIMIT, "seed {seed}, step {step}: {allowed:?} of {LIMIT}");
        kept_back += u64::from(town.keeps_back());
        if step % 50 == 0 {
            town.bench.audit();
        }
    }
    town.pods.clear();
    NAMESPACES.iter().for_each(|namespace| town.relabel(namespace, true));
    town.rest();
    town.bench.audit();
    assert!(!town.keeps_back(), "seed {seed}");
    let asked = |key: &ObjectKey| cpu(&town.stored[key], "/spec/claim/limits.cpu");
    let served = |key: &&ObjectKey| key.resource == claims() && !is_waiting(&town, &key.namespace, &key.name);
    for namespace in NAMESPACES {
        let all: u64 = town.stored.keys().filter(|key| &*key.namespace == namespace).filter(served).map(asked).sum();
        assert_eq!(hard(&town, namespace), all, "seed {seed}, {namespace}");
    }
    [granted, refused, ran, kept_back]
}

#[test]
fn what_quotas_allow_together_is_never_more_than_the_pool() {
    let mut happened = [0; 4];
    for seed in 0..30 {
        let more = play(seed, 400);
        happened.iter_mut().zip(more).for_each(|(all, more)| *all += more);
    }
    assert!(happened.iter().all(|all| *all > 100), "too little happened: {happened:?}");
}
