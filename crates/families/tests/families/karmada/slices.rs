//! The member's side of lending: what pods of a namespace may take, until when, and who waits at the gate.

use families::karmada::Settings;
use serde_json::json;

use super::*;

const GATE: &str = "policy.karmada.io/federated-quota";

fn slices() -> GroupResource {
    resource("federatedquotaslices.policy.karmada.io")
}

fn pods() -> GroupResource {
    resource("pods")
}

fn member() -> Desk {
    desk_with(Settings { gate_pods: true, ..Settings::default() })
}

fn slice(cpu: &str, when_full: &str) -> Value {
    json!({"spec": {"hard": {"cpu": cpu, "pods": "50"}, "whenFull": when_full}})
}

/// A pod of this size, created in this second.
fn pod(cpu: &str, second: u32) -> Value {
    let resources = json!({"requests": {"cpu": cpu}});
    json!({
        "metadata": {"creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    })
}

fn stored(desk: &Desk, name: &str) -> Value {
    desk.stored(&pods(), "a").into_iter().find(|pod| pod["metadata"]["name"] == *name).expect("a pod")
}

fn is_gated(desk: &Desk, name: &str) -> bool {
    stored(desk, name)["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|gates| gates.iter().any(|one| one["name"] == GATE))
}

fn told(desk: &Desk) -> (Value, Value) {
    let status = desk.status(&slices(), "a", "s");
    (status["used"]["cpu"].clone(), status["waiting"]["cpu"].clone())
}

#[test]
fn pods_that_do_not_fit_wait_at_the_gate_and_the_oldest_goes_first() {
    let mut desk = member();
    desk.apply(&slices(), "a", "s", slice("4", "Gate")).unwrap();
    for (name, cpu, second) in [("one", "2", 1), ("two", "2", 2), ("large", "3", 3), ("young", "1", 5), ("old", "1", 4)]
    {
        desk.apply(&pods(), "a", name, pod(cpu, second)).unwrap();
    }
    let gated = |desk: &Desk| ["one", "two", "large", "old", "young"].map(|name| is_gated(desk, name));
    assert_eq!(gated(&desk), [false, false, true, true, true]);
    assert_eq!(told(&desk), (json!("4"), json!("5")));
    // Who takes the gate away by himself gets it back.
    let mut ungated = stored(&desk, "old");
    ungated["spec"].as_object_mut().unwrap().remove("schedulingGates");
    desk.apply(&pods(), "a", "old", ungated).unwrap();
    assert!(is_gated(&desk, "old"));
    // Room for two small ones, and not for the large one that is older.
    desk.delete(&pods(), "a", "one").unwrap();
    assert_eq!(gated_of(&desk, &["large", "old", "young"]), [true, false, false]);
    assert_eq!(told(&desk), (json!("4"), json!("3")));
    desk = desk.restarted();
    assert_eq!(gated_of(&desk, &["large", "old", "young"]), [true, false, false]);
    // Less room takes nobody's place away, and more lets the next one in.
    desk.apply(&slices(), "a", "s", slice("1", "Gate")).unwrap();
    assert_eq!(gated_of(&desk, &["two", "old"]), [false, false]);
    desk.apply(&slices(), "a", "s", slice("7", "Gate")).unwrap();
    assert!(!is_gated(&desk, "large"));
    assert_eq!(told(&desk), (json!("7"), Value::Null));
    // Other gates are not ours to take away.
    let mut held = pod("1", 9);
    held["spec"]["schedulingGates"] = json!([{"name": "example.com/mine"}]);
    desk.apply(&pods(), "a", "held", held).unwrap();
    desk.apply(&slices(), "a", "s", slice("9", "Gate")).unwrap();
    assert_eq!(stored(&desk, "held")["spec"]["schedulingGates"], json!([{"name": "example.com/mine"}]));
    // Without the slice nobody waits.
    desk.apply(&pods(), "a", "last", pod("5", 10)).unwrap();
    assert!(is_gated(&desk, "last"));
    desk.delete(&slices(), "a", "s").unwrap();
    assert!(!is_gated(&desk, "last"));
}

fn gated_of<const COUNT: usize>(desk: &Desk, names: &[&str; COUNT]) -> [bool; COUNT] {
    names.map(|name| is_gated(desk, name))
}

#[test]
fn pods_are_refused_where_that_is_said_and_where_nobody_gates() {
    let words = "exceeded quota: s, requested: cpu=2, used: cpu=3, limited: cpu=4";
    for (mut desk, when_full) in [(member(), "Refuse"), (desk(), "Gate")] {
        desk.apply(&slices(), "a", "s", slice("4", when_full)).unwrap();
        desk.apply(&pods(), "a", "one", pod("3", 1)).unwrap();
        let refused = desk.apply(&pods(), "a", "two", pod("2", 2)).unwrap_err();
        assert!(refused.contains(words), "{refused}");
        // The gate in a manifest gets nobody past the slice.
        let mut gated = pod("2", 2);
        gated["spec"]["schedulingGates"] = json!([{"name": GATE}]);
        if desk.apply(&pods(), "a", "two", gated).is_ok() {
            assert!(is_gated(&desk, "two"), "{when_full}");
            assert!(desk.apply(&pods(), "a", "two", pod("2", 2)).is_err());
        }
        desk.apply(&pods(), "b", "elsewhere", pod("9", 2)).unwrap();
    }
}

#[test]
fn a_slice_whose_time_is_over_lets_nothing_in_and_takes_nothing_away() {
    let mut desk = member();
    let until = |seconds: i64| {
        let mut slice = slice("4", "Gate");
        slice["spec"]["validUntil"] = json!(kinds::time::text(seconds * 1000));
        slice
    };
    desk.now_ms = 10_000;
    desk.apply(&slices(), "a", "s", until(20)).unwrap();
    desk.apply(&pods(), "a", "one", pod("2", 1)).unwrap();
    assert!(!is_gated(&desk, "one"));
    desk.now_ms = 20_000;
    desk.apply(&pods(), "a", "two", pod("1", 2)).unwrap();
    assert_eq!(gated_of(&desk, &["one", "two"]), [false, true]);
    assert_eq!(told(&desk), (json!("2"), json!("1")));
    desk = desk.restarted();
    desk.apply(&pods(), "a", "three", pod("1", 3)).unwrap();
    assert!(is_gated(&desk, "three"));
    // Renewed, it lets in who waited.
    desk.apply(&slices(), "a", "s", until(40)).unwrap();
    assert_eq!(gated_of(&desk, &["two", "three"]), [false, false]);
    for (spec, expected) in [
        (json!({"hard": {"cpu": "-1"}}), "must be greater than or equal to 0"),
        (json!({"hard": {"configmaps": "1"}}), "is not counted of pods"),
        (json!({"hard": {}, "validUntil": "soon"}), "must be a time"),
    ] {
        let said = desk.apply(&slices(), "a", "wrong", json!({ "spec": spec })).unwrap_err();
        assert!(said.contains(expected), "{said}");
    }
}

/// What one change makes room for goes on in the next steps, whoever's they are: those who came first, first, and all of it.
#[test]
fn hundreds_are_let_in_by_one_change() {
    const WAITING: u32 = 700;
    let mut desk = member();
    let slice = |cpu: &str| json!({"spec": {"hard": {"cpu": cpu}, "whenFull": "Gate"}});
    desk.apply(&slices(), "a", "s", slice("1")).unwrap();
    desk.apply(&pods(), "a", "runs", pod("1", 0)).unwrap();
    for number in 0..WAITING {
        desk.apply(&pods(), "a", &format!("p{number:04}"), pod("1", 1 + number % 50)).unwrap();
    }
    assert_eq!(told(&desk), (json!("1"), json!(WAITING.to_string())));
    // Nothing is let go of by those who wait, come or go.
    desk.delete(&pods(), "a", "p0699").unwrap();
    assert!(is_gated(&desk, "p0000"));
    // The oldest by their time, then by their name.
    desk.delete(&pods(), "a", "runs").unwrap();
    assert_eq!(gated_of(&desk, &["p0000", "p0001", "p0050"]), [false, true, true]);
    desk.apply(&slices(), "a", "s", slice("601")).unwrap();
    for number in 0..100 {
        desk.namespace(&format!("n{number}"), &[]);
    }
    assert_eq!(told(&desk), (json!("601"), json!("98")));
    let youngest = desk.stored(&pods(), "a").into_iter().filter(|pod| pod["spec"].get("schedulingGates").is_some());
    assert!(
        youngest
            .min_by_key(|pod| pod["metadata"]["creationTimestamp"].to_string())
            .is_some_and(|pod| { pod["metadata"]["creationTimestamp"].as_str() >= Some("2026-01-01T00:00:43Z") })
    );
}

/// Pods and slices in random order; after every write nobody who runs is beyond the slice, and nobody waits without need.
#[test]
fn whatever_comes_and_goes_the_gate_is_right() {
    let mut seed = 3_u64;
    let mut roll = |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % bound
    };
    let mut desk = member();
    let mut hard = 0;
    for step in 0..600_u32 {
        let name = format!("p{}", roll(9));
        let is_there = desk.stored(&pods(), "a").iter().any(|pod| pod["metadata"]["name"] == *name);
        let before: u64 = running(&desk);
        match roll(8) {
            0 => {
                hard = roll(12);
                desk.apply(&slices(), "a", "s", slice(&hard.to_string(), "Gate")).unwrap();
            }
            1 | 2 if is_there => desk.delete(&pods(), "a", &name).unwrap(),
            3 if is_there => {
                let mut ended = stored(&desk, &name);
                ended["status"]["phase"] = json!("Succeeded");
                desk.apply(&pods(), "a", &name, ended).unwrap();
            }
            4 if step % 7 == 0 => desk = desk.restarted(),
            _ if !is_there => {
                let size = 1 + roll(4);
                desk.apply(&pods(), "a", &name, pod(&size.to_string(), step % 60)).unwrap();
            }
            _ => {}
        }
        let after = running(&desk);
        if desk.stored(&slices(), "a").is_empty() {
            continue;
        }
        assert!(after <= hard || after <= before, "step {step}: {after} run where {hard} may, after {before}");
        for pod in desk.stored(&pods(), "a") {
            let waits = is_gated(&desk, pod["metadata"]["name"].as_str().unwrap());
            assert!(
                !waits || after + size(&pod) > hard,
                "step {step}: {} waits where there is room",
                pod["metadata"]["name"]
            );
        }
        assert_eq!(told(&desk).0, json!(after.to_string()), "step {step}");
    }
}

fn size(pod: &Value) -> u64 {
    match pod["status"]["phase"].as_str() {
        Some("Succeeded") => 0,
        _ => pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str().unwrap().parse().unwrap(),
    }
}

fn running(desk: &Desk) -> u64 {
    let all = desk.stored(&pods(), "a");
    all.iter().filter(|pod| pod["spec"].get("schedulingGates").is_none()).map(size).sum()
}

/// A member's own monitoring sees what its slices allow, also when their time is over.
#[test]
fn monitoring_of_a_member_is_told_of_its_slices() {
    let mut desk = member();
    let mut timed = slice("4", "Gate");
    timed["spec"]["hard"]["example.com/gpu"] = json!("2");
    timed["spec"]["validUntil"] = json!("2026-01-01T00:00:10Z");
    desk.now_ms = kinds::time::read_ms("2026-01-01T00:00:00Z").unwrap();
    desk.apply(&slices(), "a", "s", timed).unwrap();
    desk.apply(&pods(), "a", "one", pod("2500m", 1)).unwrap();
    desk.apply(&pods(), "a", "two", pod("3", 2)).unwrap();
    let says = |desk: &Desk, lines: &[(&str, &str, &str)]| {
        let told = desk.sample();
        for (metric, name, amount) in lines {
            let of = format!("{{federatedquotaslice=\"s\",namespace=\"a\",resource=\"{name}\"}}");
            let line = format!("bursar_federated_slice_{metric}{of} {amount}");
            assert!(told.lines().any(|one| one == line), "{line}\n{told}");
        }
    };
    let gpu = "requests.example.com/gpu";
    says(&desk, &[("limit", "cpu", "4"), ("used", "cpu", "2.5"), ("waiting", "cpu", "3"), ("limit", gpu, "2")]);
    desk.now_ms += 20_000;
    desk.apply(&pods(), "b", "elsewhere", pod("1", 3)).unwrap();
    says(&desk, &[("limit", "cpu", "0"), ("used", "cpu", "2.5")]);
}

/// Nobody waits at a gate to get past what limits everybody else: a pod that waits is let in when it fits into every slice there is.
#[test]
fn a_pod_that_waits_fits_into_every_slice_before_it_is_let_in() {
    let mut desk = member();
    desk.apply(&slices(), "a", "s", slice("1", "Gate")).unwrap();
    for (second, name) in (1..).zip(["one", "two", "three", "four"]) {
        desk.apply(&pods(), "a", name, pod("1", second)).unwrap();
    }
    let waits = |desk: &Desk| gated_of(desk, &["one", "two", "three", "four"]);
    assert_eq!(waits(&desk), [false, true, true, true]);
    // From now on those that do not fit are refused. Those that wait do so until they fit, and whoever lends is told of them.
    desk.apply(&slices(), "a", "s", slice("1", "Refuse")).unwrap();
    assert_eq!(waits(&desk), [false, true, true, true]);
    assert_eq!(told(&desk), (json!("1"), json!("3")));
    assert!(desk.apply(&pods(), "a", "five", pod("1", 5)).is_err());
    desk.apply(&slices(), "a", "s", slice("2", "Refuse")).unwrap();
    assert_eq!(waits(&desk), [false, false, true, true]);
    // One slice with plenty of room is no way past another.
    desk.apply(&slices(), "a", "other", json!({"spec": {"hard": {"cpu": "3"}, "whenFull": "Refuse"}})).unwrap();
    desk.apply(&slices(), "a", "s", slice("9", "Gate")).unwrap();
    assert_eq!(waits(&desk), [false, false, false, true]);
    assert_eq!(desk.status(&slices(), "a", "other")["used"]["cpu"], "3");
    // Where nothing limits any more, nobody waits.
    desk.delete(&slices(), "a", "other").unwrap();
    assert_eq!(waits(&desk), [false; 4]);
}
