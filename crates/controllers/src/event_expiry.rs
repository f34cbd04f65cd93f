//! Events are news, and news gets old: an event that nobody has told again for a while is deleted, by a request like any
//! other, so that watchers see it go.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, Client, ResourceExt};

use crate::run::{Failed, Guarded, gone_is_fine};

/// How often old events are looked for: a fraction of their life, so that they are gone soon after its end, within bounds
/// that keep the look cheap and tests quick.
const LOOKS_IN_A_LIFE: u32 = 20;
const REST_MIN: Duration = Duration::from_millis(500);
const REST_MAX: Duration = Duration::from_secs(60);
/// Events looked at in one request.
const PAGE: u32 = 500;

pub async fn run(client: Client, ttl: Duration) {
    let rest = (ttl / LOOKS_IN_A_LIFE).clamp(REST_MIN, REST_MAX);
    loop {
        tokio::time::sleep(rest).await;
        if let Err(error) = expire(&client, ttl).await {
            tracing::debug!(%error, "old events stay until the next look");
        }
    }
}

async fn expire(client: &Client, ttl: Duration) -> Result<(), Failed> {
    let all: Api<Guarded<Event>> = Api::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = all.list(&params).await?;
        // What an event says about its time is its writer's word: it may be any time at all, and nothing is added to it.
        let oldest = Timestamp::now().checked_sub(ttl).unwrap_or(Timestamp::MIN);
        for event in
            page.items.iter().filter_map(|event| event.0.as_ref().ok()).filter(|event| told_last(event) < oldest)
        {
            let events: Api<Event> = Api::namespaced(client.clone(), &event.namespace().unwrap_or_default());
            // One that is told again at this moment stays.
            let preconditions =
                Preconditions { uid: event.uid(), resource_version: event.metadata.resource_version.clone() };
            let params = DeleteParams::background().preconditions(preconditions);
            match gone_is_fine(events.delete(&event.name_any(), &params).await) {
                Err(Failed::Api(kube::Error::Api(status))) if status.code == 409 => {}
                other => drop(other?),
            }
        }
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(()),
        }
    }
}

/// When an event was last written, as far as it says itself.
fn told_last(event: &Event) -> Timestamp {
    let written = event.metadata.managed_fields.iter().flatten().filter_map(|entry| entry.time.as_ref().map(|at| at.0));
    let created = event.metadata.creation_timestamp.as_ref().map(|at| at.0);
    written.chain(created).max().unwrap_or(Timestamp::MAX)
}
