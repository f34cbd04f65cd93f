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
mod config;
mod journals;
mod keys;
mod lead;
mod members;
pub mod messages;
mod rewound;
mod stored;
mod upkeep;

use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::SystemTime;

use bytes::Bytes;
use tokio::runtime::{Handle, Runtime};
use tonic::{Code, Status};

use client::{Client, explain};
use commit::Parted;
pub use config::{Config, redacted};
use journals::{Counting, EtcdJournals};
use keys::Keys;
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
