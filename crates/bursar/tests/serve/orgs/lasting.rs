//! What outlives the process: leases, hourly windows, and tiers that are read again while it runs.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use super::platform::{Platform, client_of, of_env, try_send};
use crate::harness::{PATIENCE, Server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crashed_client_and_a_killed_server_leak_no_stream() {
    let mut platform = Platform::start(&[], true).await;
    platform.limit("max_log_streams", 1).await;
    let path = of_env("prod", "logs/stream");
    let request = http::Request::get(&path).body(kube::client::Body::empty()).expect("a request");
    let stream = platform.client.send(request).await.expect("a stream");
    assert_eq!(stream.status(), 200);
    assert_eq!(platform.usage("max_log_streams").await.0, 1);
    // No second one comes under the same lease, whatever it is asked with.
    for line in [format!("GET {path}?dry_run=true"), format!("GET {path}")] {
        for key in [None, Some("again")] {
            let (code, refused) = try_send(&platform.client, &line, &Value::Null, key).await.expect("an answer");
            assert_eq!(code, 409, "{line}: {refused}");
        }
    }
    platform.kill();
    // Whoever read it is gone with the connection, and nobody told the server that starts.
    drop(stream);
    assert_eq!(platform.usage("max_log_streams").await.0, 1, "the lease is durable");
    let (code, refused) = platform.send(&format!("GET {path}"), Value::Null).await;
    assert_eq!((code, &refused["details"]["dimension"]), (409, &json!("max_log_streams")), "{refused}");
    // It passes by itself: it is nobody's to close.
    let free = |(_, usage): &(u16, Value)| {
        let rows = usage["items"].as_array().into_iter().flatten();
        rows.into_iter().any(|row| row["dimension"] == "max_log_streams" && row["usage"] == 0)
    };
    platform.until("GET /v1/orgs/acme/usage", &Value::Null, free).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_hour_of_grants_is_counted_through_kills() {
    let mut platform = Platform::start(&["n1"], true).await;
    platform.done(&format!("POST {}", of_env("prod", "deploys")), json!({"release": 1})).await;
    let instance = platform.until_ready("prod", 1).await.remove(0)["id"].as_str().expect("an id").to_owned();
    platform.limit("max_exec_sessions_per_hour", 2).await;
    let grant = format!("POST /v1/orgs/acme/instances/{instance}/exec");
    for _ in 0..2 {
        let (code, session) = platform.struck(&grant, Value::Null).await;
        assert_eq!(code, 201, "{session}");
        let id = session["id"].as_str().expect("an id").to_owned();
        platform.done(&format!("DELETE /v1/orgs/acme/exec-sessions/{id}"), Value::Null).await;
    }
    platform.kill();
    let (code, refused) = platform.send(&grant, Value::Null).await;
    assert_eq!((code, &refused["code"]), (409, &json!("quota_exceeded")), "{refused}");
    let details = &refused["details"];
    assert_eq!(
        json!([details["dimension"], details["limit"], details["current_usage"], details["requested_delta"]]),
        json!(["max_exec_sessions_per_hour", 2, 2, 1])
    );
    let seconds = refused["retry_after_seconds"].as_i64().expect("a number");
    assert!(refused["retryable"] == true && (3400..=3600).contains(&seconds), "{refused}");
    assert_eq!(platform.usage("max_exec_sessions").await.0, 0, "no session is open");
    // After all of it the views are still those that the events tell.
    let views = platform.get("/v1/views").await;
    let events = platform.get("/v1/events").await["items"].as_array().cloned().expect("events");
    let rebuilt = families::orgs::commands::rebuild(&events);
    assert!(rebuilt.gaps.is_empty(), "{:?}", rebuilt.gaps);
    assert_eq!(rebuilt.views.len(), views["items"].as_array().map_or(0, Vec::len));
}

fn write_tiers(file: &Path, apps: Value) {
    let mut free = families::orgs::tiers::built_in().remove(0).1;
    free["limits"]["max_apps"] = apps;
    let fresh = file.with_extension("new");
    std::fs::write(&fresh, json!({"tiers": {"free": free}}).to_string()).expect("a file of tiers");
    std::fs::rename(fresh, file).expect("the file is replaced");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiers_are_read_again_while_the_server_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, configuration) = (folder.path().join("tiers.yaml"), folder.path().join("bursar.yaml"));
    write_tiers(&file, json!(1));
    std::fs::write(&configuration, format!("orgs:\n  tiers: {}\n", file.display())).expect("a configuration");
    let server = Server::start_with(&["--config", &configuration.display().to_string()]);
    let client = client_of(&server).await;
    let start = Instant::now();
    let until = async |line: &str, body: Value, wanted: u16| loop {
        let answer = try_send(&client, line, &body, None).await.expect("an answer");
        if answer.0 == wanted {
            return answer.1;
        }
        assert!(start.elapsed() < PATIENCE, "{line}: {answer:?}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    until("POST /v1/orgs", json!({"id": "acme", "tier": "free"}), 201).await;
    until("POST /v1/orgs/acme/apps", json!({"name": "a"}), 201).await;
    let refused = until("POST /v1/orgs/acme/apps", json!({"name": "b"}), 409).await;
    assert_eq!((&refused["details"]["limit"], &refused["details"]["limit_source"]), (&json!(1), &json!("tier:free")));
    // A file with a mistake in it changes nothing, and is told of.
    write_tiers(&file, json!(-1));
    let told = || std::fs::read_to_string(server.folder.join("serve.err")).unwrap_or_default();
    while !told().contains("the tiers stay as they were") {
        assert!(start.elapsed() < PATIENCE, "{}", told());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    until("POST /v1/orgs/acme/apps", json!({"name": "b"}), 409).await;
    write_tiers(&file, json!(2));
    until("POST /v1/orgs/acme/apps", json!({"name": "b"}), 201).await;
    let full = until("POST /v1/orgs/acme/apps", json!({"name": "c"}), 409).await;
    assert_eq!(full["details"]["limit"], 2);
}
