//! The production engine's world: `make simulate-quick` runs thousands of its seeds with the program; here are a few of them,
//! and those of broken engines.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use simulator::estate::mutation::{self, Mutation};
use simulator::estate::{Config, FAULTS, Report, datum, karmada, orgs, run};

const SEEDS: u64 = 40;
const SEEDS_WITH_ORGS: u64 = 12;
const SEEDS_WITH_DATUM: u64 = 24;
const SEEDS_WITH_KARMADA: u64 = 24;
/// Seeds within which a broken engine must be caught.
const SEEDS_TO_CATCH: u64 = 150;
/// How what the audit finds begins.
const AUDIT: &str = "the audit finds";

fn sound(seed: u64) -> Report {
    run(Config { seed, mutation: None }).unwrap_or_else(|trouble| {
        panic!("seed {seed} failed: {trouble}\nreplay: cargo run -p simulator -- --world engine --seed {seed}")
    })
}

#[test]
fn a_few_seeds_keep_every_promise() {
    for seed in 1..=SEEDS {
        let report = sound(seed);
        assert_eq!(report.faults, FAULTS);
        assert!(report.commands > 20 && report.starts > 1, "seed {seed}: {report:?}");
    }
}

#[test]
fn a_few_seeds_with_organizations_keep_every_promise() {
    let mut commands = 0;
    for seed in 1..=SEEDS_WITH_ORGS {
        let report = run(Config { seed: orgs::SEEDS + seed, mutation: None }).unwrap_or_else(|trouble| {
            panic!("seed {seed} failed: {trouble}\nreplay: cargo run -p simulator -- --world orgs --seed {seed}")
        });
        commands += report.commands;
    }
    assert!(commands > 20 * SEEDS_WITH_ORGS, "{commands}");
}

#[test]
fn a_few_seeds_with_grants_and_claims_keep_every_promise() {
    let mut commands = 0;
    for seed in 1..=SEEDS_WITH_DATUM {
        let report = run(Config { seed: datum::SEEDS + seed, mutation: None }).unwrap_or_else(|trouble| {
            panic!("seed {seed} failed: {trouble}\nreplay: cargo run -p simulator -- --world datum --seed {seed}")
        });
        commands += report.commands;
    }
    assert!(commands > 20 * SEEDS_WITH_DATUM, "{commands}");
}

#[test]
fn a_few_seeds_with_quotas_over_many_clusters_keep_every_promise() {
    let mut commands = 0;
    for seed in 1..=SEEDS_WITH_KARMADA {
        let report = run(Config { seed: karmada::SEEDS + seed, mutation: None }).unwrap_or_else(|trouble| {
            panic!("seed {seed} failed: {trouble}\nreplay: cargo run -p simulator -- --world karmada --seed {seed}")
        });
        commands += report.commands;
    }
    assert!(commands > 20 * SEEDS_WITH_KARMADA, "{commands}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [3, 4, 5] {
        assert_eq!(format!("{:?}", sound(seed)), format!("{:?}", sound(seed)), "seed {seed}");
    }
}

/// The first trouble with a mistake. What the engine's own audit finds counts only where that is expected: the count of the
/// simulator, which shares no code with it, has to find the others.
fn is_caught(mutation: Mutation, words: &[&str]) -> Option<(u64, String)> {
    let counts = |trouble: &str| !trouble.starts_with(AUDIT) || words.contains(&AUDIT);
    let mut troubles = (0..SEEDS_TO_CATCH)
        .map(|seed| mutation.first_seed() + seed)
        .filter_map(|seed| Some((seed, run(Config { seed, mutation: Some(mutation) }).err()?)));
    troubles.find(|(_, trouble)| counts(trouble))
}

#[test]
fn every_mistake_is_caught() {
    let (next, escaped) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let look = || {
        while let Some((mutation, words)) = mutation::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
            let caught = is_caught(*mutation, words);
            let first = caught.as_ref().and_then(|(_, trouble)| trouble.lines().next()).unwrap_or_default();
            println!("{mutation:?}: {:?}: {:.160}", caught.as_ref().map(|(seed, _)| seed), first);
            if !words.iter().any(|words| first.contains(words)) {
                escaped.lock().unwrap().push((*mutation, first.to_owned()));
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(look))));
    let escaped = escaped.into_inner().unwrap();
    assert!(escaped.is_empty(), "not caught within {SEEDS_TO_CATCH} seeds, or by something else: {escaped:#?}");
}

/// Mistakes that this world cannot make are made, or tested for, elsewhere.
#[test]
fn mistakes_beyond_this_world_are_tested_where_they_can_be_made() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (mistake, file, place) in mutation::ELSEWHERE {
        let text = std::fs::read_to_string(crates.join(file)).unwrap_or_default();
        assert!(text.contains(place), "{mistake}: {place} is not in {file}");
        if file.ends_with(".patch") {
            let tree = crates.parent().unwrap();
            let fits = Command::new("git").args(["apply", "--check"]).arg(crates.join(file)).current_dir(tree).status();
            assert!(fits.is_ok_and(|status| status.success()), "{mistake}: {file} does not fit the tree");
        }
    }
}
