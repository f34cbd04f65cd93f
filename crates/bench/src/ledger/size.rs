//! How large and how slow a ledger with a million live claims is: memory, restart, and one decision.

use std::time::{Duration, Instant};

use anyhow::ensure;
use ledger::{AccountId, Standing, SubjectId};
use quantity::Amount;
use store::{Batch, EmbeddedStore, Store};

use super::{ACCOUNTS, Shape, accounts_of};
use crate::engine::{LedgerEngine, unit};
use crate::probe::{median, resident_bytes};

pub const CLAIMS: u32 = 1_000_000;

/// Accounts for measuring one account: enough to stand out.
const MANY_ACCOUNTS: u32 = 200_000;

/// Claims of one commit while a ledger is filled.
const GROUP: u32 = 512;

const LIMIT: i64 = i64::MAX / 4;
const SPREAD: Shape = Shape { clients: 1, hot: false };

fn empty() -> LedgerEngine {
    LedgerEngine { ledger: ledger::Ledger::new() }
}

/// Bytes a live claim, and bytes an account.
pub fn memory() -> anyhow::Result<(u64, u64)> {
    let before = resident_bytes()?;
    let mut engine = empty();
    engine.open_accounts(MANY_ACCOUNTS, Amount::from_units(LIMIT))?;
    engine.write_changes(&mut Batch::new());
    let accounts = resident_bytes()?.saturating_sub(before) / u64::from(MANY_ACCOUNTS);
    drop(engine);

    let mut engine = empty();
    let opened = engine.open_accounts(ACCOUNTS, Amount::from_units(LIMIT))?;
    engine.write_changes(&mut Batch::new());
    let before = resident_bytes()?;
    fill(&mut engine, &opened, 0..CLAIMS, |_| Ok(()))?;
    let claims = resident_bytes()?.saturating_sub(before) / u64::from(CLAIMS);
    ensure!(engine.totals().is_ok_and(|totals| totals.claims == CLAIMS as usize), "the filled ledger is wrong");
    Ok((claims, accounts))
}

/// From closed files to a ledger that could decide: median of three.
pub fn restart() -> anyhow::Result<Duration> {
    let folder = tempfile::tempdir()?;
    let mut store = EmbeddedStore::open_folder(folder.path())?;
    let mut engine = LedgerEngine::load(&mut store)?;
    let accounts = engine.open_accounts(ACCOUNTS, Amount::from_units(LIMIT))?;
    fill(&mut engine, &accounts, 0..CLAIMS, |batch| Ok(store.commit(batch)?))?;
    Box::new(store).close()?;
    let expected = engine.totals();
    drop(engine);
    let mut times = Vec::new();
    for _ in 0..3 {
        let started = Instant::now();
        let engine = LedgerEngine::load(&mut EmbeddedStore::open_folder(folder.path())?)?;
        times.push(started.elapsed().as_secs_f64());
        ensure!(engine.totals() == expected, "the ledger is another after a restart");
    }
    Ok(Duration::from_secs_f64(median(times.into_iter())))
}

/// The time of one decision in a large ledger over that in a small one. Only where instructions cannot be counted.
pub fn decision_growth() -> anyhow::Result<f64> {
    let small = time_of_decision(10, 1000)?;
    let large = time_of_decision(ACCOUNTS, CLAIMS)?;
    Ok(large / small)
}

fn time_of_decision(accounts: u32, claims: u32) -> anyhow::Result<f64> {
    const TURNS: u32 = 20_000;
    let mut engine = empty();
    let opened = engine.open_accounts(accounts.max(ACCOUNTS), Amount::from_units(LIMIT))?;
    fill(&mut engine, &opened, 0..claims, |_| Ok(()))?;
    let started = Instant::now();
    for turn in 0..TURNS {
        let _released = engine.ledger.release(subject(turn % claims));
        claim(&mut engine, &opened, turn % claims)?;
    }
    Ok(started.elapsed().as_secs_f64() / f64::from(TURNS))
}

fn fill(
    engine: &mut LedgerEngine,
    accounts: &[AccountId],
    claims: std::ops::Range<u32>,
    mut commit: impl FnMut(&Batch) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut batch = Batch::new();
    let end = claims.end;
    for number in claims {
        claim(engine, accounts, number)?;
        if number % GROUP == GROUP - 1 || number + 1 == end {
            engine.write_changes(&mut batch);
            commit(&batch)?;
            batch.clear();
        }
    }
    Ok(())
}

fn claim(engine: &mut LedgerEngine, accounts: &[AccountId], number: u32) -> anyhow::Result<()> {
    let mut random = u64::from(number);
    let charges = accounts_of(SPREAD, &mut random).map(|account| unit(accounts[account as usize]));
    let _receipt = engine.ledger.charge(subject(number), &charges, &Standing::Stored)?;
    Ok(())
}

/// Ids spread like uids.
fn subject(number: u32) -> SubjectId {
    SubjectId(u128::from(number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))
}
