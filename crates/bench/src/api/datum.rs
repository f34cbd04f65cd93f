//! `bursar bench datum`: what a claim costs over a plain create, what an object costs that comes with one, and how soon a grant that
//! is raised serves the right ones of many that wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::http::{Connection, JSON, Target};
use super::load::{self, Stop, Work};
use super::options::Options;
use super::servers::Server;
use super::{Figures, make_namespace, micros, print_figures};
use crate::probe::median;

const API: &str = "/apis/quota.datumapis.com/v1alpha1";
const CPU: &str = "compute.example.com/cpu";
const FILL_CONNECTIONS: usize = 64;
/// Others who write while the grant is raised.
const OTHERS: usize = 4;
/// Namespaces of the project in which claims wait, and of the one in which they are made: there are at most 4000 in one.
const LINE_NAMESPACES: u64 = 40;
const COST_NAMESPACES: u64 = 128;
const WITHIN: Duration = Duration::from_secs(600);

pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    super::run(arguments, benchmark)
}

async fn benchmark(options: &Options) -> anyhow::Result<()> {
    let mut figures = costs(options).await?;
    figures.extend(raise(options).await?);
    print_figures(&figures);
    Ok(())
}

async fn make(connection: &mut Connection, path: &str, kind: &str, name: &str, spec: Value) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "quota.datumapis.com/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    connection.create(path, Bytes::from(object.to_string())).await
}

fn limits(namespace: &str, cpu: &str) -> Value {
    json!({
        "resourceRef": {"kind": "Project", "name": namespace},
        "limits": [{"name": CPU, "buckets": [{"value": cpu}]}],
    })
}

async fn project(connection: &mut Connection, namespace: &str, cpu: &str) -> anyhow::Result<()> {
    make_namespace(connection, namespace).await?;
    let path = format!("{API}/namespaces/{namespace}/resourcequotagrants");
    make(connection, &path, "ResourceQuotaGrant", "g", limits(namespace, cpu)).await
}

async fn define(connection: &mut Connection) -> anyhow::Result<()> {
    let spec = json!({"serviceRef": {"name": "compute"}, "resourceName": CPU, "unit": "cores"});
    make(connection, &format!("{API}/servicequotadefinitions"), "ServiceQuotaDefinition", "cpu", spec).await
}

fn claim(metadata: Value) -> Bytes {
    let object = json!({
        "apiVersion": "quota.datumapis.com/v1alpha1", "kind": "ResourceQuotaClaim", "metadata": metadata,
        "spec": {"resourceRef": {"kind": "Instance", "name": "i"}, "resources": [{"name": CPU, "quantity": "1"}]},
    });
    Bytes::from(object.to_string())
}

/// An object of the same size that nobody counts.
fn plain(kind: &str) -> Bytes {
    let object = json!({
        "apiVersion": "compute.example.com/v1", "kind": kind, "metadata": {"generateName": "i-"},
        "spec": {"resourceRef": {"kind": "Instance", "name": "i"}, "resources": [{"name": CPU, "quantity": "1"}]},
    });
    Bytes::from(object.to_string())
}

async fn kind(connection: &mut Connection, kind: &str) -> anyhow::Result<()> {
    let plural = format!("{}s", kind.to_lowercase());
    let object = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.compute.example.com")},
        "spec": {
            "group": "compute.example.com", "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    connection.create(path, Bytes::from(object.to_string())).await?;
    let (list, begun) = (format!("/apis/compute.example.com/v1/namespaces/cost/{plural}"), Instant::now());
    while connection.get(&list, JSON).await.is_err() {
        ensure!(begun.elapsed() < WITHIN, "{kind} is never served");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// One connection that goes round: a plain object, a claim, and an object that comes with a claim.
async fn costs(options: &Options) -> anyhow::Result<Figures> {
    let server = Server::bursar(&options.bursar)?;
    let mut connection = server.target.connect().await?;
    define(&mut connection).await?;
    project(&mut connection, "cost", "1M").await?;
    kind(&mut connection, "Plain").await?;
    kind(&mut connection, "Counted").await?;
    let policy = json!({
        "trigger": {"resource": {"apiVersion": "compute.example.com/v1", "kind": "Counted"}},
        "target": {"resourceClaimTemplate": {"spec": {"resources": [{"name": CPU, "quantity": "1"}]}}},
    });
    make(&mut connection, &format!("{API}/claimcreationpolicies"), "ClaimCreationPolicy", "counted", policy).await?;
    println!("one connection, creates in turn: a plain object, a claim, an object with its claim");
    println!("{:>5} {:>14} {:>14} {:>18}", "round", "p50 µs, plain", "p50 µs, claim", "p50 µs, with claim");
    spread(&mut connection, "cost", COST_NAMESPACES).await?;
    let works = [
        ("/apis/compute.example.com/v1", "plains", plain("Plain")),
        (API, "resourcequotaclaims", claim(json!({"generateName": "c-"}))),
        ("/apis/compute.example.com/v1", "counteds", plain("Counted")),
    ];
    let mut ratios: [Vec<f64>; 2] = Default::default();
    for round in 1..=options.rounds {
        let works = works.clone();
        let work = move |number: u64| {
            // The remainder is an index, so it fits.
            let class = (number % 3) as usize;
            let (api, plural, body) = &works[class];
            let namespace = of_project("cost", number / 3 % COST_NAMESPACES);
            Work { path: format!("{api}/namespaces/{namespace}/{plural}"), body: body.clone(), class }
        };
        let outcome = load::run(&server.target, 1, Stop::After(options.run), 3, work).await?;
        let p50: Vec<f64> = outcome.latencies.iter().map(|one| micros(one.at(50.0)).max(1.0)).collect();
        println!("{round:>5} {:>14.0} {:>14.0} {:>18.0}", p50[0], p50[1], p50[2]);
        ratios[0].push(p50[1] / p50[0]);
        ratios[1].push(p50[2] / p50[0]);
    }
    let [claim, with_claim] = ratios.map(|ratios| format!("{:.3}", median(ratios.into_iter())));
    Ok(vec![("claim_over_create".into(), claim), ("object_with_claim_over_create".into(), with_claim)])
}

/// A grant of nothing with many claims in line is raised to what the oldest of them want.
async fn raise(options: &Options) -> anyhow::Result<Figures> {
    let waiting = options.denied.max(2);
    let served = options.raised.clamp(1, waiting - 1);
    let server = Server::bursar(&options.bursar)?;
    let mut connection = server.target.connect().await?;
    define(&mut connection).await?;
    project(&mut connection, "line", "0").await?;
    spread(&mut connection, "line", LINE_NAMESPACES).await?;
    for number in 0..OTHERS {
        make_namespace(&mut connection, &other(number)).await?;
    }
    let path =
        |number: u64| format!("{API}/namespaces/{}/resourcequotaclaims", of_project("line", number % LINE_NAMESPACES));
    // The oldest are made one after the other, so that who they are is certain.
    for number in 0..served {
        connection
            .create(&path(number), claim(json!({"name": format!("old-{number}"), "labels": {"age": "old"}})))
            .await?;
    }
    let body = claim(json!({"generateName": "young-", "labels": {"age": "young"}}));
    let work = move |number| Work { path: path(number), body: body.clone(), class: 0 };
    load::run(&server.target, FILL_CONNECTIONS, Stop::Requests(waiting - served), 1, work).await?;
    println!("\n{waiting} claims wait; the grant is raised for the oldest {served}");
    // The first one has been silent for too long, where filling takes its time.
    let mut connection = server.target.connect().await?;

    let everywhere = format!("{API}/resourcequotaclaims");
    let list = connection.get_json(&format!("{everywhere}?limit=1")).await?;
    let version = list["metadata"]["resourceVersion"].as_str().context("a list without a version")?.to_owned();
    let watch = format!("{everywhere}?watch=true&resourceVersion={version}&labelSelector=age%3Dold");
    let mut watcher = server.target.connect().await?;
    let response = watcher.begin(Method::GET, &watch, (JSON, JSON), Bytes::new()).await?;
    let done = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..OTHERS)
        .map(|number| tokio::spawn(worst_write(server.target.clone(), other(number), Arc::clone(&done))))
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let begun = Instant::now();
    let grant = format!("{API}/namespaces/line/resourcequotagrants/g");
    let raised = json!({"spec": limits("line", &served.to_string())});
    let (patched, seen) = tokio::join!(connection.merge_patch(&grant, &raised), granted(response.into_body(), served));
    patched?;
    let took = seen?.duration_since(begun);
    done.store(true, Ordering::Relaxed);
    let mut worst = Duration::ZERO;
    for writer in writers {
        worst = worst.max(writer.await??);
    }
    // Those and nobody else.
    let project = connection.get_json(&format!("{API}/effectivequotagrants/project-line")).await?;
    let used = &project["status"]["resources"][0]["buckets"][0]["used"];
    ensure!(used.as_str() == Some(&*served.to_string()), "{used} are used, and not {served}");
    let (took_ms, worst_ms) = (took.as_secs_f64() * 1e3, worst.as_secs_f64() * 1e3);
    println!("all of them are told within {took_ms:.0} ms; the worst write of others meanwhile took {worst_ms:.1} ms");
    Ok(vec![
        ("raise_100k_ms".into(), format!("{took_ms:.0}")),
        ("raise_100k_worst_write_ms".into(), format!("{worst_ms:.1}")),
    ])
}

fn of_project(project: &str, number: u64) -> String {
    format!("{project}-{number}")
}

/// Gives a project so many more namespaces.
async fn spread(connection: &mut Connection, project: &str, namespaces: u64) -> anyhow::Result<()> {
    for number in 0..namespaces {
        let labels = json!({"resources.datumapis.com/project": project});
        let metadata = json!({"name": of_project(project, number), "labels": labels});
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        connection.create("/api/v1/namespaces", Bytes::from(body.to_string())).await?;
    }
    Ok(())
}

fn other(number: usize) -> String {
    format!("other-{number}")
}

/// When so many claims have been seen granted.
async fn granted(mut body: hyper::body::Incoming, wanted: u64) -> anyhow::Result<Instant> {
    let (mut line, mut seen) = (Vec::new(), std::collections::HashSet::new());
    let begun = Instant::now();
    loop {
        let frame = tokio::time::timeout(WITHIN.saturating_sub(begun.elapsed()), body.frame()).await;
        let frame = frame.with_context(|| format!("{} of {wanted} were granted in time", seen.len()))?;
        let Ok(data) = frame.context("the watch ended")??.into_data() else { continue };
        for part in data.split_inclusive(|&byte| byte == b'\n') {
            line.extend_from_slice(part);
            if !part.ends_with(b"\n") {
                continue;
            }
            let event: Value = serde_json::from_slice(&line)?;
            line.clear();
            if event["object"]["status"]["phase"] == "Granted" {
                seen.insert(event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned());
            }
            if seen.len() as u64 == wanted {
                return Ok(Instant::now());
            }
        }
    }
}

/// The longest that a create took until `done`.
async fn worst_write(target: Target, namespace: String, done: Arc<AtomicBool>) -> anyhow::Result<Duration> {
    let mut connection = target.connect().await?;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "m-"}, "data": {"a": "b"}});
    let (path, body) = (format!("/api/v1/namespaces/{namespace}/configmaps"), Bytes::from(body.to_string()));
    let mut worst = Duration::ZERO;
    while !done.load(Ordering::Relaxed) {
        let begun = Instant::now();
        connection.create(&path, body.clone()).await?;
        worst = worst.max(begun.elapsed());
    }
    Ok(worst)
}
