//! The accept loop: TCP → TLS → HTTP/1.1 or HTTP/2, for any service over `http` requests.
//!
//! Every connection is bounded in time (handshake, headers, idle), in size (headers) and in number. Shutdown is in two
//! steps: stop accepting and tell each connection to finish what it has; after [`Limits::drain`] close the rest.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use crate::tls::Peer;

/// What a connection may cost. The defaults are for one machine that also does the work.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections; further ones wait in the kernel's queue. Each costs two buffers and a TLS state, ~50 KiB.
    pub connections: usize,
    /// A handshake is two round trips; who needs longer is broken or hostile.
    pub handshake: Duration,
    /// HTTP/1.1: the longest silence before a request, and the longest time its headers may take. A little more than
    /// the 90 s after which Go clients drop an idle connection, so that the client closes first and never loses a race.
    pub idle: Duration,
    /// HTTP/2: a silent connection is asked for a sign of life, and closed without one.
    pub ping_interval: Duration,
    pub ping_timeout: Duration,
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
            idle: Duration::from_secs(100),
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(20),
            header_bytes: 64 * 1024,
            streams: 1_024,
            drain: Duration::from_secs(10),
        }
    }
}

/// Flow control: a body of the largest size we accept (3 MiB) needs few round trips.
const STREAM_WINDOW_BYTES: u32 = 512 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
/// Out of file descriptors or memory: accepting again at once would only burn CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where a request came from; in its extensions, with [`Peer`] when a client certificate was shown.
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
    let seats = Arc::new(Semaphore::new(limits.connections));
    let connections = TaskTracker::new();
    let abort = CancellationToken::new();
    let acceptor = TlsAcceptor::from(tls);
    let accept = async {
        loop {
            // The seat first: a connection nobody can serve is better left to the kernel's queue.
            let Ok(seat) = Arc::clone(&seats).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, remote)) => {
                    let connection = Connection { remote, seat, closing: closing.clone(), limits };
                    let work = connection.run(stream, acceptor.clone(), service.clone());
                    let abort = abort.clone();
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

struct Connection {
    remote: SocketAddr,
    /// Given back when the connection is gone.
    seat: OwnedSemaphorePermit,
    closing: CancellationToken,
    limits: Limits,
}

impl Connection {
    async fn run<S>(self, stream: TcpStream, acceptor: TlsAcceptor, service: S)
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
    {
        let Connection { remote, seat, closing, limits } = self;
        // Answers are small and complete; waiting to fill a packet would only add delay.
        let _ = stream.set_nodelay(true);
        let stream = match tokio::time::timeout(limits.handshake, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%remote, %error, "TLS handshake failed"),
            Err(_) => return tracing::debug!(%remote, "TLS handshake took too long"),
        };
        let peer = stream.get_ref().1.peer_certificates().and_then(|chain| Peer::from_certificate(chain.first()?));
        let service = tower::service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(RemoteAddr(remote));
            if let Some(peer) = &peer {
                request.extensions_mut().insert(peer.clone());
            }
            // A fresh clone is ready: our services keep no per-call reservation.
            let mut service = service.clone();
            async move {
                futures::future::poll_fn(|context| service.poll_ready(context)).await?;
                service.call(request).await
            }
        });
        let builder = builder(&limits);
        let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        let mut connection = std::pin::pin!(connection);
        let mut told = false;
        let outcome = loop {
            tokio::select! {
                outcome = connection.as_mut() => break outcome,
                () = closing.cancelled(), if !told => {
                    told = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        };
        if let Err(error) = outcome {
            tracing::debug!(%remote, %error, "connection ended");
        }
        drop(seat);
    }
}

fn builder(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    let header_bytes = usize::try_from(limits.header_bytes).unwrap_or(usize::MAX);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .max_buf_size(header_bytes)
        .keep_alive(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(limits.header_bytes)
        .max_concurrent_streams(limits.streams)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .keep_alive_interval(limits.ping_interval)
        .keep_alive_timeout(limits.ping_timeout);
    builder
}
