//! The guard in front of the API: who, may they, is there a seat. A tower service around any other.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{Method, Request, Response};
use http_body::Body as _;
use store::{Space, Term};
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::doubt::Watches;
use super::refusal::Refusal;
use super::watch_body::WatchBody;
use crate::api::number_of;
use crate::authn::{Authenticator, impersonate};
use crate::authz::{Decision, Rbac, is_health};
use crate::body::BODY_BYTES_MAX;
use crate::identity::Identity;
use crate::inflight::{AnswerBytes, InFlight, Room, Taken, Work};
use crate::listen::Answering;
use crate::metrics::{Asked, Metrics};
use crate::orgs;
use crate::request::RequestInfo;
use crate::tls::Peer;

/// How long anything but a watch may take, its body included. Kubernetes' default as well.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(60);

/// What the guard decides with; shared by all connections.
pub struct Gate {
    pub authenticator: Arc<Authenticator>,
    pub rbac: Arc<Rbac>,
    pub in_flight: Arc<InFlight>,
    pub metrics: Arc<Metrics>,
    /// Seconds since 1970; a function, so that tests can tell the time.
    pub clock: fn() -> u64,
    /// How long this replica may answer without asking whether it still leads.
    pub term: Term,
    /// Whether anything can be written at all.
    pub space: Space,
    /// Ends watches when the term is in doubt, or the server closes.
    pub watches: Arc<Watches>,
    /// Commands of organizations that somebody has no right to.
    pub denials: Arc<orgs::Denials>,
    /// Cancelled when the server is to stop: watches end.
    pub closing: CancellationToken,
}

impl Gate {
    /// Everything that needs no waiting: by whom it is asked, acting as whom, and whether they may.
    pub fn admit(&self, request: &Request<Body>, info: &RequestInfo) -> Result<Arc<Identity>, Refusal> {
        let peer = request.extensions().get::<Peer>();
        let caller = self.authenticator.authenticate(peer, request.headers(), (self.clock)())?;
        let identity = impersonate(request.headers(), &self.rbac, caller)?;
        let asked = info.attributes();
        match self.rbac.authorize(&identity, &asked) {
            Decision::Allowed(_) => Ok(identity),
            Decision::Denied { reason } => {
                if orgs::is_ours(&info.path) {
                    orgs::forbidden(&self.denials, request, &identity);
                }
                Err(Refusal::forbidden(&identity, &asked, &reason))
            }
        }
    }
}

/// Puts a [`Gate`] in front of a service.
#[derive(Clone)]
pub struct Guard<S> {
    gate: Arc<Gate>,
    inner: S,
}

impl<S> Guard<S> {
    pub fn new(gate: Arc<Gate>, inner: S) -> Guard<S> {
        Guard { gate, inner }
    }
}

impl<S> Service<Request<Body>> for Guard<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // The instance that was asked whether it is ready is the one to call; the clone takes its place.
        let next = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, next);
        let gate = Arc::clone(&self.gate);
        async move {
            let begun = Instant::now();
            let line = Line::of(&request);
            let number = orgs::is_ours(request.uri().path()).then(|| number_of(request.headers()));
            if let Some(number) = number {
                request.extensions_mut().insert(orgs::Numbered(number));
            }
            let (asked, answer) = pass(&gate, inner, request).await;
            let response = answer.unwrap_or_else(|refusal| match number {
                Some(number) => orgs::refused(refusal, number),
                None => refusal.into_response(),
            });
            asked.answered(response.status(), begun.elapsed());
            if let Some(line) = line {
                line.write(&response, begun.elapsed());
            }
            Ok(response)
        }
        .boxed()
    }
}

/// A request in the log, where somebody wants to see it. No query and no body: they may hold what is nobody's business.
struct Line {
    method: Method,
    path: String,
}

impl Line {
    fn of(request: &Request<Body>) -> Option<Line> {
        let wanted = tracing::enabled!(tracing::Level::DEBUG);
        wanted.then(|| Line { method: request.method().clone(), path: request.uri().path().to_owned() })
    }

    fn write(self, response: &Response<Body>, took: Duration) {
        let Line { method, path } = self;
        let user = response.extensions().get::<Arc<Identity>>().map_or("-", |identity| identity.user.as_str());
        let (status, milliseconds) = (response.status().as_u16(), took.as_millis());
        tracing::debug!(%method, path, user, status, milliseconds, "request");
    }
}

/// Reads what is asked, and lets it through; also says where it is to be counted.
async fn pass<S>(gate: &Arc<Gate>, inner: S, request: Request<Body>) -> (Asked, Result<Response<Body>, Refusal>)
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    match RequestInfo::parse(request.method(), request.uri()) {
        Err(bad) => (gate.metrics.unreadable(), Err(bad.into())),
        Ok(info) => (gate.metrics.asked(&info), let_through(gate, inner, request, info).await),
    }
}

async fn let_through<S>(
    gate: &Arc<Gate>,
    mut inner: S,
    mut request: Request<Body>,
    info: RequestInfo,
) -> Result<Response<Body>, Refusal>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let identity = gate.admit(&request, &info)?;
    // Nothing behind the guard needs a credential, and what is not there cannot be logged.
    request.headers_mut().remove(AUTHORIZATION);
    let watch_seat = if info.is_watch() { Some(gate.in_flight.watch(&identity)?) } else { None };
    let ending = gate.watches.ending();
    // Probes are answered however busy the server is: being busy is not being dead.
    let probe = !info.is_resource && is_health(&info.path);
    if probe && info.path.starts_with("/readyz") && gate.term.is_in_doubt() {
        return Err(Refusal::NotLeading);
    }
    let exempt = watch_seat.is_some() || probe;
    let work = work(request.method());
    if work == Work::Write && info.is_resource && gate.space.is_full() && !is_review(&info) {
        return Err(Refusal::NoSpace);
    }
    // The body's bytes before the seat: who waits for room keeps no seat from anybody.
    let body = if probe { None } else { gate.in_flight.body(&identity, body_bytes(request.body())).await? };
    let seat = if exempt { None } else { gate.in_flight.seat(&identity, work).await? };
    let counted = if exempt { None } else { Some(gate.metrics.in_flight(work == Work::Write)) };
    request.extensions_mut().insert(Arc::clone(&identity));
    request.extensions_mut().insert(Room::new(Arc::clone(&gate.in_flight), Arc::clone(&identity)));
    request.extensions_mut().insert(info);
    let answer = tokio::time::timeout(REQUEST_TIME_MAX, inner.call(request)).await;
    drop((seat, counted, body));
    let written = |response: &Response<Body>| work == Work::Write && response.status().is_success();
    if gate.term.is_in_doubt() && !probe && !matches!(&answer, Ok(Ok(response)) if written(response)) {
        // A write that succeeded was committed by a leader, whoever leads now. All else was said from memory.
        return Err(Refusal::NotLeading);
    }
    let mut response = match answer {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        Err(_) => return Err(Refusal::Timeout),
    };
    let watch = watch_seat.is_some();
    // A write that was done must not be taken for refused: without room for its answer it is like one whose answer got lost.
    let taken = response.extensions_mut().remove::<Taken>().map(|Taken(charge)| charge);
    let charge = match answer_bytes(&response) {
        _ if taken.is_some() => taken,
        None | Some(0) => None,
        Some(_) if watch || probe => None,
        Some(bytes) => {
            let done = written(&response);
            let room = gate.in_flight.answer(&identity, bytes).await;
            Some(Arc::new(room.map_err(|full| if done { Refusal::Timeout } else { full.into() })?))
        }
    };
    response.extensions_mut().insert(Answering { charge, watch });
    response.extensions_mut().insert(Arc::clone(&identity));
    Ok(match watch_seat {
        Some(seat) => response.map(|events| {
            let open = (seat, gate.metrics.watch());
            Body::new(WatchBody::new(events, open, ending, Arc::clone(gate), identity))
        }),
        None => response,
    })
}

/// What is posted to be answered, not to be stored.
fn is_review(info: &RequestInfo) -> bool {
    matches!(info.group.as_str(), "authentication.k8s.io" | "authorization.k8s.io")
}

/// What a request's body may come to.
fn body_bytes(body: &Body) -> usize {
    let most = body.size_hint().upper().and_then(|bytes| usize::try_from(bytes).ok());
    most.unwrap_or(BODY_BYTES_MAX).min(BODY_BYTES_MAX)
}

/// What an answer keeps in memory until it is sent; none when it has no body.
fn answer_bytes(response: &Response<Body>) -> Option<usize> {
    if response.body().is_end_stream() {
        return None;
    }
    let said = response.extensions().get::<AnswerBytes>().map(|bytes| bytes.0);
    said.or_else(|| usize::try_from(response.body().size_hint().lower()).ok())
}

fn work(method: &Method) -> Work {
    if matches!(*method, Method::GET | Method::HEAD) { Work::Read } else { Work::Write }
}
