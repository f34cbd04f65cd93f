//! The journals of a folder. Entries become durable in the log, with the rows of their commit; beside the commits they are laid
//! out in chapters, which are the only place they are read from.
//!
//! ```text
//!   commit ──▶ log: frame of rows and entries ──move──▶ chapters ──▶ readers
//!                                   │                      └──retire──▶ gone, whole chapters, oldest first
//!                                   └── snapshot: chapters are synced first, then the log before it goes
//!   start  ◀── chapters up to where the snapshot ends, and what the log says after it
//! ```
//!
//! What a chapter has beyond the snapshot is not synced, and not believed by a start: it is cut off and moved from the log
//! again. So moving needs no sync, and nothing of an entry is ever in doubt. Start reading at [`Chapters`]; [`chapter`] has the
//! files, [`moving`] fills them, [`reading`] and [`retiring`] are what they are for, [`recovery`] is what a start does.

mod chapter;
mod counting;
mod floors;
mod moving;
mod reading;
mod recovery;
mod retiring;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chapter::Chapter;
pub use counting::Counting;
pub use floors::FLOORS_NAME;
use moving::Writer;
pub use recovery::{Found, examine, inspect};

use super::upkeep::{Position, Upkeep};
use crate::disk::Disk;
use crate::error::StoreError;
use crate::journal::{Journal, Pile, Retention, Source};

/// A chapter is full when it is so many times as long as a segment.
const CHAPTER_SEGMENTS: u64 = 2;

/// How long a reader waits for entries of commits that have returned to be laid out.
const SETTLE_MAX: Duration = Duration::from_secs(1);

/// What a reader sees of one journal.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// Entries before it are retired.
    pub floor: u64,
    /// One past the newest entry that was laid out.
    pub end: u64,
    /// From the oldest on; only the last can be open.
    pub chapters: Vec<Chapter>,
}

impl Kept {
    fn first(&self) -> u64 {
        self.chapters.first().map_or(self.end, |chapter| chapter.first)
    }

    fn bytes(&self) -> u64 {
        self.chapters.iter().map(|chapter| chapter.bytes).sum()
    }
}

/// How far the log was laid out.
#[derive(Debug, Default)]
struct Progress {
    at: Position,
    committed: Position,
    /// The disk is full: nobody waits.
    stalled: bool,
    /// What may go is to be looked for, by this clock.
    retire: bool,
    now_ms: Option<i64>,
}

/// All journals of a folder.
pub struct Chapters {
    disk: Arc<dyn Disk>,
    chapter_bytes: u64,
    kept: Mutex<BTreeMap<u8, Kept>>,
    progress: Mutex<Progress>,
    moved: Condvar,
    retention: Mutex<BTreeMap<u8, Retention>>,
    /// Taken before the other locks, by whoever changes a file.
    writer: Mutex<Writer>,
}

impl Chapters {
    pub fn new(disk: Arc<dyn Disk>, segment_bytes: u64, found: Found, committed: Position) -> Chapters {
        let at = found.log_from.unwrap_or(committed);
        let progress = Progress { at, committed, ..Progress::default() };
        let (moved, retention, writer) = Default::default();
        Chapters {
            disk,
            chapter_bytes: segment_bytes.saturating_mul(CHAPTER_SEGMENTS),
            kept: Mutex::new(found.kept),
            progress: Mutex::new(progress),
            moved,
            retention,
            writer,
        }
    }

    /// A frame is durable: from `before` on, up to `after`. `true`: there is something to do about it.
    pub fn committed(&self, before: u64, after: Position, has_entries: bool) -> bool {
        let mut progress = self.progress();
        progress.committed = after;
        // Nothing to look at, if nothing waits before it either.
        if !has_entries && progress.at.next == before {
            progress.at = after;
        }
        progress.at.next != after.next
    }

    pub fn has_work(&self) -> bool {
        let progress = self.progress();
        progress.at.next != progress.committed.next || progress.retire
    }

    /// How far the log is laid out.
    pub fn position(&self) -> Position {
        self.progress().at
    }

    pub fn retain(&self, journal: u8, retention: Retention) {
        self.retention.lock().unwrap_or_else(PoisonError::into_inner).insert(journal, retention);
    }

    /// What may go is looked for with the next work.
    pub fn retire_by(&self, now_ms: i64) {
        let mut progress = self.progress();
        (progress.retire, progress.now_ms) = (true, Some(now_ms));
    }

    /// Shows the files of one moment, with how far each counts, and what the file of floors says. Until `look` returns none of
    /// them is removed.
    pub fn frozen<T>(&self, look: impl FnOnce(Files) -> T) -> T {
        let kept = self.kept();
        look(Files::of(&kept))
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<u8, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn retention(&self, journal: u8) -> Retention {
        let retention = self.retention.lock().unwrap_or_else(PoisonError::into_inner);
        retention.get(&journal).copied().unwrap_or_default()
    }
}

/// The files of the journals, for a backup.
pub struct Files {
    /// Name and length.
    pub chapters: Vec<(String, u64)>,
    /// Nothing if there never was an entry.
    pub floors: Option<Vec<u8>>,
}

impl Files {
    pub fn of(kept: &BTreeMap<u8, Kept>) -> Files {
        let chapters: Vec<_> =
            kept.values().flat_map(|kept| &kept.chapters).map(|chapter| (chapter.name(), chapter.bytes)).collect();
        let raised = raised(kept);
        let floors = (!chapters.is_empty() || !raised.is_empty()).then(|| floors::encode(&raised));
        Files { chapters, floors }
    }
}

/// The floors of journals of which entries were retired.
fn raised(kept: &BTreeMap<u8, Kept>) -> floors::Floors {
    kept.iter().filter(|(_, kept)| kept.floor > 1).map(|(journal, kept)| (*journal, kept.floor)).collect()
}

/// Whoever has the files in its care also knows when they are up to date.
impl Source for Upkeep {
    fn span(&self, journal: Journal) -> Result<Range<u64>, StoreError> {
        self.journals.settle();
        Ok(self.journals.span(journal.0))
    }

    fn forward(&self, journal: Journal, from: u64, pile: &mut Pile) -> Result<(), StoreError> {
        self.journals.settle();
        self.journals.forward(journal.0, from, pile)
    }

    fn backward(&self, journal: Journal, before: u64, pile: &mut Pile) -> Result<(), StoreError> {
        self.journals.settle();
        self.journals.backward(journal.0, before, pile)
    }

    fn since(&self, journal: Journal, at_ms: i64) -> Result<u64, StoreError> {
        self.journals.settle();
        self.journals.since(journal.0, at_ms)
    }

    fn bytes(&self, journal: Journal) -> Result<u64, StoreError> {
        self.journals.settle();
        let chapters = self.journals.kept().get(&journal.0).map_or(0, Kept::bytes);
        Ok(chapters)
    }

    fn retain(&self, journal: Journal, retention: Retention) {
        self.journals.retain(journal.0, retention);
    }

    fn retire(&self, now_ms: i64) {
        self.journals.retire_by(now_ms);
        self.nudge();
    }
}
