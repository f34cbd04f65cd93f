//! Bursar as a guest in a cluster that people already have: quotas are decided in a validating webhook, over a mirror of what
//! the cluster's API server stores.
//!
//! ```text
//!   webhook ──Review──▶ ┌ core ───────────────┐ ──▶ store: holds and ledger, one commit before any answer
//!   watches ──Sights──▶ │ engine over a mirror│ ──▶ pushes: statuses, and what policies keep, over the cluster's API
//!   clock ────Settle──▶ └─────────────────────┘ ──▶ what has to be watched, and registered
//! ```
//!
//! An object is stored by somebody else, after it was asked for here. So what is granted is *held*, durably, before the answer;
//! the first sight of the object in a later version decides the hold; and what is not seen in time is looked for, and given up
//! where it is not there. Start reading at [`core::Core`], which has no thread, no clock and no socket; [`run`] puts it to work.

pub mod certificates;
pub mod cluster;
pub mod core;
pub mod guests;
pub mod holds;
mod journal;
pub mod kept_back;
pub mod loops;
pub mod metrics;
pub mod push;
pub mod registrar;
pub mod registration;
pub mod review;
pub mod run;
mod sent;
pub mod sight;
pub mod watch;
mod watches;
pub mod webhook;
pub mod words;

pub use journal::{Journal, JournalError};
