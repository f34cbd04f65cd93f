//! Quotas that measure by expressions what a command writes: what they say holds, and nobody but the command waits for them.

use std::sync::atomic::Ordering;

use http::StatusCode;
use serde_json::{Value, json};

use super::super::hang_ups::leave;
use super::{Server, done, send, shop_on, with_tiers};

const ENVS: &str = "POST /v1/orgs/acme/apps/shop/envs";
const QUOTAS: &str = "/apis/capsule.clastix.io/v1beta2/globalcustomquotas";

/// More work than anything may take on the thread that decides.
const LONG: &str = "lists.range(200).exists(x, lists.range(200).exists(y, x * y == -1)) ? 1 : 1";

/// How often a client hangs up, each time a little later: more than a command ever waits for.
const LEAVES: usize = 16;

/// A shop under a quota over environments, one of which is there.
async fn limited(limit: &str) -> Server {
    let server = Server::start();
    server.define_kinds().await;
    let server = shop_on(with_tiers(server).await).await;
    let quota = json!({
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "GlobalCustomQuota", "metadata": {"name": "long"},
        "spec": {
            "limit": limit,
            "namespaceSelectors": [{"matchLabels": {"kubernetes.io/metadata.name": "acme"}}],
            "sources": [{"apiVersion": "orgs.bursar.dev/v1", "kind": "Env", "cel": LONG}],
        },
    });
    done(&server, &format!("POST {QUOTAS}"), quota).await;
    server
}

async fn used(server: &Server) -> Value {
    done(server, &format!("GET {QUOTAS}/long"), Value::Null).await["status"]["usage"]["used"].clone()
}

async fn stored(server: &Server) -> usize {
    let envs = done(server, "GET /apis/orgs.bursar.dev/v1/namespaces/acme/envs", Value::Null).await;
    envs["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn what_a_command_writes_is_measured_before_it_is_decided() {
    let server = limited("2").await;
    assert_eq!(used(&server).await, "1");
    let before = server.evaluated.load(Ordering::Relaxed);
    // What would happen is measured as what happens is, and charges nothing.
    done(&server, &format!("{ENVS}?dry_run=true"), json!({"name": "test"})).await;
    assert_eq!((used(&server).await, stored(&server).await), (json!("1"), 1));
    done(&server, ENVS, json!({"name": "test"})).await;
    assert_eq!((used(&server).await, stored(&server).await), (json!("2"), 2));
    let refused = send(&server, ENVS, json!({"name": "third"})).await;
    assert_eq!(refused.code, StatusCode::CONFLICT, "{}", refused.text);
    let said = refused.value["detail"].as_str().unwrap();
    assert!(said.contains("long") && said.contains('2'), "it tells which quota, and its numbers: {said}");
    assert_eq!((used(&server).await, stored(&server).await), (json!("2"), 2));
    done(&server, "DELETE /v1/orgs/acme/apps/shop/envs/test", Value::Null).await;
    done(&server, ENVS, json!({"name": "third"})).await;
    assert_eq!((used(&server).await, stored(&server).await), (json!("2"), 2));
    assert_eq!(server.evaluated.load(Ordering::Relaxed), before, "nobody waited for an expression");
    let audit = done(&server, "GET /debug/audit", Value::Null).await;
    assert_eq!(audit["differences"], json!([]));
}

#[tokio::test]
async fn a_client_that_leaves_while_expressions_are_evaluated_leaves_all_or_nothing() {
    let server = limited("1000").await;
    for waits in 0..LEAVES {
        leave(&server, (ENVS, r#"{"name": "left-@"}"#), waits, waits).await;
    }
    // Whatever was submitted before this is decided before it.
    done(&server, ENVS, json!({"name": "last"})).await;
    let envs = stored(&server).await;
    assert_eq!(used(&server).await, json!(envs.to_string()));
    let audit = done(&server, "GET /debug/audit", Value::Null).await;
    assert_eq!(audit["differences"], json!([]));
}
