//! What the leader does beside the commits so that etcd lasts: it drops history, and watches the space.
//!
//! etcd keeps every value that was ever written until it is told to forget, and refuses *every* write, deletions of ours
//! included, once its file has reached its quota. So the leader compacts in good time, and turns the low-space mode on while
//! there still is room for deletions. Nobody reads history: a load reads at a revision that no leader has compacted yet,
//! and a standby whose watch starts too early looks again.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tonic::{Code, Status};

use super::client::{Client, explain};
use super::messages::{AlarmRequest, StatusResponse};
use crate::clock::{Clock, Moment};
use crate::{Space, Usage};

/// How often the space is looked at when little is written.
const LOOK: Duration = Duration::from_secs(5);

/// How often history is dropped, and how much of it is kept at least. Kubernetes' API server does the same to its etcd.
const COMPACT: Duration = Duration::from_secs(5 * 60);

/// History is dropped early when this share of the quota is in use, but not for less than this many revisions.
const PRESSURE: u64 = 4;
const PRESSURE_REVISIONS: i64 = 100;

/// etcd's default, for versions that do not tell their quota.
const QUOTA_DEFAULT: u64 = 2 * 1024 * 1024 * 1024;

/// The room that is kept for deletions: a twentieth of the quota, within these bounds.
const RESERVE_SHARE: u64 = 20;
const RESERVE_BYTES_MIN: u64 = 4 * 1024 * 1024;

/// Where etcd does not tell its size (its user may not ask), history is dropped after this much was written.
const UNSEEN_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Smaller files are not worth a defragmentation, nor a word about it.
const HINT_BYTES_MIN: u64 = 128 * 1024 * 1024;
const HINT: Duration = Duration::from_secs(60 * 60);

/// How long a commit waits for a look that is due because much was written.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// How long the calls of one look may try.
const PATIENCE: Duration = Duration::from_secs(2);

/// Shared by the commits and the task beside them.
#[derive(Debug)]
pub struct Upkeep {
    pub space: Space,
    pub usage: Usage,
    /// The last revision that a transaction was answered with.
    revision: AtomicI64,
    /// Bytes written since the last look, and how many are a reason for the next.
    written: AtomicU64,
    due: AtomicU64,
    wake: Notify,
    looks: watch::Sender<u64>,
}

impl Default for Upkeep {
    fn default() -> Upkeep {
        Upkeep {
            space: Space::default(),
            usage: Usage::default(),
            revision: AtomicI64::new(0),
            written: AtomicU64::new(0),
            due: AtomicU64::new(RESERVE_BYTES_MIN / 4),
            wake: Notify::new(),
            looks: watch::Sender::new(0),
        }
    }
}

impl Upkeep {
    /// A transaction was answered.
    pub fn answered(&self, revision: i64) {
        self.revision.fetch_max(revision, Ordering::Relaxed);
        if self.space.is_full() {
            self.space.note_full(false);
        }
    }

    /// A transaction was refused for want of space.
    pub fn refused(&self) {
        if !self.space.is_full() {
            tracing::error!("etcd has no space left and refuses every write: see docs/etcd.md, \"No space\"");
        }
        self.space.note_full(true);
        self.wake.notify_one();
    }

    /// Before `bytes` are written: waits for a look at the space if much was written since the last. The quota is not
    /// overrun between two looks.
    pub async fn make_way(&self, bytes: u64) {
        let written = self.written.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let due = self.due.load(Ordering::Relaxed);
        if written < due {
            return;
        }
        let mut looks = self.looks.subscribe();
        self.wake.notify_one();
        if written >= due * 2 {
            // A look that cannot be had must not stop the commits: etcd guards its quota itself.
            let _late = timeout(WAIT_MAX, looks.changed()).await;
        }
    }

    /// Runs as long as this replica leads.
    pub async fn run(&self, client: &Client, key: &[u8], clock: &dyn Clock) {
        let client = client.patient(PATIENCE);
        let mut history = History { seen: self.revision(), since: clock.now(), compacted: 0 };
        let mut hinted: Option<Moment> = None;
        let (mut told, mut unseen) = (false, 0);
        loop {
            let _early = timeout(LOOK, self.wake.notified()).await;
            unseen += self.written.swap(0, Ordering::Relaxed);
            let Seen { members, denied } = look(&client, key).await;
            if denied && !told {
                tracing::warn!(
                    "our user may not ask etcd for its size: growth is not refused in time, see docs/etcd.md"
                );
                told = true;
            }
            let pressed = self.take_in(&members) || (denied && unseen >= UNSEEN_BYTES_MAX);
            self.find_alarms(&client).await;
            if let Some(revision) = history.due(clock.now(), self.revision(), pressed || self.space.is_full()) {
                match client.compact(revision).await {
                    Ok(()) => {
                        unseen = 0;
                        history.compacted = revision;
                        self.usage.compacted();
                        tracing::debug!(revision, "compacted etcd");
                    }
                    Err(status) => tracing::warn!(error = explain(&status), revision, "cannot compact etcd"),
                }
            }
            if hinted.is_none_or(|last| clock.since(last) > HINT) && hint(&members) {
                hinted = Some(clock.now());
            }
            self.looks.send_modify(|count| *count += 1);
        }
    }

    fn revision(&self) -> i64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// The fullest member counts: it is the first to refuse. `true`: history should go.
    fn take_in(&self, members: &[(String, StatusResponse)]) -> bool {
        let most = |of: fn(&StatusResponse) -> i64| members.iter().map(|(_, status)| unsigned(of(status))).max();
        let (Some(bytes), Some(in_use)) = (most(|status| status.db_size), most(|status| status.db_size_in_use)) else {
            return false;
        };
        let quotas = members.iter().map(|(_, status)| unsigned(status.db_size_quota)).filter(|&quota| quota > 0);
        let quota = quotas.min().unwrap_or(QUOTA_DEFAULT);
        let reserve = (quota / RESERVE_SHARE).max(RESERVE_BYTES_MIN).min(quota / 4);
        self.usage.set(bytes, in_use, quota);
        self.due.store(reserve / 4, Ordering::Relaxed);
        let low = bytes.saturating_add(reserve) > quota;
        if low != self.space.is_low() {
            tracing::warn!(bytes, in_use, quota, low, "space in etcd");
        }
        self.space.note_low(low);
        low || in_use > quota / PRESSURE
    }

    async fn find_alarms(&self, client: &Client) {
        match client.alarms(AlarmRequest::default()).await {
            Ok(answer) => {
                let full = answer.alarms.iter().any(|member| member.alarm == 1);
                if full {
                    self.refused_by_alarm();
                } else {
                    self.space.note_full(false);
                }
            }
            // Who may not ask learns it from the first write that is refused.
            Err(status) if status.code() == Code::PermissionDenied => {}
            Err(status) => complain(&status),
        }
    }

    fn refused_by_alarm(&self) {
        if !self.space.is_full() {
            tracing::error!("etcd's NOSPACE alarm is raised, it refuses every write: see docs/etcd.md, \"No space\"");
        }
        self.space.note_full(true);
    }
}

/// Which history there is to drop.
struct History {
    /// A revision, and since when it is history.
    seen: i64,
    since: Moment,
    compacted: i64,
}

impl History {
    /// Up to which revision to compact now, if it is time.
    fn due(&mut self, now: Moment, revision: i64, pressed: bool) -> Option<i64> {
        let mut due = None;
        if now.since(self.since) >= COMPACT {
            due = Some(self.seen);
            (self.seen, self.since) = (revision, now);
        }
        if pressed && revision - self.compacted >= PRESSURE_REVISIONS {
            due = Some(revision);
        }
        due.filter(|&revision| revision > self.compacted && revision > 0)
    }
}

/// What a look found: the members that told their size.
struct Seen {
    members: Vec<(String, StatusResponse)>,
    /// We may not ask.
    denied: bool,
}

async fn look(client: &Client, key: &[u8]) -> Seen {
    let mut seen = Seen { members: Vec::new(), denied: false };
    for member in 0..client.members() {
        match client.standing(member, key).await {
            Ok(status) => seen.members.push((client.address(member), status)),
            Err(status) => {
                seen.denied |= status.code() == Code::PermissionDenied;
                complain(&status);
            }
        }
    }
    seen
}

fn complain(status: &Status) {
    tracing::debug!(error = explain(status), "cannot look at the space in etcd");
}

/// Says which members would shrink by much. `true`: something was said.
fn hint(members: &[(String, StatusResponse)]) -> bool {
    let loose =
        members.iter().filter(|(_, status)| is_loose(unsigned(status.db_size), unsigned(status.db_size_in_use)));
    let mut said = false;
    for (member, status) in loose {
        let (bytes, in_use) = (status.db_size, status.db_size_in_use);
        tracing::warn!(member, bytes, in_use, "most of this etcd member's file is free: \"etcdctl defrag\" shrinks it");
        said = true;
    }
    said
}

fn is_loose(bytes: u64, in_use: u64) -> bool {
    bytes >= HINT_BYTES_MIN && in_use < bytes / 2
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(db_size: i64, db_size_in_use: i64, db_size_quota: i64) -> (String, StatusResponse) {
        let status = StatusResponse { db_size, db_size_in_use, db_size_quota, ..StatusResponse::default() };
        ("a".to_owned(), status)
    }

    #[test]
    fn the_fullest_member_decides_and_room_for_deletions_is_kept() {
        const MB: i64 = 1 << 20;
        let upkeep = Upkeep::default();
        // Sizes and quotas in MB: low, history should go.
        for (members, low, pressed) in [
            (vec![(1, 1, 0)], false, false),
            (vec![(2000, 100, 0)], true, true),
            (vec![(100, 100, 16), (1, 1, 16)], true, true),
            (vec![(5, 5, 16)], false, true),
            (vec![(5, 3, 16)], false, false),
            (vec![(13, 1, 16)], true, true),
            (vec![], true, false),
        ] {
            let sized: Vec<_> =
                members.iter().map(|&(size, used, quota)| member(size * MB, used * MB, quota * MB)).collect();
            assert_eq!(upkeep.take_in(&sized), pressed, "{members:?}");
            assert_eq!(upkeep.space.is_low(), low, "{members:?}: nobody answering changes nothing");
        }
        assert!(is_loose(200 << 20, 50 << 20) && !is_loose(20 << 20, 5 << 20) && !is_loose(200 << 20, 150 << 20));
    }

    #[test]
    fn history_is_dropped_in_time_and_early_under_pressure() {
        let now = Moment::at(COMPACT);
        let mut history = History { seen: 5, since: now, compacted: 0 };
        assert_eq!(history.due(now, 5000, false), None, "it is kept for a while");
        assert_eq!(history.due(now, 50, true), None, "not for a few revisions");
        assert_eq!(history.due(now, 5000, true), Some(5000));
        history.compacted = 5000;
        assert_eq!(history.due(now, 5001, true), None);
        history = History { seen: 7000, since: Moment::at(Duration::ZERO), compacted: 5000 };
        assert_eq!(history.due(now, 9000, false), Some(7000), "what is younger than the last time is kept");
        assert_eq!((history.seen, history.due(now, 9000, false)), (9000, None));
    }
}
