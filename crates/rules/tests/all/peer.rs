//! Asks a Go program over Kubernetes' own libraries (tests/parts/cmd) what the answer is.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

/// One question a line, one answer a line. The program is built when missing.
pub fn ask(name: &str, questions: &[String]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = Command::new(root.join("scripts/parts")).arg(name).output().expect("run scripts/parts");
    assert!(built.status.success(), "no Go peer to compare with: {}", String::from_utf8_lossy(&built.stderr));
    let program = String::from_utf8(built.stdout).expect("a path");
    let mut peer =
        Command::new(program.trim()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start the peer");
    let mut input = peer.stdin.take().expect("piped");
    let text: String = questions.iter().map(|question| format!("{question}\n")).collect();
    // The peer answers while it reads, so writing and reading must overlap.
    let writer = thread::spawn(move || input.write_all(text.as_bytes()));
    let output = peer.wait_with_output().expect("the peer's answers");
    let written = writer.join().expect("no panic");
    assert!(output.status.success() && written.is_ok(), "the peer failed");
    let answers: Vec<String> = String::from_utf8(output.stdout).expect("text").lines().map(str::to_string).collect();
    assert_eq!(answers.len(), questions.len(), "an answer to each question");
    answers
}

pub fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex(word: &str) -> String {
    let byte = |at: usize| u8::from_str_radix(&word[at..at + 2], 16).expect("hex");
    String::from_utf8_lossy(&(0..word.len()).step_by(2).map(byte).collect::<Vec<u8>>()).into_owned()
}
