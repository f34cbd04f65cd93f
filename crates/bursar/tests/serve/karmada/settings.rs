//! What an operator may switch: enforcement, and denial at the template.

use kube::api::{DeleteParams, DynamicObject};
use serde_json::{Value, json};

use super::fleet::{Fleet, until, until_gone};
use super::{api, bindings, create, deployment, deployments, edit, placed, policies, quotas, scheduled};

fn anywhere() -> Value {
    let placement = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
    json!({"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}], "placement": placement})
}

/// Switched off, `overall` refuses nothing; assignments are kept in the members, enforced there, and told here.
#[tokio::test(flavor = "multi_thread")]
async fn without_enforcement_only_static_assignments_work() {
    let fleet = Fleet::start(&["m1", "m2"], ", enforcement: false").await;
    let assignments = json!([
        {"clusterName": "m1", "hard": {"cpu": "2"}}, {"clusterName": "m2", "hard": {"cpu": "1"}},
    ]);
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "3"}, "staticAssignments": assignments})).await;
    fleet.create(&policies(), "p", anywhere()).await;
    let resource_quotas = super::kind("", "v1", "ResourceQuota", "resourcequotas");
    for member in &fleet.members {
        until(&member.client, &resource_quotas, "q", |_| true).await;
    }
    // More than `overall` is placed all the same.
    fleet.create(&deployments(), "web", deployment(8)).await;
    fleet.until(&bindings(), "web-deployment", |one| scheduled(one).0 == "Success").await;
    // Members make as many pods as their assignments allow, and say so.
    let told = |one: &DynamicObject| {
        let told = one.data["status"]["aggregatedStatus"].as_array().cloned().unwrap_or_default();
        told.len() == 2
            && told.iter().all(|one| one["used"] == one["hard"])
            && one.data["status"]["overallUsed"]["cpu"] == "3"
    };
    fleet.until(&quotas(), "q", told).await;
    // What somebody changes in a member, or takes away, is put back.
    let there = fleet.members[0].client.clone();
    let hard = |cpu: &'static str| move |one: &DynamicObject| one.data["spec"]["hard"] == json!({"cpu": cpu});
    edit(&there, &resource_quotas, "q", json!({"spec": {"hard": {"cpu": "99"}}})).await.expect("an edit");
    until(&there, &resource_quotas, "q", hard("2")).await;
    let first = api(&there, &resource_quotas).get("q").await.expect("a quota").metadata.uid;
    api(&there, &resource_quotas).delete("q", &DeleteParams::default()).await.expect("deleted");
    let again = until(&there, &resource_quotas, "q", |one| one.metadata.uid != first).await;
    assert!(hard("2")(&again), "{:?}", again.data);
    // What is assigned anew is what the member keeps to, and says.
    let more = json!([{"clusterName": "m1", "hard": {"cpu": "1"}}, assignments[1]]);
    edit(&fleet.client, &quotas(), "q", json!({"spec": {"staticAssignments": more}})).await.expect("an edit");
    until(&there, &resource_quotas, "q", hard("1")).await;
    let follows = |one: &DynamicObject| one.data["status"]["aggregatedStatus"][0]["hard"]["cpu"] == "1";
    fleet.until(&quotas(), "q", follows).await;
    // An assignment follows its quota, and leaves with it.
    edit(&fleet.client, &quotas(), "q", json!({"spec": {"staticAssignments": [assignments[0]]}}))
        .await
        .expect("an edit");
    until_gone(&fleet.members[1].client, &resource_quotas, "q").await;
    api(&fleet.client, &quotas()).delete("q", &DeleteParams::default()).await.expect("deleted");
    until_gone(&fleet.members[0].client, &resource_quotas, "q").await;
}

/// With `denyTemplates` whoever applies a template that does not fit is told so by the API.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_is_denied_where_that_is_wished() {
    let fleet = Fleet::start(&["m1"], ", denyTemplates: true").await;
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "4"}})).await;
    fleet.create(&policies(), "p", anywhere()).await;
    fleet.create(&deployments(), "web", deployment(3)).await;
    fleet.until(&bindings(), "web-deployment", |one| placed(one) == ["m1"]).await;
    let words =
        |sum: u32| format!("FederatedResourceQuota(team/q) exceeded for resource cpu: requested sum {sum}, limit 4.");
    let refused = create(&fleet.client, &deployments(), "more", deployment(2)).await.expect_err("it does not fit");
    assert!(refused.to_string().contains(&words(5)), "{refused}");
    let patch = json!({"spec": {"replicas": 6}});
    let refused = edit(&fleet.client, &deployments(), "web", patch).await.expect_err("it does not fit");
    assert!(refused.to_string().contains(&words(6)), "{refused}");
    for replicas in [4, 1] {
        let patch = json!({"spec": {"replicas": replicas}});
        edit(&fleet.client, &deployments(), "web", patch).await.expect("it fits");
        let there = |one: &DynamicObject| one.data["spec"]["replicas"] == replicas;
        until(&fleet.members[0].client, &deployments(), "web", there).await;
    }
}
