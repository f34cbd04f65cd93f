//! Carrying commands out: all that one writes, with its events and its key, is one command of the sequencer.

use std::sync::Arc;

use axum::body::Body;
use families::orgs::commands::{Around, Asking, Done, Given, Op, Outcome, Problem, Step, StepKind, quota_details, run};
use families::orgs::guard::moment_passed;
use families::orgs::limits::Source;
use families::orgs::names::{
    ENVS, EXEC_SESSIONS, GROUP, IDEMPOTENCY_KEYS, INSTANCES, NODES, ORGS, RESTORE_JOBS, SNAPSHOTS, VOLUMES, env_name,
};
use families::orgs::words::{Violation, violations};
use families::orgs::{Dimension, limits_of, numbers, status, usage};
use families::{Balances, Denial, Origin, Parsed, Plural, World};
use http::{HeaderValue, Response, StatusCode};
use kinds::fields::text;
use rules::policy_name;
use serde_json::{Value, json};
use store::Journal;
use uuid::Uuid;

use super::budget;
use super::denials::Tried;
use super::key::Key;
use super::problem::Failure;
use super::{Call, document, text_of, written};
use crate::api::{CacheWorld, Parts};
use crate::authz::Attributes;
use crate::core::{
    Answer, Command, Draft, Expect, Foreseen, Found, ObjectKey, Refused, Wanted, WriteAll, WriteKind, Writes,
};
use crate::identity::Identity;

/// How often a command is run again because something changed meanwhile. Every lost round is another command that got through.
const ROUNDS_MAX: usize = 64;
/// How often what expressions of quotas give is found out for one command because policies changed meanwhile.
const ASKED_MAX: usize = 3;

/// Who the service writes as, on behalf of whoever its events name.
pub fn origin(number: Uuid) -> Origin {
    Origin { identity: Arc::new(Identity::internal("orgs")), request: number.as_u128() }
}

fn status_of(done: Done) -> StatusCode {
    match done {
        Done::Created => StatusCode::CREATED,
        Done::Changed | Done::AsItWas => StatusCode::OK,
        Done::Deleted => StatusCode::NO_CONTENT,
    }
}

fn answered(status: StatusCode, text: Vec<u8>) -> Response<Body> {
    if status == StatusCode::NO_CONTENT {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        return response;
    }
    written(status, text)
}

/// The version that a request wants to change: `If-Match: "3"`.
fn expected_version(call: &Call) -> Result<Option<i64>, Failure> {
    let given = call.headers.get(http::header::IF_MATCH).map(|value| value.to_str().unwrap_or("?").to_owned());
    let Some(given) = given.or_else(|| call.query("expected_version")) else { return Ok(None) };
    let number = given.trim().trim_matches('"').parse::<i64>().ok().filter(|number| *number >= 0);
    number.map(Some).ok_or_else(|| Failure::invalid("If-Match is no version: write \"3\""))
}

pub async fn command(parts: &Arc<Parts>, call: &Call, op: Op) -> Result<Response<Body>, Failure> {
    let what = format!("{} {:?}", call.found.endpoint.method, (call.found.endpoint.path, &call.found.path));
    let key = Key::of(call, &what)?;
    // A key lives in its organization, that of a command that makes one in the one it makes.
    let org = named(call, op);
    if key.is_some() && call.found.path.contains_key("node") {
        return Err(Failure::invalid("what is said of nodes can be said twice: it has no Idempotency-Key"));
    }
    // What would happen is asked of the state as it is, whatever was done under the key.
    let key = key.filter(|_| families::orgs::tiers::is_name(org) && !call.is_dry_run());
    if let Err(refused) = may_report(parts, call, op) {
        audit(parts, call, "forbidden", "not_its_node", &Value::Null).await;
        return Err(refused);
    }
    let Some(key) = key else { return rounds(parts, call, op, None).await };
    if let Some(replayed) = replayed(call, &key, org)? {
        return Ok(replayed);
    }
    match rounds(parts, call, op, Some(&key)).await {
        Ok(response) => Ok(response),
        // The same command under the same key may have got through meanwhile: then that is the answer, and not what it left of the
        // state for this one.
        Err(failure) => replayed(call, &key, org)?.ok_or(failure),
    }
}

/// Of what is on a node only whoever speaks for that node speaks: its instances, the snapshots of volumes that are there, and what is
/// restored from them. Of a volume that is nowhere yet speaks who may for all nodes.
fn may_report(parts: &Parts, call: &Call, op: Op) -> Result<(), Failure> {
    let path = |name: &str| call.found.path.get(name).map_or("", String::as_str);
    let stored = |plural: Plural, name: &str| {
        let stored = parts.cache.get(&ObjectKey::new(plural.resource(), call.org(), name));
        stored.map(|stored| stored.value()["spec"].take())
    };
    let node_of = |volume: &str| stored(VOLUMES, volume).map(|spec| text(&spec, &["home_node"]).to_owned());
    let node = match op {
        Op::ReportInstance => stored(INSTANCES, path("instance")).map(|spec| text(&spec, &["node"]).to_owned()),
        Op::SetSnapshotStatus => stored(SNAPSHOTS, path("snapshot")).and_then(|spec| node_of(text(&spec, &["volume"]))),
        Op::SetRestoreStatus => {
            stored(RESTORE_JOBS, path("job")).and_then(|spec| node_of(text(&spec, &["target_volume"])))
        }
        _ => return Ok(()),
    };
    // What is not there is not found.
    let Some(node) = node else { return Ok(()) };
    let asked = Attributes { subresource: "status", ..Attributes::object("update", GROUP, NODES.1, "", &node) };
    if parts.rbac.authorize(&call.identity, &asked).is_allowed() {
        return Ok(());
    }
    Err(Failure::forbidden(format!("it is on node {node:?}, for which you may not speak: update nodes/status")))
}

/// What was answered to the command with this key before.
fn replayed(call: &Call, key: &Key, org: &str) -> Result<Option<Response<Body>>, Failure> {
    let known = key.known(&call.api.parts().cache, org, call.api.moment_ms())?;
    let Some((status, body)) = known else { return Ok(None) };
    let mut response = answered(status, text_of(&body));
    response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    Ok(Some(response))
}

/// Runs a command until nobody was faster.
async fn rounds(parts: &Arc<Parts>, call: &Call, op: Op, key: Option<&Key>) -> Result<Response<Body>, Failure> {
    let (expected, org) = (expected_version(call)?, named(call, op));
    let mut surges_max = usize::MAX;
    let mut no_surge_for: Vec<Violation> = Vec::new();
    let mut lost = 0;
    while lost < ROUNDS_MAX {
        let now_ms = call.api.moment_ms();
        if let Some(key) = key
            && let Some(replayed) = replayed(call, key, org)?
        {
            return Ok(replayed);
        }
        let asked = Asked { expected, key, now_ms, surges_max, no_surge_for: &no_surge_for };
        let mut outcome = match decide(parts, call, op, &asked) {
            Ok(outcome) => outcome,
            Err(problem) if !problem.violations.is_empty() => {
                return Err(refused_for_quota(parts, call, problem.violations).await);
            }
            Err(problem) => return Err(problem.into()),
        };
        let (status, text) = (status_of(outcome.done), text_of(&outcome.body));
        // That nothing was to be done is remembered, too: sent again later, it is not to undo what others did.
        if let Some(key) = key.filter(|_| !outcome.goes_on) {
            let uid = Uuid::new_v4().hyphenated().to_string();
            outcome.steps.push(key.step(org, uid, now_ms, status, std::mem::take(&mut outcome.body)));
        }
        if outcome.steps.is_empty() && outcome.done == Done::AsItWas {
            return Ok(answered(status, text));
        }
        match submit(parts, call, &mut outcome, now_ms).await? {
            Ok(()) if call.is_dry_run() => {
                let events: Vec<&str> = outcome.events.iter().map(|told| told.event_type.as_str()).collect();
                return Ok(document(
                    StatusCode::OK,
                    &json!({"dry_run": true, "would": outcome.body, "events": events}),
                ));
            }
            Ok(()) => {
                if op == Op::AllocateInstance {
                    placed(parts, call, now_ms);
                }
                outcome.events.iter().for_each(|told| parts.metrics.orgs.told(told));
                if outcome.goes_on {
                    continue;
                }
                return Ok(answered(status, text));
            }
            // Somebody was faster: the command is made again from what is there now.
            Err(
                Refused::Conflict { .. } | Refused::UidMismatch { .. } | Refused::NotFound | Refused::AlreadyExists,
            ) => lost += 1,
            Err(Refused::Denied(denials)) => {
                let violations = denied(call, org, &denials)?;
                if outcome.surges == 0 || outcome.surges_or_nothing || !of_compute(&violations) {
                    return Err(refused_for_quota(parts, call, violations).await);
                }
                (surges_max, no_surge_for) = (outcome.surges - 1, violations);
            }
            Err(Refused::Said { refusal, .. }) if moment_passed(&refusal).is_some() => {
                // It was decided by a clock that was set back since: that goes on.
                moment_passed(&refusal).into_iter().for_each(|at_ms| call.api.go_on_from(at_ms));
                lost += 1;
            }
            Err(other) => return Err(failure(other)),
        }
    }
    Err(Failure::unavailable("too many others change the same at the moment: try again"))
}

/// How long an instance was waited for, since what is wanted of its environment changed. What replaces another was not.
fn placed(parts: &Parts, call: &Call, now_ms: i64) {
    let of = |field: &str| text(&call.body, &[field]);
    let key = ObjectKey::new(ENVS.resource(), call.org(), &env_name(of("app"), of("env")));
    let Some(env) = parts.cache.get(&key).filter(|_| of("replaces").is_empty()).map(|env| env.value()) else { return };
    let groups = env.pointer("/status/groups").and_then(Value::as_array).into_iter().flatten();
    let mut own = groups.filter(|group| group["process_type"] == of("process_type"));
    let waits = own.any(|group| text(group, &["unschedulable_reason"]).starts_with("org_quota_exceeded"));
    let since = env["spec"]["changed_seq"].as_i64().unwrap_or(now_ms);
    let took = u64::try_from(now_ms.saturating_sub(since)).unwrap_or(0);
    parts.metrics.orgs.placed(std::time::Duration::from_millis(took), !waits);
}

struct Asked<'a> {
    expected: Option<i64>,
    key: Option<&'a Key>,
    now_ms: i64,
    surges_max: usize,
    no_surge_for: &'a [Violation],
}

/// The organization that a command is about. Whoever makes one names it in the document.
fn named(call: &Call, op: Op) -> &str {
    if op == Op::CreateOrg { text(&call.body, &["id"]) } else { call.org() }
}

/// The next entries of the journals of events and of refusals.
fn ends(parts: &Parts) -> [u64; 2] {
    [Journal::EVENTS, Journal::AUDIT].map(|journal| parts.journals.span(journal).map_or(0, |span| span.end))
}

fn decide(parts: &Parts, call: &Call, op: Op, asked: &Asked<'_>) -> Result<Outcome, Problem> {
    let actor = call.actor();
    let request_id = call.number.hyphenated().to_string();
    let given = Given { path: call.found.path.clone(), body: &call.body };
    let world = CacheWorld(&parts.cache);
    let mut ids = || Uuid::new_v4().as_u128();
    let around = Around {
        world: &world,
        balances: &*parts.cache,
        now_ms: asked.now_ms,
        ids: &mut ids,
        surges_max: asked.surges_max,
        no_surge_for: asked.no_surge_for.to_vec(),
        journals_from: if op == Op::CreateOrg { ends(parts) } else { [0; 2] },
    };
    let mut asking = Asking {
        org: named(call, op),
        actor: &actor,
        request_id: &request_id,
        idempotency_key: asked.key.map(|key| key.text.as_str()),
        expected_version: asked.expected,
        around,
    };
    run(op, &given, &mut asking)
}

fn write_of(step: Step) -> Result<(ObjectKey, WriteKind), Failure> {
    let (key, object) = (ObjectKey::from(step.place), step.object);
    let draft = || Draft::new(object).map_err(|error| Failure::internal(error.to_string()));
    let expect = |revision| Expect { revision, uid: None };
    let kind = match step.kind {
        StepKind::Create => WriteKind::Create(draft()?),
        StepKind::Update(revision) => {
            WriteKind::Update { draft: draft()?, expect: expect(Some(revision)), status: false }
        }
        StepKind::UpdateAny => WriteKind::Update { draft: draft()?, expect: expect(None), status: false },
        StepKind::Delete(revision) => WriteKind::Delete { expect: expect(Some(revision)), last: None },
        StepKind::DeleteAny => WriteKind::Delete { expect: expect(None), last: None },
    };
    Ok((key, kind))
}

/// Hands what a command writes over; its events stay, to be counted.
async fn submit(
    parts: &Arc<Parts>,
    call: &Call,
    outcome: &mut Outcome,
    now_ms: i64,
) -> Result<Result<(), Refused>, Failure> {
    let bytes: usize = outcome.events.iter().map(|told| told.line.len()).sum();
    if bytes > 0 {
        budget::check(parts, call)?;
    }
    let writes = std::mem::take(&mut outcome.steps).into_iter().map(write_of).collect::<Result<Vec<_>, _>>()?;
    let entries = outcome.events.iter().map(|told| (Journal::EVENTS, told.line.clone())).collect();
    let writes = Writes { writes, dry_run: call.is_dry_run(), now_ms, origin: origin(call.number) };
    let written = write_all(parts, WriteAll { writes, entries }).await?;
    if written.is_ok() {
        budget::told(parts, call, bytes);
    }
    Ok(written)
}

/// Waits until all that was decided before is durable and shown; says whether that is so.
pub async fn barrier(parts: &Arc<Parts>) -> bool {
    write_entries(parts, Vec::new(), origin(Uuid::nil())).await
}

async fn write_all(parts: &Arc<Parts>, all: WriteAll) -> Result<Result<(), Refused>, Failure> {
    let stopping = || Failure::unavailable("the server is stopping");
    let (mut all, mut known, mut asked) = (Box::new(all), Vec::<Found>::new(), 0);
    loop {
        // What was asked for before will be asked for again.
        let foreseen = Foreseen { found: known.clone(), is_last: asked == ASKED_MAX };
        let command = Command::WriteAllForeseen(all, foreseen);
        match parts.writes.submit(command).await.map_err(|_| stopping())? {
            Answer::WrittenAll(written) => return Ok(written.map(drop).map_err(|(_, refused)| refused)),
            Answer::PostponedAll(again, wanted) => {
                (all, asked) = (again, asked + 1);
                let evaluate = move || wanted.into_iter().map(Wanted::evaluate).collect::<Vec<Found>>();
                known.extend(tokio::task::spawn_blocking(evaluate).await.map_err(|_| stopping())?);
            }
            other => return Err(Failure::internal(format!("a command was answered with {other:?}"))),
        }
    }
}

fn of_compute(violations: &[Violation]) -> bool {
    violations.iter().all(|one| Dimension::COMPUTE.contains(&one.dimension))
}

/// What said no. What no tier limits has a bound, too.
fn denied(call: &Call, org: &str, denials: &[Denial]) -> Result<Vec<Violation>, Failure> {
    let violations = violations(denials);
    if !violations.is_empty() {
        return Ok(violations);
    }
    let accounts = denials.iter().flat_map(|denial| &denial.lines).map(|line| &*line.account);
    match accounts.into_iter().next() {
        Some(usage::KEYS) => Err(Failure::limited(
            "rate_limited",
            format!("{} idempotency keys of the last day are remembered, which is the most", usage::KEYS_MAX),
        )
        .after_seconds(forgotten_seconds(call, org))),
        Some(usage::RECORD_BYTES) => Err(Failure::conflict(
            "too_many_records",
            format!(
                "releases, deploys, answers under keys and the like take {} bytes, which is the most: delete some releases",
                usage::RECORD_BYTES_MAX
            ),
        )),
        Some(usage::RECORDS) => Err(Failure::conflict(
            "too_many_records",
            format!(
                "there are {} releases, deploys, snapshots and restores, which is the most: delete some",
                usage::RECORDS_MAX
            ),
        )),
        _ => {
            // A quota of another family, in its words.
            let words = |denial: &Denial| {
                call.api.parts().families.of_policy(&denial.resource).map(|family| family.words(denial).text)
            };
            let said = denials.first().and_then(|denial| words(denial).or_else(|| denial.message.clone()));
            Err(Failure::conflict("quota_unknown", said.unwrap_or_else(|| "a quota refused it".into())))
        }
    }
}

/// The refusal with its numbers; it goes into the audit trail before it is told.
async fn refused_for_quota(parts: &Arc<Parts>, call: &Call, violations: Vec<Violation>) -> Failure {
    let org = call.org();
    let policy = policy_name(&ORGS.resource(), org, org);
    let world = CacheWorld(&parts.cache);
    let stored = World::get(&world, &ORGS.resource(), org, org).unwrap_or_default();
    let rows = status::rows(&stored, &parts.cache.of(&policy));
    let tier = text(&stored, &["spec", "tier"]);
    let limits = limits_of(&stored, &world, call.api.moment_ms()).ok();
    let source = |dimension: Dimension| match limits.as_ref().map(|limits| limits.sources[dimension.at()]) {
        Some(Source::Override) => json!("override"),
        _ => json!(format!("tier:{tier}")),
    };
    let details =
        quota_details(&violations, |violation| match rows.iter().find(|row| row.dimension == violation.dimension) {
            // The parts are of the moment after the decision: what is used was decided by, and they add up to it.
            Some(row) if !violation.counted_only => {
                let (counted, reserved) = row.parts_of(violation.current);
                (numbers::shown(counted), numbers::shown(reserved), source(violation.dimension))
            }
            _ => (numbers::shown(violation.current), json!(0), source(violation.dimension)),
        });
    let first = violations.first().map(|one| one.dimension);
    if let Some(first) = first {
        parts.metrics.orgs.exceeded(call.found.number, first);
    }
    let reason = format!("quota_exceeded:{}", first.map_or("", Dimension::name));
    audit(parts, call, "quota_exceeded", &reason, &details).await;
    let detail: Vec<String> = violations.iter().map(Violation::text).collect();
    let failure = Failure::conflict("quota_exceeded", detail.join("; ")).with_details(details);
    match first {
        Some(dimension) if dimension.is_window() => failure.after_seconds(window_seconds(call)),
        _ => failure,
    }
}

/// Writes a refusal into the audit trail, before it is told, unless there are too many of its organization; what was only asked for is
/// none.
async fn audit(parts: &Arc<Parts>, call: &Call, class: &str, reason: &str, details: &Value) {
    if call.is_dry_run() {
        return;
    }
    let Call { found, headers, source, number, .. } = call;
    let tried = Tried { found, org: call.org(), actor: call.actor(), headers, source: *source, number: *number };
    let now_ms = call.api.moment_ms();
    let Some(besides) = call.api.trail().take(call.org(), budget::uptime_ms()) else { return };
    let mut entry = tried.entry(now_ms, class, reason, details);
    if besides > 0 {
        entry["details"]["refused_besides"] = json!(besides);
    }
    let entries = vec![(Journal::AUDIT, entry.to_string().into_bytes())];
    // A trail that cannot be written is no reason to grant; the refusal stands either way.
    if !write_entries(parts, entries, origin(call.number)).await {
        tracing::warn!(org = call.org(), "a refusal is not in the audit trail: the store does not take it");
    }
}

/// Appends entries and writes nothing else; says whether they are durable.
pub async fn write_entries(parts: &Arc<Parts>, entries: Vec<(Journal, Vec<u8>)>, origin: Origin) -> bool {
    let writes = Writes { writes: Vec::new(), dry_run: false, now_ms: (parts.clock)(), origin };
    matches!(write_all(parts, WriteAll { writes, entries }).await, Ok(Ok(())))
}

/// When the oldest grant leaves the window.
fn window_seconds(call: &Call) -> i64 {
    let listing = call.api.parts().cache.list(&EXEC_SESSIONS.resource());
    let granted = listing.range(call.org(), None).filter_map(|one| one.tree()["spec"]["granted_at_ms"].as_i64());
    seconds_until(granted.map(|at| at.saturating_add(usage::HOUR_MS)), call.api.moment_ms())
}

/// When the oldest key is forgotten. There are many, so that nothing else of them is kept in mind.
fn forgotten_seconds(call: &Call, org: &str) -> i64 {
    let expires = |key: &Value| -> Parsed { Arc::new(key["spec"]["expires_at_ms"].as_i64()) };
    let keys = CacheWorld(&call.api.parts().cache).parsed(&IDEMPOTENCY_KEYS.resource(), org, &expires);
    let moments = keys.iter().filter_map(|one| one.downcast_ref::<Option<i64>>().copied().flatten());
    seconds_until(moments, call.api.moment_ms())
}

/// The first of these moments that is still to come.
fn seconds_until(moments: impl Iterator<Item = i64>, now_ms: i64) -> i64 {
    let left = moments.map(|at| at.saturating_sub(now_ms)).filter(|ms| *ms > 0).min();
    left.map_or(1, |ms| ms / 1000 + 1)
}

fn failure(refused: Refused) -> Failure {
    match refused {
        Refused::Said { refusal, .. } => Problem::of(refusal).into(),
        Refused::NamespaceNotFound => Failure::not_found("there is no such organization"),
        Refused::NamespaceTerminating => Failure::conflict("org_terminating", "the organization is being removed"),
        Refused::DefinitionTerminating => {
            Failure::conflict("kind_terminating", "the definition of this kind is being removed")
        }
        Refused::NoSpace => Failure::unavailable("the disk is almost full: only what makes room is accepted"),
        Refused::Unmeasurable { message, .. } => Failure::conflict("limits_unknown", message),
        Refused::Invalid(errors) => Failure::invalid(kinds::field_error::join(&errors)),
        other => {
            tracing::error!(?other, "a command of an organization failed: a bug");
            Failure::internal("a bug; the log names it")
        }
    }
}

/// A node is alive: its status says when, and no event does.
pub async fn heartbeat(parts: &Arc<Parts>, call: &Call) -> Result<Response<Body>, Failure> {
    let node = call.found.path.get("node").map_or("", String::as_str);
    let now_ms = call.api.moment_ms();
    let key = ObjectKey::new(NODES.resource(), "", node);
    for _ in 0..ROUNDS_MAX {
        let Some(stored) = parts.cache.get(&key) else {
            return Err(Failure::not_found(format!("there is no node {node:?}")));
        };
        let mut object = stored.value();
        object["status"] = json!({"heartbeat_at_ms": now_ms});
        let draft = Draft::new(object).map_err(|error| Failure::internal(error.to_string()))?;
        let expect = Expect { revision: Some(stored.revision), uid: Some(stored.uid) };
        let writes = vec![(key.clone(), WriteKind::Update { draft, expect, status: true })];
        let writes = Writes { writes, dry_run: false, now_ms, origin: origin(call.number) };
        match write_all(parts, WriteAll { writes, entries: Vec::new() }).await? {
            Ok(()) => return Ok(answered(StatusCode::NO_CONTENT, Vec::new())),
            Err(Refused::Conflict { .. } | Refused::UidMismatch { .. } | Refused::NotFound) => {}
            Err(other) => return Err(failure(other)),
        }
    }
    Err(Failure::unavailable("too many others change the same at the moment: try again"))
}
