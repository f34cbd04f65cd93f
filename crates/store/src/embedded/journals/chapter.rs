//! One file of a journal: the entries of a stretch of numbers, in blocks, and an index when it is full.
//!
//! ```text
//!   head (64 B): journal, first sequence, where the chapter before it ends, link │ block │ block │ … │ index │ tail (40 B)
//!   block   head (40 B): mark, length, first sequence, count, checksum of the entries, latest moment, link, own checksum │ entries
//!   entry   moment (8 B), length (4 B), value
//!   index   first sequence, offset, latest moment of every stretch of about 64 KiB
//!   tail    mark, count of stretches, end, latest moment, link of the last block, checksum of the index, own checksum
//! ```
//!
//! A block has entries of one frame of the log only, so that wherever a snapshot ends, a chapter can be cut there.

use crate::batch::NewEntry;
use crate::disk::DiskFile;
use crate::embedded::format::{FORMAT_VERSION, HEAD_BYTES, Head, HeadError, Kind, chapter_name, u32_at, u64_at};
use crate::embedded::unknown_version;
use crate::embedded::window::Window;
use crate::error::StoreError;
use crate::journal::ENTRY_BYTES_MAX;

const BLOCK_MARK: u32 = u32::from_le_bytes(*b"BJB1");
const TAIL_MARK: u32 = u32::from_le_bytes(*b"BJX1");
const BLOCK_HEAD_BYTES: usize = 40;
const ENTRY_HEAD_BYTES: usize = 12;
const STRETCH_BYTES: usize = 24;
const TAIL_BYTES: usize = 40;

/// Entries of one block, and blocks of one stretch: what is read to find one entry.
const BLOCK_BYTES: usize = 64 * 1024;
const BLOCK_BYTES_MAX: usize = BLOCK_BYTES + ENTRY_HEAD_BYTES + ENTRY_BYTES_MAX;

/// Blocks that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub first: u64,
    pub offset: u64,
    pub latest_ms: i64,
}

/// What is known of a chapter without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chapter {
    pub journal: u8,
    pub first: u64,
    /// Where the one before it ends: less than `first` where numbers were left out.
    pub after: u64,
    /// One past its last entry.
    pub end: u64,
    /// The moment of its first entry, while it is not full.
    pub first_ms: i64,
    pub latest_ms: i64,
    /// Where its blocks end.
    pub blocks_end: u64,
    /// The length of the file.
    pub bytes: u64,
    /// The checksum of its last block's head.
    pub link: u32,
    /// While it is not full; then they are in its index.
    pub stretches: Option<Vec<Stretch>>,
}

impl Chapter {
    /// One without entries.
    pub fn new(journal: u8, first: u64, after: u64, link: u32) -> Chapter {
        let bytes = HEAD_BYTES as u64;
        Chapter {
            journal,
            first,
            after,
            end: first,
            first_ms: i64::MAX,
            latest_ms: i64::MIN,
            blocks_end: bytes,
            bytes,
            link,
            stretches: Some(Vec::new()),
        }
    }

    pub fn name(&self) -> String {
        chapter_name(self.journal, self.first)
    }

    pub fn is_open(&self) -> bool {
        self.stretches.is_some()
    }

    /// What the file begins with; `self` has no entries yet.
    pub fn head(&self) -> [u8; HEAD_BYTES] {
        let Chapter { journal, first, after, link, .. } = *self;
        let head = Head { number: journal.into(), sequence: first, bytes: after, link, version: FORMAT_VERSION };
        head.encode(Kind::Chapter)
    }

    /// A block was written behind the others.
    pub fn add(&mut self, block: &Block, first_ms: i64) {
        let offset = self.blocks_end;
        if let Some(stretches) = &mut self.stretches {
            match stretches.last_mut() {
                Some(last) if offset - last.offset < BLOCK_BYTES as u64 => {
                    last.latest_ms = last.latest_ms.max(block.latest_ms);
                }
                _ => stretches.push(Stretch { first: block.first, offset, latest_ms: block.latest_ms }),
            }
        }
        if self.first_ms == i64::MAX {
            self.first_ms = first_ms;
        }
        self.latest_ms = self.latest_ms.max(block.latest_ms);
        self.end = block.end();
        self.link = block.checksum;
        self.blocks_end += block.bytes();
        self.bytes = self.blocks_end;
    }

    /// The index and the tail that make it full.
    pub fn ending(&self) -> Vec<u8> {
        let stretches = self.stretches.as_deref().unwrap_or_default();
        let mut bytes = Vec::with_capacity(stretches.len() * STRETCH_BYTES + TAIL_BYTES);
        for stretch in stretches {
            bytes.extend_from_slice(&stretch.first.to_le_bytes());
            bytes.extend_from_slice(&stretch.offset.to_le_bytes());
            bytes.extend_from_slice(&stretch.latest_ms.to_le_bytes());
        }
        let index_checksum = crc32fast::hash(&bytes);
        let start = bytes.len();
        bytes.extend_from_slice(&TAIL_MARK.to_le_bytes());
        // A chapter is far shorter than u32::MAX stretches.
        bytes.extend_from_slice(&(stretches.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.end.to_le_bytes());
        bytes.extend_from_slice(&self.latest_ms.to_le_bytes());
        bytes.extend_from_slice(&self.link.to_le_bytes());
        bytes.extend_from_slice(&index_checksum.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        let checksum = crc32fast::hash(&bytes[start..]);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Its ending was written.
    pub fn close(&mut self, ending: &[u8]) {
        self.bytes = self.blocks_end + ending.len() as u64;
        self.stretches = None;
    }

    /// Head, index and tail of a full one.
    pub fn full(file: &dyn DiskFile, journal: u8, first: u64) -> Result<Chapter, StoreError> {
        let mut chapter = Chapter::begun(file, journal, first)?;
        let name = chapter.name();
        let failed = |error| StoreError::io(&name, error);
        chapter.bytes = file.len().map_err(failed)?;
        let mut tail = [0; TAIL_BYTES];
        let tail_start = chapter.bytes.saturating_sub(TAIL_BYTES as u64);
        let count = file.read_at(tail_start, &mut tail).map_err(failed)?;
        let sound = count == TAIL_BYTES
            && u32_at(&tail, 0) == TAIL_MARK
            && u32_at(&tail, TAIL_BYTES - 4) == crc32fast::hash(&tail[..TAIL_BYTES - 4]);
        if !sound {
            return Err(damaged(&name, tail_start, "its end does not match its checksum"));
        }
        let index_bytes = u64::from(u32_at(&tail, 4)) * STRETCH_BYTES as u64;
        chapter.blocks_end = tail_start
            .checked_sub(index_bytes)
            .filter(|end| *end > HEAD_BYTES as u64)
            .ok_or_else(|| damaged(&name, tail_start, "its index is longer than the file"))?;
        chapter.end = u64_at(&tail, 8);
        chapter.latest_ms = u64_at(&tail, 16).cast_signed();
        chapter.link = u32_at(&tail, 24);
        chapter.stretches = None;
        chapter.index(file)?;
        Ok(chapter)
    }

    /// One that may still grow: its blocks are read up to entry `until`, which must be where one of them ends. What stands
    /// behind it is not looked at.
    pub fn part(file: &dyn DiskFile, journal: u8, first: u64, until: u64) -> Result<Chapter, StoreError> {
        let mut chapter = Chapter::begun(file, journal, first)?;
        let name = chapter.name();
        let length = file.len().map_err(|error| StoreError::io(&name, error))?;
        let mut walk = Walk::new(file, &name, chapter.blocks_end, length);
        (walk.link, walk.next) = (Some(chapter.link), first);
        while chapter.end < until {
            let Some(block) = walk.head()? else {
                let what = format!("it ends before entry {}, and should before {until}", chapter.end);
                return Err(damaged(&name, chapter.blocks_end, &what));
            };
            let first_ms = walk.entries(&block)?.next().map_or(0, |(_, at_ms, _)| at_ms);
            chapter.add(&block, first_ms);
            walk.pass(&block);
        }
        if chapter.end != until {
            let what = format!("a block of it ends before entry {}, and the log goes on with {until}", chapter.end);
            return Err(damaged(&name, chapter.blocks_end, &what));
        }
        Ok(chapter)
    }

    fn begun(file: &dyn DiskFile, journal: u8, first: u64) -> Result<Chapter, StoreError> {
        let name = chapter_name(journal, first);
        let mut bytes = [0; HEAD_BYTES];
        file.read_at(0, &mut bytes).map_err(|error| StoreError::io(&name, error))?;
        match Head::decode(&bytes, Kind::Chapter) {
            Ok(head) if (head.number, head.sequence) != (journal.into(), first) => {
                let what = format!("it is of journal {}, from entry {} on", head.number, head.sequence);
                Err(damaged(&name, 0, &what))
            }
            Ok(head) if head.bytes <= first => Ok(Chapter::new(journal, first, head.bytes, head.link)),
            Ok(_) => Err(damaged(&name, 0, "it begins before the one before it ends")),
            Err(HeadError::Damaged) => Err(damaged(&name, 0, "its head does not match its checksum")),
            Err(HeadError::Version(found)) => Err(unknown_version(&name, found)),
        }
    }

    /// Where the chapter before it ends, by its head.
    pub fn after_of(file: &dyn DiskFile, journal: u8, first: u64) -> Result<u64, StoreError> {
        Chapter::begun(file, journal, first).map(|begun| begun.after)
    }

    /// The link that its head names, for whoever compares it with the chapter before.
    pub fn link_before(file: &dyn DiskFile, journal: u8, first: u64) -> Result<u32, StoreError> {
        Chapter::begun(file, journal, first).map(|begun| begun.link)
    }

    /// Where to begin looking for an entry.
    pub fn index(&self, file: &dyn DiskFile) -> Result<Vec<Stretch>, StoreError> {
        if let Some(stretches) = &self.stretches {
            return Ok(stretches.clone());
        }
        let name = self.name();
        let failed = |error| StoreError::io(&name, error);
        // The tail told how long it is, and the file is as long as it was.
        let length = self.bytes.saturating_sub(self.blocks_end).saturating_sub(TAIL_BYTES as u64) as usize;
        let mut bytes = vec![0; length + TAIL_BYTES];
        let count = file.read_at(self.blocks_end, &mut bytes).map_err(failed)?;
        let (index, tail) = bytes.split_at(length);
        if count < bytes.len() || u32_at(tail, 28) != crc32fast::hash(index) {
            return Err(damaged(&name, self.blocks_end, "its index does not match its checksum"));
        }
        let stretch = |bytes: &[u8]| Stretch {
            first: u64_at(bytes, 0),
            offset: u64_at(bytes, 8),
            latest_ms: u64_at(bytes, 16).cast_signed(),
        };
        Ok(index.chunks_exact(STRETCH_BYTES).map(stretch).collect())
    }

    /// Every block of it.
    pub fn check(&self, file: &dyn DiskFile) -> Result<(), StoreError> {
        let name = self.name();
        let mut walk = Walk::new(file, &name, HEAD_BYTES as u64, self.blocks_end);
        (walk.link, walk.next) = (Some(Chapter::link_before(file, self.journal, self.first)?), self.first);
        while let Some(block) = walk.head()? {
            walk.entries(&block)?.for_each(drop);
            walk.pass(&block);
        }
        match walk.next == self.end && walk.link == Some(self.link) {
            true => Ok(()),
            false => Err(damaged(&name, self.blocks_end, "its blocks do not end as its index says")),
        }
    }
}

/// The head of a block whose own checksum was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    entries_bytes: u32,
    pub first: u64,
    count: u32,
    entries_checksum: u32,
    pub latest_ms: i64,
    link: u32,
    checksum: u32,
}

impl Block {
    /// The next block of these entries, and how many of them it has.
    pub fn encode(buffer: &mut Vec<u8>, first: u64, entries: &[NewEntry<'_>], link: u32) -> (Block, usize) {
        buffer.clear();
        buffer.resize(BLOCK_HEAD_BYTES, 0);
        let (mut count, mut latest_ms) = (0, i64::MIN);
        for entry in entries {
            buffer.extend_from_slice(&entry.at_ms.to_le_bytes());
            // A batch takes no entry that is longer than its bound.
            buffer.extend_from_slice(&(entry.value.len() as u32).to_le_bytes());
            buffer.extend_from_slice(entry.value);
            latest_ms = latest_ms.max(entry.at_ms);
            count += 1;
            if buffer.len() >= BLOCK_BYTES {
                break;
            }
        }
        let (head, body) = buffer.split_at_mut(BLOCK_HEAD_BYTES);
        let entries_checksum = crc32fast::hash(body);
        let entries_bytes = body.len() as u32;
        head[..4].copy_from_slice(&BLOCK_MARK.to_le_bytes());
        head[4..8].copy_from_slice(&entries_bytes.to_le_bytes());
        head[8..16].copy_from_slice(&first.to_le_bytes());
        head[16..20].copy_from_slice(&(count as u32).to_le_bytes());
        head[20..24].copy_from_slice(&entries_checksum.to_le_bytes());
        head[24..32].copy_from_slice(&latest_ms.to_le_bytes());
        head[32..36].copy_from_slice(&link.to_le_bytes());
        let checksum = crc32fast::hash(&head[..36]);
        head[36..].copy_from_slice(&checksum.to_le_bytes());
        let block = Block { entries_bytes, first, count: count as u32, entries_checksum, latest_ms, link, checksum };
        (block, count)
    }

    fn decode(bytes: &[u8]) -> Option<Block> {
        let sound = u32_at(bytes, 0) == BLOCK_MARK && u32_at(bytes, 36) == crc32fast::hash(bytes.get(..36)?);
        sound.then(|| Block {
            entries_bytes: u32_at(bytes, 4),
            first: u64_at(bytes, 8),
            count: u32_at(bytes, 16),
            entries_checksum: u32_at(bytes, 20),
            latest_ms: u64_at(bytes, 24).cast_signed(),
            link: u32_at(bytes, 32),
            checksum: u32_at(bytes, 36),
        })
    }

    /// One past its last entry.
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.count.into())
    }

    fn bytes(&self) -> u64 {
        BLOCK_HEAD_BYTES as u64 + u64::from(self.entries_bytes)
    }
}

/// Goes from block to block.
pub struct Walk<'a> {
    window: Window<'a>,
    offset: u64,
    end: u64,
    /// What the next block must name as the one before it; `None` in the middle of a chapter.
    link: Option<u32>,
    /// The sequence that the next block must begin with; 0 in the middle of a chapter.
    next: u64,
}

impl<'a> Walk<'a> {
    pub fn new(file: &'a dyn DiskFile, name: &'a str, offset: u64, end: u64) -> Walk<'a> {
        Walk { window: Window::new(file, name, end), offset, end, link: None, next: 0 }
    }

    /// The block here; `None` at the end.
    pub fn head(&mut self) -> Result<Option<Block>, StoreError> {
        if self.offset >= self.end {
            return Ok(None);
        }
        let name = self.window.name();
        let found = self.window.get(self.offset, BLOCK_HEAD_BYTES)?.and_then(Block::decode);
        let Some(block) = found else {
            return Err(damaged(name, self.offset, "the head of a block does not match its checksum"));
        };
        if block.entries_bytes as usize > BLOCK_BYTES_MAX || block.count == 0 {
            return Err(damaged(name, self.offset, "a block is longer than any that is written"));
        }
        let follows = self.link.is_none_or(|link| link == block.link) && (self.next == 0 || self.next == block.first);
        match follows {
            true => Ok(Some(block)),
            false => Err(damaged(name, self.offset, "a block does not follow the one before it")),
        }
    }

    /// What is in the block here, by sequence and moment.
    pub fn entries(&mut self, block: &Block) -> Result<impl Iterator<Item = (u64, i64, &[u8])>, StoreError> {
        let name = self.window.name();
        let start = self.offset + BLOCK_HEAD_BYTES as u64;
        let wrong = |what: &str| damaged(name, start, what);
        let bytes = self.window.get(start, block.entries_bytes as usize)?;
        let bytes = bytes.filter(|bytes| crc32fast::hash(bytes) == block.entries_checksum);
        let bytes = bytes.ok_or_else(|| wrong("a block does not match its checksum"))?;
        let count = Raw(bytes).count();
        if count as u64 != u64::from(block.count) {
            return Err(wrong("the entries of a block cannot be read"));
        }
        Ok((block.first..).zip(Raw(bytes)).map(|(sequence, (at_ms, value))| (sequence, at_ms, value)))
    }

    pub fn pass(&mut self, block: &Block) {
        self.offset += block.bytes();
        (self.link, self.next) = (Some(block.checksum), block.end());
    }
}

/// Entries out of bytes that passed their checksum.
struct Raw<'a>(&'a [u8]);

impl<'a> Iterator for Raw<'a> {
    type Item = (i64, &'a [u8]);

    fn next(&mut self) -> Option<(i64, &'a [u8])> {
        let (head, body) = self.0.split_at_checked(ENTRY_HEAD_BYTES)?;
        let (value, rest) = body.split_at_checked(u32_at(head, 8) as usize)?;
        self.0 = rest;
        Some((u64_at(head, 0).cast_signed(), value))
    }
}

pub fn damaged(name: &str, offset: u64, what: &str) -> StoreError {
    StoreError::Corrupt { file: name.to_owned(), offset, what: what.to_owned() }
}
