//! Runs our small Go programs over the Kubernetes packages. Where Go is missing the test fails and says what to install:
//! a comparison that is skipped in silence compares nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Builds the program and gives its path.
pub fn program(name: &str) -> PathBuf {
    let output = Command::new(root().join("scripts/parts")).arg(name).output().expect("scripts/parts starts");
    assert!(output.status.success(), "scripts/parts {name}: {}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).expect("a path").trim_end())
}
