//! The crate against the model, on texts of three origins: grammar-shaped (proptest), nearly right, and noise.

use proptest::prelude::*;

use super::{harness, random::Random};

/// The bounded runs of the fuzz harness; enough to meet every branch many times in under a second.
const ROUNDS: usize = 60_000;

#[test]
fn texts_near_the_grammar_agree_with_the_model() {
    let mut random = Random(0x5eed);
    for _ in 0..ROUNDS {
        let (left, right) = (random.quantity(), random.quantity());
        harness::check_bytes(format!("{left},{right}").as_bytes());
    }
}

#[test]
fn arbitrary_bytes_are_answered() {
    let mut random = Random(0xb17e5);
    for _ in 0..ROUNDS {
        harness::check_bytes(&random.bytes());
    }
}

const QUANTITY: &str =
    r"[+-]?0{0,2}[0-9]{0,21}(\.[0-9]{0,12})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,2})?";

proptest! {
    #[test]
    fn a_quantity_agrees_with_the_model(text in QUANTITY) {
        harness::check_text(&text);
    }

    #[test]
    fn arithmetic_agrees_with_big_integers(left in QUANTITY, right in QUANTITY) {
        if let (Some(left), Some(right)) = (harness::check_text(&left), harness::check_text(&right)) {
            harness::check_pair(&left, &right);
        }
    }

    #[test]
    fn any_text_is_answered(text in any::<String>()) {
        harness::check_text(&text);
    }
}
