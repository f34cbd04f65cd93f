//! Our own side: ledger, sequencer, embedded store, and clients in the same process.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use ledger::{AccountId, SubjectId};
use quantity::Amount;
use sequencer::{Handle, Limits, start};
use store::{Batch, EmbeddedStore, Store};

use super::{ACCOUNTS, Run, Shape, accounts_of, check_books};
use crate::engine::{Answer, Command, LedgerEngine, unit};
use crate::probe::{Latencies, own_cpu};

/// Far away: no claim is denied.
const LIMIT: i64 = i64::MAX / 4;

pub fn run(shape: Shape, length: Duration) -> anyhow::Result<Run> {
    let folder = tempfile::tempdir()?;
    let mut store = EmbeddedStore::open_folder(folder.path())?;
    let mut engine = LedgerEngine::load(&mut store)?;
    let accounts: Arc<[AccountId]> = engine.open_accounts(ACCOUNTS, Amount::from_units(LIMIT))?.into();
    let mut opening = Batch::new();
    engine.write_changes(&mut opening);
    store.commit(&opening)?;
    let counters = store.counters();
    let (handle, running) = start(engine, Box::new(store), drop, Limits::default())?;

    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let (latencies, elapsed, cpu, syncs) = runtime.block_on(async {
        let (syncs, cpu, started) = (counters.commits.load(Ordering::Relaxed), own_cpu(), Instant::now());
        let deadline = started + length;
        let mut clients = tokio::task::JoinSet::new();
        for client in 0..shape.clients {
            clients.spawn(load(handle.clone(), accounts.clone(), shape, client as u64, deadline));
        }
        let mut latencies = Latencies::new()?;
        while let Some(client) = clients.join_next().await {
            latencies.add(&client??)?;
        }
        let syncs = counters.commits.load(Ordering::Relaxed) - syncs;
        anyhow::Ok((latencies, started.elapsed(), own_cpu() - cpu, syncs))
    })?;

    let claims = latencies.count();
    let Answer::Checked(totals) = handle.submit_blocking(Command::Check)? else { bail!("the books were not checked") };
    let totals = totals.map_err(anyhow::Error::msg)?;
    check_books("bursar", totals.claims as u64, claims, &totals.used.to_string())?;
    running.stop_blocking();
    running.join()?;
    // And what is on disk is the same.
    let again = LedgerEngine::load(&mut EmbeddedStore::open_folder(folder.path())?)?;
    ensure!(again.totals() == Ok(totals), "bursar: the books are different after a restart");
    Ok(Run { claims, elapsed, cpu, syncs, p50: latencies.at(50.0), p99: latencies.at(99.0) })
}

async fn load(
    handle: Handle<Command, Answer>,
    accounts: Arc<[AccountId]>,
    shape: Shape,
    client: u64,
    deadline: Instant,
) -> anyhow::Result<Latencies> {
    let mut latencies = Latencies::new()?;
    let mut random = client;
    let mut count = 0_u64;
    let mut now = Instant::now();
    while now < deadline {
        // Spread like uids.
        let id = (u128::from(client) << 64 | u128::from(count)).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        let charges = accounts_of(shape, &mut random).map(|account| unit(accounts[account as usize]));
        let answer = handle.submit(Command::Claim { subject: SubjectId(id), charges }).await?;
        ensure!(matches!(answer, Answer::Granted { .. }), "a claim was denied");
        let after = Instant::now();
        latencies.record(after - now);
        (now, count) = (after, count + 1);
    }
    Ok(latencies)
}
