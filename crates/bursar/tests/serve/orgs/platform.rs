//! A platform under test: the server with its scheduler, nodes with an agent, and requests that survive kills.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::harness::{PATIENCE, Server};

/// Between two looks at what happens by itself.
pub const LOOK: Duration = Duration::from_millis(50);

pub struct Platform {
    pub server: Server,
    pub client: Client,
    /// Whether the server is killed while commands that are [`Platform::struck`] are under way.
    kills: bool,
    random: u64,
    agent: tokio::task::JoinHandle<()>,
    keys: Arc<AtomicU64>,
}

impl Drop for Platform {
    fn drop(&mut self) {
        self.agent.abort();
    }
}

/// What was answered: a status code and a document.
pub type Answer = (u16, Value);

pub async fn client_of(server: &Server) -> Client {
    server::tls::install_provider();
    let kubeconfig = kube::config::Kubeconfig::read_from(server.kubeconfig()).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("a configuration");
    Client::try_from(config).expect("a client")
}

/// One request; nothing where the connection broke.
pub async fn try_send(client: &Client, line: &str, body: &Value, key: Option<&str>) -> Option<Answer> {
    let (method, path) = line.split_once(' ').expect("a method and a path");
    let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let response = client.send(request.body(Body::from(bytes)).expect("a request")).await.ok()?;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await.ok()?;
    Some((code, serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)))))
}

/// Asks until there is an answer: a server that was killed comes back.
async fn send_until(client: &Client, line: &str, body: &Value, key: Option<&str>) -> Answer {
    let start = Instant::now();
    loop {
        match try_send(client, line, body, key).await {
            Some((503, _)) | None => assert!(start.elapsed() < PATIENCE, "{line} is never answered"),
            Some(answer) => return answer,
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What nodes do: they are alive, start what is to run, and stop what is to stop.
async fn play_nodes(client: Client, nodes: Vec<&'static str>) {
    loop {
        for node in &nodes {
            try_send(&client, &format!("POST /v1/nodes/{node}/heartbeat"), &Value::Null, None).await;
        }
        let listed = try_send(&client, "GET /v1/orgs/acme/instances", &Value::Null, None).await;
        let items = listed.and_then(|(_, list)| list["items"].as_array().cloned()).unwrap_or_default();
        for one in items {
            let wanted = if one["desired_state"] == "running" { "ready" } else { "stopped" };
            let is_ours = nodes.iter().any(|node| one["node"] == *node);
            if is_ours && one["reported"]["status"] != wanted {
                let id = one["id"].as_str().unwrap_or_default();
                let line = format!("PUT /v1/orgs/acme/instances/{id}/status");
                try_send(&client, &line, &json!({"status": wanted, "node": one["node"]}), None).await;
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

impl Platform {
    /// Organization `acme` with app `shop`, environment `prod` and a first release, on these nodes.
    pub async fn start(nodes: &[&'static str], kills: bool) -> Platform {
        Platform::on(Server::start(), nodes, kills).await
    }

    /// The same on a server that was started otherwise.
    pub async fn on(server: Server, nodes: &[&'static str], kills: bool) -> Platform {
        let client = client_of(&server).await;
        let agent = tokio::spawn(play_nodes(client.clone(), nodes.to_vec()));
        let keys = Arc::new(AtomicU64::new(0));
        let mut platform = Platform { server, client, kills, random: 0x9e37_79b9, agent, keys };
        // The tiers are there a moment after the server is.
        let org = json!({"id": "acme", "tier": "standard"});
        platform.until("POST /v1/orgs", &org, |answer| matches!(answer.0, 201 | 409)).await;
        for node in nodes {
            platform.node(node).await;
        }
        platform.done("POST /v1/orgs/acme/apps", json!({"name": "shop"})).await;
        platform.env("prod").await;
        platform.release(64 << 20).await;
        platform
    }

    pub async fn node(&mut self, node: &str) {
        let capacity = json!({"allocatable_memory_bytes": 8_i64 << 30, "cpu_cores": 4});
        self.done(&format!("PUT /v1/nodes/{node}"), capacity).await;
        self.done(&format!("POST /v1/nodes/{node}/heartbeat"), Value::Null).await;
    }

    pub async fn env(&mut self, name: &str) {
        self.done("POST /v1/orgs/acme/apps/shop/envs", json!({"name": name})).await;
    }

    pub async fn release(&mut self, memory: i64) {
        let release = json!({"processes": {"web": {"memory_bytes": memory, "cpu": 0.25}}});
        self.done("POST /v1/orgs/acme/apps/shop/releases", release).await;
    }

    pub fn random(&mut self, below: u64) -> u64 {
        // xorshift: timing needs no better.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    pub async fn send(&mut self, line: &str, body: Value) -> Answer {
        // What is said of nodes has no key.
        let key = (!line.contains(" /v1/nodes")).then(|| self.key());
        send_until(&self.client, line, &body, key.as_deref()).await
    }

    fn key(&self) -> String {
        format!("key-{}", self.keys.fetch_add(1, Ordering::Relaxed))
    }

    /// A command that has to succeed.
    pub async fn done(&mut self, line: &str, body: Value) -> Value {
        let (code, answer) = self.send(line, body).await;
        assert!((200..300).contains(&code), "{line}: {code} {answer}");
        answer
    }

    pub async fn get(&mut self, path: &str) -> Value {
        self.done(&format!("GET {path}"), Value::Null).await
    }

    /// A command in the middle of which the server is killed: it is sent, the process ends at a random moment, and the same
    /// command with the same key is sent to the one that starts. Without kills it is a command like any other.
    pub async fn struck(&mut self, line: &str, body: Value) -> Answer {
        let [answer] = self.struck_all([(line.to_owned(), body)]).await;
        answer
    }

    /// The same of several that are under way at once.
    pub async fn struck_all<const N: usize>(&mut self, commands: [(String, Value); N]) -> [Answer; N] {
        let commands = commands.map(|(line, body)| (line, body, self.key()));
        let sent = commands.clone().map(|(line, body, key)| {
            let client = self.client.clone();
            let first = async move { try_send(&client, &line, &body, Some(&key)).await };
            tokio::spawn(first)
        });
        if self.kills {
            let moment = Duration::from_micros(self.random(12_000));
            tokio::time::sleep(moment).await;
            self.kill();
        }
        let mut answers = Vec::new();
        for ((line, body, key), first) in commands.into_iter().zip(sent) {
            let heard = first.await.expect("the request ends");
            let again = match heard.clone().filter(|_| !self.kills) {
                Some(answer) => answer,
                None => send_until(&self.client, &line, &body, Some(&key)).await,
            };
            // What was heard is durable: whoever heard of success hears of the same success.
            if let Some((code, answer)) = heard.filter(|(code, _)| (200..300).contains(code)) {
                assert_eq!((code, answer), again, "{line}");
            }
            answers.push(again);
        }
        answers.try_into().expect("as many answers as commands")
    }

    /// Ends the process without warning and starts it again, where kills are wanted.
    pub fn kill(&mut self) {
        if self.kills {
            tokio::task::block_in_place(|| self.server.kill_and_restart());
        }
    }

    /// A command that has to be refused for quota: dimension, limit, usage, and what was asked for.
    pub async fn exceeded(&mut self, line: &str, body: Value) -> Value {
        let (code, answer) = self.struck(line, body).await;
        assert_eq!((code, &answer["code"]), (409, &json!("quota_exceeded")), "{line}: {answer}");
        let details = &answer["details"];
        json!([details["dimension"], details["limit"], details["current_usage"], details["requested_delta"]])
    }

    pub async fn limit(&mut self, dimension: &str, limit: i64) {
        let body = json!({"limit": limit, "reason": "a test"});
        self.done(&format!("PUT /v1/orgs/acme/quotas/{dimension}"), body).await;
    }

    pub async fn until(&mut self, line: &str, body: &Value, wanted: impl Fn(&Answer) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let answer = send_until(&self.client, line, body, None).await;
            if wanted(&answer) {
                return answer.1;
            }
            assert!(start.elapsed() < PATIENCE, "{line} never answered as wanted, last: {answer:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// How much of a dimension is used, and how much of that is allocated.
    pub async fn usage(&mut self, dimension: &str) -> (i64, i64) {
        let usage = self.get("/v1/orgs/acme/usage").await;
        let rows = usage["items"].as_array().cloned().unwrap_or_default();
        let row = rows.into_iter().find(|row| row["dimension"] == dimension).expect("the dimension");
        (row["usage"].as_i64().expect("a number"), row["counted"].as_i64().expect("a number"))
    }

    /// Waits until so many instances of an environment run and are ready, and its rollouts have ended.
    pub async fn until_ready(&mut self, env: &str, count: usize) -> Vec<Value> {
        let deploys = format!("GET /v1/orgs/acme/apps/shop/envs/{env}/deploys");
        self.until(&deploys, &Value::Null, |(_, list)| {
            let mut all = list["items"].as_array().into_iter().flatten();
            all.all(|one| one["state"] == "succeeded" || one["state"] == "failed")
        })
        .await;
        let list = self
            .until("GET /v1/orgs/acme/instances", &Value::Null, |(_, list)| {
                let ready = list["items"].as_array().into_iter().flatten().filter(|one| {
                    one["env"] == env && one["desired_state"] == "running" && one["reported"]["status"] == "ready"
                });
                ready.count() == count
            })
            .await;
        let all = list["items"].as_array().cloned().unwrap_or_default();
        all.into_iter().filter(|one| one["env"] == env && one["desired_state"] == "running").collect()
    }

    /// All events of the organization so far.
    pub async fn events(&mut self) -> Vec<Value> {
        let (mut events, mut after) = (Vec::new(), String::from("0"));
        loop {
            let page = self.get(&format!("/v1/orgs/acme/events?after={after}")).await;
            events.extend(page["items"].as_array().cloned().unwrap_or_default());
            match page["next"].as_str() {
                Some(next) => after = next.to_owned(),
                None => return events,
            }
        }
    }

    pub async fn told(&mut self, kind: &str) -> Vec<Value> {
        self.events().await.into_iter().filter(|event| event["event_type"] == kind).collect()
    }
}

pub fn scale(desired: i64) -> Value {
    json!({"scales": [{"process_type": "web", "desired": desired}]})
}

pub fn of_env(env: &str, what: &str) -> String {
    format!("/v1/orgs/acme/apps/shop/envs/{env}/{what}")
}
