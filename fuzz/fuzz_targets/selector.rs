//! Any bytes as a label selector, a field selector, and a selector object.
#![no_main]

#[path = "../../crates/rules/tests/all/selector_harness.rs"]
mod selector_harness;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| selector_harness::check_bytes(bytes));
