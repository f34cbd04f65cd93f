//! Bytes between a replica and a member: a pipe that can fall silent, and gRPC's framing on it.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio_stream::StreamExt;
use tonic::Status;

pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// While it is shut nothing passes and nothing is closed. What was sent meanwhile arrives when it is open again.
#[derive(Debug, Default)]
pub struct Gate(Mutex<Shut>);

#[derive(Debug, Default)]
struct Shut {
    /// For how many reasons.
    reasons: u32,
    waiting: Vec<Waker>,
}

impl Gate {
    pub fn shut(&self) {
        self.0.lock().unwrap().reasons += 1;
    }

    pub fn open(&self) {
        let mut shut = self.0.lock().unwrap();
        shut.reasons = shut.reasons.saturating_sub(1);
        if shut.reasons == 0 {
            shut.waiting.drain(..).for_each(Waker::wake);
        }
    }

    pub fn is_shut(&self) -> bool {
        self.0.lock().unwrap().reasons > 0
    }

    fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let mut shut = self.0.lock().unwrap();
        if shut.reasons == 0 {
            return Poll::Ready(());
        }
        shut.waiting.push(context.waker().clone());
        Poll::Pending
    }
}

/// The member's end of a connection.
pub struct Pipe {
    pub stream: DuplexStream,
    pub gate: Arc<Gate>,
}

macro_rules! pass {
    ($pipe:ident, $context:ident, $call:ident $(, $argument:expr)?) => {
        match $pipe.gate.poll($context) {
            Poll::Ready(()) => Pin::new(&mut $pipe.stream).$call($context $(, $argument)?),
            Poll::Pending => Poll::Pending,
        }
    };
}

impl AsyncRead for Pipe {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        pass!(self, context, poll_read, into)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        pass!(self, context, poll_write, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        pass!(self, context, poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        pass!(self, context, poll_shutdown)
    }
}

/// The first message of a call. Those of a watch never end, and one is all that is ever sent.
pub async fn message(mut body: Incoming) -> Option<(Bytes, Incoming)> {
    const HEAD: usize = 5;
    let mut read = Vec::new();
    loop {
        if let Some((head, rest)) = read.split_at_checked(HEAD) {
            let length = u32::from_be_bytes(head[1..].try_into().ok()?) as usize;
            if rest.len() >= length {
                return Some((Bytes::copy_from_slice(&rest[..length]), body));
            }
        }
        let frame = body.frame().await?.ok()?;
        read.extend_from_slice(frame.data_ref()?);
    }
}

fn framed(message: &[u8]) -> Bytes {
    // Messages of these tests are far below four gigabytes.
    let length = (message.len() as u32).to_be_bytes();
    [&[0], length.as_slice(), message].concat().into()
}

fn head() -> Response<()> {
    let mut head = Response::new(());
    head.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    head
}

/// These messages, and then that all went well; for a watch that never comes.
pub fn answer(messages: impl tokio_stream::Stream<Item = Vec<u8>> + Send + 'static) -> Response<Body> {
    let mut well = HeaderMap::new();
    well.insert("grpc-status", HeaderValue::from_static("0"));
    let end = tokio_stream::once(Ok::<_, Infallible>(Frame::trailers(well)));
    let body = StreamBody::new(messages.map(|message| Ok(Frame::data(framed(&message)))).chain(end));
    head().map(|()| body.boxed_unsync())
}

pub fn refusal(status: &Status) -> Response<Body> {
    let mut response = head().map(|()| http_body_util::Empty::new().boxed_unsync());
    response.headers_mut().insert("grpc-status", HeaderValue::from(status.code() as i32));
    let text = HeaderValue::from_str(status.message()).unwrap_or(HeaderValue::from_static("?"));
    response.headers_mut().insert("grpc-message", text);
    response
}
