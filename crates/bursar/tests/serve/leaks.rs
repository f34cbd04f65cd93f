//! What Kubernetes' own quota was measured to get wrong, each asked of this server. The wanted count is 0 everywhere.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Namespace, Pod, ResourceQuota, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::object;
use crate::process::Process;

struct Bench {
    process: Process,
    client: Client,
    _folder: tempfile::TempDir,
}

impl Bench {
    async fn start() -> Bench {
        let folder = tempfile::tempdir().expect("a folder");
        let process = Process::start(folder.path(), &["--log", "error"]).await;
        let client = process.client().await;
        let bench = Bench { process, client, _folder: folder };
        let team = object::<Namespace>(json!({"metadata": {"name": "team"}}));
        Api::all(bench.client.clone()).create(&PostParams::default(), &team).await.expect("a namespace");
        bench
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "team")
    }

    async fn quota(&self, name: &str, spec: Value) {
        let quota = object::<ResourceQuota>(json!({"metadata": {"name": name}, "spec": spec}));
        self.api().create(&PostParams::default(), &quota).await.expect("a quota");
    }

    async fn used(&self, quota: &str, resource: &str) -> String {
        let quota = self.api::<ResourceQuota>().get(quota).await.expect("the quota");
        let used = quota.status.and_then(|status| status.used).unwrap_or_default();
        used.get(resource).map(|quantity| quantity.0.clone()).unwrap_or_default()
    }

    async fn create(&self, pod: &Pod) -> kube::Result<Pod> {
        self.api().create(&PostParams::default(), pod).await
    }

    /// The server's own recount agrees with its ledger, and it is ended cleanly.
    async fn end(self) {
        let request = http::Request::get("/debug/audit").body(Vec::new()).expect("a request");
        let report: Value = self.client.request(request).await.expect("an audit");
        assert_eq!(report["differences"], json!([]), "{report}");
        assert_eq!(self.process.stop().await, Some(0));
    }
}

fn pod(name: &str, cpu: &str) -> Pod {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
    object(json!({"metadata": {"name": name}, "spec": {"containers": [container]}}))
}

#[tokio::test]
async fn fifty_creates_of_an_existing_name_charge_nothing() {
    let bench = Bench::start().await;
    bench.quota("q", json!({"hard": {"pods": "2", "requests.cpu": "1"}})).await;
    bench.create(&pod("a", "100m")).await.expect("fits");
    for _ in 0..50 {
        let error = bench.create(&pod("a", "100m")).await.expect_err("it exists");
        assert!(matches!(error, kube::Error::Api(status) if status.code == 409));
    }
    assert_eq!(bench.used("q", "pods").await, "1");
    assert_eq!(bench.used("q", "requests.cpu").await, "100m");
    bench.create(&pod("b", "100m")).await.expect("there is room for a second");
    bench.end().await;
}

#[tokio::test]
async fn a_storm_of_creates_and_deletes_never_shows_a_watcher_more_than_the_limit() {
    const LIMIT: usize = 5;
    let bench = Bench::start().await;
    bench.quota("q", json!({"hard": {"pods": LIMIT.to_string()}})).await;
    let pods: Api<Pod> = bench.api();
    let version =
        pods.list(&ListParams::default()).await.expect("a list").metadata.resource_version.unwrap_or_default();
    let mut events = pods.watch(&WatchParams::default(), &version).await.expect("a watch").boxed();
    let deadline = Instant::now() + Duration::from_secs(5);
    let storm: Vec<_> = (0..16)
        .map(|client: usize| {
            let pods = pods.clone();
            tokio::spawn(async move {
                let (mut made, mut refused) = (0, 0);
                while Instant::now() < deadline {
                    let name = format!("p{client}-{made}-{refused}");
                    match pods.create(&PostParams::default(), &pod(&name, "1m")).await {
                        Ok(_) => {
                            made += 1;
                            pods.delete(&name, &DeleteParams::default()).await.expect("it is there");
                        }
                        Err(kube::Error::Api(status)) if status.code == 403 => refused += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
                (made, refused)
            })
        })
        .collect();
    let (mut live, mut most, mut seen) = (BTreeSet::new(), 0, 0);
    let mut storm = futures::future::join_all(storm);
    let (mut done, mut expected) = (false, 0);
    while !done || seen < expected {
        tokio::select! {
            results = &mut storm, if !done => {
                done = true;
                let results: Vec<(usize, usize)> = results.into_iter().map(|one| one.expect("no panic")).collect();
                let made: usize = results.iter().map(|one| one.0).sum();
                let refused: usize = results.iter().map(|one| one.1).sum();
                assert!(made > 50 && refused > 50, "the storm was a breeze: {made} made, {refused} refused");
                expected = made;
            }
            event = events.try_next() => match event.expect("the watch lasts").expect("the watch lasts") {
                WatchEvent::Added(pod) => {
                    live.insert(pod.name_any());
                    most = most.max(live.len());
                }
                WatchEvent::Deleted(pod) => {
                    live.remove(&pod.name_any());
                    seen += 1;
                }
                _ => {}
            }
        }
    }
    assert!(most <= LIMIT, "{most} pods at once under a limit of {LIMIT}");
    assert_eq!(bench.used("q", "pods").await, "0");
    bench.end().await;
}

#[tokio::test]
async fn fewer_node_ports_are_free_at_once() {
    let bench = Bench::start().await;
    bench.quota("q", json!({"hard": {"services.nodeports": "3"}})).await;
    let ports = |count: u16| {
        let ports: Vec<Value> = (0..count).map(|n| json!({"name": format!("p{n}"), "port": 80 + n})).collect();
        json!({"spec": {"type": "NodePort", "ports": ports}})
    };
    let mut service = ports(3);
    service["metadata"] = json!({"name": "s"});
    let services: Api<Service> = bench.api();
    services.create(&PostParams::default(), &object(service)).await.expect("three ports fit");
    let patch = |count| Patch::Merge(ports(count));
    services.patch("s", &PatchParams::default(), &patch(1)).await.expect("shrinks");
    assert_eq!(bench.used("q", "services.nodeports").await, "1");
    services.patch("s", &PatchParams::default(), &patch(2)).await.expect("grows again");
    services.patch("s", &PatchParams::default(), &patch(4)).await.expect_err("but not beyond the limit");
    assert_eq!(bench.used("q", "services.nodeports").await, "2");
    bench.end().await;
}

#[tokio::test]
async fn a_smaller_request_by_resize_is_free_at_once() {
    let bench = Bench::start().await;
    bench.quota("q", json!({"hard": {"requests.cpu": "1"}})).await;
    bench.create(&pod("a", "800m")).await.expect("fits");
    bench.create(&pod("b", "400m")).await.expect_err("does not");
    let resize = |cpu: &str| {
        Patch::Strategic(json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}))
    };
    let pods: Api<Pod> = bench.api();
    pods.patch_subresource("resize", "a", &PatchParams::default(), &resize("300m")).await.expect("shrinks");
    assert_eq!(bench.used("q", "requests.cpu").await, "300m");
    bench.create(&pod("b", "400m")).await.expect("now it fits");
    let refused = pods.patch_subresource("resize", "a", &PatchParams::default(), &resize("700m")).await;
    assert!(refused.expect_err("too much").to_string().contains("exceeded quota: q"));
    assert_eq!(bench.used("q", "requests.cpu").await, "700m");
    bench.end().await;
}

#[tokio::test]
async fn an_edited_scope_selector_counts_what_it_selects_now() {
    let bench = Bench::start().await;
    for (name, value) in [("pc1", 1), ("pc2", 2)] {
        let class = json!({"metadata": {"name": name}, "value": value});
        let class = object::<k8s_openapi::api::scheduling::v1::PriorityClass>(class);
        Api::all(bench.client.clone()).create(&PostParams::default(), &class).await.expect("a class");
    }
    let selector = |class: &str| json!({"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": [class]}]});
    bench.quota("q", json!({"hard": {"pods": "1"}, "scopeSelector": selector("pc1")})).await;
    let of_class = |name: &str| {
        let mut pod = pod(name, "1m");
        pod.spec.as_mut().expect("a spec").priority_class_name = Some("pc2".into());
        pod
    };
    bench.create(&of_class("a")).await.expect("not selected");
    bench.create(&of_class("b")).await.expect("not selected");
    let patch = Patch::Merge(json!({"spec": {"scopeSelector": selector("pc2")}}));
    bench.api::<ResourceQuota>().patch("q", &PatchParams::default(), &patch).await.expect("edited");
    assert_eq!(bench.used("q", "pods").await, "2");
    bench.create(&of_class("c")).await.expect_err("the third is refused from the moment of the edit");
    bench.end().await;
}

#[tokio::test]
async fn a_quota_holds_from_the_moment_it_exists() {
    let bench = Bench::start().await;
    for round in 0..20 {
        let name = format!("q{round}");
        bench.quota(&name, json!({"hard": {"pods": "0"}})).await;
        bench.create(&pod("early", "1m")).await.expect_err("no window after the create");
        bench.api::<ResourceQuota>().delete(&name, &DeleteParams::default()).await.expect("deleted");
        bench.create(&pod("late", "1m")).await.expect("and none after the delete");
        bench.api::<Pod>().delete("late", &DeleteParams::default()).await.expect("deleted");
    }
    bench.end().await;
}

#[tokio::test]
async fn refused_and_cut_off_requests_cost_nothing() {
    let bench = Bench::start().await;
    bench.quota("a", json!({"hard": {"pods": "1000", "requests.cpu": "1000"}})).await;
    bench.quota("b", json!({"hard": {"requests.cpu": "1"}})).await;
    for round in 0..20 {
        bench.create(&pod(&format!("big{round}"), "2")).await.expect_err("b refuses");
    }
    assert_eq!(bench.used("a", "pods").await, "0", "all accounts or none");
    // Sixty-four creates at once, hung up on at random moments: what was stored is charged, and nothing else.
    for round in 0..10 {
        let creates = (0..64).map(|n| {
            let pods: Api<Pod> = bench.api();
            async move { pods.create(&PostParams::default(), &pod(&format!("cut{round}-{n}"), "1m")).await.map(|_| ()) }
        });
        let all = futures::future::join_all(creates);
        let _ = tokio::time::timeout(Duration::from_millis(1 + round * 2), all).await;
    }
    let stored = bench.api::<Pod>().list(&ListParams::default()).await.expect("a list").items.len();
    // Requests whose callers hung up may still be under way; the count settles and then agrees.
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let stored = bench.api::<Pod>().list(&ListParams::default()).await.expect("a list").items.len();
        if bench.used("a", "pods").await == stored.to_string() {
            break;
        }
        assert!(Instant::now() < patience, "{stored} pods are stored, {} are charged", bench.used("a", "pods").await);
    }
    assert!(stored <= 640);
    bench.end().await;
}
