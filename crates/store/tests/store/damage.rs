//! Folders that somebody, or something, has damaged: every one is refused, by the name of the file, and left as it was. What an
//! operator may accept is the loss of the log's end, and it is told.

use std::sync::Arc;

use store::embedded::{Options, ReadStore};
use store::{Batch, EmbeddedStore, Store, StoreError, Table};

use crate::embedded::{History, SMALL, history, load_image, open};
use crate::test_disk::{Image, TestDisk};
use crate::{Numbers, load, one_row, random_batch};

/// Refused with these words about this file, and nothing was changed.
fn refused(image: &Image, file: &str, words: &str) {
    let disk = TestDisk::new(image);
    let error = load(&mut open(&disk)).expect_err(words);
    assert!(matches!(error, StoreError::Corrupt { .. } | StoreError::Lost { .. }), "{error}");
    let error = error.to_string();
    assert!(error.starts_with(file) && error.contains(words), "{file}: {words}: {error}");
    assert_eq!(disk.image(), *image, "{error}");
}

fn accept(image: &Image) -> (TestDisk, EmbeddedStore) {
    let disk = TestDisk::new(image);
    let store = EmbeddedStore::open(Arc::new(disk.clone()), Options { accept_loss: true, ..SMALL }).unwrap();
    (disk, store)
}

fn some_history() -> History {
    let mut numbers = Numbers(30);
    history(140, |_| random_batch(&mut numbers))
}

/// An operator goes on with what is left: the rows of the last whole frame, told with how many are gone, and a sound store.
fn goes_on_with(history: &History, image: &Image, complete: usize) {
    let (disk, mut store) = accept(image);
    assert_eq!(load(&mut store).unwrap(), history.states[complete]);
    let dropped = store.dropped().expect("it is told");
    assert_eq!(dropped.lost, (history.states.len() - 1 - complete) as u64);
    store.commit(&one_row(b"after", b"the loss")).unwrap();
    drop(store);
    assert_eq!(load_image(&disk.image()).unwrap().len(), history.states[complete].len() + 1);
}

#[test]
fn a_log_cut_anywhere_is_refused() {
    let history = some_history();
    let length = history.image[&history.segment].len();
    let borders = history.ends.iter().flat_map(|(_, end)| [*end, end.next_multiple_of(32), end + 40, end + 7]);
    for cut in borders.chain([100, 512, 513, length - 1]).filter(|cut| *cut < length) {
        let mut image = history.image.clone();
        image.get_mut(&history.segment).unwrap().truncate(cut);
        refused(&image, &history.segment, "");
        // Without the mark, as after a power failure, the length still says it.
        let complete = history.ends.iter().rfind(|(_, end)| *end <= cut).map(|end| end.0);
        if let Some(complete) = complete {
            goes_on_with(&history, &image, complete);
            image.insert("synced".to_owned(), history.marks[complete].clone());
            refused(&image, &history.segment, "it was cut");
        }
    }
}

#[test]
fn a_log_that_ends_in_zeros_before_its_time_is_refused() {
    let history = some_history();
    let last = history.states.len() - 1;
    for (complete, end) in &history.ends[..history.ends.len() - 1] {
        for cut in [*end, end + 40] {
            let mut image = history.image.clone();
            image.get_mut(&history.segment).unwrap()[cut..].fill(0);
            let words = format!("{} more were acknowledged", last - complete);
            refused(&image, &history.segment, &words);
            goes_on_with(&history, &image, *complete);
        }
    }
}

#[test]
fn zeros_in_the_middle_are_refused() {
    let history = some_history();
    let ends = &history.ends;
    assert!(ends.len() > 8);
    for pair in ends[..ends.len() - 1].windows(2) {
        let (from, to) = (pair[0].1.next_multiple_of(32), pair[1].1);
        for (from, to) in [(from, to), (from, from + 32), (from + 32, to), (from / 512 * 512, to.next_multiple_of(512))]
        {
            let from = from.max(512);
            let mut image = history.image.clone();
            let content = image.get_mut(&history.segment).unwrap();
            if content[from..to].iter().all(|byte| *byte == 0) {
                continue;
            }
            content[from..to].fill(0);
            refused(&image, &history.segment, "");
        }
    }
}

#[test]
fn files_missing_swapped_doubled_or_of_another_time_are_refused() {
    // The image after every commit, to mix files of different times.
    let disk = TestDisk::default();
    let mut store = open(&disk);
    load(&mut store).unwrap();
    let mut numbers = Numbers(5);
    let mut images = Vec::new();
    for _ in 0..150 {
        store.commit(&random_batch(&mut numbers)).unwrap();
        images.push(disk.image());
    }
    drop(store);
    let image = images.iter().rfind(|image| image.keys().filter(|name| name.starts_with("log-")).count() >= 3).unwrap();
    let logs: Vec<&String> = image.keys().filter(|name| name.starts_with("log-")).collect();
    let snapshot = image.keys().find(|name| name.starts_with("snapshot-")).unwrap();

    // Missing, each one of them; the last segment, too, and what says that it was there.
    for name in logs.iter().chain([&snapshot]).copied().chain([&"synced".to_owned()]) {
        let mut less = image.clone();
        less.remove(name);
        refused(&less, "", "");
    }
    // Swapped, and doubled under the next name.
    for pair in logs.windows(2) {
        let mut swapped = image.clone();
        swapped.insert(pair[0].clone(), image[pair[1]].clone());
        swapped.insert(pair[1].clone(), image[pair[0]].clone());
        refused(&swapped, pair[1], "under another name");
        let mut doubled = image.clone();
        doubled.insert(pair[1].clone(), image[pair[0]].clone());
        refused(&doubled, pair[1], "under another name");
    }
    // An old snapshot with the new log, and the other way round.
    let older =
        images.iter().find_map(|old| old.keys().find(|name| name.starts_with("snapshot-")).map(|name| (old, name)));
    let (old, old_snapshot) = older.unwrap();
    assert_ne!(old_snapshot, snapshot);
    let mut mixed = image.clone();
    mixed.remove(snapshot);
    mixed.insert(old_snapshot.clone(), old[old_snapshot].clone());
    refused(&mixed, "log-", "the log begins later than it should");
    let mut mixed = old.clone();
    mixed.retain(|name, _| !name.starts_with("snapshot-"));
    mixed.insert(snapshot.clone(), image[snapshot].clone());
    refused(&mixed, "log-", "the snapshot holds");
}

#[test]
fn files_of_two_stores_do_not_fit_together() {
    let run = |seed: u64| {
        let disk = TestDisk::default();
        let mut store = open(&disk);
        load(&mut store).unwrap();
        for index in 0..150_u64 {
            // The same lengths in both, so that only the content tells them apart.
            let value = (seed + index).to_be_bytes().repeat(20);
            store.commit(&one_row(&(index % 30).to_be_bytes(), &value)).unwrap();
        }
        disk.image()
    };
    let (ours, theirs) = (run(1), run(1000));
    assert!(ours.keys().eq(theirs.keys()) && ours.keys().any(|name| name.starts_with("snapshot-")));
    for name in ours.keys().filter(|name| name.starts_with("log-") || name.starts_with("snapshot-")) {
        let mut mixed = ours.clone();
        mixed.insert(name.clone(), theirs[name].clone());
        refused(&mixed, "log-", "it does not f");
    }
}

/// The names of what is damaged, in the order it is told.
fn named(image: &Image) -> Vec<String> {
    let damages = ReadStore::open(Arc::new(TestDisk::new(image))).unwrap().examine();
    let names = damages.into_iter().map(|error| match error {
        StoreError::Corrupt { file, .. } | StoreError::Lost { file, .. } | StoreError::Version { file, .. } => file,
        other => panic!("{other}"),
    });
    names.collect()
}

#[test]
fn whoever_examines_a_folder_is_told_of_every_damaged_file() {
    let disk = TestDisk::default();
    let mut store = open(&disk);
    load(&mut store).unwrap();
    let mut numbers = Numbers(5);
    let image = loop {
        store.commit(&random_batch(&mut numbers)).unwrap();
        let image = disk.image();
        let logs = image.keys().filter(|name| name.starts_with("log-")).count();
        if logs >= 3 && image.keys().any(|name| name.starts_with("snapshot-")) {
            break image;
        }
    };
    let files: Vec<String> =
        image.keys().filter(|name| *name != "reserve" && !name.starts_with("spare-")).rev().cloned().collect();
    assert_eq!(named(&image), Vec::<String>::new(), "nothing is wrong with it");
    let flip = |image: &mut Image, name: &String, at: usize| image.get_mut(name).unwrap()[at] ^= 1;
    // Every file, in its head and behind it; and any two of them.
    for at in [9, 20] {
        let mut all = image.clone();
        files.iter().for_each(|name| flip(&mut all, name, at));
        let mut expected = files.clone();
        expected.sort();
        let mut told = named(&all);
        told.sort();
        told.dedup();
        assert_eq!(told, expected);
    }
    for first in &files {
        for second in files.iter().filter(|second| *second != first) {
            let mut two = image.clone();
            flip(&mut two, first, 9);
            two.remove(second);
            let told = named(&two);
            assert!(told.contains(first), "{first} beside a missing {second}: {told:?}");
        }
    }
    // A segment that is missing in the middle, and one that is damaged behind it.
    let logs: Vec<&String> = image.keys().filter(|name| name.starts_with("log-")).collect();
    let mut both = image.clone();
    both.remove(logs[1]);
    flip(&mut both, logs[0], 9);
    let told = named(&both);
    assert!(told.contains(logs[0]) && told.contains(logs[1]), "{told:?}");
}

/// Whoever goes on without acknowledged writes must not give their revisions to others.
#[test]
fn an_accepted_loss_is_told_until_the_numbers_are_written_again() {
    let history = some_history();
    let mut image = history.image.clone();
    image.get_mut(&history.segment).unwrap()[history.ends[2].1..].fill(0);
    let (disk, mut store) = accept(&image);
    load(&mut store).unwrap();
    assert!(store.rewound());
    store.commit(&one_row(b"a", b"no number")).unwrap();
    drop(store);
    let mut numbers = Batch::new();
    numbers.put(Table::META, b"revision", b"9");
    // The proof of the loss is gone, and it is known all the same.
    let mut store = open(&disk);
    load(&mut store).unwrap();
    assert!(store.rewound() && store.dropped().is_none());
    store.commit(&numbers).unwrap();
    drop(store);
    let mut store = open(&disk);
    load(&mut store).unwrap();
    assert!(!store.rewound());
}
