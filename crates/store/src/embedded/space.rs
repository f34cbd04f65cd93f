//! Whether there is room, for engines that decide what is still accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::upkeep::Duty;

/// The part of a segment that is never promised to anybody: the group that is written and the one that is being decided may
/// both have counted on the same room.
const KEPT_PART: u64 = 4;

/// Whether the disk has room for growth. Once it is low, an engine refuses what adds bytes and still accepts what removes or
/// shrinks; the segment that was written ahead is the room for that, and [`Space::admits`] says when even that is used up. All
/// of it is taken back when there is room again.
#[derive(Clone, Debug)]
pub struct Space(Arc<State>);

#[derive(Debug)]
struct State {
    /// Spares, snapshots and journals find out on their own, and any of them is enough.
    low: [AtomicBool; 3],
    /// Not even a deletion can be written: only etcd knows such a state.
    full: AtomicBool,
    /// Bytes of the current segment that can still be written, less those never promised.
    room: AtomicU64,
    /// Bytes of the spare, if there is one.
    spare: AtomicU64,
    /// Of these, what only deletions may use.
    for_deletions: AtomicU64,
}

impl Default for Space {
    fn default() -> Space {
        Space::of(false)
    }
}

impl Space {
    /// One that is low for good, for whoever wants to see what an engine does then.
    pub fn always_low() -> Space {
        Space::of(true)
    }

    /// The same with that many bytes of log left.
    pub fn always_low_with(room: u64) -> Space {
        let space = Space::of(true);
        space.0.room.store(room, Ordering::Relaxed);
        space
    }

    fn of(low: bool) -> Space {
        let low = [AtomicBool::new(low), AtomicBool::new(low), AtomicBool::new(low)];
        Space(Arc::new(State {
            low,
            full: AtomicBool::new(false),
            room: AtomicU64::new(u64::MAX),
            spare: AtomicU64::new(0),
            for_deletions: AtomicU64::new(0),
        }))
    }

    pub fn is_low(&self) -> bool {
        self.0.low.iter().chain([&self.0.full]).any(|low| low.load(Ordering::Relaxed))
    }

    /// Whether not even a deletion can be written: only etcd knows such a state.
    pub fn is_full(&self) -> bool {
        self.0.full.load(Ordering::Relaxed)
    }

    /// Whether a group that has so many bytes may still take a command. Always, while there is room on the disk.
    pub fn admits(&self, group_bytes: usize) -> bool {
        !self.is_low() || (group_bytes as u64) < self.room()
    }

    /// Whether the same may be said of a command that neither adds nor removes: a sign of life, again and again. It never takes
    /// the room that deletions need.
    pub fn admits_renewal(&self, group_bytes: usize) -> bool {
        let kept = self.0.for_deletions.load(Ordering::Relaxed);
        !self.is_low() || (group_bytes as u64).saturating_add(kept) < self.room()
    }

    pub(super) fn set_low(&self, duty: Duty, low: bool) {
        let [spares, snapshots, journals] = &self.0.low;
        let flag = match duty {
            Duty::Spares => spares,
            Duty::Snapshots => snapshots,
            Duty::Journals => journals,
        };
        flag.store(low, Ordering::Relaxed);
    }

    pub(crate) fn note_low(&self, low: bool) {
        self.0.low[0].store(low, Ordering::Relaxed);
    }

    pub(crate) fn note_full(&self, full: bool) {
        self.0.full.store(full, Ordering::Relaxed);
    }

    pub(super) fn set_room(&self, bytes: u64, segment_bytes: u64) {
        self.0.room.store(bytes.saturating_sub(segment_bytes / KEPT_PART), Ordering::Relaxed);
        self.0.for_deletions.store(segment_bytes / KEPT_PART, Ordering::Relaxed);
    }

    pub(super) fn set_spare(&self, bytes: u64) {
        self.0.spare.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn room(&self) -> u64 {
        self.0.room.load(Ordering::Relaxed).saturating_add(self.0.spare.load(Ordering::Relaxed))
    }
}
