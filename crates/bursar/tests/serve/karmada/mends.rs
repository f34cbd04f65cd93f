//! What has to hold where something is taken away, or was refused: lending that ends, raises that did not fit.

use kube::api::{DeleteParams, DynamicObject};
use serde_json::{Value, json};

use super::elastic::{lending, used};
use super::fleet::{Fleet, until, until_gone};
use super::{api, bindings, deployments, edit, leases, placed, policies, quotas, slices};

fn deployment(replicas: u32, cpu: &str) -> Value {
    let resources = json!({"requests": {"cpu": cpu}});
    let template = json!({
        "metadata": {"labels": {"app": "w"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    });
    json!({"replicas": replicas, "selector": {"matchLabels": {"app": "w"}}, "template": template})
}

fn one_cluster() -> Value {
    let placement = json!({"spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 1, "minGroups": 1}]});
    json!({
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}], "placement": placement,
        "preserveResourcesOnDeletion": true, "failover": {"cluster": {"purgeMode": "Directly"}},
    })
}

/// A workload whose raise was refused is placed anew as it was charged when its cluster fails, and leaves nothing behind; only what
/// its template leaves behind is preserved.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_with_a_refused_raise_survives_its_cluster() {
    let mut fleet = Fleet::start(&["m1", "m2"], "").await;
    fleet.fail_over().await;
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "4"}})).await;
    fleet.create(&policies(), "p", one_cluster()).await;
    fleet.create(&deployments(), "web", deployment(2, "1")).await;
    let bound = fleet.until(&bindings(), "web-deployment", |one| placed(one).len() == 1).await;
    let (old, new) = if placed(&bound) == ["m1"] { (0, 1) } else { (1, 0) };
    until(&fleet.members[old].client, &deployments(), "web", |_| true).await;
    let raise = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "9"}}},
    ]}}}});
    edit(&fleet.client, &deployments(), "web", raise).await.expect("a template");
    fleet.members[old].kill().await;
    let cpu = |one: &DynamicObject| {
        one.data["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"].clone()
    };
    until(&fleet.members[new].client, &deployments(), "web", |one| cpu(one) == "1").await;
    assert_eq!(used(&api(&fleet.client, &quotas()).get("q").await.expect("the quota")), 2);
    fleet.members[old].come_back().await;
    until_gone(&fleet.members[old].client, &deployments(), "web").await;
    api(&fleet.client, &deployments()).delete("web", &DeleteParams::default()).await.expect("deleted");
    until_gone(&fleet.client, &bindings(), "web-deployment").await;
    let left = api(&fleet.members[new].client, &deployments()).get("web").await.expect("it is preserved");
    assert!(left.metadata.deletion_timestamp.is_none());
}

/// Lowered, a quota gets back at once what members have in hand; without `elastic`, all of it; and it counts nothing twice meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_lent_comes_back_when_a_quota_is_lowered_and_when_it_lends_no_more() {
    let fleet = Fleet::start(&["m1", "m2"], "").await;
    lending(&fleet, json!({"cpu": "10"}), json!({"chunk": {"cpu": "4"}})).await;
    fleet.until(&quotas(), "q", |quota| used(quota) == 8).await;
    edit(&fleet.client, &quotas(), "q", json!({"spec": {"overall": {"cpu": "3"}}})).await.expect("an edit");
    fleet.until(&quotas(), "q", |quota| used(quota) <= 3).await;
    fleet.members[0].cut_off();
    edit(&fleet.client, &quotas(), "q", json!({"spec": {"elastic": null}})).await.expect("an edit");
    until_gone(&fleet.members[1].client, &slices(), "q-elastic").await;
    // What is asked for says what is so at this moment.
    let says = async || used(&api(&fleet.client, &quotas()).get("q").await.expect("the quota"));
    assert!(says().await <= 3);
    fleet.members[0].reconnect();
    until_gone(&fleet.members[0].client, &slices(), "q-elastic").await;
    until_gone(&fleet.client, &leases(), "q.m1").await;
    assert_eq!(says().await, 0);
}
