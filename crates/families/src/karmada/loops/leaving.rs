//! A move for which a quota has no room while both places count: the old one is left first. What is left stays charged as evicted,
//! so that nobody takes it meanwhile, and its copy goes at once instead of when the new one is well.

use serde_json::{Value, json};

use super::super::binding::{BindingSpec, Target, usage};
use super::standing::now;

/// What to write of a binding so that its move has room later; `None` where that is nothing, or where it is growth that was refused.
pub fn first(stored: &Value, spec: &BindingSpec, targets: &[Target], producer: &str) -> Option<Value> {
    let next = BindingSpec { clusters: targets.to_vec(), ..spec.clone() };
    let (before, after) = (usage(spec, false).ok()?, usage(&next, false).ok()?);
    let grows = after.pods > before.pods
        || after
            .requests
            .iter()
            .any(|(name, more)| before.requests.get(name).is_none_or(|had| more.amount > had.amount));
    if grows {
        return None;
    }
    let left: Vec<&Target> = spec.clusters.iter().filter(|one| !next.is_on(&one.name)).collect();
    let mut tasks = stored["gracefulEvictionTasks"].as_array().cloned().unwrap_or_default();
    for task in tasks.iter_mut().filter(|task| task["suppressDeletion"] != true) {
        if matches!(task["purgeMode"].as_str().unwrap_or(""), "" | "Gracefully") {
            task["purgeMode"] = json!("Directly");
            task["message"] = json!("The quota has no room for the old copy beside the new one.");
        }
    }
    for target in &left {
        if spec.graceful_eviction_tasks.iter().all(|task| task.from_cluster != target.name) {
            tasks.push(json!({
                "fromCluster": target.name, "purgeMode": "Directly", "replicas": target.replicas, "reason": "Rescheduled",
                "message": "The quota has no room for the old copy beside the new one.", "producer": producer,
                "creationTimestamp": now(),
            }));
        }
    }
    let kept: Vec<&Target> = spec.clusters.iter().filter(|one| next.is_on(&one.name)).collect();
    let is_news = !left.is_empty() || stored.get("gracefulEvictionTasks").is_some_and(|had| *had != json!(tasks));
    is_news.then(|| json!({"clusters": kept, "gracefulEvictionTasks": tasks}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(clusters: Value, tasks: Value) -> Value {
        json!({
            "replicas": 4, "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
            "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}},
            "clusters": clusters, "gracefulEvictionTasks": tasks,
        })
    }

    fn to(stored: &Value, name: &str, replicas: u32) -> Option<Value> {
        let read = BindingSpec::read(&json!({ "spec": stored })).expect("a binding");
        let targets = [Target { name: name.into(), replicas, components: Vec::new() }];
        first(stored, &read, &targets, "test")
    }

    #[test]
    fn the_old_place_is_left_first() {
        let placed = spec(json!([{"name": "m1", "replicas": 4}]), json!([]));
        let left = to(&placed, "m2", 4).expect("something to write");
        assert_eq!(left["clusters"], json!([]));
        assert_eq!(left["gracefulEvictionTasks"][0]["fromCluster"], "m1");
        assert_eq!(left["gracefulEvictionTasks"][0]["purgeMode"], "Directly");
        assert_eq!(to(&placed, "m2", 5), None, "growth waits, and keeps what it has");
    }

    #[test]
    fn an_old_copy_does_not_wait_for_the_new_one() {
        let evicted = |mode: &str| spec(json!([]), json!([{"fromCluster": "m1", "replicas": 4, "purgeMode": mode}]));
        let left = to(&evicted("Gracefully"), "m2", 4).expect("something to write");
        assert_eq!(left["gracefulEvictionTasks"][0]["purgeMode"], "Directly");
        assert_eq!(to(&evicted("Directly"), "m2", 4), None);
        assert_eq!(to(&evicted("Never"), "m2", 4), None, "that is somebody's word");
    }
}
