//! What became durable, on its way to readers.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use engine::{Decided, Effect, EventKind, Object, ObjectKey};
use families::{BalanceLine, Origin};

/// One change of one object.
#[derive(Debug)]
pub struct Event {
    pub kind: EventKind,
    pub object: Arc<Object>,
    /// What it was before: a watcher with a selector must learn that an object left its view.
    pub previous: Option<Arc<Object>>,
    /// Whose write it is, or follows from.
    pub origin: Origin,
    /// The line an unfiltered JSON watcher is sent, made once for all of them.
    line: OnceLock<Bytes>,
}

impl From<Effect> for Event {
    fn from(Effect { kind, object, previous, origin }: Effect) -> Event {
        Event { origin, ..Event::new(kind, object, previous) }
    }
}

impl Event {
    pub fn new(kind: EventKind, object: Arc<Object>, previous: Option<Arc<Object>>) -> Self {
        Self { kind, object, previous, origin: Origin::default(), line: OnceLock::new() }
    }

    pub fn revision(&self) -> u64 {
        self.object.revision
    }

    pub fn line(&self) -> Bytes {
        self.line.get_or_init(|| watch_line(self.kind.name(), &self.object.json)).clone()
    }
}

/// One line of a JSON watch.
pub fn watch_line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + 32);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}

/// Everything one group of commands changed.
#[derive(Default)]
pub struct Publication {
    pub events: Vec<Event>,
    /// The new balances of the accounts that changed, by policy.
    pub balances: Vec<(Arc<str>, BalanceLine)>,
    /// Policies whose accounts are gone.
    pub closed: Vec<Arc<str>>,
    /// Objects whose status a user wrote (true) or the ledger took back (false).
    pub status_written: Vec<(ObjectKey, bool)>,
    /// The last revision of the group; 0 when it wrote nothing.
    pub revision: u64,
    /// What was decided.
    pub decided: Decided,
    /// When some object has to be measured again although nobody writes it.
    pub due_ms: Option<i64>,
    /// Some policy's status no longer shows what the ledger knows.
    pub stale_status: bool,
}
