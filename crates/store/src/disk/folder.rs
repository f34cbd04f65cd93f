//! A real folder.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{Disk, DiskFile};

/// The file whose lock says that a process has the folder.
const LOCK_NAME: &str = "lock";

/// Quota state names tenants and their objects: only the owner reads it.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

pub struct FolderDisk {
    path: PathBuf,
    folder: File,
    /// Held for as long as the disk lives; the kernel releases it when the process ends, however it ends.
    lock: OnceLock<File>,
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
        Ok(FolderDisk { path, folder, lock: OnceLock::new() })
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
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(FILE_MODE)
            .open(self.path.join(LOCK_NAME))?;
        match file.try_lock() {
            Ok(()) => Ok(self.lock.set(file).is_ok()),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // A name that is not text is not ours.
            if let Ok(name) = entry?.file_name().into_string()
                && name != LOCK_NAME
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let path = self.path.join(name);
        let file = OpenOptions::new().create_new(true).read(true).write(true).mode(FILE_MODE).open(path)?;
        Ok(Box::new(FolderFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path.join(name))?;
        Ok(Box::new(FolderFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
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
        drop(first);
        assert!(second.lock().unwrap());
    }
}
