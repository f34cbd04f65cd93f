//! From the files of a folder back to its rows, and to the place where the log goes on.
//!
//! Everything is checked before anything is changed: a folder that is refused is left as it was found.

use std::sync::Arc;

use super::delta::Delta;
use super::format::{
    HEAD_BYTES, Head, HeadError, Kind, is_disposable, number_in, segment_name, snapshot_name, unfinished_name,
};
use super::log::{Segment, Spare, write_zeros};
use super::scan::{End, Scan, scan};
use super::snapshot::Snapshot;
use super::upkeep::Sealed;
use crate::Visit;
use crate::batch::Rows;
use crate::disk::Disk;
use crate::error::StoreError;

/// What a start has found.
pub struct Recovered {
    pub snapshot: Option<Snapshot>,
    /// Full segments whose rows are not all in the snapshot.
    pub sealed: Vec<Sealed>,
    pub current: Segment,
}

/// One segment of the log, read whole.
struct Loaded {
    number: u64,
    head: Head,
    bytes: Vec<u8>,
}

pub fn recover(disk: &Arc<dyn Disk>, segment_bytes: u64, visit: &mut Visit<'_>) -> Result<Recovered, StoreError> {
    let names = disk.list().map_err(|error| StoreError::io(disk.place(), error))?;
    let newest = names.iter().filter_map(|name| number_in(name, Kind::Snapshot)).max();
    let snapshot = newest.map(|sequence| Snapshot::find(&**disk, sequence)).transpose()?;
    let covered = snapshot.as_ref().map_or(0, |snapshot| snapshot.sequence);
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_in(name, Kind::Segment)).collect();
    numbers.sort_unstable();
    let Some(log) = read_log(&**disk, &numbers, covered)? else {
        if snapshot.is_some() {
            return Err(missing(&segment_name(1), "the log is missing although there is a snapshot"));
        }
        remove_leftovers(&**disk, &names, 0, 0)?;
        let spare = Spare::make(&**disk, unfinished_name(&segment_name(1)), segment_bytes)?;
        let current = Segment::begin(&**disk, spare, 1, 1)?;
        return Ok(Recovered { snapshot: None, sealed: Vec::new(), current });
    };

    let mut delta = Delta::default();
    let scans = scan_log(&log, covered, &mut delta)?;
    if let Some(snapshot) = &snapshot {
        snapshot.read(&**disk, &mut |row| {
            if let (false, Some(value)) = (delta.touches(row), row.value) {
                visit(row.table, row.key, value);
            }
            Ok(())
        })?;
    }
    for row in delta.rows() {
        if let Some(value) = row.value {
            visit(row.table, row.key, value);
        }
    }

    let (last, last_scan) = match (log.last(), scans.last()) {
        (Some(last), Some(scan)) => (last, scan),
        _ => return Err(missing(&segment_name(1), "the log has no segment")),
    };
    let current = resume(&**disk, last, last_scan)?;
    let sealed = log.iter().zip(&scans).take(log.len() - 1).map(|(segment, scan)| Sealed {
        number: segment.number,
        last: scan.next - 1,
        bytes: scan.end,
    });
    let sealed = sealed.collect();
    remove_leftovers(&**disk, &names, covered, log.first().map_or(0, |first| first.number))?;
    Ok(Recovered { snapshot, sealed, current })
}

/// Reads the segments that hold what the snapshot does not: from the newest back to the first that is needed. Older ones may
/// be there or not, in any number: they were being removed.
fn read_log(disk: &dyn Disk, numbers: &[u64], covered: u64) -> Result<Option<Vec<Loaded>>, StoreError> {
    let mut log: Vec<Loaded> = Vec::new();
    for number in numbers.iter().rev().copied() {
        if let Some(after) = log.last() {
            if after.head.sequence <= covered + 1 {
                break;
            }
            if number + 1 != after.number {
                return Err(missing(&segment_name(number + 1), "a segment of the log is missing"));
            }
        }
        log.push(read_segment(disk, number)?);
    }
    if let Some(first) = log.last().filter(|first| first.head.sequence > covered + 1) {
        let before = match first.number {
            0 | 1 => snapshot_name(first.head.sequence - 1),
            number => segment_name(number - 1),
        };
        return Err(missing(&before, "the log begins later than it should"));
    }
    log.reverse();
    Ok((!log.is_empty()).then_some(log))
}

fn read_segment(disk: &dyn Disk, number: u64) -> Result<Loaded, StoreError> {
    let name = segment_name(number);
    let failed = |error| StoreError::io(&name, error);
    let file = disk.open(&name).map_err(failed)?;
    let length = usize::try_from(file.len().map_err(failed)?)
        .map_err(|_| damaged(&name, 0, "it is longer than this machine can read"))?;
    let mut bytes = vec![0; length];
    let count = file.read_at(0, &mut bytes).map_err(failed)?;
    bytes.truncate(count);
    match Head::decode(bytes.get(..HEAD_BYTES).unwrap_or_default(), Kind::Segment) {
        Ok(head) if head.number == number => Ok(Loaded { number, head, bytes }),
        Ok(head) => Err(damaged(&name, 0, &format!("it is segment {} under another name", head.number))),
        Err(HeadError::Damaged) => Err(damaged(&name, 0, "its head does not match its checksum")),
        Err(HeadError::Version(found)) => Err(super::unknown_version(&name, found)),
    }
}

/// Walks every frame of the log into `delta`. Only the very last frame may be torn.
fn scan_log<'a>(log: &'a [Loaded], covered: u64, delta: &mut Delta<'a>) -> Result<Vec<Scan>, StoreError> {
    let mut scans: Vec<Scan> = Vec::new();
    for (index, segment) in log.iter().enumerate() {
        let name = segment_name(segment.number);
        if let Some(before) = scans.last().filter(|before| before.next != segment.head.sequence) {
            let what = format!("it begins with frame {}, expected {}", segment.head.sequence, before.next);
            return Err(damaged(&name, 0, &what));
        }
        let found = scan(&segment.bytes, segment.head.sequence, &mut |sequence, rows: Rows<'a>| {
            if sequence > covered {
                rows.for_each(|row| delta.apply(row));
            }
        });
        let last = index + 1 == log.len();
        match &found.verdict {
            End::Clean => {}
            End::Torn if last => {}
            End::Torn => return Err(damaged(&name, found.end, "a frame is incomplete although a segment follows")),
            End::Damaged(what) => return Err(damaged(&name, found.end, what)),
        }
        if last && found.next <= covered {
            let what = format!("the log ends with frame {}, the snapshot holds {covered}", found.next - 1);
            return Err(damaged(&name, found.end, &what));
        }
        scans.push(found);
    }
    Ok(scans)
}

/// Opens the last segment for writing, wiping out a torn tail so that behind the last frame there are zeros again.
///
/// What was just read may be in the kernel's memory only: after a failed sync it takes the pages for written, and a process
/// that starts again reads them back. So everything that is believed is written and synced once more, and the names, too,
/// before anything is built on it.
fn resume(disk: &dyn Disk, last: &Loaded, scan: &Scan) -> Result<Segment, StoreError> {
    let name = segment_name(last.number);
    let failed = |error| StoreError::io(&name, error);
    let file = disk.open(&name).map_err(failed)?;
    let believed = usize::try_from(scan.end).ok().and_then(|end| last.bytes.get(..end)).unwrap_or(&last.bytes);
    file.write_at(0, believed).map_err(failed)?;
    file.sync_data().map_err(failed)?;
    disk.sync_dir().map_err(|error| StoreError::io(disk.place(), error))?;
    if scan.verdict == End::Torn {
        let written = last.bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at as u64 + 1);
        write_zeros(&*file, scan.end, written).map_err(failed)?;
    }
    Segment::resume(file, last.number, scan.end, scan.next)
}

/// Removes what an earlier run was about to remove or had not finished.
fn remove_leftovers(disk: &dyn Disk, names: &[String], covered: u64, first: u64) -> Result<(), StoreError> {
    for name in names {
        let obsolete = number_in(name, Kind::Snapshot).is_some_and(|sequence| sequence < covered)
            || number_in(name, Kind::Segment).is_some_and(|number| number < first)
            || is_disposable(name);
        if obsolete {
            disk.remove(name).map_err(|error| StoreError::io(name, error))?;
        }
    }
    Ok(())
}

fn damaged(name: &str, offset: u64, what: &str) -> StoreError {
    StoreError::Corrupt { file: name.to_owned(), offset, what: what.to_owned() }
}

fn missing(name: &str, what: &str) -> StoreError {
    damaged(name, 0, what)
}
