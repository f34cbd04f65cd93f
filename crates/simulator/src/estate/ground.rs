//! Where replicas keep their state: the embedded store on a simulated disk, or a shared store that fences.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use store::embedded::{EmbeddedStore, Options};
use store::{Batch, Journals, MemoryStore, Moment, SharedMemory, Space, Store, StoreError, Table, Term, Visit};

use super::mutation::Mutation;
use crate::disk::SimDisk;

/// Small files, so that some dozens of groups roll segments and write snapshots.
pub const OPTIONS: Options =
    Options { segment_bytes: 32 * 1024, checkpoint_bytes: 64 * 1024, background: false, accept_loss: false };
/// Terms end when the world says so.
const LEASE: Duration = Duration::from_secs(1_000_000);

pub enum Ground {
    /// One replica, whose power may fail.
    Disk(SimDisk),
    /// Two replicas, of which the one that acquired last may write.
    Shared(SharedMemory, Ordered),
}

/// What is to happen to the next commit to a shared store.
#[derive(Clone, Default)]
pub struct Ordered(Arc<AtomicU8>);

const REQUEST_LOST: u8 = 1;
const ANSWER_LOST: u8 = 2;

impl Ordered {
    pub fn lose_request(&self) {
        self.0.store(REQUEST_LOST, Ordering::Relaxed);
    }

    pub fn lose_answer(&self) {
        self.0.store(ANSWER_LOST, Ordering::Relaxed);
    }
}

impl Ground {
    pub fn open(&self, mutation: Option<Mutation>) -> Result<Box<dyn Store>, StoreError> {
        let inner: Box<dyn Store> = match self {
            Ground::Disk(disk) => Box::new(EmbeddedStore::open(Arc::new(disk.clone()), OPTIONS)?),
            Ground::Shared(place, ordered) => {
                let term = Term::new(Moment::now(), LEASE);
                Box::new(Leased { inner: place.acquire(), ordered: ordered.clone(), term })
            }
        };
        Ok(match mutation {
            Some(mutation) => mutation.store(inner, self),
            None => inner,
        })
    }
}

/// A shared store behind a network, which is held for a term.
struct Leased {
    inner: MemoryStore,
    ordered: Ordered,
    term: Term,
}

impl Store for Leased {
    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.inner.load(visit)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let lost = |what: &str| Err(StoreError::io("commit", std::io::Error::other(what.to_owned())));
        // Whoever was replaced learns that first.
        self.inner.confirm()?;
        match self.ordered.0.swap(0, Ordering::Relaxed) {
            REQUEST_LOST => lost("the request was lost"),
            ANSWER_LOST => self.inner.commit(batch).and(lost("the answer was lost")),
            _ => self.inner.commit(batch),
        }
    }

    fn confirm(&mut self) -> Result<(), StoreError> {
        self.inner.confirm()
    }

    fn term(&self) -> Term {
        self.term.clone()
    }

    fn journals(&self) -> Journals {
        self.inner.journals()
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Reads all rows by the way, independently of the engine.
pub struct Spy {
    pub inner: Box<dyn Store>,
    pub rows: BTreeMap<(Table, Vec<u8>), Vec<u8>>,
    /// The mistake of telling the engine nothing of moments that are to come.
    pub hides_moments: bool,
}

/// What the keys of moments begin with.
const MOMENT: &[u8] = b"due/";

impl Store for Spy {
    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let (rows, hides_moments) = (&mut self.rows, self.hides_moments);
        self.inner.load(&mut |table, key, value| {
            rows.insert((table, key.to_vec()), value.to_vec());
            if !(hides_moments && table == Table::META && key.starts_with(MOMENT)) {
                visit(table, key, value);
            }
        })
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.inner.commit(batch)
    }

    fn space(&self) -> Space {
        self.inner.space()
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        self.inner.close()
    }
}
