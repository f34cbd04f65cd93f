//! Keys of commands: how many are remembered, and when the next may be.

use std::sync::Arc;

use families::Origin;
use families::orgs::names::IDEMPOTENCY_KEYS;
use families::orgs::usage::KEYS_MAX;
use http::StatusCode;
use serde_json::{Value, json};
use server::core::{Answer, Command, Draft, ObjectKey, WriteAll, WriteKind, Writes};

use super::{ENV, done, scale, send, shop};
use crate::harness::Server;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// So many keys as commands leave them behind, of which the first is forgotten after so many seconds.
async fn remember(server: &Server, count: i64, seconds: i64) {
    let now_ms = (server.api.parts().clock)();
    let key = |number: i64| {
        let name = format!("k-{number}");
        let expires_at_ms = now_ms + DAY_MS.min(seconds * 1000 + number);
        let uid = uuid::Uuid::new_v4().hyphenated().to_string();
        let object = json!({
            "apiVersion": "orgs.bursar.dev/v1", "kind": "IdempotencyKey",
            "metadata": {"name": name, "namespace": "acme", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"request_hash": "0", "status": 200, "answer": {}, "expires_at_ms": expires_at_ms},
        });
        let draft = Draft::new(object).expect("an object");
        (ObjectKey::new(IDEMPOTENCY_KEYS.resource(), "acme", &name), WriteKind::Create(draft))
    };
    let all: Vec<i64> = (0..count).collect();
    for some in all.chunks(64) {
        let origin = Origin { identity: Arc::new(families::Identity::internal("orgs")), request: 1 };
        let writes = some.iter().map(|number| key(*number)).collect();
        let writes = Writes { writes, dry_run: false, now_ms, origin };
        let command = Command::WriteAll(Box::new(WriteAll { writes, entries: Vec::new() }));
        let answer = server.api.parts().writes.submit(command).await.expect("an answer");
        assert!(matches!(answer, Answer::WrittenAll(Ok(_))), "{answer:?}");
    }
}

#[tokio::test]
async fn whoever_has_too_many_keys_hears_when_the_oldest_is_forgotten() {
    let server = shop().await;
    done(&server, &format!("POST {ENV}/deploys"), json!({"release": 1})).await;
    remember(&server, KEYS_MAX, 5000).await;
    let line = format!("PUT {ENV}/scale");
    let refused = send(&server, &format!("{line} Idempotency-Key:one-more"), scale(2)).await;
    assert_eq!((refused.code, &refused.value["code"]), (StatusCode::TOO_MANY_REQUESTS, &json!("rate_limited")));
    let seconds = refused.value["retry_after_seconds"].as_i64().expect("a number");
    assert!((4900..=5001).contains(&seconds), "{}", refused.text);
    assert_eq!(refused.headers["retry-after"], seconds.to_string().as_str());
    // Nothing of it is done; without a key it is.
    let env = done(&server, &format!("GET {ENV}"), Value::Null).await;
    assert_eq!(env["processes"]["web"]["desired"], 1);
    done(&server, &line, scale(2)).await;
}
