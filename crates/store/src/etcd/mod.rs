//! Rows in etcd, for several replicas of which one leads.
//!
//! ```text
//!   /bursar/<cluster>/leader          who leads; bound to a lease, so it goes when the leader does
//!   /bursar/<cluster>/commit          the number of the last transaction
//!   /bursar/<cluster>/rows/<table>/…  the rows
//!   /bursar/<cluster>/parts/…         the values of rows that are too long for one key
//!   /bursar/<cluster>/staged/<n>      pieces of a batch that is too large for one transaction
//!   /bursar/<cluster>/journals/<number>/<sequence>   what was appended
//!   /bursar/<cluster>/counters/<number>              which numbers a journal has given
//!   /bursar/<cluster>/lead            revision minus raft index: a restored etcd is known by it
//!   /bursar/<cluster>/marker          there while such a batch is complete, and being spread over the rows
//! ```
//!
//! Every transaction compares the leader's key with the one this replica created: a replica that was replaced cannot write,
//! however late its request arrives. It also compares the number of the last transaction and moves it on, so a request whose
//! answer was lost can be sent again, to any member, without being done twice. Start reading at [`EtcdStore`]; [`commit`] has
//! the two ways a batch is written, [`lead`] how a replica becomes and stays the leader, [`members`] who is asked, [`upkeep`]
//! what keeps etcd from filling up, [`journals`] what is only appended.

pub mod client;
mod commit;
mod journals;
mod lead;
mod members;
pub mod messages;
mod rewound;
mod stored;
mod upkeep;

use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::runtime::{Handle, Runtime};
use tonic::{Code, Status};

use client::{Client, Credentials, Tls, explain};
use commit::Parted;
use journals::{Counting, EtcdJournals};
use lead::Leadership;
use messages::{RangeRequest, prefix_end};
use stored::Stored;
use upkeep::Upkeep;

use crate::journal::Journals;
use crate::{Batch, Space, Store, StoreError, Table, Term, Usage, Visit};

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
    /// Who we are, for an etcd with authentication.
    pub credentials: Option<Credentials>,
    /// Several Bursars share one etcd under different names.
    pub cluster: String,
    /// What the others call us; for people.
    pub replica: String,
    /// Whether this etcd was reached before: then it is waited for, however long it is away.
    pub known: bool,
    /// How long after its last sign of life a leader is replaced. etcd's own least is about two seconds.
    pub lease: Duration,
}

impl Config {
    pub fn new(endpoints: Vec<String>, cluster: &str, replica: &str) -> Config {
        Config {
            endpoints,
            tls: None,
            credentials: None,
            cluster: cluster.to_owned(),
            replica: replica.to_owned(),
            known: false,
            lease: Duration::from_secs(3),
        }
    }

    /// Reads `etcd://[user:password@]host:port[,host:port…][/cluster]`, or `etcds://…` for TLS. The cluster is `default` when
    /// none is named; a user's name and password are percent-encoded where they have to be.
    pub fn from_url(url: &str, replica: &str) -> Result<Config, StoreError> {
        let shown = redacted(url);
        let wrong = |what: &str| StoreError::Unusable { why: format!("{shown:?} is not an etcd address: {what}") };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("expected etcd://host:port[,…][/cluster]"))?;
        let scheme = match scheme {
            "etcd" => "http",
            "etcds" => "https",
            _ => return Err(wrong("it begins with etcd:// or etcds://")),
        };
        // A password may hold anything but an at sign, which no host's name has.
        let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
        let credentials = match user.map(|user| user.split_once(':')) {
            None => None,
            Some(Some((user, password))) if !user.is_empty() => match (decoded(user), decoded(password)) {
                (Some(user), Some(password)) => Some(Credentials { user, password }),
                _ => return Err(wrong("a percent sign is not followed by two hexadecimal digits")),
            },
            Some(_) => return Err(wrong("expected user:password before the at sign")),
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
        config.credentials = credentials;
        Ok(config)
    }
}

/// An address as it may be shown: whatever could be a password is left out.
pub fn redacted(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (&url[..scheme.len() + 3], rest));
    match rest.rsplit_once('@') {
        Some((user, rest)) => {
            let user = user.split_once(':').map_or("", |(user, _)| user);
            format!("{scheme}{user}:…@{rest}")
        }
        None => url.to_owned(),
    }
}

/// Text out of its percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

/// The keys of one cluster.
#[derive(Clone, Debug)]
struct Keys {
    leader: Vec<u8>,
    commit: Vec<u8>,
    lead: Vec<u8>,
    rows: Vec<u8>,
    parts: Vec<u8>,
    staged: Vec<u8>,
    marker: Vec<u8>,
    journals: Vec<u8>,
    counters: Vec<u8>,
}

impl Keys {
    fn new(cluster: &str) -> Keys {
        let key = |name: &str| format!("/bursar/{cluster}/{name}").into_bytes();
        Keys {
            leader: key("leader"),
            commit: key("commit"),
            lead: key("lead"),
            rows: key("rows/"),
            parts: key("parts/"),
            staged: key("staged/"),
            marker: key("marker"),
            journals: key("journals/"),
            counters: key("counters/"),
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
    upkeep: Arc<Upkeep>,
    /// The number of the last transaction; known once loaded.
    number: Option<u64>,
    /// How many parts the long rows have, so that they can be removed with them.
    parted: Parted,
    /// Which numbers the journals have given.
    counting: Counting,
    /// Known once loaded.
    journals: Option<Arc<EtcdJournals>>,
    rewound: bool,
    /// Goes with the next commit of the state's own numbers: who bumps them does so in that commit.
    keep_lead: Option<i64>,
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
        let client = Client::with_credentials(&config.endpoints, config.tls.as_ref(), config.credentials.clone())
            .map_err(|error| StoreError::io("the etcd endpoints", std::io::Error::other(error)))?;
        drop(entered);
        let leadership = wait(runtime.handle(), {
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
            upkeep: Arc::default(),
            number: None,
            parted: Parted::new(),
            counting: Counting::default(),
            journals: None,
            rewound: false,
            keep_lead: None,
            failed: false,
        })
    }

    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T, StoreError> {
        match &self.runtime {
            Some(runtime) => wait(runtime.handle(), work),
            None => Err(StoreError::Unusable { why: "it was closed".to_owned() }),
        }
    }

    /// The number of the last transaction of a store that may be used.
    fn usable(&self) -> Result<u64, StoreError> {
        let why = || StoreError::Unusable { why: "it was not loaded, or failed before".to_owned() };
        self.number.filter(|_| !self.failed).ok_or_else(why)
    }

    fn writer(&self) -> commit::Writer {
        commit::Writer {
            client: self.client.clone(),
            keys: self.keys.clone(),
            leadership: self.leadership.clone(),
            upkeep: self.upkeep.clone(),
        }
    }
}

/// Runs the work on the store's own runtime and blocks for it, which is possible on any thread: those of another runtime, too.
fn wait<T: Send + 'static>(runtime: &Handle, work: impl Future<Output = T> + Send + 'static) -> Result<T, StoreError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    runtime.spawn(async move {
        // Nobody is gone: the receiver waits below.
        let _waits = sender.send(work.await);
    });
    receiver
        .recv()
        .map_err(|_| StoreError::Unusable { why: "the etcd client was closed, or stopped on a bug".to_owned() })
}

impl Store for EtcdStore {
    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let writer = self.writer();
        let (number, found, counting) = self.run(async move {
            let number = writer.recover().await?;
            let counting = Counting::read(&writer.client, &writer.keys).await?;
            Ok::<_, StoreError>((number, rewound::look(&writer).await?, counting))
        })??;
        (self.rewound, self.keep_lead, self.counting) = (found.rewound, found.keep, counting);
        if self.rewound {
            self.counting.leap(SystemTime::now());
        }
        let mut next = self.keys.rows.clone();
        let end = prefix_end(&self.keys.rows);
        let mut limit = PAGE_ROWS_FIRST;
        let mut revision = 0;
        loop {
            let (key, range_end) = (next.clone(), end.clone());
            let request = RangeRequest { key, range_end, limit, revision, keys_only: false };
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
                // Pages that do not move on would be read for ever.
                if row.key < next {
                    return Err(commit::damaged(&row.key, "etcd hands it over out of order"));
                }
                next.clone_from(&row.key);
                next.push(0);
                bytes += row.key.len() + row.value.len();
                match stored::decode(&row.value) {
                    Some(Stored::Whole(value)) => visit(table, key, &value),
                    Some(Stored::Parts(count)) => drop(self.parted.insert((table, key.to_vec()), count)),
                    None => return Err(commit::damaged(&row.key, "its value cannot be read")),
                }
            }
            if !page.more || page.kvs.is_empty() {
                break;
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
        self.number = Some(number);
        // Not before: what is being read here must not be compacted.
        if let Some(runtime) = &self.runtime {
            let (client, keys) = (self.client.clone(), self.keys.clone());
            let (leadership, upkeep) = (self.leadership.clone(), self.upkeep.clone());
            let journals = EtcdJournals::new(runtime.handle().clone(), &client, &keys, &leadership);
            self.journals = Some(Arc::new(journals));
            runtime.spawn(async move {
                tokio::select! {
                    () = upkeep.run(&client, &keys.leader) => {}
                    () = leadership.term.lost() => {}
                }
            });
        }
        Ok(())
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let number = self.usable()?;
        if let Some((table, length)) = batch.oversize() {
            return Err(StoreError::Oversize { table, length });
        }
        let mut rows = commit::last_states(&self.keys, batch, &mut self.parted);
        self.counting.number(&self.keys, batch, &mut rows);
        let kept = self.keep_lead.filter(|_| batch.rows().any(|row| row.table == Table::META));
        if let Some(lead) = kept {
            rows.insert(self.keys.lead.clone(), Some(lead.to_be_bytes().to_vec().into()));
        }
        let writer = self.writer();
        let bytes = rows.iter().map(|(key, value)| (key.len() + value.as_ref().map_or(0, Bytes::len)) as u64).sum();
        let written = self.run(async move {
            writer.upkeep.make_way(bytes).await;
            writer.commit(rows, number).await
        });
        let written = written.and_then(|written| written);
        match &written {
            Ok(number) => {
                self.number = Some(*number);
                self.keep_lead = self.keep_lead.filter(|_| kept.is_none());
            }
            Err(_) => self.failed = true,
        }
        written.map(drop)
    }

    fn confirm(&mut self) -> Result<(), StoreError> {
        let number = self.usable()?;
        if !self.leadership.term.is_in_doubt() {
            return Ok(());
        }
        let writer = self.writer();
        let asked = self.run(async move { writer.confirm(number).await });
        let confirmed = asked.and_then(|confirmed| confirmed);
        self.failed = confirmed.is_err();
        confirmed
    }

    fn term(&self) -> Term {
        self.leadership.term.clone()
    }

    fn rewound(&self) -> bool {
        self.rewound
    }

    fn space(&self) -> Space {
        self.upkeep.space.clone()
    }

    fn group_rows(&self) -> usize {
        commit::GROUP_ROWS
    }

    fn usage(&self) -> Usage {
        self.upkeep.usage.clone()
    }

    fn journals(&self) -> Journals {
        self.journals.as_ref().map_or_else(Journals::default, |journals| Journals::new(journals.clone()))
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
    StoreError::io(what, std::io::Error::other(format!("{:?}: {}", status.code(), explain(status))))
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
    fn a_user_is_read_and_a_password_never_shown() {
        for (url, user, password, shown) in [
            ("etcd://root:secret@a:1/c", "root", "secret", "etcd://root:…@a:1/c"),
            ("etcds://root:a%40b%2Fsecret@a:1,b:2", "root", "a@b/secret", "etcds://root:…@a:1,b:2"),
            ("etcd://root:p@secret:x@a:1", "root", "p@secret:x", "etcd://root:…@a:1"),
            ("etcd://root:@a:1", "root", "", "etcd://root:…@a:1"),
        ] {
            let config = Config::from_url(url, "r").unwrap();
            let credentials = config.credentials.clone().unwrap();
            assert_eq!((credentials.user.as_str(), credentials.password.as_str()), (user, password));
            assert!(config.endpoints.iter().all(|endpoint| !endpoint.contains("root")), "{config:?}");
            assert_eq!(redacted(url), shown);
            assert!(!format!("{config:?}").contains("secret"));
        }
        for wrong in
            ["etcd://root@a:1", "etcd://:secret@a:1", "etcd://u:secret%zz@a:1", "etcd://u:secret@", "x://u:secret@a"]
        {
            let error = Config::from_url(wrong, "r").err().unwrap().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        assert_eq!(redacted("etcd://a:1/c"), "etcd://a:1/c");
        assert_eq!(redacted("secret@a"), ":…@a");
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
