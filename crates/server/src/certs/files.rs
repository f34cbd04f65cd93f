//! Small files that must be whole and private: written beside their place, synced, then renamed over it.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::CertError;

/// Nothing we read here is larger; a wrong file (a device, a database) is not read into memory.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Makes the folder for its owner alone, or takes from one that is there what others have of it.
pub fn create_private_dir(path: &Path) -> Result<(), CertError> {
    let failed = |action| move |source| CertError::File { action, path: path.into(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("create"))?;
    let mode = fs::metadata(path).map_err(failed("read"))?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    if mode & 0o1002 == 0o1002 {
        // Such as /tmp: making it private would take it from everybody, and leaving it would give us to everybody. Secrets
        // are mounted like that too, where nobody can write anything.
        return if is_read_only(path) { Ok(()) } else { Err(CertError::Shared { path: path.into() }) };
    }
    if let Err(error) = fs::set_permissions(path, fs::Permissions::from_mode(0o700)) {
        // Somebody else's, as mounted folders are. What we make inside is private.
        tracing::warn!(path = %path.display(), %error, "the folder is open to other users and cannot be made private");
    }
    Ok(())
}

fn is_read_only(folder: &Path) -> bool {
    let probe = folder.join(format!(".{}.probe", std::process::id()));
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&probe);
    let read_only = made.as_ref().is_err_and(|error| error.kind() == ErrorKind::ReadOnlyFilesystem);
    if made.is_ok() {
        let _ = fs::remove_file(&probe);
    }
    read_only
}

/// Takes from a key what others have of it.
pub fn make_key_private(path: &Path) {
    let open = fs::metadata(path).is_ok_and(|facts| facts.permissions().mode() & 0o077 != 0);
    if !open {
        return;
    }
    match fs::set_permissions(path, fs::Permissions::from_mode(0o600)) {
        Ok(()) => tracing::warn!(path = %path.display(), "other users could read this key; now they cannot"),
        Err(error) => tracing::warn!(path = %path.display(), %error, "other users may read this key"),
    }
}

/// The file's text; `None` when there is no such file.
pub fn read(path: &Path) -> Result<Option<String>, CertError> {
    let failed = |source| CertError::File { action: "read", path: path.into(), source };
    match crate::files::read_text(path, FILE_BYTES_MAX) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        outcome => outcome.map(Some).map_err(failed),
    }
}

/// Replaces the file in one step, readable by its owner only. One that says the same already stays: a start that has
/// nothing to write needs no room on the disk.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), CertError> {
    let private = |facts: fs::Metadata| facts.is_file() && facts.permissions().mode() & 0o177 == 0;
    if fs::symlink_metadata(path).is_ok_and(private) && fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let beside = parent.join(format!(".{name}.{}.new", std::process::id()));
    let write = || -> std::io::Result<()> {
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        File::open(&parent)?.sync_all()
    };
    write().map_err(|source| CertError::File { action: "write", path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_that_says_the_same_is_not_written_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("kubeconfig");
        let inode = || fs::metadata(&path).expect("it is there").ino();
        write_private(&path, b"one").expect("writes");
        let first = inode();
        // A full disk, or one that cannot be written: nothing has to be.
        fs::create_dir(folder.path().join(format!(".kubeconfig.{}.new", std::process::id()))).expect("in the way");
        write_private(&path, b"one").expect("nothing to write");
        assert_eq!(inode(), first);
        write_private(&path, b"two").expect_err("this one cannot be written");
        assert_eq!(fs::read(&path).expect("reads"), b"one");
        // Open to others: written again, for its owner alone.
        fs::remove_dir(folder.path().join(format!(".kubeconfig.{}.new", std::process::id()))).expect("out of the way");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("opened");
        write_private(&path, b"one").expect("writes");
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
    }
}
