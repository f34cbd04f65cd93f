//! Backups: of one moment, whole or refused, and the same state again when they are laid out.

use std::path::Path;
use std::sync::Arc;

use store::disk::FolderDisk;
use store::embedded::{Archive, Backup, Options, ReadStore};
use store::{EmbeddedStore, Store, StoreError};

use crate::embedded::SMALL;
use crate::{Numbers, Rows, apply, load, random_batch};

fn open(path: &Path) -> EmbeddedStore {
    let options = Options { segment_bytes: 16 * 1024, checkpoint_bytes: 32 * 1024, ..SMALL };
    EmbeddedStore::open(Arc::new(FolderDisk::open(path).unwrap()), options).unwrap()
}

fn save(mut backup: Backup, path: &Path) {
    let mut bytes = Vec::new();
    while let Some(piece) = backup.next_piece().unwrap() {
        bytes.extend_from_slice(&piece);
    }
    std::fs::write(path, bytes).unwrap();
}

fn rows_of(path: &Path) -> Result<Rows, StoreError> {
    load(&mut ReadStore::open(Arc::new(Archive::open(path)?))?)
}

#[test]
fn a_backup_is_the_state_of_one_moment_whatever_is_written_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let (data, saved) = (folder.path().join("data"), folder.path().join("saved"));
    let mut store = open(&data);
    let mut rows = load(&mut store).unwrap();
    let mut numbers = Numbers(40);
    let maintenance = store.maintenance().unwrap();
    for round in 0..12 {
        for _ in 0..numbers.below(60) {
            let batch = random_batch(&mut numbers);
            store.commit(&batch).unwrap();
            apply(&mut rows, &batch);
        }
        let backup = maintenance.backup().unwrap();
        let taken = rows.clone();
        // Segments roll, and snapshots remove the files that are being sent.
        for _ in 0..200 {
            let batch = random_batch(&mut numbers);
            store.commit(&batch).unwrap();
            apply(&mut rows, &batch);
        }
        save(backup, &saved);
        assert_eq!(rows_of(&saved).unwrap(), taken);
        let restored = folder.path().join(format!("restored-{round}"));
        Archive::open(&saved).unwrap().restore(&restored).unwrap();
        let mut again = open(&restored);
        assert_eq!(load(&mut again).unwrap(), taken);
        assert_eq!(again.dropped(), None);
        assert!(again.rewound(), "what was acknowledged since is not in it");
        again.commit(&random_batch(&mut numbers)).unwrap();
    }
    drop(store);
    save(Backup::of_folder(&FolderDisk::open(&data).unwrap()).unwrap(), &saved);
    assert_eq!(rows_of(&saved).unwrap(), rows);
}

#[test]
fn a_backup_that_was_cut_or_changed_is_refused_and_nothing_is_laid_out() {
    let folder = tempfile::tempdir().unwrap();
    let (data, saved) = (folder.path().join("data"), folder.path().join("saved"));
    let mut store = open(&data);
    load(&mut store).unwrap();
    let mut numbers = Numbers(41);
    for _ in 0..20 {
        store.commit(&random_batch(&mut numbers)).unwrap();
    }
    save(store.maintenance().unwrap().backup().unwrap(), &saved);
    let whole = std::fs::read(&saved).unwrap();
    let refused = |bytes: &[u8]| {
        std::fs::write(&saved, bytes).unwrap();
        let error = rows_of(&saved).expect_err("refused");
        assert!(matches!(error, StoreError::Corrupt { .. } | StoreError::Version { .. }), "{error}");
        error.to_string()
    };
    for length in (0..whole.len()).step_by(11) {
        let why = refused(&whole[..length]);
        assert!(why.contains("cut off"), "{length}: {why}");
    }
    for at in (0..whole.len()).step_by(7) {
        let mut changed = whole.clone();
        changed[at] ^= 1 << numbers.below(8);
        // The four bytes behind the version say nothing.
        if !(12..16).contains(&at) {
            refused(&changed);
        }
    }
    // Two of the files in it: both are named.
    let mut changed = whole.clone();
    let [segment, mark] =
        [b"log-".as_slice(), b"synced"].map(|name| whole.windows(name.len()).position(|at| at == name).unwrap());
    changed[segment + 30] ^= 1;
    changed[mark + 10] ^= 1;
    std::fs::write(&saved, &changed).unwrap();
    let damages: Vec<String> = Archive::examine(&saved).iter().map(StoreError::to_string).collect();
    assert_eq!(damages.len(), 2, "{damages:?}");
    assert!(damages[0].contains("log-0") && damages[1].contains("synced in it"), "{damages:?}");
    refused(&[&whole[..], b"more"].concat());
    refused(b"");
    std::fs::write(&saved, &whole).unwrap();
    let archive = Archive::open(&saved).unwrap();
    let error = archive.restore(&data).unwrap_err().to_string();
    assert!(error.contains("is not empty"), "{error}");
    assert!(!std::fs::exists(folder.path().join("data.restoring")).unwrap());
}

#[test]
fn compaction_on_demand_leaves_nothing_of_what_was_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    load(&mut store).unwrap();
    store.commit(&crate::one_row(b"kept", b"kept")).unwrap();
    store.commit(&crate::one_row(b"secret", b"do-not-find-me")).unwrap();
    store.commit(&crate::one_row(b"secret", b"replaced")).unwrap();
    let found = |text: &[u8]| {
        let files =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
        files.into_iter().any(|bytes| bytes.windows(text.len()).any(|window| window == text))
    };
    assert!(found(b"do-not-find-me"));
    let maintenance = store.maintenance().unwrap();
    maintenance.compact();
    assert!(maintenance.is_compacting() && maintenance.waits_for_commit());
    store.commit(&crate::one_row(b"next", b"next")).unwrap();
    assert!(!maintenance.is_compacting());
    assert!(!found(b"do-not-find-me") && found(b"replaced"));
    drop((store, maintenance));
    assert_eq!(load(&mut open(folder.path())).unwrap().len(), 3);
}
