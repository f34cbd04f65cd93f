//! Random steps: the ledger and the naive model say the same after each, and so does a ledger made of the rows.

use std::collections::BTreeSet;

use ledger::{AccountId, SubjectId};
use proptest::prelude::*;

use crate::harness::{load, run};
use crate::naive::generate::{Bytes, World};
use crate::naive::ops::Op;

/// Enough for a step of several parts.
type Block = [u8; 64];

/// What is shown of a step before it is carried out, and after.
fn shows_what_it_does(blocks: &[Block], last: &Block) -> Result<(), String> {
    let mut pair = run(blocks)?;
    let Op::Step { settings, subjects } = World::default().step(&mut Bytes(last), 3) else { return Ok(()) };
    let digest = pair.ledger.digest();
    let Ok((planner, ..)) = crate::naive::engine::plan(&pair.ledger, &settings, &subjects) else { return Ok(()) };
    let decided = planner.decide();
    let ids: BTreeSet<AccountId> = (0..8).map(AccountId::from_index).collect();
    let balances: Vec<_> = ids.iter().map(|account| (*account, planner.balance(*account))).collect();
    let shown: Vec<_> = (1..8).map(SubjectId).map(|subject| (subject, planner.subject(subject))).collect();
    if pair.ledger.digest() != digest || pair.ledger.has_changes() {
        return Err("planning changed something".into());
    }
    let Ok(plan) = decided else { return Ok(()) };
    let queued: Vec<SubjectId> = (1..8).map(SubjectId).filter(|subject| plan.queues(*subject)).collect();
    let sequence = pair.ledger.sequence();
    let receipt = pair.ledger.apply_all(plan);
    if pair.ledger.sequence() != sequence + u64::from(receipt.changed) {
        return Err(format!("a step took {} numbers", pair.ledger.sequence() - sequence));
    }
    // Whoever is woken by it comes on top of what was shown.
    if !receipt.woken.is_empty() {
        return Ok(());
    }
    for (account, balance) in balances {
        if pair.ledger.balance(account) != balance {
            return Err(format!("shown {balance:?}, and then {:?}", pair.ledger.balance(account)));
        }
        let moved = receipt.touched.contains(&account);
        let before = run(blocks)?.ledger.balance(account);
        if before != balance
            && before.is_some()
            && !moved
            && before.map(|one| one.format) == balance.map(|one| one.format)
        {
            return Err(format!("account {} moved and is not told", account.index()));
        }
    }
    for (subject, view) in shown {
        if pair.ledger.subject(subject) != view {
            return Err(format!("shown {view:?}, and then {:?}", pair.ledger.subject(subject)));
        }
    }
    match queued.iter().all(|subject| pair.ledger.is_waiting(*subject)) {
        true => Ok(()),
        false => Err("a plan says who waits".into()),
    }
}

/// A step of one subject and nothing else, on one of two ledgers.
fn one_is_one(blocks: &[Block], last: &Block) -> Result<(), String> {
    let mut pair = run(blocks)?;
    let op = World::default().op(&mut Bytes(last), 3);
    let mut other = pair.ledger.clone();
    let (of_plan, of_one) = match &op {
        Op::Charge { subject, asked, standing } => {
            let charges = crate::naive::engine::charges(&other, asked);
            let (subject, standing) = (SubjectId(*subject), crate::naive::engine::to_standing(standing));
            let mut planner = pair.ledger.plan();
            planner.charge(subject, &charges, &standing).map_err(|error| error.to_string())?;
            let plan = planner.decide();
            (plan.map(|plan| pair.ledger.apply_all(plan)), other.charge(subject, &charges, &standing))
        }
        Op::Release { subject } => {
            let mut planner = pair.ledger.plan();
            planner.release(SubjectId(*subject)).map_err(|error| error.to_string())?;
            let plan = planner.decide();
            (plan.map(|plan| pair.ledger.apply_all(plan)), Ok(other.release(SubjectId(*subject))))
        }
        _ => return Ok(()),
    };
    if of_plan != of_one || pair.ledger.digest() != other.digest() {
        return Err(format!("{op:?}\n  a step says {of_plan:?}\n  alone      {of_one:?}"));
    }
    let rows = |ledger: &mut ledger::Ledger| {
        let mut rows = Vec::new();
        ledger.drain_changes(&mut |row| rows.push((row.key.to_vec(), row.value.map(<[u8]>::to_vec))));
        rows
    };
    if rows(&mut pair.ledger) != rows(&mut other) {
        return Err(format!("{op:?} makes other rows as a step"));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_ledger_does_what_the_model_does(blocks in prop::collection::vec(any::<Block>(), 1..120)) {
        run(&blocks).map_err(TestCaseError::fail)?;
    }

    /// Releasing everything leaves sums of zero, whatever happened before.
    #[test]
    fn releasing_everyone_leaves_nothing(blocks in prop::collection::vec(any::<Block>(), 1..60)) {
        let mut pair = run(&blocks).map_err(TestCaseError::fail)?;
        let subjects: Vec<u128> = pair.model.subjects().collect();
        for subject in subjects {
            pair.step(&Op::Release { subject }).map_err(TestCaseError::fail)?;
        }
        for (key, balance) in pair.ledger.balances() {
            prop_assert!(balance.used.is_zero() && balance.held.is_zero(), "{key}: {balance:?}");
            prop_assert_eq!((balance.subjects, balance.waiting), (0, 0));
        }
    }

    /// The same steps make the same rows, byte for byte, on a second ledger.
    #[test]
    fn the_same_steps_make_the_same_bytes(blocks in prop::collection::vec(any::<Block>(), 1..60)) {
        let (one, two) = (run(&blocks).map_err(TestCaseError::fail)?, run(&blocks).map_err(TestCaseError::fail)?);
        prop_assert_eq!(one.rows, two.rows);
    }

    #[test]
    fn a_plan_shows_what_the_step_does(blocks in prop::collection::vec(any::<Block>(), 1..30), last in any::<Block>()) {
        shows_what_it_does(&blocks, &last).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_step_of_one_subject_is_one_decision(
        blocks in prop::collection::vec(any::<Block>(), 1..30),
        lasts in prop::collection::vec(any::<Block>(), 8),
    ) {
        for last in &lasts {
            one_is_one(&blocks, last).map_err(TestCaseError::fail)?;
        }
    }

    /// A decision that is not applied changes nothing, and applying it gives what deciding and applying in one gives.
    #[test]
    fn deciding_reads_only(blocks in prop::collection::vec(any::<Block>(), 1..40), last in any::<Block>()) {
        let mut pair = run(&blocks).map_err(TestCaseError::fail)?;
        let op = World::default().op(&mut Bytes(&last), 3);
        if let Op::Charge { subject, asked, standing } = &op {
            let charges = crate::naive::engine::charges(&pair.ledger, asked);
            let (subject, standing) = (SubjectId(*subject), crate::naive::engine::to_standing(standing));
            let before = pair.ledger.digest();
            let plan = pair.ledger.decide(subject, &charges, &standing);
            prop_assert_eq!(before, pair.ledger.digest());
            let mut other = pair.ledger.clone();
            let at_once = other.charge(subject, &charges, &standing);
            let applied = plan.map(|plan| pair.ledger.apply(plan));
            prop_assert_eq!(&applied, &at_once);
            prop_assert_eq!(pair.ledger.digest(), other.digest());
        }
    }
}

/// The fuzz target's harness on bytes of a fixed generator, so that every test run covers it.
#[test]
fn any_bytes_are_steps() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    for _ in 0..200 {
        let blocks: Vec<Block> = (0..40).map(|_| std::array::from_fn(|_| next())).collect();
        run(&blocks).unwrap_or_else(|error| panic!("{error}\n{blocks:?}"));
    }
}

#[test]
fn any_bytes_are_rows() {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[2]
    };
    // Bytes that look like rows more often than chance: short keys of the known kinds, low numbers.
    for _ in 0..20_000 {
        let mut bytes = Vec::new();
        for _ in 0..next() % 6 {
            let kind = next() % 4;
            let (tag, length) = [(b'a', 4), (b's', 16), (b'm', 0), (next(), next() % 4)][usize::from(kind)];
            let value: Vec<u8> = (0..next() % 16).map(|_| if next() % 3 == 0 { next() } else { next() % 3 }).collect();
            bytes.extend([length + 1, value.len() as u8 + 1, tag]);
            bytes.extend((0..length).map(|at| if at + 1 == length { next() % 4 } else { 0 }));
            bytes.push(1);
            bytes.extend(value);
        }
        load(&bytes);
    }
}
