//! What must be so of quotas over many clusters beside what every account says: leases tell what bindings take beside them, nothing
//! that is charged and lent grows over a limit, each decision is the one that the rules make, and an eviction changes no total.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledger::SubjectId;
use serde_json::{Value, json};
use server::core::Refused;

use super::answers::{Said, Step};
use super::durable::Durable;
use super::judge::Found;
use super::naive::{Stored, name_of, namespace_of, nanos, policy, uid};
use super::naive_karmada::{
    Amounts, BINDINGS, Counted, FEDERATED, LEASES, full_name, is_divided, is_lent, lent, means, names_of, pods_on, said,
};
use super::rare;
use super::replica::Done;
use super::request::{Request, Verb};
use super::world::World;

const TEMPLATES: &str = "deployments.apps";
const PROPAGATION: &str = "propagationpolicies.policy.karmada.io";
/// What refusals of this family say.
const EXCEEDED: &str = "exceeded for resource";

/// Growth by account of a quota, bindings and leases apart.
type Growth = BTreeMap<(String, String), i128>;

/// Whatever was written last: each lease tells what is so beside it, and nobody stands in a line. By other settings than before a start
/// leases follow with its first steps, in each namespace before anything is decided there: `is_late` says that they may not have, and
/// the answer, whether some have not.
pub fn judge(durable: &Durable, found: &Found, is_late: bool, decided: Option<&Request>) -> Result<bool, String> {
    let stored = durable.stored();
    let mut are_late = false;
    for lease in stored.all(LEASES) {
        if let Err(why) = judge_lease(&stored, lease) {
            are_late = true;
            if !is_late || decided.is_some_and(|request| *request.key.namespace == *namespace_of(lease)) {
                return Err(why);
            }
        }
    }
    let waits = |one: &&Arc<Value>| found.waiting.contains(&SubjectId(uid(one)));
    match stored.all(BINDINGS).iter().chain(stored.all(LEASES)).find(waits) {
        Some(one) => Err(format!("K2: {} stands in a line", full_name(one))),
        None => Ok(are_late),
    }
}

fn judge_lease(stored: &Stored, lease: &Value) -> Result<(), String> {
    let (placed, evicted) = stored.beside(lease);
    for (field, counted) in [("base", &placed), ("evicted", &evicted)] {
        let told = told(lease, field);
        if told != *counted {
            return Err(format!("K1: {field} of {} is {told:?}, and {counted:?} are so", full_name(lease)));
        }
    }
    for (name, covered) in told(lease, "covered") {
        let of = |amounts: &Amounts| amounts.get(&name).copied().unwrap_or_default();
        let beyond = said(lease, "hard", &name) - of(&placed);
        if covered < 0 || covered > of(&evicted) || covered > beyond {
            return Err(format!("K1: {} covers {covered} of {name}: {evicted:?}, {beyond}", full_name(lease)));
        }
    }
    Ok(())
}

fn told(lease: &Value, field: &str) -> Amounts {
    let all = lease["spec"][field].as_object().into_iter().flatten();
    all.map(|(name, _)| (name.clone(), said(lease, field, name))).filter(|(_, amount)| *amount != 0).collect()
}

/// What is charged and lent together grows over a limit by nothing but a change of its quota.
pub fn judge_growth(before: &Durable, after: &Durable, was: &Found, is: &Found) -> Result<(), String> {
    let (old, new) = (before.stored(), after.stored());
    for quota in new.all(FEDERATED) {
        let same = |old: &&Value| uid(old) == uid(quota) && old["spec"] == quota["spec"];
        if old.named(FEDERATED, namespace_of(quota), name_of(quota)).filter(same).is_none() {
            continue;
        }
        for (name, limit) in names_of(quota) {
            let key = (policy(FEDERATED, quota), name.clone(), String::new());
            let used = |found: &Found| found.used.get(&key).copied().unwrap_or_default();
            if used(is) > used(was) && used(is) > nanos(limit) {
                return Err(format!("K3: {key:?} grew from {} to {} over {limit}", used(was), used(is)));
            }
        }
    }
    Ok(())
}

/// What one command did, alone in its group.
pub fn judge_step(step: &Step<'_>, after: &Durable) -> Result<(), String> {
    judge_covered(step, after)?;
    let (Verb::Create(value) | Verb::Update { value, status: false, .. }, None) =
        (&step.request.verb, &step.request.together)
    else {
        return Ok(());
    };
    if let (Said::Refused(_, Refused::Unmeasurable { message, .. }), true) = (step.said, is_ours(step.request)) {
        return Err(format!("K4: {}: cannot be counted: {message}", step.request.told()));
    }
    if let Some(why) = why_not(step, value) {
        let fits = why.is_empty();
        let told = step.request.told();
        match step.said {
            Said::Written(_) | Said::Would if !fits => {
                return Err(format!("K4: {told}: let in, and {why} is not there"));
            }
            Said::Refused(_, refused) if fits && is_exceeded(refused) => {
                return Err(format!("K4: {told}: {refused:?}, although it fits"));
            }
            _ => {}
        }
    }
    judge_eviction(step, after)
}

fn is_ours(request: &Request) -> bool {
    [BINDINGS, LEASES].contains(&&*request.key.resource.to_string())
}

/// Whether it is refused by a quota over many clusters.
fn is_exceeded(refused: &Refused) -> bool {
    match refused {
        Refused::Denied(by) => by.iter().any(|denial| denial.policy.starts_with(FEDERATED)),
        Refused::Said { refusal, .. } => refusal.message.contains(EXCEEDED),
        _ => false,
    }
}

/// What there is too little of for an object to be as it is asked for; empty where it fits, `None` where no quota is asked.
fn why_not(step: &Step<'_>, value: &Value) -> Option<String> {
    let stored = step.before.stored();
    let key = &step.request.key;
    let old = step.before.objects.get(key).map(|kept| &*kept.value);
    let growths: Vec<Growth> = match &*key.resource.to_string() {
        BINDINGS => {
            let alone = grown(&stored, old, value);
            let left_behind = old.map(|old| with_leases(&stored, old, value, &alone)).unwrap_or_default();
            vec![alone, left_behind]
        }
        LEASES => vec![lent_more(&stored, old, value)],
        TEMPLATES if stored.strict => {
            let rule = stored.named(PROPAGATION, &key.namespace, "all")?;
            let binding = stored.named(BINDINGS, &key.namespace, &format!("{}-deployment", key.name));
            vec![grown(&stored, binding, &at_least(binding, value, rule))]
        }
        _ => return None,
    };
    let lacks = growths.iter().flatten().find(|((policy, name), more)| {
        let limit = step.found_before.limits.get(&(policy.clone(), name.clone())).copied().flatten();
        let used = step.found_before.taken(&(policy.clone(), name.clone(), String::new()));
        **more > 0 && limit.is_some_and(|limit| used + **more > limit)
    });
    Some(lacks.map(|lack| format!("{lack:?}")).unwrap_or_default())
}

/// What a binding takes more than before, of each quota that means it.
fn grown(stored: &Stored, old: Option<&Value>, new: &Value) -> Growth {
    let mut growth = Growth::new();
    let sides =
        [(old, -1), (Some(new), 1)].map(|(side, sign)| side.map(|side| (side, Counted::of(side, stored.strict), sign)));
    for quota in stored.all(FEDERATED).iter().filter(|quota| namespace_of(quota) == namespace_of(new)) {
        for (_, counted, sign) in sides.iter().flatten().filter(|(binding, ..)| means(quota, binding)) {
            for (name, _) in names_of(quota) {
                let key = (policy(FEDERATED, quota), name.clone());
                *growth.entry(key).or_default() += sign * counted.amount(name, &counted.all);
            }
        }
    }
    growth
}

/// The same with what members may use of it until they have given that back.
fn with_leases(stored: &Stored, old: &Value, new: &Value, alone: &Growth) -> Growth {
    let mut then = stored.clone();
    let shelf = then.objects.entry(BINDINGS.to_owned()).or_default();
    shelf.retain(|one| uid(one) != uid(old));
    shelf.push(Arc::new(new.clone()));
    let mut growth = Growth::new();
    for quota in stored.all(FEDERATED).iter().filter(|quota| namespace_of(quota) == namespace_of(new)) {
        for (name, _) in names_of(quota).filter(|(name, _)| is_lent(name)) {
            let key = (policy(FEDERATED, quota), name.clone());
            let mut more = alone.get(&key).copied().unwrap_or_default();
            for lease in stored.leases_of(quota) {
                let hard = said(lease, "hard", name);
                let (placed, _) = then.beside(lease);
                let covered = then.covered(Some(lease), lease, name);
                more += lent(hard, placed.get(name).copied().unwrap_or_default(), covered);
                more -= lent(hard, said(lease, "base", name), said(lease, "covered", name));
            }
            growth.insert(key, more);
        }
    }
    growth
}

/// What a lease takes more, with what is so beside it.
fn lent_more(stored: &Stored, old: Option<&Value>, new: &Value) -> Growth {
    let mut growth = Growth::new();
    let (placed, _) = stored.beside(new);
    for quota in stored.all(FEDERATED).iter().filter(|quota| namespace_of(quota) == namespace_of(new)) {
        if quota["metadata"]["name"] != new["spec"]["quota"] {
            continue;
        }
        for (name, _) in names_of(quota) {
            let covered = stored.covered(old, new, name);
            let now = lent(said(new, "hard", name), placed.get(name).copied().unwrap_or_default(), covered);
            let before =
                old.map_or(0, |old| lent(said(old, "hard", name), said(old, "base", name), said(old, "covered", name)));
            growth.insert((policy(FEDERATED, quota), name.clone()), now - before);
        }
    }
    growth
}

/// The binding of a template at the least: where it is, or in one cluster.
fn at_least(binding: Option<&Value>, template: &Value, rule: &Value) -> Value {
    let nothing = json!({"metadata": {"namespace": namespace_of(template)}, "spec": {}});
    let mut then = binding.unwrap_or(&nothing).clone();
    let wanted = template["spec"]["replicas"].as_i64().unwrap_or(1);
    let pods = &template["spec"]["template"]["spec"];
    let spec = &mut then["spec"];
    spec["replicas"] = json!(wanted);
    spec["replicaRequirements"] = json!({"resourceRequest": pods["containers"][0]["resources"]["requests"]});
    if pods["priorityClassName"].is_string() {
        spec["replicaRequirements"]["priorityClassName"] = pods["priorityClassName"].clone();
    }
    (spec["components"], spec["placement"]) = (json!([]), rule["spec"]["placement"].clone());
    let divides = is_divided(spec);
    let mut targets = spec["clusters"].as_array().cloned().unwrap_or_default();
    targets.iter_mut().for_each(|target| target["components"] = json!([]));
    let placed: i64 = targets.iter().filter_map(|target| target["replicas"].as_i64()).sum();
    match targets.first_mut() {
        None => targets.push(json!({"name": "", "replicas": wanted})),
        Some(first) if divides => {
            first["replicas"] = json!(first["replicas"].as_i64().unwrap_or(0) + (wanted - placed).max(0));
        }
        Some(_) => targets.iter_mut().for_each(|target| target["replicas"] = json!(wanted)),
    }
    spec["clusters"] = json!(targets);
    then
}

/// What of a lease is for evicted workloads follows from what was so before, and from what was written.
fn judge_covered(step: &Step<'_>, after: &Durable) -> Result<(), String> {
    let now = after.stored();
    for lease in now.all(LEASES) {
        let before = step.before.stored();
        let old = before.named(LEASES, namespace_of(lease), name_of(lease)).filter(|old| uid(old) == uid(lease));
        for name in ["cpu", "memory", "pods", "requests.cpu"] {
            let (expected, found) = (now.covered(old, lease, name), said(lease, "covered", name));
            if found != expected {
                let (told, full) = (step.request.told(), full_name(lease));
                return Err(format!("K5: {told}: {full} covers {found} of {name}, and not {expected}"));
            }
        }
    }
    Ok(())
}

/// An eviction tells what there was, and changes no total.
fn judge_eviction(step: &Step<'_>, after: &Durable) -> Result<(), String> {
    let (Said::Written(_), BINDINGS) = (step.said, &*step.request.key.resource.to_string()) else { return Ok(()) };
    let at = |durable: &Durable| durable.objects.get(&step.request.key).map(|kept| kept.value.clone());
    let (Some(before), Some(now)) = (at(step.before), at(after)) else { return Ok(()) };
    let list = |spec: &Value, field: &str| spec[field].as_array().cloned().unwrap_or_default();
    let (old, new) = (&before["spec"], &now["spec"]);
    let (had, has) = (list(old, "clusters"), list(new, "clusters"));
    let is_on = |targets: &[Value], name: &Value| targets.iter().any(|target| target["name"] == *name);
    let names: Vec<&Value> = had.iter().map(|target| &target["name"]).collect();
    for task in list(new, "gracefulEvictionTasks") {
        let left = had.iter().find(|target| target["name"] == task["fromCluster"]);
        let Some(left) = left.filter(|_| !is_on(&has, &task["fromCluster"])) else { continue };
        if i128::from(task["replicas"].as_i64().unwrap_or(-1)) != pods_on(old, left)
            || task["clustersBeforeFailover"] != json!(names)
        {
            return Err(format!("K6: {}: {task} does not tell of {left} among {names:?}", step.request.told()));
        }
    }
    let others = |spec: &Value| {
        let mut spec = spec.clone();
        (spec["clusters"], spec["gracefulEvictionTasks"]) = (Value::Null, Value::Null);
        spec
    };
    let tasks = list(new, "gracefulEvictionTasks");
    let is_told =
        |target: &Value| is_on(&has, &target["name"]) || tasks.iter().any(|task| task["fromCluster"] == target["name"]);
    let wanted = i128::from(old["replicas"].as_i64().unwrap_or(0));
    let is_whole = match (list(old, "components").is_empty(), is_divided(old)) {
        (true, true) => had.iter().map(|target| pods_on(old, target)).sum::<i128>() <= wanted,
        (true, false) => had.iter().all(|target| pods_on(old, target) == wanted),
        (false, _) => had.iter().all(|target| list(target, "components").is_empty()),
    };
    let is_eviction = others(old) == others(new)
        && list(old, "gracefulEvictionTasks").is_empty()
        && has.len() < had.len()
        && has.iter().all(|target| had.contains(target))
        && had.iter().all(is_told)
        && is_whole;
    let all = |found: &Found| {
        let mut all = found.charged.get(&SubjectId(uid(&now))).cloned().unwrap_or_default();
        all.retain(|key, amount| key.0.starts_with(FEDERATED) && key.2.is_empty() && *amount != 0);
        all
    };
    match is_eviction && all(step.found_before) != all(step.found) {
        true => Err(format!(
            "K7: {}: it was charged {:?} before it was evicted, and {:?} after that",
            step.request.told(),
            all(step.found_before),
            all(step.found)
        )),
        false => Ok(()),
    }
}

impl World {
    pub fn notice_karmada(&mut self, before: &Durable, alone: Option<&(Done, Said)>) {
        let rare = &mut self.report.rare;
        let (then, now) = (before.stored(), self.durable.stored());
        let counts = |stored: &Stored, binding: &Value| !Counted::of(binding, stored.strict).evicted.is_empty();
        rare.met_if(now.all(BINDINGS).iter().any(|one| counts(&now, one)), rare::EVICTED);
        let anew = now.all(BINDINGS).iter().any(|one| {
            let old = then.all(BINDINGS).iter().find(|old| uid(old) == uid(one));
            let clusters = |one: &Value| one["spec"]["clusters"].as_array().map_or(0, Vec::len);
            old.is_some_and(|old| counts(&then, old) && clusters(one) > clusters(old))
        });
        rare.met_if(anew, rare::PLACED_ANEW);
        rare.met_if(now.all(LEASES).iter().any(|lease| !told(lease, "covered").is_empty()), rare::COVERED);
        if let Some((Done::Request(request), Said::Refused(_, refused))) = alone
            && is_exceeded(refused)
        {
            let is_said = matches!(refused, Refused::Said { .. });
            rare.met(match &*request.key.resource.to_string() {
                BINDINGS if is_said => rare::NOT_GIVEN_BACK,
                BINDINGS => rare::BINDING_REFUSED,
                LEASES => rare::LEASE_REFUSED,
                _ => rare::TEMPLATE_REFUSED,
            });
        }
    }
}
