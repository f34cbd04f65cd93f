//! `bursar bench orgs`: scale commands of organizations with many instances, each checked against three limits and durable with its
//! event, at 64 clients; beside a service that does the same command on PostgreSQL. And whether a command's cost depends on how many
//! organizations there are.

use std::time::{Duration, Instant};

use anyhow::ensure;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::http::{Connection, Target};
use super::load::{self, Stop, Work};
use super::options::Options;
use super::orgs_postgres::Peer;
use super::servers::Server;
use super::{Figures, micros, print_figures};
use crate::probe::{Latencies, median};

pub const CLIENTS: usize = 64;
/// Whoever sends commands shows it with each, to both.
pub const TOKEN: &str = "benchmark";
/// Memory of one instance, with what runs it.
pub const UNIT_BYTES: i64 = 128 << 20;
/// How long the first organization may take: its tier is made a moment after the start.
const START: Duration = Duration::from_secs(30);

pub fn run(arguments: &[String], this_command: &[&str]) -> anyhow::Result<()> {
    super::run(arguments, async |options| benchmark(options, this_command).await)
}

async fn benchmark(options: &Options, this_command: &[&str]) -> anyhow::Result<()> {
    let mut figures = throughput(options, this_command).await?;
    figures.extend(growth(options).await?);
    print_figures(&figures);
    Ok(())
}

fn scale_path(org: u64) -> String {
    format!("/v1/orgs/o{org}/apps/shop/envs/prod/scale")
}

fn scale(desired: u64) -> Bytes {
    Bytes::from(json!({"scales": [{"process_type": "web", "desired": desired}]}).to_string())
}

/// A server with so many organizations, each with so many instances.
async fn filled(options: &Options, orgs: u64, instances: u64) -> anyhow::Result<Server> {
    let server = Server::bursar_with_token(&options.bursar, TOKEN)?;
    let mut connection = server.target.connect().await?;
    let first = Instant::now();
    while let Err(error) = create(&mut connection, "/v1/orgs", json!({"id": "o0", "tier": "scale"})).await {
        ensure!(first.elapsed() < START, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let node = json!({"allocatable_memory_bytes": 1_i64 << 50, "cpu_cores": 4096});
    connection.put("/v1/nodes/n1", Bytes::from(node.to_string())).await?;
    let release = json!({"processes": {"web": {"memory_bytes": UNIT_BYTES - (64 << 20), "cpu": 0.5}}});
    let steps: [(&str, Value); 5] = [
        ("", json!({"tier": "scale"})),
        ("/apps", json!({"name": "shop"})),
        ("/apps/shop/envs", json!({"name": "prod"})),
        ("/apps/shop/releases", release),
        ("/apps/shop/envs/prod/deploys", json!({"release": 1})),
    ];
    for (under, body) in steps {
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
    if instances > 0 {
        for org in 0..orgs {
            connection.put(&scale_path(org), scale(instances)).await?;
        }
        let body = json!({"app": "shop", "env": "prod", "process_type": "web", "node": "n1"}).to_string();
        let work = move |number: u64| {
            let path = format!("/v1/orgs/o{}/instances", number % orgs);
            Work { path, body: Bytes::from(body.clone()), class: 0 }
        };
        load::run(&server.target, CLIENTS, Stop::Requests(orgs * instances), 1, work).await?;
    }
    Ok(server)
}

async fn create(connection: &mut Connection, path: &str, body: Value) -> anyhow::Result<()> {
    connection.create(path, Bytes::from(body.to_string())).await
}

/// Clients that scale organizations up and down by one, each its own ones, so that every command changes something.
async fn scales(
    target: &Target,
    clients: usize,
    orgs: u64,
    instances: u64,
    length: Duration,
) -> anyhow::Result<(Latencies, Duration)> {
    let mut ready = Vec::new();
    for _ in 0..clients {
        ready.push(target.connect().await?);
    }
    let started = Instant::now();
    let mut all = JoinSet::new();
    for (number, mut connection) in ready.into_iter().enumerate() {
        all.spawn(async move {
            let mut latencies = Latencies::new()?;
            let mut round = 0;
            while started.elapsed() < length {
                for org in (number as u64..orgs.max(number as u64 + 1)).step_by(clients) {
                    // Below what runs, nothing is drained within the time of a run; above it, nothing is placed.
                    let desired = if round % 2 == 0 { instances.saturating_sub(1) } else { instances.max(1) };
                    let asked = Instant::now();
                    connection.put(&scale_path(org % orgs), scale(desired)).await?;
                    latencies.record(asked.elapsed());
                    if started.elapsed() >= length {
                        break;
                    }
                }
                round += 1;
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Latencies::new()?;
    while let Some(one) = all.join_next().await {
        latencies.add(&one??)?;
    }
    Ok((latencies, started.elapsed()))
}

async fn throughput(options: &Options, this_command: &[&str]) -> anyhow::Result<Figures> {
    let (orgs, instances) = (options.orgs, options.instances);
    let server = filled(options, orgs, instances).await?;
    let peer = if options.peers { Some(Peer::start(options, this_command).await?) } else { None };
    println!("{CLIENTS} clients, scale commands of {orgs} organizations with {instances} instances each");
    println!("{:>5} {:<12} {:>11} {:>8} {:>8}", "round", "system", "commands/s", "p50 µs", "p99 µs");
    let (mut rates, mut ratios, mut asked) = (Vec::new(), Vec::new(), 0);
    for round in 1..=options.rounds {
        let row = |system: &str, latencies: &Latencies, elapsed: Duration| {
            let rate = latencies.count() as f64 / elapsed.as_secs_f64();
            let (p50, p99) = (micros(latencies.at(50.0)), micros(latencies.at(99.0)));
            println!("{round:>5} {system:<12} {rate:>11.0} {p50:>8.0} {p99:>8.0}");
            rate
        };
        let (latencies, elapsed) = scales(&server.target, CLIENTS, orgs, instances, options.run).await?;
        let ours = row("bursar", &latencies, elapsed);
        rates.push(ours);
        if let Some(peer) = &peer {
            let (latencies, elapsed) = scales(&peer.target, CLIENTS, orgs, instances, options.run).await?;
            ratios.push(ours / row("postgresql", &latencies, elapsed));
            asked += latencies.count();
            // Each of the organizations may stand as the round before left it.
            peer.check(asked, orgs * round as u64).await?;
        }
    }
    let mut figures = vec![("commands64_per_second".into(), format!("{:.0}", median(rates.into_iter())))];
    if peer.is_some() {
        figures.push(("commands64_vs_postgres".into(), format!("{:.2}", median(ratios.into_iter()))));
    }
    Ok(figures)
}

/// One client on a server with one organization, and on one with many, in turn.
async fn growth(options: &Options) -> anyhow::Result<Figures> {
    let instances = options.instances.min(10);
    let (few, many) = (filled(options, 1, instances).await?, filled(options, options.orgs, instances).await?);
    println!("one client, scale commands of one organization: the only one, or one of {}", options.orgs);
    println!("{:>5} {:>14} {:>14}", "round", "p50 µs, one", "p50 µs, many");
    let mut ratios = Vec::new();
    for round in 1..=options.rounds {
        let mut p50 = [0.0; 2];
        for (place, server) in [&few, &many].into_iter().enumerate() {
            let (latencies, _) = scales(&server.target, 1, 1, instances, options.run / 2).await?;
            p50[place] = micros(latencies.at(50.0)).max(1.0);
        }
        println!("{round:>5} {:>14.0} {:>14.0}", p50[0], p50[1]);
        ratios.push(p50[1] / p50[0]);
    }
    Ok(vec![("scale_growth_orgs".into(), format!("{:.3}", median(ratios.into_iter())))])
}
