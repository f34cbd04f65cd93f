//! What is done beside the commits: keeping a spare segment ready, and turning full segments into a new snapshot.
//!
//! Both work on files nobody else writes, so the committing thread never waits for them; it only hands over a full segment and
//! takes the spare. A thread runs this in a process; the simulator lets each commit run what is due.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::delta::Delta;
use super::format::{Head, Kind, segment_name, spare_name};
use super::log::Spare;
use super::scan::{End, scan};
use super::snapshot::{self, Snapshot};
use super::{Counters, Options, Space};
use crate::disk::Disk;
use crate::error::StoreError;

/// How often a full disk is asked whether there is room again.
const FULL_RETRY: Duration = Duration::from_secs(1);

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

pub struct Upkeep {
    disk: Arc<dyn Disk>,
    options: Options,
    space: Space,
    counters: Arc<Counters>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    spare: Option<Spare>,
    spares_made: u64,
    sealed: Vec<Sealed>,
    snapshot: Option<Snapshot>,
    /// Anything but a full disk. The next commit reports it, and the process ends.
    failure: Option<StoreError>,
    stopping: bool,
}

enum Work {
    MakeSpare,
    Checkpoint(Vec<Sealed>, Option<Snapshot>),
}

impl Upkeep {
    pub fn new(
        disk: Arc<dyn Disk>,
        options: Options,
        space: Space,
        counters: Arc<Counters>,
        sealed: Vec<Sealed>,
        snapshot: Option<Snapshot>,
    ) -> Upkeep {
        let state = Mutex::new(State { sealed, snapshot, ..State::default() });
        Upkeep { disk, options, space, counters, state, changed: Condvar::new() }
    }

    /// Hands over a full segment.
    pub fn seal(&self, segment: Sealed) {
        self.state().sealed.push(segment);
        self.changed.notify_one();
    }

    /// The spare, if it is ready.
    pub fn take_spare(&self) -> Option<Spare> {
        self.state().spare.take()
    }

    pub fn take_failure(&self) -> Option<StoreError> {
        self.state().failure.take()
    }

    pub fn stop(&self) {
        self.state().stopping = true;
        self.changed.notify_one();
    }

    /// Runs until it is stopped or fails.
    pub fn run(&self) {
        loop {
            let mut state = self.state();
            let work = loop {
                if state.stopping || state.failure.is_some() {
                    return;
                }
                match self.due(&state) {
                    Some(work) => break work,
                    None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(state);
            if !self.perform(work) {
                let state = self.state();
                if !state.stopping {
                    drop(self.changed.wait_timeout(state, FULL_RETRY));
                }
            }
        }
    }

    /// Does what is due now, on the thread of the caller.
    pub fn run_due(&self) {
        loop {
            let state = self.state();
            let work = if state.failure.is_some() { None } else { self.due(&state) };
            drop(state);
            if !work.is_some_and(|work| self.perform(work)) {
                return;
            }
        }
    }

    /// On a full disk a snapshot comes first and at once, because it may free more than it needs.
    fn due(&self, state: &State) -> Option<Work> {
        let low = self.space.is_low();
        let make_spare = || state.spare.is_none().then_some(Work::MakeSpare);
        let checkpoint = || self.checkpoint_due(state, low);
        if low { checkpoint().or_else(make_spare) } else { make_spare().or_else(checkpoint) }
    }

    /// A snapshot rewrites everything, so it waits until the log has grown as much as that: each byte committed is then written
    /// about three times in all, however large the state is.
    fn checkpoint_due(&self, state: &State, low: bool) -> Option<Work> {
        let snapshot_bytes = state.snapshot.as_ref().map_or(0, |snapshot| snapshot.bytes);
        let log_bytes: u64 = state.sealed.iter().map(|sealed| sealed.bytes).sum();
        let enough = self.options.checkpoint_bytes.max(snapshot_bytes).min(CHECKPOINT_BYTES_MAX);
        if state.sealed.is_empty() || (log_bytes < enough && !low) {
            return None;
        }
        let mut bytes = 0;
        let taken = state.sealed.iter().take_while(|sealed| {
            bytes += sealed.bytes;
            bytes <= CHECKPOINT_BYTES_MAX || bytes == sealed.bytes
        });
        Some(Work::Checkpoint(taken.cloned().collect(), state.snapshot.clone()))
    }

    /// `false`: the disk is full, or something failed for good.
    fn perform(&self, work: Work) -> bool {
        let done = match work {
            Work::MakeSpare => self.make_spare(),
            Work::Checkpoint(sealed, old) => self.checkpoint(&sealed, old.as_ref()),
        };
        match done {
            Ok(()) => self.space.set_low(false),
            Err(StoreError::Full { .. }) => self.space.set_low(true),
            Err(error) => self.state().failure = Some(error),
        }
        self.state().failure.is_none() && !self.space.is_low()
    }

    fn make_spare(&self) -> Result<(), StoreError> {
        let mut state = self.state();
        state.spares_made += 1;
        let name = spare_name(state.spares_made);
        drop(state);
        let spare = Spare::make(&*self.disk, name, self.options.segment_bytes)?;
        self.state().spare = Some(spare);
        Ok(())
    }

    /// Writes a snapshot that takes in `sealed`, then removes what it replaces.
    fn checkpoint(&self, sealed: &[Sealed], old: Option<&Snapshot>) -> Result<(), StoreError> {
        let Some(last) = sealed.last() else { return Ok(()) };
        let segments = sealed.iter().map(|sealed| self.read(sealed)).collect::<Result<Vec<_>, _>>()?;
        let covered = old.map_or(0, |old| old.sequence);
        let mut delta = Delta::default();
        for (sealed, bytes) in sealed.iter().zip(&segments) {
            let first = Head::decode(bytes, Kind::Segment).map(|head| head.sequence);
            let found = scan(bytes, first.unwrap_or(0), &mut |sequence, rows| {
                if sequence > covered {
                    rows.for_each(|row| delta.apply(row));
                }
            });
            if found.verdict != End::Clean || found.next != sealed.last + 1 {
                return Err(StoreError::Corrupt {
                    file: segment_name(sealed.number),
                    offset: found.end,
                    what: format!("it was read again up to frame {} of {}", found.next - 1, sealed.last),
                });
            }
        }
        let new = snapshot::write(&*self.disk, old, &delta, last.last)?;
        let mut state = self.state();
        state.snapshot = Some(new);
        state.sealed.retain(|sealed| sealed.number > last.number);
        drop(state);
        Counters::add(&self.counters.checkpoints, 1);
        let obsolete = sealed.iter().map(|sealed| segment_name(sealed.number)).chain(old.map(Snapshot::name));
        for name in obsolete {
            self.disk.remove(&name).map_err(|error| StoreError::io(&name, error))?;
        }
        Ok(())
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
