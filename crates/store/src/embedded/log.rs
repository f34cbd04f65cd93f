//! The end of the log: where the next frame goes.

use super::format::{FRAMES_START, Head, Kind, encode_frame, frame_bytes, segment_name};
use crate::disk::{Disk, DiskFile};
use crate::error::StoreError;

/// Zeros are written in pieces of this size, each synced, so that the log's own syncs never wait for a whole segment of them.
const ZEROS_BYTES: usize = 1024 * 1024;

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
    /// The frame under construction, kept for its memory.
    frame: Vec<u8>,
}

impl Segment {
    /// A segment that has frames already, or none yet.
    pub fn resume(file: Box<dyn DiskFile>, number: u64, offset: u64, next: u64) -> Result<Segment, StoreError> {
        let capacity = file.len().map_err(|error| StoreError::io(segment_name(number), error))?;
        Ok(Segment { file, number, offset, capacity, next, frame: Vec::new() })
    }

    /// Makes the spare the next segment. Its head is durable before its name is, so a segment never lacks one.
    pub fn begin(disk: &dyn Disk, spare: Spare, number: u64, next: u64) -> Result<Segment, StoreError> {
        let name = segment_name(number);
        let failed = |error| StoreError::io(&name, error);
        let Spare { file, name: spare_name } = spare;
        file.write_at(0, &Head { number, sequence: next }.encode(Kind::Segment)).map_err(failed)?;
        file.sync_data().map_err(failed)?;
        disk.rename(&spare_name, &name).map_err(failed)?;
        disk.sync_dir().map_err(|error| StoreError::io(disk.place(), error))?;
        Segment::resume(file, number, FRAMES_START, next)
    }

    pub fn has_room_for(&self, rows_bytes: usize) -> bool {
        self.offset + frame_bytes(rows_bytes) as u64 <= self.capacity
    }

    /// Writes one frame and syncs it. After an error nothing is known about the frame, and nothing more may be written.
    pub fn append(&mut self, rows: &[u8]) -> Result<(), StoreError> {
        self.frame.clear();
        encode_frame(&mut self.frame, self.next, rows);
        self.file.write_at(self.offset, &self.frame).map_err(|error| self.failed(error))?;
        self.file.sync_data().map_err(|error| self.failed(error))?;
        self.offset += self.frame.len() as u64;
        self.next += 1;
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
