//! The files of every format version, kept: they must stay readable, and the current version must not change by accident.
//!
//! After a deliberate change: raise the version, keep the old folder, and write the new one with
//! `BURSAR_WRITE_GOLDEN=1 cargo test -p store golden`.

use std::path::PathBuf;

use store::embedded::FORMAT_VERSION;
use store::{Journal, Store, StoreError};

use crate::embedded::open;
use crate::test_disk::{Image, TestDisk};
use crate::{Numbers, Rows, apply, load, random_batch};

fn folder(version: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/v{version}"))
}

/// The same history every time: snapshots, sealed segments, deletions.
fn make() -> (Image, Rows) {
    let disk = TestDisk::default();
    let mut store = open(&disk);
    let mut rows = load(&mut store).unwrap();
    let mut numbers = Numbers(2026);
    for index in 0..100_u8 {
        let mut batch = random_batch(&mut numbers);
        if index % 3 == 0 {
            batch.append(Journal(index % 2), index.into(), &[index; 90]);
        }
        store.commit(&batch).unwrap();
        apply(&mut rows, &batch);
    }
    Box::new(store).close().unwrap();
    let mut image = disk.image();
    image.retain(|name, _| !name.starts_with("spare-") && name != "reserve");
    (image, rows)
}

#[test]
fn golden_files_are_read_and_written_alike() {
    let (image, rows) = make();
    let current = folder(FORMAT_VERSION);
    if std::env::var_os("BURSAR_WRITE_GOLDEN").is_some() {
        std::fs::create_dir_all(&current).unwrap();
        for (name, content) in &image {
            std::fs::write(current.join(name), content).unwrap();
        }
    }
    for version in 1..=FORMAT_VERSION {
        let kept: Image = std::fs::read_dir(folder(version))
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
            .collect();
        let mut store = open(&TestDisk::new(&kept));
        assert_eq!(load(&mut store).unwrap(), rows, "version {version} cannot be read");
        let entries = [0, 1].map(|journal| store.journals().span(Journal(journal)).unwrap());
        assert_eq!(entries, if version < 3 { [1..1, 1..1] } else { [1..18, 1..18] });
        if version == FORMAT_VERSION {
            assert!(kept == image, "the bytes that are written have changed: raise FORMAT_VERSION");
        }
    }
}

#[test]
fn a_later_version_is_refused_in_words() {
    let (image, _) = make();
    for name in image.keys().filter(|name| !["synced", "journals"].contains(&name.as_str())) {
        let mut later = image.clone();
        let head = &mut later.get_mut(name).unwrap()[..64];
        head[8] = 99;
        let checksum = crc32fast::hash(&head[..60]);
        head[60..].copy_from_slice(&checksum.to_le_bytes());
        let disk = TestDisk::new(&later);
        let error = load(&mut open(&disk)).unwrap_err();
        assert!(matches!(error, StoreError::Version { found: 99, known: FORMAT_VERSION, .. }), "{error}");
        assert!(error.to_string().contains(name));
        assert_eq!(disk.image(), later, "something was written before the version was understood");
    }
}
