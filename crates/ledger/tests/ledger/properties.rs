//! Random steps: the ledger and the naive model say the same after each, and so does a ledger made of the rows.

use proptest::prelude::*;

use crate::harness::{load, run};
use crate::naive::generate::{Bytes, World};
use crate::naive::ops::Op;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_ledger_does_what_the_model_does(blocks in prop::collection::vec(any::<[u8; 24]>(), 1..120)) {
        run(&blocks).map_err(TestCaseError::fail)?;
    }

    /// Releasing everything leaves sums of zero, whatever happened before.
    #[test]
    fn releasing_everyone_leaves_nothing(blocks in prop::collection::vec(any::<[u8; 24]>(), 1..60)) {
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
    fn the_same_steps_make_the_same_bytes(blocks in prop::collection::vec(any::<[u8; 24]>(), 1..60)) {
        let (one, two) = (run(&blocks).map_err(TestCaseError::fail)?, run(&blocks).map_err(TestCaseError::fail)?);
        prop_assert_eq!(one.rows, two.rows);
    }

    /// A decision that is not applied changes nothing, and applying it gives what deciding and applying in one gives.
    #[test]
    fn deciding_reads_only(blocks in prop::collection::vec(any::<[u8; 24]>(), 1..40), last in any::<[u8; 24]>()) {
        let mut pair = run(&blocks).map_err(TestCaseError::fail)?;
        let op = World::default().op(&mut Bytes(&last), 3);
        if let Op::Charge { subject, asked, standing } = &op {
            let charges = crate::naive::engine::charges(&pair.ledger, asked);
            let (subject, standing) = (ledger::SubjectId(*subject), crate::naive::engine::to_standing(standing));
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
        let blocks: Vec<[u8; 24]> = (0..40).map(|_| std::array::from_fn(|_| next())).collect();
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
