//! Where the state is, as people write it down.

use std::time::Duration;

use super::client::{Credentials, Tls};
use crate::StoreError;

/// Where the state is, and who we are.
#[derive(Clone, Debug)]
pub struct Config {
    /// `http://host:port`, or `https://…` with `tls`.
    pub endpoints: Vec<String>,
    pub tls: Option<Tls>,
    /// Who we are, for an etcd with authentication.
    pub credentials: Option<Credentials>,
    /// Several Bursars share one etcd under different names.
    pub cluster: String,
    /// What the others call us; for people.
    pub replica: String,
    /// Whether this etcd was reached before: then it is waited for, however long it is away.
    pub known: bool,
    /// How long after its last sign of life a leader is replaced. etcd's own least is about two seconds.
    pub lease: Duration,
}

impl Config {
    pub fn new(endpoints: Vec<String>, cluster: &str, replica: &str) -> Config {
        Config {
            endpoints,
            tls: None,
            credentials: None,
            cluster: cluster.to_owned(),
            replica: replica.to_owned(),
            known: false,
            lease: Duration::from_secs(3),
        }
    }

    /// Reads `etcd://[user:password@]host:port[,host:port…][/cluster]`, or `etcds://…` for TLS. The cluster is `default` when
    /// none is named; a user's name and password are percent-encoded where they have to be.
    pub fn from_url(url: &str, replica: &str) -> Result<Config, StoreError> {
        let shown = redacted(url);
        let wrong = |what: &str| StoreError::Unusable { why: format!("{shown:?} is not an etcd address: {what}") };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("expected etcd://host:port[,…][/cluster]"))?;
        let scheme = match scheme {
            "etcd" => "http",
            "etcds" => "https",
            _ => return Err(wrong("it begins with etcd:// or etcds://")),
        };
        // A password may hold anything but an at sign, which no host's name has.
        let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
        let credentials = match user.map(|user| user.split_once(':')) {
            None => None,
            Some(Some((user, password))) if !user.is_empty() => match (decoded(user), decoded(password)) {
                (Some(user), Some(password)) => Some(Credentials { user, password }),
                _ => return Err(wrong("a percent sign is not followed by two hexadecimal digits")),
            },
            Some(_) => return Err(wrong("expected user:password before the at sign")),
        };
        let (hosts, cluster) = rest.split_once('/').unwrap_or((rest, ""));
        let endpoints: Vec<String> = hosts.split(',').map(|host| format!("{scheme}://{host}")).collect();
        if hosts.split(',').any(|host| host.is_empty() || host.contains(char::is_whitespace)) {
            return Err(wrong("a host is missing"));
        }
        // A cluster named "a/rows" would lie inside the rows of a cluster named "a".
        if cluster.contains('/') {
            return Err(wrong("a cluster's name has no slash"));
        }
        let cluster = if cluster.is_empty() { "default" } else { cluster };
        let mut config = Config::new(endpoints, cluster, replica);
        config.tls = (scheme == "https").then(Tls::default);
        config.credentials = credentials;
        Ok(config)
    }
}

/// An address as it may be shown: whatever could be a password is left out.
pub fn redacted(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (&url[..scheme.len() + 3], rest));
    match rest.rsplit_once('@') {
        Some((user, rest)) => {
            let user = user.split_once(':').map_or("", |(user, _)| user);
            format!("{scheme}{user}:…@{rest}")
        }
        None => url.to_owned(),
    }
}

/// Text out of its percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let config = Config::from_url("etcd://a:2379,b:2379/prod", "r").unwrap();
        assert_eq!(config.endpoints, ["http://a:2379", "http://b:2379"]);
        assert_eq!((config.cluster.as_str(), config.tls.is_some()), ("prod", false));
        let config = Config::from_url("etcds://a:2379", "r").unwrap();
        assert_eq!(config.endpoints, ["https://a:2379"]);
        assert_eq!((config.cluster.as_str(), config.tls.is_some()), ("default", true));
        for wrong in ["", "a:2379", "http://a", "etcd://", "etcd://a,,b", "etcd:// a", "etcd://a/b/rows"] {
            assert!(Config::from_url(wrong, "r").is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_user_is_read_and_a_password_never_shown() {
        for (url, user, password, shown) in [
            ("etcd://root:secret@a:1/c", "root", "secret", "etcd://root:…@a:1/c"),
            ("etcds://root:a%40b%2Fsecret@a:1,b:2", "root", "a@b/secret", "etcds://root:…@a:1,b:2"),
            ("etcd://root:p@secret:x@a:1", "root", "p@secret:x", "etcd://root:…@a:1"),
            ("etcd://root:@a:1", "root", "", "etcd://root:…@a:1"),
        ] {
            let config = Config::from_url(url, "r").unwrap();
            let credentials = config.credentials.clone().unwrap();
            assert_eq!((credentials.user.as_str(), credentials.password.as_str()), (user, password));
            assert!(config.endpoints.iter().all(|endpoint| !endpoint.contains("root")), "{config:?}");
            assert_eq!(redacted(url), shown);
            assert!(!format!("{config:?}").contains("secret"));
        }
        for wrong in
            ["etcd://root@a:1", "etcd://:secret@a:1", "etcd://u:secret%zz@a:1", "etcd://u:secret@", "x://u:secret@a"]
        {
            let error = Config::from_url(wrong, "r").err().unwrap().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        assert_eq!(redacted("etcd://a:1/c"), "etcd://a:1/c");
        assert_eq!(redacted("secret@a"), ":…@a");
    }
}
