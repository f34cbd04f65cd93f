//! Keys with every value they had since the last compaction, as etcd keeps them. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;
use prost::Message;
use store::etcd::messages::{
    Compare, CompareWith, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RangeResponse, Request,
    ResponseHeader, ResponseOp, TxnRequest, TxnResponse,
};
use tonic::Status;

/// etcd's defaults.
const TXN_OPS_MAX: usize = 128;
const REQUEST_BYTES_MAX: usize = 1_572_864;

#[derive(Clone, Debug)]
struct Version {
    revision: i64,
    created: i64,
    /// `None`: deleted.
    value: Option<Bytes>,
    lease: i64,
}

#[derive(Clone, Debug)]
pub struct History {
    revision: i64,
    compacted: i64,
    /// The last version last.
    keys: BTreeMap<Vec<u8>, Vec<Version>>,
    bytes: u64,
}

impl Default for History {
    fn default() -> History {
        // An empty etcd is at its first revision.
        History { revision: 1, compacted: 0, keys: BTreeMap::new(), bytes: 0 }
    }
}

/// What keeps a write from being done as it was asked for; nothing, in an honest etcd.
pub trait Bend {
    fn holds(&self, compare: &Compare, truly: bool) -> bool {
        let _ = compare;
        truly
    }

    fn keeps(&self, put: &PutRequest, index: usize) -> bool {
        let _ = (put, index);
        true
    }
}

impl History {
    pub fn revision(&self) -> i64 {
        self.revision
    }

    pub fn header(&self) -> ResponseHeader {
        ResponseHeader { member_id: 1, revision: self.revision }
    }

    /// Of all values that are kept, deletions included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn versions(&self) -> usize {
        self.keys.values().map(Vec::len).sum()
    }

    pub fn get(&self, key: &[u8]) -> Option<KeyValue> {
        self.version(key, self.revision).map(|version| to_key_value(key, version))
    }

    /// What there is now below a prefix.
    pub fn below<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a Bytes)> {
        let range = self.keys.range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded));
        range
            .take_while(move |(key, _)| key.starts_with(prefix))
            .filter_map(|(key, versions)| Some((key.as_slice(), versions.last()?.value.as_ref()?)))
    }

    pub fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Status> {
        let revision = if request.revision == 0 { self.revision } else { request.revision };
        self.readable(revision)?;
        let limit = usize::try_from(request.limit).ok().filter(|&limit| limit > 0).unwrap_or(usize::MAX);
        let mut found = self
            .span(&request.key, &request.range_end)
            .filter_map(|(key, _)| self.version(key, revision).map(|version| to_key_value(key, version)))
            .map(|mut found| {
                if request.keys_only {
                    found.value.clear();
                }
                found
            });
        let kvs: Vec<KeyValue> = found.by_ref().take(limit).collect();
        let more = found.next().is_some();
        Ok(RangeResponse { header: Some(self.header()), more, kvs })
    }

    /// Whether the key was deleted at or after this revision; an error if that is no longer known.
    pub fn deleted_since(&self, key: &[u8], revision: i64) -> Result<bool, Status> {
        if revision <= self.compacted {
            return Err(compacted());
        }
        let versions = self.keys.get(key).map_or(&[][..], Vec::as_slice);
        Ok(versions.iter().any(|version| version.revision >= revision && version.value.is_none()))
    }

    /// Whether etcd would look at it at all.
    pub fn check(request: &TxnRequest) -> Result<(), Status> {
        if request.success.len().max(request.failure.len()).max(request.compare.len()) > TXN_OPS_MAX {
            return Err(Status::invalid_argument("etcdserver: too many operations in txn request"));
        }
        if request.encoded_len() > REQUEST_BYTES_MAX {
            return Err(Status::invalid_argument("etcdserver: request is too large"));
        }
        let mut put = BTreeSet::new();
        for operation in &request.success {
            if let Some(Request::Put(one)) = &operation.request
                && !put.insert(one.key.as_slice())
            {
                return Err(Status::invalid_argument("etcdserver: duplicate key given in txn request"));
            }
        }
        Ok(())
    }

    pub fn transact(&mut self, request: &TxnRequest, bend: &dyn Bend) -> TxnResponse {
        let succeeded = request.compare.iter().all(|compare| bend.holds(compare, self.holds(compare)));
        let operations = if succeeded { &request.success } else { &request.failure };
        let at = self.revision + 1;
        let mut responses = Vec::new();
        for (index, operation) in operations.iter().enumerate() {
            let mut range = None;
            match &operation.request {
                // A transaction sees what it has written.
                Some(Request::Range(wanted)) => range = self.range(wanted).ok(),
                Some(Request::Put(put)) if bend.keeps(put, index) => self.put(at, put),
                Some(Request::DeleteRange(gone)) => self.delete(at, gone),
                Some(Request::Put(_)) | None => {}
            }
            responses.push(ResponseOp { range });
        }
        TxnResponse { header: Some(self.header()), succeeded, responses }
    }

    /// The keys of a lease go with it.
    pub fn end_lease(&mut self, lease: i64) {
        let bound = |versions: &Vec<Version>| versions.last().is_some_and(|v| v.value.is_some() && v.lease == lease);
        let keys: Vec<_> =
            self.keys.iter().filter(|(_, versions)| bound(versions)).map(|(key, _)| key.clone()).collect();
        let at = self.revision + 1;
        for key in keys {
            self.push(at, &key, None, 0);
        }
    }

    pub fn compact(&mut self, revision: i64) -> Result<(), Status> {
        if revision <= self.compacted {
            return Err(compacted());
        }
        if revision > self.revision {
            return Err(Status::out_of_range("etcdserver: mvcc: required revision is a future revision"));
        }
        self.compacted = revision;
        let bytes = &mut self.bytes;
        self.keys.retain(|key, versions| {
            let old = versions.iter().take_while(|version| version.revision <= revision).count();
            // The last of the old ones is what is read at that revision, unless it is a deletion.
            let kept = usize::from(old > 0 && versions[old - 1].value.is_some());
            for gone in versions.drain(..old - kept) {
                *bytes -= size(key, gone.value.as_ref());
            }
            !versions.is_empty()
        });
        Ok(())
    }

    fn holds(&self, compare: &Compare) -> bool {
        let found = self.version(&compare.key, self.revision);
        match &compare.with {
            Some(CompareWith::CreateRevision(revision)) => found.map_or(0, |found| found.created) == *revision,
            Some(CompareWith::ModRevision(revision)) => found.map_or(0, |found| found.revision) == *revision,
            Some(CompareWith::Value(value)) => {
                found.and_then(|found| found.value.as_ref()).is_some_and(|found| found == value)
            }
            None => false,
        }
    }

    fn readable(&self, revision: i64) -> Result<(), Status> {
        match revision {
            _ if revision < self.compacted => Err(compacted()),
            _ if revision > self.revision => {
                Err(Status::out_of_range("etcdserver: mvcc: required revision is a future revision"))
            }
            _ => Ok(()),
        }
    }

    fn version(&self, key: &[u8], revision: i64) -> Option<&Version> {
        let versions = self.keys.get(key)?;
        versions.iter().rev().find(|version| version.revision <= revision).filter(|version| version.value.is_some())
    }

    fn span<'a>(&'a self, key: &'a [u8], range_end: &'a [u8]) -> impl Iterator<Item = (&'a Vec<u8>, &'a Vec<Version>)> {
        let end = match range_end {
            [] => Bound::Included(key),
            [0] => Bound::Unbounded,
            // One that ends before it begins has nothing.
            end => Bound::Excluded(end.max(key)),
        };
        self.keys.range::<[u8], _>((Bound::Included(key), end))
    }

    fn put(&mut self, at: i64, put: &PutRequest) {
        self.push(at, &put.key, Some(put.value.clone()), put.lease);
    }

    fn delete(&mut self, at: i64, gone: &DeleteRangeRequest) {
        let there = |versions: &Vec<Version>| versions.last().is_some_and(|version| version.value.is_some());
        let found = self.span(&gone.key, &gone.range_end);
        let keys: Vec<_> = found.filter(|(_, versions)| there(versions)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.push(at, &key, None, 0);
        }
    }

    fn push(&mut self, at: i64, key: &[u8], value: Option<Bytes>, lease: i64) {
        self.bytes += size(key, value.as_ref());
        self.revision = at;
        let versions = self.keys.entry(key.to_vec()).or_default();
        let created = versions.last().filter(|last| last.value.is_some()).map_or(at, |last| last.created);
        versions.push(Version { revision: at, created, value, lease });
    }
}

/// About what a version takes of etcd's file.
fn size(key: &[u8], value: Option<&Bytes>) -> u64 {
    const AROUND: usize = 64;
    (AROUND + key.len() + value.map_or(0, Bytes::len)) as u64
}

fn to_key_value(key: &[u8], version: &Version) -> KeyValue {
    KeyValue {
        key: key.to_vec(),
        create_revision: version.created,
        mod_revision: version.revision,
        value: version.value.as_ref().map(|value| value.to_vec()).unwrap_or_default(),
        lease: version.lease,
    }
}

fn compacted() -> Status {
    Status::out_of_range("etcdserver: mvcc: required revision has been compacted")
}
