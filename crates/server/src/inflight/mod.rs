//! How many requests run at once, and whose turn it is when more want to.
//!
//! Reads and writes have seats of their own, so that slow lists cannot keep writes out. When all seats are taken a
//! request waits in its user's queue; a seat that becomes free goes to the users in turn, so one user's thousand
//! requests delay another's one by a single round. Queues are bounded in length and time; beyond that the answer is
//! 429 with `Retry-After`. The owner (`system:masters`) and the process's own controllers never wait.

mod lane;
mod watches;

use std::sync::Arc;
use std::time::Duration;

pub use lane::Seat;
pub use watches::WatchSeat;

use crate::identity::Identity;
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
    /// Open watches of all users: each costs a task and a bounded backlog.
    pub watches: usize,
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
}

impl InFlight {
    pub fn new(limits: Limits) -> InFlight {
        InFlight {
            reads: Lane::new(limits.reads, &limits),
            writes: Lane::new(limits.writes, &limits),
            watches: Watches::new(limits.watches_per_user, limits.watches),
        }
    }

    /// A seat, at once or after waiting; it is given back when dropped. `None` inside means exempt: nothing to give.
    pub async fn seat(&self, identity: &Identity, work: Work) -> Result<Option<Seat>, TooMany> {
        if identity.is_master() {
            return Ok(None);
        }
        let lane = if work == Work::Read { &self.reads } else { &self.writes };
        lane.seat(&identity.user).await.map(Some)
    }

    /// Watches hold no seat, but their number is bounded: one user's for everyone but the owner, and all together.
    pub fn watch(&self, identity: &Identity) -> Result<WatchSeat, TooMany> {
        self.watches.seat(&identity.user, identity.is_master())
    }
}
