//! How `bursar operator` is installed: the chart, the manifests, the image, and what they allow.

mod applied;
mod chart;
mod image;
mod replicas;
mod rights;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{part, words};
use crate::peer::Kubernetes;

const NAMESPACE: &str = "quota-system";

/// A file or folder of the tree.
fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// What a program said, and whether it went well.
#[derive(Debug)]
struct Said {
    ok: bool,
    out: String,
    err: String,
}

fn said(command: &mut Command) -> Said {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Said { ok: output.status.success(), out: text(output.stdout), err: text(output.stderr) }
}

/// Helm, with the chart's folder for CHART and nothing of the user's.
fn helm(folder: &Path, line: &str) -> Said {
    let mut command = Command::new(part("helm"));
    for (variable, name) in [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")] {
        command.env(variable, folder.join("helm").join(name));
    }
    command.args(words(line).into_iter().map(|word| match &*word {
        "CHART" => at("deploy/chart").display().to_string(),
        _ => word,
    }));
    said(&mut command)
}

fn manifests(line: &str) -> Said {
    said(Command::new(env!("CARGO_BIN_EXE_bursar")).arg("manifests").args(words(line)))
}

/// The objects of a stream of YAML documents.
fn objects(text: &str) -> Vec<Value> {
    let documents = text.split("\n---").map(|document| document.trim_start_matches("---"));
    let read = |document: &str| {
        serde_saphyr::from_str::<Value>(document).unwrap_or_else(|error| panic!("{error}\n{document}"))
    };
    documents.filter(|document| !document.trim().is_empty()).map(read).filter(Value::is_object).collect()
}

fn by_name(objects: Vec<Value>) -> BTreeMap<(String, String), Value> {
    let name = |object: &Value| {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        (text("/kind"), text("/metadata/name"))
    };
    objects.into_iter().map(|object| (name(&object), object)).collect()
}

fn items<'a>(value: &'a Value, path: &str) -> Vec<&'a Value> {
    value.pointer(path).and_then(Value::as_array).into_iter().flatten().collect()
}

/// Every file of values beside the chart.
fn values_files() -> Vec<PathBuf> {
    let listed = std::fs::read_dir(at("deploy/chart/ci")).expect("a folder");
    let mut files: Vec<PathBuf> = listed.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

/// A kubeconfig of whoever has this token.
fn kubeconfig(cluster: &Kubernetes, token: &str, path: &Path) {
    let (address, _) = cluster.access();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": address, "insecure-skip-tls-verify": true}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(path, config.to_string()).expect("writes");
}

/// kubectl that must go well.
fn kubectl(cluster: &Kubernetes, line: &str, input: &str) -> String {
    let (ok, out, err) = cluster.run(line, input);
    assert!(ok, "kubectl {line}\n{out}{err}");
    out
}
