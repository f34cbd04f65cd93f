//! What a stretch of the log changed: the last state of every row it touched.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::batch::{Row, Table};

/// Rows by key, in the order they were first touched, so that the same log always gives the same snapshot.
#[derive(Default)]
pub struct Delta<'a> {
    rows: Vec<Row<'a>>,
    index: HashMap<(Table, &'a [u8]), usize>,
}

impl<'a> Delta<'a> {
    pub fn apply(&mut self, row: Row<'a>) {
        match self.index.entry((row.table, row.key)) {
            Entry::Occupied(place) => self.rows[*place.get()] = row,
            Entry::Vacant(place) => {
                place.insert(self.rows.len());
                self.rows.push(row);
            }
        }
    }

    pub fn touches(&self, row: Row<'_>) -> bool {
        self.index.contains_key(&(row.table, row.key))
    }

    /// The last state of each row; deleted rows are among them, without a value.
    pub fn rows(&self) -> impl Iterator<Item = Row<'a>> {
        self.rows.iter().copied()
    }
}
