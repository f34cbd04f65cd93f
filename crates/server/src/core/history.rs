//! The recent changes of a resource, for watchers to catch up from. What is kept is bounded for each resource and for all of them
//! together: whoever may write objects of many kinds must not have a full history of each.

use std::collections::VecDeque;
use std::sync::Arc;

use super::event::Event;

/// Events kept per resource. Informers lag by milliseconds; this covers a burst of seconds at full speed.
pub const EVENTS_MAX: usize = 16 * 1024;
/// The same in bytes, because events hold whole objects.
pub const BYTES_MAX: usize = 64 * 1024 * 1024;
/// What the histories of all resources may have together; beyond it the longest is shortened.
pub const ALL_BYTES_MAX: usize = 256 * 1024 * 1024;
/// What is freed then: so that not every further change has to look for the longest again.
pub const ALL_BYTES_FREED: usize = ALL_BYTES_MAX / 8;

#[derive(Default)]
pub struct History {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Events up to this revision are no longer in it.
    forgotten: u64,
}

impl History {
    /// One that begins after a revision.
    pub fn after(forgotten: u64) -> History {
        History { forgotten, ..History::default() }
    }

    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn push(&mut self, event: Arc<Event>) {
        self.bytes += bytes_of(&event);
        self.events.push_back(event);
        while self.events.len() > EVENTS_MAX {
            self.forget_oldest();
        }
        self.shorten(BYTES_MAX);
    }

    /// Forgets the oldest events until it is no longer than this.
    pub fn shorten(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max && self.forget_oldest() {}
    }

    fn forget_oldest(&mut self) -> bool {
        let Some(oldest) = self.events.pop_front() else { return false };
        self.bytes -= bytes_of(&oldest);
        self.forgotten = oldest.revision();
        true
    }

    /// What happened after a revision, in order.
    pub fn since(&self, revision: u64) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        let from = self.events.partition_point(|event| event.revision() <= revision);
        self.events.range(from..)
    }
}

/// What an event may keep alive: the object, the line for watchers that is made of it, and what it was before. The last is
/// mostly the object of an earlier event; but that may be forgotten first.
pub fn bytes_of(event: &Event) -> usize {
    let before = event.previous.as_ref().map_or(0, |previous| previous.json.len());
    size_of::<Event>() + 2 * event.object.json.len() + before
}

/// The length to which those that are longer have to be cut so that all together are no longer than `wanted`.
pub fn level(mut lengths: Vec<usize>, wanted: usize) -> usize {
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    let mut shorter: usize = lengths.iter().sum();
    for (at, length) in lengths.iter().enumerate() {
        shorter -= length;
        let level = wanted.saturating_sub(shorter) / (at + 1);
        if lengths.get(at + 1).is_none_or(|next| *next <= level) {
            return level.min(*length);
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ledger::SubjectId;
    use rules::GroupResource;

    use super::super::cache::{Cache, WATCH_BATCH_BYTES_MAX, WatchPoll};
    use super::super::event::Publication;
    use super::*;
    use engine::{EventKind, Object, ObjectKey};

    #[test]
    fn the_longest_are_cut_to_one_length() {
        assert_eq!(level(vec![], 100), 100);
        assert_eq!(level(vec![10, 20, 30], 100), 30, "nothing is too long");
        assert_eq!(level(vec![10, 20, 90], 100), 70);
        assert_eq!(level(vec![10, 80, 90], 100), 45);
        assert_eq!(level(vec![50; 4], 100), 25);
    }

    /// Changes of one object of each of many kinds, a megabyte each; the bytes are shared, so that only their number counts.
    #[test]
    fn the_histories_of_many_kinds_are_bounded_together() {
        let cache = Cache::new(std::iter::empty(), &Default::default(), 0);
        let kinds: Vec<GroupResource> =
            (0..40).map(|at| GroupResource::new("example.com", &format!("k{at}"))).collect();
        let json = Bytes::from(vec![b' '; 1 << 20]);
        let mut revision = 0;
        let mut before: Vec<Option<Arc<Object>>> = vec![None; kinds.len()];
        for _ in 0..30 {
            for (kind, before) in kinds.iter().zip(&mut before) {
                revision += 1;
                let key = ObjectKey::new(kind.clone(), "n", "o");
                let object = Object::new(key, SubjectId(1), (revision, 1), Box::default(), json.clone());
                let object = Arc::new(object);
                let event = Event::new(EventKind::Modified, object.clone(), before.replace(object));
                cache.publish(Publication { events: vec![event], revision, ..Publication::default() });
                assert!(cache.history_bytes() <= ALL_BYTES_MAX, "{} at {revision}", cache.history_bytes());
            }
        }
        // Every kind has kept some of it, and who is too far behind is told so.
        for kind in &kinds {
            assert!(matches!(cache.watch(kind, revision - 40).poll(), WatchPoll::Events(_) | WatchPoll::Idle));
            assert!(matches!(cache.watch(kind, 1).poll(), WatchPoll::TooOld));
        }
    }

    /// A watcher that is not read keeps what it was handed, however much the history forgets meanwhile.
    #[test]
    fn a_watcher_is_handed_a_few_bytes_or_one_event() {
        let cache = Cache::new(std::iter::empty(), &Default::default(), 0);
        let kind = GroupResource::new("example.com", "k");
        let sizes = [100, 1 << 20, 200, 1 << 20, 1 << 20, 300].into_iter().chain(std::iter::repeat_n(1000, 500));
        let mut before = None;
        for (size, revision) in sizes.clone().zip(1..) {
            let key = ObjectKey::new(kind.clone(), "n", "o");
            let object = Object::new(key, SubjectId(1), (revision, 1), Box::default(), vec![b' '; size].into());
            let object = Arc::new(object);
            let event = Event::new(EventKind::Modified, object.clone(), before.replace(object));
            cache.publish(Publication { events: vec![event], revision, ..Publication::default() });
        }
        let mut cursor = cache.watch(&kind, 0);
        let mut seen = 0;
        while let WatchPoll::Events(events) = cursor.poll() {
            let bytes: usize = events.iter().map(|event| bytes_of(event)).sum();
            assert!(events.len() == 1 || bytes <= WATCH_BATCH_BYTES_MAX, "{} events of {bytes} bytes", events.len());
            assert!(
                events.iter().all(|event| {
                    seen += 1;
                    event.revision() == seen
                }),
                "none is left out"
            );
        }
        assert_eq!(seen, 506);
    }
}
