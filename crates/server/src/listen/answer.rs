//! The body of an answer on its way to a client. It goes out in slices, and every slice holds what the answer is charged
//! for until the connection has let go of its bytes: what lies in a protocol's send buffer is still under way.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::pulse::Underway;
use crate::inflight::Charge;

/// Bytes handed to the protocol at a time, and so what it buffers beyond a client's window.
const SLICE_BYTES: usize = 16 * 1024;

/// What a service says about its answer, in the response's extensions.
#[derive(Clone, Default)]
pub struct Answering {
    /// Given back when the last byte has left.
    pub charge: Option<Arc<Charge>>,
    /// The stream lasts until somebody ends it.
    pub watch: bool,
}

pub(super) struct AnswerBody {
    inner: Body,
    /// Taken from `inner`, not handed on yet.
    rest: Bytes,
    held: Arc<Held>,
}

struct Held {
    underway: Underway,
    _charge: Option<Arc<Charge>>,
}

struct Slice {
    bytes: Bytes,
    _held: Arc<Held>,
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AnswerBody {
    pub fn new(inner: Body, underway: Underway, answering: Answering) -> AnswerBody {
        underway.answer(answering.watch);
        AnswerBody { inner, rest: Bytes::new(), held: Arc::new(Held { underway, _charge: answering.charge }) }
    }

    fn slice(&mut self) -> Frame<Bytes> {
        let bytes = self.rest.split_to(self.rest.len().min(SLICE_BYTES));
        self.held.underway.ready(bytes.len());
        Frame::data(Bytes::from_owner(Slice { bytes, _held: Arc::clone(&self.held) }))
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if !this.rest.is_empty() {
            return Poll::Ready(Some(Ok(this.slice())));
        }
        match Pin::new(&mut this.inner).poll_frame(context) {
            Poll::Pending => {
                this.held.underway.waits();
                Poll::Pending
            }
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(Ok(match frame.into_data() {
                Ok(data) if data.is_empty() => Frame::data(data),
                Ok(data) => {
                    this.rest = data;
                    this.slice()
                }
                Err(other) => other,
            }))),
            Poll::Ready(end) => Poll::Ready(end),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(inner.lower().saturating_add(rest));
        hint
    }
}
