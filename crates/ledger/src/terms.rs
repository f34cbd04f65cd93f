//! On which terms a charge is asked for, and how its subject stands meanwhile.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::charge::SubjectId;

/// What is to happen with one charge. Charges of one subject on one account are asked for on the same terms; of several the
/// first of this list is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Terms {
    /// Now or not at all.
    #[default]
    Enforced,
    /// Now if it may, else in line, together with all others of the subject that are. Until then the subject keeps what it
    /// has of the account, and no more than it asks for.
    InLine,
    /// Counted from when the subject is served what it asks for in line, and never refused: what others may have of the account
    /// is less by it. Without a place in line it is adopted. Sums that it lifts from zero are printed plainly.
    Along,
    /// The subject exists already: a new policy found it, or a status write reports it. Counted, never refused.
    Adopted,
}

/// How a subject stands with what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Standing {
    /// Its object is stored, or will be in the same step. Without a place in line it does not wait: what is asked for in
    /// line is then enforced.
    #[default]
    Stored,
    /// The same, and this is its place where it has to wait.
    MayWait(Wait),
    /// Admitted, but not yet seen as stored. Counts against limits until it settles or this moment has passed. Nothing is
    /// waited for before that.
    Held { expires_at_ms: i64 },
}

impl Standing {
    pub(crate) fn wait(&self) -> Option<&Wait> {
        match self {
            Standing::MayWait(wait) => Some(wait),
            Standing::Stored | Standing::Held { .. } => None,
        }
    }
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

/// How and where a subject waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub discipline: Discipline,
    pub position: Position,
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
