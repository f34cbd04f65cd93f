//! Status as a projection of the ledger: mended behind the writes, never on their way.

use families::{Affected, BalanceLine, Cause, Projected};
use store::{Batch, Table};

use super::broken::tell;
use super::command::Answer;
use super::engine::Engine;
use super::event::Publication;
use super::object::{Draft, ObjectKey};

/// Statuses looked at in one step, so that ten thousand busy quotas do not stall admissions.
pub(crate) const PUBLISHED_MAX: usize = 32;
/// Bytes read and written after which a step looks at no further status: admissions wait for as long as it takes.
const PUBLISHED_BYTES_MAX: usize = 1024 * 1024;
/// How long a status that a user wrote is shown before the ledger's takes its place.
const WRITTEN_STATUS_SHOWN_MS: i64 = 5_000;

impl Engine {
    pub(super) fn mark_stale(&mut self, key: ObjectKey, out: &mut Publication) {
        self.stale.insert(key);
        out.stale_status = true;
    }

    pub(super) fn status_written(&mut self, key: &ObjectKey, now_ms: i64, out: &mut Publication) {
        self.written_status.insert(key.clone(), now_ms.saturating_add(WRITTEN_STATUS_SHOWN_MS));
        out.status_written.push((key.clone(), true));
        self.mark_stale(key.clone(), out);
    }

    /// Writes the statuses that are behind, up to a bound; the answer says how many are left that could be written now.
    /// On a disk that is almost full they wait: the room is for deletions.
    pub(super) fn publish_status(&mut self, now_ms: i64, batch: &mut Batch, out: &mut Publication) -> Answer {
        if self.space.is_low() {
            out.stale_status = !self.stale.is_empty() || !self.behind.is_empty();
            return Answer::Published { remaining: 0 };
        }
        self.advance(now_ms, batch, out);
        self.catch_up(now_ms, batch, out);
        let due: Vec<ObjectKey> = self
            .stale
            .iter()
            .filter(|key| self.written_status.get(*key).is_none_or(|until| *until <= now_ms))
            .take(PUBLISHED_MAX)
            .cloned()
            .collect();
        let (before, mut read) = (batch.bytes(), 0);
        for key in due {
            if batch.bytes() - before + read >= PUBLISHED_BYTES_MAX {
                break;
            }
            read += self.stored(&key).map_or(0, |stored| stored.json.len());
            self.stale.remove(&key);
            if self.written_status.remove(&key).is_some() {
                out.status_written.push((key.clone(), false));
            }
            self.publish_one(&key, now_ms, batch, out);
        }
        if !self.stale.is_empty() {
            out.stale_status = true;
        }
        let is_due = |key: &&ObjectKey| self.written_status.get(*key).is_none_or(|until| *until <= now_ms);
        Answer::Published { remaining: self.stale.iter().filter(is_due).count() + self.behind.len() }
    }

    pub(super) fn publish_one(&mut self, key: &ObjectKey, now_ms: i64, batch: &mut Batch, out: &mut Publication) {
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
                Affected::Status(place) => self.mark_stale(place.into(), out),
                Affected::Object(place) => self.put_behind(place.into(), out),
                Affected::Companion(_) => {}
            }
        }
        match Draft::new(value) {
            Ok(draft) => {
                self.store(draft, key, Some(stored), batch, out);
            }
            Err(error) => tracing::error!(%key, %error, "a projected status could not be written"),
        }
    }

    /// Ends a group: the ledger's rows, the counters, and the balances that readers see.
    pub(super) fn seal_group(&mut self, batch: &mut Batch, out: &mut Publication) {
        self.ledger.drain_changes(&mut |row| match row.value {
            Some(value) => batch.put(Table::LEDGER, row.key, value),
            None => batch.delete(Table::LEDGER, row.key),
        });
        for (resource, revision) in std::mem::take(&mut self.last_changes) {
            batch.put(Table::META, last_change_row(&resource).as_bytes(), &revision.to_le_bytes());
        }
        if out.revision > 0 {
            batch.put(Table::META, REVISION_ROW, &self.revision.to_le_bytes());
        }
        if std::mem::take(&mut self.clock_unsaved) {
            batch.put(Table::META, CLOCK_ROW, &self.clock_ms.to_le_bytes());
        }
        if std::mem::take(&mut self.measuring_unsaved) {
            batch.put(Table::META, MEASURING_ROW, &self.measuring.to_le_bytes());
        }
        out.decided = std::mem::take(&mut self.decided);
        out.due_ms = self.next_due_ms();
        self.publish_balances(out);
    }

    /// Tells readers the balances of the accounts touched since the last time.
    pub(super) fn publish_balances(&mut self, out: &mut Publication) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort();
        touched.dedup();
        for account in touched.drain(..) {
            let (Some(key), Some(balance)) = (self.ledger.key(account).cloned(), self.ledger.balance(account)) else {
                continue;
            };
            if let Some(owner) = self.policies.owner(&self.ledger, account).cloned() {
                self.mark_stale(owner, out);
            }
            let line = BalanceLine { resource: key.resource, bucket: key.bucket, balance };
            out.balances.push((key.policy, line));
        }
        self.touched = touched;
    }
}

pub(super) const REVISION_ROW: &[u8] = b"revision";
/// By what time policies were judged that change with it.
pub(super) const CLOCK_ROW: &[u8] = b"clock";
/// What measured the charges that are stored.
pub(super) const MEASURING_ROW: &[u8] = b"measuring";

pub(super) fn last_change_row(resource: &rules::GroupResource) -> String {
    format!("last/{}/{}", resource.group, resource.resource)
}
