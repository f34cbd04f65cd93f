//! What goes wrong, one at a time.

use std::sync::Arc;

use sequencer::core::{Core, Group};
use server::core::Engine;
use store::embedded::{EmbeddedStore, Options};
use store::{Batch, MemoryStore, Store, Table};

use super::ground::{Ground, OPTIONS, Spy};
use super::judge::judge_taken;
use super::rare;
use super::replica::{LIMITS, audit};
use super::request::nothing;
use super::start::families;
use super::world::World;
use crate::disk::{CALLS, SimDisk};
use crate::network::Weather;

const STORM: Weather = Weather { lost: 3, doubled: 2, delay_max: 8 };
const STORM_TICKS: u64 = 8;
const SLOW_TICKS: u64 = 6;
/// How far the clock jumps: within a pod's grace, beyond a ticket's end, by a day.
const JUMP_MS: [i64; 4] = [3_000, 20_000, 90_000, 86_400_000];

/// What the names of the store's files begin with.
const FILES: [&str; 4] = ["log-", "snapshot-", "journal", "synced"];

impl World {
    pub fn misfortune(&mut self) -> Result<(), String> {
        match self.rng.below(10) {
            0 => self.clock_jumps(),
            1 => self.hang_up(),
            2 => {
                self.network.weather = STORM;
                self.storm_until = self.tick + STORM_TICKS;
            }
            3 => self.slow_until = self.tick + SLOW_TICKS,
            4 => {
                self.strict = !self.strict;
                self.stop(self.leader, false);
            }
            5 => return self.forget_a_row(),
            _ => return self.trouble_below(),
        }
        Ok(())
    }

    /// No further misfortune.
    pub fn calm(&mut self) {
        (self.slow_until, self.storm_until) = (0, 0);
        self.network.weather = Weather { lost: 0, doubled: 0, delay_max: 1 };
        // What failed already has to be noticed before it is mended, and a store without threads of its own looks for room when
        // something is written, or when it starts.
        self.stop(self.leader, false);
        if let Ground::Disk(disk) = &self.ground {
            disk.heal();
            self.is_full = false;
        }
    }

    fn clock_jumps(&mut self) {
        let by = JUMP_MS[self.rng.index(JUMP_MS.len())];
        if self.rng.one_in(2) {
            self.now_ms -= by;
            self.report.rare.met(rare::CLOCK_BACK);
        } else {
            self.now_ms += by;
        }
        self.told.push(format!("the clock says {}", self.now_ms));
    }

    /// A client goes away, wherever its request is.
    fn hang_up(&mut self) {
        // Above all somebody for whom something is being counted.
        let counts_for = self.replicas[self.leader].as_ref().and_then(|leader| leader.errands.counts_for());
        let is_asked = |at: usize| self.clients[at].asked.as_ref();
        let asking = |at: &usize| is_asked(*at).is_some();
        let counted = counts_for.filter(|(at, number)| is_asked(*at).is_some_and(|asked| asked.number == *number));
        let Some(client) = counted.map(|(at, _)| at).or_else(|| (0..self.clients.len()).find(asking)) else { return };
        self.clients[client].script.clear();
        let Some(asked) = self.clients[client].asked.take() else { return };
        let asker = Some((client, asked.number));
        let Some(leader) = &self.replicas[self.leader] else { return };
        let is_queued = leader.inbox.iter().any(|(one, _)| *one == asker);
        let is_decided = leader.in_flight.iter().any(|flight| flight.answers.iter().any(|(one, _)| *one == asker));
        self.report.rare.met(match (is_queued, is_decided) {
            (true, _) => rare::HUNG_UP_QUEUED,
            (_, true) => rare::HUNG_UP_DECIDED,
            _ => rare::HUNG_UP_DURABLE,
        });
        self.leave((client, asked.number));
    }

    fn trouble_below(&mut self) -> Result<(), String> {
        match &self.ground {
            Ground::Disk(disk) => {
                let disk = disk.clone();
                self.disk_trouble(&disk)
            }
            Ground::Shared(_, ordered) => {
                let ordered = ordered.clone();
                match self.rng.below(6) {
                    0 => ordered.lose_request(),
                    1 => ordered.lose_answer(),
                    2 => self.stop(self.leader, true),
                    3 => self.lose_term(),
                    _ => return self.take_over(),
                }
                Ok(())
            }
        }
    }

    /// The lease ends although nobody else wants it: the process begins a new term.
    fn lose_term(&mut self) {
        let Some(leader) = &self.replicas[self.leader] else { return };
        leader.term.lose();
        self.report.rare.met(rare::TERM_LOST);
        self.stop(self.leader, false);
    }

    /// The other replica takes over; whoever led goes on until the store refuses it.
    fn take_over(&mut self) -> Result<(), String> {
        let other = 1 - self.leader;
        self.replicas[other] = None;
        self.start(other)
    }

    fn disk_trouble(&mut self, disk: &SimDisk) -> Result<(), String> {
        if disk.has_died() {
            // Somebody notices.
            self.stop(self.leader, true);
        }
        match self.rng.below(7) {
            0 => self.stop(self.leader, true),
            1 => self.stop(self.leader, false),
            2 | 3 => {
                let calls = 1 + self.rng.below(40);
                self.told.push(format!("the power will fail after {calls} calls"));
                disk.die_after(calls);
            }
            4 => {
                let call = CALLS[self.rng.index(CALLS.len())];
                let nth = self.rng.below(4);
                self.told.push(format!("{call:?} will fail"));
                disk.fail(call, nth);
            }
            5 => {
                self.is_full = !self.is_full;
                self.is_low = true;
                disk.fill(self.is_full.then(|| self.rng.index(48 * 1024)));
                self.told.push(format!("the disk is full: {}", self.is_full));
            }
            _ => return self.damage(disk),
        }
        Ok(())
    }

    /// Cuts, empties or changes a part of a copy of what a process left behind, and starts from it: it is refused by name, or
    /// what it says is true.
    fn damage(&mut self, disk: &SimDisk) -> Result<(), String> {
        // How far the log was synced is known after the end of a process, and not for sure after a power failure.
        if disk.has_died() || self.replicas[self.leader].is_none() {
            return Ok(());
        }
        self.stop(self.leader, false);
        disk.heal();
        self.is_full = false;
        if self.perhaps.is_some() {
            return Ok(());
        }
        let copy = disk.copy();
        let place = match self.rng.below(3) {
            0 => copy.flip(),
            1 => copy.cut(false),
            _ => copy.cut(true),
        };
        let Some(place) = place else { return Ok(()) };
        let accept_loss = self.config.mutation.is_some_and(|mutation| mutation.accepts_loss());
        let options = Options { accept_loss, ..OPTIONS };
        let loaded =
            EmbeddedStore::open(Arc::new(copy), options).map_err(|error| error.to_string()).and_then(|store| {
                let mut spy = Spy { inner: Box::new(store), rows: Default::default(), hides_moments: false };
                Engine::load(&mut spy, families(self.durable.strict, None)).map_err(|error| error.to_string())?;
                let entries = self.durable.has_entries(&spy.inner.journals()).map_err(|error| error.to_string())?;
                Ok((spy.rows, entries))
            });
        match loaded {
            Err(refused) => {
                // The file itself, or one that does not go with it any more.
                let named = FILES.iter().any(|file| refused.starts_with(file));
                self.report.rare.met(rare::DAMAGE_REFUSED);
                if named { Ok(()) } else { Err(format!("A7: damage in {place} is refused without a name: {refused}")) }
            }
            Ok((rows, entries)) => {
                self.report.rare.met(rare::DAMAGE_HARMLESS);
                self.durable.is(&rows).and(entries).map_err(|why| format!("A7: damage in {place} was believed: {why}"))
            }
        }
    }

    /// Starts from a copy that lacks one row of the ledger: the start refuses it, or counts again, or the audit sees it.
    fn forget_a_row(&mut self) -> Result<(), String> {
        if self.perhaps.is_some() || self.durable.rows.is_empty() {
            return Ok(());
        }
        let of_ledger = self.durable.rows.keys().filter(|(table, _)| *table == Table::LEDGER);
        let keys: Vec<_> = of_ledger.collect();
        if keys.is_empty() {
            return Ok(());
        }
        let lost = keys[self.rng.index(keys.len())].clone();
        let mut batch = Batch::new();
        for ((table, key), value) in self.durable.rows.iter().filter(|(place, _)| **place != lost) {
            batch.put(*table, key, value);
        }
        let mut store = MemoryStore::new();
        store.commit(&batch).map_err(|error| error.to_string())?;
        let Ok((engine, cache)) = Engine::load(&mut store, families(self.durable.strict, None)) else { return Ok(()) };
        let mut group: Group<Engine, ()> = Group::default();
        let mut core = Core::new(engine, LIMITS);
        core.step(&mut group, (), nothing(self.durable.told_ms).command(&mut 0)?);
        core.seal(&mut group);
        cache.publish(group.publication);
        let differences = if self.config.mutation.is_some_and(|mutation| mutation.is_blind()) {
            Vec::new()
        } else {
            audit(&mut core.engine)?
        };
        if !differences.is_empty() {
            self.report.rare.met(rare::AUDIT_SAW);
            return Ok(());
        }
        self.report.rare.met(rare::MENDED);
        judge_taken(&self.durable, &cache).map_err(|why| format!("the audit is blind to a row that is gone: {why}"))
    }
}
