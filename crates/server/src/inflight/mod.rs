//! How many requests run at once, and whose turn it is when more want to.
//!
//! Reads and writes have seats of their own, so that slow lists cannot keep writes out. When all seats are taken a
//! request waits in its user's queue; a seat that becomes free goes to the users in turn, so one user's thousand
//! requests delay another's one by a single round. Queues are bounded in length and time; beyond that the answer is
//! 429 with `Retry-After`. The owner (`system:masters`) and the process's own controllers never wait for a seat.
//!
//! Bytes are counted as well, for bodies being read and for answers until their last byte has left: who does not read an
//! answer uses up its own share of them and nobody else's. The owner has a part of its own there. Neither of seats nor of
//! bytes can one user, or a few together, have all: the less is left, the less those get who have much already.
//!
//! Shares and turns go by [`Identity::flow`]: a user, or all service accounts of a namespace.

mod budget;
mod lane;
mod turns;
mod watches;

use std::sync::Arc;
use std::time::Duration;

pub use budget::{Charge, WAIT_MAX, WAITING_MAX, WAITING_PER_USER_MAX};
pub use lane::Seat;
pub use turns::{TURN_TIME_MAX, Turns};
pub use watches::WatchSeat;

use crate::identity::Identity;
use budget::Budget;
use lane::Lane;
use watches::Watches;

/// What a client is told to wait before it comes back. Kubernetes says one second as well.
pub const RETRY_AFTER_SECONDS: u64 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Reads at once. A list of 10 000 pods holds some 30 MB while it is written out.
    pub reads: usize,
    /// Writes at once. They spend their time waiting for the disk, and the more of them wait, the more share one sync.
    pub writes: usize,
    /// Waiting requests of one user: a few seconds' worth of work for a client without any restraint of its own.
    pub queue_per_user: usize,
    /// Waiting requests of all users together, so that many names do not add up to unbounded memory.
    pub queue: usize,
    /// Longest wait in a queue; clients give up at about that time anyway.
    pub wait: Duration,
    /// Open watches of one user. A controller has tens, a platform's service account a few thousand.
    pub watches_per_user: usize,
    /// Open watches of all users but the owner: each costs a task and a bounded backlog.
    pub watches: usize,
    /// Bytes of answers under way. A quarter is the owner's; of the rest one user can have a sixth.
    pub answer_bytes: usize,
    /// Bytes of request bodies being read and worked on, shared likewise.
    pub body_bytes: usize,
}

/// How many parts of the bytes there are: [`OWNER_PARTS`] belong to the owner, and of the others each user can have one.
pub const PARTS: usize = 8;
pub const OWNER_PARTS: usize = 2;
/// An answer costs this much at the least: its headers and what the protocol remembers of it.
const ANSWER_BYTES_MIN: usize = 1024;
/// Bodies up to this size are not counted: the seats bound them well enough.
const SMALL_BODY_BYTES: usize = 16 * 1024;

/// What an answer keeps in memory until it is sent, where its body does not say: in the response's extensions.
#[derive(Clone, Copy, Debug)]
pub struct AnswerBytes(pub usize);

/// Room for an answer that was taken before the answer was made, in the response's extensions.
#[derive(Clone)]
pub struct Taken(pub Arc<Charge>);

/// Where whoever makes a large answer asks for room beforehand: in the request's extensions.
#[derive(Clone)]
pub struct Room {
    in_flight: Arc<InFlight>,
    identity: Arc<Identity>,
}

impl Room {
    pub fn new(in_flight: Arc<InFlight>, identity: Arc<Identity>) -> Room {
        Room { in_flight, identity }
    }

    pub async fn take(&self, bytes: usize) -> Result<Charge, TooMany> {
        self.in_flight.answer(&self.identity, bytes).await
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            reads: 400,
            writes: 1_024,
            queue_per_user: 256,
            queue: 4_096,
            wait: Duration::from_secs(30),
            watches_per_user: 4_096,
            watches: 65_536,
            answer_bytes: 512 * 1024 * 1024,
            body_bytes: 256 * 1024 * 1024,
        }
    }
}

/// Too much is asked for at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Too many requests, please try again later.")]
pub struct TooMany;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Read,
    Write,
}

pub struct InFlight {
    reads: Arc<Lane>,
    writes: Arc<Lane>,
    watches: Arc<Watches>,
    answers: Shared,
    bodies: Shared,
}

/// Bytes of one kind: the owner's and everybody else's.
struct Shared {
    owner: Arc<Budget>,
    others: Arc<Budget>,
}

impl Shared {
    fn new(bytes: usize) -> Shared {
        let part = bytes / PARTS;
        Shared {
            owner: Budget::new(part * OWNER_PARTS, part * OWNER_PARTS, WAIT_MAX),
            others: Budget::new(part * (PARTS - OWNER_PARTS), part, WAIT_MAX),
        }
    }

    fn of(&self, identity: &Identity) -> &Arc<Budget> {
        if identity.is_master() { &self.owner } else { &self.others }
    }
}

impl InFlight {
    pub fn new(limits: Limits) -> InFlight {
        InFlight {
            reads: Lane::new(limits.reads, &limits),
            writes: Lane::new(limits.writes, &limits),
            watches: Watches::new(limits.watches_per_user, limits.watches),
            answers: Shared::new(limits.answer_bytes),
            bodies: Shared::new(limits.body_bytes),
        }
    }

    /// A seat, at once or after waiting; it is given back when dropped. `None` inside means exempt: nothing to give.
    pub async fn seat(&self, identity: &Identity, work: Work) -> Result<Option<Seat>, TooMany> {
        if identity.is_master() {
            return Ok(None);
        }
        let lane = if work == Work::Read { &self.reads } else { &self.writes };
        lane.seat(&identity.flow()).await.map(Some)
    }

    /// Watches hold no seat, but their number is bounded, one user's and all together, for everyone but the owner.
    pub fn watch(&self, identity: &Identity) -> Result<WatchSeat, TooMany> {
        self.watches.seat(&identity.flow(), identity.is_master())
    }

    /// Room for an answer of so many bytes, at once or after waiting; an answer larger than a user's whole part takes all
    /// of it and no more, so that it can be had at all.
    pub async fn answer(&self, identity: &Identity, bytes: usize) -> Result<Charge, TooMany> {
        self.answers.of(identity).take(&identity.flow(), bytes.max(ANSWER_BYTES_MIN)).await
    }

    /// Room for a large piece of a watch, if there is any now.
    pub fn piece(&self, identity: &Identity, bytes: usize) -> Result<Charge, TooMany> {
        self.answers.of(identity).take_now(&identity.flow(), bytes)
    }

    /// Room for a request's body. `None` inside means that it is too small to count.
    pub async fn body(&self, identity: &Identity, bytes: usize) -> Result<Option<Charge>, TooMany> {
        if bytes <= SMALL_BODY_BYTES {
            return Ok(None);
        }
        self.bodies.of(identity).take(&identity.flow(), bytes).await.map(Some)
    }
}
