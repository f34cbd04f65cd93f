//! Everything in random order: quotas and bindings made, edited field by field, deleted, made again, restarted. After every
//! write a recount that shares no code with what charges is compared with what each quota shows, and every refusal is judged.

use std::collections::BTreeMap;

use serde_json::json;

use super::leases::leases;
use super::*;

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn one_of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[usize::try_from(self.below(list.len() as u64)).unwrap()]
    }
}

const NAMES: [&str; 5] = ["cpu", "requests.memory", "pods", "example.com/gpu", "services"];
const CLUSTERS: [&str; 4] = ["m1", "m2", "m3", "m4"];
const CLASSES: [&str; 3] = ["", "gold", "iron"];

fn random_quota(dice: &mut Dice) -> Value {
    let mut overall = serde_json::Map::new();
    for _ in 0..1 + dice.below(3) {
        let limit = match *dice.one_of(&NAMES) {
            name @ "cpu" => (name, format!("{}m", 250 * dice.below(60))),
            name @ "requests.memory" => (name, format!("{}Mi", 64 * dice.below(200))),
            name => (name, dice.below(30).to_string()),
        };
        overall.insert(limit.0.into(), limit.1.into());
    }
    let mut quota = json!({"spec": {"overall": overall}});
    match dice.below(6) {
        0 => quota["spec"]["scopes"] = json!(["PriorityClass"]),
        1 => {
            let operator = *dice.one_of(&["In", "NotIn"]);
            let expression = json!({"scopeName": "PriorityClass", "operator": operator, "values": ["gold"]});
            quota["spec"]["scopeSelector"] = json!({"matchExpressions": [expression]});
        }
        2 | 3 => quota["spec"]["elastic"] = json!({"chunk": {}}),
        _ => {}
    }
    quota
}

fn random_request(dice: &mut Dice) -> Value {
    let mut request =
        json!({"cpu": format!("{}u", 125_000 * dice.below(17)), "memory": format!("{}Mi", 32 * dice.below(9))});
    if dice.below(4) == 0 {
        request["example.com/gpu"] = json!(dice.below(3));
    }
    json!({"resourceRequest": request, "priorityClassName": *dice.one_of(&CLASSES)})
}

/// What a cluster is lent of one of the quotas.
fn random_lease(dice: &mut Dice) -> (String, Value) {
    let (quota, cluster) = (format!("q{}", dice.below(2)), *dice.one_of(&CLUSTERS));
    let mut hard = json!({"cpu": format!("{}m", 250 * dice.below(20))});
    if dice.below(2) == 0 {
        hard["requests.memory"] = json!(format!("{}Mi", 32 * dice.below(40)));
        hard["pods"] = json!(dice.below(10).to_string());
    }
    (format!("{quota}.{cluster}"), json!({"spec": {"quota": quota, "clusterName": cluster, "hard": hard}}))
}

fn random_clusters(dice: &mut Dice) -> Value {
    let mut chosen = Vec::new();
    for name in CLUSTERS {
        if dice.below(3) == 0 {
            chosen.push((name, dice.below(5) as u32));
        }
    }
    on(&chosen)
}

fn random_binding(dice: &mut Dice) -> Value {
    let placement = match dice.below(2) {
        0 => json!({}),
        _ => json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}}),
    };
    let kind = if dice.below(5) == 0 { ("v1", "Service") } else { ("apps/v1", "Deployment") };
    let mut spec = json!({
        "resource": {"apiVersion": kind.0, "kind": kind.1, "name": "w"},
        "placement": placement, "clusters": random_clusters(dice),
    });
    if dice.below(3) == 0 {
        let component = |name: &str, dice: &mut Dice| json!({"name": name, "replicas": dice.below(4), "replicaRequirements": random_request(dice)});
        spec["components"] = json!([component("one", dice), component("two", dice)]);
    } else {
        spec["replicas"] = json!(dice.below(12));
        spec["replicaRequirements"] = random_request(dice);
    }
    json!({ "spec": spec })
}

/// A field of a binding edited: where it is, how much of it, how large, or an eviction, or the end of one.
fn edited(mut binding: Value, dice: &mut Dice) -> Value {
    let spec = &mut binding["spec"];
    match dice.below(8) {
        0 => spec["clusters"] = random_clusters(dice),
        1 => spec["replicas"] = json!(dice.below(12)),
        2 if spec.get("components").is_none() => spec["replicaRequirements"] = random_request(dice),
        3 | 4 => {
            let Some(clusters) = spec["clusters"].as_array_mut().filter(|list| !list.is_empty()) else {
                return binding;
            };
            let gone = clusters.remove(usize::try_from(dice.below(clusters.len() as u64)).unwrap());
            let from = gone["name"].clone();
            let mut tasks = spec["gracefulEvictionTasks"].as_array().cloned().unwrap_or_default();
            if tasks.iter().all(|task| task["fromCluster"] != from) {
                tasks.push(json!({"fromCluster": from, "reason": "storm", "producer": "storm"}));
            }
            spec["gracefulEvictionTasks"] = json!(tasks);
        }
        5 => {
            let name = *dice.one_of(&CLUSTERS);
            let clusters = spec["clusters"].as_array_mut().unwrap();
            if clusters.iter().all(|one| one["name"] != name) {
                clusters.push(json!({"name": name, "replicas": dice.below(6)}));
            }
        }
        6 => drop(spec.as_object_mut().unwrap().remove("gracefulEvictionTasks")),
        _ => {
            let divided = json!({"replicaScheduling": {}});
            spec["placement"] = if dice.below(2) == 0 { json!({}) } else { divided };
        }
    }
    binding
}

/// Billionths of a unit.
fn amount(value: &Value) -> i128 {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    let unit: i128 = match &text[digits.len()..] {
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000_000,
        "" => 1_000_000_000,
        "k" => 1_000_000_000_000,
        "Ki" => 1_000_000_000 << 10,
        "Mi" => 1_000_000_000 << 20,
        "Gi" => 1_000_000_000 << 30,
        other => panic!("{other}"),
    };
    digits.parse::<i128>().unwrap() * unit
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What is missing after one eviction after the other, each of which took place after others came. `of` says what a task's cluster,
/// or a cluster, has; `each` what one has that is in neither list any more.
fn missing(spec: &Value, of: impl Fn(&Value) -> i128, each: i128) -> i128 {
    let list = |field: &str| spec[field].as_array().cloned().unwrap_or_default();
    let (mut missing, mut moment, mut there) = (0, Vec::new(), Vec::new());
    for task in list("gracefulEvictionTasks") {
        let mut before: Vec<String> = names(&task["clustersBeforeFailover"]).iter().map(|one| (*one).into()).collect();
        before.sort();
        if !before.is_empty() && before != moment {
            for _ in before.iter().filter(|one| !there.contains(*one)) {
                missing = (missing - each).max(0);
            }
            (there, moment) = (before.clone(), before);
        }
        missing += of(&task);
        there.retain(|one| task["fromCluster"] != **one);
    }
    let came: i128 =
        list("clusters").iter().filter(|one| !there.iter().any(|name| one["name"] == **name)).map(of).sum();
    (missing - came).max(0)
}

/// What a binding takes of one name, as the manual says it and not as the code does.
fn takes(binding: &Value, name: &str) -> i128 {
    let spec = &binding["spec"];
    let nobody = Vec::new();
    let list = |field: &str| spec[field].as_array().unwrap_or(&nobody);
    let clusters: BTreeMap<&str, i128> = list("clusters")
        .iter()
        .map(|one| (one["name"].as_str().unwrap(), one["replicas"].as_i64().unwrap_or(0).into()))
        .collect();
    let tasks: Vec<&Value> = list("gracefulEvictionTasks")
        .iter()
        .filter(|one| !clusters.contains_key(one["fromCluster"].as_str().unwrap()))
        .collect();
    let missing_sets = missing(spec, |_| 1, 1).min(tasks.len() as i128);
    let unit = |requirements: &Value| match name {
        "pods" => 1_000_000_000,
        "requests.memory" => amount(requirements["resourceRequest"].get("memory").unwrap_or(&json!("0"))),
        other => amount(requirements["resourceRequest"].get(other).unwrap_or(&json!("0"))),
    };
    if name == "services" {
        let is_service = spec["resource"]["kind"] == "Service";
        return if is_service { (clusters.len() as i128 + missing_sets) * 1_000_000_000 } else { 0 };
    }
    if !list("components").is_empty() {
        let set: i128 = list("components")
            .iter()
            .map(|one| i128::from(one["replicas"].as_i64().unwrap()) * unit(&one["replicaRequirements"]))
            .sum();
        return set * (clusters.len() as i128 + missing_sets);
    }
    let placed: i128 = clusters.values().sum();
    let wanted = i128::from(spec["replicas"].as_i64().unwrap_or(0));
    let evicted =
        |cap: i128| tasks.iter().map(|one| i128::from(one["replicas"].as_i64().unwrap_or(0)).min(cap)).sum::<i128>();
    let is_divided = spec["placement"].get("replicaScheduling").is_some();
    let replicas = match is_divided {
        true => (placed + evicted(i128::MAX)).min(wanted.max(placed)),
        false => {
            let had = |one: &Value| i128::from(one["replicas"].as_i64().unwrap_or(0));
            let of = |one: &Value| if one["fromCluster"].is_null() { had(one) } else { had(one).min(wanted) };
            placed + missing(spec, of, wanted).min(evicted(wanted))
        }
    };
    replicas * unit(&spec["replicaRequirements"])
}

/// What a binding takes of one name in one cluster.
fn takes_in(binding: &Value, name: &str, cluster: &str) -> i128 {
    let mut alone = binding.clone();
    let spec = alone["spec"].as_object_mut().unwrap();
    spec.remove("gracefulEvictionTasks");
    spec["clusters"].as_array_mut().unwrap().retain(|one| one["name"] == cluster);
    takes(&alone, name)
}

/// What the leases of a quota take of one name: what they allow, less what bindings take there, whether it lends more or not.
fn lent(quota: &Value, leases: &[Value], bindings: &[Value], name: &str) -> i128 {
    let own = leases.iter().filter(|lease| lease["spec"]["quota"] == quota["metadata"]["name"]);
    let takes = own.map(|lease| {
        let cluster = lease["spec"]["clusterName"].as_str().unwrap();
        let hard = lease["spec"]["hard"].get(name).map_or(0, amount);
        let is_lent = name != "services";
        let base: i128 = match is_lent {
            true => bindings.iter().filter(|one| is_meant(quota, one)).map(|one| takes_in(one, name, cluster)).sum(),
            false => 0,
        };
        let covered = lease["spec"]["covered"].get(name).map_or(0, amount);
        (hard - base - covered).max(0)
    });
    takes.sum()
}

fn is_meant(quota: &Value, binding: &Value) -> bool {
    let spec = &binding["spec"];
    let parts = spec["components"].as_array().into_iter().flatten().map(|one| &one["replicaRequirements"]);
    let all = parts.chain([&spec["replicaRequirements"]]).filter_map(|one| one["priorityClassName"].as_str());
    let classes: Vec<&str> = all.filter(|one| !one.is_empty()).collect();
    let selector = &quota["spec"]["scopeSelector"]["matchExpressions"][0];
    let is_gold = classes.contains(&"gold");
    (quota["spec"].get("scopes").is_none() || !classes.is_empty())
        && match selector["operator"].as_str() {
            Some("In") => is_gold,
            Some(_) => !is_gold,
            None => true,
        }
}

/// What each quota's names come to, by a count of everything that is stored.
fn recount(desk: &Desk, namespace: &str) -> BTreeMap<(String, String), (i128, i128)> {
    let bindings = desk.stored(&bindings(), namespace);
    let leases = desk.stored(&leases(), namespace);
    let mut found = BTreeMap::new();
    for quota in desk.stored(&quotas(), namespace) {
        for (name, limit) in quota["spec"]["overall"].as_object().unwrap() {
            let sum: i128 = bindings.iter().filter(|one| is_meant(&quota, one)).map(|one| takes(one, name)).sum();
            let sum = sum + lent(&quota, &leases, &bindings, name);
            let key = (quota["metadata"]["name"].as_str().unwrap().to_owned(), name.clone());
            found.insert(key, (sum, amount(limit)));
        }
    }
    found
}

fn compare(desk: &Desk, namespace: &str, after: &str) {
    for ((quota, name), (sum, _)) in recount(desk, namespace) {
        let shown = used(desk, namespace, &quota);
        assert_eq!(amount(&shown[&name]), sum, "{namespace}/{quota} {name} after {after}: {shown}");
    }
}

fn play(mut desk: Desk, seed: u64, steps: usize) -> (usize, usize) {
    let mut dice = Dice(seed);
    let (mut refused, mut granted) = (0, 0);
    for step in 0..steps {
        let namespace = *dice.one_of(&["a", "b"]);
        let said = format!("seed {seed} step {step}");
        match dice.below(12) {
            0 | 1 => {
                let (name, spec) = (format!("q{}", dice.below(2)), random_quota(&mut dice));
                desk.apply(&quotas(), namespace, &name, spec).unwrap();
            }
            2 => drop(desk.delete(&quotas(), namespace, &format!("q{}", dice.below(2)))),
            3 => drop(desk.delete(&bindings(), namespace, &format!("w{}", dice.below(6)))),
            4 if dice.below(4) == 0 => desk = desk.restarted(),
            5 => {
                let (name, spec) = random_lease(&mut dice);
                let before = recount(&desk, namespace);
                match desk.apply(&leases(), namespace, &name, spec) {
                    Ok(()) => {}
                    Err(_) => assert_eq!(recount(&desk, namespace), before, "{said}: a refusal changed something"),
                }
            }
            6 if dice.below(2) == 0 => drop(desk.delete(&leases(), namespace, &random_lease(&mut dice).0)),
            _ => {
                let name = format!("w{}", dice.below(6));
                let stored = desk.stored(&bindings(), namespace);
                let old = stored.into_iter().find(|one| one["metadata"]["name"] == *name);
                let next = match old.clone() {
                    Some(old) if dice.below(5) > 0 => edited(old, &mut dice),
                    _ => random_binding(&mut dice),
                };
                let before = recount(&desk, namespace);
                match desk.apply(&bindings(), namespace, &name, next) {
                    Ok(()) => {
                        granted += 1;
                        for (key, (sum, limit)) in recount(&desk, namespace) {
                            assert!(
                                sum <= before[&key].0 || sum <= limit,
                                "{said}: {key:?} grew to {sum} over {limit}"
                            );
                        }
                    }
                    Err(words) => {
                        refused += 1;
                        assert!(words.contains("exceeded for resource"), "{said}: {words}");
                        assert_eq!(recount(&desk, namespace), before, "{said}: a refusal changed something");
                    }
                }
            }
        }
        compare(&desk, "a", &said);
        compare(&desk, "b", &said);
    }
    (refused, granted)
}

#[test]
fn whatever_happens_the_count_is_true() {
    let (mut refused, mut granted) = (0, 0);
    for seed in 0..8 {
        let (no, yes) = play(desk(), seed, 250);
        (refused, granted) = (refused + no, granted + yes);
    }
    assert!(refused > 100 && granted > 300, "a storm without {refused} refusals or {granted} grants tells nothing");
}

/// The same where more than two objects are too many for the step of a quota.
#[test]
fn whatever_happens_the_count_is_true_where_quotas_are_counted_before_they_are_written() {
    for seed in 8..12 {
        play(desk().narrow(), seed, 150);
    }
}
