//! Publishes what the ledger knows into the status of policies, behind the writes and never on their way; and tells the
//! engine the time when something is due by it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sequencer::Handle;

use crate::api::system_clock;
use crate::core::{Answer, Cache, Command, PUBLISHED_MAX};

/// Between two looks: usage shown to watchers is at most this old unless many quotas are busy, and a busy quota costs at most four writes a second.
const INTERVAL: Duration = Duration::from_millis(250);
/// So many times as long as a step takes belong to others.
const REST: u32 = 4;

pub async fn publish(writes: Handle<Command, Answer>, cache: Arc<Cache>) {
    let mut tick = tokio::time::interval(INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if !cache.take_stale_status() && !cache.is_due(system_clock()) {
            continue;
        }
        // A step writes so many at most, to let others in between. What became stale meanwhile waits for the next look.
        let mut steps = 1;
        let mut done = 0;
        while done < steps {
            let begun = Instant::now();
            let answer = writes.submit(Command::PublishStatus { now_ms: system_clock() }).await;
            // The sequencer has ended; so does everything else.
            let Ok(Answer::Published { remaining, served }) = answer else { return };
            if done == 0 {
                steps += remaining.div_ceil(PUBLISHED_MAX);
            }
            if remaining == 0 {
                break;
            }
            done += 1;
            // However many there are: half of the time is for others, and most of it where nobody waits to be told.
            let rest = if served > 0 { 1 } else { REST };
            tokio::time::sleep((rest * begun.elapsed()).min(INTERVAL)).await;
        }
    }
}
