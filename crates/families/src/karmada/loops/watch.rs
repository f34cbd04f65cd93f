//! Copies of objects that are kept up to date, and a bell that rings when one has changed.

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt};
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::ended::Ended;
use super::kind::within;

/// How long changes are gathered before they are looked at.
const PAUSE: Duration = Duration::from_millis(10);
/// How soon whoever cannot be asked is asked again; later each time.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// The bell of what one loop watches.
pub struct Watch {
    bell: Arc<Notify>,
}

/// The objects of one kind. What is dropped, with all its clones, watches no longer.
#[derive(Clone)]
pub struct Mirror {
    pub kind: ApiResource,
    store: Store<DynamicObject>,
    /// Those that went after they had run to their end.
    pub ended: Ended,
    _task: Arc<JoinSet<()>>,
}

impl Watch {
    /// Watches these kinds everywhere, and returns once all that there was has been seen.
    pub async fn begin<const KINDS: usize>(client: &Client, kinds: [ApiResource; KINDS]) -> (Watch, [Mirror; KINDS]) {
        let watch = Watch::new();
        let mirrors = kinds.map(|kind| watch.mirror(client, &kind, "", watcher::Config::default()));
        for mirror in &mirrors {
            mirror.ready().await;
        }
        (watch, mirrors)
    }

    pub fn new() -> Watch {
        Watch { bell: Arc::new(Notify::new()) }
    }

    /// Watches a kind, in one namespace or everywhere.
    pub fn mirror(&self, client: &Client, kind: &ApiResource, namespace: &str, config: watcher::Config) -> Mirror {
        let api: Api<DynamicObject> = within(client, kind, namespace);
        let writer = reflector::store::Writer::new(kind.clone());
        let store = writer.as_reader();
        let bell = self.bell.clone();
        let changes = reflector::reflector(writer, from_the_beginning(api, config));
        let ended = Ended::default();
        let (ends, of) = (ended.clone(), kind.clone());
        let mut task = JoinSet::new();
        task.spawn(changes.for_each(move |change| {
            if let Ok(watcher::Event::Delete(last)) = &change {
                ends.note(last, &of);
            }
            if change.is_ok() {
                bell.notify_one();
            }
            std::future::ready(())
        }));
        Mirror { kind: kind.clone(), store, ended, _task: Arc::new(task) }
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

/// What happens to objects. Whoever could not be asked for a while is asked for all of them again: he may be back with another past, in
/// which what was seen last is still to come, and would tell nothing until then.
fn from_the_beginning(
    api: Api<DynamicObject>,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<watcher::Event<DynamicObject>>> + Send {
    let begin = move || watcher(api.clone(), config.clone()).boxed();
    let (changes, wait, pause) = (begin(), Duration::ZERO, Duration::ZERO);
    futures::stream::unfold((changes, wait, pause), move |(mut changes, mut wait, pause)| {
        let begin = begin.clone();
        async move {
            tokio::time::sleep(pause).await;
            let change = changes.next().await?;
            let mut pause = Duration::ZERO;
            match &change {
                Err(_) => {
                    wait = (wait * 2).clamp(RETRY_MIN, RETRY_MAX);
                    (changes, pause) = (begin(), wait);
                }
                // That a list begins says nothing of whether it is answered.
                Ok(watcher::Event::Init) => {}
                Ok(_) => wait = Duration::ZERO,
            }
            Some((change, (changes, wait, pause)))
        }
    })
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
        Mirror { kind, store: writer.as_reader(), ended: Ended::default(), _task: Arc::default() }
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

    /// Returns once it has seen everything there was. Of a kind that cannot be listed that is never.
    pub async fn ready(&self) {
        // A writer that is gone says so with an error, and then nobody looks any more.
        let _ = self.store.wait_until_ready().await;
    }

    /// Whether it has seen everything there was.
    pub fn is_ready(&self) -> bool {
        self.ready().now_or_never().is_some()
    }
}
