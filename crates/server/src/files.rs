//! Files that others write for us (configuration, tokens, certificates): read only if they are what they should be.

use std::fs::{self, File};
use std::io::{Error, Read, Result};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The file's bytes. A pipe would keep us waiting, a device would never end, and what anybody may write says nothing about
/// what its owner wants: all of that is an error, as is a file of more than `bytes_max`.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let facts = fs::metadata(path)?;
    if !facts.is_file() {
        return Err(Error::other("it is not a regular file"));
    }
    if facts.permissions().mode() & 0o002 != 0 {
        return Err(Error::other("everybody may write to it; take that away (chmod o-w) and see what it says"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > bytes_max {
        return Err(Error::other(format!("it is larger than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// The same as text, without the mark that some editors put before it.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String> {
    let text = String::from_utf8(read(path, bytes_max)?).map_err(|_| Error::other("it is not UTF-8 text"))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Whether users other than the owner may read it.
pub fn is_readable_by_others(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|facts| facts.permissions().mode() & 0o044 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_a_bounded_size_that_not_everybody_writes() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("good"), "\u{feff}text").expect("writes");
        assert_eq!(read_text(&at("good"), 7).expect("reads"), "text");
        fs::write(at("latin"), [0xe9]).expect("writes");
        fs::write(at("open"), "text").expect("writes");
        fs::set_permissions(at("open"), fs::Permissions::from_mode(0o666)).expect("a mode");
        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().expect("mkfifo");
        assert!(made.success());
        for (name, why) in [
            ("good", "larger than 6 bytes"),
            ("latin", "not UTF-8"),
            ("open", "everybody may write"),
            ("pipe", "not a regular file"),
            (".", "not a regular file"),
            ("missing", "No such file"),
            ("/dev/zero", "not a regular file"),
        ] {
            let error = read_text(&at(name), 6).expect_err(name).to_string();
            assert!(error.contains(why), "{name}: {error}");
        }
    }
}
