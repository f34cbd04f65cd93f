//! Journals on a disk that dies at any call, keeps any part of what was not synced, and is full at times: entries and rows of a
//! commit are there together or not at all, in order, and what was retired stays so.

use std::collections::BTreeMap;
use std::sync::Arc;

use simulator::disk::{CALLS, Call, SimDisk};
use simulator::rng::Rng;
use store::embedded::{EmbeddedStore, Options};
use store::{Batch, Journal, Journals, PageLimit, Retention, Store, StoreError, Table};

const OPTIONS: Options = Options { segment_bytes: 4096, checkpoint_bytes: 8192, background: false, accept_loss: false };
const JOURNALS: [Journal; 2] = [Journal::AUDIT, Journal::EVENTS];
const KEPT: Retention = Retention { age_ms: Some(400), bytes: Some(24 * 1024), stays_from: None };

/// How many entries each journal has been given.
type Counts = [u64; 2];

struct Life {
    disk: SimDisk,
    rng: Rng,
    clock_ms: i64,
    /// Acknowledged, and what the last commit, which failed, would have made of it.
    counts: Counts,
    unknown: Option<Counts>,
    /// From which entry on each journal was readable when last seen.
    starts: [u64; 2],
    deaths: u64,
    retired: bool,
}

fn value(journal: usize, sequence: u64) -> Vec<u8> {
    let length = 1 + (sequence * 7 + journal as u64) % 150;
    let mut value = sequence.to_be_bytes().to_vec();
    value.resize(8 + usize::try_from(length).unwrap(), u8::try_from(sequence % 251).unwrap());
    value
}

fn encode(counts: Counts) -> Vec<u8> {
    counts.map(u64::to_be_bytes).concat()
}

impl Life {
    fn new(seed: u64) -> Life {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(rng.fork(), false);
        let (counts, starts) = ([0; 2], [1; 2]);
        Life { disk, rng, clock_ms: 1000, counts, unknown: None, starts, deaths: 0, retired: false }
    }

    /// Opens, checks, and goes on until something fails; `Err` is what must never be.
    fn live(&mut self, commits: u64) -> Result<(), String> {
        let opened = EmbeddedStore::open(Arc::new(self.disk.clone()), OPTIONS);
        let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let loaded = opened.and_then(|mut store| {
            store.load(&mut |_, key, value| drop(rows.insert(key.to_vec(), value.to_vec())))?;
            Ok(store)
        });
        let mut store = match loaded {
            Ok(store) => store,
            Err(error) => return self.excused(&error),
        };
        let found = rows.get(b"counts".as_slice()).cloned().unwrap_or_else(|| encode([0; 2]));
        if let Some(unknown) = self.unknown.take()
            && found == encode(unknown)
        {
            self.counts = unknown;
        }
        if found != encode(self.counts) {
            return Err(format!("rows say {found:?}, acknowledged were {:?}", self.counts));
        }
        let journals = store.journals();
        JOURNALS.iter().for_each(|journal| journals.retain(*journal, KEPT));
        match self.check(&journals) {
            Ok(checked) => checked?,
            Err(error) => return self.excused(&error),
        }
        for _ in 0..commits {
            let (batch, counts) = self.batch();
            if let Err(error) = store.commit(&batch) {
                self.unknown = Some(counts);
                drop((store, journals));
                return self.excused(&error);
            }
            self.counts = counts;
            if self.rng.one_in(10) {
                journals.retire(self.clock_ms);
                // Whoever was told that something is retired is not told otherwise later.
                for (journal, start) in JOURNALS.iter().zip(&mut self.starts) {
                    *start = journals.span(*journal).map_err(|error| error.to_string())?.start;
                    self.retired |= *start > 1;
                }
            }
        }
        drop((store, journals));
        self.disk.restart_process();
        Ok(())
    }

    fn batch(&mut self) -> (Batch, Counts) {
        let mut counts = self.counts;
        let mut batch = Batch::new();
        for _ in 0..self.rng.below(4) {
            let index = self.rng.index(2);
            counts[index] += 1;
            self.clock_ms += i64::try_from(self.rng.below(4)).unwrap();
            batch.append(JOURNALS[index], self.clock_ms, &value(index, counts[index]));
        }
        batch.put(Table::META, b"counts", &encode(counts));
        let key = self.rng.below(8).to_be_bytes();
        batch.put(Table::OBJECTS, &key, &vec![1; usize::try_from(self.rng.below(200)).unwrap()]);
        (batch, counts)
    }

    fn check(&mut self, journals: &Journals) -> Result<Result<(), String>, StoreError> {
        for (index, journal) in JOURNALS.iter().enumerate() {
            let span = journals.span(*journal)?;
            if span.end != self.counts[index] + 1 || span.start < self.starts[index] {
                let (count, start) = (self.counts[index], self.starts[index]);
                return Ok(Err(format!("{journal:?} has {span:?} of {count} entries, and was seen from {start} on")));
            }
            let mut from = span.start;
            while from < span.end {
                let page = journals.forward(*journal, from, PageLimit { entries: 64, bytes: 9000 })?;
                if page.entries.is_empty() {
                    return Ok(Err(format!("{journal:?} ends at {from} of {span:?}")));
                }
                for entry in page.entries {
                    if entry.sequence != from || entry.value != value(index, from) {
                        return Ok(Err(format!("{journal:?}: entry {from} is {entry:?}")));
                    }
                    from += 1;
                }
            }
            self.starts[index] = span.start;
        }
        Ok(Ok(()))
    }

    /// An error is excused by a fault that was ordered; the machine starts again.
    fn excused(&mut self, error: &StoreError) -> Result<(), String> {
        let faults = self.disk.take_failed().len() as u64 + self.disk.take_refused_full();
        if faults == 0 && !self.disk.has_died() {
            return Err(format!("without a fault: {error}"));
        }
        self.deaths += 1;
        if self.disk.has_died() || self.rng.one_in(2) {
            self.disk.crash()
        } else {
            self.disk.restart_process()
        }
        Ok(())
    }
}

#[test]
fn entries_survive_a_death_at_any_call() {
    let (mut deaths, mut retired) = (0, 0);
    for seed in 0..400 {
        let mut life = Life::new(seed);
        for round in 0..10 {
            match seed % 4 {
                // One call after the other, so that none is left out.
                0 | 1 => life.disk.die_after(1 + seed * 3 + round * 17),
                2 => life.disk.fail(CALLS[life.rng.index(CALLS.len())], life.rng.below(60)),
                _ => {
                    let calls = 1 + life.rng.below(900);
                    life.disk.die_after(calls);
                }
            }
            if let Err(trouble) = life.live(60) {
                panic!("seed {seed}, round {round}: {trouble}");
            }
        }
        life.disk.heal();
        life.live(5).unwrap_or_else(|trouble| panic!("seed {seed}, at last: {trouble}"));
        deaths += life.deaths;
        retired += u64::from(life.retired);
    }
    assert!(deaths > 1500 && retired > 100, "{deaths} deaths, {retired} that retired");
}

/// A sync that fails leaves in the kernel's memory what is not on the disk. The next process believes it, and then the power goes.
#[test]
fn entries_survive_failed_syncs_and_a_power_failure_after_them() {
    let mut deaths = 0;
    for seed in 2000..2600 {
        let mut life = Life::new(seed);
        for round in 0..12 {
            let call = if life.rng.one_in(4) { Call::SyncNames } else { Call::Sync };
            let nth = life.rng.below(90);
            life.disk.fail(call, nth);
            if let Err(trouble) = life.live(60) {
                panic!("seed {seed}, round {round}: {trouble}");
            }
            life.disk.heal();
            let commits = life.rng.below(12);
            if let Err(trouble) = life.live(commits) {
                panic!("seed {seed}, after round {round}: {trouble}");
            }
            if life.rng.one_in(2) {
                life.disk.crash();
            }
        }
        deaths += life.deaths;
    }
    assert!(deaths > 1500, "{deaths} deaths");
}

#[test]
fn entries_survive_a_full_disk() {
    for seed in 1000..1100 {
        let mut life = Life::new(seed);
        life.live(150).unwrap();
        for round in 0..6 {
            let spare = usize::try_from(life.rng.below(12_000)).unwrap();
            life.disk.fill(Some(spare));
            if life.rng.one_in(2) {
                let calls = 100 + life.rng.below(900);
                life.disk.die_after(calls);
            }
            if let Err(trouble) = life.live(80) {
                panic!("seed {seed}, round {round}: {trouble}");
            }
            life.disk.heal();
            life.live(20).unwrap_or_else(|trouble| panic!("seed {seed}, after round {round}: {trouble}"));
        }
    }
}
