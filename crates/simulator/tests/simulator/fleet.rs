//! The world of many clusters: a few seeds of it, a thousand failovers, and lenders that make mistakes.

use simulator::fleet::{ALL, Config, Mutation, Report, failover, run};

const SEEDS: u64 = 60;
const FAILOVERS: u64 = 1000;
/// Seeds within which a mistake must be caught.
const SEEDS_TO_CATCH: u64 = 200;

#[test]
fn what_is_charged_and_lent_never_is_more_than_the_quota() {
    let mut all = Report::default();
    for seed in 1..=SEEDS {
        let report = run(Config { seed, mutation: None }).unwrap_or_else(|trouble| {
            panic!("seed {seed} failed: {trouble}\nreplay: cargo run -p simulator -- --world fleet --seed {seed}")
        });
        for (sum, one) in [
            (&mut all.deaths, report.deaths),
            (&mut all.cuts, report.cuts),
            (&mut all.lies, report.lies),
            (&mut all.expired, report.expired),
            (&mut all.reclaimed, report.reclaimed),
            (&mut all.grown, report.grown),
            (&mut all.shrunk, report.shrunk),
            (&mut all.late, report.late),
            (&mut all.moved, report.moved),
            (&mut all.kept_waiting, report.kept_waiting),
            (&mut all.refused, report.refused),
            (&mut all.starts, report.starts),
            (&mut all.raised, report.raised),
            (&mut all.lowered, report.lowered),
            (&mut all.ended, report.ended),
            (&mut all.waited, report.waited),
        ] {
            *sum += one;
        }
    }
    println!("{all:?}");
    let met = [
        [all.deaths, all.cuts, all.lies, all.expired, all.reclaimed, all.grown],
        [all.shrunk, all.late, all.refused, all.starts, all.moved, all.kept_waiting],
    ]
    .concat();
    let met = [met, vec![all.raised, all.lowered, all.ended, all.waited]].concat();
    assert!(met.iter().all(|times| *times > 0), "not everything happened: {all:?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [1, 2, 3] {
        let again = || run(Config { seed, mutation: None });
        assert_eq!(again(), again(), "seed {seed}");
    }
}

/// 1c of the story, a thousand times.
#[test]
fn no_thief_gets_in_during_a_thousand_failovers() {
    let tries: u64 = (1..=FAILOVERS)
        .map(|seed| {
            failover(Config { seed, mutation: None }).unwrap_or_else(|trouble| panic!("seed {seed} failed: {trouble}"))
        })
        .sum();
    assert!(tries > 5 * FAILOVERS, "only {tries} tries");
}

#[test]
fn every_mistake_is_caught() {
    for (mutation, words) in ALL {
        let lives = |seed| {
            let config = Config { seed, mutation: Some(mutation) };
            match mutation {
                Mutation::EvictionLetsGo => failover(config).map(drop),
                _ => run(config).map(drop),
            }
        };
        let caught = (1..=SEEDS_TO_CATCH).find_map(|seed| lives(seed).err());
        let caught = caught.unwrap_or_else(|| panic!("{mutation:?} is not caught within {SEEDS_TO_CATCH} seeds"));
        assert!(words.iter().any(|words| caught.contains(words)), "{mutation:?} is caught by something else: {caught}");
    }
}
