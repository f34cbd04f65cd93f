//! How long what only grows is kept: by age and by size, looked at now and then.

use std::time::Duration;

use store::{Journal, Journals, Retention};

use crate::config::StoreChoice;

/// Between two looks at what is too old.
const INTERVAL: Duration = Duration::from_secs(60);

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// For each journal but what happened to organizations, which is what their views are made from (`orgs::inventory`).
const RETENTION: Retention = Retention { age_ms: Some(30 * DAY_MS), bytes: Some(1024 * 1024 * 1024), stays_from: None };

const PASSING: [Journal; 4] = [Journal::AUDIT, Journal::METERING, Journal::HISTORY, Journal::DENIALS];

/// How much room events of organizations take, where nobody says: they stay as long as a disk bears it, and etcd is small.
pub fn event_bytes(store: &StoreChoice) -> u64 {
    match store {
        StoreChoice::Embedded => 16 << 30,
        StoreChoice::Memory | StoreChoice::Etcd(_) => 1 << 30,
    }
}

/// Says how long entries stay.
pub fn retain(journals: &Journals) {
    PASSING.into_iter().for_each(|journal| journals.retain(journal, RETENTION));
}

/// Lets go of what need not stay any more, as long as the server runs.
pub async fn run(journals: Journals, clock: fn() -> i64) {
    let mut tick = tokio::time::interval(INTERVAL);
    loop {
        tick.tick().await;
        let journals = journals.clone();
        if tokio::task::spawn_blocking(move || journals.retire(clock())).await.is_err() {
            return tracing::error!("journals are no longer retired: a bug");
        }
    }
}

#[cfg(test)]
mod tests {
    use store::{Batch, MemoryStore, PageLimit, Store};

    use super::*;

    fn in_a_month() -> i64 {
        31 * DAY_MS
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_older_than_a_month_goes() {
        let mut store = MemoryStore::new();
        let journals = store.journals();
        retain(&journals);
        let append = |store: &mut MemoryStore, at_ms: i64| {
            let mut batch = Batch::new();
            (0..3000).for_each(|_| batch.append(Journal::AUDIT, at_ms, &[7; 100]));
            store.commit(&batch).unwrap();
        };
        append(&mut store, 0);
        append(&mut store, in_a_month());
        let retiring = tokio::spawn(run(journals.clone(), in_a_month));
        let is_old = |journals: &Journals| {
            let first = journals.forward(Journal::AUDIT, 0, PageLimit::default()).unwrap().entries.remove(0);
            first.at_ms == 0
        };
        while is_old(&journals) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(journals.span(Journal::AUDIT).unwrap().end, 6001, "and nothing else");
        retiring.abort();
    }
}
