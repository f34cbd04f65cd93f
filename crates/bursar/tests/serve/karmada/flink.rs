//! A stand-in for Flink's operator in a member: makes the pods of each FlinkDeployment and says how it does.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};

use super::{TEAM, api, flinks};

/// A job of one job manager and one task manager; memory in gibibytes, the job manager's written Flink's way.
pub fn job(cpu: u32, memory: u32) -> Value {
    json!({
        "jobManager": {"resource": {"cpu": 1, "memory": "1024m"}},
        "taskManager": {"replicas": 1, "resource": {"cpu": cpu - 1, "memory": format!("{}g", memory - 1)}},
        "job": {"parallelism": 1},
    })
}

/// Tends the jobs of a member until it is dropped.
pub fn tend(client: kube::Client) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut changes = watcher(api(&client, &flinks()), watcher::Config::default()).default_backoff().boxed();
        loop {
            // What a quota refused is tried again after a while, as operators do.
            let _ = tokio::time::timeout(Duration::from_millis(500), changes.next()).await;
            if let Ok(jobs) = api(&client, &flinks()).list(&ListParams::default()).await {
                for job in jobs.items {
                    let _ = run(&client, &job).await;
                }
            }
        }
    })
}

async fn run(client: &kube::Client, job: &DynamicObject) -> kube::Result<()> {
    if job.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let (name, uid) = (job.metadata.name.clone().unwrap_or_default(), job.metadata.uid.clone().unwrap_or_default());
    let pods: Api<Pod> = Api::namespaced(client.clone(), TEAM);
    let mut refused = None;
    for part in ["jobManager", "taskManager"] {
        let resource = &job.data["spec"][part]["resource"];
        let memory = resource["memory"].as_str().unwrap_or("0").replace('g', "Gi").replace("024m", "024Mi");
        let requests = json!({"cpu": resource["cpu"].to_string(), "memory": memory});
        let pod = json!({
            "metadata": {"name": format!("{name}-{}", part.to_lowercase()), "ownerReferences": [{
                "apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkDeployment", "name": name, "uid": uid,
            }]},
            "spec": {"containers": [{"name": "flink-main-container", "image": "flink", "resources": {"requests": requests}}]},
        });
        match pods.create(&PostParams::default(), &crate::object(pod)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(kube::Error::Api(status)) => refused = Some(status.message.clone()),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    let status = match &refused {
        None => json!({"lifecycleState": "STABLE", "jobStatus": {"state": "RUNNING"}, "error": null}),
        Some(why) => json!({"lifecycleState": "CREATED", "jobStatus": {"state": "RECONCILING"}, "error": why}),
    };
    let same = |field: &str| job.data["status"].get(field).unwrap_or(&Value::Null) == &status[field];
    if !["lifecycleState", "jobStatus", "error"].into_iter().all(same) {
        let patch = Patch::Merge(json!({ "status": status }));
        api(client, &flinks()).patch_status(&name, &PatchParams::default(), &patch).await?;
    }
    Ok(())
}
