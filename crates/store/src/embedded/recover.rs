//! From the files of a folder back to its rows, and to the place where the log goes on.
//!
//! Everything is checked before anything is changed: a folder that is refused is left as it was found.

use super::delta::Delta;
use super::format::{
    HEAD_BYTES, Head, HeadError, Kind, REWOUND_NAME, is_disposable, number_in, segment_name, snapshot_name,
    unfinished_name,
};
use super::journals::{self, Counting};
use super::log::{self, Segment, Spare, write_zeros};
use super::mark::{MARK_NAME, Mark, Marked};
use super::scan::{End, Scan, scan};
use super::snapshot::Snapshot;
use super::upkeep::{Position, Sealed};
use super::{Dropped, Options};
use crate::Visit;
use crate::batch::{Row, Table};
use crate::disk::Disk;
use crate::error::StoreError;

/// What a start goes on with.
pub struct Recovered {
    pub snapshot: Option<Snapshot>,
    /// Full segments whose rows are not all in the snapshot.
    pub sealed: Vec<Sealed>,
    pub current: Segment,
    pub mark: Mark,
    pub dropped: Option<Dropped>,
    /// Acknowledged writes are missing: this folder was restored from a backup, or its operator accepted their loss.
    pub rewound: bool,
    pub journals: journals::Found,
    pub counting: Counting,
}

/// What the files say, before anything is changed.
pub struct Found {
    pub snapshot: Option<Snapshot>,
    names: Vec<String>,
    /// Nothing in a folder that was never used.
    log: Vec<(Loaded, Scan)>,
    pub dropped: Option<Dropped>,
    /// The log's end is missing, and that is accepted.
    accepted: bool,
    pub journals: journals::Found,
    /// The numbers that journals have given.
    counting: Counting,
}

/// One segment of the log, read whole.
pub struct Loaded {
    pub head: Head,
    pub bytes: Vec<u8>,
}

pub fn recover(disk: &dyn Disk, options: &Options, visit: &mut Visit<'_>) -> Result<Recovered, StoreError> {
    let found = inspect(disk, options.accept_loss, visit)?;
    let sealed = found.sealed();
    let Found { snapshot, names, log, dropped, accepted, journals, counting } = found;
    let rewound = accepted || names.iter().any(|name| name == REWOUND_NAME);
    if accepted {
        // Before anything else is changed: what proves the loss is about to go.
        note_rewound(disk)?;
    }
    let Some((last, scan)) = log.last() else {
        remove_leftovers(disk, &names, 0, 0)?;
        journals.tidy(disk)?;
        // Before the first segment, so that a segment is never without a mark.
        let mark = Mark::open(disk, 0)?;
        let spare = Spare::make(disk, unfinished_name(&segment_name(1)), options.segment_bytes)?;
        let current = Segment::begin(disk, spare, 1, 1, 0)?;
        return Ok(Recovered { snapshot: None, sealed, current, mark, dropped, rewound, journals, counting });
    };
    let current = resume(disk, last, scan)?;
    let covered = snapshot.as_ref().map_or(0, |snapshot| snapshot.sequence);
    remove_leftovers(disk, &names, covered, log.first().map_or(0, |(first, _)| first.head.number))?;
    journals.tidy(disk)?;
    let mark = Mark::open(disk, scan.next - 1)?;
    Ok(Recovered { snapshot, sealed, current, mark, dropped, rewound, journals, counting })
}

/// Reads and checks everything, hands over every row, and changes nothing.
pub fn inspect(disk: &dyn Disk, accept_loss: bool, visit: &mut Visit<'_>) -> Result<Found, StoreError> {
    let names = disk.list().map_err(|error| StoreError::io(disk.place(), error))?;
    let newest = names.iter().filter_map(|name| number_in(name, Kind::Snapshot)).max();
    let snapshot = newest.map(|sequence| Snapshot::find(disk, sequence)).transpose()?;
    let covered = snapshot.as_ref().map_or(0, |snapshot| snapshot.sequence);
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_in(name, Kind::Segment)).collect();
    numbers.sort_unstable();
    let log = read_log(disk, &numbers, covered)?;
    if log.is_empty() && snapshot.is_some() {
        return Err(missing(&segment_name(1), "the log is missing although there is a snapshot"));
    }
    let mut delta = Delta::default();
    let (scans, log_from) = scan_log(&log, snapshot.as_ref(), &mut delta)?;
    let (dropped, accepted) = check_end(log.last().zip(scans.last()), Mark::read(disk, &names)?, accept_loss)?;
    let mut covered = Counting::default();
    if let Some(snapshot) = &snapshot {
        snapshot.read(disk, &mut |row| {
            if row.table == Table::JOURNALS {
                return count(&mut covered, row, &snapshot.name());
            }
            if let (false, Some(value)) = (delta.touches(row), row.value) {
                visit(row.table, row.key, value);
            }
            Ok(())
        })?;
    }
    let mut counting = covered.clone();
    for row in delta.rows() {
        if row.table == Table::JOURNALS {
            count(&mut counting, row, &segment_name(log.last().map_or(1, |last| last.head.number)))?;
        } else if let Some(value) = row.value {
            visit(row.table, row.key, value);
        }
    }
    drop(delta);
    let mut journals = journals::inspect(disk, &names, &covered)?;
    journals.log_from = log_from;
    let log = log.into_iter().zip(scans).collect();
    Ok(Found { snapshot, names, log, dropped, accepted, journals, counting })
}

/// Takes in a row of the store's own.
pub fn count(counting: &mut Counting, row: Row<'_>, name: &str) -> Result<(), StoreError> {
    match counting.take_in(row) {
        true => Ok(()),
        false => Err(damaged(name, 0, "it counts the entries of journals in a way that cannot be read")),
    }
}

impl Found {
    /// The segments before the last.
    pub fn sealed(&self) -> Vec<Sealed> {
        let full = self.log.split_last().map_or(&[][..], |(_, full)| full);
        full.iter()
            .map(|(segment, scan)| Sealed { number: segment.head.number, last: scan.next - 1, bytes: scan.end })
            .collect()
    }

    /// The last segment: its number, and where its frames end.
    pub fn current(&self) -> Option<(u64, log::End)> {
        let (segment, scan) = self.log.last()?;
        Some((segment.head.number, log::End { offset: scan.end, next: scan.next, link: scan.link }))
    }
}

/// Judges the end of the log by what is known from elsewhere: a file that is shorter than it was made, or a sync that reached
/// further, proves that acknowledged writes are missing. Also says whether that was the case, and is accepted.
fn check_end(
    last: Option<(&Loaded, &Scan)>,
    marked: Marked,
    accept_loss: bool,
) -> Result<(Option<Dropped>, bool), StoreError> {
    let name = last.map_or_else(|| segment_name(1), |(segment, _)| segment_name(segment.head.number));
    let held = last.map_or(0, |(_, scan)| scan.next - 1);
    let length = last.map_or(0, |(segment, _)| segment.bytes.len() as u64);
    let made = last.map_or(0, |(segment, _)| segment.head.bytes);
    let has_marks = last.is_some_and(|(segment, _)| segment.head.version > 1);
    let lost = match marked {
        Marked::Frame(synced) => synced.saturating_sub(held),
        Marked::Nothing | Marked::Damaged => 0,
    };
    let why = match marked {
        _ if lost > 0 => Some((
            name.clone(),
            format!("the log ends with write {held}, and {lost} more were acknowledged: they are missing"),
        )),
        _ if length < made => Some((
            name.clone(),
            format!("it was cut: it has {length} of its {made} bytes, and acknowledged writes may be missing"),
        )),
        Marked::Damaged => Some((MARK_NAME.to_owned(), "it does not match its checksum".to_owned())),
        Marked::Nothing if has_marks => Some((MARK_NAME.to_owned(), "it is missing".to_owned())),
        _ => None,
    };
    if let Some((file, what)) = why.clone().filter(|_| !accept_loss) {
        return Err(StoreError::Lost { file, what });
    }
    let offset = last.map_or(0, |(_, scan)| scan.end);
    let torn = last.filter(|(_, scan)| scan.verdict == End::Torn).map(|(segment, _)| used(&segment.bytes) - offset);
    let dropped = Dropped { file: name, offset, bytes: torn.unwrap_or(0), lost };
    Ok(((torn.is_some() || why.is_some()).then_some(dropped), why.is_some()))
}

/// Reads the segments that hold what the snapshot does not: from the newest back to the first that is needed. Older ones may
/// be there or not, in any number: they were being removed.
fn read_log(disk: &dyn Disk, numbers: &[u64], covered: u64) -> Result<Vec<Loaded>, StoreError> {
    let mut log: Vec<Loaded> = Vec::new();
    for number in numbers.iter().rev().copied() {
        if let Some(after) = log.last() {
            if after.head.sequence <= covered + 1 {
                break;
            }
            if number + 1 != after.head.number {
                return Err(missing(&segment_name(number + 1), "a segment of the log is missing"));
            }
        }
        log.push(read_segment(disk, number)?);
    }
    if let Some(first) = log.last().filter(|first| first.head.sequence > covered + 1) {
        let before = match first.head.number {
            0 | 1 => snapshot_name(first.head.sequence - 1),
            number => segment_name(number - 1),
        };
        return Err(missing(&before, "the log begins later than it should"));
    }
    log.reverse();
    Ok(log)
}

pub fn read_segment(disk: &dyn Disk, number: u64) -> Result<Loaded, StoreError> {
    let name = segment_name(number);
    let failed = |error| StoreError::io(&name, error);
    let file = disk.open(&name).map_err(failed)?;
    let length = usize::try_from(file.len().map_err(failed)?)
        .map_err(|_| damaged(&name, 0, "it is longer than this machine can read"))?;
    let mut bytes = vec![0; length];
    let count = file.read_at(0, &mut bytes).map_err(failed)?;
    bytes.truncate(count);
    match Head::decode(bytes.get(..HEAD_BYTES).unwrap_or_default(), Kind::Segment) {
        Ok(head) if head.number == number => Ok(Loaded { head, bytes }),
        Ok(head) => Err(damaged(&name, 0, &format!("it is segment {} under another name", head.number))),
        Err(HeadError::Damaged) => Err(damaged(&name, 0, "its head does not match its checksum")),
        Err(HeadError::Version(found)) => Err(super::unknown_version(&name, found)),
    }
}

/// Walks every frame of the log into `delta`. Only the very last frame may be torn. Also says which frame behind the snapshot is
/// the first with entries of journals.
fn scan_log<'a>(
    log: &'a [Loaded],
    snapshot: Option<&Snapshot>,
    delta: &mut Delta<'a>,
) -> Result<(Vec<Scan>, Option<Position>), StoreError> {
    let (covered, link) = snapshot.map_or((0, 0), |snapshot| (snapshot.sequence, snapshot.link));
    let (mut scans, mut with_entries): (Vec<Scan>, Option<Position>) = (Vec::new(), None);
    for (index, segment) in log.iter().enumerate() {
        let head = &segment.head;
        let name = segment_name(head.number);
        if let Some(before) = scans.last() {
            if before.next != head.sequence {
                let what = format!("it begins with frame {}, expected {}", head.sequence, before.next);
                return Err(damaged(&name, 0, &what));
            }
            if head.version > 1 && before.link != head.link {
                return Err(damaged(
                    &name,
                    0,
                    "it does not follow the segment before it: they are of different stores",
                ));
            }
        }
        // The frame that the snapshot ends with, if the log still has it, or the one that the log begins behind.
        let mut fits = head.sequence != covered + 1 || head.version == 1 || link == 0 || head.link == link;
        let found = scan(&segment.bytes, head, &mut |frame| {
            fits &= frame.sequence != covered || link == 0 || frame.checksum == link;
            if frame.sequence > covered {
                if with_entries.is_none() && frame.rows.entries().next().is_some() {
                    let (number, offset) = (head.number, frame.offset);
                    with_entries = Some(Position { number, offset, next: frame.sequence });
                }
                frame.rows.for_each(|row| delta.apply(row));
            }
        });
        if !fits {
            return Err(damaged(&name, 0, &format!("it does not fit {}", snapshot_name(covered))));
        }
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
    Ok((scans, with_entries))
}

/// Opens the last segment for writing, wiping out a torn tail so that behind the last frame there are zeros again.
///
/// What was just read may be in the kernel's memory only: after a failed sync it takes the pages for written, and a process
/// that starts again reads them back. So everything that is believed is written and synced once more, and the names, too,
/// before anything is built on it.
fn resume(disk: &dyn Disk, last: &Loaded, scan: &Scan) -> Result<Segment, StoreError> {
    let name = segment_name(last.head.number);
    let failed = |error| StoreError::io(&name, error);
    let file = disk.open(&name).map_err(failed)?;
    let believed = usize::try_from(scan.end).ok().and_then(|end| last.bytes.get(..end)).unwrap_or(&last.bytes);
    file.write_at(0, believed).map_err(failed)?;
    file.sync_data().map_err(failed)?;
    disk.sync_dir().map_err(|error| StoreError::io(disk.place(), error))?;
    if scan.verdict == End::Torn {
        write_zeros(&*file, scan.end, used(&last.bytes)).map_err(failed)?;
    }
    let length = last.bytes.len() as u64;
    if length < last.head.bytes {
        write_zeros(&*file, length, last.head.bytes).map_err(failed)?;
    }
    Segment::resume(file, &last.head, log::End { offset: scan.end, next: scan.next, link: scan.link })
}

/// Makes it known, durably, that this state is an older one.
pub fn note_rewound(disk: &dyn Disk) -> Result<(), StoreError> {
    let failed = |error| StoreError::io(REWOUND_NAME, error);
    match disk.create(REWOUND_NAME) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => made.and_then(|file| file.sync_data()).map_err(failed)?,
    }
    disk.sync_dir().map_err(failed)
}

/// Bytes up to the last that is not zero.
fn used(bytes: &[u8]) -> u64 {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at as u64 + 1)
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

pub fn damaged(name: &str, offset: u64, what: &str) -> StoreError {
    StoreError::Corrupt { file: name.to_owned(), offset, what: what.to_owned() }
}

pub fn missing(name: &str, what: &str) -> StoreError {
    damaged(name, 0, what)
}
