//! An etcd that gives the answers of a script: a real one behind something that understands just enough of gRPC to say
//! another thing in its place, before it was asked or after it has done what it was asked for.

use std::sync::{Arc, Mutex};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};

type Body = BoxBody<Bytes, hyper::Error>;

/// What is said in the place of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The end of the method's path, such as `Txn`.
    pub method: &'static str,
    pub code: u16,
    pub says: &'static str,
    /// Whether etcd is asked all the same, and only its answer is lost.
    pub done: bool,
}

pub struct Scripted {
    pub port: u16,
    script: Arc<Mutex<Vec<Line>>>,
    /// Ends everything when it is dropped.
    _runtime: tokio::runtime::Runtime,
}

impl Scripted {
    /// In front of an etcd on this machine.
    pub fn before(port: u16) -> Scripted {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let script: Arc<Mutex<Vec<Line>>> = Arc::default();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let own = listener.local_addr().unwrap().port();
        let said = script.clone();
        runtime.spawn(async move {
            let etcd = Client::builder(TokioExecutor::new()).http2_only(true).build_http::<Incoming>();
            while let Ok((stream, _)) = listener.accept().await {
                let (etcd, said) = (etcd.clone(), said.clone());
                let service =
                    hyper::service::service_fn(move |request| answer(etcd.clone(), port, said.clone(), request));
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
            }
        });
        Scripted { port: own, script, _runtime: runtime }
    }

    /// What is said next, each line once, to the first call of its method.
    pub fn say(&self, lines: &[Line]) {
        self.script.lock().unwrap().extend_from_slice(lines);
    }

    /// Lines that nobody has heard yet.
    pub fn left(&self) -> usize {
        self.script.lock().unwrap().len()
    }
}

async fn answer(
    etcd: Client<hyper_util::client::legacy::connect::HttpConnector, Incoming>,
    port: u16,
    script: Arc<Mutex<Vec<Line>>>,
    request: Request<Incoming>,
) -> Result<Response<Body>, hyper_util::client::legacy::Error> {
    let path = request.uri().path().to_owned();
    let line = {
        let mut script = script.lock().unwrap();
        let heard = script.iter().position(|line| path.ends_with(&format!("/{}", line.method)));
        heard.map(|at| script.remove(at))
    };
    let (mut parts, body) = request.into_parts();
    parts.uri = format!("http://127.0.0.1:{port}{path}").parse().unwrap();
    parts.headers.remove(http::header::HOST);
    let forwarded = Request::from_parts(parts, body);
    match line {
        None => Ok(etcd.request(forwarded).await?.map(BodyExt::boxed)),
        Some(line) => {
            if line.done {
                let answer = etcd.request(forwarded).await?;
                let _unheard = answer.into_body().collect().await;
            }
            Ok(refusal(line))
        }
    }
}

/// An answer without a body, as gRPC refuses.
fn refusal(line: Line) -> Response<Body> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from(line.code));
    headers.insert("grpc-message", HeaderValue::from_static(line.says));
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed());
    *response.status_mut() = StatusCode::OK;
    *response.headers_mut() = headers;
    response
}
