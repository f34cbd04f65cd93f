//! What a custom quota shows: usage, the objects that take it, the kinds it looks at and whether all is well.

use kinds::conditions;
pub use kinds::time::text as time;
pub use kinds::uid::text as uid;
use quantity::{Amount, Quantity};
use rules::{GroupResource, policy_name};
use serde_json::{Value, json};

use super::quota::{Diagnosis, UNEVALUATED, USAGE, limit_of, shown_usage};
use super::targets::{Resolved, Target};
use super::{Kind, Settings, items, text};
use crate::{BalanceLine, Balances, Projected, SubjectLine, View, put_status};

/// Objects named in a status. Capsule names all, which makes a quota over ten thousand objects too large to store;
/// `claimCount` tells how many there are.
pub const CLAIMS_SHOWN_MAX: usize = 500;
/// Objects named in a condition because they cannot be evaluated.
const UNEVALUATED_SHOWN_MAX: usize = 10;

pub fn project(
    kind: Kind,
    resource: &GroupResource,
    quota: &mut Value,
    balances: &dyn Balances,
    settings: &Settings,
) -> Projected {
    let (namespace, name) = (text(quota, &["metadata", "namespace"]), text(quota, &["metadata", "name"]));
    let policy = policy_name(resource, namespace, name);
    let lines = balances.of(&policy);
    let Some(usage) = lines.iter().find(|line| &*line.resource == USAGE) else { return Projected::Unchanged };
    let mut status = quota.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
    if let Some(generation) = quota.pointer("/metadata/generation").filter(|generation| generation.is_i64()) {
        status.insert("observedGeneration".into(), generation.clone());
    }
    status.insert("usage".into(), used_and_available(quota, usage));
    status.insert("claimCount".into(), json!(usage.balance.subjects));
    let sources: Vec<(Target, &Value)> =
        items(quota, &["spec", "sources"]).iter().map(|source| (Target::read(source), source)).collect();
    if let Some(view) = balances.view() {
        let known: Vec<(Target, Resolved)> =
            sources.iter().map(|(target, _)| (target.clone(), target.resolve(view))).collect();
        let charged = view.charged(&policy, CLAIMS_SHOWN_MAX);
        status.insert("claims".into(), claims(&charged, &known));
        status.insert("targets".into(), targets(&sources, |at| known[at].1.namespaced));
        if kind == Kind::GlobalCustomQuota {
            status.insert("namespaces".into(), namespaces(quota, view, &policy));
        }
        let odd = view.holders(&policy, UNEVALUATED, "", UNEVALUATED_SHOWN_MAX);
        let odd = if odd.is_empty() { Vec::new() } else { explained(kind, quota, &odd, view, settings) };
        let selects = !items(quota, &["spec", "namespaceSelectors"]).is_empty();
        let problems = problems(kind, selects, &known, &lines, &odd);
        let now = time(view.now_ms());
        status.insert("conditions".into(), ready(status.get("conditions"), &problems, &now));
    } else if !status.contains_key("conditions") {
        // Just written: until it is published, it is as good as its birth.
        let born = text(quota, &["metadata", "creationTimestamp"]);
        status.insert("targets".into(), targets(&sources, |_| true));
        status.insert("conditions".into(), ready(None, &[], born));
    }
    put_status(quota, status)
}

fn used_and_available(quota: &Value, usage: &BalanceLine) -> Value {
    let used = shown_usage(usage);
    let limit = limit_of(quota).unwrap_or_default();
    let available = limit.checked_sub(&used).filter(|left| !left.amount().is_negative()).unwrap_or_default();
    json!({"used": used.to_string(), "available": available.canonical().to_string()})
}

fn claims(charged: &[SubjectLine], known: &[(Target, Resolved)]) -> Value {
    let claims = charged.iter().filter(|line| &*line.account == USAGE).take(CLAIMS_SHOWN_MAX).filter_map(|line| {
        let (target, _) = known.iter().find(|(_, resolved)| resolved.resource == line.resource)?;
        let mut claim = json!({
            "group": target.group, "version": target.version, "kind": target.kind,
            "name": &*line.name, "uid": uid(line.uid),
            "usage": Quantity::new(line.amount, line.format).to_string(),
        });
        if !line.namespace.is_empty() {
            claim["namespace"] = json!(&*line.namespace);
        }
        Some(claim)
    });
    Value::Array(claims.collect())
}

fn targets(sources: &[(Target, &Value)], namespaced: impl Fn(usize) -> bool) -> Value {
    let targets = sources.iter().enumerate().map(|(at, (target, source))| {
        let op = Some(text(source, &["op"])).filter(|op| !op.is_empty()).unwrap_or("add");
        let scope = if namespaced(at) { "namespace" } else { "cluster" };
        let mut shown = json!({
            "group": target.group, "version": target.version, "kind": target.kind, "op": op, "scope": scope,
        });
        for field in ["path", "cel", "selectors"] {
            if let Some(value) = source.get(field).filter(|value| !value.is_null() && **value != json!("")) {
                shown[field] = value.clone();
            }
        }
        shown
    });
    Value::Array(targets.collect())
}

fn namespaces(quota: &Value, view: &dyn View, policy: &str) -> Value {
    if items(quota, &["spec", "namespaceSelectors"]).is_empty() {
        return json!(["*"]);
    }
    json!(view.namespaces(policy).iter().map(|name| &**name).collect::<Vec<&str>>())
}

/// The objects that cannot be evaluated, each with the reason.
fn explained(kind: Kind, quota: &Value, odd: &[SubjectLine], view: &dyn View, settings: &Settings) -> Vec<String> {
    let diagnosis = Diagnosis::of(kind, quota, settings, view);
    let odd = odd.iter().filter(|line| &*line.account == UNEVALUATED);
    odd.map(|line| {
        let object = view.get(&line.resource, &line.namespace, &line.name);
        let why = diagnosis.as_ref().zip(object).and_then(|(diagnosis, object)| diagnosis.why(&line.resource, &object));
        let named = match &*line.namespace {
            "" => format!("{} {}", line.resource, line.name),
            namespace => format!("{} {namespace}/{}", line.resource, line.name),
        };
        why.map_or(named.clone(), |why| format!("{named} ({why})"))
    })
    .collect()
}

fn problems(
    kind: Kind,
    selects_namespaces: bool,
    known: &[(Target, Resolved)],
    lines: &[BalanceLine],
    odd: &[String],
) -> Vec<String> {
    let mut problems = Vec::new();
    for (target, resolved) in known {
        if !resolved.known {
            problems.push(format!("failed to resolve REST mapping for {target}: no matches for kind"));
        } else if !resolved.namespaced && kind == Kind::CustomQuota {
            problems.push(format!("GVK {target} is not namespaced"));
        } else if !resolved.namespaced && selects_namespaces {
            problems.push(format!("GVK {target} is not namespaced: namespaceSelectors select none of its objects"));
        }
    }
    let bad = lines.iter().find(|line| &*line.resource == UNEVALUATED).map_or(Amount::ZERO, |line| line.balance.used);
    if !bad.is_zero() {
        problems.push(format!("{bad} objects cannot be evaluated and are not counted: {}", odd.join(", ")));
    }
    problems
}

/// One condition, `Ready`; its time moves only when it says something else.
fn ready(before: Option<&Value>, problems: &[String], now: &str) -> Value {
    let (status, reason, message) = match problems {
        [] => ("True", "Succeeded", "reconciled".to_string()),
        _ => ("False", "Failed", problems.join("\n")),
    };
    let mut ready = conditions::condition("Ready", status, reason, &message);
    let before = before.and_then(|list| conditions::find(list, "Ready"));
    conditions::since(&mut ready, "lastTransitionTime", before, conditions::NEWS, now);
    json!([ready])
}
