//! What must hold for any expression text: compiling and evaluating answer, and answer the same twice. The fuzz target
//! and the bounded tests both call this.

use rules::cel::Program;
use serde_json::{Value, json};

pub fn check_bytes(bytes: &[u8]) {
    let Ok(source) = std::str::from_utf8(bytes) else { return };
    let Ok(program) = Program::compile(source, &["object"]) else { return };
    let object = object();
    let first = program.eval(&[("object", &object)]);
    let second = program.eval(&[("object", &object)]);
    // Doubles may be NaN, which is not even equal to itself: compare what is shown.
    assert_eq!(format!("{first:?}"), format!("{second:?}"), "{source:?}");
    if let Ok(outcome) = first {
        let _ = outcome.into_quantities();
    }
}

fn object() -> Value {
    json!({
        "metadata": {"name": "web", "labels": {"app": "web", "tier": "1"}},
        "spec": {"replicas": 3, "items": [1, 2, 3], "size": "1Gi", "on": true, "none": null,
                 "list": [{"name": "a", "cpu": "100m"}, {"name": "b"}]},
    })
}
