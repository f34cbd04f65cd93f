//! Log streams: what happens in an environment, as it happens. An open stream is a lease that the server renews; if the client, or
//! the server, is gone, it passes by itself.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use families::orgs::commands::Op;
use families::orgs::names::{GROUP, LOG_STREAMS};
use http::{HeaderValue, Response, header};
use kinds::fields::text;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::problem::Failure;
use super::table::name_of;
use super::tail::LOOK;
use super::{Call, carry};
use crate::api::Parts;
use crate::authz::Attributes;
use crate::core::ObjectKey;

/// Between two renewals: a third of the time a lease lasts.
const RENEWAL: Duration = Duration::from_secs(10);
/// After this a stream ends, and whoever still has a valid credential opens another one.
const LIFETIME: Duration = Duration::from_secs(30 * 60);
/// Lines that wait for a slow client, and how long all of one look may: with what is between two renewals less than its lease lasts.
const WAITING_MAX: usize = 64;
const WAITING: Duration = Duration::from_secs(10);

pub async fn open(parts: &Arc<Parts>, call: &Call) -> Result<Response<Body>, Failure> {
    // Every stream has a lease of its own: neither a key nor a question of what would happen opens another one under the same.
    let call = Call { headers: http::HeaderMap::new(), query: String::new(), body: Value::Null, ..call.clone() };
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
    /// Whether its right is still there: whoever lost it does not hear on.
    fn may_listen(&self) -> bool {
        let endpoint = self.call.found.endpoint;
        let name = name_of(&self.call.found);
        let asked = Attributes {
            subresource: endpoint.subresource,
            ..Attributes::object(endpoint.verb, GROUP, endpoint.resource, self.call.org(), &name)
        };
        self.parts.rbac.authorize(&self.call.identity, &asked).is_allowed()
    }

    async fn run(mut self, sender: mpsc::Sender<Bytes>) {
        let path = |field: &str| self.call.found.path.get(field).cloned().unwrap_or_default();
        let scope = [self.call.org().to_owned(), path("app"), path("env")];
        let closing = self.parts.closing.clone();
        let mut following = self.call.api.tail().follow(&self.parts.journals, &closing, scope);
        let mut tick = tokio::time::interval(LOOK);
        let begun = Instant::now();
        let mut renewed = begun;
        self.call.found.path.insert("stream", self.lease.clone());
        let lease = ObjectKey::new(LOG_STREAMS.resource(), self.call.org(), &self.lease);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = sender.closed() => break,
                () = closing.cancelled() => break,
            }
            if renewed.elapsed() >= RENEWAL {
                if !self.may_listen() || begun.elapsed() >= LIFETIME {
                    break;
                }
                let done = carry::command(&self.parts, &self.call, Op::RenewLogStream).await;
                if done.is_err() || sender.try_send(Bytes::from_static(b": still here\n\n")).is_err() {
                    break;
                }
                renewed = Instant::now();
            }
            // Whoever is too slow for what happens reads it from the list of events.
            let Ok(lines) = following.take() else { break };
            // With its organization the lease goes: what comes after is of the next one of its name.
            if self.parts.cache.get(&lease).is_none() {
                break;
            }
            if send_all(&sender, lines).await.is_err() {
                break;
            }
        }
        // What cannot be closed passes by itself.
        let _closed = carry::command(&self.parts, &self.call, Op::CloseLogStream).await;
    }
}

/// Sends the lines of one look, however many they are, in the time that one look may take: a stream that is not read goes on no
/// longer than its lease is counted.
async fn send_all(sender: &mpsc::Sender<Bytes>, lines: Vec<Bytes>) -> Result<(), ()> {
    let all = async {
        for line in lines {
            sender.send(line).await.map_err(drop)?;
        }
        Ok(())
    };
    tokio::time::timeout(WAITING, all).await.map_err(drop)?
}

#[cfg(test)]
mod tests {
    use families::orgs::commands::STREAM_MS;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_reads_a_line_now_and_then_does_not_keep_a_stream_open() {
        let (sender, mut receiver) = mpsc::channel(4);
        tokio::spawn(async move {
            while receiver.recv().await.is_some() {
                tokio::time::sleep(WAITING - Duration::from_secs(1)).await;
            }
        });
        let begun = Instant::now();
        let lines = vec![Bytes::from_static(b"line"); 100];
        assert_eq!(send_all(&sender, lines).await, Err(()));
        assert!(begun.elapsed() <= WAITING, "{:?}", begun.elapsed());
        assert!(RENEWAL + WAITING + LOOK < Duration::from_millis(STREAM_MS.unsigned_abs()));
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_hears_all() {
        let (sender, mut receiver) = mpsc::channel(4);
        let read = tokio::spawn(async move {
            let mut count = 0;
            while receiver.recv().await.is_some() {
                count += 1;
            }
            count
        });
        assert_eq!(send_all(&sender, vec![Bytes::from_static(b"line"); 5000]).await, Ok(()));
        drop(sender);
        assert_eq!(read.await.unwrap(), 5000);
    }
}
