//! One watch of all pods, shared by the controllers that count or look at them.

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use std::sync::Arc;
use tokio::sync::broadcast;
use tokio::task::JoinSet;

/// Pod changes a listener may be behind by; one that is further behind looks at everything again.
const BEHIND_MAX: usize = 4096;

/// All pods, and a signal for each change.
#[derive(Clone)]
pub struct Pods {
    pub store: Store<Pod>,
    changes: broadcast::Sender<Arc<Pod>>,
}

impl Pods {
    pub fn start(client: &Client, set: &mut JoinSet<()>) -> Pods {
        let (store, writer) = reflector::store();
        let (changes, _) = broadcast::channel(BEHIND_MAX);
        let pods = Pods { store, changes: changes.clone() };
        let watch = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default()).default_backoff();
        let stream = reflector::reflector(writer, watch).touched_objects();
        set.spawn(async move {
            stream
                .for_each(|pod| {
                    if let Ok(pod) = pod {
                        // Nobody may be listening at the moment.
                        let _ = changes.send(Arc::new(pod));
                    }
                    std::future::ready(())
                })
                .await;
        });
        pods
    }

    /// Every pod that changes from now on. A listener that fell behind is told by `None`.
    pub fn changes(&self) -> impl futures::Stream<Item = Option<Arc<Pod>>> + use<> {
        let receiver = self.changes.subscribe();
        futures::stream::unfold(receiver, |mut receiver| async move {
            match receiver.recv().await {
                Ok(pod) => Some((Some(pod), receiver)),
                Err(broadcast::error::RecvError::Lagged(_)) => Some((None, receiver)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        })
    }
}

/// Whether the pod is over, or being deleted: it no longer counts as a replica.
pub fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Failed" | "Succeeded"))
}
