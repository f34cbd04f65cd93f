//! The static token file, in Kubernetes' format: `token,user,uid,"group1,group2"`, one per line.
//!
//! Tokens are kept as digests: the process memory holds no credential, and comparing leaks no timing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use hashbrown::HashMap;

use super::TOKEN_BYTES_MAX;
use crate::files;
use crate::identity::{Identity, is_internal};

/// A hundred thousand users fit; a wrong file does not.
pub const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    #[error("cannot read the token file {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("token file, line {line}: {why}")]
    Line { line: usize, why: &'static str },
}

#[derive(Debug, Default)]
pub struct TokenFile {
    users: HashMap<[u8; 32], Arc<Identity>>,
}

impl TokenFile {
    pub fn load(path: &Path) -> Result<TokenFile, TokenFileError> {
        let failed = |source| TokenFileError::Read { path: path.into(), source };
        let text = files::read_text(path, FILE_BYTES_MAX).map_err(failed)?;
        if files::is_readable_by_others(path) {
            tracing::warn!(path = %path.display(), "other users of this machine may read the token file");
        }
        TokenFile::parse(&text)
    }

    pub fn parse(text: &str) -> Result<TokenFile, TokenFileError> {
        let mut users = HashMap::new();
        for (at, line) in text.lines().enumerate() {
            let bad = |why| TokenFileError::Line { line: at + 1, why };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let fields = split(line).ok_or_else(|| bad("a quote is not closed"))?;
            let [token, user, uid, rest @ ..] = fields.as_slice() else {
                return Err(bad("needs at least token, user and uid"));
            };
            if token.is_empty() || token.len() > TOKEN_BYTES_MAX || token.contains(char::is_whitespace) {
                return Err(bad("the token is empty, too long or has spaces"));
            }
            if user.is_empty() {
                return Err(bad("the user is empty"));
            }
            if is_internal(user) {
                return Err(bad("the user has a name of the server's own parts"));
            }
            let groups = rest.first().map(String::as_str).unwrap_or_default();
            let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty());
            let mut identity = Identity::authenticated(user, groups);
            identity.uid = uid.clone();
            // Kubernetes lets the last line win with a warning; two owners of one token is a mistake worth stopping for.
            if users.insert(key(token), Arc::new(identity)).is_some() {
                return Err(bad("the token is in the file twice"));
            }
        }
        Ok(TokenFile { users })
    }

    pub fn get(&self, token: &str) -> Option<Arc<Identity>> {
        if self.users.is_empty() {
            return None;
        }
        self.users.get(&key(token)).cloned()
    }
}

pub(super) fn key(token: &str) -> [u8; 32] {
    let mut key = [0; 32];
    key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    key
}

/// Comma-separated fields; a quoted one may hold commas and doubled quotes.
fn split(line: &str) -> Option<Vec<String>> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let field = fields.last_mut()?;
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            ' ' if !quoted && field.is_empty() => {}
            other => field.push(other),
        }
    }
    (!quoted).then_some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_users() {
        let file =
            TokenFile::parse("# team\nt1,alice,1,\"dev,ops\"\n\nt2, bob ,2\nt3,\"c\"\"d\",3,one\n").expect("parses");
        let alice = file.get("t1").expect("alice");
        assert_eq!((alice.user.as_str(), alice.uid.as_str()), ("alice", "1"));
        assert_eq!(alice.groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(file.get("t3").expect("c\"d").user, "c\"d");
        assert_eq!(file.get("t2").expect("bob").groups, ["system:authenticated"]);
        assert!(file.get("").is_none() && file.get("T1").is_none());
    }

    #[test]
    fn broken_files_name_the_line() {
        for (text, expected) in [
            ("a,b,c\nx,y", "token file, line 2: needs at least token, user and uid"),
            (",b,c", "token file, line 1: the token is empty, too long or has spaces"),
            ("a,,c", "token file, line 1: the user is empty"),
            ("a,system:bursar:orgs,c", "token file, line 1: the user has a name of the server's own parts"),
            ("a,b,c\na,d,e", "token file, line 2: the token is in the file twice"),
            ("a,b,c,\"x", "token file, line 1: a quote is not closed"),
        ] {
            assert_eq!(TokenFile::parse(text).expect_err(text).to_string(), expected);
        }
    }

    #[test]
    fn a_mark_of_the_editor_is_no_part_of_a_token() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens.csv");
        std::fs::write(&path, "\u{feff}t1,alice,1\r\nt2,bob,2\r\n").expect("writes");
        let file = TokenFile::load(&path).expect("loads");
        assert_eq!(file.get("t1").expect("alice").user, "alice");
        assert_eq!(file.get("t2").expect("bob").uid, "2");
        assert!(file.get("\u{feff}t1").is_none());
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o602);
        std::fs::set_permissions(&path, open).expect("a mode");
        let error = TokenFile::load(&path).expect_err("anybody may have written it").to_string();
        assert!(error.contains("tokens.csv") && error.contains("everybody may write"), "{error}");
    }
}
