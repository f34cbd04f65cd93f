//! What families wrote down to be sent, read back from its journal.

use std::sync::Arc;

use families::{Outbox, Posted, PostedEntry};
use futures::FutureExt;
use futures::future::BoxFuture;
use store::{Journal, Journals, PageLimit};

/// How much one read gives: senders send less than that at a time.
const PAGE: PageLimit = PageLimit { entries: 256, bytes: 1024 * 1024 };

struct Metering(Journals);

pub fn of(journals: Journals) -> Arc<dyn Outbox> {
    Arc::new(Metering(journals))
}

impl Outbox for Metering {
    fn read(&self, from: u64) -> BoxFuture<'static, Result<Posted, String>> {
        let journals = self.0.clone();
        let reading = move || -> Result<Posted, String> {
            let page = journals.forward(Journal::METERING, from, PAGE).map_err(|error| error.to_string())?;
            let entry = |entry: store::Entry| PostedEntry {
                sequence: entry.sequence,
                at_ms: entry.at_ms,
                // What cannot be read is nobody's, and is passed over.
                entry: serde_json::from_slice(&entry.value).unwrap_or_default(),
            };
            let entries = page.entries.into_iter().map(entry).collect();
            Ok(Posted { entries, begin: page.span.start, end: page.span.end })
        };
        let read = async move {
            let read: Result<Posted, String> =
                tokio::task::spawn_blocking(reading).await.map_err(|error| error.to_string())?;
            read
        };
        read.boxed()
    }
}

#[cfg(test)]
mod tests {
    use store::{Batch, MemoryStore, Store};

    use super::*;

    #[tokio::test]
    async fn entries_are_read_in_their_order_from_any_number_on() {
        let mut store = MemoryStore::new();
        let mut batch = Batch::new();
        for entry in [&b"{\"n\": 1}"[..], b"garbage", b"{\"n\": 3}"] {
            batch.append(Journal::METERING, 7, entry);
        }
        store.commit(&batch).unwrap();
        let outbox = of(store.journals());
        let all = outbox.read(0).await.unwrap();
        assert_eq!((all.begin, all.end), (1, 4));
        let said: Vec<String> = all.entries.iter().map(|one| one.entry.to_string()).collect();
        assert_eq!(said, [r#"{"n":1}"#, "null", r#"{"n":3}"#]);
        let last = outbox.read(3).await.unwrap();
        assert_eq!(last.entries.iter().map(|one| one.sequence).collect::<Vec<_>>(), [3]);
        assert_eq!(outbox.read(4).await.unwrap().entries, []);
    }
}
