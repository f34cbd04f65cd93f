//! Answers given before the API sees the request, as Kubernetes `Status` objects.

use axum::body::Body;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;

use crate::authn::{ImpersonationError, Unauthorized};
use crate::authz::{Attributes, forbidden};
use crate::identity::Identity;
use crate::inflight::{RETRY_AFTER_SECONDS, TooMany};
use crate::request::BadRequest;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    BadRequest(String),
    Unauthorized,
    Forbidden {
        message: String,
        group: String,
        resource: String,
        name: String,
    },
    TooManyRequests,
    /// Every connection is at work and there is no place for another.
    TooManyConnections,
    Timeout,
    /// Another replica may lead by now: what this one knows may be out of date.
    NotLeading,
    /// The store writes nothing at all.
    NoSpace,
}

impl Refusal {
    pub fn forbidden(identity: &Identity, asked: &Attributes<'_>, reason: &str) -> Refusal {
        Refusal::Forbidden {
            message: forbidden(identity, asked, reason),
            group: asked.group.into(),
            resource: asked.resource.into(),
            name: asked.name.into(),
        }
    }

    /// The status code and the words of the answer.
    pub fn said(&self) -> (StatusCode, String) {
        match self {
            Refusal::BadRequest(message) => (StatusCode::BAD_REQUEST, message.clone()),
            Refusal::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized".into()),
            Refusal::Forbidden { message, .. } => (StatusCode::FORBIDDEN, message.clone()),
            Refusal::TooManyRequests => (StatusCode::TOO_MANY_REQUESTS, TooMany.to_string()),
            Refusal::TooManyConnections => {
                (StatusCode::TOO_MANY_REQUESTS, "Too many connections, please try again later.".into())
            }
            Refusal::NotLeading => {
                let message = "this replica does not know whether it still leads; ask again";
                (StatusCode::SERVICE_UNAVAILABLE, message.into())
            }
            Refusal::NoSpace => {
                let message = "the store is full and refuses every write, deletions included; reading works";
                (StatusCode::INSUFFICIENT_STORAGE, message.into())
            }
            Refusal::Timeout => {
                let message = "Timeout: request did not complete within the allotted timeout";
                (StatusCode::GATEWAY_TIMEOUT, message.into())
            }
        }
    }

    /// The word that clients of Kubernetes go by.
    fn reason(&self) -> &'static str {
        match self {
            Refusal::BadRequest(_) => "BadRequest",
            Refusal::Unauthorized => "Unauthorized",
            Refusal::Forbidden { .. } => "Forbidden",
            Refusal::TooManyRequests | Refusal::TooManyConnections => "TooManyRequests",
            Refusal::NotLeading => "ServiceUnavailable",
            Refusal::NoSpace => "InsufficientStorage",
            Refusal::Timeout => "Timeout",
        }
    }

    pub fn into_response(self) -> Response<Body> {
        let ((code, message), reason) = (self.said(), self.reason());
        let mut details = json!({});
        match self {
            Refusal::Forbidden { group, resource, name, .. } => {
                for (field, value) in [("group", group), ("kind", resource), ("name", name)] {
                    if !value.is_empty() {
                        details[field] = json!(value);
                    }
                }
            }
            Refusal::TooManyRequests | Refusal::TooManyConnections | Refusal::NotLeading | Refusal::NoSpace => {
                details["retryAfterSeconds"] = json!(RETRY_AFTER_SECONDS);
            }
            Refusal::BadRequest(_) | Refusal::Unauthorized | Refusal::Timeout => {}
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": message, "reason": reason, "code": code.as_u16(),
        });
        if details.as_object().is_some_and(|details| !details.is_empty()) {
            status["details"] = details;
        }
        let mut response = Response::new(Body::from(status.to_string()));
        *response.status_mut() = code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if matches!(code, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
        }
        response
    }
}

impl From<BadRequest> for Refusal {
    fn from(error: BadRequest) -> Refusal {
        Refusal::BadRequest(error.to_string())
    }
}

impl From<Unauthorized> for Refusal {
    fn from(_: Unauthorized) -> Refusal {
        Refusal::Unauthorized
    }
}

impl From<TooMany> for Refusal {
    fn from(_: TooMany) -> Refusal {
        Refusal::TooManyRequests
    }
}

impl From<ImpersonationError> for Refusal {
    fn from(error: ImpersonationError) -> Refusal {
        match error {
            ImpersonationError::Malformed(why) => Refusal::BadRequest(why.into()),
            ImpersonationError::Forbidden { message, group, resource, name } => {
                Refusal::Forbidden { message, group, resource, name }
            }
        }
    }
}
