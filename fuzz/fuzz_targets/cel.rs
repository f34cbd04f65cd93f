//! Any bytes as a CEL expression, compiled and evaluated on a fixed object.
#![no_main]

#[path = "../../crates/rules/tests/all/cel_harness.rs"]
mod cel_harness;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cel_harness::check_bytes(bytes));
