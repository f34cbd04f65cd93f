//! `bursar bench operator`: what `bursar operator` adds to a create in a real kube-apiserver that one of its quotas counts, beside
//! one that nobody asks about; and how soon it serves among many pods, with how much memory.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::Connection;
use super::load::{self, Stop, Work};
use super::options::Options;
use super::servers::{Ended, Server, greeted};
use super::{Figures, generated_pod, make_namespace, micros, pods_path, print_figures};
use crate::probe::{Disk, median, resident_bytes_of};

const CONNECTIONS: usize = 64;
/// Where pods are counted and asked about, where nobody counts, and where the many are.
const ASKED: &str = "asked";
const FREE: &str = "free";
const MANY: &str = "many";

/// A quota is in force once the operator has seen it and the API server knows that it has to ask.
const IN_FORCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    super::run(arguments, benchmark)
}

async fn benchmark(options: &Options) -> anyhow::Result<()> {
    let (disk, server, own) = (Disk::new()?, Server::kube().await?, tempfile::tempdir()?);
    let mut connection = server.target.connect().await?;
    for namespace in [ASKED, FREE, MANY] {
        make_namespace(&mut connection, namespace).await?;
    }
    let work = |_| Work { path: pods_path(MANY), body: generated_pod(), class: 0 };
    load::run(&server.target, CONNECTIONS, Stop::Requests(options.stored), 1, work).await?;
    // The first start brings the kinds of quotas, and is asked about this one; what is stored is counted from the second on.
    let first = Operator::start(options, &server, &own)?;
    make_quota(&mut connection, MANY, options.stored.saturating_add(1)).await?;
    drop(first);
    let started = Instant::now();
    let operator = Operator::start(options, &server, &own)?;
    let (start, resident) = (started.elapsed(), operator.resident_bytes()?);
    println!("among {} pods: serving after {:.2} s, {} MB", options.stored, start.as_secs_f64(), resident >> 20);
    make_quota(&mut connection, ASKED, 100_000_000).await?;
    in_force(&mut connection, ASKED).await?;

    let mut figures = vec![
        ("operator_start_seconds".into(), format!("{:.2}", start.as_secs_f64())),
        ("operator_resident_mb".into(), format!("{}", resident >> 20)),
    ];
    figures.extend(added(&server, &disk, options).await?);
    // What was granted and stored is counted, and nothing is left held: the sum says it as it is.
    settled(&mut connection, ASKED).await?;
    print_figures(&figures);
    Ok(())
}

/// One connection that goes to and fro between both namespaces, then 64 in one after the other.
async fn added(server: &Server, disk: &Disk, options: &Options) -> anyhow::Result<Figures> {
    println!("creates of pods, counted by one quota of the operator's, and by none");
    println!(
        "{:>5} {:>10} {:>14} {:>14} {:>16} {:>16}",
        "round", "raw sync/s", "p50 µs, none", "p50 µs, one", "creates/s, none", "creates/s, one"
    );
    let (mut more, mut kept) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        let raw = disk.syncs_per_second()?;
        let in_turn = |number: u64| {
            // The remainder is an index, so it fits.
            let class = (number % 2) as usize;
            Work { path: pods_path([FREE, ASKED][class]), body: generated_pod(), class }
        };
        let alone = load::run(&server.target, 1, Stop::After(options.run), 2, in_turn).await?;
        let [none, one] = [0, 1].map(|class: usize| micros(alone.latencies[class].at(50.0)));
        let mut rates = [0.0; 2];
        for (rate, namespace) in rates.iter_mut().zip([FREE, ASKED]) {
            let work = move |_| Work { path: pods_path(namespace), body: generated_pod(), class: 0 };
            let many = load::run(&server.target, CONNECTIONS, Stop::After(options.run), 1, work).await?;
            *rate = many.latencies[0].count() as f64 / many.elapsed.as_secs_f64();
        }
        println!("{round:>5} {raw:>10.0} {none:>14.0} {one:>14.0} {:>16.0} {:>16.0}", rates[0], rates[1]);
        more.push((one - none) / 1000.0);
        kept.push(rates[1] / rates[0].max(1.0));
    }
    Ok(vec![
        ("added_p50_ms".into(), format!("{:.3}", median(more.into_iter()))),
        ("throughput_kept_64".into(), format!("{:.3}", median(kept.into_iter()))),
    ])
}

fn quotas(namespace: &str) -> String {
    format!("/apis/capsule.clastix.io/v1beta2/namespaces/{namespace}/customquotas")
}

async fn make_quota(connection: &mut Connection, namespace: &str, limit: u64) -> anyhow::Result<()> {
    let quota = json!({
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "CustomQuota", "metadata": {"name": "pods"},
        "spec": {"limit": limit.to_string(), "sources": [{"apiVersion": "v1", "kind": "Pod", "op": "count"}]},
    });
    let (body, started) = (Bytes::from(quota.to_string()), Instant::now());
    loop {
        match connection.post(&quotas(namespace), body.clone()).await? {
            (StatusCode::CREATED, _) => return Ok(()),
            // The API server hears a moment later where the operator is that has just started.
            (StatusCode::INTERNAL_SERVER_ERROR, _) if started.elapsed() < IN_FORCE => tokio::time::sleep(LOOK).await,
            (status, said) => bail!("a quota in {namespace}: {status} {}", String::from_utf8_lossy(&said)),
        }
    }
}

async fn used(connection: &mut Connection, namespace: &str) -> anyhow::Result<u64> {
    let quota = connection.get_json(&format!("{}/pods", quotas(namespace))).await?;
    let used = quota.pointer("/status/usage/used").and_then(Value::as_str).unwrap_or("0");
    used.parse().with_context(|| format!("{namespace}: used is {used:?}"))
}

/// Waits until what is created is counted, and the API server asks.
async fn in_force(connection: &mut Connection, namespace: &str) -> anyhow::Result<()> {
    let configuration = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/bursar-quota";
    let started = Instant::now();
    loop {
        let registered = connection.get_json(configuration).await?.to_string();
        if registered.contains("\"pods\"") && registered.contains(&format!("\"{namespace}\"")) {
            connection.create(&pods_path(namespace), generated_pod()).await?;
            return settled(connection, namespace).await;
        }
        ensure!(started.elapsed() < IN_FORCE, "the quota of {namespace} is not in force: {registered}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until the quota of a namespace shows as many pods as there are.
async fn settled(connection: &mut Connection, namespace: &str) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        let list = format!("{}?limit=1", pods_path(namespace));
        let first = connection.get_json(&list).await?;
        let shown = first["items"].as_array().map_or(0, Vec::len) as u64;
        let stored = shown + first["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
        let counted = used(connection, namespace).await?;
        if stored == counted {
            return Ok(());
        }
        ensure!(started.elapsed() < IN_FORCE, "{namespace}: {counted} are counted, and {stored} stored");
        tokio::time::sleep(LOOK).await;
    }
}

/// `bursar operator` beside a cluster, ended when dropped.
struct Operator(Ended);

impl Operator {
    /// Returns when it answers reviews.
    fn start(options: &Options, server: &Server, own: &TempDir) -> anyhow::Result<Operator> {
        let kubeconfig = own.path().join("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig()?.to_string())?;
        start(&options.bursar, &kubeconfig, own.path()).map(Operator)
    }

    fn resident_bytes(&self) -> anyhow::Result<u64> {
        resident_bytes_of(&self.0.0.id().to_string())
    }
}

fn start(program: &Path, kubeconfig: &Path, folder: &Path) -> anyhow::Result<Ended> {
    let log = folder.join("operator.log");
    let child = Command::new(program)
        .args(["operator", "--log", "warn", "--listen", "127.0.0.1:0", "--kubeconfig"])
        .arg(kubeconfig)
        .arg("--data")
        .arg(folder.join("data"))
        .stdout(Stdio::piped())
        .stderr(File::create(&log)?)
        .spawn();
    let process = Ended(child.with_context(|| format!("{} cannot be started", program.display()))?);
    greeted(process, "is ready on", &log)
}
