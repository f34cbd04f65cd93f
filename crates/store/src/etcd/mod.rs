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
//! answer was lost can be sent again, to any member, without being done twice. Start reading at [`EtcdStore`] and [`Leader`];
//! [`commit`] has the two ways a batch is written, [`lead`] how a replica becomes and stays the leader, [`members`] who is asked, [`upkeep`]
//! what keeps etcd from filling up, [`journals`] what is only appended.

pub mod client;
mod commit;
mod config;
mod journals;
mod keys;
mod lead;
mod leader;
mod load;
mod members;
pub mod messages;
pub mod outside;
mod rewound;
mod stored;
mod upkeep;

use std::future::Future;
use std::sync::mpsc;

use tokio::runtime::{Handle, Runtime};
use tonic::Status;

use client::explain;
pub use config::{Config, redacted};
use keys::Keys;
pub use leader::Leader;
use outside::Outside;

use crate::journal::Journals;
use crate::{Batch, Space, Store, StoreError, Term, Usage, Visit};

/// The leader's store. To have one is to lead, until a commit says [`StoreError::Fenced`].
pub struct EtcdStore {
    leader: Leader,
    /// `None` only while it is being dropped.
    runtime: Option<Runtime>,
}

impl EtcdStore {
    /// Waits, blocking, until this replica leads.
    pub fn lead(config: Config) -> Result<EtcdStore, StoreError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("store-etcd")
            .enable_all()
            .build()
            .map_err(|error| StoreError::io("starting the etcd client", error))?;
        let leader = wait(runtime.handle(), Leader::lead(config, Outside::default()))??;
        Ok(EtcdStore { leader, runtime: Some(runtime) })
    }

    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T, StoreError> {
        match &self.runtime {
            Some(runtime) => wait(runtime.handle(), work),
            None => Err(StoreError::Unusable { why: "it was closed".to_owned() }),
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
        let mut loading = self.leader.loading();
        loop {
            let page;
            (loading, page) = self.run(async move {
                let page = loading.page().await;
                (loading, page)
            })?;
            let Some(page) = page? else { break };
            loading.show(&page, visit)?;
        }
        let _entered = self.runtime.as_ref().map(Runtime::enter);
        self.leader.loaded(loading);
        Ok(())
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let work = self.leader.begin(batch)?;
        let written = self.run(work).and_then(|written| written);
        self.leader.committed(written)
    }

    fn confirm(&mut self) -> Result<(), StoreError> {
        let Some(number) = self.leader.in_doubt()? else { return Ok(()) };
        let writer = self.leader.writer();
        let asked = self.run(async move { writer.confirm(number).await });
        self.leader.confirmed(asked.and_then(|confirmed| confirmed))
    }

    fn term(&self) -> Term {
        self.leader.term()
    }

    fn rewound(&self) -> bool {
        self.leader.rewound()
    }

    fn space(&self) -> Space {
        self.leader.space()
    }

    fn group_rows(&self) -> usize {
        commit::GROUP_ROWS
    }

    fn usage(&self) -> Usage {
        self.leader.usage()
    }

    fn journals(&self) -> Journals {
        self.leader.journals()
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        // The lease would end by itself; giving it back only lets the next leader begin at once.
        let _shorter = self.run(self.leader.closing());
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
