//! Any bytes as a request body: the first chooses the format, the second the kind.
#![no_main]

#[path = "../../crates/kinds/tests/all/decode_harness.rs"]
mod decode_harness;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| decode_harness::check_bytes(bytes));
