//! Rows in memory: for tests, for simulations, and as the plain model the durable stores are compared with.
//!
//! [`SharedMemory`] outlives its writers, as a disk or an etcd does, and fences: whoever acquired it last may write.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::journal::{Journal, Journals, Pile, Retention, Source};
use crate::{Batch, Store, StoreError, Table, Visit};

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<(Table, Vec<u8>), Vec<u8>>,
    journals: BTreeMap<Journal, Appended>,
    epoch: u64,
    commits: u64,
}

/// One journal.
#[derive(Debug, Default)]
struct Appended {
    entries: BTreeMap<u64, (i64, Vec<u8>)>,
    /// The last number that was given.
    last: u64,
    retention: Retention,
}

impl Appended {
    fn span(&self) -> Range<u64> {
        let next = self.last + 1;
        self.entries.keys().next().copied().unwrap_or(next)..next
    }

    /// From the oldest on, one by one: what goes is what a plain reading of the retention says.
    fn retire(&mut self, now_ms: i64) {
        let mut bytes: u64 = self.entries.values().map(|(_, value)| value.len() as u64).sum();
        let too_old = self.retention.too_old(now_ms);
        while let Some(oldest) = self.entries.first_entry() {
            let (at_ms, value) = oldest.get();
            let goes =
                too_old.is_some_and(|before| *at_ms < before) || self.retention.bytes.is_some_and(|max| bytes > max);
            if !goes || *oldest.key() >= self.retention.border() {
                return;
            }
            bytes -= value.len() as u64;
            oldest.remove();
        }
    }
}

/// The place itself. Clones are the same place.
#[derive(Clone, Debug, Default)]
pub struct SharedMemory(Arc<Mutex<State>>);

impl SharedMemory {
    pub fn new() -> SharedMemory {
        SharedMemory::default()
    }

    /// Becomes the writer; the writer before is fenced off from now on.
    pub fn acquire(&self) -> MemoryStore {
        let epoch = self.with(|state| {
            state.epoch += 1;
            state.epoch
        });
        MemoryStore { place: self.clone(), epoch }
    }

    /// Every row, for comparison.
    pub fn rows(&self) -> BTreeMap<(Table, Vec<u8>), Vec<u8>> {
        self.with(|state| state.rows.clone())
    }

    /// How many batches were committed by all writers together.
    pub fn commits(&self) -> u64 {
        self.with(|state| state.commits)
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        // The closures below cannot panic half-way, so a poisoned lock still guards whole rows.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl SharedMemory {
    fn journal<T>(&self, journal: Journal, work: impl FnOnce(&mut Appended) -> T) -> T {
        self.with(|state| work(state.journals.entry(journal).or_default()))
    }
}

impl Source for SharedMemory {
    fn span(&self, journal: Journal) -> Result<Range<u64>, StoreError> {
        Ok(self.journal(journal, |journal| journal.span()))
    }

    fn forward(&self, journal: Journal, from: u64, pile: &mut Pile) -> Result<(), StoreError> {
        self.journal(journal, |journal| {
            let mut entries = journal.entries.range(from..);
            while entries.next().is_some_and(|(sequence, (at_ms, value))| pile.push(*sequence, *at_ms, value)) {}
        });
        Ok(())
    }

    fn backward(&self, journal: Journal, before: u64, pile: &mut Pile) -> Result<(), StoreError> {
        self.journal(journal, |journal| {
            let mut entries = journal.entries.range(..before).rev();
            while entries.next().is_some_and(|(sequence, (at_ms, value))| pile.push(*sequence, *at_ms, value)) {}
        });
        Ok(())
    }

    fn since(&self, journal: Journal, at_ms: i64) -> Result<u64, StoreError> {
        Ok(self.journal(journal, |journal| {
            let first = journal.entries.iter().find(|(_, (at, _))| *at >= at_ms);
            first.map_or(journal.last + 1, |(sequence, _)| *sequence)
        }))
    }

    fn bytes(&self, journal: Journal) -> Result<u64, StoreError> {
        Ok(self.journal(journal, |journal| journal.entries.values().map(|(_, value)| value.len() as u64).sum()))
    }

    fn retain(&self, journal: Journal, retention: Retention) {
        self.journal(journal, |journal| journal.retention = retention);
    }

    fn retire(&self, now_ms: i64) {
        self.with(|state| state.journals.values_mut().for_each(|journal| journal.retire(now_ms)));
    }
}

/// The current writer of a [`SharedMemory`].
#[derive(Debug)]
pub struct MemoryStore {
    place: SharedMemory,
    epoch: u64,
}

impl MemoryStore {
    /// A place of its own.
    pub fn new() -> MemoryStore {
        SharedMemory::new().acquire()
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl Store for MemoryStore {
    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.place.with(|state| {
            for ((table, key), value) in &state.rows {
                visit(*table, key, value);
            }
        });
        Ok(())
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        if let Some((table, length)) = batch.oversize() {
            return Err(StoreError::Oversize { table, length });
        }
        self.confirm()?;
        self.place.with(|state| {
            for row in batch.rows() {
                let key = (row.table, row.key.to_vec());
                match row.value {
                    Some(value) => drop(state.rows.insert(key, value.to_vec())),
                    None => drop(state.rows.remove(&key)),
                }
            }
            for entry in batch.entries() {
                let journal = state.journals.entry(entry.journal).or_default();
                journal.last += 1;
                journal.entries.insert(journal.last, (entry.at_ms, entry.value.to_vec()));
            }
            state.commits += 1;
        });
        Ok(())
    }

    fn journals(&self) -> Journals {
        Journals::new(Arc::new(self.place.clone()))
    }

    fn confirm(&mut self) -> Result<(), StoreError> {
        match self.place.with(|state| state.epoch) {
            epoch if epoch == self.epoch => Ok(()),
            epoch => Err(StoreError::Fenced { leader: format!("writer {epoch} took over") }),
        }
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_row(key: &[u8], value: Option<&[u8]>) -> Batch {
        let mut batch = Batch::new();
        batch.push(crate::Row { table: Table::OBJECTS, key, value });
        batch
    }

    #[test]
    fn rows_outlive_the_writer() {
        let place = SharedMemory::new();
        let mut first = place.acquire();
        first.commit(&one_row(b"a", Some(b"1"))).unwrap();
        first.commit(&one_row(b"b", Some(b"2"))).unwrap();
        first.commit(&one_row(b"a", None)).unwrap();
        Box::new(first).close().unwrap();
        let mut seen = Vec::new();
        place.acquire().load(&mut |table, key, value| seen.push((table, key.to_vec(), value.to_vec()))).unwrap();
        assert_eq!(seen, [(Table::OBJECTS, b"b".to_vec(), b"2".to_vec())]);
    }

    #[test]
    fn an_old_writer_is_fenced() {
        let place = SharedMemory::new();
        let mut old = place.acquire();
        let mut new = place.acquire();
        assert!(matches!(old.commit(&one_row(b"a", Some(b"1"))), Err(StoreError::Fenced { .. })));
        assert!(matches!(old.confirm(), Err(StoreError::Fenced { .. })));
        new.confirm().unwrap();
        new.commit(&one_row(b"a", Some(b"2"))).unwrap();
        assert_eq!(place.rows().into_values().collect::<Vec<_>>(), [b"2".to_vec()]);
    }

    #[test]
    fn an_oversize_row_refuses_the_whole_batch() {
        let mut store = MemoryStore::new();
        let mut batch = one_row(b"a", Some(b"1"));
        batch.put(Table::OBJECTS, &[0; crate::KEY_BYTES_MAX + 1], b"");
        assert!(matches!(store.commit(&batch), Err(StoreError::Oversize { .. })));
        store.load(&mut |_, _, _| panic!("nothing was committed")).unwrap();
    }
}
