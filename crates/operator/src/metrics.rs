//! What the operator tells Prometheus: what it does, and what its families tell of their quotas. docs/operator.md lists its own; a test
//! compares.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use engine::{Engine, Shelves};
use families::instruments::{Counter, Histogram};
use families::metrics::{Metric, Samples, Survey, TEXT_FORMAT};
use families::{BalanceLine, Balances, Families, Family};
use http::{Method, Response, StatusCode, header};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rules::GroupResource;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::kept_back::KeptBack;
use crate::webhook::Front;
use crate::words::No;

static BUILD_INFO: Metric =
    Metric::gauge("bursar_operator_build_info", &["version"], "Always 1; the version is a label");
static HOLDS: Metric = Metric::gauge(
    "bursar_operator_holds",
    &[],
    "Objects for which something is held: granted, and not yet seen as stored, or known not to be",
);
static KEPT_BACK: Metric = Metric::gauge(
    "bursar_operator_kept_back",
    &[],
    "ResourceQuotas of pools that may still allow more than is claimed there, so that it is nobody else's yet",
);
static LEADS: Metric =
    Metric::gauge("bursar_operator_leads", &[], "1 where this replica leads, has seen everything and answers");
static PUSHES: Metric = Metric::counter(
    "bursar_operator_pushes_total",
    &["result"],
    "Writes to the cluster: written, overtaken by somebody else's (worked out anew), refused, or failed and tried again",
);
static REVIEWS: Metric = Metric::counter(
    "bursar_operator_reviews_total",
    &["result"],
    "Writes that the API server asked about: granted, refused, not decided in time (not_yet), or wrong in themselves",
);
static REVIEW_DURATION: Metric =
    Metric::histogram("bursar_operator_review_duration_seconds", &[], "Time from a review's body to its answer");

/// All of the operator's own.
pub const ALL: &[&Metric] = &[&BUILD_INFO, &HOLDS, &KEPT_BACK, &LEADS, &PUSHES, &REVIEW_DURATION, &REVIEWS];

/// What is counted on the way.
#[derive(Default)]
pub struct Metrics {
    pub granted: Counter,
    refused: Counter,
    not_yet: Counter,
    wrong: Counter,
    pub review_duration: Histogram,
    pub written: Counter,
    pub overtaken: Counter,
    pub push_refused: Counter,
    pub failed: Counter,
}

impl Metrics {
    pub fn note_answer(&self, answer: &Result<(), No>) {
        let counter = match answer {
            Ok(()) => &self.granted,
            Err(no) if no.code == 503 => &self.not_yet,
            Err(no) if no.code == 400 || no.code == 422 => &self.wrong,
            Err(_) => &self.refused,
        };
        counter.add(1);
    }

    /// Everything, with what a leader knows.
    pub fn text(&self, state: Option<(&State, &Families)>, leads: bool) -> String {
        let mut out = Samples::default();
        out.put(&BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1);
        out.put(&LEADS, &[], u8::from(leads));
        for (result, counter) in
            [("granted", &self.granted), ("refused", &self.refused), ("not_yet", &self.not_yet), ("wrong", &self.wrong)]
        {
            out.put(&REVIEWS, &[result], counter.get());
        }
        for (result, counter) in [
            ("written", &self.written),
            ("overtaken", &self.overtaken),
            ("refused", &self.push_refused),
            ("failed", &self.failed),
        ] {
            out.put(&PUSHES, &[result], counter.get());
        }
        self.review_duration.sample(&REVIEW_DURATION, &[], &mut out);
        if let Some((state, families)) = state {
            out.put(&HOLDS, &[], state.holds);
            out.put(&KEPT_BACK, &[], state.kept_back);
            for family in families.iter() {
                family.sample(&Seen { state, family: &**family }, &mut out);
            }
        }
        out.text()
    }
}

/// Objects and balances at one moment: what it takes to tell of quotas.
pub struct State {
    shelves: Shelves,
    balances: HashMap<Arc<str>, Vec<BalanceLine>>,
    holds: usize,
    kept_back: usize,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("holds", &self.holds).finish_non_exhaustive()
    }
}

impl State {
    pub fn of(engine: &Engine, holds: usize, kept_back: &KeptBack) -> State {
        let mut sorted: BTreeMap<_, _> = BTreeMap::new();
        sorted.extend(engine.ledger().balances());
        let mut balances: HashMap<Arc<str>, Vec<BalanceLine>> = HashMap::new();
        for (key, balance) in sorted {
            let line = BalanceLine { resource: key.resource.clone(), bucket: key.bucket.clone(), balance };
            balances.entry(key.policy.clone()).or_default().push(line);
        }
        State { shelves: engine.shelves().clone(), balances, holds, kept_back: kept_back.open() }
    }
}

struct Seen<'a> {
    state: &'a State,
    family: &'a dyn Family,
}

impl Balances for Seen<'_> {
    fn of(&self, policy: &str) -> Vec<BalanceLine> {
        self.state.balances.get(policy).cloned().unwrap_or_default()
    }
}

impl Survey for Seen<'_> {
    fn each(&self, resource: &GroupResource, look: &mut dyn FnMut(&Value)) {
        for object in self.state.shelves.of(resource).into_iter().flat_map(|shelf| shelf.values()) {
            let mut value = object.value();
            self.family.project(resource, &mut value, self);
            look(&value);
        }
    }
}

/// Scrapes at a time; more connections wait.
const SCRAPES_MAX: usize = 4;

/// Serves `/metrics` until the future is dropped.
pub async fn serve(listener: TcpListener, front: Arc<Front>) {
    let places = Arc::new(Semaphore::new(SCRAPES_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        let front = front.clone();
        tokio::spawn(async move {
            let _place = place;
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let front = front.clone();
                async move {
                    let is_asked = request.method() == Method::GET && request.uri().path() == "/metrics";
                    let (code, text) = match is_asked {
                        true => (StatusCode::OK, front.scrape().await),
                        false => (StatusCode::NOT_FOUND, "there is nothing but /metrics".to_owned()),
                    };
                    let mut response = Response::new(Full::new(Bytes::from(text)));
                    *response.status_mut() = code;
                    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(TEXT_FORMAT));
                    Ok::<_, std::convert::Infallible>(response)
                }
            });
            let mut server = hyper::server::conn::http1::Builder::new();
            // One scrape a connection: whoever comes next waits for a place no longer than that takes.
            server.timer(TokioTimer::new()).header_read_timeout(std::time::Duration::from_secs(5)).keep_alive(false);
            let serving = server.serve_connection(TokioIo::new(stream), service);
            // Who does not read the answer is left.
            if tokio::time::timeout(std::time::Duration::from_secs(20), serving).await.is_err() {
                tracing::debug!("a scrape took too long");
            }
        });
    }
}
