//! Clusters that failed are left by everybody who is to leave.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::kind::taint_policies;
use super::super::taints::Taints;
use super::*;

/// An eviction that is refused keeps no other in a cluster that failed; and what nobody knows is no way to end one.
#[tokio::test]
async fn a_refused_eviction_keeps_no_other_from_leaving() {
    const ALL: usize = 8;
    let (refused, tried) = (Arc::new(AtomicUsize::new(0)), Arc::new(std::sync::Mutex::new(BTreeSet::new())));
    let (client, _asked) = api({
        let (refused, tried) = (refused.clone(), tried.clone());
        move |(method, place, body)| {
            if *method == Method::PATCH && place.contains("/resourcebindings/") {
                assert_eq!(body["spec"]["gracefulEvictionTasks"][0]["purgeMode"], "Gracefully");
                tried.lock().expect("a list").insert(place.clone());
                // Whoever comes first is refused.
                return Some(if refused.fetch_add(1, Ordering::Relaxed) == 0 { refusal(422) } else { body.clone() });
            }
            Some(body.clone())
        }
    });
    let taints = json!([{"key": "failed", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]);
    let cluster = object(&clusters(), "", "m1", json!({"spec": {"taints": taints}}));
    let all = (0..ALL).map(|one| {
        let spec = json!({
            "resource": {}, "clusters": [{"name": "m1", "replicas": 1}], "failover": {"cluster": {"purgeMode": "Bogus"}},
        });
        object(&bindings(), "team", &format!("b{one}"), json!({ "spec": spec }))
    });
    let mirrors = [
        Mirror::of(clusters(), vec![cluster]),
        Mirror::of(taint_policies(), Vec::new()),
        Mirror::of(bindings(), all.collect()),
    ];
    let rest = Taints::new(client, Arc::new(Settings::default()), mirrors).look().await;
    assert_eq!(tried.lock().expect("a list").len(), ALL);
    assert!(rest <= Duration::from_secs(1), "the one that was refused is tried again");
}
