//! The body of a watch's answer: holds the watch's places in the counts, and ends when the server closes, so that a
//! shutdown never waits for clients that would watch forever.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::inflight::WatchSeat;
use crate::metrics::Up;

pub(super) struct WatchBody {
    /// None once closed; the events and the seat are let go together.
    events: Option<(Body, (WatchSeat, Up))>,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl WatchBody {
    pub fn new(events: Body, open: (WatchSeat, Up), closing: CancellationToken) -> WatchBody {
        WatchBody { events: Some((events, open)), closing: Box::pin(closing.cancelled_owned()) }
    }
}

impl HttpBody for WatchBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let Some((events, _)) = &mut this.events else { return Poll::Ready(None) };
        // Events first: what was already published before the end still goes out.
        match Pin::new(events).poll_frame(context) {
            Poll::Ready(Some(frame)) => return Poll::Ready(Some(frame)),
            Poll::Ready(None) => {}
            Poll::Pending => {
                if this.closing.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
        }
        this.events = None;
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.events.as_ref().is_none_or(|(events, _)| events.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
