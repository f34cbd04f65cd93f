//! Agents of nodes, with the roles of the examples: each speaks for its own node.

use http::StatusCode;
use serde_json::{Value, json};

use super::{ENV, done, send, shop};
use crate::harness::Server;

/// Two nodes, each with an instance, a volume with a snapshot and a restore; and an agent of the first. Answers with the paths of what
/// can be reported on, on either.
async fn nodes() -> (Server, [Vec<String>; 2]) {
    let server = shop().await;
    for name in ["n1", "n2"] {
        done(
            &server,
            &format!("PUT /v1/nodes/{name}"),
            json!({"allocatable_memory_bytes": 1_i64 << 34, "cpu_cores": 4}),
        )
        .await;
    }
    let roles = "/apis/rbac.authorization.k8s.io/v1";
    let file = include_str!("../../../../../examples/orgs/roles.yaml");
    for role in file.split("---").filter(|role| role.contains("org-agent")) {
        let line = format!("POST {roles}/clusterroles Content-Type:application/yaml");
        let request = crate::harness::request(&line, role);
        let made = server.send(request).await;
        assert_eq!(made.code, StatusCode::CREATED, "{}", made.text);
    }
    for role in ["org-agents", "org-agent-n1"] {
        let binding = json!({
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "agent-n1"}],
        });
        done(&server, &format!("POST {roles}/clusterrolebindings"), binding).await;
    }
    done(&server, &format!("POST {ENV}/deploys"), json!({"release": 1})).await;
    done(&server, &format!("PUT {ENV}/scale"), json!({"scales": [{"process_type": "web", "desired": 2}]})).await;
    let id = |value: Value| value["id"].as_str().unwrap().to_owned();
    let mut paths = [Vec::new(), Vec::new()];
    for (node, own) in ["n1", "n2"].into_iter().zip(&mut paths) {
        let body = json!({"app": "shop", "env": "prod", "process_type": "web", "node": node});
        let instance = id(done(&server, "POST /v1/orgs/acme/instances", body).await);
        let body = json!({"size_bytes": 1_i64 << 30, "home_node": node});
        let volume = id(done(&server, "POST /v1/orgs/acme/volumes", body).await);
        let taken = id(done(&server, &format!("POST /v1/orgs/acme/volumes/{volume}/snapshots"), Value::Null).await);
        let status = format!("PUT /v1/orgs/acme/snapshots/{taken}/status");
        done(&server, &status, json!({"status": "succeeded"})).await;
        let restore = format!("POST /v1/orgs/acme/volumes/{volume}/restore");
        let job = id(done(&server, &restore, json!({"snapshot": taken})).await);
        let other = id(done(&server, &format!("POST /v1/orgs/acme/volumes/{volume}/snapshots"), Value::Null).await);
        own.push(format!("instances/{instance}"));
        own.push(format!("snapshots/{other}"));
        own.push(format!("restore-jobs/{job}"));
    }
    (server, paths)
}

#[tokio::test]
async fn an_agent_reports_on_what_is_on_its_node() {
    let (server, [own, others]) = nodes().await;
    for (paths, code) in [(others, StatusCode::FORBIDDEN), (own, StatusCode::OK)] {
        for path in paths {
            let status = if path.starts_with("instances") { "ready" } else { "running" };
            let line = format!("PUT /v1/orgs/acme/{path}/status As:agent-n1");
            for dry in ["?dry_run=true", ""] {
                let line = line.replacen("/status", &format!("/status{dry}"), 1);
                let said = send(&server, &line, json!({"status": status})).await;
                assert_eq!(said.code, code, "{line}: {}", said.text);
            }
        }
    }
    let trail = done(&server, "GET /v1/orgs/acme/audit", Value::Null).await;
    let trail = trail["items"].as_array().unwrap();
    assert_eq!(trail.len(), 3, "what was only asked for is not in it: {trail:?}");
    for entry in trail {
        assert_eq!((&entry["actor_id"], &entry["error_class"]), (&json!("agent-n1"), &json!("forbidden")), "{entry}");
        assert!(entry["resource_id"].as_str().is_some_and(|id| !id.is_empty()), "{entry}");
    }
    // Who may speak for no node in particular speaks for no volume that is nowhere yet.
    let volume = done(&server, "POST /v1/orgs/acme/volumes", json!({"size_bytes": 1_i64 << 30})).await;
    let path = format!("POST /v1/orgs/acme/volumes/{}/snapshots", volume["id"].as_str().unwrap());
    let taken = done(&server, &path, Value::Null).await;
    let line = format!("PUT /v1/orgs/acme/snapshots/{}/status As:agent-n1", taken["id"].as_str().unwrap());
    assert_eq!(send(&server, &line, json!({"status": "running"})).await.code, StatusCode::FORBIDDEN);
}

/// What the roles allow at the door: read from the file, by the table that requests are authorized by.
#[tokio::test]
async fn the_roles_of_an_agent_reach_one_node() {
    use server::authz::Attributes;
    let (server, _) = nodes().await;
    let agent = server::identity::Identity::authenticated("agent-n1", Vec::<String>::new());
    let may = |verb, resource, subresource, name| {
        let asked = Attributes { subresource, ..Attributes::object(verb, "orgs.bursar.dev", resource, "", name) };
        server.rbac.authorize(&agent, &asked).is_allowed()
    };
    for (name, is_own) in [("n1", true), ("n2", false), ("", false)] {
        for (verb, subresource) in [("update", ""), ("update", "status"), ("get", "")] {
            assert_eq!(may(verb, "nodes", subresource, name), is_own, "{verb} nodes/{subresource} {name}");
        }
        assert!(!may("update", "nodes", "state", name), "no agent puts a node in or out of service");
    }
    assert!(
        !may("create", "instances", "", "") && !may("update", "orgs", "quotas", "") && !may("list", "secrets", "", "")
    );
}
