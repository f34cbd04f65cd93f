//! The load generator: so many connections, each with one request under way, for a while or for a number of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;

use super::http::{Connection, Target};
use crate::probe::Latencies;

#[derive(Clone, Copy, Debug)]
pub enum Stop {
    After(Duration),
    Requests(u64),
}

/// One create.
pub struct Work {
    pub path: String,
    pub body: Bytes,
    /// Which histogram its time goes into.
    pub class: usize,
}

pub struct Outcome {
    /// One a class.
    pub latencies: Vec<Latencies>,
    pub elapsed: Duration,
}

/// Runs until `stop`; anything but 201 ends it with an error. Connections are made before the clock starts.
pub async fn run(
    target: &Target,
    connections: usize,
    stop: Stop,
    classes: usize,
    work: impl Fn(u64) -> Work + Send + Sync + 'static,
) -> anyhow::Result<Outcome> {
    let mut ready = Vec::with_capacity(connections);
    for _ in 0..connections {
        ready.push(target.connect().await?);
    }
    let (work, next) = (Arc::new(work), Arc::new(AtomicU64::new(0)));
    let started = Instant::now();
    let mut clients = JoinSet::new();
    for connection in ready {
        clients.spawn(client(connection, Arc::clone(&next), stop, started, classes, Arc::clone(&work)));
    }
    let mut latencies = (0..classes).map(|_| Latencies::new()).collect::<anyhow::Result<Vec<_>>>()?;
    while let Some(client) = clients.join_next().await {
        for (sum, part) in latencies.iter_mut().zip(client??) {
            sum.add(&part)?;
        }
    }
    Ok(Outcome { latencies, elapsed: started.elapsed() })
}

async fn client(
    mut connection: Connection,
    next: Arc<AtomicU64>,
    stop: Stop,
    started: Instant,
    classes: usize,
    work: Arc<impl Fn(u64) -> Work>,
) -> anyhow::Result<Vec<Latencies>> {
    let mut latencies = (0..classes).map(|_| Latencies::new()).collect::<anyhow::Result<Vec<_>>>()?;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let over = match stop {
            Stop::After(length) => started.elapsed() >= length,
            Stop::Requests(count) => number >= count,
        };
        if over {
            return Ok(latencies);
        }
        let Work { path, body, class } = work(number);
        let asked = Instant::now();
        connection.create(&path, body).await?;
        latencies[class].record(asked.elapsed());
    }
}

/// Loads as [`run`] does, then cuts every connection in the middle of its request.
pub async fn run_and_cut(
    target: &Target,
    connections: usize,
    length: Duration,
    path: &str,
    body: &Bytes,
) -> anyhow::Result<()> {
    let mut clients = JoinSet::new();
    for _ in 0..connections {
        let (mut connection, path, body) = (target.connect().await?, path.to_owned(), body.clone());
        clients.spawn(async move {
            loop {
                connection.create(&path, body.clone()).await?;
            }
        });
    }
    let ended: Option<anyhow::Result<()>> = tokio::select! {
        ended = clients.join_next() => ended.transpose()?,
        () = tokio::time::sleep(length) => None,
    };
    clients.shutdown().await;
    ended.unwrap_or(Ok(()))
}
