//! Pools, the claims on them, and the line in which claims wait.

use families::capsule::{Reading, Settings};
use serde_json::{Value, json};

use super::{claims, desk_with, pools};
use crate::desk::{Desk, resource};

fn pool(hard: Value) -> Value {
    json!({"spec": {"quota": {"hard": hard}, "selectors": [{"matchLabels": {"tenant": "solar"}}]}})
}

fn claim(pool: &str, amounts: Value) -> Value {
    json!({"spec": {"pool": pool, "claim": amounts}})
}

fn desk() -> Desk {
    let mut desk = Desk::new();
    desk.namespace("a", &[("tenant", "solar")]);
    desk.namespace("b", &[("tenant", "solar")]);
    desk.namespace("elsewhere", &[]);
    desk
}

/// `Type=Status/Reason: message`, one condition a line.
fn conditions(desk: &Desk, namespace: &str, name: &str) -> String {
    let status = desk.status(&claims(), namespace, name);
    let list = status["conditions"].as_array().cloned().unwrap_or_default();
    let show = |one: &Value| {
        let text = |field: &str| one[field].as_str().unwrap_or("").to_string();
        format!("{}={}/{}: {}", text("type"), text("status"), text("reason"), text("message"))
    };
    list.iter().map(show).collect::<Vec<_>>().join("\n")
}

const UNUSED: &str = "Ready=True/Succeeded: reconciled\nExhausted=False/NoExhaustions: resource claimable from pool\n\
                      Bound=False/Unused: claim is unused";

#[test]
fn a_claim_takes_from_its_pool_and_the_status_of_both_tells() {
    let mut desk = desk();
    desk.apply(&pools(), "", "p", pool(json!({"requests.cpu": "4", "requests.memory": "4Gi"}))).unwrap();
    desk.apply(&claims(), "a", "one", claim("p", json!({"requests.cpu": "1", "requests.memory": "1Gi"}))).unwrap();
    desk.apply(&claims(), "a", "two", claim("p", json!({"requests.cpu": "500m"}))).unwrap();
    desk.apply(&claims(), "b", "three", claim("p", json!({"requests.cpu": "2"}))).unwrap();
    assert_eq!(conditions(&desk, "a", "one"), UNUSED);
    let status = desk.status(&pools(), "", "p");
    assert_eq!((&status["claimCount"], &status["namespaceCount"]), (&json!(3), &json!(2)));
    assert_eq!(status["namespaces"], json!(["a", "b"]));
    assert_eq!(
        status["allocation"],
        json!({
            "hard": {"requests.cpu": "4", "requests.memory": "4Gi"},
            "used": {"requests.cpu": "3500m", "requests.memory": "1Gi"},
            "available": {"requests.cpu": "500m", "requests.memory": "3Gi"},
        })
    );
    assert_eq!(status["claims"]["a"][1]["claims"], json!({"requests.cpu": "500m"}));
    assert_eq!(
        status["namespaceUsage"],
        json!({"a": {"requests.cpu": "1500m", "requests.memory": "1Gi"}, "b": {"requests.cpu": "2"}})
    );
    assert_eq!(status["conditions"][1]["message"], "no exhaustions");
}

#[test]
fn what_keeps_a_claim_from_its_pool_is_told() {
    let mut desk = desk();
    desk.apply(&pools(), "", "p", pool(json!({"requests.cpu": "4"}))).unwrap();
    for (namespace, name, object, expected) in [
        ("elsewhere", "none", claim("", json!({"requests.cpu": "1"})), "no pool reference was defined"),
        ("a", "absent", claim("q", json!({"pods": "1"})), "ResourcePool.capsule.clastix.io \"q\" not found"),
        ("elsewhere", "closed", claim("p", json!({"requests.cpu": "1"})), "resourcepool not available"),
        ("a", "other", claim("p", json!({"pods": "1"})), "resource pods is not available in pool p"),
    ] {
        desk.apply(&claims(), namespace, name, object).unwrap();
        assert_eq!(conditions(&desk, namespace, name), format!("Ready=False/Failed: {expected}"));
    }
    // Each comes right by itself.
    desk.apply(&pools(), "", "q", pool(json!({"pods": "5"}))).unwrap();
    desk.apply(&pools(), "", "p", pool(json!({"requests.cpu": "4", "pods": "1"}))).unwrap();
    desk.namespace("elsewhere", &[("tenant", "solar")]);
    for (namespace, name) in [("a", "absent"), ("elsewhere", "closed"), ("a", "other")] {
        assert_eq!(conditions(&desk, namespace, name), UNUSED, "{name}");
    }
}

#[test]
fn claims_wait_and_smaller_ones_pass_unless_the_line_is_ordered() {
    for ordered in [false, true] {
        let mut desk = desk();
        let mut spec = pool(json!({"requests.memory": "2Gi", "pods": "9"}));
        spec["spec"]["config"] = json!({"orderedQueue": ordered});
        desk.apply(&pools(), "", "p", spec).unwrap();
        desk.apply(&claims(), "a", "first", claim("p", json!({"requests.memory": "1Gi"}))).unwrap();
        desk.apply(&claims(), "a", "large", claim("p", json!({"requests.memory": "2Gi"}))).unwrap();
        desk.apply(&claims(), "a", "small", claim("p", json!({"requests.memory": "512Mi"}))).unwrap();
        desk.apply(&claims(), "a", "other", claim("p", json!({"pods": "2"}))).unwrap();
        let left = if ordered { "1Gi" } else { "512Mi" };
        assert_eq!(
            conditions(&desk, "a", "large"),
            format!(
                "Ready=True/Succeeded: reconciled\nExhausted=True/PoolExhausted: requested: requests.memory=2Gi, \
                 available: requests.memory={left}\nBound=False/Failed: claim causes exhaustions"
            )
        );
        let queued = "Exhausted=True/QueueExhausted: requested: requests.memory=512Mi, queued: requests.memory=2Gi";
        assert_eq!(conditions(&desk, "a", "small").contains(queued), ordered);
        assert_eq!(conditions(&desk, "a", "other"), UNUSED);
        let pool_status = desk.status(&pools(), "", "p");
        assert_eq!(pool_status["exhaustions"]["requests.memory"], json!({"available": left, "requesting": "2Gi"}));
        assert_eq!(pool_status["conditions"][1]["reason"], "PoolExhausted");
        // Room wakes whoever is next.
        desk.delete(&claims(), "a", "first").unwrap();
        if !ordered {
            desk.delete(&claims(), "a", "small").unwrap();
        }
        assert_eq!(conditions(&desk, "a", "large"), UNUSED);
    }
}

#[test]
fn whoever_came_first_is_served_first_whatever_the_clock_said() {
    let mut desk = desk();
    desk.apply(&pools(), "", "p", pool(json!({"pods": "2"}))).unwrap();
    desk.apply(&claims(), "a", "holder", claim("p", json!({"pods": "2"}))).unwrap();
    for (name, second) in [("first", 30), ("second", 10), ("third", 20)] {
        let mut object = claim("p", json!({"pods": "2"}));
        object["metadata"] = json!({"creationTimestamp": format!("2026-01-01T00:00:{second}Z")});
        desk.apply(&claims(), "a", name, object).unwrap();
    }
    for (freed, served) in [("holder", "first"), ("first", "second"), ("second", "third")] {
        desk.delete(&claims(), "a", freed).unwrap();
        assert_eq!(conditions(&desk, "a", served), UNUSED);
    }
}

#[test]
fn usage_binds_the_oldest_claims_and_protects_them() {
    let mut desk = desk();
    desk.apply(&pools(), "", "p", pool(json!({"requests.cpu": "8"}))).unwrap();
    for (name, second) in [("one", 1), ("two", 2)] {
        let mut object = claim("p", json!({"requests.cpu": "2"}));
        object["metadata"] = json!({"creationTimestamp": format!("2026-01-01T00:00:0{second}Z")});
        desk.apply(&claims(), "a", name, object).unwrap();
    }
    let pods = resource("pods");
    let pod = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    desk.apply(&pods, "a", "user", pod).unwrap();
    assert!(conditions(&desk, "a", "one").ends_with("Bound=True/InUse: claim is used"));
    assert!(conditions(&desk, "a", "two").ends_with("Bound=False/Unused: claim is unused"));
    assert_eq!(
        desk.delete(&claims(), "a", "one").unwrap_err(),
        "cannot delete the pool while claim is used in resourcepool p"
    );
    let changed = "cannot change the requested resources while claim is allocated to a resourcepool p";
    let grown = claim("p", json!({"requests.cpu": "3"}));
    assert_eq!(desk.apply(&claims(), "a", "one", grown.clone()).unwrap_err(), changed);
    assert_eq!(desk.apply(&claims(), "a", "one", claim("q", json!({"requests.cpu": "2"}))).unwrap_err(), changed);
    // By the documentation a claim that has its resources is not resized either, used or not.
    assert_eq!(desk.apply(&claims(), "a", "two", grown).unwrap_err(), changed);
    let mut released = claim("p", json!({"requests.cpu": "2"}));
    released["metadata"] = json!({"annotations": {"projectcapsule.dev/release": "true"}});
    assert_eq!(
        desk.apply(&claims(), "a", "one", released.clone()).unwrap_err(),
        "cannot release the claim while it is used in resourcepool p"
    );
    // The write that releases it may resize it, unless it is used.
    released["spec"]["claim"] = json!({"requests.cpu": "3"});
    assert!(desk.apply(&claims(), "a", "one", released.clone()).unwrap_err().starts_with("cannot release the claim"));
    desk.apply(&claims(), "a", "two", released).unwrap();
    // Once released it stands in line again, and there is room.
    assert_eq!(desk.projected(&claims(), "a", "two")["metadata"]["annotations"], json!({}));
    assert_eq!(desk.status(&pools(), "", "p")["allocation"]["used"]["requests.cpu"], "5");
    desk.apply(&claims(), "a", "two", claim("p", json!({"requests.cpu": "3"}))).unwrap();
    assert_eq!(desk.status(&pools(), "", "p")["allocation"]["used"]["requests.cpu"], "5");
    desk.delete(&pods, "a", "user").unwrap();
    desk.delete(&claims(), "a", "one").unwrap();
}

#[test]
fn releases_resize_what_is_not_used() {
    let mut desk = desk_with(Settings { reading: Reading::Releases, ..Settings::default() });
    desk.namespace("a", &[("tenant", "solar")]);
    desk.apply(&pools(), "", "p", pool(json!({"pods": "5"}))).unwrap();
    desk.apply(&claims(), "a", "one", claim("p", json!({"pods": "2"}))).unwrap();
    desk.apply(&claims(), "a", "one", claim("p", json!({"pods": "4"}))).unwrap();
    assert_eq!(desk.status(&pools(), "", "p")["allocation"]["used"]["pods"], "4");
}

#[test]
fn a_pool_does_not_shrink_below_its_claims() {
    let mut desk = desk();
    desk.apply(&pools(), "", "p", pool(json!({"pods": "5", "services": "5"}))).unwrap();
    desk.apply(&claims(), "a", "one", claim("p", json!({"pods": "3"}))).unwrap();
    assert_eq!(
        desk.apply(&pools(), "", "p", pool(json!({"pods": "2"}))).unwrap_err(),
        "can not reduce pods usage to 2 because quantity 3 is claimed . Remove corresponding claims or keep the \
         resources in the pool"
    );
    assert_eq!(
        desk.apply(&pools(), "", "p", pool(json!({"services": "5"}))).unwrap_err(),
        "can not remove resource pods as it is still being allocated. Remove corresponding claims or keep the \
         resources in the pool"
    );
    desk.apply(&pools(), "", "p", pool(json!({"pods": "3"}))).unwrap();
    desk.delete(&pools(), "", "p").unwrap();
    assert!(conditions(&desk, "a", "one").contains("not found"));
}

#[test]
fn a_claim_without_a_pool_finds_one() {
    let mut desk = desk();
    for name in ["a", "b"] {
        desk.apply(&resource("namespaces"), "", name, json!({"metadata": {"labels": {"tenant": "solar"}}})).unwrap();
    }
    desk.apply(&pools(), "", "p1", pool(json!({"pods": "1"}))).unwrap();
    desk.apply(&pools(), "", "p2", pool(json!({"pods": "5"}))).unwrap();
    desk.apply(&pools(), "", "p3", pool(json!({"services": "5"}))).unwrap();
    desk.apply(&claims(), "a", "one", json!({"spec": {"claim": {"pods": "3"}}})).unwrap();
    assert_eq!(desk.status(&claims(), "a", "one")["pool"]["name"], "p2");
}

#[test]
fn a_quota_is_claims_and_defaults_together() {
    let mut desk = desk();
    let mut spec = pool(json!({"requests.cpu": "4", "requests.storage": "5Gi"}));
    spec["spec"]["config"] = json!({"defaultsZero": true});
    spec["spec"]["defaults"] = json!({"count/persistentvolumeclaims": 3, "requests.cpu": "500m"});
    desk.apply(&pools(), "", "p", spec).unwrap();
    desk.apply(&claims(), "a", "one", claim("p", json!({"requests.cpu": "1"}))).unwrap();
    let shown = desk.projected(&pools(), "", "p");
    let quota = |namespace: &str| desk.projected(&resource("resourcequotas"), namespace, "capsule-pool-p");
    let there = quota("b");
    let quota = quota("a");
    assert_eq!(quota["metadata"]["name"], "capsule-pool-p");
    assert_eq!(
        quota["spec"]["hard"],
        json!({"count/persistentvolumeclaims": "3", "requests.cpu": "1500m", "requests.storage": "0"})
    );
    assert_eq!(there["spec"]["hard"]["requests.cpu"], "500m");
    assert_eq!(shown["status"]["namespaces"], json!(["a", "b"]));
}

#[test]
fn amounts_are_printed_in_the_family_of_what_was_there() {
    let mut desk = desk();
    desk.apply(&pools(), "", "p", pool(json!({"requests.memory": "2Gi", "requests.cpu": "2"}))).unwrap();
    desk.apply(&claims(), "a", "one", claim("p", json!({"requests.memory": "640Mi", "requests.cpu": "375m"}))).unwrap();
    let allocation = desk.status(&pools(), "", "p")["allocation"].clone();
    assert_eq!(allocation["available"], json!({"requests.memory": "1408Mi", "requests.cpu": "1625m"}));
    desk.apply(&claims(), "a", "rest", claim("p", json!({"requests.memory": "1408Mi"}))).unwrap();
    let allocation = desk.status(&pools(), "", "p")["allocation"].clone();
    assert_eq!(allocation["available"]["requests.memory"], "0");
    assert_eq!(allocation["used"]["requests.memory"], "2Gi");
}

#[test]
fn bad_amounts_are_refused() {
    let mut desk = desk();
    assert!(desk.apply(&pools(), "", "p", pool(json!({"pods": "-1"}))).unwrap_err().contains("greater than or equal"));
    let bad = claim("p", json!({"pods": "some"}));
    assert!(desk.apply(&claims(), "a", "c", bad).unwrap_err().contains("spec.claim[pods]"));
}
