//! A replica that leads, with calls that are awaited.
//!
//! [`super::EtcdStore`] is this on a runtime of its own, for callers that wait. A simulation has several of them on one runtime,
//! whose time is not the world's.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::client::Client;
use super::commit::{self, Parted, Writer};
use super::config::Config;
use super::journals::{Counting, EtcdJournals};
use super::keys::Keys;
use super::lead::Leadership;
use super::load::Loading;
use super::outside::Outside;
use super::upkeep::Upkeep;
use crate::journal::Journals;
use crate::{Batch, Space, StoreError, Table, Term, Usage, Visit};

/// To have one is to lead, until a commit says [`StoreError::Fenced`].
pub struct Leader {
    client: Client,
    keys: Arc<Keys>,
    leadership: Arc<Leadership>,
    upkeep: Arc<Upkeep>,
    outside: Outside,
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
    /// A commit failed, or is under way.
    failed: bool,
    /// What goes on beside the commits, and ends with this.
    beside: JoinSet<()>,
}

/// How a commit ended well.
pub struct Committed {
    number: u64,
    kept_lead: bool,
}

impl Leader {
    /// Waits until this replica leads. Standing by costs one watch; the takeover begins when the leader's key goes.
    pub async fn lead(config: Config, outside: Outside) -> Result<Leader, StoreError> {
        let keys = Arc::new(Keys::new(&config.cluster));
        let client = Client::through(&outside, &config.endpoints, config.tls.as_ref(), config.credentials.clone())
            .map_err(|error| StoreError::io("the etcd endpoints", std::io::Error::other(error)))?;
        let leadership = Arc::new(Leadership::acquire(&client, &keys, &config, &outside.clock).await?);
        let mut beside = JoinSet::new();
        beside.spawn({
            let (client, leadership) = (client.clone(), leadership.clone());
            async move { leadership.keep(&client).await }
        });
        Ok(Leader {
            client,
            keys,
            leadership,
            upkeep: Arc::default(),
            outside,
            number: None,
            parted: Parted::new(),
            counting: Counting::default(),
            journals: None,
            rewound: false,
            keep_lead: None,
            failed: false,
            beside,
        })
    }

    /// As [`crate::Store::load`].
    pub async fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let mut loading = self.loading();
        while let Some(page) = loading.page().await? {
            loading.show(&page, visit)?;
        }
        self.loaded(loading);
        Ok(())
    }

    /// As [`crate::Store::commit`]. After one that was not waited for, no other is accepted.
    pub async fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let written = self.begin(batch)?.await;
        self.committed(written)
    }

    /// As [`crate::Store::confirm`].
    pub async fn confirm(&mut self) -> Result<(), StoreError> {
        let Some(number) = self.in_doubt()? else { return Ok(()) };
        let confirmed = self.writer().confirm(number).await;
        self.confirmed(confirmed)
    }

    /// Gives the lease back. It would end by itself; this only lets the next leader begin at once.
    pub async fn close(self) {
        self.closing().await;
    }

    pub fn term(&self) -> Term {
        self.leadership.term.clone()
    }

    pub fn rewound(&self) -> bool {
        self.rewound
    }

    pub fn space(&self) -> Space {
        self.upkeep.space.clone()
    }

    pub fn usage(&self) -> Usage {
        self.upkeep.usage.clone()
    }

    pub fn journals(&self) -> Journals {
        self.journals.as_ref().map_or_else(Journals::default, |journals| Journals::new(journals.clone()))
    }

    pub(super) fn loading(&self) -> Loading {
        Loading::new(self.writer())
    }

    /// Takes over what a load found when it had read everything. Must be called inside a tokio runtime.
    pub(super) fn loaded(&mut self, loading: Loading) {
        (self.number, self.parted, self.counting) = (loading.number, loading.parted, loading.counting);
        (self.rewound, self.keep_lead) = (loading.rewound.rewound, loading.rewound.keep);
        if self.rewound {
            self.counting.leap(self.outside.clock.wall());
        }
        let journals = EtcdJournals::new(Handle::current(), &self.client, &self.keys, &self.leadership);
        self.journals = Some(Arc::new(journals));
        // Not before: what was being read must not be compacted.
        let (client, keys, clock) = (self.client.clone(), self.keys.clone(), self.outside.clock.clone());
        let (leadership, upkeep) = (self.leadership.clone(), self.upkeep.clone());
        self.beside.spawn(async move {
            tokio::select! {
                biased;
                () = leadership.term.lost() => {}
                () = upkeep.run(&client, &keys.leader, &*clock) => {}
            }
        });
    }

    /// The work of a commit. How it ended is to be told to [`Leader::committed`], and nothing is accepted before that.
    pub(super) fn begin(
        &mut self,
        batch: &Batch,
    ) -> Result<impl Future<Output = Result<Committed, StoreError>> + Send + use<>, StoreError> {
        let number = self.usable()?;
        if let Some((table, length)) = batch.oversize() {
            return Err(StoreError::Oversize { table, length });
        }
        self.failed = true;
        let mut rows = commit::last_states(&self.keys, batch, &mut self.parted);
        self.counting.number(&self.keys, batch, &mut rows);
        let kept = self.keep_lead.filter(|_| batch.rows().any(|row| row.table == Table::META));
        if let Some(lead) = kept {
            rows.insert(self.keys.lead.clone(), Some(lead.to_be_bytes().to_vec().into()));
        }
        let bytes = rows.iter().map(|(key, value)| (key.len() + value.as_ref().map_or(0, Bytes::len)) as u64).sum();
        let writer = self.writer();
        Ok(async move {
            writer.upkeep.make_way(bytes).await;
            let number = writer.commit(rows, number).await?;
            Ok(Committed { number, kept_lead: kept.is_some() })
        })
    }

    pub(super) fn committed(&mut self, written: Result<Committed, StoreError>) -> Result<(), StoreError> {
        let Committed { number, kept_lead } = written?;
        self.failed = false;
        self.number = Some(number);
        self.keep_lead = self.keep_lead.filter(|_| !kept_lead);
        Ok(())
    }

    /// The number to confirm, if there is doubt.
    pub(super) fn in_doubt(&self) -> Result<Option<u64>, StoreError> {
        let number = self.usable()?;
        Ok(self.leadership.term.is_in_doubt().then_some(number))
    }

    pub(super) fn confirmed(&mut self, confirmed: Result<(), StoreError>) -> Result<(), StoreError> {
        self.failed = confirmed.is_err();
        confirmed
    }

    pub(super) fn writer(&self) -> Writer {
        Writer {
            client: self.client.clone(),
            keys: self.keys.clone(),
            leadership: self.leadership.clone(),
            upkeep: self.upkeep.clone(),
        }
    }

    /// The work of [`Leader::close`].
    pub(super) fn closing(&self) -> impl Future<Output = ()> + Send + use<> {
        let (client, leadership) = (self.client.clone(), self.leadership.clone());
        async move {
            let _shorter = leadership.give_up(&client).await;
        }
    }

    /// The number of the last transaction of a store that may be used.
    fn usable(&self) -> Result<u64, StoreError> {
        let why = || StoreError::Unusable { why: "it was not loaded, or failed before".to_owned() };
        self.number.filter(|_| !self.failed).ok_or_else(why)
    }
}
