//! The embedded store on a disk that behaves, and on one whose bytes were changed while nobody looked.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use store::embedded::Options;
use store::{Batch, EmbeddedStore, Store, StoreError, Table};

use crate::test_disk::{Image, TestDisk};
use crate::{Numbers, Rows, apply, load, one_row, random_batch};

/// Small files and no thread, so that a few hundred commits see segments roll and snapshots made.
pub const SMALL: Options =
    Options { segment_bytes: 4096, checkpoint_bytes: 12_000, background: false, accept_loss: false };

pub fn open(disk: &TestDisk) -> EmbeddedStore {
    EmbeddedStore::open(Arc::new(disk.clone()), SMALL).unwrap()
}

pub fn load_image(image: &Image) -> Result<Rows, StoreError> {
    load(&mut open(&TestDisk::new(image)))
}

#[test]
fn every_start_finds_what_was_committed() {
    let disk = TestDisk::default();
    let mut expected = Rows::new();
    let mut numbers = Numbers(1);
    let mut checkpoints = 0;
    for _ in 0..40 {
        let mut store = open(&disk);
        assert_eq!(load(&mut store).unwrap(), expected);
        for _ in 0..numbers.below(40) {
            let batch = random_batch(&mut numbers);
            store.commit(&batch).unwrap();
            apply(&mut expected, &batch);
        }
        checkpoints += store.counters().checkpoints.load(Ordering::Relaxed);
        Box::new(store).close().unwrap();
    }
    assert!(checkpoints > 3, "only {checkpoints} snapshots were made");
    let files = disk.image().len();
    assert!(files < 12, "{files} files are left");
}

#[test]
fn a_power_failure_after_any_commit_loses_none() {
    let disk = TestDisk::default();
    let mut store = open(&disk);
    let mut expected = load(&mut store).unwrap();
    let mut numbers = Numbers(2);
    for _ in 0..300 {
        let batch = random_batch(&mut numbers);
        store.commit(&batch).unwrap();
        apply(&mut expected, &batch);
        assert_eq!(load_image(&disk.synced_image()).unwrap(), expected);
    }
}

#[test]
fn a_batch_longer_than_a_segment_is_kept() {
    let disk = TestDisk::default();
    let mut store = open(&disk);
    load(&mut store).unwrap();
    let long = one_row(b"long", &vec![7; 50_000]);
    store.commit(&one_row(b"short", b"1")).unwrap();
    store.commit(&long).unwrap();
    store.commit(&one_row(b"short", b"2")).unwrap();
    let rows = load_image(&disk.synced_image()).unwrap();
    assert_eq!(rows[&(Table::OBJECTS, b"long".to_vec())], vec![7; 50_000]);
    assert_eq!(rows[&(Table::OBJECTS, b"short".to_vec())], b"2");
}

/// A store with some history: the image, the rows after every commit, and the last segment's name with each frame's end in it.
pub struct History {
    pub image: Image,
    pub states: Vec<Rows>,
    pub segment: String,
    /// The end of the frame that made `states[index]`, for the frames of the last segment.
    pub ends: Vec<(usize, usize)>,
    /// What the mark said before each commit was acknowledged.
    pub marks: Vec<Vec<u8>>,
}

pub fn history(commits: usize, mut batch: impl FnMut(usize) -> Batch) -> History {
    let disk = TestDisk::default();
    let mut store = EmbeddedStore::open(Arc::new(disk.clone()), Options { segment_bytes: 32 * 1024, ..SMALL }).unwrap();
    let mut states = vec![load(&mut store).unwrap()];
    let mut ends = vec![(0, 512)];
    let mut segment = String::new();
    let mut marks = vec![disk.image()["synced"].clone()];
    for index in 1..=commits {
        let batch = batch(index);
        store.commit(&batch).unwrap();
        let mut state = states[index - 1].clone();
        apply(&mut state, &batch);
        states.push(state);
        let image = disk.image();
        let (name, content) = image.iter().rfind(|(name, _)| name.starts_with("log-")).unwrap();
        if *name != segment {
            segment.clone_from(name);
            ends = vec![(index - 1, 512)];
        }
        let end = content.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        ends.push((index, end));
        marks.push(image["synced"].clone());
    }
    History { image: disk.image(), states, segment, ends, marks }
}

/// A power failure in the middle of a commit: what was not written is still zero, and the mark is one write behind.
#[test]
fn a_tail_torn_at_any_byte_leaves_the_commits_before_it() {
    let mut numbers = Numbers(3);
    let history = history(64, |_| random_batch(&mut numbers));
    for cut in 512..=history.ends.last().unwrap().1 {
        let complete = history.ends.iter().rfind(|(_, end)| *end <= cut).unwrap().0;
        let mut image = history.image.clone();
        image.insert("synced".to_owned(), history.marks[complete].clone());
        image.get_mut(&history.segment).unwrap()[cut..].fill(0);
        let disk = TestDisk::new(&image);
        let mut store = open(&disk);
        assert_eq!(load(&mut store).unwrap(), history.states[complete], "cut at {cut}");
        // It is told, unless the cut is where a frame ends.
        let border = history.ends.iter().any(|(_, end)| (*end..=end.next_multiple_of(32)).contains(&cut));
        match store.dropped() {
            Some(dropped) => assert_eq!((dropped.file, dropped.lost, border), (history.segment.clone(), 0, false)),
            None => assert!(border || image[&history.segment][..cut].ends_with(&[0]), "cut at {cut} was not told"),
        }
        // And the log goes on from there.
        store.commit(&one_row(b"after", b"the crash")).unwrap();
        drop(store);
        assert_eq!(load_image(&disk.image()).unwrap().len(), history.states[complete].len() + 1);
    }
}

#[test]
fn a_last_frame_with_any_sectors_missing_is_dropped() {
    // Rows without zeros, so that a missing sector shows.
    let history = history(3, |index| one_row(&[index as u8], &vec![index as u8; 2800]));
    let (start, end) = (history.ends[2].1.next_multiple_of(32), history.ends[3].1);
    let first_sector = start / 512;
    let sectors = end.div_ceil(512) - first_sector;
    for missing in 1..1_u32 << sectors {
        let mut image = history.image.clone();
        let content = image.get_mut(&history.segment).unwrap();
        for sector in (0..sectors).filter(|sector| missing & (1 << sector) != 0) {
            let from = ((first_sector + sector) * 512).max(start);
            content[from..((first_sector + sector + 1) * 512).min(end)].fill(0);
        }
        image.insert("synced".to_owned(), history.marks[2].clone());
        assert_eq!(load_image(&image).unwrap(), history.states[2], "missing {missing:b}");
    }
}

#[test]
fn a_changed_byte_anywhere_is_refused_or_harmless() {
    let mut numbers = Numbers(4);
    let disk = TestDisk::default();
    let mut store = open(&disk);
    let mut expected = load(&mut store).unwrap();
    for index in 0..120_u8 {
        let mut batch = random_batch(&mut numbers);
        // No sector of zeros inside a value: that one is what an unfinished write looks like.
        batch.put(Table::META, b"filler", &[index | 1; 90]);
        store.commit(&batch).unwrap();
        apply(&mut expected, &batch);
    }
    drop(store);
    let image = disk.image();
    assert!(image.keys().any(|name| name.starts_with("snapshot-")));
    let (mut refused, mut harmless) = (0, 0);
    for (name, content) in &image {
        for at in 0..content.len() {
            let mut changed = image.clone();
            changed.get_mut(name).unwrap()[at] ^= 1 << numbers.below(8);
            match load_image(&changed) {
                Ok(rows) => {
                    assert_eq!(rows, expected, "{name} at {at}");
                    harmless += 1;
                }
                Err(
                    StoreError::Corrupt { file, .. } | StoreError::Version { file, .. } | StoreError::Lost { file, .. },
                ) => {
                    assert_eq!(file, *name);
                    refused += 1;
                }
                Err(other) => panic!("{name} at {at}: {other}"),
            }
        }
    }
    assert!(refused > 10_000, "{refused} refused, {harmless} harmless");
}

#[test]
fn nothing_is_changed_in_a_folder_that_is_refused() {
    let mut numbers = Numbers(6);
    let history = history(40, |_| random_batch(&mut numbers));
    let mut image = history.image;
    image.insert("spare-9".to_owned(), vec![0; 10]);
    image.get_mut(&history.segment).unwrap()[600] ^= 1;
    let disk = TestDisk::new(&image);
    assert!(load(&mut open(&disk)).is_err());
    assert_eq!(disk.image(), image);
}

#[test]
fn arbitrary_bytes_never_panic() {
    let mut numbers = Numbers(7);
    let history = history(30, |_| random_batch(&mut numbers));
    for round in 0..2000_u64 {
        let mut image = history.image.clone();
        let content = image.get_mut(&history.segment).unwrap();
        let from = numbers.below(content.len() as u64) as usize;
        let length = numbers.below(200) as usize;
        for byte in content[from..].iter_mut().take(length) {
            *byte = if round % 2 == 0 { numbers.below(256) as u8 } else { 0 };
        }
        if let Ok(rows) = load_image(&image) {
            assert!(history.states.contains(&rows));
        }
    }
}

#[test]
fn a_store_is_loaded_once_and_first() {
    let disk = TestDisk::default();
    let mut store = open(&disk);
    assert!(matches!(store.commit(&one_row(b"a", b"b")), Err(StoreError::Unusable { .. })));
    load(&mut store).unwrap();
    store.commit(&one_row(b"a", b"b")).unwrap();
    assert!(matches!(load(&mut store), Err(StoreError::Unusable { .. })));
}

#[test]
fn a_second_process_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let first = EmbeddedStore::open_folder(folder.path()).unwrap();
    let error = EmbeddedStore::open_folder(folder.path()).err().unwrap().to_string();
    assert!(error.contains(&folder.path().display().to_string()) && error.contains("another process"), "{error}");
    drop(first);
    EmbeddedStore::open_folder(folder.path()).unwrap();
}

#[test]
fn a_real_folder_with_a_thread_beside() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: 64 * 1024, checkpoint_bytes: 128 * 1024, background: true, ..SMALL };
    let mut numbers = Numbers(8);
    let mut expected = Rows::new();
    let mut checkpoints = 0;
    for _ in 0..3 {
        let disk = store::disk::FolderDisk::open(folder.path()).unwrap();
        let mut store = EmbeddedStore::open(Arc::new(disk), options).unwrap();
        assert_eq!(load(&mut store).unwrap(), expected);
        for _ in 0..1000 {
            let batch = random_batch(&mut numbers);
            store.commit(&batch).unwrap();
            apply(&mut expected, &batch);
        }
        let counters = store.counters();
        Box::new(store).close().unwrap();
        checkpoints += counters.checkpoints.load(Ordering::Relaxed);
    }
    assert!(checkpoints > 0);
}
