//! Writes objects again that are stored otherwise than the configuration of encryption says: after encryption was switched on or
//! off, or a new key was put first. Behind the others, and without a change that anybody sees.

use std::time::Duration;

use sequencer::Handle;
use store::Maintenance;

use crate::core::{Answer, Command};

/// Before it is tried again on a full disk.
const FULL_RETRY: Duration = Duration::from_secs(5);

/// Between two looks at a compaction under way.
const COMPACTION_POLL: Duration = Duration::from_millis(200);

pub async fn run(writes: Handle<Command, Answer>, outdated: usize, maintenance: Option<Maintenance>) {
    tracing::info!(objects = outdated, "storing objects again, as the encryption configuration says");
    let mut left = outdated;
    while left > 0 {
        // The sequencer has ended; so does everything else.
        let Ok(Answer::Encrypted { remaining }) = writes.submit(Command::Encrypt).await else { return };
        if remaining == left {
            tokio::time::sleep(FULL_RETRY).await;
        }
        left = remaining;
    }
    // What they were before is in the log until it is compacted.
    if let Some(maintenance) = maintenance {
        maintenance.compact();
        while maintenance.is_compacting() {
            if maintenance.waits_for_commit() && writes.submit(Command::Encrypt).await.is_err() {
                return;
            }
            tokio::time::sleep(COMPACTION_POLL).await;
        }
    }
    tracing::info!(objects = outdated, "every object is stored as the encryption configuration says");
}
