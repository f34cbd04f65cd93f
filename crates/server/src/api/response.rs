//! Answers that are not errors.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

/// Warnings one answer carries, and how long each may be: they travel in headers, which proxies bound.
pub const WARNINGS_MAX: usize = 20;
pub const WARNING_BYTES_MAX: usize = 256;

pub fn json(code: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(body.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub fn value(code: StatusCode, value: &Value) -> Response<Body> {
    json(code, value.to_string())
}

/// An object as it is shown, with the warnings about it.
pub fn object(code: StatusCode, body: impl Into<Bytes>, warnings: &[String]) -> Response<Body> {
    let mut response = json(code, body);
    warn(&mut response, warnings);
    response
}

/// What was posted is done, and there is nothing to show.
pub fn created() -> Response<Body> {
    let done = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    value(StatusCode::CREATED, &done)
}

/// Adds `Warning: 299 - "…"` headers.
fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings.iter().take(WARNINGS_MAX) {
        let mut text = String::from("299 - \"");
        for c in warning.chars() {
            if text.len() >= WARNING_BYTES_MAX {
                break;
            }
            match c {
                '"' | '\\' => text.extend(['\\', c]),
                // Line breaks would end the header; nothing else that is not printable helps a reader either.
                c if c.is_control() => text.push(' '),
                c => text.push(c),
            }
        }
        text.push('"');
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}
