//! Answers in YAML. What is stored is JSON, and a list in JSON is sent as it is written; one in YAML has to be made as a whole,
//! which takes memory and time. So room for it is taken first, a long one is made apart from the threads that serve sockets, and
//! what indentation makes of deeply nested values is bounded.

use std::fmt;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use serde_json::Value;

use super::long::LONG_BYTES_MIN;
use super::{Api, ApiError, ApiResult};
use crate::identity::Identity;
use crate::inflight::{AnswerBytes, Room, Taken};

/// The largest answer that is rewritten, and what it may become.
pub const YAML_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How much longer than in JSON an answer may be in YAML, besides what every answer may have.
pub const GROWTH_MAX: usize = 4;
const ALLOWANCE_BYTES: usize = 1024 * 1024;

impl Api {
    /// An answer in JSON as the same answer in YAML.
    pub(super) async fn in_yaml(
        &self,
        response: Response<Body>,
        room: Option<Room>,
        identity: &Identity,
    ) -> ApiResult<Response<Body>> {
        if response.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind != "application/json") {
            return Ok(response);
        }
        let json_bytes = json_bytes(&response);
        if json_bytes > YAML_BYTES_MAX {
            return Err(too_long());
        }
        let text_max = (json_bytes * GROWTH_MAX + ALLOWANCE_BYTES).min(YAML_BYTES_MAX);
        let (mut head, body) = response.into_parts();
        let text = if json_bytes <= LONG_BYTES_MIN {
            write(&read(body).await?, text_max)?
        } else {
            if let Some(room) = room {
                let charge = room.take(json_bytes + text_max).await.map_err(|_| ApiError::too_many_requests())?;
                head.extensions.insert(Taken(Arc::new(charge)));
            }
            self.in_turn(identity, async move { write(&read(body).await?, text_max) }).await?
        };
        head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
        head.headers.remove(header::CONTENT_LENGTH);
        head.extensions.remove::<AnswerBytes>();
        Ok(Response::from_parts(head, Body::from(text)))
    }
}

/// What the answer has in JSON, or a little more.
fn json_bytes(response: &Response<Body>) -> usize {
    let said = response.extensions().get::<AnswerBytes>().map(|bytes| bytes.0);
    said.or_else(|| usize::try_from(response.body().size_hint().lower()).ok()).unwrap_or(usize::MAX)
}

async fn read(body: Body) -> ApiResult<Bytes> {
    let read = http_body_util::Limited::new(body, YAML_BYTES_MAX).collect().await;
    Ok(read.map_err(|_| too_long())?.to_bytes())
}

fn write(json: &[u8], bytes_max: usize) -> ApiResult<String> {
    let unwritable = |why: String| ApiError::internal(format!("the answer cannot be written as YAML: {why}"));
    let value: Value = serde_json::from_slice(json).map_err(|error| unwritable(error.to_string()))?;
    let mut text = Bounded { text: String::new(), bytes_max, full: false };
    match serde_saphyr::to_fmt_writer(&mut text, &value) {
        Ok(()) => Ok(text.text),
        Err(_) if text.full => Err(too_long()),
        Err(error) => Err(unwritable(error.to_string())),
    }
}

fn too_long() -> ApiError {
    ApiError::not_acceptable(&["application/json"])
}

/// A text that ends where it is too long.
struct Bounded {
    text: String,
    bytes_max: usize,
    full: bool,
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.text.len() + more.len() > self.bytes_max {
            self.full = true;
            return Err(fmt::Error);
        }
        self.text.push_str(more);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_indentation_makes_of_an_answer_is_bounded() {
        let deep = format!("{}{}1{}", "[".repeat(100), "1,".repeat(10_000), "]".repeat(100));
        assert!(write(deep.as_bytes(), 10 << 20).is_ok_and(|text| text.len() > 1 << 20));
        let refused = write(deep.as_bytes(), 1 << 20).expect_err("fifty times as long");
        assert_eq!(refused.code, http::StatusCode::NOT_ACCEPTABLE);
        let plain = write(br#"{"a":[1,"two"]}"#, 100).expect("short");
        assert_eq!(serde_saphyr::from_str::<Value>(&plain).expect("YAML"), serde_json::json!({"a": [1, "two"]}));
    }
}
