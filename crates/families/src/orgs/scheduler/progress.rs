//! What is told of groups and rollouts: where each has got to, and why it does not go on.

use std::collections::{BTreeMap, BTreeSet};

use kinds::fields::{given, items, text};
use kinds::time;
use serde_json::{Value, json};

use super::super::commands::has_passed;
use super::super::names::env_name;
use super::super::usage::counts_as_open;
use super::board::{Board, Holding};
use super::plan::{Action, FAILURES_MAX, Memory, Places, Wants};
use super::state::{Group, Instance, Seen};

/// How long a rollout may take.
const ROLLOUT_MS: i64 = 10 * 60 * 1000;

/// Rollouts that find no room for their surge any more drain first from now on, and say why. For want of memory on the nodes only
/// a single replica does: of several the others go on meanwhile.
pub(super) fn downgrades(board: &Board, groups: &[&Group], wants: &[Wants]) -> Vec<Action> {
    let mut actions = Vec::new();
    for (group, wants) in groups.iter().zip(wants).filter(|(_, wants)| wants.surges) {
        let Some(reason) = &wants.reason else { continue };
        let deploy = board.holding(&group.org).and_then(|holding| holding.deploys.get(&group.deploy));
        let is_open = deploy.is_some_and(is_open);
        let lacks_memory = wants.only_surges && group.desired == 1 && reason == "no_capacity_memory";
        if is_open && (wants.lacks_quota() || lacks_memory) {
            let what = format!("{}: expect up to 1 of {} replicas unavailable", group.process_type, group.desired);
            actions.push(Action::Deploy {
                org: group.org.clone(),
                deploy: group.deploy.clone(),
                state: "rolling",
                message: Some(format!("rollout_mode=drain_first reason={reason}; {what}")),
                drains_first: true,
            });
        }
    }
    actions
}

fn is_open(deploy: &Seen) -> bool {
    matches!(deploy.spec["state"].as_str(), Some("queued" | "rolling"))
}

/// Where rollouts have got to.
pub(super) fn deploys(
    holdings: &[(&String, &Holding)],
    groups: &[&Group],
    wants: &[Wants],
    places: &Places,
    now_ms: i64,
) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut by_deploy: BTreeMap<(&str, &str), Vec<(&Group, &Wants)>> = BTreeMap::new();
    for (group, wants) in groups.iter().zip(wants).filter(|(group, _)| !group.deploy.is_empty()) {
        by_deploy.entry((&group.org, &group.deploy)).or_default().push((group, wants));
    }
    let all = holdings.iter().flat_map(|(_, holding)| holding.deploys.values().map(move |deploy| (*holding, deploy)));
    for (holding, deploy) in all.filter(|(_, deploy)| is_open(deploy)) {
        let state = deploy.spec["state"].as_str().unwrap_or_default();
        let own = by_deploy.get(&(deploy.org.as_str(), deploy.name.as_str())).map_or(&[][..], Vec::as_slice);
        let set = |state: &'static str, message: Option<String>| Action::Deploy {
            org: deploy.org.clone(),
            deploy: deploy.name.clone(),
            state,
            message,
            drains_first: false,
        };
        let is_done = |group: &Group| {
            let live: Vec<&Instance> = group.instances.iter().filter(|one| one.desired_state != "stopped").collect();
            let good = live.iter().filter(|one| one.hash == group.hash && one.reported == "ready").count();
            let is_there = |one: &&Instance| one.hash == group.hash && !places.is_left(one);
            live.iter().all(is_there) && i64::try_from(good).unwrap_or(0) >= group.desired
        };
        // Each group has its own tries.
        let failed = |group: &Group| {
            group.instances.iter().filter(|one| one.has_failed(now_ms) && one.deploy == deploy.name).count()
        };
        let failures = own.iter().map(|(group, _)| failed(group)).max().unwrap_or(0);
        // Of its environment only what came before it is known yet.
        let env = env_name(text(&deploy.spec, &["app"]), text(&deploy.spec, &["env"]));
        let known = holding.envs.get(&env);
        let version = |spec: &Value, field: &str| spec[field].as_i64().unwrap_or(0);
        if known.is_none_or(|env| version(&env.spec, "version") < version(&deploy.spec, "env_version")) {
            continue;
        }
        let wanted = deploy.spec["processes"].as_object().into_iter().flatten();
        let wanted = wanted.filter(|(_, process)| process["replicas"].as_i64().unwrap_or(0) > 0).count();
        let begun = deploy.spec["started_at_ms"].as_i64().unwrap_or(now_ms);
        if own.len() < wanted {
            actions.push(set("failed", Some("another rollout came before it was done".to_owned())));
        } else if own.iter().all(|(group, _)| is_done(group)) {
            actions.push(set("succeeded", None));
        } else if failures > FAILURES_MAX {
            actions.push(set("failed", Some(format!("{failures} instances failed"))));
        } else if now_ms.saturating_sub(begun) > ROLLOUT_MS {
            let why = own.iter().find_map(|(_, wants)| wants.reason.clone()).unwrap_or_default();
            actions.push(set("failed", Some(format!("not done after 10 minutes {why}").trim_end().to_owned())));
        } else if state == "queued" {
            actions.push(set("rolling", None));
        }
    }
    actions
}

/// Sessions that are over without anybody having said so: nobody connected or renewed in time, their instance is to stop, or an hour
/// has passed since they ended.
pub(super) fn sessions(org: &str, holding: &Holding, now_ms: i64) -> Vec<Action> {
    let stopped: BTreeSet<&str> =
        holding.instances().filter(|one| one.desired_state == "stopped").map(|one| one.id.as_str()).collect();
    let is_over = |session: &&Seen| match counts_as_open(text(&session.spec, &["state"])) {
        true => {
            let expires_ms = given(&session.spec, &["expires_at_ms"]).and_then(Value::as_i64);
            expires_ms.is_some_and(|at| now_ms >= at) || stopped.contains(text(&session.spec, &["instance"]))
        }
        false => has_passed(&session.spec, now_ms),
    };
    let end = |session: &Seen| Action::EndSession {
        org: org.to_owned(),
        session: session.name.clone(),
        version: given(&session.spec, &["version"]).and_then(Value::as_i64).unwrap_or(0),
    };
    if holding.sessions.is_empty() { Vec::new() } else { holding.sessions.values().filter(is_over).map(end).collect() }
}

/// `env_status_view`, where it says something else than before.
pub(super) fn statuses(board: &Board, groups: &[&Group], wants: &[Wants], memory: &Memory, now_ms: i64) -> Vec<Action> {
    let mut by_env: BTreeMap<(String, String), Vec<Value>> = BTreeMap::new();
    let offline: BTreeSet<&str> =
        board.states().filter(|(_, state)| *state == "offline").map(|(name, _)| name).collect();
    for (group, wants) in groups.iter().zip(wants) {
        // Nothing but that node can run it, whatever was heard of its instances before.
        let is_cut_off = group.homes.iter().any(|home| offline.contains(home.as_str()));
        let degraded = is_cut_off.then_some("volume_home_node_offline");
        let live = group.instances.iter().filter(|one| one.desired_state == "running" && one.hash == group.hash);
        let (matching, ready) =
            live.fold((0_i64, 0_i64), |(all, ready), one| (all + 1, ready + i64::from(one.reported == "ready")));
        let status = match () {
            () if ready >= group.desired && !is_cut_off => "healthy",
            () if ready > 0 => "degraded",
            () => "failing",
        };
        let dimension = wants.reason.as_deref().and_then(|reason| reason.strip_prefix("org_quota_exceeded:"));
        let env = env_name(&group.app, &group.env);
        let shown = board.holding(&group.org).and_then(|holding| holding.envs.get(&env));
        let shown = shown.and_then(|env| {
            items(&env.status, &["groups"]).iter().find(|one| text(one, &["process_type"]) == group.process_type)
        });
        // For how long it has waited for this; what it is told with may have changed meanwhile.
        let same = |one: &&Value| one["unschedulable_reason"].as_str() == wants.reason.as_deref();
        let since = shown.filter(same).map_or(Value::Null, |one| one["since"].clone());
        let since = if wants.reason.is_some() && since.is_null() { json!(time::text(now_ms)) } else { since };
        let blocked = memory.blocked.get(&group.key()).filter(|one| dimension.is_some() && one.retry_ms > now_ms);
        by_env.entry((group.org.clone(), env)).or_default().push(json!({
            "process_type": group.process_type, "desired": group.desired, "matching": matching, "ready": ready,
            "status": status, "degraded_reason": degraded, "unschedulable_reason": wants.reason, "unschedulable_dimension": dimension,
            "details": wants.details, "since": since, "attempts": blocked.map_or(0, |blocked| blocked.attempts),
            "next_retry_at": blocked.map(|blocked| time::text(blocked.retry_ms)), "unmet_replicas": wants.unmet, "rollout_mode": group.mode, "last_deploy_id": group.deploy,
        }));
    }
    let mut actions = Vec::new();
    for ((org, env), groups) in by_env {
        let groups = Value::Array(groups);
        let shown = board.holding(&org).and_then(|holding| holding.envs.get(&env));
        if shown.is_some_and(|one| one.status["groups"] != groups) {
            actions.push(Action::Status { org, env, groups });
        }
    }
    actions
}

/// Those for whom time does something: what drains or failed, rollouts that go on, and groups that lack something.
pub(super) fn watched(holdings: &[(&String, &Holding)], groups: &[&Group], wants: &[Wants]) -> BTreeSet<String> {
    let lacking = groups.iter().zip(wants).filter(|(_, wants)| wants.unmet > 0 || wants.reason.is_some());
    let mut watched: BTreeSet<String> = lacking.map(|(group, _)| group.org.clone()).collect();
    for (org, holding) in holdings {
        let is_settled =
            |one: &Instance| one.desired_state == "running" && one.reported == "ready" && one.failed_at_ms.is_none();
        let is_session_open = |session: &Seen| counts_as_open(text(&session.spec, &["state"]));
        if holding.sessions.values().any(is_session_open)
            || holding.deploys.values().any(is_open)
            || !holding.instances().all(is_settled)
        {
            watched.insert((*org).clone());
        }
    }
    watched
}
