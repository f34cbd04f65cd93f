//! The engine: objects, rules and ledger, changed one step at a time. What is written and what it is charged are decided
//! together, with all that follows from it.
//!
//! ```text
//! Write ──▶ Engine::write ──▶ Written, or Refused
//!                 │
//!                 ├─ take_writes ──▶ objects, for whoever stores them
//!                 ├─ take_records ─▶ entries of journals that go with them
//!                 └─ seal ─────────▶ rows of the ledger, balances, facts: once a group of steps
//! ```
//!
//! Where objects are stored by somebody else, what is stored is seen ([`Engine::see`]), and what is going to be is held
//! ([`Engine::hold`]).
//!
//! The engine reads no clock, no file and no socket. What it has to know comes in with a write or at its start
//! ([`Loaded`]); what it did is told ([`Effect`], [`Effects`]), and whoever runs it stores that: the server in its own store,
//! a test in memory ([`desk::Desk`]). Start reading at [`Engine`].

mod accompany;
mod audit;
mod behind;
mod broken;
mod clock;
mod command;
mod countable;
mod counted;
mod decide;
pub mod desk;
mod effects;
mod engine;
mod follow;
mod foretell;
mod hold;
mod identity;
mod install;
mod load;
mod measured;
mod moments;
mod object;
mod owned;
mod policies;
mod put;
mod record;
mod recount;
mod relief;
mod retire;
mod room;
mod see;
mod shelves;
mod slices;
mod snapshot_view;
mod staging;
mod stale;
mod standing;
mod status;
mod step_view;
#[cfg(test)]
mod tests;
mod together;
mod trees;
mod verify;
mod write;

pub use audit::Snapshot;
pub use command::{
    AuditReport, Expect, Foreseen, Postponed, PostponedAll, Recount, Refused, Write, WriteKind, Writes, Written,
    WrittenAll,
};
pub use effects::{Decided, Decision, Effect, Effects, EventKind, Fact};
pub use engine::Engine;
pub use follow::Bounds;
pub use hold::{Held, Hold};
pub use identity::named_uid;
pub use load::Loaded;
pub use object::{Draft, DraftError, NAMES_BYTES_MAX, Object, ObjectKey, Unreadable, parse_uid, string_map};
pub use room::Room;
pub use see::Sight;
pub use shelves::{Shelf, Shelves};
pub use slices::{Counted, Found, Wanted};
pub use status::PUBLISHED_MAX;
pub use step_view::StepView;
pub use verify::Verified;
pub use write::WRITES_MAX;
