//! The load of `bursar bench orgs`: clients that scale environments up and down by one, each its own ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::http::{Connection, Target};
use crate::probe::Latencies;

/// One organization of so many is at its limit.
const FULL_EVERY: u64 = 10;

/// An environment that one client scales up and down between what runs and one more. So every other command grows, and is checked;
/// every one changes what is used; and nothing that runs is ever drained.
pub struct Lane {
    pub org: String,
    env: String,
    /// How many of the process type run.
    low: u64,
    /// Whether the organization may have no more than runs: each command is to grow, and must be refused.
    pub is_full: bool,
    is_up: AtomicBool,
    changed: AtomicU64,
    refused: AtomicU64,
}

/// The lanes of one server. What stands where is remembered from round to round.
pub type Lanes = Arc<Vec<Lane>>;

/// How many of the process types `web` and `worker` are among so many instances.
pub fn by_type(instances: u64) -> [(&'static str, u64); 2] {
    [("web", instances / 2), ("worker", instances - instances / 2)]
}

pub fn is_full(org: u64) -> bool {
    org % FULL_EVERY == FULL_EVERY - 1
}

pub fn scale_path(org: &str, env: &str) -> String {
    format!("/v1/orgs/{org}/apps/shop/envs/{env}/scale")
}

impl Lane {
    fn new(org: String, env: String, low: u64, is_full: bool) -> Lane {
        let (is_up, changed, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        Lane { org, env, low, is_full, is_up, changed, refused }
    }

    /// How many more than run are wanted.
    pub fn more(&self) -> u64 {
        u64::from(self.is_up.load(Ordering::Relaxed))
    }

    pub fn changed(&self) -> u64 {
        self.changed.load(Ordering::Relaxed)
    }

    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Sends the next command, and looks whether it was answered as it must be.
    async fn command(&self, connection: &mut Connection, key: Option<&str>) -> anyhow::Result<()> {
        let is_up = self.is_up.load(Ordering::Relaxed);
        let wanted = json!({"scales": [{"process_type": "web", "desired": self.low + u64::from(!is_up)}]});
        let path = scale_path(&self.org, &self.env);
        match connection.put_keyed(&path, Bytes::from(wanted.to_string()), key).await? {
            (StatusCode::OK, _) if !self.is_full => {
                self.is_up.store(!is_up, Ordering::Relaxed);
                self.changed.fetch_add(1, Ordering::Relaxed);
            }
            (StatusCode::CONFLICT, body) if self.is_full => {
                let problem: Value = serde_json::from_slice(&body)?;
                let said = (&problem["code"], &problem["details"]["dimension"]);
                ensure!(said == (&json!("quota_exceeded"), &json!("max_instances")), "PUT {path}: {problem}");
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
            (status, body) => bail!("PUT {path}: {status} {}", String::from_utf8_lossy(&body)),
        }
        Ok(())
    }
}

/// One lane for each of the organizations with so many instances; where there are some, every tenth is full.
pub fn spread(orgs: u64, instances: u64) -> Lanes {
    let [(_, web), _] = by_type(instances);
    Arc::new((0..orgs).map(|org| Lane::new(format!("o{org}"), "prod".into(), web, is_full(org))).collect())
}

/// One lane for each of the environments of the one organization that all ask at once.
pub fn hot(clients: usize) -> Lanes {
    Arc::new((0..clients).map(|env| Lane::new(super::orgs::HOT.into(), format!("e{env}"), 1, false)).collect())
}

pub struct Ran {
    pub latencies: Latencies,
    pub elapsed: Duration,
}

impl Ran {
    pub fn rate(&self) -> f64 {
        self.latencies.count() as f64 / self.elapsed.as_secs_f64()
    }
}

/// Loads a server for a while. With a `run`, which no other run of it has, every command has an idempotency key.
pub async fn run(
    target: &Target,
    lanes: &Lanes,
    clients: usize,
    run: Option<&str>,
    length: Duration,
) -> anyhow::Result<Ran> {
    let clients = clients.min(lanes.len());
    let mut ready = Vec::new();
    for _ in 0..clients {
        ready.push(target.connect().await?);
    }
    let started = Instant::now();
    let mut all = JoinSet::new();
    for (number, mut connection) in ready.into_iter().enumerate() {
        let (lanes, run) = (Arc::clone(lanes), run.map(str::to_owned));
        all.spawn(async move {
            let mut latencies = Latencies::new()?;
            let mine = lanes.iter().skip(number).step_by(clients).cycle();
            for (sent, lane) in mine.enumerate() {
                if started.elapsed() >= length {
                    break;
                }
                let key = run.as_ref().map(|run| format!("{run}-{number}-{sent}"));
                let asked = Instant::now();
                lane.command(&mut connection, key.as_deref()).await?;
                latencies.record(asked.elapsed());
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Latencies::new()?;
    while let Some(one) = all.join_next().await {
        latencies.add(&one??)?;
    }
    Ok(Ran { latencies, elapsed: started.elapsed() })
}
