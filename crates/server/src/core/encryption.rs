//! Encryption of stored objects, configured as kube-apiserver's: an `EncryptionConfiguration` lists providers for resources; the
//! first one writes, all of them read.
//!
//! A row's value is encrypted as a whole where an object becomes a row, so that every store, snapshot and backup has it. The key
//! of the row is authenticated with it: a value that was moved to another row is refused.
//!
//! ```text
//!   k8s:enc:aesgcm:v1:<key name>:│ nonce (12 B) │ ciphertext │ tag (16 B)
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use aws_lc_rs::aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine as _;
use bytes::Bytes;
use rules::GroupResource;
use serde::Deserialize;

use engine::ObjectKey;

const PREFIX: &[u8] = b"k8s:enc:";
const AESGCM: &str = "k8s:enc:aesgcm:v1:";

/// A key's name is written into every row.
const NAME_BYTES_MAX: usize = 63;

/// No configuration anybody wrote is larger.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum EncryptionError {
    #[error("cannot read the encryption configuration {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the encryption configuration {path} is not valid: {why}")]
    Invalid { path: PathBuf, why: String },
}

/// Why a stored value could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecryptError {
    #[error(
        "is encrypted with the key {0:?}, which the encryption configuration does not have: add it behind the others"
    )]
    NoKey(String),
    #[error(
        "is encrypted with the key {0:?} and does not open with it: the key is another one, or the data is damaged"
    )]
    Wrong(String),
    #[error("is encrypted in a way that is not known here: {0:?}")]
    Unknown(String),
    #[error("is not encrypted, and the encryption configuration does not list identity for it")]
    Plain,
}

/// What is encrypted, and how. The default encrypts nothing.
#[derive(Default)]
pub struct Encryption {
    entries: Vec<Entry>,
}

struct Entry {
    resources: Vec<Pattern>,
    providers: Vec<Provider>,
}

enum Provider {
    AesGcm { name: String, key: RandomizedNonceKey },
    Identity,
}

/// `secrets`, `deployments.apps`, `*.apps`, `*.` (all of the core group) or `*.*`.
struct Pattern {
    group: Option<String>,
    resource: Option<String>,
}

/// A value as it is to be used.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened {
    /// `None`: as it was stored.
    pub plain: Option<Vec<u8>>,
    /// Whether it is stored as the first provider would write it.
    pub current: bool,
}

impl Encryption {
    pub fn load(path: &Path) -> Result<Encryption, EncryptionError> {
        let failed = |source| EncryptionError::Read { path: path.into(), source };
        let text = crate::files::read_text(path, FILE_BYTES_MAX).map_err(failed)?;
        if crate::files::is_readable_by_others(path) {
            tracing::warn!(path = %path.display(), "users other than the owner can read the keys of encryption");
        }
        Encryption::parse(&text).map_err(|why| EncryptionError::Invalid { path: path.into(), why })
    }

    pub fn parse(text: &str) -> Result<Encryption, String> {
        let file: File = serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())?;
        if (&*file.api_version, &*file.kind) != ("apiserver.config.k8s.io/v1", "EncryptionConfiguration") {
            return Err(format!(
                "it is a {} of {}, expected EncryptionConfiguration of apiserver.config.k8s.io/v1",
                file.kind, file.api_version
            ));
        }
        let entries = file.resources.into_iter().map(Entry::new).collect::<Result<Vec<_>, _>>()?;
        match entries.is_empty() {
            true => Err("it lists no resources".to_owned()),
            false => Ok(Encryption { entries }),
        }
    }

    /// The value that is stored. `row` is the key of the row.
    pub fn seal(&self, key: &ObjectKey, row: &[u8], plain: Bytes) -> Bytes {
        let first = self.entry(&key.resource).and_then(|entry| entry.providers.first());
        let Some(Provider::AesGcm { name, key }) = first else { return plain };
        let mut text = plain.to_vec();
        // Better no server than one that stores in the clear what it was told to encrypt.
        let nonce = key
            .seal_in_place_append_tag(Aad::from(row), &mut text)
            .expect("encryption fails only without random numbers, or for lengths far beyond any object");
        let mut sealed = Vec::with_capacity(AESGCM.len() + name.len() + 1 + NONCE_LEN + text.len());
        sealed.extend_from_slice(AESGCM.as_bytes());
        sealed.extend_from_slice(name.as_bytes());
        sealed.push(b':');
        sealed.extend_from_slice(nonce.as_ref());
        sealed.extend_from_slice(&text);
        sealed.into()
    }

    /// What a stored value says. An object's own row begins with a small number, and never with the prefix.
    pub fn open(&self, resource: &GroupResource, row: &[u8], stored: &[u8]) -> Result<Opened, DecryptError> {
        let providers = self.entry(resource).map_or(&[][..], |entry| &entry.providers);
        let first = providers.first();
        if !stored.starts_with(PREFIX) {
            let allowed = providers.is_empty() || providers.iter().any(|one| matches!(one, Provider::Identity));
            let current = matches!(first, None | Some(Provider::Identity));
            return if allowed { Ok(Opened { plain: None, current }) } else { Err(DecryptError::Plain) };
        }
        let unknown = || {
            let shown = &stored[..stored.len().min(PREFIX.len() + NAME_BYTES_MAX)];
            DecryptError::Unknown(
                shown.iter().take_while(|byte| byte.is_ascii_graphic()).map(|byte| char::from(*byte)).collect(),
            )
        };
        let rest = stored.strip_prefix(AESGCM.as_bytes()).ok_or_else(unknown)?;
        let end = rest.iter().take(NAME_BYTES_MAX + 1).position(|byte| *byte == b':').ok_or_else(unknown)?;
        let wanted = std::str::from_utf8(&rest[..end]).map_err(|_| unknown())?;
        let (nonce, text) =
            rest[end + 1..].split_first_chunk::<NONCE_LEN>().ok_or_else(|| DecryptError::Wrong(wanted.to_owned()))?;
        // A key that was given away under its name is looked for with the other resources, too.
        let named = |one: &&Provider| matches!(one, Provider::AesGcm { name, .. } if name == wanted);
        let elsewhere = || self.entries.iter().flat_map(|entry| &entry.providers).find(named);
        let Some(Provider::AesGcm { key, .. }) = providers.iter().find(named).or_else(elsewhere) else {
            return Err(DecryptError::NoKey(wanted.to_owned()));
        };
        let mut text = text.to_vec();
        let opened = key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(row), &mut text);
        let length = opened.map_err(|_| DecryptError::Wrong(wanted.to_owned()))?.len();
        text.truncate(length);
        let current = matches!(first, Some(Provider::AesGcm { name, .. }) if name == wanted);
        Ok(Opened { plain: Some(text), current })
    }

    fn entry(&self, resource: &GroupResource) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.resources.iter().any(|pattern| pattern.matches(resource)))
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Pattern, String> {
        let (resource, group) =
            text.split_once('.').map_or((text, Some("")), |(resource, group)| (resource, Some(group)));
        if resource.is_empty() || (resource == "*" && !text.contains('.')) || text.contains(['/', ' ']) {
            return Err(format!("{text:?} names no resources: use secrets, deployments.apps, *.apps, *. or *.*"));
        }
        let known = |part: &str| (part != "*").then(|| part.to_owned());
        Ok(Pattern { group: group.and_then(known), resource: known(resource) })
    }

    fn matches(&self, resource: &GroupResource) -> bool {
        self.group.as_ref().is_none_or(|group| **group == *resource.group)
            && self.resource.as_ref().is_none_or(|name| **name == *resource.resource)
    }
}

impl Entry {
    fn new(file: FileEntry) -> Result<Entry, String> {
        let resources = file.resources.iter().map(|text| Pattern::parse(text)).collect::<Result<Vec<_>, _>>()?;
        let mut providers = Vec::new();
        let mut names = BTreeSet::new();
        for provider in file.providers {
            match provider {
                FileProvider { aesgcm: Some(keys), identity: None } => {
                    for key in keys.keys {
                        providers.push(key.read()?);
                        if !names.insert(key.name.clone()) {
                            return Err(format!("two keys have the name {:?}", key.name));
                        }
                    }
                }
                FileProvider { aesgcm: None, identity: Some(_) } => providers.push(Provider::Identity),
                _ => return Err("a provider is either aesgcm, with keys, or identity: {}".to_owned()),
            }
        }
        match resources.is_empty() || providers.is_empty() {
            true => Err("an entry needs resources and providers".to_owned()),
            false => Ok(Entry { resources, providers }),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    resources: Vec<FileEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileEntry {
    resources: Vec<String>,
    providers: Vec<FileProvider>,
}

/// aescbc, secretbox and kms are unknown fields, and refused as such.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileProvider {
    aesgcm: Option<FileKeys>,
    identity: Option<Nothing>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileKeys {
    keys: Vec<FileKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileKey {
    name: String,
    secret: String,
}

impl FileKey {
    fn read(&self) -> Result<Provider, String> {
        let FileKey { name, secret } = self;
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b':';
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(plain) {
            return Err(format!(
                "{name:?} is no name of a key: up to {NAME_BYTES_MAX} letters and digits without colons"
            ));
        }
        let bytes = base64::engine::general_purpose::STANDARD.decode(secret.trim());
        let bytes = bytes.map_err(|_| format!("the secret of key {name:?} is not base64"))?;
        let algorithm = match bytes.len() {
            16 => &AES_128_GCM,
            24 => &AES_192_GCM,
            32 => &AES_256_GCM,
            other => return Err(format!("the secret of key {name:?} has {other} bytes, expected 16, 24 or 32")),
        };
        let key = RandomizedNonceKey::new(algorithm, &bytes).map_err(|_| format!("key {name:?} cannot be used"))?;
        Ok(Provider::AesGcm { name: name.clone(), key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> String {
        base64::engine::general_purpose::STANDARD.encode([byte; 32])
    }

    fn config(providers: &str) -> Encryption {
        Encryption::parse(&text(providers)).expect(providers)
    }

    fn text(providers: &str) -> String {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n";
        format!("{head}- resources: [secrets]\n  providers: {providers}\n")
    }

    fn key(name: &str, byte: u8) -> String {
        format!("{{aesgcm: {{keys: [{{name: {name}, secret: {}}}]}}}}", secret(byte))
    }

    fn object(resource: &str, name: &str) -> ObjectKey {
        ObjectKey::new(GroupResource::core(resource), "a", name)
    }

    #[test]
    fn the_first_provider_writes_and_all_of_them_read() {
        let (one, two) = (key("one", 1), key("two", 2));
        let x = object("secrets", "x");
        let stored = |providers: &str| config(providers).seal(&x, &x.row(), Bytes::from_static(b"\x01plain"));
        let read = |providers: &str, stored: &[u8]| config(providers).open(&x.resource, &x.row(), stored);
        let opened = |current| Ok(Opened { plain: Some(b"\x01plain".to_vec()), current });
        let plain = |current| Ok(Opened { plain: None, current });
        let both = format!("[{two}, {one}]");

        let by_one = stored(&format!("[{one}, {{identity: {{}}}}]"));
        assert!(by_one.starts_with(b"k8s:enc:aesgcm:v1:one:"));
        assert!(!by_one.windows(5).any(|window| window == b"plain"));
        assert_eq!(read(&format!("[{one}]"), &by_one), opened(true));
        assert_eq!(read(&both, &by_one), opened(false));
        assert_eq!(read(&format!("[{{identity: {{}}}}, {one}]"), &by_one), opened(false));
        assert_eq!(read(&format!("[{two}]"), &by_one), Err(DecryptError::NoKey("one".into())));
        assert_eq!(read(&format!("[{}]", key("one", 9)), &by_one), Err(DecryptError::Wrong("one".into())));
        assert_eq!(Encryption::default().open(&x.resource, &x.row(), &by_one), Err(DecryptError::NoKey("one".into())));
        // Two writes of one value share nothing.
        assert_ne!(stored(&format!("[{one}]"))[22..34], by_one[22..34]);

        let by_nobody = stored(&format!("[{{identity: {{}}}}, {one}]"));
        assert_eq!(&*by_nobody, b"\x01plain");
        assert_eq!(read(&format!("[{{identity: {{}}}}, {one}]"), &by_nobody), plain(true));
        assert_eq!(read(&format!("[{one}, {{identity: {{}}}}]"), &by_nobody), plain(false));
        assert_eq!(read(&format!("[{one}]"), &by_nobody), Err(DecryptError::Plain));
        assert_eq!(Encryption::default().open(&x.resource, &x.row(), &by_nobody), plain(true));
    }

    #[test]
    fn a_changed_byte_and_a_moved_value_are_refused() {
        let encryption = config(&format!("[{}]", key("one", 1)));
        let (x, y) = (object("secrets", "x"), object("secrets", "y"));
        let stored = encryption.seal(&x, &x.row(), Bytes::from_static(b"\x01plain"));
        assert_eq!(encryption.open(&y.resource, &y.row(), &stored), Err(DecryptError::Wrong("one".into())));
        for at in 0..stored.len() {
            let mut changed = stored.to_vec();
            changed[at] ^= 1;
            assert!(encryption.open(&x.resource, &x.row(), &changed).is_err(), "byte {at}");
            assert!(encryption.open(&x.resource, &x.row(), &stored[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn only_what_is_listed_is_encrypted() {
        let head = text(&format!("[{}]", key("one", 1)));
        for (pattern, group, resource, expected) in [
            ("secrets", "", "secrets", true),
            ("secrets", "", "configmaps", false),
            ("secrets", "example.com", "secrets", false),
            ("widgets.example.com", "example.com", "widgets", true),
            ("'*.example.com'", "example.com", "widgets", true),
            ("'*.example.com'", "", "secrets", false),
            ("'*.'", "", "configmaps", true),
            ("'*.'", "apps", "deployments", false),
            ("'*.*'", "apps", "deployments", true),
        ] {
            let encryption = Encryption::parse(&head.replace("[secrets]", &format!("[{pattern}]"))).expect(pattern);
            let key = ObjectKey::new(GroupResource::new(group, resource), "a", "x");
            let sealed = encryption.seal(&key, &key.row(), Bytes::from_static(b"\x01"));
            assert_eq!(sealed.starts_with(PREFIX), expected, "{pattern} {group} {resource}");
        }
    }

    #[test]
    fn mistakes_in_the_file_are_explained() {
        let good = text(&format!("[{}]", key("one", 1)));
        for (from, to, expected) in [
            ("EncryptionConfiguration", "EncryptionConfig", "expected EncryptionConfiguration"),
            ("config.k8s.io/v1", "config.k8s.io/v2", "expected EncryptionConfiguration"),
            ("[secrets]", "['*']", "names no resources"),
            ("[secrets]", "[]", "needs resources and providers"),
            ("aesgcm", "secretbox", "secretbox"),
            ("aesgcm", "aescbc", "aescbc"),
            ("name: one", "name: 'a:b'", "no name of a key"),
            ("name: one", "name: ''", "no name of a key"),
            (&secret(1), "c2hvcnQ=", "has 5 bytes"),
            (&secret(1), "'%'", "is not base64"),
            ("resources: [secrets]", "resource: [secrets]", "resource"),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good);
            let why = Encryption::parse(&bad).err().unwrap_or_default();
            assert!(why.contains(expected), "{to}: {why}");
        }
        assert!(Encryption::parse(&text("[]")).is_err());
        // Nothing of a file that is refused is shown but the place: the next word may be a key.
        let cut = good.replacen("]}}", "", 1);
        let why = Encryption::parse(&cut).err().expect("refused");
        assert!(!why.contains(&secret(1)[..8]), "{why}");
        let twice = text(&format!("[{}, {}]", key("one", 1), key("one", 2)));
        assert!(Encryption::parse(&twice).err().unwrap_or_default().contains("two keys"));
    }
}
