//! One organization's burst does not delay another one's placements.

use serde_json::{Value, json};

use super::platform::{Platform, of_env, scale};

/// Instances that the loud one waits for.
const BURST: i64 = 1000;
/// What one pass of the scheduler allocates at the most.
const PASS: usize = families::orgs::scheduler::plan::ALLOCATIONS_MAX;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_pending_of_one_do_not_stand_before_one_of_another() {
    let mut platform = Platform::start(&["n1"], false).await;
    let state = |state: &str| json!({"state": state, "reason": "a test"});
    platform.done("PUT /v1/nodes/n1/state", state("disabled")).await;
    let capacity = json!({"allocatable_memory_bytes": 1_i64 << 40, "cpu_cores": 1024});
    platform.done("PUT /v1/nodes/n1", capacity).await;
    platform.done("POST /v1/orgs", json!({"id": "loud", "tier": "scale"})).await;
    for dimension in ["max_instances", "max_total_memory_bytes", "max_total_cpu_request"] {
        let limit = json!({"limit": "unlimited", "reason": "a test"});
        platform.done(&format!("PUT /v1/orgs/loud/quotas/{dimension}"), limit).await;
    }
    platform.done("POST /v1/orgs/loud/apps", json!({"name": "shop"})).await;
    let release = json!({"processes": {"web": {"memory_bytes": 64 << 20, "cpu": 0.25}}});
    platform.done("POST /v1/orgs/loud/apps/shop/releases", release).await;
    for number in 0..BURST / 100 {
        let envs = "/v1/orgs/loud/apps/shop/envs";
        platform.done(&format!("POST {envs}"), json!({"name": format!("e{number}")})).await;
        platform.done(&format!("POST {envs}/e{number}/deploys"), json!({"release": 1})).await;
        platform.done(&format!("PUT {envs}/e{number}/scale"), scale(100)).await;
    }
    // It asks last, for one.
    platform.done(&format!("POST {}", of_env("prod", "deploys")), json!({"release": 1})).await;
    platform.done("PUT /v1/nodes/n1/state", state("active")).await;
    platform.until_ready("prod", 1).await;
    let (mut before, mut after) = (0, String::from("0"));
    'all: loop {
        let page = platform.get(&format!("/v1/events?after={after}")).await;
        for event in page["items"].as_array().into_iter().flatten() {
            match (event["event_type"].as_str(), &event["org_id"]) {
                (Some("instance.allocated"), Value::String(org)) if org == "loud" => before += 1,
                (Some("instance.allocated"), _) => break 'all,
                _ => {}
            }
        }
        after = page["next"].as_str().expect("the event is there").to_owned();
    }
    assert!(before <= PASS, "{before} of another were placed first");
    let used = platform.get("/v1/orgs/loud/usage").await;
    let row = used["items"].as_array().into_iter().flatten().find(|row| row["dimension"] == "max_instances").cloned();
    assert_eq!(row.expect("a row")["usage"], BURST, "it waits for all of them");
}
