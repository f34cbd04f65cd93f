//! Any bytes as a JSONPath, compiled and evaluated on a fixed object.
#![no_main]

#[path = "../../crates/rules/tests/all/jsonpath_harness.rs"]
mod jsonpath_harness;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| jsonpath_harness::check_bytes(bytes));
