//! One connection, from its handshake to its end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::answer::{AnswerBody, Answering};
use super::crowd::Member;
use super::pulse::Look;
use super::unread::Unread;
use super::{HTTP1_HEADERS_MAX, Limits, MISTAKEN_STREAMS_MAX, RESET_STREAMS_MAX, RemoteAddr};
use crate::front::Refusal;
use crate::tls::Peer;

/// Flow control: a body of the largest size we accept (3 MiB) needs few round trips.
const STREAM_WINDOW_BYTES: u32 = 512 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
/// What HTTP/2 buffers of one answer beyond what the socket takes.
const SEND_BUFFER_BYTES: usize = 64 * 1024;
/// How long a connection that was asked to end may take to say goodbye.
const GOODBYE_TIME_MAX: Duration = Duration::from_secs(1);

pub(super) struct Connection {
    pub remote: SocketAddr,
    pub closing: CancellationToken,
    pub limits: Limits,
}

impl Connection {
    pub async fn run<S>(self, member: Member, stream: TcpStream, acceptor: TlsAcceptor, service: S)
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
    {
        let (remote, limits) = (self.remote, self.limits);
        prepare(&stream, &limits);
        let handshake = tokio::time::timeout(limits.handshake, acceptor.accept(stream));
        let stream = tokio::select! {
            outcome = handshake => match outcome {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%remote, %error, "TLS handshake failed"),
                Err(_) => return tracing::debug!(%remote, "TLS handshake took too long"),
            },
            () = member.leave.cancelled() => return tracing::debug!(%remote, "made room in its handshake"),
        };
        let session = stream.get_ref().1;
        let peer = session.peer_certificates().and_then(|chain| Peer::from_certificate(chain.first()?));
        // The protocol is what was agreed on; without an agreement it is the older one. Nothing is guessed from bytes.
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        let (pulse, refused, leave) = (Arc::clone(&member.pulse), member.refused, member.leave.clone());
        let service = tower::service_fn(move |request: Request<Incoming>| {
            let underway = pulse.begin();
            let (mut request, unread) = Unread::of(request);
            request.extensions_mut().insert(RemoteAddr(remote));
            if let Some(peer) = &peer {
                request.extensions_mut().insert(peer.clone());
            }
            // A fresh clone is ready: our services keep no per-call reservation.
            let mut service = service.clone();
            let leave = leave.clone();
            async move {
                let mut response = if refused {
                    leave.cancel();
                    Refusal::TooManyConnections.into_response()
                } else {
                    futures::future::poll_fn(|context| service.poll_ready(context)).await?;
                    let response = service.call(request).await?;
                    // A stream of HTTP/2 ends by itself, and leaves the others alone.
                    if !is_http2 {
                        unread.drop_rest().await;
                    }
                    response
                };
                let answering = response.extensions_mut().remove::<Answering>().unwrap_or_default();
                Ok::<_, Infallible>(response.map(|body| AnswerBody::new(body, underway, answering)))
            }
        });
        let service = TowerToHyperService::new(service);
        let io = TokioIo::new(stream);
        let outcome = if is_http2 {
            self.watch_over(member, http2(&limits).serve_connection(io, service)).await
        } else {
            self.watch_over(member, http1(&limits).serve_connection(io, service)).await
        };
        if let Err(error) = outcome {
            tracing::debug!(%remote, %error, "connection ended");
        }
    }

    /// Runs the connection until it ends by itself, is asked to end, or rests for too long.
    async fn watch_over<C: GracefulConnection>(&self, member: Member, connection: C) -> Result<(), C::Error> {
        let mut connection = pin!(connection);
        let (mut told, mut leaving) = (false, false);
        let mut look_at = pin!(sleep_until(Instant::now() + self.limits.first_request));
        loop {
            tokio::select! {
                outcome = connection.as_mut() => return outcome,
                () = self.closing.cancelled(), if !told => {
                    told = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = member.leave.cancelled(), if !leaving => {
                    tracing::debug!(remote = %self.remote, refused = member.refused, "connection makes room");
                    if member.pulse.idle().is_some_and(|(asked, _)| !asked) {
                        return Ok(());
                    }
                    (told, leaving) = (true, true);
                    connection.as_mut().graceful_shutdown();
                    look_at.as_mut().reset(Instant::now() + GOODBYE_TIME_MAX);
                }
                () = look_at.as_mut() => {
                    match member.pulse.look(&self.limits, Instant::now()) {
                        // Who was asked to go, and then had something to ask, finishes that.
                        _ if leaving && (member.refused || member.pulse.idle().is_some()) => return Ok(()),
                        Look::Fine(until) => look_at.as_mut().reset(until),
                        // It may have sent a request that we have not seen: told, it sends it again elsewhere.
                        Look::Idle => member.leave.cancel(),
                        found => {
                            tracing::debug!(remote = %self.remote, ?found, "connection closed");
                            return Ok(());
                        }
                    }
                }
            }
        }
    }
}

fn prepare(stream: &TcpStream, limits: &Limits) {
    // Answers are small and complete; waiting to fill a packet would only add delay.
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    {
        let ms = u32::try_from(limits.unacknowledged.as_millis()).unwrap_or(u32::MAX);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(stream, ms);
    }
}

fn http1(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .max_buf_size(usize::try_from(limits.header_bytes).unwrap_or(usize::MAX))
        .max_headers(HTTP1_HEADERS_MAX)
        .keep_alive(true);
    builder
}

fn http2(limits: &Limits) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(limits.header_bytes)
        .max_concurrent_streams(limits.streams)
        .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
        .max_local_error_reset_streams(MISTAKEN_STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .keep_alive_interval(limits.ping_interval)
        .keep_alive_timeout(limits.ping_timeout);
    builder
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_host_that_vanished_is_not_written_to_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let (accepted, _) = listener.accept().await.expect("a connection");
        prepare(&accepted, &Limits::default());
        assert!(accepted.nodelay().expect("an option"));
        // By default the kernel tries for a quarter of an hour, and a lease of a stream lasts half a minute.
        let limit = rustix::net::sockopt::tcp_user_timeout(&accepted).expect("an option");
        assert!((1..=20_000).contains(&limit), "{limit}");
        drop(client);
    }
}
