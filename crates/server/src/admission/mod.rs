//! What a write meets between being read and being decided, besides the families: other objects fill it in, users'
//! webhooks change or refuse it, and a Service gets its addresses.
//!
//! ```text
//! decoded, defaulted ─▶ steps ─▶ webhooks (mutating, in order) ─▶ addresses ─▶ validation ─▶ webhooks (validating) ─▶ sequencer
//! ```
//!
//! [`Admitter`] is made once, over the cache, before the first write. The quota decision comes after all of this, in the
//! sequencer: whatever a webhook adds is charged.

pub mod addresses;
pub mod file;
pub mod steps;
pub mod webhooks;

use std::sync::Arc;

pub use addresses::{AddressError, Addresses, Reservation};
pub use webhooks::{Operation, Refusal, Request, Webhooks};

use crate::core::Cache;
use crate::metrics::Metrics;
use crate::registry::Registry;

/// The parts of admission that remember something between requests.
pub struct Admitter {
    pub webhooks: Webhooks,
    pub addresses: Arc<Addresses>,
}

impl Admitter {
    /// Takes up what is stored, then every change before the write that makes it is answered. Call it before the first
    /// write can come in.
    pub fn follow(cache: &Arc<Cache>, registry: &Arc<Registry>, metrics: &Arc<Metrics>) -> Admitter {
        Admitter { webhooks: Webhooks::follow(cache, registry, metrics), addresses: Addresses::follow(cache) }
    }
}
