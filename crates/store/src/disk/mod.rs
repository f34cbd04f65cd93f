//! The few things the embedded store asks of a disk, as a trait, so that the simulator can put a disk under it that loses,
//! tears, flips and refuses.
//!
//! One [`Disk`] is one flat folder. The promises the store relies on, and which a simulated disk may break only by a crash:
//! written bytes are durable after [`DiskFile::sync_data`] of that file; a created, renamed or removed name is durable after
//! [`Disk::sync_dir`]; a sector of 512 bytes is written whole or not at all.

mod folder;

use std::io;

pub use folder::FolderDisk;

/// A flat folder of files.
pub trait Disk: Send + Sync + 'static {
    /// Where this is, for messages to people.
    fn place(&self) -> String;

    /// Takes the folder for this process, until the disk is dropped. `false`: somebody else has it.
    fn lock(&self) -> io::Result<bool>;

    /// The names of all files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// A new empty file; an existing name is an error of kind `AlreadyExists`.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// An existing file, for reading and writing.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Gives a file a new name, replacing the file that had it. Atomic.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes creations, renames and removals so far durable.
    fn sync_dir(&self) -> io::Result<()>;
}

/// An open file. It stays usable while it is renamed.
pub trait DiskFile: Send + Sync {
    fn len(&self) -> io::Result<u64>;

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads up to the length of `buffer`; less only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `data`, extending the file where it is too short.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Cuts the file, or extends it with zeros.
    fn set_len(&self, length: u64) -> io::Result<()>;

    /// Makes the content and the length durable. An error means that nobody knows what is; it is never tried again.
    fn sync_data(&self) -> io::Result<()>;
}
