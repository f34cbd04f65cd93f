//! What may stand in a line, and is counted before a write: afterwards everybody stands as if it had been counted in the step of the
//! write, and nobody else had been let in between.

use std::collections::BTreeMap;

use ledger::State;
use serde_json::{Value, json};

use super::*;

const DATUM: &str = "quota.datumapis.com";
const PROJECT: &str = "resources.datumapis.com/project";
const CAPSULE: &str = "capsule.clastix.io";
const CORES: &str = "x.example.com/cores";

/// How everybody stands, and what is used.
#[derive(Debug, PartialEq, Eq)]
struct Standings {
    of: BTreeMap<String, (bool, Vec<String>)>,
    balances: BTreeMap<String, String>,
    lines: BTreeMap<String, Vec<String>>,
}

impl Bench {
    fn standings(&self) -> Standings {
        let ledger = &self.desk.engine.ledger;
        let shown =
            |account| ledger.key(account).filter(|key| !retire::is_nobodys(&key.policy)).map(|key| key.to_string());
        let mut of = BTreeMap::new();
        let mut names = BTreeMap::new();
        let claims = [(DATUM, "resourcequotaclaims"), (CAPSULE, "resourcepoolclaims")];
        let claims = claims.map(|(group, resource)| GroupResource::new(group, resource));
        for claim in claims.iter().flat_map(|resource| self.desk.list(resource)) {
            names.insert(claim.uid, claim.key.to_string());
            let Some(view) = ledger.subject(claim.uid) else { continue };
            let waits = matches!(view.state, State::Waiting(_));
            let has = view.clone().into_charged().into_iter();
            let mut has: Vec<String> = has
                .filter_map(|charge| Some(format!("{} {}", shown(charge.account)?, charge.amount)))
                .chain(
                    view.charges
                        .iter()
                        .filter(|_| waits)
                        .filter_map(|charge| Some(format!("wants {} {}", shown(charge.account)?, charge.amount))),
                )
                .collect();
            has.sort();
            // What is retired is nobody's.
            if waits || !has.is_empty() {
                of.insert(claim.key.to_string(), (waits, has));
            }
        }
        let known = ledger.balances().filter(|(key, _)| !retire::is_nobodys(&key.policy));
        let said = |one: &ledger::Balance| {
            format!("{:?} used {} waiting {} of {}", one.limit, one.used, one.waiting, one.subjects)
        };
        let balances = known.map(|(key, one)| (key.to_string(), said(&one))).collect();
        let known = ledger.balances().filter(|(_, one)| one.waiting > 0);
        let line =
            |one: &ledger::Balance| ledger.waiting_for(one.account).iter().map(|who| names[who].clone()).collect();
        let lines = known.map(|(key, one)| (key.to_string(), line(&one))).collect();
        Standings { of, balances, lines }
    }

    fn claim_of(&mut self, namespace: &str, name: &str, cores: &str, region: &str) {
        let spec = json!({
            "resourceRef": {"kind": "Thing", "name": "t"}, "resources": [{"name": CORES, "quantity": cores}],
            "dimensions": {"region": region},
        });
        self.create(DATUM, "resourcequotaclaims", namespace, name, json!({"spec": spec})).unwrap();
    }

    fn pool_claim(&mut self, namespace: &str, name: &str, claim: Value) {
        let spec = json!({"pool": "p", "claim": claim});
        self.create(CAPSULE, "resourcepoolclaims", namespace, name, json!({"spec": spec})).unwrap();
    }

    fn grant(&mut self, namespace: &str, project: &str, buckets: Value) {
        let spec = json!({"resourceRef": {"kind": "Project", "name": project}, "limits": [{"name": CORES, "buckets": buckets}]});
        self.create(DATUM, "resourcequotagrants", namespace, "g", json!({"spec": spec})).unwrap();
    }
}

fn datum(resource: &str, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::new(DATUM, resource), namespace, name)
}

fn in_core(resource: &str, name: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::core(resource), "", name)
}

fn pool() -> ObjectKey {
    ObjectKey::new(GroupResource::new(CAPSULE, "resourcepools"), "", "p")
}

/// Two projects, one of them full with a line before it; a pool, full, where somebody waits for more than it has.
fn furnished(at_once: usize) -> Bench {
    // Here a claim may be resized.
    let mut settings = families::Settings::default();
    settings.capsule.reading = families::capsule::Reading::Releases;
    let mut bench = Bench::with(families::all(&settings));
    bench.desk.engine.count_at_once(usize::MAX);
    let spec =
        json!({"serviceRef": {"name": "s"}, "resourceName": CORES, "unit": "cores", "allowedDimensions": ["region"]});
    bench.create(DATUM, "servicequotadefinitions", "", "cores", json!({"spec": spec})).unwrap();
    for (name, project) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        let labels = json!({PROJECT: project, "tenant": "solar"});
        bench.create("", "namespaces", "", name, json!({"labels": labels})).unwrap();
    }
    bench.grant("a1", "a", json!([{"value": "10", "selector": {}}]));
    bench.grant("b1", "b", json!([{"value": "6", "selector": {}}]));
    for number in 0..8 {
        bench.claim_of("a1", &format!("c{number}"), "1", if number % 2 == 0 { "eu" } else { "us" });
    }
    bench.claim_of("a2", "c8", "2", "eu");
    for (number, namespace) in ["a2", "a1", "a2", "a1"].into_iter().enumerate() {
        bench.claim_of(namespace, &format!("w{number}"), if number == 1 { "3" } else { "1" }, "eu");
    }
    for number in 0..4 {
        bench.claim_of("b1", &format!("d{number}"), "1", "us");
    }
    let spec = json!({
        "quota": {"hard": {"requests.cpu": "8"}}, "selectors": [{"matchLabels": {"tenant": "solar"}}],
        "config": {"orderedQueue": true},
    });
    bench.create(CAPSULE, "resourcepools", "", "p", json!({"spec": spec})).unwrap();
    for number in 0..6 {
        let memory = if number == 3 {
            json!({"requests.cpu": "1", "requests.memory": "1"})
        } else {
            json!({"requests.cpu": "1"})
        };
        bench.pool_claim(if number < 3 { "a1" } else { "b1" }, &format!("p{number}"), memory);
    }
    // One that has something and waits for more; one that waits behind it, and would fit.
    let grows = ObjectKey::new(GroupResource::new(CAPSULE, "resourcepoolclaims"), "a1", "p0");
    bench.change(&grows, |claim| claim["spec"]["claim"]["requests.cpu"] = json!("6")).unwrap();
    bench.pool_claim("b1", "q0", json!({"requests.cpu": "2"}));
    bench.pool_claim("a2", "q1", json!({"requests.memory": "3"}));
    bench.desk.engine.count_at_once(at_once);
    bench
}

/// A write that moves many, and how it is done.
type Edit = (&'static str, ObjectKey, fn(&mut Value));

fn edits() -> Vec<Edit> {
    let (grant, definition) = (datum("resourcequotagrants", "a1", "g"), datum("servicequotadefinitions", "", "cores"));
    vec![
        ("a bucket more", grant.clone(), |grant| {
            let eu = json!({"value": "5", "selector": {"matchLabels": {"region": "eu"}}});
            grant.pointer_mut("/spec/limits/0/buckets").unwrap().as_array_mut().unwrap().push(eu);
        }),
        ("a bucket more, and more of the other", grant.clone(), |grant| {
            *grant.pointer_mut("/spec/limits/0/buckets").unwrap() = json!([
                {"value": "12", "selector": {}}, {"value": "9", "selector": {"matchLabels": {"region": "eu"}}},
            ]);
        }),
        ("every bucket decides", grant.clone(), |grant| {
            grant["spec"]["limits"][0]["bucketPolicy"] = json!("AllMatching");
            let us = json!({"value": "1", "selector": {"matchLabels": {"region": "us"}}});
            grant.pointer_mut("/spec/limits/0/buckets").unwrap().as_array_mut().unwrap().push(us);
        }),
        ("to somebody else", grant, |grant| grant["spec"]["resourceRef"]["name"] = json!("b")),
        ("a dimension more", definition.clone(), |definition| {
            definition["spec"]["allowedDimensions"] = json!(["region", "zone"]);
        }),
        ("a dimension less", definition, |definition| definition["spec"]["allowedDimensions"] = json!([])),
        ("a namespace of another project", in_core("namespaces", "a1"), |namespace| {
            namespace["metadata"]["labels"][PROJECT] = json!("b");
        }),
        ("a namespace that leaves pool and project", in_core("namespaces", "a1"), |namespace| {
            namespace["metadata"]["labels"] = json!({});
        }),
        ("a pool of more", pool(), |pool| pool["spec"]["quota"]["hard"]["requests.memory"] = json!("3")),
        ("a pool of more of all", pool(), |pool| {
            pool["spec"]["quota"]["hard"] = json!({"requests.cpu": "12", "requests.memory": "8"});
        }),
        ("a pool without order", pool(), |pool| pool["spec"]["config"]["orderedQueue"] = json!(false)),
        ("a pool of one namespace", pool(), |pool| {
            pool["spec"]["selectors"] = json!([{"matchLabels": {PROJECT: "b"}}]);
        }),
    ]
}

#[test]
fn whoever_may_wait_stands_afterwards_as_if_all_had_been_counted_in_the_step() {
    let mut moved = 0;
    for (name, key, change) in edits() {
        let mut at_once = furnished(usize::MAX);
        let before = at_once.standings();
        let (written, slices) = at_once.change_at_length(&key, change, |_, _| {});
        written.unwrap();
        assert_eq!(slices, 0, "{name}");
        at_once.audit();
        let mut staged = furnished(2);
        assert_eq!(staged.standings(), before);
        let (written, slices) = staged.change_at_length(&key, change, |bench, _| {
            assert_eq!(bench.standings(), before, "{name}: nobody is told before it is there");
            bench.audit();
        });
        written.unwrap();
        assert!(slices > 1, "{name}: {slices} slices");
        assert_eq!(staged.standings(), at_once.standings(), "{name}");
        moved += usize::from(staged.standings() != before);
        staged.swept();
        let (mut staged, mut at_once) = (staged.restart(), at_once.restart());
        assert_eq!(staged.standings(), at_once.standings(), "{name}: after a restart");
        staged.audit();
        at_once.swept();
    }
    // Only another dimension, of which nobody speaks, is nothing to anybody.
    assert_eq!(moved, edits().len() - 1);
}

/// What others do meanwhile is done, and counts.
#[test]
fn whoever_comes_waits_and_is_served_while_others_are_counted_stands_as_if_it_had_been_before() {
    fn others(bench: &mut Bench, turn: usize) {
        match turn {
            0 => bench.claim_of("a1", "new", "1", "eu"),
            1 => {
                let raised = json!([{"value": "13", "selector": {}}]);
                let own = datum("resourcequotagrants", "b1", "g");
                bench.change(&own, |grant| grant["spec"]["limits"][0]["buckets"] = raised).unwrap();
                let freed = ObjectKey::new(GroupResource::new(DATUM, "resourcequotaclaims"), "a1", "c3");
                bench.write(freed, WriteKind::Delete { expect: Expect::default(), last: None }, false).unwrap();
                let freed = ObjectKey::new(GroupResource::new(CAPSULE, "resourcepoolclaims"), "b1", "p4");
                bench.write(freed, WriteKind::Delete { expect: Expect::default(), last: None }, false).unwrap();
            }
            2 => bench.pool_claim("a2", "new", json!({"requests.cpu": "1"})),
            3 => {
                let waits = ObjectKey::new(GroupResource::new(DATUM, "resourcequotaclaims"), "a2", "w2");
                bench.change(&waits, |claim| claim["spec"]["resources"][0]["quantity"] = json!("2")).unwrap();
                let gives_up = ObjectKey::new(GroupResource::new(CAPSULE, "resourcepoolclaims"), "a1", "p0");
                bench.change(&gives_up, |claim| claim["spec"]["claim"]["requests.cpu"] = json!("5")).unwrap();
            }
            _ => {}
        }
    }
    for (name, key, change) in edits() {
        let mut first = furnished(usize::MAX);
        let mut staged = furnished(2);
        let mut turns = 0;
        let (written, _) = staged.change_at_length(&key, change, |bench, turn| {
            others(bench, turn);
            turns = turns.max(turn + 1);
            bench.audit();
        });
        written.unwrap();
        (0..turns).for_each(|turn| others(&mut first, turn));
        let (written, _) = first.change_at_length(&key, change, |_, _| {});
        written.unwrap();
        assert!(turns > 1, "{name}: {turns}");
        assert_eq!(staged.standings(), first.standings(), "{name}");
        staged.swept();
    }
}

#[test]
fn what_grants_are_made_of_is_counted_before_it_goes() {
    let delete = || WriteKind::Delete { expect: Expect::default(), last: None };
    for key in [datum("resourcequotagrants", "a1", "g"), datum("servicequotadefinitions", "", "cores")] {
        let mut at_once = furnished(usize::MAX);
        at_once.write_at_length(key.clone(), delete(), |_, _| {}).0.unwrap();
        let mut staged = furnished(2);
        let (written, slices) = staged.write_at_length(key.clone(), delete(), |bench, _| bench.audit());
        written.unwrap();
        assert!(slices > 1, "{key}: {slices}");
        assert_eq!(staged.standings(), at_once.standings(), "{key}");
        staged.swept();
    }
}
