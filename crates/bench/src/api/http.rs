//! The smallest client that speaks to both servers: HTTP/1.1 over TLS on kept connections.

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

/// Where a server is and what it is shown.
#[derive(Clone)]
pub struct Target {
    address: String,
    /// The name its certificate is good for.
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
    token: Option<String>,
}

impl Target {
    /// A server that knows us by a token.
    pub fn with_token(address: &str, name: &str, authority_pem: &[u8], token: &str) -> anyhow::Result<Target> {
        let tls = trusting(authority_pem)?.with_no_client_auth();
        let name = ServerName::try_from(name.to_owned())?;
        Ok(Target { address: address.to_owned(), name, tls: Arc::new(tls), token: Some(token.to_owned()) })
    }

    /// A server whose kubeconfig holds certificates, as Bursar's does. It knows us by ours, or by a token.
    pub fn from_kubeconfig(text: &str, token: Option<&str>) -> anyhow::Result<Target> {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.trim().trim_start_matches("- ").strip_prefix(name));
            line.map(str::trim).with_context(|| format!("the kubeconfig has no {name}"))
        };
        let pem = |name: &str| anyhow::Ok(STANDARD.decode(field(name)?)?);
        let address = field("server:")?.strip_prefix("https://").context("the server is not behind TLS")?;
        let host = address.rsplit_once(':').context("the address has no port")?.0;
        let authority = pem("certificate-authority-data:")?;
        if let Some(token) = token {
            return Target::with_token(address, host, &authority, token);
        }
        let certificates = pem("client-certificate-data:")?;
        let certificates = CertificateDer::pem_slice_iter(&certificates);
        let key = PrivateKeyDer::from_pem_slice(&pem("client-key-data:")?)?;
        let tls = trusting(&authority)?.with_client_auth_cert(certificates.collect::<Result<_, _>>()?, key)?;
        let name = ServerName::try_from(host.to_owned())?;
        Ok(Target { address: address.to_owned(), name, tls: Arc::new(tls), token: None })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub async fn connect(&self) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(self.name.clone(), stream).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // How it ends shows in the requests that it carries.
        let pump = tokio::spawn(async move { drop(connection.await) });
        Ok(Connection { target: self.clone(), sender, pump })
    }
}

fn trusting(
    authority_pem: &[u8],
) -> anyhow::Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority_pem) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots))
}

/// One connection. Dropped, it is cut, whatever was under way.
pub struct Connection {
    target: Target,
    sender: SendRequest<Full<Bytes>>,
    pump: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

impl Connection {
    /// Sends a request and returns when the answer begins.
    pub async fn begin(
        &mut self,
        method: Method,
        path: &str,
        form: (&'static str, &'static str),
        body: Bytes,
    ) -> anyhow::Result<Response<Incoming>> {
        let request = self.request(method, path, form);
        self.send(request.body(Full::new(body))?).await
    }

    fn request(&self, method: Method, path: &str, form: (&'static str, &'static str)) -> http::request::Builder {
        let (content, accept) = form;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.target.address)
            .header(ACCEPT, accept)
            .header(CONTENT_TYPE, content);
        if let Some(token) = &self.target.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        request
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> anyhow::Result<Response<Incoming>> {
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }

    async fn whole(
        &mut self,
        method: Method,
        path: &str,
        form: (&'static str, &'static str),
        body: Bytes,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        whole(self.begin(method, path, form, body).await?).await
    }

    pub async fn post(&mut self, path: &str, body: Bytes) -> anyhow::Result<(StatusCode, Bytes)> {
        self.whole(Method::POST, path, (JSON, JSON), body).await
    }

    /// Creates, or fails with the server's words.
    pub async fn create(&mut self, path: &str, body: Bytes) -> anyhow::Result<()> {
        match self.post(path, body).await? {
            (StatusCode::CREATED, _) => Ok(()),
            (status, body) => bail!("POST {path}: {status} {}", String::from_utf8_lossy(&body)),
        }
    }

    /// Reads, and returns the body as it came.
    pub async fn get(&mut self, path: &str, accept: &'static str) -> anyhow::Result<Bytes> {
        let (status, body) = self.whole(Method::GET, path, (JSON, accept), Bytes::new()).await?;
        ensure!(status == StatusCode::OK, "GET {path}: {status} {}", String::from_utf8_lossy(&body));
        Ok(body)
    }

    /// Puts, and returns what it was answered with; anything but success fails with the server's words.
    pub async fn put(&mut self, path: &str, body: Bytes) -> anyhow::Result<Bytes> {
        let (status, body) = self.whole(Method::PUT, path, (JSON, JSON), body).await?;
        ensure!(status.is_success(), "PUT {path}: {status} {}", String::from_utf8_lossy(&body));
        Ok(body)
    }

    /// Puts, with an idempotency key where there is one, and returns what it was answered with, whatever that is.
    pub async fn put_keyed(
        &mut self,
        path: &str,
        body: Bytes,
        key: Option<&str>,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let mut request = self.request(Method::PUT, path, (JSON, JSON));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        whole(self.send(request.body(Full::new(body))?).await?).await
    }

    pub async fn delete(&mut self, path: &str) -> anyhow::Result<()> {
        let (status, body) = self.whole(Method::DELETE, path, (JSON, JSON), Bytes::new()).await?;
        ensure!(status.is_success(), "DELETE {path}: {status} {}", String::from_utf8_lossy(&body));
        Ok(())
    }

    pub async fn get_json(&mut self, path: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_slice(&self.get(path, JSON).await?)?)
    }

    pub async fn merge_patch(&mut self, path: &str, patch: &Value) -> anyhow::Result<()> {
        let form = ("application/merge-patch+json", JSON);
        let (status, body) = self.whole(Method::PATCH, path, form, Bytes::from(patch.to_string())).await?;
        ensure!(status.is_success(), "PATCH {path}: {status} {}", String::from_utf8_lossy(&body));
        Ok(())
    }
}

async fn whole(response: Response<Incoming>) -> anyhow::Result<(StatusCode, Bytes)> {
    let status = response.status();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}

pub const JSON: &str = "application/json";

/// Names and versions without the rest: for counting.
pub const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
