//! What the dashboards of deploy/grafana ask for, and something of every family for them to show.

use std::path::{Path, PathBuf};
use std::process::Command;

use families::metrics::{Metric, MetricKind};
use serde_json::Value;

use crate::harness::Server;

pub fn deploy(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(folder)
}

/// Panels that show what comes from outside: a meter, and a sink of events. There are none beside a test server.
const OUTSIDE: [&str; 4] =
    ["quota_meter_up", "quota_events_sent_total", "quota_events_waiting", "quota_events_failed_total"];

/// One dashboard, and every expression of its panels and variables.
pub struct Dashboard {
    pub name: String,
    pub expressions: Vec<String>,
}

pub fn all() -> Vec<Dashboard> {
    let mut all = Vec::new();
    for file in std::fs::read_dir(deploy("grafana")).expect("a folder") {
        let path = file.expect("a file").path();
        let text = std::fs::read_to_string(&path).expect("a dashboard");
        let mut expressions = Vec::new();
        gather(&serde_json::from_str(&text).expect("JSON"), &mut expressions);
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        all.push(Dashboard { name, expressions });
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// Every expression of panels or rules, and the queries of variables.
fn gather(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match (name.as_str(), field) {
                    ("expr" | "definition", Value::String(text)) => found.push(text.clone()),
                    _ => gather(field, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| gather(item, found)),
        _ => {}
    }
}

pub fn metrics_in(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let starts = ["capsule_", "bursar_", "process_", "kube_", "quota_"];
    words.filter(move |word| starts.iter().any(|start| word.starts_with(start)))
}

/// Whether only somebody outside could give this expression an answer.
pub fn is_from_outside(expression: &str) -> bool {
    metrics_in(expression).any(|name| OUTSIDE.contains(&name))
}

/// The series that a metric has.
fn series_of(metric: &Metric) -> Vec<String> {
    match metric.kind {
        MetricKind::Histogram => ["_bucket", "_sum", "_count"].map(|part| format!("{}{part}", metric.name)).into(),
        _ => vec![metric.name.to_owned()],
    }
}

#[test]
fn dashboards_and_rules_ask_for_what_is_declared() {
    let families = families::all(&families::Settings::default());
    let metrics = families.iter().flat_map(|family| family.manifest().metrics).chain(server::metrics::names::ALL);
    let metrics = metrics.chain(::operator::metrics::ALL);
    let declared: Vec<String> = metrics.flat_map(|metric| series_of(metric)).collect();
    let mut asking: Vec<(String, Vec<String>)> = all().into_iter().map(|one| (one.name, one.expressions)).collect();
    assert!(
        asking.len() >= 5 && asking.iter().all(|(_, expressions)| expressions.len() >= 8),
        "a dashboard is missing"
    );
    for family in ["bursar", "capsule", "karmada", "orgs", "datum", "operator"] {
        let name = format!("{family}-rules.yaml");
        let text = std::fs::read_to_string(deploy("prometheus").join(&name)).expect("rules");
        let mut expressions = Vec::new();
        gather(&serde_saphyr::from_str(&text).expect("YAML"), &mut expressions);
        assert!(!expressions.is_empty(), "{name} asks for something");
        asking.push((name, expressions));
    }
    for (name, expressions) in asking {
        for expression in expressions {
            let asked: Vec<&str> = metrics_in(&expression).collect();
            assert!(!asked.is_empty() || expression.contains("up{"), "{name} asks for nothing of ours: {expression}");
            for metric in asked {
                assert!(declared.iter().any(|one| one == metric), "{name} asks for {metric}, which nobody tells");
            }
        }
    }
}

/// One quota over a cluster that is lent to: what waits, what was evicted, and what a member says.
const FEDERATED: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: fed}
---
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {name: far}
spec: {syncMode: Push, apiEndpoint: "https://127.0.0.1:9"}
---
apiVersion: policy.karmada.io/v1alpha1
kind: FederatedResourceQuota
metadata: {name: q, namespace: fed}
spec: {overall: {cpu: "4"}, elastic: {chunk: {cpu: "1"}}}
---
apiVersion: work.karmada.io/v1alpha2
kind: ResourceBinding
metadata: {name: waits, namespace: fed}
spec:
  resource: {apiVersion: apps/v1, kind: Deployment, namespace: fed, name: waits}
  replicas: 6
  replicaRequirements: {resourceRequest: {cpu: "1"}}
  placement: {replicaScheduling: {replicaSchedulingType: Divided}}
---
apiVersion: work.karmada.io/v1alpha2
kind: ResourceBinding
metadata: {name: evicted, namespace: fed}
spec:
  resource: {apiVersion: apps/v1, kind: Deployment, namespace: fed, name: evicted}
  replicas: 1
  replicaRequirements: {resourceRequest: {cpu: "1"}}
  placement: {replicaScheduling: {replicaSchedulingType: Divided}}
  clusters: [{name: far, replicas: 1}]
  schedulerName: mine
  gracefulEvictionTasks: [{fromCluster: gone, purgeMode: Never, reason: TaintUntolerated, producer: TaintManager}]
"#;

const LEASE: &str = r#"
apiVersion: policy.karmada.io/v1alpha1
kind: FederatedQuotaLease
metadata: {name: q.far, namespace: fed}
spec: {quota: q, clusterName: far, hard: {cpu: "2"}}
"#;

/// What an organization does: a scale that nobody can place, and one that is refused.
const COMMANDS: [&[&str]; 7] = [
    &["create-org", "--id", "acme", "--tier", "free"],
    &["create-app", "--org", "acme", "--name", "shop"],
    &["create-env", "--org", "acme", "--app", "shop", "--name", "prod"],
    &[
        "create-release",
        "--org",
        "acme",
        "--app",
        "shop",
        "--processes",
        r#"{"web": {"memory_bytes": 134217728, "cpu": 0.5}}"#,
    ],
    &["create-deploy", "--org", "acme", "--app", "shop", "--env", "prod", "--release", "1"],
    &[
        "set-scale",
        "--org",
        "acme",
        "--app",
        "shop",
        "--env",
        "prod",
        "--scales",
        r#"[{"process_type": "web", "desired": 4}]"#,
    ],
    &[
        "set-scale",
        "--org",
        "acme",
        "--app",
        "shop",
        "--env",
        "prod",
        "--scales",
        r#"[{"process_type": "web", "desired": 6}]"#,
    ],
];

/// Gives the panels of karmada, datum and orgs something to show.
pub fn fill(server: &Server) {
    server.kubectl_with("apply -f -", FEDERATED);
    let waits = "-n fed get resourcebinding waits -o jsonpath={.status.conditions[*].reason}";
    server.until(waits, |out| out.contains("QuotaExceeded"));
    server.kubectl_with("apply -f -", LEASE);
    let told = r#"{"status":{"used":{"cpu":"2"},"waiting":{"cpu":"1"}}}"#;
    server.kubectl(&format!("-n fed patch federatedquotalease q.far --subresource=status --type=merge -p '{told}'"));
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/datum");
    for file in ["01-definitions", "02-project", "03-grant", "04-claim", "05-claim-too-large"] {
        server.kubectl(&format!("create -f {}", examples.join(format!("{file}.yaml")).display()));
    }
    for words in COMMANDS {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        let output = command.arg("orgs").args(words).env("KUBECONFIG", server.kubeconfig()).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() || said.contains("quota_exceeded"), "{words:?}: {said}");
    }
}
