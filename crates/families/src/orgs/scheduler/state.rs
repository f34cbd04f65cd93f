//! What the scheduler sees: nodes, groups, instances and organizations, read from their objects.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use kinds::fields::{given, items, text};
use quantity::Amount;
use serde_json::{Value, json};

use super::super::dimensions::Dimension;
use super::super::footprint::Footprint;
use super::super::names::env_name;
use super::super::numbers;
use super::board::Board;

/// How long a node counts as alive after it was heard of.
pub const HEARTBEAT_MS: i64 = 60 * 1000;
/// How long a failure is held against a node and a release.
pub const FAILURES_MS: i64 = 10 * 60 * 1000;

/// An object of one organization, or of none.
#[derive(Clone, Debug, PartialEq)]
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
    pub sessions: Vec<Seen>,
}

#[derive(Clone, Debug, PartialEq)]
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
    /// Whether it failed for what its node does: elsewhere it may come up.
    pub is_nodes_fault: bool,
    pub allocated_ms: i64,
    pub deploy: String,
    pub footprint: Footprint,
    pub address: Option<Ipv6Addr>,
    /// What it mounts.
    pub volumes: Vec<String>,
}

/// Whether a failure at this moment still counts.
pub fn is_lately(at_ms: i64, now_ms: i64) -> bool {
    now_ms.saturating_sub(at_ms) < FAILURES_MS
}

impl Instance {
    /// Whether it runs no more although it is to: it failed, or it stopped by itself.
    pub fn has_ended(&self) -> bool {
        self.desired_state == "running" && matches!(self.reported.as_str(), "failed" | "stopped")
    }

    /// Whether it failed lately.
    pub fn has_failed(&self, now_ms: i64) -> bool {
        self.failed_at_ms.is_some_and(|at| is_lately(at, now_ms))
    }
}

/// The instances of one process type of one environment, and what is wanted of them.
#[derive(Clone, Debug, PartialEq)]
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
    /// Whether its release asks for secrets that its environment does not have.
    pub lacks_secrets: bool,
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

    /// Its place among those who wait.
    pub fn place(&self) -> (i64, String) {
        (self.changed, self.key())
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

    /// What a refusal for a dimension is told with.
    pub fn details(&self, dimension: Dimension, more: Footprint) -> Value {
        let Some(at) = Dimension::COMPUTE.iter().position(|one| *one == dimension) else { return Value::Null };
        let shown = |nanos: i128| numbers::shown(Amount::from_nanos(nanos));
        json!({
            "limit": self.limits[at].map(shown), "current_usage": shown(self.counted[at]),
            "requested_delta": numbers::shown(more.amounts()[at]),
        })
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

/// Reasons of failures that are held against a node; what a release does by itself is not.
fn is_nodes_fault(reason: &str) -> bool {
    ["firecracker_start_failed", "rootfs_build_failed", "disk"].iter().any(|one| reason.starts_with(one))
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
        is_nodes_fault: is_nodes_fault(text(spec, &["reported", "failed_for"])),
        allocated_ms: at("allocated_at_ms"),
        deploy: of("deploy"),
        footprint: Footprint::of_one(&spec["resources"]).unwrap_or_default(),
        address: text(spec, &["overlay_ipv6"]).parse().ok(),
        volumes: items(spec, &["volumes"]).iter().filter_map(Value::as_str).map(str::to_owned).collect(),
    }
}

pub fn group_key(seen: &Seen) -> String {
    let of = |field: &str| text(&seen.spec, &[field]);
    format!("{}/{}/{}", seen.org, env_name(of("app"), of("env")), of("process_type"))
}

/// Every group there is; who asked first comes first.
pub fn groups(objects: &Objects) -> Vec<Group> {
    let board = Board::of(objects);
    let all = board.orgs().filter_map(|org| board.holding(org));
    let mut groups: Vec<Group> = all.flat_map(|holding| holding.groups.values().cloned()).collect();
    groups.sort_by_cached_key(Group::place);
    groups
}
