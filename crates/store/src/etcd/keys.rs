//! Under which key what stands.

use crate::Table;

/// The keys of one cluster.
#[derive(Clone, Debug)]
pub struct Keys {
    pub leader: Vec<u8>,
    pub commit: Vec<u8>,
    pub lead: Vec<u8>,
    pub rows: Vec<u8>,
    pub parts: Vec<u8>,
    pub staged: Vec<u8>,
    pub marker: Vec<u8>,
    pub journals: Vec<u8>,
    pub counters: Vec<u8>,
}

impl Keys {
    pub fn new(cluster: &str) -> Keys {
        let key = |name: &str| format!("/bursar/{cluster}/{name}").into_bytes();
        Keys {
            leader: key("leader"),
            commit: key("commit"),
            lead: key("lead"),
            rows: key("rows/"),
            parts: key("parts/"),
            staged: key("staged/"),
            marker: key("marker"),
            journals: key("journals/"),
            counters: key("counters/"),
        }
    }

    pub fn row(&self, table: Table, row_key: &[u8]) -> Vec<u8> {
        let mut key = self.rows.clone();
        key.extend_from_slice(format!("{:02x}/", table.0).as_bytes());
        key.extend_from_slice(row_key);
        key
    }

    /// One part of a long value. The number comes first: a row's key may end in anything.
    pub fn part(&self, table: Table, row_key: &[u8], number: u32) -> Vec<u8> {
        let mut key = self.parts.clone();
        key.extend_from_slice(format!("{:02x}/{number:08}/", table.0).as_bytes());
        key.extend_from_slice(row_key);
        key
    }

    /// Table and key of a row, out of the key it has in etcd.
    pub fn parse<'a>(&self, key: &'a [u8]) -> Option<(Table, &'a [u8])> {
        let rest = key.strip_prefix(self.rows.as_slice())?;
        let (table, rest) = rest.split_at_checked(2)?;
        let table = u8::from_str_radix(std::str::from_utf8(table).ok()?, 16).ok()?;
        Some((Table(table), rest.strip_prefix(b"/")?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_rows_are_read_back() {
        let keys = Keys::new("c");
        for (table, key) in [(Table(0), &b""[..]), (Table(255), b"a/b"), (Table(16), &[0, 255])] {
            assert_eq!(keys.parse(&keys.row(table, key)), Some((table, key)));
        }
        for foreign in [&b"/bursar/c/leader"[..], b"/bursar/c/rows/0", b"/bursar/c/rows/zz/a", b"/bursar/c/rows/00a"] {
            assert_eq!(keys.parse(foreign), None);
        }
    }
}
