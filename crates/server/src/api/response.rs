//! Answers that are not errors.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::Value;

use super::ApiError;

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

/// The largest answer rewritten as YAML. It is built in memory, unlike a list in JSON, which is sent as it is written.
pub const YAML_BYTES_MAX: usize = 32 * 1024 * 1024;

/// An answer in JSON as the same answer in YAML.
pub async fn into_yaml(response: Response<Body>) -> Result<Response<Body>, ApiError> {
    if response.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind != "application/json") {
        return Ok(response);
    }
    let (mut head, body) = response.into_parts();
    let read = http_body_util::Limited::new(body, YAML_BYTES_MAX).collect().await;
    let bytes = read.map_err(|_| ApiError::not_acceptable(&["application/json"]))?.to_bytes();
    let unwritable = |why: String| ApiError::internal(format!("the answer cannot be written as YAML: {why}"));
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| unwritable(error.to_string()))?;
    let text = serde_saphyr::to_string(&value).map_err(|error| unwritable(error.to_string()))?;
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
    head.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(head, Body::from(text)))
}

/// Adds `Warning: 299 - "…"` headers.
pub fn warn(response: &mut Response<Body>, warnings: &[String]) {
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
