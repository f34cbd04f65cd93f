//! The same kubectl commands against this server and a real kube-apiserver must leave the same objects.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::peer::Kubernetes;

const MANIFESTS: &str = include_str!("kinds.yaml");

/// The manifests as one list, each changed a little.
fn manifests(change: impl Fn(&mut Value)) -> String {
    let items: Vec<Value> = MANIFESTS
        .split("\n---\n")
        .map(|text| {
            let mut object = serde_saphyr::from_str(text).expect("a manifest");
            change(&mut object);
            object
        })
        .collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

/// Kinds with a controller here that writes their status; there is none over there.
const CONTROLLED: &[&str] = &["Deployment", "ReplicaSet", "ReplicationController", "ResourceQuota", "PersistentVolume"];

/// The object without what no two servers can agree on: identity, time, addresses; and without what only a controller
/// writes.
fn comparable(mut object: Value) -> Value {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let uid = object["metadata"]["uid"].as_str().unwrap_or("no uid").to_owned();
    let controlled = CONTROLLED.contains(&kind.as_str());
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["resourceVersion", "creationTimestamp"] {
            metadata.remove(field);
        }
        if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
            entries.retain(|entry| {
                let manager = entry["manager"].as_str().unwrap_or_default();
                manager.starts_with("kubectl") || manager == "test"
            });
            // They are sorted by time, and both servers know whole seconds only.
            entries
                .sort_by_key(|entry| format!("{} {} {}", entry["manager"], entry["operation"], entry["subresource"]));
            for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
                entry.remove("time");
            }
        }
        if kind == "Deployment"
            && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
        {
            annotations.remove("deployment.kubernetes.io/revision");
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    // Added over there when the definition is deleted, here from the beginning; and by a controller's own admission.
    if matches!(kind.as_str(), "CustomResourceDefinition" | "VolumeAttributesClass")
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.remove("finalizers");
    }
    if controlled && let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    for condition in object["status"]["conditions"].as_array_mut().into_iter().flatten() {
        if let Some(since) = condition.get_mut("lastTransitionTime") {
            *since = "then".into();
        }
    }
    if let Some(spec) = object["spec"].as_object_mut() {
        if kind == "Service" {
            for field in ["clusterIP", "clusterIPs"] {
                let given = spec.get_mut(field);
                if let Some(given) = given.filter(|given| **given != "None" && **given != json!(["None"])) {
                    *given = "an address".into();
                }
            }
            for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(given) = port.get_mut("nodePort") {
                    *given = "a port".into();
                }
            }
        }
        if kind == "Pod" {
            // The ServiceAccount step is off over there.
            spec.remove("serviceAccount");
            spec.remove("serviceAccountName");
        }
    }
    drop_empty(&mut object);
    let text = object.to_string().replace(&uid, "UID");
    serde_json::from_str(&text).expect("still an object")
}

/// Null and nothing are the same to every client.
fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(drop_empty);
            map.retain(|_, value| !value.is_null());
        }
        Value::Array(list) => list.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

/// Every place where two trees differ.
pub fn difference(path: &str, ours: &Value, theirs: &Value, out: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let null = Value::Null;
                difference(&format!("{path}.{key}"), a.get(key).unwrap_or(&null), b.get(key).unwrap_or(&null), out);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                difference(&format!("{path}[{at}]"), a, b, out);
            }
        }
        (a, b) if a != b => out.push(format!("{path}: here {a}, there {b}")),
        _ => {}
    }
}

fn compare(server: &Server, peer: &Kubernetes, when: &str) {
    let everything = manifests(|_| {});
    let read = |(ok, out, error): (bool, String, String)| -> Vec<Value> {
        assert!(ok, "kubectl get -f -: {error}");
        let list: Value = serde_json::from_str(&out).expect("a list");
        list["items"].as_array().expect("items").clone()
    };
    let ours = read(server.try_kubectl("get -o json --show-managed-fields -f -", &everything));
    let theirs = read(peer.run("get -o json --show-managed-fields -f -", &everything));
    assert_eq!(ours.len(), theirs.len());
    let mut differences = Vec::new();
    for (ours, theirs) in ours.into_iter().zip(theirs) {
        let path = format!("{} {}", ours["kind"], ours["metadata"]["name"]).replace('"', "");
        difference(&path, &comparable(ours), &comparable(theirs), &mut differences);
    }
    assert!(differences.is_empty(), "{when}:\n{}", differences.join("\n"));
}

/// Every built-in kind of object that is stored has a manifest; discovery says which there are.
fn assert_complete(server: &Server) {
    let known: std::collections::BTreeSet<String> = MANIFESTS
        .split("\n---\n")
        .map(|text| {
            let object: Value = serde_saphyr::from_str(text).expect("a manifest");
            format!("{} {}", object["apiVersion"], object["kind"]).replace('"', "")
        })
        .collect();
    let served = server.kubectl("api-resources --verbs=create,list --no-headers");
    let missing: Vec<String> = served
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let &[.., version, _, kind] = &words[..] else { panic!("{line}") };
            let builtin = !version.contains('.') || version.contains(".k8s.io/");
            let key = format!("{version} {kind}");
            (builtin && !known.contains(&key)).then_some(key)
        })
        .collect();
    assert!(missing.is_empty(), "no manifest for {missing:?}");
}

#[test]
fn objects_end_as_on_kube_apiserver() {
    let server = Server::start();
    let peer = Kubernetes::start();
    let both = |line: &str, input: &str| {
        let ours = server.try_kubectl(line, input);
        let theirs = peer.run(line, input);
        assert_eq!(ours.0, theirs.0, "kubectl {line}: here {}{}, there {}{}", ours.1, ours.2, theirs.1, theirs.2);
        (ours, theirs)
    };
    assert_complete(&server);
    both("create namespace compare", "");
    let (ours, theirs) = both("apply -f -", &manifests(|_| {}));
    assert!(ours.0, "{}\n{}", ours.2, theirs.2);
    compare(&server, &peer, "after kubectl apply");

    let changed = manifests(|object| {
        object["metadata"]["labels"]["second"] = "yes".into();
        object["metadata"]["annotations"] = json!({"note": "changed"});
    });
    let (ours, _) = both("apply -f -", &changed);
    assert!(ours.0, "{}", ours.2);
    compare(&server, &peer, "after a second apply");

    for line in [
        r#"-n compare patch deployment app -p '{"spec":{"template":{"spec":{"containers":[{"name":"b","image":"busybox:2"},{"name":"c","image":"x"}]}}}}'"#,
        r#"-n compare patch deployment app -p '{"spec":{"template":{"spec":{"containers":[{"name":"a","$patch":"delete"}]}}}}'"#,
        r#"-n compare patch service web -p '{"spec":{"ports":[{"port":80,"targetPort":8080}]}}'"#,
        r#"-n compare patch configmap settings --type=merge -p '{"data":{"a":null,"c":"3"}}'"#,
        r#"-n compare patch quota quota --type=json -p '[{"op":"add","path":"/spec/hard/pods","value":"5"}]'"#,
        r#"-n compare patch statefulset sts -p '{"spec":{"replicas":0,"template":{"spec":{"nodeSelector":{"a":"b"}}}}}'"#,
        "-n compare label pod bare tier=front",
        "-n compare annotate secret keys note-",
        "-n compare set image deployment/app b=busybox:3",
    ] {
        let (ours, _) = both(line, "");
        assert!(ours.0, "kubectl {line}: {}", ours.2);
    }
    // And every kind in the four ways there are to change a little of it.
    let everything = manifests(|_| {});
    for line in [
        r#"patch -f - --type=strategic -p '{"metadata":{"labels":{"way":"strategic"},"annotations":{"note":null}}}'"#,
        r#"patch -f - --type=merge -p '{"metadata":{"annotations":{"note":"merged"}}}'"#,
        r#"patch -f - --type=json -p '[{"op":"replace","path":"/metadata/annotations/note","value":"replaced"}]'"#,
        "label -f - --overwrite way=labelled",
    ] {
        let (ours, theirs) = both(line, &everything);
        assert!(ours.0, "kubectl {line}: {} {}", ours.2, theirs.2);
    }
    compare(&server, &peer, "after patches");

    let changed = manifests(|object| object["metadata"]["labels"] = json!({"server-side": "yes"}));
    let (ours, _) = both("apply --server-side --force-conflicts --field-manager=test -f -", &changed);
    assert!(ours.0, "{}", ours.2);
    compare(&server, &peer, "after server-side apply");
}
