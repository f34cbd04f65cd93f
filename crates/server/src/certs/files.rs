//! Small files that must be whole and private: written beside their place, synced, then renamed over it.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::CertError;

/// Nothing we read here is larger; a wrong file (a device, a database) is not read into memory.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

pub fn create_private_dir(path: &Path) -> Result<(), CertError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| CertError::File { action: "create", path: path.into(), source })
}

/// The file's text; `None` when there is no such file.
pub fn read(path: &Path) -> Result<Option<String>, CertError> {
    let failed = |source| CertError::File { action: "read", path: path.into(), source };
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        Ok(facts) if facts.len() > FILE_BYTES_MAX => {
            return Err(failed(std::io::Error::other("the file is larger than any certificate or key")));
        }
        Ok(_) => {}
    }
    fs::read_to_string(path).map(Some).map_err(failed)
}

/// Replaces the file in one step, readable by its owner only.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), CertError> {
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
