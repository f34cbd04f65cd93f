//! What members are lent, beside what bindings are charged.

use serde_json::json;

use super::*;

pub fn leases() -> GroupResource {
    resource("federatedquotaleases.policy.karmada.io")
}

fn lease(cluster: &str, hard: Value) -> Value {
    json!({"spec": {"quota": "q", "clusterName": cluster, "hard": hard}})
}

fn elastic(cpu: &str) -> Value {
    json!({"spec": {"overall": {"cpu": cpu, "pods": "100"}, "elastic": {"chunk": {"cpu": "1"}}}})
}

fn base(desk: &Desk, name: &str) -> Value {
    let stored = desk.stored(&leases(), "a").into_iter().find(|one| one["metadata"]["name"] == *name);
    stored.expect("a lease")["spec"]["base"].clone()
}

#[test]
fn what_is_lent_is_charged_and_never_more_than_the_quota() {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "q", elastic("10")).unwrap();
    desk.apply(&leases(), "a", "q.m1", lease("m1", json!({"cpu": "4"}))).unwrap();
    desk.apply(&leases(), "a", "q.m2", lease("m2", json!({"cpu": "4"}))).unwrap();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("8"));
    let refused = desk.apply(&leases(), "a", "q.m2", lease("m2", json!({"cpu": "7"}))).unwrap_err();
    assert!(refused.contains("exceeded for resource cpu: requested sum 11, limit 10."), "{refused}");
    // A binding needs room like everybody; where it is, its part of what the member may use is lent no more.
    let web = |replicas: u32| binding(replicas, json!({"cpu": "1"}), &[("m1", replicas)]);
    assert!(desk.apply(&bindings(), "a", "web", web(3)).is_err());
    desk.apply(&bindings(), "a", "web", web(2)).unwrap();
    assert_eq!(base(&desk, "q.m1"), json!({"cpu": "2", "pods": "2"}));
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("8"));
    // Elsewhere it is charged beside.
    assert!(desk.apply(&bindings(), "a", "far", binding(3, json!({"cpu": "1"}), &[("m3", 3)])).is_err());
    desk.apply(&bindings(), "a", "far", binding(2, json!({"cpu": "1"}), &[("m3", 2)])).unwrap();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("10"));
    // Whatever leaves a member that was lent its room leaves it to the member, until that has given it back.
    desk.delete(&bindings(), "a", "web").unwrap();
    assert_eq!(base(&desk, "q.m1"), json!({}));
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("10"));
    desk.apply(&leases(), "a", "q.m1", lease("m1", json!({"cpu": "1"}))).unwrap();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("7"));
    desk = desk.restarted();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("7"));
    desk.delete(&leases(), "a", "q.m2").unwrap();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("3"));
}

#[test]
fn a_lease_says_what_is_so_whatever_is_written_on_it() {
    let mut desk = desk();
    desk.apply(&bindings(), "a", "web", binding(2, json!({"cpu": "1"}), &[("m1", 2)])).unwrap();
    desk.apply(&quotas(), "a", "q", elastic("10")).unwrap();
    let mut lie = lease("m1", json!({"cpu": "4"}));
    lie["spec"]["base"] = json!({"cpu": "4"});
    desk.apply(&leases(), "a", "q.m1", lie).unwrap();
    assert_eq!(base(&desk, "q.m1"), json!({"cpu": "2", "pods": "2"}));
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("4"));
    for (name, spec, expected) in [
        ("q.m2", lease("m1", json!({})), "must be the names of its quota and its cluster"),
        ("q.m2", lease("m2", json!({"cpu": "-1"})), "must be greater than or equal to 0"),
    ] {
        let said = desk.apply(&leases(), "a", name, spec).unwrap_err();
        assert!(said.contains(expected), "{said}");
    }
    // A lease of another namespace, or of another quota, takes nothing from this one.
    desk.apply(&leases(), "b", "q.m1", lease("m1", json!({"cpu": "90"}))).unwrap();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("4"));
    for (spec, expected) in [
        (json!({"overall": {"cpu": "1"}, "elastic": {"chunk": {"memory": "1Gi"}}}), "is not in overall"),
        (
            json!({"overall": {"cpu": "1"}, "scopes": ["PriorityClass"], "elastic": {"chunk": {"cpu": "1"}}}),
            "lends nothing",
        ),
    ] {
        let said = desk.apply(&quotas(), "a", "other", json!({ "spec": spec })).unwrap_err();
        assert!(said.contains(expected), "{said}");
    }
}

fn lease_line(desk: &Desk, name: &str, field: &str) -> Value {
    let stored = desk.stored(&leases(), "a").into_iter().find(|one| one["metadata"]["name"] == *name);
    stored.expect("a lease")["spec"][field]["cpu"].clone()
}

/// A workload that leaves a member which was lent its room goes nowhere before that gave it back; and nobody takes its place.
#[test]
fn what_leaves_a_member_waits_until_that_has_given_its_room_back() {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "q", elastic("10")).unwrap();
    desk.apply(&bindings(), "a", "web", binding(8, json!({"cpu": "1"}), &[("m1", 8)])).unwrap();
    desk.apply(&leases(), "a", "q.m1", lease("m1", json!({"cpu": "9"}))).unwrap();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("9"));
    // A move in one write would count in both places.
    let said = desk.apply(&bindings(), "a", "web", binding(8, json!({"cpu": "1"}), &[("m2", 8)])).unwrap_err();
    assert!(said.contains("exceeded for resource cpu: requested sum 17, limit 10."), "{said}");
    assert!(said.contains("has not given back yet"), "{said}");
    // One for which there is room passes.
    desk.apply(&bindings(), "a", "web", binding(8, json!({"cpu": "1"}), &[("m1", 7), ("m2", 1)])).unwrap();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("10"));
    desk.apply(&bindings(), "a", "web", binding(8, json!({"cpu": "1"}), &[("m1", 8)])).unwrap();
    // An eviction always does, and changes nothing.
    let evicted = |clusters: &[(&str, u32)]| {
        let mut evicted = binding(8, json!({"cpu": "1"}), clusters);
        evicted["spec"]["gracefulEvictionTasks"] = json!([{"fromCluster": "m1", "replicas": 8, "reason": "r", "producer": "p", "clustersBeforeFailover": ["m1"]}]);
        evicted
    };
    desk.apply(&bindings(), "a", "web", evicted(&[])).unwrap();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("9"));
    assert_eq!(lease_line(&desk, "q.m1", "covered"), json!("8"));
    assert!(desk.apply(&bindings(), "a", "web", evicted(&[("m2", 8)])).is_err());
    desk = desk.restarted();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("9"));
    // What the member gives back is what waits for it, whatever somebody writes of it; a thief gets nothing of it.
    let mut less = lease("m1", json!({"cpu": "4"}));
    less["spec"]["covered"] = json!({"cpu": "0"});
    desk.apply(&leases(), "a", "q.m1", less).unwrap();
    assert_eq!(lease_line(&desk, "q.m1", "covered"), json!("3"));
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("9"));
    assert!(desk.apply(&bindings(), "a", "thief", binding(2, json!({"cpu": "1"}), &[("m2", 2)])).is_err());
    assert!(desk.apply(&bindings(), "a", "web", evicted(&[("m2", 8)])).is_err());
    desk.apply(&leases(), "a", "q.m1", lease("m1", json!({"cpu": "1"}))).unwrap();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("9"));
    desk.apply(&bindings(), "a", "web", evicted(&[("m2", 8)])).unwrap();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("9"));
}

/// A cluster that is left for the second time gives back what it was lent for it, and not one that was left in between.
#[test]
fn a_second_eviction_from_a_member_that_is_lent_to_passes() {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "q", elastic("20")).unwrap();
    let web = |clusters: &[(&str, u32)], from: &[&str]| {
        let mut web = binding(3, json!({"cpu": "1"}), clusters);
        let task = |from: &&str| json!({"fromCluster": from, "reason": "r", "producer": "p"});
        web["spec"]["gracefulEvictionTasks"] = from.iter().map(task).collect();
        web
    };
    for (clusters, from) in [
        (&[("m1", 3)][..], &[][..]),
        (&[], &["m1"]),
        (&[("m2", 3)], &["m1"]),
        (&[], &["m1", "m2"]),
        (&[("m1", 3)], &["m1", "m2"]),
    ] {
        desk.apply(&bindings(), "a", "web", web(clusters, from)).unwrap();
    }
    desk.apply(&leases(), "a", "q.m1", lease("m1", json!({"cpu": "10"}))).unwrap();
    desk.apply(&quotas(), "a", "q", elastic("5")).unwrap();
    desk.apply(&bindings(), "a", "web", web(&[], &["m1", "m2"])).unwrap();
    assert_eq!(lease_line(&desk, "q.m1", "covered"), json!("3"));
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("10"));
}

/// A quota that lends nothing any more counts what it lent once, beside its bindings, until the members gave it back.
#[test]
fn a_quota_that_stops_lending_counts_nothing_twice() {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "q", elastic("10")).unwrap();
    desk.apply(&bindings(), "a", "web", binding(8, json!({"cpu": "1"}), &[("m1", 8)])).unwrap();
    desk.apply(&leases(), "a", "q.m1", lease("m1", json!({"cpu": "9"}))).unwrap();
    desk.apply(&quotas(), "a", "q", quota(json!({"cpu": "10", "pods": "100"}))).unwrap();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("9"));
    desk = desk.restarted();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("9"));
    // What leaves the member leaves its room there, as ever.
    let said = desk.apply(&bindings(), "a", "web", binding(8, json!({"cpu": "1"}), &[("m2", 8)])).unwrap_err();
    assert!(said.contains("has not given back yet"), "{said}");
    desk.apply(&bindings(), "a", "more", binding(1, json!({"cpu": "1"}), &[("m2", 1)])).unwrap();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("10"));
    // One that a lender wrote late counts once, too.
    desk.delete(&leases(), "a", "q.m1").unwrap();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("9"));
    desk.apply(&leases(), "a", "q.m1", lease("m1", json!({"cpu": "9"}))).unwrap();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("10"));
}

/// A quota over many bindings is counted before it is written, a few at a time, whatever is written meanwhile; and what was lent is
/// right in the step in which it comes into force.
#[test]
fn a_quota_over_many_bindings_makes_nobody_wait() {
    let mut desk = desk().narrow();
    let web = |replicas: u32, cluster: &str| binding(replicas, json!({"cpu": "1"}), &[(cluster, replicas)]);
    for number in 0..9 {
        desk.apply(&bindings(), "a", &format!("w{number}"), web(1, ["m1", "m2", "m3"][number % 3])).unwrap();
    }
    desk.apply(&leases(), "a", "q.m1", lease("m1", json!({"cpu": "5"}))).unwrap();
    let mut written = 0;
    desk.apply_at_length(&quotas(), "a", "q", elastic("40"), |desk, slice| {
        // Of those that are counted and of those that are not: more, less, elsewhere.
        let (name, next) = (format!("w{}", slice % 9), web(2 + slice as u32 % 2, ["m1", "m2"][slice % 2]));
        desk.apply(&bindings(), "a", &name, next).unwrap();
        desk.apply(&leases(), "a", "q.m2", lease("m2", json!({"cpu": (6 + slice % 2).to_string()}))).unwrap();
        written += 1;
    })
    .unwrap();
    assert!(written > 2 && desk.slices > 2, "it was counted in {} slices", desk.slices);
    let sums = |desk: &Desk| {
        let on = |cluster: &str| {
            let all = desk.stored(&bindings(), "a");
            let there = all.iter().map(|one| &one["spec"]["clusters"][0]).filter(|one| one["name"] == *cluster);
            there.map(|one| one["replicas"].as_u64().unwrap()).sum::<u64>()
        };
        let hard = |name: &str| {
            let all = desk.stored(&leases(), "a");
            let own = all.iter().find(|one| one["metadata"]["name"] == *name).unwrap();
            (own["spec"]["hard"]["cpu"].as_str().unwrap().parse::<u64>().unwrap(), own["spec"]["base"]["cpu"].clone())
        };
        let ((one, base), (other, _)) = (hard("q.m1"), hard("q.m2"));
        assert_eq!(base, json!(on("m1").to_string()));
        json!((on("m1").max(one) + on("m2").max(other) + on("m3")).to_string())
    };
    assert_eq!(used(&desk, "a", "q")["cpu"], sums(&desk));
    // A name more, and a quota in its place, are staged, too.
    let mut memory = elastic("40");
    memory["spec"]["overall"]["memory"] = json!("9Gi");
    let before = desk.slices;
    desk.apply(&quotas(), "a", "q", memory).unwrap();
    assert!(desk.slices > before, "an edit is counted before");
    assert_eq!(used(&desk, "a", "q")["cpu"], sums(&desk));
    let desk = desk.restarted();
    assert_eq!(used(&desk, "a", "q")["cpu"], sums(&desk));
}

/// A quota that lends no more may have scopes, though members did not give back everything yet: whom it does not mean it does not keep
/// from moving.
#[test]
fn what_scopes_leave_out_goes_where_it_likes() {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "q", elastic("4")).unwrap();
    desk.apply(&bindings(), "a", "web", binding(3, json!({"cpu": "1"}), &[("m1", 3)])).unwrap();
    desk.apply(&leases(), "a", "q.m1", lease("m1", json!({"cpu": "4"}))).unwrap();
    let moved = || binding(3, json!({"cpu": "1"}), &[("m2", 3)]);
    let refused = desk.apply(&bindings(), "a", "web", moved()).unwrap_err();
    assert!(refused.contains("has not given back yet"), "{refused}");
    let scoped = json!({"spec": {"overall": {"cpu": "4", "pods": "100"}, "scopes": ["PriorityClass"]}});
    desk.apply(&quotas(), "a", "q", scoped).unwrap();
    desk.apply(&bindings(), "a", "web", binding(30, json!({"cpu": "1"}), &[("m2", 30)])).unwrap();
    // Whom it means it keeps as before.
    let mut gold = binding(1, json!({"cpu": "1"}), &[("m2", 1)]);
    gold["spec"]["replicaRequirements"]["priorityClassName"] = json!("gold");
    assert!(desk.apply(&bindings(), "a", "gold", gold).unwrap_err().contains("exceeded for resource cpu"));
}

/// A quota that lent, and has scopes now, asks nothing of bindings that it does not mean, and all of those that it comes to mean.
#[test]
fn a_quota_with_scopes_has_no_say_where_others_move() {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "q", elastic("5")).unwrap();
    desk.apply(&leases(), "a", "q.m1", lease("m1", json!({"cpu": "3"}))).unwrap();
    let scoped = json!({"spec": {"overall": {"cpu": "5"}, "scopes": ["PriorityClass"]}});
    desk.apply(&quotas(), "a", "q", scoped).unwrap();
    let of = |class: &str, replicas: u32, cluster: &str| {
        let mut web = binding(replicas, json!({"cpu": "1"}), &[(cluster, replicas)]);
        web["spec"]["replicaRequirements"]["priorityClassName"] = json!(class);
        web
    };
    for (class, replicas, cluster, expected) in [
        ("", 4, "m1", "3"),
        ("", 4, "m2", "3"),
        ("", 9, "m1", "3"),
        ("", 2, "m1", "3"),
        // Of the member's room two are its own now; where it is not, it counts beside that.
        ("high", 2, "m1", "3"),
        ("high", 2, "m2", "5"),
        ("", 2, "m1", "3"),
    ] {
        desk.apply(&bindings(), "a", "web", of(class, replicas, cluster)).unwrap();
        assert_eq!(used(&desk, "a", "q")["cpu"], json!(expected), "{class} {replicas} {cluster}");
    }
    let said = desk.apply(&bindings(), "a", "web", of("high", 3, "m2")).unwrap_err();
    assert!(said.contains("exceeded for resource cpu: requested sum 6, limit 5."), "{said}");
}

/// By other settings other amounts are charged from a start on, and what is lent beside them is right before anybody is let in.
#[test]
fn leases_follow_other_settings_before_anything_is_decided_beside_them() {
    let settings = |count_evicting| families::karmada::Settings { count_evicting, ..Default::default() };
    let mut desk = desk_with(settings(true));
    desk.apply(&quotas(), "a", "q", elastic("20")).unwrap();
    desk.apply(&bindings(), "a", "web", binding(8, json!({"cpu": "1"}), &[("m1", 8)])).unwrap();
    desk.apply(&leases(), "a", "q.m1", lease("m1", json!({"cpu": "10"}))).unwrap();
    let evicted = |clusters: &[(&str, u32)]| {
        let mut evicted = binding(8, json!({"cpu": "1"}), clusters);
        evicted["spec"]["gracefulEvictionTasks"] = json!([{"fromCluster": "m1", "reason": "r", "producer": "p"}]);
        evicted
    };
    desk.apply(&bindings(), "a", "web", evicted(&[])).unwrap();
    desk.apply(&bindings(), "a", "web", evicted(&[("m2", 8)])).unwrap();
    assert_eq!(
        used(&desk, "a", "q")["cpu"],
        json!("18"),
        "what was evicted, what replaced it, and what the member has in hand"
    );
    let karmada = settings(false);
    let mut desk = desk.restarted_with(families::Settings { karmada, ..families::Settings::default() });
    let more = |replicas: u32| binding(replicas, json!({"cpu": "1"}), &[("m3", replicas)]);
    let said = desk.apply(&bindings(), "a", "more", more(5)).unwrap_err();
    assert!(said.contains("exceeded for resource cpu: requested sum 23, limit 20."), "{said}");
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("18"), "what replaced it, and all that the member may use");
    desk.apply(&bindings(), "a", "more", more(2)).unwrap();
}
