//! `simulator --seed N` replays one run; `simulator --seeds N [--from M]` runs many.

use std::process::ExitCode;

use simulator::rare::{self, Rare};
use simulator::world::{Config, Watch, run};

/// Ticks of one run: a few thousand calls, some dozens of faults.
const TICKS: u64 = 3000;

const USAGE: &str = "usage: simulator --seed N | --seeds N [--from M] [--ticks T]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    let ticks = number("--ticks").unwrap_or(TICKS);
    let (from, count) = match (number("--seed"), number("--seeds")) {
        (Some(seed), _) => (seed, 1),
        (None, Some(count)) => (number("--from").unwrap_or(1), count),
        (None, None) => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let (mut rare, mut calls, mut steps, mut restarts, mut failed) = (Rare::default(), 0, 0, 0, 0u64);
    for seed in from..from.saturating_add(count) {
        match run(Config { seed, ticks, mutation: None, watch: Watch::Steps }) {
            Ok(report) => {
                calls += report.calls;
                steps += report.steps;
                restarts += report.restarts;
                rare.add(&report.rare);
            }
            Err(trouble) => {
                failed += 1;
                println!(
                    "seed {seed} failed: {trouble}\nreplay: cargo run -p simulator -- --seed {seed} --ticks {ticks}"
                );
            }
        }
    }
    println!("{count} seeds, {calls} calls, {steps} steps, {restarts} starts, {failed} failed");
    for name in rare::ALL {
        println!("{:>10}  {name}", rare.count(name));
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
