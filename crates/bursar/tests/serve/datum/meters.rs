//! A meter that is down while many ask.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::other::{Mood, Other, measures};
use super::*;

/// How long the meter is down; a long run says more.
fn outage() -> Duration {
    let seconds = std::env::var("BURSAR_METER_OUTAGE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(4))
}

/// Clients that claim meanwhile, each up to five times a second: a minute of it is within what one namespace may have.
const WRITERS: usize = 8;

/// From its return until all are decided.
const WITHIN: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn while_a_meter_is_down_nothing_is_granted_and_on_its_return_all_is_decided() {
    let meter = Other::start(measures(0)).await;
    let folder = tempfile::tempdir().expect("a folder");
    let mut cpu = definition(CPU, "cores");
    cpu["usageSource"] = json!({
        "type": "Prometheus", "endpoint": meter.url, "meter": "cores", "lag": "1h", "maxAge": "1s", "timeout": "1s",
    });
    let (process, client) = start(folder.path(), cpu, &[(CPU, "30"), (COUNT, "1M")]).await;
    create(&client, &claims(), "before", claim(&[(CPU, "1")])).await.expect("a claim");
    until(&client, Duration::from_secs(20), |now| now.get("Granted/QuotaAvailable") == Some(&1)).await;
    // Down in every way: silent, closed, in trouble, garbage.
    meter.be(Mood::Silent);
    let begun = Instant::now();
    let moods = [Mood::Down, Mood::Answers(503, "{}".into()), Mood::Answers(200, "<html>".into()), Mood::Silent];
    // The last answer still counts for as long as it may; from the first failure on nothing is granted.
    for number in 0.. {
        let name = format!("probe-{number}");
        create(&client, &claims(), &name, claim(&[(CPU, "1")])).await.expect("a claim");
        if phase(&api(&client, &claims()).get(&name).await.expect("a claim")).starts_with("Pending") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "it is never found out");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let had = phases(&client).await["Granted/QuotaAvailable"];
    // Many write at once, until it has been down for long enough, and at least as many as there is room for.
    let (made, begun) = (AtomicUsize::new(0), Instant::now());
    let writing = (0..WRITERS).map(async |_| {
        loop {
            let number = made.fetch_add(1, Ordering::Relaxed);
            meter.be(moods[number / 10 % moods.len()].clone());
            create(&client, &claims(), &format!("c{number}"), claim(&[(CPU, "1"), (COUNT, "1")]))
                .await
                .expect("a claim");
            // What is not metered goes on as ever.
            if number % 10 == 0 {
                let name = format!("count-{number}");
                create(&client, &claims(), &name, claim(&[(COUNT, "1")])).await.expect("a claim");
                assert_eq!(
                    phase(&api(&client, &claims()).get(&name).await.expect("a claim")),
                    "Granted/QuotaAvailable"
                );
            }
            if begun.elapsed() >= outage() && number >= 40 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    futures::future::join_all(writing).await;
    let counted = made.load(Ordering::Relaxed).div_ceil(10);
    let now = phases(&client).await;
    assert_eq!(now["Granted/QuotaAvailable"], had + counted, "{now:?}");
    assert_eq!(now.keys().filter(|phase| phase.starts_with("Denied")).count(), 0, "nobody knows: {now:?}");
    meter.be(measures(5));
    let back = Instant::now();
    // All thirty but the five that nobody claimed.
    let all = until(&client, WITHIN, |now| now.keys().all(|phase| !phase.starts_with("Pending"))).await;
    assert!(back.elapsed() <= WITHIN, "{:?}", back.elapsed());
    assert_eq!(all["Granted/QuotaAvailable"], 25 + counted, "{all:?}");
    assert_eq!(process.stop().await, Some(0));
}

/// A server whose cores are measured there, and claims that wait for it, many at once.
async fn metered(folder: &std::path::Path, meter: &Other, cores: &str, waiting: usize) -> (Process, kube::Client) {
    let mut cpu = definition(CPU, "cores");
    cpu["usageSource"] = json!({
        "type": "Prometheus", "endpoint": meter.url, "meter": "cores", "lag": "1h", "maxAge": "2s", "timeout": "1s",
    });
    let (process, client) = start(folder, cpu, &[(CPU, cores)]).await;
    let asking = (0..waiting).map(|number| {
        let client = client.clone();
        async move { create(&client, &claims(), &format!("c{number}"), claim(&[(CPU, "1")])).await.expect("a claim") }
    });
    futures::future::join_all(asking).await;
    (process, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_wait_are_one_question() {
    let meter = Other::start(measures(0)).await;
    let (folder, begun) = (tempfile::tempdir().expect("a folder"), Instant::now());
    let (process, client) = metered(folder.path(), &meter, "20", 50).await;
    until(&client, Duration::from_secs(20), |now| now.get("Denied/QuotaExceeded") == Some(&30)).await;
    // Those who are denied wait on, and the meter is asked again before its answer is too old; for all of them at once.
    let first = meter.count();
    while meter.count() < first + 3 {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is not asked any more");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Each half of `maxAge`, and where a look comes a little later.
    let most = usize::try_from(begun.elapsed().as_millis() / 1000).expect("a number") + 2;
    assert!(meter.count() <= most, "{} questions, and {most} are enough", meter.count());
    assert_eq!(process.stop().await, Some(0));
}

/// An answer counts for an hour here, and not for a meter that did not give it.
#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_names_another_meter_believes_the_one_before_no_more() {
    let (wrong, right) = (Other::start(measures(0)).await, Other::start(Mood::Silent).await);
    let folder = tempfile::tempdir().expect("a folder");
    let mut source = json!({
        "type": "Prometheus", "endpoint": wrong.url, "meter": "cores", "lag": "1s", "maxAge": "1h", "timeout": "1s",
    });
    let mut cpu = definition(CPU, "cores");
    cpu["usageSource"] = source.clone();
    let (process, client) = start(folder.path(), cpu, &[(CPU, "10")]).await;
    create(&client, &claims(), "a", claim(&[(CPU, "1")])).await.expect("a claim");
    until(&client, Duration::from_secs(20), |now| now.get("Granted/QuotaAvailable") == Some(&1)).await;
    source["endpoint"] = json!(right.url);
    edit(&client, &definitions(), "cpu", json!({"usageSource": source})).await;
    create(&client, &claims(), "b", claim(&[(CPU, "5")])).await.expect("a claim");
    assert_eq!(phase(&api(&client, &claims()).get("b").await.expect("a claim")), "Pending/PendingQuotaCheck");
    right.be(measures(9));
    until(&client, WITHIN, |now| now.get("Denied/QuotaExceeded") == Some(&1)).await;
    // Written again as it is, it is the same meter, and nobody has to wait for it.
    let said = async || {
        let project = api(&client, &effective()).get(&format!("project-{PROJECT}")).await.expect("what grants come to");
        project.data["spec"]["usage"][0].clone()
    };
    let before = said().await;
    edit(&client, &definitions(), "cpu", json!({"description": "cores", "usageSource": source})).await;
    assert_eq!(said().await, before);
    assert_eq!(process.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_down_is_hardly_asked() {
    for mood in [Mood::Down, Mood::Answers(404, "{}".into()), Mood::Answers(503, "{}".into())] {
        let meter = Other::start(mood.clone()).await;
        let folder = tempfile::tempdir().expect("a folder");
        let (process, client) = metered(folder.path(), &meter, "20", 10).await;
        until(&client, Duration::from_secs(20), |now| now.get("Pending/MeteringServiceUnavailable") == Some(&10)).await;
        let (begun, before) = (Instant::now(), meter.count());
        while begun.elapsed() < Duration::from_secs(5) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let asked = meter.count() - before;
        assert!((1..=10).contains(&asked), "{asked} requests in five seconds: {mood:?}");
        meter.be(measures(0));
        until(&client, WITHIN, |now| now.get("Granted/QuotaAvailable") == Some(&10)).await;
        assert_eq!(process.stop().await, Some(0));
    }
}

async fn until(
    client: &kube::Client,
    within: Duration,
    is_so: impl Fn(&std::collections::BTreeMap<String, usize>) -> bool,
) -> std::collections::BTreeMap<String, usize> {
    let begun = Instant::now();
    loop {
        let now = phases(client).await;
        if is_so(&now) {
            return now;
        }
        assert!(begun.elapsed() < within, "{now:?}");
        // Thousands are listed each time, by the processor that is to decide them.
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}
