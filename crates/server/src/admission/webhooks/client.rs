//! HTTPS to one webhook. Connections are kept; redirects are not followed, because a webhook that could send us
//! elsewhere could make us ask whatever only we can reach.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::legacy::{self, Builder};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kinds::strategies::webhooks::Target;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::target::address;
use crate::core::Cache;

/// The largest answer read: a patch may replace the largest object we store, written in base64.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Connections to one webhook kept while idle, and for how long. More are opened when more requests come at once.
const IDLE_CONNECTIONS_MAX: usize = 8;
const IDLE_TIME_MAX: Duration = Duration::from_secs(90);
/// How much of an answer with an error code is shown.
const SHOWN_ANSWER_CHARS_MAX: usize = 200;

pub(super) struct Client {
    inner: legacy::Client<Connector, Full<Bytes>>,
}

impl Client {
    /// `authorities` is PEM; empty for those the system trusts.
    pub fn new(authorities: &[u8], target: &Target, cache: Weak<Cache>) -> Result<Client, String> {
        let name = target.server_name();
        let server_name = ServerName::try_from(name.clone())
            .map_err(|_| format!("{name:?} is not a name a certificate can be for"))?;
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots(authorities)?)
            .with_no_client_auth();
        let tls = TlsConnector::from(Arc::new(config));
        let connector = Connector(Arc::new(Way { tls, server_name, target: target.clone(), cache }));
        let inner = Builder::new(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .pool_idle_timeout(IDLE_TIME_MAX)
            .build(connector);
        Ok(Client { inner })
    }

    /// Posts a document and returns the answer to it. The caller bounds the time.
    pub async fn post(&self, url: &str, body: Bytes) -> Result<Bytes, String> {
        let request = Request::post(url)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, */*")
            .header(USER_AGENT, "kube-apiserver-admission")
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        let answer = self.inner.request(request).await.map_err(innermost)?;
        let code = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                return format!("the answer is larger than {ANSWER_BYTES_MAX} bytes");
            }
            error.to_string()
        })?;
        let body = body.to_bytes();
        match code {
            code if code.is_success() => Ok(body),
            StatusCode::NOT_FOUND => Err("the server could not find the requested resource".into()),
            code if code.is_redirection() => Err(format!("the server answered {code}, and redirects are not followed")),
            code => {
                let shown: String =
                    String::from_utf8_lossy(&body).trim().chars().take(SHOWN_ANSWER_CHARS_MAX).collect();
                Err(format!("an error on the server ({code}: {shown:?}) has prevented the request from succeeding"))
            }
        }
    }
}

fn roots(authorities: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if authorities.is_empty() {
        let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if added == 0 {
            return Err("the webhook has no caBundle and this machine trusts no authority".into());
        }
        return Ok(roots);
    }
    for authority in CertificateDer::pem_slice_iter(authorities) {
        let authority = authority.map_err(|error| format!("unable to load root certificates: {error}"))?;
        roots.add(authority).map_err(|error| format!("unable to load root certificates: {error}"))?;
    }
    if roots.is_empty() {
        return Err("unable to load root certificates: no certificate in caBundle".into());
    }
    Ok(roots)
}

/// The cause at the end of the chain says what happened; those around it only that it happened while connecting.
fn innermost(error: legacy::Error) -> String {
    let mut cause: &dyn std::error::Error = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// Opens connections. Where to is asked for each, because a Service's endpoints come and go.
#[derive(Clone)]
struct Connector(Arc<Way>);

struct Way {
    tls: TlsConnector,
    server_name: ServerName<'static>,
    target: Target,
    cache: Weak<Cache>,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct ConnectError(String);

impl Way {
    async fn connect(&self) -> Result<Stream, ConnectError> {
        let cache = self.cache.upgrade().ok_or_else(|| ConnectError("the server is stopping".into()))?;
        let (host, port) = address(&self.target, &cache).map_err(ConnectError)?;
        drop(cache);
        let tcp = TcpStream::connect((host.as_str(), port)).await;
        let tcp = tcp.map_err(|error| ConnectError(format!("dial tcp {host}:{port}: connect: {error}")))?;
        // One small message each way: waiting for more to send would only add to the time.
        let _ = tcp.set_nodelay(true);
        let tls = self.tls.connect(self.server_name.clone(), tcp).await;
        let tls = tls.map_err(|error| ConnectError(format!("tls: {error}")))?;
        Ok(Stream(TokioIo::new(tls)))
    }
}

impl tower::Service<Uri> for Connector {
    type Response = Stream;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let way = Arc::clone(&self.0);
        Box::pin(async move { way.connect().await })
    }
}

/// A TLS connection that the pool accepts.
struct Stream(TokioIo<TlsStream<TcpStream>>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, buffer)
    }
}

impl Write for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}
