//! Everything that is wrong with the files of a folder. A start stops at the first damage; who has to mend a folder, or to
//! choose between backups, wants to know all of it.

use super::format::{Kind, number_in, segment_name};
use super::journals::{self, Counting};
use super::mark::{MARK_NAME, Mark, Marked};
use super::recover::{count, damaged, inspect, missing, read_segment};
use super::scan::{End, scan};
use super::snapshot::Snapshot;
use crate::batch::Table;
use crate::disk::Disk;
use crate::error::StoreError;

/// What is told at the most; a folder that is wrong everywhere is told as well by its first few.
const DAMAGES_MAX: usize = 100;

/// The first damage of every file, then what only shows when the files are put together.
pub fn examine(disk: &dyn Disk) -> Vec<StoreError> {
    let names = match disk.list() {
        Ok(names) => names,
        Err(error) => return vec![StoreError::io(disk.place(), error)],
    };
    let numbers = |kind| {
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_in(name, kind)).collect();
        numbers.sort_unstable();
        numbers
    };
    let (snapshots, segments) = (numbers(Kind::Snapshot), numbers(Kind::Segment));
    let mut found: Vec<StoreError> = Vec::new();
    let mut counted = Some(Counting::default());
    for sequence in &snapshots {
        let mut counting = Counting::default();
        let read = Snapshot::find(disk, *sequence).and_then(|snapshot| {
            snapshot.read(disk, &mut |row| match row.table {
                Table::JOURNALS => count(&mut counting, row, &snapshot.name()),
                _ => Ok(()),
            })
        });
        counted = read.is_ok().then_some(counting);
        found.extend(read.err());
    }
    // Without the last snapshot nobody knows up to where the chapters count.
    if let Some(counted) = counted {
        found.extend(journals::examine(disk, &names, &counted));
    }
    let covered = snapshots.last().copied().unwrap_or(0);
    let mut before: Option<u64> = None;
    for number in &segments {
        let last = segments.last() == Some(number);
        let gap = before.is_some_and(|before| before + 1 != *number);
        match read_segment(disk, *number) {
            Ok(segment) => {
                // Older ones may be there or not: they were being removed.
                if gap && segment.head.sequence > covered + 1 {
                    found.push(missing(&segment_name(*number - 1), "a segment of the log is missing"));
                }
                let end = scan(&segment.bytes, &segment.head, &mut |_| {});
                found.extend(match end.verdict {
                    End::Damaged(what) => Some(damaged(&segment_name(*number), end.end, &what)),
                    End::Torn if !last => {
                        let what = "a frame is incomplete although a segment follows";
                        Some(damaged(&segment_name(*number), end.end, what))
                    }
                    End::Torn | End::Clean => None,
                });
            }
            Err(error) => found.push(error),
        }
        before = Some(*number);
    }
    match Mark::read(disk, &names) {
        Ok(Marked::Damaged) => {
            let what = "it does not match its checksum".to_owned();
            found.push(StoreError::Lost { file: MARK_NAME.to_owned(), what });
        }
        Ok(Marked::Frame(_) | Marked::Nothing) => {}
        Err(error) => found.push(error),
    }
    if let Err(error) = inspect(disk, false, &mut |_, _, _| {})
        && !found.iter().any(|known| known.to_string() == error.to_string())
    {
        found.push(error);
    }
    found.truncate(DAMAGES_MAX);
    found
}
