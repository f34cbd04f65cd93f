//! In which order statuses are written, and how often.

use std::time::Duration;

use operator::push::{Does, Waiting};
use tokio::time::Instant;

use super::*;

fn status(name: &str, used: u64) -> Push {
    let key = ObjectKey::new(quotas(), "a", name);
    let told = json!({"used": used, "conditions": [{"type": "Ready", "lastTransitionTime": used.to_string()}]});
    let mut value = value(&key, 1, 7, json!({"status": told}));
    value["status"]["conditions"][0]["lastTransitionTime"] = json!("whenever");
    let does = Does::Change { body: false, status: true };
    Push { object: Arc::new(Draft::new(value).unwrap().finish(key, 7, 7).0), uid: SubjectId(1), version: 7, does }
}

fn name(push: &Push) -> &str {
    &push.object.key.name
}

#[test]
fn a_status_that_cannot_be_written_keeps_no_other_waiting() {
    let (mut waiting, begun) = (Waiting::default(), Instant::now());
    let names = ["bad", "one", "two", "three"];
    names.iter().for_each(|name| waiting.add(status(name, 1), begun));
    let mut written = Vec::new();
    for _ in 0..4 {
        let push = waiting.take(begun).expect("one waits");
        match name(&push) {
            "bad" => waiting.add_again(push, begun),
            other => {
                written.push(other.to_owned());
                waiting.done(&push, begun);
            }
        }
    }
    assert_eq!(written, ["one", "two", "three"]);
    assert!(waiting.take(begun).is_none(), "it is left alone for a moment");
    // A newer one takes its place, not its turn.
    waiting.add(status("bad", 2), begun);
    assert!(waiting.take(begun).is_none());
    let again = waiting.take(waiting.next().expect("it is tried again")).expect("it is due");
    assert_eq!(again.object.value()["status"]["used"], 2);
}

#[test]
fn a_status_that_somebody_else_writes_over_is_written_less_and_less_often() {
    let (mut waiting, begun) = (Waiting::default(), Instant::now());
    let (mut now, mut written) = (begun, 0);
    // As soon as it is written, the other one does it again.
    while now < begun + Duration::from_secs(600) {
        waiting.add(status("fought", 1), now);
        now = waiting.next().expect("it waits");
        let push = waiting.take(now).expect("it is due");
        waiting.done(&push, now);
        written += 1;
    }
    assert!((10..=20).contains(&written), "{written} in ten minutes");
    // What is new is told at once, also where the same waits for its time.
    waiting.add(status("fought", 1), now);
    assert!(waiting.take(now).is_none());
    for used in 2..20 {
        waiting.add(status("fought", used), now);
        let push = waiting.take(now).expect("nobody waits for it");
        waiting.done(&push, now);
    }
    // Once it was calm for long, it is mended soon.
    now += Duration::from_secs(300);
    waiting.add(status("fought", 19), now);
    assert!(waiting.take(now).is_some());
}
