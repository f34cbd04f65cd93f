//! `bursar`, the command line. Each subcommand is a file of its own; this one only chooses.

mod backup;
mod bench;
mod manifests;
mod migrate;
mod operator;
mod orgs;
mod serve;
mod tour;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Requests allocate on one thread and are freed on another, in sizes of a page and more: the C library's allocator answers
/// that by giving pages back and asking for them again, a tenth of the time of a create (docs/dependencies.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A quota control plane: one exact, durable ledger behind the quota APIs platform teams know.
#[derive(Parser)]
#[command(name = "bursar", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the control plane: a Kubernetes-compatible API server with everything inside.
    Serve(serve::Args),
    /// Run as a guest in an existing cluster: an admission webhook that keeps its quotas exactly.
    Operator(operator::Args),
    /// Print what it takes to install the operator in a cluster, for `kubectl apply -f -`.
    Manifests(manifests::Args),
    /// Save the state of a running server, or of a folder that no server uses, in one file.
    Backup(backup::BackupArgs),
    /// Lay a backup out in a new data folder.
    Restore(backup::RestoreArgs),
    /// Check a data folder or a backup: every byte, every object, and the ledger against a recount.
    Verify(backup::VerifyArgs),
    /// Turn other systems' quotas into the ones kept here.
    Migrate(migrate::Args),
    /// Organizations on a server: their limits, what they have, and whether their views are what their events say.
    Orgs(orgs::Args),
    /// Measure it, beside the systems it is compared with.
    Bench(bench::Args),
    /// Play a quota system's example step by step, on a throw-away server.
    Tour(tour::Args),
}

fn main() -> ExitCode {
    server::tls::install_provider();
    let outcome = match Cli::parse().command {
        Command::Serve(args) => serve::run(args),
        Command::Operator(args) => operator::run(args),
        Command::Manifests(args) => manifests::run(args),
        Command::Backup(args) => backup::backup(args),
        Command::Restore(args) => backup::restore(args),
        Command::Verify(args) => backup::verify(args),
        Command::Migrate(args) => migrate::run(args),
        Command::Orgs(args) => orgs::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Tour(args) => tour::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bursar: {}", told(&error));
            ExitCode::FAILURE
        }
    }
}

/// What went wrong and why. Many of our errors name their causes themselves: those are not told twice.
fn told(error: &anyhow::Error) -> String {
    let mut told = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !told.contains(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}
