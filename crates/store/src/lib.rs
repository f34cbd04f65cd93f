//! Where Bursar's state is kept: rows in tables, written in atomic batches, read back whole at start.
//!
//! Everything that is asked of the state is answered from memory, so a store has only three duties: hand every row over once
//! ([`Store::load`]), make one group of changes durable as a whole ([`Store::commit`]), and refuse to do so for a writer that
//! was replaced ([`StoreError::Fenced`]). Start reading at [`Store`]; [`Batch`] is what travels through it.
//!
//! ```text
//!   sequencer ──Batch──▶ Store::commit ──▶ memory     for tests and simulations
//!                                     ├──▶ embedded   an append-only log and snapshots in a folder, over `disk::Disk`
//!                                     └──▶ etcd       a shared store with several replicas standing by
//! ```
//!
//! Rows are the state, and all of it is in memory. What only grows is appended to [`Journals`] in the same batches: a store keeps
//! it, and reads it back in ranges.
//!
//! What is deliberately absent: reads by key, iterators, transactions that can be rolled back. A store never interprets a row.

mod batch;
mod clock;
pub mod disk;
pub mod embedded;
mod error;
pub mod etcd;
mod journal;
mod memory;
mod term;
mod usage;

pub use batch::{Batch, KEY_BYTES_MAX, NewEntry, Row, Table, VALUE_BYTES_MAX};
pub use clock::{Clock, MachineClock, Moment};
pub use embedded::{Dropped, EmbeddedStore, Maintenance, Space};
pub use error::StoreError;
pub use etcd::EtcdStore;
pub use journal::{
    ENTRY_BYTES_MAX, Entry, Journal, Journals, PAGE_BYTES_MAX, PAGE_ENTRIES_MAX, Page, PageLimit, Retention,
};
pub use memory::{MemoryStore, SharedMemory};
pub use term::Term;
pub use usage::Usage;

/// Is given table, key and value of every row.
pub type Visit<'a> = dyn FnMut(Table, &[u8], &[u8]) + 'a;

/// One durable home of the state, held by its only writer.
pub trait Store: Send {
    /// Hands over every live row once, in no promised order. Called once, before the first commit.
    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError>;

    /// Makes the whole batch durable, or nothing of it. When this returns `Ok` the rows survive a crash.
    ///
    /// After an error the state on disk is either the old or the new one and the store must not be used again: the caller
    /// stops, and the next start finds out which it is.
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError>;

    /// Makes sure that nobody else has become the writer: what answers without a commit rests on it.
    fn confirm(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// How long this writer may answer without asking.
    fn term(&self) -> Term {
        Term::default()
    }

    /// What was appended, for reading from any thread, once it is loaded.
    fn journals(&self) -> Journals {
        Journals::default()
    }

    /// Ends cleanly: releases locks and leases, and marks the end of the log where there is one.
    fn close(self: Box<Self>) -> Result<(), StoreError>;

    /// Whether there is room for growth; stays up to date. A store that never runs out says so forever.
    fn space(&self) -> Space {
        Space::default()
    }

    /// How many rows a group may have and still be written the quick way. A group is closed when it has reached them.
    fn group_rows(&self) -> usize {
        usize::MAX
    }

    /// Whether the state is known to be an older one than was acknowledged once, because somebody restored a backup. Known
    /// once loaded.
    fn rewound(&self) -> bool {
        false
    }

    /// How large it is; stays up to date.
    fn usage(&self) -> Usage {
        Usage::default()
    }

    /// For backups of a store in a folder of its own, once it is loaded.
    fn maintenance(&self) -> Option<Maintenance> {
        None
    }

    /// What the load left out at the end of the log.
    fn dropped(&self) -> Option<Dropped> {
        None
    }
}
