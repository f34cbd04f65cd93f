//! The rights that the chart gives are enough, and all of them are used: what the operator asked for is read from the audit log of
//! a real kube-apiserver.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};

use crate::etcd::{Ended, free_port};
use crate::failover::until;
use crate::harness::PATIENCE;

use super::*;

/// (verb, group, resource with its subresource)
type Right = (String, String, String);

const REGISTRATION: &str = "validatingwebhookconfiguration bursar-quota";

pub(super) const POLICIES: &str = r#"
apiVersion: capsule.clastix.io/v1beta2
kind: CustomQuota
metadata: {name: few, namespace: team-a}
spec: {limit: "3", sources: [{apiVersion: v1, kind: ConfigMap, op: count}]}
---
apiVersion: capsule.clastix.io/v1beta2
kind: GlobalCustomQuota
metadata: {name: many}
spec: {limit: "100", sources: [{apiVersion: v1, kind: ConfigMap, op: count}], namespaceSelectors: [{matchLabels: {tier: gold}}]}
---
apiVersion: quota.openshift.io/v1
kind: ClusterResourceQuota
metadata: {name: teams}
spec:
  selector: {labels: {matchLabels: {tier: gold}}}
  quota: {hard: {services: "2"}}
"#;

const POOL: &str = r#"
apiVersion: capsule.clastix.io/v1beta2
kind: ResourcePool
metadata: {name: pods}
spec: {selectors: [{matchLabels: {pooled: "yes"}}], config: {defaultsZero: true}, quota: {hard: {pods: "5"}}}
"#;

const CLAIM: &str = r#"
apiVersion: capsule.clastix.io/v1beta2
kind: ResourcePoolClaim
metadata: {name: some, namespace: team-c}
spec: {claim: {pods: "2"}}
"#;

pub(super) struct Land {
    pub cluster: Kubernetes,
    folder: tempfile::TempDir,
}

impl Land {
    pub fn start() -> Land {
        let folder = tempfile::tempdir().expect("a folder");
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "users": [format!("system:serviceaccount:{NAMESPACE}:bursar")]}, {"level": "None"}],
        });
        std::fs::write(folder.path().join("policy.yaml"), policy.to_string()).expect("writes");
        let flag = |flag: &str, name: &str| format!("--{flag}={}", folder.path().join(name).display());
        let more = [flag("audit-policy-file", "policy.yaml"), flag("audit-log-path", "audit.log")];
        let land = Land { cluster: Kubernetes::start_with(&more), folder };
        let (_, token) = land.cluster.access();
        kubeconfig(&land.cluster, token, &land.at("admin"));
        kubectl(&land.cluster, &format!("create namespace {NAMESPACE}"), "");
        land
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn helm(&self, line: &str) -> String {
        let admin = self.at("admin");
        let said =
            helm(self.folder.path(), &format!("{line} --namespace {NAMESPACE} --kubeconfig {}", admin.display()));
        assert!(said.ok, "helm {line}: {}{}", said.out, said.err);
        said.out
    }

    /// A kubeconfig of the chart's ServiceAccount.
    pub fn account(&self) -> PathBuf {
        let (token, path) =
            (kubectl(&self.cluster, &format!("-n {NAMESPACE} create token bursar"), ""), self.at("operator"));
        kubeconfig(&self.cluster, token.trim(), &path);
        path
    }

    /// The operator as the chart's ServiceAccount, once it is ready.
    fn operator(&self) -> Ended {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bursar"))
            .args(["operator", "--log", "warn", "--listen", &format!("127.0.0.1:{}", free_port())])
            .args(["--exempt", &format!("kube-system,{NAMESPACE}"), "--data"])
            .arg(self.at("data"))
            .arg("--kubeconfig")
            .arg(self.account())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bursar starts");
        let output = child.stdout.take().expect("a pipe");
        let process = Ended(child);
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(output).read_line(&mut line);
            // Nobody listens any more once the test gave up.
            let _ = tell.send(read.map(|_| line));
        });
        // Without a right that it needs it may never be ready.
        let line = told.recv_timeout(PATIENCE).expect("the operator is ready in time").expect("a line");
        assert!(line.contains("ready"), "the operator ended: {line:?}");
        process
    }

    /// What the operator asked for, and whether it was allowed.
    fn asked(&self) -> BTreeMap<Right, bool> {
        let log = std::fs::read_to_string(self.at("audit.log")).expect("an audit log");
        let mut asked = BTreeMap::new();
        // The last line may still be written.
        for event in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
            let resource = [text("/objectRef/resource"), text("/objectRef/subresource")].join("/");
            if resource == "/" {
                continue;
            }
            let right = (text("/verb"), text("/objectRef/apiGroup"), resource.trim_end_matches('/').to_owned());
            *asked.entry(right).or_insert(true) &= event["responseStatus"]["code"] != 403;
        }
        asked
    }

    pub fn create(&self, namespace: &str, kind: &str, name: &str) -> (bool, String) {
        self.try_create(&format!("-n {namespace} create -f -"), kind, name)
    }

    fn try_create(&self, line: &str, kind: &str, name: &str) -> (bool, String) {
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
        if kind == "Service" {
            object["spec"] = json!({"ports": [{"port": 80}]});
        }
        let (ok, _, err) = self.cluster.run(line, &object.to_string());
        (ok, err)
    }

    /// Whether one more would be too much for a quota of ours.
    pub fn refuses(&self, kind: &str) -> bool {
        let (ok, err) = self.try_create("-n team-a create --dry-run=server -f -", kind, "probe");
        !ok && err.contains("quota.bursar.dev")
    }

    /// What is said of the registration, by a path.
    pub fn registered(&self, path: &str) -> String {
        self.cluster.run(&format!("get {REGISTRATION} -o jsonpath={path}"), "").1
    }

    fn is_registered(&self) -> bool {
        self.registered("{.webhooks[*].name}").contains("quota.bursar.dev")
    }

    /// Several writers, of Services in two namespaces.
    fn write_at_once(&self, kind: &str, count: usize) -> Vec<(bool, String)> {
        let write = |index: usize| {
            let namespace = if kind == "Service" && index % 2 == 1 { "team-b" } else { "team-a" };
            self.create(namespace, kind, &format!("n-{index}"))
        };
        std::thread::scope(|scope| {
            let write = &write;
            let tasks: Vec<_> = (0..count).map(|index| scope.spawn(move || write(index))).collect();
            tasks.into_iter().map(|task| task.join().expect("no panic")).collect()
        })
    }

    fn shows(&self, what: &str, path: &str, expected: &str) -> bool {
        self.cluster.run(&format!("get {what} -o jsonpath={path}"), "").1 == expected
    }
}

fn rights(roles: &[Value]) -> BTreeSet<Right> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut rights = BTreeSet::new();
    for rule in roles.iter().flat_map(|role| items(role, "/rules")) {
        for verb in items(rule, "/verbs") {
            for group in items(rule, "/apiGroups") {
                rights.extend(items(rule, "/resources").into_iter().map(|one| (text(verb), text(group), text(one))));
            }
        }
    }
    rights
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_gives_what_the_operator_needs_and_no_more_and_takes_everything_with_it() {
    let land = Land::start();
    let values = "--set log=warn";
    land.helm(&format!("install bursar CHART {values}"));
    let operator = land.operator();
    for namespace in ["team-a", "team-b"] {
        kubectl(&land.cluster, &format!("create namespace {namespace}"), "");
        kubectl(&land.cluster, &format!("label namespace {namespace} tier=gold"), "");
    }
    kubectl(&land.cluster, "apply -f -", POLICIES);
    until("both quotas are in force", async || {
        // Each shows what it counts once it does; the registration follows.
        let names = land.cluster.run("get validatingwebhookconfiguration bursar-quota -o json", "").1;
        names.contains("\"configmaps\"")
            && names.contains("\"services\"")
            && land.shows("clusterresourcequota teams", "{.status.total.used.services}", "0")
    })
    .await;
    until("the API server asks", async || {
        let fillers = ["filler", "filler-2", "filler-3"].map(|name| land.create("team-a", "ConfigMap", name).0);
        let is_full = fillers == [true; 3] && land.refuses("ConfigMap");
        kubectl(&land.cluster, "-n team-a delete configmap filler filler-2 filler-3 --ignore-not-found", "");
        is_full
    })
    .await;
    until("nothing is left", async || land.shows("customquota few -n team-a", "{.status.usage.used}", "0")).await;
    // Exactly what fits, whoever is first.
    for (kind, limit) in [("ConfigMap", 3), ("Service", 2)] {
        let done = land.write_at_once(kind, 8);
        let stored = done.iter().filter(|(ok, _)| *ok).count();
        assert_eq!(stored, limit, "{kind}: {done:?}");
        assert!(done.iter().all(|(ok, err)| *ok || err.contains("quota.bursar.dev")), "{kind}: {done:?}");
    }
    until("usage is shown", async || {
        land.shows("customquota few -n team-a", "{.status.usage.used}", "3")
            && land.shows("clusterresourcequota teams", "{.status.total.used.services}", "2")
    })
    .await;
    // A name that is taken: what was held for it is looked for, and given back.
    kubectl(&land.cluster, "-n team-a delete configmap --all", "");
    until("there is room", async || land.create("team-a", "ConfigMap", "taken").0).await;
    let (ok, err) = land.create("team-a", "ConfigMap", "taken");
    assert!(!ok && err.contains("already exists"), "{err}");
    let looked = ("get".to_owned(), String::new(), "configmaps".to_owned());
    until("what was held is looked for", async || land.asked().contains_key(&looked)).await;

    // A pool: what it keeps is made, written and deleted; what is left out of it and of claims is filled in.
    kubectl(&land.cluster, "create namespace team-c", "");
    kubectl(&land.cluster, "label namespace team-c pooled=yes", "");
    kubectl(&land.cluster, "apply -f -", POOL);
    let kept = "resourcequota capsule-pool-pods -n team-c";
    until("the pool has its quota", async || land.shows(kept, "{.spec.hard.pods}", "0")).await;
    until("a claim is taken", async || land.cluster.run("apply -f -", CLAIM).0).await;
    until("the claim has its pool", async || {
        land.shows("resourcepoolclaim some -n team-c", "{.spec.pool}", "pods")
            && land.shows(kept, "{.spec.hard.pods}", "2")
    })
    .await;
    until("the pool says so", async || land.shows("resourcepool pods", "{.status.allocation.used.pods}", "2")).await;
    kubectl(&land.cluster, "label namespace team-c pooled-", "");
    until("its quota is gone", async || !land.cluster.run(&format!("get {kept}"), "").0).await;

    // Whoever took the registration away finds it there again after the next start: server-side apply creates it, for which the API
    // server asks for a right of its own, without a word in the log.
    drop(operator);
    kubectl(&land.cluster, "delete validatingwebhookconfiguration bursar-quota", "");
    let operator = land.operator();
    assert!(land.is_registered());
    let silent =
        ("create".to_owned(), "admissionregistration.k8s.io".to_owned(), "validatingwebhookconfigurations".to_owned());

    // An upgrade leaves the registration as the operator wrote it, and the operator at work.
    land.helm(&format!("upgrade bursar CHART {values} --set replicas=1 --set log=info"));
    assert!(land.is_registered());

    let asked = land.asked();
    let forbidden: Vec<&Right> = asked.iter().filter(|(_, allowed)| !**allowed).map(|(right, _)| right).collect();
    assert!(forbidden.is_empty(), "the chart gives too little: {forbidden:?}");
    let roles = by_name(objects(&land.helm("get manifest bursar")));
    let role = |name: &str| roles[&("ClusterRole".to_owned(), name.to_owned())].clone();
    let own = rights(&[role("bursar")]);
    let unused: Vec<&Right> = own.iter().filter(|right| !asked.contains_key(*right) && **right != silent).collect();
    assert!(unused.is_empty(), "the chart gives too much: {unused:?}; asked for: {:?}", asked.keys());
    // Of what may be counted it asks for what is counted.
    let counted = rights(&[role("bursar-counted")]);
    let more: Vec<&Right> = asked.keys().filter(|right| !own.contains(*right)).collect();
    assert!(more.iter().all(|right| counted.contains(*right)), "{more:?}");
    for verb in ["get", "list", "watch"] {
        assert!(more.iter().any(|right| right.0 == verb && right.2 == "configmaps"), "{verb}: {more:?}");
    }

    // It goes at once, with all it has, though its webhook counted until now.
    land.helm("uninstall bursar");
    until("nobody is asked any more", async || land.create("team-a", "ConfigMap", "free").0).await;
    for index in 0..4 {
        let (ok, err) = land.create("team-a", "ConfigMap", &format!("free-{index}"));
        assert!(ok, "{err}");
    }
    let left =
        kubectl(&land.cluster, "get validatingwebhookconfigurations,clusterroles,clusterrolebindings -o name", "");
    assert!(!left.contains("bursar"), "{left}");
    let kinds = "customquotas,resourcepools,resourcepoolclaims,clusterresourcequotas,customresourcedefinitions,namespaces,configmaps,services";
    let stored: Value =
        serde_json::from_str(&kubectl(&land.cluster, &format!("get {kinds} -A -o json"), "")).expect("JSON");
    let finalizers = items(&stored, "/items").into_iter().flat_map(|one| items(one, "/metadata/finalizers"));
    assert_eq!(finalizers.filter(|one| !one.to_string().contains("k8s.io")).count(), 0, "{stored}");
    kubectl(&land.cluster, "delete customquota few -n team-a", "");
    kubectl(&land.cluster, "delete clusterresourcequota teams", "");
    drop(operator);
}
