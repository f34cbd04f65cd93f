//! Benchmarks of the API over TLS, `bursar serve` beside a real kube-apiserver with etcd.
//!
//! Both get the same requests from the same generator, in turns, because machines are noisy: figures are medians of ratios
//! between neighbours in time. In every figure that ends in `_vs_kube` ours is divided by theirs.

pub mod capsule;
pub mod datum;
mod http;
pub mod karmada;
mod load;
pub mod operator;
mod options;
pub mod orgs;
mod orgs_check;
mod orgs_fill;
mod orgs_lanes;
mod orgs_postgres;
pub mod orgs_service;
mod orgs_statements;
pub mod quota;
pub mod serve;
mod servers;
pub mod stall;
mod watchers;

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::probe::Disk;
use http::{Connection, Target};
use load::{Outcome, Stop, Work};
use options::Options;
use servers::Server;

/// What a benchmark found, by name.
type Figures = Vec<(String, String)>;

/// Runs one of the benchmarks with the options on the command line.
fn run(arguments: &[String], benchmark: impl AsyncFnOnce(&Options) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let options = options::parse(arguments)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(benchmark(&options))
}

/// A pod as people write them. The amounts are small: millions fit into a quota.
fn pod(metadata: Value) -> Bytes {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "containers": [{
                "name": "web",
                "image": "registry.example/shop/web:1.4.2",
                "args": ["--listen", ":8080"],
                "env": [{"name": "STAGE", "value": "production"}],
                "ports": [{"containerPort": 8080, "name": "http"}],
                "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "2m", "memory": "2Mi"}},
            }],
        },
    });
    Bytes::from(pod.to_string())
}

fn generated_pod() -> Bytes {
    pod(json!({"generateName": "web-", "labels": {"app": "web", "tier": "front"}}))
}

fn pods_path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// Makes a namespace for one run, so that no run finds another's pods.
async fn make_namespace(connection: &mut Connection, name: &str) -> anyhow::Result<()> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    connection.create("/api/v1/namespaces", Bytes::from(body.to_string())).await
}

/// Creates pods by generateName in one namespace.
async fn create_pods(target: &Target, namespace: &str, connections: usize, stop: Stop) -> anyhow::Result<Outcome> {
    let (path, body) = (pods_path(namespace), generated_pod());
    load::run(target, connections, stop, 1, move |_| Work { path: path.clone(), body: body.clone(), class: 0 }).await
}

/// One measured run: what the table shows.
struct Row {
    rate: f64,
    p50: Duration,
    p99: Duration,
}

const HEAD: [&str; 8] =
    ["round", "connections", "raw sync/s", "system", "creates/s", "p50 µs", "p99 µs", "CPU µs/create"];

fn print_head() {
    let [round, connections, raw, system, rate, p50, p99, cpu] = HEAD;
    println!("{round:>5} {connections:>11} {raw:>10} {system:<15} {rate:>9} {p50:>8} {p99:>8} {cpu:>13}");
}

/// Loads one server with creates in a namespace that is there already, and prints a row.
async fn measure(
    server: &Server,
    disk: &Disk,
    round: usize,
    namespace: &str,
    connections: usize,
    length: Duration,
) -> anyhow::Result<Row> {
    let raw = disk.syncs_per_second()?;
    let before = server.cpu();
    let outcome = create_pods(&server.target, namespace, connections, Stop::After(length)).await?;
    let cpu = server.cpu().saturating_sub(before);
    let latencies = &outcome.latencies[0];
    let created = latencies.count().max(1) as f64;
    let row = Row { rate: created / outcome.elapsed.as_secs_f64(), p50: latencies.at(50.0), p99: latencies.at(99.0) };
    println!(
        "{round:>5} {connections:>11} {raw:>10.0} {:<15} {:>9.0} {:>8.0} {:>8.0} {:>13.0}",
        server.name,
        row.rate,
        micros(row.p50),
        micros(row.p99),
        cpu.as_secs_f64() * 1e6 / created,
    );
    Ok(row)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn print_figures(figures: &[(String, String)]) {
    println!();
    for (name, value) in figures {
        println!("figure {name} {value}");
    }
}
