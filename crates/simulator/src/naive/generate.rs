//! Draws steps from any source of choices: a seed, a fuzzer's bytes, a property test's list.
//!
//! The world is small on purpose, so that steps meet: few accounts, few subjects, amounts near the limits.

use super::ops::{Asked, Key, Limit, Op, Setting, Standing, Terms, Wish};

/// Answers `choose(n)` with a number below `n`.
pub trait Choose {
    fn below(&mut self, bound: u64) -> u64;
}

/// Choices from bytes; when they run out every choice is the first.
pub struct Bytes<'a>(pub &'a [u8]);

impl Choose for Bytes<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        u64::from(*first) % bound.max(1)
    }
}

/// How large the world is.
#[derive(Clone, Copy, Debug)]
pub struct World {
    pub policies: u64,
    pub subjects: u64,
    /// Whether some accounts are let go of in parts: whom that takes first differs between two ledgers that say the same.
    pub sweeps_in_parts: bool,
}

impl Default for World {
    fn default() -> World {
        World { policies: 2, subjects: 7, sweeps_in_parts: true }
    }
}

const UNIT: i128 = 1_000_000_000;
const RESOURCES: [&str; 2] = ["cpu", "memory"];
/// How policies are called that are let go of.
const GONE: &str = "gone";

impl World {
    /// One step. Charges dominate; limits are low enough that about a third of them do not fit.
    pub fn op(&self, choose: &mut impl Choose, now: i64) -> Op {
        match choose.below(40) {
            0..=15 => {
                let subject = self.subject(choose);
                let (asked, standing) = self.charges(choose, now);
                Op::Charge { subject, asked, standing }
            }
            36..=39 => self.step(choose, now),
            16..=19 => Op::Release { subject: self.subject(choose) },
            20 | 21 => Op::Settle { subject: self.subject(choose) },
            22 | 23 => Op::Expire { now },
            24..=26 => Op::Open { key: self.key(choose), limit: limit(choose) },
            27 | 28 => Op::SetLimit { key: self.key(choose), limit: limit(choose) },
            29 => Op::Close { key: self.key(choose) },
            30 => {
                let key = self.key(choose);
                let to = if choose.below(3) == 0 { self.key(choose) } else { gone(choose) };
                // Some come back.
                if choose.below(4) == 0 { Op::Rename { key: to, to: key } } else { Op::Rename { key, to } }
            }
            31 => {
                let key = if choose.below(4) == 0 { self.key(choose) } else { gone(choose) };
                let max = usize::try_from(choose.below(4)).unwrap_or(0);
                Op::Sweep { key, with: GONE, max: if self.sweeps_in_parts { max } else { usize::MAX } }
            }
            _ => Op::WhatIf { subject: self.subject(choose), asked: self.asked(choose) },
        }
    }

    /// A step of several parts: mostly two or three subjects, and now and then an account.
    pub fn step(&self, choose: &mut impl Choose, now: i64) -> Op {
        let setting = |choose: &mut _| match Choose::below(choose, 8) {
            0 | 1 => Some(Setting::Open { key: self.key(choose), limit: limit(choose) }),
            2 => Some(Setting::SetLimit { key: self.key(choose), limit: limit(choose) }),
            _ => None,
        };
        let settings: Vec<Setting> = (0..2).filter_map(|_| setting(choose)).collect();
        let wish = |choose: &mut _| match Choose::below(choose, 4) {
            0 => Wish::Release,
            _ => {
                let (asked, standing) = self.charges(choose, now);
                Wish::Charge { asked, standing }
            }
        };
        let count = 1 + choose.below(4);
        let subjects = (0..count).map(|_| (self.subject(choose), wish(choose))).collect();
        Op::Step { settings, subjects }
    }

    fn charges(&self, choose: &mut impl Choose, now: i64) -> (Asked, Standing) {
        let mut asked = self.asked(choose);
        let (terms, standing) = manner(choose, now);
        // Mostly all on the same terms, as the rules of one family are.
        let mixed = choose.below(4) == 0;
        for wish in &mut asked {
            wish.3 = if mixed { one_of_terms(choose) } else { terms };
        }
        (asked, standing)
    }

    /// The steps that open every account, for runs that should not start empty.
    pub fn opening(&self, choose: &mut impl Choose) -> Vec<Op> {
        let keys = (0..self.policies).flat_map(|policy| RESOURCES.map(|resource| key(policy, resource)));
        keys.map(|key| Op::Open { key, limit: limit(choose) }).collect()
    }

    fn subject(&self, choose: &mut impl Choose) -> u128 {
        u128::from(choose.below(self.subjects)) + 1
    }

    fn key(&self, choose: &mut impl Choose) -> Key {
        let policy = choose.below(self.policies);
        let index = choose.below(2);
        key(policy, RESOURCES[usize::from(index == 1)])
    }

    fn asked(&self, choose: &mut impl Choose) -> Asked {
        let count = match choose.below(12) {
            0 => 0,
            1..=4 => 1,
            5..=8 => 2,
            9 | 10 => 3,
            _ => 5,
        };
        let mut wish = || {
            let (key, amount, format) = (self.key(choose), amount(choose), u8::try_from(choose.below(3)).unwrap_or(0));
            (key, amount, format, Terms::Enforced)
        };
        (0..count).map(|_| wish()).collect()
    }
}

fn key(policy: u64, resource: &str) -> Key {
    Key::new(format!("pool-{policy}"), resource)
}

fn gone(choose: &mut impl Choose) -> Key {
    Key::new(format!("{GONE}-{}", choose.below(3)), RESOURCES[0])
}

fn amount(choose: &mut impl Choose) -> i128 {
    match choose.below(40) {
        0 => -UNIT,
        1 => i128::MAX,
        2 => i128::MAX / 2,
        3 => 1,
        4 => 0,
        _ => i128::from(choose.below(5)) * UNIT,
    }
}

fn limit(choose: &mut impl Choose) -> Limit {
    match choose.below(16) {
        0 => Limit::Unlimited,
        1 => Limit::Observed(UNIT),
        2 => Limit::Enforced(-1),
        3 => Limit::Enforced(i128::MAX),
        4 => Limit::Enforced(0),
        _ => Limit::Enforced(i128::from(choose.below(12)) * UNIT),
    }
}

/// The terms of most charges, and how their subject stands.
fn manner(choose: &mut impl Choose, now: i64) -> (Terms, Standing) {
    let soon = |choose: &mut dyn FnMut(u64) -> u64| now.saturating_add(i64::try_from(choose(8)).unwrap_or(0));
    match choose.below(16) {
        0..=4 => (Terms::Enforced, Standing::Stored),
        5 => (Terms::Adopted, Standing::Stored),
        6..=8 => (Terms::Enforced, Standing::Held { until: soon(&mut |bound| choose.below(bound)) }),
        kind => {
            let standing = Standing::MayWait {
                ordered: kind >= 12,
                priority: if choose.below(4) == 0 { 1 } else { 0 },
                arrived: i64::try_from(choose.below(6)).unwrap_or(0),
                tie: format!("tie-{}", choose.below(3)),
            };
            (Terms::InLine, standing)
        }
    }
}

fn one_of_terms(choose: &mut impl Choose) -> Terms {
    match choose.below(5) {
        0 | 1 => Terms::InLine,
        2 => Terms::Adopted,
        _ => Terms::Enforced,
    }
}
