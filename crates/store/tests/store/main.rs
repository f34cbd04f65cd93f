//! The stores against a plain map: what was committed is what is loaded, whatever the disk does in between.

mod backup;
mod damage;
mod embedded;
mod etcd;
mod etcd_faults;
mod etcd_journals;
mod etcd_storm;
mod fake_etcd;
mod faults;
mod golden;
mod journals;
mod journals_faults;
mod proxy;
mod scripted;
mod test_disk;

use std::collections::BTreeMap;

use store::{Batch, Store, StoreError, Table};

type Rows = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A batch as an engine makes them: a few rows out of a small set of keys, some deleted, some long.
fn random_batch(numbers: &mut Numbers) -> Batch {
    let mut batch = Batch::new();
    for _ in 0..=numbers.below(3) {
        let table = Table(numbers.below(4) as u8);
        let key = format!("key-{}", numbers.below(40)).into_bytes();
        match numbers.below(4) {
            0 => batch.delete(table, &key),
            1 => batch.put(table, &key, &vec![numbers.below(256) as u8; numbers.below(900) as usize]),
            _ => batch.put(table, &key, &numbers.next().to_be_bytes()),
        }
    }
    batch
}

fn apply(rows: &mut Rows, batch: &Batch) {
    for row in batch.rows() {
        let key = (row.table, row.key.to_vec());
        match row.value {
            Some(value) => drop(rows.insert(key, value.to_vec())),
            None => drop(rows.remove(&key)),
        }
    }
}

fn load(store: &mut dyn Store) -> Result<Rows, StoreError> {
    let mut rows = Rows::new();
    store.load(&mut |table, key, value| {
        let twice = rows.insert((table, key.to_vec()), value.to_vec());
        assert!(twice.is_none(), "a row was handed over twice");
    })?;
    Ok(rows)
}

/// Bytes that take as much room as they are long, however they are stored.
fn noise(length: usize) -> Vec<u8> {
    let mut numbers = Numbers(0x9e37_79b9);
    (0..length).map(|_| numbers.next().to_le_bytes()[1]).collect()
}

fn one_row(key: &[u8], value: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.put(Table::OBJECTS, key, value);
    batch
}
