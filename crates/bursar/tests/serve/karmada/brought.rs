//! What is brought to a member is what its manifest says now: what is taken out of it goes, and so does a limit that others add.

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::fleet::{Fleet, until, until_gone};
use super::{api, bindings, deployment, deployments, edit, everything, flink, flinks, policies, quotas};

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

/// Whoever may edit workloads in a member can neither have one run with more than is charged for it, nor make it forget where it
/// came from.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_tampered_with_in_a_member_is_put_back() {
    let fleet = Fleet::start(&["m1"], "").await;
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "4", "memory": "1Gi"}})).await;
    fleet.create(&policies(), "p", everything("apps/v1", "Deployment")).await;
    fleet.create(&deployments(), "web", deployment(2)).await;
    let there = fleet.members[0].client.clone();
    let is_well = |one: &DynamicObject| {
        let containers = one.data["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
        let asks = |container: &Value| container["resources"]["requests"] == json!({"cpu": "1"});
        let is_ours = one.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("karmada.io/managed"));
        containers.len() == 1 && containers.iter().all(asks) && is_ours
    };
    until(&there, &deployments(), "web", is_well).await;
    fleet.until(&bindings(), "web-deployment", |one| super::fleet::condition(one, "FullyApplied") == "True").await;
    let container = json!({"name": "more", "image": "i", "resources": {"requests": {"cpu": "50"}}});
    for tampered in [
        json!([{"op": "add", "path": "/spec/template/spec/containers/-", "value": container}]),
        json!([{"op": "add", "path": "/spec/template/spec/initContainers", "value": [container]}]),
        json!([{"op": "add", "path": "/spec/template/spec/containers/0/resources/requests/memory", "value": "64Gi"}]),
        json!([{"op": "add", "path": "/spec/template/spec/containers/0/resources/limits", "value": {"memory": "64Gi"}}]),
        json!([{"op": "remove", "path": "/metadata/labels"}]),
        json!([{"op": "remove", "path": "/metadata/labels"}, {"op": "remove", "path": "/metadata/annotations"}]),
    ] {
        let patch = Patch::Json::<()>(serde_json::from_value(tampered.clone()).expect("a patch"));
        let done = api(&there, &deployments()).patch("web", &PatchParams::default(), &patch).await;
        let version = done.unwrap_or_else(|error| panic!("{tampered}: {error}")).metadata.resource_version;
        until(&there, &deployments(), "web", |one| one.metadata.resource_version != version && is_well(one)).await;
    }
    // It is charged until it is gone from there, whatever it looks like by then.
    fleet.members[0].cut_off();
    let bare = Patch::Merge(json!({"metadata": {"labels": null, "annotations": null}}));
    api(&there, &deployments()).patch("web", &PatchParams::default(), &bare).await.expect("an edit");
    api(&fleet.client, &deployments()).delete("web", &DeleteParams::default()).await.expect("deleted");
    fleet.members[0].reconnect();
    until_gone(&fleet.client, &bindings(), "web-deployment").await;
    assert!(api(&there, &deployments()).get_opt("web").await.expect("an answer").is_none());
}

/// A job of a CPU that is taken away so many seconds after its end, or never.
fn job(ttl: Value) -> Value {
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]);
    json!({"ttlSecondsAfterFinished": ttl, "template": {"spec": {"restartPolicy": "Never", "containers": containers}}})
}

/// A Job that ran to its end and was taken away in its member does not run once more: not where its end was told, nor where it went with
/// it, nor where nobody could see it, nor after restarts.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_ran_to_its_end_is_not_brought_again() {
    let jobs = super::kind("batch", "v1", "Job", "jobs");
    let fleet = Fleet::start(&["m1"], "").await;
    fleet.create(&policies(), "p", everything("batch/v1", "Job")).await;
    let there = fleet.members[0].client.clone();
    for (name, ttl) in [("told", json!(null)), ("quick", json!(0)), ("unseen", json!(0))] {
        fleet.create(&jobs, name, job(ttl)).await;
        until(&there, &jobs, name, |_| true).await;
    }
    let is_applied = |is: &'static str| move |one: &DynamicObject| super::fleet::condition(one, "FullyApplied") == is;
    for name in ["told-job", "quick-job", "unseen-job"] {
        fleet.until(&bindings(), name, is_applied("True")).await;
    }
    let end = async |name: &str| {
        let at = "2026-01-01T00:00:00Z";
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": at});
        let status = json!({
            "succeeded": 1, "startTime": at, "completionTime": at,
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
        });
        let patch = Patch::Merge(json!({ "status": status }));
        api(&there, &jobs).patch_status(name, &PatchParams::default(), &patch).await.expect("it ends");
    };
    let remove = async |name: &str| {
        let background = DeleteParams::background();
        api(&there, &jobs).delete(name, &background).await.expect("deleted");
        until_gone(&there, &jobs, name).await;
    };
    let told = |one: &DynamicObject| one.data["status"]["aggregatedStatus"][0]["status"]["succeeded"] == 1;
    end("told").await;
    fleet.until(&bindings(), "told-job", told).await;
    remove("told").await;
    end("quick").await;
    remove("quick").await;
    fleet.until(&bindings(), "quick-job", told).await;
    fleet.members[0].cut_off();
    end("unseen").await;
    remove("unseen").await;
    let fleet = fleet.restart_centre().await;
    fleet.members[0].reconnect();
    // One that nobody saw go may have ended; that is said, and left to people.
    fleet.until(&bindings(), "unseen-job", is_applied("False")).await;
    let labelled = json!({"metadata": {"labels": {"looked": "at"}}});
    edit(&fleet.client, &jobs, "told", labelled).await.expect("a label");
    fleet.create(&jobs, "last", job(json!(null))).await;
    until(&there, &jobs, "last", |_| true).await;
    for name in ["told", "quick", "unseen"] {
        assert!(api(&there, &jobs).get_opt(name).await.expect("an answer").is_none(), "{name} runs again");
    }
    // Whoever wants it once more says so with a template of its own.
    api(&fleet.client, &jobs).delete("unseen", &DeleteParams::background()).await.expect("deleted");
    until_gone(&fleet.client, &bindings(), "unseen-job").await;
    fleet.create(&jobs, "unseen", job(json!(0))).await;
    until(&there, &jobs, "unseen", |_| true).await;
}
