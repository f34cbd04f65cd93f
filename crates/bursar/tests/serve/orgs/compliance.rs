//! What the specification asks of an implementation: six tests over HTTP against the running server with its scheduler, and the
//! same six with the process killed in the middle of their commands.

use serde_json::{Value, json};

use super::platform::{LOOK, Platform, of_env, scale};
use crate::harness::PATIENCE;

/// Each test as it is, and with kills.
macro_rules! compliance {
    ($($name:ident, $killed:ident => $story:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            $story(false).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $killed() {
            $story(true).await;
        }
    )*};
}

compliance! {
    a_scale_beyond_the_limit_is_refused, a_scale_beyond_the_limit_is_refused_through_kills => beyond;
    a_scale_within_the_limit_is_placed, a_scale_within_the_limit_is_placed_through_kills => within;
    a_rollout_never_passes_the_limit, a_rollout_never_passes_the_limit_through_kills => rollout;
    volume_bytes_are_limited, volume_bytes_are_limited_through_kills => volumes;
    addresses_are_limited, addresses_are_limited_through_kills => addresses;
    the_scheduler_stops_where_a_race_ends, the_scheduler_stops_where_a_race_ends_through_kills => race;
}

/// Four of five run.
async fn four(kills: bool) -> Platform {
    let mut platform = Platform::start(&["n1", "n2"], kills).await;
    platform.limit("max_instances", 5).await;
    platform.done(&format!("POST {}", of_env("prod", "deploys")), json!({"release": 1})).await;
    platform.until_ready("prod", 1).await;
    platform.done(&format!("PUT {}", of_env("prod", "scale")), scale(4)).await;
    platform.until_ready("prod", 4).await;
    platform
}

async fn beyond(kills: bool) {
    let mut platform = four(kills).await;
    let said = platform.exceeded(&format!("PUT {}", of_env("prod", "scale")), scale(6)).await;
    assert_eq!(said, json!(["max_instances", 5, 4, 2]));
    assert_eq!(platform.told("env.scale_set").await.len(), 1, "a refusal is no event");
    assert_eq!(platform.usage("max_instances").await, (4, 4));
    let audit = platform.get("/v1/orgs/acme/audit").await;
    let denials = audit["items"].as_array().expect("a trail");
    let is_ours = |one: &Value| {
        one["decision"] == "deny"
            && one["reason"] == "quota_exceeded:max_instances"
            && one["details"]["requested_delta"] == 2
            && one["actor_id"].is_string()
    };
    assert!(!denials.is_empty() && denials.iter().all(is_ours), "{audit}");
    let metrics = platform.get("/metrics").await.to_string();
    let counted = "bursar_org_quota_exceeded_total{dimension=\\\"max_instances\\\",\
                   endpoint=\\\"PUT /v1/orgs/{org}/apps/{app}/envs/{env}/scale\\\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
}

async fn within(kills: bool) {
    let mut platform = four(kills).await;
    let (code, _) = platform.struck(&format!("PUT {}", of_env("prod", "scale")), scale(5)).await;
    assert_eq!(code, 200);
    platform.kill();
    let mut instances = platform.until_ready("prod", 5).await;
    assert_eq!(platform.usage("max_instances").await, (5, 5));
    assert_eq!(platform.told("env.scale_set").await.len(), 2);
    assert_eq!(platform.told("instance.allocated").await.len(), 5, "none is allocated twice for one need");
    // The first to the smaller name, and then in turns.
    instances.sort_by_key(|one| one["allocated_at_ms"].as_i64());
    let nodes: Vec<&Value> = instances.iter().map(|one| &one["node"]).collect();
    assert_eq!(nodes.iter().filter(|node| **node == "n1").count(), 3, "{nodes:?}");
    assert_eq!((nodes[0], nodes[4]), (&json!("n1"), &json!("n1")));
}

async fn rollout(kills: bool) {
    let mut platform = Platform::start(&["n1"], kills).await;
    platform.limit("max_instances", 3).await;
    let deploys = format!("POST {}", of_env("prod", "deploys"));
    platform.done(&deploys, json!({"release": 1})).await;
    platform.until_ready("prod", 1).await;
    platform.done(&format!("PUT {}", of_env("prod", "scale")), scale(3)).await;
    platform.until_ready("prod", 3).await;
    platform.release(32 << 20).await;
    let (code, deploy) = platform.struck(&deploys, json!({"release": 2})).await;
    assert_eq!((code, &deploy["processes"]["web"]["mode"]), (201, &json!("drain_first")), "{deploy}");
    let message = deploy["message"].as_str().expect("a message");
    assert!(
        message.starts_with("rollout_mode=drain_first reason=org_quota_exceeded:max_instances limit=3"),
        "{message}"
    );
    platform.kill();
    let id = deploy["id"].as_str().expect("an id");
    // Those of the first release are ready as well until the scheduler comes to them.
    let of_deploy = format!("GET /v1/orgs/acme/deploys/{id}");
    platform.until(&of_deploy, &Value::Null, |(_, deploy)| deploy["state"] == "succeeded").await;
    let instances = platform.until_ready("prod", 3).await;
    assert!(instances.iter().all(|one| one["release"] == "shop.2"), "{instances:?}");
    // As the events tell it, there were never more than three.
    let mut counted = 0;
    for event in platform.events().await {
        match event["event_type"].as_str() {
            Some("instance.allocated") => counted += 1,
            Some("instance.desired_state_changed") if event["new"]["desired_state"] == "stopped" => counted -= 1,
            _ => {}
        }
        assert!(counted <= 3, "{event}");
    }
    platform.done("PUT /v1/orgs/acme/policy", json!({"surge_policy": "reject"})).await;
    assert_eq!(platform.exceeded(&deploys, json!({"release": 1})).await, json!(["max_instances", 3, 3, 1]));
    // What does not fit in the end is refused, whatever the way.
    platform.limit("max_total_memory_bytes", 1 << 30).await;
    platform.limit("max_instances", 4).await;
    platform.release(1 << 30).await;
    for policy in ["reject", "drain_first"] {
        platform.done("PUT /v1/orgs/acme/policy", json!({"surge_policy": policy})).await;
        let (code, refused) = platform.send(&deploys, json!({"release": 3})).await;
        assert_eq!((code, &refused["details"]["dimension"]), (409, &json!("max_total_memory_bytes")), "{refused}");
    }
}

async fn volumes(kills: bool) {
    let mut platform = Platform::start(&[], kills).await;
    let gib = 1_i64 << 30;
    platform.limit("max_total_volume_bytes", 10 * gib).await;
    platform.done("POST /v1/orgs/acme/volumes", json!({"size_bytes": 8 * gib})).await;
    let said = platform.exceeded("POST /v1/orgs/acme/volumes", json!({"size_bytes": 3 * gib})).await;
    assert_eq!(said, json!(["max_total_volume_bytes", 10_737_418_240_i64, 8_589_934_592_i64, 3_221_225_472_i64]));
    let (code, made) = platform.struck("POST /v1/orgs/acme/volumes", json!({"size_bytes": 2 * gib})).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(platform.usage("max_total_volume_bytes").await.0, 10 * gib);
    assert_eq!(platform.told("volume.created").await.len(), 2);
}

async fn addresses(kills: bool) {
    let mut platform = Platform::start(&[], kills).await;
    platform.limit("max_ipv4_allocations", 1).await;
    platform.env("test").await;
    let (prod, test) = (of_env("prod", "networking/ipv4"), of_env("test", "networking/ipv4"));
    assert_eq!(platform.struck(&format!("POST {prod}"), Value::Null).await.0, 200);
    assert_eq!(platform.exceeded(&format!("POST {test}"), Value::Null).await, json!(["max_ipv4_allocations", 1, 1, 1]));
    assert_eq!(platform.send(&format!("POST {prod}"), Value::Null).await.0, 200, "it is enabled already");
    assert_eq!(platform.told("env.ipv4_addon_enabled").await.len(), 1);
    let (code, _) = platform.send(&format!("DELETE {prod}"), Value::Null).await;
    assert_eq!(code, 200);
    assert_eq!(platform.send(&format!("POST {test}"), Value::Null).await.0, 200);
}

async fn race(kills: bool) {
    let mut platform = Platform::start(&["n1"], kills).await;
    platform.env("test").await;
    for env in ["prod", "test"] {
        platform.done(&format!("POST {}", of_env(env, "deploys")), json!({"release": 1})).await;
        platform.until_ready(env, 1).await;
        platform.done(&format!("PUT {}", of_env(env, "scale")), scale(0)).await;
        platform.until_ready(env, 0).await;
    }
    let idle = json!([]);
    platform.until("GET /v1/orgs/acme/instances", &Value::Null, |(_, list)| list["items"] == idle).await;
    platform.limit("max_instances", 5).await;
    // Commands that reserve: one of the two is told why it lost.
    let (one, other) = both(&mut platform).await;
    let lost = if one.0 == 200 { &other } else { &one };
    assert_eq!((one.0.min(other.0), lost.0), (200, 409), "{one:?} {other:?}");
    assert_eq!(lost.1["details"]["current_usage"], 4);
    for env in ["prod", "test"] {
        platform.done(&format!("PUT {}", of_env(env, "scale")), scale(0)).await;
    }
    platform.until("GET /v1/orgs/acme/instances", &Value::Null, |(_, list)| list["items"] == idle).await;
    // Commands that only look: both are accepted, and the scheduler stops at the limit.
    platform.done("PUT /v1/orgs/acme/policy", json!({"reservations": "check"})).await;
    let (one, other) = both(&mut platform).await;
    assert_eq!((one.0, other.0), (200, 200), "{one:?} {other:?}");
    platform.kill();
    let waits = |status: &Value| {
        status["groups"][0]["unschedulable_reason"] == "org_quota_exceeded:max_instances"
            && status["groups"][0]["unmet_replicas"] == 3
    };
    let begun = std::time::Instant::now();
    let later = 'found: loop {
        for env in ["prod", "test"] {
            if waits(&platform.get(&of_env(env, "status")).await) {
                break 'found env;
            }
        }
        assert!(begun.elapsed() < PATIENCE, "neither of the two waits");
        tokio::time::sleep(LOOK).await;
    };
    let earlier = if later == "prod" { "test" } else { "prod" };
    // It is who asked later, in one and the same millisecond the later name; but nobody gives way to one who asked before him and was
    // accepted after him.
    let asked_later = if one.1["changed_seq"].as_i64() > other.1["changed_seq"].as_i64() { "prod" } else { "test" };
    let told = platform.told("env.scale_set").await;
    let accepted = |env: &str| told.iter().rposition(|event| event["aggregate_id"] == format!("shop.{env}"));
    assert!(accepted("prod").is_some() && accepted("test").is_some(), "{told:?}");
    let accepted_later = if accepted("prod") > accepted("test") { "prod" } else { "test" };
    if asked_later == accepted_later {
        assert_eq!(later, asked_later, "{one:?} {other:?}");
    }
    platform.until_ready(earlier, 4).await;
    platform.until_ready(later, 1).await;
    assert_eq!(platform.usage("max_instances").await, (5, 5));
    // No attempt is made that cannot succeed, let alone more than one in half a minute.
    let metrics = platform.get("/metrics").await.to_string();
    let refused = "endpoint=\\\"POST /v1/orgs/{org}/instances\\\",result=\\\"quota_exceeded\\\"} ";
    let attempts = metrics.split(refused).nth(1).map_or("0", |rest| rest.split("\\n").next().unwrap_or("?"));
    assert!(matches!(attempts, "0" | "1"), "{attempts} attempts");
    // The other gives way: what waits goes on, without waiting for its half minute.
    platform.struck(&format!("PUT {}", of_env(earlier, "scale")), scale(1)).await;
    let begun = std::time::Instant::now();
    platform.until_ready(later, 4).await;
    assert!(begun.elapsed().as_secs() < 10, "it went on after {:?}", begun.elapsed());
    assert_eq!(platform.usage("max_instances").await, (5, 5));
}

/// Two that ask for four of five at once; and the server is killed while they do, where it is to be.
async fn both(platform: &mut Platform) -> (super::platform::Answer, super::platform::Answer) {
    let ask = |env: &str| (format!("PUT {}", of_env(env, "scale")), scale(4));
    platform.struck_all([ask("prod"), ask("test")]).await.into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_lowered_before_anything_is_placed_holds() {
    let mut platform = Platform::start(&[], false).await;
    platform.limit("max_instances", 5).await;
    platform.done(&format!("POST {}", of_env("prod", "deploys")), json!({"release": 1})).await;
    platform.done(&format!("PUT {}", of_env("prod", "scale")), scale(4)).await;
    platform.limit("max_instances", 2).await;
    platform.node("late").await;
    let stops = |(_, status): &(u16, Value)| {
        status["groups"][0]["matching"] == 2
            && status["groups"][0]["unschedulable_reason"] == "org_quota_exceeded:max_instances"
    };
    platform.until(&format!("GET {}", of_env("prod", "status")), &Value::Null, stops).await;
    assert_eq!(platform.usage("max_instances").await, (4, 2));
}
