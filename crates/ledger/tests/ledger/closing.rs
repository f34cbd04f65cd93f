//! Accounts that are renamed, and accounts that are closed a part at a time.

use std::collections::BTreeMap;

use ledger::{AccountId, AccountKey, Ledger, LedgerError, SubjectId};
use proptest::prelude::*;

use crate::harness::{Pair, run};
use crate::table::check;

type Block = [u8; 64];

#[test]
fn a_renamed_account_keeps_what_is_charged_on_it() {
    check(
        "
        limit  q cpu 4
        limit  q memory 4
        charge pod q cpu 3, q memory 1
        hold   held 90 q cpu 1
        wait   late greedy 0 1 q cpu 1    -> queued
        rename q cpu p cpu               -> renamed step=+1
        show   p cpu                     -> used=3 held=1 waiting=1
        show   q cpu                     -> closed
        subject pod                      -> charges=p:cpu:3,q:memory:1
        rename p cpu p cpu               -> renamed step=+0
        rename p cpu q memory            -> already-open step=+0
        rename gone cpu q cpu            -> unknown-account step=+0
        limit  q cpu 9                   -> opened
        show   q cpu                     -> used=0 held=0
        delete held                      -> woken=late
        show   p cpu                     -> used=4 held=0
        close  p cpu                     -> closed
        subject pod                      -> charges=q:memory:1
        ",
    );
}

#[test]
fn an_account_is_swept_a_part_at_a_time() {
    check(
        "
        limit  q cpu none
        limit  q memory 9
        charge a q cpu 1, q memory 1
        charge b q cpu 2
        charge c q cpu 3
        hold   d 90 q cpu 4
        sweep  q cpu 0                   -> swept left=4 step=+0
        sweep  q cpu 3                   -> swept left=1 step=+1
        show   q cpu                     -> used=1 held=0
        subject b                        -> unknown
        charge e q cpu 5                 -> granted used=6
        sweep  q cpu 1                   -> swept left=1
        sweep  q cpu 1                   -> closed
        subject a                        -> charges=q:memory:1
        sweep  q cpu 1                   -> unknown-account
        ",
    );
}

#[test]
fn what_goes_together_is_swept_together() {
    check(
        "
        limit  q cpu none
        limit  q memory none
        limit  q disk none
        charge a q cpu 1, q memory 1, q disk 1
        charge b q cpu 2, q memory 2
        charge c q memory 4
        sweep  q cpu,memory 1            -> swept left=1
        show   q cpu                     -> used=1
        show   q memory                  -> used=5
        sweep  q cpu,memory 1            -> closed
        subject a                        -> charges=q:disk:1
        show   q memory                  -> used=4 subjects=1
        sweep  q memory 1                -> closed
        subject c                        -> unknown
        ",
    );
}

/// Whoever waits is served in its order, which a part of the account would not know.
#[test]
fn an_account_with_a_line_is_swept_at_once() {
    check(
        "
        limit  q cpu 2
        charge a q cpu 1
        charge b q cpu 1
        wait   late greedy 0 2 q cpu 1    -> queued
        wait   first greedy 0 1 q cpu 1   -> queued
        sweep  q cpu 1                   -> closed woken=first,late
        ",
    );
}

/// What the ledger says, without the numbers of steps.
fn said(ledger: &Ledger) -> Vec<String> {
    let mut said: Vec<String> = ledger.balances().map(|(key, balance)| format!("{key} {balance:?}")).collect();
    for id in (0..64).map(SubjectId) {
        let view = ledger.subject(id).map(|view| (view.charges, view.settled, view.state));
        said.push(format!("{id:?} {view:?}"));
    }
    said
}

fn open_accounts(pair: &Pair) -> Vec<(AccountKey, AccountId)> {
    pair.ledger.balances().map(|(key, balance)| (key.clone(), balance.account)).collect()
}

/// The ledger that its rows make must be the ledger itself.
fn reload(ledger: &mut Ledger, rows: &mut BTreeMap<Vec<u8>, Vec<u8>>) -> Result<(), String> {
    ledger.audit().map_err(|error| error.to_string())?;
    ledger.drain_changes(&mut |row| {
        match row.value {
            Some(value) => rows.insert(row.key.to_vec(), value.to_vec()),
            None => rows.remove(row.key),
        };
    });
    let loaded = Ledger::load(rows.iter().map(|(key, value)| (&key[..], &value[..])));
    let loaded = loaded.map_err(|error| error.to_string())?;
    if loaded.digest() != ledger.digest() {
        return Err("the rows make another ledger".into());
    }
    *ledger = loaded;
    Ok(())
}

fn sweeping_is_closing(blocks: &[Block], max: usize) -> Result<(), String> {
    let pair = run(blocks)?;
    for (key, account) in open_accounts(&pair) {
        let (mut swept, mut closed, mut rows) = (pair.ledger.clone(), pair.ledger.clone(), pair.rows.clone());
        let mut woken = Vec::new();
        while swept.is_open(account) {
            let before = swept.balance(account).expect("it is open").subjects;
            woken.extend(swept.sweep(account, |_| false, max).map_err(|error| error.to_string())?.woken);
            let after = swept.balance(account).map_or(0, |balance| balance.subjects);
            let waited = pair.ledger.balance(account).is_some_and(|balance| balance.waiting > 0);
            if before - after > max && !waited {
                return Err(format!("{key}: {} let go at once", before - after));
            }
            reload(&mut swept, &mut rows)?;
        }
        let at_once = closed.close(account).map_err(|error| error.to_string())?;
        if said(&swept) != said(&closed) || woken != at_once.woken {
            return Err(format!("{key}: swept\n{:?}\nclosed\n{:?}", said(&swept), said(&closed)));
        }
    }
    Ok(())
}

fn renaming_is_a_name(blocks: &[Block]) -> Result<(), String> {
    let Pair { mut ledger, mut rows, .. } = run(blocks)?;
    let before = said(&ledger);
    let accounts: Vec<_> = ledger.balances().map(|(key, balance)| (key.clone(), balance)).collect();
    for (key, balance) in &accounts {
        let other = AccountKey { policy: format!("{}'", key.policy).into(), ..key.clone() };
        ledger.rename(balance.account, other.clone()).map_err(|error| error.to_string())?;
        reload(&mut ledger, &mut rows)?;
        let found = ledger.account(&other).and_then(|account| ledger.balance(account));
        if found.as_ref() != Some(balance) || ledger.account(key).is_some() {
            return Err(format!("{key}: {balance:?} became {found:?}"));
        }
        if !ledger.accounts_of(&other.policy).any(|account| account == balance.account) {
            return Err(format!("{key} is not an account of its policy"));
        }
    }
    for (key, balance) in accounts {
        ledger.rename(balance.account, key).map_err(|error| error.to_string())?;
        reload(&mut ledger, &mut rows)?;
    }
    match said(&ledger) == before {
        true => Ok(()),
        false => Err("renamed there and back again, something else changed".into()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sweeping_all_is_closing(blocks in prop::collection::vec(any::<Block>(), 1..60), max in 1usize..4) {
        sweeping_is_closing(&blocks, max).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn renaming_changes_a_name_and_nothing_else(blocks in prop::collection::vec(any::<Block>(), 1..60)) {
        renaming_is_a_name(&blocks).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn a_key_that_is_too_long_is_refused() {
    let mut ledger = Ledger::new();
    let account = ledger.open(AccountKey::new("q", "cpu", ""), ledger::Limit::Unlimited).unwrap();
    let long = AccountKey::new(&"x".repeat(ledger::KEY_TEXT_BYTES_MAX + 1), "cpu", "");
    assert!(matches!(ledger.rename(account, long), Err(LedgerError::KeyTooLong { .. })));
    assert_eq!(ledger.account(&AccountKey::new("q", "cpu", "")), Some(account));
}
