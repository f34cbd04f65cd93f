//! etcd doing the same: read three accounts, then one transaction that writes them and the claim if none has moved; if one has,
//! its answer carries the new values and the claim is tried again.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use store::etcd::client::Client;
use store::etcd::messages::{Compare, KeyValue, RangeRequest, RequestOp, TxnRequest, prefix_end};
use tokio::runtime::Runtime;

use super::{ACCOUNTS, Run, Shape, accounts_of, check_books};
use crate::parts;
use crate::probe::{Latencies, family_cpu};

const START: Duration = Duration::from_secs(30);

/// Accounts written in one transaction while filling.
const FILL: u32 = 100;

const LIMIT: u64 = 1_000_000_000_000;

pub struct Etcd {
    process: Child,
    /// Its data, which goes with it.
    _folder: tempfile::TempDir,
    address: String,
    granted: u64,
    runs: u64,
}

impl Etcd {
    pub fn start(runtime: &Runtime) -> anyhow::Result<Etcd> {
        let folder = tempfile::tempdir()?;
        let [address, peer] = parts::free_addresses()?;
        let (client_url, peer_url) = (format!("http://{address}"), format!("http://{peer}"));
        let process = Command::new(parts::binary("etcd")?)
            .arg("--data-dir")
            .arg(folder.path().join("data"))
            .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("default={peer_url}"), "--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let etcd = Etcd { process, _folder: folder, address, granted: 0, runs: 0 };
        runtime.block_on(async {
            let client = etcd.client()?;
            let started = Instant::now();
            while let Err(error) = client.range(RangeRequest { key: vec![0], ..RangeRequest::default() }).await {
                ensure!(started.elapsed() < START, "etcd did not start: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            for start in (0..ACCOUNTS).step_by(FILL as usize) {
                let puts =
                    (start..(start + FILL).min(ACCOUNTS)).map(|number| RequestOp::put(&account_key(number), b"0"));
                client.txn(TxnRequest { success: puts.collect(), ..TxnRequest::default() }).await?;
            }
            println!("etcd {}, started for this benchmark", etcd.version().await.unwrap_or_default());
            anyhow::Ok(())
        })?;
        Ok(etcd)
    }

    fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::new(&[format!("http://{}", self.address)], None)?)
    }

    pub fn run(&mut self, runtime: &Runtime, shape: Shape, length: Duration) -> anyhow::Result<Run> {
        self.runs += 1;
        let run = runtime.block_on(async {
            let syncs = self.syncs().await?;
            let (cpu, started) = (family_cpu(self.process.id()), Instant::now());
            let deadline = started + length;
            let mut clients = tokio::task::JoinSet::new();
            for number in 0..shape.clients {
                clients.spawn(load(self.client()?, shape, self.runs, number as u64, deadline));
            }
            let mut latencies = Latencies::new()?;
            while let Some(client) = clients.join_next().await {
                latencies.add(&client??)?;
            }
            let (elapsed, cpu) = (started.elapsed(), family_cpu(self.process.id()) - cpu);
            let syncs = self.syncs().await?.saturating_sub(syncs);
            let (p50, p99) = (latencies.at(50.0), latencies.at(99.0));
            anyhow::Ok(Run { claims: latencies.count(), elapsed, cpu, syncs, p50, p99 })
        })?;
        self.granted += run.claims;
        runtime.block_on(self.check())?;
        Ok(run)
    }

    async fn check(&self) -> anyhow::Result<()> {
        let client = self.client()?;
        let mut charged = 0;
        for account in all(&client, b"a/").await? {
            charged += number_in(&account)?;
        }
        let claims = all(&client, b"c/").await?.len() as u64;
        check_books("etcd", claims, self.granted, &charged.to_string())
    }

    /// How often its log was synced, by its own count.
    async fn syncs(&self) -> anyhow::Result<u64> {
        let metrics = self.http("/metrics").await?;
        let line = metrics.lines().find_map(|line| line.strip_prefix("etcd_disk_wal_fsync_duration_seconds_count "));
        Ok(line.context("etcd does not count its syncs")?.trim().parse::<f64>()? as u64)
    }

    async fn version(&self) -> anyhow::Result<String> {
        let version: serde_json::Value = serde_json::from_str(&self.http("/version").await?)?;
        Ok(version["etcdserver"].as_str().unwrap_or_default().to_owned())
    }

    async fn http(&self, path: &str) -> anyhow::Result<String> {
        let stream = tokio::net::TcpStream::connect(&self.address).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move { drop(connection.await) });
        let request = http::Request::get(path).header("host", &self.address).body(String::new())?;
        let body = sender.send_request(request).await?.into_body().collect().await?.to_bytes();
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may be dead already.
        let _dead = self.process.kill();
        let _reaped = self.process.wait();
    }
}

async fn load(client: Client, shape: Shape, run: u64, number: u64, deadline: Instant) -> anyhow::Result<Latencies> {
    let mut latencies = Latencies::new()?;
    let mut random = number;
    let mut count = 0_u64;
    let mut now = Instant::now();
    while now < deadline {
        let keys = accounts_of(shape, &mut random).map(account_key);
        let claim = format!("c/{run}/{number}/{count}").into_bytes();
        let read =
            TxnRequest { success: keys.iter().map(|key| RequestOp::get(key)).collect(), ..TxnRequest::default() };
        let mut found = client.txn(read).await?;
        loop {
            let accounts = [0, 1, 2].map(|index| found.found(index).cloned().unwrap_or_default());
            let mut writes = vec![RequestOp::put(&claim, b"1")];
            for account in &accounts {
                let used = number_in(account)? + 1;
                ensure!(used <= LIMIT, "a claim was denied");
                writes.push(RequestOp::put(&account.key, used.to_string().as_bytes()));
            }
            let guards = accounts.iter().map(|account| Compare::modified_at(&account.key, account.mod_revision));
            let again = keys.iter().map(|key| RequestOp::get(key)).collect();
            found = client.txn(TxnRequest { compare: guards.collect(), success: writes, failure: again }).await?;
            if found.succeeded {
                break;
            }
        }
        let after = Instant::now();
        latencies.record(after - now);
        (now, count) = (after, count + 1);
    }
    Ok(latencies)
}

/// Every key below a prefix, in pages.
async fn all(client: &Client, prefix: &[u8]) -> anyhow::Result<Vec<KeyValue>> {
    let (mut next, range_end) = (prefix.to_vec(), prefix_end(prefix));
    let mut found = Vec::new();
    loop {
        let page = RangeRequest { key: next, range_end: range_end.clone(), limit: 10_000, ..RangeRequest::default() };
        let page = client.range(page).await?;
        found.extend(page.kvs);
        match found.last() {
            Some(last) if page.more => {
                next = last.key.clone();
                next.push(0);
            }
            _ => return Ok(found),
        }
    }
}

fn account_key(number: u32) -> Vec<u8> {
    format!("a/{number:05}").into_bytes()
}

fn number_in(account: &KeyValue) -> anyhow::Result<u64> {
    Ok(std::str::from_utf8(&account.value)?.parse()?)
}
