//! Steps and answers as plain data, in words of neither the model nor the engine.

use std::collections::BTreeMap;

/// An account by its names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub policy: String,
    pub resource: String,
}

impl Key {
    pub fn new(policy: impl Into<String>, resource: impl Into<String>) -> Key {
        Key { policy: policy.into(), resource: resource.into() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Unlimited,
    Enforced(i128),
    Observed(i128),
}

/// Amount in nanos and format number of each account.
pub type Lines = BTreeMap<Key, (i128, u8)>;

/// What is asked for: may name an account twice or one that is not open.
pub type Asked = Vec<(Key, i128, u8, Terms)>;

/// Of several on one account the first of this list holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Terms {
    Enforced,
    InLine,
    Adopted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Stored,
    Held { until: i64 },
    MayWait { ordered: bool, priority: i64, arrived: i64, tie: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Open {
        key: Key,
        limit: Limit,
    },
    SetLimit {
        key: Key,
        limit: Limit,
    },
    Close {
        key: Key,
    },
    Rename {
        key: Key,
        to: Key,
    },
    /// At most so many let go of what they have on it, and on the accounts of policies whose names begin so.
    Sweep {
        key: Key,
        with: &'static str,
        max: usize,
    },
    Charge {
        subject: u128,
        asked: Asked,
        standing: Standing,
    },
    Release {
        subject: u128,
    },
    Settle {
        subject: u128,
    },
    Expire {
        now: i64,
    },
    WhatIf {
        subject: u128,
        asked: Asked,
    },
    /// All of it or nothing. Of several words on one subject the last one counts.
    Step {
        settings: Vec<Setting>,
        subjects: Vec<(u128, Wish)>,
    },
}

/// What a step does to an account. Opening one that is open changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    Open { key: Key, limit: Limit },
    SetLimit { key: Key, limit: Limit },
}

/// What a step does to a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    Charge { asked: Asked, standing: Standing },
    Release,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Done { sequence: u64, changed: bool, outcome: Outcome, woken: Vec<u128> },
    Denied(Vec<No>),
    Would(Vec<Shown>),
    Error(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Opened,
    Granted,
    Held {
        until: i64,
    },
    Queued,
    Released,
    Settled,
    Expired(Vec<u128>),
    LimitSet,
    Closed,
    Renamed,
    /// Who let go; whom it takes first is not promised.
    Swept {
        swept: Vec<u128>,
        left: usize,
    },
    /// Of a step of several parts: who is in line after it.
    Step {
        queued: Vec<u128>,
    },
}

/// One refusing account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct No {
    pub key: Key,
    pub reason: &'static str,
    pub requested: i128,
    pub used: i128,
    pub held: i128,
}

/// One account as shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub key: Key,
    pub limit: Limit,
    pub used: i128,
    pub held: i128,
    pub waiting: usize,
    pub subjects: usize,
    pub format: u8,
}

/// One subject as shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub subject: u128,
    pub state: &'static str,
    pub until: Option<i64>,
    pub lines: Lines,
    pub settled: Lines,
    pub sequence: u64,
}
