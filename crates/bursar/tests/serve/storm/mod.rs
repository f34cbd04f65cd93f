//! A storm of edits: two hundred clients write objects and edit, delete and re-create every kind of policy, while the
//! process is killed three times. At rest, and again after a restart, every number that a policy shows is what an
//! independent recount of the stored objects says.
//!
//! [`actions`] draws what clients do, [`recount`] adds up what is there. Neither shares code with what charges.

mod actions;
mod recount;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Request;
use kube::Client;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use simulator::rng::Rng;
use tokio::task::JoinSet;

use crate::harness::{PATIENCE, Server};

const CLIENTS: usize = 200;
const WRITES_EACH: usize = 6;
const KILLS: usize = 3;
/// How often a client finds nobody before something is wrong.
const UNANSWERED_MAX: usize = 600;
pub const NAMESPACES: usize = 6;

/// One request; `None` when nobody answered, which says nothing about whether it was done.
pub async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("Content-Type", kind);
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = request.body(Body::from(bytes)).expect("a request");
    let answer = tokio::time::timeout(Duration::from_secs(20), client.send(request)).await.ok()?.ok()?;
    let code = answer.status().as_u16();
    let text = answer.into_body().collect_bytes().await.ok()?;
    Some((code, serde_json::from_slice(&text).unwrap_or(Value::Null)))
}

async fn config(server: &Server) -> kube::Config {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).expect("a kubeconfig");
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("config");
    config.connect_timeout = Some(Duration::from_secs(2));
    config
}

/// Every client does its share, whatever the answers are; the process is killed meanwhile.
async fn rage(server: Server, seed: u64) -> Server {
    let taken = Arc::new(Mutex::new(BTreeMap::<String, usize>::new()));
    let config = config(&server).await;
    let admin = Client::try_from(config.clone()).expect("a client");
    for number in 0..NAMESPACES {
        let labels = json!({"tier": if number % 2 == 0 { "gold" } else { "silver" }, "team": "a"});
        let namespace = json!({"metadata": {"name": format!("n{number}"), "labels": labels}});
        let made = send(&admin, "POST", "/api/v1/namespaces", &namespace).await;
        assert_eq!(made.map(|(code, _)| code), Some(201));
    }
    let mut rng = Rng::new(seed);
    let done = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (client, mut rng) = (Client::try_from(config.clone()).expect("a client"), rng.fork());
        let (done, taken) = (Arc::clone(&done), Arc::clone(&taken));
        clients.spawn(async move {
            let (mut written, mut unanswered) = (0, 0);
            while written < WRITES_EACH {
                let action = actions::draw(&mut rng);
                // Nobody answers while the server is down; the next write is tried when it is back.
                let Some((code, answer)) = send(&client, action.method, &action.path, &action.body).await else {
                    unanswered += 1;
                    assert!(unanswered < UNANSWERED_MAX, "the server does not come back");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                written += 1;
                done.fetch_add(1, Ordering::Relaxed);
                // Refusals are part of it. What a client must never be told is that the server has a bug.
                assert!(code != 500, "{} {} {}: {answer}", action.method, action.path, action.body);
                if code < 300 {
                    let kind = action.path.split('/').rfind(|word| word.ends_with('s')).unwrap_or_default();
                    let mut taken = taken.lock().expect("nobody panics with it");
                    *taken.entry(format!("{} {kind}", action.method)).or_default() += 1;
                }
            }
        });
    }
    let killing = tokio::task::spawn_blocking({
        let done = Arc::clone(&done);
        move || {
            let mut server = server;
            for kill in 1..=KILLS {
                let at = CLIENTS * WRITES_EACH * kill / (KILLS + 1);
                let begun = Instant::now();
                while done.load(Ordering::Relaxed) < at {
                    assert!(begun.elapsed() < PATIENCE, "the storm has stopped by itself");
                    std::thread::sleep(Duration::from_millis(5));
                }
                server.kill_and_restart();
            }
            server
        }
    });
    while let Some(ended) = clients.join_next().await {
        ended.expect("a client panicked");
    }
    let taken = taken.lock().expect("nobody panics with it").clone();
    // A storm in which a kind is never made, or never edited, proves nothing about it.
    let kinds = ["pods", "configmaps", "resourcepoolclaims", "resourcequotas", "resourcepools", "customquotas"];
    for kind in kinds {
        // What was deleted had been made, though a kill may have kept the answer.
        let made = ["POST", "DELETE"].iter().any(|method| taken.contains_key(&format!("{method} {kind}")));
        assert!(made, "seed {seed} made no {kind}: {taken:?}");
    }
    killing.await.expect("kills")
}

/// Asks until what is shown is what is there: controllers and published statuses have a moment.
async fn settles(server: &Server, seed: u64, when: &str) {
    let admin = Client::try_from(config(server).await).expect("a client");
    let begun = Instant::now();
    loop {
        let wrong = recount::differences(&admin).await;
        if wrong.is_empty() {
            break;
        }
        if begun.elapsed() >= PATIENCE {
            let audit = send(&admin, "GET", "/debug/audit", &Value::Null).await.map(|(_, report)| report);
            panic!("seed {seed}, {when}:\n{}\nthe audit says {audit:?}", wrong.join("\n"));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let audit = send(&admin, "GET", "/debug/audit", &Value::Null).await;
    let (code, report) = audit.expect("an answer");
    assert_eq!(code, 200, "{report}");
    assert_eq!(report["differences"], json!([]), "seed {seed}, {when}: {report}");
}

async fn weather(seed: u64) {
    let server = tokio::task::spawn_blocking(Server::start).await.expect("starts");
    let mut server = rage(server, seed).await;
    settles(&server, seed, "at rest").await;
    server = tokio::task::spawn_blocking(move || {
        server.kill_and_restart();
        server
    })
    .await
    .expect("restarts");
    settles(&server, seed, "after a restart").await;
}

/// `STORM_SEEDS=from..to` runs others than the twenty that every test run has.
fn seeds() -> std::ops::Range<u64> {
    let asked = std::env::var("STORM_SEEDS").ok();
    let range = asked.as_deref().and_then(|text| text.split_once(".."));
    let number = |text: &str| text.parse::<u64>().expect("STORM_SEEDS is FROM..TO");
    range.map_or(0..20, |(from, to)| number(from)..number(to))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_number_is_right_after_a_storm_of_edits() {
    for seed in seeds() {
        weather(seed).await;
    }
}
