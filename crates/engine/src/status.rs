//! Status as a projection of the ledger: mended behind the writes, never on their way.

use std::ops::Bound;

use families::{Affected, BalanceLine, Cause, Projected};

use crate::broken::tell;
use crate::effects::{Effects, Fact};
use crate::engine::Engine;
use crate::install::Places;
use crate::object::{Draft, ObjectKey};
use crate::retire::is_nobodys;

/// Statuses looked at in one step, so that ten thousand busy quotas do not stall admissions.
pub const PUBLISHED_MAX: usize = 32;
/// Bytes read and written after which a step looks at no further status: admissions wait for as long as it takes.
const PUBLISHED_BYTES_MAX: usize = 1024 * 1024;
/// How long a status that a user wrote is shown before the ledger's takes its place.
const WRITTEN_STATUS_SHOWN_MS: i64 = 5_000;

impl Engine {
    pub(crate) fn mark_stale(&mut self, key: ObjectKey) {
        self.stale.mark(key);
        self.effects.stale_status = true;
    }

    /// Marks all objects in these places whose status is told from the ledger.
    pub(crate) fn mark_all_stale(&mut self, places: &Places) {
        for (resource, namespace) in places {
            if self.is_projected(resource) {
                self.stale.mark_all(resource.clone(), namespace.clone());
                self.effects.stale_status = true;
            }
        }
    }

    /// Marks the next of those objects that were marked all together.
    fn mark_some(&mut self, max: usize) {
        let mut left = max;
        while let Some((resource, namespace, after)) = self.stale.next_whole().filter(|_| left > 0) {
            let shelf = self.shelves.of(&resource);
            let from = (Bound::Excluded((namespace.clone(), after)), Bound::Unbounded);
            let rest = shelf.into_iter().flat_map(|shelf| shelf.range(from.clone()));
            let within = rest.take_while(|((place, _), _)| *place == namespace);
            let next: Vec<ObjectKey> = within.take(left).map(|(_, object)| object.key.clone()).collect();
            let last = next.last().filter(|_| next.len() == left).map(|key| key.name.clone());
            left -= next.len();
            next.into_iter().for_each(|key| self.stale.mark(key));
            self.stale.went_on(resource, namespace, last);
        }
    }

    pub(crate) fn status_written(&mut self, key: &ObjectKey, now_ms: i64) {
        self.stale.show(key.clone(), now_ms.saturating_add(WRITTEN_STATUS_SHOWN_MS));
        self.effects.status_written.push((key.clone(), true));
        self.effects.stale_status = true;
    }

    /// The ledger's status takes the place of what a user wrote, if one did.
    pub(crate) fn take_back(&mut self, key: &ObjectKey, was_written: bool) {
        if was_written {
            self.effects.status_written.push((key.clone(), false));
        }
    }

    /// Writes the statuses that are behind, up to a bound; the answer says how many are left that could be written now.
    /// On a disk that is almost full they wait: the room is for deletions.
    pub fn publish_status(&mut self, now_ms: i64) -> usize {
        if !self.room.growth {
            self.effects.stale_status = !self.stale.is_empty() || !self.behind.is_empty() || !self.retired.is_empty();
            return 0;
        }
        self.origin = self.own.clone();
        self.advance(now_ms);
        self.catch_up(now_ms);
        self.stale.advance(now_ms);
        self.mark_some(PUBLISHED_MAX.saturating_sub(self.stale.due()));
        let (before, mut read) = (self.written_bytes, 0);
        // What these make stale again is for the next step.
        for key in self.stale.first(PUBLISHED_MAX) {
            if self.written_bytes - before + read >= PUBLISHED_BYTES_MAX {
                break;
            }
            read += self.stored(&key).map_or(0, |stored| stored.json.len());
            let was_written = self.stale.take(&key) == Some(true);
            self.take_back(&key, was_written);
            self.publish_one(&key, now_ms);
        }
        let sweeps = self.sweep();
        if !self.stale.is_empty() {
            self.effects.stale_status = true;
        }
        self.stale.due() + self.stale.whole() * PUBLISHED_MAX + self.behind.len() + sweeps * PUBLISHED_MAX
    }

    /// Those who were served what they waited for, and whose status does not say so yet.
    pub fn served_untold(&self) -> usize {
        self.stale.served()
    }

    pub(crate) fn publish_one(&mut self, key: &ObjectKey, now_ms: i64) {
        let Some(stored) = self.stored(key).cloned() else { return };
        let Some(family) = self.families.of_projected(&key.resource).cloned() else { return };
        let mut value = stored.value();
        let projected = family.project(&key.resource, &mut value, &self.view(now_ms)) == Projected::Changed;
        let told = self.broken(key).is_some_and(|why| tell(&mut value, key, &why, now_ms));
        if !projected && !told {
            return;
        }
        let cause = Cause::Shown { resource: &key.resource, object: &value };
        let view = self.view(now_ms);
        let affected: Vec<Affected> = self.families.iter().flat_map(|family| family.affected(&cause, &view)).collect();
        for affected in affected {
            match affected {
                Affected::Status(place) => self.mark_stale(place.into()),
                Affected::Object(place) => self.put_behind(place.into()),
                Affected::Companion(_) => {}
            }
        }
        match Draft::new(value) {
            Ok(draft) => {
                self.store(draft, key, Some(stored));
            }
            Err(error) => tracing::error!(%key, %error, "a projected status could not be written"),
        }
    }

    /// Ends a group of steps: hands over the ledger's rows, and all that the steps did besides writing objects.
    pub fn seal(&mut self, write: &mut dyn FnMut(ledger::Row<'_>)) -> Effects {
        self.ledger.drain_changes(write);
        if std::mem::take(&mut self.clock_unsaved) {
            self.effects.facts.push(Fact::Clock(self.clock_ms));
        }
        if std::mem::take(&mut self.measuring_unsaved) {
            self.effects.facts.push(Fact::Measuring(self.measuring));
        }
        self.effects.facts.extend(self.moments.drain());
        self.effects.due_ms = self.next_due_ms();
        self.publish_balances();
        std::mem::take(&mut self.effects)
    }

    /// Tells readers the balances of the accounts touched since the last time.
    pub(crate) fn publish_balances(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort();
        touched.dedup();
        for account in touched.drain(..) {
            let (Some(key), Some(balance)) = (self.ledger.key(account).cloned(), self.ledger.balance(account)) else {
                continue;
            };
            if is_nobodys(&key.policy) {
                continue;
            }
            if let Some(owner) = self.policies.owner(&self.ledger, account).cloned() {
                self.mark_stale(owner);
            }
            let line = BalanceLine { resource: key.resource, bucket: key.bucket, balance };
            self.effects.balances.push((key.policy, line));
        }
        self.touched = touched;
    }
}
