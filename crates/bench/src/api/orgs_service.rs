//! The same command as services on PostgreSQL do it: HTTPS, a bearer token, JSON, and one transaction, which is one call of a stored
//! function or a statement for each thing to do. Each runs as a process of its own, as `bursar serve` does.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, IF_MATCH};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_postgres::{Client, Statement};
use tokio_rustls::TlsAcceptor;

use super::http::JSON;
use super::orgs::TOKEN;
use super::orgs_statements::Statements;
use crate::ledger::postgres::connect;

pub const NAME: &str = "localhost";
/// Who sends commands.
const ACTOR: &str = "benchmark";

const BODY_BYTES_MAX: usize = 512 * 1024;
const REPLICAS_MAX: i64 = 100;

/// How the database is asked.
pub const FUNCTION: &str = "function";
pub const STATEMENTS: &str = "statements";

struct Service {
    /// Who has which token.
    tokens: HashMap<String, String>,
    free: Semaphore,
    pool: Mutex<Vec<(Client, Way)>>,
}

enum Way {
    Function(Statement),
    Statements(Box<Statements>),
}

/// A command as the database is asked for it.
pub struct Scale<'a> {
    pub org: &'a str,
    pub app: &'a str,
    pub env: &'a str,
    pub types: Vec<String>,
    pub counts: Vec<i64>,
    pub expected: Option<i64>,
    pub actor: &'a str,
    pub request: String,
    pub key: Option<&'a str>,
    /// What was sent, where there is a key to remember it by.
    pub body: Option<&'a str>,
}

impl Way {
    async fn prepare(client: &Client, way: &str) -> anyhow::Result<Way> {
        Ok(match way {
            FUNCTION => {
                let call = "SELECT status, body FROM set_scale($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
                Way::Function(client.prepare(call).await?)
            }
            STATEMENTS => Way::Statements(Box::new(Statements::prepare(client).await?)),
            other => anyhow::bail!("the database is asked by {FUNCTION} or {STATEMENTS}, and not by {other}"),
        })
    }

    async fn carry_out(&self, client: &Client, asked: &Scale<'_>) -> Result<(i32, String), tokio_postgres::Error> {
        match self {
            Way::Function(call) => {
                let Scale { org, app, env, types, counts, expected, actor, request, key, body } = asked;
                let row = client
                    .query_one(call, &[org, app, env, types, counts, expected, actor, request, key, body])
                    .await?;
                Ok((row.try_get(0)?, row.try_get(1)?))
            }
            Way::Statements(statements) => statements.carry_out(client, asked).await,
        }
    }
}

/// What is answered where it is no success.
struct Refused(StatusCode, &'static str);

/// Serves the database in this folder over so many connections to it, and prints where and with which certificate.
pub fn run(folder: &str, connections: usize, way: &str) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(Path::new(folder), connections, way))
}

async fn serve(folder: &Path, connections: usize, way: &str) -> anyhow::Result<()> {
    let mut pool = Vec::with_capacity(connections);
    for _ in 0..connections {
        let client = connect(folder).await?;
        let way = Way::prepare(&client, way).await?;
        pool.push((client, way));
    }
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()])?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(made.cert.der().to_vec())], key)?;
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}\n{}", listener.local_addr()?, made.cert.pem());
    let tokens = HashMap::from([(TOKEN.to_owned(), ACTOR.to_owned())]);
    let service = Arc::new(Service { tokens, free: Semaphore::new(connections), pool: Mutex::new(pool) });
    loop {
        let (stream, _) = listener.accept().await?;
        let (acceptor, service) = (acceptor.clone(), Arc::clone(&service));
        tokio::spawn(async move {
            stream.set_nodelay(true)?;
            let stream = acceptor.accept(stream).await?;
            let answer = service_fn(move |request| {
                let service = Arc::clone(&service);
                async move { Ok::<_, Infallible>(service.answer(request).await) }
            });
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await?;
            anyhow::Ok(())
        });
    }
}

impl Service {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (status, body) = self.command(request).await.unwrap_or_else(|Refused(status, code)| {
            (status, format!("{{\"code\":\"{code}\",\"status\":{}}}", status.as_u16()))
        });
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        let kind = if status.is_success() { JSON } else { "application/problem+json" };
        response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
        response
    }

    async fn command(&self, request: Request<Incoming>) -> Result<(StatusCode, String), Refused> {
        let (head, body) = request.into_parts();
        let header = |name: &str| text_of(&head.headers, name);
        let token = header(AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
        let actor = token.and_then(|token| self.tokens.get(token));
        let actor = actor.ok_or(Refused(StatusCode::UNAUTHORIZED, "unauthorized"))?;
        let path: Vec<&str> = head.uri.path().split('/').collect();
        let (["", "v1", "orgs", org, "apps", app, "envs", env, "scale"], &Method::PUT) =
            (path.as_slice(), &head.method)
        else {
            return Err(Refused(StatusCode::NOT_FOUND, "not_found"));
        };
        let invalid = || Refused(StatusCode::BAD_REQUEST, "invalid_argument");
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|_| invalid())?.to_bytes();
        let (types, counts) = scales(&body).ok_or_else(invalid)?;
        let expected = match header(IF_MATCH.as_str()) {
            Some(version) => Some(version.trim_matches('"').parse::<i64>().map_err(|_| invalid())?),
            None => None,
        };
        let key = header("idempotency-key");
        let body = key.and_then(|_| std::str::from_utf8(&body).ok());
        let request = format!("{:032x}", rand::random::<u128>());
        let asked = Scale { org, app, env, types, counts, expected, actor, request, key, body };
        let unavailable = || Refused(StatusCode::SERVICE_UNAVAILABLE, "unavailable");
        let _turn = self.free.acquire().await.map_err(|_| unavailable())?;
        let taken = self.pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let (client, way) = taken.ok_or_else(unavailable)?;
        let answered = way.carry_out(&client, &asked).await;
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).push((client, way));
        let (status, body) = answered.map_err(|_| unavailable())?;
        let status = u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok());
        Ok((status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body))
    }
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// `{"scales": [{"process_type": "web", "desired": 3}]}`.
fn scales(body: &[u8]) -> Option<(Vec<String>, Vec<i64>)> {
    let document: Value = serde_json::from_slice(body).ok()?;
    let list = document.get("scales")?.as_array().filter(|list| !list.is_empty())?;
    let read = |one: &Value| {
        let desired = one.get("desired")?.as_i64().filter(|count| (0..=REPLICAS_MAX).contains(count))?;
        Some((one.get("process_type")?.as_str()?.to_owned(), desired))
    };
    list.iter().map(read).collect::<Option<Vec<_>>>().map(|all| all.into_iter().unzip())
}
