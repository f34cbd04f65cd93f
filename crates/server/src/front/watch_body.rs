//! The body of a watch's answer: holds the watch's places in the counts, and ends when the server closes, so that a
//! shutdown never waits for clients that would watch forever.
//!
//! A watch is a position in a history that all share, so that it costs nothing to speak of, but for a piece that is with
//! the connection and not taken yet. A large one is charged to the watch's user until it is gone; when a user's watches
//! together hold too much they end, and their clients begin again where they were.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::Gate;
use crate::identity::Identity;
use crate::inflight::{Charge, WatchSeat};
use crate::metrics::Up;

/// Pieces above this size are charged for. As many smaller ones as a user may have watches are little still.
const LARGE_PIECE_BYTES: usize = 16 * 1024;

pub(super) struct WatchBody {
    /// None once closed; the events and the seat are let go together.
    events: Option<(Body, (WatchSeat, Up))>,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    gate: Arc<Gate>,
    identity: Arc<Identity>,
}

/// A large piece with what it is charged for.
struct Charged {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl WatchBody {
    pub fn new(
        events: Body,
        open: (WatchSeat, Up),
        closing: CancellationToken,
        gate: Arc<Gate>,
        identity: Arc<Identity>,
    ) -> WatchBody {
        WatchBody { events: Some((events, open)), closing: Box::pin(closing.cancelled_owned()), gate, identity }
    }

    /// The piece, charged for if it is large; none when there is no room for it.
    fn charged(&self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        match frame.into_data() {
            Ok(bytes) if bytes.len() > LARGE_PIECE_BYTES => {
                let charge = self.gate.in_flight.piece(&self.identity, bytes.len()).ok()?;
                Some(Frame::data(Bytes::from_owner(Charged { bytes, _charge: charge })))
            }
            Ok(bytes) => Some(Frame::data(bytes)),
            Err(other) => Some(other),
        }
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
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(frame) = this.charged(frame) {
                    return Poll::Ready(Some(Ok(frame)));
                }
                tracing::debug!(user = this.identity.user, "a watch ends: too much that is not read");
            }
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
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
