//! The number of a request: what it wrote, and what was said about it, is found by it. A client may choose it.

use http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

/// Kubernetes' name for it.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The number that the client gave, or one that nobody has.
pub fn number_of(headers: &HeaderMap) -> Uuid {
    let given = headers.get(AUDIT_ID).and_then(|text| text.to_str().ok());
    given.and_then(|text| Uuid::try_parse(text).ok()).unwrap_or_else(Uuid::new_v4)
}

/// Tells it in an answer.
pub fn tell_number(headers: &mut HeaderMap, number: Uuid) {
    let mut text = Uuid::encode_buffer();
    if let Ok(value) = HeaderValue::from_str(number.hyphenated().encode_lower(&mut text)) {
        headers.insert(AUDIT_ID, value);
    }
}
