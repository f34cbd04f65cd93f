//! Whether one answer was right, by the state it was given on: what was let in fits, what was refused does not and left no
//! trace, and of several writes all happened or none.

use std::collections::BTreeSet;
use std::sync::Arc;

use families::Denial;
use ledger::SubjectId;
use serde_json::json;
use server::core::{EventKind, Expect, ObjectKey, Refused};
use store::{Journal, Table};

use super::durable::{Added, Durable};
use super::holds::{judge_held, uid_of};
use super::judge::Found;
use super::naive::{Sums, WIDGETS};
use super::request::{Request, Verb};

/// What a request was answered, as far as it is compared.
#[derive(Clone, Debug)]
pub enum Said {
    /// Uid and revision of each object.
    Written(Vec<(u128, u64)>),
    /// With the place of the first that was.
    Refused(usize, Refused),
    /// The answer to a dry run.
    Would,
    /// Whether anything is held, and for whom.
    Held {
        uid: u128,
        is_held: bool,
    },
    /// Whether anything was.
    Dropped {
        was_held: bool,
    },
    /// It is sent again when what it needs is counted, which may have begun.
    PutOff {
        begun: bool,
    },
    /// A slice of that.
    Counted {
        is_last: Option<bool>,
    },
    Published,
}

impl Said {
    /// Whether the client is told this.
    pub fn is_answer(&self) -> bool {
        matches!(self, Said::Written(_) | Said::Refused(..) | Said::Would | Said::Held { .. } | Said::Dropped { .. })
    }
}

/// One command, alone in its group.
pub struct Step<'a> {
    pub request: &'a Request,
    pub said: &'a Said,
    pub before: &'a Durable,
    pub found_before: &'a Found,
    pub found: &'a Found,
    pub added: &'a Added,
    /// Whether something of before it was still to follow, and does so in its step.
    pub is_late: bool,
}

/// Resources that quotas count and that no family writes itself: one object is charged, and nothing else follows.
const CONSUMERS: [&str; 5] = ["pods", "configmaps", "services", "persistentvolumeclaims", WIDGETS];
/// What an object takes that is more than is counted of one.
const TOO_MUCH: i128 = 1 << 96;

pub fn is_consumer(key: &ObjectKey) -> bool {
    CONSUMERS.contains(&&*key.resource.to_string())
}

impl Step<'_> {
    pub fn judge(&self) -> Result<(), String> {
        let Step { request, said, .. } = self;
        self.judge_traces()?;
        self.judge_entries()?;
        self.judge_decided()?;
        if let Said::Held { uid, is_held: true } = said
            && !self.others_moved()
        {
            judge_held(request, *uid, self.before, self.found_before, self.found)?;
        }
        let consumes = request.parts().all(|(key, _)| is_consumer(key));
        match said {
            Said::Written(written) if !self.others_moved() => {
                if request.together.is_some() {
                    self.judge_happened()?;
                }
                if consumes { self.judge_written(written) } else { Ok(()) }
            }
            Said::Refused(_, Refused::Denied(denials)) if consumes && !self.is_denial_right(denials) => {
                Err(format!("A4: {}: {said:?}, although it fits", request.told()))
            }
            Said::Refused(place, refused) if !self.others_moved() && !self.is_refusal_true(*place, refused) => {
                Err(format!("A4: {}: {said:?}, which is not so", request.told()))
            }
            _ => Ok(()),
        }
    }

    /// Whether others changed in this step before it was decided: their time had come, or they followed what was written before.
    fn others_moved(&self) -> bool {
        self.added.told_ms != self.before.told_ms || self.is_late
    }

    /// What did not happen leaves no trace; what is only counted is seen in the ledger alone.
    fn judge_traces(&self) -> Result<(), String> {
        let Step { request, said, added, .. } = self;
        let counts = matches!(said, Said::Counted { .. } | Said::PutOff { begun: true });
        let changes = match said {
            Said::Written(_) | Said::Published => true,
            Said::Held { is_held, .. } => *is_held,
            Said::Dropped { was_held } => *was_held,
            Said::Refused(..) | Said::Would | Said::PutOff { .. } | Said::Counted { .. } => false,
        };
        let stays = counts || !changes;
        if !stays || self.others_moved() {
            return Ok(());
        }
        // With what is counted again comes when it is due.
        let may_be = |table: Table| counts && table != Table::OBJECTS;
        let rows = added.batch.rows().filter(|row| !may_be(row.table));
        let rows: Vec<String> = rows.map(|row| format!("{}:{:?}", row.table.0, row.key)).collect();
        // That it did not happen may be written down.
        let entries = added.batch.entries().filter(|entry| entry.journal != Journal::DENIALS).count();
        // A step of the ledger has a number, whether a row tells of it or not.
        let steps = if counts { 0 } else { added.steps };
        if rows.is_empty() && entries == 0 && steps == 0 && added.events.is_empty() {
            return Ok(());
        }
        let (told, events) = (request.told(), &added.events);
        Err(format!(
            "B6: {told}: {said:?}, and {rows:?} and {entries} entries were written, {steps} steps taken, {events:?} told"
        ))
    }

    /// Nothing is counted as decided of what was only tried, and of what was refused nothing but that.
    fn judge_decided(&self) -> Result<(), String> {
        let Step { request, said, added, .. } = self;
        let counted = |of: usize| added.decided.by_family().iter().map(|family| family[of]).sum::<u64>();
        let (granted, denied, queued) = (counted(0), counted(1), counted(2));
        let is_refused = matches!(said, Said::Refused(..)) && !request.dry_run;
        let is_tried = request.dry_run || matches!(said, Said::PutOff { .. } | Said::Counted { .. });
        match (is_refused || is_tried) && granted + queued > 0 || is_tried && denied > 0 {
            true => Err(format!("B6: {}: {said:?}, and {:?} was counted", request.told(), added.decided)),
            false => Ok(()),
        }
    }

    /// The entries of several writes are appended with them, once, or not at all.
    fn judge_entries(&self) -> Result<(), String> {
        let Step { request, said, added, .. } = self;
        let times = usize::from(matches!(said, Said::Written(_)));
        for wanted in request.together.iter().flat_map(|together| &together.entries) {
            let found = added.batch.entries().filter(|entry| entry.value == wanted.as_bytes()).count();
            if found != times {
                return Err(format!("B5: {}: {said:?}, and {wanted:?} was appended {found} times", request.told()));
            }
        }
        Ok(())
    }

    /// All that was asked for was done.
    fn judge_happened(&self) -> Result<(), String> {
        let Step { request, added, .. } = self;
        for (key, verb) in request.parts() {
            let kind = match verb {
                Verb::Create(_) => EventKind::Added,
                Verb::Update { .. } => EventKind::Modified,
                Verb::Delete { .. } => EventKind::Deleted,
                Verb::Hold { .. } | Verb::Drop { .. } => continue,
            };
            if !added.events.iter().any(|told| told.key == *key && told.kind == kind) {
                return Err(format!("B5: {}: of this {key} did not happen", request.told()));
            }
        }
        Ok(())
    }

    /// What was let in fits, and no policy looks there that cannot be evaluated.
    fn judge_written(&self, written: &[(u128, u64)]) -> Result<(), String> {
        let Step { request, found_before, found, .. } = self;
        let of = |found: &Found, uid| found.occupied(SubjectId(uid));
        let mut grew = Sums::new();
        // What is reported has happened, and fits or not.
        for ((key, verb), (uid, _)) in request.parts().zip(written).filter(|((_, verb), _)| !verb.is_status()) {
            let stays = verb.value().is_some_and(|value| !value["metadata"]["deletionTimestamp"].is_string());
            if let Some(policy) = self.broken(key).filter(|_| stays) {
                return Err(format!("A3: {}: let in, although {policy} cannot be evaluated", request.told()));
            }
            for (key, amount) in of(found, *uid) {
                *grew.entry(key).or_default() += amount;
            }
            for (key, amount) in of(found_before, *uid) {
                *grew.entry(key).or_default() -= amount;
            }
        }
        // Whoever goes may, even if what it took off is missing then.
        let asks = request.parts().zip(written).filter(|((_, verb), _)| verb.value().is_some());
        let asking: BTreeSet<_> = asks.flat_map(|(_, (uid, _))| of(found, *uid).into_keys()).collect();
        for (key, grew) in grew.into_iter().filter(|(key, _)| asking.contains(key)) {
            let limit = found.limits.get(&(key.0.clone(), key.1.clone())).copied().flatten();
            let used = found.taken(&key);
            if grew > 0 && key.2.is_empty() && limit.is_some_and(|limit| used > limit) {
                return Err(format!("A3: {}: let in, and {key:?} is over its limit: {used}", request.told()));
            }
        }
        Ok(())
    }

    /// A policy that cannot be evaluated and would look at the object.
    fn broken(&self, key: &ObjectKey) -> Option<String> {
        let (resource, namespace) = (key.resource.to_string(), &*key.namespace);
        let mut broken = self.before.stored().expected().broken.into_iter();
        let found = broken.find(|one| one.resources.contains(&&*resource) && one.reach.contains(namespace));
        found.map(|one| one.policy)
    }

    /// Whether what a refusal says of the stored object, or of its namespace, is so.
    fn is_refusal_true(&self, place: usize, refused: &Refused) -> bool {
        let Step { request, before, .. } = self;
        let Some((key, verb)) = request.parts().nth(place) else { return false };
        let stored = before.objects.get(key);
        let expect = match verb {
            Verb::Create(_) | Verb::Hold { .. } | Verb::Drop { .. } => Expect::default(),
            Verb::Update { expect, .. } | Verb::Delete { expect } => *expect,
        };
        let is_create = matches!(verb, Verb::Create(_) | Verb::Hold { .. });
        let makes_it = |(other, verb): (&ObjectKey, &Verb)| {
            matches!(verb, Verb::Create(_)) && other.resource.is("", "namespaces") && other.name == key.namespace
        };
        match refused {
            Refused::AlreadyExists => is_create && stored.is_some(),
            Refused::NotFound => !is_create && stored.is_none(),
            Refused::Conflict { revision } => {
                expect.revision != Some(*revision) && stored.is_some_and(|kept| kept.revision == *revision)
            }
            Refused::UidMismatch { stored: uid } => {
                expect.uid != Some(*uid) && stored.is_some_and(|kept| kept.uid == *uid)
            }
            Refused::NamespaceNotFound => {
                let is_there = before.get("", "namespaces", "", &key.namespace).is_some();
                is_create && !is_there && !request.parts().take(place).any(makes_it)
            }
            _ => true,
        }
    }

    /// Whether some policy has a reason to refuse objects like these.
    fn is_denial_right(&self, denials: &[Denial]) -> bool {
        let Step { request, before, found_before, added, .. } = self;
        // Whoever does not say what it needs is refused by quotas on that.
        let says_nothing =
            |verb: &Verb| verb.value().is_some_and(|value| value["spec"]["containers"][0]["resources"] == json!({}));
        let broken = before.stored().expected().broken;
        let is_broken = |denial: &Denial| broken.iter().any(|broken| *broken.policy == *denial.policy);
        // Others may have been there.
        if self.others_moved() || request.parts().any(|(_, verb)| says_nothing(verb)) || denials.iter().any(is_broken) {
            return true;
        }
        let mut after = before.stored();
        after.now_ms = added.told_ms;
        let mut uids = Vec::new();
        for (place, (key, verb)) in request.parts().enumerate() {
            let said = verb.value().and_then(uid_of);
            // What is held under the name of another object is new, and counts beside that.
            let is_new = matches!(verb, Verb::Hold { .. });
            let stored = || before.objects.get(key).filter(|_| !is_new).map(|kept| kept.uid.0);
            let uid = said.or_else(stored).unwrap_or(u128::MAX - place as u128);
            uids.push(uid);
            let shelf = after.objects.entry(key.resource.to_string()).or_default();
            shelf.retain(|one| super::naive::uid(one) != uid);
            if let Some(mut value) = verb.value().cloned() {
                value["metadata"]["uid"] = json!(uuid::Uuid::from_u128(uid).to_string());
                shelf.push(Arc::new(value));
            }
        }
        let expected = after.expected();
        let mut grew = Sums::new();
        let mut cannot_be = false;
        for uid in uids {
            let wanted = expected.charged.get(&uid).cloned().unwrap_or_default();
            let had = found_before.occupied(SubjectId(uid));
            cannot_be |= wanted.iter().any(|(key, amount)| {
                let more = amount - had.get(key).copied().unwrap_or_default();
                more > 0 && (key.1 == "unevaluated" || *amount == TOO_MUCH)
            });
            wanted.into_iter().for_each(|(key, amount)| *grew.entry(key).or_default() += amount);
            had.into_iter().for_each(|(key, amount)| *grew.entry(key).or_default() -= amount);
        }
        let lacks = |(key, more): (&(String, String, String), &i128)| {
            let limit = expected.limits.get(&(key.0.clone(), key.1.clone())).copied().flatten();
            let used = found_before.taken(key);
            *more > 0 && key.2.is_empty() && limit.is_some_and(|limit| used + more > limit)
        };
        cannot_be || grew.iter().any(lacks)
    }
}
