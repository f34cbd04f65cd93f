//! Two ways to make a batch durable: in one transaction, or, when it is too large for one, in pieces that count only once a
//! marker says that all of them are there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;
use tonic::{Code, Status};

use super::client::Client;
use super::lead::Leadership;
use super::messages::{Compare, KeyValue, RangeRequest, RequestOp, TxnRequest, TxnResponse};
use super::upkeep::Upkeep;
use super::{Keys, failed, stored};
use crate::batch::{Batch, Row, Rows, Table, VALUE_BYTES_MAX};
use crate::error::StoreError;

/// etcd takes 128 operations in a transaction unless told otherwise; one of them counts the commit, one may drop the marker.
const TXN_OPS: usize = 126;

/// Rows at which a group takes no further command. What a group adds when it is complete, the ledger's row of each command
/// and those they share, doubles it, and must still fit into one transaction: a staged group costs five, and is written twice.
pub const GROUP_ROWS: usize = 56;

/// Below etcd's default of 1.5 MiB for a request, with room for what surrounds the rows.
const TXN_BYTES: usize = 1024 * 1024;

/// How often an etcd without space is asked again.
const FULL_RETRY: Duration = Duration::from_millis(500);

/// No store counts this far, so that the next number always is one.
const COMMITS_MAX: u64 = u64::MAX / 2;

/// Values longer than this are cut into parts of this length, so that every part fits into a request.
const PART_BYTES: usize = 512 * 1024;

/// The keys that a batch changes, each with its last state only: a transaction may name a key once.
pub type LastStates = BTreeMap<Vec<u8>, Option<Bytes>>;

/// The rows that are stored in parts, and in how many.
pub type Parted = BTreeMap<(Table, Vec<u8>), u32>;

/// What the batch means for the keys in etcd. `parted` is brought up to date with it.
pub fn last_states(keys: &Keys, batch: &Batch, parted: &mut Parted) -> LastStates {
    let last: BTreeMap<_, _> = batch.rows().map(|row| ((row.table, row.key), row.value)).collect();
    let mut states = LastStates::new();
    for ((table, key), value) in last {
        let stored = value.map(stored::encode);
        let parts = match value.zip(stored.as_ref()) {
            Some((value, stored)) if stored.len() > PART_BYTES => value.chunks(PART_BYTES).collect(),
            _ => Vec::new(),
        };
        // Values are bounded, so parts are far fewer than u32::MAX.
        let count = parts.len() as u32;
        let stored = if count > 0 { Some(stored::encode_parts(count)) } else { stored };
        states.insert(keys.row(table, key), stored);
        for (number, part) in (0..).zip(parts) {
            states.insert(keys.part(table, key, number), Some(Bytes::copy_from_slice(part)));
        }
        let place = (table, key.to_vec());
        for number in count..parted.remove(&place).unwrap_or(0) {
            states.insert(keys.part(table, key, number), None);
        }
        if count > 0 {
            parted.insert(place, count);
        }
    }
    states
}

#[derive(Clone)]
pub struct Writer {
    pub client: Client,
    pub keys: Arc<Keys>,
    pub leadership: Arc<Leadership>,
    pub upkeep: Arc<Upkeep>,
}

/// One transaction's share of a batch.
type Piece = Vec<RequestOp>;

impl Writer {
    /// Makes the rows durable after transaction `number`; the number of the last one it took.
    pub async fn commit(&self, rows: LastStates, number: u64) -> Result<u64, StoreError> {
        let mut pieces = split(&rows);
        match pieces.len() {
            0 => self.step(Vec::new(), number).await,
            1 => self.step(pieces.remove(0), number).await,
            // From the marker on it counts. Spreading it over the rows may be finished by the next leader, but no other
            // commit comes before that.
            _ => {
                let number = self.stage(&rows, number).await?;
                self.spread(&rows, number).await
            }
        }
    }

    /// Writes nothing, and succeeds only for the leader.
    pub async fn confirm(&self, number: u64) -> Result<(), StoreError> {
        self.fenced(Vec::new(), number, number).await.map(drop)
    }

    /// Finishes or drops what an earlier leader left half done; the number of the last transaction.
    pub async fn recover(&self) -> Result<u64, StoreError> {
        let number = match self.get(&self.keys.commit).await? {
            Some(found) => parse_number(&found.value)
                .filter(|&number| number < COMMITS_MAX)
                .ok_or_else(|| damaged(&found.key, "it is not the number of a commit"))?,
            // The very first start: every later transaction compares with this key, so it must exist.
            None => {
                let create = TxnRequest {
                    compare: vec![
                        Compare::created_at(&self.keys.leader, self.leadership.revision),
                        Compare::created_at(&self.keys.commit, 0),
                    ],
                    success: vec![RequestOp::put(&self.keys.commit, &encode_number(0))],
                    failure: vec![RequestOp::get(&self.keys.leader)],
                };
                let answer = self.txn(create).await?;
                self.still_leading(&answer)?;
                0
            }
        };
        match self.get(&self.keys.marker).await? {
            Some(marker) => self.finish_staged(&marker, number).await,
            None => self.step(vec![RequestOp::delete_prefix(&self.keys.staged)], number).await,
        }
    }

    /// Stages the batch in pieces, then sets the marker.
    async fn stage(&self, rows: &LastStates, mut number: u64) -> Result<u64, StoreError> {
        let mut encoded = Batch::new();
        for (key, value) in rows {
            encoded.push(Row { table: Table::META, key, value: value.as_deref() });
        }
        let pieces = encoded.encoded().chunks(TXN_BYTES);
        let count = pieces.len() as u64;
        for (index, piece) in pieces.enumerate() {
            let stage = RequestOp::put(&self.staged_key(index as u64), piece);
            number = self.step(vec![stage], number).await?;
        }
        let checksum = encode_number(crc32fast::hash(encoded.encoded()).into());
        let marker = [encode_number(count), checksum].concat();
        self.step(vec![RequestOp::put(&self.keys.marker, &marker)], number).await
    }

    async fn finish_staged(&self, marker: &KeyValue, number: u64) -> Result<u64, StoreError> {
        let (count, checksum) = marker.value.split_at_checked(8).unwrap_or_default();
        let (Some(count), Some(checksum)) = (parse_number(count), parse_number(checksum)) else {
            return Err(damaged(&marker.key, "it does not say how many pieces there are"));
        };
        let mut encoded = Vec::new();
        for index in 0..count {
            let key = self.staged_key(index);
            let piece = self.get(&key).await?.ok_or_else(|| damaged(&key, "a piece of a commit is missing"))?;
            encoded.extend_from_slice(&piece.value);
        }
        if u64::from(crc32fast::hash(&encoded)) != checksum {
            return Err(damaged(&marker.key, "the pieces of a commit do not match its checksum"));
        }
        let rows =
            Rows::decode(&encoded).map(|row| (row.key.to_vec(), row.value.map(Bytes::copy_from_slice))).collect();
        self.spread(&rows, number).await
    }

    /// Writes the rows of a staged batch to their places; the last transaction takes the marker and the pieces away.
    async fn spread(&self, rows: &LastStates, mut number: u64) -> Result<u64, StoreError> {
        for piece in split(rows) {
            number = self.step(piece, number).await?;
        }
        let clean = vec![RequestOp::delete(&self.keys.marker), RequestOp::delete_prefix(&self.keys.staged)];
        self.step(clean, number).await
    }

    /// One transaction after number `before`; its own number. Because each has its own, an attempt that was given up and
    /// arrives late does nothing, however many were made after it.
    async fn step(&self, mut operations: Vec<RequestOp>, before: u64) -> Result<u64, StoreError> {
        operations.push(RequestOp::put(&self.keys.commit, &encode_number(before + 1)));
        self.fenced(operations, before, before + 1).await
    }

    /// What only the leader can do, and only after transaction `before`.
    async fn fenced(&self, operations: Vec<RequestOp>, before: u64, after: u64) -> Result<u64, StoreError> {
        let request = TxnRequest {
            compare: vec![
                Compare::created_at(&self.keys.leader, self.leadership.revision),
                Compare::has_value(&self.keys.commit, &encode_number(before)),
            ],
            success: operations,
            failure: vec![RequestOp::get(&self.keys.leader), RequestOp::get(&self.keys.commit)],
        };
        let answer = self.txn(request).await?;
        if answer.succeeded {
            return Ok(after);
        }
        self.still_leading(&answer)?;
        // We lead, so nobody but us has counted on: an earlier attempt got through and only its answer was lost.
        match answer.found(1).and_then(|commit| parse_number(&commit.value)) {
            Some(found) if found == after => Ok(after),
            found => Err(damaged(&self.keys.commit, &format!("expected number {before}, found {found:?}"))),
        }
    }

    /// Asks again for as long as the lease is not given up. Whether an attempt got through is found out by the next one.
    async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, StoreError> {
        let term = &self.leadership.term;
        let ended =
            || StoreError::Fenced { leader: "nobody that we know of, our lease could not be renewed".to_owned() };
        loop {
            let answer = tokio::select! {
                biased;
                answer = self.client.txn(request.clone()) => answer,
                () = term.lost() => return Err(ended()),
            };
            match answer {
                Ok(answer) => {
                    self.upkeep.answered(answer.header.as_ref().map_or(0, |header| header.revision));
                    return Ok(answer);
                }
                // Nothing is lost by waiting: reads go on, and who wants to write is told why not.
                Err(status) if is_full(&status) => {
                    self.upkeep.refused();
                    tokio::select! {
                        biased;
                        () = sleep(FULL_RETRY) => {}
                        () = term.lost() => return Err(ended()),
                    }
                }
                Err(status) => return Err(failed("writing to etcd", &status)),
            }
        }
    }

    /// Puts a long value together again.
    pub async fn read_parts(&self, table: Table, key: &[u8], count: u32) -> Result<Vec<u8>, StoreError> {
        let mut value = Vec::new();
        if count as usize > VALUE_BYTES_MAX / PART_BYTES + 1 {
            return Err(damaged(key, "it says that it has more parts than a row can have"));
        }
        for number in 0..count {
            let key = self.keys.part(table, key, number);
            let part = self.get(&key).await?.ok_or_else(|| damaged(&key, "a part of a long row is missing"))?;
            value.extend_from_slice(&part.value);
        }
        Ok(value)
    }

    pub async fn get(&self, key: &[u8]) -> Result<Option<KeyValue>, StoreError> {
        let request = RangeRequest { key: key.to_vec(), ..RangeRequest::default() };
        let answer = self.client.range(request).await.map_err(|status| failed("reading from etcd", &status))?;
        Ok(answer.kvs.into_iter().next().filter(|found| found.key == key))
    }

    fn still_leading(&self, refused: &TxnResponse) -> Result<(), StoreError> {
        match refused.found(0) {
            _ if refused.succeeded => Ok(()),
            Some(leader) if leader.create_revision == self.leadership.revision => Ok(()),
            Some(leader) => Err(StoreError::Fenced { leader: String::from_utf8_lossy(&leader.value).into_owned() }),
            None => Err(StoreError::Fenced { leader: "nobody, our lease has ended".to_owned() }),
        }
    }

    fn staged_key(&self, index: u64) -> Vec<u8> {
        let mut key = self.keys.staged.clone();
        key.extend_from_slice(format!("{index:08}").as_bytes());
        key
    }
}

/// The rows as operations, in as many transactions as they need.
fn split(rows: &LastStates) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut bytes = 0;
    for (key, value) in rows {
        let size = key.len() + value.as_ref().map_or(0, Bytes::len);
        bytes += size;
        let operation = match value {
            Some(value) => RequestOp::put_shared(key, value.clone()),
            None => RequestOp::delete(key),
        };
        match pieces.last_mut() {
            Some(piece) if piece.len() < TXN_OPS && bytes <= TXN_BYTES => piece.push(operation),
            _ => {
                pieces.push(vec![operation]);
                bytes = size;
            }
        }
    }
    pieces
}

/// Whether etcd writes nothing more until somebody makes room.
pub fn is_full(status: &Status) -> bool {
    status.code() == Code::ResourceExhausted && status.message().contains("database space exceeded")
}

fn encode_number(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn parse_number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_be_bytes)
}

pub fn damaged(key: &[u8], what: &str) -> StoreError {
    StoreError::Corrupt { file: String::from_utf8_lossy(key).into_owned(), offset: 0, what: what.to_owned() }
}
