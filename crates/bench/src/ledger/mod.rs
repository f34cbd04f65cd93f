//! `bursar bench ledger`: durable claims on three accounts, ours beside PostgreSQL and etcd, on this machine, in this minute.
//!
//! Systems take turns, several rounds, because machines are noisy: figures are medians of ratios between neighbours in time, and
//! the disk's own speed is printed before every run. After every run the books are checked; a run whose books are wrong counts
//! for nothing and ends the benchmark.

mod etcd;
mod ours;
pub(crate) mod postgres;
mod size;

use std::time::Duration;

use anyhow::{Context, ensure};

use crate::decision;
use crate::probe::{Disk, median};

/// Claims of one run: who competes for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub clients: usize,
    /// Whether all claims have their first account in common.
    pub hot: bool,
}

const SHAPES: [Shape; 6] = [
    Shape { clients: 1, hot: false },
    Shape { clients: 1, hot: true },
    Shape { clients: 16, hot: false },
    Shape { clients: 16, hot: true },
    Shape { clients: 64, hot: false },
    Shape { clients: 64, hot: true },
];

const SPREAD_64: usize = 4;
const HOT_64: usize = 5;

/// How often hot and spread claims are compared with each other, for each round with the other systems.
const PAIRS_A_ROUND: usize = 3;

/// Accounts that claims are spread over.
pub const ACCOUNTS: u32 = 10_000;

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Run {
    pub claims: u64,
    pub elapsed: Duration,
    /// CPU time of the serving processes; for ours the clients are in it.
    pub cpu: Duration,
    pub syncs: u64,
    pub p50: Duration,
    pub p99: Duration,
}

impl Run {
    fn rate(&self) -> f64 {
        self.claims as f64 / self.elapsed.as_secs_f64()
    }
}

struct Options {
    rounds: usize,
    run: Duration,
    peers: bool,
    sizes: bool,
}

const USAGE: &str = "usage: bench ledger [--rounds N] [--millis N] [--without-peers] [--without-sizes]
  --rounds N         how often every system has its turn (3)
  --millis N         how long one run takes (1500)
  --without-peers    only ours: no PostgreSQL, no etcd
  --without-sizes    no memory, restart and instruction counts";

fn options(arguments: &[String]) -> anyhow::Result<Options> {
    let mut options = Options { rounds: 3, run: Duration::from_millis(1500), peers: true, sizes: true };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut number = || -> anyhow::Result<u64> { Ok(arguments.next().context(USAGE)?.parse()?) };
        match argument.as_str() {
            "--rounds" => options.rounds = usize::try_from(number()?)?.max(1),
            "--millis" => options.run = Duration::from_millis(number()?.max(50)),
            "--without-peers" => options.peers = false,
            "--without-sizes" => options.sizes = false,
            _ => anyhow::bail!(USAGE),
        }
    }
    Ok(options)
}

/// Runs the benchmark. `this_command` is how this program is told to run a benchmark by name, for the part that runs itself
/// under callgrind.
pub fn run(arguments: &[String], this_command: &[&str]) -> anyhow::Result<()> {
    let options = options(arguments)?;
    let mut figures = Vec::new();
    if options.sizes {
        // First, while nothing else has touched the memory of this process.
        figures.extend(sizes(this_command)?);
    }
    let disk = Disk::new()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut peers = match options.peers {
        true => Some((postgres::Postgres::start(&runtime)?, etcd::Etcd::start(&runtime)?)),
        false => None,
    };
    println!(
        "one claim = three accounts checked and charged, all or none, durable before the answer; sync on everywhere"
    );
    println!(
        "{:>5} {:>3} {:<7} {:>10} {:<11} {:>9} {:>9} {:>9} {:>10} {:>11} {:>9}",
        "round", "", "", "raw sync/s", "system", "claims/s", "p50 µs", "p99 µs", "CPU µs/cl.", "claims/sync", "checked"
    );
    let mut table: Vec<[Vec<Run>; SHAPES.len()]> = vec![Default::default(); 3];
    for round in 1..=options.rounds {
        for (index, shape) in SHAPES.iter().enumerate() {
            let mut show = |system: usize, name: &str, raw: f64, run: Run| {
                print_row(round, *shape, raw, name, &run);
                table[system][index].push(run);
            };
            let raw = disk.syncs_per_second()?;
            show(0, "bursar", raw, ours::run(*shape, options.run)?);
            if let Some((postgres, etcd)) = &mut peers {
                let raw = disk.syncs_per_second()?;
                show(1, "postgresql", raw, postgres.run(&runtime, *shape, options.run)?);
                let raw = disk.syncs_per_second()?;
                show(2, "etcd", raw, etcd.run(&runtime, *shape, options.run)?);
            }
        }
    }
    drop(peers);
    summarize(&table, options.rounds);
    figures.extend(ratios(&table));
    figures.push(("hot_over_spread", format!("{:.2}", hot_over_spread(&options)?)));
    println!();
    for (name, value) in figures {
        println!("figure {name} {value}");
    }
    Ok(())
}

fn print_row(round: usize, shape: Shape, raw: f64, name: &str, run: &Run) {
    let claims = run.claims.max(1) as f64;
    println!(
        "{round:>5} {:>3} {:<7} {raw:>10.0} {name:<11} {:>9.0} {:>9.0} {:>9.0} {:>10.1} {:>11.2} {:>9}",
        shape.clients,
        if shape.hot { "hot" } else { "spread" },
        run.rate(),
        run.p50.as_secs_f64() * 1e6,
        run.p99.as_secs_f64() * 1e6,
        run.cpu.as_secs_f64() * 1e6 / claims,
        claims / run.syncs.max(1) as f64,
        "books ok",
    );
}

/// Medians over the rounds, one line a shape.
fn summarize(table: &[[Vec<Run>; SHAPES.len()]], rounds: usize) {
    println!("\nmedian of {rounds} rounds, claims/s");
    println!("{:>3} {:<7} {:>10} {:>12} {:>8}", "", "", "bursar", "postgresql", "etcd");
    for (index, shape) in SHAPES.iter().enumerate() {
        let cells = table.iter().map(|system| match system[index].is_empty() {
            true => "-".to_owned(),
            false => format!("{:.0}", median(system[index].iter().map(Run::rate))),
        });
        let cells: Vec<String> = cells.collect();
        let hot = if shape.hot { "hot" } else { "spread" };
        println!("{:>3} {hot:<7} {:>10} {:>12} {:>8}", shape.clients, cells[0], cells[1], cells[2]);
    }
}

fn ratios(table: &[[Vec<Run>; SHAPES.len()]]) -> Vec<(&'static str, String)> {
    let neighbours = |above: &[Run], below: &[Run]| {
        median(above.iter().zip(below).map(|(above, below)| above.rate() / below.rate().max(1.0)))
    };
    let hot = &table[0][HOT_64];
    let mut figures = Vec::new();
    for (name, system) in [("hot64_vs_postgres", 1), ("hot64_vs_etcd", 2)] {
        if !table[system][HOT_64].is_empty() {
            figures.push((name, format!("{:.1}", neighbours(hot, &table[system][HOT_64]))));
        }
    }
    let per_sync = median(hot.iter().map(|run| run.claims as f64 / run.syncs.max(1) as f64));
    figures.push(("claims_per_sync_64", format!("{per_sync:.1}")));
    figures
}

/// Both of ours one right after the other, in turns of who is first: the difference looked for is smaller than what a disk's
/// speed changes by in the time the other systems take.
fn hot_over_spread(options: &Options) -> anyhow::Result<f64> {
    println!("\nours, 64 clients, one hot account over spread accounts");
    let mut ratios = Vec::new();
    for pair in 0..options.rounds * PAIRS_A_ROUND {
        let run = |index: usize| ours::run(SHAPES[index], options.run);
        let (hot, spread) = if pair % 2 == 0 {
            let spread = run(SPREAD_64)?;
            (run(HOT_64)?, spread)
        } else {
            (run(HOT_64)?, run(SPREAD_64)?)
        };
        println!("{:>9.0} over {:>9.0} claims/s", hot.rate(), spread.rate());
        ratios.push(hot.rate() / spread.rate().max(1.0));
    }
    Ok(median(ratios.into_iter()))
}

fn sizes(this_command: &[&str]) -> anyhow::Result<Vec<(&'static str, String)>> {
    let (claim, account) = size::memory()?;
    println!("memory: {claim} bytes a live claim, {account} bytes an account");
    let restart = size::restart()?;
    println!("restart with {} live claims: {:.2} s", size::CLAIMS, restart.as_secs_f64());
    let mut figures = vec![
        ("bytes_per_claim", claim.to_string()),
        ("bytes_per_account", account.to_string()),
        ("restart_1m_seconds", format!("{:.2}", restart.as_secs_f64())),
    ];
    let counted = decision::figures(|size| {
        let words = this_command.iter().map(|word| (*word).to_owned());
        let arguments: Vec<String> = words
            .chain([crate::DECISION_WORK.to_owned(), size.claims.to_string(), size.accounts.to_string()])
            .collect();
        decision::instructions(&std::env::current_exe()?, &arguments)
    });
    match counted {
        Ok((instructions, growth)) => {
            println!("one decision at {} claims: {instructions} instructions", size::CLAIMS);
            figures.push(("decision_growth", format!("{}.{:03}", growth / 1000, growth % 1000)));
            figures.push(("decision_instructions", instructions.to_string()));
        }
        Err(error) => {
            println!("instructions were not counted ({error}); is valgrind installed? Measuring time instead.");
            figures.push(("decision_growth", format!("{:.3}", size::decision_growth()?)));
        }
    }
    Ok(figures)
}

/// The accounts of the `count`-th claim of a client, three different ones.
pub fn accounts_of(shape: Shape, random: &mut u64) -> [u32; 3] {
    let mut next = || {
        // A step of splitmix64: cheap, and good enough to spread.
        *random = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = *random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        // The last account is the hot one: whoever locks in order locks it last, which favours those who lock.
        u32::try_from((mixed >> 32) % u64::from(ACCOUNTS - 1)).unwrap_or(0)
    };
    loop {
        let accounts = [next(), next(), if shape.hot { ACCOUNTS - 1 } else { next() }];
        if accounts[0] != accounts[1] && accounts[1] != accounts[2] && accounts[0] != accounts[2] {
            return accounts;
        }
    }
}

/// The check that every system must pass after every run.
fn check_books(system: &str, claims: u64, expected: u64, charged: &str) -> anyhow::Result<()> {
    ensure!(claims == expected, "{system}: {claims} claims are stored, {expected} were granted");
    let wanted = (claims * 3).to_string();
    ensure!(charged == wanted, "{system}: {charged} units are charged for {claims} claims, not {wanted}");
    Ok(())
}
