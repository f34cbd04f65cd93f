//! What is to be done now: pure, so that a state and a moment always give the same.
//!
//! Gates are asked in one order, and the first that says no is told: what is configured, quota, nodes, addresses. An organization
//! over its share never hears that the cluster is full. Organizations take turns, so that a thousand pending of one do not stand
//! before one of another; nothing that runs is taken from anybody.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

use super::super::dimensions::Dimension;
use super::super::footprint::Footprint;
use super::super::names::env_name;
use super::board::{Board, Holding};
use super::place::{Need, NoPlace, Node, choose};
use super::progress::{deploys, downgrades, sessions, statuses, watched};
use super::state::{Group, Instance, Objects, Room, rooms};

/// Allocations of one pass; the next follows at once.
pub const ALLOCATIONS_MAX: usize = 64;
/// What one pass does, and the rest of a round in which everybody has a turn; the next pass follows at once.
pub const ACTIONS_MAX: usize = 256;
/// How long an instance may take to come up.
pub const STARTUP_MS: i64 = 2 * 60 * 1000;
/// How long after its grace an instance with a volume is waited for that does not say that it has stopped.
pub const FORCED_MS: i64 = 60 * 1000;
/// How long a refused allocation is left alone, unless something changes.
pub const BACKOFF_MS: i64 = 30 * 1000;
/// Instances of one rollout that may fail before it has.
pub(super) const FAILURES_MAX: usize = 3;

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
    /// An instance that does not come up has failed, whatever its node says of it.
    Fail {
        org: String,
        instance: String,
        reason: &'static str,
    },
    /// A session that is over without anybody having said so, as it was when that was found.
    EndSession {
        org: String,
        session: String,
        version: i64,
    },
    /// Process types of which instances are to go elsewhere, although nothing else is wanted of them: a rollout of what they run.
    Replace {
        org: String,
        app: String,
        env: String,
        why: &'static str,
        process_types: Vec<String>,
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

impl Action {
    pub fn org(&self) -> &str {
        match self {
            Action::Allocate { org, .. }
            | Action::SetState { org, .. }
            | Action::Remove { org, .. }
            | Action::Fail { org, .. }
            | Action::EndSession { org, .. }
            | Action::Replace { org, .. }
            | Action::Deploy { org, .. }
            | Action::Status { org, .. } => org,
        }
    }
}

/// What an allocation was refused for: the ledger's numbers as it said no. Those of the beginning of a pass are of another moment:
/// limits change, and the pass itself allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    pub dimension: Dimension,
    pub counted: i128,
    pub limit: Option<i128>,
}

/// A group whose allocation was refused for quota although it seemed to fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    pub dimension: Dimension,
    pub retry_ms: i64,
    /// How often it was refused since what is wanted changed.
    pub attempts: i64,
    counted: i128,
    limit: Option<i128>,
    changed: i64,
}

/// What is remembered between passes.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub blocked: BTreeMap<String, Blocked>,
    /// Environments, by organization, that cannot roll out what they run: there one instance after the other goes without.
    pub plain: BTreeSet<(String, String)>,
}

impl Memory {
    /// Groups that are no more have nothing to wait for.
    pub fn forget(&mut self, board: &Board) {
        let is_there = |key: &String| {
            let org = key.split('/').next().unwrap_or_default();
            board.holding(org).is_some_and(|holding| holding.groups.contains_key(key))
        };
        self.blocked.retain(|key, _| is_there(key));
        self.plain.retain(|(org, env)| board.holding(org).is_some_and(|holding| holding.envs.contains_key(env)));
    }

    /// An allocation was refused.
    pub fn block(&mut self, group: &Group, refused: Exceeded, now_ms: i64) {
        let before = self.blocked.get(&group.key()).filter(|before| before.changed == group.changed);
        let attempts = before.map_or(0, |before| before.attempts).saturating_add(1);
        self.blocked.insert(
            group.key(),
            Blocked {
                attempts,
                dimension: refused.dimension,
                retry_ms: now_ms.saturating_add(BACKOFF_MS),
                counted: refused.counted,
                limit: refused.limit,
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
pub(super) struct Wants {
    /// Each with the instance whose slot it takes, if it takes one.
    allocations: VecDeque<Option<String>>,
    actions: Vec<Action>,
    pub reason: Option<String>,
    /// Of a quota that refused: its limit, what is used of it, and what one more takes.
    pub details: Value,
    pub unmet: usize,
    /// Whether one more than is wanted is to come, so that an old one can go.
    pub surges: bool,
    /// Whether all that is wanted is there, and only that one more is missing.
    pub only_surges: bool,
    /// How many of them were placed.
    placed: usize,
    /// Who goes to be replaced though no rollout is under way, and why: with one it could surge.
    leaves: Option<(&'static str, Action)>,
    /// Who goes where nothing more may come: the next fits into the slot it leaves, and the rollout goes on with those there are.
    otherwise: Option<Action>,
}

impl Wants {
    pub fn lacks_quota(&self) -> bool {
        self.reason.as_deref().is_some_and(|reason| reason.starts_with("org_quota_exceeded:"))
    }
}

/// What to do, and who is to be looked at again although nothing changes: those with something under way, or in want of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub watched: BTreeSet<String>,
    /// Those with more to do than one pass does.
    pub left: BTreeSet<String>,
    /// Allocations that were not tried because one like them was just refused, by what it was refused for.
    pub skips: [u64; 3],
}

/// What to do for everybody, in order.
pub fn plan(objects: &Objects, memory: &Memory, now_ms: i64) -> Vec<Action> {
    let board = Board::of(objects);
    let orgs = board.orgs().cloned().collect();
    plan_for(&board, &orgs, rooms(&objects.orgs), memory, now_ms).actions
}

/// What to do for these organizations, with what each may still allocate.
pub fn plan_for(
    board: &Board,
    orgs: &BTreeSet<String>,
    mut rooms: BTreeMap<String, Room>,
    memory: &Memory,
    now_ms: i64,
) -> Plan {
    let places = Places::of(board);
    let holdings: Vec<(&String, &Holding)> =
        orgs.iter().filter_map(|org| board.holding(org).map(|holding| (org, holding))).collect();
    let mut groups: Vec<&Group> = holdings.iter().flat_map(|(_, holding)| holding.groups.values()).collect();
    groups.sort_by_cached_key(|group| group.place());
    let mut wants: Vec<Wants> = groups.iter().map(|group| wants(group, &places, now_ms)).collect();
    let mut actions: Vec<Action> = wants.iter_mut().flat_map(|one| std::mem::take(&mut one.actions)).collect();
    for (org, holding) in &holdings {
        let over = holding.instances().filter(|one| is_over(one, &places, now_ms));
        actions.extend(over.map(|one| Action::Remove { org: (*org).clone(), instance: one.id.clone() }));
        actions.extend(sessions(org, holding, now_ms));
    }

    // One of each organization after the other; within one, who asked first.
    let mut turns: BTreeMap<&str, VecDeque<usize>> = BTreeMap::new();
    for (at, group) in groups.iter().enumerate().filter(|(at, _)| !wants[*at].allocations.is_empty()) {
        turns.entry(&group.org).or_default().push_back(at);
    }
    let mut nodes = if turns.is_empty() { Vec::new() } else { board.nodes(now_ms) };
    for at in turns.values().flatten() {
        spread(groups[*at], &mut nodes);
    }
    let mut ground = Ground { board, places: &places, nodes, numbers: BTreeMap::new() };
    let (mut placed, mut skips) = (0, [0; 3]);
    while placed < ALLOCATIONS_MAX && !turns.is_empty() {
        for org in turns.keys().copied().collect::<Vec<_>>() {
            let Some(queue) = turns.get_mut(org) else { continue };
            let Some(at) = queue.front().copied() else {
                turns.remove(org);
                continue;
            };
            let (group, one) = (groups[at], &mut wants[at]);
            let Some(replaces) = one.allocations.pop_front() else {
                queue.pop_front();
                continue;
            };
            let room = rooms.entry(group.org.clone()).or_default();
            match allocate(group, replaces, room, &mut ground, memory, now_ms) {
                Ok(action) => {
                    actions.push(action);
                    placed += 1;
                    one.placed += 1;
                }
                Err(why) => {
                    if let Some(at) = why.skipped {
                        skips[at] += 1;
                    }
                    one.unmet = one.allocations.len() + 1;
                    one.allocations.clear();
                    one.reason = Some(why.reason);
                    one.details = why.details;
                }
            }
        }
    }
    for one in &mut wants {
        one.unmet += one.allocations.len();
        if one.placed == 0 && one.lacks_quota() {
            actions.extend(one.otherwise.take());
        }
    }
    actions.extend(replacements(&groups, &mut wants, memory));
    actions.extend(downgrades(board, &groups, &wants));
    actions.extend(deploys(&holdings, &groups, &wants, &places, now_ms));
    actions.extend(statuses(board, &groups, &wants, memory, now_ms));
    let (actions, left) = in_turn(actions);
    Plan { watched: watched(&holdings, &groups, &wants), actions, left, skips }
}

/// What goes elsewhere without a rollout gets one, so that it surges where there is room; one for each environment, and none beside
/// another.
fn replacements(groups: &[&Group], wants: &mut [Wants], memory: &Memory) -> Vec<Action> {
    let place = |group: &Group| (group.org.clone(), env_name(&group.app, &group.env));
    let rolling: BTreeSet<(String, String)> =
        groups.iter().filter(|group| !group.deploy.is_empty()).map(|group| place(group)).collect();
    let (mut actions, mut begun) = (Vec::new(), BTreeMap::new());
    for (group, wants) in groups.iter().zip(wants) {
        let Some((why, drains)) = wants.leaves.take() else { continue };
        let place = place(group);
        if memory.plain.contains(&place) {
            actions.push(drains);
        } else if !rolling.contains(&place) {
            let one: &mut (&Group, &'static str, Vec<String>) = begun.entry(place).or_insert((*group, why, Vec::new()));
            one.2.push(group.process_type.clone());
        }
    }
    let begin = |(group, why, process_types): (&Group, &'static str, Vec<String>)| Action::Replace {
        org: group.org.clone(),
        app: group.app.clone(),
        env: group.env.clone(),
        why,
        process_types,
    };
    actions.extend(begun.into_values().map(begin));
    actions
}

/// One of each organization after the other, and within one of each sort: whoever has a thousand instances to stop stands before
/// nobody who has one to start, and is told of meanwhile. A round is not begun beyond what one pass does; and whose turns were left.
fn in_turn(actions: Vec<Action>) -> (Vec<Action>, BTreeSet<String>) {
    let mut turns: BTreeMap<String, [VecDeque<Action>; 4]> = BTreeMap::new();
    for action in actions {
        let sort = match &action {
            Action::Allocate { .. } => 0,
            Action::SetState { .. } | Action::Remove { .. } | Action::Fail { .. } | Action::EndSession { .. } => 1,
            Action::Replace { .. } | Action::Deploy { .. } => 2,
            Action::Status { .. } => 3,
        };
        turns.entry(action.org().to_owned()).or_default()[sort].push_back(action);
    }
    let mut ordered = Vec::new();
    while !turns.is_empty() && ordered.len() < ACTIONS_MAX {
        for sort in 0..4 {
            ordered.extend(turns.values_mut().filter_map(|own| own[sort].pop_front()));
        }
        turns.retain(|_, own| own.iter().any(|lane| !lane.is_empty()));
    }
    (ordered, turns.into_keys().collect())
}

/// How many of a group each node has: the others spread.
fn spread(group: &Group, nodes: &mut [Node]) {
    let key = group.key();
    for one in group.instances.iter().filter(|one| one.desired_state == "running" && one.reported != "stopped") {
        if let Ok(at) = nodes.binary_search_by(|node| node.name.cmp(&one.node)) {
            *nodes[at].groups.entry(key.clone()).or_default() += 1;
        }
    }
}

/// Of these organizations, those for which something is to be allocated: of them it has to be known what they may have.
pub fn asking(board: &Board, orgs: &BTreeSet<String>, now_ms: i64) -> BTreeSet<String> {
    let places = Places::of(board);
    let asks = |org: &&String| {
        let mut groups = board.holding(org).into_iter().flat_map(|holding| holding.groups.values());
        groups.any(|group| !wants(group, &places, now_ms).allocations.is_empty())
    };
    orgs.iter().filter(asks).cloned().collect()
}

/// Where instances go.
struct Ground<'a> {
    board: &'a Board,
    places: &'a Places,
    nodes: Vec<Node>,
    /// The numbers of addresses that were given in this pass, by node.
    numbers: BTreeMap<String, BTreeSet<u128>>,
}

impl Ground<'_> {
    fn address(&mut self, node: &str) -> String {
        let given = self.numbers.entry(node.to_owned()).or_default();
        let number = self.board.free_number(node, given);
        given.insert(number);
        self.board.address(node, number).to_string()
    }
}

/// Nodes that instances are not left on.
pub(super) struct Places {
    /// What they ran is lost.
    gone: Vec<String>,
    /// What they run goes elsewhere, one of a group after the other.
    draining: Vec<String>,
    /// Whether there is any node in service.
    has_active: bool,
}

impl Places {
    fn of(board: &Board) -> Places {
        let within = |states: &[&str]| -> Vec<String> {
            board.states().filter(|(_, state)| states.contains(state)).map(|(name, _)| name.to_owned()).collect()
        };
        let mut gone = within(&["offline", "disabled"]);
        gone.extend(board.unknown_nodes().cloned());
        gone.sort();
        Places { gone, draining: within(&["draining"]), has_active: !within(&["active"]).is_empty() }
    }

    /// Whether it is to go elsewhere, and there is an elsewhere.
    pub(super) fn is_left(&self, one: &Instance) -> bool {
        self.has_active && self.draining.contains(&one.node)
    }

    fn has_lost(&self, one: &Instance) -> bool {
        self.gone.binary_search(&one.node).is_ok()
    }
}

/// Whether nothing of an instance is left to wait for.
fn is_over(one: &Instance, nodes: &Places, now_ms: i64) -> bool {
    let confirmed = one.reported == "stopped" || nodes.has_lost(one);
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
    let is_lost = |one: &&Instance| nodes.has_lost(one);
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
        // Nor for ever after: a node that is alive and silent about it was told to stop it long ago.
        let is_forced = now_ms >= one.drain_until_ms.saturating_add(FORCED_MS);
        let is_free = group.volumes.is_empty() || one.reported == "stopped" || is_lost(one) || is_forced;
        if is_surging || kept >= group.desired {
            out.actions.push(set(one, "stopped", &one.drain_reason));
        } else if is_free {
            kept += 1;
            out.allocations.push_back(Some(one.id.clone()));
        }
    }
    for one in running.iter().filter(|one| one.reported == "booting") {
        if now_ms.saturating_sub(one.allocated_ms) > STARTUP_MS {
            let (org, instance) = (group.org.clone(), one.id.clone());
            out.actions.push(Action::Fail { org, instance, reason: "startup_timeout" });
        }
    }
    let is_fresh = |one: &Instance| one.hash == group.hash && !nodes.is_left(one);
    let (fresh, stale): (Vec<&Instance>, Vec<&Instance>) = running.iter().partition(|one| is_fresh(one));
    let surge = i64::from(is_surging && !stale.is_empty());
    let excess = count(&running) - (group.desired + surge);
    if excess > 0 {
        let victims = victims(&running, is_fresh);
        for one in victims.into_iter().take(usize::try_from(excess).unwrap_or(0)) {
            out.actions.push(set(one, "draining", "scale_down"));
        }
        return out;
    }
    let failed: Vec<&Instance> = fresh.iter().copied().filter(|one| one.has_ended()).collect();
    if let Some(first) = failed.first() {
        // A release that cannot run is not tried for ever.
        let lately = group.instances.iter().filter(|one| one.has_failed(now_ms) && one.deploy == first.deploy);
        if lately.count() <= FAILURES_MAX {
            // One that did not come up in time may still come up: its volumes are free when it has stopped.
            let (ending, over): (Vec<&Instance>, Vec<&Instance>) =
                failed.iter().copied().partition(|one| !group.volumes.is_empty() && one.reported != "stopped");
            out.actions.extend(ending.iter().map(|one| set(one, "draining", "failed")));
            out.allocations.extend(over.iter().map(|one| Some(one.id.clone())));
        }
    } else if leaving.is_empty() && fresh.iter().all(|one| one.reported == "ready") {
        replace(group, nodes, &running, &stale, &mut out, set);
    }
    out.surges = surge > 0;
    out.only_surges = out.surges && filled == group.desired;
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
    // A rollout that failed replaces no more; volumes that came or went, and nodes that are left, are no matter of a rollout.
    let what = |hash: &str| hash.rsplit_once('/').map_or(String::new(), |(what, _)| what.to_owned());
    let may_go = |one: &&Instance| !group.deploy.is_empty() || what(&one.hash) == what(&group.hash);
    let stale: Vec<&Instance> = stale.iter().copied().filter(may_go).collect();
    let Some(one) = victims(&stale, |one| one.hash == group.hash).first().copied() else { return };
    let reason = if one.hash == group.hash { "node_draining" } else { "rollout_replace" };
    let drains = set(one, "draining", reason);
    let enough = if group.mode == "surge" { total > group.desired } else { total >= group.desired };
    let fits = group.unit.max(one.footprint) == one.footprint;
    if enough && group.deploy.is_empty() && group.volumes.is_empty() {
        let why = if nodes.is_left(one) { "node_drain" } else { "volumes_changed" };
        out.leaves = Some((why, drains));
    } else if enough {
        out.actions.push(drains);
    } else if group.mode != "surge" && fits {
        out.otherwise = Some(drains);
    }
}

/// Who goes first: failed, of what is not wanted any more, not ready, oldest.
fn victims<'a>(running: &[&'a Instance], is_fresh: impl Fn(&Instance) -> bool) -> Vec<&'a Instance> {
    let mut victims = running.to_vec();
    victims.sort_by_key(|one| {
        (!one.has_ended(), is_fresh(one), one.reported == "ready", one.allocated_ms, one.id.clone())
    });
    victims
}

/// Why nothing is allocated.
struct Why {
    reason: String,
    details: Value,
    /// The place in [`Dimension::COMPUTE`] of what it is not tried for again yet.
    skipped: Option<usize>,
}

impl From<&str> for Why {
    fn from(reason: &str) -> Why {
        Why { reason: reason.to_owned(), details: Value::Null, skipped: None }
    }
}

fn allocate(
    group: &Group,
    replaces: Option<String>,
    room: &mut Room,
    ground: &mut Ground<'_>,
    memory: &Memory,
    now_ms: i64,
) -> Result<Action, Why> {
    if group.lacks_secrets {
        return Err("secrets_missing".into());
    }
    if !group.volumes.is_empty() && (group.desired > 1 || group.homes.len() > 1) {
        return Err("volume_constraints_invalid".into());
    }
    let slot = replaces.as_ref().and_then(|id| group.instances.iter().find(|one| one.id == *id));
    // A slot that is given on takes no more than it gives.
    let more = match slot {
        Some(one) => group.unit.max(one.footprint).minus(one.footprint).unwrap_or(group.unit),
        None => group.unit,
    };
    // Who takes nothing more than was there waits for nothing.
    let waits = || memory.is_blocked(group, room, now_ms).filter(|_| more != Footprint::NONE);
    let lacks = room.lacks(more);
    if let Some(dimension) = lacks.or_else(waits) {
        let details = room.details(dimension, more);
        let skipped = Dimension::COMPUTE.iter().position(|one| *one == dimension).filter(|_| lacks.is_none());
        return Err(Why { reason: format!("org_quota_exceeded:{dimension}"), details, skipped });
    }
    let key = group.key();
    let home = group.homes.first().map(String::as_str);
    let need = Need { group: &key, memory_bytes: group.unit.memory_bytes, cpu: group.unit.cpu, home };
    let at = choose(&ground.nodes, &need).map_err(|why| match why {
        // The one place it could go to is there, and somebody is still in it.
        NoPlace::Memory | NoPlace::Addresses if are_volumes_used(group, slot, ground, now_ms) => "volume_in_use".into(),
        why => Why::from(why.reason()),
    })?;
    if are_volumes_used(group, slot, ground, now_ms) {
        return Err("volume_in_use".into());
    }
    ground.nodes[at].take(&need);
    room.take(more);
    let node = ground.nodes[at].name.clone();
    let address = ground.address(&node);
    let mut body = json!({
        "app": group.app, "env": group.env, "process_type": group.process_type, "node": node,
        "overlay_ipv6": address, "volumes": group.volumes,
    });
    if let Some(id) = replaces {
        let reason = match slot {
            Some(one) if !group.volumes.is_empty() && one.reported != "stopped" && !ground.places.has_lost(one) => {
                "forced"
            }
            Some(one) if one.desired_state == "draining" => one.drain_reason.as_str(),
            Some(one) if ground.places.has_lost(one) => "node_offline",
            _ => "failed",
        };
        body["replaces"] = json!(id);
        body["replaces_reason"] = json!(reason);
    }
    Ok(Action::Allocate { group: key, org: group.org.clone(), body })
}

/// Whether another instance, of whichever group, still has one of the volumes of this one, and does not give it on.
fn are_volumes_used(group: &Group, slot: Option<&Instance>, ground: &Ground<'_>, now_ms: i64) -> bool {
    // A node that is alive and silent about what it was told to stop long ago is waited for no longer.
    let is_forced = |one: &Instance| {
        one.desired_state == "stopped"
            && one.drain_until_ms > 0
            && now_ms >= one.drain_until_ms.saturating_add(FORCED_MS)
    };
    let uses = |one: &&Instance| {
        let has = one.volumes.iter().any(|volume| group.volumes.contains(volume));
        let is_over = one.reported == "stopped" || ground.places.has_lost(one) || is_forced(one);
        has && !is_over && slot.is_none_or(|slot| slot.id != one.id)
    };
    let holding = ground.board.holding(&group.org).filter(|_| !group.volumes.is_empty());
    holding.is_some_and(|holding| holding.instances().any(|one| uses(&one)))
}
