//! What one client can take of the server: seats, turns, watch backlog, lists, memory.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams};
use kube::client::Body;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};

use crate::harness::PATIENCE;
use crate::object;
use crate::process::Process;
use hyper_util::rt::{TokioExecutor, TokioIo};

const TOKENS: &str = "token-a,alice,1,\"makers\"\ntoken-b,bob,2,\"makers\"\ntoken-h,holder,3,\"makers\"\n";

/// A server with these limits and three users who may do what an editor may.
async fn limited(folder: &Path, limits: &str) -> Process {
    std::fs::write(folder.join("tokens.csv"), TOKENS).expect("writes");
    let config = folder.join("bursar.yaml");
    let tokens = folder.join("tokens.csv");
    std::fs::write(&config, format!("tokenFile: {}\nlimits: {limits}\n", tokens.display())).expect("writes");
    let process = Process::start(&folder.join("data"), &["--config", &config.display().to_string()]).await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "makers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "Group", "name": "makers", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let request = Request::post(path).body(binding.to_string().into_bytes()).expect("a request");
    let _: Value = process.client().await.request(request).await.expect("a binding");
    process
}

/// A write that has begun and does not go on: it holds a seat until its body is complete.
struct Unfinished {
    stream: rustls::StreamOwned<rustls::ClientConnection, TcpStream>,
    rest: &'static [u8],
}

impl Unfinished {
    async fn begin(process: &Process, token: &str) -> Unfinished {
        let config = process.config().await;
        let mut roots = rustls::RootCertStore::empty();
        for der in config.root_cert.iter().flatten() {
            roots.add(CertificateDer::from(der.clone())).expect("a certificate");
        }
        let tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let (host, port) = (config.cluster_url.host().expect("a host"), config.cluster_url.port_u16().expect("a port"));
        let name = ServerName::try_from(host.to_owned()).expect("a name");
        let connection = rustls::ClientConnection::new(Arc::new(tls), name).expect("TLS");
        let socket = TcpStream::connect((host, port)).expect("a connection");
        let body = br#"{"metadata": {"name": "held"}}"#;
        let (first, rest) = body.split_at(10);
        let mut stream = rustls::StreamOwned::new(connection, socket);
        let head = format!(
            "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("sent");
        stream.write_all(first).expect("sent");
        stream.flush().expect("sent");
        Unfinished { stream, rest }
    }

    /// Sends the rest and returns the answer.
    fn finish(mut self) -> String {
        self.stream.write_all(self.rest).expect("sent");
        self.stream.flush().expect("sent");
        let mut answer = Vec::new();
        // The server ends the connection without ceremony.
        let _ = self.stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// Returns when somebody holds a seat for writing.
async fn until_held(process: &Process) {
    let admin = process.client().await;
    let start = std::time::Instant::now();
    loop {
        let request = Request::get("/metrics").body(Vec::new()).expect("a request");
        let metrics = admin.request_text(request).await.expect("metrics");
        if metrics.contains("bursar_requests_in_flight{work=\"write\"} 1") {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "nobody came to hold the seat:\n{metrics}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// A client that takes a refusal for an answer instead of trying again.
async fn impatient(process: &Process, token: &str) -> kube::Client {
    let mut config = process.config().await;
    config.default_retry = false;
    config.auth_info = kube::config::AuthInfo { token: Some(token.to_owned().into()), ..Default::default() };
    kube::Client::try_from(config).expect("a client")
}

fn map(name: &str) -> ConfigMap {
    object(json!({"metadata": {"name": name}}))
}

async fn create(client: kube::Client, who: &'static str, at: usize) -> (&'static str, u16, Option<String>) {
    let body = serde_json::to_vec(&map(&format!("{who}-{at}"))).expect("JSON");
    let request = Request::post("/api/v1/namespaces/default/configmaps").header("Content-Type", "application/json");
    let response = client.send(request.body(Body::from(body)).expect("a request")).await.expect("an answer");
    let wait = response.headers().get("Retry-After").and_then(|value| value.to_str().ok()).map(str::to_owned);
    (who, response.status().as_u16(), wait)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seats_are_bounded_and_users_take_turns() {
    const QUEUE: usize = 8;
    let folder = tempfile::tempdir().expect("a folder");
    let process = limited(folder.path(), &format!("{{writesInFlight: 1, queuePerUser: {QUEUE}}}")).await;
    let held = Unfinished::begin(&process, "token-h").await;
    until_held(&process).await;
    let mut asked = tokio::task::JoinSet::new();
    for (who, token) in [("alice", "token-a"), ("bob", "token-b")] {
        // One more than can wait: its refusal says that all the others stand in the queue.
        for at in 0..=QUEUE {
            asked.spawn(create(impatient(&process, token).await, who, at));
        }
        let (refused, code, wait) = asked.join_next().await.expect("an answer").expect("no panic");
        assert_eq!((refused, code, wait.as_deref()), (who, 429, Some("1")));
    }
    // Reads have seats of their own, and the owner needs none.
    let maps: Api<ConfigMap> = Api::namespaced(process.client_with_token("token-a").await, "default");
    maps.list(&ListParams::default()).await.expect("a list");
    let owner: Api<ConfigMap> = Api::namespaced(process.client().await, "default");
    owner.create(&PostParams::default(), &map("owner")).await.expect("the owner does not wait");

    let answer = tokio::task::spawn_blocking(move || held.finish()).await.expect("no panic");
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let mut order = Vec::new();
    while let Some(done) = asked.join_next().await {
        let (who, code, _) = done.expect("no panic");
        assert_eq!(code, 201);
        order.push(who);
    }
    assert_eq!(order.len(), 2 * QUEUE);
    // Alice's were all there before Bob's first; taking turns, half of them is served after it.
    let bobs = order[..QUEUE].iter().filter(|who| **who == "bob").count();
    assert!(bobs >= QUEUE / 4, "{order:?}");
    assert_eq!(process.stop().await, Some(0));
}

/// An object of a size that adds up.
fn large(name: &str, version: usize) -> Value {
    json!({"metadata": {"name": name}, "data": {"version": version.to_string(), "k": "x".repeat(900_000)}})
}

async fn open(client: &kube::Client, path: &str) -> http::Response<Body> {
    let response = client.send(Request::get(path).body(Body::empty()).expect("a request")).await.expect("an answer");
    assert_eq!(response.status(), 200);
    response
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_who_do_not_read_cost_no_memory_and_are_told_so() {
    /// What is kept of history is 64 MB and as much for the lines made of it; allocator and objects come on top.
    const GROWTH_MEGABYTES_MAX: u64 = 400;
    let folder = tempfile::tempdir().expect("a folder");
    // Room for all of them: that they cost nothing is what this is about.
    let process = limited(folder.path(), "{watchesPerUser: 12, answerMebibytes: 4096}").await;
    let admin = process.client().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let write = async |method: &str, path: &str, body: &Value| {
        let request = Request::builder().method(method).uri(path).header("Content-Type", "application/json");
        let request = request.body(body.to_string().into_bytes()).expect("a request");
        admin.request::<Value>(request).await.expect("written")
    };
    for at in 0..10 {
        write("POST", path, &large(&format!("large-{at}"), 0)).await;
    }
    let before = process.peak_megabytes();

    // Watches beyond a user's share are refused; those within it are opened and left alone.
    let alice = impatient(&process, "token-a").await;
    let watch = format!("{path}?watch=1");
    let mut watches = Vec::new();
    for _ in 0..12 {
        watches.push(open(&alice, &watch).await);
    }
    let refused = alice.send(Request::get(&watch).body(Body::empty()).expect("a request")).await.expect("an answer");
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["Retry-After"], "1");
    // Forty lists of nine megabytes, none of them read.
    let mut lists = Vec::new();
    for _ in 0..40 {
        lists.push(open(&alice, path).await);
    }
    // More changes than are remembered.
    for round in 1..=8 {
        for at in 0..10 {
            write("PUT", &format!("{path}/large-{at}"), &large(&format!("large-{at}"), round)).await;
        }
    }
    let growth = process.peak_megabytes().saturating_sub(before);
    assert!(growth <= GROWTH_MEGABYTES_MAX, "the server grew by {growth} MB");

    // A watcher that comes back to its stream finds what was sent, and then that it came too late.
    let slow = watches.swap_remove(0).into_body().collect_bytes().await.expect("the rest");
    let last = slow.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).expect("a line");
    let last: Value = serde_json::from_slice(last).expect("an event");
    assert_eq!((&last["type"], &last["object"]["code"]), (&json!("ERROR"), &json!(410)), "{last}");
    assert_eq!(last["object"]["reason"], "Expired");
    // A list that is read at last is whole.
    let list = lists.swap_remove(0).into_body().collect_bytes().await.expect("the rest");
    let list: Value = serde_json::from_slice(&list).expect("a list");
    assert_eq!(list["items"].as_array().map(Vec::len), Some(11), "ten of ours and the certificates");
    drop((watches, lists));
    assert_eq!(process.stop().await, Some(0));
}

/// A connection that agrees on HTTP/2 and never lets an answer's body through.
async fn windowless(process: &Process) -> hyper::client::conn::http2::SendRequest<String> {
    let config = process.config().await;
    let mut roots = rustls::RootCertStore::empty();
    for der in config.root_cert.iter().flatten() {
        roots.add(CertificateDer::from(der.clone())).expect("a certificate");
    }
    let mut tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let (host, port) = (config.cluster_url.host().expect("a host"), config.cluster_url.port_u16().expect("a port"));
    let name = ServerName::try_from(host.to_owned()).expect("a name");
    let socket = tokio::net::TcpStream::connect((host, port)).await.expect("a connection");
    let stream = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, socket).await.expect("TLS");
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(0);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_lists_that_are_never_let_through_cost_their_user_its_share_and_nobody_memory() {
    /// Before, each held a copy of at least one of the large objects.
    const GROWTH_MEGABYTES_MAX: u64 = 120;
    let folder = tempfile::tempdir().expect("a folder");
    let process = limited(folder.path(), "{answerMebibytes: 512}").await;
    let admin = process.client().await;
    let path = "/api/v1/namespaces/default/configmaps";
    for at in 0..22 {
        let request = Request::post(path).header("Content-Type", "application/json");
        let body = json!({"metadata": {"name": format!("large-{at}")}, "data": {"k": "x".repeat(900_000)}});
        let request = request.body(body.to_string().into_bytes()).expect("a request");
        admin.request::<Value>(request).await.expect("written");
    }
    let before = process.peak_megabytes();
    let sender = windowless(&process).await;
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..300 {
        let mut sender = sender.clone();
        let url = format!("https://localhost{path}");
        let request = Request::get(url).header("Authorization", "Bearer token-a").body(String::new());
        let request = request.expect("a request");
        asked.spawn(async move { sender.send_request(request).await.expect("an answer") });
    }
    // Twenty megabytes each: the share of 64 is three of them. Of the others some wait, and the rest is refused at once.
    let (mut refused, mut held) = (0, Vec::new());
    while refused + held.len() < 300 - 32 {
        let answer = asked.join_next().await.expect("an answer").expect("no panic");
        match answer.status().as_u16() {
            200 => held.push(answer),
            429 => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!(held.len(), 3, "{refused} refused");
    let growth = process.peak_megabytes().saturating_sub(before);
    assert!(growth <= GROWTH_MEGABYTES_MAX, "the server grew by {growth} MB");
    // Another user has a share of its own.
    let maps: Api<ConfigMap> = Api::namespaced(process.client_with_token("token-b").await, "default");
    let whole = maps.list(&ListParams::default()).await.expect("a list");
    assert_eq!(whole.items.len(), 23, "ours and the certificates");
    drop((asked, held, sender));
    assert_eq!(process.stop().await, Some(0));
}

/// Connections are open files, and so is the log: a crowd that nobody knows must not end the server at its next segment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_strangers_takes_no_file_from_the_store() {
    const FILES: u32 = 128;
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start_under(folder.path(), &[], &format!("-n {FILES}")).await;
    let url = process.config().await.cluster_url;
    let address = format!("{}:{}", url.host().expect("a host"), url.port_u16().expect("a port"));
    let maps: Api<ConfigMap> = Api::namespaced(process.client().await, "default");
    let mut crowd = std::collections::VecDeque::new();
    let begun = std::time::Instant::now();
    // More than two segments of the log.
    for number in 0..40 {
        for _ in 0..10 {
            let coming = tokio::net::TcpStream::connect(&address);
            // Those who are not even let in wait outside.
            let come = tokio::time::timeout(std::time::Duration::from_millis(100), coming).await;
            crowd.extend(come.ok().and_then(Result::ok));
        }
        while crowd.len() > 200 {
            crowd.pop_front();
        }
        let map: ConfigMap =
            object(json!({"metadata": {"name": format!("m-{number}")}, "data": {"k": "x".repeat(900_000)}}));
        loop {
            match maps.create(&PostParams::default(), &map).await {
                Ok(_) => break,
                Err(kube::Error::Api(status)) if status.code == 409 => break,
                // It was idle for a moment, and made room.
                Err(error) => assert!(begun.elapsed() < PATIENCE, "map {number}: {error}"),
            }
        }
    }
    assert!(crowd.len() as u32 > FILES, "{} strangers are no crowd", crowd.len());
    drop(crowd);
    assert_eq!(process.stop().await, Some(0));
}

/// A file that may not grow is a full disk: the server says so and lives, and who deletes what is there has room again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_files_may_not_be_long_the_server_lives_as_on_a_full_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    // In units of 512 bytes: a segment of the log, and not the reserve that a snapshot of a full one could need.
    let process = Process::start_under(folder.path(), &[], "-f 36000").await;
    let maps: Api<ConfigMap> = Api::namespaced(process.client().await, "default");
    let map = |number: usize| -> ConfigMap {
        object(json!({"metadata": {"name": format!("m-{number}")}, "data": {"k": "x".repeat(900_000)}}))
    };
    let mut made = 0;
    let refused = loop {
        match maps.create(&PostParams::default(), &map(made)).await {
            Ok(_) => made += 1,
            Err(kube::Error::Api(status)) => break status,
            Err(error) => panic!("after {made}: {error}"),
        }
        assert!(made < 60, "it was never full");
    };
    assert_eq!(refused.code, 507, "{refused:?}");
    for number in 0..made {
        maps.delete(&format!("m-{number}"), &Default::default()).await.expect("deleted");
    }
    let begun = std::time::Instant::now();
    loop {
        match maps.create(&PostParams::default(), &map(made)).await {
            Ok(_) => break,
            Err(kube::Error::Api(status)) if status.code == 507 && begun.elapsed() < PATIENCE => {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            Err(error) => panic!("it stays full: {error}"),
        }
    }
    assert_eq!(process.stop().await, Some(0));
}
