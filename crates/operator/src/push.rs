//! Statuses on their way to the cluster: each rests on the version that it was worked out from. Where that is no longer the one
//! that is there, it is left: the watch shows the later one, and it is worked out anew.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use engine::ObjectKey;
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use crate::cluster::{Served, call};
use crate::core::Push;

/// How long a status that could not be written is left alone at first, and one that somebody else wrote over.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How resources are served, for whoever has to write their objects.
pub type Directory = std::sync::Arc<std::sync::RwLock<HashMap<rules::GroupResource, Served>>>;

/// Statuses that are to be written. Of one object the newest counts.
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
    pub fn add(&mut self, push: Push, now: Instant) {
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
        if !self.pushes.contains_key(&push.object.key) {
            self.put(push, now + PAUSE, true);
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

/// What a status says, whenever it began to say so.
fn says(push: &Push) -> u64 {
    let mut value = push.object.value();
    let status = &mut value["status"];
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        if let Some(condition) = condition.as_object_mut() {
            condition.remove("lastTransitionTime");
        }
    }
    let mut hasher = DefaultHasher::new();
    status.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Writes statuses until nobody has any more.
pub async fn run(client: Client, directory: Directory, mut pushes: UnboundedReceiver<Push>) {
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
        match write(&client, &directory, &push).await {
            Ok(true) => waiting.done(&push, Instant::now()),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(key = %push.object.key, %error, "a status could not be written, and is tried again");
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
async fn write(client: &Client, directory: &Directory, push: &Push) -> Result<bool, kube::Error> {
    let key = &push.object.key;
    let served = directory.read().unwrap_or_else(std::sync::PoisonError::into_inner).get(&key.resource).cloned();
    let Some(served) = served else { return Ok(false) };
    let path = format!("{}/status", served.path(&key.namespace, &key.name));
    match call::<Value>(client, Method::PUT, &path, Some(&body(push))).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => Ok(false),
        Err(kube::Error::Api(status))
            if (400..429).contains(&status.code) && status.code != 401 && status.code != 403 =>
        {
            tracing::error!(%key, %status, "a status was refused");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// The whole object: on this path nothing but its status is taken from it.
fn body(push: &Push) -> Value {
    let mut value = push.object.value();
    value["metadata"]["resourceVersion"] = json!(push.version.to_string());
    value
}
