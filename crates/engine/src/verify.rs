//! Whether a stored state is sound: every object reads, every charge has its object, every account its policy, and the ledger is
//! what a recount of the objects gives.

use std::collections::HashSet;

use ledger::{Ledger, SubjectId};
use serde_json::Value;

use crate::engine::Engine;
use crate::object::{Object, parse_uid};
use crate::retire;

/// Problems that are spelled out; a state that is wrong everywhere is told as well by its first few.
const PROBLEMS_MAX: usize = 100;

/// What was looked at, and what is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub revision: u64,
    pub objects: usize,
    pub accounts: usize,
    pub subjects: usize,
    pub problems: Vec<String>,
}

impl Engine {
    /// Looks at everything that a start took up. `stored` is the ledger as it was read, before a start closes what nobody owns.
    /// What objects are charged may depend on the time.
    pub fn verify(mut self, stored: &Ledger, now_ms: i64) -> Verified {
        let mut behind = std::mem::take(&mut self.behind);
        self.advance(now_ms);
        // A start looks at everything once more and mends it; here it is told. What is still to be made is told as such.
        behind.retain(|key| self.stored(key).is_none());
        self.behind = behind;
        self.verified(stored)
    }

    fn verified(&self, stored: &Ledger) -> Verified {
        let mut found = Verified { revision: self.revision, subjects: stored.subjects_live(), ..Verified::default() };
        let mut uids: HashSet<SubjectId> = HashSet::new();
        for object in self.shelves.all() {
            found.objects += 1;
            uids.insert(object.uid);
            if let Some(problem) = problem_of(object) {
                found.problem(format!("{}: {problem}", object.key));
            }
            if object.revision > self.revision {
                found.problem(format!(
                    "{}: revision {} is ahead of the store's {}",
                    object.key, object.revision, self.revision
                ));
            }
        }
        for (key, balance) in stored.balances() {
            found.accounts += 1;
            // What a write was being prepared for, or is let go of in parts, is nobody's; a start closes it.
            let is_nobodys = retire::is_nobodys(&key.policy);
            if !is_nobodys && self.policies.policy_of(stored, balance.account).is_none() {
                found.problem(format!("account {} {}: there is no such policy", key.policy, key.resource));
            }
            for subject in stored.subjects_of(balance.account).into_iter().chain(stored.waiting_for(balance.account)) {
                // What is held is not stored yet.
                if !uids.contains(&subject) && !stored.is_held(subject) {
                    found.problem(format!(
                        "account {} {}: charged by {}, which is no stored object",
                        key.policy,
                        key.resource,
                        kinds::uid::text(subject)
                    ));
                }
            }
        }
        let report = self.snapshot().audit();
        let untold = report.differing.saturating_sub(report.differences.len());
        report.differences.into_iter().chain(report.broken).for_each(|difference| found.problem(difference));
        if untold > 0 {
            found.problem(format!("and {untold} further differences"));
        }
        found
    }
}

impl Verified {
    /// Tells one more thing that is wrong.
    pub fn problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }
}

fn problem_of(object: &Object) -> Option<String> {
    let value: Value = match serde_json::from_slice(&object.json) {
        Ok(value) => value,
        Err(error) => return Some(format!("it is not JSON: {error}")),
    };
    let text = |field: &str| value.pointer(field).and_then(Value::as_str).unwrap_or_default();
    for (field, expected) in [("/metadata/name", &*object.key.name), ("/metadata/namespace", &*object.key.namespace)] {
        if text(field) != expected {
            return Some(format!("{field} is {:?}, stored under {expected:?}", text(field)));
        }
    }
    if parse_uid(text("/metadata/uid")) != Some(object.uid) {
        return Some("metadata.uid is not the one it is charged by".to_owned());
    }
    let revision = object.revision.to_string();
    (text("/metadata/resourceVersion") != revision)
        .then(|| format!("metadata.resourceVersion is {:?}, stored at {revision}", text("/metadata/resourceVersion")))
}
