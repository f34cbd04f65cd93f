//! The auditor: works out again from the stored objects what ledger, kept objects and statuses must say, now and then and
//! whenever asked, and tells what differs. The engine only hands out a snapshot; the counting is done beside it.

use std::sync::Arc;
use std::time::Duration;

use sequencer::Handle;
use tokio::sync::Mutex;

use crate::core::{Answer, AuditReport, Command, Snapshot};
use crate::metrics::Metrics;

/// Between two audits. One costs a parse of every counted object, on a thread of its own.
const INTERVAL: Duration = Duration::from_secs(600);
/// From the start to the first.
const FIRST: Duration = Duration::from_secs(60);

/// How far the audit stands back: others come first, but under full load it still has a tenth of a processor. At the very back it
/// never came to its end while everybody else was busy, and who asked for it was told so after a minute.
const NICE: i32 = 5;

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

/// Counts on a thread of its own, to which all others come first: it takes seconds, and nobody waits for it.
async fn count(snapshot: Box<Snapshot>) -> Result<AuditReport, String> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let work = move || {
        if let Err(error) = rustix::process::nice(NICE) {
            tracing::debug!(%error, "the audit takes its turn like all others");
        }
        // Nobody listens any more when the server stops.
        drop(tell.send(snapshot.audit()));
    };
    std::thread::Builder::new().name("audit".into()).spawn(work).map_err(|error| error.to_string())?;
    told.await.map_err(|_| "the audit did not come to its end".to_owned())
}

/// Audits once, and tells the log and the metrics. `Err` when the server is on its way out.
pub(crate) async fn audit(writes: &Handle<Command, Answer>, metrics: &Metrics) -> Result<AuditReport, String> {
    let _turn = TURN.lock().await;
    let snapshot = match writes.submit(Command::Snapshot).await {
        Ok(Answer::Snapshot(snapshot)) => snapshot,
        Ok(other) => return Err(format!("a snapshot was answered with {other:?}")),
        Err(_) => return Err("the server stops".into()),
    };
    let report = count(snapshot).await?;
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
