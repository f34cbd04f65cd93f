//! What steps did, for whoever stores it and shows it to readers.

use std::sync::Arc;

use families::{BalanceLine, Origin};

use crate::object::{Object, ObjectKey};

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum EventKind {
    Added,
    Modified,
    Deleted,
}

impl EventKind {
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Added => "ADDED",
            EventKind::Modified => "MODIFIED",
            EventKind::Deleted => "DELETED",
        }
    }
}

/// One object that was written, or deleted: then `object` is its last state.
#[derive(Debug)]
pub struct Effect {
    pub kind: EventKind,
    pub object: Arc<Object>,
    pub previous: Option<Arc<Object>>,
    /// Whose write it is, or follows from.
    pub origin: Origin,
}

/// What a group of steps did besides.
#[derive(Default)]
pub struct Effects {
    /// The new balances of the accounts that changed, by policy.
    pub balances: Vec<(Arc<str>, BalanceLine)>,
    /// Policies whose accounts are gone.
    pub closed: Vec<Arc<str>>,
    /// Objects whose status a user wrote (true) or the ledger took back (false).
    pub status_written: Vec<(ObjectKey, bool)>,
    /// What was decided.
    pub decided: Decided,
    /// When some object has to be measured again although nobody writes it.
    pub due_ms: Option<i64>,
    /// Some policy's status no longer shows what the ledger knows.
    pub stale_status: bool,
    /// Facts that a start needs, where they are others now.
    pub facts: Vec<Fact>,
}

/// What a start has to know besides objects and ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// By what time objects and policies were judged that change with it.
    Clock(i64),
    /// What measured the charges that are stored.
    Measuring(u64),
    /// When an object, or a policy, has to be looked at again; none when it no longer has.
    Due(ObjectKey, Option<i64>),
}

/// How many writes the accounts of each family granted, denied or put in line.
#[derive(Default, Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    families: Vec<[u64; 3]>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    Granted,
    Denied,
    Queued,
}

impl Decided {
    pub fn note(&mut self, family: usize, decision: Decision) {
        if self.families.len() <= family {
            self.families.resize(family + 1, [0; 3]);
        }
        self.families[family][decision as usize] += 1;
    }

    /// Counts others with them.
    pub fn add(&mut self, others: &Decided) {
        if self.families.len() < others.families.len() {
            self.families.resize(others.families.len(), [0; 3]);
        }
        for (family, others) in self.families.iter_mut().zip(&others.families) {
            family.iter_mut().zip(others).for_each(|(count, more)| *count += more);
        }
    }

    /// Granted, denied and queued for each family, in the order of the families; those after the last with any are left
    /// out.
    pub fn by_family(&self) -> &[[u64; 3]] {
        &self.families
    }
}
