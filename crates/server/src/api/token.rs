//! Continue tokens: where a list goes on, sealed, so that only we can say at which version.
//!
//! A token is JSON and a tag over it and over the list it belongs to, in base64. The key lives as long as the process: after
//! a restart, and on another replica, an old token names a place but no version, and its reader is told so (410) as when a
//! list has become too old.

use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rules::GroupResource;
use serde_json::{Value, json};

/// The longest continue token read; ours are a namespace and a name in base64.
pub const TOKEN_BYTES_MAX: usize = 2048;
/// Enough that guessing a tag is hopeless.
const TAG_BYTES: usize = 16;
/// What Kubernetes says its tokens are.
const VERSION: &str = "meta.k8s.io/v1";

/// The key under which tokens are sealed.
pub struct Seal(hmac::Key);

impl Seal {
    pub fn new() -> Seal {
        let (one, two) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
        Seal(hmac::Key::new(hmac::HMAC_SHA256, &[one.into_bytes(), two.into_bytes()].concat()))
    }

    fn tag(&self, scope: &Scope<'_>, payload: &[u8]) -> hmac::Tag {
        let Scope { resource, namespace, labels, fields } = scope;
        let scope = json!([resource.group, resource.resource, namespace, labels, fields]);
        let mut context = hmac::Context::with_key(&self.0);
        context.update(scope.to_string().as_bytes());
        context.update(payload);
        context.sign()
    }
}

/// The list a token belongs to, whoever reads it.
pub struct Scope<'a> {
    pub resource: &'a GroupResource,
    pub namespace: &'a str,
    pub labels: &'a str,
    pub fields: &'a str,
}

/// The namespace and name of an object in a list.
pub type Place = (Arc<str>, Arc<str>);

pub struct Token {
    /// None goes on with whatever is there now.
    pub revision: Option<u64>,
    pub after: Place,
    /// As they were read: what is sealed, and by which tag.
    sealed: (Vec<u8>, Vec<u8>),
}

impl Token {
    pub fn new(revision: Option<u64>, after: Place) -> Token {
        Token { revision, after, sealed: Default::default() }
    }

    pub fn write(&self, seal: &Seal, scope: &Scope<'_>) -> String {
        let (namespace, name) = &self.after;
        let revision = self.revision.map_or(json!(-1), |revision| json!(revision));
        let payload = json!({"v": VERSION, "rv": revision, "start": format!("{namespace}/{name}")}).to_string();
        let tag = seal.tag(scope, payload.as_bytes());
        URL_SAFE_NO_PAD.encode([payload.as_bytes(), &tag.as_ref()[..TAG_BYTES]].concat())
    }

    /// What a token says, whoever wrote it; none when it is no token at all.
    pub fn parse(text: &str) -> Option<Token> {
        if text.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let mut payload = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
        // One without a tag is read as well: it is not ours, which is told in another way than nonsense.
        let end = payload.iter().rposition(|byte| *byte == b'}')? + 1;
        let (end, tag) = match payload.len().checked_sub(TAG_BYTES) {
            Some(ours) if payload[..ours].ends_with(b"}") => (ours, payload[ours..].to_vec()),
            _ => (end, Vec::new()),
        };
        payload.truncate(end);
        let token: Value = serde_json::from_slice(&payload).ok()?;
        if token["v"] != VERSION {
            return None;
        }
        let (namespace, name) = token["start"].as_str()?.split_once('/')?;
        let revision = match token["rv"].as_i64()? {
            -1 => None,
            revision => Some(u64::try_from(revision).ok()?),
        };
        Some(Token { revision, after: (namespace.into(), name.into()), sealed: (payload, tag) })
    }

    /// Whether this process made it, for this very list.
    pub fn is_ours(&self, seal: &Seal, scope: &Scope<'_>) -> bool {
        let (payload, tag) = &self.sealed;
        let expected = seal.tag(scope, payload);
        aws_lc_rs::constant_time::verify_slices_are_equal(&expected.as_ref()[..TAG_BYTES], tag).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_one_list_under_one_key() {
        let (pods, maps) = (GroupResource::core("pods"), GroupResource::core("configmaps"));
        let list = |resource, namespace, labels, fields| Scope { resource, namespace, labels, fields };
        let (seal, scope) = (Seal::new(), list(&pods, "a", "x=y", ""));
        // A tag may end in any byte, a brace as well.
        for revision in 0..300 {
            let written = Token::new(Some(revision), ("a".into(), "p{}".into())).write(&seal, &scope);
            let read = Token::parse(&written).expect("a token");
            assert!(read.is_ours(&seal, &scope));
            assert_eq!((read.revision, &*read.after.0, &*read.after.1), (Some(revision), "a", "p{}"));
        }
        let written = Token::new(None, ("a".into(), "p".into())).write(&seal, &scope);
        let read = Token::parse(&written).expect("a token");
        assert!(read.revision.is_none() && read.is_ours(&seal, &scope));
        for other in [
            list(&maps, "a", "x=y", ""),
            list(&pods, "", "x=y", ""),
            list(&pods, "a", "x=z", ""),
            list(&pods, "a", "", "x=y"),
            list(&pods, "a", "x=y", "metadata.name=p"),
        ] {
            assert!(!read.is_ours(&seal, &other));
        }
        assert!(!read.is_ours(&Seal::new(), &scope), "another process");
    }

    #[test]
    fn nothing_that_a_client_wrote_is_taken_for_ours() {
        let pods = GroupResource::core("pods");
        let (seal, scope) = (Seal::new(), Scope { resource: &pods, namespace: "", labels: "", fields: "" });
        let written = Token::new(Some(7), ("a".into(), "p".into())).write(&seal, &scope);
        let bytes = URL_SAFE_NO_PAD.decode(&written).expect("base64");
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let read = Token::parse(&URL_SAFE_NO_PAD.encode(&changed));
            assert!(read.is_none_or(|token| !token.is_ours(&seal, &scope)), "byte {at}");
        }
        let bare = URL_SAFE_NO_PAD.encode(r#"{"v":"meta.k8s.io/v1","rv":7,"start":"a/p"}"#);
        assert!(!Token::parse(&bare).expect("a token").is_ours(&seal, &scope));
        let versions = ["-2", "-9223372036854775808", "18446744073709551616", "1.5", "null", "\"7\""];
        for text in ["", "nonsense", "e30", "e30="].map(String::from).into_iter().chain(
            versions.map(|rv| URL_SAFE_NO_PAD.encode(format!(r#"{{"v":"meta.k8s.io/v1","rv":{rv},"start":"a/p"}}"#))),
        ) {
            assert!(Token::parse(&text).is_none(), "{text}");
        }
        assert!(Token::parse(&"A".repeat(TOKEN_BYTES_MAX + 1)).is_none());
    }
}
