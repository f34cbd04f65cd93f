//! What the engine did, on its way to the cluster: each write rests on the version that it was worked out from. Where that is no longer
//! the one that is there, it is left: the watch shows the later one, and it is worked out anew.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use engine::{EventKind, Object, ObjectKey};
use http::Method;
use kube::Client;
use ledger::SubjectId;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use crate::cluster::{Served, call};
use crate::kept_back::STAMP;
use crate::metrics::Metrics;

/// An object that has to be otherwise in the cluster.
#[derive(Clone, Debug)]
pub struct Push {
    pub object: Arc<Object>,
    /// Who it is there, and the version of it that was last seen, on which this rests; 0 where it is not there.
    pub uid: SubjectId,
    pub version: u64,
    pub does: Does,
}

/// What is to be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    Make,
    /// What is not its status, its status, or both.
    Change {
        body: bool,
        status: bool,
    },
    /// It gets a stamp, so that nothing else that rests on this version is stored.
    Stamp,
    End,
}

impl Does {
    pub fn of(kind: EventKind, object: &Object, previous: Option<&Object>, is_there: bool) -> Does {
        match kind {
            EventKind::Deleted => Does::End,
            _ if !is_there => Does::Make,
            // It went, and is wanted again before that was done.
            EventKind::Added => Does::Change { body: true, status: false },
            EventKind::Modified => {
                let status = |value: &mut Value| value.as_object_mut().and_then(|object| object.remove("status"));
                let (mut new, mut old) = (object.value(), previous.map_or(Value::Null, Object::value));
                let is_told = status(&mut new) != status(&mut old);
                for value in [&mut new, &mut old] {
                    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
                        metadata.remove("resourceVersion");
                        metadata.remove("generation");
                    }
                }
                Does::Change { body: new != old, status: is_told }
            }
        }
    }

    pub fn concerns_more_than_status(self) -> bool {
        self != Does::Change { body: false, status: true } && self != Does::Change { body: false, status: false }
    }

    /// Both, where the later comes before the earlier was done.
    fn after(self, earlier: Does) -> Does {
        match (earlier, self) {
            (Does::Change { body, status }, Does::Change { body: body_too, status: status_too }) => {
                Does::Change { body: body || body_too, status: status || status_too }
            }
            (Does::Change { status, .. }, Does::Stamp) => Does::Change { body: true, status },
            (Does::Stamp, Does::Change { status, .. }) => Does::Change { body: true, status },
            (_, later) => later,
        }
    }
}

/// How long a status that could not be written is left alone at first, and one that somebody else wrote over.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How resources are served, for whoever has to write their objects.
pub type Directory = Arc<std::sync::RwLock<HashMap<rules::GroupResource, Served>>>;

/// Objects that are to be written. Of one object the newest counts.
#[derive(Default)]
pub struct Waiting {
    pushes: HashMap<ObjectKey, (Push, Turn)>,
    /// In which order they are written.
    order: BTreeMap<(Instant, u64), ObjectKey>,
    number: u64,
    written: HashMap<ObjectKey, Written>,
}

/// When it is written at the earliest, and whether that was tried.
#[derive(Clone, Copy)]
struct Turn {
    place: (Instant, u64),
    is_tried: bool,
}

/// What was written last of an object.
struct Written {
    says: u64,
    at: Instant,
    /// How long it is left alone before the same is written once more.
    pause: Duration,
}

impl Waiting {
    pub fn add(&mut self, mut push: Push, now: Instant) {
        if let Some((earlier, _)) = self.pushes.get(&push.object.key) {
            push.does = push.does.after(earlier.does);
        }
        let (key, says) = (push.object.key.clone(), says(&push));
        let written = self.written.get_mut(&key).filter(|written| written.says == says);
        match (self.pushes.get_mut(&key), written) {
            // It has something else to say than what is left alone.
            (Some((_, turn)), None) if !turn.is_tried && turn.place.0 > now => self.put(push, now, false),
            (Some((waiting, _)), _) => *waiting = push,
            (None, None) => self.put(push, now, false),
            // The same once more: somebody else wrote over it, and would do it again.
            (None, Some(written)) => {
                let from = written.at + written.pause;
                let is_calm = from + written.pause < now;
                written.pause = if is_calm { PAUSE } else { (written.pause * 2).min(PAUSE_MAX) };
                self.put(push, from.max(now), false);
            }
        }
    }

    /// One that could not be written, behind all others.
    pub fn add_again(&mut self, push: Push, now: Instant) {
        match self.pushes.get_mut(&push.object.key) {
            Some((later, _)) => later.does = later.does.after(push.does),
            None => self.put(push, now + PAUSE, true),
        }
    }

    fn put(&mut self, push: Push, from: Instant, is_tried: bool) {
        self.number += 1;
        let (key, turn) = (push.object.key.clone(), Turn { place: (from, self.number), is_tried });
        self.order.insert(turn.place, key.clone());
        if let Some((_, before)) = self.pushes.insert(key, (push, turn)) {
            self.order.remove(&before.place);
        }
    }

    /// When one may be written, if any waits.
    pub fn next(&self) -> Option<Instant> {
        self.order.first_key_value().map(|((from, _), _)| *from)
    }

    pub fn take(&mut self, now: Instant) -> Option<Push> {
        if self.next()? > now {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        self.pushes.remove(&key).map(|(push, _)| push)
    }

    /// It was written.
    pub fn done(&mut self, push: &Push, now: Instant) {
        let (key, says) = (&push.object.key, says(push));
        match self.written.get_mut(key) {
            Some(written) if written.says == says => written.at = now,
            _ => drop(self.written.insert(key.clone(), Written { says, at: now, pause: PAUSE })),
        }
        if self.written.len() > WRITTEN_MAX {
            self.written.clear();
        }
    }
}

/// Of how many objects it is known what was written last.
const WRITTEN_MAX: usize = 100_000;

/// What is written of an object, whenever it began to say so.
fn says(push: &Push) -> u64 {
    let mut value = push.object.value();
    for condition in value["status"]["conditions"].as_array_mut().into_iter().flatten() {
        if let Some(condition) = condition.as_object_mut() {
            condition.remove("lastTransitionTime");
        }
    }
    let mut hasher = DefaultHasher::new();
    let (is_there, is_stamped) = (push.does != Does::End, push.does == Does::Stamp);
    (is_there, is_stamped.then_some(push.version)).hash(&mut hasher);
    if push.does.concerns_more_than_status() {
        for path in ["/spec", "/metadata/labels", "/metadata/finalizers", "/metadata/ownerReferences"] {
            value.pointer(path).map(Value::to_string).hash(&mut hasher);
        }
    }
    value["status"].to_string().hash(&mut hasher);
    hasher.finish()
}

/// Writes objects until nobody has any more to be written.
pub async fn run(client: Client, directory: Directory, mut pushes: UnboundedReceiver<Push>, metrics: Arc<Metrics>) {
    let mut waiting = Waiting::default();
    loop {
        tokio::select! {
            push = pushes.recv() => {
                let Some(push) = push else { return };
                waiting.add(push, Instant::now());
            }
            () = until(waiting.next()) => {}
        }
        while let Ok(push) = pushes.try_recv() {
            waiting.add(push, Instant::now());
        }
        let Some(push) = waiting.take(Instant::now()) else { continue };
        match write(&client, &directory, &push, &metrics).await {
            Ok(true) => {
                metrics.written.add(1);
                waiting.done(&push, Instant::now());
            }
            Ok(false) => {}
            Err(error) => {
                metrics.failed.add(1);
                tracing::warn!(key = %push.object.key, %error, "an object could not be written, and is tried again");
                waiting.add_again(push, Instant::now());
            }
        }
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Whether it was written; `Err` for what may go well another time.
async fn write(client: &Client, directory: &Directory, push: &Push, metrics: &Metrics) -> Result<bool, kube::Error> {
    let key = &push.object.key;
    let served = directory.read().unwrap_or_else(std::sync::PoisonError::into_inner).get(&key.resource).cloned();
    let Some(served) = served else { return Ok(false) };
    match carry_out(client, &served, push).await {
        Ok(()) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => {
            metrics.overtaken.add(1);
            Ok(false)
        }
        Err(kube::Error::Api(status))
            if (400..429).contains(&status.code) && status.code != 401 && status.code != 403 =>
        {
            tracing::error!(%key, %status, "the cluster refused what was to be written");
            metrics.push_refused.add(1);
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

async fn carry_out(client: &Client, served: &Served, push: &Push) -> Result<(), kube::Error> {
    let key = &push.object.key;
    let path = served.path(&key.namespace, &key.name);
    let mut body = body(push);
    match push.does {
        Does::Make => {
            let all = path.rsplit_once('/').map_or(&*path, |(all, _)| all);
            call::<Value>(client, Method::POST, all, Some(&body)).await.map(drop)
        }
        Does::Change { body: is_changed, status } => {
            if is_changed {
                let written: Value = call(client, Method::PUT, &path, Some(&body)).await?;
                body["metadata"]["resourceVersion"] = written["metadata"]["resourceVersion"].clone();
            }
            // On this path nothing but the status is taken.
            match status {
                true => call::<Value>(client, Method::PUT, &format!("{path}/status"), Some(&body)).await.map(drop),
                false => Ok(()),
            }
        }
        Does::Stamp => {
            if !body["metadata"]["annotations"].is_object() {
                body["metadata"]["annotations"] = json!({});
            }
            body["metadata"]["annotations"][STAMP] = json!(push.version.to_string());
            call::<Value>(client, Method::PUT, &path, Some(&body)).await.map(drop)
        }
        // It was never there.
        Does::End if push.version == 0 => Ok(()),
        // On its way out already: it goes when nothing holds it.
        Does::End if !body["metadata"]["deletionTimestamp"].is_null() => {
            body["metadata"]["finalizers"] = json!([]);
            call::<Value>(client, Method::PUT, &path, Some(&body)).await.map(drop)
        }
        Does::End => {
            let metadata = &body["metadata"];
            let expected = json!({"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]});
            call::<Value>(client, Method::DELETE, &path, Some(&json!({"preconditions": expected}))).await.map(drop)
        }
    }
}

/// The whole object, as the one that is there in that version.
fn body(push: &Push) -> Value {
    let mut value = push.object.value();
    let metadata = &mut value["metadata"];
    match push.version {
        0 => {
            for made in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
                metadata.as_object_mut().and_then(|metadata| metadata.remove(made));
            }
        }
        version => {
            metadata["uid"] = json!(kinds::uid::text(push.uid));
            metadata["resourceVersion"] = json!(version.to_string());
        }
    }
    value
}
