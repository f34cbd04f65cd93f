//! Rows in memory: for tests, for simulations, and as the plain model the durable stores are compared with.
//!
//! [`SharedMemory`] outlives its writers, as a disk or an etcd does, and fences: whoever acquired it last may write.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Batch, Store, StoreError, Table, Visit};

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<(Table, Vec<u8>), Vec<u8>>,
    epoch: u64,
    commits: u64,
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
            state.commits += 1;
        });
        Ok(())
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
