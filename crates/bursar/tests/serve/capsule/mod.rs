//! Capsule's quotas against the binary. A group of behaviours shares one server; each behaviour has its own namespaces.

mod beyond;
mod claims;
mod cost;
mod exact;
mod examples;
mod pools;
mod quotas;
mod readings;

use std::time::{Duration, Instant};

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::object;
use crate::process::Process;

/// What a controller or the publisher of statuses does, it does well within this.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A kind by its usual name.
fn kind(name: &str) -> ApiResource {
    let (group, version, plural) = match name {
        "Namespace" => ("", "v1", "namespaces"),
        "Pod" => ("", "v1", "pods"),
        "ConfigMap" => ("", "v1", "configmaps"),
        "Service" => ("", "v1", "services"),
        "PersistentVolumeClaim" => ("", "v1", "persistentvolumeclaims"),
        "ResourceQuota" => ("", "v1", "resourcequotas"),
        "Event" => ("events.k8s.io", "v1", "events"),
        "CustomResourceDefinition" => ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
        "Bucket" => ("s3.example.com", "v1", "buckets"),
        "ResourcePool" => ("capsule.clastix.io", "v1beta2", "resourcepools"),
        "ResourcePoolClaim" => ("capsule.clastix.io", "v1beta2", "resourcepoolclaims"),
        "CustomQuota" => ("capsule.clastix.io", "v1beta2", "customquotas"),
        "GlobalCustomQuota" => ("capsule.clastix.io", "v1beta2", "globalcustomquotas"),
        "QuantityLedger" => ("capsule.clastix.io", "v1beta2", "quantityledgers"),
        other => panic!("the tests do not know the kind {other}"),
    };
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, name), plural)
}

/// A server and whoever talks to it.
struct Land {
    process: Process,
    client: Client,
    _folder: tempfile::TempDir,
}

impl Land {
    async fn start() -> Land {
        Land::start_with("").await
    }

    /// With this text as configuration file.
    async fn start_with(configuration: &str) -> Land {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("bursar.yaml");
        std::fs::write(&file, configuration).expect("a configuration");
        let arguments = ["--log", "error", "--store", "memory", "--config", &file.display().to_string()];
        let process = Process::start(folder.path(), &arguments).await;
        let client = process.client().await;
        Land { process, client, _folder: folder }
    }

    /// Its own recount agrees with its ledger, and it is ended cleanly.
    async fn end(self) {
        let request = http::Request::get("/debug/audit").body(Vec::new()).expect("a request");
        let report: Value = self.client.request(request).await.expect("an audit");
        assert_eq!(report["differences"], json!([]), "{report}");
        assert_eq!(self.process.stop().await, Some(0));
    }

    fn api(&self, of: &str, namespace: &str) -> Api<DynamicObject> {
        match namespace {
            "" => Api::all_with(self.client.clone(), &kind(of)),
            _ => Api::namespaced_with(self.client.clone(), namespace, &kind(of)),
        }
    }

    async fn namespace(&self, name: &str, labels: Value) {
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        self.create("Namespace", "", namespace).await.expect("a namespace");
    }

    async fn create(&self, of: &str, namespace: &str, mut body: Value) -> Result<Value, String> {
        let resource = kind(of);
        body["apiVersion"] = json!(resource.api_version);
        body["kind"] = json!(of);
        let created = self.api(of, namespace).create(&PostParams::default(), &object(body)).await;
        created.map(|object| json!(object)).map_err(|error| words(&error))
    }

    /// Creates an object that is nothing but a name and a spec.
    async fn make(&self, of: &str, namespace: &str, name: &str, spec: Value) -> Result<Value, String> {
        self.create(of, namespace, json!({"metadata": {"name": name}, "spec": spec})).await
    }

    async fn pool(&self, name: &str, spec: Value) {
        self.make("ResourcePool", "", name, spec).await.expect("a pool");
    }

    async fn claim(&self, namespace: &str, name: &str, pool: &str, amounts: Value) -> Value {
        let spec = json!({"pool": pool, "claim": amounts});
        self.make("ResourcePoolClaim", namespace, name, spec).await.expect("a claim")
    }

    /// A pod that requests so much cpu.
    async fn pod(&self, namespace: &str, name: &str, cpu: &str) -> Result<Value, String> {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
        self.make("Pod", namespace, name, json!({"containers": [container]})).await
    }

    async fn find(&self, of: &str, namespace: &str, name: &str) -> Option<Value> {
        self.api(of, namespace).get_opt(name).await.expect("an answer").map(|object| json!(object))
    }

    async fn get(&self, of: &str, namespace: &str, name: &str) -> Value {
        self.find(of, namespace, name).await.unwrap_or_else(|| panic!("{of} {namespace}/{name} is not there"))
    }

    async fn patch(&self, of: &str, namespace: &str, name: &str, patch: Value) -> Result<Value, String> {
        let done = self.api(of, namespace).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        done.map(|object| json!(object)).map_err(|error| words(&error))
    }

    async fn delete(&self, of: &str, namespace: &str, name: &str) -> Result<(), String> {
        let now = DeleteParams::default().grace_period(0);
        self.api(of, namespace).delete(name, &now).await.map(|_| ()).map_err(|error| words(&error))
    }

    async fn names(&self, of: &str, namespace: &str) -> Vec<String> {
        let list = self.api(of, namespace).list(&Default::default()).await.expect("a list");
        list.iter().map(ResourceExt::name_any).collect()
    }

    /// Looks until the object is as wanted; `null` when it is not there.
    async fn until(&self, of: &str, namespace: &str, name: &str, good: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let found = self.find(of, namespace, name).await.unwrap_or(Value::Null);
            if good(&found) {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "{of} {namespace}/{name} never was as wanted: {found}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Looks until a claim says exactly this of itself ([`standing`]).
    async fn until_claim(&self, namespace: &str, name: &str, expected: &str) {
        self.until("ResourcePoolClaim", namespace, name, |claim| standing(claim) == expected).await;
    }

    async fn until_gone(&self, of: &str, namespace: &str, name: &str) {
        self.until(of, namespace, name, Value::is_null).await;
    }

    /// `spec.hard` of a pool's ResourceQuota. It is there from the moment the namespace is under the pool.
    async fn hard(&self, namespace: &str, pool: &str) -> Value {
        self.get("ResourceQuota", namespace, &format!("capsule-pool-{pool}")).await["spec"]["hard"].clone()
    }

    /// `used/available` of a quota.
    async fn usage(&self, of: &str, namespace: &str, name: &str) -> String {
        let quota = self.get(of, namespace, name).await;
        let usage = &quota["status"]["usage"];
        format!("{}/{}", usage["used"].as_str().unwrap_or("?"), usage["available"].as_str().unwrap_or("?"))
    }
}

/// What the server said.
fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} {}", status.code, status.message),
        other => other.to_string(),
    }
}

/// The conditions of a claim: `Type=Status/Reason: message`, one after the other.
fn standing(claim: &Value) -> String {
    let list = claim["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let show = |one: &Value| {
        let text = |field: &str| one[field].as_str().unwrap_or("").to_string();
        format!("{}={}/{}: {}", text("type"), text("status"), text("reason"), text("message"))
    };
    list.iter().map(show).collect::<Vec<_>>().join(", ")
}

const UNUSED: &str = "Ready=True/Succeeded: reconciled, Exhausted=False/NoExhaustions: resource claimable from pool, \
                      Bound=False/Unused: claim is unused";
const IN_USE: &str = "Ready=True/Succeeded: reconciled, Exhausted=False/NoExhaustions: resource claimable from pool, \
                      Bound=True/InUse: claim is used";

fn failed(why: &str) -> String {
    format!("Ready=False/Failed: {why}")
}

fn exhausted(reason: &str, why: &str) -> String {
    format!(
        "Ready=True/Succeeded: reconciled, Exhausted=True/{reason}: {why}, Bound=False/Failed: claim causes exhaustions"
    )
}

/// A selector of namespaces by one label.
fn labelled(key: &str, value: &str) -> Value {
    json!([{"matchLabels": {key: value}}])
}
