//! What a stranger can hold on the wire: every state a connection could rest in ends, nobody keeps others out, and what is
//! sent to exhaust the server is cut off.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use server::certs::{Pki, default_names};
use server::identity::Identity;
use server::inflight::{self, InFlight};
use server::listen::{self, Answering, Limits};
use server::tls::{self, ServingCert};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::support::{Client, Facts, Running, get, request};

const HTTP1: Client<'static> = Client { certificate: None, http2: false };
const HTTP2: Client<'static> = Client { certificate: None, http2: true };
/// No test waits this long unless it fails.
const PATIENCE: Duration = Duration::from_secs(60);
const LARGE_BYTES: usize = 64 * 1024 * 1024;

/// A server without a guard: `/large` is an answer larger than any buffer, `/watch` says something every now and then.
struct Wire {
    facts: Facts,
    in_flight: Arc<InFlight>,
    closing: CancellationToken,
    served: tokio::task::JoinHandle<()>,
}

fn reader() -> Identity {
    Identity::authenticated("reader", [""; 0])
}

async fn answer(request: Request<Body>, in_flight: Arc<InFlight>) -> Result<Response<Body>, Infallible> {
    let mut response = match request.uri().path() {
        "/large" => {
            let charge = in_flight.piece(&reader(), LARGE_BYTES).ok().map(Arc::new);
            let mut response = Response::new(Body::from(vec![b'x'; LARGE_BYTES]));
            response.extensions_mut().insert(Answering { charge, watch: false });
            response
        }
        "/watch" => {
            let events = futures::stream::unfold(0, |count| async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Some((Ok::<_, Infallible>(Bytes::from(format!("{count}\n"))), count + 1))
            });
            let mut response = Response::new(Body::from_stream(events));
            response.extensions_mut().insert(Answering { charge: None, watch: true });
            response
        }
        _ => Response::new(Body::from("fine")),
    };
    response.headers_mut().insert("x-path", request.uri().path().parse().expect("a header"));
    Ok(response)
}

impl Wire {
    async fn start(limits: Limits) -> Wire {
        tls::install_provider();
        let folder = tempfile::tempdir().expect("a folder");
        let now = server::front::now_seconds();
        let pki = Pki::open(folder.path(), &default_names("127.0.0.1"), now).expect("certificates");
        let serving = ServingCert::new(&pki.serving).expect("a certificate");
        let config = tls::server_config(serving, &pki.authority.certificate).expect("TLS");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        // Of 128 MiB a user has 16: one answer of 64 takes all of it.
        let budget = inflight::Limits { answer_bytes: 128 * 1024 * 1024, ..inflight::Limits::default() };
        let in_flight = Arc::new(InFlight::new(budget));
        let shared = Arc::clone(&in_flight);
        let service = tower::service_fn(move |request| answer(request, Arc::clone(&shared)));
        let closing = CancellationToken::new();
        let served = tokio::spawn(listen::serve(listener, config, service, closing.clone(), limits));
        let client = pki.client("alice", None, now - 60, now + 3600).expect("a certificate");
        let forged = client.clone();
        let facts = Facts { authority: pki.authority.certificate, admin: pki.admin, client, forged, port };
        Wire { facts, in_flight, closing, served }
    }

    async fn open(&self, client: Client<'_>, bytes: &[u8]) -> TlsStream<TcpStream> {
        let mut stream = self.facts.connect(client).await.expect("a connection");
        stream.write_all(bytes).await.expect("sent");
        stream.flush().await.expect("sent");
        stream
    }

    async fn stop(self) {
        self.closing.cancel();
        self.served.await.expect("no panic");
    }
}

/// Reads until the server closes; what it said before.
async fn until_closed(mut stream: TlsStream<TcpStream>, what: &str) -> Vec<u8> {
    let mut said = Vec::new();
    let mut piece = vec![0; 16 * 1024];
    let reading = async {
        // A connection that is cut off ends as well.
        while let Ok(count @ 1..) = stream.read(&mut piece).await {
            said.extend_from_slice(&piece[..count]);
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap_or_else(|_| panic!("{what} is still there"));
    said
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// An HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("small").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// GET of a path, in the plainest form HPACK has.
fn headers(stream: u32, path: &str, flags: u8) -> Vec<u8> {
    let literal = |text: &str| [&[u8::try_from(text.len()).expect("short")], text.as_bytes()].concat();
    let block = [&[0x82, 0x87][..], &[0x04], &literal(path), &[0x01], &literal("localhost")].concat();
    frame(0x1, flags, stream, &block)
}

/// The beginning of an HTTP/2 connection, with what the client says of its windows.
fn hello(window: Option<u32>) -> Vec<u8> {
    let setting = window.map(|bytes| [&[0, 4][..], &bytes.to_be_bytes()].concat()).unwrap_or_default();
    [PREFACE, &frame(0x4, 0, 0, &setting)].concat()
}

fn quick() -> Limits {
    let short = Duration::from_millis(300);
    // Pings have nothing to do with any of it.
    Limits { first_request: short, idle: short, stalled: short, ..Limits::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_state_a_connection_could_rest_in_ends() {
    let wire = Wire::start(quick()).await;
    let ask = |path: &str| headers(1, path, END_STREAM | END_HEADERS);
    let cases = [
        ("HTTP/1.1, nothing", HTTP1, vec![]),
        ("HTTP/1.1, half a request line", HTTP1, b"GET /".to_vec()),
        ("HTTP/1.1, half the headers", HTTP1, b"GET / HTTP/1.1\r\nHost: x\r\nX-".to_vec()),
        ("HTTP/1.1, an answered request", HTTP1, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("HTTP/1.1, then half of a second", HTTP1, b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT".to_vec()),
        ("HTTP/2's first words in HTTP/1.1", HTTP1, b"PRI * HTTP/2.0".to_vec()),
        ("HTTP/2, nothing", HTTP2, vec![]),
        ("HTTP/2, half the preface", HTTP2, b"PRI * HTTP/2.0\r\n".to_vec()),
        ("HTTP/2, the preface", HTTP2, PREFACE.to_vec()),
        ("HTTP/2, settings", HTTP2, hello(None)),
        ("HTTP/2, headers without an end", HTTP2, [hello(None), headers(1, "/", END_STREAM)].concat()),
        ("HTTP/2, an answered request", HTTP2, [hello(None), ask("/")].concat()),
        ("HTTP/2, a closed window", HTTP2, [hello(Some(0)), ask("/")].concat()),
        ("HTTP/2, a large answer and a closed window", HTTP2, [hello(Some(0)), ask("/large")].concat()),
        ("HTTP/2, a window of one byte", HTTP2, [hello(Some(1)), ask("/large")].concat()),
        ("HTTP/2, a watch and a closed window", HTTP2, [hello(Some(0)), ask("/watch")].concat()),
    ];
    let waiting = cases.map(|(what, client, bytes)| {
        let wire = &wire;
        async move { until_closed(wire.open(client, &bytes).await, what).await }
    });
    futures::future::join_all(waiting).await;
    wire.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_not_read_is_given_up_and_what_it_held_is_free_again() {
    let wire = Wire::start(quick()).await;
    let http1 = b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
    let ask = headers(1, "/large", END_STREAM | END_HEADERS);
    for (what, client, bytes) in [
        ("HTTP/1.1", HTTP1, http1),
        ("HTTP/2, no window", HTTP2, [hello(Some(0)), ask.clone()].concat()),
        ("HTTP/2, a window of one byte", HTTP2, [hello(Some(1)), ask.clone()].concat()),
        ("HTTP/2, all the window there is", HTTP2, [hello(Some(0x7fff_ffff)), ask].concat()),
    ] {
        let held = wire.open(client, &bytes).await;
        let taken = async {
            while wire.in_flight.piece(&reader(), 1).is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, taken).await.unwrap_or_else(|_| panic!("{what}: nothing was charged"));
        let free = async {
            while wire.in_flight.piece(&reader(), 1).is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, free).await.unwrap_or_else(|_| panic!("{what}: held for ever"));
        drop(held);
    }
    wire.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_read_outlives_every_limit() {
    let short = Duration::from_millis(100);
    let wire = Wire::start(Limits { idle: short, ping_interval: short, ..Limits::default() }).await;
    for client in [HTTP1, HTTP2] {
        let mut events = wire.facts.open(client, get("/watch")).await.expect("a watch").into_body();
        for _ in 0..40 {
            events.frame().await.expect("goes on").expect("goes on");
        }
    }
    wire.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_silent_make_room_and_when_all_are_at_work_newcomers_are_told() {
    let wire = Wire::start(Limits { connections: 8, ..Limits::default() }).await;
    let mut held = Vec::new();
    for at in 0..8 {
        let (client, bytes) = match at % 4 {
            0 => (HTTP1, Vec::new()),
            1 => (HTTP2, Vec::new()),
            2 => (HTTP1, b"PRI * HTTP/2.0".to_vec()),
            _ => (HTTP2, hello(None)),
        };
        held.push(wire.open(client, &bytes).await);
    }
    // Long before any of their limits, all places go to those who have something to ask.
    let mut watches = Vec::new();
    for at in 0..8 {
        let client = if at % 2 == 0 { HTTP1 } else { HTTP2 };
        let watch = tokio::time::timeout(PATIENCE, wire.facts.open(client, get("/watch"))).await.expect("no waiting");
        let mut watch = watch.expect("a connection").into_body();
        watch.frame().await.expect("an event").expect("an event");
        watches.push(watch);
    }
    for client in [HTTP1, HTTP2] {
        let refused = wire.facts.open(client, get("/")).await.expect("an answer");
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.headers()["retry-after"], "1");
        let said = refused.into_body().collect().await.expect("a body").to_bytes();
        assert!(said.windows(20).any(|words| words == b"Too many connections"), "{said:?}");
    }
    for mut watch in watches {
        watch.frame().await.expect("goes on").expect("nobody at work was sent away");
    }
    drop(held);
    wire.stop().await;
}

struct Said<'a> {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: &'a [u8],
    rest: &'a [u8],
}

/// The next whole frame, and what follows it.
fn split_frame(said: &[u8]) -> Option<Said<'_>> {
    let (head, after) = said.split_at_checked(9)?;
    let length = usize::try_from(u32::from_be_bytes([0, head[0], head[1], head[2]])).ok()?;
    let (payload, rest) = after.split_at_checked(length)?;
    let stream = u32::from_be_bytes(head[5..9].try_into().ok()?);
    Some(Said { kind: head[3], flags: head[4], stream, payload, rest })
}

/// Kind, flags and stream of all whole frames.
fn frames(said: &[u8]) -> Vec<(u8, u8, u32)> {
    let mut rest = said;
    let mut all = Vec::new();
    while let Some(said) = split_frame(rest) {
        all.push((said.kind, said.flags, said.stream));
        rest = said.rest;
    }
    all
}

/// Whether an HTTP/2 connection was told to go away, and why.
fn goaway(said: &[u8]) -> Option<u32> {
    let mut rest = said;
    while let Some(said) = split_frame(rest) {
        if said.kind == 0x7 {
            return Some(u32::from_be_bytes(said.payload.get(4..8)?.try_into().ok()?));
        }
        rest = said.rest;
    }
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_end_the_connection_they_come_on() {
    let wire = Wire::start(Limits::default()).await;
    let whole = END_STREAM | END_HEADERS;
    let streams = |count: u32| (0..count).map(|at| 2 * at + 1);
    let resets: Vec<u8> = streams(2_000)
        .flat_map(|id| [headers(id, "/watch", whole), frame(0x3, 0, id, &[0, 0, 0, 8])].concat())
        .collect();
    let continuations: Vec<u8> = [headers(1, "/", END_STREAM)]
        .into_iter()
        .chain((0..2_000).map(|_| frame(0x9, 0, 1, &[0; 16 * 1024])))
        .flatten()
        .collect();
    let empty: Vec<u8> = [headers(1, "/", END_STREAM)]
        .into_iter()
        .chain((0..100_000).map(|_| frame(0x9, 0, 1, &[])))
        .flatten()
        .collect();
    let broken: Vec<u8> =
        streams(5_000).flat_map(|id| [headers(id, "/watch", whole), frame(0x8, 0, id, &[0; 4])].concat()).collect();
    for (what, bytes) in [
        ("streams opened and reset", resets),
        ("headers that go on and on", continuations),
        ("headers that go on with nothing", empty),
        ("window updates of nothing", broken),
        ("a frame that is too large", frame(0x0, 0, 1, &vec![0; 100_000])),
        ("data before headers", frame(0x0, 0, 1, b"x")),
    ] {
        let mut stream = wire.open(HTTP2, &hello(None)).await;
        // The server may hang up in the middle of it.
        let _ = stream.write_all(&bytes).await;
        let _ = stream.flush().await;
        let said = until_closed(stream, what).await;
        assert!(said.is_empty() || goaway(&said).is_some_and(|code| code != 0), "{what}");
    }
    // Nobody else noticed.
    assert_eq!(wire.facts.open(HTTP2, get("/")).await.expect("an answer").status(), StatusCode::OK);
    wire.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_a_connection_are_bounded() {
    let wire = Wire::start(Limits { streams: 4, ..Limits::default() }).await;
    let whole = END_STREAM | END_HEADERS;
    let mut stream = wire.open(HTTP2, &hello(None)).await;
    let asked: Vec<u8> = (0..20).flat_map(|at| headers(2 * at + 1, "/watch", whole)).collect();
    stream.write_all(&asked).await.expect("sent");
    stream.flush().await.expect("sent");
    // Those beyond the limit are reset one by one, as REFUSED_STREAM: a client may try them again.
    let (mut said, mut piece) = (Vec::new(), vec![0; 4096]);
    let refused = frame(0x3, 0, 39, &[0, 0, 0, 7]);
    let reading = async {
        while !said.windows(refused.len()).any(|bytes| bytes == refused) {
            let count = stream.read(&mut piece).await.expect("the connection lasts");
            assert!(count > 0, "the connection lasts");
            said.extend_from_slice(&piece[..count]);
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("refused");
    wire.stop().await;
}

/// Who is answered before its body was read, and sends that a moment later, has its answer and may go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_before_the_body_does_not_end_the_connection() {
    let running = Running::start().await;
    for _ in 0..10 {
        let mut stream = running.prepared.connect(HTTP1).await.expect("a connection");
        stream.write_all(b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n").await.expect("sent");
        stream.flush().await.expect("sent");
        tokio::time::sleep(Duration::from_millis(20)).await;
        let rest = "0123456789GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(rest.as_bytes()).await.expect("sent");
        let said = until_closed(stream, "a body that is late").await;
        let said = String::from_utf8_lossy(&said);
        assert!(said.starts_with("HTTP/1.1 403") && said.contains("HTTP/1.1 200"), "{said}");
    }
    running.stop().await;
}

/// Requests as bytes on an HTTP/1.1 connection, and how the answer begins; nothing when the connection is cut off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_bounded_before_anybody_is_asked_who_sent_them() {
    let running = Running::start().await;
    let many = |count: usize| (0..count).map(|at| format!("x-{at}: y\r\n")).collect::<String>();
    let get =
        |path: &str, headers: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n{headers}Connection: close\r\n\r\n");
    let chunk = "10\r\n0123456789abcdef\r\n".repeat(8);
    let trailers = "t: x\r\n".repeat(20_000);
    let post = "POST /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    for (what, sent, expected) in [
        ("as it should be", get("/livez", ""), "200"),
        ("a hundred headers too many", get("/livez", &many(200)), "431"),
        ("a header of a megabyte", get("/livez", &format!("x: {}\r\n", "y".repeat(1 << 20))), "431"),
        ("a path of a megabyte", get(&format!("/{}", "y".repeat(1 << 20)), ""), "414 431"),
        ("a path of nine kilobytes", get(&format!("/{}", "y".repeat(9_000)), ""), "400"),
        ("an upgrade", get("/livez", "Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Key: x\r\n"), "200"),
        ("a tunnel", "CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".into(), "403"),
        ("another protocol", "GET /livez HTTP/9.9\r\nHost: x\r\n\r\n".into(), "400 505"),
        ("nonsense", "\u{0}\u{1}\u{2}\r\n\r\n".into(), "400"),
        ("two lengths", format!("{post}Content-Length: 1\r\nContent-Length: 2\r\n\r\nx"), "400"),
        (
            "a length and chunks",
            format!("{post}Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n"),
            "400 403",
        ),
        ("a length beyond numbers", format!("{post}Content-Length: 99999999999999999999\r\n\r\nx"), "400"),
        ("a body for nobody", format!("{post}Expect: 100-continue\r\nContent-Length: 999999999\r\n\r\n"), "403"),
        ("trailers", format!("{post}Transfer-Encoding: chunked\r\n\r\n{chunk}0\r\n{trailers}\r\n"), "403"),
        ("chunks for ever", format!("{post}Transfer-Encoding: chunked\r\n\r\n{}", chunk.repeat(2_000)), "403"),
    ] {
        let mut stream = running.prepared.connect(HTTP1).await.expect("a connection");
        let _ = stream.write_all(sent.as_bytes()).await;
        let _ = stream.flush().await;
        let said = until_closed(stream, what).await;
        let status = std::str::from_utf8(said.get(9..12).unwrap_or_default()).unwrap_or_default();
        assert!(status.is_empty() || expected.contains(status), "{what}: {}", String::from_utf8_lossy(&said));
        assert!(!status.is_empty() || expected != "200", "{what}: no answer");
    }
    // One after the other, however many are sent at once.
    let mut stream = running.prepared.connect(HTTP1).await.expect("a connection");
    let three = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2) + &get("/livez", "");
    stream.write_all(three.as_bytes()).await.expect("sent");
    let said = until_closed(stream, "a pipeline").await;
    assert_eq!(said.windows(12).filter(|words| words == b"HTTP/1.1 200").count(), 3);
    running.stop().await;
}

/// Headers are bounded by their bytes in HTTP/2, packed or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packed_headers_are_bounded_by_what_they_unpack_to() {
    let running = Running::start().await;
    let long = "x".repeat(60_000);
    let (status, _) = running.prepared.send(HTTP2, request("/livez", &[("x-long", &long)])).await.expect("an answer");
    assert_eq!(status, StatusCode::OK);
    // One header of four kilobytes put into the table, then named sixty times by one byte each.
    let value = "y".repeat(4_000);
    let length = [0x7f, 0xa1, 0x1e];
    let table = [&[0x40, 0x01, b'x'][..], &length, value.as_bytes()].concat();
    let start = [0x82, 0x87, 0x84, 0x01, 0x01, b'h'];
    let block = [&start[..], &table, &[0xbe; 60]].concat();
    let mut stream = running.prepared.connect(HTTP2).await.expect("a connection");
    let sent = [hello(None), frame(0x1, END_STREAM | END_HEADERS, 1, &block)].concat();
    stream.write_all(&sent).await.expect("sent");
    stream.flush().await.expect("sent");
    let (mut said, mut piece) = (Vec::new(), vec![0; 4096]);
    // An answer without a body, which is 431, or a reset; whoever gets through is told 403 in many words.
    let ended = |said: &[u8]| {
        frames(said).iter().any(|(kind, flags, stream)| *stream == 1 && (*kind == 0x3 || flags & END_STREAM != 0))
    };
    let reading = async {
        while !ended(&said) {
            let count = stream.read(&mut piece).await.expect("the connection lasts");
            assert!(count > 0, "the connection lasts");
            said.extend_from_slice(&piece[..count]);
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("an end");
    assert!(!frames(&said).iter().any(|(kind, _, _)| *kind == 0), "it was answered");
    running.stop().await;
}
