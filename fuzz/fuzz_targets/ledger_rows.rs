//! Any bytes as stored ledger rows: refused, or a ledger that adds up.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/ledger/tests/ledger/harness.rs"]
mod harness;
#[allow(dead_code)]
#[path = "../../crates/simulator/src/naive/mod.rs"]
mod naive;

fuzz_target!(|bytes: &[u8]| harness::load(bytes));
