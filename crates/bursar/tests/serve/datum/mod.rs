//! Datum's quotas over HTTP, with the binary and real clients.

mod denials;
mod meters;
mod orphans;
mod other;
mod outbox;
mod parallel;
mod rights;
mod story;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::process::Process;

const CPU: &str = "compute.datumapis.com/instances/cpu";
const COUNT: &str = "compute.datumapis.com/instances/count";
const PROJECT: &str = "proj-abc";

fn kind(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("quota.datumapis.com", "v1alpha1", kind), plural)
}

fn claims() -> ApiResource {
    kind("ResourceQuotaClaim", "resourcequotaclaims")
}

fn grants() -> ApiResource {
    kind("ResourceQuotaGrant", "resourcequotagrants")
}

fn definitions() -> ApiResource {
    kind("ServiceQuotaDefinition", "servicequotadefinitions")
}

fn effective() -> ApiResource {
    kind("EffectiveQuotaGrant", "effectivequotagrants")
}

/// The objects of a kind in the project's namespace, or in none.
fn api(client: &kube::Client, of: &ApiResource) -> Api<DynamicObject> {
    match &*of.plural {
        "resourcequotaclaims" | "resourcequotagrants" | "instances" => {
            Api::namespaced_with(client.clone(), PROJECT, of)
        }
        _ => Api::all_with(client.clone(), of),
    }
}

async fn create(client: &kube::Client, of: &ApiResource, name: &str, spec: Value) -> kube::Result<DynamicObject> {
    let object = json!({"apiVersion": of.api_version, "kind": of.kind, "metadata": {"name": name}, "spec": spec});
    api(client, of).create(&PostParams::default(), &crate::object(object)).await
}

async fn edit(client: &kube::Client, of: &ApiResource, name: &str, spec: Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    api(client, of).patch(name, &PatchParams::default(), &patch).await.expect("an edit");
}

fn definition(name: &str, unit: &str) -> Value {
    json!({"serviceRef": {"name": "compute"}, "resourceName": name, "unit": unit})
}

fn limits(of: &[(&str, &str)]) -> Value {
    let limit = |(name, value): &(&str, &str)| json!({"name": name, "buckets": [{"value": value, "selector": {}}]});
    let limits: Vec<Value> = of.iter().map(limit).collect();
    json!({"resourceRef": {"kind": "Project", "name": PROJECT}, "limits": limits})
}

fn claim(of: &[(&str, &str)]) -> Value {
    let resources: Vec<Value> = of.iter().map(|(name, quantity)| json!({"name": name, "quantity": quantity})).collect();
    json!({"resourceRef": {"kind": "Instance", "name": "i"}, "resources": resources})
}

fn phase(claim: &DynamicObject) -> String {
    let text = |field: &str| claim.data["status"][field].as_str().unwrap_or("-").to_owned();
    format!("{}/{}", text("phase"), text("reason"))
}

/// How many claims are in each phase, with their reason.
async fn phases(client: &kube::Client) -> std::collections::BTreeMap<String, usize> {
    let mut all = std::collections::BTreeMap::new();
    for claim in api(client, &claims()).list(&ListParams::default()).await.expect("a list") {
        *all.entry(phase(&claim)).or_default() += 1;
    }
    all
}

/// What is used of the project's first bucket of a resource, as it is shown.
async fn used(client: &kube::Client, resource: &str) -> String {
    let project = api(client, &effective()).get(&format!("project-{PROJECT}")).await.expect("what the grants come to");
    let resources = project.data["status"]["resources"].as_array().cloned().unwrap_or_default();
    let one = resources.into_iter().find(|one| one["name"] == resource).unwrap_or_default();
    one["buckets"][0]["used"].as_str().unwrap_or_default().to_owned()
}

/// Waits until that is told: what the grants come to is told of them a moment after the claims.
async fn used_becomes(client: &kube::Client, resource: &str, wanted: &str) {
    let mut found = String::new();
    let told = async {
        loop {
            found = used(client, resource).await;
            if found == wanted {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let in_time = tokio::time::timeout(crate::harness::PATIENCE, told).await.is_ok();
    assert!(in_time, "{resource}: {found} is used, and not {wanted}");
}

/// A server with cores and instances defined, and a grant of these.
async fn start(folder: &std::path::Path, cpu: Value, granted: &[(&str, &str)]) -> (Process, kube::Client) {
    let process = Process::start(folder, &[]).await;
    let client = process.client().await;
    let namespace: Namespace = crate::object(json!({"metadata": {"name": PROJECT}}));
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.expect("a namespace");
    create(&client, &definitions(), "cpu", cpu).await.expect("a definition");
    create(&client, &definitions(), "count", definition(COUNT, "count")).await.expect("a definition");
    create(&client, &grants(), "g", limits(granted)).await.expect("a grant");
    (process, client)
}
