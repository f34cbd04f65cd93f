//! Mistakes of a store.

use store::{Batch, Journals, SharedMemory, Space, Store, StoreError, Table, Term, Visit};

use super::ground::Ground;
use crate::home::commit_in_halves;

use super::mutation::Mutation;

/// Of so many rows one is forgotten.
const ONE_OF: u64 = 11;

pub fn of(mutation: Mutation, inner: Box<dyn Store>, ground: &Ground) -> Box<dyn Store> {
    let place = match ground {
        Ground::Shared(place, _) => Some(place.clone()),
        Ground::Disk(_) => None,
    };
    Box::new(Tampered { inner, mutation, place, rows: 0 })
}

struct Tampered {
    inner: Box<dyn Store>,
    mutation: Mutation,
    place: Option<SharedMemory>,
    /// Rows so far of the kind that is forgotten.
    rows: u64,
}

impl Tampered {
    fn forgets(&mut self, mutation: Mutation, is_of_kind: bool) -> bool {
        self.rows += u64::from(is_of_kind);
        self.mutation == mutation && is_of_kind && self.rows.is_multiple_of(ONE_OF)
    }

    fn without_some(&mut self, batch: &Batch) -> Batch {
        let mut kept = Batch::new();
        for row in batch.rows() {
            let forgets = self.forgets(Mutation::ForgetsARow, row.table == Table::LEDGER)
                || self.forgets(Mutation::ForgetsAnObject, row.table == Table::OBJECTS);
            if !forgets {
                kept.push(row);
            }
        }
        for entry in batch.entries() {
            if !self.forgets(Mutation::ForgetsAnEntry, true) {
                kept.append(entry.journal, entry.at_ms, entry.value);
            }
        }
        kept
    }
}

impl Store for Tampered {
    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.inner.load(visit)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        match (self.mutation, &self.place) {
            (Mutation::OldLeaderWrites, Some(place)) => place.acquire().commit(batch),
            (Mutation::SplitsAGroup, _) => commit_in_halves(&mut *self.inner, batch),
            (Mutation::ForgetsARow | Mutation::ForgetsAnObject | Mutation::ForgetsAnEntry, _) => {
                let kept = self.without_some(batch);
                self.inner.commit(&kept)
            }
            _ => self.inner.commit(batch),
        }
    }

    fn confirm(&mut self) -> Result<(), StoreError> {
        match self.mutation {
            Mutation::OldLeaderWrites => Ok(()),
            _ => self.inner.confirm(),
        }
    }

    fn term(&self) -> Term {
        self.inner.term()
    }

    fn journals(&self) -> Journals {
        self.inner.journals()
    }

    fn space(&self) -> Space {
        match self.mutation {
            Mutation::IgnoresLowSpace => Space::default(),
            _ => self.inner.space(),
        }
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        self.inner.close()
    }
}
