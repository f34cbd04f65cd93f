//! What nobody may say of an object, however they say it: its kind, its identity, its age, whom it is about.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::hook_server::{HookServer, Reply};

const LAND: &str = r#"
POST /api/v1/namespaces
  {"metadata": {"name": "a"}}
  201
POST /api/v1/namespaces
  {"metadata": {"name": "default"}}
  201
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "c"}, "data": {"k": "v"}}
  201  metadata.uid>uid  metadata.creationTimestamp>created
POST /apis/apps/v1/namespaces/a/deployments
  {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}
  201
POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions
  {"metadata": {"name": "plots.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "plots", "kind": "Plot"}, "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}
  201
POST /apis/example.com/v1/namespaces/a/plots
  {"apiVersion": "example.com/v1", "kind": "Plot", "metadata": {"name": "p"}, "spec": {"replicas": 1}}
  201
"#;

#[tokio::test]
async fn no_patch_changes_what_kind_an_object_is() {
    let server = Server::start();
    server.play(LAND).await;
    let objects = [
        ("/api/v1/namespaces/a/configmaps/c", "v1", "ConfigMap", true),
        ("/apis/apps/v1/namespaces/a/deployments/d", "apps/v1", "Deployment", true),
        ("/apis/apps/v1/namespaces/a/deployments/d/status", "apps/v1", "Deployment", true),
        ("/apis/apps/v1/namespaces/a/deployments/d/scale", "autoscaling/v1", "Scale", true),
        ("/apis/example.com/v1/namespaces/a/plots/p", "example.com/v1", "Plot", false),
        ("/apis/example.com/v1/namespaces/a/plots/p/status", "example.com/v1", "Plot", false),
        ("/api/v1/namespaces/a", "v1", "Namespace", true),
    ];
    for (path, version, kind, builtin) in objects {
        let mut patches = Vec::new();
        for (field, value) in [("kind", "Secret"), ("apiVersion", "v2"), ("apiVersion", "example.com/v7")] {
            for op in ["replace", "add"] {
                let patch = json!([{"op": op, "path": format!("/{field}"), "value": value}]);
                patches.push(("json-patch+json", patch.to_string()));
            }
            patches.push(("merge-patch+json", json!({field: value}).to_string()));
            if builtin {
                patches.push(("strategic-merge-patch+json", json!({field: value}).to_string()));
            }
        }
        let other = json!({"apiVersion": version, "kind": "Secret", "metadata": {"name": path.rsplit('/').next()}});
        patches.push(("apply-patch+yaml", other.to_string()));
        let moved = json!([{"op": "move", "from": "/metadata/name", "path": "/kind"}]);
        patches.push(("json-patch+json", moved.to_string()));
        patches
            .push(("json-patch+json", json!([{"op": "copy", "from": "/metadata/name", "path": "/kind"}]).to_string()));
        for (how, patch) in patches {
            let manager = if how.starts_with("apply") { "?fieldManager=m" } else { "" };
            server.play(&format!("PATCH {path}{manager} Content-Type:application/{how}\n  {patch}\n  400")).await;
        }
        server.play(&format!("PUT {path}\n  {}\n  400", other)).await;
        // Without a kind, a built-in one is what its path says.
        let removed = json!([{"op": "remove", "path": "/kind"}]);
        let code = if builtin { "200" } else { "400" };
        server.play(&format!("PATCH {path} Content-Type:application/json-patch+json\n  {removed}\n  {code}")).await;
        server.play(&format!("GET {path}\n  200  kind={kind}  apiVersion={version}")).await;
    }
}

#[tokio::test]
async fn identity_and_age_are_not_patched() {
    let server = Server::start();
    let known = server.play(LAND).await;
    let path = "/api/v1/namespaces/a/configmaps/c";
    let uid = "00000000-0000-0000-0000-000000000001";
    let immutable = |field: &str, value: &str| {
        format!(
            "422  message=ConfigMap \"c\" is invalid: metadata.{field}: Invalid value: \"{value}\": field is immutable"
        )
    };
    for (metadata, answer) in [
        (json!({"uid": uid}), immutable("uid", uid)),
        (json!({"creationTimestamp": "2001-01-01T00:00:00Z"}), immutable("creationTimestamp", "2001-01-01T00:00:00Z")),
        (json!({"deletionTimestamp": "2001-01-01T00:00:00Z"}), immutable("deletionTimestamp", "2001-01-01T00:00:00Z")),
        (json!({"name": "other"}), "400".to_owned()),
        (json!({"namespace": "default"}), "400".to_owned()),
        (json!({"resourceVersion": "1"}), "409".to_owned()),
    ] {
        let body = json!({"metadata": metadata});
        server.play(&format!("PATCH {path} Content-Type:application/merge-patch+json\n  {body}\n  {answer}")).await;
        server
            .play(&format!("PATCH {path} Content-Type:application/strategic-merge-patch+json\n  {body}\n  {answer}"))
            .await;
        let mut applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
        for (field, value) in metadata.as_object().into_iter().flatten() {
            applied["metadata"][field] = value.clone();
        }
        server
            .play(&format!(
                "PATCH {path}?fieldManager=m&force=true Content-Type:application/apply-patch+yaml\n  {applied}\n  {}",
                &answer[..3]
            ))
            .await;
    }
    // Taken away, or generation counted by hand, they are put back.
    let away = json!([
        {"op": "remove", "path": "/metadata/uid"}, {"op": "remove", "path": "/metadata/creationTimestamp"},
        {"op": "add", "path": "/metadata/generation", "value": 99}, {"op": "add", "path": "/metadata/selfLink", "value": "/x"},
    ]);
    let (uid, created) = (&known["uid"], &known["created"]);
    let kept = format!(
        "200  metadata.uid={uid}  metadata.creationTimestamp={created}  metadata.generation!  metadata.selfLink!"
    );
    server.play(&format!("PATCH {path} Content-Type:application/json-patch+json\n  {away}\n  {kept}")).await;
    server
        .play(&format!(
            "PUT {path}\n  {{\"metadata\": {{\"name\": \"c\", \"uid\": \"other\"}}}}\n  409  reason=Conflict"
        ))
        .await;
}

#[tokio::test]
async fn what_a_webhook_says_of_identity_and_age_is_put_back() {
    let hooks = HookServer::start(|path, asked| {
        let said = |field: &str, value: Value| json!({"op": "add", "path": format!("/metadata/{field}"), "value": value});
        match (path, asked["operation"].as_str()) {
            ("/kind", _) => Reply::Patch(json!([{"op": "replace", "path": "/kind", "value": "ConfigMap"}])),
            ("/moved", Some("UPDATE")) => Reply::Patch(json!([{"op": "remove", "path": "/metadata/namespace"}])),
            ("/forge", Some("CREATE")) => Reply::Patch(json!([
                said("deletionTimestamp", json!("2001-01-01T00:00:00Z")), said("deletionGracePeriodSeconds", json!(7)),
                said("generation", json!(42)), said("resourceVersion", json!("7")), said("selfLink", json!("/x")),
                said("uid", json!("mine")), said("creationTimestamp", json!("2001-01-01T00:00:00Z")),
                said("managedFields", json!([{"manager": "ghost", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}])),
                said("labels", json!({"seen": "yes"})),
            ])),
            ("/forge", Some("UPDATE")) => Reply::Patch(json!([
                said("generation", json!(42)), said("managedFields", json!([])), said("uid", Value::Null),
            ])),
            _ => Reply::Allow,
        }
    })
    .await;
    let server = Server::start();
    server.play(LAND).await;
    for (path, resource) in [("kind", "secrets"), ("moved", "services"), ("forge", "configmaps")] {
        let hook = json!({"metadata": {"name": path}, "webhooks": [{
            "name": format!("{path}.example.com"),
            "clientConfig": {"url": format!("{}/{}", hooks.url, path), "caBundle": hooks.ca_bundle},
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource]}],
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }]});
        let hooks = "POST /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
        server.play(&format!("{hooks}\n  {hook}\n  201")).await;
    }
    server
        .play(
            r#"
POST /api/v1/namespaces/a/secrets
  {"metadata": {"name": "s"}}
  500  message~of another kind
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "n"}, "data": {"k": "u"}}
  201  metadata.labels.seen=yes  metadata.deletionTimestamp!  metadata.deletionGracePeriodSeconds!  metadata.generation!  metadata.selfLink!  metadata.uid>uid  metadata.creationTimestamp>created  metadata.managedFields.0.manager=unknown
GET /api/v1/namespaces/a/configmaps/n
  200  metadata.uid=${uid}  metadata.deletionTimestamp!
PATCH /api/v1/namespaces/a/configmaps/n Content-Type:application/merge-patch+json
  {"data": {"k": "v"}}
  200  metadata.uid=${uid}  metadata.creationTimestamp=${created}  metadata.generation!  metadata.managedFields.0.manager?
PATCH /api/v1/namespaces/a/configmaps/applied?fieldManager=me Content-Type:application/apply-patch+yaml
  {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"k": "v"}}
  201  metadata.managedFields.0.manager=me  metadata.managedFields.0.operation=Apply
PATCH /api/v1/namespaces/a/configmaps/applied?fieldManager=me Content-Type:application/apply-patch+yaml
  {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"k": "w"}}
  200  metadata.managedFields.0.manager=me
POST /api/v1/namespaces/a/services
  {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
  201
PATCH /api/v1/namespaces/a/services/s Content-Type:application/merge-patch+json
  {"metadata": {"labels": {"x": "y"}}}
  200  metadata.namespace=a
"#,
        )
        .await;
    // Nothing forged holds it: it goes at once.
    server.play("DELETE /api/v1/namespaces/a/configmaps/n\n  200\nGET /api/v1/namespaces/a/configmaps/n\n  404").await;
}

#[tokio::test]
async fn an_event_is_told_where_it_happened() {
    let server = Server::start();
    server.play(LAND).await;
    let core = |namespace: &str, about: Value| {
        let event =
            json!({"metadata": {"generateName": "e-"}, "involvedObject": about, "reason": "R", "type": "Normal"});
        format!("POST /api/v1/namespaces/{namespace}/events\n  {event}")
    };
    let newer = |namespace: &str, about: Value| {
        let event = json!({
            "metadata": {"generateName": "e-"}, "regarding": about, "reason": "R", "type": "Normal", "action": "Do",
            "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c", "reportingInstance": "i",
        });
        format!("POST /apis/events.k8s.io/v1/namespaces/{namespace}/events\n  {event}")
    };
    let pod = |namespace: &str| json!({"kind": "Pod", "name": "p", "namespace": namespace});
    let node = || json!({"kind": "Node", "name": "n"});
    let refused = "422  message~involvedObject.namespace: Invalid value:  message~does not match event.namespace";
    for (request, answer) in [
        (core("a", pod("a")), "201"),
        (core("a", pod("default")), refused),
        (core("a", node()), refused),
        (core("default", node()), "201"),
        (core("default", pod("a")), refused),
        (newer("a", pod("a")), "201"),
        (newer("a", pod("kube-system")), refused),
        (newer("a", node()), refused),
        (newer("default", node()), "201"),
    ] {
        server.play(&format!("{request}\n  {answer}")).await;
    }
}

#[tokio::test]
async fn data_is_bounded_as_in_kubernetes() {
    let server = Server::start();
    server.play(LAND).await;
    // (resource, field, bytes of text, whether it fits); base64 stands for three bytes in four.
    const MIB: usize = 1024 * 1024;
    let cases = [
        ("configmaps", "data", MIB, true),
        ("configmaps", "data", MIB + 1, false),
        ("configmaps", "binaryData", MIB / 3 * 4, true),
        ("configmaps", "binaryData", MIB / 3 * 4 + 8, false),
        ("secrets", "data", MIB / 3 * 4, true),
        ("secrets", "data", MIB / 3 * 4 + 8, false),
        ("secrets", "stringData", MIB, true),
        ("secrets", "stringData", MIB + 1, false),
    ];
    for (at, (resource, field, bytes, fits)) in cases.into_iter().enumerate() {
        let body = json!({"metadata": {"name": format!("n{at}")}, field: {"k": "A".repeat(bytes)}});
        let answer = if fits { "201" } else { "422  message~Too long: may not be more than 1048576 bytes" };
        server.play(&format!("POST /api/v1/namespaces/a/{resource}\n  {body}\n  {answer}")).await;
    }
    // In two halves, and by a patch, it is as much.
    let half = "A".repeat(MIB / 2 + 1);
    let body = json!({"metadata": {"name": "halves"}, "data": {"a": half}});
    server.play(&format!("POST /api/v1/namespaces/a/configmaps\n  {body}\n  201")).await;
    let more = json!({"data": {"b": half}});
    let answer = "422  message=ConfigMap \"halves\" is invalid: []: Too long: may not be more than 1048576 bytes";
    let patch = "PATCH /api/v1/namespaces/a/configmaps/halves Content-Type:application/merge-patch+json";
    server.play(&format!("{patch}\n  {more}\n  {answer}")).await;
}

#[tokio::test]
async fn what_is_posted_below_an_object_is_about_that_object() {
    let server = Server::start();
    server.play(LAND).await;
    server
        .play(
            r#"
POST /api/v1/namespaces/a/pods
  {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
  201
POST /api/v1/namespaces/a/pods/p/eviction
  {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "q"}}
  400  message=name in URL does not match name in Eviction object
POST /api/v1/namespaces/a/pods/p/eviction
  {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "default"}}
  400  message~does not match the namespace sent on the request
POST /api/v1/namespaces/a/pods/p/binding
  {"metadata": {"name": "q"}, "target": {"kind": "Node", "name": "n"}}
  400  message=name in URL does not match name in Binding object
POST /api/v1/namespaces/a/bindings
  {"metadata": {"name": "p", "namespace": "default"}, "target": {"kind": "Node", "name": "n"}}
  400  message~does not match the namespace sent on the request
POST /api/v1/namespaces/a/pods/p/binding
  {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
  201
PATCH /api/v1/namespaces/a/pods/p/status Content-Type:application/merge-patch+json
  {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"}], "annotations": {"n": "m"}}, "status": {"phase": "Running"}}
  200  metadata.ownerReferences!  metadata.annotations.n=m  status.phase=Running
PATCH /api/v1/namespaces/a/pods/p/status Content-Type:application/merge-patch+json
  {"status": {"qosClass": "Guaranteed"}}
  422  message=Pod "p" is invalid: status.qosClass: Invalid value: "Guaranteed": field is immutable
PUT /api/v1/namespaces/a/pods/p/status
  {"metadata": {"name": "p"}, "status": {"phase": "Running"}}
  200  status.qosClass=BestEffort
PATCH /api/v1/namespaces/a/status Content-Type:application/merge-patch+json
  {"metadata": {"labels": {"pool": "none"}, "annotations": {"n": "m"}}}
  200  metadata.labels.pool!  metadata.annotations.n=m
PUT /api/v1/namespaces/a/finalize
  {"metadata": {"name": "a", "labels": {"pool": "none"}}, "spec": {"finalizers": ["kubernetes"]}}
  200  metadata.labels.pool!  spec.finalizers.0=kubernetes
POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings
  {"metadata": {"name": "b"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}, "subjects": []}
  422  message~roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"
"#,
        )
        .await;
}
