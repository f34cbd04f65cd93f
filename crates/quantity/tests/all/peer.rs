//! The same texts to Kubernetes' own library: whatever it reads and we do not refuse, we read alike.
//!
//! The peer is a small Go program over k8s.io/apimachinery (tests/parts/cmd/quantity), built once by scripts/parts.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use num_bigint::BigInt;
use quantity::{Format, ParseError, Quantity};

use super::model;
use super::random::Random;

const TEXTS: usize = 1_000_000;
const PAIRS: usize = 100_000;

#[test]
fn kubernetes_reads_and_prints_the_same() {
    let mut random = Random(0x90);
    let texts: Vec<String> = (0..TEXTS).map(|_| random.quantity()).filter(|text| is_safe_to_send(text)).collect();
    let answers = ask(texts.iter().map(|text| format!("parse|{}", hex(text))));
    assert_eq!(answers.len(), texts.len());
    let mut accepted = 0;
    for (text, theirs) in texts.iter().zip(&answers) {
        let ours = match Quantity::parse(text) {
            Ok(quantity) => {
                accepted += 1;
                format!(
                    "{quantity}|{}|{}|{}|{:?}",
                    quantity.amount().nanos(),
                    quantity.canonical(),
                    quantity.clone().round_up_milli(),
                    quantity.format()
                )
            }
            // Deliberate refusals: theirs must be a value outside our range, or one they print as another.
            Err(ParseError::TooLarge | ParseError::Unprintable) => {
                let nanos: BigInt = theirs.split('|').nth(1).expect("a value").parse().expect("a number");
                assert!(!model::printable(&nanos, Format::DecimalSi), "{text:?} refused");
                continue;
            }
            Err(ParseError::TooLong) => continue,
            Err(error) => format!("error|{error}"),
        };
        assert_eq!(ours, *theirs, "{text:?}");
    }
    assert!(accepted > TEXTS / 4, "only {accepted} texts were quantities: the generator went astray");
}

#[test]
fn kubernetes_adds_subtracts_multiplies_and_compares_the_same() {
    let mut random = Random(0x91);
    let mut pairs = Vec::new();
    while pairs.len() < PAIRS {
        let (left, right) = (random.quantity(), random.quantity());
        if let (Ok(a), Ok(b)) = (Quantity::parse(&left), Quantity::parse(&right)) {
            pairs.push((left, right, a, b));
        }
    }
    let factor = |b: &Quantity| b.amount().to_units().unwrap_or(3) % 1000;
    let answers =
        ask(pairs.iter().map(|(left, right, _, b)| format!("pair|{}|{}|{}", hex(left), hex(right), factor(b))));
    assert_eq!(answers.len(), pairs.len());
    for ((left, right, a, b), theirs) in pairs.iter().zip(&answers) {
        let results = [a.checked_add(b), a.checked_sub(b), a.checked_mul(factor(b))];
        let theirs: Vec<&str> = theirs.split('|').collect();
        for (ours, theirs) in results.iter().zip(&theirs) {
            // `None` is our refusal of a sum that Kubernetes cannot print; the model's tests bound it.
            if let Some(ours) = ours {
                assert_eq!(ours.to_string(), *theirs, "{left} and {right}");
            }
        }
        assert_eq!((a.cmp(b) as i8).to_string(), theirs[3], "{left} <=> {right}");
    }
}

/// The peer would compute 10 to the power of whatever it reads; exponents we refuse are never sent.
fn is_safe_to_send(text: &str) -> bool {
    Quantity::parse(text) != Err(ParseError::Exponent)
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// One question a line, one answer a line.
fn ask(questions: impl Iterator<Item = String>) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = Command::new(root.join("scripts/parts")).arg("quantity").output().expect("run scripts/parts");
    assert!(built.status.success(), "no Go peer to compare with: {}", String::from_utf8_lossy(&built.stderr));
    let program = String::from_utf8(built.stdout).expect("a path");
    let mut peer =
        Command::new(program.trim()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start the peer");
    let mut input = peer.stdin.take().expect("piped");
    let text: String = questions.map(|question| question + "\n").collect();
    // The peer answers while it reads, so writing and reading must overlap.
    let writer = thread::spawn(move || input.write_all(text.as_bytes()));
    let output = peer.wait_with_output().expect("the peer's answers");
    writer.join().expect("no panic").expect("the peer read everything");
    assert!(output.status.success(), "the peer failed");
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_string).collect()
}
