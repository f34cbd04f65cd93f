//! What goes wrong in a world, and when.

use crate::disk::{CALLS, Call, SimDisk};
use crate::engine::{Setup, SimEngine};
use crate::home::Home;
use crate::journal;
use crate::naive::engine::compare;
use crate::rare;
use crate::world::World;

/// How often, as "one in so many ticks". A run of two thousand ticks meets each some times.
const CRASH: u64 = 150;
const DISK_FAULT: u64 = 100;
const DISK_FULL: u64 = 400;
const FLIP: u64 = 150;
const CLOCK_JUMP: u64 = 200;
const LEADER_CHANGE: u64 = 100;

/// How far the clock jumps: up to the lifetime of some holds, or by years.
const JUMP_MS: [i64; 4] = [4, 12, 1000, 40_000_000_000];

impl World {
    pub(crate) fn misfortune(&mut self) -> Result<(), String> {
        if self.rng.one_in(CLOCK_JUMP) {
            self.clock_jumps();
        }
        match &self.home {
            Home::Disk(disk) => {
                let disk = disk.clone();
                self.disk_misfortune(&disk)
            }
            Home::Shared(_) => self.shared_misfortune(),
        }
    }

    fn clock_jumps(&mut self) {
        let by = JUMP_MS[self.rng.index(JUMP_MS.len())];
        if self.rng.one_in(2) {
            self.clock = self.clock.saturating_sub(by);
            self.rare.met(rare::CLOCK_BACK);
        } else {
            self.clock = self.clock.saturating_add(by);
            self.rare.met(rare::CLOCK_FORWARD);
        }
    }

    /// Whether the disk was full since the last question.
    pub(crate) fn take_full(&mut self) -> bool {
        let Home::Disk(disk) = &self.home else { return false };
        let refused = disk.take_refused_full() > 0;
        self.rare.met_if(refused, rare::DISK_FULL);
        refused
    }

    fn disk_misfortune(&mut self, disk: &SimDisk) -> Result<(), String> {
        for call in disk.take_failed() {
            match call {
                Call::Sync | Call::SyncNames => self.rare.met(rare::SYNC_FAILED),
                Call::Write | Call::SetLength => self.rare.met(rare::WRITE_FAILED),
                Call::Rename => self.rare.met(rare::RENAME_FAILED),
                _ => {}
            }
        }
        self.take_full();
        if self.rng.one_in(CRASH) {
            self.stop(0, true);
        }
        if self.rng.one_in(DISK_FAULT) {
            // Dying in the middle of something: of a commit, or of the next start.
            let calls = 1 + self.rng.below(60);
            match self.rng.below(3) {
                0 => disk.fail(CALLS[self.rng.index(CALLS.len())], self.rng.below(6)),
                _ => disk.die_after(calls),
            }
        }
        if self.rng.one_in(DISK_FULL) {
            let spare = usize::try_from(self.rng.below(12 * 1024)).unwrap_or(0);
            disk.fill(Some(spare));
        } else if self.rng.one_in(60) {
            disk.fill(None);
        }
        if self.rng.one_in(FLIP) { self.flip_a_bit(disk) } else { Ok(()) }
    }

    /// Damages a copy of the disk and starts from it: it is refused, or what it says is true. Not even in the last
    /// group may a flipped bit pass for a torn end, because that would drop what was acknowledged.
    fn flip_a_bit(&mut self, disk: &SimDisk) -> Result<(), String> {
        if self.replicas[0].is_some() || !self.unknown.is_empty() {
            return Ok(());
        }
        let copy = disk.copy();
        copy.heal();
        let Some(place) = copy.flip() else { return Ok(()) };
        let setup = Setup { mutation: None, shadow: false };
        let opened = Home::Disk(copy).open(&mut self.rng, None, false);
        let mut first = self.first_entry;
        let loaded = opened.and_then(|mut store| {
            let engine = SimEngine::load(&mut *store, setup)?;
            Ok((engine, journal::check(&store.journals(), self.truth.sequence, &mut first, false)?))
        });
        match loaded {
            Err(_) => self.rare.met(rare::FLIP_REFUSED),
            Ok((Err(trouble), _)) => return Err(format!("a flipped bit in {place} got past the store: {trouble}")),
            Ok((Ok(engine), entries)) => match compare(&engine.ledger, &self.truth).and(entries) {
                Ok(()) => self.rare.met(rare::FLIP_HARMLESS),
                Err(difference) => return Err(format!("a flipped bit in {place} was believed: {difference}")),
            },
        }
        Ok(())
    }

    fn shared_misfortune(&mut self) -> Result<(), String> {
        if self.rng.one_in(CRASH) {
            let replica = self.rng.index(self.replicas.len());
            self.stop(replica, true);
        }
        if self.rng.one_in(LEADER_CHANGE) {
            // The other one takes over; whoever led goes on until the store refuses it.
            let replica = self.rng.index(self.replicas.len());
            let other = 1 - replica;
            let had_group = self.replicas[other].as_ref().is_some_and(|running| !running.in_flight.is_empty());
            if self.replicas[other].is_some() {
                self.rare.met(rare::LEADER_CHANGED);
                self.rare.met_if(had_group, rare::OLD_LEADER_HAD_GROUP);
            }
            self.stop(replica, false);
            self.start(replica)?;
        }
        Ok(())
    }
}
