//! What is to be done now: pure, so that a state and a moment always give the same.
//!
//! Gates are asked in one order, and the first that says no is told: what is configured, quota, nodes, addresses. An organization
//! over its share never hears that the cluster is full. Organizations take turns, so that a thousand pending of one do not stand
//! before one of another; nothing that runs is taken from anybody.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

use super::super::dimensions::Dimension;
use super::super::names::env_name;
use super::place::{Need, choose};
use super::state::{Group, Instance, Objects, Room, groups, nodes, rooms};

/// Allocations of one pass; the next follows at once.
pub const ALLOCATIONS_MAX: usize = 64;
/// How long a refused allocation is left alone, unless something changes.
pub const BACKOFF_MS: i64 = 30 * 1000;
/// How long a rollout may take.
const ROLLOUT_MS: i64 = 10 * 60 * 1000;
/// Instances of one rollout that may fail before it has.
const FAILURES_MAX: usize = 3;

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Allocate { group: String, org: String, body: Value },
    SetState { org: String, instance: String, state: &'static str, reason: String },
    Remove { org: String, instance: String },
    Deploy { org: String, deploy: String, state: &'static str, message: Option<String> },
    Status { org: String, env: String, groups: Value },
}

/// A group whose allocation was refused for quota although it seemed to fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    pub dimension: Dimension,
    pub retry_ms: i64,
    counted: i128,
    limit: Option<i128>,
    changed: i64,
}

/// What is remembered between passes.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub blocked: BTreeMap<String, Blocked>,
}

impl Memory {
    /// An allocation was refused.
    pub fn block(&mut self, group: &Group, room: &Room, dimension: Dimension, now_ms: i64) {
        let at = Dimension::COMPUTE.iter().position(|one| *one == dimension).unwrap_or(0);
        self.blocked.insert(
            group.key(),
            Blocked {
                dimension,
                retry_ms: now_ms.saturating_add(BACKOFF_MS),
                counted: room.counted[at],
                limit: room.limits[at],
                changed: group.changed,
            },
        );
    }

    /// Whether it is tried again: its time has come, usage fell, the limit rose, or something else is wanted.
    fn is_blocked(&self, group: &Group, room: &Room, now_ms: i64) -> Option<Dimension> {
        let blocked = self.blocked.get(&group.key())?;
        let at = Dimension::COMPUTE.iter().position(|one| *one == blocked.dimension)?;
        let rose = match (room.limits[at], blocked.limit) {
            (None, Some(_)) => true,
            (Some(now), Some(then)) => now > then,
            (_, None) => false,
        };
        let again = now_ms >= blocked.retry_ms
            || room.counted[at] < blocked.counted
            || rose
            || group.changed != blocked.changed;
        (!again).then_some(blocked.dimension)
    }
}

/// What of a group has to be done, before it is known whether there is room.
#[derive(Default)]
struct Wants {
    /// Each with the instance whose slot it takes, if it takes one.
    allocations: VecDeque<Option<String>>,
    actions: Vec<Action>,
    reason: Option<String>,
    unmet: usize,
}

/// What to do, in order.
pub fn plan(objects: &Objects, memory: &Memory, now_ms: i64) -> Vec<Action> {
    let mut nodes = nodes(objects, now_ms);
    let mut rooms = rooms(&objects.orgs);
    let groups = groups(objects);
    let alive: BTreeMap<String, bool> = nodes.iter().map(|node| (node.name.clone(), node.is_eligible)).collect();
    let gone = gone_nodes(objects, &alive);
    let mut wants: Vec<Wants> = groups.iter().map(|group| wants(group, &gone, now_ms)).collect();
    let mut actions: Vec<Action> = wants.iter_mut().flat_map(|one| std::mem::take(&mut one.actions)).collect();
    actions.extend(
        objects
            .instances
            .iter()
            .filter(|one| is_over(&one.spec, &gone))
            .map(|one| Action::Remove { org: one.org.clone(), instance: one.name.clone() }),
    );

    // One of each organization after the other; within one, who asked first.
    let mut turns: BTreeMap<&str, VecDeque<usize>> = BTreeMap::new();
    for (at, group) in groups.iter().enumerate().filter(|(at, _)| !wants[*at].allocations.is_empty()) {
        turns.entry(&group.org).or_default().push_back(at);
    }
    let mut placed = 0;
    while placed < ALLOCATIONS_MAX && !turns.is_empty() {
        for org in turns.keys().copied().collect::<Vec<_>>() {
            let Some(queue) = turns.get_mut(org) else { continue };
            let Some(at) = queue.front().copied() else {
                turns.remove(org);
                continue;
            };
            let (group, one) = (&groups[at], &mut wants[at]);
            let Some(replaces) = one.allocations.pop_front() else {
                queue.pop_front();
                continue;
            };
            let room = rooms.entry(group.org.clone()).or_default();
            match allocate(group, replaces, room, &mut nodes, memory, now_ms) {
                Ok(action) => {
                    actions.push(action);
                    placed += 1;
                }
                Err(reason) => {
                    one.unmet = one.allocations.len() + 1;
                    one.allocations.clear();
                    one.reason = Some(reason);
                }
            }
        }
    }
    for one in &mut wants {
        one.unmet += one.allocations.len();
    }
    actions.extend(deploys(objects, &groups, &wants, now_ms));
    actions.extend(statuses(objects, &groups, &wants));
    actions
}

/// The organizations for which something is to be allocated: of those it has to be known what they may have.
pub fn asking(objects: &Objects, now_ms: i64) -> BTreeSet<String> {
    let alive = nodes(objects, now_ms).into_iter().map(|node| (node.name, node.is_eligible)).collect();
    let gone = gone_nodes(objects, &alive);
    let groups = groups(objects);
    let asking = groups.iter().filter(|group| !wants(group, &gone, now_ms).allocations.is_empty());
    asking.map(|group| group.org.clone()).collect()
}

/// Nodes whose instances are lost.
fn gone_nodes(objects: &Objects, alive: &BTreeMap<String, bool>) -> Vec<String> {
    let lost = |state: &str, name: &str| matches!(state, "offline" | "disabled") || !alive.contains_key(name);
    let listed = objects.nodes.iter().filter(|node| lost(node.spec["state"].as_str().unwrap_or(""), &node.name));
    listed.map(|node| node.name.clone()).collect()
}

/// Whether nothing of an instance is left to wait for.
fn is_over(spec: &Value, gone: &[String]) -> bool {
    let of = |field: &str| spec[field].as_str().unwrap_or_default();
    let confirmed = spec["reported"]["status"] == "stopped" || gone.iter().any(|node| node == of("node"));
    of("desired_state") == "stopped" && confirmed
}

fn wants(group: &Group, gone: &[String], now_ms: i64) -> Wants {
    let mut out = Wants::default();
    let set = |one: &Instance, state: &'static str, reason: &str| Action::SetState {
        org: group.org.clone(),
        instance: one.id.clone(),
        state,
        reason: reason.to_owned(),
    };
    let mut running: Vec<&Instance> = Vec::new();
    let mut leaving = 0;
    for one in &group.instances {
        let lost = gone.contains(&one.node);
        let drained = matches!(one.reported.as_str(), "stopped" | "failed") || now_ms >= one.drain_until_ms || lost;
        match one.desired_state.as_str() {
            "running" if lost => out.allocations.push_back(Some(one.id.clone())),
            "running" => running.push(one),
            "draining" if one.drain_reason == "scale_down" && drained => {
                out.actions.push(set(one, "stopped", "scale_down"));
            }
            "draining" if one.drain_reason == "scale_down" => {}
            "draining" => {
                leaving += 1;
                // A volume is free when its instance has stopped, and not before.
                let slot = group.volumes.is_empty() || one.reported == "stopped" || lost;
                let still_wanted = i64::try_from(running.len()).unwrap_or(i64::MAX) < group.desired;
                match (drained, slot && still_wanted && group.mode != "surge") {
                    (true, true) => out.allocations.push_back(Some(one.id.clone())),
                    (true, false) if group.volumes.is_empty() || group.mode == "surge" => {
                        out.actions.push(set(one, "stopped", &one.drain_reason));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    let (fresh, stale): (Vec<&Instance>, Vec<&Instance>) = running.iter().partition(|one| one.hash == group.hash);
    let have = i64::try_from(running.len() + leaving + out.allocations.len()).unwrap_or(i64::MAX);
    let have = have - i64::try_from(leaving.min(out.allocations.len())).unwrap_or(0);
    let ready = fresh.iter().filter(|one| one.reported == "ready").count();
    let surge = i64::from(group.mode == "surge" && !stale.is_empty());
    let excess = i64::try_from(running.len()).unwrap_or(0) - (group.desired + surge);
    if excess > 0 {
        let victims = victims(&running, &group.hash);
        for one in victims.into_iter().take(usize::try_from(excess).unwrap_or(0)) {
            out.actions.push(set(one, "draining", "scale_down"));
        }
        return out;
    }
    if !stale.is_empty() {
        replace(group, &fresh, &stale, ready, leaving, &mut out, set);
    } else if let Some(failed) = fresh.iter().find(|one| one.reported == "failed") {
        let failures =
            group.instances.iter().filter(|one| one.reported == "failed" && one.deploy == failed.deploy).count();
        if failures <= FAILURES_MAX {
            out.allocations.push_back(Some(failed.id.clone()));
        }
    }
    let missing = group.desired + surge - have;
    for _ in 0..missing.max(0) {
        out.allocations.push_back(None);
    }
    out
}

/// One step of a rollout: a surge adds before it drains; otherwise one drains, and the next comes into its slot.
fn replace(
    group: &Group,
    fresh: &[&Instance],
    stale: &[&Instance],
    ready: usize,
    leaving: usize,
    out: &mut Wants,
    set: impl Fn(&Instance, &'static str, &str) -> Action,
) {
    if leaving > 0 || ready < fresh.len() {
        return;
    }
    let total = i64::try_from(fresh.len() + stale.len()).unwrap_or(i64::MAX);
    let may_drain = match group.mode.as_str() {
        "surge" => total > group.desired,
        _ => total >= group.desired,
    };
    if may_drain && let Some(one) = victims(stale, &group.hash).first() {
        out.actions.push(set(one, "draining", "rollout_replace"));
    }
}

/// Who goes first: of another spec, failed, not ready, oldest.
fn victims<'a>(running: &[&'a Instance], hash: &str) -> Vec<&'a Instance> {
    let mut victims = running.to_vec();
    victims.sort_by_key(|one| {
        (one.hash == hash, one.reported != "failed", one.reported == "ready", one.allocated_ms, one.id.clone())
    });
    victims
}

fn allocate(
    group: &Group,
    replaces: Option<String>,
    room: &mut Room,
    nodes: &mut [super::place::Node],
    memory: &Memory,
    now_ms: i64,
) -> Result<Action, String> {
    if !group.volumes.is_empty() && (group.desired > 1 || group.homes.len() > 1) {
        return Err("volume_constraints_invalid".into());
    }
    let slot = replaces.as_ref().and_then(|id| group.instances.iter().find(|one| one.id == *id));
    // A slot that is given on takes no more than it gives.
    let more = match slot {
        Some(one) => group.unit.max(one.footprint).minus(one.footprint).unwrap_or(group.unit),
        None => group.unit,
    };
    if let Some(dimension) = room.lacks(more).or_else(|| memory.is_blocked(group, room, now_ms)) {
        return Err(format!("org_quota_exceeded:{dimension}"));
    }
    let key = group.key();
    let home = group.homes.first().map(String::as_str);
    let need = Need { group: &key, memory_bytes: group.unit.memory_bytes, cpu: group.unit.cpu, home };
    let at = choose(nodes, &need).map_err(|why| why.reason().to_owned())?;
    nodes[at].take(&need);
    room.take(more);
    let address = format!("fd00:{:x}::{:x}", at + 1, nodes[at].addresses_taken);
    let mut body = json!({
        "app": group.app, "env": group.env, "process_type": group.process_type, "node": nodes[at].name,
        "overlay_ipv6": address, "volumes": group.volumes,
    });
    if let Some(id) = replaces {
        let lost = slot.is_some_and(|one| one.desired_state == "running" && one.reported != "failed");
        body["replaces"] = json!(id);
        body["replaces_reason"] = json!(if lost { "node_offline" } else { "rollout_replace" });
    }
    Ok(Action::Allocate { group: key, org: group.org.clone(), body })
}

/// Where rollouts have got to.
fn deploys(objects: &Objects, groups: &[Group], wants: &[Wants], now_ms: i64) -> Vec<Action> {
    let mut actions = Vec::new();
    for deploy in &objects.deploys {
        let state = deploy.spec["state"].as_str().unwrap_or_default();
        if !matches!(state, "queued" | "rolling") {
            continue;
        }
        let own: Vec<(&Group, &Wants)> = groups
            .iter()
            .zip(wants)
            .filter(|(group, _)| group.org == deploy.org && group.deploy == deploy.name)
            .collect();
        let set = |state: &'static str, message: Option<String>| Action::Deploy {
            org: deploy.org.clone(),
            deploy: deploy.name.clone(),
            state,
            message,
        };
        let is_done = |group: &Group| {
            let live: Vec<&Instance> = group.instances.iter().filter(|one| one.desired_state != "stopped").collect();
            let good = live.iter().filter(|one| one.hash == group.hash && one.reported == "ready").count();
            live.iter().all(|one| one.hash == group.hash) && i64::try_from(good).unwrap_or(0) >= group.desired
        };
        let failures = own
            .iter()
            .flat_map(|(group, _)| &group.instances)
            .filter(|one| one.reported == "failed" && one.deploy == deploy.name)
            .count();
        let begun = deploy.spec["started_at_ms"].as_i64().unwrap_or(now_ms);
        if own.iter().all(|(group, _)| is_done(group)) {
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

/// `env_status_view`, where it says something else than before.
fn statuses(objects: &Objects, groups: &[Group], wants: &[Wants]) -> Vec<Action> {
    let mut by_env: BTreeMap<(String, String), Vec<Value>> = BTreeMap::new();
    for (group, wants) in groups.iter().zip(wants) {
        let live = group.instances.iter().filter(|one| one.desired_state == "running" && one.hash == group.hash);
        let (matching, ready) =
            live.fold((0_i64, 0_i64), |(all, ready), one| (all + 1, ready + i64::from(one.reported == "ready")));
        let status = match () {
            () if ready >= group.desired => "healthy",
            () if ready > 0 => "degraded",
            () => "failing",
        };
        let dimension = wants.reason.as_deref().and_then(|reason| reason.strip_prefix("org_quota_exceeded:"));
        by_env.entry((group.org.clone(), env_name(&group.app, &group.env))).or_default().push(json!({
            "process_type": group.process_type, "desired": group.desired, "matching": matching, "ready": ready,
            "status": status, "unschedulable_reason": wants.reason, "unschedulable_dimension": dimension,
            "unmet_replicas": wants.unmet, "rollout_mode": group.mode, "last_deploy_id": group.deploy,
        }));
    }
    let mut actions = Vec::new();
    for ((org, env), groups) in by_env {
        let groups = Value::Array(groups);
        let shown = objects.envs.iter().find(|one| one.org == org && one.name == env);
        if shown.is_some_and(|one| one.status["groups"] != groups) {
            actions.push(Action::Status { org, env, groups });
        }
    }
    actions
}
