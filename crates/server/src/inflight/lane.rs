//! Seats of one kind with a queue for each user, served in turn.
//!
//! A seat is held for as long as a request takes, and how long that is may be the client's doing: a body that does not come, a
//! version that is not there yet. So nobody gets all of them: of the last quarter a user has no more than it leaves for others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{Limits, TooMany};

/// One seat in so many is kept for those who have few.
const RESERVED_PART: usize = 4;

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
    /// How many seats each user has.
    held: HashMap<Arc<str>, usize>,
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
    user: Arc<str>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(lane) = self.lane.take() {
            lane.pass_on(&self.user);
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
            let user: Arc<str> =
                state.held.get_key_value(user).map_or_else(|| user.into(), |(user, _)| Arc::clone(user));
            if state.may_sit(&user, self.seats) {
                return Ok(self.take(&mut state, user));
            }
            if state.waiting >= self.queue {
                return Err(TooMany);
            }
            let id = state.next_id;
            state.next_id += 1;
            let (tell, told) = oneshot::channel();
            match state.queues.get_mut(&user) {
                Some(queue) if queue.len() >= self.queue_per_user => return Err(TooMany),
                Some(queue) => queue.push_back(Waiter { id, tell }),
                None => {
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

    fn take(self: &Arc<Lane>, state: &mut State, user: Arc<str>) -> Seat {
        state.taken += 1;
        *state.held.entry(Arc::clone(&user)).or_default() += 1;
        Seat { lane: Some(Arc::clone(self)), user }
    }

    /// Frees a seat of `user`, and gives what is free to the users in turn, as far as they may have more.
    fn pass_on(self: Arc<Lane>, user: &Arc<str>) {
        let mut state = self.state.lock();
        state.release(user);
        while let Some((user, waiter)) = state.next(self.seats) {
            let seat = self.take(&mut state, user);
            // One who has just left: the seat must not pass itself on from inside the lock, the loop does.
            if let Err(mut seat) = waiter.tell.send(seat) {
                drop(seat.lane.take());
                state.release(&seat.user);
            }
        }
    }
}

impl State {
    /// Whether a user may have one more seat now.
    fn may_sit(&self, user: &str, seats: usize) -> bool {
        let free = seats - self.taken;
        free > seats / RESERVED_PART || self.held.get(user).copied().unwrap_or(0) < free
    }

    fn release(&mut self, user: &Arc<str>) {
        self.taken -= 1;
        let Some(held) = self.held.get_mut(user) else { return };
        *held -= 1;
        if *held == 0 {
            self.held.remove(user);
        }
    }

    /// The oldest request of the first user in turn who may have a seat; the user goes to the end of the round.
    fn next(&mut self, seats: usize) -> Option<(Arc<str>, Waiter)> {
        let at = self.turns.iter().position(|user| self.may_sit(user, seats))?;
        let user = self.turns.remove(at)?;
        let queue = self.queues.get_mut(&user)?;
        let waiter = queue.pop_front()?;
        self.waiting -= 1;
        if queue.is_empty() {
            self.queues.remove(&user);
        } else {
            self.turns.push_back(Arc::clone(&user));
        }
        Some((user, waiter))
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
