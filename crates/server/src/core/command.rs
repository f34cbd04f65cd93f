//! What may be asked of the engine on its store, and what it answers.

use engine::{Postponed, Refused, Snapshot, Write, Written};

/// A request to the sequencer.
#[derive(Debug)]
pub enum Command {
    Write(Box<Write>),
    /// Writes what the ledger knows into the status of policies whose usage changed, a bounded number at a time.
    PublishStatus {
        now_ms: i64,
    },
    /// Hands out everything as it is at this moment, for an audit elsewhere.
    Snapshot,
    /// Writes some of the objects again that are stored otherwise than the configuration of encryption says.
    Encrypt,
}

/// The answer to a [`Command`].
#[derive(Debug)]
pub enum Answer {
    Written(Result<Written, Refused>),
    /// Only to writes whose [`Foresight`](rules::cel::Foresight) allows it.
    Postponed(Box<Postponed>),
    Published {
        remaining: usize,
    },
    Snapshot(Box<Snapshot>),
    /// How many are left.
    Encrypted {
        remaining: usize,
    },
}

impl Answer {
    /// The answer to a write; `Err` for any other, which only a bug could send.
    pub fn written(self) -> Result<Written, Refused> {
        match self {
            Answer::Written(result) => result,
            other => Err(Refused::Bug(format!("a write was answered with {other:?}"))),
        }
    }
}
