//! How large a store is, for people and their monitoring.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Stays up to date; cheap to clone. All zero for a store that does not say.
#[derive(Clone, Debug, Default)]
pub struct Usage(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicU64,
    bytes_in_use: AtomicU64,
    bytes_max: AtomicU64,
    compactions: AtomicU64,
}

impl Usage {
    /// What the store's files take.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// What of it is not free for reuse. Far below [`Usage::bytes`], defragmentation would give the rest back.
    pub fn bytes_in_use(&self) -> u64 {
        self.0.bytes_in_use.load(Ordering::Relaxed)
    }

    /// How large it may become.
    pub fn bytes_max(&self) -> u64 {
        self.0.bytes_max.load(Ordering::Relaxed)
    }

    /// How often history was dropped.
    pub fn compactions(&self) -> u64 {
        self.0.compactions.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, bytes: u64, bytes_in_use: u64, bytes_max: u64) {
        self.0.bytes.store(bytes, Ordering::Relaxed);
        self.0.bytes_in_use.store(bytes_in_use, Ordering::Relaxed);
        self.0.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    pub(crate) fn compacted(&self) {
        self.0.compactions.fetch_add(1, Ordering::Relaxed);
    }
}
