//! The sequence of the proposal, step by step: a service registers what can be limited, an administrator grants, an instance is asked
//! for, its claim is decided by what Amberflo says, a small controller provisions or fails it, telemetry reaches the meter, and the
//! instance is torn down. The controller here plays the provisioner and nothing else: it trusts the claim's phase.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::DeleteParams;
use kube::runtime::wait::{await_condition, conditions};

use super::other::{Mood, Other};
use super::*;
use crate::harness::PATIENCE;

const PROTECTION: &str = "quota.datumapis.com/instance-protection";

fn instances() -> ApiResource {
    let kind = GroupVersionKind::gvk("compute.datumapis.com", "v1alpha1", "Instance");
    ApiResource::from_gvk_with_plural(&kind, "instances")
}

/// Amberflo's answer about the present rate of a meter.
fn rate(cores: i64) -> Mood {
    Mood::Answers(200, json!({"rate": cores, "request": {}}).to_string())
}

/// What is provisioned.
type Infrastructure = Arc<Mutex<BTreeSet<String>>>;

/// Looks after instances until it is dropped.
fn tend(client: kube::Client, infrastructure: Infrastructure) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let all = api(&client, &instances()).list(&ListParams::default()).await.map(|list| list.items);
            for instance in all.unwrap_or_default() {
                // Whatever does not work now is tried again.
                let _ = reconcile(&client, &instance, &infrastructure).await;
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    })
}

async fn reconcile(client: &kube::Client, instance: &DynamicObject, there: &Infrastructure) -> kube::Result<()> {
    let (name, claim_name) = (instance.name_any(), format!("{}-claim", instance.name_any()));
    let claim = api(client, &claims()).get_opt(&claim_name).await?;
    if instance.metadata.deletion_timestamp.is_some() {
        if claim.is_some() {
            api(client, &claims()).delete(&claim_name, &DeleteParams::default()).await?;
        }
        there.lock().expect("no panic").remove(&name);
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        return api(client, &instances()).patch(&name, &PatchParams::default(), &patch).await.map(drop);
    }
    let Some(claim) = claim else {
        let cpu = instance.data["spec"]["cpu"].to_string();
        let mut spec = super::claim(&[(CPU, cpu.as_str()), (COUNT, "1")]);
        let uid = instance.uid().unwrap_or_default();
        spec["resourceRef"] =
            json!({"apiGroup": "compute.datumapis.com", "kind": "Instance", "name": name, "uid": uid});
        return create(client, &claims(), &claim_name, spec).await.map(drop);
    };
    let status = match claim.data["status"]["phase"].as_str() {
        Some("Granted") => {
            there.lock().expect("no panic").insert(name.clone());
            json!({"phase": "Running"})
        }
        Some("Denied") => json!({"phase": "Failed", "reason": claim.data["status"]["message"]}),
        _ => json!({"phase": "Pending"}),
    };
    if instance.data["status"] != status {
        let patch = Patch::Merge(json!({"status": status}));
        api(client, &instances()).patch_status(&name, &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

async fn ask_for(client: &kube::Client, name: &str, cpu: i64) {
    let object = json!({
        "apiVersion": "compute.datumapis.com/v1alpha1", "kind": "Instance",
        "metadata": {"name": name, "finalizers": [PROTECTION]}, "spec": {"cpu": cpu},
    });
    api(client, &instances()).create(&PostParams::default(), &crate::object(object)).await.expect("an instance");
}

async fn until(client: &kube::Client, of: &ApiResource, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let object = api(client, of).get_opt(name).await.expect("an answer").map_or(Value::Null, |one| one.data);
        if is_so(&object) {
            return object;
        }
        assert!(begun.elapsed() < PATIENCE, "{name}: {object}");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

/// `Type=Status/Reason` of every condition.
fn conditions_of(object: &Value) -> Vec<String> {
    let list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
    list.iter().map(|one| format!("{}={}/{}", text(one, "type"), text(one, "status"), text(one, "reason"))).collect()
}

async fn define_instances(client: &kube::Client) {
    let definition: CustomResourceDefinition = crate::object(json!({
        "metadata": {"name": "instances.compute.datumapis.com"},
        "spec": {
            "group": "compute.datumapis.com", "scope": "Namespaced",
            "names": {"kind": "Instance", "listKind": "InstanceList", "plural": "instances", "singular": "instance"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    }));
    let kinds: Api<CustomResourceDefinition> = Api::all(client.clone());
    kinds.create(&PostParams::default(), &definition).await.expect("a kind");
    let established = await_condition(kinds, "instances.compute.datumapis.com", conditions::is_crd_established());
    tokio::time::timeout(PATIENCE, established).await.expect("in time").expect("established");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sequence_of_the_proposal_step_by_step() {
    let mut amberflo = Other::start(Mood::Down).await;
    let folder = tempfile::tempdir().expect("a folder");
    // A service registers what can be limited; what makes no sense is refused with its place.
    let mut cpu = definition(CPU, "cores");
    cpu["usageSource"] = json!({
        "type": "Amberflo", "endpoint": amberflo.url, "meter": "cores", "lag": "1h", "maxAge": "2s", "timeout": "1s",
    });
    let (process, client) = start(folder.path(), cpu, &[(CPU, "510"), (COUNT, "5")]).await;
    let valid = until(&client, &definitions(), "cpu", |one| !conditions_of(one).is_empty()).await;
    assert_eq!(conditions_of(&valid), ["Ready=True/DefinitionActive", "DefinitionValid=True/ValidationSuccessful"]);
    let refused = create(&client, &definitions(), "wrong", definition("no-group", "cores")).await.expect_err("refused");
    assert!(refused.to_string().contains("spec.resourceName"), "{refused}");
    define_instances(&client).await;
    let infrastructure = Infrastructure::default();
    let controller = tend(client.clone(), infrastructure.clone());

    // An instance is asked for. Its claim is there, and waits for the meter.
    ask_for(&client, "abc123", 8).await;
    amberflo.asked(1).await;
    let waits =
        until(&client, &claims(), "abc123-claim", |one| one["status"]["reason"] == "MeteringServiceUnavailable").await;
    assert_eq!(
        conditions_of(&waits),
        [
            "Ready=False/Processing",
            "Validated=True/ValidationSuccessful",
            "QuotaChecked=False/MeteringServiceUnavailable",
            "Granted=False/AwaitingDecision",
        ]
    );
    assert_eq!(waits["status"]["phase"], "Pending");
    until(&client, &grants(), "g", |one| conditions_of(one).contains(&"UsageSynchronized=False/SyncFailed".into()))
        .await;
    until(&client, &instances(), "abc123", |one| one["status"]["phase"] == "Pending").await;
    assert!(infrastructure.lock().expect("no panic").is_empty(), "nothing is provisioned before it is granted");

    // Amberflo says five hundred cores: five hundred and eight are within five hundred and ten.
    amberflo.be(rate(500));
    let granted = until(&client, &claims(), "abc123-claim", |one| one["status"]["phase"] == "Granted").await;
    assert_eq!(
        conditions_of(&granted),
        [
            "Ready=True/ClaimGranted",
            "Validated=True/ValidationSuccessful",
            "QuotaChecked=True/CheckSuccessful",
            "Granted=True/QuotaAvailable",
        ]
    );
    until(&client, &instances(), "abc123", |one| one["status"]["phase"] == "Running").await;
    assert!(infrastructure.lock().expect("no panic").contains("abc123"));
    // The grant's cache of usage follows.
    let usage = |one: &Value| one["status"]["usage"][0]["buckets"][0]["used"].clone();
    let grant = until(&client, &grants(), "g", |one| usage(one) == "508").await;
    assert_eq!(
        conditions_of(&grant),
        ["Ready=True/GrantActive", "LimitsValid=True/ValidationSuccessful", "UsageSynchronized=True/SyncSuccessful"]
    );

    // Another does not fit: the instance fails with the claim's words.
    ask_for(&client, "late", 4).await;
    let failed = until(&client, &instances(), "late", |one| one["status"]["phase"] == "Failed").await;
    let why = failed["status"]["reason"].as_str().expect("a reason");
    assert!(why.ends_with("requested 4, used 508, limit 510"), "{why}");
    let denied = until(&client, &claims(), "late-claim", |one| one["status"]["phase"] == "Denied").await;
    assert_eq!(conditions_of(&denied)[0], "Ready=True/ClaimDenied");
    assert_eq!(conditions_of(&denied)[3], "Granted=False/QuotaExceeded");
    // So does one of something that nobody registered.
    create(&client, &claims(), "unknown", claim(&[("compute.datumapis.com/gpus", "1")])).await.expect("a claim");
    let unknown = until(&client, &claims(), "unknown", |one| one["status"]["phase"] == "Denied").await;
    assert_eq!(conditions_of(&unknown)[1], "Validated=False/UnknownResourceName");

    // Telemetry of the running instance reaches the meter, which lags an hour: what is claimed is not let in a second time.
    amberflo.be(rate(502));
    until(&client, &grants(), "g", |one| usage(one) == "510").await;

    // Tear-down: the claim goes, what it had is free, and whoever waited is granted in that commit.
    api(&client, &instances()).delete("abc123", &DeleteParams::default()).await.expect("a deletion");
    until(&client, &claims(), "abc123-claim", Value::is_null).await;
    until(&client, &instances(), "abc123", Value::is_null).await;
    until(&client, &claims(), "late-claim", |one| one["status"]["phase"] == "Granted").await;
    until(&client, &instances(), "late", |one| one["status"]["phase"] == "Running").await;
    assert_eq!(*infrastructure.lock().expect("no panic"), BTreeSet::from(["late".to_owned()]));
    until(&client, &grants(), "g", |one| usage(one) == "506").await;
    controller.abort();
    assert_eq!(process.stop().await, Some(0));
}
