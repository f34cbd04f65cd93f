//! Whoever may write in a namespace: what they can say of bindings and leases, and what comes of what they forge.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::fleet::{Fleet, condition, until, until_gone};
use super::{TEAM, api, bindings, create, deployment, deployments, edit, leases, policies, quotas};

const MARK: &str = "resourcetemplate.karmada.io/fingerprint";

/// A binding by hand, which nobody schedules.
fn by_hand(template: &str, cpu: &str, replicas: u32) -> Value {
    json!({
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": TEAM, "name": template},
        "replicas": replicas, "replicaRequirements": {"resourceRequest": {"cpu": cpu}},
        "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}},
        "clusters": [{"name": "m1", "replicas": replicas}], "schedulerName": "mine",
    })
}

fn is_forbidden(done: kube::Result<DynamicObject>) -> bool {
    matches!(done, Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains("federatedresourcequotas"))
}

/// To say what is charged takes the right to change the quota; the built-in roles have what users of the quota need, and not that.
#[tokio::test(flavor = "multi_thread")]
async fn who_says_what_is_charged_may_change_the_quota() {
    let fleet = Fleet::start(&[], "").await;
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "4"}, "elastic": {"chunk": {"cpu": "1"}}})).await;
    let lease = json!({"quota": "q", "clusterName": "gone", "hard": {"cpu": "1"}});
    let group = "rbac.authorization.k8s.io";
    let roles = super::kind(group, "v1", "RoleBinding", "rolebindings");
    let subjects = json!([{"kind": "User", "name": "tenant", "apiGroup": group}]);
    for role in ["edit", "writes-bindings"] {
        let object = json!({
            "apiVersion": roles.api_version, "kind": roles.kind, "metadata": {"name": role}, "subjects": subjects,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        });
        api(&fleet.client, &roles).create(&PostParams::default(), &crate::object(object)).await.expect("a binding");
    }
    let cluster_role = super::kind(group, "v1", "ClusterRole", "clusterroles");
    let rules = json!([{"apiGroups": ["work.karmada.io", "policy.karmada.io"],
        "resources": ["resourcebindings", "resourcebindings/status", "federatedquotaleases"], "verbs": ["*"]}]);
    let object = json!({
        "apiVersion": cluster_role.api_version, "kind": cluster_role.kind,
        "metadata": {"name": "writes-bindings"}, "rules": rules,
    });
    let all: Api<DynamicObject> = Api::all_with(fleet.client.clone(), &cluster_role);
    all.create(&PostParams::default(), &crate::object(object)).await.expect("a role");
    let mut config = fleet.centre.config().await;
    config.auth_info.impersonate = Some("tenant".into());
    let tenant = kube::Client::try_from(config).expect("a client");
    let policy = json!({"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}]});
    create(&tenant, &policies(), "p", policy).await.expect("where workloads go is theirs to say");
    api(&tenant, &quotas()).get("q").await.expect("what limits them may be seen");
    assert!(is_forbidden(create(&tenant, &bindings(), "mine", by_hand("w", "1", 1)).await));
    assert!(is_forbidden(create(&tenant, &leases(), "q.gone", lease.clone()).await));
    fleet.create(&bindings(), "theirs", by_hand("w", "1", 2)).await;
    for patch in [
        json!({"spec": {"replicaRequirements": {"resourceRequest": {"cpu": "0"}}}}),
        json!({"spec": {"clusters": []}}),
        json!({"metadata": {"finalizers": ["a.b/c"]}}),
        json!({"metadata": {"annotations": {MARK: "1"}}}),
    ] {
        assert!(is_forbidden(edit(&tenant, &bindings(), "theirs", patch).await));
    }
    let status = Patch::Merge(json!({"status": {"conditions": []}}));
    let told = api(&tenant, &bindings()).patch_status("theirs", &PatchParams::default(), &status).await;
    told.expect("a status charges nothing");
    let quota = api(&fleet.client, &quotas()).get("q").await.expect("the quota");
    assert_eq!(quota.data["status"]["overallUsed"]["cpu"], "2");
}

/// Who has that right, too, can neither reach what others run nor have more run than is charged.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_forged_is_not_run() {
    let fleet = Fleet::start(&["m1"], "").await;
    let there = fleet.members[0].client.clone();
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "4"}})).await;
    let namespaces: Api<Namespace> = Api::all(fleet.client.clone());
    let other = crate::object(json!({"metadata": {"name": "other"}}));
    namespaces.create(&PostParams::default(), &other).await.expect("a namespace");
    let mut foreign = by_hand("web", "0", 0);
    foreign["resource"]["namespace"] = json!("other");
    let refused = create(&fleet.client, &bindings(), "foreign", foreign).await.expect_err("others' workloads");
    assert!(refused.to_string().contains("a template of its own namespace"), "{refused}");
    // The mark of a template says that a binding was made from it; it is no leave to be charged for less.
    fleet.create(&deployments(), "big", deployment(50)).await;
    let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "big"}]);
    fleet.create(&policies(), "p", json!({"resourceSelectors": selectors})).await;
    let marked = fleet.until(&bindings(), "big-deployment", |one| one.metadata.annotations.is_some()).await;
    let mark = marked.metadata.annotations.expect("marks")[MARK].clone();
    let forged = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "forged", "annotations": {MARK: mark}}, "spec": by_hand("big", "0", 50),
    });
    api(&fleet.client, &bindings()).create(&PostParams::default(), &crate::object(forged)).await.expect("a binding");
    // One that says what its template asks for arrives, and stays charged until the member has let go of it.
    fleet.create(&deployments(), "web", deployment(3)).await;
    fleet.create(&bindings(), "web", by_hand("web", "1", 3)).await;
    fleet.until(&bindings(), "web", |one| condition(one, "FullyApplied") == "True").await;
    until(&there, &deployments(), "web", |one| one.data["spec"]["replicas"] == 3).await;
    let held = fleet.until(&bindings(), "web", |one| one.metadata.finalizers.is_some()).await;
    assert_eq!(held.metadata.finalizers.expect("finalizers"), ["karmada.io/binding-controller"]);
    api(&fleet.client, &bindings()).delete("web", &DeleteParams::default()).await.expect("deleted");
    until_gone(&fleet.client, &bindings(), "web").await;
    assert!(api(&there, &deployments()).get_opt("web").await.expect("an answer").is_none());
    assert!(api(&there, &deployments()).get_opt("big").await.expect("an answer").is_none(), "nobody is charged for it");
}

/// A policy makes no more than one binding for an object, and comes to rest: whatever versions of its kind it names, and though every
/// binding makes events.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_comes_to_rest() {
    let fleet = Fleet::start(&["m1"], "").await;
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version =
        |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
    let definitions =
        super::kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
    let definition = json!({
        "apiVersion": definitions.api_version, "kind": definitions.kind, "metadata": {"name": "things.x.example"},
        "spec": {
            "group": "x.example", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
            "versions": [version("v1", true), version("v2", false)],
        },
    });
    let all: Api<DynamicObject> = Api::all_with(fleet.client.clone(), &definitions);
    all.create(&PostParams::default(), &crate::object(definition)).await.expect("a definition");
    let selectors = json!([
        {"apiVersion": "x.example/v2", "kind": "Thing"}, {"apiVersion": "x.example/v1", "kind": "Thing"},
        {"apiVersion": "v1", "kind": "Event"}, {"apiVersion": "events.k8s.io/v1", "kind": "Event"},
    ]);
    let nowhere = json!({"clusterAffinity": {"clusterNames": ["nowhere"]}});
    fleet.create(&policies(), "p", json!({"resourceSelectors": selectors, "placement": nowhere})).await;
    let things = super::kind("x.example", "v1", "Thing", "things");
    let mut generations = Vec::new();
    for name in ["one", "two", "three", "four"] {
        let made = async {
            while create(&fleet.client, &things, name, json!({})).await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(crate::harness::PATIENCE, made).await.expect("the kind is served");
        let waits = |one: &DynamicObject| super::scheduled(one).0 == "NoClusterFit";
        fleet.until(&bindings(), &format!("{name}-thing"), waits).await;
        let first = api(&fleet.client, &bindings()).get("one-thing").await.expect("a binding");
        generations.push((first.metadata.generation, first.data["spec"]["resource"]["apiVersion"].clone()));
    }
    assert!(generations.iter().all(|one| *one == (Some(1), json!("x.example/v1"))), "{generations:?}");
    let all = api(&fleet.client, &bindings()).list(&Default::default()).await.expect("bindings").items;
    assert!(all.iter().all(|one| one.data["spec"]["resource"]["kind"] == "Thing"), "events are bound");
}

/// Two kinds of one name have one name for their bindings: the first has it, the other is told, and nobody writes it to and fro.
#[tokio::test(flavor = "multi_thread")]
async fn a_binding_belongs_to_one_template() {
    let fleet = Fleet::start(&[], "").await;
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definitions =
        super::kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
    let definition = json!({
        "apiVersion": definitions.api_version, "kind": definitions.kind, "metadata": {"name": "deployments.x.example"},
        "spec": {
            "group": "x.example", "scope": "Namespaced", "names": {"kind": "Deployment", "plural": "deployments"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    let all: Api<DynamicObject> = Api::all_with(fleet.client.clone(), &definitions);
    all.create(&PostParams::default(), &crate::object(definition)).await.expect("a definition");
    let others = super::kind("x.example", "v1", "Deployment", "deployments");
    fleet.create(&deployments(), "web", deployment(2)).await;
    let made = async {
        while create(&fleet.client, &others, "web", json!({})).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(crate::harness::PATIENCE, made).await.expect("the kind is served");
    let one = |version: &str| json!({"resourceSelectors": [{"apiVersion": version, "kind": "Deployment"}]});
    fleet.create(&policies(), "one", one("apps/v1")).await;
    fleet.until(&bindings(), "web-deployment", |_| true).await;
    fleet.create(&policies(), "other", one("x.example/v1")).await;
    super::told(&fleet.client, "ApplyPolicyFailed", "ResourceBinding web-deployment is that of Deployment web").await;
    let bound = api(&fleet.client, &bindings()).get("web-deployment").await.expect("a binding");
    assert_eq!(
        (bound.metadata.generation, &bound.data["spec"]["resource"]["apiVersion"]),
        (Some(1), &json!("apps/v1"))
    );
    // When the first is gone, it is the other's.
    api(&fleet.client, &deployments()).delete("web", &DeleteParams::default()).await.expect("deleted");
    let is_others = |one: &DynamicObject| one.data["spec"]["resource"]["apiVersion"] == "x.example/v1";
    fleet.until(&bindings(), "web-deployment", is_others).await;
}
