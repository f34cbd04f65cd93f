//! The few messages of etcd's gRPC API that are needed, by their published field numbers. Fields that are never read are left
//! out: a decoder skips what it does not know.

use bytes::Bytes;

#[derive(Clone, PartialEq, prost::Message)]
pub struct ResponseHeader {
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// One past the last key; empty for `key` alone.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub limit: i64,
    #[prost(int64, tag = "4")]
    pub revision: i64,
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub more: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// Shared: a request is copied for each attempt, and values are most of it.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    #[prost(int64, tag = "3")]
    pub lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2, 3")]
    pub request: Option<Request>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub range: Option<RangeResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Compare {
    /// 0 is "equal", the only comparison used here.
    #[prost(int32, tag = "1")]
    pub result: i32,
    #[prost(int32, tag = "2")]
    pub target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    #[prost(oneof = "CompareWith", tags = "5, 6, 7")]
    pub with: Option<CompareWith>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum CompareWith {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub ttl_seconds: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub id: i64,
    #[prost(string, tag = "4")]
    pub error: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseKeepAliveResponse {
    #[prost(int64, tag = "3")]
    pub ttl_seconds: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct WatchResponse {
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Event {
    /// 0 is a put, 1 a deletion.
    #[prost(int32, tag = "1")]
    pub kind: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub revision: i64,
    #[prost(bool, tag = "2")]
    pub physical: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct StatusRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The file, and how much of it is not free for reuse.
    #[prost(int64, tag = "3")]
    pub db_size: i64,
    #[prost(uint64, tag = "5")]
    pub raft_index: u64,
    #[prost(int64, tag = "9")]
    pub db_size_in_use: i64,
    /// Zero before etcd 3.6, which does not tell.
    #[prost(int64, tag = "12")]
    pub db_size_quota: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AlarmRequest {
    /// 0 asks, 1 raises, 2 takes back.
    #[prost(int32, tag = "1")]
    pub action: i32,
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    /// 0 is any, 1 is "no space".
    #[prost(int32, tag = "3")]
    pub alarm: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AlarmResponse {
    #[prost(message, repeated, tag = "2")]
    pub alarms: Vec<AlarmMember>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AlarmMember {
    #[prost(uint64, tag = "1")]
    pub member_id: u64,
    #[prost(int32, tag = "2")]
    pub alarm: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub token: String,
}

/// An answer of which nothing is read.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ignored {}

impl Compare {
    pub fn created_at(key: &[u8], revision: i64) -> Compare {
        Compare { result: 0, target: 1, key: key.to_vec(), with: Some(CompareWith::CreateRevision(revision)) }
    }

    pub fn modified_at(key: &[u8], revision: i64) -> Compare {
        Compare { result: 0, target: 2, key: key.to_vec(), with: Some(CompareWith::ModRevision(revision)) }
    }

    pub fn has_value(key: &[u8], value: &[u8]) -> Compare {
        Compare { result: 0, target: 3, key: key.to_vec(), with: Some(CompareWith::Value(value.to_vec())) }
    }
}

impl RequestOp {
    pub fn get(key: &[u8]) -> RequestOp {
        let range = RangeRequest { key: key.to_vec(), ..RangeRequest::default() };
        RequestOp { request: Some(Request::Range(range)) }
    }

    pub fn put(key: &[u8], value: &[u8]) -> RequestOp {
        RequestOp::put_shared(key, Bytes::copy_from_slice(value))
    }

    pub fn put_shared(key: &[u8], value: Bytes) -> RequestOp {
        let put = PutRequest { key: key.to_vec(), value, lease: 0 };
        RequestOp { request: Some(Request::Put(put)) }
    }

    pub fn delete(key: &[u8]) -> RequestOp {
        let delete = DeleteRangeRequest { key: key.to_vec(), range_end: Vec::new() };
        RequestOp { request: Some(Request::DeleteRange(delete)) }
    }

    /// Keys from `key` up to, and without, `end`.
    pub fn delete_range(key: Vec<u8>, end: Vec<u8>) -> RequestOp {
        RequestOp { request: Some(Request::DeleteRange(DeleteRangeRequest { key, range_end: end })) }
    }

    pub fn delete_prefix(prefix: &[u8]) -> RequestOp {
        let delete = DeleteRangeRequest { key: prefix.to_vec(), range_end: prefix_end(prefix) };
        RequestOp { request: Some(Request::DeleteRange(delete)) }
    }
}

impl TxnResponse {
    /// The first key of the answer's `index`-th operation, which was a range.
    pub fn found(&self, index: usize) -> Option<&KeyValue> {
        self.responses.get(index)?.range.as_ref()?.kvs.first()
    }
}

/// The first key behind all that begin with `prefix`.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // All bytes were the highest: etcd reads a single zero as "to the very end".
    vec![0]
}
