use std::process::Command;

use crate::parts;

#[test]
fn the_committed_facts_are_what_kubernetes_says_today() {
    let output = Command::new(parts::program("facts")).output().expect("facts starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let fresh = String::from_utf8(output.stdout).expect("text");
    let committed = std::fs::read_to_string(parts::root().join("crates/kinds/data/facts.txt")).expect("facts.txt");
    let line = fresh.lines().zip(committed.lines()).position(|(a, b)| a != b);
    assert!(
        fresh == committed,
        "line {:?} differs; write the file anew: $(scripts/parts facts) > crates/kinds/data/facts.txt",
        line.map(|at| at + 1)
    );
}
