//! The auditor: works out again from the stored objects what ledger, kept objects and statuses must say, now and then and
//! whenever asked, and tells what differs. The engine only hands out a snapshot; the counting is done beside it.

use std::sync::Arc;
use std::time::Duration;

use sequencer::Handle;
use tokio::sync::Mutex;

use crate::core::{Answer, AuditReport, Command};
use crate::metrics::Metrics;

/// Between two audits. One costs a parse of every counted object, on a thread of its own.
const INTERVAL: Duration = Duration::from_secs(600);
/// From the start to the first.
const FIRST: Duration = Duration::from_secs(60);

/// One audit at a time: each holds on to a whole state while it counts.
static TURN: Mutex<()> = Mutex::const_new(());

pub async fn run(writes: Handle<Command, Answer>, metrics: Arc<Metrics>) {
    let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + FIRST, INTERVAL);
    loop {
        tick.tick().await;
        match audit(&writes, &metrics).await {
            Ok(_) => {}
            Err(why) => return tracing::debug!(why, "no more audits"),
        }
    }
}

/// Audits once, and tells the log and the metrics. `Err` when the server is on its way out.
pub(crate) async fn audit(writes: &Handle<Command, Answer>, metrics: &Metrics) -> Result<AuditReport, String> {
    let _turn = TURN.lock().await;
    let snapshot = match writes.submit(Command::Snapshot).await {
        Ok(Answer::Snapshot(snapshot)) => snapshot,
        Ok(other) => return Err(format!("a snapshot was answered with {other:?}")),
        Err(_) => return Err("the server stops".into()),
    };
    let report = tokio::task::spawn_blocking(move || snapshot.audit()).await.map_err(|error| error.to_string())?;
    metrics.audited(report.differing);
    for difference in &report.differences {
        tracing::error!(revision = report.revision, difference, "not what the stored objects add up to: a bug");
    }
    for broken in &report.broken {
        tracing::warn!(broken, "it refuses all it would look at");
    }
    for over in &report.over {
        tracing::warn!(%over, "over its limit");
    }
    let AuditReport { objects, accounts, differing, .. } = report;
    tracing::debug!(objects, accounts, differing, "audited");
    Ok(report)
}
