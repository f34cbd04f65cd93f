//! As much of etcd as a store asks of it: keys with revisions, ranges, transactions. Honest; who wants a lie changes the
//! answer afterwards.

use std::collections::BTreeMap;
use std::ops::Bound;

use prost::Message;
use store::etcd::messages::{
    AlarmResponse, Compare, CompareWith, Event, Ignored, KeyValue, LeaseGrantResponse, LeaseKeepAliveResponse,
    RangeRequest, RangeResponse, Request, RequestOp, ResponseHeader, ResponseOp, StatusResponse, TxnRequest,
    TxnResponse, WatchResponse,
};

/// What every lease is called: there is one leader at a time.
const LEASE: i64 = 7;

#[derive(Default)]
pub struct Model {
    pub keys: BTreeMap<Vec<u8>, KeyValue>,
    revision: i64,
}

impl Model {
    /// The answer to a call of that name, or nothing for what is never asked.
    pub fn answer(&mut self, method: &str, body: &[u8]) -> Option<Vec<u8>> {
        Some(match method {
            "Range" => self.range(&RangeRequest::decode(body).ok()?).encode_to_vec(),
            "Txn" => self.transact(TxnRequest::decode(body).ok()?).encode_to_vec(),
            "LeaseGrant" => LeaseGrantResponse { id: LEASE, error: String::new() }.encode_to_vec(),
            "LeaseKeepAlive" => LeaseKeepAliveResponse { ttl_seconds: 3 }.encode_to_vec(),
            "LeaseRevoke" => {
                self.keys.retain(|_, found| found.lease != LEASE);
                Ignored {}.encode_to_vec()
            }
            // Whoever waits for a leader waits for one that is gone: nobody renews but the leader itself.
            "Watch" => {
                self.keys.retain(|_, found| found.lease == 0);
                WatchResponse { canceled: false, events: vec![Event { kind: 1 }] }.encode_to_vec()
            }
            "Status" => {
                let header = Some(self.header());
                let raft_index = self.revision.unsigned_abs() + 1;
                StatusResponse { header, raft_index, db_size: 4096, db_size_in_use: 4096, db_size_quota: 1 << 31 }
                    .encode_to_vec()
            }
            "Alarm" => AlarmResponse::default().encode_to_vec(),
            "Compact" => Ignored {}.encode_to_vec(),
            _ => return None,
        })
    }

    fn header(&self) -> ResponseHeader {
        ResponseHeader { member_id: 1, revision: self.revision }
    }

    fn range(&self, request: &RangeRequest) -> RangeResponse {
        let end = match request.range_end.as_slice() {
            [] => Bound::Included(request.key.clone()),
            [0] => Bound::Unbounded,
            end => Bound::Excluded(end.to_vec()),
        };
        let limit = usize::try_from(request.limit).ok().filter(|&limit| limit > 0).unwrap_or(usize::MAX);
        let mut found = self.keys.range((Bound::Included(request.key.clone()), end)).map(|(_, found)| found.clone());
        let kvs: Vec<KeyValue> = found.by_ref().take(limit).collect();
        RangeResponse { header: Some(self.header()), more: found.next().is_some(), kvs }
    }

    fn transact(&mut self, request: TxnRequest) -> TxnResponse {
        let succeeded = request.compare.iter().all(|compare| self.holds(compare));
        let operations = if succeeded { request.success } else { request.failure };
        let writes = |operation: &RequestOp| !matches!(operation.request, Some(Request::Range(_)) | None);
        self.revision += i64::from(operations.iter().any(writes));
        let responses = operations.into_iter().filter_map(|operation| operation.request).map(|operation| {
            let range =
                match operation {
                    Request::Range(range) => Some(self.range(&range)),
                    Request::Put(put) => {
                        let created = self.keys.get(&put.key).map_or(self.revision, |found| found.create_revision);
                        let found = KeyValue {
                            key: put.key.clone(),
                            create_revision: created,
                            mod_revision: self.revision,
                            value: put.value.to_vec(),
                            lease: put.lease,
                        };
                        self.keys.insert(put.key, found);
                        None
                    }
                    Request::DeleteRange(gone) => {
                        let one = gone.range_end.is_empty();
                        self.keys.retain(|key, _| {
                            if one { *key != gone.key } else { *key < gone.key || *key >= gone.range_end }
                        });
                        None
                    }
                };
            ResponseOp { range }
        });
        let responses = responses.collect();
        TxnResponse { header: Some(self.header()), succeeded, responses }
    }

    fn holds(&self, compare: &Compare) -> bool {
        let found = self.keys.get(&compare.key);
        match &compare.with {
            Some(CompareWith::CreateRevision(revision)) => found.map_or(0, |found| found.create_revision) == *revision,
            Some(CompareWith::ModRevision(revision)) => found.map_or(0, |found| found.mod_revision) == *revision,
            Some(CompareWith::Value(value)) => found.is_some_and(|found| found.value == *value),
            None => false,
        }
    }
}
