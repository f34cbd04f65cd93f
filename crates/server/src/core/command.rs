//! What may be asked of the engine on its store, and what it answers.

use engine::{Counted, Foreseen, Found, Held, Hold, Postponed, Refused, Snapshot, Wanted, Write, Writes, Written};
use ledger::SubjectId;
use store::Journal;

/// A request to the sequencer.
#[derive(Debug)]
pub enum Command {
    Write(Box<Write>),
    /// The same for a write that was put off because it counts too much: what it counts is begun with.
    Stage(Box<Write>),
    /// Counts the next slice of that, with what was found out since the last.
    CountOn {
        ticket: u64,
        found: Vec<Found>,
        now_ms: i64,
    },
    /// Several writes in one step, all of them or none, and with them entries of journals.
    WriteAll(Box<WriteAll>),
    /// The same for a sender who finds out what expressions give where they take long, and sends them again.
    WriteAllForeseen(Box<WriteAll>, Foreseen),
    /// Decides a write that is stored elsewhere.
    Hold(Box<Hold>),
    /// Gives up what is held for it.
    DropHold {
        subject: SubjectId,
        now_ms: i64,
    },
    /// Writes what the ledger knows into the status of policies whose usage changed, a bounded number at a time.
    PublishStatus {
        now_ms: i64,
    },
    /// Hands out everything as it is at this moment, for an audit elsewhere.
    Snapshot,
    /// Writes some of the objects again that are stored otherwise than the configuration of encryption says.
    Encrypt,
}

/// Several writes, and what is to be appended to journals if they happen.
#[derive(Debug)]
pub struct WriteAll {
    pub writes: Writes,
    pub entries: Vec<(Journal, Vec<u8>)>,
}

/// The answer to a [`Command`].
#[derive(Debug)]
pub enum Answer {
    Written(Result<Written, Refused>),
    /// With the place of the first that was refused.
    WrittenAll(Result<Vec<Written>, (usize, Refused)>),
    /// Only to those that were sent by somebody who sends them again.
    PostponedAll(Box<WriteAll>, Vec<Wanted>),
    Held(Result<Held, Refused>),
    /// Whether anything was held.
    Dropped {
        was_held: bool,
    },
    /// Only to writes whose [`Foresight`](rules::cel::Foresight) allows it.
    Postponed(Box<Postponed>),
    Counted(Counted),
    /// How many are left, and how many of them were served what they waited for.
    Published {
        remaining: usize,
        served: usize,
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
