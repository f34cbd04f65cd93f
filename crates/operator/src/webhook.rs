//! The webhook's server: reviews over TLS, and whether it is alive and ready.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

use crate::core::{Answer, Command, Wanted};
use crate::metrics::Metrics;
use crate::review::{Request, answer};
use crate::run::now_ms;
use crate::words::{No, refused};

/// Longer than two objects of the largest size that an API server takes.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Reviews at a time: what they take in memory is bounded by this and by the length of a body.
const REVIEWS_MAX: usize = 128;
/// A body that is longer than this takes one of a few turns as well: read, it takes up to a hundred times its length.
const BODY_BYTES_LARGE: usize = 256 * 1024;
const LARGE_MAX: usize = 8;
/// How long a body may take to arrive, and how many may be arriving: none of them has a turn yet.
const ARRIVAL: Duration = Duration::from_secs(5);
const ARRIVING_MAX: usize = 4096;
/// API servers keep few connections, and use them for everything.
const CONNECTIONS_MAX: usize = 512;
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long a connection may be without a request, from its beginning and later. API servers give theirs up after 90 seconds.
const FIRST_REQUEST: Duration = Duration::from_secs(10);
const NEXT_REQUEST: Duration = Duration::from_secs(120);
/// How long a review waits for the mirror to see what it rests on. Within what the API server waits for the answer.
const CATCH_UP: Duration = Duration::from_secs(2);
/// How often expressions of one review are evaluated elsewhere, before what is missing is done without.
const ASKED_MAX: usize = 8;

/// What can be asked before anybody leads, and after.
pub struct Front {
    reviewer: OnceLock<Reviewer>,
    pub metrics: Arc<Metrics>,
    /// Whether everything was seen.
    ready: AtomicBool,
    arriving: Semaphore,
    turns: Semaphore,
    large: Semaphore,
}

impl Default for Front {
    fn default() -> Front {
        Front {
            reviewer: OnceLock::new(),
            metrics: Arc::default(),
            ready: AtomicBool::new(false),
            arriving: Semaphore::new(ARRIVING_MAX),
            turns: Semaphore::new(REVIEWS_MAX),
            large: Semaphore::new(LARGE_MAX),
        }
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
        let (call, begun) = (request.uid.clone(), Instant::now());
        let said = match self.reviewer() {
            Some(reviewer) => reviewer.review(request).await,
            None => {
                Err(No::not_yet("this operator does not lead, or has not seen everything yet; try again in a moment"))
            }
        };
        self.metrics.note_answer(&said);
        self.metrics.review_duration.observe(begun.elapsed());
        Ok(answer(&call, said))
    }

    /// What metrics tell; of quotas who leads.
    pub async fn scrape(&self) -> String {
        let Some(reviewer) = self.reviewer() else { return self.metrics.text(None, false) };
        let state = match reviewer.core.submit(Command::State).await {
            Ok(Answer::State(state)) => Some(state),
            _ => None,
        };
        let (metrics, families) = (self.metrics.clone(), reviewer.families.clone());
        // Reads every policy and claim there is, which is no work for a thread that others wait for.
        let text = move || metrics.text(state.as_deref().map(|state| (state, &families)), true);
        tokio::task::spawn_blocking(text).await.unwrap_or_default()
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
    /// A body, and leave to look at it. Whoever sends slowly has no turn meanwhile, and keeps nobody waiting who does not.
    async fn take_in(&self, body: Incoming) -> Option<(Vec<u8>, [Option<SemaphorePermit<'_>>; 2])> {
        let (mut taken, mut large) = (Vec::new(), None);
        let arriving = self.arriving.acquire().await.ok()?;
        let mut body = Limited::new(body, BODY_BYTES_MAX);
        let until = Instant::now() + ARRIVAL;
        while let Some(frame) = timeout_at(until, body.frame()).await.ok()? {
            let Ok(data) = frame.ok()?.into_data() else { continue };
            if large.is_none() && taken.len() + data.len() > BODY_BYTES_LARGE {
                large = Some(timeout_at(until, self.large.acquire()).await.ok()?.ok()?);
            }
            taken.extend_from_slice(&data);
        }
        drop(arriving);
        Some((taken, [Some(self.turns.acquire().await.ok()?), large]))
    }

    async fn serve_review(&self, request: HttpRequest<Incoming>) -> Response<Full<Bytes>> {
        let Some((body, _turns)) = self.take_in(request.into_body()).await else {
            return said(StatusCode::BAD_REQUEST, "the body is too long, takes too long, or was cut off");
        };
        match self.answer(&body).await {
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
            let uses = Arc::new(Uses::default());
            let counted = uses.clone();
            let service = service_fn(move |request| {
                let (front, counted) = (front.clone(), counted.clone());
                async move {
                    let _use = counted.begin();
                    Ok::<_, Infallible>(front.serve(request).await)
                }
            });
            let mut server = auto::Builder::new(TokioExecutor::new());
            server.http1().timer(TokioTimer::new()).header_read_timeout(NEXT_REQUEST);
            server.http2().timer(TokioTimer::new()).keep_alive_interval(Some(Duration::from_secs(30)));
            let serving = server.serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                ended = serving => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection ended");
                    }
                }
                () = uses.idle() => {}
            }
        });
    }
}

/// What a connection is used for.
#[derive(Default)]
struct Uses {
    under_way: AtomicUsize,
    begun: AtomicUsize,
}

struct Use(Arc<Uses>);

impl Uses {
    fn begin(self: &Arc<Uses>) -> Use {
        self.begun.fetch_add(1, Ordering::AcqRel);
        self.under_way.fetch_add(1, Ordering::AcqRel);
        Use(self.clone())
    }

    /// Ends once nobody has asked anything for a while.
    async fn idle(&self) {
        let mut patience = FIRST_REQUEST;
        loop {
            let before = self.begun.load(Ordering::Acquire);
            tokio::time::sleep(patience).await;
            if self.begun.load(Ordering::Acquire) == before && self.under_way.load(Ordering::Acquire) == 0 {
                return;
            }
            patience = NEXT_REQUEST;
        }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lasts(seconds: u64, what: impl Future<Output = ()>) -> bool {
        timeout(Duration::from_secs(seconds), what).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_nothing_is_not_served_for_long() {
        let uses = Arc::new(Uses::default());
        assert!(lasts(9, uses.idle()).await);
        assert!(!lasts(11, uses.idle()).await, "it never asked anything");
        // One that asks now and then stays, and so does one that waits for its answer.
        let asks = async {
            for _ in 0..10 {
                drop(uses.begin());
                tokio::time::sleep(Duration::from_secs(9)).await;
            }
            let _waits = uses.begin();
            tokio::time::sleep(Duration::from_secs(500)).await;
        };
        tokio::select! {
            () = asks => {}
            () = uses.idle() => panic!("it is used"),
        }
        assert!(!lasts(241, uses.idle()).await, "it asks no more");
    }
}
