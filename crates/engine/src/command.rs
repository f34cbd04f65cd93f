//! What may be asked of the engine, and what it answers.

use std::sync::Arc;

use families::{Denial, Origin, Refusal};
use rules::cel::{Foresight, Known, Question};

use crate::object::{Draft, Object, ObjectKey};
use crate::slices::{Found, Wanted};

/// One object written or removed, with its charge, in one step. Time comes in with it: the engine reads no clock.
#[derive(Debug)]
pub struct Write {
    pub key: ObjectKey,
    pub kind: WriteKind,
    /// Checked and answered as if, but nothing changes.
    pub dry_run: bool,
    pub now_ms: i64,
    /// What is known of the expressions that will be asked about the object.
    pub foresight: Foresight,
    pub origin: Origin,
}

/// Several objects written or removed, in one step: all of it or nothing.
#[derive(Debug)]
pub struct Writes {
    pub writes: Vec<(ObjectKey, WriteKind)>,
    pub dry_run: bool,
    pub now_ms: i64,
    pub origin: Origin,
}

/// What is known of the expressions that will be asked about several objects.
#[derive(Debug, Default)]
pub struct Foreseen {
    pub found: Vec<Found>,
    /// Nobody will ask again: what is missing has to do with the time there is.
    pub is_last: bool,
}

/// What came of several writes; with the place of the first that was refused.
pub type WrittenAll = Result<Vec<Written>, (usize, Refused)>;

/// Several writes that were put off, because some expressions would take too long on the thread that decides. Nothing has changed.
#[derive(Debug)]
pub struct PostponedAll {
    pub writes: Writes,
    pub wanted: Vec<Wanted>,
}

/// A write that was put off: some expressions, or all that it counts again, would take too long on the thread that decides.
/// Nothing has changed.
#[derive(Debug)]
pub struct Postponed {
    pub kind: WriteKind,
    pub wanted: Vec<Question>,
    /// What they are wanted of: the object as rules see it.
    pub object: serde_json::Value,
    /// Set where it is for what has to be counted, and no expressions.
    pub recount: Option<Recount>,
}

/// What is counted before a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recount {
    /// Nothing yet: whoever goes on with it has the write prepared first, one writer at a time.
    ToBegin,
    /// Under this number.
    Begun(u64),
}

impl Postponed {
    pub(crate) fn until_counted(kind: WriteKind, recount: Recount) -> Postponed {
        Postponed { kind, wanted: Vec::new(), object: serde_json::Value::Null, recount: Some(recount) }
    }

    /// Evaluates what is wanted; not on a thread that others wait for.
    pub fn evaluate(self) -> (WriteKind, Known) {
        (self.kind, Known::evaluate(self.wanted, &self.object))
    }
}

#[derive(Debug)]
pub enum WriteKind {
    Create(Draft),
    Update {
        draft: Draft,
        expect: Expect,
        /// The write reports what already happened (a status): it is charged and never refused.
        status: bool,
    },
    Delete {
        expect: Expect,
        /// The object's last state, shown to watchers; the stored one when absent.
        last: Option<Draft>,
    },
}

impl WriteKind {
    /// What a deletion expects; of the others what is expected is part of what is written.
    pub(crate) fn expect(&self) -> Expect {
        match self {
            WriteKind::Delete { expect, .. } => *expect,
            WriteKind::Create(_) | WriteKind::Update { .. } => Expect::default(),
        }
    }
}

/// What must still be true of the stored object. Empty fields expect nothing.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Expect {
    pub revision: Option<u64>,
    pub uid: Option<ledger::SubjectId>,
}

/// A write that happened (or, on a dry run, would have).
#[derive(Debug, Clone)]
pub struct Written {
    pub object: Arc<Object>,
    pub sequence: u64,
}

/// Why a write did not happen. Nothing has changed.
#[derive(Debug, Clone, PartialEq)]
pub enum Refused {
    AlreadyExists,
    NotFound,
    NamespaceNotFound,
    /// New objects are not let into a namespace that is being removed.
    NamespaceTerminating,
    /// The kind of the object is being removed, and all objects with it.
    DefinitionTerminating,
    /// The disk is almost full: until there is room again, only what is deleted or gets smaller is accepted.
    NoSpace,
    /// The stored object is not the one the caller based the write on.
    Conflict {
        revision: u64,
    },
    UidMismatch {
        stored: ledger::SubjectId,
    },
    /// Some quota said no; one entry a policy, in a stable order.
    Denied(Vec<Denial>),
    /// A family said no in its own words; with its place among the families.
    Said {
        family: usize,
        refusal: Refusal,
    },
    /// A rule could not be evaluated on the object, which denies it.
    Unmeasurable {
        policy: Arc<str>,
        message: String,
    },
    /// A policy that does not compile; validation should have said so before.
    Invalid(Vec<kinds::field_error::FieldError>),
    Bug(String),
}

/// What an audit looked at, and what it found wrong (nothing, unless there is a bug).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditReport {
    /// The revision that was looked at.
    pub revision: u64,
    pub objects: usize,
    pub subjects: usize,
    pub accounts: usize,
    /// Objects that policies keep in step.
    pub kept: usize,
    /// Of these, how many are still to be made, or to follow a write.
    pub missing: usize,
    /// Everything that is not as it has to be, and the first of it in words: which object, on which policy, resource and
    /// part, expected and found.
    pub differing: usize,
    pub differences: Vec<String>,
    /// Policies that cannot be evaluated, and refuse everything they would look at.
    pub broken: Vec<String>,
    /// Accounts over their limit: allowed while admission is off or after a limit was lowered.
    pub over: Vec<String>,
}
