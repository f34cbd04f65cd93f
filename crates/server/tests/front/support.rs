//! A server on a free port with a small service behind the guard, and a client that speaks to it.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use server::authn::{Accounts, BoundKind};
use server::authz::{Kind, Rbac, bootstrap};
use server::certs::Pair;
use server::config::Config;
use server::front::{self, Built, Prepared};
use server::identity::Identity;
use server::metrics::Metrics;
use server::registry::Registry;
use server::request::RequestInfo;
use store::{Space, Term};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

/// Service accounts and pods that exist, as `kind namespace/name uid` lines; `runs-as namespace/pod account`.
pub struct Known(pub &'static str);

impl Known {
    fn uid(&self, kind: &str, namespace: &str, name: &str) -> Option<String> {
        let wanted = format!("{kind} {namespace}/{name} ");
        self.0.lines().find_map(|line| line.trim().strip_prefix(&wanted).map(str::to_owned))
    }
}

impl Accounts for Known {
    fn service_account_uid(&self, namespace: &str, name: &str) -> Option<String> {
        self.uid("sa", namespace, name)
    }

    fn bound_uid(&self, kind: BoundKind, namespace: &str, name: &str) -> Option<String> {
        match kind {
            BoundKind::Pod => self.uid("pod", namespace, name),
            BoundKind::Secret => self.uid("secret", namespace, name),
            BoundKind::Node => self.uid("node", namespace, name),
        }
    }

    fn pod_account(&self, namespace: &str, name: &str) -> Option<String> {
        self.uid("runs-as", namespace, name)
    }
}

pub fn bootstrapped() -> Rbac {
    let rbac = Rbac::new();
    rbac.apply_all(bootstrap::objects().iter().map(|object| {
        let (kind, name) = bootstrap::key(object).expect("an RBAC object");
        (kind, "", name, Some(object))
    }));
    rbac
}

pub struct Running {
    _folder: TempDir,
    pub prepared: Arc<Facts>,
    pub rbac: Arc<Rbac>,
    pub closing: CancellationToken,
    pub slow: Arc<Slow>,
    pub served: JoinHandle<Result<(), front::StartError>>,
}

/// The request to `/slow` says that it has begun, and waits to be let go.
#[derive(Default)]
pub struct Slow {
    pub begun: Notify,
    pub release: Notify,
}

/// What tests need of [`Prepared`], which is consumed by serving.
pub struct Facts {
    pub authority: String,
    pub admin: Pair,
    pub client: Pair,
    /// Of a name that only a part of the server has.
    pub forged: Pair,
    pub port: u16,
}

impl Running {
    pub async fn start() -> Running {
        Running::start_with(|config| config, "").await
    }

    pub async fn start_with(change: impl FnOnce(Config) -> Config, token_lines: &str) -> Running {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = Config { data: folder.path().to_owned(), listen: "127.0.0.1:0".into(), ..Config::default() };
        if !token_lines.is_empty() {
            let path = folder.path().join("tokens.csv");
            std::fs::write(&path, token_lines).expect("tokens");
            config.token_file = Some(path);
        }
        let prepared = front::prepare(change(config)).await.expect("prepares");
        prepared.write_kubeconfig().expect("a kubeconfig");
        let now = front::now_seconds();
        let facts = Facts {
            authority: prepared.pki.authority.certificate.clone(),
            admin: prepared.pki.admin.clone(),
            client: prepared.pki.client("alice", Some("dev"), now - 60, now + 3600).expect("a client certificate"),
            forged: prepared
                .pki
                .client("system:bursar:orgs", Some("system:masters"), now - 60, now + 3600)
                .expect("a client certificate"),
            port: prepared.address.port(),
        };
        let rbac = Arc::new(bootstrapped());
        let closing = CancellationToken::new();
        let slow = Arc::new(Slow::default());
        let built = build(&prepared, Arc::clone(&rbac), Arc::clone(&slow));
        let served = tokio::spawn(prepared.serve(built, closing.clone()));
        Running { _folder: folder, prepared: Arc::new(facts), rbac, closing, slow, served }
    }

    /// Lets a user do something in one namespace.
    pub fn allow(&self, user: &str, namespace: &str, verbs: &[&str], resources: &[&str]) {
        let rules = json!({"rules": [{"verbs": verbs, "apiGroups": [""], "resources": resources}]});
        let binding = json!({"roleRef": {"kind": "Role", "name": user}, "subjects": [{"kind": "User", "name": user}]});
        self.rbac.apply(Kind::Role, namespace, user, Some(&rules));
        self.rbac.apply(Kind::RoleBinding, namespace, user, Some(&binding));
    }

    pub async fn stop(self) {
        self.closing.cancel();
        self.served.await.expect("no panic").expect("a clean end");
    }
}

fn build(prepared: &Prepared, rbac: Arc<Rbac>, slow: Arc<Slow>) -> Built<impl EchoService> {
    let authenticator = prepared.authenticator(Arc::new(Known("sa team-a/ci u-1"))).expect("an authenticator");
    let families = families::Families::new(Vec::new());
    let metrics = Arc::new(Metrics::new(Arc::new(Registry::new()), &families));
    let service = tower::service_fn(move |request| echo(request, Arc::clone(&slow)));
    Built {
        service,
        rbac,
        authenticator,
        metrics,
        term: Term::default(),
        space: Space::default(),
        denials: Arc::default(),
    }
}

pub trait EchoService:
    tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<T> EchoService for T where
    T: tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// Says what it was asked and by whom; a watch never ends by itself.
async fn echo(request: Request<Body>, slow: Arc<Slow>) -> Result<Response<Body>, Infallible> {
    let identity = request.extensions().get::<Arc<Identity>>().cloned().expect("an identity");
    let info = request.extensions().get::<RequestInfo>().cloned().expect("request info");
    if info.is_watch() {
        let first = futures::stream::once(async { Ok::<_, Infallible>("{}\n") });
        let events = futures::StreamExt::chain(first, futures::stream::pending());
        return Ok(Response::new(Body::from_stream(events)));
    }
    if info.path == "/slow" {
        slow.begun.notify_one();
        slow.release.notified().await;
    }
    let credential = request.headers().get("authorization").is_some();
    let answer = json!({"user": identity.user, "groups": identity.groups, "verb": info.verb, "credential": credential});
    Ok(Response::new(Body::from(answer.to_string())))
}

/// How a client shows up.
#[derive(Clone, Copy)]
pub struct Client<'a> {
    pub certificate: Option<&'a Pair>,
    pub http2: bool,
}

impl Facts {
    pub async fn connect(&self, client: Client<'_>) -> std::io::Result<TlsStream<TcpStream>> {
        server::tls::install_provider();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.as_bytes()).expect("PEM")).expect("an authority");
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let mut config = match client.certificate {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).expect("PEM")];
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
                builder.with_client_auth_cert(chain, key).expect("a client certificate")
            }
        };
        config.alpn_protocols = vec![if client.http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let name = ServerName::try_from("localhost").expect("a name");
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// One request on a connection of its own.
    pub async fn send(&self, client: Client<'_>, request: Request<Body>) -> std::io::Result<(StatusCode, Value)> {
        let response = self.open(client, request).await?;
        let status = response.status();
        let bytes = response.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
        Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }

    pub async fn open(
        &self,
        client: Client<'_>,
        request: Request<Body>,
    ) -> std::io::Result<Response<hyper::body::Incoming>> {
        let io = TokioIo::new(self.connect(client).await?);
        if client.http2 {
            let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await;
            let (mut sender, connection) = handshake.map_err(std::io::Error::other)?;
            tokio::spawn(connection);
            return sender.send_request(request).await.map_err(std::io::Error::other);
        }
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(io).await.map_err(std::io::Error::other)?;
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(std::io::Error::other)
    }
}

pub fn get(path: &str) -> Request<Body> {
    request(path, &[])
}

pub fn request(path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut builder = Request::get(format!("https://localhost{path}")).header("host", "localhost");
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(Body::empty()).expect("a request")
}
