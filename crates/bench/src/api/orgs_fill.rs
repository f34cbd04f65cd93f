//! A server of ours as `bursar bench orgs` loads it: organizations, what they run, and limits.

use std::time::{Duration, Instant};

use anyhow::ensure;
use bytes::Bytes;
use serde_json::{Value, json};

use super::http::Connection;
use super::load::{self, Stop, Work};
use super::options::Options;
use super::orgs::{CLIENTS, HOT, HOT_INSTANCES, TOKEN, UNIT_BYTES};
use super::orgs_lanes::{by_type, is_full, scale_path};
use super::servers::Server;

/// How long the first organization may take: its tier is made a moment after the start.
const START: Duration = Duration::from_secs(30);

/// A server with so many organizations, each with so many instances of two process types in one environment. Their node was never
/// heard of, so that nothing more is placed.
pub async fn filled(options: &Options, orgs: u64, instances: u64) -> anyhow::Result<Server> {
    let server = Server::bursar_with_token(&options.bursar, TOKEN)?;
    let mut connection = server.target.connect().await?;
    let first = Instant::now();
    while let Err(error) = create(&mut connection, "/v1/orgs", json!({"id": "o0", "tier": "scale"})).await {
        ensure!(first.elapsed() < START, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    put(&mut connection, "/v1/nodes/n1", json!({"allocatable_memory_bytes": 1_i64 << 50, "cpu_cores": 4096})).await?;
    for (under, body) in [("", json!({"tier": "scale"}))].into_iter().chain(begin("prod")) {
        let from = u64::from(under.is_empty());
        let work = move |number: u64| {
            let org = number + from;
            let mut body = body.clone();
            let path = if under.is_empty() { "/v1/orgs".to_owned() } else { format!("/v1/orgs/o{org}{under}") };
            if under.is_empty() {
                body["id"] = json!(format!("o{org}"));
            }
            Work { path, body: Bytes::from(body.to_string()), class: 0 }
        };
        load::run(&server.target, CLIENTS, Stop::Requests(orgs - from), 1, work).await?;
    }
    let [(_, web), _] = by_type(instances);
    let scales: Vec<Value> = by_type(instances).map(|(name, n)| json!({"process_type": name, "desired": n})).into();
    for org in 0..orgs {
        let org = format!("o{org}");
        put(&mut connection, &scale_path(&org, "prod"), json!({"scales": scales})).await?;
    }
    allocate(&server, orgs * instances, move |number| {
        (format!("o{}", number % orgs), "prod".into(), if number / orgs < web { "web" } else { "worker" })
    })
    .await?;
    for org in (0..orgs).filter(|org| is_full(*org)) {
        let limit = json!({"limit": instances, "reason": "what it has"});
        put(&mut connection, &format!("/v1/orgs/o{org}/quotas/max_instances"), limit).await?;
    }
    Ok(server)
}

/// One more organization, with as many environments as there are clients.
pub async fn add_hot(server: &Server) -> anyhow::Result<()> {
    let mut connection = server.target.connect().await?;
    create(&mut connection, "/v1/orgs", json!({"id": HOT, "tier": "scale"})).await?;
    for env in 0..CLIENTS {
        for (under, body) in begin(&format!("e{env}")) {
            let is_of_app = !under.contains("envs");
            if env == 0 || !is_of_app {
                create(&mut connection, &format!("/v1/orgs/{HOT}{}", under.replace("prod", &format!("e{env}"))), body)
                    .await?;
            }
        }
    }
    allocate(server, HOT_INSTANCES, |number| {
        let clients = CLIENTS as u64;
        let process_type = if number < clients { "web" } else { "worker" };
        (HOT.into(), format!("e{}", number % clients), process_type)
    })
    .await
}

/// What makes an environment of the one app, and rolls out its first release: paths in the organization, and documents.
fn begin(env: &str) -> [(&'static str, Value); 4] {
    let process = json!({"memory_bytes": UNIT_BYTES - (64 << 20), "cpu": 0.5});
    [
        ("/apps", json!({"name": "shop"})),
        ("/apps/shop/envs", json!({"name": env})),
        ("/apps/shop/releases", json!({"processes": {"web": process.clone(), "worker": process}})),
        ("/apps/shop/envs/prod/deploys", json!({"release": 1})),
    ]
}

/// Allocates so many instances; `place` says the organization, environment and process type of each.
async fn allocate(
    server: &Server,
    count: u64,
    place: impl Fn(u64) -> (String, String, &'static str) + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let work = move |number: u64| {
        let (org, env, process_type) = place(number);
        let body = json!({"app": "shop", "env": env, "process_type": process_type, "node": "n1"});
        Work { path: format!("/v1/orgs/{org}/instances"), body: Bytes::from(body.to_string()), class: 0 }
    };
    load::run(&server.target, CLIENTS, Stop::Requests(count), 1, work).await.map(drop)
}

async fn create(connection: &mut Connection, path: &str, body: Value) -> anyhow::Result<()> {
    connection.create(path, Bytes::from(body.to_string())).await
}

async fn put(connection: &mut Connection, path: &str, body: Value) -> anyhow::Result<()> {
    connection.put(path, Bytes::from(body.to_string())).await.map(drop)
}
