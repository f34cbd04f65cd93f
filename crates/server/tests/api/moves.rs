//! Leaving a quota by moving one's namespace, and entering somebody else's. And clients that leave before they are answered.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use serde_json::{Value, json};

use crate::harness::{Server, request};

/// Two trees: `org` above `team` above `app`, and `victim`. Mallory administers `team` and `app` in every way a Role can grant.
async fn trees() -> Server {
    let server = Server::start();
    server.define_kinds().await;
    for namespace in ["org", "team", "app", "victim"] {
        let body = json!({"metadata": {"name": namespace, "labels": {"owner": namespace}}});
        server.play(&format!("POST /api/v1/namespaces\n  {body}\n  201")).await;
    }
    for namespace in ["team", "app"] {
        let role =
            json!({"metadata": {"name": "all"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
        let binding = json!({"metadata": {"name": "all"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "all"},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mallory"}]});
        let at = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
        server.play(&format!("POST {at}/roles\n  {role}\n  201\nPOST {at}/rolebindings\n  {binding}\n  201")).await;
    }
    server
        .play(
            r#"
POST /apis/hnc.x-k8s.io/v1alpha2/namespaces/team/hierarchyconfigurations
  {"apiVersion": "hnc.x-k8s.io/v1alpha2", "kind": "HierarchyConfiguration", "metadata": {"name": "hierarchy"}, "spec": {"parent": "org"}}
  201
POST /apis/hnc.x-k8s.io/v1alpha2/namespaces/org/hierarchicalresourcequotas
  {"apiVersion": "hnc.x-k8s.io/v1alpha2", "kind": "HierarchicalResourceQuota", "metadata": {"name": "shared"}, "spec": {"hard": {"configmaps": "2"}}}
  201
POST /apis/hnc.x-k8s.io/v1alpha2/namespaces/victim/hierarchicalresourcequotas
  {"apiVersion": "hnc.x-k8s.io/v1alpha2", "kind": "HierarchicalResourceQuota", "metadata": {"name": "secret-plans"}, "spec": {"hard": {"configmaps": "0"}}}
  201
"#,
        )
        .await;
    server
}

#[tokio::test]
async fn nobody_leaves_or_enters_a_tree_on_his_own() {
    let server = trees().await;
    server
        .play(
            r#"
DELETE /apis/hnc.x-k8s.io/v1alpha2/namespaces/team/hierarchyconfigurations/hierarchy As:mallory
  403  message~User "mallory" cannot update resource "hierarchyconfigurations" in API group "hnc.x-k8s.io" in the namespace "org"
DELETE /apis/hnc.x-k8s.io/v1alpha2/namespaces/team/hierarchyconfigurations As:mallory
  403  message~in the namespace "org"
PATCH /apis/hnc.x-k8s.io/v1alpha2/namespaces/team/hierarchyconfigurations/hierarchy As:mallory Content-Type:application/merge-patch+json
  {"spec": {"parent": null}}
  403  message~in the namespace "org"
PATCH /apis/hnc.x-k8s.io/v1alpha2/namespaces/team/hierarchyconfigurations/hierarchy As:mallory Content-Type:application/merge-patch+json
  {"spec": {"parent": "app"}}
  403  message~in the namespace "org"
# Of what is there and what is not the same is said.
POST /apis/hnc.x-k8s.io/v1alpha2/namespaces/app/hierarchyconfigurations As:mallory
  {"apiVersion": "hnc.x-k8s.io/v1alpha2", "kind": "HierarchyConfiguration", "metadata": {"name": "hierarchy"}, "spec": {"parent": "victim"}}
  403  message=hierarchyconfigurations.hnc.x-k8s.io "hierarchy" is forbidden: User "mallory" cannot update resource "hierarchyconfigurations" in API group "hnc.x-k8s.io" in the namespace "victim"
POST /apis/hnc.x-k8s.io/v1alpha2/namespaces/app/hierarchyconfigurations As:mallory
  {"apiVersion": "hnc.x-k8s.io/v1alpha2", "kind": "HierarchyConfiguration", "metadata": {"name": "hierarchy"}, "spec": {"parent": "nowhere"}}
  403  message=hierarchyconfigurations.hnc.x-k8s.io "hierarchy" is forbidden: User "mallory" cannot update resource "hierarchyconfigurations" in API group "hnc.x-k8s.io" in the namespace "nowhere"
# A namespace that was there does not become somebody's subnamespace by saying so.
PATCH /api/v1/namespaces/app As:mallory Content-Type:application/merge-patch+json
  {"metadata": {"annotations": {"hnc.x-k8s.io/subnamespace-of": "team"}}}
  403  message~cannot relabel resource "namespaces"
# Below what is hers she puts what is hers, and moves it about there.
POST /apis/hnc.x-k8s.io/v1alpha2/namespaces/app/hierarchyconfigurations As:mallory
  {"apiVersion": "hnc.x-k8s.io/v1alpha2", "kind": "HierarchyConfiguration", "metadata": {"name": "hierarchy"}, "spec": {"parent": "team"}}
  201
GET /api/v1/namespaces/app
  200  body~"org.tree.hnc.x-k8s.io/depth":"2"
DELETE /apis/hnc.x-k8s.io/v1alpha2/namespaces/app/hierarchyconfigurations/hierarchy As:mallory
  403  message~in the namespace "org"
DELETE /apis/hnc.x-k8s.io/v1alpha2/namespaces/app/hierarchyconfigurations/hierarchy
  200
"#,
        )
        .await;
}

#[tokio::test]
async fn the_numbers_of_a_quota_above_are_for_those_who_may_read_it() {
    let server = trees().await;
    server
        .play(
            r#"
POST /api/v1/namespaces/team/configmaps As:mallory
  {"metadata": {"name": "one"}}
  201
POST /api/v1/namespaces/team/configmaps As:mallory
  {"metadata": {"name": "two"}}
  201
POST /api/v1/namespaces/team/configmaps As:mallory
  {"metadata": {"name": "three"}}
  403  message=configmaps "three" is forbidden: exceeded quota of a namespace above: configmaps
POST /api/v1/namespaces/team/configmaps
  {"metadata": {"name": "three"}}
  403  message~used: configmaps=2, limited: configmaps=2
"#,
        )
        .await;
}

#[tokio::test]
async fn a_new_namespace_enters_no_quota_without_the_right_either() {
    let server = trees().await;
    server
        .play(
            r#"
POST /apis/quota.openshift.io/v1/clusterresourcequotas
  {"apiVersion": "quota.openshift.io/v1", "kind": "ClusterResourceQuota", "metadata": {"name": "victim"}, "spec": {"selector": {"labels": {"matchLabels": {"owner": "victim"}}}, "quota": {"hard": {"secrets": "1"}}}}
  201
POST /apis/capsule.clastix.io/v1beta2/resourcepools
  {"apiVersion": "capsule.clastix.io/v1beta2", "kind": "ResourcePool", "metadata": {"name": "all"}, "spec": {"selectors": [{"matchExpressions": [{"key": "free", "operator": "DoesNotExist"}]}], "quota": {"hard": {"pods": "1"}}}}
  201
POST /apis/capsule.clastix.io/v1beta2/globalcustomquotas
  {"apiVersion": "capsule.clastix.io/v1beta2", "kind": "GlobalCustomQuota", "metadata": {"name": "named"}, "spec": {"limit": "5", "namespaceSelectors": [{"matchLabels": {"kubernetes.io/metadata.name": "plain"}}], "sources": [{"apiVersion": "v1", "kind": "Secret", "op": "count"}]}}
  201
POST /apis/rbac.authorization.k8s.io/v1/clusterroles
  {"metadata": {"name": "creator"}, "rules": [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create", "patch"]}]}
  201
POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings
  {"metadata": {"name": "creator"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "creator"}, "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mallory"}]}
  201
POST /api/v1/namespaces As:mallory
  {"metadata": {"name": "sneaky", "labels": {"owner": "victim"}}}
  403  message~cannot relabel resource "namespaces"
PATCH /api/v1/namespaces/sneaky?fieldManager=m As:mallory Content-Type:application/apply-patch+yaml
  {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sneaky", "labels": {"owner": "victim"}}}
  403  message~cannot relabel
# Nor does it stay out of one that binds all others.
POST /api/v1/namespaces As:mallory
  {"metadata": {"name": "sneaky", "labels": {"free": "yes"}}}
  403  message~cannot relabel
# What every namespace has, and what no quota goes by, is hers to write.
POST /api/v1/namespaces As:mallory
  {"metadata": {"name": "plain", "labels": {"colour": "blue"}}}
  201
POST /api/v1/namespaces
  {"metadata": {"name": "given", "labels": {"owner": "victim"}}}
  201
"#,
        )
        .await;
}

#[tokio::test]
async fn labels_that_quotas_select_by_take_a_right_of_their_own() {
    let server = trees().await;
    server
        .play(
            r#"
POST /apis/quota.openshift.io/v1/clusterresourcequotas
  {"apiVersion": "quota.openshift.io/v1", "kind": "ClusterResourceQuota", "metadata": {"name": "team"}, "spec": {"selector": {"labels": {"matchLabels": {"owner": "team"}}}, "quota": {"hard": {"secrets": "1"}}}}
  201
POST /apis/quota.openshift.io/v1/clusterresourcequotas
  {"apiVersion": "quota.openshift.io/v1", "kind": "ClusterResourceQuota", "metadata": {"name": "asked"}, "spec": {"selector": {"annotations": {"requester": "victim"}}, "quota": {"hard": {"secrets": "1"}}}}
  201
PATCH /api/v1/namespaces/team As:mallory Content-Type:application/merge-patch+json
  {"metadata": {"labels": {"owner": null}}}
  403  message~User "mallory" cannot relabel resource "namespaces" in API group "" at the cluster scope: a quota selects namespaces by what would change
PATCH /api/v1/namespaces/team/status As:mallory Content-Type:application/merge-patch+json
  {"metadata": {"labels": {"owner": "nobody"}}}
  200  metadata.labels.owner=team
PATCH /api/v1/namespaces/team As:mallory Content-Type:application/merge-patch+json
  {"metadata": {"annotations": {"requester": "victim"}}}
  403  message~cannot relabel
PATCH /api/v1/namespaces/app As:mallory Content-Type:application/merge-patch+json
  {"metadata": {"labels": {"owner": "team"}}}
  403  message~cannot relabel
# What no quota goes by is hers to write.
PATCH /api/v1/namespaces/app As:mallory Content-Type:application/merge-patch+json
  {"metadata": {"labels": {"owner": "else", "colour": "blue"}, "annotations": {"note": "mine"}}}
  200
POST /apis/rbac.authorization.k8s.io/v1/clusterroles
  {"metadata": {"name": "relabeller"}, "rules": [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["relabel"]}]}
  201
POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings
  {"metadata": {"name": "mallory"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "relabeller"}, "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mallory"}]}
  201
PATCH /api/v1/namespaces/team As:mallory Content-Type:application/merge-patch+json
  {"metadata": {"labels": {"owner": null}}}
  200
"#,
        )
        .await;
}

#[tokio::test]
async fn a_client_that_leaves_takes_no_address_of_the_next_with_it() {
    let server = Server::start();
    server.play("POST /api/v1/namespaces\n  {\"metadata\": {\"name\": \"a\"}}\n  201").await;
    for at in 0..200 {
        let body =
            json!({"metadata": {"name": format!("s{at}")}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        let mut sent = pin!(server.send(request("POST /api/v1/namespaces/a/services", &body.to_string())));
        // Every fourth client stays; the others leave after one look, two or three at whether they are answered.
        let mut looks = at % 4;
        while looks > 0 && sent.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            looks -= 1;
        }
        if at % 4 == 0 {
            sent.await;
        }
    }
    // Whatever was submitted before this is decided before it.
    server.play("POST /api/v1/namespaces/a/configmaps\n  {\"metadata\": {\"name\": \"last\"}}\n  201").await;
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    let all = server.send(request("GET /api/v1/namespaces/a/services", "")).await.value;
    let items = all["items"].as_array().expect("services");
    let distinct = |pointer: &str| {
        items.iter().filter_map(|one| one.pointer(pointer)).map(Value::to_string).collect::<BTreeSet<_>>()
    };
    assert!(items.len() >= 50, "{} were made", items.len());
    assert_eq!(distinct("/spec/clusterIP").len(), items.len());
    assert_eq!(distinct("/spec/ports/0/nodePort").len(), items.len());
}
