//! A tenant bound to one namespace cannot read, watch or infer another's objects or quotas.

use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::process::Process;

/// In every name and value of the other tenant, so that any leak shows.
const SECRET: &str = "zebra";

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> (u16, String) {
    let mut request = Request::builder().method(method).uri(path).header("Content-Type", "application/json");
    if method == "PATCH" {
        request = Request::builder().method(method).uri(path).header("Content-Type", "application/merge-patch+json");
    }
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let response = client.send(request.body(Body::from(bytes)).expect("a request")).await.expect("an answer");
    let code = response.status().as_u16();
    let text = response.into_body().collect_bytes().await.expect("a body");
    (code, String::from_utf8_lossy(&text).into_owned())
}

async fn make(admin: &Client, path: &str, body: Value) {
    let (code, text) = send(admin, "POST", path, &body).await;
    assert!(code == 201, "{path}: {text}");
}

/// Two tenants under one organisation's quotas, and a token for the first.
async fn tenants(process: &Process) -> Client {
    let admin = process.client().await;
    for namespace in ["mine", "zebra-team"] {
        let labels = json!({"org": "both"});
        make(&admin, "/api/v1/namespaces", json!({"metadata": {"name": namespace, "labels": labels}})).await;
    }
    let theirs = "/api/v1/namespaces/zebra-team";
    make(
        &admin,
        &format!("{theirs}/secrets"),
        json!({"metadata": {"name": "zebra-key"}, "stringData": {"k": "zebra"}}),
    )
    .await;
    make(&admin, &format!("{theirs}/configmaps"), json!({"metadata": {"name": "zebra-map"}, "data": {"k": "zebra"}}))
        .await;
    make(
        &admin,
        &format!("{theirs}/resourcequotas"),
        json!({"metadata": {"name": "zebra-quota"}, "spec": {"hard": {"pods": "7"}}}),
    )
    .await;
    make(
        &admin,
        &format!("{theirs}/pods"),
        json!({"metadata": {"name": "zebra-pod"}, "spec": {"containers": [{"name": "c", "image": "zebra"}]}}),
    )
    .await;
    // One budget for both, which each of them can run into.
    let wide = json!({
        "apiVersion": "quota.openshift.io/v1", "kind": "ClusterResourceQuota", "metadata": {"name": "both"},
        "spec": {"selector": {"labels": {"matchLabels": {"org": "both"}}}, "quota": {"hard": {"secrets": "2"}}},
    });
    make(&admin, "/apis/quota.openshift.io/v1/clusterresourcequotas", wide).await;
    make(&admin, "/api/v1/namespaces/mine/secrets", json!({"metadata": {"name": "own"}})).await;
    make(&admin, "/api/v1/namespaces/mine/serviceaccounts", json!({"metadata": {"name": "tenant"}})).await;
    let binding = json!({
        "metadata": {"name": "tenant"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": "mine"}],
    });
    make(&admin, "/apis/rbac.authorization.k8s.io/v1/namespaces/mine/rolebindings", binding).await;
    let asked =
        send(&admin, "POST", "/api/v1/namespaces/mine/serviceaccounts/tenant/token", &json!({"spec": {}})).await;
    let answer: Value = serde_json::from_str(&asked.1).expect("a token request");
    process.client_with_token(answer["status"]["token"].as_str().expect("a token")).await
}

#[tokio::test]
async fn a_tenant_learns_nothing_of_its_neighbour() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &[]).await;
    let tenant = tenants(&process).await;
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});

    // Everything of the neighbour's, and everything that would show it among others, is refused: the same for what is
    // there and for what is not, so that the refusal itself says nothing.
    let kinds =
        ["secrets", "configmaps", "pods", "resourcequotas", "events", "services", "serviceaccounts", "limitranges"];
    let mut requests = Vec::new();
    for kind in kinds {
        requests.push(("GET", format!("/api/v1/{kind}")));
        requests.push(("GET", format!("/api/v1/{kind}?watch=1&timeoutSeconds=1")));
        for namespace in ["zebra-team", "zebra-nosuch"] {
            requests.push(("GET", format!("/api/v1/namespaces/{namespace}/{kind}")));
            requests.push(("GET", format!("/api/v1/namespaces/{namespace}/{kind}?watch=1&timeoutSeconds=1")));
            for name in ["zebra-pod", "zebra-quota", "zebra-nosuch"] {
                requests.push(("GET", format!("/api/v1/namespaces/{namespace}/{kind}/{name}")));
                requests.push(("DELETE", format!("/api/v1/namespaces/{namespace}/{kind}/{name}")));
                requests.push(("PATCH", format!("/api/v1/namespaces/{namespace}/{kind}/{name}")));
            }
            requests.push(("POST", format!("/api/v1/namespaces/{namespace}/{kind}")));
            requests.push(("POST", format!("/api/v1/namespaces/{namespace}/{kind}?dryRun=All")));
            requests.push(("DELETE", format!("/api/v1/namespaces/{namespace}/{kind}")));
        }
    }
    for path in [
        "/api/v1/namespaces",
        "/api/v1/namespaces?watch=1",
        "/api/v1/namespaces/zebra-team",
        "/api/v1/namespaces/zebra-nosuch",
        "/api/v1/namespaces/zebra-team/resourcequotas/zebra-quota/status",
        "/apis/quota.openshift.io/v1/clusterresourcequotas",
        "/apis/quota.openshift.io/v1/clusterresourcequotas/both",
        "/apis/quota.openshift.io/v1/appliedclusterresourcequotas",
        "/apis/quota.openshift.io/v1/namespaces/zebra-team/appliedclusterresourcequotas",
        "/apis/hnc.x-k8s.io/v1alpha2/hierarchicalresourcequotas",
        "/apis/hnc.x-k8s.io/v1alpha2/namespaces/zebra-team/hierarchicalresourcequotas",
        "/apis/rbac.authorization.k8s.io/v1/rolebindings",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/capsule.clastix.io/v1beta2/resourcepools",
        "/apis/capsule.clastix.io/v1beta2/globalcustomquotas",
        "/metrics",
        "/debug/audit",
        "/bursar/backup",
        "/bursar/denials",
    ] {
        requests.push(("GET", path.to_owned()));
    }
    for (method, path) in &requests {
        let body = if matches!(*method, "POST" | "PATCH") { json!({"metadata": {"name": "x"}}) } else { Value::Null };
        let (code, text) = send(&tenant, method, path, &body).await;
        assert_eq!(code, 403, "{method} {path}: {text}");
        // What it asked for itself is in the answer, and nothing more.
        let asked: String = path.split('?').next().unwrap_or_default().to_owned();
        let said: Vec<&str> =
            text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|word| word.contains(SECRET)).collect();
        assert!(said.iter().all(|word| asked.contains(word)), "{method} {path}: {text}");
    }
    // Existing and missing are told apart by nothing but the name that was asked for.
    for kind in ["pods/zebra-pod", "resourcequotas/zebra-quota"] {
        let there = send(&tenant, "GET", &format!("/api/v1/namespaces/zebra-team/{kind}"), &Value::Null).await.1;
        let missing = send(&tenant, "GET", &format!("/api/v1/namespaces/zebra-gone/{kind}"), &Value::Null).await.1;
        assert_eq!(there.replace("zebra-team", "NS"), missing.replace("zebra-gone", "NS"));
    }

    // What a tenant may read says nothing of the neighbour either: its own quotas, discovery, its rights, its refusals.
    let mut readable = Vec::new();
    for path in [
        "/apis/quota.openshift.io/v1/namespaces/mine/appliedclusterresourcequotas",
        "/apis/quota.openshift.io/v1/namespaces/mine/appliedclusterresourcequotas/both",
        "/api/v1/namespaces/mine/resourcequotas",
        "/api/v1/namespaces/mine/events",
        "/api/v1/namespaces/mine",
        "/apis",
        "/openapi/v3",
    ] {
        let (code, text) = send(&tenant, "GET", path, &Value::Null).await;
        assert_eq!(code, 200, "{path}: {text}");
        readable.push(text);
    }
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "zebra-team"}});
    readable.push(send(&tenant, "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &review).await.1);
    // The budget of both is used up, by one of each: the refusal names the budget and not who holds it.
    let (code, refusal) =
        send(&tenant, "POST", "/api/v1/namespaces/mine/secrets", &json!({"metadata": {"name": "more"}})).await;
    assert_eq!(code, 403, "{refusal}");
    assert!(refusal.contains("exceeded quota: both"), "{refusal}");
    readable.push(refusal);
    let (code, made) = send(&tenant, "POST", "/api/v1/namespaces/mine/pods", &pod("own")).await;
    assert_eq!(code, 201, "a full quota of the neighbour's limits nobody else: {made}");
    readable.push(made);
    for text in readable {
        let shown = text.replace("\"namespace\":\"zebra-team\"", "");
        assert!(!shown.contains(SECRET), "{shown}");
    }
    assert_eq!(process.stop().await, Some(0));
}
