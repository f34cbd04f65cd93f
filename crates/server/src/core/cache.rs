//! What readers share: every durable object, the recent history of each resource, and usage as the ledger has it.
//!
//! Written by one thread (the sequencer's writer, through [`Cache::publish`]), read by all. A list takes a snapshot in
//! constant time and lets go; a watch is a position in the history, never a queue, so that a slow watcher costs
//! nothing and is told that it came too late.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use families::{BalanceLine, Balances};
use ledger::Balance;
use parking_lot::RwLock;
use rules::GroupResource;
use tokio::sync::watch;

use super::event::{Event, Publication};
use super::history::{self, ALL_BYTES_FREED, ALL_BYTES_MAX, History};
use super::paged::Paged;
use engine::{EventKind, Object, ObjectKey};

/// Events handed to a watcher in one go, so that one far behind does not hold the lock long.
const WATCH_BATCH_MAX: usize = 512;
/// The same in bytes, because a watcher that is not read keeps what it was handed, whatever becomes of the history: it has
/// so much at the most, or one event.
pub const WATCH_BATCH_BYTES_MAX: usize = 64 * 1024;

type Place = (Arc<str>, Arc<str>);
type Observer = Box<dyn Fn(&Event) + Send + Sync>;
type Objects = imbl::OrdMap<Place, Arc<Object>>;

/// The shared view of everything durable.
pub struct Cache {
    shelves: RwLock<HashMap<GroupResource, Arc<Shelf>>>,
    /// Bytes of all histories.
    history_bytes: AtomicUsize,
    revision: watch::Sender<u64>,
    balances: RwLock<HashMap<Arc<str>, BTreeMap<Place, Balance>>>,
    /// Policies whose status a user has written and the ledger has not taken back yet: shown as written.
    status_written: RwLock<HashSet<ObjectKey>>,
    paged: Paged,
    stale_status: AtomicBool,
    /// When the engine has something to do by itself; `i64::MAX` for never.
    due_ms: AtomicI64,
    /// Indexes of our own (roles, custom kinds) that must be true before the write is answered.
    observers: RwLock<Vec<Observer>>,
}

/// The objects of one resource.
struct Shelf {
    state: RwLock<ShelfState>,
    changed: watch::Sender<u64>,
    /// Revision of the newest event, readable without the lock.
    newest: AtomicU64,
}

struct ShelfState {
    objects: Objects,
    history: History,
}

/// All objects of a resource at one revision.
#[derive(Clone)]
pub struct Listing {
    pub objects: Objects,
    pub revision: u64,
    /// Bytes of its objects that are not the present ones, as far as is known.
    pub held: u64,
}

impl Listing {
    /// The objects of one namespace, or of all when it is empty, from `after` on (exclusive), in order.
    pub fn range<'a>(
        &'a self,
        namespace: &'a str,
        after: Option<&'a (Arc<str>, Arc<str>)>,
    ) -> impl Iterator<Item = &'a Arc<Object>> + 'a {
        let from = after.cloned().unwrap_or_else(|| (namespace.into(), "".into()));
        self.objects
            .range(from..)
            .filter(move |(place, _)| after != Some(place))
            .map(|(_, object)| object)
            .take_while(move |object| namespace.is_empty() || *object.key.namespace == *namespace)
    }
}

impl Cache {
    /// A cache of what was loaded. `last` holds, for each resource, the revision of its last change.
    pub fn new(objects: impl Iterator<Item = Arc<Object>>, last: &HashMap<GroupResource, u64>, revision: u64) -> Self {
        // A resource whose last object was deleted has a history as well, which began before this start.
        let mut shelves: HashMap<GroupResource, Objects> =
            last.keys().map(|resource| (resource.clone(), Objects::new())).collect();
        for object in objects {
            let place = (object.key.namespace.clone(), object.key.name.clone());
            shelves.entry(object.key.resource.clone()).or_default().insert(place, object);
        }
        let shelves = shelves
            .into_iter()
            .map(|(resource, objects)| {
                let forgotten = last.get(&resource).copied().unwrap_or(revision);
                (resource, Arc::new(Shelf::new(objects, forgotten)))
            })
            .collect();
        Self {
            shelves: RwLock::new(shelves),
            history_bytes: AtomicUsize::new(0),
            revision: watch::Sender::new(revision),
            balances: RwLock::default(),
            status_written: RwLock::default(),
            paged: Paged::default(),
            stale_status: AtomicBool::new(true),
            due_ms: AtomicI64::new(i64::MAX),
            observers: RwLock::default(),
        }
    }

    /// The revision everything up to which is visible.
    pub fn revision(&self) -> u64 {
        *self.revision.borrow()
    }

    /// Waits until `revision` is visible.
    pub async fn reached(&self, revision: u64) {
        let mut seen = self.revision.subscribe();
        // The sender lives as long as `self`, so this cannot fail.
        let _ = seen.wait_for(|now| *now >= revision).await;
    }

    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Object>> {
        let shelf = self.shelf(&key.resource)?;
        let state = shelf.state.read();
        state.objects.get(&(key.namespace.clone(), key.name.clone())).cloned()
    }

    /// All objects of a resource, and a revision at which this is all of them.
    pub fn list(&self, resource: &GroupResource) -> Listing {
        // Read before the shelf: everything up to it is then in the shelf for sure.
        let visible = self.revision();
        match self.shelf(resource) {
            None => Listing { objects: Objects::new(), revision: visible, held: 0 },
            Some(shelf) => {
                let state = shelf.state.read();
                let newest = shelf.newest.load(Ordering::Acquire);
                Listing { objects: state.objects.clone(), revision: visible.max(newest), held: 0 }
            }
        }
    }

    /// How many objects of each resource there are, by name.
    pub fn counts(&self) -> Vec<(GroupResource, usize)> {
        let shelves = self.shelves.read();
        let mut counts: Vec<_> =
            shelves.iter().map(|(resource, shelf)| (resource.clone(), shelf.state.read().objects.len())).collect();
        drop(shelves);
        counts.sort();
        counts
    }

    /// What the histories of all resources hold.
    pub fn history_bytes(&self) -> usize {
        self.history_bytes.load(Ordering::Relaxed)
    }

    /// Keeps a listing so that its next pages show the same state; `user` is whose place among the kept lists it takes.
    pub fn keep_paged(&self, user: &str, resource: &GroupResource, listing: &Listing) {
        self.paged.keep(user, resource, listing);
    }

    /// All objects of a resource as they were at `revision`, as long as the history reaches back to it. What is yet to come
    /// has no state: the present one under a later number would hide what happens in between.
    pub fn at(&self, resource: &GroupResource, revision: u64) -> Option<Listing> {
        if let Some(kept) = self.paged.get(resource, revision) {
            return Some(kept);
        }
        if revision > self.revision() {
            return None;
        }
        let Some(shelf) = self.shelf(resource) else {
            return Some(Listing { objects: Objects::new(), revision, held: 0 });
        };
        let (mut objects, since) = {
            let state = shelf.state.read();
            if revision < state.history.forgotten() {
                return None;
            }
            (state.objects.clone(), state.history.since(revision).cloned().collect::<Vec<_>>())
        };
        let mut held = 0;
        for event in since.iter().rev() {
            let key = &event.object.key;
            let place = (key.namespace.clone(), key.name.clone());
            match &event.previous {
                Some(previous) => {
                    held += previous.json.len();
                    objects.insert(place, previous.clone())
                }
                None => objects.remove(&place),
            };
        }
        Some(Listing { objects, revision, held: u64::try_from(held).unwrap_or(u64::MAX) })
    }

    /// A position in the history of a resource just after `revision`.
    pub fn watch(&self, resource: &GroupResource, revision: u64) -> WatchCursor {
        let shelf = self.shelf_or_new(resource);
        let changed = shelf.changed.subscribe();
        WatchCursor { shelf, position: revision, changed }
    }

    /// Calls `observer` for every event from now on, before the write that caused it is answered. It runs on the
    /// writer's thread: it must be quick and must not wait.
    pub fn observe(&self, observer: impl Fn(&Event) + Send + Sync + 'static) {
        self.observers.write().push(Box::new(observer));
    }

    /// Whether a user's own words stand in this policy's status for the moment.
    pub fn status_is_written(&self, key: &ObjectKey) -> bool {
        self.status_written.read().contains(key)
    }

    /// Whether some status has to be published, asked and reset by the publisher.
    pub fn take_stale_status(&self) -> bool {
        self.stale_status.swap(false, Ordering::AcqRel)
    }

    /// Whether the engine wants to be told the time.
    pub fn is_due(&self, now_ms: i64) -> bool {
        self.due_ms.load(Ordering::Acquire) <= now_ms
    }

    /// Makes a durable group visible. Called by one thread only.
    pub fn publish(&self, publication: Publication) {
        self.publish_balances(publication.balances, &publication.closed);
        if !publication.status_written.is_empty() {
            let mut written = self.status_written.write();
            for (key, by_user) in publication.status_written {
                if by_user {
                    written.insert(key)
                } else {
                    written.remove(&key)
                };
            }
        }
        let events: Vec<Arc<Event>> = publication.events.into_iter().map(Arc::new).collect();
        let mut at = 0;
        while at < events.len() {
            // A run of one resource takes its lock once.
            let resource = &events[at].object.key.resource;
            let end =
                events[at..].iter().position(|e| e.object.key.resource != *resource).map_or(events.len(), |n| at + n);
            self.count_history(self.shelf_or_new(resource).publish(&events[at..end]));
            let replaced = events[at..end].iter().filter_map(|event| event.previous.as_ref());
            self.paged.replaced(resource, replaced.map(|previous| previous.json.len()).sum());
            at = end;
        }
        if publication.revision > 0 {
            self.revision.send_replace(publication.revision);
        }
        self.due_ms.store(publication.due_ms.unwrap_or(i64::MAX), Ordering::Release);
        if publication.stale_status {
            self.stale_status.store(true, Ordering::Release);
        }
        for observer in self.observers.read().iter() {
            events.iter().for_each(|event| observer(event));
        }
    }

    /// Fills in the balances found at load time.
    pub fn publish_balances(&self, lines: Vec<(Arc<str>, BalanceLine)>, closed: &[Arc<str>]) {
        if lines.is_empty() && closed.is_empty() {
            return;
        }
        let mut balances = self.balances.write();
        for policy in closed {
            balances.remove(policy);
        }
        for (policy, line) in lines {
            balances.entry(policy).or_default().insert((line.resource, line.bucket), line.balance);
        }
    }

    /// Counts what a history has now that it had `before`, and shortens the longest when all are too long together.
    fn count_history(&self, (before, now): (usize, usize)) {
        // Written by one thread only.
        let mut all = (self.history_bytes.load(Ordering::Relaxed) + now).saturating_sub(before);
        if all > ALL_BYTES_MAX {
            let shelves: Vec<Arc<Shelf>> = self.shelves.read().values().cloned().collect();
            let lengths: Vec<usize> = shelves.iter().map(|shelf| shelf.state.read().history.bytes()).collect();
            let level = history::level(lengths, ALL_BYTES_MAX - ALL_BYTES_FREED);
            let shortened = |shelf: &Arc<Shelf>| {
                let mut state = shelf.state.write();
                state.history.shorten(level);
                state.history.bytes()
            };
            all = shelves.iter().map(shortened).sum();
        }
        self.history_bytes.store(all, Ordering::Relaxed);
    }

    fn shelf(&self, resource: &GroupResource) -> Option<Arc<Shelf>> {
        self.shelves.read().get(resource).cloned()
    }

    fn shelf_or_new(&self, resource: &GroupResource) -> Arc<Shelf> {
        if let Some(shelf) = self.shelf(resource) {
            return shelf;
        }
        self.shelves.write().entry(resource.clone()).or_insert_with(|| Arc::new(Shelf::new(Objects::new(), 0))).clone()
    }
}

impl Balances for Cache {
    fn of(&self, policy: &str) -> Vec<BalanceLine> {
        let balances = self.balances.read();
        let Some(lines) = balances.get(policy) else { return Vec::new() };
        lines
            .iter()
            .map(|((resource, bucket), balance)| BalanceLine {
                resource: resource.clone(),
                bucket: bucket.clone(),
                balance: balance.clone(),
            })
            .collect()
    }
}

impl Shelf {
    fn new(objects: Objects, forgotten: u64) -> Self {
        let state = ShelfState { objects, history: History::after(forgotten) };
        Self { state: RwLock::new(state), changed: watch::Sender::new(0), newest: AtomicU64::new(0) }
    }

    /// Bytes of its history before and after.
    fn publish(&self, events: &[Arc<Event>]) -> (usize, usize) {
        let mut state = self.state.write();
        let before = state.history.bytes();
        for event in events {
            let key = &event.object.key;
            let place = (key.namespace.clone(), key.name.clone());
            match event.kind {
                EventKind::Deleted => state.objects.remove(&place),
                EventKind::Added | EventKind::Modified => state.objects.insert(place, event.object.clone()),
            };
            state.history.push(event.clone());
        }
        let now = state.history.bytes();
        if let Some(last) = events.last() {
            self.newest.store(last.revision(), Ordering::Release);
            drop(state);
            self.changed.send_replace(last.revision());
        }
        (before, now)
    }
}

/// A watcher's position in the history of one resource.
pub struct WatchCursor {
    shelf: Arc<Shelf>,
    position: u64,
    changed: watch::Receiver<u64>,
}

/// What a watcher finds at its position.
pub enum WatchPoll {
    /// Some events; there may be more.
    Events(Vec<Arc<Event>>),
    /// Nothing new.
    Idle,
    /// The history no longer reaches back to the position.
    TooOld,
}

impl WatchCursor {
    pub fn position(&self) -> u64 {
        self.position
    }

    pub fn poll(&mut self) -> WatchPoll {
        self.changed.mark_unchanged();
        if self.shelf.newest.load(Ordering::Acquire) <= self.position {
            let forgotten = self.shelf.state.read().history.forgotten();
            return if self.position < forgotten { WatchPoll::TooOld } else { WatchPoll::Idle };
        }
        let state = self.shelf.state.read();
        if self.position < state.history.forgotten() {
            return WatchPoll::TooOld;
        }
        let mut bytes = 0;
        let fits = |event: &&Arc<Event>| {
            let is_first = bytes == 0;
            bytes += history::bytes_of(event);
            is_first || bytes <= WATCH_BATCH_BYTES_MAX
        };
        let events: Vec<_> =
            state.history.since(self.position).take(WATCH_BATCH_MAX).take_while(fits).cloned().collect();
        match events.last() {
            None => WatchPoll::Idle,
            Some(last) => {
                self.position = last.revision();
                WatchPoll::Events(events)
            }
        }
    }

    /// Waits until there is something new since the last poll.
    pub async fn changed(&mut self) {
        // The sender lives in the shelf this cursor holds.
        let _ = self.changed.changed().await;
    }
}
