//! An etcd of three members in this process, for replicas that live in simulated time.
//!
//! ```text
//!   store's client ══ in-memory pipe ══▶ Pipe ─▶ hyper ─▶ FakeEtcd::call ─▶ Cluster::answer ─▶ History
//!                     falls silent, is cut         late, lost, twice, refused    leases, alarm, members
//! ```
//!
//! Everything runs on one thread with tokio's clock standing still between events, so that a seed is one run. It lives among the
//! tests of the store, because nobody else speaks this protocol: whatever drives an engine needs a store, not an etcd.
//! Start reading at [`FakeEtcd`].

pub mod cluster;
mod history;
pub mod mutation;
mod wire;
mod witness;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use store::etcd::messages::{Event, WatchRequest, WatchResponse};
use store::etcd::outside::{Connecting, Network, Outside, Wire};
use store::{Clock, Moment};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use cluster::{Cluster, MEMBERS};
use mutation::Mutation;
use wire::{Body, Gate, Pipe};

/// Keys of the cluster that all tests of this folder use.
pub const LEADER: &[u8] = b"/bursar/test/leader";
pub const COMMIT: &[u8] = b"/bursar/test/commit";
pub const JOURNALS: &[u8] = b"/bursar/test/journals/";
pub const STAGED: &[u8] = b"/bursar/test/staged/";
pub const MARKER: &[u8] = b"/bursar/test/marker";

/// The life of the first replica's only process; those of the others follow.
pub const LIFE: usize = 100;

/// What a connection holds that nobody reads.
const PIPE_BYTES: usize = 64 * 1024;

/// How often etcd looks at its leases.
const TICK: Duration = Duration::from_millis(250);

/// How long a member that has lost sight of the others waits for them before it says so.
const HINDERED: Duration = Duration::from_secs(1);
const HINDERED_LOOK: Duration = Duration::from_millis(50);

/// What happens to one call.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// It is done after this time, whether or not somebody still waits for the answer.
    Late(Duration),
    /// It is done and never answered.
    AnswerLost,
    /// It is done, and the connection is cut before the answer.
    AnswerCut,
    /// It is not done, and the connection is cut.
    Cut,
    /// It is done and answered, and done again after this time.
    Twice(Duration),
    /// Something else is said in the place of the answer, whether or not it is done.
    Says { status: Status, done: bool },
}

/// The next call of this method, by this replica, gets into trouble.
#[derive(Clone, Debug)]
pub struct Armed {
    pub method: &'static str,
    pub replica: Option<usize>,
    /// So many calls go well before.
    pub after: u64,
    pub trouble: Trouble,
}

#[derive(Debug)]
struct Connection {
    life: usize,
    replica: usize,
    member: usize,
    cut: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Lines {
    gates: BTreeMap<(usize, usize), Arc<Gate>>,
    connections: Vec<Connection>,
    dead: Vec<usize>,
    opened: usize,
    armed: Vec<Armed>,
    /// Every call in order, squeezed into a number: two runs of one seed have the same.
    digest: u64,
    calls: u64,
}

#[derive(Debug)]
struct Shared {
    cluster: Mutex<Cluster>,
    lines: Mutex<Lines>,
    changed: Notify,
    started: Instant,
}

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct FakeEtcd(Arc<Shared>);

/// Who asks whom.
#[derive(Clone, Copy, Debug)]
struct Peers {
    /// One run of one replica's process.
    life: usize,
    replica: usize,
    member: usize,
}

impl FakeEtcd {
    /// Must be called inside the runtime that it lives in.
    pub fn start(mutation: Option<Mutation>) -> FakeEtcd {
        let shared = Shared {
            cluster: Mutex::new(Cluster::new(mutation)),
            lines: Mutex::default(),
            changed: Notify::new(),
            started: Instant::now(),
        };
        let etcd = FakeEtcd(Arc::new(shared));
        let ticking = Arc::downgrade(&etcd.0);
        tokio::spawn(async move {
            loop {
                sleep(TICK).await;
                let Some(shared) = ticking.upgrade() else { return };
                FakeEtcd(shared).with(Cluster::tick);
            }
        });
        etcd
    }

    /// Changes it. Whoever watches is told.
    pub fn with<T>(&self, work: impl FnOnce(&mut Cluster) -> T) -> T {
        let done = work(&mut self.0.cluster.lock().unwrap());
        self.0.changed.notify_waiters();
        done
    }

    /// Looks at it.
    pub fn see<T>(&self, look: impl FnOnce(&Cluster) -> T) -> T {
        look(&self.0.cluster.lock().unwrap())
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lines.lock().unwrap()
    }

    pub fn endpoints() -> Vec<String> {
        (0..MEMBERS).map(|member| format!("http://m{member}:2379")).collect()
    }

    /// The world as one life of a replica has it, with a clock that is wrong by so many millionths.
    pub fn outside(&self, replica: usize, life: usize, clock_ppm: i64) -> Outside {
        let clock = ReplicaClock { started: self.0.started, ppm: clock_ppm };
        let network = Line { etcd: self.clone(), replica, life };
        let waits_for_ever = self.see(|etcd| etcd.mutation == Some(Mutation::WaitsForEver));
        Outside { clock: Arc::new(clock), network: Some(Arc::new(network)), waits_for_ever }
    }

    pub fn arm(&self, armed: Armed) {
        self.lines().armed.push(armed);
    }

    /// How much trouble has not found its call yet.
    pub fn armed(&self) -> usize {
        self.lines().armed.len()
    }

    pub fn disarm(&self) {
        self.lines().armed.clear();
    }

    pub fn calls(&self) -> u64 {
        self.lines().calls
    }

    pub fn digest(&self) -> u64 {
        self.lines().digest
    }

    /// Between a replica and a member.
    pub fn gate(&self, replica: usize, member: usize) -> Arc<Gate> {
        self.lines().gates.entry((replica, member)).or_default().clone()
    }

    /// Whether nothing passes between a replica and any member.
    pub fn is_cut_off(&self, replica: usize) -> bool {
        (0..MEMBERS).all(|member| self.gate(replica, member).is_shut())
    }

    /// Cuts the connections that are meant.
    pub fn cut(&self, is_meant: impl Fn(usize, usize) -> bool) {
        let mut lines = self.lines();
        lines.connections.retain(|connection| {
            let cut = is_meant(connection.replica, connection.member);
            if cut {
                connection.cut.notify_one();
            }
            !cut
        });
    }

    /// A process has ended: its connections are gone, and it makes no others.
    pub fn bury(&self, life: usize) {
        let mut lines = self.lines();
        lines.dead.push(life);
        lines.connections.retain(|connection| {
            if connection.life == life {
                connection.cut.notify_one();
            }
            connection.life != life
        });
    }

    fn connect(&self, peers: Peers) -> io::Result<Option<Box<dyn Wire>>> {
        let gate = self.gate(peers.replica, peers.member);
        let down = self.see(|etcd| etcd.members[peers.member].down);
        let mut lines = self.lines();
        if down || lines.dead.contains(&peers.life) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        lines.opened += 1;
        // Who is silent may be so before a connection comes about, or after.
        if gate.is_shut() && lines.opened.is_multiple_of(2) {
            return Ok(None);
        }
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let cut = Arc::new(Notify::new());
        let Peers { life, replica, member } = peers;
        lines.connections.push(Connection { life, replica, member, cut: cut.clone() });
        drop(lines);
        let (etcd, ends) = (self.clone(), cut.clone());
        let service = hyper::service::service_fn(move |request| {
            let (etcd, cut) = (etcd.clone(), cut.clone());
            async move { Ok::<_, Infallible>(etcd.call(peers, &cut, request).await) }
        });
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let serving = server.serve_connection(TokioIo::new(Pipe { stream: theirs, gate }), service);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = ends.notified() => {}
                _ended = serving => {}
            }
        });
        Ok(Some(Box::new(ours)))
    }

    async fn call(&self, peers: Peers, cut: &Notify, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let method = path.rsplit('/').next().unwrap_or_default().to_owned();
        let token = request.headers().get("token").and_then(|token| token.to_str().ok()).map(str::to_owned);
        let Some((body, rest)) = wire::message(request.into_body()).await else {
            return wire::refusal(&Status::invalid_argument("no message"));
        };
        let trouble = self.note(peers, &method, &body);
        let (expected, restores) = self.see(|etcd| (etcd.token(), etcd.restores));
        if method != "Authenticate" && expected.is_some() && token != expected {
            return wire::refusal(&Status::unauthenticated("etcdserver: invalid auth token"));
        }
        let again = match &trouble {
            Some(Trouble::Cut) => {
                cut.notify_one();
                return std::future::pending().await;
            }
            Some(Trouble::Says { status, done: false }) => return wire::refusal(status),
            Some(Trouble::Twice(after)) => Some(*after),
            _ => None,
        };
        if method == "Watch" {
            return self.watch(peers, &body, rest).await;
        }
        let wait = if let Some(Trouble::Late(time)) = &trouble { *time } else { Duration::ZERO };
        // Done by a task of its own: etcd does not stop because whoever asked has gone away.
        let done = tokio::spawn({
            let (etcd, method, body) = (self.clone(), method.clone(), body.clone());
            async move {
                if !wait.is_zero() {
                    sleep(wait).await;
                }
                etcd.perform(peers, restores, &method, &body).await
            }
        });
        let outcome = done.await.unwrap_or_else(|error| Err(Status::internal(error.to_string())));
        if let Some(after) = again {
            let etcd = self.clone();
            tokio::spawn(async move {
                sleep(after).await;
                let _unheard = etcd.perform(peers, restores, &method, &body).await;
            });
        }
        match (trouble, outcome) {
            (Some(Trouble::AnswerLost), _) => std::future::pending().await,
            (Some(Trouble::AnswerCut), _) => {
                cut.notify_one();
                std::future::pending().await
            }
            (Some(Trouble::Says { status, .. }), _) | (_, Err(status)) => wire::refusal(&status),
            (_, Ok(message)) => wire::answer(tokio_stream::once(message)),
        }
    }

    /// Writes the call down, and finds the trouble that it gets into.
    fn note(&self, peers: Peers, method: &str, body: &[u8]) -> Option<Trouble> {
        let mut lines = self.lines();
        let at = self.0.started.elapsed().as_micros() as u64;
        let words = [at, peers.life as u64, peers.member as u64, u64::from(crc32fast::hash(body))];
        for word in words.into_iter().chain(method.bytes().map(u64::from)) {
            lines.digest = (lines.digest ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
        lines.calls += 1;
        let meant =
            |armed: &Armed| armed.method == method && armed.replica.is_none_or(|replica| replica == peers.replica);
        let found = lines.armed.iter().position(meant)?;
        if lines.armed[found].after > 0 {
            lines.armed[found].after -= 1;
            return None;
        }
        Some(lines.armed.remove(found).trouble)
    }

    /// Does what was asked for as soon as this member can.
    async fn perform(&self, peers: Peers, restores: u64, method: &str, body: &[u8]) -> Result<Vec<u8>, Status> {
        // Each member tells of itself alone.
        if method != "Status" {
            self.unhindered(peers.member).await?;
        }
        self.with(|etcd| match etcd.restores == restores {
            true => etcd.answer(method, peers.life, peers.member, body),
            false => Err(Status::unavailable("it went with the etcd before")),
        })
    }

    async fn unhindered(&self, member: usize) -> Result<(), Status> {
        let begun = Instant::now();
        loop {
            let Some(status) = self.see(|etcd| etcd.hindered(member)) else { return Ok(()) };
            if begun.elapsed() >= HINDERED {
                return Err(status);
            }
            sleep(HINDERED_LOOK).await;
        }
    }

    /// Of one key, and of deletions alone: nothing else is ever watched.
    async fn watch(&self, peers: Peers, body: &[u8], rest: Incoming) -> Response<Body> {
        let created = WatchRequest::decode(body).ok().and_then(|request| request.create);
        let Some(created) = created else { return wire::refusal(&Status::invalid_argument("no watch")) };
        if let Err(status) = self.unhindered(peers.member).await {
            return wire::refusal(&status);
        }
        let (tell, told) = tokio::sync::mpsc::channel(4);
        let etcd = self.clone();
        tokio::spawn(async move {
            // As long as its requests are not ended, the watch is not.
            let _open = rest;
            let confirmed = tell.send(WatchResponse::default().encode_to_vec()).await;
            while confirmed.is_ok() && !tell.is_closed() {
                let changed = etcd.0.changed.notified();
                let seen = etcd.see(|etcd| match etcd.hindered(peers.member) {
                    Some(_) => Ok(false),
                    None => etcd.history.deleted_since(&created.key, created.start_revision),
                });
                let answer = match seen {
                    Ok(false) => None,
                    Ok(true) => Some(WatchResponse { canceled: false, events: vec![Event { kind: 1 }] }),
                    Err(_) => Some(WatchResponse { canceled: true, events: Vec::new() }),
                };
                if let Some(answer) = answer {
                    let _gone = tell.send(answer.encode_to_vec()).await;
                    return;
                }
                tokio::select! {
                    biased;
                    () = changed => {}
                    () = tell.closed() => {}
                }
            }
        });
        wire::answer(ReceiverStream::new(told))
    }
}

/// One life's way to etcd.
#[derive(Debug)]
struct Line {
    etcd: FakeEtcd,
    replica: usize,
    life: usize,
}

impl Network for Line {
    fn connect(&self, member: Uri) -> Connecting {
        let number = member.host().and_then(|host| host.strip_prefix('m')).and_then(|number| number.parse().ok());
        let opened = match number.filter(|&number| number < MEMBERS) {
            Some(member) => self.etcd.connect(Peers { life: self.life, replica: self.replica, member }),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        Box::pin(async move {
            match opened? {
                Some(wire) => Ok(wire),
                None => std::future::pending().await,
            }
        })
    }
}

/// A clock that runs a little too fast, or too slow.
#[derive(Debug)]
struct ReplicaClock {
    started: Instant,
    ppm: i64,
}

impl Clock for ReplicaClock {
    fn now(&self) -> Moment {
        let micros = i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX);
        let wrong = micros / 1_000_000 * self.ppm;
        Moment::at(Duration::from_micros((micros + wrong).unsigned_abs()))
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000) + self.started.elapsed()
    }
}
