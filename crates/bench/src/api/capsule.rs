//! `bursar bench capsule`: what custom quotas cost a create, how long reading the usage of a large one takes, and how soon the
//! right one of many waiting claims has what another gave back.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use serde_json::{Value, json};

use super::http::{Connection, JSON};
use super::load::{self, Stop, Work};
use super::options::Options;
use super::servers::Server;
use super::{Figures, generated_pod, make_namespace, micros, pods_path, print_figures};
use crate::probe::{Disk, median};

/// Connections that fill a server for what is measured next.
const FILL_CONNECTIONS: usize = 64;

/// Namespaces over which the claims of one pool are spread.
const CLAIM_NAMESPACES: u64 = 4;

/// Reads of one quota, and releases in one pool, of which the figures are made.
const LOOKS: usize = 20;

/// A server is quiet when nothing was written for so long.
const QUIET: Duration = Duration::from_millis(1_000);
const LOOK: Duration = Duration::from_millis(50);
const QUIET_WITHIN: Duration = Duration::from_secs(600);

/// No release takes longer.
const BOUND_WITHIN: Duration = Duration::from_secs(60);

const API: &str = "/apis/capsule.clastix.io/v1beta2";

pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    super::run(arguments, benchmark)
}

async fn benchmark(options: &Options) -> anyhow::Result<()> {
    let disk = Disk::new()?;
    let mut figures = creates(&disk, options).await?;
    figures.extend(usage(options).await?);
    figures.extend(bind(options).await?);
    print_figures(&figures);
    Ok(())
}

async fn make(connection: &mut Connection, path: &str, of: &str, name: &str, spec: Value) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": of, "metadata": {"name": name}, "spec": spec,
    });
    connection.create(path, Bytes::from(object.to_string())).await
}

/// One connection that goes round three namespaces: without a custom quota, with one that counts every pod by a path of two
/// steps, and with many that never match.
async fn creates(disk: &Disk, options: &Options) -> anyhow::Result<Figures> {
    let quotas = options.quotas;
    println!(
        "one connection, creates in turn: no custom quota, one with a JSONPath of two steps, {quotas} that do not match"
    );
    let server = Server::bursar(&options.bursar)?;
    let mut connection = server.target.connect().await?;
    let namespaces = ["none", "one", "unmatched", "elsewhere"];
    for namespace in namespaces {
        make_namespace(&mut connection, namespace).await?;
    }
    let seconds = json!([{"apiVersion": "v1", "kind": "Pod", "path": ".spec.terminationGracePeriodSeconds"}]);
    let spec = json!({"limit": "1E", "sources": seconds});
    make(&mut connection, &format!("{API}/namespaces/one/customquotas"), "CustomQuota", "seconds", spec.clone())
        .await?;
    let others = json!({"limit": "1E", "sources": [{"apiVersion": "v1", "kind": "Service", "op": "count"}]});
    for number in 0..quotas {
        // Half of them count another kind here, half of them this kind elsewhere.
        let (namespace, spec) = if number % 2 == 0 { ("unmatched", &others) } else { ("elsewhere", &spec) };
        let path = format!("{API}/namespaces/{namespace}/customquotas");
        make(&mut connection, &path, "CustomQuota", &format!("quota-{number}"), spec.clone()).await?;
    }
    quiet(&mut connection).await?;
    let head = ["p50 µs, none", "p50 µs, one", "p50 µs, unmatched"].map(|name| format!("{name:>18}")).concat();
    println!("{:>5} {:>10} {head}", "round", "raw sync/s");
    let mut ratios: [Vec<f64>; 2] = Default::default();
    for round in 1..=options.rounds {
        let raw = disk.syncs_per_second()?;
        let p50 = in_turn(&server, &namespaces[..3], options).await?;
        println!("{round:>5} {raw:>10.0} {}", p50.iter().map(|p50| format!("{p50:>18.0}")).collect::<String>());
        for (ratios, with) in ratios.iter_mut().zip(&p50[1..]) {
            ratios.push(with / p50[0]);
        }
    }
    let used = connection.get_json(&format!("{API}/namespaces/one/customquotas/seconds")).await?;
    ensure!(used["status"]["usage"]["used"] != "0", "the quota did not count: {used}");
    let [one, unmatched] = ratios.map(|ratios| format!("{:.3}", median(ratios.into_iter())));
    Ok(vec![("create_custom_over_none".into(), one), ("create_1000_unmatched_over_none".into(), unmatched)])
}

/// The p50 of creates in each namespace, in µs.
async fn in_turn(server: &Server, namespaces: &[&str], options: &Options) -> anyhow::Result<Vec<f64>> {
    let (paths, body) = (namespaces.iter().map(|name| pods_path(name)).collect::<Vec<_>>(), generated_pod());
    let classes = paths.len();
    let work = move |number: u64| {
        // The remainder is an index, so it fits.
        let class = (number % classes as u64) as usize;
        Work { path: paths[class].clone(), body: body.clone(), class }
    };
    let outcome = load::run(&server.target, 1, Stop::After(options.run), classes, work).await?;
    Ok(outcome.latencies.iter().map(|latencies| micros(latencies.at(50.0)).max(1.0)).collect())
}

/// A quota over many objects, read.
async fn usage(options: &Options) -> anyhow::Result<Figures> {
    let count = options.objects.max(1);
    let server = Server::bursar(&options.bursar)?;
    let mut connection = server.target.connect().await?;
    make_namespace(&mut connection, "counted").await?;
    let source = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "op": "count", "selectors": [{"matchLabels": {"app": "web"}}],
    });
    let spec = json!({"limit": "1E", "sources": [source]});
    make(&mut connection, &format!("{API}/globalcustomquotas"), "GlobalCustomQuota", "all", spec).await?;
    let body = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "settings-", "labels": {"app": "web"}},
    });
    let body = Bytes::from(body.to_string());
    let work = move |_| Work { path: "/api/v1/namespaces/counted/configmaps".into(), body: body.clone(), class: 0 };
    load::run(&server.target, FILL_CONNECTIONS, Stop::Requests(count), 1, work).await?;
    quiet(&mut connection).await?;
    let path = format!("{API}/globalcustomquotas/all");
    let mut times = Vec::with_capacity(LOOKS);
    for _ in 0..LOOKS {
        let begun = Instant::now();
        let body = connection.get(&path, JSON).await?;
        times.push(begun.elapsed());
        let quota: Value = serde_json::from_slice(&body)?;
        ensure!(quota["status"]["claimCount"] == count, "the quota counts {}", quota["status"]["claimCount"]);
    }
    let (middle, worst) = summary(&times);
    println!("\nusage of a quota over {count} objects: median {middle:.2} ms, worst {worst:.2} ms");
    Ok(vec![("usage_100k_ms".into(), format!("{middle:.2}"))])
}

/// Claims that wait for the one place of a pool. Each release must bind the first in line, and nobody else.
async fn bind(options: &Options) -> anyhow::Result<Figures> {
    let count = options.waiting.max(LOOKS as u64 + 1);
    let server = Server::bursar(&options.bursar)?;
    let mut connection = server.target.connect().await?;
    for number in 0..CLAIM_NAMESPACES {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": format!("team-{number}"), "labels": {"pool": "small"}},
        });
        connection.create("/api/v1/namespaces", Bytes::from(namespace.to_string())).await?;
    }
    let spec = json!({
        "config": {"defaultsZero": true}, "quota": {"hard": {"pods": "1"}},
        "selectors": [{"matchLabels": {"pool": "small"}}],
    });
    make(&mut connection, &format!("{API}/resourcepools"), "ResourcePool", "small", spec).await?;
    let work = |number: u64| {
        let claim = json!({
            "apiVersion": "capsule.clastix.io/v1beta2", "kind": "ResourcePoolClaim",
            "metadata": {"name": format!("claim-{number:06}")}, "spec": {"pool": "small", "claim": {"pods": "1"}},
        });
        let path = format!("{API}/namespaces/team-{}/resourcepoolclaims", number % CLAIM_NAMESPACES);
        Work { path, body: Bytes::from(claim.to_string()), class: 0 }
    };
    // One after the other: who came first is served first, and the names say who that was.
    let filled = load::run(&server.target, 1, Stop::Requests(count + 1), 1, work).await?;
    println!("\n{count} claims wait in one pool (made in {:.1} s)", filled.elapsed.as_secs_f64());
    quiet(&mut connection).await?;
    let mut line = line(&mut connection).await?;
    let has = |claim: &Waiting| claim.has;
    let holder = line.iter().position(has).context("nobody has the place")?;
    ensure!(line.iter().filter(|claim| has(claim)).count() == 1, "the place is given more than once");
    // Whoever came first of all has it; the others are in the order of service.
    let mut holder = line.remove(holder);
    let mut times = Vec::with_capacity(LOOKS);
    for next in line.into_iter().take(LOOKS) {
        let begun = Instant::now();
        connection.delete(&holder.path()).await?;
        loop {
            let claim = connection.get_json(&next.path()).await?;
            if exhausted(&claim) == Some("False") {
                break;
            }
            ensure!(begun.elapsed() < BOUND_WITHIN, "{} was not bound: {claim}", next.name);
        }
        times.push(begun.elapsed());
        let quota = format!("/api/v1/namespaces/{}/resourcequotas/capsule-pool-small", next.namespace);
        let quota = connection.get_json(&quota).await?;
        ensure!(quota["spec"]["hard"]["pods"] == "1", "the quota of its namespace did not follow: {quota}");
        holder = next;
    }
    let (middle, worst) = summary(&times);
    println!("a release until the right claim is bound: median {middle:.2} ms, worst of {LOOKS} {worst:.2} ms");
    Ok(vec![("bind_10k_waiting_ms".into(), format!("{worst:.2}"))])
}

struct Waiting {
    created: String,
    name: String,
    namespace: String,
    has: bool,
}

impl Waiting {
    fn path(&self) -> String {
        format!("{API}/namespaces/{}/resourcepoolclaims/{}", self.namespace, self.name)
    }
}

/// Every claim, oldest first, then by name, then by namespace.
async fn line(connection: &mut Connection) -> anyhow::Result<Vec<Waiting>> {
    let list = connection.get_json(&format!("{API}/resourcepoolclaims")).await?;
    let items = list["items"].as_array().context("a list without items")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut line: Vec<Waiting> = items
        .iter()
        .map(|claim| Waiting {
            created: text(&claim["metadata"]["creationTimestamp"]),
            name: text(&claim["metadata"]["name"]),
            namespace: text(&claim["metadata"]["namespace"]),
            has: exhausted(claim) == Some("False"),
        })
        .collect();
    line.sort_by(|a, b| (&a.created, &a.name, &a.namespace).cmp(&(&b.created, &b.name, &b.namespace)));
    Ok(line)
}

fn exhausted(claim: &Value) -> Option<&str> {
    let conditions = claim["status"]["conditions"].as_array()?;
    conditions.iter().find(|one| one["type"] == "Exhausted")?["status"].as_str()
}

/// Waits until nothing is written any more: statuses, events, quotas of pools.
async fn quiet(connection: &mut Connection) -> anyhow::Result<()> {
    let begun = Instant::now();
    let (mut version, mut since) = (Value::Null, Instant::now());
    while since.elapsed() < QUIET {
        let list = connection.get_json("/api/v1/namespaces?limit=1").await?;
        if list["metadata"]["resourceVersion"] != version {
            (version, since) = (list["metadata"]["resourceVersion"].clone(), Instant::now());
        }
        ensure!(begun.elapsed() < QUIET_WITHIN, "the server does not come to rest");
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Median and worst, in milliseconds.
fn summary(times: &[Duration]) -> (f64, f64) {
    let all = || times.iter().map(|time| time.as_secs_f64() * 1e3);
    (median(all()), all().fold(0.0, f64::max))
}
