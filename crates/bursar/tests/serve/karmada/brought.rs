//! What is brought to a member is what its manifest says now: what is taken out of it goes, and so does a limit that others add.

use kube::api::DynamicObject;
use serde_json::json;

use super::fleet::{Fleet, until};
use super::{edit, everything, flink, flinks, policies, quotas};

/// A field that is taken out of a template goes from members, too: the quota counts it no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_is_taken_out_of_a_template_goes_from_members() {
    let fleet = Fleet::start(&["m1"], "").await;
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "40", "memory": "50Gi"}})).await;
    fleet.create(&policies(), "p", everything("flink.apache.org/v1beta1", "FlinkDeployment")).await;
    let mut job = flink::job(3, 3);
    job["taskManager"]["replicas"] = json!(4);
    fleet.create(&flinks(), "a", job).await;
    let there = &fleet.members[0].client;
    until(there, &flinks(), "a", |job| job.data["spec"]["taskManager"]["replicas"] == 4).await;
    edit(&fleet.client, &flinks(), "a", json!({"spec": {"taskManager": {"replicas": null}}})).await.expect("an edit");
    fleet.until(&quotas(), "q", |quota| quota.data["status"]["overallUsed"]["cpu"] == "3").await;
    until(there, &flinks(), "a", |job| job.data["spec"]["taskManager"].get("replicas").is_none()).await;
}

/// A limit that somebody adds to an assignment in its member is put back, as one that is changed is.
#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_added_to_an_assignment_goes_again() {
    let fleet = Fleet::start(&["m1"], "").await;
    let assignments = json!([{"clusterName": "m1", "hard": {"cpu": "2"}}]);
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "3"}, "staticAssignments": assignments})).await;
    let there = fleet.members[0].client.clone();
    let resource_quotas = super::kind("", "v1", "ResourceQuota", "resourcequotas");
    until(&there, &resource_quotas, "q", |_| true).await;
    edit(&there, &resource_quotas, "q", json!({"spec": {"hard": {"pods": "0"}}})).await.expect("an edit");
    let is_mended = |one: &DynamicObject| one.data["spec"]["hard"] == json!({"cpu": "2"});
    until(&there, &resource_quotas, "q", is_mended).await;
}
