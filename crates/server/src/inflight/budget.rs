//! A number of bytes, shared: all of them bounded, and one user's part of them.
//!
//! A few users who hold what they have for as long as they can must not keep everybody else out. So nobody has more than is
//! left: the fuller it gets the less a user can add, and there is always something for one who has nothing yet.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::TooMany;

/// How long somebody waits for bytes to become free. Answers that are read are gone in much less.
pub const WAIT_MAX: Duration = Duration::from_secs(10);
/// Who waits keeps an answer in memory meanwhile, so that few of one user may wait, and not very many in all.
pub const WAITING_PER_USER_MAX: usize = 32;
pub const WAITING_MAX: usize = 512;

pub(super) struct Budget {
    all: usize,
    part: usize,
    wait: Duration,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Default)]
struct State {
    taken: usize,
    waiting: usize,
    users: HashMap<Arc<str>, User>,
}

#[derive(Default)]
struct User {
    taken: usize,
    waiting: usize,
}

/// Bytes in use; dropping it frees them.
pub struct Charge {
    budget: Arc<Budget>,
    user: Arc<str>,
    bytes: usize,
}

impl Budget {
    pub fn new(all: usize, part: usize, wait: Duration) -> Arc<Budget> {
        Arc::new(Budget { all, part, wait, state: Mutex::default(), freed: Notify::new() })
    }

    pub fn take_now(self: &Arc<Budget>, user: &str, bytes: usize) -> Result<Charge, TooMany> {
        self.charge(&mut self.state.lock(), user, bytes).ok_or(TooMany)
    }

    pub async fn take(self: &Arc<Budget>, user: &str, bytes: usize) -> Result<Charge, TooMany> {
        let place = {
            let mut state = self.state.lock();
            if let Some(charge) = self.charge(&mut state, user, bytes) {
                return Ok(charge);
            }
            self.queue(&mut state, user)?
        };
        let until = tokio::time::Instant::now() + self.wait;
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            // From here on no release is missed.
            freed.as_mut().enable();
            if let Ok(charge) = self.take_now(&place.user, bytes) {
                return Ok(charge);
            }
            tokio::time::timeout_at(until, freed).await.map_err(|_| TooMany)?;
        }
    }

    fn charge(self: &Arc<Budget>, state: &mut State, user: &str, bytes: usize) -> Option<Charge> {
        // What is larger than a whole part takes a whole part: it can be had, alone.
        let bytes = bytes.min(self.part);
        let left = self.all.checked_sub(state.taken + bytes)?;
        let known = state.users.get_key_value(user);
        let has = known.map_or(0, |(_, known)| known.taken) + bytes;
        // Where all of it is one part, as the owner's is, it is first come, first served.
        let is_shared = self.part < self.all;
        if has > self.part || (is_shared && has > left) {
            return None;
        }
        let user: Arc<str> = known.map_or_else(|| user.into(), |(user, _)| Arc::clone(user));
        state.taken += bytes;
        state.users.entry(Arc::clone(&user)).or_default().taken += bytes;
        Some(Charge { budget: Arc::clone(self), user, bytes })
    }

    fn queue(self: &Arc<Budget>, state: &mut State, user: &str) -> Result<Place, TooMany> {
        let known = state.users.get_key_value(user);
        let waiting = known.map_or(0, |(_, known)| known.waiting);
        if state.waiting >= WAITING_MAX || waiting >= WAITING_PER_USER_MAX {
            return Err(TooMany);
        }
        let user: Arc<str> = known.map_or_else(|| user.into(), |(user, _)| Arc::clone(user));
        state.waiting += 1;
        state.users.entry(Arc::clone(&user)).or_default().waiting += 1;
        Ok(Place { budget: Arc::clone(self), user })
    }
}

impl State {
    fn change(&mut self, user: &Arc<str>, change: impl FnOnce(&mut User)) {
        let Some(known) = self.users.get_mut(user) else { return };
        change(known);
        if known.taken == 0 && known.waiting == 0 {
            self.users.remove(user);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut state = self.budget.state.lock();
        state.taken -= self.bytes;
        state.change(&self.user, |user| user.taken -= self.bytes);
        if state.waiting > 0 {
            self.budget.freed.notify_waiters();
        }
    }
}

/// One that waits.
struct Place {
    budget: Arc<Budget>,
    user: Arc<str>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.budget.state.lock();
        state.waiting -= 1;
        state.change(&self.user, |user| user.waiting -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn one_user_has_its_part_and_nobody_more_than_he_leaves() {
        let budget = Budget::new(100, 40, WAIT_MAX);
        let first = budget.take("a", 30).await.expect("room");
        assert!(budget.take_now("a", 11).is_err(), "more than its part");
        assert!(budget.take_now("b", 1_000_000).is_err(), "a whole part would leave too little");
        let second = budget.take_now("b", 35).expect("as much as is left then");
        let third = budget.take_now("c", 17).expect("room");
        assert!(budget.take_now("c", 1).is_err(), "more than it leaves");
        // Who waits gets what others free, in whatever order they come.
        let mut waiting = std::pin::pin!(budget.take("d", 20));
        assert!((&mut waiting).now_or_never().is_none());
        drop(first);
        let fourth = waiting.await.expect("freed");
        drop((second, third, fourth));
        let whole = budget.take_now("e", 1_000_000).expect("larger than a part takes a part");
        drop(whole);
        let state = budget.state.lock();
        assert_eq!((state.taken, state.waiting, state.users.len()), (0, 0, 0));
    }

    #[test]
    fn however_many_hold_what_they_can_something_is_left_for_the_next() {
        let budget = Budget::new(384 << 20, 64 << 20, WAIT_MAX);
        let mut held = Vec::new();
        for greedy in 0..12 {
            let user = greedy.to_string();
            let mut piece = 64 << 20;
            while piece >= 1024 {
                match budget.take_now(&user, piece) {
                    Ok(charge) => held.push(charge),
                    Err(TooMany) => piece /= 2,
                }
            }
        }
        let modest = budget.take_now("modest", 16 * 1024);
        assert!(modest.is_ok(), "{} bytes are left", budget.all - budget.state.lock().taken);
    }

    #[tokio::test]
    async fn waiting_is_bounded_in_number_and_time() {
        let budget = Budget::new(100, 40, Duration::from_millis(5));
        let held = budget.take_now("a", 40).expect("room");
        let mut queue: Vec<_> = (0..WAITING_PER_USER_MAX).map(|_| Box::pin(budget.take("a", 1))).collect();
        assert!(queue.iter_mut().all(|waits| waits.now_or_never().is_none()));
        assert!(budget.take("a", 1).now_or_never().is_some_and(|outcome| outcome.is_err()), "enough of them wait");
        assert!(budget.take("b", 1).await.is_ok(), "another user does not notice");
        for waits in queue {
            assert!(waits.await.is_err(), "nothing was freed in time");
        }
        drop(held);
        assert_eq!(budget.state.lock().users.len(), 0);
    }
}
