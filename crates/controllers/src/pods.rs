//! One watch of all pods, shared by the controllers that count them or free what they used.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::{self, Store, store::Writer};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;

use crate::adoption::controller_of;
use crate::glance::PodGlance;

/// Changes that wait for one listener. When they are full the watch waits: no change is lost, and a watch that waits too
/// long is told to begin anew, which shows every pod again.
const WAITING_MAX: usize = 1024;

/// The names of the pods that each controller, by its uid, is in charge of.
pub type Owned = Arc<Mutex<HashMap<String, HashSet<String>>>>;

/// The watch before it runs: whoever wants to hear of changes says so first.
pub struct Pods {
    claimants: Store<PodGlance>,
    writer: Writer<PodGlance>,
    listeners: Vec<mpsc::Sender<Arc<PodGlance>>>,
    owned: Owned,
    /// Who is in charge of each pod, by its uid.
    owners: HashMap<String, String>,
}

impl Pods {
    pub fn new() -> Pods {
        let (claimants, writer) = reflector::store();
        Pods { claimants, writer, listeners: Vec::new(), owned: Owned::default(), owners: HashMap::new() }
    }

    /// The pods that mount claims.
    pub fn claimants(&self) -> Store<PodGlance> {
        self.claimants.clone()
    }

    /// Which pods are whose, as far as the watch has come.
    pub fn owned(&self) -> Owned {
        self.owned.clone()
    }

    /// Whether anybody wants to hear of changes.
    pub fn is_heard(&self) -> bool {
        !self.listeners.is_empty()
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
                    if matches!(begin_or_end, watcher::Event::Init) {
                        self.forget();
                    }
                    self.writer.apply_watcher_event(begin_or_end);
                    continue;
                }
                Err(error) => {
                    tracing::debug!(%error, "the watch of pods begins anew");
                    continue;
                }
            };
            let is_gone = matches!(event, Ok(watcher::Event::Delete(_)));
            note(&self.owned, &mut self.owners, pod, is_gone);
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

impl Pods {
    /// Every pod is shown again.
    fn forget(&mut self) {
        self.owners.clear();
        self.owned.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Keeps in mind who is in charge of a pod.
fn note(owned: &Owned, owners: &mut HashMap<String, String>, pod: &PodGlance, is_gone: bool) {
    let Some(uid) = pod.metadata.uid.clone() else { return };
    let owner = if is_gone { None } else { controller_of(pod).map(str::to_owned) };
    let before = match &owner {
        Some(owner) => owners.insert(uid, owner.clone()),
        None => owners.remove(&uid),
    };
    if before == owner {
        return;
    }
    let mut owned = owned.lock().unwrap_or_else(PoisonError::into_inner);
    let name = pod.metadata.name.clone().unwrap_or_default();
    if let Some(names) = before.as_ref().and_then(|before| owned.get_mut(before)) {
        names.remove(&name);
        if names.is_empty()
            && let Some(before) = before
        {
            owned.remove(&before);
        }
    }
    if let Some(owner) = owner {
        owned.entry(owner).or_default().insert(name);
    }
}

/// Whether the pod is over, or being deleted: it no longer counts as a replica.
pub fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Failed" | "Succeeded"))
}
