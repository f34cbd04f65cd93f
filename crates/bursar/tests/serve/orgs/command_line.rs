//! Organizations with the real binary: `bursar orgs`, the scheduler with an agent for a node, and kills in between.

use std::process::{Command, Output};
use std::time::Instant;

use serde_json::Value;

use crate::harness::{PATIENCE, Server};

pub fn orgs(server: &Server, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.arg("orgs").args(words).env("KUBECONFIG", server.kubeconfig());
    command.output().expect("bursar runs")
}

/// What a command answers that has to succeed.
fn done(server: &Server, words: &[&str]) -> Value {
    let output = orgs(server, words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

/// Asks until it is as wanted. What a killed server cannot answer is asked again.
fn until(server: &Server, words: &[&str], wanted: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let output = orgs(server, words);
        let value: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        if output.status.success() && wanted(&value) {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "{words:?} never answered as wanted, last: {value}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

const IN_PROD: [&str; 6] = ["--org", "acme", "--app", "shop", "--env", "prod"];

fn in_prod<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&[name][..], &IN_PROD, more].concat()
}

/// The agent of a node: alive, and everything does as it is told.
fn agent(server: &Server) -> usize {
    done(server, &["heartbeat", "--node", "n1"]);
    let instances = done(server, &["list-instances", "--org", "acme"]);
    let mut ready = 0;
    for one in instances["items"].as_array().into_iter().flatten() {
        let id = one["id"].as_str().expect("an id");
        let wanted = if one["desired_state"] == "running" { "ready" } else { "stopped" };
        ready += usize::from(wanted == "ready");
        if one["reported"]["status"] != wanted {
            // It may be gone by now.
            orgs(server, &["report-instance", "--org", "acme", "--instance", id, "--status", wanted]);
        }
    }
    ready
}

fn until_ready(server: &Server, count: usize) {
    let start = Instant::now();
    while agent(server) != count {
        assert!(start.elapsed() < PATIENCE, "there are never {count} instances");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

fn usage(server: &Server, dimension: &str) -> i64 {
    let usage = done(server, &["usage", "--org", "acme"]);
    let rows = usage["items"].as_array().expect("rows");
    rows.iter().find(|row| row["dimension"] == dimension).and_then(|row| row["usage"].as_i64()).expect("a number")
}

#[test]
fn an_organization_is_scheduled_limited_and_rebuilt_through_kills() {
    let mut server = Server::start();
    until(&server, &["create-org", "--id", "acme", "--tier", "free"], |org| org["id"] == "acme");
    done(&server, &["register-node", "--node", "n1", "--allocatable-memory-bytes", "8589934592", "--cpu-cores", "4"]);
    done(&server, &["create-app", "--org", "acme", "--name", "shop"]);
    done(&server, &["create-env", "--org", "acme", "--app", "shop", "--name", "prod"]);
    let release = "{\"web\": {\"memory_bytes\": 67108864, \"cpu\": 0.25}}";
    done(&server, &["create-release", "--org", "acme", "--app", "shop", "--processes", release]);
    done(&server, &in_prod("create-deploy", &["--release", "1"]));
    server.kill_and_restart();
    let scale = |count: i64| format!("[{{\"process_type\": \"web\", \"desired\": {count}}}]");
    done(&server, &in_prod("set-scale", &["--scales", &scale(4)]));
    until_ready(&server, 4);
    server.kill_and_restart();
    assert_eq!(usage(&server, "max_instances"), 4);
    let refused = orgs(&server, &in_prod("set-scale", &["--scales", &scale(6)]));
    assert_eq!(refused.status.code(), Some(5));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("max_instances: limit 5, current usage 4, requested 2"), "{said}");
    let would = done(&server, &in_prod("set-scale", &["--scales", &scale(5), "--dry-run"]));
    assert_eq!(would["dry_run"], true);
    done(&server, &in_prod("set-scale", &["--scales", &scale(5), "--idempotency-key", "once"]));
    server.kill_and_restart();
    done(&server, &in_prod("set-scale", &["--scales", &scale(5), "--idempotency-key", "once"]));
    until_ready(&server, 5);
    // At the limit a rollout drains first, and goes on where it was after a kill.
    let deploy = done(&server, &["create-release", "--org", "acme", "--app", "shop", "--processes", release]);
    assert_eq!(deploy["number"], 2);
    let deploy = done(&server, &in_prod("create-deploy", &["--release", "2"]));
    assert!(deploy["message"].as_str().expect("a message").starts_with("rollout_mode=drain_first"), "{deploy}");
    agent(&server);
    server.kill_and_restart();
    let id = deploy["id"].as_str().expect("an id").to_owned();
    let start = Instant::now();
    loop {
        agent(&server);
        assert!(usage(&server, "max_instances") <= 5);
        if done(&server, &["get-deploy", "--org", "acme", "--deploy", &id])["state"] == "succeeded" {
            break;
        }
        assert!(start.elapsed() < 2 * PATIENCE, "the rollout never ends");
    }
    let rebuilt = until_rebuilt(&server);
    assert!(rebuilt.contains("are those that the server shows"), "{rebuilt}");
}

/// The scheduler may write between the two reads: it is asked again.
fn until_rebuilt(server: &Server) -> String {
    let start = Instant::now();
    loop {
        let output = orgs(server, &["rebuild"]);
        if output.status.success() {
            return String::from_utf8_lossy(&output.stdout).into_owned();
        }
        assert!(start.elapsed() < PATIENCE, "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_token_sees_its_own_organization_and_widens_nothing() {
    let server = Server::start();
    until(&server, &["create-org", "--id", "acme", "--tier", "free"], |org| org["id"] == "acme");
    done(&server, &["create-org", "--id", "other", "--tier", "free"]);
    server.kubectl("create clusterrole org-member --verb=* --resource=*.orgs.bursar.dev,*.orgs.bursar.dev/*");
    server.kubectl("-n acme create serviceaccount ci");
    server.kubectl("-n acme create rolebinding ci --clusterrole=org-member --serviceaccount=acme:ci");
    let get = |path: &str| {
        let (ok, out, err) = server.try_kubectl(&format!("get --raw {path} --as=system:serviceaccount:acme:ci"), "");
        (ok, out + &err)
    };
    assert!(get("/v1/orgs/acme/apps").0, "{}", get("/v1/orgs/acme/apps").1);
    assert!(get("/v1/orgs/acme/usage").0);
    for path in ["/v1/orgs/other/apps", "/v1/orgs/other/usage", "/v1/orgs", "/v1/events", "/v1/views", "/v1/nodes"] {
        assert!(!get(path).0, "{path}");
    }
    let widen = "create --raw /v1/orgs -f - --as=system:serviceaccount:acme:ci";
    assert!(!server.try_kubectl(widen, "{\"id\": \"mine\"}").0);
    let widen = "replace --raw /v1/orgs/acme/quotas/max_apps -f - --as=system:serviceaccount:acme:ci";
    assert!(!server.try_kubectl(widen, "{\"limit\": 99, \"reason\": \"mine\"}").0);
    let made = "create --raw /v1/orgs/acme/apps -f - --as=system:serviceaccount:acme:ci";
    let (ok, out, err) = server.try_kubectl(made, "{\"name\": \"shop\"}");
    assert!(ok, "{out}{err}");
}
