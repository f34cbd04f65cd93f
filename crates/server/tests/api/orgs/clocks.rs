//! A clock that jumps, forward and back again: what is counted until some moment counts all the same.

use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};
use server::api::system_clock;

use super::{ENV, defined, done, exceeded, limit, scale, send, shop_on, usage};
use crate::harness::Server;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

static AHEAD_MS: AtomicI64 = AtomicI64::new(0);

fn clock() -> i64 {
    system_clock() + AHEAD_MS.load(Ordering::Relaxed)
}

#[tokio::test]
async fn what_is_counted_until_some_moment_is_counted_after_a_clock_was_set_back() {
    let server = shop_on(defined(Server::start_by(clock)).await).await;
    done(&server, "PUT /v1/nodes/n1", json!({"allocatable_memory_bytes": 1_i64 << 34, "cpu_cores": 4})).await;
    done(&server, &format!("POST {ENV}/deploys"), json!({"release": 1})).await;
    let instance = json!({"app": "shop", "env": "prod", "process_type": "web", "node": "n1"});
    let instance = done(&server, "POST /v1/orgs/acme/instances", instance).await;
    let exec = format!("POST /v1/orgs/acme/instances/{}/exec", instance["id"].as_str().unwrap());
    for dimension in ["max_exec_sessions", "max_log_streams"] {
        limit(&server, dimension, json!(1)).await;
    }
    // Two days ahead, seen by somebody else's write, and back.
    AHEAD_MS.store(2 * DAY_MS, Ordering::Relaxed);
    let map = json!({"metadata": {"name": "m"}});
    done(&server, "POST /api/v1/namespaces/acme/configmaps", map).await;
    AHEAD_MS.store(0, Ordering::Relaxed);
    let session = done(&server, &exec, Value::Null).await;
    assert_eq!(usage(&server, "max_exec_sessions").await, 1);
    assert_eq!(exceeded(&server, &exec, Value::Null).await[0], "max_exec_sessions");
    let connect = format!("POST /v1/orgs/acme/exec-sessions/{}/connect", session["id"].as_str().unwrap());
    done(&server, &connect, Value::Null).await;
    assert_eq!(usage(&server, "max_exec_sessions").await, 1);
    assert_eq!(usage(&server, "max_exec_sessions_per_hour").await, 1);
    let stream = format!("GET {ENV}/logs/stream");
    let _opened = server.watch(&format!("{ENV}/logs/stream")).await;
    assert_eq!(exceeded(&server, &stream, Value::Null).await[0], "max_log_streams");
    // A command under a key is not done twice.
    let line = format!("PUT {ENV}/scale Idempotency-Key:one");
    done(&server, &line, scale(2)).await;
    done(&server, &format!("PUT {ENV}/scale"), scale(3)).await;
    let again = send(&server, &line, scale(2)).await;
    assert_eq!(again.headers.get("idempotency-replayed").map(|value| value.as_bytes()), Some(&b"true"[..]));
    assert_eq!(usage(&server, "max_instances").await, 3);
}
