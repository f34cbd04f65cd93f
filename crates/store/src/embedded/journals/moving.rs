//! Out of the log, into the chapters.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::chapter::{Block, Chapter};
use super::{Chapters, Kept, floors};
use crate::batch::{NewEntry, Rows, Table};
use crate::disk::DiskFile;
use crate::embedded::format::{FRAME_HEAD_BYTES, FRAMES_START, FrameHead, frame_bytes, segment_name};
use crate::embedded::recover::damaged;
use crate::embedded::upkeep::Position;
use crate::embedded::window::Window;
use crate::error::StoreError;

/// A chapter that is smaller is not closed for the sake of retention.
const CHAPTER_BYTES_MIN: u64 = 64 * 1024;

/// A chapter is closed when it has this part of what is kept, so that not much more is kept.
pub const RETENTION_PARTS: u64 = 4;

/// What whoever writes chapters remembers.
#[derive(Default)]
pub struct Writer {
    /// The open chapter of each journal.
    open: BTreeMap<u8, Arc<dyn DiskFile>>,
    /// Written to, and not synced since.
    dirty: BTreeMap<String, Arc<dyn DiskFile>>,
    names_changed: bool,
    has_floors: bool,
    block: Vec<u8>,
}

impl Writer {
    pub fn forget(&mut self, name: &str) {
        self.dirty.remove(name);
        self.names_changed = true;
    }
}

impl Chapters {
    /// Lays out the entries of all that is committed.
    pub fn move_all(&self, stopping: &AtomicBool) -> Result<(), StoreError> {
        let mut writer = self.writer();
        let moved = self.move_with(&mut writer, stopping);
        self.progress().stalled = moved.is_err();
        self.moved.notify_all();
        moved
    }

    fn move_with(&self, writer: &mut Writer, stopping: &AtomicBool) -> Result<(), StoreError> {
        loop {
            let (at, committed) = {
                let progress = self.progress();
                (progress.at, progress.committed)
            };
            if at.next == committed.next {
                return Ok(());
            }
            self.move_segment(writer, at, committed, stopping)?;
        }
    }

    /// The frames of one segment from `at` on. Where it ends, the next one follows.
    fn move_segment(
        &self,
        writer: &mut Writer,
        mut at: Position,
        committed: Position,
        stopping: &AtomicBool,
    ) -> Result<(), StoreError> {
        let name = segment_name(at.number);
        let is_last = at.number >= committed.number;
        let missing = |at: &Position| damaged(&name, at.offset, &format!("it has no frame {}", at.next));
        let file = match self.disk.open(&name) {
            // All of it was laid out, and it went with a snapshot.
            Err(error) if error.kind() == ErrorKind::NotFound && !is_last => {
                self.progress().at = Position { number: at.number + 1, offset: FRAMES_START, next: at.next };
                return Ok(());
            }
            opened => opened.map_err(|error| StoreError::io(&name, error))?,
        };
        let end = match is_last {
            true => committed.offset,
            false => file.len().map_err(|error| StoreError::io(&name, error))?,
        };
        let mut window = Window::new(&*file, &name, end);
        while at.next < committed.next {
            if stopping.load(Ordering::Relaxed) {
                return Err(StoreError::Unusable { why: "it is being closed".to_owned() });
            }
            let head = window.get(at.offset, FRAME_HEAD_BYTES)?.and_then(FrameHead::decode);
            let Some(head) = head.filter(|head| head.sequence == at.next) else {
                if is_last {
                    return Err(missing(&at));
                }
                at = Position { number: at.number + 1, offset: FRAMES_START, next: at.next };
                self.progress().at = at;
                return Ok(());
            };
            let rows_bytes = head.rows_bytes as usize;
            let rows = window.get(at.offset + FRAME_HEAD_BYTES as u64, rows_bytes)?;
            let rows = rows.filter(|rows| crc32fast::hash(rows) == head.rows_checksum);
            let Some(rows) = rows else {
                return Err(damaged(&name, at.offset, &format!("frame {} does not match its checksum", at.next)));
            };
            self.lay_out(writer, &Rows::decode(rows))?;
            at.offset += frame_bytes(rows_bytes) as u64;
            at.next += 1;
            self.progress().at = at;
        }
        Ok(())
    }

    /// The entries of one frame. What is there already is left as it is: an earlier attempt may have come half-way.
    fn lay_out(&self, writer: &mut Writer, rows: &Rows<'_>) -> Result<(), StoreError> {
        let mut entries: BTreeMap<u8, Vec<NewEntry<'_>>> = BTreeMap::new();
        rows.entries().for_each(|entry| entries.entry(entry.journal.0).or_default().push(entry));
        if entries.is_empty() {
            return Ok(());
        }
        let mut counting = super::Counting::default();
        for row in rows.clone().filter(|row| row.table == Table::JOURNALS) {
            counting.take_in(row);
        }
        for (journal, entries) in entries {
            let first = counting.end(journal).saturating_sub(entries.len() as u64);
            self.append(writer, journal, first, &entries)?;
        }
        Ok(())
    }

    fn append(&self, writer: &mut Writer, journal: u8, first: u64, entries: &[NewEntry<'_>]) -> Result<(), StoreError> {
        let (end, last) = {
            let kept = self.kept();
            let kept = kept.get(&journal);
            (kept.map_or(1, |kept| kept.end), kept.and_then(|kept| kept.chapters.last().cloned()))
        };
        // Entries are far fewer than a usize can count: they were in one batch.
        let known = end.saturating_sub(first).min(entries.len() as u64);
        let (mut first, mut entries) = (first + known, entries.split_at(known as usize).1);
        if entries.is_empty() {
            return Ok(());
        }
        let mut chapter = match last {
            Some(last) if last.is_open() && first == end && last.blocks_end < self.chapter_bytes(journal) => last,
            last => {
                let link = last.as_ref().map_or(0, |last| last.link);
                if let Some(last) = last.filter(Chapter::is_open) {
                    self.close(writer, last)?;
                }
                self.begin(writer, Chapter::new(journal, first, end, link))?
            }
        };
        let name = chapter.name();
        let failed = |error| StoreError::io(&name, error);
        let file = match writer.open.get(&journal) {
            Some(file) => file.clone(),
            None => Arc::from(self.disk.open(&name).map_err(failed)?),
        };
        writer.open.insert(journal, file.clone());
        writer.dirty.insert(name.clone(), file.clone());
        while !entries.is_empty() {
            let (block, count) = Block::encode(&mut writer.block, first, entries, chapter.link);
            file.write_at(chapter.blocks_end, &writer.block).map_err(failed)?;
            chapter.add(&block, entries.first().map_or(0, |entry| entry.at_ms));
            self.publish(chapter.clone());
            first = block.end();
            entries = entries.split_at(count).1;
        }
        Ok(())
    }

    /// Makes the file of a chapter that has no entries yet. It is not shown to anybody before it has one.
    fn begin(&self, writer: &mut Writer, chapter: Chapter) -> Result<Chapter, StoreError> {
        if !writer.has_floors {
            floors::make(&*self.disk)?;
            writer.has_floors = true;
        }
        let name = chapter.name();
        let failed = |error| StoreError::io(&name, error);
        writer.names_changed = true;
        let file = match self.disk.create(&name) {
            // An attempt that the full disk ended.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => self.disk.open(&name),
            created => created,
        };
        let file = file.map_err(failed)?;
        file.set_len(0).map_err(failed)?;
        file.write_at(0, &chapter.head()).map_err(failed)?;
        writer.open.insert(chapter.journal, Arc::from(file));
        Ok(chapter)
    }

    /// Writes the index of an open chapter: it grows no more.
    pub(super) fn close(&self, writer: &mut Writer, mut chapter: Chapter) -> Result<(), StoreError> {
        let name = chapter.name();
        let failed = |error| StoreError::io(&name, error);
        let file = match writer.open.get(&chapter.journal) {
            Some(file) => file.clone(),
            None => Arc::from(self.disk.open(&name).map_err(failed)?),
        };
        let ending = chapter.ending();
        file.write_at(chapter.blocks_end, &ending).map_err(failed)?;
        chapter.close(&ending);
        // The end is found by the length: nothing that a start has cut off may be behind it.
        file.set_len(chapter.bytes).map_err(failed)?;
        writer.dirty.insert(name.clone(), file);
        writer.open.remove(&chapter.journal);
        self.publish(chapter);
        self.progress().retire = true;
        Ok(())
    }

    /// From here on readers see it.
    fn publish(&self, chapter: Chapter) {
        let mut kept = self.kept();
        let kept = kept.entry(chapter.journal).or_insert_with(|| Kept { floor: 1, end: 1, chapters: Vec::new() });
        kept.end = chapter.end;
        match kept.chapters.last_mut() {
            Some(last) if last.first == chapter.first => *last = chapter,
            _ => kept.chapters.push(chapter),
        }
    }

    fn chapter_bytes(&self, journal: u8) -> u64 {
        let kept_bytes = self.retention(journal).bytes.unwrap_or(u64::MAX);
        (kept_bytes / RETENTION_PARTS).max(CHAPTER_BYTES_MIN).min(self.chapter_bytes)
    }

    /// Everything that was laid out survives a crash from here on.
    pub fn sync(&self) -> Result<(), StoreError> {
        let mut writer = self.writer();
        for (name, file) in &writer.dirty {
            file.sync_data().map_err(|error| StoreError::io(name, error))?;
        }
        if writer.names_changed {
            self.disk.sync_dir().map_err(|error| StoreError::io(self.disk.place(), error))?;
        }
        writer.dirty.clear();
        writer.names_changed = false;
        Ok(())
    }
}
