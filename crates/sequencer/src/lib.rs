//! One owner for the ledger: commands are decided one after the other, committed as a group, and answered together.
//!
//! ```text
//!   Handle::submit ──▶ bounded queue ──▶ decide (Engine::step … seal) ──▶ commit (Store) ──▶ publish ──▶ answer
//!                                        └── the next group is decided while this one is written ──┘
//! ```
//!
//! Start reading at [`Engine`], which is what an owner of state implements; [`core`] holds the two steps without any thread,
//! for the simulator; [`start`] runs them on two threads.
//!
//! What holds for every command: nothing is answered before it is durable; what it publishes is visible before its answer;
//! after a failed commit nothing is answered at all, and the process must end.

pub mod core;
mod handle;
mod running;

use store::Batch;

pub use handle::{Handle, Overloaded, Stopped, SubmitError};
pub use running::{Failure, Running, Started, start};

/// State that changes only by commands, one at a time.
pub trait Engine: Send + 'static {
    type Command: Send + 'static;
    type Answer: Send + 'static;
    /// What the readers of the state must learn of a group: new objects, events. Made visible when the group is durable.
    type Publication: Default + Send + 'static;

    /// Decides one command: changes the state in memory, adds the rows that make the change durable, and says what to answer
    /// once they are. It must not fail half-way: refusals are answers.
    fn step(&mut self, command: Self::Command, batch: &mut Batch, publication: &mut Self::Publication) -> Self::Answer;

    /// Called once when a group is complete, for rows that many commands of a group change together.
    fn seal(&mut self, _batch: &mut Batch, _publication: &mut Self::Publication) {}
}

/// The bounds of waiting and of grouping.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Commands that may wait. Beyond it a submitter waits for a place, or is told that we are overloaded.
    pub queue: usize,
    /// Commands in one group: bounds how long the first of a group waits for the last.
    pub group_commands: usize,
    /// Encoded bytes after which a group takes no further command: bounds the memory of a group and the time of its write.
    pub group_bytes: usize,
    /// Rows after which a group takes no further command; a store may ask for fewer ([`store::Store::group_rows`]).
    pub group_rows: usize,
}

impl Default for Limits {
    /// A queue some tens of milliseconds deep at full speed; groups far beyond what waits during one sync.
    fn default() -> Limits {
        Limits { queue: 4096, group_commands: 1024, group_bytes: 4 * 1024 * 1024, group_rows: usize::MAX }
    }
}
