//! What happens, read and parsed once for all who follow it: one reader of the journal, and of each environment that is followed the
//! last lines. Whoever follows keeps a number and no queue: a slow one costs nothing, and ends when its lines are gone.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use store::{Journal, Journals, PageLimit, StoreError};
use tokio_util::sync::CancellationToken;

/// Between two looks at what has happened.
pub const LOOK: Duration = Duration::from_secs(1);
/// Events that are read at a time.
const PAGE: PageLimit = PageLimit { entries: 1000, bytes: 1 << 20 };
/// Of one environment so many lines, and bytes of them, are there for whoever is behind.
const LINES_MAX: usize = 4096;
const BYTES_MAX: usize = 1 << 20;

/// An organization, an app of it and an environment of that.
pub type Scope = [String; 3];

#[derive(Default)]
pub struct Tail(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// The event that is read next.
    at: u64,
    /// Whether somebody reads.
    is_read: bool,
    feeds: HashMap<Scope, Feed>,
}

#[derive(Default)]
struct Feed {
    followers: usize,
    lines: VecDeque<(u64, Bytes)>,
    bytes: usize,
    /// The last event whose line is no longer there.
    lost: u64,
}

impl Feed {
    fn push(&mut self, sequence: u64, line: Bytes) {
        self.bytes += line.len();
        self.lines.push_back((sequence, line));
        while self.lines.len() > LINES_MAX || (self.bytes > BYTES_MAX && self.lines.len() > 1) {
            let Some((sequence, line)) = self.lines.pop_front() else { break };
            self.bytes -= line.len();
            self.lost = sequence;
        }
    }
}

/// The part of an event that is told; the rest is passed over.
#[derive(Deserialize)]
struct Told {
    org_id: Option<String>,
    app_id: Option<String>,
    env_id: Option<String>,
    event_type: String,
    #[serde(default)]
    payload: Value,
}

impl Tail {
    /// Follows an environment from now on.
    pub fn follow(self: &Arc<Tail>, journals: &Journals, closing: &CancellationToken, scope: Scope) -> Following {
        let at = journals.span(Journal::EVENTS).map_or(1, |span| span.end);
        let mut inner = self.0.lock();
        inner.feeds.entry(scope.clone()).or_default().followers += 1;
        if !inner.is_read {
            (inner.at, inner.is_read) = (at, true);
            tokio::spawn(Arc::clone(self).read(journals.clone(), closing.clone()));
        }
        Following { tail: Arc::clone(self), scope, at }
    }

    /// Reads for as long as somebody follows.
    async fn read(self: Arc<Tail>, journals: Journals, closing: CancellationToken) {
        let mut tick = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = closing.cancelled() => break,
            }
            let (tail, journals) = (Arc::clone(&self), journals.clone());
            let read = tokio::task::spawn_blocking(move || tail.catch_up(&journals)).await;
            if matches!(read, Ok(Ok(false))) {
                // The next who follows has it read again.
                return;
            }
        }
        self.0.lock().is_read = false;
    }

    /// Reads up to the last event; `false` if nobody follows any more.
    fn catch_up(&self, journals: &Journals) -> Result<bool, StoreError> {
        loop {
            let from = {
                let mut inner = self.0.lock();
                inner.is_read = !inner.feeds.is_empty();
                if !inner.is_read {
                    return Ok(false);
                }
                inner.at
            };
            let page = journals.forward(Journal::EVENTS, from, PAGE)?;
            let Some(last) = page.entries.last().map(|entry| entry.sequence) else { return Ok(true) };
            let told: Vec<(Scope, u64, Bytes)> =
                page.entries.iter().filter_map(|one| told(one.sequence, &one.value)).collect();
            let mut inner = self.0.lock();
            for (scope, sequence, line) in told {
                if let Some(feed) = inner.feeds.get_mut(&scope) {
                    feed.push(sequence, line);
                }
            }
            inner.at = last.saturating_add(1);
        }
    }
}

fn told(sequence: u64, text: &[u8]) -> Option<(Scope, u64, Bytes)> {
    let Told { org_id, app_id, env_id, event_type, payload } = serde_json::from_slice(text).ok()?;
    let line = format!("id: {sequence}\nevent: {event_type}\ndata: {payload}\n\n");
    Some(([org_id?, app_id?, env_id?], sequence, Bytes::from(line)))
}

/// Where one who follows has got to.
pub struct Following {
    tail: Arc<Tail>,
    scope: Scope,
    at: u64,
}

/// Lines are gone that were not sent yet.
#[derive(Debug, PartialEq, Eq)]
pub struct Behind;

impl Following {
    /// What has been read since it was asked last.
    pub fn take(&mut self) -> Result<Vec<Bytes>, Behind> {
        let inner = self.tail.0.lock();
        let Some(feed) = inner.feeds.get(&self.scope) else { return Ok(Vec::new()) };
        if feed.lost >= self.at {
            return Err(Behind);
        }
        let new = feed.lines.partition_point(|(sequence, _)| *sequence < self.at);
        let lines = feed.lines.range(new..).map(|(_, line)| line.clone()).collect();
        self.at = feed.lines.back().map_or(self.at, |(last, _)| self.at.max(last.saturating_add(1)));
        Ok(lines)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut inner = self.tail.0.lock();
        if let Some(feed) = inner.feeds.get_mut(&self.scope) {
            feed.followers -= 1;
            if feed.followers == 0 {
                inner.feeds.remove(&self.scope);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use store::{Batch, MemoryStore, Store};

    use super::*;

    fn event(env: &str, number: usize, padding: usize) -> Vec<u8> {
        let payload = json!({"number": number, "padding": "x".repeat(padding)});
        let all = json!({"org_id": "acme", "app_id": "shop", "env_id": env, "event_type": "a.b", "payload": payload,
            "old": {"secret": 1}, "new": {}});
        all.to_string().into_bytes()
    }

    struct Bench {
        store: Box<dyn Store>,
        journals: Journals,
        tail: Arc<Tail>,
    }

    impl Bench {
        fn new() -> Bench {
            let mut store: Box<dyn Store> = Box::new(MemoryStore::new());
            store.load(&mut |_, _, _| ()).expect("it loads");
            let journals = store.journals();
            Bench { store, journals, tail: Arc::default() }
        }

        fn happen(&mut self, events: impl Iterator<Item = Vec<u8>>) {
            let mut batch = Batch::default();
            for event in events {
                batch.append(Journal::EVENTS, 0, &event);
            }
            self.store.commit(&batch).expect("it commits");
            self.tail.catch_up(&self.journals).expect("it reads");
        }

        fn follow(&self, env: &str) -> Following {
            let scope = ["acme", "shop", env].map(str::to_owned);
            self.tail.follow(&self.journals, &CancellationToken::new(), scope)
        }
    }

    fn numbers(lines: &[Bytes]) -> Vec<usize> {
        let number = |line: &Bytes| {
            let text = std::str::from_utf8(line).unwrap();
            let data: Value =
                serde_json::from_str(text.lines().nth(2).unwrap().strip_prefix("data: ").unwrap()).unwrap();
            usize::try_from(data["number"].as_u64().unwrap()).unwrap()
        };
        lines.iter().map(number).collect()
    }

    #[tokio::test]
    async fn each_hears_what_happens_where_it_listens_from_then_on() {
        let mut bench = Bench::new();
        bench.happen((0..3).map(|number| event("prod", number, 0)));
        let mut first = bench.follow("prod");
        bench.happen([event("prod", 3, 0), event("test", 4, 0)].into_iter());
        let (mut second, mut other) = (bench.follow("prod"), bench.follow("test"));
        bench.happen([event("prod", 5, 0), event("test", 6, 0)].into_iter());
        assert_eq!(numbers(&first.take().unwrap()), [3, 5]);
        assert_eq!(numbers(&second.take().unwrap()), [5]);
        assert_eq!(numbers(&other.take().unwrap()), [6]);
        assert_eq!(first.take().unwrap(), Vec::<Bytes>::new());
    }

    #[tokio::test]
    async fn what_is_kept_for_the_slow_is_bounded_and_they_are_told() {
        let mut bench = Bench::new();
        let (mut slow, mut quick) = (bench.follow("prod"), bench.follow("prod"));
        let mut heard = 0;
        for _ in 0..10 {
            bench.happen((0..1000).map(|number| event("prod", number, 500)));
            // What one look brings may be more than is kept.
            match quick.take() {
                Ok(lines) => heard += lines.len(),
                Err(Behind) => quick = bench.follow("prod"),
            }
            let inner = bench.tail.0.lock();
            let feed = inner.feeds.values().next().unwrap();
            assert!(feed.bytes <= BYTES_MAX && feed.lines.len() <= LINES_MAX);
        }
        assert_eq!(slow.take(), Err(Behind));
        assert!(heard > 1000, "{heard}");
        drop((slow, quick));
        assert!(bench.tail.0.lock().feeds.is_empty(), "nothing is kept for nobody");
    }
}
