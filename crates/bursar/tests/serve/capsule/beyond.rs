//! Beyond Capsule: claims that workloads bring along, and pools that nodes size.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::kind;
use crate::harness::Server;
use crate::object;

fn example(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/capsule/beyond");
    folder.join(name).display().to_string()
}

async fn client(server: &Server) -> Client {
    server::tls::install_provider();
    let kubeconfig = kube::config::Kubeconfig::read_from(server.kubeconfig()).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("a configuration");
    Client::try_from(config).expect("a client")
}

fn pod(name: &str, cpu: &str) -> Pod {
    let resources = json!({"requests": {"cpu": cpu, "memory": "64Mi"}});
    object(
        json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}}),
    )
}

fn begin() -> Server {
    let server = Server::start();
    server.kubectl(&format!("apply -f {}", example("jit-claims.yaml")));
    for namespace in ["jit-one", "jit-two"] {
        let quota = format!("-n {namespace} get quota capsule-pool-just-in-time -o name");
        server.until(&quota, |out| !out.is_empty());
    }
    server
}

const NAMESPACES: [&str; 2] = ["jit-one", "jit-two"];

/// Every pod has its claim, every claim its pod, the pool has given what they ask for, and the recount agrees.
async fn settled(server: &Server) {
    let client = client(server).await;
    let mut cpu = 0;
    for namespace in NAMESPACES {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let claims: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind("ResourcePoolClaim"));
        let pods = pods.list(&ListParams::default()).await.expect("a list");
        let claims = claims.list(&ListParams::default()).await.expect("a list");
        let wanted: BTreeSet<String> =
            pods.iter().map(|pod| format!("jit-{}", pod.uid().unwrap_or_default())).collect();
        let there: BTreeSet<String> = claims.iter().map(ResourceExt::name_any).collect();
        assert_eq!(there, wanted, "in {namespace}");
        for claim in claims {
            let text = claim.data["spec"]["claim"]["requests.cpu"].as_str().unwrap_or("").to_owned();
            cpu += text
                .strip_suffix('m')
                .map_or_else(|| 1000 * text.parse::<u64>().unwrap_or(0), |m| m.parse().unwrap_or(0));
        }
    }
    assert!(cpu <= 4000, "{cpu}m of 4 cpus");
    let used = "get resourcepool just-in-time -o jsonpath={.status.allocation.used.requests\\.cpu}";
    server.until(used, |out| {
        let shown = out.strip_suffix('m').map_or_else(|| out.parse::<u64>().ok().map(|n| n * 1000), |m| m.parse().ok());
        shown == Some(cpu)
    });
    let audit: Value = serde_json::from_str(&server.kubectl("get --raw /debug/audit")).expect("a report");
    assert_eq!(audit["differences"], json!([]), "{audit}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workload_brings_its_claim_and_takes_it_along() {
    let server = begin();
    let client = client(&server).await;
    let pods = |namespace: &str| -> Api<Pod> { Api::namespaced(client.clone(), namespace) };
    let post = PostParams::default();
    let made = pods("jit-one").create(&post, &pod("web", "3")).await.expect("there is room in the pool");
    let claim = format!("jit-{}", made.uid().expect("a uid"));
    // The claim was there before the pod was answered.
    let shown = server.kubectl(&format!("-n jit-one get resourcepoolclaim {claim} -o jsonpath={{.spec.claim}}"));
    assert_eq!(shown, r#"{"requests.cpu":"3","requests.memory":"64Mi"}"#);
    let owner = format!("-n jit-one get resourcepoolclaim {claim} -o jsonpath={{.metadata.ownerReferences[0].name}}");
    assert_eq!(server.kubectl(&owner), "web");
    let bound = format!("-n jit-one get resourcepoolclaim {claim} --no-headers");
    let row = server.until(&bound, |out| out.contains("claim is used"));
    assert!(row.contains("just-in-time") && row.contains("True"), "{row}");
    let refused = pods("jit-two").create(&post, &pod("big", "2")).await.expect_err("too much").to_string();
    let words = "no claim can be made for it: \"just-in-time\" has too little: requested: requests.cpu=2, available: \
                 requests.cpu=1";
    assert!(refused.contains("exceeded quota: capsule-pool-just-in-time") && refused.contains(words), "{refused}");
    let refused = server.kubectl_fails(&format!("-n jit-one delete resourcepoolclaim {claim}"));
    assert!(refused.contains("was made for the workload"), "{refused}");
    settled(&server).await;
    pods("jit-one").delete("web", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(server.kubectl("-n jit-one get resourcepoolclaims -o name"), "");
    assert_eq!(
        server.kubectl("-n jit-one get quota capsule-pool-just-in-time -o jsonpath={.spec.hard.requests\\.cpu}"),
        "0"
    );
    pods("jit-two").create(&post, &pod("big", "2")).await.expect("there is room again");
    settled(&server).await;
    server.kubectl("delete namespace jit-two --wait=true");
    server
        .until("get resourcepool just-in-time -o jsonpath={.status.allocation.used.requests\\.cpu}", |out| out == "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_with_a_kill_in_it_leaves_one_claim_for_each_workload() {
    let mut server = begin();
    for round in 0..3 {
        let before = client(&server).await;
        let deadline = Instant::now() + Duration::from_millis(1200);
        let mut storm = tokio::task::JoinSet::new();
        for task in 0..8usize {
            let client = before.clone();
            storm.spawn(async move {
                let pods: Api<Pod> = Api::namespaced(client, NAMESPACES[task % 2]);
                let mut made = Vec::new();
                for turn in 0.. {
                    if Instant::now() > deadline {
                        break;
                    }
                    let name = format!("r{round}-{task}-{turn}");
                    let cpu = ["300m", "700m", "1100m"][turn % 3];
                    if pods.create(&PostParams::default(), &pod(&name, cpu)).await.is_ok() {
                        made.push(name);
                    }
                    if turn % 2 == 1
                        && let Some(name) = made.pop()
                    {
                        let _ = pods.delete(&name, &DeleteParams::default()).await;
                    }
                }
                made.len()
            });
        }
        tokio::time::sleep(Duration::from_millis(300 * (round + 1))).await;
        server = tokio::task::spawn_blocking(move || {
            server.kill_and_restart();
            server
        })
        .await
        .expect("restarted");
        while storm.join_next().await.is_some() {}
        settled(&server).await;
    }
    for namespace in NAMESPACES {
        server.kubectl(&format!("-n {namespace} delete pods --all"));
    }
    settled(&server).await;
    server.until("get resourcepool just-in-time -o jsonpath={.status.claimCount}", |out| out == "0");
}

#[test]
fn a_pool_is_as_large_as_its_nodes() {
    let server = Server::start();
    let node = |name: &str, cpu: &str, gpus: u32| {
        let body = format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{node.example.com/pool: gpu}}}}}}"
        );
        server.kubectl_with("create -f -", &body);
        let status = json!({"status": {"allocatable": {
            "cpu": cpu, "memory": "16Gi", "example.com/gpu": gpus.to_string(), "pods": "110"}}});
        server.kubectl(&format!("patch node {name} --subresource=status --type=merge -p '{status}'"));
    };
    node("n1", "7910m", 4);
    server.kubectl(&format!("apply -f {}", example("node-pool.yaml")));
    let hard = || server.kubectl("get resourcepool gpu-nodes -o jsonpath={.spec.quota.hard}");
    let first = r#"{"requests.cpu":"6328m","requests.example.com/gpu":"4","requests.memory":"8Gi","services.loadbalancers":"2"}"#;
    assert_eq!(hard(), first);
    node("n2", "1", 1);
    let both = r#"{"requests.cpu":"7128m","requests.example.com/gpu":"5","requests.memory":"16Gi","services.loadbalancers":"2"}"#;
    assert_eq!(hard(), both, "in the commit of the node");
    let claim = |name: &str, gpus: u32| {
        format!(
            "
apiVersion: capsule.clastix.io/v1beta2
kind: ResourcePoolClaim
metadata: {{name: {name}, namespace: on-nodes}}
spec: {{pool: gpu-nodes, claim: {{requests.example.com/gpu: '{gpus}'}}}}
"
        )
    };
    server.kubectl_with("create -f -", &claim("five", 5));
    server.kubectl_with("create -f -", &claim("one", 1));
    server.kubectl("delete node n2");
    assert_eq!(hard(), first);
    let over = "get resourcepool gpu-nodes -o jsonpath={.status.conditions[?(@.type==\"Oversubscribed\")].message}";
    server.until(over, |out| out == "claimed: requests.example.com/gpu=5, nodes give: requests.example.com/gpu=4");
    let bound = |name: &str| {
        let line = format!(
            "-n on-nodes get resourcepoolclaim {name} -o jsonpath={{.status.conditions[?(@.type==\"Exhausted\")].status}}"
        );
        server.kubectl(&line)
    };
    assert_eq!(bound("five"), "False", "nobody is evicted");
    assert_eq!(bound("one"), "True");
    // A larger node serves who waits, in its own commit.
    node("n3", "1", 8);
    assert_eq!(bound("one"), "False");
    let refused = server.kubectl_fails(
        r#"patch resourcepool gpu-nodes --type=merge -p '{"spec":{"nodes":{"shares":{"requests.cpu":"much"}}}}'"#,
    );
    assert!(refused.contains("must be a percentage"), "{refused}");
    server
        .kubectl(r#"patch resourcepool gpu-nodes --type=merge -p '{"spec":{"quota":{"hard":{"requests.cpu":"1k"}}}}'"#);
    assert!(hard().contains(r#""requests.cpu":"7128m""#), "{}", hard());
    let audit: Value = serde_json::from_str(&server.kubectl("get --raw /debug/audit")).expect("a report");
    assert_eq!(audit["differences"], json!([]), "{audit}");
}
