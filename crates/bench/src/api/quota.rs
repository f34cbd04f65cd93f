//! `bursar bench quota`: what quotas cost a create, how that grows, how it compares with kube-apiserver's own quota, and
//! whether charges leak where Kubernetes is known to leak them.

use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use serde_json::{Value, json};

use super::http::{Connection, METADATA_ONLY};
use super::load::{self, Stop, Work};
use super::options::Options;
use super::servers::Server;
use super::{Figures, generated_pod, make_namespace, measure, micros, pod, pods_path, print_figures, print_head};
use crate::probe::{Disk, median};

const CONNECTIONS: [usize; 2] = [1, 64];

/// Connections that fill a server for what is measured next.
const FILL_CONNECTIONS: usize = 64;

/// Quotas in the namespaces whose latencies are compared.
const QUOTAS: [usize; 5] = [0, 1, 4, 16, 100];

/// Creates of a name that is taken.
const DUPLICATES: usize = 50;

/// How often all connections are cut.
const CUTS: usize = 3;
const CUT_CONNECTIONS: usize = 64;
const CUT_AFTER: Duration = Duration::from_millis(700);

/// kube-apiserver knows a new quota only when its informer does.
const ENFORCED_WITHIN: u32 = 500;
const LOOK: Duration = Duration::from_millis(20);

pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    super::run(arguments, benchmark)
}

async fn benchmark(options: &Options) -> anyhow::Result<()> {
    let disk = Disk::new()?;
    let mut servers = vec![Server::bursar(&options.bursar)?];
    let mut figures = cost(&servers[0], &disk, options).await?;
    if options.peers {
        servers.push(Server::kube().await?);
    }
    figures.extend(beside_kube(&servers, &disk, options).await?);
    figures.extend(leaks(&servers).await?);
    drop(servers);
    if options.namespaces > 0 {
        figures.extend(many_namespaces(&disk, options).await?);
    }
    print_figures(&figures);
    Ok(())
}

/// Makes a quota that nothing in this benchmark exhausts. kube-apiserver enforces what a controller has written into its
/// status, and no controller runs, so that part is written here.
async fn make_quota(server: &Server, connection: &mut Connection, namespace: &str, name: &str) -> anyhow::Result<()> {
    let path = format!("/api/v1/namespaces/{namespace}/resourcequotas");
    connection.create(&path, quota(name)).await?;
    if server.name != "bursar" {
        let status =
            json!({"status": {"hard": hard(), "used": {"pods": "0", "requests.cpu": "0", "requests.memory": "0"}}});
        connection.merge_patch(&format!("{path}/{name}/status"), &status).await?;
    }
    Ok(())
}

fn hard() -> Value {
    json!({"pods": "100000000", "requests.cpu": "100000000", "requests.memory": "1Ei"})
}

fn quota(name: &str) -> Bytes {
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": hard()},
    });
    Bytes::from(quota.to_string())
}

/// A namespace with so many quotas, all of them enforced when this returns.
async fn namespace_with(server: &Server, namespace: &str, quotas: usize) -> anyhow::Result<()> {
    let mut connection = server.target.connect().await?;
    make_namespace(&mut connection, namespace).await?;
    for number in 0..quotas {
        make_quota(server, &mut connection, namespace, &format!("quota-{number}")).await?;
    }
    for _ in 0..ENFORCED_WITHIN {
        let (status, body) = connection.post(&pods_path(namespace), generated_pod()).await?;
        if !status.is_success() {
            ensure!(status == 403, "the first create: {status} {}", String::from_utf8_lossy(&body));
            tokio::time::sleep(LOOK).await;
            continue;
        }
        if used(&mut connection, namespace).await?.iter().all(|&used| used > 0) {
            return Ok(());
        }
    }
    anyhow::bail!("{}: the quotas of {namespace} are not enforced", server.name)
}

/// What each quota of a namespace says about pods.
async fn used(connection: &mut Connection, namespace: &str) -> anyhow::Result<Vec<i64>> {
    let list = connection.get_json(&format!("/api/v1/namespaces/{namespace}/resourcequotas")).await?;
    let quotas = list["items"].as_array().context("a list without items")?.iter();
    quotas.map(|quota| Ok(quota["status"]["used"]["pods"].as_str().unwrap_or("0").parse()?)).collect()
}

/// One connection that goes round the namespaces: what disturbs one disturbs all.
async fn cost(server: &Server, disk: &Disk, options: &Options) -> anyhow::Result<Figures> {
    println!("one connection, creates in turn in namespaces with 0, 1, 4, 16 and 100 quotas of three resources");
    for quotas in QUOTAS {
        namespace_with(server, &format!("cost-{quotas}"), quotas).await?;
    }
    println!(
        "{:>5} {:>10} {}",
        "round",
        "raw sync/s",
        QUOTAS.map(|quotas| format!("{:>14}", format!("p50 µs, {quotas}"))).concat()
    );
    let mut ratios: [Vec<f64>; QUOTAS.len()] = Default::default();
    for round in 1..=options.rounds {
        let raw = disk.syncs_per_second()?;
        let namespaces = QUOTAS.map(|quotas| format!("cost-{quotas}")).to_vec();
        let p50 = in_turn(server, namespaces, options).await?;
        println!("{round:>5} {raw:>10.0} {}", p50.iter().map(|p50| format!("{p50:>14.0}")).collect::<String>());
        for (ratios, with) in ratios.iter_mut().zip(&p50) {
            ratios.push(with / p50[0]);
        }
    }
    let figures = QUOTAS
        .iter()
        .zip(ratios)
        .skip(1)
        .map(|(quotas, ratios)| (format!("p50_q{quotas}_over_none"), format!("{:.3}", median(ratios.into_iter()))));
    Ok(figures.collect())
}

/// The p50 of creates in each namespace, in µs.
async fn in_turn(server: &Server, namespaces: Vec<String>, options: &Options) -> anyhow::Result<Vec<f64>> {
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

/// A quota in each of many namespaces: a create must not notice the others.
async fn many_namespaces(disk: &Disk, options: &Options) -> anyhow::Result<Figures> {
    let server = Server::bursar(&options.bursar)?;
    let measured = ["few-0", "few-1"].map(String::from).to_vec();
    for (quotas, namespace) in measured.iter().enumerate() {
        namespace_with(&server, namespace, quotas).await?;
    }
    let raw = disk.syncs_per_second()?;
    let before = in_turn(&server, measured.clone(), options).await?;
    println!("\nnamespaces with a quota each (raw sync/s {raw:.0})");
    println!("     1: p50 {:>6.0} µs without a quota, {:>6.0} µs with one", before[0], before[1]);
    let count = options.namespaces;
    let namespaces = move |number: u64| {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("tenant-{number}")}});
        Work { path: "/api/v1/namespaces".into(), body: Bytes::from(body.to_string()), class: 0 }
    };
    let quotas = |number: u64| Work {
        path: format!("/api/v1/namespaces/tenant-{number}/resourcequotas"),
        body: quota("quota"),
        class: 0,
    };
    load::run(&server.target, FILL_CONNECTIONS, Stop::Requests(count), 1, namespaces).await?;
    load::run(&server.target, FILL_CONNECTIONS, Stop::Requests(count), 1, quotas).await?;
    let after = in_turn(&server, measured, options).await?;
    println!("{count:>6}: p50 {:>6.0} µs without a quota, {:>6.0} µs with one", after[0], after[1]);
    // The cost of the quota then against its cost before, so that a changed disk does not count.
    let growth = (after[1] / after[0]) / (before[1] / before[0]);
    Ok(vec![("p50_q1_growth_10k_namespaces".into(), format!("{growth:.3}"))])
}

async fn beside_kube(servers: &[Server], disk: &Disk, options: &Options) -> anyhow::Result<Figures> {
    println!("\npods by generateName in a namespace with one quota of three resources");
    print_head();
    let mut table: Vec<[Vec<super::Row>; CONNECTIONS.len()]> = servers.iter().map(|_| Default::default()).collect();
    for round in 1..=options.rounds {
        for (column, &connections) in CONNECTIONS.iter().enumerate() {
            for (server, rows) in servers.iter().zip(&mut table) {
                let namespace = format!("one-quota-{round}-{connections}");
                namespace_with(server, &namespace, 1).await?;
                rows[column].push(measure(server, disk, round, &namespace, connections, options.run).await?);
            }
        }
    }
    let [ours, theirs] = table.as_slice() else { return Ok(Vec::new()) };
    let waits = ours[0].iter().zip(&theirs[0]).map(|(ours, theirs)| micros(ours.p50) / micros(theirs.p50));
    let faster = ours[1].iter().zip(&theirs[1]).map(|(ours, theirs)| ours.rate / theirs.rate);
    Ok(vec![
        ("creates64_q1_vs_kube".into(), format!("{:.2}", median(faster))),
        ("p50_1_q1_vs_kube".into(), format!("{:.3}", median(waits))),
    ])
}

/// Three ways in which charges outlive, or never had, an object. What is left over is counted pods against `used.pods`.
async fn leaks(servers: &[Server]) -> anyhow::Result<Figures> {
    println!("\ncharges without a pod (used.pods minus pods, all quotas of the namespace)");
    println!("{:<15} {:>14} {:>22} {:>22}", "", "50 duplicates", "cut, one quota", "cut, four quotas");
    let mut figures = Vec::new();
    for server in servers {
        let duplicates = duplicates(server).await?;
        let one = cut(server, "cut-one", 1).await?;
        let four = cut(server, "cut-four", 4).await?;
        let shown = |leak: &Leak| format!("{} for {} pods", leak.charges, leak.pods);
        println!("{:<15} {:>14} {:>22} {:>22}", server.name, duplicates.charges, shown(&one), shown(&four));
        let sum = duplicates.charges + one.charges + four.charges;
        if server.name == "bursar" {
            let audit = server.target.connect().await?.get_json("/debug/audit").await?;
            let differences = audit["differences"].as_array().context("an audit without differences")?;
            println!("{:<15} recount: {} objects, differences {differences:?}", "", audit["objects"]);
            figures.push(("leaked_charges".into(), (sum + i64::try_from(differences.len())?).to_string()));
        } else {
            figures.push(("leaked_charges_kube".into(), sum.to_string()));
        }
    }
    Ok(figures)
}

struct Leak {
    charges: i64,
    pods: i64,
}

async fn duplicates(server: &Server) -> anyhow::Result<Leak> {
    namespace_with(server, "duplicates", 1).await?;
    let mut connection = server.target.connect().await?;
    let body = pod(json!({"name": "taken"}));
    connection.create(&pods_path("duplicates"), body.clone()).await?;
    for _ in 0..DUPLICATES {
        let (status, _) = connection.post(&pods_path("duplicates"), body.clone()).await?;
        ensure!(status == 409, "a taken name was answered with {status}");
    }
    settled(&mut connection, "duplicates").await
}

async fn cut(server: &Server, namespace: &str, quotas: usize) -> anyhow::Result<Leak> {
    namespace_with(server, namespace, quotas).await?;
    for _ in 0..CUTS {
        load::run_and_cut(&server.target, CUT_CONNECTIONS, CUT_AFTER, &pods_path(namespace), &generated_pod()).await?;
    }
    settled(&mut server.target.connect().await?, namespace).await
}

/// Counts when nothing moves any more: requests whose connection was cut may still be under way.
async fn settled(connection: &mut Connection, namespace: &str) -> anyhow::Result<Leak> {
    let mut last = None;
    loop {
        let list = connection.get(&pods_path(namespace), METADATA_ONLY).await?;
        let list: Value = serde_json::from_slice(&list)?;
        let pods = i64::try_from(list["items"].as_array().context("a list without items")?.len())?;
        let used = used(connection, namespace).await?;
        if last.as_ref() == Some(&(pods, used.clone())) {
            return Ok(Leak { charges: used.iter().map(|used| (used - pods).abs()).sum(), pods });
        }
        last = Some((pods, used));
        tokio::time::sleep(LOOK * 20).await;
    }
}
