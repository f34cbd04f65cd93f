//! Over the wire: certificates, tokens, refusals, watches, shutdown.

use std::sync::Arc;

use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::Value;

use crate::support::{Client, Running, get, request};

const NOBODY: Client<'static> = Client { certificate: None, http2: false };

fn message(answer: &Value) -> &str {
    answer["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn the_admin_certificate_may_do_everything_over_both_protocols() {
    let running = Running::start().await;
    for http2 in [false, true] {
        let client = Client { certificate: Some(&running.prepared.admin), http2 };
        let (status, answer) = running.prepared.send(client, get("/api/v1/secrets")).await.expect("an answer");
        assert_eq!(status, StatusCode::OK);
        assert_eq!(answer["user"], "kubernetes-admin");
        assert_eq!(answer["groups"], serde_json::json!(["system:masters", "system:authenticated"]));
    }
    running.stop().await;
}

#[tokio::test]
async fn a_tenant_gets_its_namespace_and_nothing_else() {
    let running = Running::start().await;
    running.allow("alice", "team-a", &["list"], &["pods"]);
    let client = Client { certificate: Some(&running.prepared.client), http2: true };
    let cases = [
        ("/api/v1/namespaces/team-a/pods", ""),
        ("/version", ""),
        ("/apis", ""),
        (
            "/api/v1/namespaces/team-b/pods",
            r#"pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "team-b""#,
        ),
        (
            "/api/v1/namespaces/team-a/pods?watch=1",
            r#"pods is forbidden: User "alice" cannot watch resource "pods" in API group "" in the namespace "team-a""#,
        ),
        (
            "/api/v1/namespaces/team-b/resourcequotas/q",
            r#"resourcequotas "q" is forbidden: User "alice" cannot get resource "resourcequotas" in API group "" in the namespace "team-b""#,
        ),
        (
            "/api/v1/pods",
            r#"pods is forbidden: User "alice" cannot list resource "pods" in API group "" at the cluster scope"#,
        ),
        ("/metrics", r#"forbidden: User "alice" cannot get path "/metrics""#),
    ];
    for (path, refusal) in cases {
        let (status, answer) = running.prepared.send(client, get(path)).await.expect("an answer");
        assert_eq!(status == StatusCode::OK, refusal.is_empty(), "{path}: {answer}");
        assert_eq!(message(&answer), refusal, "{path}");
    }
    running.stop().await;
}

#[tokio::test]
async fn anonymous_gets_health_and_nothing_else() {
    let running = Running::start().await;
    for path in ["/livez", "/readyz", "/healthz", "/readyz/ping"] {
        let (status, answer) = running.prepared.send(NOBODY, get(path)).await.expect("an answer");
        assert_eq!((status, answer["user"].as_str()), (StatusCode::OK, Some("system:anonymous")), "{path}");
    }
    for path in
        ["/", "/version", "/api", "/apis", "/openapi/v3", "/metrics", "/api/v1/namespaces", "/livezz", "/debug/audit"]
    {
        let (status, answer) = running.prepared.send(NOBODY, get(path)).await.expect("an answer");
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
        assert!(message(&answer).contains("User \"system:anonymous\" cannot"), "{path}: {answer}");
    }
    running.stop().await;
}

#[tokio::test]
async fn tokens_and_bad_credentials() {
    let running = Running::start_with(|config| config, "secret,bob,1,\"dev,ops\"\n").await;
    let good = request("/version", &[("authorization", "Bearer secret")]);
    let (status, answer) = running.prepared.send(NOBODY, good).await.expect("an answer");
    assert_eq!((status, answer["user"].as_str()), (StatusCode::OK, Some("bob")));
    assert_eq!(answer["credential"], false, "the credential stays in front");
    for bad in ["Bearer wrong", "Bearer", "Basic c2VjcmV0", "secret", "Bearer secret secret"] {
        // Health too: a wrong credential is an error even where none is needed.
        for path in ["/version", "/livez"] {
            let (status, answer) =
                running.prepared.send(NOBODY, request(path, &[("authorization", bad)])).await.expect("an answer");
            assert_eq!((status, message(&answer)), (StatusCode::UNAUTHORIZED, "Unauthorized"), "{bad}");
            assert_eq!(answer["reason"], "Unauthorized");
        }
    }
    running.stop().await;
}

/// A certificate for a part of the server is no credential, whoever signed it and whichever groups it names.
#[tokio::test]
async fn nobody_shows_a_certificate_of_a_part_of_the_server() {
    let running = Running::start().await;
    let client = Client { certificate: Some(&running.prepared.forged), http2: false };
    let (status, answer) = running.prepared.send(client, get("/version")).await.expect("an answer");
    assert_eq!((status, message(&answer)), (StatusCode::UNAUTHORIZED, "Unauthorized"));
    running.stop().await;
}

#[tokio::test]
async fn impersonation_needs_the_right_to() {
    let running = Running::start().await;
    let admin = Client { certificate: Some(&running.prepared.admin), http2: false };
    let alice = Client { certificate: Some(&running.prepared.client), http2: false };
    let as_user = |user| request("/version", &[("impersonate-user", user), ("impersonate-group", "qa")]);
    let (_, answer) = running.prepared.send(admin, as_user("carol")).await.expect("an answer");
    assert_eq!(
        (answer["user"].as_str(), &answer["groups"]),
        (Some("carol"), &serde_json::json!(["qa", "system:authenticated"]))
    );
    // A part of the server is nobody, not even for who may everything.
    let part =
        request("/version", &[("impersonate-user", "system:bursar:orgs"), ("impersonate-group", "system:masters")]);
    assert_eq!(running.prepared.send(admin, part).await.expect("an answer").0, StatusCode::FORBIDDEN);
    let (status, answer) = running.prepared.send(alice, as_user("carol")).await.expect("an answer");
    assert_eq!(status, StatusCode::FORBIDDEN);
    let expected = r#"users "carol" is forbidden: User "alice" cannot impersonate resource "users" in API group "" at the cluster scope"#;
    assert_eq!(message(&answer), expected);
    // The impersonated user's rights count, not the owner's.
    let secrets = request("/api/v1/secrets", &[("impersonate-user", "carol")]);
    assert_eq!(running.prepared.send(admin, secrets).await.expect("an answer").0, StatusCode::FORBIDDEN);
    let account = request("/version", &[("impersonate-user", "system:serviceaccount:team-a:ci")]);
    let (_, answer) = running.prepared.send(admin, account).await.expect("an answer");
    let groups = ["system:serviceaccounts", "system:serviceaccounts:team-a", "system:authenticated"];
    assert_eq!(answer["groups"], serde_json::json!(groups));
    for headers in [&[("impersonate-group", "qa")][..], &[("impersonate-user", "x"), ("impersonate-shoe", "size")][..]]
    {
        let (status, _) = running.prepared.send(admin, request("/version", headers)).await.expect("an answer");
        assert_eq!(status, StatusCode::BAD_REQUEST);
    }
    running.stop().await;
}

#[tokio::test]
async fn watches_are_counted_and_end_with_the_server() {
    let running = Running::start_with(
        |mut config| {
            config.limits.watches_per_user = 1;
            config
        },
        "",
    )
    .await;
    running.allow("alice", "team-a", &["watch"], &["pods"]);
    let alice = Client { certificate: Some(&running.prepared.client), http2: true };
    let path = "/api/v1/namespaces/team-a/pods?watch=1";
    let mut first = running.prepared.open(alice, get(path)).await.expect("a watch").into_body();
    assert!(first.frame().await.expect("an event").is_ok());
    let refused = running.prepared.open(alice, get(path)).await.expect("an answer");
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["retry-after"], "1");
    running.closing.cancel();
    // The stream ends as a stream should, not as a broken connection.
    let rest = first.collect().await.expect("a clean end of the stream");
    assert!(rest.to_bytes().is_empty());
    running.stop().await;
}

#[tokio::test]
async fn stopping_finishes_what_is_under_way_and_takes_nothing_new() {
    let running = Running::start().await;
    for http2 in [false, true] {
        let client = Client { certificate: Some(&running.prepared.admin), http2 };
        let (request, begun) = (running.prepared.send(client, get("/slow")), running.slow.begun.notified());
        tokio::pin!(request);
        tokio::select! {
            answer = &mut request => panic!("not slow: {answer:?}"),
            () = begun => {}
        }
        if !http2 {
            running.slow.release.notify_one();
            assert_eq!(request.await.expect("an answer").0, StatusCode::OK);
            continue;
        }
        running.closing.cancel();
        assert!(running.prepared.send(client, get("/livez")).await.is_err(), "a new connection after the end");
        running.slow.release.notify_one();
        assert_eq!(request.await.expect("the answer under way").0, StatusCode::OK);
    }
    running.stop().await;
}

#[tokio::test]
async fn stopping_does_not_wait_forever() {
    let running = Running::start_with(
        |mut config| {
            config.limits.drain_seconds = 0;
            config
        },
        "",
    )
    .await;
    let (facts, slow) = (Arc::clone(&running.prepared), Arc::clone(&running.slow));
    let client = Client { certificate: Some(&facts.admin), http2: false };
    let (request, begun) = (facts.send(client, get("/slow")), slow.begun.notified());
    tokio::pin!(request);
    tokio::select! {
        answer = &mut request => panic!("not slow: {answer:?}"),
        () = begun => {}
    }
    running.closing.cancel();
    assert!(request.await.is_err(), "the connection is closed without an answer");
    running.stop().await;
}

#[tokio::test]
async fn clients_of_another_authority_and_plain_text_are_turned_away() {
    let (running, other) = (Running::start().await, Running::start().await);
    let foreign = Client { certificate: Some(&other.prepared.admin), http2: false };
    assert!(running.prepared.send(foreign, get("/livez")).await.is_err());
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", running.prepared.port)).await.expect("connects");
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, axum::body::Body>(io).await.expect("starts");
    tokio::spawn(connection);
    assert!(sender.send_request(get("/livez")).await.is_err());
    running.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn huge_headers_are_refused_without_reading_on() {
    let running = Running::start().await;
    for http2 in [false, true] {
        let client = Client { certificate: None, http2 };
        let long = "x".repeat(200 * 1024);
        let outcome = running.prepared.send(client, request("/livez", &[("x-long", &long)])).await;
        assert!(outcome.map_or(true, |(status, _)| status == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
    }
    running.stop().await;
}
