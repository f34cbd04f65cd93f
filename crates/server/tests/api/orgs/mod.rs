//! The REST API of organizations, in process: what the specification asks of an implementation, and what a client relies on.

mod agents;
mod clocks;
mod every;
mod expressions;
mod keys;
mod limits;
mod races;
mod told;

use http::{Request, StatusCode};
use serde_json::{Value, json};

use super::harness::{Reply, Server};

const ENV: &str = "/v1/orgs/acme/apps/shop/envs/prod";

/// A server with the kinds of this family and the tiers that are built in.
async fn server() -> Server {
    defined(Server::start()).await
}

async fn defined(server: Server) -> Server {
    let families = families::all(&families::Settings::default());
    let orgs = families.iter().find(|family| family.manifest().name == "orgs").expect("the family");
    for definition in (orgs.manifest().definitions)() {
        let at = "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        server.play(&format!("{at}\n  {definition}\n  201")).await;
    }
    with_tiers(server).await
}

async fn with_tiers(server: Server) -> Server {
    server::orgs::tiers::run(server.api.client_as(families::Identity::internal("tiers")), None).await;
    server
}

async fn send(server: &Server, line: &str, body: Value) -> Reply {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    for header in words {
        let (name, value) = header.split_once(':').unwrap();
        request = request.header(name, value);
    }
    server.send(request.body(text.into()).unwrap()).await
}

/// The answer of a request that has to succeed.
async fn done(server: &Server, line: &str, body: Value) -> Value {
    let reply = send(server, line, body).await;
    assert!(reply.code.is_success(), "{line}: {} {}", reply.code, reply.text);
    reply.value
}

/// The code and the numbers of a request that has to be refused for quota.
async fn exceeded(server: &Server, line: &str, body: Value) -> Value {
    let reply = send(server, line, body).await;
    assert_eq!(
        (reply.code, &reply.value["code"]),
        (StatusCode::CONFLICT, &json!("quota_exceeded")),
        "{line}: {}",
        reply.text
    );
    assert_eq!(reply.headers["content-type"], "application/problem+json");
    let details = &reply.value["details"];
    json!([details["dimension"], details["limit"], details["current_usage"], details["requested_delta"]])
}

async fn limit(server: &Server, dimension: &str, limit: Value) {
    let body = json!({"limit": limit, "reason": "a test"});
    done(server, &format!("PUT /v1/orgs/acme/quotas/{dimension}"), body).await;
}

/// An organization with an app, an environment and a release.
async fn shop() -> Server {
    shop_on(server().await).await
}

async fn shop_on(server: Server) -> Server {
    done(&server, "POST /v1/orgs", json!({"id": "acme", "tier": "standard"})).await;
    done(&server, "POST /v1/orgs/acme/apps", json!({"name": "shop"})).await;
    done(&server, "POST /v1/orgs/acme/apps/shop/envs", json!({"name": "prod"})).await;
    let release = json!({"processes": {"web": {"memory_bytes": 134_217_728, "cpu": 0.5}}});
    done(&server, "POST /v1/orgs/acme/apps/shop/releases", release).await;
    server
}

fn scale(desired: i64) -> Value {
    json!({"scales": [{"process_type": "web", "desired": desired}]})
}

async fn usage(server: &Server, dimension: &str) -> Value {
    let usage = done(server, "GET /v1/orgs/acme/usage", Value::Null).await;
    let rows = usage["items"].as_array().unwrap();
    rows.iter().find(|row| row["dimension"] == dimension).unwrap()["usage"].clone()
}

async fn events(server: &Server) -> Vec<Value> {
    done(server, "GET /v1/orgs/acme/events", Value::Null).await["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_scale_beyond_the_limit_is_refused_and_within_it_is_done() {
    let server = shop().await;
    done(&server, &format!("POST {ENV}/deploys"), json!({"release": 1})).await;
    done(&server, &format!("PUT {ENV}/scale"), scale(4)).await;
    limit(&server, "max_instances", json!(5)).await;
    let before = events(&server).await.len();
    let said = exceeded(&server, &format!("PUT {ENV}/scale"), scale(6)).await;
    assert_eq!(said, json!(["max_instances", 5, 4, 2]));
    assert_eq!((events(&server).await.len(), usage(&server, "max_instances").await), (before, json!(4)));
    let audit = done(&server, "GET /v1/orgs/acme/audit", Value::Null).await;
    assert_eq!(audit["items"][0]["reason"], "quota_exceeded:max_instances");
    let metrics = server.send(Request::get("/metrics").body("".into()).unwrap()).await.text;
    assert!(metrics.contains("bursar_org_quota_exceeded_total{dimension=\"max_instances\",endpoint=\"PUT /v1/orgs/{org}/apps/{app}/envs/{env}/scale\"} 1"), "{metrics}");
    let would = done(&server, &format!("PUT {ENV}/scale?dry_run=true"), scale(5)).await;
    assert_eq!((would["dry_run"].clone(), usage(&server, "max_instances").await), (json!(true), json!(4)));
    done(&server, &format!("PUT {ENV}/scale"), scale(5)).await;
    assert_eq!(usage(&server, "max_instances").await, json!(5));
    let last = events(&server).await.pop().unwrap();
    assert_eq!(
        (&last["event_type"], &last["actor_id"], &last["aggregate_id"]),
        (&json!("env.scale_set"), &json!("admin"), &json!("shop.prod"))
    );
    // Everything above the limit is told, in the order of the dimensions.
    limit(&server, "max_total_cpu_request", json!(1)).await;
    let reply = send(&server, &format!("PUT {ENV}/scale"), scale(9)).await;
    let all: Vec<&Value> =
        reply.value["details"]["violations"].as_array().unwrap().iter().map(|one| &one["dimension"]).collect();
    assert_eq!(all, ["max_instances", "max_total_cpu_request"]);
}

#[tokio::test]
async fn a_rollout_that_cannot_surge_drains_first_or_is_refused() {
    let server = shop().await;
    done(&server, &format!("POST {ENV}/deploys"), json!({"release": 1})).await;
    done(&server, &format!("PUT {ENV}/scale"), scale(3)).await;
    limit(&server, "max_instances", json!(3)).await;
    let deploy = done(&server, &format!("POST {ENV}/deploys"), json!({"release": 1})).await;
    assert_eq!(deploy["processes"]["web"]["mode"], "drain_first");
    assert!(
        deploy["message"].as_str().unwrap().contains("reason=org_quota_exceeded:max_instances limit=3"),
        "{deploy}"
    );
    done(&server, "PUT /v1/orgs/acme/policy", json!({"surge_policy": "reject"})).await;
    let said = exceeded(&server, &format!("POST {ENV}/deploys"), json!({"release": 1})).await;
    assert_eq!(said, json!(["max_instances", 3, 3, 1]));
    limit(&server, "max_instances", json!(4)).await;
    let deploy = done(&server, &format!("POST {ENV}/deploys"), json!({"release": 1})).await;
    assert_eq!(deploy["message"], "rollout_mode=surge");
}

#[tokio::test]
async fn volumes_and_addresses_are_limited() {
    let server = shop().await;
    limit(&server, "max_total_volume_bytes", json!(10_737_418_240_i64)).await;
    done(&server, "POST /v1/orgs/acme/volumes", json!({"size_bytes": 8_589_934_592_i64})).await;
    let said = exceeded(&server, "POST /v1/orgs/acme/volumes", json!({"size_bytes": 3_221_225_472_i64})).await;
    assert_eq!(said, json!(["max_total_volume_bytes", 10_737_418_240_i64, 8_589_934_592_i64, 3_221_225_472_i64]));
    let made = send(&server, "POST /v1/orgs/acme/volumes", json!({"size_bytes": 2_147_483_648_i64})).await;
    assert_eq!(made.code, StatusCode::CREATED);

    limit(&server, "max_ipv4_allocations", json!(1)).await;
    done(&server, "POST /v1/orgs/acme/apps/shop/envs", json!({"name": "test"})).await;
    let test = "/v1/orgs/acme/apps/shop/envs/test/networking/ipv4";
    done(&server, &format!("POST {ENV}/networking/ipv4"), Value::Null).await;
    assert_eq!(exceeded(&server, &format!("POST {test}"), Value::Null).await, json!(["max_ipv4_allocations", 1, 1, 1]));
    let again = send(&server, &format!("POST {ENV}/networking/ipv4"), Value::Null).await;
    assert_eq!(again.code, StatusCode::OK);
    done(&server, &format!("DELETE {ENV}/networking/ipv4"), Value::Null).await;
    done(&server, &format!("POST {test}"), Value::Null).await;
}

/// Ten thousand times two want what only one can have, each a few turns of the threads earlier or later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_race_one_is_told_why_it_lost() {
    const ROUNDS: u32 = 10_000;
    let server = std::sync::Arc::new(shop().await);
    for env in ["a", "b"] {
        done(&server, "POST /v1/orgs/acme/apps/shop/envs", json!({"name": env})).await;
        done(&server, &format!("POST /v1/orgs/acme/apps/shop/envs/{env}/deploys"), json!({"release": 1})).await;
        done(&server, &format!("PUT /v1/orgs/acme/apps/shop/envs/{env}/scale"), scale(0)).await;
    }
    limit(&server, "max_instances", json!(5)).await;
    let policy = rules::policy_name(&families::orgs::names::ORGS.resource(), "acme", "acme");
    let used = || {
        let lines = families::Balances::of(&*server.api.parts().cache, &policy);
        lines
            .iter()
            .find(|line| &*line.resource == "max_instances")
            .map(|line| line.balance.used.nanos() / 1_000_000_000)
    };
    // Numbers that look random and are the same in every run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut won = [0_u32; 2];
    for round in 0..ROUNDS {
        let race = ["a", "b"].map(|env| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (turns, server) = ((state >> 60) % 6, std::sync::Arc::clone(&server));
            tokio::spawn(async move {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                send(&server, &format!("PUT /v1/orgs/acme/apps/shop/envs/{env}/scale"), scale(4)).await
            })
        });
        let replies = futures::future::join_all(race).await.into_iter().map(|reply| reply.expect("an answer"));
        let replies: Vec<Reply> = replies.collect();
        let winner = replies.iter().position(|reply| reply.code == StatusCode::OK).expect("one has it");
        let lost = &replies[1 - winner];
        let details = &lost.value["details"];
        let said = [&details["dimension"], &details["limit"], &details["current_usage"], &details["requested_delta"]];
        assert_eq!(
            (lost.code, said),
            (StatusCode::CONFLICT, [&json!("max_instances"), &json!(5), &json!(4), &json!(4)]),
            "{round}: {}",
            lost.text
        );
        assert_eq!(used(), Some(4), "{round}");
        won[winner] += 1;
        let env = ["a", "b"][winner];
        done(&server, &format!("PUT /v1/orgs/acme/apps/shop/envs/{env}/scale"), scale(0)).await;
    }
    assert!(won.iter().all(|times| *times > ROUNDS / 20), "either comes first at times: {won:?}");
}

/// Without a definition nothing of its kind could be written any more, and what there is of it not be deleted either.
#[tokio::test]
async fn what_defines_the_kinds_of_organizations_stays() {
    let server = shop().await;
    for (_, plural) in families::orgs::names::KINDS {
        let definition = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}.{}", plural.1, plural.0);
        let refused = send(&server, &format!("DELETE {definition}"), Value::Null).await;
        assert_eq!(refused.code, StatusCode::FORBIDDEN, "{}", refused.text);
        let there = done(&server, &format!("GET {definition}"), Value::Null).await;
        assert!(there["metadata"]["deletionTimestamp"].is_null(), "{there}");
    }
    done(&server, "POST /v1/orgs/acme/apps", json!({"name": "another"})).await;
}

/// Who may read the organization reads the row of a key, and learns nothing of what was asked for under it.
#[tokio::test]
async fn nobody_guesses_a_secret_from_the_row_of_a_key() {
    let server = shop().await;
    let line = format!("PUT {ENV}/secrets Idempotency-Key:once");
    done(&server, &line, json!({"secrets": {"PIN": "1234"}})).await;
    let rows = done(&server, "GET /apis/orgs.bursar.dev/v1/namespaces/acme/idempotencykeys", Value::Null).await;
    let spec = &rows["items"][0]["spec"];
    assert!(!spec.to_string().contains("1234"), "{spec}");
    // What anybody can compute of all that was sent, for every value it may have had.
    let stored = spec["request_hash"].as_str().unwrap();
    let digest = |parts: &[&str]| -> String {
        let framed: Vec<u8> =
            parts.iter().flat_map(|part| [&part.len().to_le_bytes()[..], part.as_bytes()].concat()).collect();
        aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &framed)
            .as_ref()
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect()
    };
    let path = "/v1/orgs/{org}/apps/{app}/envs/{env}/secrets";
    let names = std::collections::BTreeMap::from([("app", "shop"), ("env", "prod"), ("org", "acme")]);
    let what = format!("PUT {:?}", (path, &names));
    assert_ne!(stored, digest(&[&what, &json!({"secrets": {"PIN": "1234"}}).to_string()]));
    // And yet other secrets are another request.
    let other = send(&server, &line, json!({"secrets": {"PIN": "1235"}})).await;
    assert_eq!(other.value["code"], "idempotency_key_reuse", "{}", other.text);
    let same = send(&server, &line, json!({"secrets": {"PIN": "1234"}})).await;
    assert_eq!((same.code, &same.headers["idempotency-replayed"]), (StatusCode::CREATED, &"true".parse().unwrap()));
}

/// Long rows come in pages of some megabytes, and nothing is left out or told twice.
#[tokio::test]
async fn what_is_listed_comes_in_pages_of_some_megabytes() {
    let server = shop().await;
    let command = vec!["x".repeat(4000); 30];
    for _ in 0..50 {
        let release = json!({"processes": {"web": {"memory_bytes": 1, "command": command}}});
        done(&server, "POST /v1/orgs/acme/apps/shop/releases", release).await;
    }
    for (path, all) in [
        ("/v1/orgs/acme/apps/shop/releases", 51),
        ("/v1/orgs/acme/events", 105),
        ("/v1/events", 105),
        ("/v1/views", 54),
    ] {
        let (mut seen, mut after, mut pages) = (std::collections::BTreeSet::new(), String::new(), 0);
        loop {
            let page = send(&server, &format!("GET {path}{after}"), Value::Null).await;
            assert_eq!(page.code, StatusCode::OK, "{path}: {}", page.text);
            assert!(page.text.len() < 5 << 20, "{path}: {} bytes", page.text.len());
            pages += 1;
            for one in page.value["items"].as_array().unwrap() {
                let id = format!("{}/{}/{}", one["event_id"], one["kind"], one["id"]);
                assert!(seen.insert(id), "{path}: {} is told twice", one["id"]);
            }
            match page.value["next"].as_str() {
                Some(next) => after = format!("?after={next}"),
                None => break,
            }
        }
        assert_eq!(seen.len(), all, "{path}");
        assert!(pages > 1, "{path}: {pages}");
    }
    let few = done(&server, "GET /v1/views?limit=2", Value::Null).await;
    assert_eq!(few["items"].as_array().map(Vec::len), Some(2));
    let last = done(&server, "GET /v1/events?after=100", Value::Null).await;
    let last = last["items"].as_array().unwrap().last().unwrap()["event_id"].clone();
    assert_eq!(few["as_of_event_id"], last, "views say which events they are made of");
}

/// What is stored for as long as nobody deletes it is bounded by its length, too.
#[tokio::test]
async fn records_take_no_more_than_their_bytes() {
    let server = shop().await;
    let command = vec!["x".repeat(4090); 46];
    let release = || json!({"processes": {"web": {"memory_bytes": 1, "command": command}}});
    let mut made = 1_i64;
    let refused = loop {
        let reply = send(&server, "POST /v1/orgs/acme/apps/shop/releases", release()).await;
        if reply.code != StatusCode::CREATED {
            break reply;
        }
        made += 1;
        assert!(made < 500, "there is no end of it");
    };
    assert_eq!((refused.code, &refused.value["code"]), (StatusCode::CONFLICT, &json!("too_many_records")));
    assert!(made > 300, "{made}");
    done(&server, "DELETE /v1/orgs/acme/apps/shop/releases/2", Value::Null).await;
    done(&server, "POST /v1/orgs/acme/apps/shop/releases", release()).await;
}

#[tokio::test]
async fn a_key_is_used_once_and_a_version_is_the_expected_one() {
    let server = shop().await;
    let line = "POST /v1/orgs/acme/apps Idempotency-Key:k1";
    let first = send(&server, line, json!({"name": "blog"})).await;
    assert_eq!(first.code, StatusCode::CREATED);
    limit(&server, "max_apps", json!(2)).await;
    let again = send(&server, line, json!({"name": "blog"})).await;
    assert_eq!((again.code, &again.value), (StatusCode::CREATED, &first.value));
    assert_eq!(again.headers["idempotency-replayed"], "true");
    let other = send(&server, line, json!({"name": "wiki"})).await;
    assert_eq!((other.code, &other.value["code"]), (StatusCode::CONFLICT, &json!("idempotency_key_reuse")));
    // A refusal is not remembered: with room, the same request is done.
    let full = send(&server, "POST /v1/orgs/acme/apps Idempotency-Key:k2", json!({"name": "wiki"})).await;
    assert_eq!(full.value["code"], "quota_exceeded");
    limit(&server, "max_apps", json!(3)).await;
    let fits = send(&server, "POST /v1/orgs/acme/apps Idempotency-Key:k2", json!({"name": "wiki"})).await;
    assert_eq!(fits.code, StatusCode::CREATED);
    let env = done(&server, &format!("GET {ENV}"), Value::Null).await;
    let version = env["version"].as_i64().unwrap();
    let stale = send(&server, &format!("POST {ENV}/networking/ipv4 If-Match:\"{}\"", version + 1), Value::Null).await;
    assert_eq!((stale.code, &stale.value["code"]), (StatusCode::CONFLICT, &json!("version_conflict")));
    done(&server, &format!("POST {ENV}/networking/ipv4 If-Match:\"{version}\""), Value::Null).await;
    // Of many with one key, one is done and the others hear the same.
    let line = "POST /v1/orgs/acme/volumes Idempotency-Key:v1";
    let all = futures::future::join_all((0..8).map(|_| send(&server, line, json!({"size_bytes": 1 << 30})))).await;
    assert!(all.iter().all(|reply| reply.value["id"] == all[0].value["id"]), "{}", all[0].text);
    assert_eq!(usage(&server, "max_volumes").await, json!(1));
}

#[tokio::test]
async fn mistakes_are_named_and_change_nothing() {
    let server = shop().await;
    let before = events(&server).await.len();
    for (line, body, code, word) in [
        ("POST /v1/orgs/acme/apps", json!({"name": "A b"}), 400, "invalid_argument"),
        ("POST /v1/orgs/acme/apps", json!({"nam": "a"}), 400, "invalid_argument"),
        ("POST /v1/orgs/acme/apps", json!([1]), 400, "invalid_argument"),
        ("POST /v1/orgs/acme/apps", json!({"name": "shop"}), 409, "app_name_exists"),
        ("POST /v1/orgs/nobody/apps", json!({"name": "a"}), 404, "not_found"),
        (
            "PUT /v1/orgs/acme/apps/shop/envs/prod/scale",
            json!({"scales": [{"process_type": "web", "desired": 1}]}),
            400,
            "invalid_argument",
        ),
        ("PUT /v1/orgs/acme/quotas/max_pods", json!({"limit": 1, "reason": "x"}), 404, "not_found"),
        ("PUT /v1/orgs/acme/quotas/max_apps", json!({"limit": -1, "reason": "x"}), 400, "invalid_argument"),
        ("DELETE /v1/orgs/acme/apps/shop", Value::Null, 409, "app_not_empty"),
        ("GET /v1/orgs/acme/nothing", Value::Null, 404, "not_found"),
        ("PATCH /v1/orgs/acme/apps", Value::Null, 405, "method_not_allowed"),
        ("POST /v1/orgs/acme/volumes", json!({"size_bytes": 5}), 400, "invalid_argument"),
        ("POST /v1/orgs", json!({"id": "acme"}), 409, "org_exists"),
        ("POST /v1/orgs", json!({"id": "x", "tier": "gold"}), 400, "invalid_argument"),
    ] {
        let reply = send(&server, line, body).await;
        assert_eq!((reply.code.as_u16(), reply.value["code"].as_str()), (code, Some(word)), "{line}: {}", reply.text);
        assert_eq!(reply.value["status"], code);
        assert!(reply.value["request_id"].is_string());
    }
    let broken = server.send(Request::post("/v1/orgs/acme/apps").body("{".into()).unwrap()).await;
    assert_eq!(broken.code, StatusCode::BAD_REQUEST);
    assert_eq!(events(&server).await.len(), before);
}

#[tokio::test]
async fn views_are_what_the_events_say_and_the_document_is_served() {
    let server = shop().await;
    done(&server, &format!("POST {ENV}/deploys"), json!({"release": 1})).await;
    done(&server, &format!("PUT {ENV}/secrets"), json!({"secrets": {"TOKEN": "hush"}})).await;
    done(&server, &format!("POST {ENV}/routes"), json!({"hostname": "shop.example.com"})).await;
    let node = json!({"allocatable_memory_bytes": 1_i64 << 34, "cpu_cores": 4});
    done(&server, "PUT /v1/nodes/n1", node).await;
    let instance = json!({"app": "shop", "env": "prod", "process_type": "web", "node": "n1"});
    done(&server, "POST /v1/orgs/acme/instances", instance).await;
    let told = done(&server, "GET /v1/events", Value::Null).await["items"].as_array().unwrap().clone();
    assert!(!json!(told).to_string().contains("hush"));
    let views = done(&server, "GET /v1/views", Value::Null).await;
    let rebuilt = families::orgs::commands::rebuild(&told);
    assert!(rebuilt.gaps.is_empty(), "{:?}", rebuilt.gaps);
    let live = views["items"].as_array().unwrap();
    assert_eq!(rebuilt.views.len(), live.len());
    for view in live {
        let id = view["id"].as_str().unwrap();
        let same = rebuilt.views.iter().any(|((_, org, name), state)| {
            name == id && org.as_str() == view["org_id"].as_str().unwrap() && *state == view["state"]
        });
        assert!(same, "{view}");
    }
    let document = done(&server, "GET /openapi/orgs.json", Value::Null).await;
    assert!(document["paths"]["/v1/orgs/{org}/apps"]["post"]["responses"]["409"].is_object());
}

#[tokio::test]
async fn the_kubernetes_api_shows_organizations_and_writes_none() {
    let server = shop().await;
    let org = done(&server, "GET /apis/orgs.bursar.dev/v1/namespaces/acme/orgs/acme", Value::Null).await;
    let apps = org["status"]["usage"].as_array().unwrap().iter().find(|row| row["dimension"] == "max_apps").unwrap();
    assert_eq!(
        (&apps["usage"], &apps["limit"], &apps["limit_source"]),
        (&json!(1), &json!(20), &json!("tier:standard"))
    );
    let path = "/apis/orgs.bursar.dev/v1/namespaces/acme/apps/shop";
    let refused = send(&server, &format!("DELETE {path}"), Value::Null).await;
    assert_eq!(refused.code, StatusCode::FORBIDDEN, "{}", refused.text);
    let mut wider = org.clone();
    wider["spec"]["overrides"] = json!({"max_apps": {"limit": 1000}});
    let refused = send(&server, "PUT /apis/orgs.bursar.dev/v1/namespaces/acme/orgs/acme", wider).await;
    assert_eq!(refused.code, StatusCode::FORBIDDEN, "{}", refused.text);
}

#[tokio::test]
async fn an_organization_leaves_by_a_command_alone_and_its_status_is_the_platforms() {
    let server = shop().await;
    let before = done(&server, "GET /v1/views", Value::Null).await["items"].clone();
    let gone = send(&server, "DELETE /api/v1/namespaces/acme", Value::Null).await;
    assert_eq!(gone.code, StatusCode::FORBIDDEN, "{}", gone.text);
    let kinds = "/apis/orgs.bursar.dev/v1/namespaces/acme";
    for (at, status) in [
        ("envs/shop.prod", json!({"groups": [{"process_type": "web", "unschedulable_reason": "forged"}]})),
        ("orgs/acme", json!({"usage": [], "warnings": {"max_apps": 95}})),
    ] {
        let request = Request::builder().method("PATCH").uri(format!("{kinds}/{at}/status"));
        let request = request.header("content-type", "application/merge-patch+json");
        let body = json!({"status": status}).to_string();
        let refused = server.send(request.body(body.into()).unwrap()).await;
        assert_eq!(refused.code, StatusCode::FORBIDDEN, "{at}: {}", refused.text);
    }
    assert_eq!(done(&server, "GET /v1/views", Value::Null).await["items"], before);
    let status = done(&server, &format!("GET {ENV}/status"), Value::Null).await;
    assert!(!status.to_string().contains("forged"), "{status}");
}

/// That there was nothing to do is an answer as any other: whoever sends it again, late, undoes nothing.
#[tokio::test]
async fn a_command_that_changed_nothing_is_not_done_later_under_its_key() {
    let server = shop().await;
    let enable = format!("POST {ENV}/networking/ipv4");
    done(&server, &enable, Value::Null).await;
    let keyed = format!("{enable} Idempotency-Key:late");
    let first = done(&server, &keyed, Value::Null).await;
    done(&server, &format!("DELETE {ENV}/networking/ipv4"), Value::Null).await;
    let again = send(&server, &keyed, Value::Null).await;
    assert_eq!((again.code, &again.value), (StatusCode::OK, &first), "{}", again.text);
    assert_eq!(again.headers["idempotency-replayed"], "true");
    let env = done(&server, &format!("GET {ENV}"), Value::Null).await;
    assert_eq!(env["ipv4"]["enabled"], false, "it stays disabled");
    let other = send(&server, &format!("PUT {ENV}/scale Idempotency-Key:late"), json!({"scales": []})).await;
    assert_eq!((other.code, &other.value["code"]), (StatusCode::CONFLICT, &json!("idempotency_key_reuse")));
}
