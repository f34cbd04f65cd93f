//! How far the log was synced, in a small file of its own.
//!
//! A log that ends early looks like one that was never longer, so something outside of it has to remember. The mark is written
//! after every sync and before its answer, and is not synced itself: a process that ends in any way leaves it behind, and after
//! a power failure it is merely older, which proves less and never anything wrong. So it costs no further sync.

use super::format::unfinished_name;
use super::scan::is_zero;
use crate::disk::{Disk, DiskFile};
use crate::error::StoreError;

pub const MARK_NAME: &str = "synced";

/// The mark lies in one sector, so that it is written whole or not at all.
const MARK_BYTES: usize = 24;
const MAGIC: &[u8; 8] = b"BURSARMK";

pub struct Mark {
    file: Box<dyn DiskFile>,
}

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marked {
    /// There is no such file, as in folders of the first format, or it was never written.
    Nothing,
    /// Frames up to this one were synced.
    Frame(u64),
    Damaged,
}

impl Mark {
    pub fn read(disk: &dyn Disk, names: &[String]) -> Result<Marked, StoreError> {
        if !names.iter().any(|name| name == MARK_NAME) {
            return Ok(Marked::Nothing);
        }
        let failed = |error| StoreError::io(MARK_NAME, error);
        let mut bytes = [0; MARK_BYTES];
        let count = disk.open(MARK_NAME).map_err(failed)?.read_at(0, &mut bytes).map_err(failed)?;
        Ok(decode(&bytes[..count]))
    }

    /// Writes the mark durably, for the first time or again.
    pub fn open(disk: &dyn Disk, sequence: u64) -> Result<Mark, StoreError> {
        let failed = |error| StoreError::io(MARK_NAME, error);
        let file = match disk.open(MARK_NAME) {
            Ok(file) => {
                file.write_at(0, &encode(sequence)).map_err(failed)?;
                file.sync_data().map_err(failed)?;
                file
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let unfinished = unfinished_name(MARK_NAME);
                let file = disk.create(&unfinished).map_err(failed)?;
                file.write_at(0, &encode(sequence)).map_err(failed)?;
                file.sync_data().map_err(failed)?;
                disk.rename(&unfinished, MARK_NAME).map_err(failed)?;
                disk.sync_dir().map_err(|error| StoreError::io(disk.place(), error))?;
                file
            }
            Err(error) => return Err(failed(error)),
        };
        Ok(Mark { file })
    }

    /// Called when a frame is durable. It is evidence and not the data: if it cannot be written, the frame is durable all the
    /// same, and an older mark says nothing wrong.
    pub fn set(&self, sequence: u64) {
        let _older = self.file.write_at(0, &encode(sequence));
    }

    /// At a clean end, so that not even a power failure afterwards makes it older.
    pub fn sync(&self) {
        let _older = self.file.sync_data();
    }
}

pub fn encode(sequence: u64) -> [u8; MARK_BYTES] {
    let mut bytes = [0; MARK_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&sequence.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..20]);
    bytes[20..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Marked {
    let sequence = bytes.get(8..16).and_then(|eight| eight.try_into().ok()).map(u64::from_le_bytes);
    match sequence {
        _ if is_zero(bytes) => Marked::Nothing,
        Some(sequence) if bytes == encode(sequence) => Marked::Frame(sequence),
        _ => Marked::Damaged,
    }
}
