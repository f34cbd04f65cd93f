//! As many as fit, and not one more, however many ask at once.

use std::time::{Duration, Instant};

use futures::StreamExt;

use super::other::{Other, measures};
use super::*;
use crate::harness::PATIENCE;

/// Claims of one core each, many at once; whoever finds no server has not claimed.
async fn ask(client: &kube::Client, names: impl Iterator<Item = usize>) {
    let asking = names.map(|number| {
        let client = client.clone();
        async move { create(&client, &claims(), &format!("c{number}"), claim(&[(CPU, "1"), (COUNT, "1")])).await }
    });
    futures::stream::iter(asking).buffer_unordered(32).for_each(|_| async {}).await;
}

fn granted(phases: &std::collections::BTreeMap<String, usize>) -> usize {
    phases.get("Granted/QuotaAvailable").copied().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_at_once_as_many_as_fit_also_across_a_kill_and_with_grants_edited() {
    let folder = tempfile::tempdir().expect("a folder");
    let (process, client) = start(folder.path(), definition(CPU, "cores"), &[(CPU, "7"), (COUNT, "100")]).await;
    ask(&client, 0..60).await;
    let expected = [("Denied/QuotaExceeded".to_owned(), 53), ("Granted/QuotaAvailable".to_owned(), 7)];
    assert_eq!(phases(&client).await, std::collections::BTreeMap::from(expected));
    // The grant goes up and down while others ask, and ends at one: what was granted meanwhile is within the most there ever was.
    let editor = client.clone();
    let editing = async move {
        for cores in ["9", "3", "12", "2", "15", "1"] {
            edit(&editor, &grants(), "g", limits(&[(CPU, cores), (COUNT, "100")])).await;
        }
    };
    tokio::join!(editing, ask(&client, 60..120));
    let now = phases(&client).await;
    assert!((7..=15).contains(&granted(&now)), "{now:?}");
    edit(&client, &grants(), "g", limits(&[(CPU, "20"), (COUNT, "100")])).await;
    let now = phases(&client).await;
    assert_eq!(granted(&now), 20, "{now:?}");
    used_becomes(&client, CPU, "20").await;
    // Killed in the midst of it. Who was not answered may be there or not; the limit holds.
    let asking = ask(&client, 120..400);
    let killing = async {
        while api(&client, &claims()).list(&ListParams::default()).await.is_ok_and(|all| all.items.len() < 150) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        process.signal("KILL").await;
    };
    tokio::join!(asking, killing);
    drop(process);
    let process = Process::start(folder.path(), &[]).await;
    let client = process.client().await;
    assert_eq!(granted(&phases(&client).await), 20);
    edit(&client, &grants(), "g", limits(&[(CPU, "25"), (COUNT, "100")])).await;
    let now = phases(&client).await;
    assert_eq!(granted(&now), 25, "{now:?}");
    used_becomes(&client, CPU, "25").await;
    assert_eq!(process.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_fails_on_its_last_resource_has_charged_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (process, client) = start(folder.path(), definition(CPU, "cores"), &[(CPU, "100"), (COUNT, "2")]).await;
    let asking = (0..40).map(|number| {
        let client = client.clone();
        async move { create(&client, &claims(), &format!("c{number}"), claim(&[(CPU, "2"), (COUNT, "1")])).await }
    });
    let made: Vec<_> = futures::stream::iter(asking).buffer_unordered(16).collect().await;
    assert!(made.iter().all(Result::is_ok));
    assert_eq!(granted(&phases(&client).await), 2);
    used_becomes(&client, CPU, "4").await;
    used_becomes(&client, COUNT, "2").await;
    // Others have all that those who were denied would have taken.
    create(&client, &claims(), "large", claim(&[(CPU, "96")])).await.expect("a claim");
    assert_eq!(phase(&api(&client, &claims()).get("large").await.expect("a claim")), "Granted/QuotaAvailable");
    assert_eq!(process.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_meter_that_lags_lets_nobody_in_twice() {
    // It never shows anything of what is granted, and four cores that nobody claimed.
    let meter = Other::start(measures(4)).await;
    let folder = tempfile::tempdir().expect("a folder");
    let mut cpu = definition(CPU, "cores");
    cpu["usageSource"] =
        json!({"type": "Prometheus", "endpoint": meter.url, "meter": "cores", "lag": "1h", "maxAge": "2s"});
    let (process, client) = start(folder.path(), cpu, &[(CPU, "15"), (COUNT, "100")]).await;
    ask(&client, 0..40).await;
    settled(&client, 11).await;
    // Across a restart, and with more granted while many ask.
    assert_eq!(process.stop().await, Some(0));
    let process = Process::start(folder.path(), &[]).await;
    let client = process.client().await;
    let raising = async { edit(&client, &grants(), "g", limits(&[(CPU, "18"), (COUNT, "100")])).await };
    tokio::join!(ask(&client, 40..60), raising);
    settled(&client, 14).await;
    assert_eq!(process.stop().await, Some(0));
}

/// Waits until nobody is pending; never were more granted than there may be.
async fn settled(client: &kube::Client, most: usize) {
    let begun = Instant::now();
    loop {
        let now = phases(client).await;
        assert!(granted(&now) <= most, "{now:?}");
        let pending: usize = now.iter().filter(|(phase, _)| phase.starts_with("Pending")).map(|(_, count)| count).sum();
        if pending == 0 && granted(&now) == most {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{now:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
