//! Journals against a plain list: what was appended is what is read, in order, in any range, until it is retired.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use store::disk::FolderDisk;
use store::embedded::{Archive, Backup, Options, ReadStore};
use store::{
    Batch, ENTRY_BYTES_MAX, EmbeddedStore, Entry, Journal, Journals, PageLimit, Retention, SharedMemory, Store,
    StoreError, Table,
};

use crate::embedded::{SMALL, open};
use crate::test_disk::TestDisk;
use crate::{Numbers, Rows, apply, load, one_row, random_batch};

pub const JOURNALS: [Journal; 3] = [Journal::AUDIT, Journal::EVENTS, Journal(255)];

/// Everything that was ever appended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model(BTreeMap<Journal, Vec<Entry>>);

impl Model {
    pub fn take(&mut self, batch: &Batch) {
        for entry in batch.entries() {
            let all = self.0.entry(entry.journal).or_default();
            let sequence = all.last().map_or(1, |last| last.sequence + 1);
            all.push(Entry { sequence, at_ms: entry.at_ms, value: entry.value.to_vec() });
        }
    }

    pub fn of(&self, journal: Journal) -> &[Entry] {
        self.0.get(&journal).map_or(&[], Vec::as_slice)
    }

    pub fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// All that is left of a journal is the end of what was appended; from which entry on.
    pub fn check(&self, journals: &Journals, journal: Journal) -> u64 {
        let all = self.of(journal);
        let span = journals.span(journal).unwrap();
        assert_eq!(span.end, all.last().map_or(1, |last| last.sequence + 1), "{journal:?}");
        let left: Vec<Entry> = all.iter().filter(|entry| entry.sequence >= span.start).cloned().collect();
        let read = read_all(journals, journal, PageLimit::default());
        assert!(read == left, "{journal:?}: {} of {} entries, {span:?}", read.len(), left.len());
        span.start
    }

    pub fn check_all(&self, journals: &Journals) {
        for journal in JOURNALS {
            self.check(journals, journal);
        }
    }
}

pub fn read_all(journals: &Journals, journal: Journal, limit: PageLimit) -> Vec<Entry> {
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let page = journals.forward(journal, from, limit).unwrap();
        let Some(last) = page.entries.last() else { return all };
        from = last.sequence + 1;
        all.extend(page.entries);
    }
}

/// Rows and entries together; moments mostly go on, and sometimes back.
pub fn random_entries(numbers: &mut Numbers, clock_ms: &mut i64) -> Batch {
    let mut batch = random_batch(numbers);
    for _ in 0..numbers.below(4) {
        *clock_ms += i64::try_from(numbers.below(10)).unwrap();
        let at_ms = *clock_ms - if numbers.below(8) == 0 { 50 } else { 0 };
        let length = [3, 30, 300][numbers.below(3) as usize];
        let value = vec![numbers.below(256) as u8; numbers.below(length) as usize];
        batch.append(JOURNALS[numbers.below(3) as usize], at_ms, &value);
    }
    batch
}

/// Any range, in both directions, and any moment, says the same as the plain list.
pub fn check_ranges(model: &Model, journals: &Journals, numbers: &mut Numbers, clock_ms: i64) {
    let journal = JOURNALS[numbers.below(3) as usize];
    let start = model.check(journals, journal);
    let left: Vec<&Entry> = model.of(journal).iter().filter(|entry| entry.sequence >= start).collect();
    let end = start + left.len() as u64;
    let limit = PageLimit { entries: 1 + numbers.below(40) as usize, bytes: numbers.below(3000) as usize };
    let at = numbers.below(end + 5);
    let fits = |left: &mut usize, count: usize, entry: &Entry| {
        let fits = count < limit.entries && (count == 0 || entry.value.len() <= *left);
        *left = left.saturating_sub(entry.value.len());
        fits
    };
    let cut = |entries: Vec<&Entry>| -> Vec<Entry> {
        let mut bytes_left = limit.bytes;
        let taken = entries.into_iter().enumerate().take_while(|(count, entry)| fits(&mut bytes_left, *count, entry));
        taken.map(|(_, entry)| entry.clone()).collect()
    };
    let page = journals.forward(journal, at, limit).unwrap();
    assert_eq!(page.entries, cut(left.iter().copied().filter(|entry| entry.sequence >= at).collect()));
    assert_eq!(page.span, start..end, "what was retired is told");
    let page = journals.backward(journal, at, limit).unwrap();
    assert_eq!(page.entries, cut(left.iter().rev().copied().filter(|entry| entry.sequence < at).collect()));
    let moment = clock_ms - i64::try_from(numbers.below(2000)).unwrap() + 20;
    let first = left.iter().find(|entry| entry.at_ms >= moment).map_or(end, |entry| entry.sequence);
    assert_eq!(journals.since(journal, moment).unwrap(), first, "{moment}");
}

/// Nothing that had to stay is gone, by its age or by the size of what stays.
fn check_retention(model: &Model, journals: &Journals, retention: Retention, now_ms: i64, chapter_bytes: u64) {
    for journal in JOURNALS {
        let start = model.check(journals, journal);
        let (gone, left): (Vec<&Entry>, Vec<&Entry>) =
            model.of(journal).iter().partition(|entry| entry.sequence < start);
        let bytes = |entries: &[&Entry]| entries.iter().map(|entry| entry.value.len() as u64).sum::<u64>();
        if let Some(max) = retention.bytes {
            assert!(bytes(&left) <= max + max / 4 + chapter_bytes, "{journal:?}: {} bytes are left", bytes(&left));
        }
        let young =
            gone.iter().rev().take_while(|entry| retention.age_ms.is_none_or(|age| entry.at_ms >= now_ms - age));
        if let (Some(max), Some(_)) = (retention.bytes, young.clone().next()) {
            // Every entry costs up to 52 bytes beside its value, and every chapter some more.
            let most = bytes(&left) + left.len() as u64 * 52 + 2 * chapter_bytes;
            assert!(most >= max, "{journal:?}: {most} bytes are left");
        } else {
            assert_eq!(young.count(), 0, "{journal:?}: young entries are gone");
        }
    }
}

#[test]
fn what_was_appended_is_read_back_until_it_is_retired() {
    for seed in 0..6 {
        let mut numbers = Numbers(100 + seed);
        let (disk, memory) = (TestDisk::default(), SharedMemory::new());
        let (mut model, mut rows, mut clock_ms) = (Model::default(), Rows::new(), 1_000_000);
        let retention = match seed % 3 {
            0 => Retention::default(),
            1 => Retention { age_ms: Some(3000), bytes: None, stays_from: None },
            _ => Retention { age_ms: Some(9000), bytes: Some(20_000), stays_from: None },
        };
        for _ in 0..12 {
            let mut plain = memory.acquire();
            let mut store = open(&disk);
            assert_eq!(load(&mut store).unwrap(), rows);
            assert_eq!(load(&mut plain).unwrap(), rows);
            let (journals, all) = (store.journals(), plain.journals());
            JOURNALS.iter().for_each(|journal| journals.retain(*journal, retention));
            model.check_all(&all);
            for _ in 0..numbers.below(120) {
                let batch = random_entries(&mut numbers, &mut clock_ms);
                store.commit(&batch).unwrap();
                plain.commit(&batch).unwrap();
                apply(&mut rows, &batch);
                model.take(&batch);
                check_ranges(&model, &journals, &mut numbers, clock_ms);
                check_ranges(&model, &all, &mut numbers, clock_ms);
                if numbers.below(20) == 0 {
                    journals.retire(clock_ms);
                    check_retention(&model, &journals, retention, clock_ms, 8192);
                }
            }
            if numbers.below(2) == 0 {
                Box::new(store).close().unwrap();
            }
        }
        assert!(model.len() > 500 && disk.image().keys().filter(|name| name.starts_with("journal-")).count() > 3);
        let retired =
            JOURNALS.iter().filter(|journal| open_and_load(&disk).journals().span(**journal).unwrap().start > 1);
        assert_eq!(retired.count() > 0, seed % 3 > 0, "seed {seed}");
    }
}

fn open_and_load(disk: &TestDisk) -> EmbeddedStore {
    let mut store = open(disk);
    load(&mut store).unwrap();
    store
}

#[test]
fn the_memory_store_retires_entry_by_entry() {
    let mut store = SharedMemory::new().acquire();
    let journals = store.journals();
    let mut batch = Batch::new();
    (0..100).for_each(|at| batch.append(Journal::AUDIT, at, &[0; 10]));
    store.commit(&batch).unwrap();
    journals.retain(Journal::AUDIT, Retention { age_ms: Some(60), bytes: None, stays_from: None });
    journals.retire(100);
    assert_eq!(journals.span(Journal::AUDIT).unwrap(), 41..101);
    journals.retain(Journal::AUDIT, Retention { age_ms: None, bytes: Some(55), stays_from: None });
    journals.retire(100);
    assert_eq!(journals.span(Journal::AUDIT).unwrap(), 96..101);
    journals.retain(Journal::AUDIT, Retention { age_ms: Some(0), bytes: None, stays_from: None });
    journals.retire(1000);
    assert_eq!(journals.span(Journal::AUDIT).unwrap(), 101..101);
}

/// What somebody still needs, whatever its age and its size.
#[test]
fn what_stays_by_its_number_is_not_retired() {
    let disk = TestDisk::default();
    let plain = SharedMemory::new();
    let (mut store, mut memory) = (open_and_load(&disk), plain.acquire());
    for journals in [store.journals(), memory.journals()] {
        assert_eq!(journals.bytes(Journal::EVENTS).unwrap(), 0);
        journals.retain(Journal::EVENTS, Retention { age_ms: None, bytes: Some(0), stays_from: Some(0) });
    }
    for _ in 0..100 {
        let mut batch = Batch::new();
        (0..20).for_each(|at| batch.append(Journal::EVENTS, at, &[7; 100]));
        store.commit(&batch).unwrap();
        memory.commit(&batch).unwrap();
    }
    for (journals, least) in [(store.journals(), 200_000), (memory.journals(), 200_000)] {
        journals.retire(i64::MAX);
        assert_eq!(journals.span(Journal::EVENTS).unwrap(), 1..2001);
        let before = journals.bytes(Journal::EVENTS).unwrap();
        assert!((least..least * 2).contains(&before), "{before}");
        for stays_from in [700, 1500] {
            let retention = Retention { age_ms: Some(0), bytes: Some(0), stays_from: Some(stays_from) };
            journals.retain(Journal::EVENTS, retention);
            journals.retire(i64::MAX);
            let span = journals.span(Journal::EVENTS).unwrap();
            assert!(span.start <= stays_from && span.start > stays_from - 300, "{span:?}");
        }
        assert!(journals.bytes(Journal::EVENTS).unwrap() < before / 2);
        journals.retain(Journal::EVENTS, Retention { age_ms: Some(0), bytes: Some(0), stays_from: None });
        journals.retire(i64::MAX);
        assert!(journals.span(Journal::EVENTS).unwrap().start > 1500);
    }
}

/// Long enough for an index with several parts, and read across all of them.
#[test]
fn large_chapters_are_found_by_their_index() {
    let disk = TestDisk::default();
    let options = Options { segment_bytes: 300_000, checkpoint_bytes: 500_000, ..SMALL };
    let mut model = Model::default();
    let mut numbers = Numbers(7);
    for _ in 0..3 {
        let mut store = EmbeddedStore::open(Arc::new(disk.clone()), options).unwrap();
        load(&mut store).unwrap();
        let journals = store.journals();
        for index in 0..60 {
            let mut batch = Batch::new();
            for _ in 0..numbers.below(300) {
                let at_ms = 1000 * model.len() as i64 - i64::try_from(numbers.below(200_000)).unwrap();
                batch.append(Journal::AUDIT, at_ms, &vec![1; numbers.below(900) as usize]);
            }
            if index == 30 {
                batch.append(Journal::AUDIT, 0, &vec![3; ENTRY_BYTES_MAX]);
            }
            store.commit(&batch).unwrap();
            model.take(&batch);
        }
        model.check_all(&journals);
        for _ in 0..300 {
            check_ranges(&model, &journals, &mut numbers, 1000 * model.len() as i64);
        }
    }
    assert!(disk.image().keys().filter(|name| name.starts_with("journal-")).count() > 5);
}

#[test]
fn an_entry_that_is_too_long_refuses_the_whole_batch() {
    let disk = TestDisk::default();
    let mut store = open_and_load(&disk);
    let mut batch = one_row(b"a", b"1");
    batch.append(Journal::AUDIT, 0, b"fits");
    batch.append(Journal::AUDIT, 0, &[0; ENTRY_BYTES_MAX + 1]);
    assert!(matches!(store.commit(&batch), Err(StoreError::Oversize { .. })));
    let store = open_and_load(&disk);
    assert_eq!(store.journals().span(Journal::AUDIT).unwrap(), 1..1);
}

#[test]
fn numbers_are_never_given_again_although_all_entries_are_gone() {
    let disk = TestDisk::default();
    let mut next = 1;
    for round in 0..6 {
        let mut store = open_and_load(&disk);
        let journals = store.journals();
        journals.retain(Journal::AUDIT, Retention { age_ms: Some(0), bytes: None, stays_from: None });
        assert_eq!(journals.span(Journal::AUDIT).unwrap(), next..next, "round {round}");
        for _ in 0..40 {
            let mut batch = one_row(b"a", &[1; 200]);
            batch.append(Journal::AUDIT, 5, b"value");
            store.commit(&batch).unwrap();
            next += 1;
        }
        assert_eq!(journals.span(Journal::AUDIT).unwrap().end, next);
        journals.retire(1000);
        assert_eq!(journals.span(Journal::AUDIT).unwrap(), next..next, "round {round}");
        assert_eq!(journals.forward(Journal::AUDIT, 1, PageLimit::default()).unwrap().entries, []);
        assert!(!disk.image().keys().any(|name| name.starts_with("journal-")));
    }
}

fn save(mut backup: Backup, path: &Path) {
    let mut bytes = Vec::new();
    while let Some(piece) = backup.next_piece().unwrap() {
        bytes.extend_from_slice(&piece);
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn backups_carry_journals_and_numbers_go_on_above_those_that_were_given() {
    let folder = tempfile::tempdir().unwrap();
    let (data, saved) = (folder.path().join("data"), folder.path().join("saved"));
    let options = Options { segment_bytes: 16 * 1024, checkpoint_bytes: 32 * 1024, ..SMALL };
    let open = |path: &Path| {
        let mut store = EmbeddedStore::open(Arc::new(FolderDisk::open(path).unwrap()), options).unwrap();
        load(&mut store).unwrap();
        store
    };
    let (mut numbers, mut clock_ms, mut model) = (Numbers(9), 0, Model::default());
    let mut store = open(&data);
    store.journals().retain(Journal::EVENTS, Retention { age_ms: Some(2000), bytes: None, stays_from: None });
    for round in 0..6 {
        for _ in 0..numbers.below(200) {
            let batch = random_entries(&mut numbers, &mut clock_ms);
            store.commit(&batch).unwrap();
            model.take(&batch);
        }
        store.journals().retire(clock_ms);
        let backup = store.maintenance().unwrap().backup().unwrap();
        let (taken, span) = (model.clone(), store.journals().span(Journal::EVENTS).unwrap());
        // Chapters are filled and retired while they are being sent.
        for _ in 0..300 {
            let batch = random_entries(&mut numbers, &mut clock_ms);
            store.commit(&batch).unwrap();
            model.take(&batch);
        }
        store.journals().retire(clock_ms);
        save(backup, &saved);
        let archive = Archive::open(&saved).unwrap();
        assert_eq!(ReadStore::open(Arc::new(Archive::open(&saved).unwrap())).unwrap().examine().len(), 0);
        let restored = folder.path().join(format!("restored-{round}"));
        archive.restore(&restored).unwrap();
        let mut again = open(&restored);
        taken.check_all(&again.journals());
        assert_eq!(again.journals().span(Journal::EVENTS).unwrap(), span);
        // A journal without entries, too: there may have been some since.
        for journal in [Journal::EVENTS, Journal(77)] {
            let mut batch = Batch::new();
            batch.append(journal, clock_ms, b"after");
            again.commit(&batch).unwrap();
            let last = again.journals().backward(journal, u64::MAX, PageLimit::default()).unwrap().entries.remove(0);
            assert_eq!(last.value, b"after");
            assert!(last.sequence > 1_000_000_000, "{}", last.sequence);
        }
        // And they stay there.
        let mut meta = Batch::new();
        meta.put(Table::META, b"revision", b"1");
        again.commit(&meta).unwrap();
        drop(again);
        let mut again = open(&restored);
        assert!(!again.rewound());
        let mut batch = Batch::new();
        batch.append(Journal::HISTORY, clock_ms, b"later");
        again.commit(&batch).unwrap();
        assert!(again.journals().span(Journal::HISTORY).unwrap().start > 1_000_000_000);
        // Reading goes on over the gap, in both directions.
        let (limit, journals) = (PageLimit { entries: 3, bytes: 1 << 20 }, again.journals());
        let forward = read_all(&journals, Journal::EVENTS, limit);
        assert_eq!(&forward[..forward.len() - 1], &taken.of(Journal::EVENTS)[span.start as usize - 1..]);
        let (mut backward, mut before) = (Vec::new(), u64::MAX);
        while let Some(first) = {
            let page = journals.backward(Journal::EVENTS, before, limit).unwrap();
            backward.extend(page.entries.iter().cloned());
            page.entries.last().map(|entry| entry.sequence)
        } {
            before = first;
        }
        backward.reverse();
        assert_eq!(backward, forward);
    }
    drop(store);
    save(Backup::of_folder(&FolderDisk::open(&data).unwrap()).unwrap(), &saved);
    Archive::open(&saved).unwrap().restore(&folder.path().join("last")).unwrap();
    model.check_all(&open(&folder.path().join("last")).journals());
}

/// What a start reads does not grow with what was appended, but by the ends of files.
#[test]
fn a_start_does_not_read_what_was_appended() {
    let start = |commits: u32| {
        let disk = TestDisk::default();
        let mut store = open_and_load(&disk);
        for index in 0..commits {
            let mut batch = one_row(b"a", &index.to_be_bytes());
            batch.append(Journal::AUDIT, i64::from(index), &[7; 500]);
            store.commit(&batch).unwrap();
        }
        drop(store);
        let (entries, files) = (disk.used(), disk.image().len());
        let before = disk.bytes_read();
        let mut store = open(&disk);
        load(&mut store).unwrap();
        assert_eq!(store.journals().span(Journal::AUDIT).unwrap().end, u64::from(commits) + 1);
        (entries, disk.bytes_read() - before, files)
    };
    let (_, few, files_few) = start(200);
    let (many_bytes, many, files_many) = start(4000);
    assert!(many_bytes > 2_000_000 && files_many > files_few);
    // Heads, ends and names of full chapters, and no entry of them.
    assert!(many < few + 1024 * files_many && many < 300_000, "{few} bytes read, then {many} of {many_bytes}");
}

#[test]
fn readers_on_other_threads_see_what_is_committed_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: 64 * 1024, checkpoint_bytes: 128 * 1024, background: true, ..SMALL };
    let mut store = EmbeddedStore::open_folder_with(folder.path(), options).unwrap();
    load(&mut store).unwrap();
    let journals = store.journals();
    journals.retain(Journal::AUDIT, Retention { age_ms: None, bytes: Some(400_000), stays_from: None });
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2_u64)
            .map(|reader| {
                let (journals, done) = (journals.clone(), &done);
                scope.spawn(move || {
                    let (mut from, mut seen) = (1, 0_u64);
                    loop {
                        let last_round = done.load(std::sync::atomic::Ordering::Acquire);
                        let limit = PageLimit { entries: 50 + reader as usize, bytes: 100_000 };
                        let page = journals.forward(Journal::AUDIT, from, limit).unwrap();
                        for entry in &page.entries {
                            assert!(entry.sequence == from || (entry.sequence > from && page.span.start > from));
                            assert_eq!(entry.value[..8], entry.sequence.to_be_bytes());
                            from = entry.sequence + 1;
                            seen += 1;
                        }
                        if page.entries.is_empty() && last_round {
                            return (from, seen);
                        }
                    }
                })
            })
            .collect();
        for sequence in 1..=3000_u64 {
            let mut batch = one_row(b"a", &[1; 100]);
            batch.append(Journal::AUDIT, 0, &sequence.to_be_bytes().repeat(40));
            store.commit(&batch).unwrap();
            if sequence % 100 == 0 {
                // Whoever has committed reads it back at once.
                let page = journals.backward(Journal::AUDIT, u64::MAX, PageLimit { entries: 1, bytes: 0 }).unwrap();
                assert_eq!(page.entries[0].sequence, sequence);
            }
        }
        done.store(true, std::sync::atomic::Ordering::Release);
        for reader in readers {
            let (next, seen) = reader.join().unwrap();
            assert_eq!(next, 3001);
            assert!(seen > 1000);
        }
    });
    drop(journals);
    Box::new(store).close().unwrap();
    let kept: u64 = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with("journal-")))
        .map(|entry| entry.metadata().unwrap().len())
        .sum();
    assert!((300_000..700_000).contains(&kept), "{kept} bytes are kept");
}
