//! Many watchers of one namespace: how long until the last of them has seen a create.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, Sender};
use tokio::task::JoinSet;

use super::http::{Connection, JSON, Target};
use super::{make_namespace, pod, pods_path};

/// Creates whose way to the watchers is timed, one after the other.
const CREATES: usize = 5;

/// A watcher that has seen nothing for so long will not see anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// For each create, the time from sending it until the last watcher had it.
pub async fn fan_out(target: &Target, namespace: &str, watchers: usize) -> anyhow::Result<Vec<Duration>> {
    let mut writer = target.connect().await?;
    make_namespace(&mut writer, namespace).await?;
    let path = pods_path(namespace);
    let list: Value = writer.get_json(&path).await?;
    let version = list["metadata"]["resourceVersion"].as_str().context("a list without a version")?;
    let watch = format!("{path}?watch=true&resourceVersion={version}");
    let (saw, mut seen) = mpsc::channel(watchers);
    let mut tasks = JoinSet::new();
    for _ in 0..watchers {
        let mut connection = target.connect().await?;
        let response = connection.begin(Method::GET, &watch, (JSON, JSON), Bytes::new()).await?;
        ensure!(response.status() == StatusCode::OK, "a watch was answered with {}", response.status());
        tasks.spawn(report(connection, response.into_body(), saw.clone()));
    }
    let mut times = Vec::with_capacity(CREATES);
    for number in 0..CREATES {
        let body = pod(json!({"name": format!("seen-{number}")}));
        let started = Instant::now();
        let all = async {
            let mut last = started;
            for count in 0..watchers {
                let got = tokio::time::timeout(PATIENCE, seen.recv()).await;
                let got = got.with_context(|| format!("only {count} of {watchers} watchers saw the create"))?;
                last = last.max(got.context("all watchers are gone")?);
            }
            anyhow::Ok(last)
        };
        let (created, last) = tokio::join!(writer.create(&path, body), all);
        created?;
        times.push(last?.duration_since(started));
    }
    Ok(times)
}

/// Says when a new object was seen. Events are lines.
async fn report(connection: Connection, mut body: Incoming, saw: Sender<Instant>) -> anyhow::Result<()> {
    let mut line = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        for part in data.split_inclusive(|&byte| byte == b'\n') {
            line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                if line.starts_with(b"{\"type\":\"ADDED\"") {
                    saw.send(Instant::now()).await?;
                }
                line.clear();
            }
        }
    }
    drop(connection);
    Ok(())
}
