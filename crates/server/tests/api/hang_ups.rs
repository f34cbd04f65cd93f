//! Clients that hang up: whatever a request waits for when its client leaves, it is done as a whole or not at all, and nobody
//! after it pays for it.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use http::StatusCode;
use serde_json::Value;

use crate::harness::{Server, request};

/// More than a request ever waits for, and more tries than it takes until the server is not quicker than the client.
const WAITS_MAX: usize = 40;
const TRIES_MAX: usize = 100;
/// Reads until nothing was written between them.
const READS_MAX: usize = 100;

/// More objects than are counted again in one step, so that a quota over them is counted before it is written.
const MANY: usize = 2_100;

/// A request, its body, and what is made before it. `@` is another number each time.
type Asked = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const CONTAINER: &str = r#"{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}"#;
const POD: (&str, &str) =
    ("POST /api/v1/namespaces/a/pods", r#"{"metadata": {"name": "p@"}, "spec": {"containers": [CONTAINER]}}"#);
const NAMELESS: (&str, &str) = (
    "POST /api/v1/namespaces/a/pods",
    r#"{"metadata": {"generateName": "g-", "labels": {"g": "@"}}, "spec": {"containers": [CONTAINER]}}"#,
);
const SERVICE: (&str, &str) = (
    "POST /api/v1/namespaces/a/services",
    r#"{"metadata": {"name": "s@"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}"#,
);
const NAMESPACE: (&str, &str) = ("POST /api/v1/namespaces", r#"{"metadata": {"name": "n@"}}"#);

/// A quota over few and one over many, then every way through the server.
const REQUESTS: [Asked; 17] = [
    (
        "POST /api/v1/namespaces/a/resourcequotas",
        r#"{"metadata": {"name": "q@"}, "spec": {"hard": {"pods": "1000", "requests.cpu": "1000"}}}"#,
        &[],
    ),
    (
        "POST /api/v1/namespaces/a/resourcequotas",
        r#"{"metadata": {"name": "many@"}, "spec": {"hard": {"count/configmaps": "9000"}}}"#,
        &[],
    ),
    (POD.0, POD.1, &[]),
    (NAMELESS.0, NAMELESS.1, &[]),
    (SERVICE.0, SERVICE.1, &[]),
    (NAMESPACE.0, NAMESPACE.1, &[]),
    (
        "PUT /api/v1/namespaces/a/pods/p@",
        r#"{"metadata": {"name": "p@", "labels": {"n": "@"}}, "spec": {"containers": [CONTAINER]}}"#,
        &[POD],
    ),
    (
        "PATCH /api/v1/namespaces/a/pods/p@ Content-Type:application/merge-patch+json",
        r#"{"metadata": {"labels": {"m": "@"}}}"#,
        &[POD],
    ),
    (
        "PATCH /api/v1/namespaces/a/pods/p@ Content-Type:application/strategic-merge-patch+json",
        r#"{"metadata": {"labels": {"s": "@"}}}"#,
        &[POD],
    ),
    (
        "PATCH /api/v1/namespaces/a/pods/applied?fieldManager=test&force=true Content-Type:application/apply-patch+yaml",
        r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "applied", "labels": {"n": "@"}}, "spec": {"containers": [CONTAINER]}}"#,
        &[],
    ),
    (
        "PATCH /api/v1/namespaces/a/pods/p@/status Content-Type:application/merge-patch+json",
        r#"{"status": {"phase": "Running", "message": "@"}}"#,
        &[POD],
    ),
    (
        "POST /api/v1/namespaces/a/pods/p@/eviction",
        r#"{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p@"}}"#,
        &[POD],
    ),
    ("DELETE /api/v1/namespaces/a/services/s@", "", &[SERVICE]),
    ("DELETE /api/v1/namespaces/n@", "", &[NAMESPACE]),
    ("DELETE /api/v1/namespaces/a/pods?labelSelector=g%3D@", "", &[NAMELESS, NAMELESS]),
    ("DELETE /api/v1/namespaces/a/pods/p@?gracePeriodSeconds=0", "", &[POD]),
    ("POST /api/v1/namespaces/a/pods?dryRun=All", POD.1, &[]),
];

fn fill(text: &str, number: usize) -> String {
    text.replace("CONTAINER", CONTAINER).replace('@', &number.to_string())
}

async fn ask(server: &Server, (line, body): (&str, &str), number: usize) -> StatusCode {
    let line = fill(line, number);
    let reply = server.send(request(&line, &fill(body, number))).await;
    assert!(reply.code.is_success(), "{line}: {} {}", reply.code, reply.text);
    reply.code
}

/// Asks, and leaves when the answer was waited for so often; whether it came before.
pub async fn leave(server: &Server, asked: (&str, &str), number: usize, waits: usize) -> bool {
    let (mut answer, mut seen) = (pin!(ask(server, asked, number)), 0);
    poll_fn(|context| match answer.as_mut().poll(context) {
        Poll::Ready(_) => Poll::Ready(true),
        Poll::Pending if seen == waits => Poll::Ready(false),
        Poll::Pending => {
            seen += 1;
            Poll::Pending
        }
    })
    .await
}

/// What is there, and as of which revision.
async fn list(server: &Server, resource: &str) -> (Value, Vec<Value>) {
    let reply = server.send(request(&format!("GET /api/v1/namespaces/a/{resource}"), "")).await;
    (reply.value["metadata"]["resourceVersion"].clone(), reply.value["items"].as_array().cloned().expect("a list"))
}

/// How many pods and ConfigMaps there are, and the quotas, all at one moment: what somebody left may be done between two reads.
async fn at_one_moment(server: &Server) -> (usize, usize, Vec<Value>) {
    for _ in 0..READS_MAX {
        let (first, pods) = list(server, "pods").await;
        let (_, many) = list(server, "configmaps").await;
        let (last, quotas) = list(server, "resourcequotas").await;
        if first == last {
            return (pods.len(), many.len(), quotas);
        }
    }
    panic!("something is written all the time");
}

/// Every quota says what its namespace has, and the audit finds nothing.
async fn compare(server: &Server, after: &str) {
    // Whatever was submitted before this is decided before it.
    ask(server, ("POST /api/v1/namespaces/a/secrets", r#"{"metadata": {"generateName": "s-"}}"#), 0).await;
    let (pods, many, quotas) = at_one_moment(server).await;
    let amount = |text: &str| text.parse::<quantity::Quantity>().expect("a quantity").amount();
    for quota in quotas {
        for (resource, used) in quota["status"]["used"].as_object().into_iter().flatten() {
            let counted = match &**resource {
                "pods" => pods.to_string(),
                "requests.cpu" => format!("{}m", pods * 100),
                _ => many.to_string(),
            };
            let used = used.as_str().map(amount);
            assert_eq!(used, Some(amount(&counted)), "{resource} of {} after {after}", quota["metadata"]["name"]);
        }
    }
    let audit = server.send(request("GET /debug/audit", "")).await;
    assert_eq!(audit.value["differences"], serde_json::json!([]), "after {after}: {}", audit.text);
}

#[tokio::test]
async fn a_request_that_is_left_at_any_wait_is_done_wholly_or_not_at_all() {
    let server = Server::start();
    server.play("POST /api/v1/namespaces\n  {\"metadata\": {\"name\": \"a\"}}\n  201").await;
    for number in 0..MANY {
        ask(&server, ("POST /api/v1/namespaces/a/configmaps", r#"{"metadata": {"name": "m@"}}"#), number).await;
    }
    let (mut number, mut left) = (0, Vec::new());
    for (line, body, before) in REQUESTS {
        let (mut waits, mut tries) = (0, 0);
        // Later and later, until it is answered first.
        while tries < TRIES_MAX {
            assert!(waits < WAITS_MAX, "{line} waits without an end");
            number += 1;
            for made in before {
                ask(&server, *made, number).await;
            }
            match leave(&server, (line, body), number, waits).await {
                false => waits += 1,
                true if waits > 0 => break,
                true => tries += 1,
            }
            compare(&server, &format!("{line} left at wait {waits}")).await;
        }
        left.push(waits);
    }
    assert!(left.iter().all(|waits| *waits > 0), "{left:?}");
    // The quota over many is also left between the slices in which they are counted.
    assert!(left[1] > left[0] + 5, "{left:?}");
}
