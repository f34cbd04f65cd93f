//! Up to where the entries of each journal were retired, in a small file of its own.
//!
//! Without it a chapter that somebody removed would look like one that was retired, and entries that are still in the log would
//! come back at the next start. It is made in full before it is needed and written in place: on a full disk, too, there is room
//! to say what may go. A slot lies in one sector, so that it is written whole or not at all.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use super::chapter::damaged;
use crate::disk::{Disk, DiskFile};
use crate::embedded::format::{u64_at, unfinished_name};
use crate::embedded::scan::is_zero;
use crate::error::StoreError;

pub const FLOORS_NAME: &str = "journals";

const SLOT_BYTES: usize = 32;
const MAGIC: &[u8; 8] = b"BURSARJF";

/// The first entry of each journal that is not retired; those without are at 1.
pub type Floors = BTreeMap<u8, u64>;

/// `None`: there is no such file, and no entry was ever laid out.
pub fn read(disk: &dyn Disk, names: &[String]) -> Result<Option<Floors>, StoreError> {
    if !names.iter().any(|name| name == FLOORS_NAME) {
        return Ok(None);
    }
    let failed = |error| StoreError::io(FLOORS_NAME, error);
    let mut bytes = encode(&Floors::new());
    let count = disk.open(FLOORS_NAME).map_err(failed)?.read_at(0, &mut bytes).map_err(failed)?;
    if count < bytes.len() {
        return Err(damaged(FLOORS_NAME, count as u64, "it was cut"));
    }
    let mut floors = Floors::new();
    for (journal, slot) in (0..=u8::MAX).zip(bytes.chunks_exact(SLOT_BYTES)) {
        if is_zero(slot) {
            continue;
        }
        let floor = u64_at(slot, 16);
        if slot != encode_slot(journal, floor) {
            let offset = usize::from(journal) * SLOT_BYTES;
            return Err(damaged(FLOORS_NAME, offset as u64, "it does not match its checksum"));
        }
        floors.insert(journal, floor);
    }
    Ok(Some(floors))
}

/// Makes the file, if there is none.
pub fn make(disk: &dyn Disk) -> Result<(), StoreError> {
    let failed = |error| StoreError::io(FLOORS_NAME, error);
    match disk.open(FLOORS_NAME) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        opened => return opened.map(drop).map_err(failed),
    }
    let unfinished = unfinished_name(FLOORS_NAME);
    let file = match disk.create(&unfinished) {
        // An attempt that the full disk ended.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => disk.open(&unfinished),
        created => created,
    };
    let file = file.map_err(failed)?;
    file.write_at(0, &encode(&Floors::new())).map_err(failed)?;
    file.sync_data().map_err(failed)?;
    disk.rename(&unfinished, FLOORS_NAME).map_err(failed)?;
    disk.sync_dir().map_err(|error| StoreError::io(disk.place(), error))
}

/// Durable on return.
pub fn raise(disk: &dyn Disk, journal: u8, floor: u64) -> Result<(), StoreError> {
    let failed = |error| StoreError::io(FLOORS_NAME, error);
    let file: Box<dyn DiskFile> = disk.open(FLOORS_NAME).map_err(failed)?;
    let offset = usize::from(journal) * SLOT_BYTES;
    file.write_at(offset as u64, &encode_slot(journal, floor)).map_err(failed)?;
    file.sync_data().map_err(failed)
}

/// Writes all of them once more. Durable on return.
pub fn rewrite(disk: &dyn Disk, floors: &Floors) -> Result<(), StoreError> {
    let file = disk.open(FLOORS_NAME).map_err(|error| StoreError::io(FLOORS_NAME, error))?;
    let written = file.write_at(0, &encode(floors)).and_then(|()| file.sync_data());
    written.map_err(|error| StoreError::io(FLOORS_NAME, error))
}

/// The whole file.
pub fn encode(floors: &Floors) -> Vec<u8> {
    (0..=u8::MAX)
        .flat_map(|journal| floors.get(&journal).map_or([0; SLOT_BYTES], |floor| encode_slot(journal, *floor)))
        .collect()
}

fn encode_slot(journal: u8, floor: u64) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8] = journal;
    bytes[16..24].copy_from_slice(&floor.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..28]);
    bytes[28..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}
