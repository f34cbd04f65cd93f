//! The manifests of Capsule's documentation, applied with real kubectl, and what kubectl prints then beside what the
//! documentation says it prints. Ages are left out, and runs of spaces are one space.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::Server;

struct Desk {
    server: Server,
    folder: PathBuf,
}

impl Desk {
    fn new() -> Desk {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/capsule/documentation");
        let desk = Desk { server: Server::start_with(&["--store", "memory", "--log", "error"]), folder };
        desk.apply("kinds");
        desk.apply("namespaces");
        desk
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(format!("{name}.yaml")).display().to_string()
    }

    fn apply(&self, name: &str) -> String {
        self.server.kubectl(&format!("apply -f {}", self.file(name)))
    }

    fn delete(&self, name: &str) {
        self.server.kubectl(&format!("delete -f {} --wait=false --ignore-not-found", self.file(name)));
    }

    /// Asks until kubectl prints exactly this table.
    fn shows(&self, line: &str, table: &[&str]) {
        let wanted: Vec<String> = table.iter().map(|row| plain(row)).collect();
        self.server.until(line, |out| out.lines().map(plain).collect::<Vec<_>>() == wanted);
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.server.kubectl(&format!("{line} -o json"))).expect("an object")
    }

    /// The message of a condition of a claim.
    fn says(&self, claim: &str, condition: &str, message: &str) {
        let path = format!("{{.status.conditions[?(@.type==\"{condition}\")].message}}");
        self.server.until(&format!("get resourcepoolclaim {claim} -o jsonpath={path}"), |out| out == message);
    }
}

/// A row without the age, and with one space where there are several.
fn plain(row: &str) -> String {
    let is_age = |word: &str| {
        word.ends_with(['s', 'm', 'h', 'd'])
            && word.chars().all(|c| c.is_ascii_digit() || "smhd".contains(c))
            && word.starts_with(|c: char| c.is_ascii_digit())
    };
    let words: Vec<&str> = row.split_whitespace().filter(|word| !is_age(word) && *word != "AGE").collect();
    words.join(" ")
}

#[test]
fn kubectl_prints_what_the_documentation_says() {
    let desk = Desk::new();
    selection_and_defaults(&desk);
    a_pool_that_is_not_there(&desk);
    bound_claims(&desk);
    the_queue(&desk);
    the_migration(&desk);
    two_quotas_on_the_same_pods(&desk);
    statuses(&desk);
}

const QUOTAS: &str = "NAME REQUEST LIMIT AGE";
const CLAIMS: &str = "NAME POOL READY MESSAGE BOUND REASON AGE";

fn selection_and_defaults(desk: &Desk) {
    desk.apply("pools-selection");
    desk.shows(
        "get resourcepools",
        &["NAME CLAIMS NAMESPACES READY STATUS AGE", "green 0 3 True reconciled 1s", "solar 0 2 True reconciled 1s"],
    );
    desk.delete("pools-selection");
    let quotas = "-n example-test get resourcequota";
    assert!(desk.apply("pool-example").contains("resourcepool.capsule.clastix.io/example created"));
    desk.shows(quotas, &[QUOTAS, "capsule-pool-example 2m47s"]);
    desk.apply("pool-example-defaults");
    desk.shows(quotas, &[QUOTAS, "capsule-pool-example requests.storage: 0/0 3s"]);
    desk.delete("pool-example");
    desk.server.until(quotas, str::is_empty);
    desk.apply("pool-example-defaults-zero");
    let all = "capsule-pool-example count/persistentvolumeclaims: 0/3, requests.cpu: 0/0, requests.memory: 0/0, \
               requests.storage: 0/0 limits.cpu: 0/0, limits.memory: 0/0 10h";
    desk.shows(quotas, &[QUOTAS, all]);
    desk.delete("pool-example");
}

fn a_pool_that_is_not_there(desk: &Desk) {
    desk.apply("claim-get-me-cpu");
    let row = "get-me-cpu False ResourcePool.capsule.clastix.io \"sample\" not found 12s";
    desk.shows("-n solar-test get resourcepoolclaims", &[CLAIMS, row]);
    desk.delete("claim-get-me-cpu");
}

fn bound_claims(desk: &Desk) {
    let (claims, quotas) = ("get resourcepoolclaim -n solar-test", "get resourcequota -n solar-test");
    desk.apply("bound");
    desk.shows(
        claims,
        &[
            CLAIMS,
            "get-me-solar solar-pool True reconciled False claim is unused 9h",
            "get-me-solar-2 solar-pool True reconciled False claim is unused 9h",
        ],
    );
    // The documentation shows 4/4 here, before anything runs: nothing is used.
    desk.shows(quotas, &[QUOTAS, "capsule-pool-solar-pool requests.cpu: 0/4, requests.memory: 0/4Gi 7m53s"]);
    desk.apply("bound-pod");
    desk.shows(
        claims,
        &[
            CLAIMS,
            "get-me-solar solar-pool True reconciled True claim is used 12m",
            "get-me-solar-2 solar-pool True reconciled False claim is unused 12m",
        ],
    );
    desk.shows(quotas, &[QUOTAS, "capsule-pool-solar-pool requests.cpu: 2/4, requests.memory: 2Gi/4Gi 11m"]);
    let deleted = desk.server.kubectl("delete resourcepoolclaim -n solar-test get-me-solar-2");
    assert!(deleted.contains("resourcepoolclaim.capsule.clastix.io \"get-me-solar-2\" deleted"), "{deleted}");
    let refused = desk.server.kubectl_fails("delete resourcepoolclaim -n solar-test get-me-solar");
    assert!(refused.starts_with("Error from server (Forbidden): "), "{refused}");
    assert!(refused.contains("cannot delete the pool while claim is used in resourcepool solar-pool"), "{refused}");
    desk.server.kubectl("delete pod -n solar-test worker --now");
    desk.shows(claims, &[CLAIMS, "get-me-solar solar-pool True reconciled False claim is unused 16m"]);
    desk.shows(quotas, &[QUOTAS, "capsule-pool-solar-pool requests.cpu: 0/2, requests.memory: 0/2Gi 17m"]);
    desk.server.kubectl("annotate resourcepoolclaim -n solar-test get-me-solar projectcapsule.dev/release=true");
    desk.server.until(&format!("{claims} get-me-solar -o jsonpath={{.metadata.annotations}}"), |out| {
        !out.contains("projectcapsule.dev/release")
    });
    desk.delete("bound");
}

fn the_queue(desk: &Desk) {
    desk.apply("queue");
    let of = |name: &str| format!("-n solar-test {name}");
    desk.says(&of("get-mem"), "Exhausted", "requested: requests.memory=2Gi, available: requests.memory=1Gi");
    desk.apply("queue-skip-the-line");
    desk.says(&of("get-mem"), "Exhausted", "requested: requests.memory=2Gi, available: requests.memory=512Mi");
    let row = "skip-the-line sampler True reconciled False claim is unused 2s";
    desk.shows("-n solar-test get resourcepoolclaim skip-the-line", &[CLAIMS, row]);
    let row = "get-mem sampler True reconciled False claim causes exhaustions 16m";
    desk.shows("-n solar-test get resourcepoolclaim get-mem", &[CLAIMS, row]);
    desk.apply("queue-ordered");
    let message = "requested: requests.memory=2Gi, queued: requests.memory=1Gi";
    desk.says("-n solar-prod get-mem", "Exhausted", message);
    let reasons = "-n solar-prod get resourcepoolclaim get-mem -o jsonpath={.status.conditions[*].reason}";
    assert_eq!(desk.server.kubectl(reasons), "Succeeded QueueExhausted Failed");
    for file in ["queue-skip-the-line", "queue", "queue-ordered"] {
        desk.delete(file);
    }
}

fn the_migration(desk: &Desk) {
    desk.apply("migration-pods");
    desk.server.until("-n migration-dev get deployment web -o jsonpath={.status.replicas}", |out| out == "3");
    desk.apply("migration-claims");
    let claims = "get resourcepoolclaims -n migration-dev";
    desk.shows(
        claims,
        &[
            CLAIMS,
            "compute False ResourcePool.capsule.clastix.io \"migration-compute\" not found 2s",
            "pods False ResourcePool.capsule.clastix.io \"migration-size\" not found 2s",
        ],
    );
    let applied = desk.apply("migration-pools");
    for pool in ["migration-compute", "migration-size"] {
        assert!(applied.contains(&format!("resourcepool.capsule.clastix.io/{pool} created")), "{applied}");
    }
    desk.shows(
        claims,
        &[
            CLAIMS,
            "compute migration-compute True reconciled True claim is used 4m9s",
            "pods migration-size True reconciled True claim is used 4m9s",
        ],
    );
    desk.shows(
        "get resourcequota -n migration-dev",
        &[
            QUOTAS,
            "capsule-pool-migration-compute requests.cpu: 375m/375m, requests.memory: 384Mi/384Mi limits.cpu: 375m/375m, \
             limits.memory: 384Mi/384Mi 110s",
            "capsule-pool-migration-size pods: 3/3 110s",
        ],
    );
}

fn two_quotas_on_the_same_pods(desk: &Desk) {
    desk.apply("matches");
    desk.apply("matches-deployment");
    let columns = "NAME LIMIT USED AVAILABLE READY STATUS AGE";
    desk.shows("-n wind-test get customquota", &[columns, "pod-count-limit 3 3 0 True reconciled 1m"]);
    desk.shows("get gcq pod-count-limit", &[columns, "pod-count-limit 6 3 3 True reconciled 1m"]);
    desk.shows(
        "-n wind-test get ql",
        &[
            "NAME TARGETKIND TARGETNAMESPACE TARGETNAME RESERVED AGE",
            "pod-count-limit CustomQuota wind-test pod-count-limit 0 1m",
        ],
    );
    let one = desk.server.kubectl("-n wind-test get quantityledger pod-count-limit");
    assert!(one.starts_with("NAME              TARGETKIND    TARGETNAMESPACE"), "{one}");
    let words = "creating resource exceeds limit for CustomQuota \"pod-count-limit\" (requested=1, currentUsed=4, \
                 available=0, limit=3, inflightReserved=0)";
    let events = desk.server.until("-n wind-test get events", |out| out.contains(words));
    assert!(events.contains("Warning") && events.contains("FailedCreate"), "{events}");
    let status = &desk.json("-n wind-test get customquota pod-count-limit")["status"];
    assert_eq!(status["usage"], json!({"available": "0", "used": "3"}));
    let target = json!([{"group": "", "kind": "Pod", "op": "count", "scope": "namespace", "version": "v1"}]);
    assert_eq!(status["targets"], target);
    let claim = &status["claims"][0];
    assert_eq!(
        (&claim["kind"], &claim["namespace"], &claim["usage"]),
        (&json!("Pod"), &json!("wind-test"), &json!("1"))
    );
    desk.delete("matches");
    desk.delete("matches-deployment");
}

fn statuses(desk: &Desk) {
    desk.apply("global-bucket-storage-all");
    let quota = "get globalcustomquota object-bucket-claim-storage-all";
    desk.server.until(&format!("{quota} -o jsonpath={{.status.namespaces}}"), |out| out.contains("solar-prod"));
    let status = &desk.json(quota)["status"];
    assert_eq!(status["usage"], json!({"available": "500Gi", "used": "0"}));
    assert_eq!(status["namespaces"], json!(["solar-prod", "solar-test"]));
    let ready = &status["conditions"][0];
    assert_eq!(
        (&ready["type"], &ready["status"], &ready["reason"], &ready["message"]),
        (&json!("Ready"), &json!("True"), &json!("Succeeded"), &json!("reconciled"))
    );
    assert_eq!(
        status["targets"],
        json!([{
            "group": "objectbucket.io", "version": "v1alpha1", "kind": "ObjectBucketClaim", "op": "add",
            "path": ".spec.additionalConfig.maxSize", "scope": "namespace",
        }])
    );

    desk.apply("global-cpu-limits");
    desk.apply("global-cpu-limits-pods");
    let quota = "get globalcustomquota cpu-limits";
    desk.server.until(&format!("{quota} -o jsonpath={{.status.claims[*].usage}}"), |out| {
        out == "250m 250m 250m 250m 250m 250m"
    });
    let status = &desk.json(quota)["status"];
    assert_eq!(status["usage"], json!({"available": "3500m", "used": "1500m"}));
    let target = |list: &str| {
        json!({
            "group": "", "kind": "Pod", "op": "add", "path": format!(".spec.{list}[*].resources.limits.cpu"),
            "scope": "namespace", "version": "v1",
        })
    };
    assert_eq!(status["targets"], json!([target("containers"), target("initContainers")]));
    desk.delete("global-cpu-limits-pods");
}

#[test]
fn every_manifest_of_the_documentation_applies() {
    let desk = Desk::new();
    let mut names: Vec<String> = std::fs::read_dir(&desk.folder)
        .expect("the examples")
        .map(|entry| entry.expect("an entry").path().file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    // What runs is there before what limits it: everything together would leave no room.
    names.sort_by_key(|name| (!(name.contains("pod") || name.contains("deployment")), name.clone()));
    assert!(names.len() >= 36, "{names:?}");
    for name in &names {
        let said = desk.apply(name);
        assert!(
            said.lines()
                .all(|line| line.ends_with("created") || line.ends_with("unchanged") || line.ends_with("configured")),
            "{said}"
        );
    }
    let ready = "{range .items[*]}{.metadata.name}={.status.conditions[?(@.type==\"Ready\")].message};{end}";
    for kind in ["customquotas", "globalcustomquotas", "resourcepools"] {
        let all = |out: &str| {
            let parts: Vec<&str> = out.split(';').filter(|part| !part.is_empty()).collect();
            parts.len() >= 5 && parts.iter().all(|part| part.ends_with("=reconciled"))
        };
        desk.server.until(&format!("get {kind} -A -o jsonpath='{ready}'"), all);
    }
}
