//! A cluster fails: what was evicted stays charged until it is placed anew, so that nobody takes it in between.

use families::karmada::Settings;
use serde_json::json;

use super::*;

fn evicted(mut binding: Value, from: &[&str]) -> Value {
    let task = |from: &&str| json!({"fromCluster": from, "reason": "TaintUntolerated", "producer": "test"});
    binding["spec"]["gracefulEvictionTasks"] = from.iter().map(task).collect();
    binding
}

/// The story of the quota's proposal: 40 CPU, four Flink jobs in two clusters, of which one fails.
fn story() -> Desk {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "q", quota(json!({"cpu": "40"}))).unwrap();
    for (name, cpu, cluster) in [("a", 12, "m1"), ("b", 8, "m1"), ("c", 14, "m2"), ("d", 6, "m2")] {
        desk.apply(&bindings(), "a", name, flink(cpu, &[(cluster, 0)])).unwrap();
    }
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "40"}));
    desk
}

#[test]
fn the_total_does_not_dip_and_no_thief_gets_in() {
    let mut desk = story();
    let thief = |desk: &mut Desk| desk.apply(&bindings(), "a", "thief", flink(2, &[("m2", 0)])).is_err();
    for (name, cpu) in [("a", 12), ("b", 8)] {
        desk.apply(&bindings(), "a", name, evicted(flink(cpu, &[]), &["m1"])).unwrap();
        assert_eq!(used(&desk, "a", "q"), json!({"cpu": "40"}));
        assert!(thief(&mut desk));
    }
    desk = desk.restarted();
    assert!(thief(&mut desk));
    for (name, cpu) in [("a", 12), ("b", 8)] {
        desk.apply(&bindings(), "a", name, evicted(flink(cpu, &[("m2", 0)]), &["m1"])).unwrap();
        assert_eq!(used(&desk, "a", "q"), json!({"cpu": "40"}));
        assert!(thief(&mut desk));
    }
    // The old copies are gone.
    for (name, cpu) in [("a", 12), ("b", 8)] {
        desk.apply(&bindings(), "a", name, flink(cpu, &[("m2", 0)])).unwrap();
        assert!(thief(&mut desk));
    }
    // Whoever gives up lets go of it.
    desk.apply(&bindings(), "a", "b", evicted(flink(8, &[]), &["m2"])).unwrap();
    assert!(thief(&mut desk));
    desk.apply(&bindings(), "a", "b", flink(8, &[])).unwrap();
    assert!(!thief(&mut desk));
}

#[test]
fn a_lowered_limit_stops_no_eviction_and_no_replacement() {
    let mut desk = story();
    desk.apply(&quotas(), "a", "q", quota(json!({"cpu": "30"}))).unwrap();
    for (name, cpu) in [("a", 12), ("b", 8)] {
        desk.apply(&bindings(), "a", name, evicted(flink(cpu, &[]), &["m1"])).unwrap();
        desk.apply(&bindings(), "a", name, evicted(flink(cpu, &[("m2", 0)]), &["m1"])).unwrap();
    }
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "40"}));
    desk.apply(&bindings(), "a", "a", flink(10, &[("m2", 0)])).unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "38"}));
}

#[test]
fn a_task_says_what_the_cluster_had_whatever_its_writer_says() {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "q", quota(json!({"cpu": "10"}))).unwrap();
    let web = |clusters: &[(&str, u32)]| binding(10, json!({"cpu": "1"}), clusters);
    desk.apply(&bindings(), "a", "web", web(&[("m1", 6), ("m2", 4)])).unwrap();
    let mut lie = evicted(web(&[("m2", 4)]), &["m1"]);
    lie["spec"]["gracefulEvictionTasks"][0]["replicas"] = json!(0);
    lie["spec"]["gracefulEvictionTasks"][0]["clustersBeforeFailover"] = json!(["x"]);
    desk.apply(&bindings(), "a", "web", lie).unwrap();
    let task = desk.stored(&bindings(), "a")[0]["spec"]["gracefulEvictionTasks"][0].clone();
    assert_eq!((&task["replicas"], &task["clustersBeforeFailover"]), (&json!(6), &json!(["m1", "m2"])));
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "10"}));
    // Nor can it be talked down later: only who takes the task away gives up what it stands for.
    let mut lie = evicted(web(&[("m2", 4)]), &["m1"]);
    lie["spec"]["gracefulEvictionTasks"][0]["replicas"] = json!(0);
    lie["spec"]["gracefulEvictionTasks"][0]["purgeMode"] = json!("Never");
    desk.apply(&bindings(), "a", "web", lie).unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "10"}));
    let again = desk.stored(&bindings(), "a")[0]["spec"]["gracefulEvictionTasks"][0].clone();
    assert_eq!((&again["replicas"], &again["clustersBeforeFailover"]), (&json!(6), &json!(["m1", "m2"])));
    // Placed anew, bit by bit, into clusters old and new.
    let with_task = |clusters: &[(&str, u32)]| {
        let mut next = web(clusters);
        next["spec"]["gracefulEvictionTasks"] = json!([task]);
        next
    };
    for clusters in [&[("m2", 7)][..], &[("m2", 7), ("m3", 2)], &[("m2", 8), ("m3", 2)]] {
        desk.apply(&bindings(), "a", "web", with_task(clusters)).unwrap();
        assert_eq!(used(&desk, "a", "q"), json!({"cpu": "10"}), "{clusters:?}");
    }
    // A smaller workload needs less of it again.
    let mut smaller = with_task(&[("m2", 4)]);
    smaller["spec"]["replicas"] = json!(5);
    desk.apply(&bindings(), "a", "web", smaller).unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "5"}));
}

#[test]
fn a_duplicated_workload_is_held_until_another_cluster_has_it() {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "q", quota(json!({"cpu": "6"}))).unwrap();
    let web = |clusters: &[(&str, u32)]| {
        let mut web = binding(3, json!({"cpu": "1"}), clusters);
        web["spec"]["placement"] = json!({});
        web
    };
    desk.apply(&bindings(), "a", "web", web(&[("m1", 3), ("m2", 3)])).unwrap();
    desk.apply(&bindings(), "a", "web", evicted(web(&[("m2", 3)]), &["m1"])).unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "6"}));
    let task = desk.stored(&bindings(), "a")[0]["spec"]["gracefulEvictionTasks"].clone();
    let mut anew = web(&[("m2", 3), ("m3", 3)]);
    anew["spec"]["gracefulEvictionTasks"] = task;
    desk.apply(&bindings(), "a", "web", anew).unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "6"}));
}

/// The cluster that took over fails, too, before the old copy is gone: nothing is charged twice, however full the quota is.
#[test]
fn what_fails_over_again_and_again_is_charged_once() {
    let duplicated = |clusters: &[&str]| {
        let clusters: Vec<(&str, u32)> = clusters.iter().map(|one| (*one, 3)).collect();
        let mut web = binding(3, json!({"cpu": "1"}), &clusters);
        web["spec"]["placement"] = json!({});
        web
    };
    let job = |clusters: &[&str]| flink(3, &clusters.iter().map(|one| (*one, 0)).collect::<Vec<_>>());
    for make in [&duplicated as &dyn Fn(&[&str]) -> Value, &job] {
        // One cluster at a time fails, and another takes over.
        for copies in [&["m1"][..], &["m1", "m9"]] {
            let mut desk = desk();
            let full = json!({"cpu": (3 * copies.len()).to_string()});
            desk.apply(&quotas(), "a", "q", quota(full.clone())).unwrap();
            desk.apply(&bindings(), "a", "w", make(copies)).unwrap();
            for (from, to) in [("m1", "m2"), ("m2", "m3"), ("m3", "m1"), ("m1", "m4")] {
                let others = &copies[1..];
                for clusters in [others, &[others, &[to][..]].concat()] {
                    let mut next = make(clusters);
                    let mut tasks = desk.stored(&bindings(), "a")[0]["spec"]["gracefulEvictionTasks"].clone();
                    let list = tasks.as_array().cloned().unwrap_or_default();
                    if clusters == others && list.iter().all(|task| task["fromCluster"] != from) {
                        let task = evicted(make(&[]), &[from])["spec"]["gracefulEvictionTasks"][0].clone();
                        tasks = json!([&list[..], &[task]].concat());
                    }
                    next["spec"]["gracefulEvictionTasks"] = tasks;
                    desk.apply(&bindings(), "a", "w", next).unwrap();
                    assert_eq!(used(&desk, "a", "q"), full, "{clusters:?} of {copies:?}, from {from}");
                    assert!(desk.apply(&bindings(), "a", "thief", flink(1, &[("m2", 0)])).is_err());
                }
            }
            // The last of them is well, and the old copies are gone.
            let copies = [&copies[1..], &["m4"]].concat();
            desk.apply(&bindings(), "a", "w", make(&copies)).unwrap();
            assert_eq!(used(&desk, "a", "q"), full);
        }
    }
}

#[test]
fn what_is_evicted_can_be_counted_beside_what_replaced_it() {
    let mut desk = desk_with(Settings { count_evicting: true, ..Settings::default() });
    desk.apply(&quotas(), "a", "q", quota(json!({"cpu": "20"}))).unwrap();
    let web = |clusters: &[(&str, u32)]| binding(10, json!({"cpu": "1"}), clusters);
    desk.apply(&bindings(), "a", "web", web(&[("m1", 10)])).unwrap();
    desk.apply(&bindings(), "a", "web", evicted(web(&[]), &["m1"])).unwrap();
    let task = desk.stored(&bindings(), "a")[0]["spec"]["gracefulEvictionTasks"].clone();
    let mut anew = web(&[("m2", 10)]);
    anew["spec"]["gracefulEvictionTasks"] = task;
    desk.apply(&bindings(), "a", "web", anew).unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "20"}));
    desk.apply(&bindings(), "a", "web", web(&[("m2", 10)])).unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "10"}));
}

/// A thousand failovers, each step of which comes in another order: evictions and replacements of both jobs, ends of tasks,
/// restarts; and between any two of them somebody tries to get in.
#[test]
fn no_thief_gets_in_at_any_moment_of_a_thousand_failovers() {
    let mut seed = 1_u64;
    let mut roll = |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % bound
    };
    let mut desk = story();
    // Where each of the two jobs is, and how far its move: in place, evicted, placed anew.
    let mut jobs = [("a", 12, "m1", 0), ("b", 8, "m1", 0)];
    let (mut done, mut attempts) = (0, 0);
    while done < 1000 {
        if roll(200) == 0 {
            desk = desk.restarted();
        }
        let job = &mut jobs[usize::try_from(roll(2)).unwrap()];
        let (name, cpu, home, stage) = *job;
        let other = if home == "m1" { "m2" } else { "m1" };
        let next = match stage {
            0 => evicted(flink(cpu, &[]), &[home]),
            1 => evicted(flink(cpu, &[(other, 0)]), &[home]),
            _ => flink(cpu, &[(other, 0)]),
        };
        desk.apply(&bindings(), "a", name, next).unwrap();
        (job.2, job.3) = if stage == 2 { (other, 0) } else { (home, stage + 1) };
        done += usize::from(stage == 2);
        assert_eq!(used(&desk, "a", "q"), json!({"cpu": "40"}));
        if roll(2) == 0 {
            attempts += 1;
            assert!(desk.apply(&bindings(), "a", "thief", flink(2, &[("m2", 0)])).is_err());
        }
    }
    assert!(attempts > 1000);
}

/// What was evicted stays charged in full where its pods become smaller and more of them are wanted, and no more than it was.
#[test]
fn what_was_evicted_is_counted_in_its_new_size() {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "q", quota(json!({"cpu": "12"}))).unwrap();
    let everywhere = |replicas: u32, cpu: &str, clusters: &[(&str, u32)]| {
        let mut all = binding(replicas, json!({ "cpu": cpu }), clusters);
        all["spec"]["placement"] = json!({});
        all
    };
    desk.apply(&bindings(), "a", "web", everywhere(4, "1500m", &[("m1", 4), ("m2", 4)])).unwrap();
    let task = json!([{"fromCluster": "m1", "reason": "r", "producer": "p"}]);
    for (replicas, cpu, is, all) in [
        (4, "1500m", 4, "12"),
        (6, "1", 6, "12"),
        (24, "250m", 24, "12"),
        (2, "3", 24, "12"),
        (3, "1", 24, "6"),
        (8, "500m", 24, "8"),
    ] {
        let mut evicted = everywhere(replicas, cpu, &[("m2", replicas)]);
        evicted["spec"]["gracefulEvictionTasks"] = task.clone();
        desk.apply(&bindings(), "a", "web", evicted).unwrap_or_else(|said| panic!("{replicas} of {cpu}: {said}"));
        let stored = desk.stored(&bindings(), "a").remove(0);
        assert_eq!(stored["spec"]["gracefulEvictionTasks"][0]["replicas"], is, "{replicas} of {cpu}");
        assert_eq!(used(&desk, "a", "q"), json!({ "cpu": all }), "{replicas} of {cpu}");
    }
    // More than it had is growth.
    let mut more = everywhere(8, "1", &[("m2", 8)]);
    more["spec"]["gracefulEvictionTasks"] = task;
    assert!(desk.apply(&bindings(), "a", "web", more).is_err());
}
