//! What is read: views, which are the objects; usage, which is the ledger; events, which are the journal.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::body::Body;
use families::orgs::commands::{RATE_LIMITED, is_rebuilt, row, state};
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

use super::inventory::views_of;
use super::problem::Failure;
use super::table::Action;
use super::{Call, document};
use crate::api::{CacheWorld, Parts};
use crate::core::{Listing, ObjectKey};
use crate::inflight::Taken;

/// Rows of one answer, and bytes of them: what is beyond either is on the next page.
const ROWS_MAX: usize = 1000;
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Events that are looked at for one answer, and bytes of them: those of others are passed over.
const EVENTS_SEEN_MAX: usize = 10_000;
const BYTES_SEEN_MAX: usize = 16 << 20;

pub async fn read(parts: &Arc<Parts>, call: &Call) -> Result<Response<Body>, Failure> {
    match call.found.endpoint.action {
        Action::List(plural) => list(parts, call, plural).await,
        Action::Get(plural, name) => get(parts, call, plural, name),
        Action::ListOrgs => list(parts, call, ORGS).await,
        Action::GetOrg => Ok(document(StatusCode::OK, &row(&*org(parts, call)?))),
        Action::Quotas => quotas(parts, call),
        Action::Usage => usage(parts, call),
        Action::EnvStatus => env_status(parts, call),
        Action::Events => {
            let org = org(parts, call)?;
            let from = begun_at(&org, "events_from");
            journal(parts, call, Journal::EVENTS, from).await
        }
        Action::AllEvents => journal(parts, call, Journal::EVENTS, 0).await,
        Action::Audit => {
            let org = org(parts, call)?;
            let from = begun_at(&org, "audit_from");
            journal(parts, call, Journal::AUDIT, from).await
        }
        Action::AllAudit => journal(parts, call, Journal::AUDIT, 0).await,
        Action::Views => views(parts, call).await,
        Action::Inventory => inventory(parts, call).await,
        _ => Err(Failure::no_such_path()),
    }
}

fn org(parts: &Parts, call: &Call) -> Result<Arc<Value>, Failure> {
    let world = CacheWorld(&parts.cache);
    let found = world.get(&ORGS.resource(), call.org(), call.org());
    found.ok_or_else(|| Failure::not_found(format!("there is no organization {:?}", call.org())))
}

/// Where a journal stood when an organization was made: what is before it is of an earlier one of its name.
fn begun_at(org: &Value, field: &str) -> u64 {
    org["spec"][field].as_u64().unwrap_or(0)
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

/// The rows of one answer, as text: nobody holds them as trees.
struct Rows {
    text: String,
    count: usize,
    limit: usize,
}

impl Rows {
    fn new(limit: usize) -> Rows {
        Rows { text: String::new(), count: 0, limit }
    }

    fn is_full(&self) -> bool {
        self.count == self.limit || self.text.len() >= ANSWER_BYTES_MAX
    }

    fn next(&mut self) -> &mut String {
        if self.count > 0 {
            self.text.push(',');
        }
        self.count += 1;
        &mut self.text
    }

    fn push(&mut self, row: &Value) {
        let text = self.next();
        // Writing to a text does not fail.
        let _ = write!(text, "{row}");
    }

    /// The page with whatever else it says.
    fn page(self, next: Option<&str>, more: &str) -> Response<Body> {
        let text = format!("{{{more}\"items\":[{}],\"next\":{}}}", self.text, json!(next));
        let mut response = Response::new(Body::from(text));
        let json = http::HeaderValue::from_static("application/json");
        response.headers_mut().insert(http::header::CONTENT_TYPE, json);
        response
    }
}

/// Makes an answer that may be long: apart from the threads that serve sockets, when it is its user's turn, with room for it.
async fn at_length(
    call: &Call,
    work: impl FnOnce() -> Result<Response<Body>, Failure> + Send + 'static,
) -> Result<Response<Body>, Failure> {
    let busy = |_| Failure::limited(RATE_LIMITED, "too much is read at the moment: try again");
    let charge = match &call.room {
        Some(room) => Some(room.take(ANSWER_BYTES_MAX).await.map_err(busy)?),
        None => None,
    };
    let turn = call.api.long().requests.take(&call.identity).await.map_err(busy)?;
    let made = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        work()
    });
    let mut response = made.await.map_err(|error| Failure::internal(error.to_string()))??;
    if let Some(charge) = charge {
        response.extensions_mut().insert(Taken(Arc::new(charge)));
    }
    Ok(response)
}

async fn list(parts: &Arc<Parts>, call: &Call, plural: Plural) -> Result<Response<Body>, Failure> {
    if !call.org().is_empty() {
        org(parts, call)?;
    }
    let (limit, after) = page(call)?;
    let (cache, asked) = (Arc::clone(&parts.cache), call.clone());
    let work = move || {
        let listing = cache.list(&plural.resource());
        let mut rows = Rows::new(limit);
        let mut last: Option<Arc<str>> = None;
        // An organization is in the namespace of its name.
        let namespace: Arc<str> = match (plural == ORGS, &after) {
            (true, Some(after)) => after.as_str().into(),
            _ => asked.org().into(),
        };
        let after = after.map(|after| (namespace, Arc::from(after.as_str())));
        for object in listing.range(asked.org(), after.as_ref()) {
            let value = object.value();
            if !is_within(&asked, &value["spec"]) {
                continue;
            }
            if rows.is_full() {
                return Ok(rows.page(last.as_deref(), ""));
            }
            rows.push(&row(&value));
            last = Some(Arc::clone(&object.key.name));
        }
        Ok(rows.page(None, ""))
    };
    at_length(call, work).await
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
    let limits = limits_of(&org, &world, call.api.moment_ms());
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

/// Of an entry what says whose it is.
#[derive(serde::Deserialize)]
struct Whose {
    org_id: Option<String>,
}

/// Entries of a journal in their order from one on, those of the organization that the path names, or all.
async fn journal(parts: &Arc<Parts>, call: &Call, journal: Journal, from: u64) -> Result<Response<Body>, Failure> {
    let (limit, after) = page(call)?;
    let after = match after {
        None => 0,
        Some(text) => text.parse::<u64>().map_err(|_| Failure::invalid("after is no event_id"))?,
    };
    let (journals, org) = (parts.journals.clone(), call.org().to_owned());
    let reading = move || {
        let (mut rows, mut at, mut seen, mut bytes) = (Rows::new(limit), after.saturating_add(1).max(from), 0, 0);
        loop {
            let page = journals.forward(journal, at, PageLimit { entries: 1000, bytes: 1 << 20 });
            let page = page.map_err(|error| Failure::unavailable(error.to_string()))?;
            let Some(last) = page.entries.last().map(|entry| entry.sequence) else { return Ok(rows.page(None, "")) };
            for entry in page.entries {
                seen += 1;
                bytes += entry.value.len();
                at = entry.sequence.saturating_add(1);
                let Some(fields) = entry.value.strip_prefix(b"{").and_then(|fields| std::str::from_utf8(fields).ok())
                else {
                    continue;
                };
                let is_theirs =
                    || serde_json::from_slice::<Whose>(&entry.value).is_ok_and(|one| one.org_id.as_ref() == Some(&org));
                if !org.is_empty() && !is_theirs() {
                    continue;
                }
                // It is handed on as it was written down.
                let _ = write!(rows.next(), "{{\"event_id\":{},{fields}", entry.sequence);
                if rows.is_full() {
                    return Ok(rows.page(Some(&entry.sequence.to_string()), ""));
                }
            }
            if seen >= EVENTS_SEEN_MAX || bytes >= BYTES_SEEN_MAX {
                return Ok(rows.page(Some(&last.to_string()), ""));
            }
        }
    };
    at_length(call, reading).await
}

/// How often views are looked at until nothing happens meanwhile.
const QUIET_LOOKS: usize = 20;

/// All kinds that events tell of, as they are at one moment, and the last event there was then; none where it never was quiet enough to
/// say which.
async fn quiet_views(parts: &Arc<Parts>) -> (Vec<(&'static str, Listing)>, Option<u64>) {
    let last = || parts.journals.span(Journal::EVENTS).map(|span| span.end.saturating_sub(1)).ok();
    let mut looked = 0;
    loop {
        let before = last();
        // What was durable before it is shown when it is answered.
        let is_shown = super::carry::barrier(parts).await;
        let kinds = KINDS.iter().filter(|(_, plural)| is_rebuilt(*plural));
        let all: Vec<_> = kinds.map(|(kind, plural)| (*kind, parts.cache.list(&plural.resource()))).collect();
        looked += 1;
        if is_shown && before == last() {
            return (all, before);
        }
        if looked == QUIET_LOOKS {
            return (all, None);
        }
    }
}

/// All views as events tell them, for whoever makes them again from the events and compares: page by page, by kind, organization and id.
async fn views(parts: &Arc<Parts>, call: &Call) -> Result<Response<Body>, Failure> {
    let (limit, after) = page(call)?;
    let after = match after {
        None => None,
        Some(text) => {
            let mut words = text.splitn(3, '/').map(str::to_owned);
            let place = words.next().zip(words.next()).zip(words.next());
            let kind = place.as_ref().and_then(|((kind, _), _)| KINDS.iter().position(|(known, _)| known == kind));
            let place = place.zip(kind).ok_or_else(|| Failure::invalid("after is no \"next\" of a page of views"))?;
            let (((_, org), id), kind) = place;
            Some((kind, (Arc::<str>::from(org), Arc::<str>::from(id))))
        }
    };
    let (kinds, as_of) = quiet_views(parts).await;
    let now_ms = call.api.moment_ms();
    let more = format!("\"now_ms\":{now_ms},\"as_of_event_id\":{},", json!(as_of));
    let work = move || {
        let (mut rows, mut last) = (Rows::new(limit), None);
        for (kind, listing) in kinds {
            let at = KINDS.iter().position(|(known, _)| *known == kind);
            let place = match &after {
                Some((begun, _)) if at < Some(*begun) => continue,
                Some((begun, place)) if at == Some(*begun) => Some(place),
                _ => None,
            };
            for object in listing.range("", place) {
                if rows.is_full() {
                    return Ok(rows.page(last.as_deref(), &more));
                }
                let (org, id) = (&*object.key.namespace, &*object.key.name);
                rows.push(&json!({"kind": kind, "org_id": org, "id": id, "state": state(&object.value())}));
                last = Some(format!("{kind}/{org}/{id}"));
            }
        }
        Ok(rows.page(None, &more))
    };
    at_length(call, work).await
}

/// The views of the last inventory; none as of event 0, where all events are there. Pages are pieces as they were written down.
async fn inventory(parts: &Arc<Parts>, call: &Call) -> Result<Response<Body>, Failure> {
    let (limit, after) = page(call)?;
    let latest = call.api.inventory().get();
    let from = match &after {
        None => latest.map(|latest| latest.first),
        Some(text) => {
            let words = text.split_once('/').and_then(|(as_of, at)| Some((as_of.parse().ok()?, at.parse().ok()?)));
            let (as_of, at): (u64, u64) =
                words.ok_or_else(|| Failure::invalid("after is no \"next\" of a page of an inventory"))?;
            if latest.is_none_or(|latest| latest.as_of != as_of) {
                return Err(Failure::conflict(
                    "inventory_replaced",
                    "another inventory was made: read it from its first page",
                ));
            }
            Some(at)
        }
    };
    let journals = parts.journals.clone();
    let work = move || {
        let mut rows = Rows::new(limit);
        let as_of = latest.map_or(0, |latest| latest.as_of);
        let more = format!("\"as_of_event_id\":{as_of},");
        let (Some(mut at), Some(latest)) = (from, latest) else { return Ok(rows.page(None, &more)) };
        while at < latest.last {
            if rows.is_full() {
                return Ok(rows.page(Some(&format!("{as_of}/{at}")), &more));
            }
            let page = journals.forward(Journal::VIEWS, at, PageLimit { entries: 1, bytes: 0 });
            let page = page.map_err(|error| Failure::unavailable(error.to_string()))?;
            let Some(entry) = page.entries.first().filter(|entry| entry.sequence < latest.last) else { break };
            if let Some(views) = views_of(&entry.value) {
                rows.next().push_str(views);
            }
            at = entry.sequence.saturating_add(1);
        }
        Ok(rows.page(None, &more))
    };
    at_length(call, work).await
}
