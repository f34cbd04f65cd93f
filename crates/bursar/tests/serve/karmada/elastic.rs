//! Executors that appear in members at run time: each member is lent a slice of the quota, and all of them together never run
//! more than it allows.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;

use super::fleet::Fleet;
use super::{TEAM, api, quotas};
use crate::harness::PATIENCE;

fn pods(client: &kube::Client) -> Api<Pod> {
    Api::namespaced(client.clone(), TEAM)
}

/// One executor more; whether the member let it in.
async fn grow(client: &kube::Client) -> bool {
    let resources = json!({"requests": {"cpu": "1"}});
    let pod = json!({
        "metadata": {"generateName": "executor-"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    });
    match pods(client).create(&PostParams::default(), &crate::object(pod)).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 403 => {
            assert!(status.message.contains("exceeded quota: q-elastic"), "{}", status.message);
            false
        }
        Err(error) => panic!("{error}"),
    }
}

async fn running(client: &kube::Client) -> usize {
    pods(client).list(&ListParams::default()).await.expect("pods").items.len()
}

/// Tries until one more is let in.
async fn grow_in_time(client: &kube::Client) {
    let grown = async {
        while !grow(client).await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, grown).await.expect("one more is let in");
}

/// 2a, 2b and 2c.
#[tokio::test(flavor = "multi_thread")]
async fn executors_in_all_members_stay_inside_the_quota() {
    let fleet = Fleet::start(&["m1", "m2"], "").await;
    let clients = [fleet.members[0].client.clone(), fleet.members[1].client.clone()];
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "8"}, "elastic": {"chunk": {"cpu": "1"}}})).await;
    // Until each member has its slice, nothing limits it: only then do executors come.
    let resource_quotas = super::kind("", "v1", "ResourceQuota", "resourcequotas");
    for client in &clients {
        let lent = |quota: &kube::api::DynamicObject| quota.data["spec"]["hard"]["cpu"] == "1";
        super::fleet::until(client, &resource_quotas, "q-elastic", lent).await;
    }
    // Both grow until the quota is used to the last executor, whoever gets it.
    let filled = async {
        loop {
            for client in &clients {
                let _ = grow(client).await;
            }
            let sum = running(&clients[0]).await + running(&clients[1]).await;
            assert!(sum <= 8, "{sum} run where 8 may");
            let quota = api(&fleet.client, &quotas()).get("q").await.expect("the quota");
            let used: u32 =
                quota.data["status"]["overallUsed"]["cpu"].as_str().unwrap_or("").parse().expect("a number");
            assert!(used <= 8, "{used} are lent where there are 8");
            if sum == 8 {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, filled).await.expect("all of the quota is used");
    assert!(!grow(&clients[0]).await && !grow(&clients[1]).await);
    // What one member lets go of starts in the other.
    let first = pods(&clients[0]).list(&ListParams::default()).await.expect("pods").items.remove(0);
    let name = first.metadata.name.expect("a name");
    pods(&clients[0]).delete(&name, &DeleteParams::default().grace_period(0)).await.expect("deleted");
    grow_in_time(&clients[1]).await;
    assert_eq!(running(&clients[0]).await + running(&clients[1]).await, 8);
    // Cut off from the control plane, members use what they were lent and no more.
    fleet.centre.signal("STOP").await;
    let last = pods(&clients[1]).list(&ListParams::default()).await.expect("pods").items.remove(0);
    pods(&clients[1])
        .delete(&last.metadata.name.expect("a name"), &DeleteParams::default().grace_period(0))
        .await
        .expect("deleted");
    assert!(grow(&clients[1]).await, "what it was lent is its own");
    for _ in 0..5 {
        assert!(!grow(&clients[0]).await && !grow(&clients[1]).await);
    }
    assert_eq!(running(&clients[0]).await + running(&clients[1]).await, 8);
    fleet.centre.signal("CONT").await;
}
