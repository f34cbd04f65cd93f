//! Two who want the last room at the same moment, ten thousand times: never more than there is, and the one who loses is told why.

use std::sync::Arc;

use http::{Request, StatusCode};
use serde_json::{Value, json};

use super::{done, scale, server};
use crate::harness::{Reply, Server};

const LANES: u64 = 8;
const ROUNDS: u64 = 10_000 / LANES;
const LIMIT: i64 = 5;

/// xorshift: moments need no better.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn env(org: &str, env: &str) -> String {
    format!("/v1/orgs/{org}/apps/shop/envs/{env}")
}

/// An organization with two environments that run nothing.
async fn two_envs(server: &Server, org: &str) {
    done(server, "POST /v1/orgs", json!({"id": org, "tier": "standard"})).await;
    done(server, &format!("POST /v1/orgs/{org}/apps"), json!({"name": "shop"})).await;
    let release = json!({"processes": {"web": {"memory_bytes": 1 << 20, "cpu": 0.25}}});
    done(server, &format!("POST /v1/orgs/{org}/apps/shop/releases"), release).await;
    for name in ["prod", "test"] {
        done(server, &format!("POST /v1/orgs/{org}/apps/shop/envs"), json!({"name": name})).await;
        done(server, &format!("POST {}/deploys", env(org, name)), json!({"release": 1})).await;
        done(server, &format!("PUT {}/scale", env(org, name)), scale(0)).await;
    }
    let limit = json!({"limit": LIMIT, "reason": "a race"});
    done(server, &format!("PUT /v1/orgs/{org}/quotas/max_instances"), limit).await;
}

async fn ask(server: Arc<Server>, path: String, desired: i64, later: u64) -> Reply {
    for _ in 0..later {
        tokio::task::yield_now().await;
    }
    let request = Request::put(format!("{path}/scale")).header("content-type", "application/json");
    server.send(request.body(scale(desired).to_string().into()).expect("a request")).await
}

async fn lane(server: Arc<Server>, number: u64) -> [u64; 2] {
    let (org, mut chance) = (format!("o{number}"), Chance(0x9e37_79b9 + number));
    two_envs(&server, &org).await;
    let mut won = [0; 2];
    for round in 0..ROUNDS {
        let wanted = [0; 2].map(|_: i64| 3 + i64::try_from(chance.below(3)).expect("a small number"));
        let racer = |at: usize, later: u64| {
            let path = env(&org, ["prod", "test"][at]);
            tokio::spawn(ask(Arc::clone(&server), path, wanted[at], later))
        };
        let (first, second) = (racer(0, chance.below(6)), racer(1, chance.below(6)));
        let answers = [first.await.expect("an answer"), second.await.expect("an answer")];
        let winner = answers.iter().position(|one| one.code == StatusCode::OK).expect("one of them wins");
        let lost = &answers[1 - winner];
        assert_eq!((lost.code, &lost.value["code"]), (StatusCode::CONFLICT, &json!("quota_exceeded")), "{}", lost.text);
        let details = &lost.value["details"];
        let said = json!([details["limit"], details["current_usage"], details["requested_delta"]]);
        assert_eq!(said, json!([LIMIT, wanted[winner], wanted[1 - winner]]), "{org} {round}");
        won[winner] += 1;
        done(&server, &format!("PUT {}/scale", env(&org, ["prod", "test"][winner])), scale(0)).await;
    }
    let usage = done(&server, &format!("GET /v1/orgs/{org}/usage"), Value::Null).await;
    assert_eq!(usage["items"][0]["usage"], 0, "{usage}");
    won
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_scale_ups_one_wins_ten_thousand_times() {
    let server = Arc::new(server().await);
    let lanes: Vec<_> = (0..LANES).map(|number| tokio::spawn(lane(Arc::clone(&server), number))).collect();
    let mut won = [0, 0];
    for lane in lanes {
        let own = lane.await.expect("a lane ends");
        (won[0], won[1]) = (won[0] + own[0], won[1] + own[1]);
    }
    assert_eq!(won[0] + won[1], LANES * ROUNDS);
    assert!(won.iter().all(|times| *times > 100), "both come first now and then: {won:?}");
}
