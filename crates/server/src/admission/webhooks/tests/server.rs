//! A webhook to test with: real HTTPS on a free port of this machine, with an authority of its own.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

/// What the webhook does with a question.
pub enum Reply {
    Allow,
    /// Fields of the response besides its uid.
    Response(Value),
    /// Operations of a JSON patch.
    Patch(Value),
    /// Any code and body, with a Location for redirects.
    Raw(u16, String),
    /// Never.
    Hang,
}

pub struct HookServer {
    pub url: String,
    pub port: u16,
    /// As it stands in a configuration.
    pub ca_bundle: String,
    seen: Arc<Mutex<Vec<(String, Value)>>>,
    connections: Arc<AtomicUsize>,
    _stop: DropGuard,
}

impl HookServer {
    pub async fn start(answer: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static) -> HookServer {
        let (ca_bundle, config) = certificates();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let (seen, connections) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let stop = CancellationToken::new();
        let desk = Arc::new(Desk { answer: Box::new(answer), seen: Arc::clone(&seen), stop: stop.clone() });
        let (acceptor, counted, stopped) = (TlsAcceptor::from(config), Arc::clone(&connections), stop.clone());
        tokio::spawn(async move {
            while let Some(Ok((tcp, _))) = stopped.run_until_cancelled(listener.accept()).await {
                let (acceptor, desk, counted) = (acceptor.clone(), Arc::clone(&desk), Arc::clone(&counted));
                tokio::spawn(async move {
                    // A client that does not trust us ends the handshake; that is its right.
                    let Ok(tls) = acceptor.accept(tcp).await else { return };
                    counted.fetch_add(1, Ordering::SeqCst);
                    let service = service_fn(|request| desk.serve(request));
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _ =
                        desk.stop.run_until_cancelled(connection.serve_connection(TokioIo::new(tls), service)).await;
                });
            }
        });
        let url = format!("https://localhost:{port}");
        HookServer { url, port, ca_bundle, seen, connections, _stop: stop.drop_guard() }
    }

    /// Every question so far: path with query, and the document.
    pub fn seen(&self) -> Vec<(String, Value)> {
        self.seen.lock().clone()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Path and request in, reply out.
type Answering = dyn Fn(&str, &Value) -> Reply + Send + Sync;

struct Desk {
    answer: Box<Answering>,
    seen: Arc<Mutex<Vec<(String, Value)>>>,
    stop: CancellationToken,
}

impl Desk {
    async fn serve(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let path = request.uri().path().to_owned();
        let with_query = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
        let body = request.into_body().collect().await.expect("a body").to_bytes();
        let review: Value = serde_json::from_slice(&body).expect("JSON");
        self.seen.lock().push((with_query, review.clone()));
        let asked = &review["request"];
        let response = match (self.answer)(&path, asked) {
            Reply::Allow => json!({"allowed": true}),
            Reply::Response(response) => response,
            Reply::Patch(patch) => {
                json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())})
            }
            Reply::Raw(code, body) => {
                let raw = Response::builder().status(code).header("Location", format!("{path}/elsewhere"));
                return Ok(raw.body(Full::new(body.into())).expect("a response"));
            }
            Reply::Hang => {
                self.stop.cancelled().await;
                json!({})
            }
        };
        let mut answer = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
        if answer["response"]["uid"].is_null() {
            answer["response"]["uid"] = asked["uid"].clone();
        }
        Ok(Response::new(Full::new(answer.to_string().into())))
    }
}

/// An authority, in base64 of PEM, and a server that shows a certificate of it, good for `localhost` and one Service.
fn certificates() -> (String, Arc<ServerConfig>) {
    let key = || KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = key();
    let authority = params.self_signed(&authority_key).expect("an authority");
    let issuer = Issuer::new(params, authority_key);
    let names = ["localhost".to_owned(), "hook.tools.svc".to_owned()];
    let leaf_key = key();
    let leaf = CertificateParams::new(names).expect("names").signed_by(&leaf_key, &issuer).expect("a certificate");
    let private = PrivateKeyDer::try_from(leaf_key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], private)
        .expect("a server");
    (STANDARD.encode(authority.pem()), Arc::new(config))
}
