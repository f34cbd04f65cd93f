//! A whole API server in memory, and a small language for asking it things.
//!
//! ```text
//! POST /api/v1/namespaces                         a request: method, path, then Header:value words ("_" is a space);
//!                                                 As:USER asks as that user instead of an administrator
//!   {"metadata": {"name": "a"}}                   its body, as many indented lines as it takes
//!   201  metadata.name=a  metadata.uid>uid        the answer: code, then what must hold, two spaces apart
//! ```
//! `path=value` compares, `path~text` contains, `path!` is absent, `path?` is present, `path>name` remembers it as
//! `${name}`, `header:Name~text` looks at a header, `body~text` at the whole answer. A path is fields and indexes with
//! dots between them, or a JSON pointer.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use rules::cel::evaluations;
use serde_json::Value;
use server::api::{Answering, Api, Parts, system_clock};
use server::authz::Rbac;
use server::core::{Answer, Command, Engine, Publication};
use server::identity::Identity;
use server::metrics::{MeasuredStore, Metrics};
use server::registry::Registry;
use store::{Batch, EmbeddedStore, SharedMemory, Store};
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt};

const ADMIN: (&str, &[&str]) = ("admin", &["system:masters"]);

pub struct Server {
    pub api: Api,
    pub closing: CancellationToken,
    pub place: SharedMemory,
    /// For the fuzz targets, which take this file in.
    #[allow(dead_code)]
    pub rbac: Arc<Rbac>,
    pub running: sequencer::Running<Command, Answer>,
    /// How many expressions were evaluated on the thread that decides.
    pub evaluated: Arc<AtomicU64>,
}

/// The engine, with what it evaluates in its steps counted.
struct Counted {
    engine: Engine,
    evaluated: Arc<AtomicU64>,
}

impl sequencer::Engine for Counted {
    type Command = Command;
    type Answer = Answer;
    type Publication = Publication;

    fn step(&mut self, command: Command, batch: &mut Batch, publication: &mut Publication) -> Answer {
        let before = evaluations();
        let answer = self.engine.step(command, batch, publication);
        self.evaluated.fetch_add(evaluations() - before, Ordering::Relaxed);
        answer
    }

    fn seal(&mut self, batch: &mut Batch, publication: &mut Publication) {
        self.engine.seal(batch, publication);
    }
}

pub struct Reply {
    pub code: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
    pub value: Value,
}

impl Server {
    pub fn start() -> Server {
        Server::start_on(SharedMemory::new())
    }

    pub fn start_on(place: SharedMemory) -> Server {
        Server::start_with(Box::new(place.acquire()), place, system_clock)
    }

    /// By a clock of its own.
    pub fn start_by(clock: fn() -> i64) -> Server {
        let place = SharedMemory::new();
        Server::start_with(Box::new(place.acquire()), place, clock)
    }

    /// On a folder, which can be backed up.
    pub fn start_in(folder: &Path) -> Server {
        let store = EmbeddedStore::open_folder(folder).expect("a folder");
        Server::start_with(Box::new(store), SharedMemory::new(), system_clock)
    }

    fn start_with(mut store: Box<dyn Store>, place: SharedMemory, clock: fn() -> i64) -> Server {
        let families = families::all(&families::Settings::default());
        let (engine, cache) = Engine::load(store.as_mut(), families.clone()).expect("the store loads");
        let maintenance = store.maintenance();
        let journals = store.journals();
        let cache = Arc::new(cache);
        let registry = Arc::new(Registry::new());
        server::registry::follow(&registry, &cache);
        let rbac = Arc::new(Rbac::new());
        server::authz::follow(&rbac, &cache);
        let metrics = Arc::new(Metrics::new(registry.clone(), &families));
        let store = MeasuredStore::new(store, metrics.clone());
        let (published, counted) = (cache.clone(), metrics.clone());
        let evaluated = Arc::<AtomicU64>::default();
        let (writes, running) = sequencer::start(
            Counted { engine, evaluated: evaluated.clone() },
            Box::new(store),
            move |publication: Publication| {
                counted.decided(&publication.decided);
                published.publish(publication);
            },
            sequencer::Limits::default(),
        )
        .expect("the sequencer starts");
        let closing = CancellationToken::new();
        let api = Api::new(Parts {
            cache,
            writes,
            registry,
            families,
            rbac: rbac.clone(),
            authenticator: None,
            metrics,
            journals,
            maintenance,
            clock,
            closing: closing.clone(),
        });
        Server { api, closing, place, rbac, running, evaluated }
    }

    /// Has the kinds of all families defined.
    pub async fn define_kinds(&self) {
        for family in families::all(&families::Settings::default()).iter() {
            for definition in (family.manifest().definitions)() {
                let at = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
                self.play(&format!("POST {at}\n  {definition}\n  201")).await;
            }
        }
    }

    pub fn as_user(&self, user: &str, groups: &[&str]) -> impl Answering<Body> + use<> {
        self.api.service_as(Identity::authenticated(user, groups.iter().copied()))
    }

    pub fn admin(&self) -> impl Answering<Body> + use<> {
        self.as_user(ADMIN.0, ADMIN.1)
    }

    pub async fn send(&self, request: Request<Body>) -> Reply {
        let user = request.headers().get("As").and_then(|user| user.to_str().ok());
        let (user, groups): (&str, &[&str]) = user.map_or(ADMIN, |user| (user, &[]));
        let mut service = self.as_user(user, groups);
        let answer = ServiceExt::<Request<Body>>::ready(&mut service).await.expect("infallible");
        let answer = answer.call(request).await.expect("infallible");
        let (parts, body) = answer.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Reply { code: parts.status, headers: parts.headers, text, value }
    }

    /// Plays a script; panics at the first answer that differs.
    pub async fn play(&self, script: &str) -> HashMap<String, String> {
        let mut known: HashMap<String, String> = HashMap::new();
        for step in steps(script) {
            let line = substitute(&step.request, &known);
            let body = substitute(&step.body, &known);
            let reply = self.send(request(&line, &body)).await;
            let expected = substitute(&step.expected, &known);
            if let Err(why) = check(&reply, &expected, &mut known) {
                panic!("{line}\n{body}\nexpected {expected}\n{why}\nanswered {} {}", reply.code, reply.text);
            }
        }
        known
    }

    /// Everything the next `lines` lines of a stream say.
    pub async fn watch(&self, path: &str) -> Watch {
        let mut service = self.admin();
        let answer = ServiceExt::<Request<Body>>::ready(&mut service).await.expect("infallible");
        let answer = answer.call(request(&format!("GET {path}"), "")).await.expect("infallible");
        assert_eq!(answer.status(), 200, "{path}");
        Watch { body: answer.into_body(), rest: Vec::new() }
    }
}

/// A running watch.
pub struct Watch {
    body: Body,
    rest: Vec<u8>,
}

impl Watch {
    /// The next event; none at the end of the stream.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("a line of JSON"));
            }
            let frame = tokio::time::timeout(std::time::Duration::from_secs(10), self.body.frame());
            let frame = frame.await.expect("an event within ten seconds")?.expect("a frame");
            self.rest.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        }
    }

    /// `TYPE name` of the next event.
    pub async fn says(&mut self) -> String {
        match self.next().await {
            None => "end".into(),
            Some(event) => {
                let kind = event["type"].as_str().unwrap_or_default();
                format!("{kind} {}", event["object"]["metadata"]["name"].as_str().unwrap_or_default())
            }
        }
    }
}

struct Step {
    request: String,
    body: String,
    expected: String,
}

fn steps(script: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in script.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with('#')) {
        let words = line.trim();
        let is_answer = words.len() >= 3 && words.as_bytes()[..3].iter().all(u8::is_ascii_digit);
        match steps.last_mut() {
            _ if !line.starts_with(' ') => {
                steps.push(Step { request: words.into(), body: String::new(), expected: String::new() });
            }
            Some(step) if is_answer => step.expected.push_str(words),
            Some(step) if !step.expected.is_empty() => step.expected.push_str(&format!("  {words}")),
            Some(step) => {
                step.body.push_str(line.strip_prefix("  ").unwrap_or(line));
                step.body.push('\n');
            }
            None => panic!("a script begins with a request: {line}"),
        }
    }
    steps
}

pub fn request(line: &str, body: &str) -> Request<Body> {
    let mut words = line.split_whitespace();
    let (method, path) = (words.next().expect("a method"), words.next().expect("a path"));
    let mut request = Request::builder().method(method).uri(path);
    for word in words {
        let (name, value) = word.split_once(':').expect("Header:value");
        request = request.header(name, value.replace('_', " "));
    }
    request.body(Body::from(body.trim_end().to_owned())).expect("a request")
}

fn substitute(text: &str, known: &HashMap<String, String>) -> String {
    known.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
}

fn check(reply: &Reply, expected: &str, known: &mut HashMap<String, String>) -> Result<(), String> {
    let mut parts = expected.split("  ").map(str::trim).filter(|part| !part.is_empty());
    let code = parts.next().ok_or("no code is expected")?;
    if reply.code.as_str() != code {
        return Err(format!("the code is {}", reply.code));
    }
    for part in parts {
        let at = part.find(['=', '~', '!', '?', '>']).ok_or_else(|| format!("what does {part} mean?"))?;
        let (path, value) = (&part[..at], &part[at + 1..]);
        let found = if path == "body" {
            Some(reply.text.clone())
        } else if let Some(header) = path.strip_prefix("header:") {
            let all: Vec<_> = reply.headers.get_all(header).iter().filter_map(|value| value.to_str().ok()).collect();
            (!all.is_empty()).then(|| all.join("; "))
        } else {
            look(&reply.value, path).filter(|value| !value.is_null()).map(|value| match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            })
        };
        let holds = match (&part[at..=at], &found) {
            ("=", Some(found)) => found == value,
            ("~", Some(found)) => found.contains(value),
            ("!", found) => found.is_none(),
            ("?", found) => found.is_some(),
            (">", Some(found)) => {
                known.insert(value.to_owned(), found.clone());
                true
            }
            _ => false,
        };
        if !holds {
            return Err(format!("{part} does not hold: {path} is {found:?}"));
        }
    }
    Ok(())
}

pub fn look<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    if path.starts_with('/') {
        return value.pointer(path);
    }
    value.pointer(&format!("/{}", path.replace('.', "/")))
}
