//! Quotas wider than a namespace: by selector, and over a tree.

use crate::harness::Server;

#[test]
fn one_quota_over_the_namespaces_a_selector_finds() {
    let server = Server::start();
    for namespace in ["a", "b", "other"] {
        server.kubectl(&format!("create namespace {namespace}"));
    }
    server.kubectl("label namespace a b org=x");
    let quota = "
apiVersion: quota.openshift.io/v1
kind: ClusterResourceQuota
metadata: {name: org-x}
spec:
  selector: {labels: {matchLabels: {org: x}}}
  quota: {hard: {secrets: '2'}}
";
    server.kubectl_with("apply -f -", quota);
    server.kubectl("-n a create secret generic s --from-literal=k=v");
    server.kubectl("-n b create secret generic s --from-literal=k=v");
    server.kubectl("-n other create secret generic s --from-literal=k=v");
    let refused = server.kubectl_fails("-n b create secret generic t --from-literal=k=v");
    assert!(
        refused.contains("exceeded quota: org-x, requested: secrets=1, used: secrets=2, limited: secrets=2"),
        "{refused}"
    );
    let total =
        server.until("get clusterresourcequota org-x -o jsonpath={.status.total.used.secrets}", |out| out == "2");
    assert_eq!(total, "2");
    let applied = server.kubectl("-n a get appliedclusterresourcequotas -o name");
    assert!(applied.contains("org-x"), "{applied}");
    let select = "-n a get appliedclusterresourcequotas -o name --field-selector";
    assert!(server.kubectl(&format!("{select} metadata.name=org-x")).contains("org-x"));
    assert_eq!(server.kubectl(&format!("{select} metadata.name=other")), "");
    assert_eq!(server.kubectl("-n a get appliedclusterresourcequotas -o name -l no=label"), "");
    // A namespace that leaves takes its usage along, and one that joins brings it.
    server.kubectl("label namespace a org-");
    server.kubectl("-n b create secret generic t --from-literal=k=v");
    server.kubectl("label namespace a org=x");
    server.kubectl_fails("-n b create secret generic u --from-literal=k=v");
    server.until("get clusterresourcequota org-x -o jsonpath={.status.total.used.secrets}", |out| out == "3");
}

#[test]
fn a_quota_over_a_tree_of_namespaces() {
    let server = Server::start();
    server.kubectl("create namespace org");
    server.kubectl("create namespace team");
    let tree = "
apiVersion: hnc.x-k8s.io/v1alpha2
kind: HierarchyConfiguration
metadata: {name: hierarchy, namespace: team}
spec: {parent: org}
---
apiVersion: hnc.x-k8s.io/v1alpha2
kind: SubnamespaceAnchor
metadata: {name: project, namespace: team}
---
apiVersion: hnc.x-k8s.io/v1alpha2
kind: HierarchicalResourceQuota
metadata: {name: whole, namespace: org}
spec: {hard: {secrets: '2'}}
";
    server.kubectl_with("apply -f -", tree);
    server.until("get namespace project -o jsonpath={.metadata.labels}", |out| {
        out.contains(r#""org.tree.hnc.x-k8s.io/depth":"2""#) && out.contains(r#""team.tree.hnc.x-k8s.io/depth":"1""#)
    });
    server.kubectl("-n org create secret generic s --from-literal=k=v");
    server.kubectl("-n project create secret generic s --from-literal=k=v");
    let refused = server.kubectl_fails("-n team create secret generic s --from-literal=k=v");
    let words = r#"exceeded hierarchical quota in namespace "org": "whole", requested: secrets=1, used: secrets=2, limited: secrets=2"#;
    assert!(refused.contains(words), "{refused}");
    server.until("-n org get hierarchicalresourcequota whole -o jsonpath={.status.used.secrets}", |out| out == "2");
    server.kubectl("-n org delete secret s");
    server.kubectl("-n team create secret generic s --from-literal=k=v");
    // Labels are the tree's to say: nobody leaves a quota, or uses up another's, by writing them.
    server.kubectl("label namespace team org.tree.hnc.x-k8s.io/depth- team.tree.hnc.x-k8s.io/depth=9 --overwrite");
    server.kubectl("create namespace free");
    server.kubectl("label namespace free org.tree.hnc.x-k8s.io/depth=1");
    server.kubectl_fails("-n team create secret generic t --from-literal=k=v");
    server.kubectl("-n free create secret generic s --from-literal=k=v");
    let labels = |name: &str| server.kubectl(&format!("get namespace {name} -o jsonpath={{.metadata.labels}}"));
    assert!(labels("team").contains(r#""org.tree.hnc.x-k8s.io/depth":"1""#), "{}", labels("team"));
    assert!(!labels("free").contains("tree"), "{}", labels("free"));
    // And what comes under the tree is counted with the commit that puts it there.
    let below = "
apiVersion: hnc.x-k8s.io/v1alpha2
kind: HierarchyConfiguration
metadata: {name: hierarchy, namespace: free}
spec: {parent: project}
";
    server.kubectl_with("apply -f -", below);
    server.kubectl_fails("-n free create secret generic t --from-literal=k=v");
    server.until("-n org get hierarchicalresourcequota whole -o jsonpath={.status.used.secrets}", |out| out == "3");
    let (ok, _, refused) = server.try_kubectl(
        "apply -f -",
        &below.replace("namespace: free", "namespace: org").replace("parent: project", "parent: free"),
    );
    assert!(!ok && refused.contains("cycle when setting parent"), "{refused}");
    let audit = server.kubectl("get --raw /debug/audit");
    assert!(audit.contains(r#""differences":[]"#), "{audit}");
}

#[test]
fn usage_posted_in_the_old_way_is_taken_or_conflicts() {
    let server = Server::start();
    server.kubectl("create namespace old");
    server.kubectl("-n old create quota q --hard=pods=5");
    let version = server.kubectl("-n old get quota q -o jsonpath={.metadata.resourceVersion}");
    let usage = |version: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"ResourceQuotaUsage","metadata":{{"name":"q","namespace":"old","resourceVersion":"{version}"}},"status":{{"hard":{{"pods":"5"}},"used":{{"pods":"4"}}}}}}"#
        )
    };
    let path = "create --raw /api/v1/namespaces/old/resourcequotausages -f -";
    let (ok, _, error) = server.try_kubectl(path, &usage("1"));
    assert!(!ok && error.contains("the object has been modified"), "{error}");
    let latest = || server.kubectl("-n old get quota q -o jsonpath={.metadata.resourceVersion}");
    // The status is filled in behind the create; post against the version that is there.
    let mut posted = server.try_kubectl(path, &usage(&version)).0;
    for _ in 0..20 {
        posted = posted || server.try_kubectl(path, &usage(&latest())).0;
    }
    assert!(posted);
    server.until("-n old get quota q -o jsonpath={.status.used.pods}", |out| out == "0");
}
