//! `bursar bench orgs`: scale commands of organizations with many instances, each checked against three limits and durable with its
//! event and its idempotency key, at 64 clients; beside services that do the same command on PostgreSQL. The same on one organization
//! that all ask at once. And whether a command's cost depends on how many organizations there are.

use super::http::Target;
use super::options::Options;
use super::orgs_check::check;
use super::orgs_fill::{add_hot, filled};
use super::orgs_lanes::{self, Lane, Lanes, Ran, by_type};
use super::orgs_postgres::Peer;
use super::servers::Server;
use super::{Figures, micros, print_figures};
use crate::probe::{Disk, median};

pub const CLIENTS: usize = 64;
/// Whoever sends commands shows it with each, to all.
pub const TOKEN: &str = "benchmark";
/// Memory of one instance, with what runs it.
pub const UNIT_BYTES: i64 = 128 << 20;
/// The organization that all ask at once, and what it runs: one of each of two process types for each client.
pub const HOT: &str = "hot";
pub const HOT_INSTANCES: u64 = 2 * CLIENTS as u64;

pub fn run(arguments: &[String], this_command: &[&str]) -> anyhow::Result<()> {
    super::run(arguments, async |options| benchmark(options, this_command).await)
}

async fn benchmark(options: &Options, this_command: &[&str]) -> anyhow::Result<()> {
    let mut figures = throughput(options, this_command).await?;
    figures.extend(growth(options).await?);
    print_figures(&figures);
    Ok(())
}

/// One system under one kind of load.
struct Side<'a> {
    name: &'static str,
    target: &'a Target,
    lanes: Lanes,
    /// Of the hot organization every command would be one more key, and only so many are remembered: they come without.
    is_keyed: bool,
    rates: Vec<f64>,
}

impl<'a> Side<'a> {
    fn new(name: &'static str, target: &'a Target, lanes: &Lanes, is_keyed: bool) -> Side<'a> {
        Side { name, target, lanes: lanes.clone(), is_keyed, rates: Vec::new() }
    }

    async fn turn(&mut self, options: &Options, round: usize, server: Option<&Server>) -> anyhow::Result<()> {
        let raw = Disk::new()?.syncs_per_second()?;
        let run = format!("{}-{round}-{:08x}", self.name.replace(' ', "-"), rand::random::<u32>());
        let before = server.map(Server::cpu);
        let run = Some(run.as_str()).filter(|_| self.is_keyed);
        let ran = orgs_lanes::run(self.target, &self.lanes, CLIENTS, run, options.run).await?;
        let cpu = server.zip(before).map(|(server, before)| server.cpu().saturating_sub(before));
        let cpu = cpu.map(|cpu| format!("{:.0}", cpu.as_secs_f64() * 1e6 / ran.latencies.count().max(1) as f64));
        let Ran { latencies, .. } = &ran;
        let (p50, p99) = (micros(latencies.at(50.0)), micros(latencies.at(99.0)));
        println!(
            "{round:>5} {raw:>10.0} {:<24} {:>11.0} {p50:>8.0} {p99:>8.0} {:>14}",
            self.name,
            ran.rate(),
            cpu.unwrap_or_default()
        );
        self.rates.push(ran.rate());
        Ok(())
    }
}

/// Ours over theirs, round by round.
fn over(ours: &Side<'_>, theirs: &Side<'_>) -> String {
    format!("{:.2}", median(ours.rates.iter().zip(&theirs.rates).map(|(ours, theirs)| ours / theirs)))
}

async fn throughput(options: &Options, this_command: &[&str]) -> anyhow::Result<Figures> {
    let (orgs, instances) = (options.orgs, options.instances);
    let server = filled(options, orgs, instances).await?;
    add_hot(&server).await?;
    let peer = if options.peers { Some(Peer::start(options, this_command).await?) } else { None };
    println!(
        "{CLIENTS} clients, scale commands of {orgs} organizations with {instances} instances each, a tenth of which is full;"
    );
    println!("hot: all of one organization with {CLIENTS} environments");
    println!(
        "{:>5} {:>10} {:<24} {:>11} {:>8} {:>8} {:>14}",
        "round", "raw sync/s", "system", "commands/s", "p50 µs", "p99 µs", "CPU µs/command"
    );
    let (spread, hot) = (orgs_lanes::spread(orgs, instances), orgs_lanes::hot(CLIENTS));
    let (their_spread, their_hot) = (orgs_lanes::spread(orgs, instances), orgs_lanes::hot(CLIENTS));
    let mut ours = Side::new("bursar", &server.target, &spread, true);
    let mut ours_hot = Side::new("bursar, hot", &server.target, &hot, false);
    let mut theirs: Vec<Side<'_>> = peer
        .iter()
        .flat_map(|peer| {
            [
                Side::new("postgresql", &peer.function, &their_spread, true),
                Side::new("postgresql, statements", &peer.statements, &their_spread, true),
                Side::new("postgresql, hot", &peer.function, &their_hot, false),
            ]
        })
        .collect();
    for round in 1..=options.rounds {
        ours.turn(options, round, Some(&server)).await?;
        for side in theirs.iter_mut().take(2) {
            side.turn(options, round, None).await?;
        }
        ours_hot.turn(options, round, Some(&server)).await?;
        for side in theirs.iter_mut().skip(2) {
            side.turn(options, round, None).await?;
        }
    }
    let lanes = |spread: &Lanes, hot: &Lanes| -> Vec<_> { vec![spread.clone(), hot.clone()] };
    let own = lanes(&spread, &hot);
    let own: Vec<&Lane> = own.iter().flat_map(|lanes| lanes.iter()).collect();
    // Scaled to one each, which a deploy wants anyway, they are as they were, and no event says so.
    let scaled = if by_type(instances).iter().all(|(_, wanted)| *wanted == 1) { 0 } else { orgs };
    check(&server, &own, scaled, |org| if org == HOT { HOT_INSTANCES } else { instances }).await?;
    if let Some(peer) = &peer {
        let own = lanes(&their_spread, &their_hot);
        peer.check(&own.iter().flat_map(|lanes| lanes.iter()).collect::<Vec<_>>()).await?;
    }
    let per_second = |side: &Side<'_>| format!("{:.0}", median(side.rates.iter().copied()));
    let mut figures = vec![
        ("commands64_per_second".into(), per_second(&ours)),
        ("commands64_hot_per_second".into(), per_second(&ours_hot)),
    ];
    if let [function, statements, function_hot] = theirs.as_slice() {
        figures.push(("commands64_vs_postgres".into(), over(&ours, function)));
        figures.push(("commands64_vs_postgres_statements".into(), over(&ours, statements)));
        figures.push(("commands64_hot_vs_postgres".into(), over(&ours_hot, function_hot)));
    }
    Ok(figures)
}

/// One client on a server with one organization, and on one with many, in turn.
async fn growth(options: &Options) -> anyhow::Result<Figures> {
    let instances = options.instances.min(10);
    let (few, many) = (filled(options, 1, instances).await?, filled(options, options.orgs, instances).await?);
    println!("one client, scale commands of one organization: the only one, or one of {}", options.orgs);
    println!("{:>5} {:>14} {:>14}", "round", "p50 µs, one", "p50 µs, many");
    let lanes = [orgs_lanes::spread(1, instances), orgs_lanes::spread(1, instances)];
    let mut ratios = Vec::new();
    for round in 1..=options.rounds {
        let mut p50 = [0.0; 2];
        for ((place, server), lanes) in [&few, &many].into_iter().enumerate().zip(&lanes) {
            let ran = orgs_lanes::run(&server.target, lanes, 1, None, options.run / 2).await?;
            p50[place] = micros(ran.latencies.at(50.0)).max(1.0);
        }
        println!("{round:>5} {:>14.0} {:>14.0}", p50[0], p50[1]);
        ratios.push(p50[1] / p50[0]);
    }
    Ok(vec![("scale_growth_orgs".into(), format!("{:.3}", median(ratios.into_iter())))])
}
