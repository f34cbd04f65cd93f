//! The auditor: works out again from the stored objects what ledger, kept objects and statuses must say, now and then and
//! whenever asked, and tells what differs. The engine only hands out a snapshot; the counting is done beside it.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use sequencer::Handle;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::core::{Answer, AuditReport, Command, Snapshot};
use crate::metrics::Metrics;

/// Between two audits. One costs a parse of every counted object, on a thread of its own.
const INTERVAL: Duration = Duration::from_secs(600);
/// From the start to the first.
const FIRST: Duration = Duration::from_secs(60);

/// How far the audit stands back: others come first, but under full load it still has a tenth of a processor. At the very back it
/// never came to its end while everybody else was busy, and who asked for it was told so after a minute.
const NICE: i32 = 5;

/// How long it counts at a stretch, and then stands back while commands wait: on a machine with few processors it would be in their
/// way, however far back it stands.
const STRETCH: Duration = Duration::from_millis(1);
const BACK: Duration = Duration::from_millis(2);

/// One audit at a time: each holds on to a whole state while it counts, whether anybody still listens or not.
static TURN: LazyLock<Arc<Mutex<()>>> = LazyLock::new(Arc::default);

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

/// Works on a thread of its own, to which all others come first: it takes seconds, and nobody waits for it. The turn is that thread's
/// until it ends, even if whoever asked has gone: what it holds on to is as large as all that is stored.
async fn beside<T: Send + 'static>(
    turn: OwnedMutexGuard<()>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let work = move || {
        if let Err(error) = rustix::process::nice(NICE) {
            tracing::debug!(%error, "the audit takes its turn like all others");
        }
        let done = work();
        drop(turn);
        // Nobody listens any more when the server stops, or when whoever asked has gone.
        drop(tell.send(done));
    };
    std::thread::Builder::new().name("audit".into()).spawn(work).map_err(|error| error.to_string())?;
    told.await.map_err(|_| "the audit did not come to its end".to_owned())
}

fn count(snapshot: Box<Snapshot>, writes: &Handle<Command, Answer>) -> AuditReport {
    let mut begun = Instant::now();
    snapshot.audit_with(&mut || {
        if begun.elapsed() >= STRETCH {
            if writes.has_waiting() {
                std::thread::sleep(BACK);
            }
            begun = Instant::now();
        }
    })
}

/// Audits once, and tells the log and the metrics. `Err` when the server is on its way out.
pub(crate) async fn audit(writes: &Handle<Command, Answer>, metrics: &Metrics) -> Result<AuditReport, String> {
    let turn = TURN.clone().lock_owned().await;
    let snapshot = match writes.submit(Command::Snapshot).await {
        Ok(Answer::Snapshot(snapshot)) => snapshot,
        Ok(other) => return Err(format!("a snapshot was answered with {other:?}")),
        Err(_) => return Err("the server stops".into()),
    };
    let handle = writes.clone();
    let report = beside(turn, move || count(snapshot, &handle)).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_turn_lasts_as_long_as_the_work_even_if_whoever_asked_has_gone() {
        let turns: Arc<Mutex<()>> = Arc::default();
        let (tell, begun) = tokio::sync::oneshot::channel();
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let work = move || {
            tell.send(()).unwrap();
            wait.recv().unwrap();
        };
        let asked = tokio::spawn(beside(turns.clone().lock_owned().await, work));
        begun.await.unwrap();
        asked.abort();
        assert!(asked.await.unwrap_err().is_cancelled());
        assert!(turns.try_lock().is_err(), "the next one would hold on to another state beside it");
        go_on.send(()).unwrap();
        drop(turns.lock().await);
        let turn = turns.clone().lock_owned().await;
        assert_eq!(beside(turn, || 7).await, Ok(7));
        assert!(turns.try_lock().is_ok());
    }
}
