//! A ledger, its model and its rows, moved together from any bytes. The fuzz target runs the same code.

use std::collections::BTreeMap;

use ledger::Ledger;

use crate::naive::engine::{compare, step};
use crate::naive::generate::{Bytes, World};
use crate::naive::model::Model;
use crate::naive::ops::{Op, Said};

/// A ledger, its model and its rows, moved together.
#[derive(Clone, Default)]
pub struct Pair {
    pub ledger: Ledger,
    pub model: Model,
    pub rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Pair {
    pub fn step(&mut self, op: &Op) -> Result<Said, String> {
        let digest = self.ledger.digest();
        let said = step(&mut self.ledger, op);
        let expected = self.model.follow(op, &said);
        if said != expected {
            return Err(format!("{op:?}\n  ledger says {said:?}\n  model says  {expected:?}"));
        }
        let changed = matches!(said, Said::Done { changed: true, .. });
        if !changed && (self.ledger.digest() != digest || self.ledger.has_changes()) {
            return Err(format!("{op:?} changed something and said it did not"));
        }
        compare(&self.ledger, &self.model).map_err(|difference| format!("after {op:?}: {difference}"))?;
        self.ledger.audit().map_err(|error| format!("after {op:?}: {error}"))?;
        let rows = &mut self.rows;
        self.ledger.drain_changes(&mut |row| {
            match row.value {
                Some(value) => rows.insert(row.key.to_vec(), value.to_vec()),
                None => rows.remove(row.key),
            };
        });
        Ok(said)
    }

    pub fn restart(&mut self) -> Result<(), String> {
        let rows = self.rows.iter().rev().map(|(key, value)| (&key[..], &value[..]));
        let loaded = Ledger::load(rows).map_err(|error| error.to_string())?;
        if loaded.digest() != self.ledger.digest() {
            return Err("the rows make another ledger".into());
        }
        self.ledger = loaded;
        compare(&self.ledger, &self.model)
    }
}

/// One step for each block of bytes; the clock mostly goes forward.
pub fn run<const BYTES: usize>(blocks: &[[u8; BYTES]]) -> Result<Pair, String> {
    let (mut pair, world) = (Pair::default(), World::default());
    // Half of the runs begin with every account open.
    if let Some(first) = blocks.first().filter(|first| first[BYTES - 1] % 2 == 0) {
        for op in world.opening(&mut Bytes(first)) {
            pair.step(&op)?;
        }
    }
    let mut now = 0i64;
    for (index, block) in blocks.iter().enumerate() {
        now += i64::from(block[0] % 4) - 1;
        let op = world.op(&mut Bytes(&block[1..]), now);
        pair.step(&op).map_err(|error| format!("step {index}: {error}"))?;
        if index % 7 == 6 {
            pair.restart()?;
        }
    }
    pair.restart()?;
    Ok(pair)
}

/// Any bytes as rows: the loader says no, or makes a ledger that adds up and writes the same rows again.
pub fn load(bytes: &[u8]) {
    let mut rows: Vec<(&[u8], &[u8])> = Vec::new();
    let mut rest = bytes;
    while let Some((lengths, after)) = rest.split_at_checked(2) {
        let Some((key, after)) = after.split_at_checked(usize::from(lengths[0])) else { break };
        let Some((value, after)) = after.split_at_checked(usize::from(lengths[1])) else { break };
        rows.push((key, value));
        rest = after;
    }
    if let Ok(ledger) = Ledger::load(rows.into_iter()) {
        ledger.audit().expect("a loaded ledger adds up");
    }
}
