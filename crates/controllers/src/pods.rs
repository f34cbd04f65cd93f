//! One watch of all pods, shared by the controllers that count them or free what they used.

use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::{self, Store, store::Writer};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;

use crate::glance::PodGlance;

/// Changes that wait for one listener. When they are full the watch waits: no change is lost, and a watch that waits too
/// long is told to begin anew, which shows every pod again.
const WAITING_MAX: usize = 1024;

/// The watch before it runs: whoever wants to hear of changes says so first.
pub struct Pods {
    claimants: Store<PodGlance>,
    writer: Writer<PodGlance>,
    listeners: Vec<mpsc::Sender<Arc<PodGlance>>>,
}

impl Pods {
    pub fn new() -> Pods {
        let (claimants, writer) = reflector::store();
        Pods { claimants, writer, listeners: Vec::new() }
    }

    /// The pods that mount claims.
    pub fn claimants(&self) -> Store<PodGlance> {
        self.claimants.clone()
    }

    /// Every pod with an owner or with claims, as it is found and whenever it changes.
    pub fn changes(&mut self) -> impl futures::Stream<Item = Arc<PodGlance>> + use<> {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        self.listeners.push(sender);
        futures::stream::unfold(receiver, |mut receiver| async move {
            let pod = receiver.recv().await?;
            Some((pod, receiver))
        })
    }

    pub async fn run(mut self, client: Client) {
        let mut watch = watcher(Api::<PodGlance>::all(client), watcher::Config::default()).default_backoff().boxed();
        while let Some(event) = watch.next().await {
            let pod = match event {
                Ok(
                    watcher::Event::Apply(ref pod)
                    | watcher::Event::InitApply(ref pod)
                    | watcher::Event::Delete(ref pod),
                ) => pod,
                Ok(ref begin_or_end) => {
                    self.writer.apply_watcher_event(begin_or_end);
                    continue;
                }
                Err(error) => {
                    tracing::debug!(%error, "the watch of pods begins anew");
                    continue;
                }
            };
            // Volumes of a pod never change, so a pod without claims never enters.
            let claims = pod.claims().next().is_some();
            if !claims && pod.metadata.owner_references.is_none() {
                continue;
            }
            let seen = Arc::new(pod.clone());
            if claims && let Ok(event) = &event {
                self.writer.apply_watcher_event(event);
            }
            for listener in &self.listeners {
                // A listener that has ended needs nothing.
                let _ended = listener.send(seen.clone()).await;
            }
        }
    }
}

/// Whether the pod is over, or being deleted: it no longer counts as a replica.
pub fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Failed" | "Succeeded"))
}
