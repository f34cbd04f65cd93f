//! The ledger at its border: one table language, a naive model, every interleaving of small scripts, damaged rows.

mod cases;
mod harness;
mod interleavings;
// The simulator compares with the same model; it is plain code without further dependencies.
#[path = "../../../simulator/src/naive/mod.rs"]
mod naive;
mod properties;
mod rows;
mod scale;
mod table;
