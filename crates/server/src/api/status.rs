//! Everything that can go wrong, as a Kubernetes `Status`. The one place that knows status codes.
//!
//! Clients branch on `reason` and `code`, people read `message`, tools parse `details.causes`; all three are Kubernetes'.

use axum::body::Body;
use families::{Denial, DenialReason, Families, Refusal, RefusalCause, RefusalKind};
use http::{HeaderValue, Response, StatusCode, header};
use kinds::field_error::{FieldError, join};
use rules::GroupResource;
use serde_json::{Map, Value, json};

use crate::authz::forbidden_object;
use crate::core::{ObjectKey, Refused};

/// A refusal or failure on its way to the client.
#[derive(Debug)]
pub struct ApiError {
    pub code: StatusCode,
    pub reason: &'static str,
    pub message: String,
    details: Option<Box<Details>>,
    /// Where an expired list may be continued all the same.
    next: Option<String>,
    /// A whole `Status` that is not ours to word.
    said: Option<Box<Value>>,
}

#[derive(Debug, Default)]
struct Details {
    name: String,
    group: String,
    kind: String,
    uid: String,
    causes: Vec<Value>,
    retry_after_seconds: u32,
}

pub type ApiResult<T> = Result<T, ApiError>;

/// How many denials and field errors one answer spells out; a thousand more would tell nobody anything.
const CAUSES_MAX: usize = 100;

const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";

/// What a denial says beyond "not now": waiting will not help.
fn hopeless(denial: &Denial) -> Vec<Value> {
    let of_lines = denial.lines.iter().filter(|line| line.reason != DenialReason::Full).map(|line| {
        let (name, limit) = (&denial.name, &line.limit_text);
        let message = format!("{} is limited to {limit} by {name}: this asks for more than that", line.account);
        json!({"reason": line.reason.name(), "message": message, "field": line.account})
    });
    let own = (denial.lines.is_empty() && denial.reason > DenialReason::NeverFits)
        .then(|| json!({"reason": denial.reason.name(), "message": denial.message}));
    of_lines.chain(own).collect()
}

impl ApiError {
    pub fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, next: None, said: None }
    }

    fn about(mut self, resource: &GroupResource, name: &str) -> Self {
        let details = Details {
            name: name.into(),
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            ..Details::default()
        };
        self.details = Some(Box::new(details));
        self
    }

    fn with_causes(mut self, causes: impl IntoIterator<Item = Value>) -> Self {
        self.details.get_or_insert_default().causes = causes.into_iter().take(CAUSES_MAX).collect();
        self
    }

    pub(super) fn retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        let message = format!("{resource} {name:?} not found");
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(resource, name)
    }

    /// A path that nothing is served under.
    pub fn no_such_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
    }

    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        let message = format!("{resource} {name:?} already exists");
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(resource, name)
    }

    /// Every name the server made up was taken.
    pub fn no_unique_name(resource: &GroupResource, name: &str) -> Self {
        let message = format!(
            "{resource} {name:?} already exists, the server was not able to generate a unique name for the object"
        );
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(resource, name).retry_after(1)
    }

    pub fn modified(resource: &GroupResource, name: &str) -> Self {
        Self::conflict(resource, name, MODIFIED)
    }

    pub fn conflict(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {why}");
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(resource, name)
    }

    /// Server-side apply met fields of other managers.
    pub fn apply_conflict(message: String, causes: Vec<Value>) -> Self {
        Self::new(StatusCode::CONFLICT, "Conflict", message).with_causes(causes)
    }

    /// `Kind "name" is invalid: …`; `kind` is qualified by its group.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let shown = &errors[..errors.len().min(CAUSES_MAX)];
        let mut message = format!("{qualified} {name:?} is invalid");
        if !shown.is_empty() {
            message = format!("{message}: {}", join(shown));
        }
        let mut error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        error.details =
            Some(Box::new(Details { name: name.into(), group: group.into(), kind: kind.into(), ..Details::default() }));
        error.with_causes(shown.iter().map(FieldError::cause))
    }

    /// A patch that is well formed and does not fit.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub fn forbidden(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = forbidden_object(&resource.group, &resource.resource, name, why);
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(resource, name)
    }

    /// A message that is whole already, from the authorizer.
    pub fn forbidden_as_said(group: &str, resource: &str, name: &str, message: String) -> Self {
        let error = Self::new(StatusCode::FORBIDDEN, "Forbidden", message);
        if resource.is_empty() { error } else { error.about(&GroupResource::new(group, resource), name) }
    }

    /// The refusal of a webhook, which is a `Status` of its own with a failure's code.
    pub fn as_said(status: Value) -> Self {
        let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
        let code = code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::BAD_REQUEST);
        let message = status["message"].as_str().unwrap_or_default().to_owned();
        Self { said: Some(Box::new(status)), ..Self::new(code, "", message) }
    }

    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    pub fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// The object, with all that the server adds to it, is more than may be stored.
    pub fn object_too_large() -> Self {
        let (bytes, values) = (kinds::bounds::OBJECT_BYTES_MAX, kinds::bounds::VALUES_MAX);
        let message = format!("Request entity too large: an object may have {bytes} bytes and {values} values");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    pub fn not_acceptable(accepted: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    pub fn unsupported_media_type(message: String) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// A watch from before the kept history.
    pub fn too_old(asked: u64, oldest: u64) -> Self {
        Self::expired(format!("too old resource version: {asked} ({oldest})"))
    }

    /// A list whose state is no longer kept; `next` continues it at the present state.
    pub fn expired_list(message: impl Into<String>, next: Option<String>) -> Self {
        Self { next, ..Self::expired(message) }
    }

    pub fn too_new(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
            .retry_after(1)
            .with_causes([json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"})])
    }

    /// One user holds as much as it may.
    pub fn too_many_requests() -> Self {
        let message = "Too many requests, please try again later.";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).retry_after(1)
    }

    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).retry_after(1)
    }

    pub fn internal(message: impl std::fmt::Display) -> Self {
        let message = format!("Internal error occurred: {message}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// An eviction that a disruption budget does not allow.
    pub fn disruption(cause: String) -> Self {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
            .with_causes([json!({"reason": "DisruptionBudget", "message": cause})])
    }

    /// The server is going down, or has lost its disk.
    pub fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "the server is shutting down").retry_after(1)
    }

    /// A write that the engine refused.
    pub fn refused(refused: Refused, key: &ObjectKey, kind: &str, families: &Families) -> Self {
        let (resource, name) = (&key.resource, &*key.name);
        match refused {
            Refused::AlreadyExists => Self::already_exists(resource, name),
            Refused::NotFound => Self::not_found(resource, name),
            Refused::NamespaceNotFound => Self::not_found(&GroupResource::core("namespaces"), &key.namespace),
            Refused::NamespaceTerminating => {
                let namespace = &key.namespace;
                let why =
                    format!("unable to create new content in namespace {namespace} because it is being terminated");
                Self::forbidden(resource, name, &why).with_causes([json!({
                    "reason": "NamespaceTerminating",
                    "message": format!("namespace {namespace} is being terminated"),
                    "field": "metadata.namespace",
                })])
            }
            Refused::DefinitionTerminating => super::definitions::terminating(resource, name),
            Refused::NoSpace => Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "InsufficientStorage",
                "the server's disk is almost full: until there is room, only deletions and updates that make objects smaller are accepted",
            )
            .retry_after(5),
            Refused::Conflict { .. } => Self::modified(resource, name),
            Refused::UidMismatch { stored } => {
                let stored = kinds::uid::text(stored);
                Self::conflict(resource, name, &format!("Precondition failed: UID in object meta: {stored}"))
            }
            Refused::Denied(denials) => {
                let mut words = denials.iter().map(|denial| match families.of_policy(&denial.resource) {
                    Some(family) => family.words(denial).text,
                    None => format!("exceeded quota: {}", denial.name),
                });
                let first = words.next().unwrap_or_else(|| "exceeded quota".into());
                // Clients look for the first in the message; whoever wants to mend all at once reads the rest.
                let rest = words.map(|message| json!({"reason": DenialReason::Full.name(), "message": message}));
                let causes: Vec<Value> = rest.chain(denials.iter().flat_map(hopeless)).collect();
                Self::forbidden(resource, name, &first).with_causes(causes)
            }
            Refused::Said { refusal, .. } => {
                let Refusal { kind, message, causes } = refusal;
                let said = match kind {
                    RefusalKind::Forbidden => Self::forbidden(resource, name, &message),
                    RefusalKind::Conflict => Self::conflict(resource, name, &message),
                };
                let cause = |one: RefusalCause| json!({"reason": one.reason, "message": one.message, "field": one.field});
                said.with_causes(causes.into_iter().map(cause).collect::<Vec<_>>())
            }
            Refused::Unmeasurable { policy, message } => {
                Self::forbidden(resource, name, &format!("{policy} could not be evaluated: {message}"))
            }
            Refused::Invalid(errors) => Self::invalid(&resource.group, kind, name, &errors),
            Refused::Bug(what) => Self::internal(what),
        }
    }

    pub fn is_conflict(&self) -> bool {
        self.reason == "Conflict"
    }

    /// The `Status` object.
    pub fn to_value(&self) -> Value {
        if let Some(said) = &self.said {
            return Value::clone(said);
        }
        let mut metadata = Map::new();
        if let Some(next) = &self.next {
            metadata.insert("continue".into(), json!(next));
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata,
            "status": "Failure", "message": self.message, "reason": self.reason, "code": self.code.as_u16(),
        });
        if let Some(details) = &self.details {
            status["details"] = details.to_value();
        }
        status
    }

    pub fn into_response(self) -> Response<Body> {
        if self.code.is_server_error() && self.code != StatusCode::GATEWAY_TIMEOUT {
            tracing::warn!(code = self.code.as_u16(), message = self.message, "request failed");
        }
        let mut response = Response::new(Body::from(self.to_value().to_string()));
        *response.status_mut() = self.code;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(details) = self.details.filter(|details| details.retry_after_seconds > 0) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(details.retry_after_seconds));
        }
        response
    }
}

impl Details {
    fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (field, text) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)] {
            if !text.is_empty() {
                map.insert(field.into(), json!(text));
            }
        }
        if !self.causes.is_empty() {
            map.insert("causes".into(), json!(self.causes));
        }
        if self.retry_after_seconds > 0 {
            map.insert("retryAfterSeconds".into(), json!(self.retry_after_seconds));
        }
        Value::Object(map)
    }
}

/// The answer to a deletion that leaves nothing to show.
pub fn success(resource: &GroupResource, name: &str, uid: &str) -> Value {
    let details = Details {
        name: name.into(),
        group: resource.group.to_string(),
        kind: resource.resource.to_string(),
        uid: uid.into(),
        ..Details::default()
    };
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details.to_value()})
}
