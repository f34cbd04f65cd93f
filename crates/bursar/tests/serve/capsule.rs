//! Capsule's quotas against the binary: exact under parallel load and across a restart, and a pool at work.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ResourceQuota};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::object;
use crate::process::Process;

/// What a controller or the publisher of statuses does, it does well within this.
const PATIENCE: Duration = Duration::from_secs(60);

fn kind(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("capsule.clastix.io", "v1beta2", kind), plural)
}

fn capsule(kind: &str, name: &str, spec: Value) -> DynamicObject {
    object(json!({"apiVersion": "capsule.clastix.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}))
}

async fn namespace(client: &Client, name: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let labelled = object(json!({"metadata": {"name": name, "labels": {"tenant": "solar"}}}));
    namespaces.create(&PostParams::default(), &labelled).await.expect("a namespace");
}

/// Creates `each` config maps in every namespace, all at once; how many were let in.
async fn storm(client: &Client, round: &str, namespaces: usize, each: usize) -> usize {
    let mut tasks = JoinSet::new();
    for at in 0..namespaces * each {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &format!("n{}", at % namespaces));
        let name = format!("{round}-{at}");
        tasks.spawn(async move {
            let map = object(json!({"metadata": {"name": name, "labels": {"counted": "yes"}}}));
            maps.create(&PostParams::default(), &map).await
        });
    }
    let mut granted = 0;
    while let Some(created) = tasks.join_next().await {
        match created.expect("no panic") {
            Ok(_) => granted += 1,
            Err(refused) => {
                let text = refused.to_string();
                assert!(text.contains("exceeds limit for GlobalCustomQuota \"ten\""), "{text}");
            }
        }
    }
    granted
}

async fn counted(client: &Client) -> usize {
    let maps: Api<ConfigMap> = Api::all(client.clone());
    maps.list(&ListParams::default().labels("counted=yes")).await.expect("a list").items.len()
}

#[tokio::test]
async fn parallel_creates_in_many_namespaces_fill_a_global_quota_exactly() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &[]).await;
    let client = process.client().await;
    for at in 0..20 {
        namespace(&client, &format!("n{at}")).await;
    }
    let quotas: Api<DynamicObject> = Api::all_with(client.clone(), &kind("GlobalCustomQuota", "globalcustomquotas"));
    let spec = json!({
        "limit": 10,
        "namespaceSelectors": [{"matchLabels": {"tenant": "solar"}}],
        "sources": [{"kind": "ConfigMap", "op": "count", "selectors": [{"matchLabels": {"counted": "yes"}}]}],
    });
    quotas.create(&PostParams::default(), &capsule("GlobalCustomQuota", "ten", spec)).await.expect("a quota");
    assert_eq!(storm(&client, "first", 20, 10).await, 10);
    assert_eq!(counted(&client).await, 10);
    assert_eq!(process.stop().await, Some(0));

    let process = Process::start(folder.path(), &[]).await;
    let client = process.client().await;
    assert_eq!(storm(&client, "second", 20, 1).await, 0);
    assert_eq!(counted(&client).await, 10);
    let quotas: Api<DynamicObject> = Api::all_with(client, &kind("GlobalCustomQuota", "globalcustomquotas"));
    let quota = quotas.get("ten").await.expect("the quota");
    assert_eq!(quota.data["status"]["usage"], json!({"used": "10", "available": "0"}));
    assert_eq!(process.stop().await, Some(0));
}

/// Asks again until the answer is as wanted.
async fn until<T: std::fmt::Debug, F: Future<Output = T>>(
    what: &str,
    ask: impl Fn() -> F,
    good: impl Fn(&T) -> bool,
) -> T {
    let begun = Instant::now();
    loop {
        let answer = ask().await;
        if good(&answer) {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: {answer:?}");
        tokio::task::yield_now().await;
    }
}

fn condition(claim: &DynamicObject, of: &str, field: &str) -> String {
    let list = claim.data.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let found = list.iter().find(|one| one["type"] == of);
    found.and_then(|one| one[field].as_str()).unwrap_or("").to_string()
}

#[tokio::test]
async fn a_pool_feeds_the_quotas_of_its_namespaces() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &[]).await;
    let client = process.client().await;
    namespace(&client, "a").await;
    namespace(&client, "b").await;
    let post = PostParams::default();
    let pools: Api<DynamicObject> = Api::all_with(client.clone(), &kind("ResourcePool", "resourcepools"));
    let spec = json!({
        "config": {"defaultsZero": true},
        "selectors": [{"matchLabels": {"tenant": "solar"}}],
        "quota": {"hard": {"pods": "4"}},
    });
    pools.create(&post, &capsule("ResourcePool", "p", spec)).await.expect("a pool");
    let in_namespace = |namespace: &str| -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), namespace, &kind("ResourcePoolClaim", "resourcepoolclaims"))
    };
    let (claims_a, claims_b) = (in_namespace("a"), in_namespace("b"));
    let claim = |name: &str, pods: &str| capsule("ResourcePoolClaim", name, json!({"claim": {"pods": pods}}));
    claims_a.create(&post, &claim("one", "3")).await.expect("a claim");
    claims_b.create(&post, &claim("two", "2")).await.expect("a claim that waits");

    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), "a");
    let hard = |quota: &Option<ResourceQuota>| {
        let spec = quota.as_ref().and_then(|quota| quota.spec.clone());
        spec.and_then(|spec| spec.hard).and_then(|hard| hard.get("pods").map(|pods| pods.0.clone()))
    };
    let quota = || async { quotas.get_opt("capsule-pool-p").await.expect("an answer") };
    until("the quota follows the claim", quota, |quota| hard(quota).as_deref() == Some("3")).await;
    let waiting = || async { claims_b.get("two").await.expect("the claim") };
    let said = |claim: &DynamicObject| condition(claim, "Exhausted", "message");
    until("the second claim waits", waiting, |claim| said(claim) == "requested: pods=2, available: pods=1").await;

    let pods: Api<Pod> = Api::namespaced(client.clone(), "a");
    pods.create(&post, &crate::pod("web")).await.expect("a pod fits");
    let first = || async { claims_a.get("one").await.expect("the claim") };
    until("the first claim is in use", first, |claim| condition(claim, "Bound", "status") == "True").await;
    let refused = claims_a.delete("one", &DeleteParams::default()).await.expect_err("in use");
    assert!(refused.to_string().contains("cannot delete the pool while claim is used in resourcepool p"), "{refused}");
    pods.delete("web", &DeleteParams::default().grace_period(0)).await.expect("the pod goes");
    let gone = || async { pods.get_opt("web").await.expect("an answer") };
    until("the pod is gone", gone, Option::is_none).await;
    claims_a.delete("one", &DeleteParams::default()).await.expect("the claim goes");
    let served = |claim: &DynamicObject| condition(claim, "Bound", "message") == "claim is unused";
    until("the second claim is served", waiting, served).await;
    until("the quota shrinks", quota, |quota| hard(quota).as_deref() == Some("0")).await;
    assert_eq!(process.stop().await, Some(0));
}
