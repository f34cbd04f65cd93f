//! Every command there is: done once however often it is sent under one key, and not at all for another version than the stored one.

use std::collections::{BTreeMap, BTreeSet};

use http::{Method, StatusCode};
use serde_json::{Value, json};
use server::orgs::table::{Action, ENDPOINTS, Lookup, find};

use super::told::check;
use super::{done, send, server};
use crate::harness::Server;

const ENV: &str = "/v1/orgs/acme/apps/shop/envs/prod";

/// Commands in an order in which each of them succeeds. `{name}` is the id that an earlier one was answered with; the last word is
/// the name under which that of this one is kept. Those with `~` change something that has a version.
fn commands() -> Vec<(&'static str, Value, &'static str)> {
    let unit = json!({"memory_bytes": 67_108_864, "cpu": "0.25"});
    let node = json!({"allocatable_memory_bytes": 1_i64 << 34, "cpu_cores": 4});
    let instance = json!({"app": "shop", "env": "prod", "process_type": "web", "node": "n1"});
    let none = Value::Null;
    vec![
        ("PUT /v1/nodes/n1", node, ""),
        ("PUT ~/v1/nodes/n1/state", json!({"state": "draining", "reason": "service"}), ""),
        ("POST /v1/orgs", json!({"id": "acme", "tier": "standard"}), ""),
        ("PUT ~/v1/orgs/acme/tier", json!({"tier": "scale", "reason": "paid"}), ""),
        ("PUT ~/v1/orgs/acme/policy", json!({"surge_policy": "reject"}), ""),
        ("PUT ~/v1/orgs/acme/quotas/max_apps", json!({"limit": 7, "reason": "launch", "ticket": "T-1"}), ""),
        ("DELETE ~/v1/orgs/acme/quotas/max_apps", none.clone(), ""),
        ("POST /v1/orgs/acme/apps", json!({"name": "shop"}), ""),
        ("POST /v1/orgs/acme/apps/shop/envs", json!({"name": "prod"}), ""),
        ("POST /v1/orgs/acme/apps/shop/releases", json!({"processes": {"web": unit.clone(), "job": unit}}), ""),
        ("POST /v1/orgs/acme/apps/shop/releases", json!({"processes": {"web": {"memory_bytes": 1}}}), ""),
        ("POST /v1/orgs/acme/apps/shop/releases", json!({"processes": {"web": {"memory_bytes": 2}}}), ""),
        ("DELETE ~/v1/orgs/acme/apps/shop/releases/3", none.clone(), ""),
        ("POST ~{ENV}/deploys", json!({"release": 1}), "deploy"),
        ("PUT /v1/orgs/acme/deploys/{deploy}/state", json!({"state": "succeeded"}), ""),
        ("PUT ~{ENV}/scale", json!({"scales": [{"process_type": "web", "desired": 2}]}), ""),
        ("POST ~{ENV}/deploys", json!({"release": 2}), ""),
        ("POST ~{ENV}/rollbacks", json!({"release": 1}), ""),
        ("PUT ~{ENV}/secrets", json!({"secrets": {"TOKEN": "hush"}}), ""),
        ("POST ~{ENV}/networking/ipv4", none.clone(), ""),
        ("POST {ENV}/routes", json!({"hostname": "shop.example.com", "ipv4_required": true}), "route"),
        ("PATCH ~{ENV}/routes/{route}", json!({"target_port": 9090}), ""),
        ("DELETE ~{ENV}/routes/{route}", none.clone(), ""),
        ("DELETE ~{ENV}/networking/ipv4", none.clone(), ""),
        ("POST /v1/orgs/acme/instances", instance, "instance"),
        ("PUT /v1/orgs/acme/instances/{instance}/status", json!({"status": "ready", "node": "n1"}), ""),
        ("POST /v1/orgs/acme/instances/{instance}/exec", none.clone(), "session"),
        ("POST ~/v1/orgs/acme/exec-sessions/{session}/connect", none.clone(), ""),
        ("DELETE ~/v1/orgs/acme/exec-sessions/{session}", none.clone(), ""),
        ("PUT ~/v1/orgs/acme/instances/{instance}/desired-state", json!({"desired_state": "stopped"}), ""),
        ("DELETE ~/v1/orgs/acme/instances/{instance}", none.clone(), ""),
        ("POST /v1/orgs/acme/volumes", json!({"size_bytes": 1_i64 << 30}), "volume"),
        ("POST /v1/orgs/acme/volumes/{volume}/snapshots", none.clone(), "snapshot"),
        ("PUT ~/v1/orgs/acme/snapshots/{snapshot}/status", json!({"status": "succeeded"}), ""),
        ("POST /v1/orgs/acme/volumes/{volume}/restore", json!({"snapshot": "{snapshot}"}), "job"),
        ("PUT ~/v1/orgs/acme/restore-jobs/{job}/status", json!({"status": "succeeded"}), ""),
        ("DELETE ~/v1/orgs/acme/snapshots/{snapshot}", none.clone(), ""),
        (
            "POST {ENV}/volume-attachments",
            json!({"volume": "{volume}", "process_type": "job", "mount_path": "/data"}),
            "attachment",
        ),
        ("DELETE ~{ENV}/volume-attachments/{attachment}", none.clone(), ""),
        ("DELETE ~/v1/orgs/acme/volumes/{volume}", none.clone(), ""),
        ("DELETE ~{ENV}", none.clone(), ""),
        ("DELETE ~/v1/orgs/acme/apps/shop", none.clone(), ""),
        ("POST /v1/orgs", json!({"id": "brief"}), ""),
        ("DELETE ~/v1/orgs/brief", none, ""),
    ]
}

/// All events there are.
async fn told(server: &Server) -> usize {
    done(server, "GET /v1/events", Value::Null).await["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn every_command_is_done_once_under_its_key_and_never_on_another_version() {
    let server = server().await;
    let document = done(&server, "GET /openapi/orgs.json", Value::Null).await;
    let mut ids: BTreeMap<&str, String> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (number, (line, body, kept)) in commands().into_iter().enumerate() {
        let is_versioned = line.contains('~');
        let mut line = line.replace('~', "").replace("{ENV}", ENV);
        let mut text = body.to_string();
        for (name, id) in &ids {
            line = line.replace(&format!("{{{name}}}"), id);
            text = text.replace(&format!("{{{name}}}"), id);
        }
        let body: Value = serde_json::from_str(&text).unwrap();
        let (method, path) = line.split_once(' ').unwrap();
        let Lookup::Found(found) = find(&Method::from_bytes(method.as_bytes()).unwrap(), path) else {
            panic!("{line} is no endpoint")
        };
        seen.insert(found.number);
        let before = told(&server).await;
        if is_versioned {
            let stale = send(&server, &format!("{line} If-Match:\"4711\""), body.clone()).await;
            assert_eq!(
                (stale.code, &stale.value["code"]),
                (StatusCode::CONFLICT, &json!("version_conflict")),
                "{line}: {}",
                stale.text
            );
            assert_eq!(told(&server).await, before, "{line}: what is refused is no event");
        }
        let dry = format!("{line}{}dry_run=true", if line.contains('?') { '&' } else { '?' });
        let would = send(&server, &dry, body.clone()).await;
        check(&document, &dry, would.code.as_u16(), &would.value);
        assert_eq!((would.code, &would.value["dry_run"]), (StatusCode::OK, &json!(true)), "{line}: {}", would.text);
        assert_eq!(told(&server).await, before, "{line}: what would happen has not");
        let keyed = format!("{line} Idempotency-Key:key-{number}");
        let first = send(&server, &keyed, body.clone()).await;
        assert!(first.code.is_success(), "{line}: {} {}", first.code, first.text);
        check(&document, &line, first.code.as_u16(), &first.value);
        let after = told(&server).await;
        assert!(after > before, "{line}: every change is an event");
        // What nodes say has no key, and can be said twice.
        if !path.starts_with("/v1/nodes") && path != "/v1/orgs/brief" {
            let again = send(&server, &keyed, body).await;
            assert_eq!((again.code, &again.value), (first.code, &first.value), "{line}");
            assert_eq!(again.headers["idempotency-replayed"], "true", "{line}");
            assert_eq!(told(&server).await, after, "{line}: it was done once");
        }
        if !kept.is_empty() {
            ids.insert(kept, first.value["id"].as_str().unwrap().to_owned());
        }
    }
    for (number, endpoint) in ENDPOINTS.iter().enumerate() {
        let is_command = matches!(endpoint.action, Action::Run(_));
        assert!(!is_command || seen.contains(&number), "{} {} is not played", endpoint.method, endpoint.path);
    }
}
