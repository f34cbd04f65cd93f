//! A meter that is down while many ask.

use std::time::{Duration, Instant};

use super::other::{Mood, Other, measures};
use super::*;

/// How long the meter is down; a long run says more.
fn outage() -> Duration {
    let seconds = std::env::var("BURSAR_METER_OUTAGE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(4))
}

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
    let (process, client) = start(folder.path(), cpu, &[(CPU, "30"), (COUNT, "1k")]).await;
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
    let (mut made, begun) = (0, Instant::now());
    // At least as many as there is room for.
    while begun.elapsed() < outage() || made < 40 {
        meter.be(moods[made / 10 % moods.len()].clone());
        create(&client, &claims(), &format!("c{made}"), claim(&[(CPU, "1"), (COUNT, "1")])).await.expect("a claim");
        // What is not metered goes on as ever.
        if made % 10 == 0 {
            let name = format!("count-{made}");
            create(&client, &claims(), &name, claim(&[(COUNT, "1")])).await.expect("a claim");
            assert_eq!(phase(&api(&client, &claims()).get(&name).await.expect("a claim")), "Granted/QuotaAvailable");
        }
        made += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let counted = made.div_ceil(10);
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
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
