//! How many watches are open, per user and in all.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::TooMany;

pub(super) struct Watches {
    per_user: usize,
    all: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: usize,
    users: HashMap<Arc<str>, usize>,
}

/// Held as long as the watch is open.
pub struct WatchSeat {
    watches: Arc<Watches>,
    user: Arc<str>,
}

impl Watches {
    pub fn new(per_user: usize, all: usize) -> Arc<Watches> {
        Arc::new(Watches { per_user, all, state: Mutex::default() })
    }

    pub fn seat(self: &Arc<Watches>, user: &str, exempt: bool) -> Result<WatchSeat, TooMany> {
        let mut state = self.state.lock();
        if state.open >= self.all {
            return Err(TooMany);
        }
        let user: Arc<str> = match state.users.get_key_value(user) {
            Some((_, open)) if !exempt && *open >= self.per_user => return Err(TooMany),
            Some((user, _)) => Arc::clone(user),
            None if !exempt && self.per_user == 0 => return Err(TooMany),
            None => user.into(),
        };
        *state.users.entry(Arc::clone(&user)).or_default() += 1;
        state.open += 1;
        Ok(WatchSeat { watches: Arc::clone(self), user })
    }
}

impl Drop for WatchSeat {
    fn drop(&mut self) {
        let mut state = self.watches.state.lock();
        state.open -= 1;
        let Some(open) = state.users.get_mut(&self.user) else { return };
        *open -= 1;
        if *open == 0 {
            state.users.remove(&self.user);
        }
    }
}
