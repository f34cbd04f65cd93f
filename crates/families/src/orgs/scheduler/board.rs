//! What the scheduler knows of everything, kept up to date change by change: a pass costs what it looks at, however much else there is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use kinds::fields::{given, items, text};
use quantity::Amount;
use serde_json::Value;

use super::super::commands::spec_hash;
use super::super::footprint::Footprint;
use super::super::names::*;
use super::place::Node;
use super::state::{Group, HEARTBEAT_MS, Instance, Objects, Seen, group_key, instance};
use crate::Plural;

/// The kinds that are followed.
pub const FOLLOWED: [Plural; 7] = [NODES, ENVS, INSTANCES, ATTACHMENTS, VOLUMES, DEPLOYS, EXEC_SESSIONS];

/// What one organization has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Holding {
    pub envs: BTreeMap<String, Seen>,
    pub deploys: BTreeMap<String, Seen>,
    pub sessions: BTreeMap<String, Seen>,
    pub groups: BTreeMap<String, Group>,
    attachments: BTreeMap<String, Seen>,
    volumes: BTreeMap<String, Seen>,
    /// The group that each instance is of, whether it is there or not.
    homes: BTreeMap<String, String>,
    /// Instances whose group is not there.
    loose: BTreeMap<String, Instance>,
}

/// What instances take of a node, whether it is known or not.
#[derive(Clone, Debug, Default, PartialEq)]
struct Taken {
    instances: usize,
    memory: i64,
    cpu: Amount,
    addresses: usize,
    /// The numbers of the addresses that are in use; how many use each, for they may come from somebody else.
    numbers: BTreeMap<u128, usize>,
    /// When something failed there, and how many did at that moment.
    failures: BTreeMap<i64, usize>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Board {
    nodes: BTreeMap<String, Seen>,
    taken: BTreeMap<String, Taken>,
    orgs: BTreeMap<String, Holding>,
}

/// Whom a change concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concerned {
    Org(String),
    /// What nodes there are, or what they offer: that concerns whoever waits, and whoever is on one.
    Everybody,
    Nobody,
}

impl Board {
    pub fn of(objects: &Objects) -> Board {
        let mut board = Board::default();
        let Objects { nodes, envs, instances, attachments, volumes, deploys, sessions, .. } = objects;
        let all = [nodes, envs, instances, attachments, volumes, deploys, sessions];
        for (plural, all) in FOLLOWED.into_iter().zip(all) {
            for seen in all {
                board.put(plural, seen.clone());
            }
        }
        board
    }

    /// An object is there now, or is another.
    pub fn put(&mut self, plural: Plural, seen: Seen) -> Concerned {
        if plural == NODES {
            let facts = |seen: &Seen| seen.spec.clone();
            let is_other = self.nodes.get(&seen.name).is_none_or(|known| facts(known) != facts(&seen));
            // That a node was heard of again concerns somebody only where it had not been for long.
            let heard = |seen: &Seen| given(&seen.status, &["heartbeat_at_ms"]).and_then(Value::as_i64).unwrap_or(0);
            let is_back = self.nodes.get(&seen.name).is_some_and(|known| heard(&seen) - heard(known) > HEARTBEAT_MS);
            self.nodes.insert(seen.name.clone(), seen);
            return if is_other || is_back { Concerned::Everybody } else { Concerned::Nobody };
        }
        let org = seen.org.clone();
        let holding = self.orgs.entry(org.clone()).or_default();
        match plural {
            ENVS => holding.put_env(seen),
            INSTANCES => {
                let (key, id, one) = (group_key(&seen), seen.name.clone(), instance(&seen));
                add(&mut self.taken, &one);
                if let Some(before) = holding.put_instance(key, id, one) {
                    remove(&mut self.taken, &before);
                }
            }
            ATTACHMENTS => {
                holding.attachments.insert(seen.name.clone(), seen);
                holding.shape_all();
            }
            VOLUMES => {
                holding.volumes.insert(seen.name.clone(), seen);
                holding.shape_all();
            }
            DEPLOYS => drop(holding.deploys.insert(seen.name.clone(), seen)),
            _ => drop(holding.sessions.insert(seen.name.clone(), seen)),
        }
        Concerned::Org(org)
    }

    /// An object is gone.
    pub fn remove(&mut self, plural: Plural, org: &str, name: &str) -> Concerned {
        if plural == NODES {
            self.nodes.remove(name);
            return Concerned::Everybody;
        }
        let Some(holding) = self.orgs.get_mut(org) else { return Concerned::Nobody };
        match plural {
            ENVS => holding.remove_env(name),
            INSTANCES => {
                if let Some(before) = holding.remove_instance(name) {
                    remove(&mut self.taken, &before);
                }
            }
            ATTACHMENTS => {
                holding.attachments.remove(name);
                holding.shape_all();
            }
            VOLUMES => {
                holding.volumes.remove(name);
                holding.shape_all();
            }
            DEPLOYS => drop(holding.deploys.remove(name)),
            _ => drop(holding.sessions.remove(name)),
        }
        if *holding == Holding::default() {
            self.orgs.remove(org);
        }
        Concerned::Org(org.to_owned())
    }

    pub fn holding(&self, org: &str) -> Option<&Holding> {
        self.orgs.get(org)
    }

    pub fn orgs(&self) -> impl ExactSizeIterator<Item = &String> {
        self.orgs.keys()
    }

    /// The organizations after this one in the alphabet, and then the first ones: for who looks at all of them in parts.
    pub fn orgs_after<'a>(&'a self, name: &str, count: usize) -> impl Iterator<Item = &'a String> + use<'a> {
        let after = (std::ops::Bound::Excluded(name.to_owned()), std::ops::Bound::Unbounded);
        self.orgs.range(after).map(|(name, _)| name).chain(self.orgs.keys()).take(count.min(self.orgs.len()))
    }

    /// Nodes as they were told of.
    pub fn all_nodes(&self) -> impl Iterator<Item = &Seen> {
        self.nodes.values()
    }

    /// Nodes with what their instances take: until one is known to have stopped, or its node is gone, its memory is.
    pub fn nodes(&self, now_ms: i64) -> Vec<Node> {
        let nothing = Taken::default();
        let read = |seen: &Seen| {
            let number = |field: &str| given(&seen.spec, &[field]).and_then(Value::as_i64).unwrap_or(0);
            let heard = given(&seen.status, &["heartbeat_at_ms"]).and_then(Value::as_i64).unwrap_or(i64::MIN);
            let fresh = now_ms.saturating_sub(heard) <= HEARTBEAT_MS;
            let taken = self.taken.get(&seen.name).unwrap_or(&nothing);
            Node {
                name: seen.name.clone(),
                is_eligible: text(&seen.spec, &["state"]) == "active"
                    && fresh
                    && number("allocatable_memory_bytes") > 0,
                memory_bytes: number("allocatable_memory_bytes"),
                cores: number("cpu_cores"),
                addresses_max: usize::try_from(number("addresses_max")).unwrap_or(0),
                memory_taken: taken.memory,
                cpu_taken: taken.cpu,
                addresses_taken: taken.addresses,
                failures: taken
                    .failures
                    .iter()
                    .filter(|(at, _)| super::state::is_lately(**at, now_ms))
                    .map(|(_, many)| many)
                    .sum(),
                groups: BTreeMap::new(),
            }
        };
        self.nodes.values().map(read).collect()
    }

    /// A number on this node that no address in use has, and none of `given`.
    pub fn free_number(&self, node: &str, given: &BTreeSet<u128>) -> u128 {
        let taken = self.taken.get(node).map(|taken| &taken.numbers);
        let is_free = |number: &u128| !given.contains(number) && taken.is_none_or(|taken| !taken.contains_key(number));
        let highest = taken.and_then(|taken| taken.keys().next_back()).max(given.iter().next_back());
        let next = highest.map_or(1, |highest| highest + 1);
        // Beyond the highest there is room for long; only then gaps are looked for.
        if next <= NUMBERS_MAX { next } else { (1..=NUMBERS_MAX).find(is_free).unwrap_or(next) }
    }

    /// The address with this number on a node: behind the prefix it was registered with, or behind one made of its name, so that no
    /// two nodes give the same.
    pub fn address(&self, node: &str, number: u128) -> Ipv6Addr {
        Ipv6Addr::from(self.prefix(node) | number)
    }

    fn prefix(&self, node: &str) -> u128 {
        let said = self.nodes.get(node).map_or("", |seen| text(&seen.spec, &["ipv6_prefix"]));
        prefix_of(node, said)
    }

    pub fn states(&self) -> impl Iterator<Item = (&str, &str)> {
        self.nodes.iter().map(|(name, seen)| (name.as_str(), text(&seen.spec, &["state"])))
    }

    /// Nodes that have instances and are not known.
    pub fn unknown_nodes(&self) -> impl Iterator<Item = &String> {
        let known = |node: &&String| !self.nodes.contains_key(*node);
        self.taken.iter().filter(|(_, taken)| taken.instances > 0).map(|(node, _)| node).filter(known)
    }
}

/// Numbers of addresses on one node: those of an interface identifier are many more.
const NUMBERS_MAX: u128 = u32::MAX as u128;

/// What is written where nobody says a prefix: every node would have it.
pub const NO_PREFIX: &str = "fd00::";

/// A prefix as it is written, with its lower half empty.
pub fn said_prefix(said: &str) -> Option<u128> {
    let address = said.strip_suffix("/64").unwrap_or(said).parse::<Ipv6Addr>().ok()?;
    Some(u128::from(address)).filter(|bits| bits & u128::from(u64::MAX) == 0 && *bits != 0)
}

/// The upper half of a node's addresses.
pub fn prefix_of(node: &str, said: &str) -> u128 {
    match said_prefix(said).filter(|_| said != NO_PREFIX) {
        Some(bits) => bits,
        None => {
            let hash = node
                .bytes()
                .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
            // Unique local addresses begin with fd, and 56 bits are free before the interface.
            (0xfd_u128 << 120) | (u128::from(hash & 0x00ff_ffff_ffff_ffff) << 64)
        }
    }
}

fn number_of(one: &Instance) -> Option<u128> {
    one.address.map(|address| u128::from(address) & u128::from(u64::MAX))
}

fn add(taken: &mut BTreeMap<String, Taken>, one: &Instance) {
    let node = taken.entry(one.node.clone()).or_default();
    node.instances += 1;
    if let Some(at) = one.failed_at_ms.filter(|_| one.is_nodes_fault) {
        *node.failures.entry(at).or_default() += 1;
    }
    if one.reported == "stopped" {
        return;
    }
    node.memory = node.memory.saturating_add(one.footprint.memory_bytes);
    node.cpu = node.cpu.checked_add(one.footprint.cpu).unwrap_or(node.cpu);
    node.addresses += 1;
    if let Some(number) = number_of(one) {
        *node.numbers.entry(number).or_default() += 1;
    }
}

fn remove(taken: &mut BTreeMap<String, Taken>, one: &Instance) {
    let Some(node) = taken.get_mut(&one.node) else { return };
    node.instances -= 1;
    if node.instances == 0 {
        taken.remove(&one.node);
        return;
    }
    if let Some(at) = one.failed_at_ms.filter(|_| one.is_nodes_fault) {
        let left = node.failures.get(&at).map_or(0, |many| many - 1);
        match left {
            0 => drop(node.failures.remove(&at)),
            left => drop(node.failures.insert(at, left)),
        }
    }
    if one.reported == "stopped" {
        return;
    }
    node.memory = node.memory.saturating_sub(one.footprint.memory_bytes);
    node.cpu = node.cpu.checked_sub(one.footprint.cpu).unwrap_or(node.cpu);
    node.addresses -= 1;
    if let Some(number) = number_of(one)
        && let Some(users) = node.numbers.get_mut(&number)
    {
        *users -= 1;
        if *users == 0 {
            node.numbers.remove(&number);
        }
    }
}

impl Holding {
    fn groups_of(env: &Seen) -> Vec<Group> {
        let changed = given(&env.spec, &["changed_seq"]).and_then(Value::as_i64).unwrap_or(0);
        let (app, name) = (text(&env.spec, &["app"]), text(&env.spec, &["env"]));
        let secrets = items(&env.spec, &["secret_keys"]);
        let processes = env.spec["processes"].as_object().into_iter().flatten();
        let group = |(process_type, process): (&String, &Value)| {
            let has_release = process["release"].is_string();
            Group {
                org: env.org.clone(),
                app: app.to_owned(),
                env: name.to_owned(),
                process_type: process_type.clone(),
                desired: if has_release { process["desired"].as_i64().unwrap_or(0) } else { 0 },
                unit: Footprint::of_one(&process["unit"]).unwrap_or_default(),
                hash: spec_hash(process, &[]),
                mode: text(process, &["rollout", "mode"]).to_owned(),
                deploy: text(process, &["rollout", "deploy"]).to_owned(),
                lacks_secrets: items(&process["unit"], &["secrets"]).iter().any(|name| !secrets.contains(name)),
                changed,
                volumes: Vec::new(),
                homes: Vec::new(),
                instances: Vec::new(),
            }
        };
        processes.map(group).collect()
    }

    fn put_env(&mut self, env: Seen) {
        let mut had: BTreeMap<String, Vec<Instance>> = self.take_groups(&env.name);
        for mut group in Holding::groups_of(&env) {
            let key = group.key();
            group.instances = had.remove(&key).unwrap_or_else(|| self.adopt(&key));
            self.shape(&mut group);
            self.groups.insert(key, group);
        }
        let left = had.into_values().flatten();
        self.loose.extend(left.map(|one| (one.id.clone(), one)));
        self.envs.insert(env.name.clone(), env);
    }

    fn remove_env(&mut self, name: &str) {
        let left = self.take_groups(name).into_values().flatten();
        self.loose.extend(left.map(|one| (one.id.clone(), one)));
        self.envs.remove(name);
    }

    /// The groups of an environment as it was, taken out, with their instances.
    fn take_groups(&mut self, env: &str) -> BTreeMap<String, Vec<Instance>> {
        let Some(before) = self.envs.get(env) else { return BTreeMap::new() };
        let keys: Vec<String> = Holding::groups_of(before).iter().map(Group::key).collect();
        keys.into_iter().filter_map(|key| self.groups.remove(&key).map(|group| (key, group.instances))).collect()
    }

    /// The instances that wait for a group with this key.
    fn adopt(&mut self, key: &str) -> Vec<Instance> {
        let ids: Vec<String> =
            self.loose.keys().filter(|id| self.homes.get(*id).is_some_and(|home| home == key)).cloned().collect();
        ids.iter().filter_map(|id| self.loose.remove(id)).collect()
    }

    /// Which volumes a group has, and where they are.
    fn shape(&self, group: &mut Group) {
        let (mut volumes, mut homes): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for attachment in self.attachments.values() {
            let of = |field: &str| text(&attachment.spec, &[field]);
            if of("app") == group.app && of("env") == group.env && of("process_type") == group.process_type {
                let home = self.volumes.get(of("volume")).map_or("", |one| text(&one.spec, &["home_node"]));
                volumes.push(of("volume").to_owned());
                if !home.is_empty() && !homes.iter().any(|known| known == home) {
                    homes.push(home.to_owned());
                }
            }
        }
        volumes.sort();
        // The hash ends with the volumes.
        let what = group.hash.rsplit_once('/').map_or("", |(what, _)| what);
        group.hash = format!("{what}/{}", volumes.join(","));
        (group.volumes, group.homes) = (volumes, homes);
    }

    fn shape_all(&mut self) {
        let mut groups = std::mem::take(&mut self.groups);
        for group in groups.values_mut() {
            self.shape(group);
        }
        self.groups = groups;
    }

    /// The instance as it was, if it was there.
    fn put_instance(&mut self, key: String, id: String, one: Instance) -> Option<Instance> {
        let before = self.remove_instance(&id);
        match self.groups.get_mut(&key) {
            Some(group) => {
                let at = group.instances.partition_point(|other| other.id < id);
                group.instances.insert(at, one);
            }
            None => drop(self.loose.insert(id.clone(), one)),
        }
        self.homes.insert(id, key);
        before
    }

    fn remove_instance(&mut self, id: &str) -> Option<Instance> {
        let key = self.homes.remove(id)?;
        if let Some(one) = self.loose.remove(id) {
            return Some(one);
        }
        let group = self.groups.get_mut(&key)?;
        let at = group.instances.binary_search_by(|one| one.id.as_str().cmp(id)).ok()?;
        Some(group.instances.remove(at))
    }

    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.groups.values().flat_map(|group| &group.instances).chain(self.loose.values())
    }
}
