//! Journals on a disk that fails, fills up, loses what was not synced, and changes bytes.

use std::io::ErrorKind;
use std::sync::Arc;

use store::embedded::ReadStore;
use store::{Batch, EmbeddedStore, Journal, PageLimit, Retention, Store, StoreError, Table};

use crate::embedded::{SMALL, open};
use crate::journals::{JOURNALS, Model, random_entries};
use crate::test_disk::{Image, Op, TestDisk};
use crate::{Numbers, Rows, apply, load, one_row};

const KEPT: Retention = Retention { age_ms: Some(1500), bytes: Some(30_000), stays_from: None };

/// What was acknowledged, and what there would be had the failing commit worked.
struct Run {
    acknowledged: (Rows, Model),
    wanted: (Rows, Model),
    /// From which entry on each journal was readable when it ended.
    starts: Vec<u64>,
}

/// Runs, with a restart in the middle, until the disk fails; `None` if it never does.
fn run_until_failure(disk: &TestDisk, seed: u64) -> Option<Run> {
    let mut numbers = Numbers(seed);
    let mut clock_ms = 10_000;
    let mut run = Run { acknowledged: Default::default(), wanted: Default::default(), starts: vec![1; JOURNALS.len()] };
    for _ in 0..2 {
        let Ok(mut store) = EmbeddedStore::open(Arc::new(disk.clone()), SMALL) else { return Some(run) };
        if load(&mut store).is_err() {
            return Some(run);
        }
        let journals = store.journals();
        JOURNALS.iter().for_each(|journal| journals.retain(*journal, KEPT));
        for _ in 0..90 {
            let batch = random_entries(&mut numbers, &mut clock_ms);
            apply(&mut run.wanted.0, &batch);
            run.wanted.1.take(&batch);
            if store.commit(&batch).is_err() {
                assert!(matches!(store.commit(&one_row(b"a", b"b")), Err(StoreError::Unusable { .. })));
                return Some(run);
            }
            run.acknowledged = run.wanted.clone();
            journals.retire(clock_ms);
            for (journal, start) in JOURNALS.iter().zip(&mut run.starts) {
                *start = journals.span(*journal).unwrap().start;
            }
        }
    }
    None
}

/// Rows and entries of one moment, and none that was retired comes back.
fn check(run: &Run, image: &Image, what: &str) {
    let mut store = open(&TestDisk::new(image));
    let rows = load(&mut store).unwrap_or_else(|error| panic!("{what}: {error}"));
    let journals = store.journals();
    let ends: Vec<u64> = JOURNALS.iter().map(|journal| journals.span(*journal).unwrap().end).collect();
    let end_of = |model: &Model| -> Vec<u64> {
        JOURNALS.iter().map(|journal| model.of(*journal).last().map_or(1, |last| last.sequence + 1)).collect()
    };
    let (expected, model) = match ends == end_of(&run.acknowledged.1) && rows == run.acknowledged.0 {
        true => &run.acknowledged,
        false => &run.wanted,
    };
    assert!(rows == *expected && ends == end_of(model), "{what}: {ends:?}");
    for (journal, start) in JOURNALS.iter().zip(&run.starts) {
        assert!(model.check(&journals, *journal) >= *start, "{what}: retired entries are back");
    }
    // And it goes on.
    let mut batch = one_row(b"after", b"");
    batch.append(Journal::AUDIT, 0, b"after");
    store.commit(&batch).unwrap();
    let page = journals.backward(Journal::AUDIT, u64::MAX, PageLimit::default()).unwrap();
    assert_eq!((page.entries[0].sequence, page.entries[0].value.as_slice()), (ends[0], b"after".as_slice()));
}

#[test]
fn any_failing_call_loses_no_entry_and_brings_none_back() {
    let mut failures = 0;
    for op in [Op::Create, Op::Open, Op::List, Op::Read, Op::Write, Op::Sync, Op::SyncDir, Op::Rename, Op::Remove] {
        for n in 1..2000 {
            let disk = TestDisk::default();
            disk.fail(op, n, ErrorKind::Other);
            let Some(run) = run_until_failure(&disk, n % 5) else { break };
            failures += 1;
            for image in [disk.image(), disk.synced_image()] {
                check(&run, &image, &format!("{op:?} {n}"));
            }
        }
    }
    assert!(failures > 1000, "{failures}");
}

#[test]
fn a_power_failure_after_any_commit_loses_no_entry() {
    let disk = TestDisk::default();
    let mut store = open(&disk);
    load(&mut store).unwrap();
    let journals = store.journals();
    let (mut numbers, mut clock_ms, mut model) = (Numbers(2), 10_000, Model::default());
    for _ in 0..300 {
        let batch = random_entries(&mut numbers, &mut clock_ms);
        store.commit(&batch).unwrap();
        model.take(&batch);
        for image in [disk.image(), disk.synced_image()] {
            let mut again = open(&TestDisk::new(&image));
            load(&mut again).unwrap();
            model.check_all(&again.journals());
        }
    }
    model.check_all(&journals);
}

/// While the disk is full entries stay in the log; whoever deletes goes on, and everything is there in the end.
#[test]
fn a_full_disk_loses_no_entry_and_refuses_no_deletion() {
    for kept in [0, 500, 3000, 9000] {
        let disk = TestDisk::default();
        let mut store = open(&disk);
        load(&mut store).unwrap();
        let (space, journals) = (store.space(), store.journals());
        let (mut model, mut keys) = (Model::default(), 0_u32);
        let mut commit = |store: &mut EmbeddedStore, batch: &mut Batch, value: &[u8]| {
            batch.append(Journal::AUDIT, 0, value);
            store.commit(batch).unwrap();
            model.take(batch);
        };
        while disk.used() < 60_000 {
            commit(&mut store, &mut one_row(&keys.to_be_bytes(), &[1; 300]), &[2; 60]);
            keys += 1;
        }
        disk.set_capacity(Some(disk.used() + kept));
        while !space.is_low() {
            commit(&mut store, &mut one_row(&keys.to_be_bytes(), &[1; 300]), &[2; 60]);
            keys += 1;
        }
        // All of it is deleted, in steps, and each deletion leaves an entry.
        for key in 0..keys {
            let mut batch = Batch::new();
            batch.delete(Table::OBJECTS, &key.to_be_bytes());
            assert!(space.admits(batch.bytes()), "{kept}: deletion {key} of {keys} is refused");
            commit(&mut store, &mut batch, &[3; 10]);
            // The room for what is laid out comes from the reserve.
            let appended = u64::from(keys) + u64::from(key) + 1;
            assert_eq!(journals.span(Journal::AUDIT).unwrap().end, appended + 1, "{kept}: deletion {key} of {keys}");
        }
        for image in [disk.image(), disk.synced_image()] {
            let mut again = open(&TestDisk::new(&image));
            assert!(load(&mut again).unwrap().is_empty());
            model.check(&again.journals(), Journal::AUDIT);
        }
        disk.set_capacity(None);
        store.commit(&one_row(b"room", b"again")).unwrap();
        assert!(!space.is_low(), "{kept}: it stays low");
        model.check(&journals, Journal::AUDIT);
    }
}

/// What is kept is too much for the disk: letting go of it makes room, and needs none.
#[test]
fn retiring_makes_room_on_a_full_disk() {
    let disk = TestDisk::default();
    let mut store = open(&disk);
    load(&mut store).unwrap();
    let (space, journals) = (store.space(), store.journals());
    let fill = |store: &mut EmbeddedStore| {
        let mut batch = one_row(b"a", b"1");
        batch.append(Journal::AUDIT, 0, &[2; 600]);
        store.commit(&batch).unwrap();
    };
    (0..150).for_each(|_| fill(&mut store));
    disk.set_capacity(Some(disk.used()));
    while !space.is_low() {
        fill(&mut store);
    }
    journals.retain(Journal::AUDIT, Retention { age_ms: None, bytes: Some(20_000), stays_from: None });
    journals.retire(0);
    store.commit(&one_row(b"a", b"2")).unwrap();
    assert!(!space.is_low());
    assert!(journals.span(Journal::AUDIT).unwrap().start > 50);
    (0..50).for_each(|_| fill(&mut store));
}

/// Some history with several full chapters, and what was appended.
fn some_journals() -> (Image, Model) {
    let disk = TestDisk::default();
    let mut store = open(&disk);
    load(&mut store).unwrap();
    let (mut numbers, mut clock_ms, mut model) = (Numbers(12), 0, Model::default());
    store.journals().retain(Journal::EVENTS, Retention { age_ms: Some(1000), bytes: None, stays_from: None });
    for _ in 0..260 {
        let batch = random_entries(&mut numbers, &mut clock_ms);
        store.commit(&batch).unwrap();
        model.take(&batch);
        store.journals().retire(clock_ms);
    }
    // So that everything counts that is in a file.
    store.maintenance().unwrap().compact();
    store.commit(&one_row(b"a", b"b")).unwrap();
    drop(store);
    (disk.image(), model)
}

fn read_everything(image: &Image) -> Result<Vec<(Journal, Vec<store::Entry>)>, StoreError> {
    let mut store = open(&TestDisk::new(image));
    load(&mut store)?;
    let mut all = Vec::new();
    for journal in JOURNALS {
        let mut from = 0;
        loop {
            let page = store.journals().forward(journal, from, PageLimit::default())?;
            let Some(last) = page.entries.last() else { break };
            from = last.sequence + 1;
            all.push((journal, page.entries));
        }
    }
    Ok(all)
}

fn is_of_journals(name: &str) -> bool {
    name.starts_with("journal-") || name == "journals"
}

#[test]
fn a_changed_byte_in_any_chapter_is_told_by_who_reads_and_by_who_examines() {
    let (image, _) = some_journals();
    let expected = read_everything(&image).unwrap();
    let examine = |image: &Image| ReadStore::open(Arc::new(TestDisk::new(image))).unwrap().examine();
    assert_eq!(examine(&image).len(), 0);
    let mut numbers = Numbers(13);
    let (mut refused, mut harmless) = (0, 0);
    for (name, content) in image.iter().filter(|(name, _)| is_of_journals(name)) {
        for at in (0..content.len()).step_by(if name == "journals" { 1 } else { 5 }) {
            let mut changed = image.clone();
            changed.get_mut(name).unwrap()[at] ^= 1 << numbers.below(8);
            let told = examine(&changed);
            match read_everything(&changed) {
                Ok(read) => {
                    assert!(read == expected, "{name} at {at}");
                    harmless += 1;
                }
                Err(StoreError::Corrupt { file, .. } | StoreError::Version { file, .. }) => {
                    assert!(is_of_journals(&file), "{name} at {at}: {file}");
                    assert!(!told.is_empty(), "{name} at {at} is not examined");
                    refused += 1;
                }
                Err(other) => panic!("{name} at {at}: {other}"),
            }
        }
    }
    assert!(refused > 2000 && harmless * 4 < refused, "{refused} refused, {harmless} harmless");
}

#[test]
fn chapters_that_are_missing_cut_or_of_another_store_are_refused() {
    let (image, _) = some_journals();
    let chapters: Vec<&String> = image.keys().filter(|name| name.starts_with("journal-")).collect();
    assert!(chapters.len() > 6, "{chapters:?}");
    let refused = |changed: &Image, what: &str| {
        let disk = TestDisk::new(changed);
        let error = load(&mut open(&disk)).expect_err(what);
        assert!(matches!(error, StoreError::Corrupt { .. }), "{what}: {error}");
        assert_eq!(disk.image(), *changed, "{what}: something was changed");
        assert!(!ReadStore::open(Arc::new(TestDisk::new(changed))).unwrap().examine().is_empty(), "{what}");
    };
    for name in chapters.iter().copied().chain([&"journals".to_owned()]) {
        let mut less = image.clone();
        less.remove(name);
        refused(&less, &format!("{name} is missing"));
        let mut cut = image.clone();
        let content = cut.get_mut(name).unwrap();
        content.truncate(content.len() - 1);
        refused(&cut, &format!("{name} is cut"));
    }
    // Under the name of another.
    for pair in chapters.windows(2) {
        let mut swapped = image.clone();
        swapped.insert(pair[1].clone(), image[pair[0]].clone());
        refused(&swapped, &format!("{} is doubled", pair[0]));
    }
    // The same numbers and lengths, other values.
    let run = |byte: u8| {
        let disk = TestDisk::default();
        let mut store = open(&disk);
        load(&mut store).unwrap();
        for _ in 0..100 {
            let mut batch = one_row(b"a", &[9; 200]);
            batch.append(Journal::AUDIT, 0, &[byte; 300]);
            store.commit(&batch).unwrap();
        }
        disk.image()
    };
    let (ours, theirs) = (run(1), run(2));
    let full = ours.keys().filter(|name| name.starts_with("journal-")).nth(1).unwrap();
    let mut mixed = ours.clone();
    mixed.insert(full.clone(), theirs[full].clone());
    refused(&mixed, "a chapter of another store");
}

/// Folders of before go on, and what they are given is not taken for damage by a release that does not know it.
#[test]
fn a_folder_of_an_earlier_version_takes_entries_in_a_new_segment() {
    for version in 1..=2 {
        let folder = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/v{version}"));
        let kept: Image = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
            .collect();
        let disk = TestDisk::new(&kept);
        let mut store = open(&disk);
        let rows = load(&mut store).unwrap();
        let names: Vec<String> = disk.image().into_keys().collect();
        assert!(!names.iter().any(|name| is_of_journals(name)), "{names:?}");
        let mut batch = Batch::new();
        batch.append(Journal::AUDIT, 1, b"first");
        store.commit(&batch).unwrap();
        drop(store);
        let image = disk.image();
        let last = image.keys().rfind(|name| name.starts_with("log-")).unwrap();
        assert!(!kept.contains_key(last) && image[last][8] == 3, "{last}");
        let mut store = open(&disk);
        assert_eq!(load(&mut store).unwrap(), rows);
        assert_eq!(store.journals().span(Journal::AUDIT).unwrap(), 1..2);
    }
}
