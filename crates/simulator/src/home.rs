//! Where replicas keep their state: the embedded store on a simulated disk, or a shared store that fences.

use std::sync::Arc;

use store::embedded::{EmbeddedStore, Options};
use store::{Batch, Journals, SharedMemory, Store, StoreError, Visit};

use crate::disk::SimDisk;
use crate::mutation::Mutation;
use crate::rng::Rng;

/// Small files, so that a run of a few thousand steps rolls segments and writes snapshots.
const OPTIONS: Options =
    Options { segment_bytes: 8 * 1024, checkpoint_bytes: 16 * 1024, background: false, accept_loss: false };

pub enum Home {
    /// One replica, whose power may fail.
    Disk(SimDisk),
    /// Two replicas, of which the one that acquired last may write.
    Shared(SharedMemory),
}

impl Home {
    pub fn open(&self, rng: &mut Rng, mutation: Option<Mutation>, faults: bool) -> Result<Box<dyn Store>, StoreError> {
        let inner: Box<dyn Store> = match self {
            Home::Disk(disk) => Box::new(EmbeddedStore::open(Arc::new(disk.clone()), OPTIONS)?),
            Home::Shared(place) => {
                let place = place.clone();
                Box::new(FlakyStore { inner: place.acquire(), place, rng: rng.fork(), faults, mutation })
            }
        };
        Ok(match mutation {
            Some(Mutation::SplitsAGroup) => Box::new(SplittingStore { inner }),
            _ => inner,
        })
    }
}

/// A shared store behind a network: now and then a commit fails, before or after it took effect.
struct FlakyStore {
    place: SharedMemory,
    inner: store::MemoryStore,
    rng: Rng,
    faults: bool,
    mutation: Option<Mutation>,
}

/// The error text of a commit that took effect all the same.
pub const ANSWER_LOST: &str = "the answer was lost";

impl Store for FlakyStore {
    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.inner.load(visit)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        if self.mutation == Some(Mutation::OldLeaderWrites) {
            self.inner = self.place.acquire();
        }
        let fails = self.faults && self.rng.one_in(64);
        let lost = |what: &str| Err(StoreError::io("commit", std::io::Error::other(what.to_owned())));
        if fails && self.rng.one_in(2) {
            return lost("the request was lost");
        }
        self.inner.commit(batch)?;
        if fails { lost(ANSWER_LOST) } else { Ok(()) }
    }

    fn journals(&self) -> Journals {
        self.inner.journals()
    }

    fn confirm(&mut self) -> Result<(), StoreError> {
        if self.mutation == Some(Mutation::OldLeaderReads) {
            return Ok(());
        }
        self.inner.confirm()
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Commits what belongs together as two batches.
pub(crate) fn commit_in_halves(store: &mut dyn Store, batch: &Batch) -> Result<(), StoreError> {
    let mut halves = [Batch::new(), Batch::new()];
    for (index, row) in batch.rows().enumerate() {
        halves[usize::from(index * 2 >= batch.len())].push(row);
    }
    for entry in batch.entries() {
        halves[1].append(entry.journal, entry.at_ms, entry.value);
    }
    halves.iter().filter(|half| !half.is_empty()).try_for_each(|half| store.commit(half))
}

/// The mutation that commits a group in two halves.
struct SplittingStore {
    inner: Box<dyn Store>,
}

impl Store for SplittingStore {
    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.inner.load(visit)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        commit_in_halves(&mut *self.inner, batch)
    }

    fn journals(&self) -> Journals {
        self.inner.journals()
    }

    fn confirm(&mut self) -> Result<(), StoreError> {
        self.inner.confirm()
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        self.inner.close()
    }
}
