//! The audit trail: commands that were refused, for quota in the step and for want of a right at the door.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

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
const OF_ORG_MAX: u32 = 10_000;
const OF_ORG_PER_SECOND: u32 = 4;
/// Organizations that are kept in mind before those are forgotten that may tell all again.
const ORGS_MAX: usize = 1024;

/// Who still may tell how many refusals.
#[derive(Default)]
pub struct Trail(Mutex<HashMap<String, Allowance>>);

struct Allowance {
    left: u32,
    at_ms: i64,
    /// Refusals that were only counted since one was told.
    more: u64,
}

impl Allowance {
    fn refill(&mut self, now_ms: i64) {
        let seconds = now_ms.saturating_sub(self.at_ms) / 1000;
        let more = u32::try_from(seconds.max(0)).unwrap_or(u32::MAX).saturating_mul(OF_ORG_PER_SECOND);
        if more > 0 {
            (self.left, self.at_ms) = (self.left.saturating_add(more).min(OF_ORG_MAX), now_ms);
        }
    }
}

impl Trail {
    /// Whether another refusal of an organization is told, and with it how many were not since the last one.
    pub fn take(&self, org: &str, now_ms: i64) -> Option<u64> {
        let mut orgs = self.0.lock();
        if !orgs.contains_key(org) {
            if orgs.len() >= ORGS_MAX {
                orgs.values_mut().for_each(|one| one.refill(now_ms));
                orgs.retain(|_, one| one.left < OF_ORG_MAX || one.more > 0);
            }
            orgs.insert(org.to_owned(), Allowance { left: OF_ORG_MAX, at_ms: now_ms, more: 0 });
        }
        let own = orgs.get_mut(org)?;
        own.refill(now_ms);
        if own.left == 0 {
            own.more += 1;
            return None;
        }
        own.left -= 1;
        Some(std::mem::take(&mut own.more))
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
    fn one_organization_does_not_fill_the_trail_of_all() {
        let trail = Trail::default();
        let told = |org: &str, second: i64| trail.take(org, second * 1000);
        assert_eq!((0..100_000).filter_map(|_| told("loud", 0)).count(), OF_ORG_MAX as usize);
        assert_eq!(
            [told("quiet", 0), told("loud", 0), told("loud", 1)],
            [Some(0), None, Some(100_001 - u64::from(OF_ORG_MAX))]
        );
        let hour =
            (1..=3600).flat_map(|second| std::iter::repeat_n(second, 100)).filter_map(|second| told("loud", second));
        assert_eq!(hour.count(), 3600 * OF_ORG_PER_SECOND as usize - 1);
        // Who is quiet again is forgotten; who has more to tell is not.
        assert_eq!(told("loud", 3600), None);
        for number in 0..10_000 {
            assert_eq!(told(&format!("o{number}"), 3601 + number), Some(0));
        }
        assert!(trail.0.lock().len() <= ORGS_MAX);
        assert_eq!(told("loud", 20_000), Some(97));
    }

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
