//! ResourcePools: which namespaces they serve, what they provision there, and how they change and end.

use serde_json::{Value, json};

use super::{Land, UNUSED, exhausted, failed, labelled};

const FINALIZER: &str = "controller.projectcapsule.dev/finalize";

#[tokio::test]
async fn pools() {
    let land = Land::start().await;
    futures::join!(
        namespaces_are_selected_by_any_of_several_selectors(&land),
        the_provisioned_quota_is_defaults_and_claims(&land),
        the_provisioned_quota_is_nobody_elses_to_change(&land),
        no_pod_slips_in_before_the_quota(&land),
        a_pool_does_not_shrink_below_its_claims(&land),
        a_deleted_pool_lets_go_of_its_claims(&land),
        a_deleted_pool_takes_the_claims_that_have_its_resources_if_it_says_so(&land),
        what_is_asked_in_vain_is_told(&land),
    );
    land.end().await;
}

async fn namespaces_are_selected_by_any_of_several_selectors(land: &Land) {
    land.namespace("sel-solar", json!({"sel": "solar"})).await;
    land.namespace("sel-wind", json!({"sel": "wind"})).await;
    land.namespace("sel-prod", json!({"sel-env": "prod"})).await;
    land.namespace("sel-none", json!({})).await;
    let spec = json!({
        "quota": {"hard": {"pods": "10"}},
        "selectors": [
            {"matchLabels": {"sel": "solar"}},
            {"matchLabels": {"sel": "wind"}},
            {"matchExpressions": [{"key": "sel-env", "operator": "In", "values": ["prod", "pre-prod"]}]},
        ],
    });
    land.pool("sel", spec).await;
    let serves = |names: Value| move |pool: &Value| pool["status"]["namespaces"] == names;
    let pool = land.until("ResourcePool", "", "sel", serves(json!(["sel-prod", "sel-solar", "sel-wind"]))).await;
    assert_eq!(pool["status"]["namespaceCount"], 3);

    let quota = land.get("ResourceQuota", "sel-solar", "capsule-pool-sel").await;
    let metadata = &quota["metadata"];
    assert_eq!(
        metadata["labels"],
        json!({"projectcapsule.dev/pool": "sel", "projectcapsule.dev/managed-by": "controller"})
    );
    let owner = json!([{
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "ResourcePool", "name": "sel",
        "uid": pool["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }]);
    assert_eq!(metadata["ownerReferences"], owner);
    assert_eq!(land.hard("sel-wind", "sel").await, Value::Null, "without defaults it says nothing");
    land.until("ResourcePool", "", "sel", |pool| pool["metadata"]["finalizers"] == json!([FINALIZER])).await;

    // A label brings a namespace in, and takes it out.
    land.patch("Namespace", "", "sel-none", json!({"metadata": {"labels": {"sel": "solar"}}})).await.expect("labelled");
    land.hard("sel-none", "sel").await;
    land.patch("Namespace", "", "sel-solar", json!({"metadata": {"labels": {"sel": null}}})).await.expect("labelled");
    land.until_gone("ResourceQuota", "sel-solar", "capsule-pool-sel").await;
    land.until("ResourcePool", "", "sel", serves(json!(["sel-none", "sel-prod", "sel-wind"]))).await;

    // An entry without conditions is nobody's.
    land.pool("sel-empty", json!({"quota": {"hard": {"pods": "10"}}, "selectors": [{}]})).await;
    let empty = land.until("ResourcePool", "", "sel-empty", |pool| pool["status"].get("namespaces").is_some()).await;
    assert_eq!(empty["status"]["namespaces"], json!([]));

    // A pool that serves nobody is not held.
    land.patch("ResourcePool", "", "sel", json!({"spec": {"selectors": []}})).await.expect("changed");
    land.until("ResourcePool", "", "sel", |pool| pool["metadata"].get("finalizers").is_none()).await;
    land.until_gone("ResourceQuota", "sel-prod", "capsule-pool-sel").await;
}

async fn the_provisioned_quota_is_defaults_and_claims(land: &Land) {
    land.namespace("stack", json!({"stack": "yes"})).await;
    let spec = json!({
        "defaults": {"count/persistentvolumeclaims": 3, "requests.cpu": "500m"},
        "config": {"defaultsZero": true},
        "quota": {"hard": {"requests.cpu": "4", "requests.memory": "4Gi"}, "scopes": ["NotTerminating"]},
        "selectors": labelled("stack", "yes"),
    });
    land.pool("stack", spec).await;
    let pool = land.get("ResourcePool", "", "stack").await;
    let defaults = json!({"count/persistentvolumeclaims": 3, "requests.cpu": "500m", "requests.memory": "0"});
    assert_eq!(pool["spec"]["defaults"], defaults, "defaultsZero is written down");
    let quiet = json!({"count/persistentvolumeclaims": "3", "requests.cpu": "500m", "requests.memory": "0"});
    assert_eq!(land.hard("stack", "stack").await, quiet);
    let quota = land.get("ResourceQuota", "stack", "capsule-pool-stack").await;
    assert_eq!(quota["spec"]["scopes"], json!(["NotTerminating"]));
    // Scopes of a ResourceQuota are fixed; a pool may change its mind.
    let scopes = json!({"spec": {"quota": {"scopes": ["Terminating"]}}});
    land.patch("ResourcePool", "", "stack", scopes).await.expect("changed");
    let quota = land.get("ResourceQuota", "stack", "capsule-pool-stack").await;
    assert_eq!(quota["spec"]["scopes"], json!(["Terminating"]));

    // Claims are stacked on top, each in the write that makes it: no waiting in what follows.
    land.claim("stack", "one", "stack", json!({"requests.cpu": "1", "requests.memory": "1Gi"})).await;
    land.claim("stack", "two", "stack", json!({"requests.cpu": "250m"})).await;
    let both = json!({"count/persistentvolumeclaims": "3", "requests.cpu": "1750m", "requests.memory": "1Gi"});
    assert_eq!(land.hard("stack", "stack").await, both);
    land.delete("ResourcePoolClaim", "stack", "one").await.expect("deleted");
    let one = json!({"count/persistentvolumeclaims": "3", "requests.cpu": "750m", "requests.memory": "0"});
    assert_eq!(land.hard("stack", "stack").await, one);
    land.patch("ResourcePool", "", "stack", json!({"spec": {"defaults": {"requests.cpu": "1"}}})).await.expect("ok");
    assert_eq!(land.hard("stack", "stack").await["requests.cpu"], "1250m");
    let status =
        land.until("ResourcePool", "", "stack", |pool| pool["status"]["claimCount"] == 1).await["status"].clone();
    assert_eq!(
        status["allocation"],
        json!({
            "hard": {"requests.cpu": "4", "requests.memory": "4Gi"},
            "used": {"requests.cpu": "250m", "requests.memory": "0"},
            "available": {"requests.cpu": "3750m", "requests.memory": "4Gi"},
        })
    );
    let claims = land.until("ResourcePool", "", "stack", |pool| {
        let claims = pool["status"]["claims"]["stack"].as_array();
        claims.is_some_and(|claims| claims.len() == 1 && claims[0]["name"] == "two")
    });
    let claim = claims.await["status"]["claims"]["stack"][0].clone();
    let uid = land.get("ResourcePoolClaim", "stack", "two").await["metadata"]["uid"].clone();
    assert_eq!(claim, json!({"name": "two", "namespace": "stack", "uid": uid, "claims": {"requests.cpu": "250m"}}));
}

async fn the_provisioned_quota_is_nobody_elses_to_change(land: &Land) {
    land.namespace("tamper", json!({"tamper": "yes"})).await;
    let spec = json!({
        "config": {"defaultsZero": true}, "quota": {"hard": {"pods": "5"}}, "selectors": labelled("tamper", "yes"),
    });
    land.pool("tamper", spec).await;
    land.claim("tamper", "one", "tamper", json!({"pods": "2"})).await;
    assert_eq!(land.hard("tamper", "tamper").await, json!({"pods": "2"}));
    let more = json!({"spec": {"hard": {"pods": "1000"}}});
    let answer = land.patch("ResourceQuota", "tamper", "capsule-pool-tamper", more).await.expect("taken");
    assert_eq!(answer["spec"]["hard"], json!({"pods": "2"}), "and overruled");
    land.delete("ResourceQuota", "tamper", "capsule-pool-tamper").await.expect("deleted");
    assert_eq!(land.hard("tamper", "tamper").await, json!({"pods": "2"}), "it comes back");
    // One of that name, made by somebody else before the pool was there, becomes the pool's.
    land.namespace("squat", json!({})).await;
    let squatter = json!({"hard": {"pods": "1000"}});
    land.make("ResourceQuota", "squat", "capsule-pool-tamper", squatter).await.expect("a quota like any other");
    land.patch("Namespace", "", "squat", json!({"metadata": {"labels": {"tamper": "yes"}}})).await.expect("labelled");
    let ours = |quota: &Value| quota["metadata"]["labels"]["projectcapsule.dev/pool"] == "tamper";
    let quota = land.until("ResourceQuota", "squat", "capsule-pool-tamper", ours).await;
    assert_eq!(quota["spec"]["hard"], json!({"pods": "0"}));
}

async fn no_pod_slips_in_before_the_quota(land: &Land) {
    let spec = json!({
        "config": {"defaultsZero": true}, "quota": {"hard": {"pods": "5"}}, "selectors": labelled("slip", "yes"),
    });
    land.namespace("slip-before", json!({"slip": "yes"})).await;
    land.pool("slip", spec).await;
    land.namespace("slip-after", json!({"slip": "yes"})).await;
    land.namespace("slip-later", json!({})).await;
    land.patch("Namespace", "", "slip-later", json!({"metadata": {"labels": {"slip": "yes"}}}))
        .await
        .expect("labelled");
    for namespace in ["slip-before", "slip-after", "slip-later"] {
        let refused = land.pod(namespace, "early", "1m").await.expect_err("nothing is claimed");
        assert!(refused.contains("exceeded quota: capsule-pool-slip"), "{refused}");
        // Without it there would be no limit: it is back in the write that deletes it.
        let uid = land.get("ResourceQuota", namespace, "capsule-pool-slip").await["metadata"]["uid"].clone();
        land.delete("ResourceQuota", namespace, "capsule-pool-slip").await.expect("deleted");
        let again = land.get("ResourceQuota", namespace, "capsule-pool-slip").await;
        assert_ne!(again["metadata"]["uid"], uid);
        land.pod(namespace, "early", "1m").await.expect_err("still nothing is claimed");
        land.claim(namespace, "one", "slip", json!({"pods": "1"})).await;
        land.pod(namespace, "web", "1m").await.expect("and at once it can be used");
    }
    // A namespace that is deleted takes its own along, and is not held by it.
    land.delete("Namespace", "", "slip-after").await.expect("deleted");
    land.until_gone("Namespace", "", "slip-after").await;
    let long = json!({"quota": {"hard": {"pods": "1"}}});
    let refused = land.make("ResourcePool", "", &"p".repeat(64), long).await.expect_err("the name of a label's value");
    assert!(refused.starts_with("422 "), "{refused}");
}

async fn a_pool_does_not_shrink_below_its_claims(land: &Land) {
    land.namespace("shrink", json!({"shrink": "yes"})).await;
    let hard = |hard: Value| json!({"spec": {"quota": {"hard": hard}}});
    let spec = json!({"quota": {"hard": {"pods": "5", "services": "5"}}, "selectors": labelled("shrink", "yes")});
    land.pool("shrink", spec).await;
    land.claim("shrink", "one", "shrink", json!({"pods": "3"})).await;
    let rest = "Remove corresponding claims or keep the resources in the pool";
    let refused = land.patch("ResourcePool", "", "shrink", hard(json!({"pods": "2"}))).await.expect_err("too little");
    assert!(refused.starts_with("403 "), "{refused}");
    let words = format!("can not reduce pods usage to 2 because quantity 3 is claimed . {rest}");
    assert!(refused.contains(&words), "{refused}");
    let refused = land.patch("ResourcePool", "", "shrink", hard(json!({"pods": null}))).await.expect_err("claimed");
    let words = format!("can not remove resource pods as it is still being allocated. {rest}");
    assert!(refused.contains(&words), "{refused}");
    land.patch("ResourcePool", "", "shrink", hard(json!({"pods": "3", "services": null}))).await.expect("just enough");
    land.delete("ResourcePoolClaim", "shrink", "one").await.expect("deleted");
    land.patch("ResourcePool", "", "shrink", hard(json!({"pods": "1"}))).await.expect("nothing is claimed");
}

async fn a_deleted_pool_lets_go_of_its_claims(land: &Land) {
    land.namespace("leave", json!({"leave": "yes"})).await;
    land.pool("leave", json!({"quota": {"hard": {"pods": "5"}}, "selectors": labelled("leave", "yes")})).await;
    land.claim("leave", "has", "leave", json!({"pods": "3"})).await;
    land.claim("leave", "waits", "leave", json!({"pods": "4"})).await;
    land.until_claim("leave", "has", UNUSED).await;
    land.hard("leave", "leave").await;
    land.until("ResourcePool", "", "leave", |pool| pool["metadata"]["finalizers"] == json!([FINALIZER])).await;
    land.delete("ResourcePool", "", "leave").await.expect("deleted");
    land.until_gone("ResourcePool", "", "leave").await;
    assert!(land.find("ResourceQuota", "leave", "capsule-pool-leave").await.is_none(), "gone before the pool is");
    for name in ["has", "waits"] {
        land.until_claim("leave", name, &failed("ResourcePool.capsule.clastix.io \"leave\" not found")).await;
        let claim = land.get("ResourcePoolClaim", "leave", name).await;
        assert!(claim["status"].get("pool").is_none(), "{claim}");
    }
    // A new pool of that name takes them up again.
    land.pool("leave", json!({"quota": {"hard": {"pods": "7"}}, "selectors": labelled("leave", "yes")})).await;
    land.until_claim("leave", "has", UNUSED).await;
    land.until_claim("leave", "waits", UNUSED).await;
}

async fn a_deleted_pool_takes_the_claims_that_have_its_resources_if_it_says_so(land: &Land) {
    land.namespace("take", json!({"take": "yes"})).await;
    let spec = json!({
        "config": {"deleteBoundResources": true}, "quota": {"hard": {"pods": "5"}},
        "selectors": labelled("take", "yes"),
    });
    land.pool("take", spec).await;
    land.claim("take", "has", "take", json!({"pods": "3"})).await;
    land.claim("take", "waits", "take", json!({"pods": "4"})).await;
    let owned = |claim: &Value| claim["metadata"]["ownerReferences"][0]["kind"] == "ResourcePool";
    land.until("ResourcePoolClaim", "take", "has", owned).await;
    land.delete("ResourcePool", "", "take").await.expect("deleted");
    land.until_gone("ResourcePoolClaim", "take", "has").await;
    land.until_claim("take", "waits", &failed("ResourcePool.capsule.clastix.io \"take\" not found")).await;
}

async fn what_is_asked_in_vain_is_told(land: &Land) {
    land.namespace("vain", json!({"vain": "yes"})).await;
    land.pool("vain", json!({"quota": {"hard": {"pods": "5"}}, "selectors": labelled("vain", "yes")})).await;
    let condition = |of: &'static str, field: &'static str, value: &'static str| {
        move |pool: &Value| {
            let list = pool["status"]["conditions"].as_array().cloned().unwrap_or_default();
            list.iter().any(|one| one["type"] == of && one[field] == value)
        }
    };
    land.until("ResourcePool", "", "vain", condition("Exhausted", "message", "no exhaustions")).await;
    land.claim("vain", "has", "vain", json!({"pods": "4"})).await;
    land.claim("vain", "waits", "vain", json!({"pods": "2"})).await;
    land.claim("vain", "too", "vain", json!({"pods": "3"})).await;
    land.until_claim("vain", "too", &exhausted("PoolExhausted", "requested: pods=3, available: pods=1")).await;
    let pool = land.until("ResourcePool", "", "vain", condition("Exhausted", "message", "Pool has exhaustions")).await;
    assert_eq!(pool["status"]["conditions"][1]["reason"], "PoolExhausted");
    let both = |pool: &Value| pool["status"]["exhaustions"]["pods"] == json!({"available": "1", "requesting": "5"});
    land.until("ResourcePool", "", "vain", both).await;
    land.patch("ResourcePool", "", "vain", json!({"spec": {"quota": {"hard": {"pods": "9"}}}})).await.expect("grown");
    for claim in ["waits", "too"] {
        land.until_claim("vain", claim, UNUSED).await;
    }
    land.until("ResourcePool", "", "vain", condition("Exhausted", "reason", "NoExhaustions")).await;
}
