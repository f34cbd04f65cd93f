//! The ledger at its border: one table language, a naive model, every interleaving of small scripts, damaged rows.

mod along;
mod cases;
mod closing;
mod harness;
mod holds;
mod interleavings;
// The simulator compares with the same model and uses more of it; it is plain code without further dependencies.
#[allow(dead_code)]
#[path = "../../../simulator/src/naive/mod.rs"]
mod naive;
mod properties;
mod queues;
mod rows;
mod scale;
mod steps;
mod table;
