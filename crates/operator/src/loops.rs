//! What is done again and again beside the decisions: statuses are brought up to date, and what was granted and not seen is looked
//! for.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use engine::ObjectKey;
use futures::StreamExt as _;
use http::Method;
use kube::Client;
use ledger::SubjectId;
use rules::GroupResource;
use sequencer::Handle;
use serde_json::Value;

use crate::cluster::{call, found, served};
use crate::core::{Answer, Command, LookFor};
use crate::push::Directory;
use crate::registration;
use crate::run::now_ms;
use crate::sent::Named;

/// How often statuses and moments are looked at.
const STATUS: Duration = Duration::from_millis(200);
/// How often holds are looked at, and how long one is left alone at least.
const LOOK: Duration = Duration::from_millis(500);
const LEFT_ALONE_MS: i64 = 1_000;
/// Looks under way at a time.
const LOOKS_MAX: usize = 16;

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
        let Ok(others) = Others::ask(&client, &overdue).await else { continue };
        // Another webhook may still be asked, and the object converted, for as long as that may take.
        let is_late = |one: &LookFor| now - one.since_ms >= others.longest_ms(&one.key.resource) + LEFT_ALONE_MS;
        // One look says what became of all that have a name.
        let mut by_name: BTreeMap<ObjectKey, Vec<LookFor>> = BTreeMap::new();
        for one in overdue.into_iter().filter(is_late) {
            by_name.entry(one.key.clone()).or_default().push(one);
        }
        // Whoever does not answer keeps nobody else waiting.
        let looks = by_name.into_iter().map(|(key, all)| {
            let (client, directory) = (&client, &directory);
            async move { (look(client, directory, &key).await, key, all) }
        });
        let mut looks = futures::stream::iter(looks).buffer_unordered(LOOKS_MAX);
        while let Some((found, key, all)) = looks.next().await {
            match found {
                Ok(found) => {
                    for looked_for in all {
                        let command = Command::Found { looked_for, found, now_ms: now_ms() };
                        if core.submit(command).await.is_err() {
                            return;
                        }
                    }
                }
                Err(error) => tracing::warn!(%key, %error, "what is held for could not be looked for"),
            }
        }
    }
}

/// Who may still have a say in a write that was granted here.
pub struct Others {
    webhooks: Value,
    /// Kinds that somebody converts on their way to where they are stored.
    converted: HashSet<GroupResource>,
}

impl Others {
    pub async fn ask(client: &Client, overdue: &[LookFor]) -> Result<Others, kube::Error> {
        let webhooks = call(client, Method::GET, registration::CONFIGURATIONS, None).await?;
        let resources: BTreeSet<&GroupResource> = overdue.iter().map(|one| &one.key.resource).collect();
        let mut converted = HashSet::new();
        // Only kinds in groups with a dot are defined by somebody.
        for resource in resources.into_iter().filter(|resource| resource.group.contains('.')) {
            let path = format!("{}/{}.{}", registration::DEFINITIONS, resource.resource, resource.group);
            let definition: Option<Value> = found(call(client, Method::GET, &path, None).await)?;
            if definition.is_some_and(|definition| registration::is_converted(&definition)) {
                converted.insert(resource.clone());
            }
        }
        Ok(Others { webhooks, converted })
    }

    pub fn longest_ms(&self, resource: &GroupResource) -> i64 {
        let conversion_ms = if self.converted.contains(resource) { registration::CONVERSION_MS } else { 0 };
        registration::longest_ms(&self.webhooks, resource) + conversion_ms
    }
}

/// What is there under a name: its uid and version.
async fn look(
    client: &Client,
    directory: &Directory,
    key: &ObjectKey,
) -> Result<Option<(SubjectId, u64)>, kube::Error> {
    let known = directory.read().unwrap_or_else(PoisonError::into_inner).get(&key.resource).cloned();
    let served = match known {
        Some(served) => served,
        None => match served(client, &key.resource).await? {
            Some(served) => served,
            // A kind that is gone has no objects.
            None => return Ok(None),
        },
    };
    let there: Option<Named> = found(call(client, Method::GET, &served.path(&key.namespace, &key.name), None).await)?;
    Ok(there.and_then(|there| {
        let uid = there.metadata.uid.as_deref().and_then(engine::parse_uid)?;
        Some((uid, there.metadata.resource_version?.parse().ok()?))
    }))
}
