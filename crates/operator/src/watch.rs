//! Lists and watches, one a resource: told in their order, in parcels.

use std::collections::HashSet;
use std::sync::Arc;

use futures::StreamExt as _;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::runtime::{WatchStreamExt as _, watcher};
use rules::GroupResource;
use serde_json::Value;
use tokio::sync::mpsc::Sender;

use crate::cluster::Served;
use crate::sight::Seen;

/// Objects told at a time: the decider answers reviews between two parcels.
const PARCEL: usize = 128;

/// How long one watch lasts before it is asked for again, from where it was. A connection that has died in silence is noticed by
/// whoever makes the client, a moment after this.
pub const LASTS_SECONDS: u32 = 30;

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

/// Tells what is there of a resource, for as long as somebody listens.
pub async fn watch(client: Client, served: Served, news: Sender<News>) {
    let api: Api<DynamicObject> = Api::all_with(client, &served.to_api());
    let events = watcher(api, watcher::Config::default().timeout(LASTS_SECONDS)).default_backoff().ready_chunks(PARCEL);
    futures::pin_mut!(events);
    let mut names = HashSet::new();
    while let Some(events) = events.next().await {
        let mut seen = Vec::with_capacity(events.len());
        for event in events {
            match event {
                Ok(watcher::Event::Init) => names.clear(),
                Ok(watcher::Event::InitApply(object)) => {
                    let one = read(&served, object, false);
                    names.extend(one.as_ref().map(|one| (one.key.namespace.clone(), one.key.name.clone())));
                    seen.extend(one);
                }
                Ok(watcher::Event::InitDone) => {
                    let listed = News::Listed { resource: served.resource.clone(), names: std::mem::take(&mut names) };
                    let told = [News::See(std::mem::take(&mut seen)), listed];
                    for one in told {
                        if news.send(one).await.is_err() {
                            return;
                        }
                    }
                }
                Ok(watcher::Event::Apply(object)) => seen.extend(read(&served, object, false)),
                Ok(watcher::Event::Delete(object)) => seen.extend(read(&served, object, true)),
                // It is asked again all the while: rights may be given.
                Err(watcher::Error::InitialListFailed(kube::Error::Api(status)))
                    if (400..429).contains(&status.code) =>
                {
                    let (resource, why) = (served.resource.clone(), status.message.clone());
                    let blind = News::Blind { resource, why, is_denied: status.code == 403 };
                    if news.send(blind).await.is_err() {
                        return;
                    }
                }
                // The stream goes on by itself, from where it was or from a new list.
                Err(error) => tracing::warn!(resource = %served.resource, %error, "a watch was interrupted"),
            }
        }
        if !seen.is_empty() && news.send(News::See(seen)).await.is_err() {
            return;
        }
    }
}

fn read(served: &Served, object: DynamicObject, is_gone: bool) -> Option<Seen> {
    let mut value = serde_json::to_value(object).ok()?;
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
