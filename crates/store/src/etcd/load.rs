//! Reading everything, page by page.

use tonic::Code;

use super::client::is_compacted;
use super::commit::{Parted, Writer, damaged};
use super::journals::Counting;
use super::messages::{KeyValue, RangeRequest, prefix_end};
use super::stored::{self, Stored};
use super::{failed, rewound};
use crate::{StoreError, Table, Visit};

/// What a page of a load aims at.
const PAGE_BYTES: usize = 2 * 1024 * 1024;
const PAGE_ROWS_FIRST: i64 = 64;
const PAGE_ROWS_MAX: i64 = 5000;

/// A load under way, and what it has found out besides the rows.
pub struct Loading {
    writer: Writer,
    /// The number of the last transaction; known after the first page.
    pub number: Option<u64>,
    pub counting: Counting,
    pub rewound: rewound::Found,
    pub parted: Parted,
    next: Vec<u8>,
    limit: i64,
    /// All pages are read at the revision of the first, unless somebody compacts it away.
    revision: i64,
    /// Pages of several revisions were read.
    mixed: bool,
    rows_done: bool,
    /// Rows in parts that were read so far.
    long: usize,
}

/// What is read at once.
pub enum Page {
    Rows(Vec<KeyValue>),
    /// A row that was stored in parts.
    Long(Table, Vec<u8>, Vec<u8>),
}

impl Loading {
    pub fn new(writer: Writer) -> Loading {
        Loading {
            next: writer.keys.rows.clone(),
            writer,
            number: None,
            counting: Counting::default(),
            rewound: rewound::Found::default(),
            parted: Parted::new(),
            limit: PAGE_ROWS_FIRST,
            revision: 0,
            mixed: false,
            rows_done: false,
            long: 0,
        }
    }

    /// What comes next; `None` when everything was read.
    pub async fn page(&mut self) -> Result<Option<Page>, StoreError> {
        if self.number.is_none() {
            let number = self.writer.recover().await?;
            self.counting = Counting::read(&self.writer.client, &self.writer.keys).await?;
            self.rewound = rewound::look(&self.writer).await?;
            self.number = Some(number);
        }
        if !self.rows_done {
            return self.rows().await.map(Some);
        }
        let Some(((table, key), count)) = self.parted.iter().nth(self.long) else {
            if self.mixed
                && let Some(number) = self.number
            {
                // Nobody has written since the first page, so that all revisions read were the same to us.
                self.writer.confirm(number).await?;
            }
            return Ok(None);
        };
        let value = self.writer.read_parts(*table, key, *count).await?;
        self.long += 1;
        Ok(Some(Page::Long(*table, key.clone(), value)))
    }

    async fn rows(&mut self) -> Result<Page, StoreError> {
        let range_end = prefix_end(&self.writer.keys.rows);
        let page = loop {
            let (key, range_end) = (self.next.clone(), range_end.clone());
            let request = RangeRequest { key, range_end, limit: self.limit, revision: self.revision, keys_only: false };
            match self.writer.client.range(request).await {
                Ok(page) => break page,
                // Others use this etcd as well, and compact it when it is full of what is theirs.
                Err(status) if is_compacted(&status) && self.revision > 0 => (self.revision, self.mixed) = (0, true),
                // Long rows made the page too large for one answer.
                Err(status) if status.code() == Code::OutOfRange && self.limit > 1 => {
                    self.limit = (self.limit / 8).max(1);
                }
                Err(status) => return Err(failed("reading rows from etcd", &status)),
            }
        };
        if self.revision == 0 {
            self.revision = page.header.map_or(0, |header| header.revision);
        }
        let mut bytes = 0;
        for row in &page.kvs {
            // Pages that do not move on would be read for ever.
            if row.key < self.next {
                return Err(damaged(&row.key, "etcd hands it over out of order"));
            }
            self.next.clone_from(&row.key);
            self.next.push(0);
            bytes += row.key.len() + row.value.len();
        }
        self.rows_done = !page.more || page.kvs.is_empty();
        if bytes < PAGE_BYTES {
            self.limit = (self.limit * 2).min(PAGE_ROWS_MAX);
        }
        Ok(Page::Rows(page.kvs))
    }

    /// Hands the rows of a page over. Those in parts come later, as pages of their own.
    pub fn show(&mut self, page: &Page, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let rows = match page {
            Page::Rows(rows) => rows,
            Page::Long(table, key, value) => {
                visit(*table, key, value);
                return Ok(());
            }
        };
        for row in rows {
            let Some((table, key)) = self.writer.keys.parse(&row.key) else {
                return Err(damaged(&row.key, "it stands among the rows and is none"));
            };
            match stored::decode(&row.value) {
                Some(Stored::Whole(value)) => visit(table, key, &value),
                Some(Stored::Parts(count)) => drop(self.parted.insert((table, key.to_vec()), count)),
                None => return Err(damaged(&row.key, "its value cannot be read")),
            }
        }
        Ok(())
    }
}
