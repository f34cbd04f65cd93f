//! Becoming the leader, staying it, and leaving.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use tonic::Status;

use super::client::Client;
use super::messages::{Compare, PutRequest, RangeRequest, Request, RequestOp, TxnRequest};
use super::{Config, Keys, failed};
use crate::{StoreError, Term};

/// Between two attempts to reach an etcd that does not answer.
const RETRY: Duration = Duration::from_millis(200);

/// How long an etcd that was never reached is tried before the start is given up.
const FIRST_CONTACT: Duration = Duration::from_secs(10);

/// What makes us the leader: the key we created, bound to our lease.
#[derive(Debug)]
pub struct Leadership {
    lease: i64,
    lease_seconds: u64,
    /// How long we may act on it without asking.
    pub term: Term,
    /// When the leader's key was created, in etcd's count. No other leader ever has the same.
    pub revision: i64,
}

impl Leadership {
    /// Waits until nobody else leads.
    pub async fn acquire(client: &Client, keys: &Keys, config: &Config) -> Result<Leadership, StoreError> {
        let started = Instant::now();
        let mut reached = false;
        loop {
            match attempt(client, keys, config).await {
                Ok(Some(leadership)) => return Ok(leadership),
                Ok(None) => reached = true,
                Err(status) if !reached && started.elapsed() > FIRST_CONTACT => {
                    return Err(failed(&format!("etcd at {}", config.endpoints.join(", ")), &status));
                }
                Err(_) => sleep(RETRY).await,
            }
        }
    }

    /// Renews the lease for as long as it exists.
    pub async fn keep(&self, client: &Client) {
        // Two renewals may fail before the lease ends.
        let third = Duration::from_millis(self.lease_seconds * 1000 / 3);
        sleep(third).await;
        loop {
            let asked = Instant::now();
            match timeout(third, client.lease_keep_alive(self.lease)).await {
                Ok(Ok(seconds)) => match u64::try_from(seconds) {
                    Ok(seconds) if seconds > 0 => {
                        self.term.renew(asked, Duration::from_secs(seconds));
                        sleep(third).await;
                    }
                    _ => return self.term.lose(),
                },
                Ok(Err(_)) | Err(_) => sleep(RETRY).await,
            }
        }
    }

    pub async fn give_up(&self, client: &Client) -> Result<(), Status> {
        client.lease_revoke(self.lease).await.map(drop)
    }
}

/// Creates the leader's key, or waits until the one that exists goes. `None`: look again.
async fn attempt(client: &Client, keys: &Keys, config: &Config) -> Result<Option<Leadership>, Status> {
    let found = client.range(RangeRequest { key: keys.leader.clone(), ..RangeRequest::default() }).await?;
    if !found.kvs.is_empty() {
        let revision = found.header.map_or(0, |header| header.revision + 1);
        client.deleted(keys.leader.clone(), revision).await?;
        return Ok(None);
    }
    let asked = Instant::now();
    let lease_seconds = config.lease.as_secs().max(1);
    let granted = client.lease_grant(i64::try_from(lease_seconds).unwrap_or(i64::MAX)).await?;
    if !granted.error.is_empty() {
        return Err(Status::unavailable(granted.error));
    }
    let key = PutRequest { key: keys.leader.clone(), value: config.replica.clone().into_bytes(), lease: granted.id };
    let created = client
        .txn(TxnRequest {
            compare: vec![Compare::created_at(&keys.leader, 0)],
            success: vec![RequestOp { request: Some(Request::Put(key)) }],
            failure: Vec::new(),
        })
        .await?;
    match created.header {
        Some(header) if created.succeeded => {
            let term = Term::new(asked, Duration::from_secs(lease_seconds));
            Ok(Some(Leadership { lease: granted.id, lease_seconds, term, revision: header.revision }))
        }
        _ => {
            // Somebody was faster. Should this fail, the lease ends by itself.
            let _unused = client.lease_revoke(granted.id).await;
            Ok(None)
        }
    }
}
