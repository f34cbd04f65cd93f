//! The member's side of lending: a FederatedQuotaSlice limits what the pods of one namespace request, as a ResourceQuota does, for as
//! long as it is valid. Beyond that, and when its time is over, nothing more gets in.
//!
//! With `whenFull: Gate` a pod that does not fit is not refused: it is stored with a scheduling gate, charged nothing, and not run by
//! anybody. When there is room the gate goes in the commit that made the room, the oldest pods first; from then on the pod is charged. Servers whose
//! pods are gated say so (`karmada.gatePods`); elsewhere such pods are refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use kinds::field_error::{FieldError, Path};
use kinds::fields::{at, items, text};
use kinds::resources::pod::{PodUsage, pod_usage};
use kinds::resources::{Measured, quantity_of};
use ledger::Limit;
use quantity::{Amount, Quantity};
use rules::{Compiled, GroupResource, Measure, MeasureError, Reach, Rule, Subject, Verdict, policy_name};
use serde_json::{Map, Value, json};

use super::SLICES;
use super::lease::is_lent;
use crate::kubernetes::compile::{Frame, compile as compile_quota};
use crate::kubernetes::device_classes::Classes;
use crate::kubernetes::measures::used_by_pod;
use crate::kubernetes::names::{Counted, counted_from};
use crate::kubernetes::scopes::Scopes;
use crate::kubernetes::spec::QuotaSpec;
use crate::kubernetes::validate::amounts;
use crate::{Affected, Balances, Change, Must, Parsed, Place, Plural, PolicyObject, View, World};

pub const PODS: Plural = Plural("", "pods");
/// The scheduling gate of pods that wait for room.
pub const GATE: &str = "policy.karmada.io/federated-quota";
/// Gated pods that one change lets go of: the engine sees to as many of them as a step may take, and to the others in the next ones.
/// Those beyond it follow with the next change.
const LET_GO_MAX: usize = 4096;

/// What a slice says.
struct Slice {
    hard: Vec<(Arc<str>, Quantity)>,
    valid_until_ms: Option<i64>,
}

impl Slice {
    fn read(slice: &Value) -> Result<Slice, Vec<FieldError>> {
        let (mut hard, mut errors) = (Vec::new(), Vec::new());
        let spec = Path::new("spec");
        let list = spec.child("hard");
        for (name, value) in at(slice, &["spec", "hard"]).and_then(Value::as_object).into_iter().flatten() {
            let path = list.key(name);
            match quantity_of(name, value) {
                Ok(_) if !is_lent(name) => errors.push(FieldError::invalid(path, &**name, "is not counted of pods")),
                Ok(limit) => hard.push((Arc::from(&**name), limit)),
                Err(error) => errors.push(FieldError::invalid(path, value.clone(), error.to_string())),
            }
        }
        hard.sort_by(|(one, _): &(Arc<str>, _), (other, _)| one.cmp(other));
        for (one, other) in same_twice(hard.iter().map(|(name, _)| &**name)) {
            errors.push(FieldError::invalid(list.key(&other), &*other, format!("says the same as {one}")));
        }
        let until = at(slice, &["spec", "validUntil"]).filter(|one| !one.is_null());
        let valid_until_ms = until.map(|until| until.as_str().and_then(kinds::time::read_ms));
        if valid_until_ms == Some(None) {
            let until = until.cloned().unwrap_or_default();
            errors.push(FieldError::invalid(spec.child("validUntil"), until, "must be a time"));
        }
        if errors.is_empty() { Ok(Slice { hard, valid_until_ms: valid_until_ms.flatten() }) } else { Err(errors) }
    }
}

fn gates(slice: &Value) -> bool {
    text(slice, &["spec", "whenFull"]) == "Gate"
}

pub fn compile(policy: &PolicyObject<'_>, world: &dyn World) -> Result<Compiled, Vec<FieldError>> {
    let Slice { hard, valid_until_ms } = Slice::read(policy.object)?;
    let mut fingerprint = Vec::new();
    for (name, _) in &hard {
        fingerprint.extend_from_slice(name.as_bytes());
        fingerprint.push(0);
    }
    // As a ResourceQuota names them.
    let hard = hard.into_iter().map(|(name, limit)| (quota_name(&name).into(), limit)).collect();
    let spec = QuotaSpec { hard, scopes: Scopes::default() };
    let frame = Frame {
        policy: policy_name(policy.resource, policy.namespace, policy.name),
        name: policy.name.into(),
        reach: Reach::Namespace(policy.namespace.into()),
        fingerprint,
        classes: Classes::default(),
        by_namespace: false,
        observe_only: false,
    };
    let mut compiled = compile_quota(&spec, frame);
    let is_over = valid_until_ms.is_some_and(|until_ms| world.now_ms() >= until_ms);
    if is_over {
        for account in &mut compiled.accounts {
            (account.limit, account.limit_text) = (Limit::Enforced(Amount::ZERO), "0".into());
        }
    }
    compiled.until_ms = valid_until_ms.filter(|_| !is_over);
    for rule in &mut compiled.rules {
        let Rule { measure, .. } = rule;
        *measure = Arc::new(Ungated(measure.clone()));
    }
    Ok(compiled)
}

/// Counts pods that are not gated.
struct Ungated(Arc<dyn Measure>);

impl Measure for Ungated {
    fn measure(&self, subject: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        if is_gated(subject.object) { Ok(()) } else { self.0.measure(subject, out) }
    }

    fn may_change_with_time(&self, text: &str) -> bool {
        self.0.may_change_with_time(text)
    }
}

/// As a ResourceQuota names it: extended resources are counted by what is requested of them.
pub fn quota_name(name: &str) -> String {
    if name.contains('/') && !name.starts_with("requests.") { format!("requests.{name}") } else { name.to_owned() }
}

/// Names that are the same to a member, in pairs: it would count one for the other.
pub fn same_twice<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(String, String)> {
    let (mut seen, mut twice) = (BTreeMap::new(), Vec::new());
    for name in names {
        if let Some(other) = seen.insert(quota_name(name), name) {
            twice.push((other.to_owned(), name.to_owned()));
        }
    }
    twice
}

pub fn validate(slice: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = Path::new("spec");
    amounts(at(slice, &["spec", "hard"]), &spec.child("hard"), &mut errors);
    if errors.is_empty() { Slice::read(slice).err().unwrap_or_default() } else { errors }
}

pub fn is_gated(pod: &Value) -> bool {
    items(pod, &["spec", "schedulingGates"]).iter().any(|gate| gate["name"] == GATE)
}

/// Some slices of a namespace, as policies.
fn those(namespace: &str, view: &dyn View, are_meant: impl Fn(&Value) -> bool) -> Vec<Arc<str>> {
    let slices = view.list(&SLICES.resource(), namespace);
    let meant = slices.iter().filter(|slice| are_meant(slice));
    meant.map(|slice| policy_name(&SLICES.resource(), namespace, text(slice, &["metadata", "name"]))).collect()
}

/// Those at which a new pod waits. The others refuse it.
fn gating(namespace: &str, view: &dyn View) -> Vec<Arc<str>> {
    those(namespace, view, gates)
}

/// Those that a pod which waits has to fit into: all. Letting it in is no request that one of them could refuse.
fn limiting(namespace: &str, view: &dyn View) -> Vec<Arc<str>> {
    those(namespace, view, |_| true)
}

/// What is left of each account of some slices.
struct Room(Vec<(Counted, Amount)>);

impl Room {
    fn of(policies: &[Arc<str>], view: &dyn View) -> Room {
        let lines = policies.iter().flat_map(|policy| view.part(policy, ""));
        let limited = lines.filter_map(|line| Some((line.balance.available()?, line.resource)));
        let left = limited.flat_map(|(left, name)| counted_from(&name).into_iter().map(move |counted| (counted, left)));
        Room(left.collect())
    }

    /// Takes what a pod needs, if there is enough of all of it. A pod that cannot be counted does not fit.
    fn take(&mut self, pod: &Value) -> bool {
        pod_usage(pod).is_ok_and(|usage| self.take_usage(&usage))
    }

    fn take_usage(&mut self, usage: &PodUsage) -> bool {
        let needed: Vec<Amount> = self.0.iter().map(|(counted, _)| amount(usage, counted)).collect();
        if self.0.iter().zip(&needed).any(|((_, left), needed)| *needed > Amount::ZERO && *needed > *left) {
            return false;
        }
        for ((_, left), needed) in self.0.iter_mut().zip(needed) {
            *left = left.checked_sub(needed).unwrap_or(*left);
        }
        true
    }
}

fn amount(usage: &PodUsage, counted: &Counted) -> Amount {
    let used = if let Counted::Pod(part) = counted { used_by_pod(usage, part) } else { None };
    used.map_or(Amount::ZERO, |used| used.amount)
}

/// A pod has the gate for as long as it does not fit, from the moment it is created. One that was let in stays in.
pub fn must_be(pod: &PolicyObject<'_>, view: &dyn View) -> Must {
    let is_gated_now = is_gated(pod.object);
    let policies = gating(pod.namespace, view);
    let is_leaving = at(pod.object, &["metadata", "deletionTimestamp"]).is_some();
    if pod.object.is_null() || is_leaving || (policies.is_empty() && !is_gated_now) {
        return Must::AsItIs;
    }
    let stored = view.get(&PODS.resource(), pod.namespace, pod.name);
    let stored = stored.filter(|stored| stored["metadata"]["uid"] == pod.object["metadata"]["uid"]);
    let (was_let_in, waits) =
        (stored.as_ref().is_some_and(|one| !is_gated(one)), stored.is_some_and(|one| is_gated(&one)));
    let has_node = !text(pod.object, &["spec", "nodeName"]).is_empty();
    let policies = if waits { limiting(pod.namespace, view) } else { policies };
    let must_wait = !was_let_in && !has_node && !Room::of(&policies, view).take(pod.object);
    if must_wait == is_gated_now {
        return Must::AsItIs;
    }
    let mut must = pod.object.clone();
    let Some(spec) = must.get_mut("spec").and_then(Value::as_object_mut) else { return Must::AsItIs };
    let others = spec.get("schedulingGates").and_then(Value::as_array).into_iter().flatten();
    let mut list: Vec<Value> = others.filter(|gate| gate["name"] != GATE).cloned().collect();
    if must_wait {
        list.push(json!({ "name": GATE }));
    }
    match list.is_empty() {
        true => drop(spec.remove("schedulingGates")),
        false => drop(spec.insert("schedulingGates".into(), Value::Array(list))),
    }
    Must::Be(must)
}

/// A pod that waits at the gate, with what it needs.
struct Waiting {
    created: String,
    name: String,
    usage: PodUsage,
}

/// Read once from each stored pod: a namespace may have thousands of them, and every pod that goes asks who waits.
fn waiting(pod: &Value) -> Parsed {
    let waits = is_gated(pod) && at(pod, &["metadata", "deletionTimestamp"]).is_none();
    let usage = if waits { pod_usage(pod).ok().filter(|usage| usage.live) } else { None };
    let of = |field: &str| text(pod, &["metadata", field]).to_owned();
    let waiting = usage.map(|usage| Waiting { created: of("creationTimestamp"), name: of("name"), usage });
    Arc::new(waiting)
}

fn read(made: &Parsed) -> Option<&Waiting> {
    made.downcast_ref::<Option<Waiting>>()?.as_ref()
}

/// Whom a change of a pod, or of a slice, concerns: gated pods that fit now, the oldest first, and what slices tell of those that
/// wait.
pub fn concerned(change: &Change<'_>, view: &dyn View) -> Vec<Affected> {
    let namespace = change.namespace;
    let was_or_is = |pod: Option<&Value>| pod.is_some_and(is_gated);
    let mut affected = Vec::new();
    if SLICES.is(change.resource) || was_or_is(Some(change.old)) || was_or_is(change.new) {
        let slices = view.list(&SLICES.resource(), namespace);
        let place = |slice: &Arc<Value>| Place::new(SLICES.resource(), namespace, text(slice, &["metadata", "name"]));
        affected.extend(slices.iter().map(|slice| Affected::Status(place(slice))));
    }
    if !makes_room(change) {
        return affected;
    }
    let pods = view.parsed(&PODS.resource(), namespace, &waiting);
    let mut waiting: Vec<&Waiting> = pods.iter().filter_map(read).collect();
    waiting.sort_by_key(|one| (&one.created, &one.name));
    let mut room = Room::of(&limiting(namespace, view), view);
    let fitting = waiting.into_iter().filter(|one| room.take_usage(&one.usage)).take(LET_GO_MAX);
    affected.extend(fitting.map(|one| Affected::Object(Place::new(PODS.resource(), namespace, &one.name))));
    affected
}

/// Whether a change may have left room for others: a slice's does, and that of a pod which was charged and takes something else now.
fn makes_room(change: &Change<'_>) -> bool {
    if SLICES.is(change.resource) {
        return true;
    }
    let was_charged = !change.old.is_null() && !is_gated(change.old);
    was_charged && change.new.is_none_or(|new| pod_usage(new).ok() != pod_usage(change.old).ok())
}

/// `hard`, `used`, and what gated pods wait for.
pub fn status(slice: &Value, balances: &dyn Balances) -> Map<String, Value> {
    let (namespace, name) = (text(slice, &["metadata", "namespace"]), text(slice, &["metadata", "name"]));
    let mut status = slice.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
    let lines = balances.of(&policy_name(&SLICES.resource(), namespace, name));
    let hard = at(slice, &["spec", "hard"]).cloned().unwrap_or_else(|| json!({}));
    let mut used = Map::new();
    for name in hard.as_object().into_iter().flatten().map(|(name, _)| name) {
        let line = lines.iter().find(|line| line.bucket.is_empty() && *line.resource == *quota_name(name));
        let amount = line.map(|line| Quantity::new(line.balance.used, line.balance.format));
        used.extend(amount.map(|amount| (name.clone(), json!(amount.to_string()))));
    }
    if let Some(view) = balances.view() {
        let pods = view.parsed(&PODS.resource(), namespace, &waiting);
        let waiting: Vec<&Waiting> = pods.iter().filter_map(read).collect();
        let sum = |name: &str| {
            let counted = counted_from(&quota_name(name)).into_iter().next()?;
            let Counted::Pod(part) = counted else { return None };
            let amounts = waiting.iter().filter_map(|one| used_by_pod(&one.usage, &part));
            amounts.map(Some).reduce(|sum, more| sum?.checked_add(more?)).flatten()
        };
        let sums: Map<String, Value> = used
            .keys()
            .filter_map(|name| Some((name.clone(), sum(name)?)))
            .map(|(name, sum): (String, Measured)| (name, json!(sum.to_quantity().canonical().to_string())))
            .collect();
        match sums.is_empty() {
            true => drop(status.remove("waiting")),
            false => drop(status.insert("waiting".into(), Value::Object(sums))),
        }
    }
    status.insert("hard".into(), hard);
    status.insert("used".into(), Value::Object(used));
    status
}

/// Where a slice that does not compile would look.
pub fn would_look_at(policy: &PolicyObject<'_>) -> Vec<(GroupResource, Reach)> {
    vec![(PODS.resource(), Reach::Namespace(policy.namespace.into()))]
}
