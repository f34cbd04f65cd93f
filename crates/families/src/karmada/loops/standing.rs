//! How an object stands: conditions in its status, and events about it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use kinds::conditions;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use kube::runtime::events::{self, Event, EventType, Reporter};
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};

use super::kind::{fingerprint, namespace_of, within};

/// How long the message of a condition may be.
const MESSAGE_CHARS_MAX: usize = 8192;
/// Words that are remembered, so that the same ones are counted up and not told anew.
const WORDS_MAX: usize = 1024;

pub fn now() -> String {
    kinds::time::text(jiff::Timestamp::now().as_millisecond())
}

pub fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// The time that is so far away.
pub fn kept_until(after: std::time::Duration) -> String {
    kinds::time::text(now_ms().saturating_add(i64::try_from(after.as_millis()).unwrap_or(i64::MAX)))
}

/// Who tells events. What is told again in the same words is a series; other words of the same reason are another event, which the
/// client's recorder would count up without saying them. So each note has a recorder of its own.
#[derive(Clone)]
pub struct Recorder {
    client: Client,
    controller: &'static str,
    by_note: Arc<Mutex<HashMap<u64, events::Recorder>>>,
}

impl Recorder {
    fn of(&self, note: &str) -> events::Recorder {
        let mut known = self.by_note.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= WORDS_MAX {
            known.clear();
        }
        let reporter = || Reporter { controller: self.controller.into(), instance: None };
        known.entry(fingerprint(note)).or_insert_with(|| events::Recorder::new(self.client.clone(), reporter())).clone()
    }
}

pub fn recorder(client: &Client, controller: &'static str) -> Recorder {
    Recorder { client: client.clone(), controller, by_note: Arc::default() }
}

/// Tells an event. One that is lost is no reason to stop.
pub async fn tell(
    recorder: &Recorder,
    object: &DynamicObject,
    kind: &ApiResource,
    is_warning: bool,
    reason: &str,
    note: &str,
) {
    let event = Event {
        type_: if is_warning { EventType::Warning } else { EventType::Normal },
        reason: reason.into(),
        note: Some(note.chars().take(1000).collect()),
        action: reason.into(),
        secondary: None,
    };
    if let Err(error) = recorder.of(note).publish(&event, &object.object_ref(kind)).await {
        tracing::debug!(%error, "an event was not recorded");
    }
}

/// As much of a message as a condition has room for. Members and quotas say what they like: what is refused for being long is told nobody.
fn cut(message: &str) -> &str {
    message.char_indices().nth(MESSAGE_CHARS_MAX).map_or(message, |(end, _)| &message[..end])
}

/// The conditions of a status with one of them put in; its time moves only when it says something else.
pub fn with_condition(status: &Value, kind: &str, is: &str, reason: &str, message: &str) -> Value {
    let message = cut(message);
    let mut list = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut condition = conditions::condition(kind, is, reason, message);
    let before = status.get("conditions").and_then(|all| conditions::find(all, kind));
    conditions::since(&mut condition, "lastTransitionTime", before, &["status"], &now());
    conditions::put(&mut list, condition);
    Value::Array(list)
}

/// Whether a condition says this already.
pub fn says(status: &Value, kind: &str, is: &str, reason: &str, message: &str) -> bool {
    let condition = status.get("conditions").and_then(|all| conditions::find(all, kind));
    condition.is_some_and(|one| one["status"] == is && one["reason"] == reason && one["message"] == cut(message))
}

/// Whether a cluster is well, as far as its status says.
pub fn is_ready(cluster: &DynamicObject) -> bool {
    let ready = cluster.data["status"].get("conditions").and_then(|all| conditions::find(all, "Ready"));
    ready.is_some_and(|one| one["status"] == "True")
}

/// Writes fields of a status.
pub async fn patch_status(
    client: &Client,
    object: &DynamicObject,
    kind: &ApiResource,
    status: Value,
) -> kube::Result<DynamicObject> {
    let patch = Patch::Merge(json!({ "status": status }));
    within(client, kind, &namespace_of(object)).patch_status(&object.name_any(), &PatchParams::default(), &patch).await
}

/// Whether a call was refused because its object is gone, or another write was first: then the next look sees to it.
pub fn is_passing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409))
}
