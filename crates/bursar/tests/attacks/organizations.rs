//! Getting more of an organization than it gives, or anything of another one: over its REST API, and over the Kubernetes API of the
//! same objects.

use serde_json::json;

use crate::land::Land;

/// `admin` is a member of `acme`, `patcher` the agent of node `n1`; `rival` is somebody else's.
const SETTING: &str = r#"
root POST /v1/orgs {"id": "acme", "tier": "free"} -> 201
root POST /v1/orgs {"id": "rival", "tier": "standard"} -> 201
root POST /v1/orgs/rival/apps {"name": "shop"} -> 201
root POST /v1/orgs/rival/apps/shop/envs {"name": "prod"} -> 201
root POST /v1/orgs/rival/apps/shop/envs/prod/routes {"hostname": "zebra.example.com"} -> 201
root PUT /v1/nodes/n1 {"allocatable_memory_bytes": 1073741824, "cpu_cores": 4} -> 201
root PUT /v1/nodes/n2 {"allocatable_memory_bytes": 1073741824, "cpu_cores": 4} -> 201
root POST /apis/rbac.authorization.k8s.io/v1/clusterroles {"metadata": {"name": "org-member"}, "rules": [{"apiGroups": ["orgs.bursar.dev"], "resources": ["*"], "verbs": ["*"]}]} -> 201
root POST /apis/rbac.authorization.k8s.io/v1/namespaces/acme/rolebindings {"metadata": {"name": "member"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "org-member"}, "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "admin"}]} -> 201
root POST /apis/rbac.authorization.k8s.io/v1/clusterroles {"metadata": {"name": "agent"}, "rules": [{"apiGroups": ["orgs.bursar.dev"], "resources": ["instances/status", "snapshots/status", "restorejobs/status"], "verbs": ["update"]}, {"apiGroups": ["orgs.bursar.dev"], "resources": ["nodes", "nodes/status"], "resourceNames": ["n1"], "verbs": ["get", "update"]}]} -> 201
root POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings {"metadata": {"name": "agent"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "agent"}, "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "patcher"}]} -> 201
admin POST /v1/orgs/acme/apps {"name": "shop"} -> 201
admin POST /v1/orgs/acme/apps/shop/envs {"name": "prod"} -> 201
admin POST /v1/orgs/acme/apps/shop/releases {"processes": {"web": {"memory_bytes": 1, "cpu": 0.5}}} -> 201
admin POST /v1/orgs/acme/apps/shop/envs/prod/deploys {"release": 1} -> 201
"#;

const REACHING: &str = r#"
nobody GET /v1/orgs/acme -> 401 "code":"unauthorized"
liar GET /v1/orgs/acme -> 401 "code":"unauthorized"
stranger GET /v1/orgs/acme -> 403 "code":"forbidden"
admin GET /v1/orgs/rival/apps -> 403 "code":"forbidden"
admin POST /v1/orgs/rival/apps {"name": "x"} -> 403 "code":"forbidden"
admin DELETE /v1/orgs/rival/apps/shop -> 403
admin GET /v1/orgs/rival/events -> 403
admin GET /v1/orgs/rival/audit -> 403
admin GET /v1/orgs/rival/usage -> 403
admin GET /v1/orgs/rival/apps/shop/envs/prod/logs/stream -> 403
admin GET /v1/orgs/acme%2F..%2Frival/apps -> 403|404
admin GET /v1/orgs/acme/../rival/apps -> 403|404
admin GET /v1/orgs -> 403
admin GET /v1/events -> 403
admin GET /v1/audit -> 403
admin GET /v1/views -> 403
admin GET /v1/nodes -> 403
admin GET /apis/orgs.bursar.dev/v1/hostnames -> 403
admin GET /apis/orgs.bursar.dev/v1/namespaces/rival/routes -> 403
admin POST /v1/orgs/acme/apps/shop/envs/prod/routes {"hostname": "Zebra.Example.COM."} -> 409 hostname_in_use
admin POST /v1/orgs/acme/apps/shop/envs/prod/volume-attachments {"volume": "v-of-somebody-else", "mount_path": "/d"} -> 404
"#;

const WIDENING: &str = r#"
admin PUT /v1/orgs/acme/tier {"tier": "scale", "reason": "more"} -> 403
admin PUT /v1/orgs/acme/quotas/max_instances {"limit": "unlimited", "reason": "more"} -> 403
admin PUT /v1/orgs/acme/policy {"reservations": "check"} -> 403
admin POST /v1/orgs/acme/instances {"app": "shop", "env": "prod", "process_type": "web", "node": "n1"} -> 403
admin PATCH /apis/orgs.bursar.dev/v1/namespaces/acme/orgs/acme merge {"spec": {"tier": "scale"}} -> 403
admin PATCH /apis/orgs.bursar.dev/v1/namespaces/acme/orgs/acme/status merge {"status": {"usage": []}} -> 403
admin PATCH /apis/orgs.bursar.dev/v1/namespaces/acme/envs/shop.prod merge {"spec": {"processes": {"web": {"desired": 50}}}} -> 403
admin PATCH /apis/orgs.bursar.dev/v1/namespaces/acme/envs/shop.prod merge {"metadata": {"labels": {"a": "b"}}} -> 403
admin DELETE /apis/orgs.bursar.dev/v1/namespaces/acme/envs -> 403
admin DELETE /api/v1/namespaces/acme -> 403
root PATCH /apis/orgs.bursar.dev/v1/namespaces/acme/envs/shop.prod merge {"spec": {"held": {"instances": 0}}} -> 403
root DELETE /api/v1/namespaces/acme -> 403
admin PUT /v1/orgs/acme/apps/shop/envs/prod/scale {"scales": [{"process_type": "web", "desired": -1}]} -> 400
admin PUT /v1/orgs/acme/apps/shop/envs/prod/scale {"scales": [{"process_type": "web", "desired": "4"}]} -> 400
admin PUT /v1/orgs/acme/apps/shop/envs/prod/scale {"scales": [{"process_type": "web", "desired": 1e300}]} -> 400
admin PUT /v1/orgs/acme/apps/shop/envs/prod/scale {"scales": [{"process_type": "web", "desired": 6}]} -> 409 quota_exceeded
admin PUT /v1/orgs/acme/apps/shop/envs/prod/scale {"scales": [{"process_type": "web", "desired": 3}, {"process_type": "web", "desired": 0}]} -> 400
admin POST /v1/orgs/acme/apps/shop/releases {"processes": {"web": {"memory_bytes": -1}}} -> 400
admin POST /v1/orgs/acme/apps/shop/releases {"processes": {"web": {"memory_bytes": 1, "cpu": "1e-10"}}} -> 400
admin POST /v1/orgs/acme/volumes {"size_bytes": 9223372036854775807} -> 400
admin POST /v1/orgs/acme/volumes {"size_bytes": 10737418241} -> 409 quota_exceeded
"#;

const LYING: &str = r#"
patcher POST /v1/nodes/n2/heartbeat -> 403
patcher PUT /v1/nodes/n2 {"allocatable_memory_bytes": 1, "cpu_cores": 1} -> 403
patcher PUT /v1/nodes/n1/state {"state": "active"} -> 403
patcher PUT /v1/nodes/n1 {"allocatable_memory_bytes": -1, "cpu_cores": 4} -> 400
patcher PUT /v1/nodes/n1 {"allocatable_memory_bytes": 1.5, "cpu_cores": 4} -> 400
patcher PUT /v1/orgs/acme/instances/i-nobody-has/status {"status": "ready"} -> 404
patcher POST /v1/orgs/acme/instances {"app": "shop", "env": "prod", "process_type": "web", "node": "n1"} -> 403
patcher PATCH /apis/orgs.bursar.dev/v1/nodes/n1/status merge {"status": {"heartbeat_at_ms": 9000000000000000000}} -> 403
patcher GET /v1/events -> 403
"#;

#[tokio::test]
async fn nobody_gets_more_of_an_organization_or_of_another_one() {
    let mut land = Land::start().await;
    // The tiers are there a moment after the server is.
    land.until("/apis/orgs.bursar.dev/v1/tiers/scale", |tier| tier["kind"] == "Tier").await;
    land.set(SETTING).await;
    let (_, before) = land.send("root", "GET", "/v1/orgs/acme/usage", "", "").await;
    land.play(REACHING).await;
    land.play(WIDENING).await;
    land.play(LYING).await;
    // Of an organization that is there a stranger hears the same as of one that is not.
    let there = land.attempt(("admin", "DELETE", "/v1/orgs/rival/apps/shop", "", ""), "403").await;
    let missing = land.attempt(("admin", "DELETE", "/v1/orgs/absent/apps/shop", "", ""), "403").await;
    let said = |text: &str| {
        let answer: serde_json::Value = serde_json::from_str(text).expect("JSON");
        answer["detail"].as_str().expect("words").replace("rival", "absent")
    };
    assert_eq!(said(&there), said(&missing));
    // Whose it was knows who tried.
    let is_told = |trail: &serde_json::Value| {
        let mut items = trail["items"].as_array().into_iter().flatten();
        items.any(|one| {
            one["reason"] == "no_right"
                && one["actor_id"] == "admin"
                && one["resource_path"]["app"] == "shop"
                && one["source_ip"] == "127.0.0.1"
        })
    };
    land.until("/v1/orgs/rival/audit", is_told).await;
    let (_, after) = land.send("root", "GET", "/v1/orgs/acme/usage", "", "").await;
    assert_eq!(before, after, "nothing of it counts");
    let (_, apps) = land.send("root", "GET", "/v1/orgs/rival/apps", "", "").await;
    let apps: serde_json::Value = serde_json::from_str(&apps).expect("JSON");
    assert_eq!(apps["items"].as_array().map(Vec::len), Some(1), "{apps}");
    assert_eq!(apps["items"][0]["id"], json!("shop"));
    assert!(land.end().await >= 52, "a table was cut short");
}
