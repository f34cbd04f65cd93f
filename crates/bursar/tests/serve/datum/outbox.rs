//! Usage told to others: at least once, under ids that stay, whatever happens to either side.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::api::DeleteParams;

use super::other::{Mood, Other};
use super::*;
use crate::harness::PATIENCE;

fn accepts() -> Mood {
    Mood::Answers(200, "accepted".into())
}

/// What a receiver that knows ids adds up to: each event once, in thousandths; and how many events came twice.
fn received(other: &Other, id: &str, value: impl Fn(&Value) -> String) -> (BTreeMap<String, i64>, usize) {
    let (mut known, mut twice) = (BTreeMap::new(), 0);
    for body in other.heard() {
        let events: Value = serde_json::from_str(&body).expect("JSON");
        for event in events.as_array().expect("a batch") {
            let amount = quantity::Quantity::parse(&value(event)).expect("a number").amount();
            let thousandths = i64::try_from(amount.nanos() / 1_000_000).expect("small");
            let name = event[id].as_str().expect("an id").to_owned();
            if let Some(before) = known.insert(name, thousandths) {
                assert_eq!(before, thousandths, "one id, one event: {event}");
                twice += 1;
            }
        }
    }
    (known, twice)
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_happens_to_sender_and_receiver_the_events_add_up() {
    let (open_meter, mut amberflo) = (Other::start(accepts()).await, Other::start(Mood::Down).await);
    let folder = tempfile::tempdir().expect("a folder");
    let mut cpu = definition(CPU, "cores");
    cpu["usageSink"] = json!({"type": "OpenMeter", "endpoint": open_meter.url, "meter": "cores_granted"});
    let (process, client) = start(folder.path(), cpu, &[(CPU, "20"), (COUNT, "20")]).await;
    let sink = json!({"type": "Amberflo", "endpoint": amberflo.url, "meter": "instances", "timeout": "1s"});
    edit(&client, &definitions(), "count", json!({"usageSink": sink})).await;
    for number in 0..12 {
        let spec = claim(&[(CPU, "1.5"), (COUNT, "1")]);
        create(&client, &claims(), &format!("c{number}"), spec).await.expect("a claim");
    }
    edit(&client, &claims(), "c0", claim(&[(CPU, "0.5"), (COUNT, "1")])).await;
    api(&client, &claims()).delete("c1", &DeleteParams::default()).await.expect("a deletion");
    // One receiver hears everything while the other is down: twelve, a scale, a release.
    let cores = |event: &Value| event["data"]["value"].as_str().unwrap_or_default().to_owned();
    until("OpenMeter hears of it", || received(&open_meter, "id", cores).0.len() == 14).await;
    assert_eq!(received(&open_meter, "id", cores).0.values().sum::<i64>(), 12 * 1500 - 1000 - 1500);
    used_becomes(&client, CPU, "15.5").await;
    let first: Value = serde_json::from_str(&open_meter.heard()[0]).expect("JSON");
    assert_eq!((&first[0]["type"], &first[0]["subject"]), (&json!("cores_granted"), &json!(PROJECT)));
    assert_eq!((&first[0]["data"]["change"], &first[0]["data"]["claim"]), (&json!("granted"), &json!("proj-abc/c0")));
    // Killed with events unsent; the receiver comes back after the server does.
    amberflo.asked(1).await;
    process.signal("KILL").await;
    drop(process);
    let process = Process::start(folder.path(), &[]).await;
    let client = process.client().await;
    api(&client, &claims()).delete("c2", &DeleteParams::default()).await.expect("a deletion");
    amberflo.asked(1).await;
    assert_eq!(amberflo.heard(), Vec::<String>::new());
    amberflo.be(accepts());
    let instances = |event: &Value| event["meterValue"].to_string();
    until("Amberflo hears of it", || received(&amberflo, "uniqueId", instances).0.len() == 14).await;
    let (events, _) = received(&amberflo, "uniqueId", instances);
    assert_eq!(events.values().sum::<i64>(), 10_000);
    used_becomes(&client, COUNT, "10").await;
    until("and of the last release", || received(&open_meter, "id", cores).0.len() == 15).await;
    assert_eq!(received(&open_meter, "id", cores).0.values().sum::<i64>(), 14_000);
    // How far each has come is kept: another restart sends nothing again.
    let kept: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let begun = Instant::now();
    loop {
        let data = kept.get("datum-outbox").await.expect("positions").data.unwrap_or_default();
        let positions: Vec<u64> = data.values().map(|text| text.parse().expect("a number")).collect();
        if positions.len() == 2 && positions.iter().all(|position| *position >= 16) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{data:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(process.stop().await, Some(0));
    let before = (open_meter.heard().len(), amberflo.heard().len());
    let process = Process::start(folder.path(), &[]).await;
    let client = process.client().await;
    api(&client, &claims()).delete("c3", &DeleteParams::default()).await.expect("a deletion");
    until("the next release", || open_meter.heard().len() > before.0 && amberflo.heard().len() > before.1).await;
    assert_eq!(
        (open_meter.heard().len(), amberflo.heard().len()),
        (before.0 + 1, before.1 + 1),
        "that and nothing else"
    );
    let page = client.request_text(http::Request::get("/metrics").body(Vec::new()).expect("a request")).await;
    assert!(page.expect("metrics").contains("quota_events_sent_total{definition=\"cpu\"} 1"));
    assert_eq!(process.stop().await, Some(0));
}

/// A claim that its tenant gives an odd dimension is no reason why nobody's usage is told any more.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_refused_for_good_keeps_no_other_back() {
    let mut receiver = Other::start(Mood::Refuses("odd".into())).await;
    let folder = tempfile::tempdir().expect("a folder");
    let mut cpu = definition(CPU, "cores");
    cpu["usageSink"] = json!({"type": "OpenMeter", "endpoint": receiver.url, "meter": "cores_granted"});
    cpu["allowedDimensions"] = json!(["x.example.com/project", "x.example.com/zone"]);
    let (process, client) = start(folder.path(), cpu, &[(CPU, "20"), (COUNT, "20")]).await;
    let ask = async |name: &str, of: &str| {
        let mut spec = claim(&[(CPU, "1")]);
        spec["dimensions"] = json!({"x.example.com/project": "victim", "x.example.com/zone": of});
        create(&client, &claims(), name, spec).await.expect("a claim");
    };
    // By itself it may be the receiver's fault, and is sent again.
    ask("a", "odd").await;
    receiver.asked(3).await;
    for name in ["b", "c", "d"] {
        ask(name, "fine").await;
    }
    let cores = |event: &Value| event["data"]["value"].as_str().unwrap_or_default().to_owned();
    until("the others are told", || received(&receiver, "id", cores).0.len() == 3).await;
    for body in receiver.heard() {
        let events: Value = serde_json::from_str(&body).expect("JSON");
        let said = events.as_array().expect("a batch").iter().map(|event| &event["data"]["project"]);
        assert!(said.into_iter().all(|project| project == PROJECT), "nobody says whose an event is: {events}");
    }
    // One that refuses everything is to be mended, and what it has not taken is kept.
    receiver.be(Mood::Answers(401, "who are you?".into()));
    for name in ["e", "f", "g"] {
        ask(name, "fine").await;
    }
    receiver.asked(12).await;
    receiver.be(accepts());
    until("all are told", || received(&receiver, "id", cores).0.len() == 6).await;
    let begun = Instant::now();
    loop {
        let page = client.request_text(http::Request::get("/metrics").body(Vec::new()).expect("a request")).await;
        let page = page.expect("metrics");
        assert!(page.contains("quota_events_refused_total{definition=\"cpu\"} 1\n"), "{page}");
        if page.contains("quota_events_sent_total{definition=\"cpu\"} 6\n") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{page}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(process.stop().await, Some(0));
}
