//! The heart of `bursar serve`: objects, the ledger beside them, and what readers see.
//!
//! ```text
//! handler ── Command ──▶ sequencer ▶ Engine::step ▶ store.commit ▶ Cache::publish ──▶ Answer
//!                                     (decides)      (durable)      (readers see it)
//! ```
//!
//! [`Engine`] is owned by the sequencer and always ahead of the disk; [`Cache`] is what readers share and only ever
//! holds what is durable. Nothing in here knows HTTP.

mod audit;
mod broken;
pub mod cache;
mod clock;
pub mod command;
mod countable;
mod counted;
mod decide;
pub mod encryption;
pub mod engine;
pub mod event;
mod follow;
pub mod history;
mod identity;
mod install;
mod load;
mod measured;
pub mod object;
pub mod paged;
mod policies;
mod put;
mod recount;
mod relief;
mod room;
mod snapshot_view;
mod status;
mod step_view;
#[cfg(test)]
mod tests;
mod verify;

pub use audit::Snapshot;
pub use cache::{Cache, Listing, WatchCursor, WatchPoll};
pub use command::{Answer, AuditReport, Command, Expect, Postponed, Refused, Write, WriteKind, Written};
pub use encryption::{Encryption, EncryptionError};
pub use engine::Engine;
pub use event::{Decided, Decision, Event, EventKind, Publication};
pub use load::LoadError;
pub use object::{Draft, DraftError, Object, ObjectKey, string_map};
pub(crate) use status::PUBLISHED_MAX;
pub use verify::{Verified, verify};
