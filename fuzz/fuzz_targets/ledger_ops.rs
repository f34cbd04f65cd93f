//! Any bytes as a sequence of ledger steps, compared with the naive model after each.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/ledger/tests/ledger/harness.rs"]
#[allow(dead_code)]
mod harness;
#[path = "../../crates/simulator/src/naive/mod.rs"]
#[allow(dead_code)]
mod naive;

fuzz_target!(|bytes: &[u8]| {
    let (blocks, _) = bytes.as_chunks::<24>();
    if let Err(error) = harness::run(blocks) {
        panic!("{error}");
    }
});
