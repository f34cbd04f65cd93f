//! `simulator --seed N` replays one run; `simulator --seeds N [--from M]` runs many, on every processor. `--world` with `ledger`,
//! `engine`, `orgs`, `datum` and `karmada` (the engine's with organizations, grants and claims, or quotas over many clusters in it) or `fleet` leaves
//! the others out;
//! `estate` is the engine's, and three of eight seeds of it have one of these in it. With `--every-state` a rare state that no seed met
//! is a failure.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use simulator::rare::{self, Rare};
use simulator::world::Watch;
use simulator::{estate, fleet, world};

/// Ticks of one run of the ledger's world: a few thousand calls, some dozens of faults.
const TICKS: u64 = 3000;

const USAGE: &str = "usage: simulator --seed N | --seeds N [--from M] [--ticks T] [--world ledger|engine|orgs|datum|karmada|estate|fleet] [--every-state]";

#[derive(Default)]
struct Tally {
    commands: u64,
    groups: u64,
    starts: u64,
    faults: u64,
    failed: u64,
    rare: Rare,
}

/// One of the worlds.
#[derive(Clone, Copy)]
enum Of {
    Ledger {
        ticks: u64,
    },
    Engine,
    Fleet,
    Orgs,
    Datum,
    Karmada,
    /// The engine's with any of these in it.
    Estate,
}

impl Of {
    fn name(self) -> &'static str {
        match self {
            Of::Ledger { .. } => "ledger",
            Of::Engine => "engine",
            Of::Fleet => "fleet",
            Of::Orgs => "orgs",
            Of::Datum => "datum",
            Of::Karmada => "karmada",
            Of::Estate => "estate",
        }
    }

    fn states(self) -> &'static [&'static str] {
        match self {
            Of::Ledger { .. } => rare::ALL,
            Of::Engine | Of::Orgs | Of::Datum | Of::Karmada | Of::Estate => estate::rare::ALL,
            Of::Fleet => &[],
        }
    }

    fn run(self, seed: u64) -> Result<Tally, String> {
        match self {
            Of::Ledger { ticks } => {
                let report = world::run(world::Config { seed, ticks, mutation: None, watch: Watch::Steps });
                let report = report.map_err(|trouble| trouble.to_string())?;
                let (commands, groups, starts) = (report.calls, report.steps, report.restarts);
                Ok(Tally { commands, groups, starts, rare: report.rare, ..Tally::default() })
            }
            Of::Engine | Of::Orgs | Of::Datum | Of::Karmada | Of::Estate => {
                let first = match (self, seed % 8) {
                    (Of::Orgs, _) | (Of::Estate, 0) => estate::orgs::SEEDS,
                    (Of::Datum, _) | (Of::Estate, 4) => estate::datum::SEEDS,
                    (Of::Karmada, _) | (Of::Estate, 2) => estate::karmada::SEEDS,
                    _ => 0,
                };
                let seed = seed.saturating_add(first);
                let report = estate::run(estate::Config { seed, mutation: None })?;
                let estate::Report { commands, groups, starts, faults, rare } = report;
                Ok(Tally { commands, groups, starts, faults, failed: 0, rare })
            }
            Of::Fleet => {
                let config = fleet::Config { seed, mutation: None };
                let tries = fleet::failover(config)?;
                let report = fleet::run(config)?;
                let (faults, groups) = (report.deaths + report.cuts + report.late, report.grown + report.shrunk);
                Ok(Tally {
                    commands: report.commands + tries,
                    groups,
                    starts: report.starts,
                    faults,
                    ..Tally::default()
                })
            }
        }
    }

    /// Runs seeds on every processor, and tells what came of it; `false` if one failed.
    fn run_all(self, from: u64, count: u64, every_state: bool) -> bool {
        let (next, total) = (AtomicU64::new(0), Mutex::new(Tally::default()));
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= count {
                    return;
                }
                let seed = from.saturating_add(at);
                let outcome = self.run(seed);
                let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                match outcome {
                    Ok(one) => total.add(&one),
                    Err(trouble) => {
                        total.failed += 1;
                        let world = self.name();
                        println!("seed {seed} failed: {trouble}");
                        println!("replay: cargo run --release -p simulator -- --world {world} --seed {seed}");
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            (0..threads).for_each(|_| drop(scope.spawn(work)));
        });
        let total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Tally { commands, groups, starts, faults, failed, .. } = total;
        let world = self.name();
        println!(
            "{world}: {count} seeds, {commands} commands, {groups} groups, {faults} faults, {starts} starts, {failed} failed"
        );
        for name in self.states() {
            println!("{:>10}  {name}", total.rare.count(name));
        }
        let never = total.rare.never_met_of(self.states());
        if every_state && !never.is_empty() {
            println!("never met: {never:#?}");
        }
        failed == 0 && (!every_state || never.is_empty())
    }
}

impl Tally {
    fn add(&mut self, one: &Tally) {
        self.commands += one.commands;
        self.groups += one.groups;
        self.starts += one.starts;
        self.faults += one.faults;
        self.rare.add(&one.rare);
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let number = |name: &str| text(name)?.parse::<u64>().ok();
    let (from, count) = match (number("--seed"), number("--seeds")) {
        (Some(seed), _) => (seed, 1),
        (None, Some(count)) => (number("--from").unwrap_or(1), count),
        (None, None) => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let ledger = Of::Ledger { ticks: number("--ticks").unwrap_or(TICKS) };
    let worlds = match text("--world").map(String::as_str) {
        None => vec![ledger, Of::Engine, Of::Orgs, Of::Datum, Of::Karmada, Of::Fleet],
        Some("ledger") => vec![ledger],
        Some("engine") => vec![Of::Engine],
        Some("orgs") => vec![Of::Orgs],
        Some("datum") => vec![Of::Datum],
        Some("karmada") => vec![Of::Karmada],
        Some("estate") => vec![Of::Estate],
        Some("fleet") => vec![Of::Fleet],
        Some(_) => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let every_state = arguments.iter().any(|argument| argument == "--every-state");
    let sound = worlds.into_iter().filter(|world| !world.run_all(from, count, every_state)).count() == 0;
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
