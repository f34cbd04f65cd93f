//! What the ledger should do, written a second time in the plainest way: maps, recounting, no shared code.
//!
//! [`ops`] is a small language of steps and answers, [`model`] answers from plain maps, [`engine`] asks the real
//! ledger, [`generate`] draws steps. The ledger's property tests, its fuzz target and the simulator compare the two.

pub mod engine;
pub mod generate;
pub mod model;
pub mod ops;
mod step;
mod sweep;
