//! What can go wrong between the engine and its durable home. Every case but `Locked` and `Full` at start ends the process:
//! a ledger that is wrong is worse than one that is stopped.

use std::io;

use rustix::io::Errno;

use crate::Table;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process holds the data folder.
    #[error("{place} is in use by another process: stop it first, or choose another data folder")]
    Locked { place: String },

    /// A stored byte is not what was written, at a place that may hold acknowledged data.
    #[error(
        "{file} is damaged at byte {offset}: {what}. Nothing was changed; restore this file from a backup, or move the data folder away to start empty"
    )]
    Corrupt { file: String, offset: u64, what: String },

    /// Acknowledged writes at the end of the log are missing, or what would prove that none are.
    #[error(
        "{file}: {what}. Nothing was changed: look at the folder with `bursar verify`, bring back a backup with `bursar restore`, or start once with --accept-data-loss to go on with what is left"
    )]
    Lost { file: String, what: String },

    /// Written by a release this one does not understand.
    #[error(
        "{file} has format version {found}, this release reads up to {known}: use the release that wrote it, or a newer one"
    )]
    Version { file: String, found: u32, known: u32 },

    /// No room left on the device. Nothing of the batch is durable.
    #[error("{place}: no space left on the device, or files may not be that long: free some space and start again")]
    Full { place: String },

    /// Another replica leads now; this one's writes are refused.
    #[error("this replica no longer leads ({leader}): its writes are refused")]
    Fenced { leader: String },

    /// A row beyond the length bounds reached the store: a bug of the engine.
    #[error("a row of table {} is {length} bytes long, more than the store accepts", table.0)]
    Oversize { table: Table, length: usize },

    /// One group of changes beyond what a store writes at once.
    #[error("a batch of {bytes} bytes is more than the {bytes_max} that are written at once")]
    BatchTooLarge { bytes: usize, bytes_max: usize },

    /// The store failed before, or was not loaded, and must not be used.
    #[error("the store cannot be used: {why}")]
    Unusable { why: String },

    /// The device or the network failed.
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

impl StoreError {
    /// Sorts an I/O error: a full device is a case of its own, because a person can mend it.
    pub fn io(what: impl Into<String>, source: io::Error) -> StoreError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                StoreError::Full { place: what.into() }
            }
            _ => StoreError::Io { what: what.into(), source },
        }
    }

    /// Whether it says nothing about the disk: this process, or the machine, has too many files open at the moment.
    pub(crate) fn is_passing(&self) -> bool {
        let StoreError::Io { source, .. } = self else { return false };
        [Errno::MFILE, Errno::NFILE].iter().any(|errno| source.raw_os_error() == Some(errno.raw_os_error()))
    }
}
