//! Lists and watches, one a resource: told in their order, in parcels.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::Client;
use kube::api::Api;
use kube::core::Status;
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt as _, watcher};
use rules::GroupResource;
use serde_json::Value;
use tokio::sync::mpsc::Sender;

use crate::cluster::Served;
use crate::sent::Sent;
use crate::sight::Seen;

/// Objects told at a time: the decider answers reviews between two parcels.
const PARCEL: usize = 128;

/// How long one watch lasts before it is asked for again, from where it was. A connection that has died in silence is noticed by
/// whoever makes the client, a moment after this.
pub const LASTS_SECONDS: u32 = 30;

/// How long a cluster that does not answer is left alone: at first, and at most. Whatever rests on what was not seen is refused, so
/// that an outage may not go on here for much longer than there.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Twice as long every time.
pub struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses(PAUSE)
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.0;
        self.0 = (pause * 2).min(PAUSE_MAX);
        Some(pause)
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        *self = Pauses::default();
    }
}

/// What is there.
#[derive(Debug)]
pub enum News {
    See(Vec<Seen>),
    /// A resource whose objects the cluster does not show.
    Blind {
        resource: GroupResource,
        why: String,
        is_denied: bool,
    },
    /// The end of a list: these are all, by namespace and name.
    Listed {
        resource: GroupResource,
        names: HashSet<(Arc<str>, Arc<str>)>,
    },
}

/// Tells what is there of a resource, for as long as somebody listens. What may not be watched any more is listed anew: so it is known
/// whether it can be seen at all.
pub async fn watch(client: Client, served: Served, news: Sender<News>) {
    while watch_once(client.clone(), &served, &news).await.is_continue() {
        tokio::time::sleep(PAUSE_MAX).await;
    }
}

async fn watch_once(client: Client, served: &Served, news: &Sender<News>) -> ControlFlow<()> {
    let api: Api<Sent> = Api::all_with(client, &served.to_api());
    let events = watcher(api, watcher::Config::default().timeout(LASTS_SECONDS));
    let events = events.backoff(Pauses::default()).ready_chunks(PARCEL);
    futures::pin_mut!(events);
    let mut names = HashSet::new();
    while let Some(events) = events.next().await {
        let (mut told, mut seen, mut is_refused) = (Vec::new(), Vec::with_capacity(events.len()), false);
        for event in events {
            match event {
                Ok(watcher::Event::Init) => names.clear(),
                Ok(watcher::Event::InitApply(object)) => {
                    let one = read(served, object, false);
                    names.extend(one.as_ref().map(|one| (one.key.namespace.clone(), one.key.name.clone())));
                    seen.extend(one);
                }
                Ok(watcher::Event::InitDone) => {
                    told.push(News::See(std::mem::take(&mut seen)));
                    let names = std::mem::take(&mut names);
                    told.push(News::Listed { resource: served.resource.clone(), names });
                }
                Ok(watcher::Event::Apply(object)) => seen.extend(read(served, object, false)),
                Ok(watcher::Event::Delete(object)) => seen.extend(read(served, object, true)),
                // It is asked again all the while: rights may be given.
                Err(watcher::Error::InitialListFailed(kube::Error::Api(status))) if refuses(&status) => {
                    let (resource, why) = (served.resource.clone(), status.message.clone());
                    told.push(News::Blind { resource, why, is_denied: status.code == 403 });
                }
                // The stream goes on by itself, from where it was or from a new list.
                Err(error) => {
                    tracing::warn!(resource = %served.resource, %error, "a watch was interrupted");
                    is_refused |=
                        matches!(&error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if refuses(status));
                }
            }
        }
        if !seen.is_empty() {
            told.push(News::See(seen));
        }
        for one in told {
            if news.send(one).await.is_err() {
                return ControlFlow::Break(());
            }
        }
        if is_refused {
            return ControlFlow::Continue(());
        }
    }
    ControlFlow::Break(())
}

/// Whether the cluster answered that it does not show this, and not that it is busy, or that what was asked for is too old.
fn refuses(status: &Status) -> bool {
    (400..429).contains(&status.code) && status.code != 410
}

fn read(served: &Served, object: Sent, is_gone: bool) -> Option<Seen> {
    let mut value = object.into_value();
    // Items of a list do not say what they are.
    if let Some(top) = value.as_object_mut() {
        let api = served.to_api();
        top.insert("apiVersion".into(), Value::String(api.api_version));
        top.insert("kind".into(), Value::String(api.kind));
    }
    let seen = match is_gone {
        true => Seen::gone(&served.resource, &value),
        false => Seen::there(&served.resource, value),
    };
    seen.inspect_err(|error| tracing::error!(resource = %served.resource, %error, "an object cannot be counted: it"))
        .ok()
}
