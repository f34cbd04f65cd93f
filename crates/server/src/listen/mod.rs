//! The accept loop: TCP → TLS → HTTP/1.1 or HTTP/2, for any service over `http` requests.
//!
//! ```text
//! accept ─▶ a place in the crowd (an idle connection makes room, or the newcomer is told 429)
//!        ─▶ connection: handshake, protocol by ALPN, requests   ─▶ answer: the body, in slices, until it is gone
//!              └ pulse: since when it is silent, idle or not reading, and when that is too long
//! ```
//!
//! Every connection is bounded in time (handshake, first request, idle, an answer that is not taken), in size (headers,
//! streams, buffers) and in number. Shutdown is in two steps: stop accepting and tell each connection to finish what it
//! has; after [`Limits::drain`] close the rest.

mod answer;
mod connection;
mod crowd;
mod descriptors;
mod pulse;
mod unread;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

pub use answer::Answering;
use connection::Connection;
use crowd::Crowd;
pub use descriptors::FILES_KEPT;

/// What a connection may cost. The defaults are for one machine that also does the work.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections. Beyond it the one that has been idle longest makes room; if all are at work, the newcomer is told
    /// to come back. Each costs two buffers and a TLS state, ~50 KiB.
    pub connections: usize,
    /// A handshake is two round trips; who needs longer is broken or hostile.
    pub handshake: Duration,
    /// From the handshake to the end of the first request's headers: a client connects because it has something to ask.
    pub first_request: Duration,
    /// The longest time without a request, and HTTP/1.1's for the headers of a further one. A little more than the 90 s after
    /// which Go clients drop an idle connection, so that the client closes first and never loses a race.
    pub idle: Duration,
    /// How long an answer may lie ready without the client taking any of it.
    pub stalled: Duration,
    /// HTTP/2: a silent connection is asked for a sign of life, and closed without one.
    pub ping_interval: Duration,
    pub ping_timeout: Duration,
    /// How long what was sent may wait for the client's host to say that it has come. Otherwise whoever vanished would be written to
    /// for as long as the kernel has room: small answers that go on, such as watches and log streams, fill it in hours.
    pub unacknowledged: Duration,
    /// Names, values and the request line together. Service account tokens and long selectors fit; floods do not.
    pub header_bytes: u32,
    /// Concurrent streams of one HTTP/2 connection. Clients queue silently beyond it, and a process may hold hundreds of
    /// watches on its one connection.
    pub streams: u32,
    /// How long shutdown waits for requests under way.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 16_384,
            handshake: Duration::from_secs(10),
            first_request: Duration::from_secs(10),
            idle: Duration::from_secs(100),
            stalled: Duration::from_secs(30),
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(20),
            unacknowledged: Duration::from_secs(20),
            header_bytes: 64 * 1024,
            streams: 1_024,
            drain: Duration::from_secs(10),
        }
    }
}

/// HTTP/1.1 headers of one request; HTTP/2 counts their bytes alone.
pub const HTTP1_HEADERS_MAX: usize = 100;
/// HTTP/2 streams that a client opened and reset before anybody looked at them, and those that we reset because of the
/// client's mistakes: beyond either the connection is closed.
pub const RESET_STREAMS_MAX: usize = 20;
pub const MISTAKEN_STREAMS_MAX: usize = 1_024;
/// What a client that takes an answer must take of it at the least, once twice the stall limit is over.
pub const ANSWER_BYTES_PER_SECOND_MIN: u64 = 128 * 1024;
/// Out of file descriptors or memory: accepting again at once would only burn CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where a request came from; in its extensions, with [`crate::tls::Peer`] when a client certificate was shown.
#[derive(Clone, Copy, Debug)]
pub struct RemoteAddr(pub SocketAddr);

/// Serves until `closing` is cancelled and the connections are drained.
pub async fn serve<S>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    service: S,
    closing: CancellationToken,
    limits: Limits,
) where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let crowd = Crowd::new(descriptors::connections(limits.connections));
    let connections = TaskTracker::new();
    let abort = CancellationToken::new();
    let acceptor = TlsAcceptor::from(tls);
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((stream, remote)) => {
                    let Some(arrival) = crowd.arrive() else {
                        // Even those who are told to come back are too many.
                        tracing::debug!(%remote, "closed at once: too many connections");
                        continue;
                    };
                    let connection = Connection { remote, closing: closing.clone(), limits };
                    let (acceptor, service, abort) = (acceptor.clone(), service.clone(), abort.clone());
                    let work = async move { connection.run(arrival.placed().await, stream, acceptor, service).await };
                    connections.spawn(async move {
                        tokio::select! {
                            () = work => {}
                            () = abort.cancelled() => {}
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = accept => {}
        () = closing.cancelled() => {}
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(limits.drain, connections.wait()).await.is_err() {
        tracing::warn!(open = connections.len(), "closing connections that did not finish in time");
        abort.cancel();
        connections.wait().await;
    }
}
