//! Every command there is: done once however often it is sent under one key, and not at all for another version than the stored one.

use std::collections::{BTreeMap, BTreeSet};

use http::{Method, StatusCode};
use serde_json::{Value, json};
use server::orgs::table::{Action, ENDPOINTS, Lookup, find};

use super::told::check;
use super::{done, send, server};
use crate::harness::Server;

const ENV: &str = "/v1/orgs/acme/apps/shop/envs/prod";

/// Commands in an order in which each of them succeeds. `{name}` is the id that an earlier one was answered with; the third word is
/// the name under which that of this one is kept, and the last ones are the events that tell it. Those with `~` change something that has a
/// version.
fn commands() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    let unit = json!({"memory_bytes": 67_108_864, "cpu": "0.25"});
    let node = json!({"allocatable_memory_bytes": 1_i64 << 34, "cpu_cores": 4});
    let instance = json!({"app": "shop", "env": "prod", "process_type": "web", "node": "n1"});
    let none = Value::Null;
    vec![
        ("PUT /v1/nodes/n1", node, "", "node.registered"),
        (
            "PUT ~/v1/nodes/n1",
            json!({"allocatable_memory_bytes": 1_i64 << 35, "cpu_cores": 4}),
            "",
            "node.capacity_changed",
        ),
        ("PUT ~/v1/nodes/n1/state", json!({"state": "draining", "reason": "service"}), "", "node.state_changed"),
        ("POST /v1/orgs", json!({"id": "acme", "tier": "standard"}), "", "org.created"),
        ("PUT ~/v1/orgs/acme/tier", json!({"tier": "scale", "reason": "paid"}), "", "org.tier_set"),
        ("PUT ~/v1/orgs/acme/policy", json!({"surge_policy": "reject"}), "", "org.policy_set"),
        (
            "PUT ~/v1/orgs/acme/quotas/max_apps",
            json!({"limit": 7, "reason": "launch", "ticket": "T-1"}),
            "",
            "org.quota_set",
        ),
        ("DELETE ~/v1/orgs/acme/quotas/max_apps", none.clone(), "", "org.quota_set"),
        ("POST /v1/orgs/acme/apps", json!({"name": "shop"}), "", "app.created"),
        ("PUT ~/v1/orgs/acme/quotas/max_apps", json!({"limit": 1, "reason": "no more"}), "", "org.quota_set"),
        ("PUT ~/v1/orgs/acme/thresholds", none.clone(), "", "org.quota_threshold_crossed"),
        ("POST /v1/orgs/acme/apps/shop/envs", json!({"name": "prod"}), "", "env.created"),
        (
            "POST /v1/orgs/acme/apps/shop/releases",
            json!({"processes": {"web": unit.clone(), "job": unit}}),
            "",
            "release.created app.release_numbered",
        ),
        (
            "POST /v1/orgs/acme/apps/shop/releases",
            json!({"processes": {"web": {"memory_bytes": 1}}}),
            "",
            "release.created app.release_numbered",
        ),
        (
            "POST /v1/orgs/acme/apps/shop/releases",
            json!({"processes": {"web": {"memory_bytes": 2}}}),
            "",
            "release.created app.release_numbered",
        ),
        ("DELETE ~/v1/orgs/acme/apps/shop/releases/3", none.clone(), "", "release.deleted"),
        (
            "POST ~{ENV}/deploys",
            json!({"release": 1}),
            "deploy",
            "deploy.created env.desired_release_set env.desired_release_set",
        ),
        (
            "PUT ~/v1/orgs/acme/deploys/{deploy}/state",
            json!({"state": "succeeded"}),
            "",
            "env.rollout_ended deploy.status_changed",
        ),
        (
            "POST ~{ENV}/replacements",
            json!({"reason": "node_drain", "process_types": ["web"]}),
            "",
            "deploy.created env.desired_release_set",
        ),
        ("PUT ~{ENV}/scale", json!({"scales": [{"process_type": "web", "desired": 2}]}), "", "env.scale_set"),
        (
            "POST ~{ENV}/deploys",
            json!({"release": 2}),
            "",
            "deploy.created env.desired_release_set env.desired_release_set",
        ),
        (
            "POST ~{ENV}/rollbacks",
            json!({"release": 1}),
            "",
            "deploy.created env.desired_release_set env.desired_release_set",
        ),
        (
            "PUT ~{ENV}/secrets",
            json!({"secrets": {"TOKEN": "hush"}}),
            "",
            "deploy.created env.secrets_set env.desired_release_set env.desired_release_set secret_bundle.version_set",
        ),
        ("POST ~{ENV}/networking/ipv4", none.clone(), "", "env.ipv4_addon_enabled"),
        ("POST {ENV}/routes", json!({"hostname": "shop.example.com", "ipv4_required": true}), "route", "route.created"),
        ("PATCH ~{ENV}/routes/{route}", json!({"target_port": 9090}), "", "route.updated"),
        ("DELETE ~{ENV}/routes/{route}", none.clone(), "", "route.deleted"),
        ("DELETE ~{ENV}/networking/ipv4", none.clone(), "", "env.ipv4_addon_disabled"),
        ("POST /v1/orgs/acme/instances", instance, "instance", "instance.allocated"),
        (
            "PUT ~/v1/orgs/acme/instances/{instance}/status",
            json!({"status": "ready", "node": "n1"}),
            "",
            "instance.status_changed",
        ),
        ("POST /v1/orgs/acme/instances/{instance}/exec", none.clone(), "session", "exec_session.granted"),
        ("POST ~/v1/orgs/acme/exec-sessions/{session}/connect", none.clone(), "", "exec_session.connected"),
        ("DELETE ~/v1/orgs/acme/exec-sessions/{session}", none.clone(), "", "exec_session.ended"),
        (
            "PUT ~/v1/orgs/acme/instances/{instance}/desired-state",
            json!({"desired_state": "stopped"}),
            "",
            "instance.desired_state_changed",
        ),
        ("DELETE ~/v1/orgs/acme/instances/{instance}", none.clone(), "", "instance.removed"),
        ("POST /v1/orgs/acme/volumes", json!({"size_bytes": 1_i64 << 30}), "volume", "volume.created"),
        ("POST /v1/orgs/acme/volumes/{volume}/snapshots", none.clone(), "snapshot", "snapshot.created"),
        (
            "PUT ~/v1/orgs/acme/snapshots/{snapshot}/status",
            json!({"status": "succeeded"}),
            "",
            "snapshot.status_changed",
        ),
        (
            "POST /v1/orgs/acme/volumes/{volume}/restore",
            json!({"snapshot": "{snapshot}"}),
            "job",
            "volume.created restore_job.created",
        ),
        (
            "PUT ~/v1/orgs/acme/restore-jobs/{job}/status",
            json!({"status": "succeeded"}),
            "",
            "restore_job.status_changed volume.status_changed",
        ),
        ("DELETE ~/v1/orgs/acme/restore-jobs/{job}", none.clone(), "", "restore_job.deleted"),
        ("DELETE ~/v1/orgs/acme/snapshots/{snapshot}", none.clone(), "", "snapshot.deleted"),
        (
            "POST {ENV}/volume-attachments",
            json!({"volume": "{volume}", "process_type": "job", "mount_path": "/data"}),
            "attachment",
            "volume_attachment.created",
        ),
        ("DELETE ~{ENV}/volume-attachments/{attachment}", none.clone(), "", "volume_attachment.deleted"),
        ("DELETE ~/v1/orgs/acme/volumes/{volume}", none.clone(), "", "volume.deleted"),
        (
            "DELETE ~{ENV}",
            none.clone(),
            "",
            "deploy.deleted deploy.deleted deploy.deleted deploy.deleted deploy.deleted secret_bundle.deleted env.deleted",
        ),
        ("DELETE ~/v1/orgs/acme/apps/shop", none.clone(), "", "release.deleted release.deleted app.deleted"),
        ("POST /v1/orgs", json!({"id": "brief"}), "", "org.created"),
        ("DELETE ~/v1/orgs/brief", none, "", "org.deleted"),
    ]
}

/// The types of all events there are.
async fn all_told(server: &Server) -> Vec<String> {
    let all = done(server, "GET /v1/events", Value::Null).await;
    all["items"].as_array().unwrap().iter().map(|event| event["event_type"].as_str().unwrap().to_owned()).collect()
}

async fn told(server: &Server) -> usize {
    all_told(server).await.len()
}

#[tokio::test]
async fn every_command_is_done_once_under_its_key_and_never_on_another_version() {
    let server = server().await;
    let document = done(&server, "GET /openapi/orgs.json", Value::Null).await;
    let mut ids: BTreeMap<&str, String> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (number, (line, body, kept, telling)) in commands().into_iter().enumerate() {
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
        let would: Vec<&str> = would.value["events"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(would.join(" "), telling, "{line}: it would be told as it is");
        assert_eq!(told(&server).await, before, "{line}: what would happen has not");
        // What nodes say has no key, and can be said twice.
        let has_key = !path.starts_with("/v1/nodes");
        let keyed = if has_key { format!("{line} Idempotency-Key:key-{number}") } else { line.clone() };
        if !has_key {
            let refused = send(&server, &format!("{line} Idempotency-Key:key-{number}"), body.clone()).await;
            assert_eq!((refused.code, &refused.value["code"]), (StatusCode::BAD_REQUEST, &json!("invalid_argument")));
        }
        let first = send(&server, &keyed, body.clone()).await;
        assert!(first.code.is_success(), "{line}: {} {}", first.code, first.text);
        check(&document, &line, first.code.as_u16(), &first.value);
        let all = all_told(&server).await;
        let after = all.len();
        assert_eq!(all[before..].join(" "), telling, "{line}: what is told of it, and nothing else");
        if has_key && path != "/v1/orgs/brief" {
            // Asked for what would happen now, nothing that happened under the key is the answer.
            let dry = send(&server, &format!("{dry} Idempotency-Key:key-{number}"), body.clone()).await;
            assert!(!dry.headers.contains_key("idempotency-replayed"), "{line}: {}", dry.text);
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
