//! Owners and dependents: what nobody owns any longer is removed, what is orphaned is let go.
//!
//! One watch a resource feeds a graph of owners. Only objects that have owners or are being deleted are kept in it: most
//! objects are neither, and there may be a million of them. New resources (a CustomResourceDefinition) are found by
//! asking discovery again when one of its definitions changes.

mod graph;
#[cfg(test)]
mod tests;
mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use kube::core::ApiResource;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};

use crate::glance::Kin;
use crate::resources::{self, Found};
use graph::{Graph, Seen};

/// How often discovery is asked for resources that appeared.
const DISCOVER_EVERY: Duration = Duration::from_secs(2);
/// How often those that failed, or were waiting for others, are looked through for some that have rested long enough.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// How many of them are tried again then. Each may cost as much as a request that is refused.
const RETRIED_MAX: usize = 10;

pub async fn run(client: Client) {
    let mut graph = Graph::default();
    let mut events: SelectAll<BoxStream<'static, Seen>> = SelectAll::new();
    let mut discover = tokio::time::interval(DISCOVER_EVERY);
    let mut retry = tokio::time::interval(RETRY_EVERY);
    loop {
        tokio::select! {
            _ = discover.tick() => {
                let Ok(found) = resources::deletable(&client).await else { continue };
                for one in found.into_iter().filter(|one| !is_noise(&one.api)) {
                    if !graph.watched.iter().any(|known| **known == one) {
                        let one = Arc::new(one);
                        events.push(watch(&client, one.clone()));
                        graph.watched.push(one);
                    }
                }
            }
            Some(seen) = events.next(), if !events.is_empty() => {
                graph.take(seen);
                // Whatever else is there already is taken first, so that an owner and its dependents are seen together.
                while let Some(Some(seen)) = futures::FutureExt::now_or_never(events.next()) {
                    graph.take(seen);
                }
                graph.work(&client).await;
            }
            _ = retry.tick() => {
                let due = graph.resting.take_due(Instant::now(), RETRIED_MAX);
                graph.pending.extend(due);
                graph.work(&client).await;
            }
        }
    }
}

/// Resources that are written often and never own or are owned.
fn is_noise(api: &ApiResource) -> bool {
    matches!((api.group.as_str(), api.plural.as_str()), ("", "events") | ("coordination.k8s.io", "leases"))
}

fn watch(client: &Client, found: Arc<Found>) -> BoxStream<'static, Seen> {
    let api = Api::<Kin>::all_with(client.clone(), &found.api);
    watcher(api, watcher::Config::default())
        .default_backoff()
        .filter_map(move |event| {
            let seen = match event {
                Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                    Some(Seen::Changed(found.clone(), Box::new(object.metadata)))
                }
                Ok(watcher::Event::Delete(Kin { metadata })) => metadata.uid.map(Seen::Gone),
                Ok(watcher::Event::Init) => Some(Seen::Listing(found.clone())),
                Ok(watcher::Event::InitDone) => Some(Seen::Listed(found.clone())),
                Err(_) => None,
            };
            std::future::ready(seen)
        })
        .boxed()
}
