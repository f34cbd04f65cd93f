//! What is done again and again beside the decisions: statuses are brought up to date, and what was granted and not seen is looked
//! for.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use http::Method;
use kube::Client;
use ledger::SubjectId;
use sequencer::Handle;

use crate::cluster::{call, found, served};
use crate::core::{Answer, Command, LookFor};
use crate::push::Directory;
use crate::registration;
use crate::run::now_ms;
use crate::sight::version_of;

/// How often statuses and moments are looked at.
const STATUS: Duration = Duration::from_millis(200);
/// How often holds are looked at, and how long one is left alone at least.
const LOOK: Duration = Duration::from_millis(500);
const LEFT_ALONE_MS: i64 = 1_000;

/// When statuses have to be brought up to date.
pub struct Clock {
    pub stale: AtomicBool,
    pub due_ms: AtomicI64,
}

pub async fn keep_statuses(core: Handle<Command, Answer>, clock: Arc<Clock>) {
    let mut ticks = tokio::time::interval(STATUS);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let is_due = clock.due_ms.load(Ordering::Acquire) <= now_ms();
        if !clock.stale.swap(false, Ordering::AcqRel) && !is_due {
            continue;
        }
        while let Ok(Answer::Published(left)) = core.submit(Command::Publish { now_ms: now_ms() }).await
            && left > 0
        {}
    }
}

/// Looks for what was granted and not seen.
pub async fn settle(client: Client, directory: Directory, core: Handle<Command, Answer>) {
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = now_ms();
        let overdue = core.submit(Command::Overdue { before_ms: now - LEFT_ALONE_MS, now_ms: now }).await;
        let Ok(Answer::Overdue(overdue)) = overdue else { return };
        if overdue.is_empty() {
            continue;
        }
        let Ok(others) = call(&client, Method::GET, registration::CONFIGURATIONS, None).await else { continue };
        for looked_for in overdue {
            // Another webhook may still be asked, for as long as it may take.
            let others_ms = registration::longest_ms(&others, &looked_for.key.resource);
            if now - looked_for.since_ms < others_ms + LEFT_ALONE_MS {
                continue;
            }
            match look(&client, &directory, &looked_for).await {
                Ok(found) => {
                    let command = Command::Found { looked_for, found, now_ms: now_ms() };
                    if core.submit(command).await.is_err() {
                        return;
                    }
                }
                Err(error) => tracing::warn!(key = %looked_for.key, %error, "what is held for could not be looked for"),
            }
        }
    }
}

async fn look(
    client: &Client,
    directory: &Directory,
    looked_for: &LookFor,
) -> Result<Option<(SubjectId, u64)>, kube::Error> {
    let key = &looked_for.key;
    let known = directory.read().unwrap_or_else(PoisonError::into_inner).get(&key.resource).cloned();
    let served = match known {
        Some(served) => served,
        None => match served(client, &key.resource).await? {
            Some(served) => served,
            // A kind that is gone has no objects.
            None => return Ok(None),
        },
    };
    let object = found(call(client, Method::GET, &served.path(&key.namespace, &key.name), None).await)?;
    Ok(object.and_then(|object| {
        let uid = object["metadata"]["uid"].as_str().and_then(engine::parse_uid)?;
        Some((uid, version_of(&object).ok()?))
    }))
}
