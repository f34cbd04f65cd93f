//! A folder of the embedded store, damaged in any way: it is refused, or nothing that was acknowledged is missing. Only where
//! the mark of the last sync is gone as well may it be the state after an earlier commit.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use store::embedded::Options;
use store::{Batch, EmbeddedStore, Store, Table};

use crate::test_disk::{Image, TestDisk};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

const SMALL: Options = Options { segment_bytes: 4096, checkpoint_bytes: 12_000, background: false, accept_loss: false };
const COMMITS: u32 = 220;

/// The file that says how far the log was synced.
const MARK: &str = "synced";

/// A whole folder after many commits, and the rows after each of them.
fn healthy() -> &'static (Image, Vec<Rows>) {
    static HEALTHY: OnceLock<(Image, Vec<Rows>)> = OnceLock::new();
    HEALTHY.get_or_init(|| {
        let disk = TestDisk::default();
        let mut store = EmbeddedStore::open(Arc::new(disk.clone()), SMALL).expect("a new store");
        store.load(&mut |_, _, _| {}).expect("is empty");
        let (mut rows, mut states) = (Rows::new(), vec![Rows::new()]);
        for number in 0..COMMITS {
            let mut batch = Batch::new();
            let key = format!("row {}", number * 7 % 31).into_bytes();
            if number % 5 == 4 {
                batch.delete(Table::OBJECTS, &key);
                rows.remove(&key);
            } else {
                let value = format!("value {number} ").repeat(1 + number as usize % 17).into_bytes();
                batch.put(Table::OBJECTS, &key, &value);
                rows.insert(key, value);
            }
            store.commit(&batch).expect("a healthy disk");
            states.push(rows.clone());
        }
        (disk.image(), states)
    })
}

/// Eight bytes a piece of damage: which file, what is done to it, where, how much. The rest is written there.
pub fn check_bytes(bytes: &[u8]) {
    let (image, states) = healthy();
    let mut damaged = image.clone();
    let (pieces, rest) = bytes.as_chunks::<8>();
    for piece in pieces.iter().take(6) {
        harm(&mut damaged, piece, rest);
    }
    let Ok(mut store) = EmbeddedStore::open(Arc::new(TestDisk::new(&damaged)), SMALL) else { return };
    let mut rows = Rows::new();
    let mut twice = false;
    let loaded = store.load(&mut |table, key, value| {
        twice |= table != Table::OBJECTS || rows.insert(key.to_vec(), value.to_vec()).is_some();
    });
    if loaded.is_ok() {
        assert!(!twice, "a row is handed over once, and in its table");
        assert!(states.contains(&rows), "{} rows that never stood together", rows.len());
        let marked = damaged.get(MARK) == image.get(MARK);
        assert!(!marked || states.last() == Some(&rows), "acknowledged commits are missing, and nobody says so");
        // It goes on from there.
        let mut batch = Batch::new();
        batch.put(Table::OBJECTS, b"after", b"all");
        store.commit(&batch).expect("what was loaded can be written to");
    }
}

fn harm(image: &mut Image, piece: &[u8; 8], rest: &[u8]) {
    let &[file, what, high, low, length_high, length_low, seed, with] = piece;
    let names: Vec<String> = image.keys().cloned().collect();
    let Some(name) = names.get(usize::from(file) % names.len().max(1)) else { return };
    let other = names[usize::from(with) % names.len()].clone();
    let offset = usize::from(u16::from_be_bytes([high, low]));
    let length = usize::from(u16::from_be_bytes([length_high, length_low]));
    let Some(content) = image.get_mut(name) else { return };
    let from = offset.min(content.len());
    let until = from.saturating_add(length).min(content.len());
    match what % 9 {
        0 => content.truncate(from),
        1 => content[from..until].fill(0),
        2 => content[from..until].iter_mut().for_each(|byte| *byte ^= seed | 1),
        3 => drop(content.drain(from..until)),
        4 => drop(content.splice(from..until, rest.iter().copied())),
        5 => content.resize(content.len() + length, seed),
        6 => drop(image.remove(name)),
        7 => {
            let copy = content.clone();
            image.insert(other, copy);
        }
        _ => {
            let copy = content.clone();
            if let Some(taken) = image.insert(other, copy) {
                image.insert(name.clone(), taken);
            }
        }
    }
}
