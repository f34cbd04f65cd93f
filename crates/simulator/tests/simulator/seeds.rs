//! Whole runs.

use std::hash::{BuildHasher, RandomState};

use simulator::mutation::{self, Mutation};
use simulator::rare::Rare;
use simulator::world::{Config, Report, Watch, run};

/// As in the program that replays a seed.
const TICKS: u64 = 3000;
const FIXED_SEEDS: u64 = 300;
const FRESH_SEEDS: u64 = 100;
/// Seeds within which a broken engine must be caught.
const SEEDS_TO_CATCH: u64 = 60;

fn sound(seed: u64) -> Report {
    run(Config { seed, ticks: TICKS, mutation: None, watch: Watch::Steps }).unwrap_or_else(|trouble| {
        panic!("seed {seed} failed: {trouble}\nreplay: cargo run -p simulator -- --seed {seed} --ticks {TICKS}")
    })
}

#[test]
fn fixed_seeds_keep_every_promise_and_meet_every_rare_state() {
    let mut rare = Rare::default();
    for seed in 1..=FIXED_SEEDS {
        rare.add(&sound(seed).rare);
    }
    assert!(rare.never_met().is_empty(), "never met: {:#?}", rare.never_met());
}

#[test]
fn fresh_seeds_keep_every_promise() {
    let first = RandomState::new().hash_one(0u8) >> 16;
    println!("fresh seeds from {first}");
    for seed in first..first + FRESH_SEEDS {
        sound(seed);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [1, 2, 3, 4, 77, 4711] {
        assert_eq!(format!("{:?}", sound(seed)), format!("{:?}", sound(seed)), "seed {seed}");
    }
}

/// Without the comparison at every step: the check of durable rows and of the history must find it alone.
fn is_caught(mutation: Mutation) -> Option<(u64, String)> {
    (1..=SEEDS_TO_CATCH).find_map(|seed| {
        let config = Config { seed, ticks: TICKS, mutation: Some(mutation), watch: Watch::History };
        run(config).err().map(|trouble| (seed, trouble))
    })
}

#[test]
fn every_broken_engine_is_caught() {
    let escaped: Vec<Mutation> = mutation::ALL
        .into_iter()
        .filter(|mutation| match is_caught(*mutation) {
            Some((seed, trouble)) => {
                let first: String = trouble.chars().take(160).collect();
                println!("{mutation:?}: seed {seed}: {first}");
                false
            }
            None => true,
        })
        .collect();
    assert!(escaped.is_empty(), "not caught within {SEEDS_TO_CATCH} seeds: {escaped:?}");
}

/// The kinds of trouble that name a broken promise of the service, not a mere difference.
#[test]
fn broken_engines_are_caught_by_the_promise_they_break() {
    let expected = [
        (Mutation::AnswersBeforeDurable, &["A1", "A5", "A7"][..]),
        (Mutation::SyncDoesNothing, &["A7"]),
        (Mutation::ForgetsARow, &["A7"]),
        (Mutation::ForgetsAnEntry, &["A7"]),
        (Mutation::OldLeaderWrites, &["A2", "A3", "A7"]),
        (Mutation::OldLeaderReads, &["A1"]),
        (Mutation::RunsDuplicates, &["A6"]),
        (Mutation::DeniesWhatFits, &["A4"]),
        (Mutation::PublishesTooLittle, &["A8"]),
        (Mutation::WakesTwice, &["A3"]),
        (Mutation::ChargesWhatItDenied, &["A3", "A4", "B6"]),
        (Mutation::UndoneStepLeavesATrace, &["A1", "A2", "A3", "A4", "B6"]),
    ];
    for (mutation, letters) in expected {
        let (seed, trouble) = is_caught(mutation).expect("the test above says that it is");
        assert!(letters.iter().any(|letter| trouble.contains(letter)), "{mutation:?}: seed {seed}: {trouble}");
    }
}
