//! Long work has turns: while others have them all, what is long waits and what is short does not.

use axum::body::Body;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use http::{Request, Response};
use http_body_util::BodyExt;
use server::identity::Identity;
use server::inflight::{Seat, Turns};
use tower::Service;

use crate::harness::{Server, request};

const MAPS: &str = "/api/v1/namespaces/a/configmaps";
const SECRETS: &str = "/api/v1/namespaces/a/secrets";
const TABLE: &str = "Accept:application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "Accept:application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// Takes every turn there is, each for another user.
fn take_all(turns: &Turns) -> Vec<Seat> {
    let user = |at: usize| Identity::authenticated(format!("busy-{at}"), [""; 0]);
    let taken = (0..).map_while(|at| turns.take(&user(at)).now_or_never());
    taken.map(|turn| turn.expect("a turn")).collect()
}

async fn filled() -> Server {
    let server = Server::start();
    server.play("POST /api/v1/namespaces\n  {\"metadata\": {\"name\": \"a\"}}\n  201").await;
    for name in ["a-short", "long", "y-short"] {
        let text = "eHh4".repeat(if name == "long" { 30_000 } else { 3 });
        let body = |more: &str| {
            format!(
                r#"{{"metadata": {{"name": "{name}", "labels": {{"in": "view"}}}}, {more} "data": {{"a": "{text}"}}}}"#
            )
        };
        server.play(&format!("POST {MAPS}\n  {}\n  201", body(""))).await;
        server.play(&format!("POST {SECRETS}\n  {}\n  201", body(r#""type": "t","#))).await;
    }
    server
}

async fn answer(server: &Server, line: &str, body: &str) -> Response<Body> {
    let request: Request<Body> = request(line, body);
    server.admin().call(request).await.expect("infallible")
}

async fn text(server: &Server, line: &str, body: &str) -> String {
    let body = answer(server, line, body).await.into_body().collect().await.expect("a body");
    String::from_utf8(body.to_bytes().to_vec()).expect("text")
}

#[tokio::test]
async fn what_is_long_waits_for_a_turn_and_what_is_short_does_not() {
    let server = filled().await;
    let long = [
        format!("GET {MAPS} {TABLE}"),
        format!("GET {MAPS}?includeObject=None {TABLE}"),
        format!("GET {MAPS} {METADATA}"),
        format!("GET {MAPS}/long {TABLE}"),
        format!("GET {SECRETS}?fieldSelector=type%3Dother"),
        format!("GET {SECRETS}?fieldSelector=type%3Dt&limit=1"),
        format!("DELETE {SECRETS}?fieldSelector=type%3Dother"),
        format!("GET {SECRETS}?watch=true&timeoutSeconds=1&fieldSelector=type%3Dother"),
        format!("DELETE {MAPS}/long?dryRun=All"),
        format!("DELETE {MAPS}?dryRun=All"),
        format!("PATCH {MAPS}/long?dryRun=All Content-Type:application/merge-patch+json"),
    ];
    let short = [
        format!("GET {MAPS}"),
        format!("GET {MAPS}/long"),
        format!("GET {MAPS}/a-short {TABLE}"),
        format!("GET {MAPS}?labelSelector=in%3Dnothing {TABLE}"),
        format!("GET {SECRETS}?fieldSelector=metadata.name%3Dlong"),
    ];
    let body = |line: &str| if line.starts_with("PATCH") { r#"{"data": {"b": "c"}}"# } else { "" };
    let turns = [&server.api.long().requests, &server.api.long().streams];
    let held: Vec<Seat> = turns.into_iter().flat_map(take_all).collect();
    for line in &short {
        assert!(text(&server, line, "").now_or_never().is_some(), "{line} waited");
    }
    let mut waiting: Vec<_> = long.iter().map(|line| (line, Box::pin(text(&server, line, body(line))))).collect();
    for (line, answer) in &mut waiting {
        assert!(answer.now_or_never().is_none(), "{line} did not wait");
    }
    drop(held);
    for (line, answer) in waiting {
        let said = answer.await;
        assert!(!said.contains("\"Failure\""), "{line}: {said}");
    }
}

/// Turns or not, a list is what it is, with long and short objects in any order.
#[tokio::test]
async fn a_list_of_long_and_short_objects_is_whole() {
    let server = filled().await;
    for line in [format!("GET {MAPS} {TABLE}"), format!("GET {MAPS} {METADATA}"), format!("GET {MAPS}")] {
        let said: serde_json::Value = serde_json::from_str(&text(&server, &line, "").await).expect("JSON");
        let listed = said.get("rows").or_else(|| said.get("items")).and_then(|list| list.as_array());
        let name = |item: &serde_json::Value| {
            let object = item.get("object").unwrap_or(item);
            object["metadata"]["name"].as_str().map(str::to_owned)
        };
        let names: Vec<String> = listed.into_iter().flatten().filter_map(name).collect();
        assert_eq!(names, ["a-short", "long", "y-short"], "{line}");
    }
}

/// Every watcher that chooses by what it has to read, reads each change for itself; so does one from whose view an object goes.
#[tokio::test]
async fn watchers_of_long_objects_wait_for_turns_and_others_do_not() {
    let server = filled().await;
    let version = text(&server, &format!("GET {MAPS}/a-short"), "").await;
    let version: serde_json::Value = serde_json::from_str(&version).expect("JSON");
    let from = format!("watch=true&resourceVersion={}", version["metadata"]["resourceVersion"].as_str().expect("one"));
    server
        .play(&format!(
            "PATCH {MAPS}/long Content-Type:application/merge-patch+json\n  {{\"metadata\": {{\"labels\": {{\"in\": \"no\"}}}}}}\n  200"
        ))
        .await;
    let waits = [
        format!("GET {MAPS}?{from}&fieldSelector=metadata.name%3Dlong {TABLE}"),
        format!("GET {SECRETS}?{from}&fieldSelector=type%3Dt,metadata.name%3Dlong"),
        format!("GET {MAPS}?{from}&labelSelector=in%3Dview,a!%3Db&fieldSelector=metadata.name%3Dlong"),
    ];
    let not = [format!("GET {MAPS}?{from}"), format!("GET {MAPS}?{from}&labelSelector=in%3Dno")];
    let held = take_all(&server.api.long().streams);
    let mut waiting = Vec::new();
    for line in &waits {
        let mut events = answer(&server, line, "").await.into_body();
        while let Some(frame) = events.frame().now_or_never() {
            frame.expect("a watch that goes on").expect("an event");
        }
        waiting.push((line, events));
    }
    for line in &not {
        let mut events = answer(&server, line, "").await.into_body();
        assert!(events.frame().now_or_never().flatten().is_some_and(|frame| frame.is_ok()), "{line} waited");
    }
    drop(held);
    for (line, mut events) in waiting {
        let frame = events.frame().await.expect(line).expect("an event");
        assert!(!frame.into_data().expect("data").is_empty(), "{line}");
    }
}

/// Users have their turns at what is counted before a write, too: whoever has many such writes under way waits behind himself.
#[tokio::test]
async fn writes_that_count_much_are_prepared_user_by_user() {
    let server = Server::start();
    server.play("POST /api/v1/namespaces\n  {\"metadata\": {\"name\": \"a\"}}\n  201").await;
    for name in ["one", "two", "three"] {
        let text = "x".repeat(400_000);
        server
            .play(&format!(
                r#"POST {MAPS}
  {{"metadata": {{"name": "{name}"}}, "data": {{"a": "{text}"}}}}
  201"#
            ))
            .await;
    }
    let turn = take_all(&server.api.long().stagings);
    let create = |name: String, user: &'static str| {
        let body = format!(r#"{{"metadata": {{"name": "{name}"}}, "spec": {{"hard": {{"count/configmaps": "9"}}}}}}"#);
        let mut service = server.as_user(user, &["system:masters"]);
        async move { service.call(request("POST /api/v1/namespaces/a/resourcequotas", &body)).await.expect("infallible") }
    };
    let loud = (0..6).map(|at| async move { ("loud", create(format!("loud-{at}"), "loud").await) }.boxed_local());
    let quiet = async { ("quiet", create("quiet".into(), "quiet").await) }.boxed_local();
    let mut all: FuturesUnordered<_> = loud.chain([quiet]).collect();
    // All of them wait in line, and nobody else does.
    for _ in 0..200 {
        assert!(all.next().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    server.play("POST /api/v1/namespaces/a/secrets\n  {\"metadata\": {\"name\": \"s\"}}\n  201").await;
    assert!(all.next().now_or_never().is_none());
    drop(turn);
    let mut order = Vec::new();
    while let Some((name, made)) = all.next().await {
        assert_eq!(made.status(), 201);
        order.push(name);
    }
    let place = order.iter().position(|name| *name == "quiet");
    assert!(place.is_some_and(|place| place < 3), "{order:?}");
}
