//! How much is kept of what happened: what one organization may have told in an hour, and events that go when all take too much room.

use std::time::Instant;

use serde_json::{Value, json};

use super::command_line::orgs;
use super::platform::{Platform, of_env, scale, try_send};
use super::rights::member;
use crate::harness::{PATIENCE, Server};

/// The built-in tiers, of which `standard` says how many bytes of events there may be.
fn tiers(event_bytes: Value) -> Value {
    let mut all: serde_json::Map<String, Value> = families::orgs::tiers::built_in().into_iter().collect();
    all["standard"]["event_bytes_per_hour"] = event_bytes;
    json!({"tiers": all})
}

fn configured(event_bytes: Value, orgs: &str) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, configuration) = (folder.path().join("tiers.yaml"), folder.path().join("bursar.yaml"));
    std::fs::write(&file, tiers(event_bytes).to_string()).expect("a file of tiers");
    std::fs::write(&configuration, format!("orgs:\n  tiers: {}\n{orgs}", file.display())).expect("a configuration");
    let server = Server::start_with(&["--config", &configuration.display().to_string()]);
    (folder, server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_organization_that_tells_too_much_waits_and_nobody_else_does() {
    let (_folder, server) = configured(json!(1 << 20), "");
    let mut platform = Platform::on(server, &[], false).await;
    platform.done("POST /v1/orgs", json!({"id": "other", "tier": "standard"})).await;
    let member = member(&mut platform).await;
    platform.done(&format!("POST {}", of_env("prod", "deploys")), json!({"release": 1})).await;
    let line = format!("PUT {}", of_env("prod", "scale"));
    let mut told = 0;
    let refused = loop {
        let (code, answer) = try_send(&member, &line, &scale(1 + told % 2), None).await.expect("an answer");
        if code != 200 {
            assert_eq!(code, 429, "{answer}");
            break answer;
        }
        told += 1;
        assert!(told < 5000, "it is never too much");
    };
    assert_eq!((&refused["code"], &refused["retryable"]), (&json!("rate_limited"), &json!(true)), "{refused}");
    assert!(refused["retry_after_seconds"].as_i64().is_some_and(|seconds| (1..=3601).contains(&seconds)), "{refused}");
    let bytes: usize = platform.events().await.iter().map(|event| event.to_string().len()).sum();
    assert!((1 << 20..2 << 20).contains(&bytes), "{bytes} bytes are told");
    // What would happen may be asked, what is there goes, operators act, and others do not even notice.
    for (line, body, wanted) in [
        (format!("{line}?dry_run=true"), scale(3), 200),
        ("POST /v1/orgs/acme/apps".to_owned(), json!({"name": "late"}), 429),
    ] {
        let (code, answer) = try_send(&member, &line, &body, None).await.expect("an answer");
        assert_eq!(code, wanted, "{line}: {answer}");
    }
    let output = orgs(&platform.server, &["create-app", "--org", "acme", "--name", "late"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("rate_limited") && said.contains("try again in"), "{said}");
    platform.limit("max_apps", 7).await;
    platform.done("PUT /v1/orgs/acme/tier", json!({"tier": "scale", "reason": "more"})).await;
    platform.done("POST /v1/orgs/other/apps", json!({"name": "shop"})).await;
    // Another tier counts a moment later.
    let start = Instant::now();
    while try_send(&member, "POST /v1/orgs/acme/apps", &json!({"name": "late"}), None).await.expect("an answer").0
        != 201
    {
        assert!(start.elapsed() < PATIENCE, "the tier is not looked at");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_events_go_and_views_are_made_again_from_what_is_left() {
    let (_folder, server) = configured(json!("unlimited"), "  eventBytes: 300000\n");
    let mut platform = Platform::on(server, &["n1"], true).await;
    platform.done("POST /v1/orgs", json!({"id": "gone", "tier": "standard"})).await;
    platform.done("POST /v1/orgs/gone/apps", json!({"name": "shop"})).await;
    platform.done(&format!("POST {}", of_env("prod", "deploys")), json!({"release": 1})).await;
    platform.until_ready("prod", 1).await;
    let (mut round, start) = (0, Instant::now());
    let first = loop {
        for _ in 0..40 {
            round += 1;
            platform.done(&format!("PUT {}", of_env("prod", "scale")), scale(1 + round % 2)).await;
        }
        // What comes and goes while views are written down.
        let app = format!("a{}", round % 7);
        platform.send("POST /v1/orgs/acme/apps", json!({"name": app})).await;
        platform.send(&format!("DELETE /v1/orgs/acme/apps/a{}", (round + 3) % 7), Value::Null).await;
        if round == 400 {
            platform.done("DELETE /v1/orgs/gone/apps/shop", Value::Null).await;
            platform.done("DELETE /v1/orgs/gone", Value::Null).await;
        }
        let events = platform.get("/v1/events?limit=1").await;
        let first = events["items"][0]["event_id"].as_u64().expect("an event");
        if first > 1 && round > 1000 {
            break first;
        }
        assert!(start.elapsed() < PATIENCE, "no event goes");
    };
    let inventory = platform.get("/v1/inventory").await;
    assert!(inventory["as_of_event_id"].as_u64().is_some_and(|as_of| as_of >= first), "{first}: {inventory}");
    let rebuilds = |server: &Server| {
        let output = orgs(server, &["rebuild"]);
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(output.status.success() && said.contains("after event"), "{said}");
    };
    rebuilds(&platform.server);
    // The next process knows what was written down.
    platform.kill();
    platform.until("GET /v1/inventory", &Value::Null, |(_, page)| page["as_of_event_id"].as_u64() > Some(0)).await;
    rebuilds(&platform.server);
}
