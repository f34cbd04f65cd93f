//! Rows in etcd, for several replicas of which one leads.
//!
//! ```text
//!   /bursar/<cluster>/leader          who leads; bound to a lease, so it goes when the leader does
//!   /bursar/<cluster>/commit          the number of the last commit
//!   /bursar/<cluster>/rows/<table>/…  the rows
//!   /bursar/<cluster>/parts/…         the values of rows that are too long for one key
//!   /bursar/<cluster>/staged/<n>      pieces of a batch that is too large for one transaction
//!   /bursar/<cluster>/marker          there while such a batch is complete, and being spread over the rows
//! ```
//!
//! Every transaction compares the leader's key with the one this replica created: a replica that was replaced cannot write,
//! however late its request arrives. It also compares the number of the last commit, so a request whose answer was lost can be
//! sent again without being done twice. Start reading at [`EtcdStore`]; [`commit`] has the two ways a batch is written.

pub mod client;
mod commit;
mod lead;
pub mod messages;

use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tonic::{Code, Status};

use client::{Client, Tls};
use commit::{Parted, Stored};
use lead::Leadership;
use messages::{RangeRequest, prefix_end};

use crate::{Batch, Store, StoreError, Table, Term, Visit};

/// What a page of a load aims at.
const PAGE_BYTES: usize = 2 * 1024 * 1024;
const PAGE_ROWS_FIRST: i64 = 64;
const PAGE_ROWS_MAX: i64 = 5000;

/// Where the state is, and who we are.
#[derive(Clone, Debug)]
pub struct Config {
    /// `http://host:port`, or `https://…` with `tls`.
    pub endpoints: Vec<String>,
    pub tls: Option<Tls>,
    /// Several Bursars share one etcd under different names.
    pub cluster: String,
    /// What the others call us; for people.
    pub replica: String,
    /// How long after its last sign of life a leader is replaced. etcd's own least is about two seconds.
    pub lease: Duration,
}

impl Config {
    pub fn new(endpoints: Vec<String>, cluster: &str, replica: &str) -> Config {
        Config {
            endpoints,
            tls: None,
            cluster: cluster.to_owned(),
            replica: replica.to_owned(),
            lease: Duration::from_secs(3),
        }
    }

    /// Reads `etcd://host:port[,host:port…][/cluster]`, or `etcds://…` for TLS. The cluster is `default` when none is named.
    pub fn from_url(url: &str, replica: &str) -> Result<Config, StoreError> {
        let wrong = |what: &str| StoreError::Unusable { why: format!("{url:?} is not an etcd address: {what}") };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("expected etcd://host:port[,…][/cluster]"))?;
        let scheme = match scheme {
            "etcd" => "http",
            "etcds" => "https",
            _ => return Err(wrong("it begins with etcd:// or etcds://")),
        };
        let (hosts, cluster) = rest.split_once('/').unwrap_or((rest, ""));
        let endpoints: Vec<String> = hosts.split(',').map(|host| format!("{scheme}://{host}")).collect();
        if hosts.split(',').any(|host| host.is_empty() || host.contains(char::is_whitespace)) {
            return Err(wrong("a host is missing"));
        }
        // A cluster named "a/rows" would lie inside the rows of a cluster named "a".
        if cluster.contains('/') {
            return Err(wrong("a cluster's name has no slash"));
        }
        let cluster = if cluster.is_empty() { "default" } else { cluster };
        let mut config = Config::new(endpoints, cluster, replica);
        config.tls = (scheme == "https").then(Tls::default);
        Ok(config)
    }
}

/// The keys of one cluster.
#[derive(Clone, Debug)]
struct Keys {
    leader: Vec<u8>,
    commit: Vec<u8>,
    rows: Vec<u8>,
    parts: Vec<u8>,
    staged: Vec<u8>,
    marker: Vec<u8>,
}

impl Keys {
    fn new(cluster: &str) -> Keys {
        let key = |name: &str| format!("/bursar/{cluster}/{name}").into_bytes();
        Keys {
            leader: key("leader"),
            commit: key("commit"),
            rows: key("rows/"),
            parts: key("parts/"),
            staged: key("staged/"),
            marker: key("marker"),
        }
    }

    fn row(&self, table: Table, row_key: &[u8]) -> Vec<u8> {
        let mut key = self.rows.clone();
        key.extend_from_slice(format!("{:02x}/", table.0).as_bytes());
        key.extend_from_slice(row_key);
        key
    }

    /// One part of a long value. The number comes first: a row's key may end in anything.
    fn part(&self, table: Table, row_key: &[u8], number: u32) -> Vec<u8> {
        let mut key = self.parts.clone();
        key.extend_from_slice(format!("{:02x}/{number:08}/", table.0).as_bytes());
        key.extend_from_slice(row_key);
        key
    }

    /// Table and key of a row, out of the key it has in etcd.
    fn parse<'a>(&self, key: &'a [u8]) -> Option<(Table, &'a [u8])> {
        let rest = key.strip_prefix(self.rows.as_slice())?;
        let (table, rest) = rest.split_at_checked(2)?;
        let table = u8::from_str_radix(std::str::from_utf8(table).ok()?, 16).ok()?;
        Some((Table(table), rest.strip_prefix(b"/")?))
    }
}

/// The leader's store. To have one is to lead, until a commit says [`StoreError::Fenced`].
pub struct EtcdStore {
    /// `None` only while it is being dropped.
    runtime: Option<Runtime>,
    client: Client,
    keys: Arc<Keys>,
    leadership: Arc<Leadership>,
    /// The number of the last commit; known once loaded.
    commits: Option<u64>,
    /// How many parts the long rows have, so that they can be removed with them.
    parted: Parted,
    failed: bool,
}

impl EtcdStore {
    /// Waits, blocking, until this replica leads. Standing by costs one watch; the takeover begins when the leader's key goes.
    pub fn lead(config: Config) -> Result<EtcdStore, StoreError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("store-etcd")
            .enable_all()
            .build()
            .map_err(|error| StoreError::io("starting the etcd client", error))?;
        let keys = Arc::new(Keys::new(&config.cluster));
        let entered = runtime.enter();
        let client = Client::new(&config.endpoints, config.tls.as_ref())
            .map_err(|error| StoreError::io("the etcd endpoints", std::io::Error::other(error)))?;
        drop(entered);
        let leadership = wait(&runtime, {
            let (client, keys) = (client.clone(), keys.clone());
            async move { Leadership::acquire(&client, &keys, &config).await }
        })??;
        let leadership = Arc::new(leadership);
        runtime.spawn({
            let (client, leadership) = (client.clone(), leadership.clone());
            async move { leadership.keep(&client).await }
        });
        Ok(EtcdStore {
            runtime: Some(runtime),
            client,
            keys,
            leadership,
            commits: None,
            parted: Parted::new(),
            failed: false,
        })
    }

    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T, StoreError> {
        match &self.runtime {
            Some(runtime) => wait(runtime, work),
            None => Err(StoreError::Unusable { why: "it was closed".to_owned() }),
        }
    }

    fn writer(&self) -> commit::Writer {
        commit::Writer { client: self.client.clone(), keys: self.keys.clone(), leadership: self.leadership.clone() }
    }
}

/// Runs the work on the store's own runtime and blocks for it, which is possible on any thread: those of another runtime, too.
fn wait<T: Send + 'static>(runtime: &Runtime, work: impl Future<Output = T> + Send + 'static) -> Result<T, StoreError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    runtime.spawn(async move {
        // Nobody is gone: the receiver waits below.
        let _waits = sender.send(work.await);
    });
    receiver.recv().map_err(|_| StoreError::Unusable { why: "the etcd client stopped on a bug".to_owned() })
}

impl Store for EtcdStore {
    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let writer = self.writer();
        let commits = self.run(async move { writer.recover().await })??;
        let mut next = self.keys.rows.clone();
        let end = prefix_end(&self.keys.rows);
        let mut limit = PAGE_ROWS_FIRST;
        let mut revision = 0;
        loop {
            let request = RangeRequest { key: next.clone(), range_end: end.clone(), limit, revision };
            let client = self.client.clone();
            let page = match self.run(async move { client.range(request).await })? {
                Ok(page) => page,
                // Long rows made the page too large for one answer.
                Err(status) if status.code() == Code::OutOfRange && limit > 1 => {
                    limit = (limit / 8).max(1);
                    continue;
                }
                Err(status) => return Err(failed("reading rows from etcd", &status)),
            };
            revision = page.header.map_or(revision, |header| if revision == 0 { header.revision } else { revision });
            let mut bytes = 0;
            for row in &page.kvs {
                let Some((table, key)) = self.keys.parse(&row.key) else {
                    return Err(commit::damaged(&row.key, "it stands among the rows and is none"));
                };
                bytes += row.key.len() + row.value.len();
                match Stored::decode(&row.value) {
                    Some(Stored::Whole(value)) => visit(table, key, value),
                    Some(Stored::Parts(count)) => drop(self.parted.insert((table, key.to_vec()), count)),
                    None => return Err(commit::damaged(&row.key, "its value cannot be read")),
                }
            }
            match page.kvs.last() {
                Some(last) if page.more => {
                    next.clone_from(&last.key);
                    next.push(0);
                }
                _ => break,
            }
            if bytes < PAGE_BYTES {
                limit = (limit * 2).min(PAGE_ROWS_MAX);
            }
        }
        for ((table, key), count) in &self.parted {
            let (writer, table, key, count) = (self.writer(), *table, key.clone(), *count);
            let (key, value) = self.run(async move {
                let value = writer.read_parts(table, &key, count).await?;
                Ok::<_, StoreError>((key, value))
            })??;
            visit(table, &key, &value);
        }
        self.commits = Some(commits);
        Ok(())
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let (Some(commits), false) = (self.commits, self.failed) else {
            return Err(StoreError::Unusable { why: "it was not loaded, or failed before".to_owned() });
        };
        if let Some((table, length)) = batch.oversize() {
            return Err(StoreError::Oversize { table, length });
        }
        let rows = commit::last_states(&self.keys, batch, &mut self.parted);
        let writer = self.writer();
        let written = self.run(async move { writer.commit(rows, commits).await });
        let written = written.and_then(|written| written);
        match &written {
            Ok(()) => self.commits = Some(commits + 1),
            Err(_) => self.failed = true,
        }
        written
    }

    fn confirm(&mut self) -> Result<(), StoreError> {
        let (Some(commits), false) = (self.commits, self.failed) else {
            return Err(StoreError::Unusable { why: "it was not loaded, or failed before".to_owned() });
        };
        if !self.leadership.term.is_in_doubt() {
            return Ok(());
        }
        let writer = self.writer();
        let asked = self.run(async move { writer.confirm(commits).await });
        let confirmed = asked.and_then(|confirmed| confirmed);
        self.failed = confirmed.is_err();
        confirmed
    }

    fn term(&self) -> Term {
        self.leadership.term.clone()
    }

    fn close(mut self: Box<Self>) -> Result<(), StoreError> {
        let (client, leadership) = (self.client.clone(), self.leadership.clone());
        // The lease would end by itself; giving it back only lets the next leader begin at once.
        let _shorter = self.run(async move { leadership.give_up(&client).await });
        self.failed = true;
        Ok(())
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        // A plain drop would block, which a thread of another runtime must not.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn failed(what: &str, status: &Status) -> StoreError {
    StoreError::io(what, std::io::Error::other(format!("{:?}: {}", status.code(), status.message())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let config = Config::from_url("etcd://a:2379,b:2379/prod", "r").unwrap();
        assert_eq!(config.endpoints, ["http://a:2379", "http://b:2379"]);
        assert_eq!((config.cluster.as_str(), config.tls.is_some()), ("prod", false));
        let config = Config::from_url("etcds://a:2379", "r").unwrap();
        assert_eq!(config.endpoints, ["https://a:2379"]);
        assert_eq!((config.cluster.as_str(), config.tls.is_some()), ("default", true));
        for wrong in ["", "a:2379", "http://a", "etcd://", "etcd://a,,b", "etcd:// a", "etcd://a/b/rows"] {
            assert!(Config::from_url(wrong, "r").is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn keys_of_rows_are_read_back() {
        let keys = Keys::new("c");
        for (table, key) in [(Table(0), &b""[..]), (Table(255), b"a/b"), (Table(16), &[0, 255])] {
            assert_eq!(keys.parse(&keys.row(table, key)), Some((table, key)));
        }
        for foreign in [&b"/bursar/c/leader"[..], b"/bursar/c/rows/0", b"/bursar/c/rows/zz/a", b"/bursar/c/rows/00a"] {
            assert_eq!(keys.parse(foreign), None);
        }
    }
}
