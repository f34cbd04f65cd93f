//! `bursar bench stall`: how long anybody waits while something large happens to what is stored. Clients create pods in some
//! namespaces; meanwhile a quota is put over all pods there are, a namespace with a third of them is relabelled, the ledger is
//! audited, the quota is deleted; and what counts many claims is changed. What the quotas say right after is compared with a count
//! of our own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use quantity::Quantity;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::http::{Connection, Target};
use super::load::{self, Stop, Work};
use super::options::Options;
use super::servers::Server;
use super::{Figures, generated_pod, pod, pods_path, print_figures};

mod claims;

/// Connections that fill the server.
const FILL_CONNECTIONS: usize = 64;

/// Namespaces that are filled; the first has a third of the pods.
const FILLED: u64 = 12;
const LARGEST: &str = "full-0";

/// Who creates while something happens, each in a namespace of its own.
const CLIENTS: usize = 16;

/// How long nothing happens, to see what the machine adds.
const IDLE: Duration = Duration::from_secs(10);

/// By when a server has begun its first audit of itself. The next one comes ten minutes later.
const AUDITED: Duration = Duration::from_secs(65);
/// Creates of each client before it is measured: its connection is open, its namespace known, what it needs is warm.
const WARM: u64 = 20;

const QUOTAS: &str = "/apis/quota.openshift.io/v1/clusterresourcequotas";

pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    super::run(arguments, benchmark)
}

async fn benchmark(options: &Options) -> anyhow::Result<()> {
    let server = Server::bursar(&options.bursar)?;
    let started = Instant::now();
    let mut bench = Bench::fill(&server.target, options).await?;
    let claims = bench.fill_claims(options).await?;
    bench.await_first_audit(started).await?;
    println!("{CLIENTS} clients create pods in other namespaces; the worst wait of any of them, in ms");
    println!("{:<17} {:>12} {:>9} {:>12} {:>9} {:>16}", "", "took ms", "creates", "worst ms", "at ms", "of it sync ms");

    // As long as the others take: a machine that stands still now and then does so here, too.
    let idle = bench
        .during("idle", async |_| {
            tokio::time::sleep(IDLE).await;
            Ok(())
        })
        .await?;
    let install = bench
        .during("install", async |bench| {
            let everywhere = json!({"matchExpressions": [{"key": "left-out", "operator": "DoesNotExist"}]});
            bench.connection.create(QUOTAS, quota("everywhere", &everywhere)).await?;
            bench.check_everywhere().await
        })
        .await?;
    bench.check_everywhere().await?;
    let relabel = bench
        .during("relabel", async |bench| {
            for (team, expected) in [(json!("blue"), bench.largest), (Value::Null, 0)] {
                let labels = json!({"metadata": {"labels": {"team": team}}});
                bench.connection.merge_patch(&format!("/api/v1/namespaces/{LARGEST}"), &labels).await?;
                bench.check("blue", expected, expected).await?;
            }
            Ok(())
        })
        .await?;
    let audit = bench.during("audit", async |bench| bench.audit().await).await?;
    let delete =
        bench.during("delete", async |bench| bench.connection.delete(&format!("{QUOTAS}/everywhere")).await).await?;
    bench.audit().await?;

    let mut phases =
        vec![("idle", idle), ("install", install), ("relabel", relabel), ("audit", audit), ("delete", delete)];
    phases.extend(bench.move_claims(&claims).await?);
    let figure =
        |(phase, worst): (&str, Duration)| (format!("worst_stall_ms_{phase}"), format!("{:.1}", millis(worst)));
    print_figures(&phases.into_iter().map(figure).collect::<Figures>());
    Ok(())
}

/// A full server, and what is known to be on it.
struct Bench {
    target: Target,
    connection: Connection,
    counts: Arc<Counts>,
    largest: u64,
    /// Before and after what is done, others create for this long.
    around: Duration,
}

/// Pods that were asked for, and those that were acknowledged.
#[derive(Default)]
struct Counts {
    asked: AtomicU64,
    made: AtomicU64,
}

/// One create: how long it took, and when it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Wait {
    lasted: Duration,
    asked: Instant,
}

impl Wait {
    fn none(asked: Instant) -> Wait {
        Wait { lasted: Duration::ZERO, asked }
    }
}

impl Bench {
    async fn fill(target: &Target, options: &Options) -> anyhow::Result<Bench> {
        let mut connection = target.connect().await?;
        let clients = (0..CLIENTS).map(calm);
        for name in (0..FILLED).map(full).chain(clients) {
            super::make_namespace(&mut connection, &name).await?;
        }
        connection.create(QUOTAS, quota("blue", &json!({"matchLabels": {"team": "blue"}}))).await?;
        let pods = options.pods;
        let body = pod(json!({"generateName": "web-"}));
        // Every third goes into the first, the others go round the rest.
        let place = |number: u64| if number.is_multiple_of(3) { 0 } else { 1 + number % (FILLED - 1) };
        let largest = pods.div_ceil(3);
        let work = move |number| Work { path: pods_path(&full(place(number))), body: body.clone(), class: 0 };
        let filled = load::run(target, FILL_CONNECTIONS, Stop::Requests(pods), 1, work).await?;
        println!(
            "{pods} pods in {FILLED} namespaces, {largest} of them in one; made in {:.1} s",
            filled.elapsed.as_secs_f64()
        );
        let counts = Counts { asked: pods.into(), made: pods.into() };
        Ok(Bench { target: target.clone(), connection, counts: Arc::new(counts), largest, around: options.run / 4 })
    }

    /// Waits until the server has audited itself for the first time: that belongs to no phase.
    async fn await_first_audit(&mut self, started: Instant) -> anyhow::Result<()> {
        tokio::time::sleep(AUDITED.saturating_sub(started.elapsed())).await;
        // It has been silent for so long.
        self.connection = self.target.connect().await?;
        // One audit at a time: when this one is answered, the other is over.
        self.audit().await
    }

    /// Does something while clients create, and returns the longest that any of them waited.
    async fn during(
        &mut self,
        phase: &str,
        action: impl AsyncFnOnce(&mut Bench) -> anyhow::Result<()>,
    ) -> anyhow::Result<Duration> {
        let ended = Arc::new(AtomicBool::new(false));
        let mut clients = JoinSet::new();
        let (ready, mut warm) = tokio::sync::mpsc::channel::<()>(1);
        for number in 0..CLIENTS {
            let connection = self.target.connect().await?;
            let (ended, counts) = (Arc::clone(&ended), Arc::clone(&self.counts));
            clients.spawn(client(connection, pods_path(&calm(number)), ended, counts, ready.clone()));
        }
        drop(ready);
        // Until the last of them lets go of it.
        let _ = warm.recv().await;
        let before = self.counts.made.load(Ordering::Relaxed);
        let synced_before = self.synced().await?;
        tokio::time::sleep(self.around).await;
        let begun = Instant::now();
        action(self).await.with_context(|| format!("while others create: {phase}"))?;
        let took = begun.elapsed();
        tokio::time::sleep(self.around).await;
        ended.store(true, Ordering::Relaxed);
        let mut worst = Wait::none(begun);
        while let Some(client) = clients.join_next().await {
            worst = worst.max(client??);
        }
        let creates = self.counts.made.load(Ordering::Relaxed) - before;
        let sync = longest(&synced_before, &self.synced().await?);
        // Below zero where it was before anything happened.
        let at =
            millis(worst.asked.saturating_duration_since(begun)) - millis(begun.saturating_duration_since(worst.asked));
        println!("{phase:<17} {:>12.1} {creates:>9} {:>12.1} {at:>9.0} {sync:>16}", millis(took), millis(worst.lasted));
        Ok(worst.lasted)
    }

    /// How many groups of writes were durable within each bound, as the server counts them.
    async fn synced(&mut self) -> anyhow::Result<Vec<(String, u64)>> {
        let metrics = self.connection.get("/metrics", "text/plain").await?;
        let lines = std::str::from_utf8(&metrics)?.lines();
        let buckets = lines.filter_map(|line| line.strip_prefix("bursar_commit_duration_seconds_bucket{le=\""));
        let bucket = |line: &str| {
            let (bound, count) = line.split_once("\"} ")?;
            Some((bound.to_owned(), count.trim().parse().ok()?))
        };
        buckets.map(|line| bucket(line).with_context(|| format!("a bucket that cannot be read: {line}"))).collect()
    }

    /// The quota over everything counts every pod: all that were acknowledged when it was asked, and none that were not even
    /// begun when it answered. Where nobody creates that is one number.
    async fn check_everywhere(&mut self) -> anyhow::Result<()> {
        let made = self.counts.made.load(Ordering::Relaxed);
        let used = self.used("everywhere").await?;
        let asked = self.counts.asked.load(Ordering::Relaxed);
        ensure!((made..=asked).contains(&used), "used {used}, but there are {made} to {asked} pods");
        Ok(())
    }

    async fn check(&mut self, quota: &str, least: u64, most: u64) -> anyhow::Result<()> {
        let used = self.used(quota).await?;
        ensure!((least..=most).contains(&used), "{quota}: used {used}, but there are {least} to {most} pods");
        Ok(())
    }

    async fn used(&mut self, quota: &str) -> anyhow::Result<u64> {
        let quota = self.connection.get_json(&format!("{QUOTAS}/{quota}")).await?;
        let used = quota.pointer("/status/total/used/pods").and_then(Value::as_str);
        let used = used.with_context(|| format!("a quota that does not say what is used: {quota}"))?;
        // A round number is written short: 20k.
        let nanos = Quantity::parse(used)?.amount().nanos();
        Ok(u64::try_from(nanos / 1_000_000_000)?)
    }

    async fn audit(&mut self) -> anyhow::Result<()> {
        let audit = self.connection.get_json("/debug/audit").await?;
        let differences = audit["differences"].as_array().context("an audit without differences")?;
        ensure!(differences.is_empty(), "the audit found {differences:?}");
        Ok(())
    }
}

/// Within which bound the longest of the groups since then was durable, in ms.
fn longest(before: &[(String, u64)], after: &[(String, u64)]) -> String {
    let all = |buckets: &[(String, u64)]| buckets.last().map_or(0, |(_, count)| *count);
    let groups = all(after) - all(before);
    let within = before.iter().zip(after).find(|((_, before), (_, after))| after - before == groups);
    match within.and_then(|(_, (bound, _))| bound.parse::<f64>().ok()) {
        Some(seconds) if seconds.is_finite() => format!("≤ {}", seconds * 1e3),
        _ => "longer".to_owned(),
    }
}

/// Creates until it is over; the longest that one create took.
async fn client(
    mut connection: Connection,
    path: String,
    ended: Arc<AtomicBool>,
    counts: Arc<Counts>,
    warming: tokio::sync::mpsc::Sender<()>,
) -> anyhow::Result<Wait> {
    let body = generated_pod();
    for _ in 0..WARM {
        counts.asked.fetch_add(1, Ordering::Relaxed);
        connection.create(&path, body.clone()).await?;
        counts.made.fetch_add(1, Ordering::Relaxed);
    }
    drop(warming);
    let mut worst = Wait::none(Instant::now());
    while !ended.load(Ordering::Relaxed) {
        counts.asked.fetch_add(1, Ordering::Relaxed);
        let asked = Instant::now();
        connection.create(&path, body.clone()).await?;
        worst = worst.max(Wait { lasted: asked.elapsed(), asked });
        counts.made.fetch_add(1, Ordering::Relaxed);
    }
    Ok(worst)
}

fn full(number: u64) -> String {
    format!("full-{number}")
}

fn calm(number: usize) -> String {
    format!("calm-{number}")
}

/// A quota that nothing here exhausts.
fn quota(name: &str, labels: &Value) -> Bytes {
    let hard = json!({"pods": "100000000", "requests.cpu": "100000000", "requests.memory": "1Ei"});
    let quota = json!({
        "apiVersion": "quota.openshift.io/v1", "kind": "ClusterResourceQuota", "metadata": {"name": name},
        "spec": {"selector": {"labels": labels}, "quota": {"hard": hard}},
    });
    Bytes::from(quota.to_string())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
