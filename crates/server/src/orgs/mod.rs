//! The REST API of organizations, `/v1/orgs/{org}/…`: a service of its own beside the Kubernetes API, behind the same front and
//! over the same sequencer.
//!
//! ```text
//!   request ─▶ table (which endpoint, whose rights) ─▶ commands::run ─▶ Command::WriteAll: objects, events, key ─▶ answer
//!                                                          ▲ again, where something changed meanwhile ┘
//! ```
//!
//! Start reading at [`answer`]. [`table`] lists every endpoint once: routing, rights, metrics and the OpenAPI document are read
//! from it. What a command writes is decided in `families::orgs::commands`, which knows no HTTP; [`problem`] is where its
//! refusals become status codes.

mod answers;
mod budget;
mod carry;
mod counts;
mod denials;
mod endpoints;
pub mod inventory;
mod key;
mod openapi;
mod problem;
mod reads;
mod stream;
pub mod table;
mod tail;
pub mod tiers;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use families::orgs::commands::Actor;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use serde_json::Value;
use uuid::Uuid;

use crate::api::{Api, Parts, system_clock, tell_number};
use crate::body::{self, BodyError};
use crate::front::Refusal;
use crate::identity::{Identity, split_service_account};
use crate::inflight::Room;
use crate::listen::RemoteAddr;
use crate::request::query_values;
pub use budget::Budget;
pub use counts::{ALLOCATIONS, COMMANDS, Counts, DOWNGRADES, DRAINS, EXCEEDED, ROLLOUTS, TIME_TO_SCHEDULE};
use denials::Tried;
pub use denials::{Denials, Trail};
use problem::Failure;
use table::{Action, Found, Lookup};
pub use tail::Tail;

/// The longest document of a command.
const BODY_BYTES_MAX: usize = 512 * 1024;

/// One request, as far as it is the same for all.
#[derive(Clone)]
pub struct Call {
    pub api: Api,
    /// Where room for a long answer is asked for.
    pub room: Option<Room>,
    pub found: Found,
    pub headers: HeaderMap,
    pub query: String,
    pub identity: Arc<Identity>,
    pub number: Uuid,
    pub source: Option<SocketAddr>,
    pub body: Value,
}

impl Call {
    pub fn org(&self) -> &str {
        self.found.path.get("org").map_or("", String::as_str)
    }

    pub fn query(&self, name: &str) -> Option<String> {
        query_values(&self.query, name).next()
    }

    /// Whether only what would happen is asked for.
    pub fn is_dry_run(&self) -> bool {
        self.query("dry_run").is_some_and(|value| !matches!(value.as_str(), "false" | "0"))
    }

    pub fn actor(&self) -> Actor {
        actor(&self.identity)
    }
}

fn actor(identity: &Identity) -> Actor {
    let user = &identity.user;
    let kind = match () {
        () if identity.is_internal() => "system",
        () if split_service_account(user).is_some() => "service_principal",
        () => "user",
    };
    Actor { kind, id: user.clone() }
}

/// A request's number, where it was given one before this API saw it.
#[derive(Clone, Copy)]
pub struct Numbered(pub Uuid);

/// What was refused at the door, in the words of this API.
pub fn refused(refusal: Refusal, number: Uuid) -> Response<Body> {
    let mut response = Failure::from(refusal).into_response(number);
    tell_number(response.headers_mut(), number);
    response
}

/// A command that its author has no right to goes into the audit trail.
pub fn forbidden(denials: &Denials, request: &Request<Body>, identity: &Identity) {
    let Lookup::Found(found) = table::find(request.method(), request.uri().path()) else { return };
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return;
    }
    denials.tell(&identity.user, || {
        let source = request.extensions().get::<RemoteAddr>().map(|remote| remote.0);
        let number = request.extensions().get::<Numbered>().map_or_else(Uuid::new_v4, |numbered| numbered.0);
        let org = found.path.get("org").map_or("", String::as_str);
        let tried = Tried { found: &found, org, actor: actor(identity), headers: request.headers(), source, number };
        tried.entry(system_clock(), "forbidden", "no_right", &Value::Null)
    });
}

/// Whether a path is one of this API's.
pub fn is_ours(path: &str) -> bool {
    path == "/v1" || path.starts_with("/v1/") || path == "/openapi/orgs.json"
}

/// Answers one request.
pub async fn answer(
    (api, room, source): (&Api, Option<Room>, Option<SocketAddr>),
    parts: &Arc<Parts>,
    (method, uri, headers): (Method, Uri, HeaderMap),
    body: Body,
    identity: Arc<Identity>,
    number: Uuid,
) -> Response<Body> {
    let failed = |failure: Failure| failure.into_response(number);
    let found = match table::find(&method, uri.path()) {
        Lookup::Found(found) => found,
        Lookup::OtherMethods(methods) => return failed(Failure::method_not_allowed(&methods)),
        Lookup::Nothing => return failed(Failure::no_such_path()),
    };
    let bytes = match body::read(body, BODY_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(BodyError::TooLarge(limit)) => return failed(Failure::too_large(limit)),
        Err(error) => return failed(Failure::invalid(error.to_string())),
    };
    let document = match &*bytes {
        [] => Ok(Value::Null),
        bytes => serde_json::from_slice::<Value>(bytes),
    };
    let body = match document {
        Ok(body) => body,
        Err(error) => return failed(Failure::invalid(format!("the body is no JSON: {error}"))),
    };
    let query = uri.query().unwrap_or_default().to_owned();
    let call = Call { api: api.clone(), room, found, headers, query, identity, number, source, body };
    let answered = match call.found.endpoint.action {
        Action::Run(op) => carry::command(parts, &call, op).await,
        Action::Stream => stream::open(parts, &call).await,
        Action::Heartbeat => carry::heartbeat(parts, &call).await,
        Action::OpenApi => Ok(openapi::response()),
        _ => reads::read(parts, &call).await,
    };
    let result = match &answered {
        Ok(_) => "ok",
        Err(failure) if failure.code() == "quota_exceeded" => "quota_exceeded",
        Err(failure) if failure.is_server_fault() => "failed",
        Err(_) => "refused",
    };
    parts.metrics.orgs.answered(call.found.number, result);
    answered.unwrap_or_else(failed)
}

/// A document that is no problem.
fn document(status: StatusCode, value: &Value) -> Response<Body> {
    written(status, text_of(value))
}

fn text_of(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).expect("a value is JSON")
}

/// The same of what is text already.
fn written(status: StatusCode, text: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
