//! Usage as other systems measure it: Prometheus, Amberflo and OpenMeter, asked over HTTP.
//!
//! Start reading at [`Meter::ask`]: one [`Question`] (how much of this meter has this entity, where these dimensions are so) becomes
//! one request, and its answer an exact decimal number, or a [`Failure`] that says whether asking again can help. No float touches
//! what is measured: numbers are read from their text, and what is finer than a billionth is rounded up.
//!
//! [`Meter::tell`] goes the other way: [`Event`]s that usage changed, for a service that meters or bills by them.
//!
//! [`Breaker`] keeps a service that does not answer from being asked by everybody all the time.

mod amberflo;
mod breaker;
mod number;
mod openmeter;
mod prometheus;
mod send;

use std::time::Duration;

use http::{Method, Request};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;

pub use breaker::Breaker;
pub use number::nanos;
pub use send::{EVENTS_MAX, Event};

/// Which protocol is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Prometheus,
    Amberflo,
    OpenMeter,
}

/// Who is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meter {
    pub service: Service,
    /// `https://app.amberflo.io`, without a slash at the end.
    pub endpoint: String,
    /// What opens it: an API key, or a bearer token.
    pub secret: Option<String>,
    pub timeout: Duration,
    /// Whether a meter without any numbers measures nothing, or is out of order.
    pub empty_is_zero: bool,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub meter: String,
    /// The label, dimension or subject that names the entity, and its name.
    pub entity_label: String,
    pub entity: String,
    pub conditions: Vec<(String, Condition)>,
    pub at_ms: i64,
}

/// What must be so of a dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

impl Condition {
    /// Whether a dimension with this value, or none, is meant.
    fn holds(&self, value: Option<&str>) -> bool {
        let value = value.filter(|value| !value.is_empty());
        match self {
            Condition::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
            Condition::NotIn(values) => value.is_none_or(|value| !values.iter().any(|one| one == value)),
            Condition::Exists => value.is_some(),
            Condition::DoesNotExist => value.is_none(),
        }
    }
}

/// How much it is, in billionths of what the meter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    pub nanos: i128,
    pub at_ms: i64,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Asking again may help.
    Unavailable(String),
    /// It will not, until somebody changes something.
    Wrong(String),
}

impl Failure {
    pub fn message(&self) -> &str {
        match self {
            Failure::Unavailable(message) | Failure::Wrong(message) => message,
        }
    }
}

/// Longest answer that is read: a total is short, a grouped one has a row for each group.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

impl Meter {
    /// Asks, and waits for as long as the meter may take.
    pub async fn ask(&self, question: &Question) -> Result<Reading, Failure> {
        let asked = async {
            match self.service {
                Service::Prometheus => prometheus::ask(self, question).await,
                Service::Amberflo => amberflo::ask(self, question).await,
                Service::OpenMeter => openmeter::ask(self, question).await,
            }
        };
        match tokio::time::timeout(self.timeout, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Unavailable(format!("no answer within {} ms", self.timeout.as_millis()))),
        }
    }

    /// Sends one request and gives the text of its answer.
    async fn send(&self, method: Method, path: &str, header: Option<&str>, body: String) -> Result<String, Failure> {
        self.send_as("application/json", method, path, header, body).await
    }

    async fn send_as(
        &self,
        kind: &str,
        method: Method,
        path: &str,
        header: Option<&str>,
        body: String,
    ) -> Result<String, Failure> {
        let wrong = |error: &dyn std::fmt::Display| Failure::Wrong(format!("{}: {error}", self.endpoint));
        let uri: http::Uri = self.endpoint.parse().map_err(|error: http::uri::InvalidUri| wrong(&error))?;
        let mut config = kube::Config::new(uri);
        config.connect_timeout = Some(self.timeout);
        config.read_timeout = Some(self.timeout);
        // Who asks decides when to ask again: a service in trouble gets one request for each question.
        config.default_retry = false;
        let client = Client::try_from(config).map_err(|error| wrong(&error))?;
        let mut request = Request::builder().method(method).uri(path).header("content-type", kind);
        if let Some(secret) = &self.secret {
            request = match header {
                Some(header) => request.header(header, secret),
                None => request.header("authorization", format!("Bearer {secret}")),
            };
        }
        let request = request.body(Body::from(body.into_bytes())).map_err(|error| wrong(&error))?;
        let broken = |error: &dyn std::fmt::Display| Failure::Unavailable(short(&error.to_string()));
        let response = client.send(request).await.map_err(|error| broken(&error))?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let bytes = body.map_err(|error| broken(&error))?.to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        // Asking again can help where there are too many requests, or a service is in trouble.
        match status {
            200..=299 => Ok(text),
            429 | 500.. => Err(Failure::Unavailable(format!("status {status}"))),
            _ => Err(Failure::Wrong(format!("status {status}: {}", short(&text)))),
        }
    }
}

/// The beginning of a text that somebody else wrote.
fn short(text: &str) -> String {
    text.chars().filter(|one| !one.is_control()).take(200).collect()
}

/// A text as a part of an address.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

fn garbage(text: &str) -> Failure {
    Failure::Unavailable(format!("an answer that makes no sense: {}", short(text)))
}
