//! Turns at work that keeps a processor for long: reading, changing and writing megabytes.
//!
//! A few at a time, so that there is always a thread for those who ask for little; and users in turn, so that whoever asks for
//! much waits behind himself. Everybody waits here, the owner and the controllers too: processors are not made by rank.

use std::sync::Arc;
use std::time::Duration;

use super::lane::{Lane, Seat};
use super::{Limits, TooMany};
use crate::identity::Identity;

/// Longest wait for a turn, as long as a request may take.
pub const TURN_TIME_MAX: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub struct Turns {
    lane: Arc<Lane>,
}

impl Turns {
    /// `seats` of them at once, but for one user one in four less.
    pub fn new(seats: usize) -> Turns {
        // Who waits here has a seat of a request, or a watch, and those are counted.
        let Limits { reads, writes, watches_per_user, watches, .. } = Limits::default();
        let (queue_per_user, queue) = (reads + writes + watches_per_user, reads + writes + watches);
        Turns { lane: Lane::new(seats, &Limits { queue_per_user, queue, wait: TURN_TIME_MAX, ..Limits::default() }) }
    }

    /// One turn, until it is dropped.
    pub async fn take(&self, identity: &Identity) -> Result<Seat, TooMany> {
        self.lane.seat(&identity.flow()).await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn who_wants_much_waits_behind_himself() {
        let turns = Turns::new(4);
        let (loud, quiet) = (Identity::authenticated("loud", [""; 0]), Identity::authenticated("quiet", [""; 0]));
        let mut held = Vec::new();
        let mut waiting: Vec<_> = (0..700).map(|_| Box::pin(turns.take(&loud))).collect();
        for one in &mut waiting {
            held.extend(one.now_or_never().and_then(Result::ok));
        }
        assert_eq!(held.len(), 3, "one is kept for others");
        let turn = turns.take(&quiet).now_or_never().expect("at once").expect("a turn");
        // With all taken, the next that is free is not one more for whoever waits seven hundred times.
        let mut next = Box::pin(turns.take(&quiet));
        assert!((&mut next).now_or_never().is_none());
        drop(turn);
        assert!(next.now_or_never().is_some_and(|turn| turn.is_ok()));
    }
}
