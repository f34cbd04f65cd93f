//! What each organization may have told of it in an hour: all of them share one disk.
//!
//! What gives nothing back is refused while the hour's bytes are used up. What operators and the scheduler do for an organization
//! counts, too, and is never refused; neither is a deletion, for which there had to be something first.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Instant;

use families::orgs::limits::EventBytes;
use families::orgs::names::{ORGS, TIERS};
use kinds::fields::text;
use parking_lot::Mutex;

use super::Call;
use super::problem::Failure;
use super::table::Who;
use crate::api::Parts;
use crate::core::ObjectKey;

const HOUR_MS: i64 = 60 * 60 * 1000;
/// How long what a tier says is believed.
const KNOWN_MS: i64 = 10 * 1000;
/// What one author may have told who speaks for a part of the platform, such as the agent of a node.
const REPORTS: EventBytes = EventBytes(Some(256 << 20));
/// Those that are kept in mind before the ones are forgotten that have all of their hour left.
const KEPT_MAX: usize = 4096;

#[derive(Default)]
pub struct Budget(Mutex<HashMap<Owner, Hour>>);

/// Whose bytes are counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Org(String),
    /// Who reports on what is on nodes: no organization pays for a node that lies.
    Author(String),
}

impl Owner {
    fn of(call: &Call) -> Option<Owner> {
        let reports = call.found.endpoint.subresource == "status" && !call.identity.is_internal();
        match () {
            () if reports => Some(Owner::Author(call.identity.user.clone())),
            () if !call.org().is_empty() => Some(Owner::Org(call.org().to_owned())),
            () => None,
        }
    }

    fn most(&self, parts: &Parts) -> EventBytes {
        let Owner::Org(org) = self else { return REPORTS };
        let stored = |key: ObjectKey| parts.cache.get(&key).map(|stored| stored.value());
        let org = stored(ObjectKey::new(ORGS.resource(), org, org)).unwrap_or_default();
        let tier = stored(ObjectKey::new(TIERS.resource(), "", text(&org, &["spec", "tier"])));
        tier.and_then(|tier| EventBytes::read(&tier["spec"]).ok()).unwrap_or_default()
    }
}

/// What of an hour's bytes is used. It passes with time, by a clock that nobody sets.
struct Hour {
    used: i64,
    at_ms: i64,
    most: EventBytes,
    read_ms: i64,
}

impl Hour {
    fn pass(&mut self, now_ms: i64) {
        let (passed_ms, most) = (now_ms.saturating_sub(self.at_ms).max(0), self.most.0.unwrap_or(i64::MAX));
        let back = i128::from(passed_ms) * i128::from(most) / i128::from(HOUR_MS);
        if back > 0 {
            self.used = i64::try_from(i128::from(self.used) - back).unwrap_or(0).max(0);
            self.at_ms = now_ms;
        }
    }

    /// In how many seconds there is room for more.
    fn wait_seconds(&self) -> i64 {
        let Some(most) = self.most.0.filter(|most| self.used >= *most) else { return 0 };
        let beyond = i128::from(self.used) - i128::from(most) + 1;
        let wait_ms = beyond * i128::from(HOUR_MS) / i128::from(most.max(1));
        i64::try_from(wait_ms / 1000 + 1).unwrap_or(i64::MAX)
    }
}

impl Budget {
    /// Works with the hour of an owner as it is now.
    fn with<T>(
        &self,
        owner: &Owner,
        now_ms: i64,
        most: impl FnOnce() -> EventBytes,
        work: impl FnOnce(&mut Hour) -> T,
    ) -> T {
        let mut all = self.0.lock();
        if all.len() >= KEPT_MAX && !all.contains_key(owner) {
            all.values_mut().for_each(|hour| hour.pass(now_ms));
            all.retain(|_, hour| hour.used > 0);
        }
        let hour = all.entry(owner.clone()).or_insert(Hour {
            used: 0,
            at_ms: now_ms,
            most: EventBytes::default(),
            read_ms: i64::MIN,
        });
        hour.pass(now_ms);
        if now_ms.saturating_sub(hour.read_ms) >= KNOWN_MS {
            (hour.most, hour.read_ms) = (most(), now_ms);
        }
        work(hour)
    }

    fn wait_seconds(&self, owner: &Owner, now_ms: i64, most: impl FnOnce() -> EventBytes) -> i64 {
        self.with(owner, now_ms, most, |hour| hour.wait_seconds())
    }

    fn use_up(&self, owner: &Owner, bytes: usize, now_ms: i64, most: impl FnOnce() -> EventBytes) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.with(owner, now_ms, most, |hour| {
            // An hour more than there is, at the most, is owed.
            let owed = hour.most.0.map_or(0, |most| most.saturating_mul(2));
            hour.used = hour.used.saturating_add(bytes).min(owed);
        });
    }
}

/// Milliseconds since the server was first asked for them.
pub fn uptime_ms() -> i64 {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    i64::try_from(BEGUN.elapsed().as_millis()).unwrap_or(i64::MAX)
}

/// Whether a command may have something told.
pub fn check(parts: &Parts, call: &Call) -> Result<(), Failure> {
    let endpoint = call.found.endpoint;
    let Some(owner) = Owner::of(call) else { return Ok(()) };
    let is_asked = match owner {
        Owner::Org(_) => endpoint.who == Who::Org && endpoint.method != "DELETE" && !call.identity.is_internal(),
        Owner::Author(_) => true,
    };
    if !is_asked || call.is_dry_run() {
        return Ok(());
    }
    match call.api.budget().wait_seconds(&owner, uptime_ms(), || owner.most(parts)) {
        0 => Ok(()),
        seconds => {
            let most = owner.most(parts).0.unwrap_or_default();
            let whose = if matches!(owner, Owner::Org(_)) { "of the organization" } else { "that you report" };
            let why = format!(
                "events {whose} may take {most} bytes an hour, and have: try again in {seconds} s; deletions are accepted"
            );
            Err(Failure::limited("rate_limited", why).after_seconds(seconds))
        }
    }
}

/// What a command had told.
pub fn told(parts: &Parts, call: &Call, bytes: usize) {
    if let Some(owner) = Owner::of(call).filter(|_| bytes > 0 && !call.is_dry_run()) {
        call.api.budget().use_up(&owner, bytes, uptime_ms(), || owner.most(parts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn org(name: &str) -> Owner {
        Owner::Org(name.into())
    }

    #[test]
    fn an_hour_of_bytes_passes_in_an_hour_and_nobody_pays_for_others() {
        let budget = Budget::default();
        let most = || EventBytes(Some(3600));
        let wait = |owner: &str, second: i64| budget.wait_seconds(&org(owner), second * 1000, most);
        budget.use_up(&org("loud"), 3599, 0, most);
        assert_eq!(wait("loud", 0), 0);
        budget.use_up(&org("loud"), 100, 0, most);
        assert_eq!([wait("loud", 0), wait("loud", 99), wait("loud", 100)], [101, 2, 0]);
        assert_eq!(wait("quiet", 0), 0);
        // Whatever the platform does for it, nobody waits for longer than an hour and a moment.
        budget.use_up(&org("loud"), usize::MAX, 100_000, most);
        assert_eq!([wait("loud", 100), wait("loud", 3699), wait("loud", 3701)], [3602, 3, 0]);
        // A clock that goes back gives and takes nothing.
        assert_eq!(wait("loud", 0), 0);
    }

    #[test]
    fn what_a_tier_says_counts_a_moment_later() {
        let budget = Budget::default();
        let wait =
            |second: i64, most: Option<i64>| budget.wait_seconds(&org("acme"), second * 1000, || EventBytes(most));
        budget.use_up(&org("acme"), 5000, 0, || EventBytes(Some(3600)));
        assert!(wait(1, None) > 1000, "it was read a moment ago");
        assert_eq!([wait(10, None), wait(20, Some(1 << 30))], [0, 0]);
        budget.use_up(&org("acme"), 5000, 30_000, || EventBytes(Some(1)));
        assert!(wait(31, Some(1)) > 1000);
    }

    #[test]
    fn those_with_nothing_used_are_forgotten() {
        let budget = Budget::default();
        for number in 0..3 * KEPT_MAX {
            budget.use_up(&org(&number.to_string()), 1, i64::try_from(number).unwrap() * 1000, EventBytes::default);
        }
        assert!(budget.0.lock().len() <= KEPT_MAX);
    }
}
