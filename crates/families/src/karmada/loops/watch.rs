//! Copies of objects that are kept up to date, and a bell that rings when one has changed.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::kind::within;

/// How long changes are gathered before they are looked at.
const PAUSE: Duration = Duration::from_millis(10);

/// What one loop watches. What is dropped watches no longer.
pub struct Watch {
    tasks: JoinSet<()>,
    bell: Arc<Notify>,
}

/// The objects of one kind.
#[derive(Clone)]
pub struct Mirror {
    pub kind: ApiResource,
    store: Store<DynamicObject>,
}

impl Watch {
    /// Watches these kinds everywhere, and returns once all that there was has been seen.
    pub async fn begin<const KINDS: usize>(client: &Client, kinds: [ApiResource; KINDS]) -> (Watch, [Mirror; KINDS]) {
        let mut watch = Watch::new();
        let mirrors = kinds.map(|kind| watch.mirror(client, &kind, "", watcher::Config::default()));
        for mirror in &mirrors {
            mirror.ready().await;
        }
        (watch, mirrors)
    }

    pub fn new() -> Watch {
        Watch { tasks: JoinSet::new(), bell: Arc::new(Notify::new()) }
    }

    /// Watches a kind, in one namespace or everywhere.
    pub fn mirror(&mut self, client: &Client, kind: &ApiResource, namespace: &str, config: watcher::Config) -> Mirror {
        let api: Api<DynamicObject> = within(client, kind, namespace);
        let writer = reflector::store::Writer::new(kind.clone());
        let store = writer.as_reader();
        let bell = self.bell.clone();
        let changes = reflector::reflector(writer, watcher(api, config).default_backoff());
        self.tasks.spawn(changes.for_each(move |change| {
            if change.is_ok() {
                bell.notify_one();
            }
            std::future::ready(())
        }));
        Mirror { kind: kind.clone(), store }
    }

    /// What else rings.
    pub fn bell(&self) -> Arc<Notify> {
        self.bell.clone()
    }

    /// Waits until something changed, or for so long.
    pub async fn rung(&self, at_most: Duration) {
        let _ = tokio::time::timeout(at_most, self.bell.notified()).await;
        tokio::time::sleep(PAUSE).await;
    }
}

impl Mirror {
    /// Objects that never change.
    #[cfg(test)]
    pub fn of(kind: ApiResource, objects: Vec<DynamicObject>) -> Mirror {
        let mut writer = reflector::store::Writer::new(kind.clone());
        writer.apply_watcher_event(&watcher::Event::Init);
        for object in objects {
            writer.apply_watcher_event(&watcher::Event::InitApply(object));
        }
        writer.apply_watcher_event(&watcher::Event::InitDone);
        Mirror { kind, store: writer.as_reader() }
    }

    pub fn all(&self) -> Vec<Arc<DynamicObject>> {
        self.store.state()
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<DynamicObject>> {
        let mut place = ObjectRef::<DynamicObject>::new_with(name, self.kind.clone());
        if !namespace.is_empty() {
            place = place.within(namespace);
        }
        self.store.get(&place)
    }

    /// Returns once it has seen everything there was.
    pub async fn ready(&self) {
        // A writer that is gone says so with an error, and then nobody looks any more.
        let _ = self.store.wait_until_ready().await;
    }
}
