//! Claims that are made with a workload and go with it, and pools that nodes size.

use serde_json::{Value, json};

use super::*;

const CAPSULE: &str = "capsule.clastix.io";

/// Two namespaces of one pool of four cpus.
fn rig(config: Value) -> Bench {
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    let tenant = json!({"tenant": "solar"});
    bench.create("", "namespaces", "", "b", json!({"labels": tenant})).unwrap();
    let namespace = ObjectKey::new(GroupResource::core("namespaces"), "", "a");
    bench.change(&namespace, |one| one["metadata"]["labels"] = tenant.clone()).unwrap();
    let spec = json!({
        "selectors": [{"matchLabels": tenant}],
        "quota": {"hard": {"requests.cpu": "4", "pods": "10"}},
        "defaults": {"requests.cpu": "0", "pods": "0"},
        "config": config,
    });
    bench.create(CAPSULE, "resourcepools", "", "p", json!({"spec": spec})).unwrap();
    bench
}

fn jit() -> Bench {
    rig(json!({"jitClaims": true}))
}

fn pod(cpu: &str) -> Value {
    let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}})
}

impl Bench {
    /// `name=used/limit` of a policy's accounts.
    fn balance(&self, group: &str, resource: &str, namespace: &str, name: &str) -> String {
        let lines = self.desk.of(&policy_name(&GroupResource::new(group, resource), namespace, name));
        let lines = lines.iter().filter(|line| line.bucket.is_empty() && !line.resource.starts_with('#'));
        let show = |line: &families::BalanceLine| {
            format!("{}={}/{}", line.resource, line.balance.used, line.balance.limit.amount().unwrap_or_default())
        };
        lines.map(show).collect::<Vec<_>>().join(" ")
    }

    fn pool(&self) -> String {
        self.balance(CAPSULE, "resourcepools", "", "p")
    }

    fn quota_in(&self, namespace: &str) -> String {
        self.balance("", "resourcequotas", namespace, "capsule-pool-p")
    }

    fn claims_in(&self, namespace: &str) -> Vec<Value> {
        let resource = GroupResource::new(CAPSULE, "resourcepoolclaims");
        self.desk.within(&resource, namespace).map(|claim| claim.value()).collect()
    }

    fn pod_in(&mut self, namespace: &str, name: &str, cpu: &str) -> Result<Written, Refused> {
        self.create("", "pods", namespace, name, pod(cpu))
    }

    fn delete_in(&mut self, namespace: &str, resource: &str, name: &str) -> Result<Written, Refused> {
        let key = ObjectKey::new(GroupResource::core(resource), namespace, name);
        self.write(key, WriteKind::Delete { expect: Expect::default(), last: None }, false)
    }

    fn said(&self, refused: Refused) -> String {
        let Refused::Denied(denials) = refused else { panic!("{refused:?}") };
        self.desk.engine.families.of_policy(&denials[0].resource).unwrap().words(&denials[0]).text
    }
}

#[test]
fn a_workload_brings_its_claim_and_takes_it_along() {
    let mut bench = jit();
    let revision = bench.desk.revision();
    bench.pod_in("a", "x", "3").unwrap();
    assert_eq!(bench.pool(), "pods=1/10 requests.cpu=3/4");
    assert_eq!(bench.quota_in("a"), "pods=1/1 requests.cpu=3/3");
    let claims = bench.claims_in("a");
    assert_eq!(claims.len(), 1);
    assert_eq!(claims[0]["spec"], json!({"pool": "p", "claim": {"requests.cpu": "3", "pods": "1"}}));
    let pod = bench.desk.get(&ObjectKey::new(GroupResource::core("pods"), "a", "x")).unwrap().value();
    assert_eq!(claims[0]["metadata"]["ownerReferences"][0]["uid"], pod["metadata"]["uid"]);
    assert_eq!(claims[0]["metadata"]["ownerReferences"][0]["kind"], "Pod");
    assert!(bench.desk.revision() > revision);
    // One that does not fit is refused in clear words, and nothing of it stays.
    let before = (bench.desk.revision(), bench.pool(), bench.quota_in("b"));
    let refused = bench.pod_in("b", "y", "2").unwrap_err();
    let said = bench.said(refused);
    assert_eq!(
        said,
        "exceeded quota: capsule-pool-p, requested: pods=1,requests.cpu=2, used: pods=0,requests.cpu=0, limited: \
         pods=0,requests.cpu=0; no claim can be made for it: \"p\" has too little: requested: requests.cpu=2, \
         available: requests.cpu=1"
    );
    assert_eq!((bench.desk.revision(), bench.pool(), bench.quota_in("b")), before);
    bench.audit();
    bench.delete_in("a", "pods", "x").unwrap();
    assert!(bench.claims_in("a").is_empty());
    assert_eq!(
        (bench.pool(), bench.quota_in("a")),
        ("pods=0/10 requests.cpu=0/4".into(), "pods=0/0 requests.cpu=0/0".into())
    );
    bench.pod_in("b", "y", "2").unwrap();
    bench.audit();
}

/// There is no moment in which a namespace is under a pool and nothing limits it.
#[test]
fn the_quota_of_a_pool_is_there_with_the_commit_that_asks_for_it() {
    let mut bench = rig(json!({}));
    let quota = |bench: &Bench, namespace: &str| {
        let key = ObjectKey::new(GroupResource::core("resourcequotas"), namespace, "capsule-pool-p");
        bench.desk.get(&key).map(|quota| quota.value())
    };
    let made = quota(&bench, "a").unwrap();
    assert_eq!(made["spec"]["hard"], json!({"pods": "0", "requests.cpu": "0"}));
    assert_eq!(made["metadata"]["labels"]["projectcapsule.dev/pool"], "p");
    assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "ResourcePool");
    assert_ne!(made["metadata"]["uid"], quota(&bench, "b").unwrap()["metadata"]["uid"]);
    // With a namespace that comes under it, by its birth or by its labels; and again when somebody deletes it.
    bench.create("", "namespaces", "", "born", json!({"labels": {"tenant": "solar"}})).unwrap();
    bench.create("", "namespaces", "", "late", json!({})).unwrap();
    assert!(quota(&bench, "born").is_some() && quota(&bench, "late").is_none());
    let late = ObjectKey::new(GroupResource::core("namespaces"), "", "late");
    bench.change(&late, |one| one["metadata"]["labels"] = json!({"tenant": "solar"})).unwrap();
    assert!(matches!(bench.pod_in("late", "x", "1"), Err(Refused::Denied(_))));
    bench.delete_in("late", "resourcequotas", "capsule-pool-p").unwrap();
    assert!(matches!(bench.pod_in("late", "x", "1"), Err(Refused::Denied(_))));
    // Where the namespace goes it may go, and where it is no longer meant it goes by itself.
    bench.change(&late, |one| one["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z".into()).unwrap();
    bench.delete_in("late", "resourcequotas", "capsule-pool-p").unwrap();
    let born = ObjectKey::new(GroupResource::core("namespaces"), "", "born");
    bench.change(&born, |one| one["metadata"]["labels"] = json!({})).unwrap();
    assert!(quota(&bench, "late").is_none() && quota(&bench, "born").is_none());
    bench.audit();
    let mut bench = bench.restart();
    bench.audit();
}

#[test]
fn what_is_claimed_by_hand_is_used_first() {
    let mut bench = jit();
    let spec = json!({"pool": "p", "claim": {"requests.cpu": "2", "pods": "2"}});
    bench.create(CAPSULE, "resourcepoolclaims", "a", "mine", json!({"spec": spec})).unwrap();
    bench.pod_in("a", "x", "1").unwrap();
    assert_eq!(bench.claims_in("a").len(), 1, "there was room");
    bench.pod_in("a", "y", "2").unwrap();
    assert_eq!(bench.claims_in("a").len(), 2);
    assert_eq!(bench.quota_in("a"), "pods=2/3 requests.cpu=3/4");
    // The claim made for the workload is not the one that could be deleted.
    let made = bench.claims_in("a").into_iter().find(|claim| claim["metadata"]["name"] != "mine").unwrap();
    let name = made["metadata"]["name"].as_str().unwrap().to_owned();
    let key = ObjectKey::new(GroupResource::new(CAPSULE, "resourcepoolclaims"), "a", &name);
    let delete = WriteKind::Delete { expect: Expect::default(), last: None };
    let refused = bench.write(key.clone(), delete, false).unwrap_err();
    assert!(format!("{refused:?}").contains("was made for the workload"), "{refused:?}");
    let resized = bench.change(&key, |claim| claim["spec"]["claim"]["requests.cpu"] = "1".into()).unwrap_err();
    assert!(matches!(resized, Refused::Said { .. }));
    bench.change(&key, |claim| claim["metadata"]["labels"] = json!({"mine": "too"})).unwrap();
    bench.audit();
}

#[test]
fn without_the_offer_nothing_is_made() {
    let mut bench = rig(json!({}));
    let refused = bench.pod_in("a", "x", "1").unwrap_err();
    assert!(!bench.said(refused).contains("claim"));
    assert!(bench.claims_in("a").is_empty());
    // Nor where something else refuses as well.
    let mut bench = jit();
    bench.create("", "resourcequotas", "a", "own", json!({"spec": {"hard": {"pods": "0"}}})).unwrap();
    assert!(matches!(bench.pod_in("a", "x", "1"), Err(Refused::Denied(denials)) if denials.len() == 2));
    assert!(bench.claims_in("a").is_empty());
    bench.audit();
}

#[test]
fn a_dry_run_makes_nothing() {
    let mut bench = jit();
    let before = (bench.desk.revision(), bench.pool(), bench.quota_in("a"));
    let draft = bench.draft("a", "x", pod("3"));
    let key = ObjectKey::new(GroupResource::core("pods"), "a", "x");
    bench.write(key.clone(), WriteKind::Create(draft), true).unwrap();
    assert_eq!((bench.desk.revision(), bench.pool(), bench.quota_in("a")), before);
    let draft = bench.draft("a", "x", pod("5"));
    assert!(matches!(bench.write(key, WriteKind::Create(draft), true), Err(Refused::Denied(_))));
    bench.audit();
}

#[test]
fn a_claim_follows_its_workload_up_and_down_and_to_its_end() {
    let mut bench = jit();
    bench.pod_in("a", "x", "1").unwrap();
    let key = ObjectKey::new(GroupResource::core("pods"), "a", "x");
    let cpu = |pod: &mut Value, cpu: &str| pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu.into();
    bench.change(&key, |pod| cpu(pod, "3")).unwrap();
    assert_eq!((bench.pool(), bench.claims_in("a").len()), ("pods=1/10 requests.cpu=3/4".into(), 1));
    assert!(matches!(bench.change(&key, |pod| cpu(pod, "5")), Err(Refused::Denied(_))));
    assert_eq!(bench.pool(), "pods=1/10 requests.cpu=3/4");
    bench.change(&key, |pod| cpu(pod, "2")).unwrap();
    assert_eq!(
        (bench.pool(), bench.quota_in("a")),
        ("pods=1/10 requests.cpu=2/4".into(), "pods=1/1 requests.cpu=2/2".into())
    );
    bench.audit();
    // A pod that has ended needs nothing any more, although it is still stored.
    let mut value = bench.desk.get(&key).unwrap().value();
    value["status"] = json!({"phase": "Succeeded"});
    let update = WriteKind::Update { draft: Draft::new(value).unwrap(), expect: Expect::default(), status: true };
    bench.write(key, update, false).unwrap();
    assert!(bench.claims_in("a").is_empty());
    assert_eq!(bench.pool(), "pods=0/10 requests.cpu=0/4");
    bench.audit();
}

#[test]
fn a_workload_under_two_pools_has_a_claim_on_each() {
    let mut bench = jit();
    let pool = |memory: &str| {
        json!({"spec": {
            "selectors": [{"matchLabels": {"tenant": "solar"}}],
            "quota": {"hard": {"requests.memory": memory}},
            "defaults": {"requests.memory": "0"},
            "config": {"jitClaims": true},
        }})
    };
    bench.create(CAPSULE, "resourcepools", "", "m", pool("8Gi")).unwrap();
    let pod = |cpu: &str, memory: &str| {
        let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}});
        json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}})
    };
    let pools_of = |bench: &Bench| -> Vec<String> {
        let claims = bench.claims_in("a");
        let show = |claim: &Value| format!("{}: {}", claim["spec"]["pool"].as_str().unwrap(), claim["spec"]["claim"]);
        claims.iter().map(show).collect()
    };
    bench.create("", "pods", "a", "x", pod("1", "1Gi")).unwrap();
    let (memory, cpu) = ("m: {\"requests.memory\":\"1Gi\"}", "p: {\"pods\":\"1\",\"requests.cpu\":\"1\"}");
    assert_eq!(pools_of(&bench), [memory, cpu]);
    // Where one of them has too little, nothing is made in the other.
    let before = (bench.desk.revision(), bench.pool());
    let refused = bench.create("", "pods", "a", "y", pod("1", "9Gi")).unwrap_err();
    assert!(bench.said(refused).contains("\"m\" has too little"));
    assert_eq!((bench.desk.revision(), bench.pool()), before);
    // Each follows the part of the workload that it covers.
    let key = ObjectKey::new(GroupResource::core("pods"), "a", "x");
    let requests = |pod: &mut Value, cpu: &str, memory: &str| {
        pod["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": cpu, "memory": memory});
    };
    bench.change(&key, |pod| requests(pod, "2", "1Gi")).unwrap();
    assert_eq!(pools_of(&bench), [memory, "p: {\"pods\":\"1\",\"requests.cpu\":\"2\"}"]);
    bench.change(&key, |pod| requests(pod, "2", "0")).unwrap();
    assert_eq!(pools_of(&bench), ["p: {\"pods\":\"1\",\"requests.cpu\":\"2\"}"]);
    bench.change(&key, |pod| requests(pod, "2", "2Gi")).unwrap();
    assert_eq!(bench.claims_in("a").len(), 2);
    bench.audit();
    let mut bench = bench.restart();
    bench.delete_in("a", "pods", "x").unwrap();
    assert!(bench.claims_in("a").is_empty());
    assert_eq!(bench.balance(CAPSULE, "resourcepools", "", "m"), "requests.memory=0/8589934592");
    bench.audit();
}

#[test]
fn nobody_passes_an_ordered_line() {
    let mut bench = rig(json!({"jitClaims": true, "orderedQueue": true}));
    bench.pod_in("a", "x", "3").unwrap();
    let spec = json!({"pool": "p", "claim": {"requests.cpu": "2"}});
    bench.create(CAPSULE, "resourcepoolclaims", "b", "waits", json!({"spec": spec})).unwrap();
    let draft = bench.draft("a", "y", pod("1"));
    let key = ObjectKey::new(GroupResource::core("pods"), "a", "y");
    let refused = bench.write_at(5_000, key, WriteKind::Create(draft), false).unwrap_err();
    assert!(bench.said(refused).ends_with("no claim can be made for it: older claims wait in line for \"p\""));
    bench.delete_in("a", "pods", "x").unwrap();
    bench.pod_in("a", "y", "1").unwrap();
    assert_eq!(bench.pool(), "pods=1/10 requests.cpu=3/4", "who waited was served");
    bench.audit();
}

#[test]
fn a_restart_knows_whose_claim_is_whose() {
    let mut bench = jit();
    bench.pod_in("a", "x", "3").unwrap();
    bench.pod_in("b", "y", "1").unwrap();
    let mut bench = bench.restart();
    bench.audit();
    assert_eq!(bench.pool(), "pods=2/10 requests.cpu=4/4");
    bench.delete_in("a", "pods", "x").unwrap();
    assert!(bench.claims_in("a").is_empty() && bench.claims_in("b").len() == 1);
    assert_eq!(bench.pool(), "pods=1/10 requests.cpu=1/4");
    bench.audit();
}

#[test]
fn a_storm_leaves_one_claim_for_each_workload() {
    let mut bench = jit();
    let mut seed = 11u32;
    for _ in 0..1_000 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let namespace = ["a", "b"][(seed >> 30) as usize % 2];
        let name = format!("p{}", (seed >> 16) % 7);
        if (seed >> 8) % 5 < 2 {
            let _ = bench.delete_in(namespace, "pods", &name);
        } else {
            let _ = bench.pod_in(namespace, &name, ["500m", "1", "2"][(seed >> 12) as usize % 3]);
        }
    }
    for namespace in ["a", "b"] {
        let pods = bench.desk.within(&GroupResource::core("pods"), namespace).count();
        assert_eq!(bench.claims_in(namespace).len(), pods, "in {namespace}");
    }
    bench.audit();
}

fn node(pool: &str, cpu: &str, memory: &str) -> Value {
    json!({"labels": {"pool": pool}, "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}}})
}

#[test]
fn a_pool_is_as_large_as_its_nodes() {
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    bench.create("", "namespaces", "", "t", json!({"labels": {"tenant": "solar"}})).unwrap();
    bench.create("", "nodes", "", "n1", node("solar", "4", "8Gi")).unwrap();
    bench.create("", "nodes", "", "other", node("wind", "64", "8Gi")).unwrap();
    let spec = json!({
        "selectors": [{"matchLabels": {"tenant": "solar"}}],
        "quota": {"hard": {"services": "3", "requests.cpu": "1000"}},
        "nodes": {
            "selector": {"matchLabels": {"pool": "solar"}},
            "shares": {"requests.cpu": "80%", "requests.memory": "1/2"},
        },
    });
    bench.create(CAPSULE, "resourcepools", "", "p", json!({"spec": spec})).unwrap();
    let limits = |bench: &Bench| bench.pool();
    let key = |name: &str| ObjectKey::new(GroupResource::core("nodes"), "", name);
    let of_pool = ObjectKey::new(GroupResource::new(CAPSULE, "resourcepools"), "", "p");
    assert_eq!(limits(&bench), "requests.cpu=0/3200m requests.memory=0/4294967296 services=0/3");
    bench.create("", "nodes", "", "n2", node("solar", "3", "8Gi")).unwrap();
    assert_eq!(limits(&bench), "requests.cpu=0/5600m requests.memory=0/8589934592 services=0/3");
    assert_eq!(bench.desk.get(&of_pool).unwrap().value()["spec"]["quota"]["hard"]["requests.memory"], "8Gi");
    // Whoever writes another size is overruled.
    bench.change(&of_pool, |pool| pool["spec"]["quota"]["hard"]["requests.cpu"] = "1".into()).unwrap();
    assert_eq!(limits(&bench), "requests.cpu=0/5600m requests.memory=0/8589934592 services=0/3");
    let claim = |cpu: &str| json!({"spec": {"pool": "p", "claim": {"requests.cpu": cpu}}});
    bench.create(CAPSULE, "resourcepoolclaims", "t", "large", claim("5")).unwrap();
    bench.create(CAPSULE, "resourcepoolclaims", "t", "waits", claim("1")).unwrap();
    // A heartbeat changes nothing; a node that goes takes its share along, and evicts nobody.
    let revision = bench.desk.get(&of_pool).unwrap().revision;
    bench.change(&key("n2"), |node| node["status"]["conditions"] = json!([{"type": "Ready"}])).unwrap();
    assert_eq!(bench.desk.get(&of_pool).unwrap().revision, revision);
    bench.delete_at_cluster("nodes", "n2");
    assert_eq!(limits(&bench), "requests.cpu=5/3200m requests.memory=0/4294967296 services=0/3");
    bench.desk.publish(0);
    let condition = |bench: &Bench| {
        let pool = bench.desk.get(&of_pool).unwrap().value();
        let list = pool["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = list.into_iter().find(|one| one["type"] == "Oversubscribed").unwrap();
        format!("{} {}: {}", found["status"], found["reason"], found["message"]).replace('"', "")
    };
    assert_eq!(condition(&bench), "True NodesShrunk: claimed: requests.cpu=5, nodes give: requests.cpu=3200m");
    bench.create(CAPSULE, "resourcepoolclaims", "t", "small", claim("1m")).unwrap();
    assert_eq!(limits(&bench), "requests.cpu=5/3200m requests.memory=0/4294967296 services=0/3", "nothing new");
    bench.change(&of_pool, |pool| pool["metadata"]["labels"] = json!({"a": "b"})).unwrap();
    // By label too; and who waits is served in that commit.
    bench.change(&key("other"), |node| node["metadata"]["labels"]["pool"] = "solar".into()).unwrap();
    assert_eq!(limits(&bench), "requests.cpu=6001m/54400m requests.memory=0/8589934592 services=0/3");
    bench.desk.publish(0);
    assert_eq!(condition(&bench), "False NodesSuffice: the nodes cover the claims");
    bench.audit();
    let mut bench = bench.restart();
    assert_eq!(limits(&bench), "requests.cpu=6001m/54400m requests.memory=0/8589934592 services=0/3");
    bench.audit();
}

impl Bench {
    fn delete_at_cluster(&mut self, resource: &str, name: &str) {
        let key = ObjectKey::new(GroupResource::core(resource), "", name);
        self.write(key, WriteKind::Delete { expect: Expect::default(), last: None }, false).unwrap();
    }
}

/// What is in use is worked out once for all who ask, and again when somebody came.
#[test]
fn a_claim_that_was_made_for_a_workload_is_shown_in_use() {
    let mut bench = jit();
    for name in ["x", "y"] {
        bench.pod_in("a", name, "1").unwrap();
        while bench.desk.publish(0) > 0 {}
        let is_bound = |claim: &Value| {
            let conditions = claim["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|one| one["type"] == "Bound" && one["status"] == "True")
        };
        assert!(bench.claims_in("a").iter().all(is_bound), "{:?}", bench.claims_in("a"));
    }
    bench.audit();
}

/// Whatever is edited away and back, or deleted and made again, living workloads are covered in the end as before.
#[test]
fn a_pool_that_comes_back_finds_the_claims_of_what_lives() {
    let pool = ObjectKey::new(GroupResource::new(CAPSULE, "resourcepools"), "", "p");
    let covered = |bench: &mut Bench, after: &str| {
        assert_eq!(bench.pool(), "pods=1/10 requests.cpu=3/4", "after {after}");
        assert_eq!(bench.quota_in("a"), "pods=1/1 requests.cpu=3/3", "after {after}");
        bench.audit();
    };
    let mut bench = jit();
    bench.pod_in("a", "x", "3").unwrap();
    for scopes in [json!(["Terminating"]), json!(["Terminating", "NotBestEffort"]), json!([])] {
        bench.change(&pool, |pool| pool["spec"]["quota"]["scopes"] = scopes.clone()).unwrap();
        bench.audit();
        bench.change(&pool, |pool| pool["spec"]["quota"]["scopes"] = Value::Null).unwrap();
        covered(&mut bench, &format!("the scopes {scopes}"));
    }
    let spec = bench.desk.get(&pool).unwrap().value()["spec"].clone();
    bench.write(pool.clone(), WriteKind::Delete { expect: Expect::default(), last: None }, false).unwrap();
    let claim = bench.claims_in("a")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let claim = ObjectKey::new(GroupResource::new(CAPSULE, "resourcepoolclaims"), "a", &claim);
    let taken = bench.write(claim, WriteKind::Delete { expect: Expect::default(), last: None }, false);
    assert!(matches!(taken, Err(Refused::Said { .. })), "{taken:?}");
    bench.create(CAPSULE, "resourcepools", "", "p", json!({"spec": spec})).unwrap();
    covered(&mut bench, "the pool was deleted and made again");
    bench.delete_in("a", "pods", "x").unwrap();
    assert!(bench.claims_in("a").is_empty());
    assert_eq!(bench.pool(), "pods=0/10 requests.cpu=0/4");
    bench.audit();
}

/// Scopes that leave a workload out are no reason to keep the claim of one that is over.
#[test]
fn a_claim_under_scopes_goes_when_its_workload_is_over() {
    let mut bench = jit();
    let pool = ObjectKey::new(GroupResource::new(CAPSULE, "resourcepools"), "", "p");
    bench.change(&pool, |pool| pool["spec"]["quota"]["scopes"] = json!(["NotTerminating"])).unwrap();
    bench.pod_in("a", "x", "3").unwrap();
    assert_eq!(bench.pool(), "pods=1/10 requests.cpu=3/4");
    let pod = ObjectKey::new(GroupResource::core("pods"), "a", "x");
    bench.change(&pod, |pod| pod["status"] = json!({"phase": "Succeeded"})).unwrap();
    assert!(bench.claims_in("a").is_empty());
    assert_eq!(bench.pool(), "pods=0/10 requests.cpu=0/4");
    bench.audit();
}
