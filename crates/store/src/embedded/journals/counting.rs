//! Which numbers the journals have given. The log says so with every frame that has entries, in rows of the store's own: so they
//! are durable with the entries, and a snapshot keeps them although it keeps no entry.

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::batch::{Batch, Row, Table};
use crate::journal;

/// The next number of each journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counting {
    next: BTreeMap<u8, u64>,
    /// No number below it is given by any journal.
    base: Option<u64>,
    /// The base is not durable yet.
    leaps: bool,
}

impl Counting {
    /// The next number of a journal.
    pub fn next(&self, journal: u8) -> u64 {
        let known = self.next.get(&journal).copied().unwrap_or(1);
        known.max(self.base.unwrap_or(1))
    }

    /// One past the last number that a journal has given.
    pub fn end(&self, journal: u8) -> u64 {
        self.next.get(&journal).copied().unwrap_or(1)
    }

    pub fn journals(&self) -> impl Iterator<Item = u8> {
        self.next.keys().copied()
    }

    /// A row that was read back. `false`: it is none of these.
    pub fn take_in(&mut self, row: Row<'_>) -> bool {
        let value = row.value.and_then(|value| value.try_into().ok()).map(u64::from_le_bytes);
        match (row.key, value) {
            ([], Some(base)) => self.base = Some(base),
            ([journal], Some(next)) => drop(self.next.insert(*journal, next)),
            _ => return false,
        }
        true
    }

    /// Later numbers than are known may have been given: goes on far above them.
    pub fn leap(&mut self, now: SystemTime) {
        let highest = self.next.values().copied().chain(self.base).max().unwrap_or(1);
        self.base = Some(journal::leap(highest, now));
        self.leaps = true;
    }

    /// Gives numbers to the entries of a batch: the rows that say so, to be written with it.
    pub fn number(&mut self, batch: &Batch) -> Batch {
        let mut rows = Batch::new();
        if std::mem::take(&mut self.leaps)
            && let Some(base) = self.base
        {
            rows.push_any(row(&[], &base.to_le_bytes()));
        }
        if batch.has_entries() {
            let mut counts: BTreeMap<u8, u64> = BTreeMap::new();
            batch.entries().for_each(|entry| *counts.entry(entry.journal.0).or_default() += 1);
            for (journal, count) in counts {
                let next = self.next(journal) + count;
                self.next.insert(journal, next);
                rows.push_any(row(&[journal], &next.to_le_bytes()));
            }
        }
        rows
    }
}

fn row<'a>(key: &'a [u8], value: &'a [u8]) -> Row<'a> {
    Row { table: Table::JOURNALS, key, value: Some(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Journal;

    #[test]
    fn numbers_go_on_from_what_was_read_back_and_leap_once() {
        let mut batch = Batch::new();
        for journal in [3, 7, 3] {
            batch.append(Journal(journal), 0, b"");
        }
        let mut counting = Counting::default();
        let mut again = Counting::default();
        assert!(counting.number(&batch).rows().all(|row| again.take_in(row)));
        assert_eq!((again.next(3), again.next(7), again.next(0)), (3, 2, 1));
        assert_eq!(again, counting);
        assert!(counting.number(&Batch::new()).is_empty());
        counting.leap(SystemTime::UNIX_EPOCH);
        let base = counting.next(200);
        assert!(base > 1_000_000_000 && counting.next(3) == base && counting.end(3) == 3);
        assert!(counting.number(&batch).rows().all(|row| again.take_in(row)));
        assert_eq!((again.next(3), again.next(7), again.next(200)), (base + 2, base + 1, base));
        assert!(counting.number(&Batch::new()).is_empty(), "the leap is written once");
        assert!(!again.take_in(row(&[1], b"short")) && !again.take_in(row(&[1, 2], &[0; 8])));
    }
}
