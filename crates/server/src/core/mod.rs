//! The heart of `bursar serve`: objects, the ledger beside them, and what readers see.
//!
//! ```text
//! handler ── Command ──▶ sequencer ▶ Engine::step ▶ store.commit ▶ Cache::publish ──▶ Answer
//!                                     (decides)      (durable)      (readers see it)
//! ```
//!
//! [`Engine`] is owned by the sequencer and always ahead of the disk; [`Cache`] is what readers share and only ever
//! holds what is durable. Nothing in here knows HTTP.

pub mod cache;
mod command;
pub mod encryption;
mod engine;
pub mod event;
pub mod history;
mod load;
pub mod paged;
pub mod row;
#[cfg(test)]
mod tests;
mod verify;

pub use cache::{Cache, Listing, WatchCursor, WatchPoll};
pub use command::{Answer, Command, WriteAll};
pub use encryption::{Encryption, EncryptionError};
pub use engine::Engine;
pub use event::{Event, Publication};
pub use load::LoadError;
pub use verify::verify;

pub use ::engine::{
    AuditReport, Counted, Decided, Decision, Draft, DraftError, EventKind, Expect, Foreseen, Found, Held, Hold, Object,
    ObjectKey, PUBLISHED_MAX, Postponed, Recount, Refused, Snapshot, Verified, Wanted, Write, WriteKind, Writes,
    Written, string_map,
};
