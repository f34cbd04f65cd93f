//! What a claim tells of itself: phase, conditions, what was granted; written with the decision.

use std::collections::BTreeSet;
use std::sync::Arc;

use kinds::conditions;
use kinds::fields::{at, items, text};
use ledger::{ExplainedLine, SubjectId};
use quantity::Amount;
use rules::policy_name;
use serde_json::{Map, Value, json};

use super::catalog::Catalog;
use super::claim::{Claim, Invalid, Parts, Request, is_released};
use super::effective;
use super::entity::{Entities, Entity};
use super::metered::{self, OnUnavailable, Sample, Samples};
use super::table::{BucketAccount, CLAIMS, Cover, Limited, Table, UNCOVERED};
use super::units::Unit;
use super::{CLAIMS as CLAIMS_RESOURCE, DEFINITIONS, EFFECTIVE};
use crate::{Balances, Parsed, Place, Projected, Sources, View, put_status};

/// Claims of one project that are asked in which unit they were granted.
const UNDEFINED_MAX: usize = 20_000;

/// The grants that a claim is held against: its project's, and its organization's.
pub(super) struct Held {
    pub table: Table,
    pub samples: Samples,
}

/// Buckets that are named of those that have too little for a claim. Thousands may wait for the same ones, and each says it thrice.
const SPELLED_MAX: usize = 16;

/// How a claim stands.
enum State {
    Granted {
        resources: Vec<Value>,
        project: String,
    },
    Invalid(Invalid),
    /// No grant covers it.
    Uncovered {
        reason: &'static str,
        message: String,
    },
    /// A meter has not been asked yet, or does not answer.
    Pending {
        reason: &'static str,
        message: String,
    },
    Exceeded {
        message: String,
    },
}

pub fn project(claim: &mut Value, balances: &dyn Balances) -> Projected {
    let Some(view) = balances.view() else { return Projected::Unchanged };
    let state = state(claim, view);
    let mut status = claim.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
    fill(&mut status, claim, &state, &kinds::time::text(view.now_ms()));
    put_status(claim, status)
}

fn state(claim: &Value, view: &dyn View) -> State {
    let catalog = Catalog::of(view);
    let namespace = text(claim, &["metadata", "namespace"]);
    let held = held(namespace, &catalog, view);
    let subject = kinds::uid::parse(text(claim, &["metadata", "uid"])).unwrap_or(SubjectId(0));
    let Parts { claim: read, invalid } = Parts::read(claim, &catalog);
    if is_granted(subject, &held, view) {
        let project = held.first().map(|one| one.table.entity.name.clone()).unwrap_or_default();
        let mut resources = granted(&read, namespace, &held, &catalog);
        resources.extend(undefined(claim, &catalog));
        return State::Granted { resources, project };
    }
    if is_released(claim) {
        let message = "It is on its way out, and has let go of what it had.".into();
        return State::Pending { reason: "PendingQuotaCheck", message };
    }
    if let Some(invalid) = invalid.into_iter().next() {
        return State::Invalid(invalid);
    }
    for request in &read.requests {
        let covers = held.iter().map(|one| one.table.cover(&read, request, namespace));
        for cover in covers {
            if let Cover::Nobody { reason, message } = cover {
                return State::Uncovered { reason, message };
            }
        }
    }
    if held.is_empty() {
        let message = format!("namespace \"{namespace}\" belongs to no project yet");
        return State::Uncovered { reason: "GrantNotFound", message };
    }
    blocked(&view.blocking(subject), &held, view.now_ms())
}

/// Whether it is charged, and waits for nothing.
pub(super) fn is_granted(subject: SubjectId, held: &[Arc<Held>], view: &dyn View) -> bool {
    if view.waits(subject) {
        return false;
    }
    let Some(project) = held.first() else { return false };
    let policy = policy_name(&EFFECTIVE.resource(), "", &project.table.entity.object_name());
    view.explain(subject).lines.iter().any(|line| *line.key.policy == *policy && &*line.key.resource == CLAIMS)
}

pub(super) fn held(namespace: &str, catalog: &Arc<Catalog>, view: &dyn View) -> Vec<Arc<Held>> {
    let entities = Entities::of(view);
    let Some(project) = entities.project(namespace) else { return Vec::new() };
    let organization = entities.organization(project).map(Entity::organization);
    let known = [Some(Entity::project(project)), organization].into_iter().flatten();
    known.filter_map(|entity| held_by(&entity, catalog, view)).collect()
}

/// Read once for all whose words are mended together: those may be thousands.
fn held_by(entity: &Entity, catalog: &Arc<Catalog>, view: &dyn View) -> Option<Arc<Held>> {
    let name = entity.object_name();
    let resources = [EFFECTIVE.resource(), DEFINITIONS.resource()];
    let sources = Sources { resources: &resources, ledger: false };
    let made = view.derived(&format!("datum held {name}"), sources, &|| {
        let held = effective::stored(entity, view).map(|object| {
            Arc::new(Held { table: Table::read(&name, &object, catalog.clone()), samples: Samples::read(&object) })
        });
        Arc::new(held) as Parsed
    });
    made.downcast_ref::<Option<Arc<Held>>>()?.clone()
}

fn granted(claim: &Claim, namespace: &str, held: &[Arc<Held>], catalog: &Catalog) -> Vec<Value> {
    let shown = |request: &Request| {
        let mut shown = json!({"name": request.name, "quantity": request.unit.show(request.amount)});
        shown["unit"] = json!(catalog.get(&request.name).map(|known| &known.unit_name));
        if !request.dimensions.is_empty() {
            shown["dimensions"] = json!(request.dimensions);
        }
        for one in held {
            if let Some((_, bucket, _)) = one.table.counted(claim, request, namespace).buckets.first() {
                shown["bucket"] = json!({"entity": one.table.entity.kind(), "selector": bucket.written});
            }
        }
        shown
    };
    claim.requests.iter().map(shown).collect()
}

/// What was granted while it was defined, and is asked for still: it says in which unit, for when the definition is made again.
fn undefined(claim: &Value, catalog: &Catalog) -> Vec<Value> {
    let asked: BTreeSet<&str> = items(claim, &["spec", "resources"]).iter().map(|one| text(one, &["name"])).collect();
    let before = items(claim, &["status", "grantedResources"]).iter();
    let is_kept = |one: &&Value| asked.contains(text(one, &["name"])) && catalog.get(text(one, &["name"])).is_none();
    before.filter(is_kept).cloned().collect()
}

/// The unit in which some claim was granted a resource that is not defined now, where that is another than this: what it has would
/// come to mean another amount.
pub(super) fn granted_otherwise(resource: &str, unit: Unit, view: &dyn View) -> Option<(String, Place)> {
    for policy in view.list(&EFFECTIVE.resource(), "") {
        let policy = policy_name(&EFFECTIVE.resource(), "", text(&policy, &["metadata", "name"]));
        // Whatever is granted and not defined is counted there.
        for holder in view.holders(&policy, UNCOVERED, "", UNDEFINED_MAX) {
            let claim = view.get(&CLAIMS_RESOURCE.resource(), &holder.namespace, &holder.name);
            let units = claim.iter().flat_map(|claim| items(claim, &["status", "grantedResources"]));
            let mut units = units.filter(|one| text(one, &["name"]) == resource).map(|one| text(one, &["unit"]));
            if let Some(other) = units.find(|known| !known.is_empty() && Unit::named(known) != unit) {
                let place = Place::new(CLAIMS_RESOURCE.resource(), &holder.namespace, &holder.name);
                return Some((other.to_owned(), place));
            }
        }
    }
    None
}

/// What the accounts that have too little say.
fn blocked(lines: &[ExplainedLine], held: &[Arc<Held>], now_ms: i64) -> State {
    let (mut exceeded, mut more) = (Vec::new(), 0);
    let mut pending = None;
    for line in lines.iter().filter(|line| &*line.key.resource != UNCOVERED) {
        let Some((one, limited, bucket)) = find(line, held) else { continue };
        if let Some(state) = unmeasured(one, limited, bucket, line) {
            pending = Some(state);
            continue;
        }
        match exceeded.len() < SPELLED_MAX {
            true => exceeded.push(too_little(one, limited, bucket, line, now_ms)),
            false => more += 1,
        }
    }
    if more > 0 {
        exceeded.push(format!("and {more} more"));
    }
    match (exceeded.is_empty(), pending) {
        (true, Some(pending)) => pending,
        (true, None) => State::Pending { reason: "PendingQuotaCheck", message: "Quota check is pending.".into() },
        (false, _) => State::Exceeded { message: exceeded.join("; ") },
    }
}

fn find<'a>(line: &ExplainedLine, held: &'a [Arc<Held>]) -> Option<(&'a Held, &'a Limited, &'a BucketAccount)> {
    held.iter().map(|one| &**one).find_map(|one| {
        let policy = policy_name(&EFFECTIVE.resource(), "", &one.table.entity.object_name());
        let all = one
            .table
            .resources
            .values()
            .flat_map(|limited| limited.buckets.iter().map(move |bucket| (limited, bucket)));
        let mut all = all.filter(|(_, bucket)| *policy == *line.key.policy && *bucket.name == *line.key.resource);
        all.next().map(|(limited, bucket)| (one, limited, bucket))
    })
}

/// A bucket that is closed because nobody has measured it lately.
fn unmeasured(held: &Held, limited: &Limited, bucket: &BucketAccount, line: &ExplainedLine) -> Option<State> {
    // Where the ledger alone decides while there is no answer, nobody waits for one.
    let source = limited.definition.source.as_ref().filter(|one| one.on_unavailable != OnUnavailable::LedgerOnly)?;
    let is_closed = line.balance.limit.amount() == Some(Amount::ZERO) && bucket.limit != Some(Amount::ZERO);
    let name = &limited.definition.resource_name;
    match held.samples.get(&bucket.name) {
        Some(Sample::Unavailable { message }) => {
            let message = format!("usage of {name} cannot be measured: {message}");
            match source.on_unavailable {
                OnUnavailable::Deny => Some(State::Uncovered { reason: "MeteringServiceUnavailable", message }),
                _ => Some(State::Pending { reason: "MeteringServiceUnavailable", message }),
            }
        }
        Some(Sample::Measured { unseen, .. }) if !is_closed || bucket.limit.is_some_and(|limit| *unseen >= limit) => {
            None
        }
        _ => {
            Some(State::Pending { reason: "PendingQuotaCheck", message: format!("usage of {name} is being measured") })
        }
    }
}

fn too_little(held: &Held, limited: &Limited, bucket: &BucketAccount, line: &ExplainedLine, now_ms: i64) -> String {
    let unit = limited.definition.unit;
    let unseen = metered::unseen(limited, bucket, &held.samples, now_ms);
    let used = line.balance.used.checked_add(unseen).unwrap_or(line.balance.used);
    let limit = bucket.limit.map_or_else(|| "unlimited".to_owned(), |limit| unit.show(limit));
    let wanted = line.amount.checked_sub(line.has).unwrap_or(line.amount);
    exceeds(&held.table.entity, limited, bucket, &unit.show(wanted), &unit.show(used), &limit)
}

/// One account that says no, in a sentence.
pub fn exceeds(
    entity: &Entity,
    limited: &Limited,
    bucket: &BucketAccount,
    requested: &str,
    used: &str,
    limit: &str,
) -> String {
    let (name, unit) = (&limited.definition.resource_name, &limited.definition.unit_name);
    let of = match (limited.is_granted, bucket.selector.is_everything()) {
        (false, _) => "default limit".to_owned(),
        (true, true) => "bucket {}".to_owned(),
        (true, false) => format!("bucket {{{}}}", bucket.selector.text()),
    };
    format!("{name} ({unit}) of {entity}, {of}: requested {requested}, used {used}, limit {limit}")
}

fn fill(status: &mut Map<String, Value>, claim: &Value, state: &State, now: &str) {
    let generation = at(claim, &["metadata", "generation"]).filter(|generation| generation.is_i64());
    let same_generation = generation == status.get("observedGeneration");
    // So is what was granted to another project before.
    let same_project = match (state, status.get("project")) {
        (State::Granted { project, .. }, Some(before)) => before == project,
        _ => true,
    };
    if let Some(generation) = generation {
        status.insert("observedGeneration".into(), generation.clone());
    }
    let before = status.get("conditions").cloned().unwrap_or_default();
    let valid = ("True", "ValidationSuccessful", "The claim is valid.".to_owned());
    let unchecked = ("Unknown", "PendingQuotaCheck", "Quota check is pending.".to_owned());
    let checked = ("True", "CheckSuccessful", "Quota was checked.".to_owned());
    let (phase, reason, validated, quota, granted, message) = match state {
        State::Granted { .. } => {
            let message = "The claim is granted.".to_owned();
            ("Granted", "QuotaAvailable", valid, checked, ("True", "QuotaAvailable"), message)
        }
        State::Invalid(Invalid { reason, message, .. }) => {
            let validated = ("False", *reason, message.clone());
            ("Denied", *reason, validated, unchecked, ("False", "ValidationFailed"), message.clone())
        }
        State::Uncovered { reason, message } => {
            let quota = ("False", *reason, message.clone());
            ("Denied", *reason, valid, quota, ("False", *reason), message.clone())
        }
        State::Pending { reason, message } => {
            let quota = match *reason {
                "PendingQuotaCheck" => ("Unknown", "PendingQuotaCheck", message.clone()),
                other => ("False", other, message.clone()),
            };
            ("Pending", *reason, valid, quota, ("False", "AwaitingDecision"), message.clone())
        }
        State::Exceeded { message } => {
            ("Denied", "QuotaExceeded", valid, checked, ("False", "QuotaExceeded"), message.clone())
        }
    };
    let ready = match phase {
        "Granted" => ("True", "ClaimGranted"),
        "Denied" => ("True", "ClaimDenied"),
        _ => ("False", "Processing"),
    };
    let list = [
        ("Ready", ready.0, ready.1, message.as_str()),
        ("Validated", validated.0, validated.1, validated.2.as_str()),
        ("QuotaChecked", quota.0, quota.1, quota.2.as_str()),
        ("Granted", granted.0, granted.1, message.as_str()),
    ];
    let conditions: Vec<Value> = list
        .iter()
        .map(|(kind, status, reason, message)| {
            let mut condition = conditions::condition(kind, status, reason, message);
            // What is granted anew, though it was granted before, is granted now.
            let known = conditions::find(&before, kind).filter(|_| same_generation && same_project);
            conditions::since(&mut condition, "lastTransitionTime", known, &["status", "reason"], now);
            if let Some(generation) = generation {
                condition["observedGeneration"] = generation.clone();
            }
            condition
        })
        .collect();
    status.insert("phase".into(), json!(phase));
    status.insert("reason".into(), json!(reason));
    status.insert("message".into(), json!(message));
    status.insert("conditions".into(), Value::Array(conditions));
    let granted = match state {
        State::Granted { resources, project } => {
            status.insert("project".into(), json!(project));
            json!(resources)
        }
        _ => {
            status.remove("project");
            json!([])
        }
    };
    status.insert("grantedResources".into(), granted);
}
