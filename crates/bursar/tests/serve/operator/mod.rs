//! `bursar operator` beside a real kube-apiserver.

mod cases;
mod pools;
mod storm;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::etcd::{Ended, free_port};
use crate::failover::until;
use crate::object;
use crate::peer::Kubernetes;

const WEBHOOK: &str = "quota.bursar.dev";

/// A cluster, and what an operator in it needs to start again.
struct Land {
    cluster: Kubernetes,
    client: Client,
    folder: tempfile::TempDir,
    port: u16,
}

impl Land {
    async fn start() -> Land {
        let (cluster, folder) = (Kubernetes::start(), tempfile::tempdir().expect("a folder"));
        let client = cluster.client();
        let land = Land { cluster, client, folder, port: free_port() };
        land.operate_as(land.cluster.access().1);
        land
    }

    /// Whose rights the operators have that are started from now on.
    fn operate_as(&self, token: &str) {
        let address = self.cluster.access().0;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": address, "insecure-skip-tls-verify": true}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(self.folder.path().join("kubeconfig"), kubeconfig.to_string()).expect("writes");
    }

    /// Starts an operator and waits until it answers.
    fn operator(&self) -> Ended {
        self.operator_with(&[])
    }

    fn operator_with(&self, more: &[&str]) -> Ended {
        let data = self.folder.path().join("data").display().to_string();
        let mut process = self.starting(self.port, &[&["--data", &data], more].concat());
        let output = process.0.stdout.take().expect("a pipe");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert!(line.contains("ready"), "the operator ended: {line:?}");
        process
    }

    /// One of several that share an etcd.
    fn replica(&self, etcd: u16) -> Ended {
        self.starting(free_port(), &["--store", &format!("etcd://127.0.0.1:{etcd}")])
    }

    fn starting(&self, port: u16, store: &[&str]) -> Ended {
        let child = Command::new(env!("CARGO_BIN_EXE_bursar"))
            .args(["operator", "--log", "warn", "--listen", &format!("127.0.0.1:{port}"), "--kubeconfig"])
            .arg(self.folder.path().join("kubeconfig"))
            .args(store)
            .stdout(Stdio::piped())
            .spawn()
            .expect("bursar starts");
        Ended(child)
    }

    fn data(&self) -> &Path {
        self.folder.path()
    }

    async fn namespace(&self, name: &str, labels: Value) {
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(self.client.clone());
        let namespace = object(json!({"metadata": {"name": name, "labels": labels}}));
        namespaces.create(&PostParams::default(), &namespace).await.expect("a namespace");
    }

    fn maps(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> Result<Value, kube::Error> {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = http::Request::builder().method(method).uri(path).header("Content-Type", kind);
        self.client.request(request.body(body.to_string().into_bytes()).expect("a request")).await
    }

    /// Another webhook, which refuses whatever is marked for it: nobody answers there.
    async fn other_webhook(&self) {
        let hook = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "other"},
            "webhooks": [{
                "name": "other.example.com", "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 1,
                "admissionReviewVersions": ["v1"], "objectSelector": {"matchLabels": {"refused": "yes"}},
                "clientConfig": {"url": format!("https://127.0.0.1:{}/", free_port())},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
            }],
        });
        let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        self.call("POST", hooks, hook).await.expect("another webhook");
    }

    /// A CustomQuota in a namespace.
    async fn quota(&self, namespace: &str, name: &str, limit: u64, source: Value) {
        let path = format!("/apis/capsule.clastix.io/v1beta2/namespaces/{namespace}/customquotas");
        let quota = json!({
            "apiVersion": "capsule.clastix.io/v1beta2", "kind": "CustomQuota", "metadata": {"name": name},
            "spec": {"limit": limit.to_string(), "sources": [source]},
        });
        self.call("POST", &path, quota).await.expect("a quota");
    }

    async fn global_quota(&self, name: &str, limit: u64, labels: Value, source: Value) {
        let quota = json!({
            "apiVersion": "capsule.clastix.io/v1beta2", "kind": "GlobalCustomQuota", "metadata": {"name": name},
            "spec": {"limit": limit.to_string(), "sources": [source], "namespaceSelectors": [{"matchLabels": labels}]},
        });
        self.call("POST", "/apis/capsule.clastix.io/v1beta2/globalcustomquotas", quota).await.expect("a quota");
    }

    async fn used(&self, path: &str) -> Option<String> {
        let quota = self.call("GET", path, Value::Null).await.ok()?;
        Some(quota.pointer("/status/usage/used")?.as_str()?.to_owned())
    }

    /// Waits until a quota shows this usage.
    async fn shows(&self, path: &str, used: &str) {
        until(&format!("{path} shows {used}"), async || self.used(path).await.as_deref() == Some(used)).await;
    }

    /// Waits until the quotas of a namespace refuse what these many config maps would take together, whatever is in it.
    async fn in_force(&self, namespace: &str, probe: Value) {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        until("the quota is in force", async || {
            let tried = self.maps(namespace).create(&dry, &object(probe.clone())).await;
            tried.is_err_and(|error| is_denied(&error))
        })
        .await;
    }

    async fn create(&self, namespace: &str, name: &str) -> Result<ConfigMap, kube::Error> {
        self.maps(namespace).create(&PostParams::default(), &map(name)).await
    }
}

fn custom(namespace: &str, name: &str) -> String {
    format!("/apis/capsule.clastix.io/v1beta2/namespaces/{namespace}/customquotas/{name}")
}

fn map(name: &str) -> ConfigMap {
    object(json!({"metadata": {"name": name, "labels": {"load": "yes"}}}))
}

/// Counts config maps that are marked as load.
fn load() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "op": "count", "selectors": [{"matchLabels": {"load": "yes"}}]})
}

fn amounts() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "op": "add", "path": ".data.amount"})
}

fn holding(name: &str, amount: u64) -> Value {
    json!({"metadata": {"name": name}, "data": {"amount": amount.to_string()}})
}

fn is_denied(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.message.contains(WEBHOOK) && status.code == 403)
}

async fn names(maps: &Api<ConfigMap>) -> Vec<String> {
    let listed = maps.list(&ListParams::default().labels("load=yes")).await.expect("a list");
    listed.into_iter().map(|one| one.name_any()).collect()
}

async fn delete(maps: &Api<ConfigMap>, name: &str) {
    maps.delete(name, &DeleteParams::default()).await.expect("deleted");
}
