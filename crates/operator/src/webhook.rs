//! The webhook's server: reviews over TLS, and whether it is alive and ready.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use families::Families;
use http::{Method, Request as HttpRequest, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rules::cel::{Foresight, Known};
use sequencer::Handle;
use store::Term;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

use crate::core::{Answer, Command, Wanted};
use crate::review::{Request, answer};
use crate::run::now_ms;
use crate::words::{No, refused};

/// Longer than two objects of the largest size that an API server takes.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Reviews at a time: what they take in memory is bounded by this and by the length of a body.
const REVIEWS_MAX: usize = 128;
/// How long a body may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(5);
/// API servers keep few connections, and use them for everything.
const CONNECTIONS_MAX: usize = 512;
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long a review waits for the mirror to see what it rests on. Within what the API server waits for the answer.
const CATCH_UP: Duration = Duration::from_secs(2);
/// How often expressions of one review are evaluated elsewhere, before what is missing is done without.
const ASKED_MAX: usize = 8;

/// What can be asked before anybody leads, and after.
pub struct Front {
    reviewer: OnceLock<Reviewer>,
    /// Whether everything was seen.
    ready: AtomicBool,
    turns: Semaphore,
}

impl Default for Front {
    fn default() -> Front {
        Front { reviewer: OnceLock::new(), ready: AtomicBool::new(false), turns: Semaphore::new(REVIEWS_MAX) }
    }
}

/// Who answers reviews.
pub struct Reviewer {
    pub core: Handle<Command, Answer>,
    /// Changes whenever something was seen.
    pub saw: watch::Receiver<u64>,
    pub families: Families,
    /// How long this replica leads.
    pub term: Term,
}

impl Front {
    /// This replica leads.
    pub fn leads(&self, reviewer: Reviewer) {
        // A process leads once.
        let _ = self.reviewer.set(reviewer);
    }

    /// Everything was seen, or nothing is answered any more; whether it was so before.
    pub fn set_ready(&self, is_ready: bool) -> bool {
        self.ready.swap(is_ready, Ordering::AcqRel)
    }

    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Who answers now.
    fn reviewer(&self) -> Option<&Reviewer> {
        self.reviewer.get().filter(|reviewer| self.is_ready() && !reviewer.term.is_in_doubt())
    }

    /// The answer to the body of a call.
    async fn answer(&self, body: &[u8]) -> Result<serde_json::Value, String> {
        let request = Request::read(body)?;
        let call = request.uid.clone();
        let said = match self.reviewer() {
            Some(reviewer) => reviewer.review(request).await,
            None => {
                Err(No::not_yet("this operator does not lead, or has not seen everything yet; try again in a moment"))
            }
        };
        Ok(answer(&call, said))
    }

    async fn serve(&self, request: HttpRequest<Incoming>) -> Response<Full<Bytes>> {
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/healthz" | "/livez") => said(StatusCode::OK, "ok"),
            (&Method::GET, "/readyz") if self.reviewer().is_some() => said(StatusCode::OK, "ok"),
            (&Method::GET, "/readyz") => {
                said(StatusCode::SERVICE_UNAVAILABLE, "another replica leads, or not everything has been seen yet")
            }
            (&Method::POST, "/review") => self.serve_review(request).await,
            _ => said(StatusCode::NOT_FOUND, "reviews are posted to /review"),
        }
    }
}

impl Front {
    async fn serve_review(&self, request: HttpRequest<Incoming>) -> Response<Full<Bytes>> {
        let Ok(_turn) = self.turns.acquire().await else {
            return said(StatusCode::SERVICE_UNAVAILABLE, "the operator is shutting down");
        };
        let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect();
        let Ok(Ok(body)) = timeout(ARRIVAL, body).await else {
            return said(StatusCode::BAD_REQUEST, "the body is too long, takes too long, or was cut off");
        };
        match self.answer(&body.to_bytes()).await {
            Err(why) => said(StatusCode::BAD_REQUEST, &why),
            Ok(answer) => {
                let mut response = said(StatusCode::OK, &answer.to_string());
                let json = http::HeaderValue::from_static("application/json");
                response.headers_mut().insert(http::header::CONTENT_TYPE, json);
                response
            }
        }
    }
}

impl Reviewer {
    async fn review(&self, request: Request) -> Result<(), No> {
        let namespace = request.namespace().to_owned();
        let Some(review) = request.into_review(now_ms())? else { return Ok(()) };
        let (mut review, until) = (Box::new(review), Instant::now() + CATCH_UP);
        let (key, base, dry_run) = (review.key.clone(), review.base, review.dry_run);
        let (origin, mut saw) = (review.origin.clone(), self.saw.clone());
        let (mut asked, mut known) = (0, Box::<Known>::default());
        loop {
            saw.mark_unchanged();
            let stopped = |_| No::not_yet("the operator is shutting down; try again in a moment");
            match self.core.submit(Command::Review(review)).await.map_err(stopped)? {
                Answer::Granted => return Ok(()),
                Answer::Refused(why) => return Err(refused(why, &namespace, &self.families)),
                Answer::Behind(same) => {
                    let late =
                        || No::not_yet("the operator has not yet seen what this rests on; try again in a moment");
                    timeout_at(until, saw.changed()).await.map_err(|_| late())?.map_err(|_| late())?;
                    review = same;
                    review.now_ms = now_ms();
                }
                Answer::Postponed(postponed) => {
                    asked += 1;
                    let evaluated = tokio::task::spawn_blocking(move || Answer::evaluate(*postponed)).await;
                    let (draft, found) = evaluated.ok().flatten().ok_or_else(|| No::not_yet("try again"))?;
                    known.join(found);
                    let foresight = match asked < ASKED_MAX {
                        true => Foresight::Known(known.clone()),
                        false => Foresight::Last(known.clone()),
                    };
                    review = Box::new(crate::core::Review {
                        key: key.clone(),
                        wanted: Wanted::Object(draft),
                        base,
                        dry_run,
                        now_ms: now_ms(),
                        foresight,
                        origin: origin.clone(),
                    });
                }
                other => {
                    tracing::error!(?other, "a review was answered with something else: a bug");
                    return Err(No::not_yet("try again"));
                }
            }
        }
    }
}

fn said(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(text.as_bytes())));
    *response.status_mut() = status;
    response
}

/// Serves until the future is dropped. What is being answered is answered.
pub async fn serve(listener: TcpListener, tls: TlsAcceptor, front: Arc<Front>) -> std::io::Result<()> {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return Ok(()) };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (tls, front) = (tls.clone(), front.clone());
        tokio::spawn(async move {
            let _place = place;
            let _ = stream.set_nodelay(true);
            let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept(stream)).await else { return };
            let service = service_fn(move |request| {
                let front = front.clone();
                async move { Ok::<_, Infallible>(front.serve(request).await) }
            });
            let mut server = auto::Builder::new(TokioExecutor::new());
            server.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE);
            server.http2().timer(TokioTimer::new()).keep_alive_interval(Some(Duration::from_secs(30)));
            if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
}
