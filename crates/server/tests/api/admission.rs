//! What stands between a request and the ledger: classes, protected namespaces, addresses, users' webhooks.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::hook_server::{HookServer, Reply};

const NAMESPACES: &str = r#"
POST /api/v1/namespaces
  {"metadata": {"name": "a", "labels": {"env": "prod"}}}
  201
POST /api/v1/namespaces
  {"metadata": {"name": "default"}}
  201
"#;

#[tokio::test]
async fn pods_and_claims_are_filled_in_from_their_classes() {
    let server = Server::start();
    server.play(NAMESPACES).await;
    server
        .play(
            r#"
POST /api/v1/namespaces/a/pods
  {"metadata": {"name": "p"}, "spec": {"priorityClassName": "high", "containers": [{"name": "c", "image": "i"}]}}
  403  message=pods "p" is forbidden: no PriorityClass with name high was found
POST /apis/scheduling.k8s.io/v1/priorityclasses
  {"metadata": {"name": "high"}, "value": 1000, "globalDefault": true}
  201
POST /apis/scheduling.k8s.io/v1/priorityclasses
  {"metadata": {"name": "higher"}, "value": 2000, "globalDefault": true}
  403  message~PriorityClass high is already marked as default. Only one default can exist
POST /api/v1/namespaces/a/pods
  {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
  201  spec.priorityClassName=high  spec.priority=1000  spec.preemptionPolicy=PreemptLowerPriority
POST /api/v1/namespaces/a/pods
  {"metadata": {"name": "q"}, "spec": {"priority": 5, "containers": [{"name": "c", "image": "i"}]}}
  403  message~the integer value of priority (5) must not be provided in pod spec
POST /apis/storage.k8s.io/v1/storageclasses
  {"metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "x"}
  201
POST /api/v1/namespaces/a/persistentvolumeclaims
  {"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
  201  spec.storageClassName=fast
DELETE /api/v1/namespaces/default
  403  message=namespaces "default" is forbidden: this namespace may not be deleted
"#,
        )
        .await;
}

#[tokio::test]
async fn services_get_addresses_that_nobody_else_has() {
    let server = Server::start();
    server.play(NAMESPACES).await;
    server
        .play(
            r#"
POST /api/v1/namespaces/a/services?dryRun=All
  {"metadata": {"name": "s"}, "spec": {"clusterIP": "10.96.7.7", "ports": [{"port": 80}]}}
  201  spec.clusterIP=10.96.7.7
POST /api/v1/namespaces/a/services
  {"metadata": {"name": "s"}, "spec": {"clusterIP": "10.96.7.7", "type": "NodePort", "ports": [{"port": 80}]}}
  201  spec.clusterIPs.0=10.96.7.7  spec.ports.0.nodePort>port
POST /api/v1/namespaces/default/services
  {"metadata": {"name": "t"}, "spec": {"clusterIP": "10.96.7.7", "ports": [{"port": 80}]}}
  422  message~spec.clusterIPs: Invalid value: ["10.96.7.7"]: failed to allocate IP 10.96.7.7: provided IP is already allocated
POST /api/v1/namespaces/default/services
  {"metadata": {"name": "t"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": ${port}}]}}
  422  message=Service "t" is invalid: spec.ports[0].nodePort: Invalid value: ${port}: provided port is already allocated
PATCH /api/v1/namespaces/a/services/s Content-Type:application/merge-patch+json
  {"metadata": {"labels": {"x": "y"}}}
  200  spec.clusterIP=10.96.7.7  spec.ports.0.nodePort=${port}
PATCH /api/v1/namespaces/a/services/s Content-Type:application/merge-patch+json
  {"spec": {"type": "ClusterIP"}}
  200  spec.clusterIP=10.96.7.7  spec.ports.0.nodePort!
POST /api/v1/namespaces/default/services
  {"metadata": {"name": "t"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": ${port}}]}}
  201  spec.clusterIP?
DELETE /api/v1/namespaces/a/services/s
  200
POST /api/v1/namespaces/default/services
  {"metadata": {"name": "u"}, "spec": {"clusterIP": "10.96.7.7", "ports": [{"port": 80}]}}
  201
POST /api/v1/namespaces/a/services
  {"metadata": {"name": "headless"}, "spec": {"clusterIP": "None"}}
  201  spec.clusterIPs.0=None
POST /api/v1/namespaces/a/services
  {"metadata": {"name": "outside"}, "spec": {"type": "ExternalName", "externalName": "example.com"}}
  201  spec.clusterIP!
"#,
        )
        .await;
}

/// Registers one webhook for some resources.
async fn register(server: &Server, hooks: &HookServer, kind: &str, path: &str, resources: &[&str], change: Value) {
    let mut hook = json!({
        "name": format!("{path}.example.com"),
        "clientConfig": {"url": format!("{}/{path}", hooks.url), "caBundle": hooks.ca_bundle},
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources}],
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
    });
    for (field, value) in change.as_object().into_iter().flatten() {
        hook[field] = value.clone();
    }
    let plural = format!("{}webhookconfigurations", kind.to_lowercase());
    let body = json!({"metadata": {"name": path}, "webhooks": [hook]});
    let script = format!("POST /apis/admissionregistration.k8s.io/v1/{plural}\n  {body}\n  201");
    server.play(&script).await;
}

#[tokio::test]
async fn what_a_webhook_adds_is_defaulted_checked_and_charged() {
    let hooks = HookServer::start(|path, asked| match path {
        "/cpu" if asked["operation"] == "CREATE" => Reply::Patch(json!([
            {"op": "add", "path": "/spec/containers/0/resources", "value": {"limits": {"cpu": "600m"}}},
            {"op": "add", "path": "/metadata/uid", "value": "mine"},
        ])),
        _ => Reply::Response(json!({"allowed": true, "warnings": [format!("seen by {path}")]})),
    })
    .await;
    let server = Server::start();
    server.play(NAMESPACES).await;
    register(&server, &hooks, "Mutating", "cpu", &["pods"], json!({})).await;
    register(&server, &hooks, "Validating", "look", &["pods"], json!({})).await;
    server
        .play(
            r#"
POST /api/v1/namespaces/a/resourcequotas
  {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "1"}}}
  201
POST /api/v1/namespaces/a/pods
  {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
  201  spec.containers.0.resources.requests.cpu=600m  status.qosClass=Burstable  header:Warning~seen by /look
POST /api/v1/namespaces/a/pods
  {"metadata": {"name": "two"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
  403  message~exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1
DELETE /api/v1/namespaces/a/pods/one
  200  header:Warning~seen by /look
GET /debug/audit
  200  differences=[]
"#,
        )
        .await;
    let looked: Vec<Value> =
        hooks.seen().into_iter().filter(|(path, _)| path.starts_with("/look")).map(|(_, review)| review).collect();
    let asked: Vec<&Value> = looked.iter().map(|review| &review["request"]).collect();
    assert_eq!(asked[0]["object"]["spec"]["containers"][0]["resources"]["requests"]["cpu"], "600m");
    assert_ne!(asked[0]["object"]["metadata"]["uid"], "mine");
    let deletion = asked.iter().find(|asked| asked["operation"] == "DELETE").expect("a deletion");
    assert_eq!((&deletion["object"], &deletion["oldObject"]["metadata"]["name"]), (&Value::Null, &json!("one")));
    assert_eq!(deletion["options"]["kind"], "DeleteOptions");
}

#[tokio::test]
async fn a_webhook_refuses_in_its_own_words_and_can_be_removed() {
    let hooks = HookServer::start(|path, asked| match path {
        "/no" => Reply::Response(json!({
            "allowed": false,
            "status": {"code": 403, "reason": "Forbidden", "message": "not on a Sunday", "details": {"name": "d"}},
        })),
        "/scale" => {
            assert_eq!(asked["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
            Reply::Patch(json!([{"op": "replace", "path": "/spec/replicas", "value": 2}]))
        }
        _ => Reply::Raw(500, "broken".into()),
    })
    .await;
    let server = Server::start();
    server.play(NAMESPACES).await;
    let created = json!([{"operations": ["CREATE", "DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
    register(&server, &hooks, "Validating", "no", &[], json!({"rules": created})).await;
    register(&server, &hooks, "Validating", "broken", &["secrets"], json!({})).await;
    register(&server, &hooks, "Validating", "all", &["*/*"], json!({"failurePolicy": "Ignore"})).await;
    register(&server, &hooks, "Mutating", "scale", &["*/scale"], json!({})).await;
    server
        .play(
            r#"
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "c"}}
  403  message=admission webhook "no.example.com" denied the request: not on a Sunday  reason=Forbidden  details.name=d
POST /api/v1/namespaces/a/secrets
  {"metadata": {"name": "s"}}
  500  message~Internal error occurred: failed calling webhook "broken.example.com": failed to call webhook: Post  reason=InternalError
POST /apis/apps/v1/namespaces/a/deployments
  {"metadata": {"name": "d"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}
  201
PATCH /apis/apps/v1/namespaces/a/deployments/d/scale Content-Type:application/merge-patch+json
  {"spec": {"replicas": 5}}
  200  spec.replicas=2
POST /apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations
  {"metadata": {"name": "bad"}, "webhooks": [{"name": "h.example.com", "clientConfig": {"url": "http://x/"}, "sideEffects": "None", "admissionReviewVersions": ["v1"]}]}
  422  message~'https' is the only allowed URL scheme
DELETE /apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/no
  200
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "c"}}
  201
"#,
        )
        .await;
}

#[tokio::test]
async fn mutating_hooks_come_before_a_generated_name_and_validating_ones_after() {
    let hooks = HookServer::start(|_, _| Reply::Response(json!({"allowed": true}))).await;
    let server = Server::start();
    server.play(NAMESPACES).await;
    register(&server, &hooks, "Mutating", "early", &["configmaps"], json!({})).await;
    register(&server, &hooks, "Validating", "late", &["configmaps"], json!({})).await;
    server
        .play(
            r#"
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"generateName": "made-"}}
  201  metadata.name~made-  metadata.uid?  metadata.creationTimestamp?
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "given"}}
  201  metadata.name=given
"#,
        )
        .await;
    let seen = hooks.seen();
    let shown = |at: usize| {
        let request = &seen[at].1["request"];
        let metadata = &request["object"]["metadata"];
        let name = |value: &Value| value.as_str().unwrap_or_default().trim_end_matches(|c| c != '-').to_owned();
        let own = metadata["name"].as_str().unwrap_or_default().to_owned();
        (name(&request["name"]), own.len(), !metadata["uid"].is_null(), !metadata["creationTimestamp"].is_null())
    };
    assert_eq!(shown(0), (String::new(), 0, false, false));
    assert_eq!(shown(1), ("made-".into(), "made-12345".len(), true, true));
    assert_eq!(seen[2].1["request"]["name"], "given");
    assert_eq!(seen[2].1["request"]["object"]["metadata"]["name"], "given");
}
