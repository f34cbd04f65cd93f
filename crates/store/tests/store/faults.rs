//! The embedded store on a disk that fails: what was acknowledged survives, and nothing is acknowledged after a failure.

use std::io::ErrorKind;

use store::{EmbeddedStore, Store, StoreError, Table};

use crate::embedded::open;
use crate::test_disk::{Fault, Op, TestDisk};
use crate::{Numbers, Rows, apply, load, one_row, random_batch};

/// Runs until the disk fails; the rows acknowledged, and the rows there would be had the failing commit worked.
fn run_until_failure(disk: &TestDisk, seed: u64) -> Option<(Rows, Rows)> {
    let mut numbers = Numbers(seed);
    let mut acknowledged = Rows::new();
    let mut store = match EmbeddedStore::open(std::sync::Arc::new(disk.clone()), crate::embedded::SMALL) {
        Ok(store) => store,
        Err(_) => return Some((acknowledged.clone(), acknowledged)),
    };
    if load(&mut store).is_err() {
        return Some((acknowledged.clone(), acknowledged));
    }
    for _ in 0..150 {
        let batch = random_batch(&mut numbers);
        let mut wanted = acknowledged.clone();
        apply(&mut wanted, &batch);
        if store.commit(&batch).is_err() {
            let again = store.commit(&one_row(b"a", b"b"));
            assert!(matches!(again, Err(StoreError::Unusable { .. })), "a failed store went on: {again:?}");
            return Some((acknowledged, wanted));
        }
        acknowledged = wanted;
    }
    None
}

#[test]
fn any_failing_call_loses_nothing_acknowledged() {
    let mut failures = 0;
    for op in [Op::Create, Op::Open, Op::List, Op::Read, Op::Write, Op::Sync, Op::SyncDir, Op::Rename, Op::Remove] {
        for n in 1..500 {
            let disk = TestDisk::default();
            disk.fail(op, n, ErrorKind::Other);
            let Some((acknowledged, wanted)) = run_until_failure(&disk, n) else { break };
            failures += 1;
            for image in [disk.image(), disk.synced_image()] {
                let rows = load(&mut open(&TestDisk::new(&image)));
                let rows = rows.unwrap_or_else(|error| panic!("{op:?} {n}: {error}"));
                assert!(rows == acknowledged || rows == wanted, "{op:?} {n}");
            }
        }
    }
    assert!(failures > 300, "{failures}");
}

#[test]
fn a_failed_sync_is_an_error_and_the_end() {
    let disk = TestDisk::default();
    let mut store = open(&disk);
    load(&mut store).unwrap();
    store.commit(&one_row(b"a", b"1")).unwrap();
    disk.fail(Op::Sync, 1, ErrorKind::Other);
    assert!(matches!(store.commit(&one_row(b"a", b"2")), Err(StoreError::Io { .. })));
    // The disk is well again, but what the failed sync left behind is unknown.
    disk.fail(Op::Sync, 1000, ErrorKind::Other);
    assert!(matches!(store.commit(&one_row(b"a", b"3")), Err(StoreError::Unusable { .. })));
}

#[test]
fn a_full_disk_is_announced_before_it_hurts_and_recovers() {
    let disk = TestDisk::default();
    let mut store = open(&disk);
    load(&mut store).unwrap();
    let space = store.space();
    store.commit(&one_row(b"first", b"1")).unwrap();
    assert!(!space.is_low());
    disk.set_capacity(Some(disk.used()));
    // The spare is there; the next one cannot be made.
    let mut index = 0_u32;
    while !space.is_low() {
        store.commit(&one_row(&index.to_be_bytes(), &[1; 100])).unwrap();
        index += 1;
    }
    // What was written ahead is room for removals.
    for removed in 0..20_u32 {
        let mut batch = store::Batch::new();
        batch.delete(Table::OBJECTS, &removed.to_be_bytes());
        store.commit(&batch).unwrap();
    }
    disk.set_capacity(None);
    store.commit(&one_row(b"room", b"again")).unwrap();
    assert!(!space.is_low());
    let rows = load(&mut open(&TestDisk::new(&disk.synced_image()))).unwrap();
    assert_eq!(rows.len(), 2 + index as usize - 20);
}

fn delete(key: u32) -> store::Batch {
    let mut batch = store::Batch::new();
    batch.delete(Table::OBJECTS, &key.to_be_bytes());
    batch
}

/// As an engine does it: while it is low only deletions, and nothing once the log itself is used up.
#[test]
fn on_a_full_disk_everything_can_be_deleted_and_the_room_comes_back() {
    for kept in [0, 3000, 9000] {
        let disk = TestDisk::default();
        let (store, keys) = full(&disk, kept);
        // Somebody starts it again on the full disk.
        drop(store);
        let mut store = open(&disk);
        assert_eq!(load(&mut store).unwrap().len(), keys as usize);
        let space = store.space();
        for key in 0..keys {
            assert!(space.admits(0), "{kept}: no room for deletion {key} of {keys}");
            store.commit(&delete(key)).unwrap_or_else(|error| panic!("{kept}: deletion {key} of {keys}: {error}"));
        }
        // The disk is as small as before, and it is enough again.
        let mut rounds = 0;
        while space.is_low() {
            store.commit(&delete(0)).unwrap();
            rounds += 1;
            assert!(rounds < 1000 && space.admits(0), "{kept}: it stays low");
        }
        store.commit(&one_row(b"room", b"again")).unwrap();
        assert_eq!(load(&mut open(&TestDisk::new(&disk.synced_image()))).unwrap().len(), 1);
    }
}

/// A store with several segments, and how many rows it has.
fn filled(disk: &TestDisk) -> (EmbeddedStore, u32) {
    let mut store = open(disk);
    load(&mut store).unwrap();
    let mut keys = 0_u32;
    while disk.used() < 60_000 {
        store.commit(&one_row(&keys.to_be_bytes(), &[1; 300])).unwrap();
        keys += 1;
    }
    (store, keys)
}

/// A store whose disk has just become full, but for some bytes, and how many rows it has.
fn full(disk: &TestDisk, kept: usize) -> (EmbeddedStore, u32) {
    let (mut store, mut keys) = filled(disk);
    let space = store.space();
    disk.set_capacity(Some(disk.used() + kept));
    while !space.is_low() {
        store.commit(&one_row(&keys.to_be_bytes(), &[1; 300])).unwrap();
        keys += 1;
    }
    (store, keys)
}

fn delete_all(keys: std::ops::Range<u32>) -> store::Batch {
    let mut batch = store::Batch::new();
    keys.for_each(|key| batch.delete(Table::OBJECTS, &key.to_be_bytes()));
    batch
}

/// The deletions do not fill a segment: what makes room is in the one that is being written. On a disk that has hardly any more
/// room than what is stored, before and after a start, and with rows that stay.
#[test]
fn what_deletions_free_is_room_before_their_segment_is_full() {
    let cases = (0..24_usize).flat_map(|step| [(step * 1500, 0, false), (step * 1500, 9, true)]);
    for (kept, stays, restarts) in cases {
        let case = format!("{kept} bytes, {stays} rows, {restarts}");
        let disk = TestDisk::default();
        let (mut store, keys) = full(&disk, kept);
        let mut space = store.space();
        // All that is full was taken into a snapshot, and there is still too little room.
        store.commit(&delete_all(stays..keys)).unwrap();
        if restarts {
            drop(store);
            store = open(&disk);
            assert_eq!(load(&mut store).unwrap().len(), stays as usize, "{case}");
            space = store.space();
        }
        for key in 0..3 {
            store.commit(&delete(keys + key)).unwrap();
        }
        assert!(!space.is_low(), "{case}: it stays low");
        store.commit(&one_row(b"room", &[1; 3000])).unwrap();
        for image in [disk.image(), disk.synced_image()] {
            assert_eq!(load(&mut open(&TestDisk::new(&image))).unwrap().len(), stays as usize + 1, "{case}");
        }
    }
}

/// Everything was deleted before the disk became full: what is kept for snapshots is longer than any will be.
#[test]
fn a_disk_that_only_lacks_what_nobody_needs_is_not_full() {
    let mut lows = 0;
    for kept in (0..10_000).step_by(500) {
        let disk = TestDisk::default();
        let (mut store, keys) = filled(&disk);
        let space = store.space();
        store.commit(&delete_all(0..keys)).unwrap();
        disk.set_capacity(Some(disk.used() + kept));
        let (mut was_low, mut low_for) = (false, 0);
        for key in 0..300 {
            store.commit(&delete(key)).unwrap();
            low_for = if space.is_low() { low_for + 1 } else { 0 };
            was_low |= low_for > 0;
            assert!(low_for < 3, "{kept} bytes: it stays low");
        }
        lows += u32::from(was_low);
    }
    assert!(lows > 0, "none was ever full");
}

/// The first snapshot that would make room finds the disk full all the same, because something else grew meanwhile. Nobody
/// writes after that: whoever would is refused.
#[test]
fn room_is_made_later_if_it_cannot_be_made_at_once() {
    let disk = TestDisk::default();
    let keys = full(&disk, 9000).1;
    let options = store::embedded::Options { background: true, ..crate::embedded::SMALL };
    let mut store = EmbeddedStore::open(std::sync::Arc::new(disk.clone()), options).unwrap();
    load(&mut store).unwrap();
    let space = store.space();
    let begun = std::time::Instant::now();
    let until = |what: &str, done: &dyn Fn() -> bool| {
        while !done() {
            assert!(begun.elapsed().as_secs() < 60, "it never {what}");
            std::thread::yield_now();
        }
    };
    until("was low", &|| space.is_low());
    disk.fail(Op::Rename, 1, ErrorKind::StorageFull);
    store.commit(&delete_all(5..keys)).unwrap();
    until("tried", &|| disk.failed() > 0);
    disk.heal();
    until("made room", &|| !space.is_low());
    drop(store);
    assert_eq!(load(&mut open(&TestDisk::new(&disk.synced_image()))).unwrap().len(), 5);
}

#[test]
fn room_is_made_on_a_disk_that_also_fails_without_losing_anything() {
    let mut failures = 0;
    for op in [Op::Create, Op::Open, Op::Read, Op::Write, Op::Sync, Op::SyncDir, Op::Rename, Op::Remove] {
        for n in 1..60 {
            let disk = TestDisk::default();
            let (mut store, keys) = full(&disk, 3000);
            disk.fail(op, n, ErrorKind::Other);
            let deleted = store.commit(&delete_all(5..keys)).is_ok();
            let _until_it_fails = (0..3).all(|key| store.commit(&delete(keys + key)).is_ok());
            if disk.failed() == 0 {
                break;
            }
            failures += 1;
            for image in [disk.image(), disk.synced_image()] {
                let rows = load(&mut open(&TestDisk::new(&image)));
                let rows = rows.unwrap_or_else(|error| panic!("{op:?} {n}: {error}")).len();
                assert!(rows == 5 || (!deleted && rows == keys as usize), "{op:?} {n}: {rows} of {keys}");
            }
        }
    }
    assert!(failures > 30, "{failures}");
}

#[test]
fn a_disk_that_stays_full_ends_in_a_typed_error_and_loses_nothing() {
    let disk = TestDisk::default();
    let mut store = open(&disk);
    load(&mut store).unwrap();
    disk.set_capacity(Some(disk.used() + 3000));
    let mut committed = 0_u32;
    let error = loop {
        match store.commit(&one_row(&committed.to_be_bytes(), &[1; 100])) {
            Ok(()) => committed += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    assert!(committed > 20);
    disk.set_capacity(None);
    assert_eq!(load(&mut open(&TestDisk::new(&disk.image()))).unwrap().len(), committed as usize);
}

/// Connections, too, are open files: somebody else's may be too many for a while.
#[test]
fn too_many_open_files_are_waited_out() {
    const TOO_MANY_OPEN_FILES: i32 = 24;
    let disk = TestDisk::default();
    let mut store = open(&disk);
    load(&mut store).unwrap();
    store.commit(&one_row(b"first", b"1")).unwrap();
    let mut commits = 0_u32;
    for op in [Op::Create, Op::Open] {
        disk.fail_with(op, 1, Fault::System(TOO_MANY_OPEN_FILES));
        let before = disk.failed();
        // Until the upkeep has tried in vain; the segment and the spare are there.
        while disk.failed() == before {
            store.commit(&one_row(&commits.to_be_bytes(), &[1; 100])).unwrap();
            commits += 1;
        }
        // And on into the segment that cannot be made: the commit waits.
        let healer = disk.clone();
        let healing = std::thread::spawn(move || {
            let begun = healer.failed();
            while healer.failed() < begun + 40 {
                std::thread::yield_now();
            }
            healer.heal();
        });
        while !healing.is_finished() {
            store.commit(&one_row(&commits.to_be_bytes(), &[1; 100])).unwrap();
            commits += 1;
        }
        healing.join().unwrap();
        assert!(!store.space().is_low(), "the disk is not full");
    }
    for _ in 0..200 {
        store.commit(&one_row(&commits.to_be_bytes(), &[1; 100])).unwrap();
        commits += 1;
    }
    assert_eq!(load(&mut open(&TestDisk::new(&disk.synced_image()))).unwrap().len(), 1 + commits as usize);
}
