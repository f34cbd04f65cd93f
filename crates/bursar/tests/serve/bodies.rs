//! Every built-in kind, filled at random by Kubernetes' own types, sent as JSON and as protobuf: one object is stored.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::compare::difference;
use crate::harness::part;
use crate::object;
use crate::process::Process;

/// Objects of each kind.
const ROUNDS: u32 = 4;
const SEED: u32 = 20_261_115;
/// The namespace that the Go program has in mind.
const NAMESPACE: &str = "roundtrip";

struct Resource {
    /// Where its objects are posted.
    path: String,
    stored: bool,
    has_status: bool,
}

/// (apiVersion, kind) of every built-in resource, as discovery names them.
async fn resources(client: &Client) -> BTreeMap<(String, String), Resource> {
    let groups = get(client, "/apis").await.expect("groups");
    let mut versions = vec!["v1".to_owned()];
    for group in groups["groups"].as_array().expect("a list") {
        let name = group["name"].as_str().expect("a name");
        if name.ends_with(".k8s.io") || !name.contains('.') {
            let all = group["versions"].as_array().expect("versions").iter();
            versions.extend(all.map(|version| version["groupVersion"].as_str().expect("a version").to_owned()));
        }
    }
    let mut resources = BTreeMap::new();
    for version in versions {
        let root = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
        let list = get(client, &root).await.expect("resources");
        let all = list["resources"].as_array().expect("a list");
        let names: BTreeSet<&str> = all.iter().filter_map(|one| one["name"].as_str()).collect();
        for one in all.iter().filter(|one| !one["name"].as_str().is_some_and(|name| name.contains('/'))) {
            let plural = one["name"].as_str().expect("a name");
            let path = match one["namespaced"] == true {
                true => format!("{root}/namespaces/{NAMESPACE}/{plural}"),
                false => format!("{root}/{plural}"),
            };
            let can = |what: &str| one["verbs"].as_array().expect("verbs").iter().any(|verb| verb == what);
            let stored = can("list");
            if !can("create") {
                continue;
            }
            let has_status = names.contains(format!("{plural}/status").as_str());
            let kind = one["kind"].as_str().expect("a kind").to_owned();
            if kind == "ResourceQuotaUsage" {
                continue; // a document of the kubernetes family, unknown to Kubernetes' own types
            }
            resources.insert((version.clone(), kind), Resource { path, stored, has_status });
        }
    }
    resources
}

/// The answer, or code and message of the refusal.
async fn get(client: &Client, path: &str) -> Result<Value, (u16, String)> {
    answer(client, Request::get(path).body(Vec::new()).expect("a request")).await
}

async fn send(client: &Client, method: &str, path: &str, kind: &str, body: &[u8]) -> Result<Value, (u16, String)> {
    let request = Request::builder().method(method).uri(path).header("Content-Type", kind).body(body.to_vec());
    answer(client, request.expect("a request")).await
}

async fn answer(client: &Client, request: Request<Vec<u8>>) -> Result<Value, (u16, String)> {
    match client.request(request).await {
        Ok(value) => Ok(value),
        Err(kube::Error::Api(status)) => Err((status.code, status.message)),
        Err(other) => panic!("no answer: {other}"),
    }
}

/// The object without what is its own: name, identity, the time and the addresses it was given. Controllers may have written
/// the status of one of the two meanwhile, so it counts only when it is what was sent.
fn anonymous(what: &str, mut object: Value, name: &str) -> Value {
    let uid = object["metadata"]["uid"].as_str().unwrap_or("no uid").to_owned();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("creationTimestamp");
        metadata.remove("resourceVersion");
        if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
            entries.retain(|entry| entry["manager"] == "unknown" && entry.get("subresource").is_none());
            entries.iter_mut().for_each(|entry| drop(entry["time"].take()));
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("deployment.kubernetes.io/revision");
        }
    }
    if what != "status" {
        object["status"].take();
    }
    if object["kind"] == "Service" {
        for field in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
            if let Some(given) = object["spec"].get_mut(field) {
                given.take();
            }
        }
        for port in object["spec"]["ports"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            port.entry("nodePort").and_modify(|given| drop(given.take()));
        }
    }
    let text = object.to_string().replace(name, "NAME").replace(&uid, "UID");
    serde_json::from_str(&text).expect("still an object")
}

#[tokio::test]
async fn every_kind_is_stored_the_same_from_json_and_from_protobuf() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &[]).await;
    let client = process.client().await;
    let namespace: Value = object(json!({"metadata": {"name": NAMESPACE}}));
    send(&client, "POST", "/api/v1/namespaces", "application/json", namespace.to_string().as_bytes())
        .await
        .expect("a namespace");
    let resources = resources(&client).await;
    assert!(resources.len() > 50, "{} resources", resources.len());

    let made = std::process::Command::new(part("roundtrip"))
        .args([SEED.to_string(), ROUNDS.to_string(), "tame".into()])
        .output()
        .expect("roundtrip runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let made = String::from_utf8(made.stdout).expect("text");
    let mut kept: BTreeMap<&(String, String), u32> = resources.keys().map(|key| (key, 0)).collect();
    let mut refusals = Vec::new();
    let mut differences = Vec::new();
    for line in made.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let &[version, kind, wire, text] = &words[..] else { panic!("four words: {line}") };
        let key = (version.to_owned(), kind.to_owned());
        let Some((key, resource)) = resources.get_key_value(&key) else { continue };
        let wire = STANDARD.decode(wire).expect("base64");
        let name: Value = serde_json::from_str(text).expect("JSON");
        let name = name["metadata"]["name"].as_str().unwrap_or("no name").to_owned();
        // The same name but for its first word; a definition's begins with its plural.
        let twin = name.replace("text-", "wire-");
        if kind == "Binding" {
            // What is bound has to be there.
            for name in [&name, &twin] {
                let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
                let path = resource.path.replace("bindings", "pods");
                send(&client, "POST", &path, "application/json", pod.to_string().as_bytes()).await.expect("a pod");
            }
        }
        let own = |name: &str| name.trim_start_matches("things.").trim_end_matches(".example.com").to_owned();
        let of_text = send(&client, "POST", &resource.path, "application/json", text.as_bytes()).await;
        let of_wire = send(&client, "POST", &resource.path, "application/vnd.kubernetes.protobuf", &wire).await;
        let mut pairs = vec![("created", of_text, of_wire)];
        if pairs[0].1.is_ok() && resource.stored {
            let read = [
                get(&client, &format!("{}/{name}", resource.path)).await,
                get(&client, &format!("{}/{twin}", resource.path)).await,
            ];
            let [of_text, of_wire] = read;
            pairs.push(("read", of_text, of_wire));
            if resource.has_status {
                let path = |name: &str| format!("{}/{name}/status", resource.path);
                let of_text = send(&client, "PUT", &path(&name), "application/json", text.as_bytes()).await;
                let of_wire = send(&client, "PUT", &path(&twin), "application/vnd.kubernetes.protobuf", &wire).await;
                pairs.push(("status", of_text, of_wire));
            }
        }
        for (what, of_text, of_wire) in pairs {
            let of_text = of_text.map(|object| anonymous(what, object, &own(&name)));
            let of_wire = of_wire.map(|object| anonymous(what, object, &own(&twin)));
            match (of_text, of_wire) {
                (Ok(a), Ok(b)) => {
                    if what == "created" {
                        *kept.entry(key).or_default() += 1;
                    }
                    difference(&format!("{what} {kind}"), &a, &b, &mut differences);
                }
                (Err((code, said)), Err(other)) => {
                    let same = (code, said.replace(&own(&name), "NAME"));
                    let other = (other.0, other.1.replace(&own(&twin), "NAME"));
                    refusals.push(format!("{what} {kind}: {code} {said}"));
                    if same != other {
                        differences.push(format!("{what} {kind}: {same:?} and {other:?}"));
                    }
                }
                (a, b) => differences.push(format!("{what} {kind}:\n  {a:?}\n  {b:?}")),
            }
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
    let never: Vec<_> = kept.iter().filter(|(_, count)| **count == 0).map(|(key, _)| key).collect();
    assert!(never.is_empty(), "never accepted: {never:?}\n{}", refusals.join("\n"));
    assert_eq!(process.stop().await, Some(0));
}
