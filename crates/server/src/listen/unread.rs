//! What of a request nobody read. Clients send a body behind its headers, and may be answered in between: over HTTP/1.1 the connection
//! would end while they still send, and the answer be lost with it. So a little more is read before they are answered.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::Request;
use http::header::EXPECT;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;

use crate::body::drop_rest;

/// As much as Go's server reads: more is dropped with the connection.
const BYTES_MAX: usize = 256 * 1024;
/// A client that was about to send has sent by then.
const TIME_MAX: Duration = Duration::from_secs(1);

type Slot = Arc<Mutex<Option<Incoming>>>;

/// Where a body comes back to whose reader has gone.
pub(super) struct Unread(Option<Slot>);

impl Unread {
    /// A request whose body comes back, unless its sender waits to be asked for it.
    pub fn of(request: Request<Incoming>) -> (Request<Body>, Unread) {
        if request.headers().contains_key(EXPECT) {
            return (request.map(Body::new), Unread(None));
        }
        let slot = Slot::default();
        let back = Arc::clone(&slot);
        (request.map(|inner| Body::new(Reading { inner: Some(inner), back })), Unread(Some(slot)))
    }

    /// Reads what is left, within bounds, and keeps nothing of it.
    pub async fn drop_rest(self) {
        let left = self.0.and_then(|slot| slot.lock().take());
        if let Some(left) = left {
            drop_rest(&mut Body::new(left), BYTES_MAX, TIME_MAX).await;
        }
    }
}

struct Reading {
    /// Until it is dropped.
    inner: Option<Incoming>,
    back: Slot,
}

impl HttpBody for Reading {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.get_mut().inner {
            Some(inner) => Pin::new(inner).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        *self.back.lock() = self.inner.take().filter(|inner| !inner.is_end_stream());
    }
}
