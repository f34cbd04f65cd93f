//! The auditor: recounts everything from the stored objects now and then, and says so when the ledger disagrees.

use std::sync::Arc;
use std::time::Duration;

use sequencer::Handle;

use crate::core::{Answer, Command};
use crate::metrics::Metrics;

/// Between two recounts. One costs a parse of every counted object, and what it looks for cannot happen.
const INTERVAL: Duration = Duration::from_secs(600);

pub async fn run(writes: Handle<Command, Answer>, metrics: Arc<Metrics>) {
    let mut tick = tokio::time::interval(INTERVAL);
    // The first tick is immediate; a fresh start has nothing to disagree about yet.
    tick.tick().await;
    loop {
        tick.tick().await;
        let answer = writes.submit(Command::Audit).await;
        if let Ok(Answer::Audited(result)) = &answer {
            // A recount that could not be finished is a difference as well.
            metrics.audited(result.as_ref().map_or(1, |report| report.differences.len()));
        }
        match answer {
            Ok(Answer::Audited(Ok(report))) if report.differences.is_empty() => {
                for over in &report.over {
                    tracing::warn!(%over, "over its limit");
                }
                tracing::debug!(
                    objects = report.objects,
                    accounts = report.accounts,
                    "the ledger agrees with the objects"
                );
            }
            Ok(Answer::Audited(result)) => tracing::error!(?result, "the ledger disagrees with the objects: a bug"),
            Ok(_) => {}
            // The sequencer has ended; so does everything else.
            Err(_) => return,
        }
    }
}
