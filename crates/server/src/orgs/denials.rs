//! The audit trail: commands that were refused, for quota in the step and for want of a right at the door.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use families::Allowances;
use families::orgs::commands::Actor;
use http::HeaderMap;
use http::header::USER_AGENT;
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::Journal;
use tokio::sync::Notify;
use uuid::Uuid;

use super::carry::{origin, write_entries};
use super::table::{Found, name_of};
use crate::api::Parts;

/// What a client says of itself is written down as far as it is a name.
const USER_AGENT_CHARS_MAX: usize = 128;
/// Between two commits of what was refused at the door.
const GATHER: Duration = Duration::from_millis(500);
/// In each so many are told one by one, and so many of one author: whoever is refused again and again fills neither the disk nor the
/// trail, and hides nobody else.
const TOLD_MAX: usize = 32;
const TOLD_OF_ONE_MAX: usize = 4;

/// Of each organization so many refusals in the step are told one by one, and in the long run so many each second: all share one trail,
/// which keeps a month or a gibibyte, and what one of them fills is not there for the others.
const OF_ORG_MAX: u64 = 10_000;
const OF_ORG_PER_SECOND: u64 = 4;
/// Who still may tell how many refusals.
pub struct Trail(Allowances);

impl Default for Trail {
    fn default() -> Trail {
        Trail(Allowances::new(OF_ORG_MAX, OF_ORG_PER_SECOND))
    }
}

impl Trail {
    /// Whether another refusal of an organization is told, and with it how many were not since the last one.
    pub fn take(&self, org: &str, now_ms: i64) -> Option<u64> {
        self.0.take(org, 1, now_ms)
    }
}

/// A command, as the trail tells it.
pub struct Tried<'a> {
    pub found: &'a Found,
    pub org: &'a str,
    pub actor: Actor,
    pub headers: &'a HeaderMap,
    pub source: Option<SocketAddr>,
    pub number: Uuid,
}

impl Tried<'_> {
    pub fn entry(&self, now_ms: i64, class: &str, reason: &str, details: &Value) -> Value {
        let client = self.headers.get(USER_AGENT).and_then(|client| client.to_str().ok()).unwrap_or_default();
        let client: String = client.chars().take(USER_AGENT_CHARS_MAX).collect();
        json!({
            "timestamp": kinds::time::text(now_ms),
            "request_id": self.number.hyphenated().to_string(),
            "actor_type": self.actor.kind, "actor_id": self.actor.id, "org_id": self.org, "user_agent": client,
            "source_ip": self.source.map(|source| source.ip().to_string()),
            "action": format!("{} {}", self.found.endpoint.method, self.found.endpoint.path),
            "resource_type": self.found.endpoint.resource, "resource_id": name_of(self.found),
            "resource_path": self.found.path,
            "decision": "deny", "result": "refused", "error_class": class, "reason": reason, "details": details,
        })
    }
}

/// Commands that were refused at the door and are not in the trail yet.
#[derive(Default)]
pub struct Denials {
    waiting: Mutex<Waiting>,
    came: Notify,
}

#[derive(Default)]
struct Waiting {
    entries: Vec<Value>,
    /// Those that are only counted.
    more: u64,
}

impl Denials {
    pub fn tell(&self, author: &str, entry: impl FnOnce() -> Value) {
        let mut waiting = self.waiting.lock();
        let own = waiting.entries.iter().filter(|one| one["actor_id"] == author).count();
        if waiting.entries.len() < TOLD_MAX && own < TOLD_OF_ONE_MAX {
            waiting.entries.push(entry());
        } else {
            waiting.more += 1;
        }
        self.came.notify_one();
    }

    /// What goes into one commit; the last entry says how many more there were.
    fn take(&self) -> Vec<Value> {
        let Waiting { mut entries, more } = std::mem::take(&mut *self.waiting.lock());
        if let Some(last) = entries.last_mut().filter(|_| more > 0) {
            last["details"] = json!({"refused_besides": more});
        }
        entries
    }

    /// Writes them down for as long as the server runs.
    pub async fn run(self: Arc<Denials>, parts: Arc<Parts>) {
        loop {
            self.came.notified().await;
            tokio::time::sleep(GATHER).await;
            let entries: Vec<(Journal, Vec<u8>)> =
                self.take().iter().map(|entry| (Journal::AUDIT, entry.to_string().into_bytes())).collect();
            if !entries.is_empty() && !write_entries(&parts, entries, origin(Uuid::nil())).await {
                tracing::warn!("refusals are not in the audit trail: the store does not take them");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_refused_again_and_again_fills_no_trail_and_hides_nobody() {
        let denials = Denials::default();
        for author in ["loud", "quiet"] {
            for _ in 0..if author == "loud" { 100_000 } else { 1 } {
                denials.tell(author, || json!({"actor_id": author}));
            }
        }
        let told = denials.take();
        assert_eq!(told.len(), TOLD_OF_ONE_MAX + 1);
        assert_eq!(told[TOLD_OF_ONE_MAX]["actor_id"], "quiet");
        assert_eq!(told[TOLD_OF_ONE_MAX]["details"]["refused_besides"], 100_000 - TOLD_OF_ONE_MAX);
        for number in 0..100 {
            denials.tell(&number.to_string(), || json!({"actor_id": number.to_string()}));
        }
        assert_eq!(denials.take().len(), TOLD_MAX);
        assert!(denials.take().is_empty());
    }
}
