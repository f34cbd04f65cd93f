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

    pub fn into_response(self) -> Response<Body> {
        let mut details = json!({});
        let (code, reason, message) = match self {
            Refusal::BadRequest(message) => (StatusCode::BAD_REQUEST, "BadRequest", message),
            Refusal::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized".into()),
            Refusal::Forbidden { message, group, resource, name } => {
                for (field, value) in [("group", group), ("kind", resource), ("name", name)] {
                    if !value.is_empty() {
                        details[field] = json!(value);
                    }
                }
                (StatusCode::FORBIDDEN, "Forbidden", message)
            }
            Refusal::TooManyRequests => {
                details["retryAfterSeconds"] = json!(RETRY_AFTER_SECONDS);
                (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", TooMany.to_string())
            }
            Refusal::TooManyConnections => {
                details["retryAfterSeconds"] = json!(RETRY_AFTER_SECONDS);
                let message = "Too many connections, please try again later.";
                (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message.into())
            }
            Refusal::NotLeading => {
                details["retryAfterSeconds"] = json!(RETRY_AFTER_SECONDS);
                let message = "this replica does not know whether it still leads; ask again";
                (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message.into())
            }
            Refusal::NoSpace => {
                details["retryAfterSeconds"] = json!(RETRY_AFTER_SECONDS);
                let message = "the store is full and refuses every write, deletions included; reading works";
                (StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorage", message.into())
            }
            Refusal::Timeout => (
                StatusCode::GATEWAY_TIMEOUT,
                "Timeout",
                "Timeout: request did not complete within the allotted timeout".into(),
            ),
        };
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
