//! The simulated disk: what it promises, and what it takes back.

use std::io::ErrorKind;

use simulator::disk::{Call, SimDisk};
use simulator::rng::Rng;
use store::disk::{Disk, DiskFile};

fn read(disk: &SimDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn created(disk: &SimDisk, name: &str) -> Box<dyn DiskFile> {
    let file = disk.create(name).unwrap();
    disk.sync_dir().unwrap();
    file
}

#[test]
fn what_was_synced_survives_every_crash() {
    for seed in 0..50 {
        let disk = SimDisk::new(Rng::new(seed), false);
        let file = created(&disk, "a");
        file.write_at(0, b"kept").unwrap();
        file.sync_data().unwrap();
        file.write_at(4, &[7; 2000]).unwrap();
        disk.crash();
        assert_eq!(&read(&disk, "a")[..4], b"kept", "seed {seed}");
        assert!(file.write_at(0, b"x").is_err(), "a handle from before the crash works");
    }
}

#[test]
fn what_was_not_synced_is_lost_kept_or_torn_at_sectors() {
    let (mut lost, mut kept, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let disk = SimDisk::new(Rng::new(seed), false);
        let file = created(&disk, "a");
        file.set_len(2048).unwrap();
        file.sync_data().unwrap();
        file.write_at(0, &[7; 2048]).unwrap();
        disk.crash();
        let bytes = read(&disk, "a");
        let sectors: Vec<bool> = bytes.chunks(512).map(|sector| sector[0] == 7).collect();
        for (sector, is_there) in bytes.chunks(512).zip(&sectors) {
            assert!(sector.iter().all(|byte| (*byte == 7) == *is_there), "a sector is torn");
        }
        match sectors.iter().filter(|is_there| **is_there).count() {
            0 => lost += 1,
            4 => kept += 1,
            _ => torn += 1,
        }
    }
    assert!(lost > 10 && kept > 10 && torn > 10, "{lost} {kept} {torn}");
}

#[test]
fn names_need_a_sync_of_their_own() {
    let (mut there, mut gone) = (0, 0);
    for seed in 0..50 {
        let disk = SimDisk::new(Rng::new(seed), false);
        created(&disk, "old");
        disk.create("new").unwrap();
        disk.rename("old", "renamed").unwrap();
        disk.crash();
        let names = disk.list().unwrap();
        assert!(names.contains(&"old".to_owned()) != names.contains(&"renamed".to_owned()), "{names:?}");
        if names.contains(&"new".to_owned()) { there += 1 } else { gone += 1 }
    }
    assert!(there > 5 && gone > 5);
}

#[test]
fn faults_come_when_they_were_ordered() {
    let disk = SimDisk::new(Rng::new(1), false);
    let file = created(&disk, "a");
    disk.fail(Call::Write, 1);
    file.write_at(0, b"1").unwrap();
    assert!(file.write_at(0, b"2").is_err());
    file.write_at(0, b"3").unwrap();
    assert_eq!(disk.take_failed(), [Call::Write]);
    disk.fill(Some(10));
    assert_eq!(file.write_at(0, &[0; 20]).unwrap_err().kind(), ErrorKind::StorageFull);
    file.write_at(0, &[0; 5]).unwrap();
    disk.fill(None);
    file.write_at(0, &[0; 20]).unwrap();
    disk.die_after(1);
    assert!(file.sync_data().is_err() && disk.list().is_err() && disk.has_died());
    disk.crash();
    assert!(disk.list().is_ok() && !disk.has_died());
}

#[test]
fn a_failed_sync_is_not_made_good_by_the_next() {
    let mut lost = 0;
    for seed in 0..50 {
        let disk = SimDisk::new(Rng::new(seed), false);
        let file = created(&disk, "a");
        file.write_at(0, b"x").unwrap();
        disk.fail(Call::Sync, 0);
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        assert_eq!(read(&disk, "a"), b"x");
        disk.crash();
        lost += u32::from(read(&disk, "a").is_empty());
    }
    assert!(lost > 5);
}

#[test]
fn a_second_holder_waits_for_the_end_of_the_first() {
    let disk = SimDisk::new(Rng::new(1), false);
    assert!(disk.lock().unwrap() && !disk.lock().unwrap());
    disk.restart_process();
    assert!(disk.lock().unwrap());
}

#[test]
fn a_flip_changes_one_bit_of_the_copy_only() {
    let disk = SimDisk::new(Rng::new(1), false);
    assert!(disk.flip().is_none());
    let file = created(&disk, "a");
    file.write_at(0, &[255; 64]).unwrap();
    file.sync_data().unwrap();
    let copy = disk.copy();
    assert!(copy.flip().unwrap().starts_with("a at "));
    let ones: u32 = read(&copy, "a").iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(ones, 64 * 8 - 1);
    assert_eq!(read(&disk, "a"), [255; 64]);
}
