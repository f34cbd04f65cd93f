//! Seats of one kind with a queue for each user, served in turn.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{Limits, TooMany};

pub(super) struct Lane {
    seats: usize,
    queue_per_user: usize,
    queue: usize,
    wait: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taken: usize,
    waiting: usize,
    /// Users with something waiting, in the order of their turns. Each is in here exactly once.
    turns: VecDeque<Arc<str>>,
    queues: HashMap<Arc<str>, VecDeque<Waiter>>,
    next_id: u64,
}

struct Waiter {
    id: u64,
    tell: oneshot::Sender<Seat>,
}

/// The right to run. Dropping it hands the seat on.
pub struct Seat {
    /// Taken out only where the seat is handed back by other means.
    lane: Option<Arc<Lane>>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(lane) = self.lane.take() {
            lane.pass_on();
        }
    }
}

impl Lane {
    pub fn new(seats: usize, limits: &Limits) -> Arc<Lane> {
        Arc::new(Lane {
            seats,
            queue_per_user: limits.queue_per_user,
            queue: limits.queue,
            wait: limits.wait,
            state: Mutex::default(),
        })
    }

    pub async fn seat(self: &Arc<Lane>, user: &str) -> Result<Seat, TooMany> {
        let (id, told) = {
            let mut state = self.state.lock();
            if state.taken < self.seats {
                state.taken += 1;
                return Ok(Seat { lane: Some(Arc::clone(self)) });
            }
            if state.waiting >= self.queue {
                return Err(TooMany);
            }
            let id = state.next_id;
            state.next_id += 1;
            let (tell, told) = oneshot::channel();
            match state.queues.get_mut(user) {
                Some(queue) if queue.len() >= self.queue_per_user => return Err(TooMany),
                Some(queue) => queue.push_back(Waiter { id, tell }),
                None => {
                    let user: Arc<str> = user.into();
                    state.turns.push_back(Arc::clone(&user));
                    state.queues.insert(user, VecDeque::from([Waiter { id, tell }]));
                }
            }
            state.waiting += 1;
            (id, told)
        };
        let place = Place { lane: self, user, id };
        let outcome = tokio::time::timeout(self.wait, told).await;
        // Given a seat or not, the place in the queue is over; a seat sent meanwhile goes on through its own drop.
        drop(place);
        outcome.map_err(|_| TooMany)?.map_err(|_| TooMany)
    }

    /// Gives one freed seat to the next user in turn, or takes it back when nobody waits.
    fn pass_on(self: Arc<Lane>) {
        let mut state = self.state.lock();
        while let Some(waiter) = state.next() {
            let seat = Seat { lane: Some(Arc::clone(&self)) };
            match waiter.tell.send(seat) {
                Ok(()) => return,
                // The waiter has just left. This seat must not pass itself on from inside the lock: the loop does.
                Err(mut seat) => drop(seat.lane.take()),
            }
        }
        state.taken -= 1;
    }
}

impl State {
    /// The oldest request of the user whose turn it is; the user goes to the end of the round.
    fn next(&mut self) -> Option<Waiter> {
        let user = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&user)?;
        let waiter = queue.pop_front()?;
        self.waiting -= 1;
        if queue.is_empty() {
            self.queues.remove(&user);
        } else {
            self.turns.push_back(user);
        }
        Some(waiter)
    }
}

/// A place in a queue; leaving it (time out, client gone) frees it for somebody else.
struct Place<'l> {
    lane: &'l Arc<Lane>,
    user: &'l str,
    id: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.lane.state.lock();
        let State { queues, turns, waiting, .. } = &mut *state;
        let Some(queue) = queues.get_mut(self.user) else { return };
        let Some(at) = queue.iter().position(|waiter| waiter.id == self.id) else { return };
        queue.remove(at);
        *waiting -= 1;
        if queue.is_empty() {
            queues.remove(self.user);
            turns.retain(|user| &**user != self.user);
        }
    }
}
