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
    /// Where, and for whom.
    counted: Option<(Arc<Watches>, Arc<str>)>,
}

impl Watches {
    pub fn new(per_user: usize, all: usize) -> Arc<Watches> {
        Arc::new(Watches { per_user, all, state: Mutex::default() })
    }

    /// The exempt are not counted: those who look after the server see what it does however many others watch.
    pub fn seat(self: &Arc<Watches>, user: &str, exempt: bool) -> Result<WatchSeat, TooMany> {
        if exempt {
            return Ok(WatchSeat { counted: None });
        }
        let mut state = self.state.lock();
        if state.open >= self.all {
            return Err(TooMany);
        }
        let user: Arc<str> = match state.users.get_key_value(user) {
            Some((_, open)) if *open >= self.per_user => return Err(TooMany),
            Some((user, _)) => Arc::clone(user),
            None if self.per_user == 0 => return Err(TooMany),
            None => user.into(),
        };
        *state.users.entry(Arc::clone(&user)).or_default() += 1;
        state.open += 1;
        Ok(WatchSeat { counted: Some((Arc::clone(self), user)) })
    }
}

impl Drop for WatchSeat {
    fn drop(&mut self) {
        let Some((watches, user)) = self.counted.take() else { return };
        let mut state = watches.state.lock();
        state.open -= 1;
        let Some(open) = state.users.get_mut(&user) else { return };
        *open -= 1;
        if *open == 0 {
            state.users.remove(&user);
        }
    }
}
