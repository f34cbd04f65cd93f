//! ResourcePoolClaims: finding a pool, waiting in line, being in use, letting go.

use serde_json::{Value, json};

use super::{IN_USE, Land, UNUSED, exhausted, failed, labelled, standing};

#[tokio::test]
async fn claims() {
    let land = Land::start().await;
    futures::join!(
        what_keeps_a_claim_from_a_pool_is_told_and_mends_itself(&land),
        a_smaller_claim_passes_a_larger_one(&land),
        in_an_ordered_line_nobody_passes_for_the_same_resource(&land),
        the_first_in_line_is_whoever_came_first(&land),
        a_claim_without_a_pool_is_given_one(&land),
        usage_binds_claims_and_protects_them(&land),
        a_claim_that_has_its_resources_is_not_resized(&land),
        a_claim_is_released_by_annotation(&land),
        a_count_of_claims_refuses_and_is_not_waited_for(&land),
        events_tell_of_waiting_and_of_its_end(&land),
        a_name_with_dots_disturbs_nobody(&land),
    );
    land.end().await;
}

async fn what_keeps_a_claim_from_a_pool_is_told_and_mends_itself(land: &Land) {
    land.namespace("why", json!({"why": "yes"})).await;
    land.namespace("why-not", json!({})).await;
    land.pool("why", json!({"quota": {"hard": {"pods": "5"}}, "selectors": labelled("why", "yes")})).await;
    let not_found = failed("ResourcePool.capsule.clastix.io \"why-later\" not found");
    for (namespace, name, pool, amounts, expected) in [
        ("why", "later", "why-later", json!({"pods": "1"}), not_found),
        ("why-not", "closed", "why", json!({"pods": "1"}), failed("resourcepool not available")),
        ("why", "other", "why", json!({"services": "1"}), failed("resource services is not available in pool why")),
        ("why-not", "none", "", json!({"count/secrets": "1"}), failed("no pool reference was defined")),
    ] {
        let claim = land.claim(namespace, name, pool, amounts).await;
        assert_eq!(standing(&claim), expected, "the answer to the create says so already");
    }
    // A pool appears, a label appears, a resource appears, a pool for the one without appears.
    land.pool("why-later", json!({"quota": {"hard": {"pods": "5"}}, "selectors": labelled("why", "yes")})).await;
    land.until_claim("why", "later", UNUSED).await;
    land.patch("Namespace", "", "why-not", json!({"metadata": {"labels": {"why": "yes"}}})).await.expect("labelled");
    land.until_claim("why-not", "closed", UNUSED).await;
    let grown = json!({"spec": {"quota": {"hard": {"services": "2"}}}});
    land.patch("ResourcePool", "", "why", grown).await.expect("grown");
    land.until_claim("why", "other", UNUSED).await;
    let spec = json!({"quota": {"hard": {"count/secrets": "5"}}, "selectors": labelled("why", "yes")});
    land.pool("why-secrets", spec).await;
    land.until_claim("why-not", "none", UNUSED).await;
    assert_eq!(land.get("ResourcePoolClaim", "why-not", "none").await["spec"]["pool"], "why-secrets");
}

async fn a_smaller_claim_passes_a_larger_one(land: &Land) {
    land.namespace("greedy", json!({"greedy": "yes"})).await;
    let spec = json!({"quota": {"hard": {"requests.memory": "2Gi"}}, "selectors": labelled("greedy", "yes")});
    land.pool("greedy", spec).await;
    let memory = |amount: &str| json!({"requests.memory": amount});
    land.claim("greedy", "first", "greedy", memory("1Gi")).await;
    let waits = land.claim("greedy", "get-mem", "greedy", memory("2Gi")).await;
    let why = "requested: requests.memory=2Gi, available: requests.memory=1Gi";
    assert_eq!(standing(&waits), exhausted("PoolExhausted", why));
    assert_eq!(standing(&land.claim("greedy", "skip-the-line", "greedy", memory("512Mi")).await), UNUSED);
    let why = "requested: requests.memory=2Gi, available: requests.memory=512Mi";
    land.until_claim("greedy", "get-mem", &exhausted("PoolExhausted", why)).await;
    // A waiting claim can be changed, and is looked at again at once.
    let less = json!({"spec": {"claim": {"requests.memory": "512Mi"}}});
    let changed = land.patch("ResourcePoolClaim", "greedy", "get-mem", less).await.expect("still mutable");
    assert_eq!(standing(&changed), UNUSED);
}

async fn in_an_ordered_line_nobody_passes_for_the_same_resource(land: &Land) {
    land.namespace("ordered", json!({"ordered": "yes"})).await;
    let spec = json!({
        "config": {"orderedQueue": true}, "quota": {"hard": {"requests.memory": "2Gi", "pods": "9"}},
        "selectors": labelled("ordered", "yes"),
    });
    land.pool("ordered", spec).await;
    let memory = |amount: &str| json!({"requests.memory": amount});
    land.claim("ordered", "a-first", "ordered", memory("1Gi")).await;
    let large = land.claim("ordered", "b-large", "ordered", memory("2Gi")).await;
    let why = "requested: requests.memory=2Gi, available: requests.memory=1Gi";
    assert_eq!(standing(&large), exhausted("PoolExhausted", why));
    let small = land.claim("ordered", "c-small", "ordered", memory("512Mi")).await;
    let why = "requested: requests.memory=512Mi, queued: requests.memory=2Gi";
    assert_eq!(standing(&small), exhausted("QueueExhausted", why));
    // The line is one of a resource: who asks for others is not in it.
    assert_eq!(standing(&land.claim("ordered", "d-pods", "ordered", json!({"pods": "2"})).await), UNUSED);
    land.delete("ResourcePoolClaim", "ordered", "a-first").await.expect("deleted");
    // Who was woken says so in the same moment.
    assert_eq!(standing(&land.get("ResourcePoolClaim", "ordered", "b-large").await), UNUSED);
    let why = "requested: requests.memory=512Mi, available: requests.memory=0";
    land.until_claim("ordered", "c-small", &exhausted("PoolExhausted", why)).await;
}

async fn the_first_in_line_is_whoever_came_first(land: &Land) {
    for namespace in ["prio-a", "prio-b"] {
        land.namespace(namespace, json!({"prio": "yes"})).await;
    }
    land.pool("prio", json!({"quota": {"hard": {"pods": "1"}}, "selectors": labelled("prio", "yes")})).await;
    let one = || json!({"pods": "1"});
    land.claim("prio-a", "holder", "prio", one()).await;
    // All of them within a second of the clock, which does not decide it.
    let line = [("prio-b", "same"), ("prio-a", "same"), ("prio-b", "after"), ("prio-a", "between")];
    for (namespace, name) in line {
        land.claim(namespace, name, "prio", one()).await;
    }
    let mut holder = ("holder", "prio-a");
    for (namespace, name) in line {
        land.delete("ResourcePoolClaim", holder.1, holder.0).await.expect("deleted");
        assert_eq!(standing(&land.get("ResourcePoolClaim", namespace, name).await), UNUSED, "{name} in {namespace}");
        holder = (name, namespace);
    }
}

async fn a_claim_without_a_pool_is_given_one(land: &Land) {
    land.namespace("auto", json!({"auto": "yes"})).await;
    let pool = |hard: Value| json!({"quota": {"hard": hard}, "selectors": labelled("auto", "yes")});
    land.pool("auto-1-small", pool(json!({"pods": "1"}))).await;
    land.pool("auto-2-large", pool(json!({"pods": "5"}))).await;
    land.pool("auto-3-other", pool(json!({"services": "5"}))).await;
    // Without the field, as most people write it.
    let bare = |amounts: Value| json!({"claim": amounts});
    let claim = land.make("ResourcePoolClaim", "auto", "three", bare(json!({"pods": "3"}))).await.expect("a claim");
    assert_eq!(claim["spec"]["pool"], "auto-2-large", "the first that has enough");
    let claim = land.make("ResourcePoolClaim", "auto", "nine", bare(json!({"pods": "9"}))).await.expect("a claim");
    assert_eq!(claim["spec"]["pool"], "auto-1-small", "or else the first that has the resource");
    let both = bare(json!({"pods": "1", "services": "1"}));
    let claim = land.make("ResourcePoolClaim", "auto", "both", both).await.expect("a claim");
    assert_eq!(claim["spec"]["pool"], "", "no pool has both");
    // Asking again without a pool does not take the claim away from the one it has.
    let again = json!({"spec": {"pool": ""}});
    let claim = land.patch("ResourcePoolClaim", "auto", "three", again).await.expect("no change");
    assert_eq!(claim["spec"]["pool"], "auto-2-large");
    // A pool of somebody else's choice.
    let named = json!({"spec": {"pool": "auto-3-other", "claim": {"pods": null}}});
    let claim = land.patch("ResourcePoolClaim", "auto", "both", named).await.expect("changed");
    assert_eq!(standing(&claim), UNUSED);
}

async fn usage_binds_claims_and_protects_them(land: &Land) {
    land.namespace("use", json!({"use": "yes"})).await;
    let spec = json!({
        "config": {"defaultsZero": true}, "quota": {"hard": {"requests.cpu": "4"}}, "selectors": labelled("use", "yes"),
    });
    land.pool("use", spec).await;
    land.hard("use", "use").await;
    let refused = land.pod("use", "early", "1").await.expect_err("nothing is claimed");
    assert!(refused.contains("exceeded quota: capsule-pool-use"), "{refused}");
    land.claim("use", "a-one", "use", json!({"requests.cpu": "2"})).await;
    land.claim("use", "b-two", "use", json!({"requests.cpu": "2"})).await;
    land.pod("use", "web", "2").await.expect("it fits at once");
    land.until_claim("use", "a-one", IN_USE).await;
    land.until_claim("use", "b-two", UNUSED).await;
    land.delete("ResourcePoolClaim", "use", "b-two").await.expect("unused");
    let refused = land.delete("ResourcePoolClaim", "use", "a-one").await.expect_err("in use");
    assert!(refused.starts_with("403 "), "{refused}");
    assert!(refused.contains("cannot delete the pool while claim is used in resourcepool use"), "{refused}");
    let elsewhere = json!({"spec": {"pool": "other"}});
    let refused = land.patch("ResourcePoolClaim", "use", "a-one", elsewhere).await.expect_err("in use");
    let words = "cannot change the requested resources while claim is allocated to a resourcepool use";
    assert!(refused.contains(words), "{refused}");
    // What was given back cannot be used: the quota shrank with the claim.
    let refused = land.pod("use", "more", "1").await.expect_err("given back");
    let words = "requested: requests.cpu=1, used: requests.cpu=2, limited: requests.cpu=2";
    assert!(refused.contains(words), "{refused}");
    land.delete("Pod", "use", "web").await.expect("deleted");
    land.until_gone("Pod", "use", "web").await;
    land.until_claim("use", "a-one", UNUSED).await;
    land.delete("ResourcePoolClaim", "use", "a-one").await.expect("unused now");
}

async fn a_claim_that_has_its_resources_is_not_resized(land: &Land) {
    land.namespace("fixed", json!({"fixed": "yes"})).await;
    land.pool("fixed", json!({"quota": {"hard": {"pods": "9"}}, "selectors": labelled("fixed", "yes")})).await;
    land.claim("fixed", "one", "fixed", json!({"pods": "2"})).await;
    let words = "cannot change the requested resources while claim is allocated to a resourcepool fixed";
    for pods in ["1", "3"] {
        let resized = json!({"spec": {"claim": {"pods": pods}}});
        let refused = land.patch("ResourcePoolClaim", "fixed", "one", resized).await.expect_err("immutable");
        assert!(refused.contains(words), "{refused}");
    }
    // The write that releases it may resize it; it stands in line again with what it asks for now.
    let resized = json!({
        "metadata": {"annotations": {"projectcapsule.dev/release": "true"}}, "spec": {"claim": {"pods": "4"}},
    });
    land.patch("ResourcePoolClaim", "fixed", "one", resized).await.expect("released");
    land.until_claim("fixed", "one", UNUSED).await;
    land.until("ResourcePool", "", "fixed", |pool| pool["status"]["allocation"]["used"]["pods"] == "4").await;
    let back = json!({
        "metadata": {"annotations": {"projectcapsule.dev/release": "true"}}, "spec": {"claim": {"pods": "2"}},
    });
    land.patch("ResourcePoolClaim", "fixed", "one", back).await.expect("released");
    land.until_claim("fixed", "one", UNUSED).await;
    // The same amount in other words is no change, and what is unused may go to another pool.
    let same = json!({"spec": {"claim": {"pods": "2000m"}}});
    land.patch("ResourcePoolClaim", "fixed", "one", same).await.expect("the same");
    land.pool("fixed-2", json!({"quota": {"hard": {"pods": "9"}}, "selectors": labelled("fixed", "yes")})).await;
    let moved = json!({"spec": {"pool": "fixed-2"}});
    let claim = land.patch("ResourcePoolClaim", "fixed", "one", moved).await.expect("unused");
    assert_eq!(claim["status"]["pool"]["name"], "fixed-2");
}

async fn a_claim_is_released_by_annotation(land: &Land) {
    land.namespace("free", json!({"free": "yes"})).await;
    let spec = json!({
        "config": {"defaultsZero": true}, "quota": {"hard": {"requests.cpu": "2"}},
        "selectors": labelled("free", "yes"),
    });
    land.pool("free", spec).await;
    land.hard("free", "free").await;
    let cpu = |amount: &str| json!({"requests.cpu": amount});
    // A mark that comes with a new claim means nothing.
    let marked = json!({
        "metadata": {"name": "a-one", "annotations": {"projectcapsule.dev/release": "true"}},
        "spec": {"pool": "free", "claim": cpu("2")},
    });
    let claim = land.create("ResourcePoolClaim", "free", marked).await.expect("a claim");
    assert_eq!(standing(&claim), UNUSED);
    land.claim("free", "b-two", "free", cpu("1")).await;
    land.claim("free", "c-three", "free", cpu("2")).await;
    land.pod("free", "web", "1").await.expect("a pod");
    let release = || json!({"metadata": {"annotations": {"projectcapsule.dev/release": "true"}}});
    let refused = land.patch("ResourcePoolClaim", "free", "a-one", release()).await.expect_err("in use");
    assert!(refused.contains("cannot release the claim while it is used in resourcepool free"), "{refused}");
    land.delete("Pod", "free", "web").await.expect("deleted");
    land.until_gone("Pod", "free", "web").await;
    land.patch("ResourcePoolClaim", "free", "a-one", release()).await.expect("unused");
    // Who waited has it in the same moment, and the released one stands in line again.
    assert_eq!(standing(&land.get("ResourcePoolClaim", "free", "b-two").await), UNUSED);
    let why = "requested: requests.cpu=2, available: requests.cpu=1";
    land.until_claim("free", "a-one", &exhausted("PoolExhausted", why)).await;
    let claim = land.get("ResourcePoolClaim", "free", "a-one").await;
    assert!(claim["metadata"]["annotations"].get("projectcapsule.dev/release").is_none(), "{claim}");
    land.delete("ResourcePoolClaim", "free", "b-two").await.expect("unused");
    land.until_claim("free", "a-one", UNUSED).await;
    land.until_claim(
        "free",
        "c-three",
        &exhausted("PoolExhausted", "requested: requests.cpu=2, available: requests.cpu=0"),
    )
    .await;
}

async fn a_count_of_claims_refuses_and_is_not_waited_for(land: &Land) {
    land.namespace("count", json!({"count": "yes"})).await;
    land.pool("count", json!({"quota": {"hard": {"pods": "2"}}, "selectors": labelled("count", "yes")})).await;
    let hard = json!({"hard": {"count/resourcepoolclaims.capsule.clastix.io": "2"}});
    land.make("ResourceQuota", "count", "claims", hard).await.expect("a quota");
    let custom = json!({
        "limit": 3, "sources": [{"apiVersion": "capsule.clastix.io/v1beta2", "kind": "ResourcePoolClaim", "op": "count"}],
    });
    land.make("CustomQuota", "count", "claims", custom).await.expect("a quota");
    land.claim("count", "has", "count", json!({"pods": "2"})).await;
    land.claim("count", "waits", "count", json!({"pods": "2"})).await;
    let spec = json!({"pool": "count", "claim": {"pods": "1"}});
    let refused = land.make("ResourcePoolClaim", "count", "third", spec.clone()).await.expect_err("one too many");
    assert!(refused.starts_with("403 ") && refused.contains("exceeded quota: claims"), "{refused}");
    assert_eq!(
        land.usage("CustomQuota", "count", "claims").await,
        "2/1",
        "who waits is counted, who is refused is not"
    );
    land.delete("ResourcePoolClaim", "count", "waits").await.expect("deleted");
    land.make("ResourcePoolClaim", "count", "third", spec).await.expect("there is room for a third");
    let claims = land.until("CustomQuota", "count", "claims", |quota| {
        quota["status"]["claims"].as_array().is_some_and(|claims| claims.iter().any(|one| one["name"] == "third"))
    });
    assert_eq!(claims.await["status"]["claimCount"], 2);
}

async fn events_tell_of_waiting_and_of_its_end(land: &Land) {
    land.namespace("news", json!({"news": "yes"})).await;
    land.pool("news", json!({"quota": {"hard": {"pods": "2"}}, "selectors": labelled("news", "yes")})).await;
    land.claim("news", "has", "news", json!({"pods": "2"})).await;
    land.claim("news", "waits", "news", json!({"pods": "1"})).await;
    let told = |reason: &'static str, of: &'static str, note: &'static str| async move {
        let begun = std::time::Instant::now();
        loop {
            let events = land.api("Event", "news").list(&Default::default()).await.expect("events");
            let found = events.iter().map(|event| &event.data).any(|event| {
                event["reason"] == reason && event["note"] == note && event["regarding"]["name"] == "waits"
            });
            if found {
                let kind =
                    events.iter().find(|event| event.data["reason"] == reason).expect("found").data["type"].clone();
                assert_eq!(kind, of);
                return;
            }
            assert!(begun.elapsed() < super::PATIENCE, "{reason}: {:?}", events.items);
            tokio::time::sleep(super::LOOK_EVERY).await;
        }
    };
    told("PoolExhausted", "Warning", "requested: pods=1, available: pods=0").await;
    land.delete("ResourcePoolClaim", "news", "has").await.expect("deleted");
    told("NoExhaustions", "Normal", "resource claimable from pool").await;
    land.delete("ResourcePool", "", "news").await.expect("deleted");
    told("Disassociated", "Normal", "claim is disassociated from the pool").await;
}

async fn a_name_with_dots_disturbs_nobody(land: &Land) {
    land.namespace("dots", json!({"dots": "yes"})).await;
    land.pool("dots.example", json!({"quota": {"hard": {"pods": "2"}}, "selectors": labelled("dots", "yes")})).await;
    land.claim("dots", "a.b", "dots.example", json!({"pods": "1"})).await;
    land.until_claim("dots", "a.b", UNUSED).await;
    land.until("ResourcePool", "", "dots.example", |pool| pool["status"]["claims"]["dots"][0]["name"] == "a.b").await;
    assert_eq!(land.hard("dots", "dots.example").await, json!({"pods": "1"}));
}
