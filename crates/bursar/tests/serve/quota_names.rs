//! Every name a ResourceQuota can list, what kubectl prints of it, and a server that counts without refusing.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};

use crate::harness::Server;
use crate::object;
use crate::process::Process;

const OBJECTS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.shop.example.com}
spec:
  group: shop.example.com
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  initContainers:
  - name: i
    image: i
    resources: {requests: {cpu: 300m, memory: 32Mi}, limits: {cpu: 300m, memory: 64Mi}}
  containers:
  - name: c
    image: i
    resources:
      requests: {cpu: 100m, memory: 64Mi, ephemeral-storage: 1Gi, hugepages-2Mi: 4Mi, example.com/gpu: 1}
      limits: {cpu: 200m, memory: 128Mi, ephemeral-storage: 2Gi, hugepages-2Mi: 4Mi, example.com/gpu: 1}
---
apiVersion: v1
kind: Service
metadata: {name: np}
spec: {type: NodePort, ports: [{name: a, port: 80}, {name: b, port: 81}]}
---
apiVersion: v1
kind: Service
metadata: {name: lb}
spec: {type: LoadBalancer, ports: [{port: 80}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: v}
spec: {storageClassName: gold, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: rc}
spec:
  replicas: 0
  selector: {app: rc}
  template: {metadata: {labels: {app: rc}}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  replicas: 0
  selector: {matchLabels: {app: d}}
  template: {metadata: {labels: {app: d}}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: rc}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gold, allocationMode: ExactCount, count: 2}}]}}
";

/// By name, what the objects above use of it.
const USED: &str = "
cpu 300m                    requests.cpu 300m                limits.cpu 300m
memory 64Mi                 requests.memory 64Mi             limits.memory 128Mi
ephemeral-storage 1Gi       requests.ephemeral-storage 1Gi   limits.ephemeral-storage 2Gi
hugepages-2Mi 4Mi           requests.hugepages-2Mi 4Mi       requests.example.com/gpu 1
pods 1                      count/pods 1
services 2                  count/services 2                 services.nodeports 3    services.loadbalancers 1
persistentvolumeclaims 1    count/persistentvolumeclaims 1   requests.storage 1Gi
gold.storageclass.storage.k8s.io/requests.storage 1Gi        gold.storageclass.storage.k8s.io/persistentvolumeclaims 1
configmaps 2                count/configmaps 2               secrets 1               count/secrets 1
replicationcontrollers 1    count/replicationcontrollers 1   resourcequotas 1        count/resourcequotas 1
count/deployments.apps 1    count/replicasets.apps 1         count/widgets.shop.example.com 1
gold.deviceclass.resource.k8s.io/devices 2                   count/resourceclaims.resource.k8s.io 1
requests.deviceclass.resource.kubernetes.io/gold 2
";

#[test]
fn every_resource_name_is_counted_and_limits() {
    let server = Server::start();
    server.kubectl("create namespace all");
    let words: Vec<&str> = USED.split_whitespace().collect();
    let wanted: BTreeMap<&str, &str> = words.chunks(2).map(|pair| (pair[0], pair[1])).collect();
    let quota = |hard: &BTreeMap<&str, &str>| {
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "all"},
            "spec": {"hard": hard}})
        .to_string()
    };
    // Exactly what is used is allowed, so everything is full when everything is there.
    server.kubectl_with("create -f -", &quota(&wanted));
    server.kubectl_with("-n all create -f -", OBJECTS);
    let widget = "{apiVersion: shop.example.com/v1, kind: Widget, metadata: {name: w, namespace: all}}";
    server.kubectl_with("create -f -", widget);
    let used = |out: &str| -> BTreeMap<String, String> { serde_json::from_str(out).unwrap_or_default() };
    let expected: BTreeMap<String, String> =
        wanted.iter().map(|(name, used)| (name.to_string(), used.to_string())).collect();
    server.until("-n all get quota q -o jsonpath={.status.used}", |out| {
        // configmaps: the certificate bundle of every namespace is written a moment after the namespace.
        used(out) == expected
    });
    for (more, name) in [
        ("-n all run another --image=i --requests-are-missing", "must specify"),
        ("-n all create service nodeport another --tcp=80", "services.nodeports=1"),
        ("-n all create configmap another", "configmaps=1"),
        ("-n all create secret generic another", "secrets=1"),
        ("-n all create quota another", "resourcequotas=1"),
        ("-n all create deployment another --image=i --replicas=0", "count/deployments.apps=1"),
    ] {
        let refused = server.kubectl_fails(&more.replace(" --requests-are-missing", ""));
        assert!(refused.contains(name), "kubectl {more}: {refused}");
    }
    server.kubectl_with("-n all delete --wait=true -f -", OBJECTS);
    let left = server.until("-n all get quota q -o jsonpath={.status.used}", |out| {
        let used = used(out);
        ["pods", "services", "persistentvolumeclaims", "count/replicasets.apps"]
            .iter()
            .all(|name| used.get(*name).is_some_and(|used| used == "0"))
    });
    assert_eq!(used(&left)["resourcequotas"], "1", "a quota counts itself");
    let audit = server.kubectl("get --raw /debug/audit");
    assert!(audit.contains(r#""differences":[]"#), "{audit}");
}

#[test]
fn quotas_are_described_as_documented() {
    let server = Server::start();
    server.kubectl("create namespace myspace");
    server.kubectl("-n myspace run p --image=i");
    let hard = "cpu=20,memory=1536Mi,pods=10,replicationcontrollers=10,services=3";
    server.kubectl(&format!("-n myspace create quota myquota --hard={hard}"));
    server.kubectl("-n myspace create service clusterip s --tcp=80");
    server.until("-n myspace get quota myquota -o jsonpath={.status.used.services}", |out| out == "1");
    let described = server.kubectl("-n myspace describe quota myquota");
    let wanted = "\
Name:                   myquota
Namespace:              myspace
Resource                Used  Hard
--------                ----  ----
cpu                     0     20
memory                  0     1536Mi
pods                    1     10
replicationcontrollers  0     10
services                1     3
";
    assert_eq!(described, wanted);
    let listed = server.kubectl("-n myspace get quota --no-headers");
    let cells = "cpu: 0/20, memory: 0/1536Mi, pods: 1/10, replicationcontrollers: 0/10, services: 1/3";
    assert!(listed.starts_with("myquota") && listed.contains(cells), "{listed}");
    assert!(server.kubectl("describe namespace myspace").contains("Resource Quotas"));
    server.kubectl("-n myspace create quota scoped --hard=pods=1 --scopes=BestEffort,NotTerminating");
    let scoped = server.until("-n myspace describe quota scoped", |out| out.contains("pods "));
    assert!(scoped.contains("Scopes:     BestEffort, NotTerminating"), "{scoped}");
    let refused = server.kubectl_fails("-n myspace create quota bad --hard=shiny=1");
    assert!(refused.contains("must be a standard resource type or fully qualified"), "{refused}");
    server.kubectl("-n myspace create quota good --hard=mycompany.org/shiny=1");
}

#[test]
fn with_admission_off_nothing_is_refused_and_the_auditor_reports() {
    let server = Server::start_with(&["--disable-admission", "ResourceQuota"]);
    server.kubectl("create namespace free");
    server.kubectl("-n free create quota q --hard=pods=1,requests.cpu=1");
    server.kubectl("-n free run a --image=i");
    server.kubectl("-n free run b --image=i");
    server.until("-n free get quota q -o jsonpath={.status.used.pods}", |out| out == "2");
    let audit: Value = serde_json::from_str(&server.kubectl("get --raw /debug/audit")).expect("a report");
    assert_eq!(audit["differences"], json!([]), "{audit}");
    let over = audit["over"].as_array().expect("a list");
    assert!(over.len() == 1 && over[0].as_str().is_some_and(|line| line.contains("free/q")), "{audit}");
}

#[tokio::test]
async fn watchers_see_a_quota_and_then_its_status() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &[]).await;
    let client = process.client().await;
    let team = object::<Namespace>(json!({"metadata": {"name": "team"}}));
    Api::all(client.clone()).create(&PostParams::default(), &team).await.expect("a namespace");
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), "team");
    let mut events = quotas.watch(&WatchParams::default(), "0").await.expect("a watch").boxed();
    let quota = object(json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}));
    quotas.create(&PostParams::default(), &quota).await.expect("a quota");
    let used = |quota: &ResourceQuota| {
        let used = quota.status.as_ref().and_then(|status| status.used.as_ref());
        used.and_then(|used| used.get("pods").map(|pods| pods.0.clone()))
    };
    match events.try_next().await.expect("an event") {
        Some(WatchEvent::Added(quota)) => assert_eq!(used(&quota), None, "the status comes with the next event"),
        other => panic!("{other:?}"),
    }
    match events.try_next().await.expect("an event") {
        Some(WatchEvent::Modified(quota)) => assert_eq!(used(&quota).as_deref(), Some("0")),
        other => panic!("{other:?}"),
    }
    assert_eq!(process.stop().await, Some(0));
}
