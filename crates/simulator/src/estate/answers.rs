//! Whether one answer was right, by the state it was given on: what was let in fits, what was refused does not and left no
//! trace.

use std::sync::Arc;

use families::Denial;
use serde_json::{Value, json};
use server::core::Refused;

use super::durable::{Added, Durable};
use super::judge::Found;
use super::naive::{Sums, WIDGETS};
use super::request::{Request, Verb};

/// What a request was answered, as far as it is compared.
#[derive(Clone, Debug)]
pub enum Said {
    Written {
        uid: u128,
        revision: u64,
    },
    Refused(Refused),
    /// The answer to a dry run.
    Would,
    Published,
}

/// One command, alone in its group.
pub struct Step<'a> {
    pub request: &'a Request,
    pub said: &'a Said,
    pub before: &'a Durable,
    pub found_before: &'a Found,
    pub found: &'a Found,
    pub added: &'a Added,
}

/// Resources that quotas count and that no family writes itself: one object is charged, and nothing else follows.
const CONSUMERS: [&str; 5] = ["pods", "configmaps", "services", "persistentvolumeclaims", WIDGETS];
/// What an object takes that is more than is counted of one.
const TOO_MUCH: i128 = 1 << 96;

impl Step<'_> {
    pub fn judge(&self) -> Result<(), String> {
        let Step { request, added, said, before, .. } = self;
        let told = request.told();
        let time_moved = added.told_ms != before.told_ms;
        let stays = request.dry_run || matches!(said, Said::Refused(_));
        if stays && !time_moved && !(added.batch.is_empty() && added.events.is_empty()) {
            let rows: Vec<String> = added.batch.rows().map(|row| format!("{}:{:?}", row.table.0, row.key)).collect();
            return Err(format!("B6: {told}: {said:?}, and {rows:?} were written, {:?} told", added.events));
        }
        if request.dry_run || !CONSUMERS.contains(&&*request.key.resource.to_string()) {
            return Ok(());
        }
        let (value, status) = match &request.verb {
            Verb::Create(value) => (value, false),
            Verb::Update { value, status, .. } => (value, *status),
            Verb::Delete { .. } => return Ok(()),
        };
        let leaves = value["metadata"]["deletionTimestamp"].is_string();
        match said {
            Said::Written { uid, .. } if !status && !time_moved => self.judge_written(*uid, leaves),
            Said::Refused(Refused::Denied(denials)) if !self.is_denial_right(value, denials) => {
                Err(format!("A4: {told}: {said:?}, although it fits"))
            }
            _ => Ok(()),
        }
    }

    /// What was let in fits, and no policy looks there that cannot be evaluated.
    fn judge_written(&self, uid: u128, leaves: bool) -> Result<(), String> {
        let Step { request, found_before, found, .. } = self;
        if let Some(policy) = self.broken().filter(|_| !leaves) {
            return Err(format!("A3: {}: let in, although {policy} cannot be evaluated", request.told()));
        }
        let of = |found: &Found| found.charged.get(&ledger::SubjectId(uid)).cloned().unwrap_or_default();
        let (had, has): (Sums, Sums) = (of(found_before), of(found));
        for (key, amount) in has {
            let grew = amount > had.get(&key).copied().unwrap_or_default();
            let limit = found.limits.get(&(key.0.clone(), key.1.clone())).copied().flatten();
            let used = found.used.get(&key).copied().unwrap_or_default();
            if grew && key.2.is_empty() && limit.is_some_and(|limit| used > limit) {
                return Err(format!("A3: {}: let in, and {key:?} is over its limit: {used}", request.told()));
            }
        }
        Ok(())
    }

    /// A policy that cannot be evaluated and would look at the object.
    fn broken(&self) -> Option<String> {
        let (resource, namespace) = (self.request.key.resource.to_string(), &*self.request.key.namespace);
        let mut broken = self.before.stored().expected().broken.into_iter();
        let found = broken.find(|one| one.resources.contains(&&*resource) && one.reach.contains(namespace));
        found.map(|one| one.policy)
    }

    /// Whether some policy has a reason to refuse an object like this.
    fn is_denial_right(&self, value: &Value, denials: &[Denial]) -> bool {
        let Step { request, before, found_before, added, .. } = self;
        let mut value = value.clone();
        let stored = before.objects.get(&request.key);
        let uid = stored.map_or(u128::MAX, |kept| kept.uid.0);
        value["metadata"]["uid"] = json!(uuid::Uuid::from_u128(uid).to_string());
        let mut after = before.stored();
        after.now_ms = added.told_ms;
        let shelf = after.objects.entry(request.key.resource.to_string()).or_default();
        shelf.retain(|one| super::naive::uid(one) != uid);
        // Whoever does not say what it needs is refused by quotas on that.
        let broken = before.stored().expected().broken;
        let is_broken = |denial: &Denial| broken.iter().any(|broken| *broken.policy == *denial.policy);
        let says_nothing = value["spec"]["containers"][0]["resources"] == json!({});
        shelf.push(Arc::new(value));
        let expected = after.expected();
        let wanted = expected.charged.get(&uid).cloned().unwrap_or_default();
        let had = found_before.charged.get(&ledger::SubjectId(uid)).cloned().unwrap_or_default();
        let lacks = wanted.iter().any(|(key, amount)| {
            let more = amount - had.get(key).copied().unwrap_or_default();
            let limit = expected.limits.get(&(key.0.clone(), key.1.clone())).copied().flatten();
            let used = found_before.used.get(key).copied().unwrap_or_default();
            let is_over = key.2.is_empty() && limit.is_some_and(|limit| used + more > limit);
            more > 0 && (is_over || key.1 == "unevaluated" || *amount == TOO_MUCH)
        });
        // By another time than the last one, others may have been there.
        lacks || says_nothing || denials.iter().any(is_broken) || added.told_ms != before.told_ms
    }
}
