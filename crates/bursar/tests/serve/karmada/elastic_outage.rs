//! What members may do that are cut off: use what they were lent, for as long as they were lent it.

use std::time::Duration;

use kube::api::PostParams;
use serde_json::json;

use super::elastic::{executor, lending, pods, used};
use super::fleet::{Fleet, condition, until, until_gone};
use super::{api, clusters, leases, quotas, slices};
use crate::harness::PATIENCE;

/// One executor more; whether the member let it in.
pub async fn grow(client: &kube::Client) -> bool {
    match pods(client).create(&PostParams::default(), &crate::object(executor())).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 403 => {
            assert!(status.message.contains("exceeded quota: q-elastic"), "{}", status.message);
            false
        }
        Err(error) => panic!("{error}"),
    }
}

async fn running(client: &kube::Client) -> usize {
    pods(client).list(&Default::default()).await.expect("pods").items.len()
}

/// Grows until so many run there.
pub async fn grow_to(client: &kube::Client, wanted: usize) {
    let grown = async {
        while running(client).await < wanted {
            if !grow(client).await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    tokio::time::timeout(PATIENCE, grown).await.unwrap_or_else(|_| panic!("never {wanted} run"));
}

/// 2c: a member that is cut off while it grows uses what it was lent and no more; what it was lent stays charged.
#[tokio::test(flavor = "multi_thread")]
async fn case_2c_a_member_that_is_cut_off_uses_what_it_was_lent_and_no_more() {
    let fleet = Fleet::start(&["m1", "m2"], ", leaseSeconds: 600").await;
    let clients = [fleet.members[0].client.clone(), fleet.members[1].client.clone()];
    lending(&fleet, "8", json!({"chunk": {"cpu": "2"}})).await;
    grow_to(&clients[1], 1).await;
    let lent = until(&clients[1], &slices(), "q-elastic", |slice| slice.data["status"]["hard"]["cpu"] == "3").await;
    assert_eq!(lent.data["spec"]["whenFull"], "Refuse");
    fleet.members[1].cut_off();
    grow_to(&clients[1], 3).await;
    for _ in 0..3 {
        assert!(!grow(&clients[1]).await, "it was lent three");
    }
    // The other one gets what is left, and not what that one might use.
    grow_to(&clients[0], 5).await;
    let quota = fleet.until(&quotas(), "q", |quota| used(quota) == 8).await;
    assert_eq!(used(&quota), 8);
    for _ in 0..3 {
        assert!(!grow(&clients[0]).await, "the rest is lent to the other one");
    }
    fleet.members[1].reconnect();
    fleet.until(&clusters(), "m2", |cluster| condition(cluster, "Ready") == "True").await;
    // A control plane that stands still changes nothing either.
    fleet.centre.signal("STOP").await;
    assert!(!grow(&clients[0]).await && !grow(&clients[1]).await);
    fleet.centre.signal("CONT").await;
    assert_eq!((running(&clients[0]).await, running(&clients[1]).await), (5, 3));
}

/// A lease ends by itself: from then on the member lets nothing more in, and where it was given up, others get what it was lent.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_expires_while_its_member_is_cut_off_goes_to_others() {
    let fleet = Fleet::start(&["m1", "m2"], ", leaseSeconds: 4").await;
    let clients = [fleet.members[0].client.clone(), fleet.members[1].client.clone()];
    lending(&fleet, "6", json!({"chunk": {"cpu": "2"}})).await;
    grow_to(&clients[1], 2).await;
    until(&clients[1], &slices(), "q-elastic", |slice| slice.data["status"]["hard"]["cpu"] == "4").await;
    fleet.fail_over().await;
    fleet.members[1].cut_off();
    until_gone(&fleet.client, &leases(), "q.m2").await;
    assert!(!grow(&clients[1]).await, "its time is over");
    // An administrator gave up what runs there: the quota is the other one's.
    grow_to(&clients[0], 6).await;
    assert!(!grow(&clients[0]).await && !grow(&clients[1]).await);
    // Back again, it keeps what it runs, and gets no more before others let go.
    fleet.members[1].reconnect();
    fleet.until(&clusters(), "m2", |cluster| condition(cluster, "Ready") == "True").await;
    fleet.until(&leases(), "q.m2", |_| true).await;
    assert!(!grow(&clients[1]).await);
    let quota = api(&fleet.client, &quotas()).get("q").await.expect("the quota");
    assert!(used(&quota) <= 6, "{}", used(&quota));
    assert_eq!(running(&clients[1]).await, 2);
}
