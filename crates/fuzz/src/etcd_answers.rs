//! An etcd that fails, loses answers and lies. Failures and lost answers cost time and no row; a lie is refused or believed,
//! and ends in an error at the worst: never in a panic, a wait without end or memory without bound.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use store::etcd::Config;
use store::etcd::messages::{RangeResponse, TxnResponse};
use store::{Batch, EtcdStore, Store, StoreError, Table};

use crate::model_etcd::Model;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Pieces of mischief in one script; more teach nothing new and take long.
const PIECES_MAX: usize = 8;

/// What etcd says when it fails. Those after the first five are answers that stand.
const FAILURES: [(u8, &str); 8] = [
    (14, "etcdserver: leader changed"),
    (8, "etcdserver: too many requests"),
    (9, "etcdserver: not leader"),
    (2, "transport error"),
    (10, "aborted"),
    (11, "etcdserver: mvcc: required revision has been compacted"),
    (7, "etcdserver: permission denied"),
    (3, "etcdserver: duplicate key given in txn request"),
];
const PASSING: usize = 5;

/// What happens at one answer.
#[derive(Clone, Debug)]
enum Mischief {
    /// The call is not done.
    Fails(usize),
    /// The call is done, and its answer is lost.
    Lost,
    Flipped {
        at: usize,
        with: u8,
    },
    Cut(usize),
    Replaced(Vec<u8>),
    /// A range says that there is more.
    More,
    /// A transaction says the contrary.
    Contrary,
    /// What is stored is damaged first, at the key of this number.
    Rotten {
        key: usize,
        value: Vec<u8>,
    },
    /// Something stands among the keys that nobody wrote.
    Planted(Vec<u8>),
}

impl Mischief {
    fn read(piece: &[u8; 4], rest: &[u8]) -> (usize, Mischief) {
        let &[at, what, first, second] = piece;
        let mischief = match what % 10 {
            0 => Mischief::Fails(usize::from(first) % FAILURES.len()),
            1 => Mischief::Fails(usize::from(first) % PASSING),
            2 => Mischief::Lost,
            3 => Mischief::Flipped { at: first.into(), with: second | 1 },
            4 => Mischief::Cut(first.into()),
            5 => Mischief::Replaced(rest.to_vec()),
            6 => Mischief::More,
            7 => Mischief::Contrary,
            8 => Mischief::Rotten { key: first.into(), value: rest[usize::from(second).min(rest.len())..].to_vec() },
            _ => Mischief::Planted(rest.to_vec()),
        };
        (at.into(), mischief)
    }

    /// Whether it leaves what is true to be found out.
    fn is_honest(&self) -> bool {
        match self {
            Mischief::Lost => true,
            Mischief::Fails(which) => *which < PASSING,
            _ => false,
        }
    }
}

#[derive(Default)]
struct Etcd {
    model: Model,
    /// By the number of the answer it is for.
    script: Vec<(usize, Mischief)>,
    answers: usize,
}

impl Etcd {
    /// An answer, or the code and text of a failure.
    fn answer(&mut self, method: &str, body: &[u8]) -> Result<Vec<u8>, (u8, &'static str)> {
        let number = self.answers;
        self.answers += 1;
        let mischief = self.script.iter().find(|(at, _)| *at == number).map(|(_, mischief)| mischief.clone());
        match &mischief {
            Some(Mischief::Fails(which)) => return Err(FAILURES[*which]),
            Some(Mischief::Rotten { key, value }) => {
                let keys = self.model.keys.len().max(1);
                if let Some(found) = self.model.keys.values_mut().nth(key % keys) {
                    found.value.clone_from(value);
                }
            }
            Some(Mischief::Planted(rest)) => {
                let key = [b"/bursar/default/", rest.as_slice()].concat();
                self.model.keys.entry(key).or_default().value.clone_from(rest);
            }
            _ => {}
        }
        let mut answer = self.model.answer(method, body).ok_or((12, "unimplemented"))?;
        match mischief {
            Some(Mischief::Lost) => return Err(FAILURES[0]),
            Some(Mischief::Flipped { at, with }) => {
                let length = answer.len().max(1);
                if let Some(byte) = answer.get_mut(at % length) {
                    *byte ^= with;
                }
            }
            Some(Mischief::Cut(length)) => answer.truncate(length),
            Some(Mischief::Replaced(other)) => answer = other,
            Some(Mischief::More) if method == "Range" => {
                if let Ok(range) = RangeResponse::decode(answer.as_slice()) {
                    answer = RangeResponse { more: true, ..range }.encode_to_vec();
                }
            }
            Some(Mischief::Contrary) if method == "Txn" => {
                if let Ok(told) = TxnResponse::decode(answer.as_slice()) {
                    answer = TxnResponse { succeeded: !told.succeeded, ..told }.encode_to_vec();
                }
            }
            _ => {}
        }
        Ok(answer)
    }
}

/// The one etcd of this process, and its port. Every script begins with an empty one.
fn served() -> &'static (u16, Arc<Mutex<Etcd>>) {
    static SERVED: OnceLock<(u16, Arc<Mutex<Etcd>>)> = OnceLock::new();
    SERVED.get_or_init(|| {
        let etcd = Arc::new(Mutex::new(Etcd::default()));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let port = listener.local_addr().expect("an address").port();
        std::thread::spawn({
            let etcd = etcd.clone();
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(serve(listener, etcd));
            }
        });
        (port, etcd)
    })
}

async fn serve(listener: std::net::TcpListener, etcd: Arc<Mutex<Etcd>>) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("inside a runtime");
    while let Ok((stream, _)) = listener.accept().await {
        let etcd = etcd.clone();
        let service = hyper::service::service_fn(move |request| call(request, etcd.clone()));
        tokio::spawn(async move {
            // The store closes it when it is done.
            let _closed = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

type Answer = http::Response<StreamBody<tokio_stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>>;

/// One call over gRPC: five bytes of framing before each message, the outcome in the trailers.
async fn call(request: http::Request<Incoming>, etcd: Arc<Mutex<Etcd>>) -> Result<Answer, Infallible> {
    const FRAMING: usize = 5;
    let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let mut body = Vec::new();
    let mut incoming = request.into_body();
    // A watch never ends its requests; one message is all that any call has.
    while !is_whole(&body) {
        let Some(Ok(frame)) = incoming.frame().await else { break };
        body.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    let outcome = lock(&etcd).answer(&method, body.get(FRAMING..).unwrap_or_default());
    let mut frames = Vec::new();
    let (code, text) = match outcome {
        Ok(answer) => {
            let length = (answer.len() as u32).to_be_bytes();
            frames.push(Ok(Frame::data(Bytes::from([&[0], length.as_slice(), &answer].concat()))));
            (0, "")
        }
        Err(failure) => failure,
    };
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from(u16::from(code)));
    trailers.insert("grpc-message", http::HeaderValue::from_static(text));
    frames.push(Ok(Frame::trailers(trailers)));
    let answer = http::Response::builder().header("content-type", "application/grpc");
    Ok(answer.body(StreamBody::new(tokio_stream::iter(frames))).expect("a plain answer"))
}

fn is_whole(body: &[u8]) -> bool {
    let length = body.get(1..5).and_then(|length| length.try_into().ok()).map(u32::from_be_bytes);
    length.is_some_and(|length| body.len() - 5 >= length as usize)
}

fn lock(etcd: &Mutex<Etcd>) -> MutexGuard<'_, Etcd> {
    etcd.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The commits of every run: a row, one that changes and removes, one of more rows than a transaction takes, and a long one.
fn batches() -> &'static [Batch; 4] {
    static BATCHES: OnceLock<[Batch; 4]> = OnceLock::new();
    BATCHES.get_or_init(|| {
        let mut batches: [Batch; 4] = Default::default();
        let [first, second, many, long] = &mut batches;
        first.put(Table::OBJECTS, b"a", b"1");
        first.put(Table::OBJECTS, b"b", b"1");
        second.put(Table::OBJECTS, b"a", b"2");
        second.delete(Table::OBJECTS, b"b");
        for number in 0..150 {
            many.put(Table::OBJECTS, format!("row {number}").as_bytes(), b"many");
        }
        long.put(Table::OBJECTS, b"long", &vec![b'x'; 600 * 1024]);
        batches
    })
}

/// Four bytes a piece of mischief: at which answer, what, and two that say how. The rest is what lies are made of.
pub fn check_bytes(bytes: &[u8]) {
    let (pieces, rest) = bytes.as_chunks::<4>();
    let (pieces, rest) = match pieces.split_at_checked(PIECES_MAX) {
        Some((pieces, more)) => (pieces, [more.as_flattened(), rest].concat()),
        None => (pieces, rest.to_vec()),
    };
    let script: Vec<_> = pieces.iter().map(|piece| Mischief::read(piece, &rest)).collect();
    let honest = script.iter().all(|(_, mischief)| mischief.is_honest());
    let (port, etcd) = served();
    *lock(etcd) = Etcd { script, ..Etcd::default() };

    let (acknowledged, tried) = work(*port);
    // Whoever led is gone, and its lease with it; etcd is well again.
    let mut after = lock(etcd);
    after.script.clear();
    after.model.keys.retain(|_, found| found.lease == 0);
    drop(after);
    match open(*port) {
        Ok((_, found)) if honest => {
            let allowed = [states(acknowledged), states(tried)];
            assert!(allowed.contains(&found), "{} rows after {acknowledged} of {tried} commits", found.len());
        }
        Ok(_) => {}
        Err(error) => assert!(!honest && !is_bug(&error), "{error}"),
    }
}

/// Opens and commits until something fails; how many commits were acknowledged, and how many were tried.
fn work(port: u16) -> (usize, usize) {
    let mut store = match open(port) {
        Ok((store, _)) => store,
        Err(error) => {
            assert!(!is_bug(&error), "{error}");
            return (0, 0);
        }
    };
    for (number, batch) in batches().iter().enumerate() {
        if let Err(error) = store.commit(batch) {
            assert!(!is_bug(&error), "{error}");
            return (number, number + 1);
        }
    }
    (batches().len(), batches().len())
}

fn open(port: u16) -> Result<(EtcdStore, Rows), StoreError> {
    let mut store = EtcdStore::lead(Config::new(vec![format!("http://127.0.0.1:{port}")], "default", "fuzz"))?;
    let mut rows = Rows::new();
    store.load(&mut |_, key, value| drop(rows.insert(key.to_vec(), value.to_vec())))?;
    Ok((store, rows))
}

fn is_bug(error: &StoreError) -> bool {
    matches!(error, StoreError::Unusable { why } if why.contains("bug"))
}

/// The rows after the first `commits` batches.
fn states(commits: usize) -> Rows {
    let mut rows = Rows::new();
    for row in batches().iter().take(commits).flat_map(Batch::rows) {
        match row.value {
            Some(value) => drop(rows.insert(row.key.to_vec(), value.to_vec())),
            None => drop(rows.remove(row.key)),
        }
    }
    rows
}
