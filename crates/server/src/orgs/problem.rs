//! What went wrong, as problem+json. The one place of this API that knows status codes.

use axum::body::Body;
use families::orgs::commands::{Problem, Sort};
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::front::Refusal;

const PROBLEMS: &str = "https://bursar.dev/problems/";
pub const CONTENT_TYPE: &str = "application/problem+json";

#[derive(Debug)]
pub struct Failure {
    status: StatusCode,
    code: String,
    detail: String,
    /// An object for `quota_exceeded`, else mistakes by field.
    details: Box<Value>,
    retry_after_seconds: Option<i64>,
    allow: Option<Box<str>>,
}

impl Failure {
    pub fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Failure {
        Failure {
            status,
            code: code.into(),
            detail: detail.into(),
            details: Box::new(Value::Null),
            retry_after_seconds: None,
            allow: None,
        }
    }

    pub fn invalid(detail: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, "invalid_argument", detail)
    }

    pub fn not_found(detail: impl Into<String>) -> Failure {
        Failure::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    pub fn forbidden(detail: impl Into<String>) -> Failure {
        Failure::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    pub fn conflict(code: &str, detail: impl Into<String>) -> Failure {
        Failure::new(StatusCode::CONFLICT, code, detail)
    }

    pub fn no_such_path() -> Failure {
        Failure::not_found("there is no such path: /openapi/orgs.json lists those there are")
    }

    pub fn method_not_allowed(methods: &[&str]) -> Failure {
        let mut failure = Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "not with this method");
        failure.allow = Some(methods.join(", ").into());
        failure
    }

    pub fn too_large(limit: usize) -> Failure {
        let detail = format!("the body is longer than {limit} bytes");
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_argument", detail)
    }

    pub fn limited(code: &str, detail: impl Into<String>) -> Failure {
        let failure = Failure::new(StatusCode::TOO_MANY_REQUESTS, code, detail);
        Failure { retry_after_seconds: Some(1), ..failure }
    }

    pub fn unavailable(detail: impl Into<String>) -> Failure {
        let failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail);
        Failure { retry_after_seconds: Some(1), ..failure }
    }

    pub fn internal(detail: impl Into<String>) -> Failure {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }

    pub fn code(&self) -> &str {
        &self.code
    }

    pub fn is_server_fault(&self) -> bool {
        self.status.is_server_error()
    }

    pub fn with_details(self, details: Value) -> Failure {
        Failure { details: Box::new(details), ..self }
    }

    /// When it may go another way.
    pub fn after_seconds(self, seconds: i64) -> Failure {
        Failure { retry_after_seconds: Some(seconds.max(1)), ..self }
    }

    pub fn into_response(self, number: Uuid) -> Response<Body> {
        let Failure { status, code, detail, details, retry_after_seconds, allow } = self;
        let request = number.hyphenated().to_string();
        let mut body = json!({
            "type": format!("{PROBLEMS}{code}"),
            "title": status.canonical_reason().unwrap_or_default(),
            "status": status.as_u16(),
            "code": code,
            "detail": detail,
            "message": detail,
            "request_id": request,
            "instance": request,
            "retryable": retry_after_seconds.is_some(),
            "retry_after_seconds": retry_after_seconds.unwrap_or(0),
        });
        if !details.is_null() {
            body["details"] = *details;
        }
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        if let Some(seconds) = retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = allow.and_then(|allow| HeaderValue::from_str(&allow).ok()) {
            headers.insert(header::ALLOW, allow);
        }
        response
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        let is_retried =
            matches!(refusal, Refusal::TooManyRequests | Refusal::TooManyConnections | Refusal::NotLeading);
        let (status, detail) = refusal.said();
        let code = match status {
            StatusCode::BAD_REQUEST => "invalid_argument",
            StatusCode::UNAUTHORIZED => "unauthorized",
            StatusCode::FORBIDDEN => "forbidden",
            StatusCode::TOO_MANY_REQUESTS => "rate_limited",
            _ => "unavailable",
        };
        Failure { retry_after_seconds: is_retried.then_some(1), ..Failure::new(status, code, detail) }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        let status = match problem.sort {
            Sort::Invalid => StatusCode::BAD_REQUEST,
            Sort::NotFound => StatusCode::NOT_FOUND,
            Sort::Conflict => StatusCode::CONFLICT,
            Sort::Limited => StatusCode::TOO_MANY_REQUESTS,
        };
        let fields: Vec<Value> =
            problem.fields.iter().map(|(field, message)| json!({"field": field, "message": message})).collect();
        let failure = Failure::new(status, &problem.code, problem.detail);
        let details = if fields.is_empty() { Value::Null } else { Value::Array(fields) };
        let retry_after_seconds = (problem.sort == Sort::Limited).then_some(1);
        Failure { details: Box::new(details), retry_after_seconds, ..failure }
    }
}
