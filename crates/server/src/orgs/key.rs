//! Idempotency keys: a command that succeeded under a key of its sender is not done again, and answered as before.

use std::sync::LazyLock;

use aws_lc_rs::hmac;
use families::Place;
use families::orgs::commands::{Step, StepKind};
use families::orgs::names::{GROUP, IDEMPOTENCY_KEYS, VERSION, kind_of};
use http::StatusCode;
use serde_json::{Value, json};

use super::Call;
use super::problem::Failure;
use crate::core::{Cache, ObjectKey};

const KEY_BYTES_MAX: usize = 128;
/// How long a key is known.
const KEY_MS: i64 = 24 * 60 * 60 * 1000;

/// A key, and what it was used for.
pub struct Key {
    pub text: String,
    name: String,
    request_hash: String,
}

/// The seal of a server that has none of its own; it does not outlast the process.
static PASSING: LazyLock<hmac::Key> = LazyLock::new(|| {
    let bytes = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()].map(uuid::Uuid::into_bytes).concat();
    hmac::Key::new(hmac::HMAC_SHA256, &bytes)
});

/// A keyed digest: rows of keys can be read by whoever may read the organization, and secrets are among what is asked for.
fn hex(seal: &hmac::Key, parts: &[&[u8]]) -> String {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(&part.len().to_le_bytes());
        bytes.extend_from_slice(part);
    }
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]));
    hmac::sign(seal, &bytes).as_ref().iter().flat_map(digits).collect()
}

impl Key {
    /// The key of a request. It is its sender's own: another user's equal key is another key.
    pub fn of(call: &Call, what: &str) -> Result<Option<Key>, Failure> {
        let (headers, body, user) = (&call.headers, &call.body, &call.identity.user);
        let Some(given) = headers.get("idempotency-key") else { return Ok(None) };
        let text = given.to_str().ok().filter(|text| !text.is_empty() && text.len() <= KEY_BYTES_MAX);
        let wrong = || Failure::invalid(format!("Idempotency-Key is not 1 to {KEY_BYTES_MAX} printable characters"));
        let text = text.ok_or_else(wrong)?.to_owned();
        let parts = call.api.parts();
        let seal = parts.authenticator.as_ref().map_or(&*PASSING, |authenticator| authenticator.signer().seal());
        let name = format!("k-{}", hex(seal, &[user.as_bytes(), text.as_bytes()]));
        let request_hash = hex(seal, &[what.as_bytes(), body.to_string().as_bytes()]);
        Ok(Some(Key { text, name, request_hash }))
    }

    /// What was answered before, if it was.
    pub fn known(&self, cache: &Cache, org: &str, now_ms: i64) -> Result<Option<(StatusCode, Value)>, Failure> {
        let key = ObjectKey::new(IDEMPOTENCY_KEYS.resource(), org, &self.name);
        let Some(stored) = cache.get(&key).map(|object| object.value()) else { return Ok(None) };
        let spec = &stored["spec"];
        if spec["expires_at_ms"].as_i64().is_some_and(|at| at <= now_ms) {
            return Ok(None);
        }
        if spec["request_hash"] != self.request_hash.as_str() {
            let why = "the key was used for another request: use a new one for each";
            return Err(Failure::conflict("idempotency_key_reuse", why));
        }
        let status = spec["status"].as_u64().and_then(|status| u16::try_from(status).ok());
        let status = status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(StatusCode::OK);
        Ok(Some((status, spec["answer"].clone())))
    }

    /// The row that remembers it, written with the command.
    pub fn step(&self, org: &str, uid: String, now_ms: i64, status: StatusCode, answer: Value) -> Step {
        let mut object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind_of(IDEMPOTENCY_KEYS),
            "metadata": {"name": self.name, "namespace": org, "uid": uid,
                "creationTimestamp": kinds::time::text(now_ms)},
            "spec": {"request_hash": self.request_hash, "status": status.as_u16(),
                "expires_at_ms": now_ms.saturating_add(KEY_MS)},
        });
        // It is long, and handed over: the macro would copy it.
        object["spec"]["answer"] = answer;
        let place = Place::new(IDEMPOTENCY_KEYS.resource(), org, &self.name);
        Step { place, kind: StepKind::Create, object }
    }
}
