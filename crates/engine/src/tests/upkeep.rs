//! What pools and claims become by themselves: in the commit that makes it so.

use serde_json::{Value, json};

use super::*;

const CAPSULE: &str = "capsule.clastix.io";

fn rig() -> Bench {
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    bench.create("", "namespaces", "", "n0", json!({"labels": {"tenant": "solar"}})).unwrap();
    bench
}

fn pool(bench: &mut Bench, config: Value) {
    let selectors = json!([{"matchLabels": {"tenant": "solar"}}]);
    let spec = json!({"quota": {"hard": {"pods": "2"}}, "selectors": selectors, "config": config});
    bench.create(CAPSULE, "resourcepools", "", "p", json!({"spec": spec})).unwrap();
}

fn key(resource: &str, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::new(CAPSULE, resource), namespace, name)
}

impl Bench {
    fn claims(&mut self, name: &str, pool: &str) {
        let spec = json!({"pool": pool, "claim": {"pods": "2"}});
        self.create(CAPSULE, "resourcepoolclaims", "n0", name, json!({"spec": spec})).unwrap();
    }

    fn claim_now(&self, name: &str) -> Value {
        self.desk.get(&key("resourcepoolclaims", "n0", name)).unwrap().value()
    }

    fn waits(&self, name: &str) -> bool {
        self.desk.engine.ledger.is_waiting(self.desk.get(&key("resourcepoolclaims", "n0", name)).unwrap().uid)
    }

    fn quota_of_pool(&self) -> Option<Value> {
        let key = ObjectKey::new(GroupResource::core("resourcequotas"), "n0", "capsule-pool-p");
        self.desk.get(&key).map(|quota| quota.value())
    }
}

#[test]
fn a_claim_without_a_pool_gets_the_one_that_appears() {
    let mut bench = rig();
    bench.claims("c", "");
    assert_eq!(bench.claim_now("c")["spec"]["pool"], "");
    pool(&mut bench, json!({}));
    let claim = bench.claim_now("c");
    assert_eq!((&claim["spec"]["pool"], &claim["status"]["pool"]["name"]), (&json!("p"), &json!("p")));
    assert_eq!(bench.quota_of_pool().unwrap()["spec"]["hard"]["pods"], "2");
    bench.audit();
}

#[test]
fn a_released_claim_stands_in_line_again() {
    let mut bench = rig();
    pool(&mut bench, json!({}));
    bench.claims("first", "p");
    bench.claims("second", "p");
    assert!(!bench.waits("first") && bench.waits("second"));
    let released = json!({"projectcapsule.dev/release": "true", "note": "mine"});
    bench
        .change(&key("resourcepoolclaims", "n0", "first"), |claim| claim["metadata"]["annotations"] = released)
        .unwrap();
    assert!(bench.waits("first") && !bench.waits("second"));
    assert_eq!(bench.claim_now("first")["metadata"]["annotations"], json!({"note": "mine"}));
    assert_eq!(bench.quota_of_pool().unwrap()["spec"]["hard"]["pods"], "2");
    bench.audit();
    let mut bench = bench.restart();
    assert!(bench.waits("first") && !bench.waits("second"));
    bench.audit();
}

#[test]
fn a_claim_goes_with_its_pool_while_it_has_something_of_it() {
    let mut bench = rig();
    pool(&mut bench, json!({"deleteBoundResources": true}));
    bench.claims("first", "p");
    bench.claims("second", "p");
    let owner = |bench: &Bench, name: &str| bench.claim_now(name)["metadata"]["ownerReferences"][0]["kind"].clone();
    assert_eq!((owner(&bench, "first"), owner(&bench, "second")), (json!("ResourcePool"), Value::Null));
    let delete = WriteKind::Delete { expect: Expect::default(), last: None };
    bench.write(key("resourcepoolclaims", "n0", "first"), delete, false).unwrap();
    assert_eq!(owner(&bench, "second"), "ResourcePool", "who is served is told so at once");
    let config = json!({"deleteBoundResources": false});
    bench.change(&key("resourcepools", "", "p"), |pool| pool["spec"]["config"] = config).unwrap();
    assert_eq!(owner(&bench, "second"), Value::Null);
    bench.audit();
}

#[test]
fn a_pool_is_held_while_it_serves_and_goes_with_what_it_provisioned() {
    let mut bench = rig();
    pool(&mut bench, json!({}));
    let pool = key("resourcepools", "", "p");
    let finalizers = |bench: &Bench| bench.desk.get(&pool).unwrap().value()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers(&bench), json!(["controller.projectcapsule.dev/finalize"]));
    let namespace = ObjectKey::new(GroupResource::core("namespaces"), "", "n0");
    bench.change(&namespace, |namespace| namespace["metadata"]["labels"] = json!({})).unwrap();
    assert_eq!((finalizers(&bench), bench.quota_of_pool()), (Value::Null, None));
    bench.change(&namespace, |namespace| namespace["metadata"]["labels"] = json!({"tenant": "solar"})).unwrap();
    bench.claims("c", "p");
    bench.audit();
    // Somebody else holds it as well.
    bench.change(&pool, |pool| pool["metadata"]["finalizers"].as_array_mut().unwrap().push(json!("mine"))).unwrap();
    bench.change(&pool, |pool| pool["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!((finalizers(&bench), bench.quota_of_pool()), (json!(["mine"]), None));
    bench.audit();
    bench.write(pool.clone(), WriteKind::Delete { expect: Expect::default(), last: None }, false).unwrap();
    bench.audit();
    // Nobody else does.
    self::pool(&mut bench, json!({}));
    assert_eq!(bench.quota_of_pool().unwrap()["spec"]["hard"]["pods"], "2");
    bench.change(&pool, |pool| pool["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")).unwrap();
    assert!(bench.desk.get(&pool).is_none() && bench.quota_of_pool().is_none());
    bench.audit();
}

/// Pools select by what a namespace says of itself: claims in it are concerned when that changes.
#[test]
fn a_claim_follows_its_namespace_to_a_pool_and_away_from_it() {
    let mut bench = rig();
    let labelled = |bench: &mut Bench, tenant: &str| {
        let key = ObjectKey::new(GroupResource::core("namespaces"), "", "late");
        bench.change(&key, |one| one["metadata"]["labels"] = json!({"tenant": tenant})).unwrap();
    };
    bench.create("", "namespaces", "", "late", json!({})).unwrap();
    pool(&mut bench, json!({"deleteBoundResources": true}));
    bench.create(CAPSULE, "resourcepoolclaims", "late", "c", json!({"spec": {"claim": {"pods": "1"}}})).unwrap();
    let claim = ObjectKey::new(GroupResource::new(CAPSULE, "resourcepoolclaims"), "late", "c");
    let shown = |bench: &Bench| {
        let value = bench.desk.get(&claim).unwrap().value();
        let owners = value["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
        (value["spec"]["pool"].as_str().unwrap_or_default().to_owned(), owners)
    };
    assert_eq!(shown(&bench), (String::new(), 0));
    labelled(&mut bench, "solar");
    assert_eq!(shown(&bench), ("p".to_owned(), 1), "it has one as soon as there is one for it, and belongs to it");
    labelled(&mut bench, "nobody");
    assert_eq!(shown(&bench).1, 0, "it has nothing of that pool any more");
    bench.audit();
}
