//! What must hold for any bytes whatever, one function a target.
//!
//! [`TARGETS`] is the list. The harnesses that belong to the tests of one crate stay there and are taken in by path; those
//! that need several crates are files of this folder. `cargo test -p fuzz` plays the kept corpus, `scripts/fuzz` looks for
//! more.

mod continuation;
mod damage;
mod etcd_answers;
mod model_etcd;
mod quantities;
mod requests;
mod sequences;
mod tenancy;
mod tokens;

#[path = "../../rules/tests/all/cel_harness.rs"]
mod cel_harness;
#[path = "../../kinds/tests/all/decode_harness.rs"]
mod decode_harness;
#[path = "../../ledger/tests/ledger/harness.rs"]
#[allow(dead_code)]
mod harness;
#[path = "../../rules/tests/all/jsonpath_harness.rs"]
mod jsonpath_harness;
#[path = "../../simulator/src/naive/mod.rs"]
#[allow(dead_code)]
mod naive;
#[path = "../../kinds/tests/all/patch_harness.rs"]
mod patch_harness;
#[path = "../../rules/tests/all/selector_harness.rs"]
mod selector_harness;
#[path = "../../server/tests/api/harness.rs"]
#[allow(dead_code)]
mod server_harness;
#[path = "../../store/tests/store/test_disk.rs"]
#[allow(dead_code)]
mod test_disk;

use kinds::decode::Format;

/// A target: any bytes go in; what does not hold panics.
pub type Target = fn(&[u8]);

pub const TARGETS: &[(&str, Target)] = &[
    ("apply", sequences::check_apply),
    ("cel", cel_harness::check_bytes),
    ("continuation", continuation::check_bytes),
    ("decode", decode_harness::check_bytes),
    ("etcd", etcd_answers::check_bytes),
    ("json_patch", sequences::check_json_patch),
    ("jsonpath", jsonpath_harness::check_bytes),
    ("ledger_ops", ledger_ops),
    ("ledger_rows", harness::load),
    ("log", damage::check_bytes),
    ("patch", patch_harness::check_bytes),
    ("protobuf", protobuf),
    ("quantity", quantities::harness::check_bytes),
    ("request", requests::check_bytes),
    ("selector", selector_harness::check_bytes),
    ("token", tokens::check_bytes),
    ("yaml", yaml),
];

/// The target of that name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}

/// Any bytes as a sequence of ledger steps, compared with the naive model after each.
fn ledger_ops(bytes: &[u8]) {
    let (blocks, _) = bytes.as_chunks::<24>();
    if let Err(error) = harness::run(blocks) {
        panic!("{error}");
    }
}

/// The first byte says which kind, the rest is the body.
fn yaml(bytes: &[u8]) {
    let &[kind, ref body @ ..] = bytes else { return };
    decode_harness::check_body(Format::Yaml, usize::from(kind), body);
}

fn protobuf(bytes: &[u8]) {
    let &[kind, ref body @ ..] = bytes else { return };
    decode_harness::check_body(Format::Protobuf, usize::from(kind), body);
}
