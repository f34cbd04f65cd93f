//! Becoming the leader, staying it, and leaving.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tonic::Status;

use super::client::{Client, explain, is_final};
use super::messages::{Compare, PutRequest, RangeRequest, Request, RequestOp, TxnRequest};
use super::{Config, Keys, failed};
use crate::clock::{Clock, Moment};
use crate::{StoreError, Term};

/// Between two attempts to reach an etcd that does not answer.
const RETRY: Duration = Duration::from_millis(100);

/// How long an etcd that was never reached is tried before the start is given up.
const FIRST_CONTACT: Duration = Duration::from_secs(10);

/// How long one look at the leader's key may try for. Whoever stands by looks again for as long as it takes.
const LOOK: Duration = Duration::from_secs(3);

/// How long a standby trusts a watch before it looks again: its connection may have fallen silent.
const WATCH: Duration = Duration::from_secs(1);

/// How often an etcd that does not answer is complained about.
const COMPLAIN: Duration = Duration::from_secs(10);

/// What makes us the leader: the key we created, bound to our lease.
#[derive(Debug)]
pub struct Leadership {
    clock: Arc<dyn Clock>,
    lease: i64,
    lease_seconds: u64,
    /// How long we may act on it without asking.
    pub term: Term,
    /// When the leader's key was created, in etcd's count. No other leader ever has the same.
    pub revision: i64,
}

impl Leadership {
    /// Waits until nobody else leads. An etcd that was reached once may be away for as long as it likes.
    pub async fn acquire(
        client: &Client,
        keys: &Keys,
        config: &Config,
        clock: &Arc<dyn Clock>,
    ) -> Result<Leadership, StoreError> {
        let client = &client.patient(LOOK);
        let started = clock.now();
        let mut complained: Option<Moment> = None;
        let mut reached = config.known;
        loop {
            let status = match attempt(client, keys, config, clock, &mut reached).await {
                Ok(Some(leadership)) => return Ok(leadership),
                Ok(None) => continue,
                Err(status) => status,
            };
            if !reached && (is_final(&status) || clock.since(started) > FIRST_CONTACT) {
                return Err(failed(&format!("etcd at {}", config.endpoints.join(", ")), &status));
            }
            if complained.is_none_or(|last| clock.since(last) > COMPLAIN) {
                tracing::warn!(error = explain(&status), "etcd does not answer; standing by until it does");
                complained = Some(clock.now());
            }
            sleep(RETRY).await;
        }
    }

    /// Renews the lease for as long as it exists. Who could not renew it for two leases has been replaced, or will find
    /// nothing of it when etcd is back: better a standby than a leader that answers nobody.
    pub async fn keep(&self, client: &Client) {
        let lease = Duration::from_secs(self.lease_seconds);
        // Two renewals may fail before the lease ends.
        let third = lease / 3;
        let mut renewed = self.clock.now();
        sleep(third).await;
        loop {
            let asked = self.clock.now();
            match client.lease_keep_alive(self.lease, third).await.map(u64::try_from) {
                Ok(Ok(seconds)) if seconds > 0 => {
                    self.term.renew(asked, Duration::from_secs(seconds));
                    renewed = asked;
                    sleep(third).await;
                }
                Ok(_) => {
                    tracing::warn!("the lease in etcd has ended: this replica no longer leads");
                    return self.term.lose();
                }
                Err(status) if self.clock.since(renewed) > lease * 2 => {
                    tracing::warn!(error = explain(&status), "the lease in etcd could not be renewed for two leases");
                    return self.term.lose();
                }
                Err(_) => sleep(RETRY).await,
            }
        }
    }

    pub async fn give_up(&self, client: &Client) -> Result<(), Status> {
        client.patient(Duration::from_secs(1)).lease_revoke(self.lease).await.map(drop)
    }
}

/// Creates the leader's key, or waits until the one that exists goes. `None`: look again.
async fn attempt(
    client: &Client,
    keys: &Keys,
    config: &Config,
    clock: &Arc<dyn Clock>,
    reached: &mut bool,
) -> Result<Option<Leadership>, Status> {
    let found = client.range(RangeRequest { key: keys.leader.clone(), ..RangeRequest::default() }).await?;
    *reached = true;
    if !found.kvs.is_empty() {
        let revision = found.header.map_or(0, |header| header.revision.saturating_add(1));
        client.deleted(keys.leader.clone(), revision, WATCH).await?;
        return Ok(None);
    }
    let asked = clock.now();
    let lease_seconds = config.lease.as_secs().max(1);
    let granted = client.lease_grant(i64::try_from(lease_seconds).unwrap_or(i64::MAX)).await?;
    if !granted.error.is_empty() {
        return Err(Status::unavailable(granted.error));
    }
    // Bound to no lease, the leader's key would stay for ever.
    if granted.id == 0 {
        return Err(Status::internal("etcd granted a lease without a number"));
    }
    let key = PutRequest { key: keys.leader.clone(), value: config.replica.clone().into(), lease: granted.id };
    let created = client
        .txn(TxnRequest {
            compare: vec![Compare::created_at(&keys.leader, 0)],
            success: vec![RequestOp { request: Some(Request::Put(key)) }],
            failure: vec![RequestOp::get(&keys.leader)],
        })
        .await?;
    let revision = match &created.header {
        Some(header) if created.succeeded => Some(header.revision),
        // An attempt whose answer was lost has created it: nobody else has this lease.
        _ => created.found(0).filter(|leader| leader.lease == granted.id).map(|leader| leader.create_revision),
    };
    let Some(revision) = revision else {
        // Somebody was faster. Should this fail, the lease ends by itself.
        let _unused = client.lease_revoke(granted.id).await;
        return Ok(None);
    };
    let term = Term::by(clock.clone(), asked, Duration::from_secs(lease_seconds));
    Ok(Some(Leadership { clock: clock.clone(), lease: granted.id, lease_seconds, term, revision }))
}
