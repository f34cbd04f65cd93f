//! What is done beside the commits: keeping a spare segment ready, turning full segments into a new snapshot, and laying out the
//! entries of journals.
//!
//! All of it works on files nobody else writes, so the committing thread never waits for them; it only hands over a full segment and
//! takes the spare. In a process each has a thread, because a spare is needed long before a large snapshot is done; the
//! simulator lets each commit run what is due.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::delta::Delta;
use super::format::{Head, Kind, RESERVE_NAME, segment_name, spare_name};
use super::journals::{Chapters, Files};
use super::log::{Spare, write_zeros};
use super::scan::{End, scan};
use super::snapshot::{self, Place, Snapshot};
use super::{Counters, Options, Space};
use crate::disk::Disk;
use crate::error::StoreError;

/// How often a full disk is asked whether there is room again.
const FULL_RETRY: Duration = Duration::from_secs(1);

/// How often, at the most, a full disk makes one look whether what was removed is worth a snapshot; and the share of the time
/// that goes into looking where there is much to read.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_SHARE: u32 = 10;
/// The part of a snapshot that is worth writing it anew, or a segment if that is less.
const WORTH_PART: u64 = 16;

/// What a chapter takes beside the entries that are moved into it: its head, and the index of the one before it.
const AROUND_ENTRIES_BYTES: u64 = 1024;

/// The most log that one snapshot takes in at a time: bounds the memory it needs.
const CHECKPOINT_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// A segment that is full, and not yet in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    pub number: u64,
    /// The sequence of its last frame.
    pub last: u64,
    /// Bytes up to the end of its last frame.
    pub bytes: u64,
}

/// How far the log was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Of the segment that is being written.
    pub number: u64,
    /// Behind its last frame.
    pub offset: u64,
    /// The sequence of the next frame.
    pub next: u64,
}

pub struct Upkeep {
    disk: Arc<dyn Disk>,
    options: Options,
    space: Space,
    counters: Arc<Counters>,
    state: Mutex<State>,
    changed: Condvar,
    /// Outside the lock, so that a snapshot under way can look at it often.
    stopping: AtomicBool,
    /// Held by whoever writes to the reserve or makes it a snapshot: one of them must not have the file that the other changes.
    /// Taken before the lock of the state.
    reserve_turn: Mutex<()>,
    /// A compaction waits for the next commit.
    roll: AtomicBool,
    pub journals: Chapters,
}

#[derive(Default)]
struct State {
    spare: Option<Spare>,
    spares_made: u64,
    sealed: Vec<Sealed>,
    current: Position,
    snapshot: Option<Snapshot>,
    /// A snapshot that takes in this segment is wanted, whether it is worth it or not.
    compact: Option<u64>,
    /// The length of the reserve, if there is one.
    reserve: Option<u64>,
    /// Up to this frame a snapshot of what is being written would make no room, and when that may be looked at again.
    looked: u64,
    look_after: Option<Instant>,
    /// Anything but a full disk. The next commit reports it, and the process ends.
    failure: Option<StoreError>,
}

/// What there is to do, one thread each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    Spares,
    Snapshots,
    Journals,
}

enum Work {
    MakeSpare,
    /// Up to this length.
    GrowReserve(u64),
    Checkpoint(Taken),
    Journals,
}

/// What goes into a snapshot.
struct Taken {
    old: Option<Snapshot>,
    sealed: Vec<Sealed>,
    /// The frames of the segment that is being written, as far as they go. It stays where it is.
    open: Option<Sealed>,
}

impl Taken {
    /// The last frame.
    fn last(&self) -> Option<u64> {
        self.open.as_ref().or(self.sealed.last()).map(|segment| segment.last)
    }
}

impl Upkeep {
    pub fn new(
        disk: Arc<dyn Disk>,
        options: Options,
        space: Space,
        counters: Arc<Counters>,
        (sealed, current): (Vec<Sealed>, Position),
        snapshot: Option<Snapshot>,
        journals: Chapters,
    ) -> Upkeep {
        // One that cannot be looked at is made again.
        let reserve = disk.open(RESERVE_NAME).and_then(|file| file.len()).ok();
        let state = Mutex::new(State { sealed, current, snapshot, reserve, ..State::default() });
        let (changed, stopping, reserve_turn, roll) = Default::default();
        Upkeep { disk, options, space, counters, state, changed, stopping, reserve_turn, roll, journals }
    }

    /// Hands over a full segment, and says where the next one begins.
    pub fn seal(&self, segment: Sealed, current: Position) {
        let mut state = self.state();
        state.sealed.push(segment);
        state.current = current;
        drop(state);
        self.changed.notify_all();
    }

    /// A frame is durable.
    pub fn committed(&self, current: Position, has_entries: bool) {
        let has_work = self.journals.committed(current.next - 1, current, has_entries);
        self.state().current = current;
        if has_work {
            self.changed.notify_all();
        }
    }

    /// Shows the files of one moment. Until `look` returns none of them is removed.
    pub fn frozen<T>(&self, look: impl FnOnce(&dyn Disk, Option<&Snapshot>, &[Sealed], Position, Files) -> T) -> T {
        let state = self.state();
        self.journals.frozen(|files| look(&*self.disk, state.snapshot.as_ref(), &state.sealed, state.current, files))
    }

    /// Something is to be looked at by whoever has the duty: a thread, or this one.
    pub fn nudge(&self) {
        // Whoever has just found nothing to do is waiting once the lock is free.
        drop(self.state());
        self.changed.notify_all();
        if !self.options.background {
            self.run_due();
        }
    }

    /// From the next commit on: the segment ends there, and everything before it goes into a snapshot.
    pub fn compact(&self) {
        self.roll.store(true, Ordering::Relaxed);
    }

    /// Whether the segment is to end although it is not full.
    pub fn take_roll(&self) -> bool {
        if !self.wants_roll() || self.space.is_low() {
            return false;
        }
        let mut state = self.state();
        // It can wait, and must not be the reason that a commit has to make a segment and finds the disk full.
        if state.spare.is_none() {
            return false;
        }
        self.roll.store(false, Ordering::Relaxed);
        state.compact = Some(state.current.number);
        true
    }

    pub fn wants_roll(&self) -> bool {
        self.roll.load(Ordering::Relaxed)
    }

    pub fn is_compacting(&self) -> bool {
        let state = self.state();
        self.wants_roll() || state.compact.is_some()
    }

    /// The spare, if it is ready.
    pub fn take_spare(&self) -> Option<Spare> {
        let mut state = self.state();
        self.space.set_spare(0);
        state.spare.take()
    }

    pub fn take_failure(&self) -> Option<StoreError> {
        self.state().failure.take()
    }

    /// A snapshot under way is given up: the log still has everything.
    pub fn stop(&self) {
        let state = self.state();
        self.stopping.store(true, Ordering::Relaxed);
        drop(state);
        self.changed.notify_all();
    }

    /// Does one duty until it is stopped or something fails.
    pub fn run(&self, duty: Duty) {
        loop {
            let mut state = self.state();
            let work = loop {
                if self.is_stopping() || state.failure.is_some() {
                    return;
                }
                match self.due(&state, duty) {
                    Some(work) => break work,
                    // What deletions free is in the log, and nobody hands that over before the segment is full.
                    None if duty == Duty::Snapshots && self.space.is_low() => {
                        let waited = self.changed.wait_timeout(state, FULL_RETRY);
                        state = waited.unwrap_or_else(PoisonError::into_inner).0;
                    }
                    None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(state);
            if !self.perform(work) {
                let state = self.state();
                if !self.is_stopping() {
                    drop(self.changed.wait_timeout(state, FULL_RETRY));
                }
            }
        }
    }

    /// Does everything that is due now, on the thread of the caller.
    pub fn run_due(&self) {
        // On a full disk a snapshot comes before a spare, because it may free more than it needs.
        let mut duties = [Duty::Journals, Duty::Spares, Duty::Snapshots];
        if self.space.is_low() {
            duties = [Duty::Journals, Duty::Snapshots, Duty::Spares];
        }
        for duty in duties {
            loop {
                let state = self.state();
                let work = if state.failure.is_some() { None } else { self.due(&state, duty) };
                drop(state);
                if !work.is_some_and(|work| self.perform(work)) {
                    break;
                }
            }
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn due(&self, state: &State, duty: Duty) -> Option<Work> {
        match duty {
            Duty::Spares if state.spare.is_none() => Some(Work::MakeSpare),
            Duty::Spares => {
                let wanted = self.reserve_bytes(state);
                let lacks = state.reserve.is_none_or(|bytes| bytes < wanted);
                if !lacks {
                    // What could not be made long enough may be so by now, because less is needed.
                    self.space.set_low(duty, false);
                }
                lacks.then_some(Work::GrowReserve(wanted))
            }
            Duty::Snapshots => self.checkpoint_due(state, self.space.is_low()),
            Duty::Journals => self.journals.has_work().then_some(Work::Journals),
        }
    }

    /// The most that the next snapshot can need, and the one after a further segment.
    fn reserve_bytes(&self, state: &State) -> u64 {
        let snapshot_bytes = state.snapshot.as_ref().map_or(0, |snapshot| snapshot.bytes);
        let log_bytes: u64 = state.sealed.iter().map(|sealed| sealed.bytes).sum();
        snapshot_bytes + log_bytes + self.options.segment_bytes
    }

    /// A snapshot rewrites everything, so it waits until the log has grown as much as that: each byte committed is then written
    /// about three times in all, however large the state is.
    fn checkpoint_due(&self, state: &State, low: bool) -> Option<Work> {
        let snapshot_bytes = state.snapshot.as_ref().map_or(0, |snapshot| snapshot.bytes);
        let log_bytes: u64 = state.sealed.iter().map(|sealed| sealed.bytes).sum();
        let enough = self.options.checkpoint_bytes.max(snapshot_bytes).min(CHECKPOINT_BYTES_MAX);
        if !low && (state.sealed.is_empty() || (log_bytes < enough && state.compact.is_none())) {
            return None;
        }
        let mut bytes = 0;
        let taken = state.sealed.iter().take_while(|sealed| {
            bytes += sealed.bytes;
            bytes <= CHECKPOINT_BYTES_MAX || bytes == sealed.bytes
        });
        let sealed: Vec<Sealed> = taken.cloned().collect();
        let all = sealed.len() == state.sealed.len();
        let open = if low && all { self.written(state) } else { None };
        if sealed.is_empty() {
            let may_look = state.look_after.is_none_or(|at| at <= Instant::now());
            open.as_ref().filter(|open| open.last > state.looked && may_look)?;
        }
        Some(Work::Checkpoint(Taken { old: state.snapshot.clone(), sealed, open }))
    }

    /// What the segment that is being written has, and nothing before it. On a full disk what makes room may all be there:
    /// who deletes everything does not fill a segment with it.
    fn written(&self, state: &State) -> Option<Sealed> {
        let Position { number, offset, next } = state.current;
        let snapshot = state.snapshot.as_ref().map_or(0, |snapshot| snapshot.sequence);
        let before = state.sealed.last().map_or(snapshot, |sealed| sealed.last);
        let last = next.saturating_sub(1);
        (last > before).then_some(Sealed { number, last, bytes: offset })
    }

    /// `false`: the disk is full, or something failed for good.
    fn perform(&self, work: Work) -> bool {
        // Where no full segment waits for it, a snapshot is only tried for the room it makes: whether there is any is known already.
        let tries = matches!(&work, Work::Checkpoint(taken) if taken.sealed.is_empty());
        let (duty, done) = match work {
            Work::MakeSpare => (Duty::Spares, self.make_spare()),
            Work::GrowReserve(bytes) => (Duty::Spares, self.grow_reserve(bytes)),
            Work::Checkpoint(taken) => (Duty::Snapshots, self.checkpoint(&taken)),
            Work::Journals => (Duty::Journals, self.tend_journals()),
        };
        match done {
            Ok(()) => {
                self.space.set_low(duty, false);
                true
            }
            Err(StoreError::Full { .. }) => {
                if !tries {
                    self.space.set_low(duty, true);
                }
                // The other duty may be able to make room.
                self.changed.notify_all();
                false
            }
            Err(_) if self.is_stopping() => false,
            // Whoever has the files open will close them; nothing was lost, and it is tried again.
            Err(error) if error.is_passing() => {
                tracing::warn!(%error, "the store's upkeep waits");
                false
            }
            Err(error) => {
                self.state().failure = Some(error);
                false
            }
        }
    }

    fn make_spare(&self) -> Result<(), StoreError> {
        let mut state = self.state();
        state.spares_made += 1;
        let name = spare_name(state.spares_made);
        drop(state);
        let spare = Spare::make(&*self.disk, name, self.options.segment_bytes)?;
        // Both under the lock: a spare that is taken at once must not be promised afterwards.
        let mut state = self.state();
        state.spare = Some(spare);
        self.space.set_spare(self.options.segment_bytes);
        Ok(())
    }

    /// On a full disk it keeps the length it had: the next snapshot may fit all the same.
    fn grow_reserve(&self, wanted: u64) -> Result<(), StoreError> {
        let failed = |error| StoreError::io(RESERVE_NAME, error);
        let _turn = self.reserve_turn();
        let file = match self.disk.open(RESERVE_NAME) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.disk.create(RESERVE_NAME).map_err(failed)?,
            opened => opened.map_err(failed)?,
        };
        let length = file.len().map_err(failed)?;
        let grown = write_zeros(&*file, length, wanted);
        if grown.is_err() {
            let _left_over = file.set_len(length);
        }
        self.state().reserve = Some(if grown.is_ok() { wanted.max(length) } else { length });
        grown.map_err(failed)
    }

    /// Writes a snapshot of what is taken, then removes what it replaces.
    fn checkpoint(&self, taken: &Taken) -> Result<(), StoreError> {
        let begun = Instant::now();
        let (Some(last), old) = (taken.last(), taken.old.as_ref()) else { return Ok(()) };
        let sealed: Vec<&Sealed> = taken.sealed.iter().chain(&taken.open).collect();
        let segments = sealed.iter().map(|sealed| self.read(sealed)).collect::<Result<Vec<_>, _>>()?;
        let covered = old.map_or(0, |old| old.sequence);
        let (mut delta, mut link) = (Delta::default(), 0);
        for (sealed, bytes) in sealed.iter().zip(&segments) {
            let head = Head::decode(bytes, Kind::Segment).map_err(|_| {
                damaged(sealed, 0, "its head was read again and does not match its checksum".to_owned())
            })?;
            let found = scan(bytes, &head, &mut |frame| {
                if frame.sequence > covered {
                    frame.rows.for_each(|row| delta.apply(row));
                }
            });
            if found.verdict != End::Clean || found.next != sealed.last + 1 {
                let what = format!("it was read again up to frame {} of {}", found.next - 1, sealed.last);
                return Err(damaged(sealed, found.end, what));
            }
            link = found.link;
        }
        let tries = taken.sealed.is_empty();
        if tries && !self.makes_room(old, &delta, last, begun)? {
            return Ok(());
        }
        self.cover_journals()?;
        // A reserve that grows meanwhile would take the very room.
        let turn = tries.then(|| self.reserve_turn());
        let write = |place| snapshot::write(&*self.disk, place, old, &delta, (last, link), &self.stopping);
        let new = match write(Place::New) {
            // What it replaces is removed afterwards, so that the disk has more room than before.
            Err(StoreError::Full { .. }) if self.state().reserve.is_some_and(|bytes| bytes > 0) => {
                let _turn = turn.is_none().then(|| self.reserve_turn());
                self.state().reserve = None;
                write(Place::Reserve)?
            }
            written => written?,
        };
        let mut state = self.state();
        state.snapshot = Some(new);
        // The one that was being written may be full by now: it goes only if the snapshot has all of it.
        let (covered, kept) = std::mem::take(&mut state.sealed).into_iter().partition(|one: &Sealed| one.last <= last);
        state.sealed = kept;
        let first = state.sealed.first().map_or(state.current.number, |sealed| sealed.number);
        state.compact = state.compact.filter(|number| *number >= first);
        drop(state);
        Counters::add(&self.counters.checkpoints, 1);
        let covered: Vec<Sealed> = covered;
        let obsolete = covered.iter().map(|sealed| segment_name(sealed.number)).chain(old.map(Snapshot::name));
        for name in obsolete {
            self.disk.remove(&name).map_err(|error| StoreError::io(&name, error))?;
        }
        Ok(())
    }

    /// Retires first: on a full disk that is what makes the room.
    fn tend_journals(&self) -> Result<(), StoreError> {
        if self.journals.take_retire() {
            self.journals.retire()?;
        }
        self.lay_out_journals()
    }

    /// Moves all entries that are in the log alone. On a full disk the reserve gives the room: it was made as long as the log is,
    /// too, and a snapshot does not hold what was moved.
    pub fn lay_out_journals(&self) -> Result<(), StoreError> {
        match self.journals.move_all(&self.stopping) {
            Err(StoreError::Full { .. }) if self.shrink_reserve()? => self.journals.move_all(&self.stopping),
            moved => moved,
        }
    }

    /// Before the log goes, all that was appended in it is durable elsewhere.
    fn cover_journals(&self) -> Result<(), StoreError> {
        self.lay_out_journals()?;
        self.journals.sync()
    }

    /// By as much as the frames take that are still to be moved, and what surrounds them. `false`: there is nothing to give.
    fn shrink_reserve(&self) -> Result<bool, StoreError> {
        let _turn = self.reserve_turn();
        let mut state = self.state();
        let at = self.journals.position();
        let log = state.sealed.iter().map(|one| (one.number, one.bytes));
        let unmoved: u64 = log
            .chain([(state.current.number, state.current.offset)])
            .filter(|(number, _)| *number >= at.number)
            .map(|(number, end)| if number == at.number { end.saturating_sub(at.offset) } else { end })
            .sum();
        let Some(reserve) = state.reserve.filter(|bytes| *bytes > 0) else { return Ok(false) };
        let kept = reserve.saturating_sub(unmoved + AROUND_ENTRIES_BYTES);
        let shrunk = self.disk.open(RESERVE_NAME).and_then(|file| file.set_len(kept));
        shrunk.map_err(|error| StoreError::io(RESERVE_NAME, error))?;
        state.reserve = Some(kept);
        Ok(true)
    }

    /// Whether a snapshot of what is live would be so much smaller than the one before that the disk has room for it.
    fn makes_room(
        &self,
        old: Option<&Snapshot>,
        delta: &Delta<'_>,
        last: u64,
        begun: Instant,
    ) -> Result<bool, StoreError> {
        let bytes = snapshot::measure(&*self.disk, old, delta)?;
        let before = old.map_or(0, |old| old.bytes);
        let freed = before.saturating_sub(bytes);
        let makes_room = freed > 0 && freed >= (before / WORTH_PART).min(self.options.segment_bytes);
        let mut state = self.state();
        if !makes_room {
            state.looked = last;
        }
        // Who lets every commit do what is due has no clock either.
        let rest = LOOK_EVERY.max(begun.elapsed() * LOOK_SHARE);
        state.look_after = self.options.background.then(|| Instant::now() + rest);
        Ok(makes_room)
    }

    fn read(&self, sealed: &Sealed) -> Result<Vec<u8>, StoreError> {
        let name = segment_name(sealed.number);
        let failed = |error| StoreError::io(&name, error);
        let file = self.disk.open(&name).map_err(failed)?;
        // Sealed bytes were bounded by the length of a file that was read or written here.
        let mut bytes = vec![0; sealed.bytes as usize];
        let count = file.read_at(0, &mut bytes).map_err(failed)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    fn reserve_turn(&self) -> MutexGuard<'_, ()> {
        self.reserve_turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn damaged(sealed: &Sealed, offset: u64, what: String) -> StoreError {
    StoreError::Corrupt { file: segment_name(sealed.number), offset, what }
}
