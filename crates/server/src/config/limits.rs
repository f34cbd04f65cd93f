//! How much is done at once.

use std::time::Duration;

use serde::Deserialize;

use super::{ConfigError, number};
use crate::{inflight, listen};

const MEBIBYTE: usize = 1024 * 1024;

/// The limits worth changing; the others are constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    pub connections: usize,
    pub reads_in_flight: usize,
    pub writes_in_flight: usize,
    pub queue_per_user: usize,
    pub watches_per_user: usize,
    pub answer_mebibytes: usize,
    pub body_mebibytes: usize,
    pub drain_seconds: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        let (listen, in_flight) = (listen::Limits::default(), inflight::Limits::default());
        Limits {
            connections: listen.connections,
            reads_in_flight: in_flight.reads,
            writes_in_flight: in_flight.writes,
            queue_per_user: in_flight.queue_per_user,
            watches_per_user: in_flight.watches_per_user,
            answer_mebibytes: in_flight.answer_bytes / MEBIBYTE,
            body_mebibytes: in_flight.body_bytes / MEBIBYTE,
            drain_seconds: listen.drain.as_secs(),
        }
    }
}

impl Limits {
    /// Beyond these a number is a mistake: timers, counters and the kernel have ends of their own. The least of the bytes
    /// leaves room for one body of the largest size in every user's part.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        for (field, value, least, most) in [
            ("limits.connections", wide(self.connections), 1, 1 << 20),
            ("limits.readsInFlight", wide(self.reads_in_flight), 1, 1 << 16),
            ("limits.writesInFlight", wide(self.writes_in_flight), 1, 1 << 16),
            ("limits.queuePerUser", wide(self.queue_per_user), 0, 1 << 16),
            ("limits.watchesPerUser", wide(self.watches_per_user), 1, 1 << 20),
            ("limits.answerMebibytes", wide(self.answer_mebibytes), 32, 1 << 20),
            ("limits.bodyMebibytes", wide(self.body_mebibytes), 32, 1 << 20),
            ("limits.drainSeconds", self.drain_seconds, 0, 3600),
        ] {
            number(field, value, least, most)?;
        }
        Ok(())
    }

    pub fn listen(&self) -> listen::Limits {
        listen::Limits {
            connections: self.connections,
            drain: Duration::from_secs(self.drain_seconds),
            ..listen::Limits::default()
        }
    }

    pub fn in_flight(&self) -> inflight::Limits {
        inflight::Limits {
            reads: self.reads_in_flight,
            writes: self.writes_in_flight,
            queue_per_user: self.queue_per_user,
            watches_per_user: self.watches_per_user,
            answer_bytes: self.answer_mebibytes.saturating_mul(MEBIBYTE),
            body_bytes: self.body_mebibytes.saturating_mul(MEBIBYTE),
            ..inflight::Limits::default()
        }
    }
}
