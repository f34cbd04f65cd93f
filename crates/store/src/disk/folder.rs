//! A real folder, worked on by its open handle: one that is moved away takes its store with it, and whatever is put in its
//! place is never touched.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, renameat, unlinkat};

use super::{Disk, DiskFile};

/// The file whose lock says that a process has the folder. The folder itself is locked as well, because a file can be
/// removed by somebody who takes it for a leftover; not every network file system can lock a folder.
const LOCK_NAME: &str = "lock";

/// Quota state names tenants and their objects: only the owner reads it.
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
const FOLDER_MODE: u32 = 0o700;

pub struct FolderDisk {
    path: PathBuf,
    folder: File,
    /// Nothing may be changed.
    reading: bool,
    /// Held for as long as the disk lives; the kernel releases it when the process ends, however it ends. `None`: a folder
    /// for reading that nobody has ever locked.
    lock: OnceLock<Option<File>>,
}

impl FolderDisk {
    /// Opens the folder, creating it when it is missing.
    pub fn open(path: impl AsRef<Path>) -> io::Result<FolderDisk> {
        let path = path.as_ref().to_owned();
        fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&path)?;
        let facts = fs::metadata(&path)?;
        if facts.permissions().mode() & 0o077 != 0 {
            // Made by an earlier version, or by hand.
            fs::set_permissions(&path, fs::Permissions::from_mode(FOLDER_MODE)).map_err(|error| {
                io::Error::other(format!("it is open to other users and cannot be made private: {error}"))
            })?;
        }
        let folder = File::open(&path)?;
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            File::open(parent)?.sync_all()?;
        }
        Ok(FolderDisk { path, folder, reading: false, lock: OnceLock::new() })
    }

    /// Opens a folder that is to stay exactly as it is; its disk may be one that cannot be written.
    pub fn open_for_reading(path: impl AsRef<Path>) -> io::Result<FolderDisk> {
        let path = path.as_ref().to_owned();
        Ok(FolderDisk { folder: File::open(&path)?, path, reading: true, lock: OnceLock::new() })
    }

    fn at(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let access = if self.reading { OFlags::RDONLY } else { OFlags::RDWR };
        Ok(File::from(openat(&self.folder, name, flags | access | OFlags::CLOEXEC, FILE_MODE)?))
    }

    fn writable(&self) -> io::Result<()> {
        if self.reading { Err(io::ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(()) }
    }
}

/// `false`: somebody else has it.
fn locked(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

impl Disk for FolderDisk {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn lock(&self) -> io::Result<bool> {
        if self.lock.get().is_some() {
            return Ok(true);
        }
        // Where a folder cannot be locked the file has to do.
        if locked(&self.folder).is_ok_and(|ours| !ours) {
            return Ok(false);
        }
        let file = match self.at(LOCK_NAME, if self.reading { OFlags::empty() } else { OFlags::CREATE }) {
            Err(error) if self.reading && error.kind() == io::ErrorKind::NotFound => None,
            file => Some(file?),
        };
        match file.as_ref().map_or(Ok(true), locked)? {
            true => Ok(self.lock.set(file).is_ok()),
            false => {
                // Whoever has the file goes on as the only one.
                let _free = self.folder.unlock();
                Ok(false)
            }
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.folder)? {
            // A name that is not text is not ours.
            if let Ok(name) = entry?.file_name().to_str()
                && ![".", "..", LOCK_NAME].contains(&name)
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.writable()?;
        Ok(Box::new(FolderFile(self.at(name, OFlags::CREATE | OFlags::EXCL)?)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(FolderFile(self.at(name, OFlags::empty())?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.writable()?;
        Ok(renameat(&self.folder, from, &self.folder, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.writable()?;
        Ok(unlinkat(&self.folder, name, AtFlags::empty())?)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.writable()?;
        self.folder.sync_all()
    }
}

struct FolderFile(File);

impl DiskFile for FolderFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.0.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_can_be_made_filled_renamed_and_read() {
        let folder = tempfile::tempdir().unwrap();
        let disk = FolderDisk::open(folder.path().join("deep/er")).unwrap();
        let file = disk.create("a").unwrap();
        assert_eq!(disk.create("a").err().unwrap().kind(), io::ErrorKind::AlreadyExists);
        file.write_at(3, b"xyz").unwrap();
        file.sync_data().unwrap();
        disk.rename("a", "b").unwrap();
        disk.sync_dir().unwrap();
        assert_eq!(disk.list().unwrap(), ["b"]);
        let mut buffer = [9; 8];
        assert_eq!(disk.open("b").unwrap().read_at(1, &mut buffer).unwrap(), 5);
        assert_eq!(&buffer[..5], b"\0\0xyz");
        file.set_len(1).unwrap();
        assert_eq!(file.len().unwrap(), 1);
        disk.remove("b").unwrap();
        assert!(disk.list().unwrap().is_empty());
    }

    #[test]
    fn the_folder_is_its_owners_alone_also_when_it_was_not() {
        let folder = tempfile::tempdir().unwrap();
        let (data, store) = (folder.path().join("data"), folder.path().join("data/store"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        drop(FolderDisk::open(&store).unwrap());
        assert_eq!((mode(&data), mode(&store)), (0o700, 0o700));
        fs::set_permissions(&store, fs::Permissions::from_mode(0o755)).unwrap();
        drop(FolderDisk::open(&store).unwrap());
        assert_eq!(mode(&store), 0o700);
    }

    #[test]
    fn a_second_holder_is_refused_until_the_first_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let first = FolderDisk::open(folder.path()).unwrap();
        let second = FolderDisk::open(folder.path()).unwrap();
        assert!(first.lock().unwrap() && first.lock().unwrap());
        assert!(!second.lock().unwrap());
        // Somebody takes its file for a leftover.
        fs::remove_file(folder.path().join(LOCK_NAME)).unwrap();
        assert!(!second.lock().unwrap() && !FolderDisk::open(folder.path()).unwrap().lock().unwrap());
        assert!(!FolderDisk::open_for_reading(folder.path()).unwrap().lock().unwrap());
        drop(first);
        assert!(second.lock().unwrap());
    }

    /// As where folders cannot be locked, and as with versions that lock the file alone.
    #[test]
    fn the_file_alone_is_enough_to_refuse() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join(LOCK_NAME)).unwrap();
        file.lock().unwrap();
        let second = FolderDisk::open(folder.path()).unwrap();
        assert!(!second.lock().unwrap());
        assert!(!FolderDisk::open_for_reading(folder.path()).unwrap().lock().unwrap());
        drop(file);
        assert!(second.lock().unwrap());
    }

    #[test]
    fn a_folder_that_is_moved_away_takes_its_store_with_it() {
        let parent = tempfile::tempdir().unwrap();
        let (place, away) = (parent.path().join("store"), parent.path().join("away"));
        let disk = FolderDisk::open(&place).unwrap();
        disk.create("old").unwrap().write_at(0, b"ours").unwrap();
        fs::rename(&place, &away).unwrap();
        let other = FolderDisk::open(&place).unwrap();
        other.create("old").unwrap().write_at(0, b"others'").unwrap();
        disk.create("new").unwrap();
        disk.rename("old", "renamed").unwrap();
        disk.remove("new").unwrap();
        disk.sync_dir().unwrap();
        assert_eq!(disk.list().unwrap(), ["renamed"]);
        assert_eq!(disk.open("renamed").unwrap().len().unwrap(), 4);
        assert_eq!(other.list().unwrap(), ["old"]);
        assert!(away.join("renamed").exists());
    }

    #[test]
    fn a_folder_for_reading_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.path().join("a"), b"bytes").unwrap();
        fs::set_permissions(folder.path().join("a"), fs::Permissions::from_mode(0o400)).unwrap();
        let disk = FolderDisk::open_for_reading(folder.path()).unwrap();
        assert!(disk.lock().unwrap());
        assert!(disk.create("b").is_err() && disk.rename("a", "b").is_err() && disk.remove("a").is_err());
        let file = disk.open("a").unwrap();
        assert!(file.write_at(0, b"B").is_err());
        let mut buffer = [0; 5];
        assert_eq!((file.read_at(0, &mut buffer).unwrap(), &buffer), (5, b"bytes"));
        assert_eq!(disk.list().unwrap(), ["a"]);
        assert_eq!(fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777, 0o755);
        assert!(FolderDisk::open_for_reading(folder.path().join("missing")).is_err());
    }
}
