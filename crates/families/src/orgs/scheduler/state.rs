//! What the scheduler sees: nodes, groups, instances and organizations, read from their objects.

use std::collections::BTreeMap;

use kinds::fields::{given, items, text};
use serde_json::Value;

use super::super::commands::spec_hash;
use super::super::dimensions::Dimension;
use super::super::footprint::Footprint;
use super::super::names::env_name;
use super::super::numbers;
use super::place::Node;

/// How long a node counts as alive after it was heard of.
pub const HEARTBEAT_MS: i64 = 60 * 1000;
/// How long a failure is held against a node and a release.
pub const FAILURES_MS: i64 = 10 * 60 * 1000;

/// An object of one organization, or of none.
#[derive(Clone, Debug)]
pub struct Seen {
    pub org: String,
    pub name: String,
    pub spec: Value,
    pub status: Value,
}

/// Everything of one moment.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    pub nodes: Vec<Seen>,
    pub orgs: Vec<Seen>,
    pub envs: Vec<Seen>,
    pub instances: Vec<Seen>,
    pub attachments: Vec<Seen>,
    pub volumes: Vec<Seen>,
    pub deploys: Vec<Seen>,
}

#[derive(Clone, Debug)]
pub struct Instance {
    pub id: String,
    pub node: String,
    pub hash: String,
    pub desired_state: String,
    pub drain_reason: String,
    pub drain_until_ms: i64,
    pub reported: String,
    /// When it failed, if it ever did.
    pub failed_at_ms: Option<i64>,
    pub allocated_ms: i64,
    pub deploy: String,
    pub footprint: Footprint,
}

impl Instance {
    /// Whether it failed lately.
    pub fn has_failed(&self, now_ms: i64) -> bool {
        self.failed_at_ms.is_some_and(|at| now_ms.saturating_sub(at) < FAILURES_MS)
    }
}

/// The instances of one process type of one environment, and what is wanted of them.
#[derive(Clone, Debug)]
pub struct Group {
    pub org: String,
    pub app: String,
    pub env: String,
    pub process_type: String,
    pub desired: i64,
    pub unit: Footprint,
    pub hash: String,
    pub mode: String,
    pub deploy: String,
    /// When what is wanted last changed: who asked first is served first.
    pub changed: i64,
    pub volumes: Vec<String>,
    /// Where its volumes are; more than one place is a mistake.
    pub homes: Vec<String>,
    pub instances: Vec<Instance>,
}

impl Group {
    pub fn key(&self) -> String {
        format!("{}/{}/{}", self.org, env_name(&self.app, &self.env), self.process_type)
    }
}

/// What an organization may allocate, in the order of [`Dimension::COMPUTE`].
#[derive(Clone, Debug, Default)]
pub struct Room {
    pub counted: [i128; 3],
    pub limits: [Option<i128>; 3],
}

impl Room {
    /// The first dimension in which so much more does not fit.
    pub fn lacks(&self, more: Footprint) -> Option<Dimension> {
        let amounts = more.amounts().map(|amount| amount.nanos());
        Dimension::COMPUTE.into_iter().zip(amounts).zip(self.counted.iter().zip(self.limits)).find_map(
            |((dimension, more), (counted, limit))| {
                (more > 0 && limit.is_some_and(|limit| counted.saturating_add(more) > limit)).then_some(dimension)
            },
        )
    }

    pub fn take(&mut self, more: Footprint) {
        for (counted, more) in self.counted.iter_mut().zip(more.amounts()) {
            *counted = counted.saturating_add(more.nanos());
        }
    }
}

pub fn rooms(orgs: &[Seen]) -> BTreeMap<String, Room> {
    let read = |org: &Seen| {
        let mut room = Room::default();
        for row in items(&org.status, &["usage"]) {
            let Some(place) = Dimension::COMPUTE.iter().position(|one| one.name() == text(row, &["dimension"])) else {
                continue;
            };
            let nanos = |field: &str| given(row, &[field]).and_then(|v| numbers::decimal(v).ok()).map(|a| a.nanos());
            room.counted[place] = nanos("counted").unwrap_or(0);
            room.limits[place] = nanos("limit");
        }
        (org.name.clone(), room)
    };
    orgs.iter().map(read).collect()
}

pub fn instance(seen: &Seen) -> Instance {
    let spec = &seen.spec;
    let of = |field: &str| text(spec, &[field]).to_owned();
    let at = |field: &str| given(spec, &[field]).and_then(Value::as_i64).unwrap_or(0);
    Instance {
        id: seen.name.clone(),
        node: of("node"),
        hash: of("spec_hash"),
        desired_state: of("desired_state"),
        drain_reason: of("drain_reason"),
        drain_until_ms: at("drain_until_ms"),
        reported: text(spec, &["reported", "status"]).to_owned(),
        failed_at_ms: given(spec, &["reported", "failed_at_ms"]).and_then(Value::as_i64),
        allocated_ms: at("allocated_at_ms"),
        deploy: of("deploy"),
        footprint: Footprint::of_one(&spec["resources"]).unwrap_or_default(),
    }
}

/// Nodes with what their instances take: until one is known to have stopped, or its node is gone, its memory is.
pub fn nodes(objects: &Objects, now_ms: i64) -> Vec<Node> {
    let mut nodes: BTreeMap<&str, Node> = BTreeMap::new();
    for seen in &objects.nodes {
        let number = |field: &str| given(&seen.spec, &[field]).and_then(Value::as_i64).unwrap_or(0);
        let heard = given(&seen.status, &["heartbeat_at_ms"]).and_then(Value::as_i64).unwrap_or(i64::MIN);
        let fresh = now_ms.saturating_sub(heard) <= HEARTBEAT_MS;
        nodes.insert(
            &seen.name,
            Node {
                name: seen.name.clone(),
                is_eligible: text(&seen.spec, &["state"]) == "active"
                    && fresh
                    && number("allocatable_memory_bytes") > 0,
                memory_bytes: number("allocatable_memory_bytes"),
                cores: number("cpu_cores"),
                addresses_max: usize::try_from(number("addresses_max")).unwrap_or(0),
                ..Node::default()
            },
        );
    }
    for seen in &objects.instances {
        let one = instance(seen);
        let Some(node) = nodes.get_mut(one.node.as_str()) else { continue };
        if one.has_failed(now_ms) {
            node.failures += 1;
        }
        if one.reported == "stopped" {
            continue;
        }
        node.memory_taken = node.memory_taken.saturating_add(one.footprint.memory_bytes);
        node.cpu_taken = node.cpu_taken.checked_add(one.footprint.cpu).unwrap_or(node.cpu_taken);
        node.addresses_taken += 1;
        if one.desired_state == "running" {
            *node.groups.entry(group_key(seen)).or_default() += 1;
        }
    }
    nodes.into_values().collect()
}

fn group_key(seen: &Seen) -> String {
    let of = |field: &str| text(&seen.spec, &[field]);
    format!("{}/{}/{}", seen.org, env_name(of("app"), of("env")), of("process_type"))
}

/// Every group there is, those that only have instances left included; who asked first comes first.
pub fn groups(objects: &Objects) -> Vec<Group> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for env in &objects.envs {
        let changed = given(&env.spec, &["changed_seq"]).and_then(Value::as_i64).unwrap_or(0);
        for (name, process) in env.spec["processes"].as_object().into_iter().flatten() {
            let (app, of_env) = (text(&env.spec, &["app"]).to_owned(), text(&env.spec, &["env"]).to_owned());
            let mut volumes: Vec<String> = Vec::new();
            let mut homes: Vec<String> = Vec::new();
            for attachment in objects.attachments.iter().filter(|one| one.org == env.org) {
                let of = |field: &str| text(&attachment.spec, &[field]);
                if of("app") == app && of("env") == of_env && of("process_type") == name {
                    let volume = of("volume");
                    volumes.push(volume.to_owned());
                    let found = objects.volumes.iter().find(|one| one.org == env.org && one.name == volume);
                    let home = found.map_or("", |one| text(&one.spec, &["home_node"]));
                    if !home.is_empty() && !homes.iter().any(|known| known == home) {
                        homes.push(home.to_owned());
                    }
                }
            }
            volumes.sort();
            let borrowed: Vec<&str> = volumes.iter().map(String::as_str).collect();
            let has_release = process["release"].is_string();
            let group = Group {
                org: env.org.clone(),
                hash: spec_hash(process, &borrowed),
                app,
                env: of_env,
                process_type: name.clone(),
                desired: if has_release { process["desired"].as_i64().unwrap_or(0) } else { 0 },
                unit: Footprint::of_one(&process["unit"]).unwrap_or_default(),
                mode: text(process, &["rollout", "mode"]).to_owned(),
                deploy: text(process, &["rollout", "deploy"]).to_owned(),
                changed,
                volumes,
                homes,
                instances: Vec::new(),
            };
            groups.insert(group.key(), group);
        }
    }
    for seen in &objects.instances {
        if let Some(group) = groups.get_mut(&group_key(seen)) {
            group.instances.push(instance(seen));
        }
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by_cached_key(|group| (group.changed, group.key()));
    groups
}
