//! Journals: rows that are only ever appended, kept on disk and not in memory, and read back in ranges.
//!
//! ```text
//!   Batch::append ──commit──▶ journal ──▶ Journals::forward, backward, since     from any thread
//!                                    └──▶ gone, oldest first: Retention by age and by size
//! ```
//!
//! An entry is durable in the same commit as the rows of its batch, or not at all. It gets the next number of its journal, and
//! no number is ever given twice: not after a restart, not when the newest entries were retired, not after a backup was
//! restored, which leaves a gap. Start reading at [`Journals`].

use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use crate::StoreError;

/// The longest entry: it fits into one request to etcd, and into one answer to whoever reads. What is longer is a row.
pub const ENTRY_BYTES_MAX: usize = 256 * 1024;

/// The most that one read gives back, whatever was asked for.
pub const PAGE_ENTRIES_MAX: usize = 10_000;
pub const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How far numbers go on above those that were known, when later ones may have been given: by this many, and above a
/// thousand for every millisecond of the clock, so that two restores of one backup do not meet either.
const LEAP: u64 = 1_000_000_000;
const LEAP_BY_MS: u64 = 1_000;

/// Which journal. Numbers are part of the stored format: they are never reused for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Journal(pub u8);

impl Journal {
    /// Who asked for what, and what they were told.
    pub const AUDIT: Journal = Journal(1);
    /// What happened to organisations.
    pub const EVENTS: Journal = Journal(2);
    /// What is to be sent to whoever meters.
    pub const METERING: Journal = Journal(3);
    /// How balances went.
    pub const HISTORY: Journal = Journal(4);
    /// What was denied to whom, and why.
    pub const DENIALS: Journal = Journal(5);
    /// How organisations stood at some moment: what their events before it need not tell any more.
    pub const VIEWS: Journal = Journal(6);
}

/// One appended row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// From 1 on, strictly growing.
    pub sequence: u64,
    /// When, as whoever appended it said. It may go back.
    pub at_ms: i64,
    pub value: Vec<u8>,
}

/// What a read gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// What there was to read: from the oldest entry that is left to the one that comes next. Who asked for less than
    /// `span.start` asked for what was retired.
    pub span: Range<u64>,
}

/// How much one read may give. One entry is given in any case, so that who reads on gets on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimit {
    pub entries: usize,
    pub bytes: usize,
}

impl Default for PageLimit {
    fn default() -> PageLimit {
        PageLimit { entries: 1000, bytes: 1024 * 1024 }
    }
}

/// How long entries stay. They are retired from the oldest on and in large pieces, so that somewhat more stays than is asked
/// for: a quarter of it at the most, or one piece of 64 KiB where that is more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Those that are older go, as far as none before them is younger. `None`: none for its age.
    pub age_ms: Option<i64>,
    /// The oldest go when all of them are longer than this together. `None`: none for the size.
    pub bytes: Option<u64>,
    /// Entries from this number on stay, however old and long they are. `None`: none for its number.
    pub stays_from: Option<u64>,
}

impl Retention {
    /// What happened before this is too old.
    pub(crate) fn too_old(&self, now_ms: i64) -> Option<i64> {
        self.age_ms.map(|age| now_ms.saturating_sub(age))
    }

    /// Entries before this number may go.
    pub(crate) fn border(&self) -> u64 {
        self.stays_from.unwrap_or(u64::MAX)
    }
}

/// The journals of one store, for reading while commits go on. Cheap to clone, usable from any thread. The calls wait for a
/// disk or for etcd: from an async task they are made where blocking is allowed.
///
/// Only what is durable is seen, and whatever a commit appended is seen once that commit has returned, unless the disk is full
/// and it cannot be laid out yet.
#[derive(Clone)]
pub struct Journals(Arc<dyn Source>);

/// One store's way to its journals.
pub(crate) trait Source: Send + Sync {
    /// From the oldest entry that is left to the one that comes next.
    fn span(&self, journal: Journal) -> Result<Range<u64>, StoreError>;
    /// Entries with these numbers, the first of them first.
    fn forward(&self, journal: Journal, from: u64, pile: &mut Pile) -> Result<(), StoreError>;
    /// Entries before this number, the last of them first.
    fn backward(&self, journal: Journal, before: u64, pile: &mut Pile) -> Result<(), StoreError>;
    fn since(&self, journal: Journal, at_ms: i64) -> Result<u64, StoreError>;
    /// How long all entries that are left are together, as they are kept.
    fn bytes(&self, journal: Journal) -> Result<u64, StoreError>;
    fn retain(&self, journal: Journal, retention: Retention);
    fn retire(&self, now_ms: i64);
}

impl Journals {
    pub(crate) fn new(source: Arc<dyn Source>) -> Journals {
        Journals(source)
    }

    /// From the oldest entry that is left to the one that comes next; empty if there is none.
    pub fn span(&self, journal: Journal) -> Result<Range<u64>, StoreError> {
        self.0.span(journal)
    }

    /// Entries from this number on, upwards.
    pub fn forward(&self, journal: Journal, from: u64, limit: PageLimit) -> Result<Page, StoreError> {
        let mut pile = Pile::new(limit);
        self.0.forward(journal, from, &mut pile)?;
        Ok(Page { entries: pile.entries, span: self.0.span(journal)? })
    }

    /// Entries below this number, downwards. `u64::MAX` begins with the newest.
    pub fn backward(&self, journal: Journal, before: u64, limit: PageLimit) -> Result<Page, StoreError> {
        let mut pile = Pile::new(limit);
        self.0.backward(journal, before, &mut pile)?;
        Ok(Page { entries: pile.entries, span: self.0.span(journal)? })
    }

    /// The first number whose entry is of this moment or later; the next number if there is none. Found by an index.
    pub fn since(&self, journal: Journal, at_ms: i64) -> Result<u64, StoreError> {
        self.0.since(journal, at_ms)
    }

    /// How much room the entries that are left take, about.
    pub fn bytes(&self, journal: Journal) -> Result<u64, StoreError> {
        self.0.bytes(journal)
    }

    /// How long entries of this journal stay from now on. Who opens a store says so; until then they stay for ever.
    pub fn retain(&self, journal: Journal, retention: Retention) {
        self.0.retain(journal, retention);
    }

    /// Lets go, soon and beside the commits, of what need not stay by this clock. To be called now and then.
    pub fn retire(&self, now_ms: i64) {
        self.0.retire(now_ms);
    }
}

impl Default for Journals {
    /// Those of a store that has none.
    fn default() -> Journals {
        Journals(Arc::new(Nothing))
    }
}

impl std::fmt::Debug for Journals {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Journals")
    }
}

struct Nothing;

impl Source for Nothing {
    fn span(&self, _journal: Journal) -> Result<Range<u64>, StoreError> {
        Ok(1..1)
    }

    fn forward(&self, _journal: Journal, _from: u64, _pile: &mut Pile) -> Result<(), StoreError> {
        Ok(())
    }

    fn backward(&self, _journal: Journal, _before: u64, _pile: &mut Pile) -> Result<(), StoreError> {
        Ok(())
    }

    fn since(&self, _journal: Journal, _at_ms: i64) -> Result<u64, StoreError> {
        Ok(1)
    }

    fn bytes(&self, _journal: Journal) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn retain(&self, _journal: Journal, _retention: Retention) {}

    fn retire(&self, _now_ms: i64) {}
}

/// The entries of a page, as far as they were read.
#[derive(Debug)]
pub(crate) struct Pile {
    entries: Vec<Entry>,
    entries_max: usize,
    /// What may still be added.
    bytes_left: usize,
}

impl Pile {
    pub fn new(limit: PageLimit) -> Pile {
        let bytes_left = limit.bytes.min(PAGE_BYTES_MAX);
        Pile { entries: Vec::new(), entries_max: limit.entries.clamp(1, PAGE_ENTRIES_MAX), bytes_left }
    }

    /// How many more are wanted.
    pub fn wanted(&self) -> usize {
        self.entries_max - self.entries.len()
    }

    /// `false`: there is no room for it, nor for any other.
    pub fn push(&mut self, sequence: u64, at_ms: i64, value: &[u8]) -> bool {
        if self.wanted() == 0 || (!self.entries.is_empty() && value.len() > self.bytes_left) {
            return false;
        }
        self.bytes_left = self.bytes_left.saturating_sub(value.len());
        self.entries.push(Entry { sequence, at_ms, value: value.to_vec() });
        true
    }
}

/// Where numbers go on when some above `next` may have been given already.
pub(crate) fn leap(next: u64, now: SystemTime) -> u64 {
    let ms = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let by_clock = u64::try_from(ms).unwrap_or(0).saturating_mul(LEAP_BY_MS);
    // A clock that is centuries ahead must not use up the numbers.
    let by_clock = by_clock.min(u64::MAX / 4);
    next.saturating_add(LEAP).max(by_clock)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_pile_holds_one_entry_in_any_case_and_no_more_than_was_asked_for() {
        let mut pile = Pile::new(PageLimit { entries: 3, bytes: 10 });
        assert!(pile.push(1, 0, &[0; 20]));
        assert!(!pile.push(2, 0, &[0; 1]));
        let mut pile = Pile::new(PageLimit { entries: 2, bytes: 10 });
        assert!(pile.push(1, 0, &[0; 10]) && pile.push(2, 0, &[]) && !pile.push(3, 0, &[]));
        assert_eq!(Pile::new(PageLimit { entries: 0, bytes: 0 }).wanted(), 1);
        assert_eq!(Pile::new(PageLimit { entries: usize::MAX, bytes: usize::MAX }).wanted(), PAGE_ENTRIES_MAX);
    }

    #[test]
    fn numbers_leap_above_all_that_can_have_been_given() {
        let at = |ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
        let monday = 1_800_000_000_000;
        let first = leap(41, at(monday));
        assert!(leap(7, at(monday + 60_000)) >= first + 60_000_000);
        for wrong in [at(0), at(5), SystemTime::UNIX_EPOCH - Duration::from_secs(1)] {
            assert_eq!(leap(41, wrong), LEAP + 41);
        }
        assert!(leap(41, at(u64::MAX / 10_000)) < u64::MAX / 2);
        assert!(leap(first, at(monday)) > first);
    }
}
