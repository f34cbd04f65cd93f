//! One target under libFuzzer. `BURSAR_FUZZ` names it; the arguments are libFuzzer's own.
#![no_main]

use std::sync::OnceLock;

static TARGET: OnceLock<fuzz::Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("BURSAR_FUZZ").unwrap_or_default();
        fuzz::target(&name).unwrap_or_else(|| {
            let known: Vec<_> = fuzz::TARGETS.iter().map(|(name, _)| *name).collect();
            eprintln!("BURSAR_FUZZ names no target: {name:?}; there are {}", known.join(", "));
            std::process::exit(2)
        })
    });
    target(bytes);
});
