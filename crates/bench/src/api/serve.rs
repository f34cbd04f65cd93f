//! `bursar bench serve`: creates, lists and watches without any quota, beside kube-apiserver; memory and restart of a full server.

use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use serde_json::json;

use super::http::JSON;
use super::load::{self, Stop, Work};
use super::options::Options;
use super::servers::Server;
use super::{
    Figures, Row, create_pods, make_namespace, measure, micros, pods_path, print_figures, print_head, watchers,
};
use crate::probe::{Disk, median};

const CONNECTIONS: [usize; 3] = [1, 16, 64];
const ONE: usize = 0;
const MANY: usize = 2;

/// Connections that fill a server for what is measured next.
const FILL_CONNECTIONS: usize = 64;

pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    super::run(arguments, benchmark)
}

async fn benchmark(options: &Options) -> anyhow::Result<()> {
    let disk = Disk::new()?;
    let mut servers = vec![Server::bursar(&options.bursar)?];
    if options.peers {
        let kube = Server::kube().await?;
        let over_etcd = Server::bursar_over(&options.bursar, &kube)?;
        servers.extend([kube, over_etcd]);
    }
    let mut figures = creates(&servers, &disk, options).await?;
    // What is read comes from memory, wherever it is stored.
    servers.truncate(2);
    figures.extend(lists(&servers, options).await?);
    figures.extend(fan_out(&servers, options).await?);
    drop(servers);
    if options.objects > 0 {
        figures.extend(full(options).await?);
    }
    print_figures(&figures);
    Ok(())
}

async fn creates(servers: &[Server], disk: &Disk, options: &Options) -> anyhow::Result<Figures> {
    println!("pods by generateName over TLS, one namespace a run, no quota; durable before the answer on both sides");
    print_head();
    let mut table: Vec<[Vec<Row>; CONNECTIONS.len()]> = servers.iter().map(|_| Default::default()).collect();
    for round in 1..=options.rounds {
        for (column, &connections) in CONNECTIONS.iter().enumerate() {
            for (server, rows) in servers.iter().zip(&mut table) {
                let namespace = format!("plain-{round}-{connections}");
                make_namespace(&mut server.target.connect().await?, &namespace).await?;
                rows[column].push(measure(server, disk, round, &namespace, connections, options.run).await?);
            }
        }
    }
    println!("\nmedian of {} rounds", options.rounds);
    for (server, rows) in servers.iter().zip(&table) {
        for (column, connections) in CONNECTIONS.iter().enumerate() {
            println!(
                "{:<15} {connections:>2} connections: {:>7.0} creates/s, p50 {:>6.0} µs, p99 {:>6.0} µs",
                server.name,
                median(rows[column].iter().map(|row| row.rate)),
                median(rows[column].iter().map(|row| micros(row.p50))),
                median(rows[column].iter().map(|row| micros(row.p99))),
            );
        }
    }
    let [ours, theirs, over_etcd] = table.as_slice() else { return Ok(Vec::new()) };
    let mut figures = Figures::new();
    for (rows, suffix) in [(ours, ""), (over_etcd, "_etcd")] {
        let faster = median(rows[MANY].iter().zip(&theirs[MANY]).map(|(ours, theirs)| ours.rate / theirs.rate));
        let waits = rows[ONE].iter().zip(&theirs[ONE]).map(|(ours, theirs)| micros(ours.p50) / micros(theirs.p50));
        figures.push((format!("creates64{suffix}_vs_kube"), format!("{faster:.2}")));
        figures.push((format!("p50_1{suffix}_vs_kube"), format!("{:.3}", median(waits))));
    }
    Ok(figures)
}

async fn lists(servers: &[Server], options: &Options) -> anyhow::Result<Figures> {
    println!("\nlist of {} pods", options.listed);
    for server in servers {
        make_namespace(&mut server.target.connect().await?, "listed").await?;
        create_pods(&server.target, "listed", FILL_CONNECTIONS, Stop::Requests(options.listed)).await?;
    }
    let mut times: Vec<Vec<f64>> = servers.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds {
        for (server, times) in servers.iter().zip(&mut times) {
            let mut connection = server.target.connect().await?;
            let started = Instant::now();
            let body = connection.get(&pods_path("listed"), JSON).await?;
            let time = started.elapsed();
            println!("{:<15} {:>7.1} ms {:>10} bytes", server.name, time.as_secs_f64() * 1e3, body.len());
            times.push(time.as_secs_f64());
        }
    }
    let [ours, theirs] = times.as_slice() else { return Ok(Vec::new()) };
    let ratio = median(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs));
    Ok(vec![("list10k_vs_kube".into(), format!("{ratio:.3}"))])
}

async fn fan_out(servers: &[Server], options: &Options) -> anyhow::Result<Figures> {
    println!("\none create, {} watchers: time until the last of them saw it", options.watchers);
    let mut medians: Vec<Vec<f64>> = servers.iter().map(|_| Vec::new()).collect();
    for round in 1..=options.rounds {
        for (server, medians) in servers.iter().zip(&mut medians) {
            let times = watchers::fan_out(&server.target, &format!("watched-{round}"), options.watchers).await;
            let times = times.with_context(|| format!("{} with {} watchers", server.name, options.watchers))?;
            let time = median(times.iter().map(Duration::as_secs_f64));
            println!("{:<15} {:>7.1} ms", server.name, time * 1e3);
            medians.push(time);
        }
    }
    let [ours, theirs] = medians.as_slice() else { return Ok(Vec::new()) };
    let ratio = median(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs));
    Ok(vec![("fanout1k_vs_kube".into(), format!("{ratio:.3}"))])
}

/// A server of its own with many objects: what it needs, and how soon it is back.
async fn full(options: &Options) -> anyhow::Result<Figures> {
    let count = options.objects;
    println!("\n{count} stored objects (ConfigMaps with one small entry)");
    let mut server = Server::bursar(&options.bursar)?;
    make_namespace(&mut server.target.connect().await?, "full").await?;
    let empty = server.resident_bytes()?;
    let body = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"generateName": "settings-", "labels": {"app": "web"}}, "data": {"stage": "production"},
    });
    let body = Bytes::from(body.to_string());
    let work = move |_| Work { path: "/api/v1/namespaces/full/configmaps".into(), body: body.clone(), class: 0 };
    let filled = load::run(&server.target, FILL_CONNECTIONS, Stop::Requests(count), 1, work).await?;
    let resident = server.resident_bytes()?;
    println!("filled in {:.1} s", filled.elapsed.as_secs_f64());
    println!("memory after filling: {} MiB ({} MiB when empty)", resident >> 20, empty >> 20);
    println!("on disk: {} MiB", server.stored_bytes()? >> 20);
    let restart = server.restart_bursar(&options.bursar)?;
    let again = server.resident_bytes()?;
    println!("restart until ready: {:.2} s; memory then: {} MiB", restart.as_secs_f64(), again >> 20);
    Ok(vec![
        ("bytes_per_object".into(), (resident.saturating_sub(empty) / count).to_string()),
        ("restart_seconds".into(), format!("{:.2}", restart.as_secs_f64())),
    ])
}
