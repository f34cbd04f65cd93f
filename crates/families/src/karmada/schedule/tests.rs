use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::super::binding::EvictionTask;
use super::*;

fn cluster(name: &str, cpu: Option<i64>) -> Cluster {
    let left = cpu.map(|cpu| BTreeMap::from([("cpu".to_owned(), Amount::from_units(cpu))]));
    Cluster { name: name.into(), left, ..Cluster::default() }
}

fn binding(replicas: u32, placement: Value, clusters: &[(&str, u32)]) -> BindingSpec {
    let spec = json!({
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "replicas": replicas,
        "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
        "placement": placement,
        "clusters": clusters.iter().map(|(name, replicas)| json!({"name": name, "replicas": replicas})).collect::<Vec<_>>(),
    });
    BindingSpec::read(&json!({ "spec": spec })).unwrap()
}

fn shown(placed: Result<Vec<Target>, Misfit>) -> String {
    match placed {
        Ok(targets) => targets.iter().map(|one| format!("{}={}", one.name, one.replicas)).collect::<Vec<_>>().join(" "),
        Err(Misfit::NoClusterFit(why)) => format!("NoClusterFit {why}"),
        Err(Misfit::Unschedulable(why)) => format!("Unschedulable {why}"),
    }
}

fn divided(how: Value) -> Value {
    let mut scheduling = json!({"replicaSchedulingType": "Divided"});
    how.as_object().unwrap().iter().for_each(|(key, value)| scheduling[key] = value.clone());
    json!({ "replicaScheduling": scheduling })
}

fn dynamic() -> Value {
    divided(json!({"weightPreference": {"dynamicWeight": "AvailableReplicas"}}))
}

fn aggregated() -> Value {
    divided(json!({"replicaDivisionPreference": "Aggregated"}))
}

#[test]
fn each_way_to_divide() {
    let three = [cluster("m1", Some(10)), cluster("m2", Some(20)), cluster("m3", Some(30))];
    let weights = divided(json!({"weightPreference": {"staticWeightList": [
        {"targetCluster": {"clusterNames": ["m1"]}, "weight": 1},
        {"targetCluster": {"clusterNames": ["m2"]}, "weight": 2},
    ]}}));
    for (placement, replicas, had, expected) in [
        (json!({}), 3, &[][..], "m1=3 m2=3 m3=3"),
        (json!({"spreadConstraints": [{"maxGroups": 1}]}), 3, &[], "m3=3"),
        (json!({"spreadConstraints": [{"maxGroups": 1}]}), 3, &[("m1", 3)], "m1=3"),
        (weights, 9, &[], "m1=3 m2=6"),
        (divided(json!({})), 9, &[], "m1=3 m2=3 m3=3"),
        (dynamic(), 12, &[], "m1=2 m2=4 m3=6"),
        (dynamic(), 13, &[("m1", 7)], "m1=8 m2=2 m3=3"),
        (dynamic(), 3, &[("m1", 2), ("m2", 4)], "m1=1 m2=2"),
        (aggregated(), 12, &[], "m3=12"),
        (aggregated(), 35, &[], "m2=5 m3=30"),
        (aggregated(), 12, &[("m1", 3)], "m1=12"),
        (aggregated(), 14, &[("m1", 3)], "m1=13 m3=1"),
        (dynamic(), 61, &[], "Unschedulable Clusters available replicas 60 are not enough to schedule."),
        (json!({}), 11, &[], "Unschedulable Clusters available replicas 10 are not enough to schedule."),
    ] {
        let placed = place(&binding(replicas, placement.clone(), had), "uid", &three);
        assert_eq!(shown(placed), expected, "{replicas} by {placement} from {had:?}");
    }
}

#[test]
fn why_no_cluster_fits() {
    let tainted = |name: &str, effect: &str| Cluster {
        taints: vec![Taint { key: "down".into(), effect: effect.into(), ..Taint::default() }],
        ..cluster(name, None)
    };
    let mut clusters = vec![cluster("leaving", None), tainted("m1", "NoExecute"), cluster("m2", None)];
    clusters[0].is_leaving = true;
    clusters[2].kinds = Some(BTreeSet::new());
    let spec = binding(1, json!({"clusterAffinity": {"exclude": ["x"]}}), &[]);
    assert_eq!(
        shown(place(&spec, "u", &clusters)),
        "NoClusterFit 0/3 clusters are available: 1 cluster(s) are being removed, 1 cluster(s) did not have the API resource, \
         1 cluster(s) had untolerated taint {down: NoExecute}."
    );
    assert_eq!(shown(place(&spec, "u", &[])), "NoClusterFit 0/0 clusters are available: no clusters are registered.");
    // What is there stays until it is evicted; whoever tolerates the taint may come.
    let there = binding(1, json!({}), &[("m1", 1)]);
    assert_eq!(shown(place(&there, "u", &clusters)), "m1=1");
    let tolerant = json!({"clusterTolerations": [{"key": "down", "operator": "Exists"}]});
    assert_eq!(shown(place(&binding(1, tolerant, &[]), "u", &clusters)), "m1=1");
    let mut evicting = binding(1, json!({}), &[]);
    evicting.graceful_eviction_tasks = vec![EvictionTask { from_cluster: "m1".into(), ..Default::default() }];
    assert!(shown(place(&evicting, "u", &clusters[1..2])).contains("in the process of eviction"));
    clusters[1].taints.clear();
    // Well again, a cluster gets back what nobody else can have, and only that.
    assert_eq!(shown(place(&evicting, "u", &clusters[1..2])), "m1=1");
    let other = Cluster { name: "m9".into(), ..Cluster::default() };
    assert_eq!(shown(place(&evicting, "u", &[clusters[1].clone(), other.clone()])), "m9=1");
    let full = Cluster { left: Some(BTreeMap::from([("pods".into(), Amount::ZERO)])), ..other };
    evicting.placement = Some(dynamic());
    assert_eq!(shown(place(&evicting, "u", &[clusters[1].clone(), full])), "m1=1");
    // Where every cluster has all of it, what the others have replaces nothing.
    let mut all = binding(1, json!({}), &[("m9", 1)]);
    all.graceful_eviction_tasks = vec![EvictionTask {
        replicas: Some(1),
        clusters_before_failover: vec!["m1".into(), "m9".into()],
        ..evicting.graceful_eviction_tasks[0].clone()
    }];
    let m9 = Cluster { name: "m9".into(), ..Cluster::default() };
    assert_eq!(shown(place(&all, "u", &[clusters[1].clone(), m9.clone()])), "m1=1 m9=1");
    let down = Cluster {
        taints: vec![Taint { key: "down".into(), effect: "NoExecute".into(), ..Taint::default() }],
        ..clusters[1].clone()
    };
    assert_eq!(shown(place(&all, "u", &[down, m9.clone()])), "m9=1");
    let third = Cluster { name: "m8".into(), ..Cluster::default() };
    assert_eq!(shown(place(&all, "u", &[clusters[1].clone(), third, m9])), "m8=1 m9=1");
    let few = json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 2}]});
    assert!(
        shown(place(&binding(1, few, &[]), "u", &clusters[1..2])).contains("less than spreadConstraint.MinGroups 2")
    );
}

#[test]
fn components_stay_together() {
    let spec = json!({
        "resource": {"kind": "FlinkDeployment"},
        "components": [
            {"name": "jobmanager", "replicas": 1, "replicaRequirements": {"resourceRequest": {"cpu": "1"}}},
            {"name": "taskmanager", "replicas": 3, "replicaRequirements": {"resourceRequest": {"cpu": "2"}}},
        ],
        "placement": {"replicaScheduling": {}},
    });
    let mut spec = BindingSpec::read(&json!({ "spec": spec })).unwrap();
    let clusters = [cluster("m1", Some(6)), cluster("m2", Some(7)), cluster("m3", Some(9))];
    assert_eq!(shown(place(&spec, "u", &clusters)), "m2=0");
    assert_eq!(
        shown(place(&spec, "u", &clusters[..1])),
        "Unschedulable Clusters available replicas 0 are not enough to schedule."
    );
    spec.clusters = vec![Target { name: "m1".into(), ..Target::default() }];
    assert_eq!(shown(place(&spec, "u", &clusters)), "m1=0");
}

proptest! {
    #[test]
    fn parts_add_up_and_stay_near_their_share(total in 0_u64..u64::MAX, weights in prop::collection::vec(0_u64..1_000_000, 1..20)) {
        let names: Vec<String> = (0..weights.len()).map(|place| format!("m{place}")).collect();
        let weights: Vec<(&str, u64)> = names.iter().map(String::as_str).zip(weights).collect();
        let parts = largest_remainder(total, &weights, "salt");
        let sum: u128 = weights.iter().map(|(_, weight)| u128::from(*weight)).sum();
        if weights.iter().all(|(_, weight)| *weight == 0) {
            prop_assert!(parts.iter().all(|(_, part)| *part == 0));
        } else {
            prop_assert_eq!(parts.iter().map(|(_, part)| u128::from(*part)).sum::<u128>(), u128::from(total));
            for ((_, weight), (_, part)) in weights.iter().zip(&parts) {
                let floor = u128::from(total) * u128::from(*weight) / sum;
                prop_assert!(u128::from(*part) == floor || u128::from(*part) == floor + 1);
                prop_assert!(*weight > 0 || *part == 0);
            }
        }
    }

    /// Whatever is asked: the sum is exact, nobody gets more than it has room for, nothing moves that need not, and the order
    /// in which clusters come does not matter.
    #[test]
    fn placements_are_exact_stable_and_deterministic(
        replicas in 0_u32..60,
        rooms in prop::collection::vec(0_i64..30, 1..6),
        had in prop::collection::vec(0_u32..10, 6),
        aggregate in any::<bool>(),
        turn in 0_usize..6,
    ) {
        let mut clusters: Vec<Cluster> =
            rooms.iter().enumerate().map(|(place, room)| cluster(&format!("m{place}"), Some(*room))).collect();
        let names: Vec<String> = clusters.iter().map(|one| one.name.clone()).collect();
        let had: Vec<(&str, u32)> = names.iter().map(String::as_str).zip(had).filter(|(_, has)| *has > 0).collect();
        let placement = if aggregate { aggregated() } else { dynamic() };
        let spec = binding(replicas, placement.clone(), &had);
        let placed = place(&spec, "uid", &clusters);
        let place_by = turn % clusters.len();
        clusters.rotate_left(place_by);
        prop_assert_eq!(&place(&spec, "uid", &clusters), &placed);
        let before: u64 = had.iter().map(|(_, has)| u64::from(*has)).sum();
        let all_room: u64 = rooms.iter().map(|room| *room as u64).sum();
        match placed {
            Ok(targets) if replicas > 0 => {
                prop_assert_eq!(targets.iter().map(|one| u64::from(one.replicas)).sum::<u64>(), u64::from(replicas));
                for target in &targets {
                    let has = had.iter().find(|(name, _)| *name == target.name).map_or(0, |(_, has)| *has);
                    let room = rooms[target.name[1..].parse::<usize>().unwrap()] as u32;
                    prop_assert!(target.replicas <= has + room);
                    prop_assert!(u64::from(replicas) < before || target.replicas >= has);
                }
                let again = binding(replicas, placement, &targets.iter().map(|one| (&*one.name, one.replicas)).collect::<Vec<_>>());
                prop_assert_eq!(place(&again, "uid", &clusters).unwrap(), targets);
            }
            Ok(_) => {}
            Err(Misfit::Unschedulable(_)) => prop_assert!(before + all_room < u64::from(replicas)),
            Err(Misfit::NoClusterFit(_)) => prop_assert!(false),
        }
    }
}

#[test]
fn fewer_stay_where_they_are() {
    let of = |replicas: u32, placement: Value, clusters: &[(&str, u32)]| {
        shown(Ok(fewer(&binding(replicas, placement, clusters), "uid")))
    };
    assert_eq!(of(2, divided(json!({})), &[("m1", 10)]), "m1=2");
    assert_eq!(of(5, divided(json!({})), &[("m1", 6), ("m2", 4)]), "m1=3 m2=2");
    assert_eq!(of(1, divided(json!({})), &[("m1", 9), ("m2", 1)]), "m1=1");
    assert_eq!(of(0, divided(json!({})), &[("m1", 2), ("m2", 1)]), "m1=0 m2=0");
    assert_eq!(of(9, divided(json!({})), &[("m1", 2), ("m2", 1)]), "m1=2 m2=1");
    assert_eq!(of(3, json!({}), &[("m1", 10), ("m2", 2)]), "m1=3 m2=2");
}

/// Affinities are tried in turn, and what is placed by one of them stays with it when those before it have room again.
#[test]
fn the_first_affinity_that_has_room_counts() {
    let in_turn = |more: Value| {
        let affinity = |name: &str, clusters: &[&str]| json!({"affinityName": name, "clusterNames": clusters});
        let mut placement = json!({"clusterAffinities": [affinity("near", &["m1"]), affinity("far", &["m2", "m3"])]});
        more.as_object().into_iter().flatten().for_each(|(field, value)| placement[field] = value.clone());
        placement
    };
    let small = [cluster("m1", Some(2)), cluster("m2", Some(9)), cluster("m3", Some(5))];
    let placed = |replicas: u32, placement: &Value, had: &[(&str, u32)], clusters: &[Cluster]| {
        shown(place(&binding(replicas, placement.clone(), had), "u", clusters))
    };
    let (all, parts) = (in_turn(json!({})), in_turn(aggregated()));
    assert_eq!(placed(2, &all, &[], &small), "m1=2");
    assert_eq!(placed(3, &all, &[], &small), "m2=3 m3=3");
    assert_eq!(placed(3, &parts, &[], &small), "m2=3");
    assert_eq!(placed(12, &parts, &[], &small), "m2=9 m3=3");
    assert_eq!(placed(2, &parts, &[("m2", 2)], &small), "m2=2", "it stays where it is");
    assert_eq!(
        placed(20, &parts, &[], &small),
        "Unschedulable Clusters available replicas 2 are not enough to schedule."
    );
    // What was evicted goes on to the next affinity, and from the last one to the first.
    let gone = |from: &[&str], clusters: &[(&str, u32)]| {
        let mut spec = binding(2, parts.clone(), clusters);
        let task =
            |from: &&str| EvictionTask { from_cluster: (*from).into(), replicas: Some(2), ..EvictionTask::default() };
        spec.graceful_eviction_tasks = from.iter().map(task).collect();
        shown(place(&spec, "u", &small))
    };
    assert_eq!(gone(&["m1"], &[]), "m2=2");
    assert_eq!(gone(&["m2", "m3"], &[]), "m1=2");
    assert_eq!(gone(&["m1", "m2", "m3"], &[]), "m1=2", "back to where it was");
    let name = |clusters: &[(&str, u32)]| affinity_name(&parts, &binding(2, json!({}), clusters).clusters, &small);
    assert_eq!(
        (name(&[("m1", 2)]), name(&[("m2", 1), ("m3", 1)]), name(&[])),
        (Some("near".into()), Some("far".into()), None)
    );
}
