//! What a connection is doing, and since when; and the one place that says when that is too long.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{ANSWER_BYTES_PER_SECOND_MIN, Limits};

pub(super) struct Pulse {
    state: Mutex<State>,
}

struct State {
    /// Since when no request is under way.
    idle_since: Instant,
    /// Whether there ever was one.
    asked: bool,
    requests: usize,
    answers: HashMap<u64, Taking>,
    next_id: u64,
}

/// How a client takes one answer.
struct Taking {
    begun: Instant,
    bytes: u64,
    /// Since when something is ready for the client; none while the client waits for us.
    ready_since: Option<Instant>,
    /// A watch lasts as long as it likes, if only it is read.
    watch: bool,
}

/// What a look at a connection finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing to object to; look again then.
    Fine(Instant),
    /// No request since the handshake.
    Silent,
    /// No request for too long.
    Idle,
    /// An answer is not taken, or too slowly.
    NotReading,
}

/// A request from its headers until the last byte of its answer has left the process.
pub(super) struct Underway {
    pulse: Arc<Pulse>,
    id: u64,
}

impl Pulse {
    pub fn new() -> Arc<Pulse> {
        Arc::new(Pulse {
            state: Mutex::new(State {
                idle_since: Instant::now(),
                asked: false,
                requests: 0,
                answers: HashMap::new(),
                next_id: 0,
            }),
        })
    }

    pub fn begin(self: &Arc<Pulse>) -> Underway {
        let mut state = self.state.lock();
        state.asked = true;
        state.requests += 1;
        let id = state.next_id;
        state.next_id += 1;
        Underway { pulse: Arc::clone(self), id }
    }

    /// Whether nothing is under way: whether anything ever was, and since when. Those who never asked come first.
    pub fn idle(&self) -> Option<(bool, Instant)> {
        let state = self.state.lock();
        (state.requests == 0).then_some((state.asked, state.idle_since))
    }

    pub fn look(&self, limits: &Limits, now: Instant) -> Look {
        let state = self.state.lock();
        if state.requests == 0 {
            let (limit, found) =
                if state.asked { (limits.idle, Look::Idle) } else { (limits.first_request, Look::Silent) };
            let until = state.idle_since + limit;
            return if until <= now { found } else { Look::Fine(until.min(now + limits.shortest())) };
        }
        if state.answers.values().any(|taking| taking.is_overdue(limits.stalled, now)) {
            return Look::NotReading;
        }
        Look::Fine(now + limits.shortest())
    }
}

impl Limits {
    /// What began since the last look is seen before it is overdue by more than this.
    fn shortest(&self) -> Duration {
        self.first_request.min(self.idle).min(self.stalled)
    }
}

impl Taking {
    fn is_overdue(&self, stalled: Duration, now: Instant) -> bool {
        let stands = self.ready_since.is_some_and(|since| now.duration_since(since) >= stalled);
        let crawls = !self.watch && {
            let fair = stalled * 2 + Duration::from_secs(self.bytes / ANSWER_BYTES_PER_SECOND_MIN);
            now.duration_since(self.begun) >= fair
        };
        stands || crawls
    }
}

impl Underway {
    /// The answer is there.
    pub fn answer(&self, watch: bool) {
        let now = Instant::now();
        let taking = Taking { begun: now, bytes: 0, ready_since: Some(now), watch };
        self.pulse.state.lock().answers.insert(self.id, taking);
    }

    /// The client took what was ready and waits for us.
    pub fn waits(&self) {
        if let Some(taking) = self.pulse.state.lock().answers.get_mut(&self.id) {
            taking.ready_since = None;
        }
    }

    /// The client may take `bytes` more.
    pub fn ready(&self, bytes: usize) {
        if let Some(taking) = self.pulse.state.lock().answers.get_mut(&self.id) {
            taking.ready_since = Some(Instant::now());
            taking.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
        }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        let mut state = self.pulse.state.lock();
        state.answers.remove(&self.id);
        state.requests -= 1;
        if state.requests == 0 {
            state.idle_since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_closed_in_every_state_it_could_rest_in() {
        let limits = Limits::default();
        let pulse = Pulse::new();
        // What a look finds so many seconds from now, when nothing happens until then.
        let after = |seconds: u64| match pulse.look(&limits, Instant::now() + Duration::from_secs(seconds)) {
            Look::Fine(_) => "fine",
            Look::Silent => "silent",
            Look::Idle => "idle",
            Look::NotReading => "not reading",
        };
        assert_eq!((after(8), after(10)), ("fine", "silent"), "a client connects because it has something to ask");
        let request = pulse.begin();
        assert_eq!(after(3600), "fine", "we are the slow ones");
        request.answer(false);
        assert_eq!((after(28), after(30)), ("fine", "not reading"), "nothing of the answer is taken");
        drop(request);
        assert_eq!((after(98), after(100)), ("fine", "idle"));

        let list = pulse.begin();
        list.answer(false);
        list.ready(1);
        assert_eq!((after(28), after(30)), ("fine", "not reading"));
        list.waits();
        assert_eq!((after(58), after(60)), ("fine", "not reading"), "a byte in a minute is no reading");
        list.ready(10 * 128 * 1024);
        list.waits();
        assert_eq!((after(68), after(70)), ("fine", "not reading"), "more time for those who take more");
        drop(list);

        let watch = pulse.begin();
        watch.answer(true);
        assert_eq!((after(28), after(30)), ("fine", "not reading"));
        watch.waits();
        assert_eq!(after(86_400), "fine", "a watch waits for events as long as it likes");
        watch.ready(100);
        assert_eq!((after(28), after(30)), ("fine", "not reading"));
        let other = pulse.begin();
        drop(watch);
        assert_eq!(after(3600), "fine");
        drop(other);
        assert_eq!(after(100), "idle");
    }

    #[test]
    fn the_next_look_comes_in_time() {
        let limits = Limits::default();
        let pulse = Pulse::new();
        let now = Instant::now();
        let next = |pulse: &Pulse| match pulse.look(&limits, now) {
            Look::Fine(until) => until.duration_since(now),
            found => panic!("{found:?}"),
        };
        assert!(next(&pulse) <= limits.first_request);
        let request = pulse.begin();
        assert_eq!(next(&pulse), limits.shortest());
        drop(request);
        assert_eq!(next(&pulse), limits.shortest());
    }
}
