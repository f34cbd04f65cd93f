//! What is read: views, which are the objects; usage, which is the ledger; events, which are the journal.

use std::sync::Arc;

use axum::body::Body;
use families::orgs::commands::{is_rebuilt, row, state};
use families::orgs::dimensions::Dimension;
use families::orgs::limits::Source;
use families::orgs::names::{DEPLOYS, ENVS, KINDS, ORGS, VOLUMES, env_name};
use families::orgs::{limits_of, numbers, status};
use families::{Balances, Plural, World};
use http::{Response, StatusCode};
use kinds::fields::text;
use rules::policy_name;
use serde_json::{Value, json};
use store::{Journal, PageLimit};

use super::problem::Failure;
use super::table::Action;
use super::{Call, document, listed};
use crate::api::{CacheWorld, Parts};
use crate::core::ObjectKey;

/// Rows of one answer.
const ROWS_MAX: usize = 1000;
/// Events that are looked at for one answer: those of others are passed over.
const EVENTS_SEEN_MAX: usize = 10_000;

pub async fn read(parts: &Arc<Parts>, call: &Call) -> Result<Response<Body>, Failure> {
    match call.found.endpoint.action {
        Action::List(plural) => list(parts, call, plural),
        Action::Get(plural, name) => get(parts, call, plural, name),
        Action::ListOrgs => list(parts, call, ORGS),
        Action::GetOrg => Ok(document(StatusCode::OK, &row(&*org(parts, call)?))),
        Action::Quotas => quotas(parts, call),
        Action::Usage => usage(parts, call),
        Action::EnvStatus => env_status(parts, call),
        Action::Events => {
            org(parts, call)?;
            journal(parts, call, Journal::EVENTS, Some(call.org())).await
        }
        Action::AllEvents => journal(parts, call, Journal::EVENTS, None).await,
        Action::Audit => {
            org(parts, call)?;
            journal(parts, call, Journal::AUDIT, Some(call.org())).await
        }
        Action::Views => Ok(views(parts)),
        _ => Err(Failure::no_such_path()),
    }
}

fn org(parts: &Parts, call: &Call) -> Result<Arc<Value>, Failure> {
    let world = CacheWorld(&parts.cache);
    let found = world.get(&ORGS.resource(), call.org(), call.org());
    found.ok_or_else(|| Failure::not_found(format!("there is no organization {:?}", call.org())))
}

/// Whether an object is in the app and the environment that the path names.
fn is_within(call: &Call, spec: &Value) -> bool {
    ["app", "env"].iter().all(|field| match call.found.path.get(field) {
        Some(wanted) => text(spec, &[field]) == wanted,
        None => true,
    })
}

fn page(call: &Call) -> Result<(usize, Option<String>), Failure> {
    let limit = match call.query("limit") {
        None => ROWS_MAX,
        Some(text) => match text.parse::<usize>() {
            Ok(limit) if (1..=ROWS_MAX).contains(&limit) => limit,
            _ => return Err(Failure::invalid(format!("limit is no number from 1 to {ROWS_MAX}"))),
        },
    };
    Ok((limit, call.query("after")))
}

fn list(parts: &Parts, call: &Call, plural: Plural) -> Result<Response<Body>, Failure> {
    if !call.org().is_empty() {
        org(parts, call)?;
    }
    let (limit, after) = page(call)?;
    let listing = parts.cache.list(&plural.resource());
    let (mut items, mut next) = (Vec::new(), None);
    for object in listing.range(call.org(), None) {
        if after.as_deref().is_some_and(|after| &*object.key.name <= after) {
            continue;
        }
        let value = object.value();
        if !is_within(call, &value["spec"]) {
            continue;
        }
        if items.len() == limit {
            next = items.last().map(|last: &Value| text(last, &["id"]).to_owned());
            break;
        }
        items.push(row(&value));
    }
    Ok(listed(items, next))
}

fn get(parts: &Parts, call: &Call, plural: Plural, field: &'static str) -> Result<Response<Body>, Failure> {
    let path = |field: &str| call.found.path.get(field).cloned().unwrap_or_default();
    let name = if plural == ENVS { env_name(&path("app"), &path("env")) } else { path(field) };
    let key = ObjectKey::new(plural.resource(), call.org(), &name);
    let found = parts.cache.get(&key).map(|object| object.value());
    match found.filter(|value| plural == DEPLOYS || is_within(call, &value["spec"])) {
        Some(value) => Ok(document(StatusCode::OK, &row(&value))),
        None => Err(Failure::not_found(format!("there is no {field} {name:?}"))),
    }
}

/// `org_quotas`: what operators set, and what is in force.
fn quotas(parts: &Parts, call: &Call) -> Result<Response<Body>, Failure> {
    let org = org(parts, call)?;
    let world = CacheWorld(&parts.cache);
    let limits = limits_of(&org, &world, (parts.clock)());
    let limits = limits.map_err(|errors| Failure::conflict("limits_unknown", kinds::field_error::join(&errors)))?;
    let items = Dimension::ALL.into_iter().map(|dimension| {
        let own = &org["spec"]["overrides"][dimension.name()];
        let source = match limits.sources[dimension.at()] {
            Source::Override => "override".to_owned(),
            Source::Tier => format!("tier:{}", text(&org, &["spec", "tier"])),
        };
        json!({
            "org_id": call.org(), "dimension": dimension.name(), "limit": limits.cap(dimension).shown(),
            "limit_source": source, "limit_value": own["limit"], "updated_at": own["updated_at"],
            "set_by": own["set_by"], "reason": own["reason"], "expires_at": own["expires_at"],
        })
    });
    let tier = &org["spec"]["tier"];
    Ok(document(StatusCode::OK, &json!({"org_id": call.org(), "tier": tier, "items": items.collect::<Vec<_>>()})))
}

/// `org_usage_view`: the ledger itself.
fn usage(parts: &Parts, call: &Call) -> Result<Response<Body>, Failure> {
    let org = org(parts, call)?;
    let policy = policy_name(&ORGS.resource(), call.org(), call.org());
    let tier = text(&org, &["spec", "tier"]);
    let rows = status::rows(&org, &parts.cache.of(&policy));
    let mut items: Vec<Value> = rows.iter().map(|row| row.shown(tier)).collect();
    // Snapshots are counted for each volume apart.
    let listing = parts.cache.list(&VOLUMES.resource());
    for volume in listing.range(call.org(), None).take(ROWS_MAX) {
        let policy = policy_name(&VOLUMES.resource(), call.org(), &volume.key.name);
        for line in parts.cache.of(&policy) {
            let used = numbers::shown(line.balance.used);
            let limit = line.balance.limit.amount().map(numbers::shown);
            items.push(json!({
                "dimension": Dimension::SnapshotsPerVolume.name(), "key": &*volume.key.name, "counted": used,
                "reserved": 0, "usage": used, "limit": limit,
                "over_limit": line.balance.limit.amount().is_some_and(|limit| line.balance.used > limit),
            }));
        }
    }
    for item in &mut items {
        item["org_id"] = json!(call.org());
        item["tier"] = json!(tier);
    }
    Ok(document(StatusCode::OK, &json!({"org_id": call.org(), "tier": tier, "items": items})))
}

/// `env_status_view`: as the scheduler last wrote it.
fn env_status(parts: &Parts, call: &Call) -> Result<Response<Body>, Failure> {
    let path = |field: &str| call.found.path.get(field).cloned().unwrap_or_default();
    let name = env_name(&path("app"), &path("env"));
    let key = ObjectKey::new(ENVS.resource(), call.org(), &name);
    let found = parts.cache.get(&key).ok_or_else(|| Failure::not_found(format!("there is no env {name:?}")))?;
    let value = found.value();
    let groups = value.pointer("/status/groups").cloned().unwrap_or_else(|| json!([]));
    Ok(document(StatusCode::OK, &json!({"env_id": name, "groups": groups})))
}

/// Entries of a journal in their order, those of one organization or all.
async fn journal(
    parts: &Arc<Parts>,
    call: &Call,
    journal: Journal,
    org: Option<&str>,
) -> Result<Response<Body>, Failure> {
    let after = match call.query("after") {
        None => 0,
        Some(text) => text.parse::<u64>().map_err(|_| Failure::invalid("after is no event_id"))?,
    };
    let (limit, _) = page(&Call { query: call.query.replace("after=", "_="), ..shallow(call) })?;
    let (journals, org) = (parts.journals.clone(), org.map(str::to_owned));
    let reading = move || {
        let (mut items, mut at, mut seen) = (Vec::new(), after.saturating_add(1), 0);
        loop {
            let page = journals.forward(journal, at, PageLimit { entries: 1000, bytes: 4 << 20 })?;
            let Some(last) = page.entries.last().map(|entry| entry.sequence) else {
                return Ok::<_, store::StoreError>((items, None));
            };
            for entry in page.entries {
                seen += 1;
                at = entry.sequence.saturating_add(1);
                let Ok(mut event) = serde_json::from_slice::<Value>(&entry.value) else { continue };
                if org.as_deref().is_some_and(|org| text(&event, &["org_id"]) != org) {
                    continue;
                }
                event["event_id"] = json!(entry.sequence);
                items.push(event);
                if items.len() == limit {
                    return Ok((items, Some(entry.sequence.to_string())));
                }
            }
            if seen >= EVENTS_SEEN_MAX {
                return Ok((items, Some(last.to_string())));
            }
        }
    };
    let read = tokio::task::spawn_blocking(reading).await.map_err(|error| Failure::internal(error.to_string()))?;
    let (items, next) = read.map_err(|error| Failure::unavailable(error.to_string()))?;
    Ok(listed(items, next))
}

fn shallow(call: &Call) -> Call {
    Call {
        found: call.found.clone(),
        headers: http::HeaderMap::new(),
        query: String::new(),
        identity: call.identity.clone(),
        number: call.number,
        body: Value::Null,
    }
}

/// All views as events tell them, for whoever makes them again from the events and compares.
fn views(parts: &Parts) -> Response<Body> {
    let mut items = Vec::new();
    for (kind, plural) in KINDS.iter().filter(|(_, plural)| is_rebuilt(*plural)) {
        for object in parts.cache.list(&plural.resource()).range("", None) {
            items.push(json!({
                "kind": kind, "org_id": &*object.key.namespace, "id": &*object.key.name,
                "state": state(&object.value()),
            }));
        }
    }
    let now_ms = (parts.clock)();
    document(StatusCode::OK, &json!({"now_ms": now_ms, "items": items}))
}
