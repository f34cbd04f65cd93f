//! Where the state lives, and how it is reached.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;

use super::{ConfigError, FILE_BYTES_MAX};
use crate::files;

/// Where the state lives.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum StoreChoice {
    /// In the data folder.
    Embedded,
    /// Nowhere: gone with the process.
    Memory,
    /// In etcd, at this address; several replicas may share it.
    Etcd(String),
}

/// PEM files for TLS with etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EtcdFiles {
    /// Whose certificates are trusted; the system's authorities when not set.
    pub ca_file: Option<PathBuf>,
    /// Who we are, for an etcd that asks.
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
}

impl EtcdFiles {
    /// What the files hold. A certificate without its key, or the other way round, is a mistake.
    pub fn read(&self) -> Result<store::etcd::client::Tls, ConfigError> {
        let failed = |path: &PathBuf, source| ConfigError::EtcdFile { path: path.clone(), source };
        let read = |path: &PathBuf| files::read(path, FILE_BYTES_MAX).map_err(|source| failed(path, source));
        let client = match (&self.cert_file, &self.key_file) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            (None, None) => None,
            _ => return Err(ConfigError::EtcdPair),
        };
        Ok(store::etcd::client::Tls { ca: self.ca_file.as_ref().map(read).transpose()?, client })
    }
}

impl FromStr for StoreChoice {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<StoreChoice, ConfigError> {
        let bad = || ConfigError::Store(store::etcd::redacted(text));
        match text {
            "embedded" => Ok(StoreChoice::Embedded),
            "memory" => Ok(StoreChoice::Memory),
            _ => {
                let known = store::etcd::Config::from_url(text, "").map_err(|_| bad())?;
                let good = |endpoint: &String| {
                    let address = endpoint.split_once("://").map_or("", |(_, address)| address);
                    address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
                };
                if known.endpoints.iter().all(good) { Ok(StoreChoice::Etcd(text.to_owned())) } else { Err(bad()) }
            }
        }
    }
}

impl TryFrom<String> for StoreChoice {
    type Error = ConfigError;

    fn try_from(text: String) -> Result<StoreChoice, ConfigError> {
        text.parse()
    }
}

/// As it is displayed: an address may hold a password.
impl fmt::Debug for StoreChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl fmt::Display for StoreChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreChoice::Embedded => out.write_str("embedded"),
            StoreChoice::Memory => out.write_str("memory"),
            StoreChoice::Etcd(address) => out.write_str(&store::etcd::redacted(address)),
        }
    }
}
