//! Monitoring with the real programs: a Prometheus scrapes the binary over TLS with a token, promtool checks the alert
//! rules, and every expression of the dashboards is asked of that Prometheus.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::dashboards::{self, deploy};
use crate::harness::{PATIENCE, Server};

/// Runs promtool; its standard output.
fn promtool(folder: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("promtool").args(arguments).current_dir(folder).output();
    let output = output.expect("promtool runs; `make packages` installs it");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("promtool {arguments:?}\n{}{}", text(&output.stdout), text(&output.stderr)))
    }
}

#[test]
fn alert_rules_are_valid_and_fire_when_they_should() {
    let folder = deploy("prometheus");
    promtool(
        &folder,
        &[
            "check",
            "rules",
            "bursar-rules.yaml",
            "capsule-rules.yaml",
            "karmada-rules.yaml",
            "orgs-rules.yaml",
            "datum-rules.yaml",
            "operator-rules.yaml",
        ],
    )
    .expect("valid rules");
    promtool(&folder, &["test", "rules", "rules-test.yaml"]).expect("rules that fire");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a file");
    let tests = read("rules-test.yaml");
    for family in ["bursar", "capsule", "karmada", "orgs", "datum", "operator"] {
        let (source, made) = (read(&format!("{family}-rules.yaml")), read(&format!("{family}-prometheusrule.yaml")));
        let groups = made.split_once("\nspec:\n").expect("a PrometheusRule has a spec").1;
        let body = source.lines().filter(|line| !line.starts_with('#'));
        let expected: String = body.map(|line| format!("  {line}\n")).collect();
        assert_eq!(groups, expected, "run scripts/prometheus-rule");
        let manifest: Value = serde_saphyr::from_str(&made).expect("YAML");
        assert_eq!(manifest["kind"], "PrometheusRule");
        for alert in source.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
            assert!(tests.contains(&format!("- name: {alert}\n")), "{alert} has no test in rules-test.yaml");
        }
    }
}

/// The pools and claims of Capsule's documentation, some custom quotas, and objects that use them.
const STATE: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: solar-prod, labels: {tenant: solar}}
---
apiVersion: v1
kind: Namespace
metadata: {name: solar-test, labels: {tenant: solar}}
---
apiVersion: capsule.clastix.io/v1beta2
kind: ResourcePool
metadata: {name: solar-compute}
spec:
  selectors: [{matchLabels: {tenant: solar}}]
  quota: {hard: {limits.cpu: "2", limits.memory: 2Gi, requests.cpu: "2", requests.memory: 2Gi}}
---
apiVersion: capsule.clastix.io/v1beta2
kind: ResourcePool
metadata: {name: solar-size}
spec:
  config: {defaultsZero: true}
  selectors: [{matchLabels: {tenant: solar}}]
  quota: {hard: {pods: "7"}}
---
apiVersion: capsule.clastix.io/v1beta2
kind: ResourcePoolClaim
metadata: {name: compute, namespace: solar-prod}
spec:
  pool: solar-compute
  claim: {limits.cpu: 375m, limits.memory: 384Mi, requests.cpu: 375m, requests.memory: 384Mi}
---
apiVersion: capsule.clastix.io/v1beta2
kind: ResourcePoolClaim
metadata: {name: compute-10, namespace: solar-prod}
spec: {pool: solar-compute, claim: {limits.memory: 10Gi}}
---
apiVersion: capsule.clastix.io/v1beta2
kind: ResourcePoolClaim
metadata: {name: pods, namespace: solar-test}
spec: {pool: solar-size, claim: {pods: "3"}}
---
apiVersion: capsule.clastix.io/v1beta2
kind: GlobalCustomQuota
metadata: {name: maps}
spec:
  limit: 8
  options: {emitMetricPerClaimUsage: true}
  sources: [{apiVersion: v1, kind: ConfigMap, op: count, selectors: [{matchLabels: {counted: "yes"}}]}]
---
apiVersion: capsule.clastix.io/v1beta2
kind: CustomQuota
metadata: {name: cpu, namespace: solar-test}
spec:
  limit: "1"
  options: {emitMetricPerClaimUsage: true}
  sources: [{apiVersion: v1, kind: Pod, op: add, path: ".spec.containers[*].resources.requests.cpu"}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: one, namespace: solar-prod, labels: {counted: "yes"}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: default}
"#;

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: solar-test}
spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 125m}}}]}
"#;

/// A running Prometheus; ended, by its process id, when dropped.
struct Prometheus {
    child: Child,
    folder: PathBuf,
    url: String,
}

impl Prometheus {
    /// Starts the one of deploy/prometheus against `server`.
    fn start(server: &Server, token: &str) -> Prometheus {
        let folder = server.folder.join("prometheus");
        std::fs::create_dir(&folder).expect("a folder");
        for name in [
            "prometheus.yaml",
            "bursar-rules.yaml",
            "capsule-rules.yaml",
            "karmada-rules.yaml",
            "orgs-rules.yaml",
            "datum-rules.yaml",
        ] {
            let text = std::fs::read_to_string(deploy("prometheus").join(name)).expect("a file");
            let text = text.replace("127.0.0.1:6443", &server.address()).replace("_interval: 15s", "_interval: 1s");
            std::fs::write(folder.join(name), text).expect("writes");
        }
        std::fs::write(folder.join("token"), token).expect("writes");
        std::fs::copy(server.folder.join("data/pki/ca.crt"), folder.join("ca.crt")).expect("the authority");
        let mut child = Command::new("prometheus")
            .args(["--config.file=prometheus.yaml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:0"])
            .current_dir(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("prometheus starts; `make packages` installs it");
        let mut log = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut said = String::new();
        let address = loop {
            let from = said.len();
            assert!(log.read_line(&mut said).expect("a log") > 0, "prometheus ended:\n{said}");
            if let Some((_, address)) = said[from..].split_once("msg=\"Listening on\" address=") {
                break address.trim().to_owned();
            }
        };
        // The rest of the log must not fill the pipe.
        std::thread::spawn(move || log.read_to_string(&mut String::new()));
        Prometheus { child, folder, url: format!("http://{address}") }
    }

    fn ask(&self, expression: &str) -> Result<Vec<Value>, String> {
        let answer = promtool(&self.folder, &["query", "instant", "--format=json", &self.url, expression])?;
        serde_json::from_str(&answer).map_err(|error| format!("{error}: {answer}"))
    }

    /// Asks until there is something to show.
    fn answers(&self, expression: &str) {
        let start = Instant::now();
        while self.ask(expression).expect("an expression is answered").is_empty() {
            assert!(start.elapsed() < PATIENCE, "nothing to show: {expression}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Asks until the answer is one series with this value.
    fn until(&self, expression: &str, wanted: &str) {
        let start = Instant::now();
        loop {
            let answer = self.ask(expression);
            let values: Vec<&str> =
                answer.iter().flatten().map(|series| series["value"][1].as_str().unwrap_or_default()).collect();
            if values == [wanted] {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{expression} is never {wanted}, last: {answer:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_real_prometheus_sees_exact_numbers_and_every_panel_has_an_answer() {
    let server = Server::start();
    server.kubectl_with("apply -f -", STATE);
    let waiting = "-n solar-prod get resourcepoolclaim compute-10 -o jsonpath={.status.conditions[*].reason}";
    server.until(waiting, |out| out.contains("PoolExhausted"));
    server.until("-n solar-test get quota capsule-pool-solar-size -o jsonpath={.spec.hard.pods}", |out| out == "3");
    server.kubectl_with("apply -f -", POD);
    dashboards::fill(&server);
    let refused = server.kubectl_fails("get --raw /metrics --as=system:serviceaccount:default:prometheus");
    assert!(refused.contains("forbidden"), "{refused}");
    server.kubectl(
        "create clusterrolebinding prometheus --clusterrole=system:monitoring --serviceaccount=default:prometheus",
    );
    let token = server.kubectl("-n default create token prometheus");
    let prometheus = Prometheus::start(&server, token.trim());

    for (expression, wanted) in [
        ("up{job=\"bursar\"}", "1"),
        ("capsule_pool_limit{pool=\"solar-compute\",resource=\"limits.memory\"}", "2147483648"),
        ("capsule_pool_usage{pool=\"solar-compute\",resource=\"requests.cpu\"}", "0.375"),
        ("capsule_pool_usage_percentage{pool=\"solar-size\",resource=\"pods\"}", "42.857142857142854"),
        ("capsule_pool_namespace_usage{resource=\"pods\",target_namespace=\"solar-test\"}", "3"),
        ("capsule_pool_exhaustion{resource=\"limits.memory\"}", "10737418240"),
        ("capsule_pool_condition{condition=\"Exhausted\",pool=\"solar-compute\"}", "1"),
        ("capsule_claim_condition{condition=\"Bound\",name=\"pods\"}", "1"),
        ("capsule_claim_resource{name=\"compute\",resource=\"requests.cpu\"}", "0.375"),
        ("capsule_custom_quota_resource_available{custom_quota=\"cpu\"}", "0.875"),
        ("capsule_global_custom_quota_resource_usage_percentage", "12.5"),
        ("capsule_global_custom_quota_resource_item_usage{name=\"one\",kind=\"ConfigMap\"}", "1"),
        ("kube_resourcequota{resourcequota=\"capsule-pool-solar-size\",namespace=\"solar-test\",type=\"used\"}", "1"),
        ("ALERTS{alertname=\"CapsuleResourcePoolExhausted\",alertstate=\"pending\"} > bool 0", "1"),
    ] {
        prometheus.until(expression, wanted);
    }

    let page = server.kubectl("get --raw /metrics");
    for line in [
        "bursar_requests_total{code=\"403\",group=\"\",resource=\"\",verb=\"get\"} 1",
        "bursar_decisions_total{decision=\"queued\",family=\"capsule\"} 1",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
    check_style(&server.folder, &page);
    for dashboard in dashboards::all() {
        for expression in &dashboard.expressions {
            if let Some((metric, _)) = expression.strip_prefix("label_values(").and_then(|rest| rest.split_once(',')) {
                prometheus.answers(metric);
                continue;
            }
            let variables = ["$pool", "$resource", "$instance", "$namespace"];
            let asked = variables.iter().fold(expression.clone(), |expression, name| expression.replace(name, ".*"));
            let asked = asked.replace("$__rate_interval", "1m");
            match dashboards::is_from_outside(expression) {
                true => drop(prometheus.ask(&asked).expect("an expression is answered")),
                false => prometheus.answers(&asked),
            }
        }
    }
}

/// promtool has nothing against the page, names of our own included.
fn check_style(folder: &Path, page: &str) {
    let file = folder.join("page");
    std::fs::write(&file, page).expect("writes");
    let page = std::fs::File::open(&file).expect("reads");
    let output = Command::new("promtool").args(["check", "metrics"]).stdin(page).output().expect("promtool runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(!said.contains("error while linting"), "{said}");
    let ours: Vec<&str> = said.lines().filter(|line| line.starts_with("bursar_")).collect();
    assert!(ours.is_empty(), "{ours:?}");
}
