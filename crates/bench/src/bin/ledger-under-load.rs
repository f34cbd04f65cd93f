//! A ledger under load that says what it does, so that a test can kill it and ask its successor what is left.
//!
//! `ledger-under-load FOLDER ROUND` prints the claims it found (`live ID`), `ready`, and then one line before and one after every
//! command: `claim ID`/`granted ID`/`denied ID`, `release ID`/`released ID`. It stops gracefully when its input ends.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, ensure};
use bench::engine::{Answer, Command, LINES, LedgerEngine, unit};
use ledger::{AccountId, SubjectId};
use quantity::Amount;
use rand::{Rng, SeedableRng, rngs::StdRng};
use sequencer::{Handle, Limits, start};
use store::disk::FolderDisk;
use store::embedded::Options;
use store::{Batch, EmbeddedStore, Store};

const CLIENTS: u64 = 16;
const ACCOUNTS: u32 = 40;
/// Low enough that some claims are denied.
const LIMIT: i64 = 300;
/// Claims a client keeps before it releases one for every new one.
const KEPT: usize = 22;

/// Small files, so that segments roll and snapshots are made all the time.
const FILES: Options =
    Options { segment_bytes: 64 * 1024, checkpoint_bytes: 200 * 1024, background: true, accept_loss: false };

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder, round] = arguments.as_slice() else { anyhow::bail!("usage: ledger-under-load FOLDER ROUND") };
    let round: u64 = round.parse().context("ROUND is a number")?;

    let mut store = EmbeddedStore::open(Arc::new(FolderDisk::open(folder)?), FILES)?;
    let mut engine = LedgerEngine::load(&mut store)?;
    let accounts = engine.open_accounts(ACCOUNTS, Amount::from_units(LIMIT))?;
    let mut opening = Batch::new();
    engine.write_changes(&mut opening);
    if !opening.is_empty() {
        store.commit(&opening)?;
    }
    let live = report_live(&engine, &accounts)?;
    say("ready")?;

    let (handle, running) = start(engine, Box::new(store), drop, Limits::default())?;
    let stopping = Arc::new(AtomicBool::new(false));
    let listener = stopping.clone();
    std::thread::spawn(move || {
        // Whatever is read, only the end of the input matters.
        let _ended = std::io::stdin().read_to_end(&mut Vec::new());
        listener.store(true, Ordering::Relaxed);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let mut clients = tokio::task::JoinSet::new();
        for client in 0..CLIENTS {
            // What earlier processes left is released by this one.
            let kept = live.iter().copied().skip(client as usize).step_by(CLIENTS as usize).collect();
            clients.spawn(load(handle.clone(), accounts.clone(), round, client, kept, stopping.clone()));
        }
        while let Some(client) = clients.join_next().await {
            client??;
        }
        let Answer::Checked(totals) = handle.submit(Command::Check).await? else { anyhow::bail!("not checked") };
        totals.map_err(anyhow::Error::msg)?;
        running.shutdown().await?;
        anyhow::Ok(())
    })?;
    say("stopped")
}

/// Prints every claim that is there, after making sure that each is whole: three lines, or nothing.
fn report_live(engine: &LedgerEngine, accounts: &[AccountId]) -> anyhow::Result<Vec<SubjectId>> {
    let mut lines_of = BTreeMap::new();
    for account in accounts {
        for subject in engine.ledger.subjects_of(*account) {
            *lines_of.entry(subject.0).or_insert(0) += 1;
        }
    }
    ensure!(lines_of.len() == engine.ledger.subjects_live(), "a claim is charged to no account");
    for (subject, lines) in &lines_of {
        ensure!(*lines == LINES, "claim {subject} is half there: {lines} lines of {LINES}");
        say(&format!("live {subject}"))?;
    }
    Ok(lines_of.into_keys().map(SubjectId).collect())
}

async fn load(
    handle: Handle<Command, Answer>,
    accounts: Vec<AccountId>,
    round: u64,
    client: u64,
    mut kept: VecDeque<SubjectId>,
    stopping: Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let mut random = StdRng::seed_from_u64(round * CLIENTS + client);
    for count in 0_u64.. {
        if stopping.load(Ordering::Relaxed) {
            break;
        }
        let subject = SubjectId((u128::from(round) << 64) | u128::from(client << 32 | count));
        // Three different accounts, of which the first is the same for all.
        let first = random.random_range(1..accounts.len() / 2);
        let second = random.random_range(accounts.len() / 2..accounts.len());
        let charges = [unit(accounts[0]), unit(accounts[first]), unit(accounts[second])];
        say(&format!("claim {}", subject.0))?;
        match handle.submit(Command::Claim { subject, charges }).await? {
            Answer::Granted { .. } => {
                say(&format!("granted {}", subject.0))?;
                kept.push_back(subject);
            }
            _ => say(&format!("denied {}", subject.0))?,
        }
        if kept.len() > KEPT || (random.random_bool(0.3) && !kept.is_empty()) {
            let Some(subject) = kept.pop_front() else { continue };
            say(&format!("release {}", subject.0))?;
            handle.submit(Command::Release(subject)).await?;
            say(&format!("released {}", subject.0))?;
        }
    }
    Ok(())
}

/// One whole line in one write: a line that was cut would be read as one that was not said.
fn say(line: &str) -> anyhow::Result<()> {
    Ok(std::io::stdout().lock().write_all(format!("{line}\n").as_bytes())?)
}
