//! Journals in etcd: a key for every entry, in the transaction of its batch, and one for the numbers that each journal has given.
//!
//! ```text
//!   journals/<number>/<sequence>   moment, latest moment so far, sequence before it, bytes so far │ value
//!   counters/<number>              next sequence, last sequence, latest moment, bytes of all entries ever
//!   counters/base                  no sequence below it is given by any journal, since a backup was restored
//! ```
//!
//! Moments and bytes are counted up from entry to entry, so that the first of a moment, and the first of those that stay, are
//! found by halving. Nothing of it is read at a start but the counters.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use tokio::runtime::Handle;

use super::client::{Client, explain};
use super::commit::{LastStates, damaged};
use super::lead::Leadership;
use super::messages::{Compare, KeyValue, RangeRequest, RequestOp, TxnRequest, prefix_end};
use super::stored::{self, Stored};
use super::{Keys, failed, wait};
use crate::batch::Batch;
use crate::error::StoreError;
use crate::journal::{self, Journal, Pile, Retention, Source};

/// Entries asked for at a time: few at first, because they may be long.
const PAGE_FIRST: u64 = 16;
const PAGE_MAX: u64 = 512;

/// Entries that one transaction retires, so that none holds up the commits.
const RETIRED_MAX: u64 = 1000;

const HEAD_BYTES: usize = 32;
const BASE: &str = "base";

impl Keys {
    fn journal(&self, journal: u8) -> Vec<u8> {
        [self.journals.as_slice(), format!("{journal:02x}/").as_bytes()].concat()
    }

    fn entry(&self, journal: u8, sequence: u64) -> Vec<u8> {
        [self.journal(journal).as_slice(), format!("{sequence:016x}").as_bytes()].concat()
    }

    fn counter(&self, journal: u8) -> Vec<u8> {
        [self.counters.as_slice(), format!("{journal:02x}").as_bytes()].concat()
    }

    fn base(&self) -> Vec<u8> {
        [self.counters.as_slice(), BASE.as_bytes()].concat()
    }
}

/// What a journal has given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counter {
    next: u64,
    /// Zero if there was none.
    last: u64,
    latest_ms: i64,
    bytes: u64,
}

impl Default for Counter {
    fn default() -> Counter {
        Counter { next: 1, last: 0, latest_ms: i64::MIN, bytes: 0 }
    }
}

impl Counter {
    fn encode(self) -> Vec<u8> {
        [self.next, self.last, self.latest_ms.cast_unsigned(), self.bytes].map(u64::to_be_bytes).concat()
    }

    fn decode(bytes: &[u8]) -> Option<Counter> {
        let [next, last, latest_ms, bytes] = numbers(bytes)?;
        Some(Counter { next, last, latest_ms: latest_ms.cast_signed(), bytes })
    }
}

/// What stands before the value of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EntryHead {
    at_ms: i64,
    /// Of this entry and all before it.
    latest_ms: i64,
    previous: u64,
    /// Of this entry and all before it.
    bytes: u64,
}

impl EntryHead {
    fn encode(self, value: &[u8]) -> Bytes {
        let EntryHead { at_ms, latest_ms, previous, bytes } = self;
        let head = [at_ms.cast_unsigned(), latest_ms.cast_unsigned(), previous, bytes].map(u64::to_be_bytes).concat();
        [head.as_slice(), &stored::encode(value)].concat().into()
    }

    fn decode(bytes: &[u8]) -> Option<(EntryHead, &[u8])> {
        let (head, stored) = bytes.split_at_checked(HEAD_BYTES)?;
        let [at_ms, latest_ms, previous, bytes] = numbers(head)?;
        let (at_ms, latest_ms) = (at_ms.cast_signed(), latest_ms.cast_signed());
        Some((EntryHead { at_ms, latest_ms, previous, bytes }, stored))
    }
}

fn numbers(bytes: &[u8]) -> Option<[u64; 4]> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    let numbers: [[u8; 8]; 4] = numbers.try_into().ok().filter(|_| rest.is_empty())?;
    Some(numbers.map(u64::from_be_bytes))
}

/// The numbers of all journals, as the leader knows them.
#[derive(Clone, Debug, Default)]
pub struct Counting {
    counters: BTreeMap<u8, Counter>,
    base: Option<u64>,
    /// The base is not durable yet.
    leaps: bool,
}

impl Counting {
    /// There are few of them, whatever was appended.
    pub async fn read(client: &Client, keys: &Keys) -> Result<Counting, StoreError> {
        let (key, range_end) = (keys.counters.clone(), prefix_end(&keys.counters));
        let found = client.range(RangeRequest { key, range_end, ..RangeRequest::default() }).await;
        let found = found.map_err(|status| failed("reading the counters of journals from etcd", &status))?;
        let mut counting = Counting::default();
        for KeyValue { key, value, .. } in &found.kvs {
            let wrong = || damaged(key, "it is no counter of a journal");
            if *key == keys.base() {
                counting.base = Some(value.as_slice().try_into().map(u64::from_be_bytes).map_err(|_| wrong())?);
                continue;
            }
            let name = key.strip_prefix(keys.counters.as_slice()).and_then(|name| std::str::from_utf8(name).ok());
            let journal = name.and_then(|name| u8::from_str_radix(name, 16).ok()).ok_or_else(wrong)?;
            counting.counters.insert(journal, Counter::decode(value).ok_or_else(wrong)?);
        }
        Ok(counting)
    }

    /// Later numbers than are known may have been given: goes on far above them.
    pub fn leap(&mut self, now: SystemTime) {
        let highest = self.counters.values().map(|counter| counter.next).chain(self.base).max().unwrap_or(1);
        self.base = Some(journal::leap(highest, now));
        self.leaps = true;
    }

    /// Gives numbers to the entries of a batch, and adds what is to be written for them.
    pub fn number(&mut self, keys: &Keys, batch: &Batch, states: &mut LastStates) {
        if std::mem::take(&mut self.leaps)
            && let Some(base) = self.base
        {
            states.insert(keys.base(), Some(Bytes::copy_from_slice(&base.to_be_bytes())));
        }
        for entry in batch.entries() {
            let journal = entry.journal.0;
            let counter = self.counters.entry(journal).or_default();
            let (sequence, previous) = (counter.next.max(self.base.unwrap_or(1)), counter.last);
            *counter = Counter {
                next: sequence + 1,
                last: sequence,
                latest_ms: counter.latest_ms.max(entry.at_ms),
                bytes: counter.bytes + (HEAD_BYTES + entry.value.len()) as u64,
            };
            let Counter { latest_ms, bytes, .. } = *counter;
            let head = EntryHead { at_ms: entry.at_ms, latest_ms, previous, bytes };
            states.insert(keys.entry(journal, sequence), Some(head.encode(entry.value)));
            states.insert(keys.counter(journal), Some(counter.encode().into()));
        }
    }
}

/// Journals for reading; the leader's also let go.
pub struct EtcdJournals {
    runtime: Handle,
    reader: Reader,
    leadership: Arc<Leadership>,
    retention: Mutex<BTreeMap<u8, Retention>>,
    /// One at a time.
    retiring: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Clone)]
struct Reader {
    client: Client,
    keys: Arc<Keys>,
}

struct Found {
    sequence: u64,
    head: EntryHead,
    stored: Vec<u8>,
}

/// Between entries that go and entries that stay.
struct Border {
    /// The first that stays, if there is one.
    first: Option<u64>,
    /// Behind the last that goes. The numbers of a large batch are counted before its last entries are written: what was seen
    /// is the end of what may go, and not what was counted.
    end: u64,
}

impl EtcdJournals {
    pub fn new(runtime: Handle, client: &Client, keys: &Arc<Keys>, leadership: &Arc<Leadership>) -> EtcdJournals {
        let reader = Reader { client: client.clone(), keys: keys.clone() };
        let (retention, retiring) = Default::default();
        EtcdJournals { runtime, reader, leadership: leadership.clone(), retention, retiring }
    }

    fn run<T: Send + 'static, F>(&self, work: impl FnOnce(Reader) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        wait(&self.runtime, work(self.reader.clone()))?
    }
}

impl Source for EtcdJournals {
    fn span(&self, journal: Journal) -> Result<Range<u64>, StoreError> {
        self.run(async move |reader: Reader| reader.span(journal.0).await)
    }

    fn forward(&self, journal: Journal, mut from: u64, pile: &mut Pile) -> Result<(), StoreError> {
        let mut page = PAGE_FIRST;
        // No limit at all is what etcd reads a limit of nothing as.
        while pile.wanted() > 0 {
            let limit = page.min(pile.wanted() as u64);
            let found = self.run(async move |reader: Reader| reader.from(journal.0, from, u64::MAX, limit).await)?;
            let Some(last) = found.last() else { return Ok(()) };
            from = last.sequence + 1;
            for entry in &found {
                if !self.reader.add(journal.0, entry, pile)? {
                    return Ok(());
                }
            }
            if (found.len() as u64) < limit {
                return Ok(());
            }
            page = (page * 2).min(PAGE_MAX);
        }
        Ok(())
    }

    /// From the end on, in ranges that cannot have more than a page: etcd itself would sort all there is.
    fn backward(&self, journal: Journal, before: u64, pile: &mut Pile) -> Result<(), StoreError> {
        let newest = self.run(async move |reader: Reader| Ok(reader.counter(journal.0).await?.last))?;
        let (mut last, mut page) = (newest.min(before.saturating_sub(1)), PAGE_FIRST);
        while last > 0 && pile.wanted() > 0 {
            let start = last.saturating_sub(page.min(pile.wanted() as u64) - 1);
            let found = self.run(async move |reader: Reader| reader.from(journal.0, start, last + 1, page).await)?;
            let Some(first) = found.first() else {
                // Numbers that were never given, or retired entries: the one behind knows what is before it.
                let behind = self.run(async move |reader: Reader| reader.from(journal.0, last, u64::MAX, 1).await)?;
                let previous = behind.first().map_or(0, |entry| entry.head.previous);
                if previous >= start {
                    return Ok(());
                }
                last = previous;
                // It is there, or everything before it is retired.
                if self.run(async move |reader: Reader| reader.from(journal.0, previous, last + 1, 1).await)?.is_empty()
                {
                    return Ok(());
                }
                continue;
            };
            last = first.head.previous;
            for entry in found.iter().rev() {
                if !self.reader.add(journal.0, entry, pile)? {
                    return Ok(());
                }
            }
            page = (page * 2).min(PAGE_MAX);
        }
        Ok(())
    }

    fn since(&self, journal: Journal, at_ms: i64) -> Result<u64, StoreError> {
        self.run(async move |reader: Reader| {
            let span = reader.span(journal.0).await?;
            let border = reader.search(journal.0, span.clone(), &|head| head.latest_ms >= at_ms).await?;
            Ok(border.first.unwrap_or(span.end))
        })
    }

    fn bytes(&self, journal: Journal) -> Result<u64, StoreError> {
        self.run(async move |reader: Reader| {
            let span = reader.span(journal.0).await?;
            let first = reader.from(journal.0, span.start, span.end, 1).await?;
            let all = reader.counter(journal.0).await?.bytes;
            // What the first of them takes is told with those before it: one entry is no matter here.
            Ok(first.first().map_or(0, |first| all.saturating_sub(first.head.bytes)))
        })
    }

    fn retain(&self, journal: Journal, retention: Retention) {
        self.retention.lock().unwrap_or_else(PoisonError::into_inner).insert(journal.0, retention);
    }

    fn retire(&self, now_ms: i64) {
        let retention = self.retention.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (reader, leadership) = (self.reader.clone(), self.leadership.clone());
        let Ok(turn) = self.retiring.clone().try_lock_owned() else { return };
        self.runtime.spawn(async move {
            let _turn = turn;
            for (journal, retention) in retention {
                // It is asked for again and again, and nothing depends on it.
                if let Err(error) = reader.retire(&leadership, journal, retention, now_ms).await {
                    tracing::warn!(%error, journal, "entries of a journal could not be retired");
                }
            }
        });
    }
}

impl Reader {
    async fn counter(&self, journal: u8) -> Result<Counter, StoreError> {
        let key = self.keys.counter(journal);
        match self.range(key.clone(), Vec::new(), 1, false).await?.first() {
            None => Ok(Counter::default()),
            Some(found) => Counter::decode(&found.value).ok_or_else(|| damaged(&key, "it is no counter of a journal")),
        }
    }

    async fn span(&self, journal: u8) -> Result<Range<u64>, StoreError> {
        let prefix = self.keys.journal(journal);
        let first = self.range(prefix.clone(), prefix_end(&prefix), 1, true).await?;
        // Asked for afterwards, so that it is not before the first.
        let next = self.counter(journal).await?.next;
        let first = first.first().map(|found| self.sequence(journal, &found.key)).transpose()?;
        Ok(first.unwrap_or(next)..next)
    }

    /// So many entries from this number on and before that one.
    async fn from(&self, journal: u8, from: u64, before: u64, limit: u64) -> Result<Vec<Found>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (key, end) = (self.keys.entry(journal, from), self.keys.entry(journal, before));
        let found = self.range(key, end, limit, false).await?;
        found.into_iter().map(|found| self.entry(journal, &found)).collect()
    }

    /// Where the entries begin of which this is true, given that it is true of all behind the first of them.
    async fn search(
        &self,
        journal: u8,
        span: Range<u64>,
        is_behind: &(dyn Fn(&EntryHead) -> bool + Sync),
    ) -> Result<Border, StoreError> {
        let (mut low, mut high, mut first) = (span.start, span.end, None);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.from(journal, middle, high, 1).await?.first() {
                None => high = middle,
                Some(found) if is_behind(&found.head) => (high, first) = (middle, Some(found.sequence)),
                Some(found) => low = found.sequence + 1,
            }
        }
        Ok(Border { first, end: low })
    }

    async fn retire(
        &self,
        leadership: &Leadership,
        journal: u8,
        retention: Retention,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let (span, counter) = (self.span(journal).await?, self.counter(journal).await?);
        let mut end = span.start;
        if let Some(before) = retention.too_old(now_ms) {
            let border = self.search(journal, span.clone(), &|head| head.latest_ms >= before).await?;
            end = end.max(border.end);
        }
        if let Some(max) = retention.bytes {
            let before = counter.bytes.saturating_sub(max);
            let border = self.search(journal, span.clone(), &|head| head.bytes > before).await?;
            end = end.max(border.end);
        }
        end = end.min(retention.border());
        loop {
            let first = self.span(journal).await?.start;
            if first >= end {
                return Ok(());
            }
            let until = end.min(first.saturating_add(RETIRED_MAX));
            let (from, until) = (self.keys.entry(journal, first), self.keys.entry(journal, until));
            // Harmless twice, and whenever it arrives: numbers are never given again, and none that was given and is not written
            // yet is among them.
            let request = TxnRequest {
                compare: vec![Compare::created_at(&self.keys.leader, leadership.revision)],
                success: vec![RequestOp::delete_range(from, until)],
                failure: Vec::new(),
            };
            let answer =
                self.client.txn(request).await.map_err(|status| failed("retiring entries in etcd", &status))?;
            if !answer.succeeded {
                // Whoever leads now does it.
                return Ok(());
            }
        }
    }

    async fn range(
        &self,
        key: Vec<u8>,
        range_end: Vec<u8>,
        limit: i64,
        keys_only: bool,
    ) -> Result<Vec<KeyValue>, StoreError> {
        let request = RangeRequest { key, range_end, limit, revision: 0, keys_only };
        let answer = self.client.range(request).await;
        answer
            .map(|answer| answer.kvs)
            .map_err(|status| failed(&format!("reading a journal from etcd: {}", explain(&status)), &status))
    }

    fn sequence(&self, journal: u8, key: &[u8]) -> Result<u64, StoreError> {
        let name =
            key.strip_prefix(self.keys.journal(journal).as_slice()).and_then(|name| std::str::from_utf8(name).ok());
        let sequence = name.and_then(|name| u64::from_str_radix(name, 16).ok());
        sequence.ok_or_else(|| damaged(key, "it stands among the entries of a journal and is none"))
    }

    fn entry(&self, journal: u8, found: &KeyValue) -> Result<Found, StoreError> {
        let sequence = self.sequence(journal, &found.key)?;
        let (head, stored) = EntryHead::decode(&found.value).ok_or_else(|| unreadable(&found.key))?;
        Ok(Found { sequence, head, stored: stored.to_vec() })
    }

    /// `false`: there is no more room.
    fn add(&self, journal: u8, found: &Found, pile: &mut Pile) -> Result<bool, StoreError> {
        match stored::decode(&found.stored) {
            Some(Stored::Whole(value)) => Ok(pile.push(found.sequence, found.head.at_ms, &value)),
            Some(Stored::Parts(_)) | None => Err(unreadable(&self.keys.entry(journal, found.sequence))),
        }
    }
}

fn unreadable(key: &[u8]) -> StoreError {
    damaged(key, "its value cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_counters_come_back_as_they_were() {
        let counter = Counter { next: 8, last: 6, latest_ms: -5, bytes: u64::MAX };
        assert_eq!(Counter::decode(&counter.encode()), Some(counter));
        assert_eq!(Counter::decode(&counter.encode()[1..]), None);
        let head = EntryHead { at_ms: -7, latest_ms: i64::MAX, previous: 5, bytes: 9 };
        let encoded = head.encode(b"value");
        let (decoded, stored) = EntryHead::decode(&encoded).unwrap();
        assert_eq!((decoded, stored::decode(stored)), (head, Some(Stored::Whole(b"value".into()))));
        assert_eq!(EntryHead::decode(&encoded[..HEAD_BYTES - 1]), None);
    }

    #[test]
    fn keys_of_entries_are_in_the_order_of_their_numbers() {
        let keys = Keys::new("c");
        let numbers = [0, 1, 9, 10, 255, 256, 1 << 40, u64::MAX];
        let entries: Vec<_> = numbers.iter().map(|number| keys.entry(7, *number)).collect();
        assert!(entries.is_sorted() && entries.iter().all(|key| key.starts_with(&keys.journal(7))));
    }
}
