//! Ways in which etcd, or whoever uses the store, may be broken. The judge must find each of them out: one that cannot say no
//! proves nothing.

use store::etcd::messages::{Compare, CompareWith, PutRequest};

use super::history::Bend;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Whether the leader is still the one who asks is not compared: a replaced one writes.
    FenceIgnored,
    /// The number of the last transaction is not compared: what is asked for again is done again.
    NumberIgnored,
    /// An entry of a journal is left out of its transaction.
    EntryDropped,
    /// Of a transaction only the first half is done.
    Torn,
    /// A transaction is answered and not done.
    AnsweredNotDone,
    /// Who renews a lease that has ended is told that it lives.
    LossUntold,
    /// Nothing is ever compacted.
    NeverCompacts,
    /// A restored etcd goes on with the index of the old one.
    RewindUnseen,
    /// The leader's key stays when its lease ends: nobody takes over.
    KeyOutlivesLease,
    /// etcd does nothing while one of its members does not answer.
    AllMustAgree,
    /// A standby gives up when etcd does not answer it.
    StandbyGivesUp,
    /// A leader takes itself for one whatever becomes of its lease.
    TermIgnored,
    /// Whoever asks etcd, or watches it, waits for a connection that fell silent.
    WaitsForEver,
}

/// As etcd should be.
#[derive(Debug)]
pub struct Honest;

impl Bend for Honest {}

impl Bend for Mutation {
    fn holds(&self, compare: &Compare, truly: bool) -> bool {
        let ignored = match (self, &compare.with) {
            // That nobody leads yet is compared all the same.
            (Mutation::FenceIgnored, Some(CompareWith::CreateRevision(revision))) => *revision > 0,
            (Mutation::NumberIgnored, Some(CompareWith::Value(_))) => true,
            _ => false,
        };
        truly || ignored
    }

    fn keeps(&self, put: &PutRequest, index: usize) -> bool {
        match self {
            Mutation::EntryDropped => !put.key.starts_with(super::JOURNALS),
            Mutation::Torn => index < 2 || put.key == super::COMMIT,
            Mutation::AnsweredNotDone => put.key.as_slice() == super::LEADER || put.key == super::COMMIT,
            _ => true,
        }
    }
}
