//! A file read from the front to the back in pieces, so that walking over small records costs few calls.

use crate::disk::DiskFile;
use crate::error::StoreError;

/// What is read at a time, or a record if that is longer.
const PIECE_BYTES: usize = 64 * 1024;

pub struct Window<'a> {
    file: &'a dyn DiskFile,
    name: &'a str,
    /// Nothing behind this is looked at.
    end: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    pub fn new(file: &'a dyn DiskFile, name: &'a str, end: u64) -> Window<'a> {
        Window { file, name, end, start: 0, bytes: Vec::new() }
    }

    pub fn name(&self) -> &'a str {
        self.name
    }

    /// So many bytes from `offset` on; `None` if the end comes first.
    pub fn get(&mut self, offset: u64, length: usize) -> Result<Option<&[u8]>, StoreError> {
        if self.end.saturating_sub(offset) < length as u64 {
            return Ok(None);
        }
        let read_end = self.start + self.bytes.len() as u64;
        if offset < self.start || offset + length as u64 > read_end {
            let wanted = (self.end - offset).min(length.max(PIECE_BYTES) as u64);
            self.bytes.clear();
            // Bounded by what the caller asks for.
            self.bytes.resize(wanted as usize, 0);
            let count = self.file.read_at(offset, &mut self.bytes).map_err(|error| StoreError::io(self.name, error))?;
            self.bytes.truncate(count);
            self.start = offset;
        }
        let at = (offset - self.start) as usize;
        Ok(self.bytes.get(at..at + length))
    }
}
