//! A group of row changes that becomes durable as a whole.
//!
//! The rows are encoded while they are added, one after the other in a single buffer: that buffer *is* the payload of a log
//! frame, so committing copies nothing again and adding a row allocates nothing once the buffer has grown to its usual size.
//! Entries of journals stand between the rows, in the order they were appended.

use crate::journal::{ENTRY_BYTES_MAX, Journal};

/// The longest key. The longest Kubernetes key (group, resource, namespace, name) is below 1 KiB; the rest is room.
pub const KEY_BYTES_MAX: usize = 4 * 1024;

/// The longest value. Request bodies are bounded far below this; the bound keeps one row from exhausting a recovery.
pub const VALUE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes in front of a row's key: table, key length, value length.
const ROW_HEADER_BYTES: usize = 1 + 4 + 4;

/// The value length that says "this row is deleted".
const DELETED: u32 = u32::MAX;

/// The key length that says "this is an entry": the journal's number stands where a table's does, and eight bytes of time where
/// a key does.
const APPENDED: u32 = u32::MAX;

/// The name space of a key. Numbers are part of the stored format: they are never reused for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table(pub u8);

impl Table {
    /// Facts about the state as a whole, such as the revision counter.
    pub const META: Table = Table(0);
    /// API objects, as the JSON that is served.
    pub const OBJECTS: Table = Table(1);
    /// The ledger's accounts.
    pub const ACCOUNTS: Table = Table(2);
    /// The ledger's subjects with their charges, holds and places in queues.
    pub const SUBJECTS: Table = Table(3);
    /// All rows of a ledger under one name space, for engines that do not tell them apart.
    pub const LEDGER: Table = Table(4);
    /// The store's own: which numbers its journals have given. Nobody else writes it, and nobody is shown it.
    pub(crate) const JOURNALS: Table = Table(255);
}

/// One change: a row gets this value, or is deleted when there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    pub table: Table,
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

/// What is appended to a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewEntry<'a> {
    pub journal: Journal,
    pub at_ms: i64,
    pub value: &'a [u8],
}

/// Row changes in the order they were made. A later change of the same row wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    encoded: Vec<u8>,
    rows: usize,
    entries: usize,
    /// Set by a row that breaks the length bounds; the commit then refuses the whole batch.
    oversize: Option<(Table, usize)>,
}

impl Batch {
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Sets a row. Lengths beyond [`KEY_BYTES_MAX`] and [`VALUE_BYTES_MAX`] make the commit of this batch fail, so an engine
    /// bounds its rows before it decides.
    pub fn put(&mut self, table: Table, key: &[u8], value: &[u8]) {
        self.push(Row { table, key, value: Some(value) });
    }

    /// Removes a row; removing one that does not exist is no error.
    pub fn delete(&mut self, table: Table, key: &[u8]) {
        self.push(Row { table, key, value: None });
    }

    /// Appends an entry to a journal. One beyond [`ENTRY_BYTES_MAX`] makes the commit of this batch fail.
    pub fn append(&mut self, journal: Journal, at_ms: i64, value: &[u8]) {
        if value.len() > ENTRY_BYTES_MAX {
            self.oversize.get_or_insert((Table::JOURNALS, value.len()));
            return;
        }
        self.encoded.push(journal.0);
        self.encoded.extend_from_slice(&APPENDED.to_le_bytes());
        self.encoded.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.encoded.extend_from_slice(&at_ms.to_le_bytes());
        self.encoded.extend_from_slice(value);
        self.entries += 1;
    }

    pub fn push(&mut self, row: Row<'_>) {
        if row.table == Table::JOURNALS {
            self.oversize.get_or_insert((row.table, row.key.len()));
            return;
        }
        self.push_any(row);
    }

    /// The same for the store's own rows.
    pub(crate) fn push_any(&mut self, row: Row<'_>) {
        let value_length = row.value.map_or(0, <[u8]>::len);
        if row.key.len() > KEY_BYTES_MAX || value_length > VALUE_BYTES_MAX {
            self.oversize.get_or_insert((row.table, row.key.len().max(value_length)));
            return;
        }
        // Both lengths were just bounded far below u32::MAX.
        let coded_length = row.value.map_or(DELETED, |value| value.len() as u32);
        self.encoded.reserve(ROW_HEADER_BYTES + row.key.len() + value_length);
        self.encoded.push(row.table.0);
        self.encoded.extend_from_slice(&(row.key.len() as u32).to_le_bytes());
        self.encoded.extend_from_slice(&coded_length.to_le_bytes());
        self.encoded.extend_from_slice(row.key);
        self.encoded.extend_from_slice(row.value.unwrap_or_default());
        self.rows += 1;
    }

    pub fn rows(&self) -> Rows<'_> {
        Rows { rest: &self.encoded }
    }

    /// What is appended to journals, in order.
    pub fn entries(&self) -> Entries<'_> {
        Entries(self.rows())
    }

    pub fn has_entries(&self) -> bool {
        self.entries > 0
    }

    /// How many row changes and entries there are.
    pub fn len(&self) -> usize {
        self.rows + self.entries
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.oversize.is_none()
    }

    /// The encoded size.
    pub fn bytes(&self) -> usize {
        self.encoded.len()
    }

    /// Forgets everything and keeps the buffer.
    pub fn clear(&mut self) {
        self.encoded.clear();
        (self.rows, self.entries) = (0, 0);
        self.oversize = None;
    }

    /// The row that broke the length bounds, with the length found.
    pub fn oversize(&self) -> Option<(Table, usize)> {
        self.oversize
    }

    pub(crate) fn encoded(&self) -> &[u8] {
        &self.encoded
    }
}

/// The rows of a batch, or of a frame read back. Entries between them are passed over.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    rest: &'a [u8],
}

/// The entries of a batch, or of a frame read back. Rows between them are passed over.
#[derive(Clone, Debug)]
pub struct Entries<'a>(Rows<'a>);

enum Change<'a> {
    Row(Row<'a>),
    Entry(NewEntry<'a>),
}

impl<'a> Rows<'a> {
    /// Rows out of bytes that passed their checksum.
    pub(crate) fn decode(encoded: &'a [u8]) -> Rows<'a> {
        Rows { rest: encoded }
    }

    /// What stands between the rows.
    pub(crate) fn entries(&self) -> Entries<'a> {
        Entries(self.clone())
    }

    /// What could not be read as a row. Empty after a well-formed buffer was walked to its end.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn next_change(&mut self) -> Option<Change<'a>> {
        let (header, body) = self.rest.split_at_checked(ROW_HEADER_BYTES)?;
        let key_length = u32::from_le_bytes(header[1..5].try_into().ok()?);
        let value_length = u32::from_le_bytes(header[5..9].try_into().ok()?);
        if key_length == APPENDED {
            let (at_ms, body) = body.split_first_chunk()?;
            let (value, rest) = body.split_at_checked(value_length as usize)?;
            self.rest = rest;
            let at_ms = i64::from_le_bytes(*at_ms);
            return Some(Change::Entry(NewEntry { journal: Journal(header[0]), at_ms, value }));
        }
        let (key, body) = body.split_at_checked(key_length as usize)?;
        let (value, rest) = match value_length {
            DELETED => (None, body),
            length => body.split_at_checked(length as usize).map(|(value, rest)| (Some(value), rest))?,
        };
        self.rest = rest;
        Some(Change::Row(Row { table: Table(header[0]), key, value }))
    }
}

impl<'a> Iterator for Rows<'a> {
    type Item = Row<'a>;

    fn next(&mut self) -> Option<Row<'a>> {
        loop {
            if let Change::Row(row) = self.next_change()? {
                return Some(row);
            }
        }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = NewEntry<'a>;

    fn next(&mut self) -> Option<NewEntry<'a>> {
        loop {
            if let Change::Entry(entry) = self.0.next_change()? {
                return Some(entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_in_order() {
        let mut batch = Batch::new();
        batch.put(Table::OBJECTS, b"a", b"1");
        batch.delete(Table::SUBJECTS, b"");
        batch.put(Table::META, b"", b"");
        let rows: Vec<_> = batch.rows().collect();
        assert_eq!(
            rows,
            [
                Row { table: Table::OBJECTS, key: b"a", value: Some(b"1") },
                Row { table: Table::SUBJECTS, key: b"", value: None },
                Row { table: Table::META, key: b"", value: Some(b"") },
            ]
        );
        assert_eq!(batch.len(), 3);
        batch.clear();
        assert!(batch.is_empty() && batch.rows().next().is_none());
    }

    #[test]
    fn rows_and_entries_are_told_apart() {
        let mut batch = Batch::new();
        batch.append(Journal::AUDIT, -5, b"first");
        batch.put(Table::OBJECTS, b"a", b"1");
        batch.append(Journal(255), i64::MAX, b"");
        batch.append(Journal::AUDIT, 7, b"second");
        let row = Row { table: Table::OBJECTS, key: b"a", value: Some(b"1") };
        assert_eq!(batch.rows().collect::<Vec<_>>(), [row]);
        let entry = |journal, at_ms, value| NewEntry { journal, at_ms, value };
        assert_eq!(
            batch.entries().collect::<Vec<_>>(),
            [
                entry(Journal::AUDIT, -5, b"first".as_slice()),
                entry(Journal(255), i64::MAX, b""),
                entry(Journal::AUDIT, 7, b"second")
            ]
        );
        assert_eq!((batch.len(), batch.has_entries()), (4, true));
        batch.clear();
        assert!(batch.is_empty() && !batch.has_entries());
    }

    #[test]
    fn an_entry_beyond_its_bound_and_a_row_of_the_stores_own_table_are_refused() {
        let mut batch = Batch::new();
        batch.append(Journal::AUDIT, 0, &[0; ENTRY_BYTES_MAX]);
        assert_eq!(batch.oversize(), None);
        batch.append(Journal::AUDIT, 0, &[0; ENTRY_BYTES_MAX + 1]);
        assert_eq!(batch.oversize(), Some((Table::JOURNALS, ENTRY_BYTES_MAX + 1)));
        batch.clear();
        batch.put(Table(255), b"a", b"");
        assert!(batch.oversize().is_some() && !batch.is_empty() && batch.rows().next().is_none());
    }

    #[test]
    fn a_row_beyond_the_bounds_is_remembered_and_not_encoded() {
        let mut batch = Batch::new();
        batch.put(Table::OBJECTS, &[0; KEY_BYTES_MAX + 1], b"");
        batch.put(Table::OBJECTS, b"fits", b"");
        assert_eq!(batch.oversize(), Some((Table::OBJECTS, KEY_BYTES_MAX + 1)));
        assert_eq!(batch.len(), 1);
        assert!(!batch.is_empty());
    }

    #[test]
    fn cut_short_rows_end_the_walk_at_the_damage() {
        let mut batch = Batch::new();
        batch.put(Table::OBJECTS, b"key", b"value");
        let mut entry = Batch::new();
        entry.append(Journal::AUDIT, 1, b"value");
        for encoded in [batch.encoded(), entry.encoded()] {
            for length in 0..encoded.len() {
                let mut rows = Rows::decode(&encoded[..length]);
                assert!(rows.next().is_none() && rows.entries().next().is_none());
                assert_eq!(rows.rest().len(), length);
            }
        }
    }
}
