//! All rows as they were behind one frame of the log, in a file of their own, so that the log before it can go.
//!
//! Rows are in no order: they are only ever read from the first to the last.

use std::sync::atomic::{AtomicBool, Ordering};

use super::delta::Delta;
use super::format::{
    BLOCK_HEAD_BYTES, BlockHead, FORMAT_VERSION, HEAD_BYTES, Head, HeadError, Kind, RESERVE_NAME, snapshot_name,
    unfinished_name,
};
use crate::batch::{Batch, Row, Rows};
use crate::disk::{Disk, DiskFile};
use crate::error::StoreError;

/// Rows of one block. Large enough to read at the speed of the disk, small enough to point at damage.
const BLOCK_BYTES: usize = 256 * 1024;

/// The longest block accepted when reading: one row of the greatest length can stand alone in a block.
const BLOCK_BYTES_MAX: usize = crate::VALUE_BYTES_MAX + crate::KEY_BYTES_MAX + 2 * BLOCK_BYTES;

/// A snapshot is synced in pieces, so that the log, whose syncs people wait for, never queues behind all of it.
const SYNC_BYTES: u64 = 2 * 1024 * 1024;

/// A finished snapshot in the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last frame of the log whose rows it holds.
    pub sequence: u64,
    pub bytes: u64,
    /// The checksum of that frame's head; 0 in files of version 1.
    pub link: u32,
}

impl Snapshot {
    pub fn name(&self) -> String {
        snapshot_name(self.sequence)
    }

    /// Opens the newest of the folder's snapshots and checks its head.
    pub fn find(disk: &dyn Disk, sequence: u64) -> Result<Snapshot, StoreError> {
        let name = snapshot_name(sequence);
        let file = disk.open(&name).map_err(|error| StoreError::io(&name, error))?;
        let mut head = [0; HEAD_BYTES];
        file.read_at(0, &mut head).map_err(|error| StoreError::io(&name, error))?;
        let bytes = file.len().map_err(|error| StoreError::io(&name, error))?;
        match Head::decode(&head, Kind::Snapshot) {
            Ok(head) if head.sequence == sequence => Ok(Snapshot { sequence, bytes, link: head.link }),
            Ok(head) => Err(damaged(&name, 0, &format!("it is the snapshot of frame {}", head.sequence))),
            Err(HeadError::Damaged) => Err(damaged(&name, 0, "its head does not match its checksum")),
            Err(HeadError::Version(found)) => Err(super::unknown_version(&name, found)),
        }
    }

    /// Visits every row.
    pub fn read(
        &self,
        disk: &dyn Disk,
        visit: &mut dyn FnMut(Row<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let name = self.name();
        let file = disk.open(&name).map_err(|error| StoreError::io(&name, error))?;
        let mut buffer = Vec::new();
        let mut offset = HEAD_BYTES as u64;
        let mut rows_seen = 0_u64;
        loop {
            let block = read_block(&*file, &name, offset, &mut buffer)?;
            let mut rows = Rows::decode(&buffer);
            let mut count = 0_u64;
            for row in rows.by_ref() {
                count += 1;
                visit(row)?;
            }
            if !rows.rest().is_empty() || (block.rows_bytes > 0 && count != u64::from(block.rows)) {
                return Err(damaged(&name, offset, "the rows of a block cannot be read"));
            }
            offset += (BLOCK_HEAD_BYTES + buffer.len()) as u64;
            rows_seen += count;
            if block.rows_bytes == 0 {
                return match block.rows == low_half(rows_seen) && offset == self.bytes {
                    true => Ok(()),
                    false => Err(damaged(&name, offset, "it does not end where it should")),
                };
            }
        }
    }
}

/// Reads the block at `offset` into `buffer`.
fn read_block(file: &dyn DiskFile, name: &str, offset: u64, buffer: &mut Vec<u8>) -> Result<BlockHead, StoreError> {
    let mut head = [0; BLOCK_HEAD_BYTES];
    let count = file.read_at(offset, &mut head).map_err(|error| StoreError::io(name, error))?;
    let Some(head) = BlockHead::decode(&head).filter(|_| count == BLOCK_HEAD_BYTES) else {
        return Err(damaged(name, offset, "the head of a block does not match its checksum"));
    };
    if head.rows_bytes as usize > BLOCK_BYTES_MAX {
        return Err(damaged(name, offset, "a block is longer than any that is written"));
    }
    buffer.clear();
    buffer.resize(head.rows_bytes as usize, 0);
    let count = file.read_at(offset + BLOCK_HEAD_BYTES as u64, buffer).map_err(|error| StoreError::io(name, error))?;
    if count != buffer.len() || crc32fast::hash(buffer) != head.rows_checksum {
        return Err(damaged(name, offset, "a block does not match its checksum"));
    }
    Ok(head)
}

/// Where a snapshot is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    New,
    /// Over the reserve, whose bytes are already ours.
    Reserve,
}

/// Writes the snapshot that follows from `old` and what the log changed since. On return it is durable under its name. It gives
/// up, leaving nothing, when it is told to stop.
pub fn write(
    disk: &dyn Disk,
    place: Place,
    old: Option<&Snapshot>,
    delta: &Delta<'_>,
    (sequence, link): (u64, u32),
    stopping: &AtomicBool,
) -> Result<Snapshot, StoreError> {
    let name = snapshot_name(sequence);
    let unfinished = unfinished_name(&name);
    let written = write_file(disk, place, &unfinished, old, delta, (sequence, link), stopping).and_then(|bytes| {
        disk.rename(&unfinished, &name).map_err(|error| StoreError::io(&name, error))?;
        disk.sync_dir().map_err(|error| StoreError::io(disk.place(), error))?;
        Ok(Snapshot { sequence, bytes, link })
    });
    if written.is_err() {
        // It may hold the very space that is missing. If even this fails, the next start removes it.
        let _left_over = disk.remove(&unfinished);
    }
    written
}

/// About how many bytes that snapshot would have.
pub fn measure(disk: &dyn Disk, old: Option<&Snapshot>, delta: &Delta<'_>) -> Result<u64, StoreError> {
    let length = |row: Row<'_>| (row.key.len() + row.value.map_or(0, <[u8]>::len)) as u64;
    let mut bytes = HEAD_BYTES as u64;
    if let Some(old) = old {
        old.read(disk, &mut |row| {
            bytes += if delta.touches(row) { 0 } else { length(row) };
            Ok(())
        })?;
    }
    Ok(bytes + delta.rows().filter(|row| row.value.is_some()).map(length).sum::<u64>())
}

fn write_file(
    disk: &dyn Disk,
    place: Place,
    name: &str,
    old: Option<&Snapshot>,
    delta: &Delta<'_>,
    (sequence, link): (u64, u32),
    stopping: &AtomicBool,
) -> Result<u64, StoreError> {
    let failed = |error| StoreError::io(name, error);
    let file = match place {
        Place::New => disk.create(name),
        // Durably, before it becomes a snapshot: a crash must not leave both names to one file.
        Place::Reserve => disk.rename(RESERVE_NAME, name).and_then(|()| disk.sync_dir()).and_then(|()| disk.open(name)),
    };
    let file = file.map_err(failed)?;
    let head = Head { number: 0, sequence, bytes: 0, link, version: FORMAT_VERSION };
    file.write_at(0, &head.encode(Kind::Snapshot)).map_err(failed)?;
    let mut writer =
        Blocks { file: &*file, name, block: Batch::new(), offset: HEAD_BYTES as u64, synced: 0, rows: 0, stopping };
    if let Some(old) = old {
        old.read(disk, &mut |row| match delta.touches(row) {
            true => Ok(()),
            false => writer.push(row),
        })?;
    }
    for row in delta.rows().filter(|row| row.value.is_some()) {
        writer.push(row)?;
    }
    writer.finish()
}

struct Blocks<'a> {
    file: &'a dyn DiskFile,
    name: &'a str,
    block: Batch,
    offset: u64,
    synced: u64,
    rows: u64,
    stopping: &'a AtomicBool,
}

impl Blocks<'_> {
    fn push(&mut self, row: Row<'_>) -> Result<(), StoreError> {
        self.block.push_any(row);
        if self.block.bytes() >= BLOCK_BYTES { self.write_block() } else { Ok(()) }
    }

    fn finish(mut self) -> Result<u64, StoreError> {
        if !self.block.is_empty() {
            self.write_block()?;
        }
        let closing = BlockHead { rows_bytes: 0, rows_checksum: 0, rows: low_half(self.rows) };
        self.write(&closing.encode())?;
        // What is left of the reserve behind it. Its length is not asked for: one that was cut before a failed sync may be
        // longer on the disk than the kernel says.
        self.file.set_len(self.offset).map_err(|error| StoreError::io(self.name, error))?;
        self.file.sync_data().map_err(|error| StoreError::io(self.name, error))?;
        Ok(self.offset)
    }

    fn write_block(&mut self) -> Result<(), StoreError> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(StoreError::Unusable { why: "it is being closed".to_owned() });
        }
        let rows = self.block.encoded();
        let head = BlockHead {
            // A block holds at most one row more than BLOCK_BYTES, far below u32::MAX.
            rows_bytes: rows.len() as u32,
            rows_checksum: crc32fast::hash(rows),
            rows: self.block.len() as u32,
        };
        self.rows += self.block.len() as u64;
        let block = std::mem::take(&mut self.block);
        self.write(&head.encode())?;
        self.write(block.encoded())?;
        self.block = block;
        self.block.clear();
        if self.offset - self.synced >= SYNC_BYTES {
            self.file.sync_data().map_err(|error| StoreError::io(self.name, error))?;
            self.synced = self.offset;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_at(self.offset, bytes).map_err(|error| StoreError::io(self.name, error))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

fn low_half(rows: u64) -> u32 {
    (rows & u64::from(u32::MAX)) as u32
}

fn damaged(name: &str, offset: u64, what: &str) -> StoreError {
    StoreError::Corrupt { file: name.to_owned(), offset, what: what.to_owned() }
}
