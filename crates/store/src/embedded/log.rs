//! The end of the log: where the next frame goes.

use super::format::{
    ENTRIES_VERSION, FORMAT_VERSION, FRAMES_START, Head, Kind, encode_frame, frame_bytes, segment_name,
};
use super::upkeep::Position;
use crate::disk::{Disk, DiskFile};
use crate::error::StoreError;

/// Zeros are written in pieces of this size, each synced, so that the log's own syncs never wait for a whole segment of them.
const ZEROS_BYTES: usize = 1024 * 1024;

/// Where the frames of a segment end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub offset: u64,
    /// The sequence the next frame has.
    pub next: u64,
    /// The checksum of the last frame's head.
    pub link: u32,
}

/// The segment that is being written.
pub struct Segment {
    file: Box<dyn DiskFile>,
    pub number: u64,
    /// Where the next frame goes.
    pub offset: u64,
    /// The length of the file. Everything from `offset` on is zero.
    pub capacity: u64,
    /// The sequence of the next frame.
    pub next: u64,
    /// The checksum of the last frame's head.
    pub link: u32,
    version: u32,
    /// The frame under construction, kept for its memory.
    frame: Vec<u8>,
}

impl Segment {
    /// A segment that has frames already, or none yet.
    pub fn resume(file: Box<dyn DiskFile>, head: &Head, end: End) -> Result<Segment, StoreError> {
        let (number, version) = (head.number, head.version);
        let capacity = file.len().map_err(|error| StoreError::io(segment_name(number), error))?;
        let End { offset, next, link } = end;
        Ok(Segment { file, number, offset, capacity, next, link, version, frame: Vec::new() })
    }

    /// Makes the spare the next segment. Its head is durable before its name is, so a segment never lacks one.
    pub fn begin(disk: &dyn Disk, spare: Spare, number: u64, next: u64, link: u32) -> Result<Segment, StoreError> {
        let name = segment_name(number);
        let failed = |error| StoreError::io(&name, error);
        let Spare { file, name: spare_name } = spare;
        let bytes = file.len().map_err(failed)?;
        let head = Head { number, sequence: next, bytes, link, version: FORMAT_VERSION };
        file.write_at(0, &head.encode(Kind::Segment)).map_err(failed)?;
        file.sync_data().map_err(failed)?;
        disk.rename(&spare_name, &name).map_err(failed)?;
        disk.sync_dir().map_err(|error| StoreError::io(disk.place(), error))?;
        Segment::resume(file, &head, End { offset: FRAMES_START, next, link })
    }

    pub fn position(&self) -> Position {
        Position { number: self.number, offset: self.offset, next: self.next }
    }

    /// Bytes that can still be written to it.
    pub fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.offset)
    }

    pub fn has_room_for(&self, rows_bytes: usize) -> bool {
        self.offset + frame_bytes(rows_bytes) as u64 <= self.capacity
    }

    /// Whether its frames may have entries of journals. Those of earlier versions are not read by who would not know them.
    pub fn takes_entries(&self) -> bool {
        self.version >= ENTRIES_VERSION
    }

    /// Writes one frame and syncs it. After an error nothing is known about the frame, and nothing more may be written.
    pub fn append(&mut self, rows: &[u8], added: &[u8]) -> Result<(), StoreError> {
        self.frame.clear();
        let link = if self.version == 1 { 0 } else { self.link };
        let checksum = encode_frame(&mut self.frame, self.next, link, rows, added);
        self.file.write_at(self.offset, &self.frame).map_err(|error| self.failed(error))?;
        self.file.sync_data().map_err(|error| self.failed(error))?;
        self.offset += self.frame.len() as u64;
        self.next += 1;
        self.link = checksum;
        Ok(())
    }

    fn failed(&self, error: std::io::Error) -> StoreError {
        StoreError::io(segment_name(self.number), error)
    }
}

/// A file of zeros that can become a segment.
pub struct Spare {
    file: Box<dyn DiskFile>,
    name: String,
}

impl Spare {
    /// Zeros are really written: a sync of bytes that overwrite others costs half of one that also has to record where new
    /// blocks lie, and the space is ours before anybody needs it.
    pub fn make(disk: &dyn Disk, name: String, bytes: u64) -> Result<Spare, StoreError> {
        let made = disk.create(&name).and_then(|file| {
            write_zeros(&*file, 0, bytes)?;
            Ok(file)
        });
        match made {
            Ok(file) => Ok(Spare { file, name }),
            Err(error) => {
                // Gives back the space that was not enough. If even this fails, the next start removes the file.
                let _left_over = disk.remove(&name);
                Err(StoreError::io(disk.place(), error))
            }
        }
    }
}

/// Zeros from `start` up to `end`, durable on return.
pub fn write_zeros(file: &dyn DiskFile, start: u64, end: u64) -> std::io::Result<()> {
    let zeros = vec![0; ZEROS_BYTES];
    let mut offset = start;
    while offset < end {
        let length = (end - offset).min(ZEROS_BYTES as u64);
        file.write_at(offset, &zeros[..length as usize])?;
        file.sync_data()?;
        offset += length;
    }
    Ok(())
}

/// How long a segment must be to hold one frame with that many bytes of rows.
pub fn segment_bytes_for(rows_bytes: usize) -> u64 {
    FRAMES_START + frame_bytes(rows_bytes) as u64
}
