//! Any bytes as an object, a patch and a third text: patches, server-side apply, field sets and schemas.
#![no_main]

#[path = "../../crates/kinds/tests/all/patch_harness.rs"]
mod patch_harness;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| patch_harness::check_bytes(bytes));
