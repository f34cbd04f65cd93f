//! The second opinion on short histories: sound services are explained, broken ones are not.

use simulator::blackbox::{Verdict, explain};
use simulator::mutation::Mutation;
use simulator::world::{Config, Watch, history};

const TICKS: u64 = 260;
const SEEDS: u64 = 60;
const STEPS_MAX: u64 = 40_000;

fn judge(seed: u64, mutation: Option<Mutation>) -> Verdict {
    let config = Config { seed, ticks: TICKS, mutation, watch: Watch::Clients };
    let calls = history(config);
    assert!(calls.len() <= 200, "seed {seed}: {} calls", calls.len());
    explain(&calls, STEPS_MAX)
}

#[test]
fn what_clients_hear_has_an_explanation() {
    let mut gave_up = 0;
    for seed in 1..=SEEDS {
        match judge(seed, None) {
            Verdict::Explained => {}
            Verdict::GaveUp => gave_up += 1,
            Verdict::Impossible(call) => panic!("seed {seed}: nothing explains {call}"),
        }
    }
    assert!(gave_up * 4 < SEEDS, "gave up on {gave_up} of {SEEDS}");
}

#[test]
fn lies_have_no_explanation() {
    for mutation in [
        Mutation::AnswersBeforeDurable,
        Mutation::OldLeaderWrites,
        Mutation::ForgetsARow,
        Mutation::ForgetsALine,
        Mutation::DeniesWhatFits,
        Mutation::WakesTwice,
        Mutation::ChargesWhatItDenied,
    ] {
        let caught = (1..=SEEDS).any(|seed| matches!(judge(seed, Some(mutation)), Verdict::Impossible(_)));
        assert!(caught, "{mutation:?} was explained in {SEEDS} histories");
    }
}
