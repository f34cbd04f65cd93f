//! The binary as a user starts it: one command, a kubeconfig that works, a quota that holds, a clean end, a restart.

mod access;
mod backup;
mod bad_input;
mod bench;
mod bodies;
mod capsule;
mod compare;
mod dashboards;
mod datum;
mod definitions;
mod encryption;
mod etcd;
mod etcd_tls;
mod events;
mod failover;
mod harness;
mod informer;
mod install;
mod isolation;
mod karmada;
mod kubectl;
mod leaks;
mod limits;
mod migrate;
mod operator;
mod orgs;
mod outages;
mod owner;
mod peer;
mod process;
// The tests of the store break more with it.
mod prometheus;
#[allow(dead_code)]
#[path = "../../../store/tests/store/proxy.rs"]
mod proxy;
mod quota_names;
mod quotas;
mod references;
mod restart;
mod start;
mod storm;
mod tour;
mod validation;
mod wide;

use k8s_openapi::api::core::v1::{Namespace, Pod, ResourceQuota};
use kube::api::{Api, ListParams, PostParams};
use process::Process;
use serde_json::json;

pub fn object<K: serde::de::DeserializeOwned>(value: serde_json::Value) -> K {
    serde_json::from_value(value).expect("an object")
}

fn pod(name: &str) -> Pod {
    object(json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}))
}

#[tokio::test]
async fn one_command_serves_a_quota_that_survives_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &[]).await;
    let client = process.client().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let names: Vec<String> = namespaces
        .list(&ListParams::default())
        .await
        .expect("a list")
        .into_iter()
        .filter_map(|one| one.metadata.name)
        .collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);

    let team = object(json!({"metadata": {"name": "team-a"}}));
    namespaces.create(&PostParams::default(), &team).await.expect("a namespace");
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), "team-a");
    let quota = object(json!({"metadata": {"name": "small"}, "spec": {"hard": {"pods": "1"}}}));
    quotas.create(&PostParams::default(), &quota).await.expect("a quota");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "team-a");
    let first = pods.create(&PostParams::default(), &pod("one")).await.expect("the first pod fits");
    let refused = pods.create(&PostParams::default(), &pod("two")).await.expect_err("the second does not");
    let expected =
        r#"pods "two" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1"#;
    assert!(refused.to_string().contains(expected), "{refused}");
    assert_eq!(process.stop().await, Some(0));

    let process = Process::start(folder.path(), &[]).await;
    let pods: Api<Pod> = Api::namespaced(process.client().await, "team-a");
    let again = pods.get("one").await.expect("still there");
    assert_eq!(again.metadata.resource_version, first.metadata.resource_version);
    assert!(pods.create(&PostParams::default(), &pod("two")).await.is_err(), "still full");
    assert_eq!(process.stop().await, Some(0));
}

#[tokio::test]
async fn a_second_server_on_the_same_folder_is_refused_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &[]).await;
    let before = std::fs::read_to_string(process.kubeconfig()).expect("a kubeconfig");
    for _ in 0..2 {
        let (code, complaint) = Process::fail(folder.path(), &[]).await;
        assert_eq!(code, Some(1));
        assert!(complaint.starts_with("bursar: ") && complaint.contains("in use by another process"), "{complaint}");
        // Nor when somebody takes the lock's file for a leftover.
        let _removed_before = std::fs::remove_file(folder.path().join("store/lock"));
    }
    assert_eq!(std::fs::read_to_string(process.kubeconfig()).expect("a kubeconfig"), before);
    assert_eq!(process.stop().await, Some(0));
}

#[tokio::test]
async fn mistakes_on_the_command_line_are_explained() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("bursar.yaml");
    std::fs::write(&config, "lisen: 127.0.0.1:1\n").expect("writes");
    let config = config.display().to_string();
    for (arguments, expected) in [
        (&["--listen", "nowhere"][..], "is not an address to listen on"),
        (&["--store", "redis://x"][..], "is not a store"),
        (&["--log", "a=b=c"][..], "is not a log level"),
        (&["--config", "/does/not/exist"][..], "cannot read the configuration"),
        (&["--config", &config][..], "lisen"),
    ] {
        let (code, complaint) = Process::fail(folder.path(), arguments).await;
        assert_ne!(code, Some(0), "{arguments:?}");
        assert!(complaint.contains(expected), "{arguments:?}: {complaint}");
    }
}
