//! What members may do that are cut off: use what they were lent, for as long as they were lent it.

use std::time::{Duration, SystemTime};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;

use super::elastic::{cpu, executor, lending, pods, used};
use super::fleet::{Fleet, condition, until, until_gone};
use super::observer::Observer;
use super::{
    api, bindings, clusters, deployment, deployments, edit, leases, placed, policies, quotas, scheduled, slices,
};
use crate::harness::PATIENCE;

/// One executor more; whether the member let it in.
pub async fn grow(client: &kube::Client) -> bool {
    match pods(client).create(&PostParams::default(), &crate::object(executor())).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 403 => {
            let words = &status.message;
            assert!(words.contains("exceeded quota: q-elastic, requested: cpu=1"), "{words}");
            let number = |of: &str| words.split_once(of)?.1.split([',', ' ']).next()?.parse::<u32>().ok();
            let (used, limited) = (number("used: cpu="), number("limited: cpu="));
            assert!(used.zip(limited).is_some_and(|(used, limited)| used + 1 > limited), "{words}");
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
    lending(&fleet, cpu("8"), json!({"chunk": {"cpu": "2"}})).await;
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
    lending(&fleet, cpu("6"), json!({"chunk": {"cpu": "2"}})).await;
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

/// What nodes do: pods that are there come to be ready.
fn make_ready(client: kube::Client) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let ready = Patch::Merge(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
        loop {
            let there = pods(&client).list(&Default::default()).await.map(|list| list.items).unwrap_or_default();
            for pod in there.iter().filter(|pod| pod.status.as_ref().is_none_or(|status| status.conditions.is_none())) {
                let name = pod.metadata.name.as_deref().unwrap_or("");
                // One that is gone again needs nothing.
                let _ = pods(&client).patch_status(name, &PatchParams::default(), &ready).await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
}

/// A workload of eight in m1, and a thief of three, who may go anywhere and for whom there never is room. Both members are lent to: all
/// of ten is used.
async fn eight_and_a_thief(settings: &str) -> (Fleet, Observer) {
    let fleet = Fleet::start(&["m1", "m2"], settings).await;
    let policy = |name: &str| {
        let placement = json!({"replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
        }});
        json!({
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": name}], "placement": placement,
        })
    };
    for name in ["web", "thief"] {
        fleet.create(&policies(), name, policy(name)).await;
    }
    // Where it goes is m1 while m2 takes nobody.
    let closed = json!({"spec": {"taints": [{"key": "closed", "effect": "NoSchedule"}]}});
    edit(&fleet.client, &clusters(), "m2", closed).await.expect("a taint");
    fleet.create(&deployments(), "web", deployment(8)).await;
    fleet.until(&bindings(), WEB, |one| placed(one) == ["m1"]).await;
    lending(&fleet, cpu("10"), json!({"chunk": {"cpu": "1"}})).await;
    edit(&fleet.client, &clusters(), "m2", json!({"spec": {"taints": null}})).await.expect("no taint");
    fleet.until(&leases(), "q.m1", |lease| lease.data["spec"]["hard"]["cpu"] == "9").await;
    until(&fleet.members[0].client, &slices(), "q-elastic", |slice| slice.data["status"]["used"]["cpu"] == "8").await;
    fleet.until(&quotas(), "q", |quota| used(quota) == 10).await;
    fleet.create(&deployments(), "thief", deployment(3)).await;
    fleet.until(&bindings(), THIEF, |one| scheduled(one).0 == "QuotaExceeded").await;
    let observer = Observer::of_quota(&fleet.client, |quota| used(quota) <= 10);
    (fleet, observer)
}

const WEB: &str = "web-deployment";
const THIEF: &str = "thief-deployment";

/// There is one copy, in m2, and nobody else got in.
async fn moved_alone(fleet: &Fleet, observer: Observer) {
    until_gone(&fleet.members[0].client, &deployments(), "web").await;
    let is_all = |job: &DynamicObject| job.data["status"]["replicas"] == 8;
    until(&fleet.members[1].client, &deployments(), "web", is_all).await;
    fleet.until(&bindings(), WEB, |one| one.data["spec"].get("gracefulEvictionTasks").is_none()).await;
    let one_copy = async {
        while (running(&fleet.members[0].client).await, running(&fleet.members[1].client).await) != (0, 8) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, one_copy).await.expect("there is one copy");
    let thief = fleet.until(&bindings(), THIEF, |_| true).await;
    assert!(placed(&thief).is_empty() && scheduled(&thief).0 == "QuotaExceeded", "{:?}", scheduled(&thief));
    let web = fleet.until(&bindings(), WEB, |_| true).await;
    assert_eq!(placed(&web), ["m2"]);
    fleet.until(&leases(), "q.m1", |_| true).await;
    observer.end(100).await;
}

/// A workload fails over from a member that is lent to and cut off: it stays charged, once, and is placed anew when that member can
/// use nothing more of what it was lent.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_leaves_a_member_that_is_cut_off_when_its_lease_is_over() {
    let (fleet, observer) = eight_and_a_thief(", leaseSeconds: 4").await;
    // The old copy may stay until the new one is well.
    let nodes = make_ready(fleet.members[1].client.clone());
    fleet.fail_over().await;
    fleet.members[0].cut_off();
    // While the lease is there the workload is nowhere else.
    let mut valid_until = None;
    loop {
        let web = api(&fleet.client, &bindings()).get(WEB).await.expect("a binding");
        let Some(lease) = api(&fleet.client, &leases()).get_opt("q.m1").await.expect("an answer") else { break };
        assert!(placed(&web) != ["m2"], "m1 may use what it was lent until {valid_until:?}");
        valid_until = serde_json::from_value::<Time>(lease.data["spec"]["validUntil"].clone()).ok();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time").as_secs();
    let is_over = valid_until.as_ref().is_some_and(|until| until.0.as_second() <= i64::try_from(now).expect("a time"));
    assert!(is_over, "it ended before its time, {valid_until:?}");
    fleet.until(&bindings(), WEB, |one| placed(one) == ["m2"]).await;
    assert!(!grow(&fleet.members[0].client).await, "its time is over");
    fleet.members[0].reconnect();
    fleet.until(&clusters(), "m1", |cluster| condition(cluster, "Ready") == "True").await;
    moved_alone(&fleet, observer).await;
    nodes.abort();
}

/// A workload is told to leave a member that answers: that gives back what it was lent for it, and only then it is placed anew. At no
/// moment more runs than the quota allows.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_leaves_a_member_that_answers_when_that_gave_its_room_back() {
    let (fleet, observer) = eight_and_a_thief("").await;
    let clients = [fleet.members[0].client.clone(), fleet.members[1].client.clone()];
    let members = Observer::begin(move || {
        let [first, second] = clients.clone();
        async move {
            // What is in m2 already was gone from m1 before.
            let (second, first) = (running(&second).await, running(&first).await);
            (first + second > 10).then(|| format!("{first} and {second} run where 10 may"))
        }
    });
    let taint = json!({"spec": {"taints": [{"key": "leave", "effect": "NoExecute"}]}});
    edit(&fleet.client, &clusters(), "m1", taint).await.expect("a taint");
    fleet.until(&bindings(), WEB, |one| placed(one) == ["m2"]).await;
    moved_alone(&fleet, observer).await;
    members.end(20).await;
}
