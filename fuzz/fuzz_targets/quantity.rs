//! Any bytes: one quantity, or two with a comma between them, compared with big integers.
#![no_main]

#[path = "../../crates/quantity/tests/all/harness.rs"]
mod harness;
#[path = "../../crates/quantity/tests/all/model.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| harness::check_bytes(bytes));
