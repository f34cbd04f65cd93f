//! On which terms a subject asks: at once, already there, for a while, or in line.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::charge::SubjectId;

/// What the caller wants to happen with the charges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Terms {
    /// Now or not at all.
    Charge,
    /// The subject exists already: a new policy found it, or a status write reports it. Counted, never refused.
    Adopt,
    /// Admitted, but not yet seen as stored. Counts against limits until it settles or this moment has passed.
    Hold { expires_at_ms: i64 },
    /// Now if it may, else in line, holding nothing.
    Wait { discipline: Discipline, position: Position },
}

/// Who may pass whom in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Discipline {
    /// Oldest first, but whoever fits is granted.
    Greedy,
    /// Nobody is granted more of an account that a better-placed ordered waiter is exhausting. Accounts which that
    /// waiter would get are not kept for it.
    Ordered,
}

/// A place in line: higher priority first, then older, then the smaller tie text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub priority: i64,
    pub arrived: i64,
    pub tie: Arc<str>,
}

/// A position made total by the subject, in the order of service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    priority: Reverse<i64>,
    arrived: i64,
    tie: Arc<str>,
    pub subject: SubjectId,
}

impl Place {
    pub fn new(position: &Position, subject: SubjectId) -> Place {
        Place { priority: Reverse(position.priority), arrived: position.arrived, tie: position.tie.clone(), subject }
    }
}
