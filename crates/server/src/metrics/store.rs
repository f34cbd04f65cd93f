//! A store that counts what it is asked to make durable.

use std::sync::Arc;
use std::time::Instant;

use store::{Batch, Dropped, Journals, Maintenance, Space, Store, StoreError, Term, Usage, Visit};

use super::Metrics;

pub struct MeasuredStore {
    inner: Box<dyn Store>,
    metrics: Arc<Metrics>,
}

impl MeasuredStore {
    /// Measures a store that is loaded.
    pub fn new(inner: Box<dyn Store>, metrics: Arc<Metrics>) -> MeasuredStore {
        // A second store of one server would be a bug; the first stays the one that is shown.
        let _first = metrics.usage.set(inner.usage());
        if let Some(dropped) = inner.dropped() {
            metrics.dropped(&dropped);
        }
        MeasuredStore { inner, metrics }
    }
}

impl Store for MeasuredStore {
    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.inner.load(visit)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let begun = Instant::now();
        self.inner.commit(batch)?;
        self.metrics.committed(batch.len(), batch.bytes(), begun.elapsed());
        Ok(())
    }

    fn confirm(&mut self) -> Result<(), StoreError> {
        self.inner.confirm()
    }

    fn term(&self) -> Term {
        self.inner.term()
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        self.inner.close()
    }

    fn space(&self) -> Space {
        self.inner.space()
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    fn rewound(&self) -> bool {
        self.inner.rewound()
    }

    fn group_rows(&self) -> usize {
        self.inner.group_rows()
    }

    fn maintenance(&self) -> Option<Maintenance> {
        self.inner.maintenance()
    }

    fn journals(&self) -> Journals {
        self.inner.journals()
    }

    fn dropped(&self) -> Option<Dropped> {
        self.inner.dropped()
    }
}
