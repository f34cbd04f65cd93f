//! What can go wrong apart from a denial.

use crate::account::{AccountId, AccountKey};
use crate::charge::SubjectId;

/// A call that cannot be carried out as asked; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    #[error("{key} is already open as account {}", account.index())]
    AlreadyOpen { account: AccountId, key: AccountKey },
    #[error("no account {} is open", account.index())]
    UnknownAccount { account: AccountId },
    #[error("a limit may not be below zero")]
    NegativeLimit,
    #[error("an account key text has {bytes} bytes, the most is {}", crate::KEY_TEXT_BYTES_MAX)]
    KeyTooLong { bytes: usize },
    #[error("{} accounts are open, which is the most", crate::ACCOUNTS_MAX)]
    TooManyAccounts,
    #[error("a step has more than {} parts", crate::STEP_PARTS_MAX)]
    StepTooLarge,
    #[error("the ledger does not know subject {:032x}", subject.0)]
    UnknownSubject { subject: SubjectId },
    #[error("subject {:032x} waits, so it holds nothing that could be settled", subject.0)]
    NothingHeld { subject: SubjectId },
}

/// Stored rows that do not make a ledger. The data is damaged or from a newer release; starting anyway could admit
/// what must not be admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    #[error("ledger row {key}: {what}")]
    Row { key: String, what: &'static str },
    #[error("ledger row {key} is written in format {version}, this release reads up to {}", crate::rows::ROW_VERSION)]
    Version { key: String, version: u8 },
    #[error("subject {:032x} charges account {}, which is not stored", subject.0, account.index())]
    MissingAccount { subject: SubjectId, account: AccountId },
    #[error("accounts {} and {} have the same key", first.index(), second.index())]
    SameKey { first: AccountId, second: AccountId },
    #[error("the charges on account {} add up to more than can be counted", account.index())]
    Overflow { account: AccountId },
    #[error("subject {:032x} is of step {sequence}, the ledger ends at {last}", subject.0)]
    FromTheFuture { subject: SubjectId, sequence: u64, last: u64 },
    #[error(transparent)]
    Audit(#[from] AuditError),
}

/// A recount that disagrees with the books: always a bug, never a state to live with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("audit: {what}")]
pub struct AuditError {
    pub what: String,
}
