//! Long lines.

use serde_json::json;

use super::*;

const CAPSULE: &str = "capsule.clastix.io";

#[test]
fn a_line_changes_its_discipline_at_once() {
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    bench.create("", "namespaces", "", "b", json!({"labels": {"tenant": "solar"}})).unwrap();
    let spec = json!({"quota": {"hard": {"requests.cpu": "8"}}, "selectors": [{"matchLabels": {"tenant": "solar"}}]});
    bench.create(CAPSULE, "resourcepools", "", "p", json!({"spec": spec})).unwrap();
    let claim = |cpu: &str| json!({"spec": {"pool": "p", "claim": {"requests.cpu": cpu}}});
    bench.create(CAPSULE, "resourcepoolclaims", "b", "big", claim("8")).unwrap();
    for number in 0..500 {
        bench.create(CAPSULE, "resourcepoolclaims", "b", &format!("w{number}"), claim("1m")).unwrap();
    }
    let last = bench.create(CAPSULE, "resourcepoolclaims", "b", "last", claim("1m")).unwrap();
    let pool = ObjectKey::new(GroupResource::new(CAPSULE, "resourcepools"), "", "p");
    for ordered in [true, false, true, false] {
        bench.change(&pool, |pool| pool["spec"]["config"] = json!({"orderedQueue": ordered})).unwrap();
        assert_eq!(bench.desk.engine.ledger.explain(last.object.uid).blocking().count(), 1);
    }
    bench.audit();
}

/// Of three claims in a row none is put where there is no room left, whatever a status says of that.
#[test]
fn a_claim_without_a_pool_gets_one_that_has_room_at_that_moment() {
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    bench.create("", "namespaces", "", "b", json!({"labels": {"tenant": "solar"}})).unwrap();
    for (name, cpu) in [("p1", "1"), ("p2", "20")] {
        let spec =
            json!({"quota": {"hard": {"requests.cpu": cpu}}, "selectors": [{"matchLabels": {"tenant": "solar"}}]});
        bench.create(CAPSULE, "resourcepools", "", name, json!({"spec": spec})).unwrap();
    }
    let claim = || json!({"spec": {"claim": {"requests.cpu": "1"}}});
    let pools: Vec<String> = ["c0", "c1", "c2"]
        .map(|name| {
            let made = bench.create(CAPSULE, "resourcepoolclaims", "b", name, claim()).unwrap();
            made.object.value()["spec"]["pool"].as_str().unwrap().to_owned()
        })
        .to_vec();
    assert_eq!(pools, ["p1", "p2", "p2"]);
    bench.audit();
}
