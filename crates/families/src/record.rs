//! What a family has written down besides objects: entries of journals, in the commit of what they are about; and how it reads
//! back what is to be sent to others.

use futures::future::BoxFuture;
use rules::GroupResource;
use serde_json::Value;

use crate::family::Change;
use crate::identity::Origin;

/// Where it is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Book {
    /// What was denied to whom, and why.
    Denials,
    /// What is to be sent to others.
    Outbox,
}

/// One entry. It is durable with the write or the refusal it is about, or not at all.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub book: Book,
    pub entry: Value,
}

/// What there may be something to write down about.
pub enum Noted<'a> {
    /// An object was written or deleted. The revision is the write's own.
    Written {
        change: &'a Change<'a>,
        revision: u64,
    },
    Refused(RefusedNote<'a>),
}

/// A write that was refused, as it is written down.
pub struct RefusedNote<'a> {
    pub resource: &'a GroupResource,
    pub namespace: &'a str,
    pub name: &'a str,
    pub reason: &'a str,
    pub message: &'a str,
    pub origin: &'a Origin,
    pub now_ms: i64,
}

/// The entries of [`Book::Outbox`], for whoever sends them.
pub trait Outbox: Send + Sync {
    /// Entries from this number on, upwards: as many as one read gives.
    fn read(&self, from: u64) -> BoxFuture<'static, Result<Posted, String>>;
}

/// What a read of the outbox gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Posted {
    pub entries: Vec<PostedEntry>,
    /// The oldest number that is left, and the one that comes next.
    pub begin: u64,
    pub end: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PostedEntry {
    pub sequence: u64,
    pub at_ms: i64,
    pub entry: Value,
}
