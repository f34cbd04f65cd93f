//! Two who want the last room at the same time, over HTTP, at random moments.

use std::time::Duration;

use serde_json::json;

use super::platform::{Platform, of_env, scale, try_send};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_race_one_wins_and_the_other_is_told_why() {
    let mut platform = Platform::start(&[], false).await;
    platform.env("test").await;
    for env in ["prod", "test"] {
        platform.done(&format!("POST {}", of_env(env, "deploys")), json!({"release": 1})).await;
        platform.done(&format!("PUT {}", of_env(env, "scale")), scale(0)).await;
    }
    platform.limit("max_instances", 5).await;
    let mut won = [0, 0];
    for round in 0..400 {
        let wanted = [3 + platform.random(3), 3 + platform.random(3)];
        let moments = [platform.random(800), platform.random(800)].map(Duration::from_micros);
        let client = platform.client.clone();
        let ask = |at: usize, env: &'static str| {
            let (client, desired) = (client.clone(), i64::try_from(wanted[at]).expect("a small number"));
            async move {
                tokio::time::sleep(moments[at]).await;
                let line = format!("PUT {}", of_env(env, "scale"));
                try_send(&client, &line, &scale(desired), None).await.expect("an answer")
            }
        };
        let answers: [_; 2] = tokio::join!(ask(0, "prod"), ask(1, "test")).into();
        let winner = answers.iter().position(|(code, _)| *code == 200).expect("one of them wins");
        let lost = &answers[1 - winner];
        assert_eq!((lost.0, &lost.1["code"]), (409, &json!("quota_exceeded")), "{round}: {answers:?}");
        let details = &lost.1["details"];
        assert_eq!(details["current_usage"], wanted[winner], "{round}");
        assert_eq!(details["requested_delta"], wanted[1 - winner], "{round}");
        assert_eq!(platform.usage("max_instances").await.0, i64::try_from(wanted[winner]).expect("small"), "{round}");
        won[winner] += 1;
        let env = ["prod", "test"][winner];
        platform.done(&format!("PUT {}", of_env(env, "scale")), scale(0)).await;
    }
    assert!(won.iter().all(|times| *times > 0), "both come first now and then: {won:?}");
}
