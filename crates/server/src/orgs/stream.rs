//! Log streams: what happens in an environment, as it happens. An open stream is a lease that the server renews; if the client, or
//! the server, is gone, it passes by itself.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use families::orgs::commands::Op;
use http::{HeaderValue, Response, header};
use kinds::fields::text;
use serde_json::Value;
use store::{Journal, PageLimit};
use tokio::sync::mpsc;

use super::problem::Failure;
use super::{Call, carry};
use crate::api::Parts;

/// Between two looks at what has happened.
const LOOK: Duration = Duration::from_secs(1);
/// Looks between two renewals: a third of the time a lease lasts.
const LOOKS_PER_RENEWAL: u32 = 10;
/// Lines that wait for a slow client, and how long they do before its stream ends: less than its lease lasts.
const WAITING_MAX: usize = 64;
const WAITING: Duration = Duration::from_secs(10);
/// Events of all organizations that are read at a time, and how often in one look: then the lease is to be renewed, too.
const PAGE: PageLimit = PageLimit { entries: 1000, bytes: 1 << 20 };
const PAGES_MAX: usize = 20;

pub async fn open(parts: &Arc<Parts>, call: &Call) -> Result<Response<Body>, Failure> {
    // Every stream has a lease of its own: neither a key nor a question of what would happen opens another one under the same.
    let call = Call {
        found: call.found.clone(),
        headers: http::HeaderMap::new(),
        query: String::new(),
        identity: call.identity.clone(),
        number: call.number,
        body: Value::Null,
    };
    let opened = carry::command(parts, &call, Op::OpenLogStream).await?;
    let bytes = http_body_util::BodyExt::collect(opened.into_body()).await;
    let bytes = bytes.map_err(|error| Failure::internal(error.to_string()))?.to_bytes();
    let lease: Value = serde_json::from_slice(&bytes).map_err(|error| Failure::internal(error.to_string()))?;
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let follower = Follower { parts: Arc::clone(parts), lease: text(&lease, &["id"]).to_owned(), call };
    tokio::spawn(follower.run(sender));
    let lines = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let lines = futures::StreamExt::map(lines, Ok::<Bytes, std::convert::Infallible>);
    let mut response = Response::new(Body::from_stream(lines));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

struct Follower {
    parts: Arc<Parts>,
    lease: String,
    call: Call,
}

impl Follower {
    async fn run(mut self, sender: mpsc::Sender<Bytes>) {
        let mut at = self.parts.journals.span(Journal::EVENTS).map_or(1, |span| span.end);
        let mut tick = tokio::time::interval(LOOK);
        let mut looks = 0;
        self.call.found.path.insert("stream", self.lease.clone());
        let closing = self.parts.closing.clone();
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = sender.closed() => break,
                () = closing.cancelled() => break,
            }
            looks += 1;
            if looks % LOOKS_PER_RENEWAL == 0 {
                let renewed = carry::command(&self.parts, &self.call, Op::RenewLogStream).await;
                if renewed.is_err() || sender.try_send(Bytes::from_static(b": still here\n\n")).is_err() {
                    break;
                }
            }
            if self.catch_up(&mut at, &sender).await.is_err() {
                break;
            }
        }
        // What cannot be closed passes by itself.
        let _closed = carry::command(&self.parts, &self.call, Op::CloseLogStream).await;
    }

    /// Sends what has happened since the last look, however much of it was others'.
    async fn catch_up(&self, at: &mut u64, sender: &mpsc::Sender<Bytes>) -> Result<(), ()> {
        for _ in 0..PAGES_MAX {
            let from = *at;
            for line in self.look(at).await? {
                tokio::time::timeout(WAITING, sender.send(line)).await.map_err(drop)?.map_err(drop)?;
            }
            if *at == from {
                break;
            }
        }
        Ok(())
    }

    async fn look(&self, at: &mut u64) -> Result<Vec<Bytes>, ()> {
        let (journals, from) = (self.parts.journals.clone(), *at);
        let read = tokio::task::spawn_blocking(move || journals.forward(Journal::EVENTS, from, PAGE));
        let page = read.await.map_err(drop)?.map_err(drop)?;
        let mut lines = Vec::new();
        let path = |field: &str| self.call.found.path.get(field).map_or("", String::as_str);
        for entry in page.entries {
            *at = entry.sequence.saturating_add(1);
            let Ok(event) = serde_json::from_slice::<Value>(&entry.value) else { continue };
            let ours = text(&event, &["org_id"]) == self.call.org()
                && text(&event, &["app_id"]) == path("app")
                && text(&event, &["env_id"]) == path("env");
            if ours {
                let (kind, id, payload) = (text(&event, &["event_type"]), entry.sequence, &event["payload"]);
                lines.push(Bytes::from(format!("id: {id}\nevent: {kind}\ndata: {payload}\n\n")));
            }
        }
        Ok(lines)
    }
}
