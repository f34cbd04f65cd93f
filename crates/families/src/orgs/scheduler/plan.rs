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
use super::state::{Group, Instance, Objects, Room, Seen, groups, instance, nodes, rooms};

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
    Allocate {
        group: String,
        org: String,
        body: Value,
    },
    SetState {
        org: String,
        instance: String,
        state: &'static str,
        reason: String,
    },
    Remove {
        org: String,
        instance: String,
    },
    /// Where a rollout has got to; `drains_first` if it no longer surges.
    Deploy {
        org: String,
        deploy: String,
        state: &'static str,
        message: Option<String>,
        drains_first: bool,
    },
    Status {
        org: String,
        env: String,
        groups: Value,
    },
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
    /// Whether all that is wanted is there, and one more is to come so that an old one can go.
    only_surges: bool,
}

/// What to do, in order.
pub fn plan(objects: &Objects, memory: &Memory, now_ms: i64) -> Vec<Action> {
    let mut nodes = nodes(objects, now_ms);
    let mut rooms = rooms(&objects.orgs);
    let groups = groups(objects);
    let places = Places::of(objects);
    let mut wants: Vec<Wants> = groups.iter().map(|group| wants(group, &places, now_ms)).collect();
    let mut actions: Vec<Action> = wants.iter_mut().flat_map(|one| std::mem::take(&mut one.actions)).collect();
    actions.extend(
        objects
            .instances
            .iter()
            .filter(|one| is_over(one, &places, now_ms))
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
    actions.extend(downgrades(objects, &groups, &wants));
    actions.extend(deploys(objects, &groups, &wants, now_ms));
    actions.extend(statuses(objects, &groups, &wants));
    actions
}

/// The organizations for which something is to be allocated: of those it has to be known what they may have.
pub fn asking(objects: &Objects, now_ms: i64) -> BTreeSet<String> {
    let places = Places::of(objects);
    let groups = groups(objects);
    let asking = groups.iter().filter(|group| !wants(group, &places, now_ms).allocations.is_empty());
    asking.map(|group| group.org.clone()).collect()
}

/// Nodes that instances are not left on.
struct Places {
    /// What they ran is lost.
    gone: Vec<String>,
    /// What they run goes elsewhere, one of a group after the other.
    draining: Vec<String>,
}

impl Places {
    fn of(objects: &Objects) -> Places {
        let known: BTreeSet<&str> = objects.nodes.iter().map(|node| node.name.as_str()).collect();
        let within = |states: &[&str]| -> Vec<String> {
            let within =
                objects.nodes.iter().filter(|node| states.contains(&node.spec["state"].as_str().unwrap_or("")));
            within.map(|node| node.name.clone()).collect()
        };
        let mut gone = within(&["offline", "disabled"]);
        let used = objects.instances.iter().filter_map(|one| one.spec["node"].as_str());
        gone.extend(used.filter(|node| !known.contains(node)).map(str::to_owned));
        gone.sort();
        gone.dedup();
        Places { gone, draining: within(&["draining"]) }
    }
}

/// Whether nothing of an instance is left to wait for.
fn is_over(seen: &Seen, nodes: &Places, now_ms: i64) -> bool {
    let one = instance(seen);
    let confirmed = one.reported == "stopped" || nodes.gone.contains(&one.node);
    // That it failed is remembered for as long as failures are counted.
    one.desired_state == "stopped" && confirmed && !one.has_failed(now_ms)
}

fn wants(group: &Group, nodes: &Places, now_ms: i64) -> Wants {
    let mut out = Wants::default();
    let set = |one: &Instance, state: &'static str, reason: &str| Action::SetState {
        org: group.org.clone(),
        instance: one.id.clone(),
        state,
        reason: reason.to_owned(),
    };
    let is_lost = |one: &&Instance| nodes.gone.contains(&one.node);
    let has_drained = |one: &&Instance| {
        matches!(one.reported.as_str(), "stopped" | "failed") || now_ms >= one.drain_until_ms || is_lost(one)
    };
    let in_state = |state: &'static str| group.instances.iter().filter(move |one| one.desired_state == state);
    let (lost, running): (Vec<&Instance>, Vec<&Instance>) = in_state("running").partition(is_lost);
    let scaled_down = |one: &&Instance| one.drain_reason == "scale_down";
    let (gone, leaving): (Vec<&Instance>, Vec<&Instance>) = in_state("draining").partition(scaled_down);
    for one in gone.iter().filter(|one| has_drained(one)) {
        out.actions.push(set(one, "stopped", "scale_down"));
    }
    let count = |many: &[&Instance]| i64::try_from(many.len()).unwrap_or(i64::MAX);
    let is_surging = group.mode == "surge";
    let filled = count(&running).saturating_add(count(&lost)).saturating_add(count(&leaving));
    let mut beyond = filled - (group.desired + i64::from(is_surging));
    // What a lost node ran runs elsewhere, in the slot it had; where fewer are wanted, it goes first.
    for one in &lost {
        if beyond > 0 {
            beyond -= 1;
            out.actions.push(set(one, "stopped", "node_offline"));
        } else {
            out.allocations.push_back(Some(one.id.clone()));
        }
    }
    let mut kept = count(&running) + i64::try_from(out.allocations.len()).unwrap_or(0);
    for one in leaving.iter().filter(|one| has_drained(one)) {
        // A volume is free when its instance has stopped, and not before.
        let is_free = group.volumes.is_empty() || one.reported == "stopped" || is_lost(one);
        if is_surging || kept >= group.desired {
            out.actions.push(set(one, "stopped", &one.drain_reason));
        } else if is_free {
            kept += 1;
            out.allocations.push_back(Some(one.id.clone()));
        }
    }
    let (fresh, stale): (Vec<&Instance>, Vec<&Instance>) = running.iter().partition(|one| one.hash == group.hash);
    let surge = i64::from(is_surging && !stale.is_empty());
    let excess = count(&running) - (group.desired + surge);
    if excess > 0 {
        let victims = victims(&running, &group.hash);
        for one in victims.into_iter().take(usize::try_from(excess).unwrap_or(0)) {
            out.actions.push(set(one, "draining", "scale_down"));
        }
        return out;
    }
    let failed: Vec<&&Instance> = fresh.iter().filter(|one| one.reported == "failed").collect();
    if let Some(first) = failed.first() {
        // A release that cannot run is not tried for ever.
        let lately = group.instances.iter().filter(|one| one.has_failed(now_ms) && one.deploy == first.deploy);
        if lately.count() <= FAILURES_MAX {
            out.allocations.extend(failed.iter().map(|one| Some(one.id.clone())));
        }
    } else if leaving.is_empty() && fresh.iter().all(|one| one.reported == "ready") {
        replace(group, nodes, &running, &stale, &mut out, set);
    }
    out.only_surges = surge > 0 && filled == group.desired;
    for _ in 0..(group.desired + surge - filled).max(0) {
        out.allocations.push_back(None);
    }
    out
}

/// One step of a rollout, or of leaving a node that is to be left: a surge adds before it drains; otherwise one drains, and the
/// next comes into its slot.
fn replace(
    group: &Group,
    nodes: &Places,
    running: &[&Instance],
    stale: &[&Instance],
    out: &mut Wants,
    set: impl Fn(&Instance, &'static str, &str) -> Action,
) {
    let total = i64::try_from(running.len()).unwrap_or(i64::MAX);
    // A rollout that failed replaces no more; volumes that came or went are no matter of a rollout.
    let what = |hash: &str| hash.rsplit_once('/').map_or(String::new(), |(what, _)| what.to_owned());
    let may_go = |one: &&Instance| !group.deploy.is_empty() || what(&one.hash) == what(&group.hash);
    let stale: Vec<&Instance> = stale.iter().copied().filter(may_go).collect();
    if let Some(one) = victims(&stale, &group.hash).first() {
        let enough = if group.mode == "surge" { total > group.desired } else { total >= group.desired };
        if enough {
            out.actions.push(set(one, "draining", "rollout_replace"));
        }
    } else if total >= group.desired
        && let Some(one) = running.iter().find(|one| nodes.draining.contains(&one.node))
    {
        out.actions.push(set(one, "draining", "node_draining"));
    }
}

/// Who goes first: failed, of another spec, not ready, oldest.
fn victims<'a>(running: &[&'a Instance], hash: &str) -> Vec<&'a Instance> {
    let mut victims = running.to_vec();
    victims.sort_by_key(|one| {
        (one.reported != "failed", one.hash == hash, one.reported == "ready", one.allocated_ms, one.id.clone())
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
        let reason = match slot {
            Some(one) if one.desired_state == "draining" => one.drain_reason.as_str(),
            Some(one) if one.reported != "failed" => "node_offline",
            _ => "failed",
        };
        body["replaces"] = json!(id);
        body["replaces_reason"] = json!(reason);
    }
    Ok(Action::Allocate { group: key, org: group.org.clone(), body })
}

/// Rollouts that find no room for their surge any more drain first from now on, and say why. For want of memory on the nodes only
/// a single replica does: of several the others go on meanwhile.
fn downgrades(objects: &Objects, groups: &[Group], wants: &[Wants]) -> Vec<Action> {
    let mut actions = Vec::new();
    for (group, wants) in groups.iter().zip(wants).filter(|(_, wants)| wants.only_surges) {
        let Some(reason) = &wants.reason else { continue };
        let for_quota = reason.starts_with("org_quota_exceeded:");
        let is_open = objects.deploys.iter().any(|one| {
            let state = one.spec["state"].as_str().unwrap_or_default();
            one.org == group.org && one.name == group.deploy && matches!(state, "queued" | "rolling")
        });
        if is_open && (for_quota || (group.desired == 1 && reason == "no_capacity_memory")) {
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
            drains_first: false,
        };
        let is_done = |group: &Group| {
            let live: Vec<&Instance> = group.instances.iter().filter(|one| one.desired_state != "stopped").collect();
            let good = live.iter().filter(|one| one.hash == group.hash && one.reported == "ready").count();
            live.iter().all(|one| one.hash == group.hash) && i64::try_from(good).unwrap_or(0) >= group.desired
        };
        let failures = own
            .iter()
            .flat_map(|(group, _)| &group.instances)
            .filter(|one| one.has_failed(now_ms) && one.deploy == deploy.name)
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
