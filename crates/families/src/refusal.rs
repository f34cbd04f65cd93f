//! Why something is refused, with what a person and a program need to know of it.

use std::sync::Arc;

use quantity::{Amount, Format};
use rules::GroupResource;

use crate::family::Operation;

/// A refusal in a family's own words.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub kind: RefusalKind,
    pub message: String,
    /// What a program can go by: put into the answer's details as causes, by field.
    pub causes: Vec<RefusalCause>,
}

/// What sort of answer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// It may not be.
    Forbidden,
    /// It may not be now, as things stand.
    Conflict,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RefusalCause {
    pub reason: Arc<str>,
    pub message: String,
    pub field: Arc<str>,
}

impl Refusal {
    pub fn forbidden(message: impl Into<String>) -> Refusal {
        Refusal { kind: RefusalKind::Forbidden, message: message.into(), causes: Vec::new() }
    }

    pub fn conflict(message: impl Into<String>) -> Refusal {
        Refusal { kind: RefusalKind::Conflict, ..Refusal::forbidden(message) }
    }
}

impl From<String> for Refusal {
    fn from(message: String) -> Refusal {
        Refusal::forbidden(message)
    }
}

/// The accounts of one policy that said no to one request, with the numbers a person needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub policy: Arc<str>,
    pub resource: GroupResource,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    /// What was refused.
    pub operation: Operation,
    pub lines: Vec<DenialLine>,
    /// Set when a rule refused in its own words ([`rules::Refusal`]) instead of an account.
    pub message: Option<String>,
    /// Of the accounts' reasons the one that is hardest to do something about.
    pub reason: DenialReason,
}

/// Why an account said no, or a rule; those that are harder to do something about come later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DenialReason {
    /// A rule refused in its own words.
    Rule,
    /// Too little is left: what others let go of makes room.
    Full,
    /// More is asked for than the limit: nothing that others let go of makes room.
    NeverFits,
    /// The line of those who wait is as long as it may be.
    LineFull,
    /// More policies look at the object than may charge one.
    TooMany,
    /// It is more than can be counted.
    Overflow,
}

impl DenialReason {
    /// As programs are told.
    pub fn name(self) -> &'static str {
        match self {
            DenialReason::Rule => "QuotaRule",
            DenialReason::Full => "QuotaExceeded",
            DenialReason::NeverFits => "QuotaNeverFits",
            DenialReason::LineFull => "QuotaLineFull",
            DenialReason::TooMany => "TooManyQuotas",
            DenialReason::Overflow => "QuotaOverflow",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenialLine {
    pub account: Arc<str>,
    pub requested: Amount,
    pub requested_format: Format,
    pub used: Amount,
    pub held: Amount,
    pub used_format: Format,
    pub limit: Amount,
    /// The limit as the policy writes it.
    pub limit_text: Arc<str>,
    pub reason: DenialReason,
}
