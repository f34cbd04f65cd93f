//! Calls to etcd over gRPC, without generated code: tonic's generic client and prost's derive need no protoc to build.
//!
//! Every call may be sent again, to another member, when the first does not answer: reads and leases by their nature, and
//! transactions because each of them compares a number that it moves on (see [`super::commit`]).

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::members::Members;
pub use super::members::Tls;
use super::messages::{
    AlarmRequest, AlarmResponse, AuthenticateRequest, AuthenticateResponse, CompactionRequest, Ignored,
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest,
    RangeRequest, RangeResponse, StatusRequest, StatusResponse, TxnRequest, TxnResponse, WatchCreateRequest,
    WatchRequest, WatchResponse,
};
use super::outside::Outside;

/// The largest answer accepted. Pages are kept far smaller; this bounds what a strange server can make us allocate.
const ANSWER_BYTES_MAX: usize = 128 * 1024 * 1024;

/// How long the first attempt at a call may take before another member is asked, and how far that grows: an etcd that is
/// merely slow is given the time it needs.
const ATTEMPT_FIRST: Duration = Duration::from_secs(1);
const ATTEMPT_MAX: Duration = Duration::from_secs(5);

/// Between two attempts.
const AGAIN_FIRST: Duration = Duration::from_millis(10);
const AGAIN_MAX: Duration = Duration::from_millis(300);

/// How long a call is tried again unless its caller says otherwise.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a member that was left out is asked whether it is back.
const PROBE_AFTER: Duration = Duration::from_millis(500);

/// A refused token is replaced this often within one call; more means that the new ones are refused as well.
const TOKENS_MAX: u32 = 3;

/// A user of an etcd with authentication.
#[derive(Clone)]
pub struct Credentials {
    pub user: String,
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Credentials({:?})", self.user)
    }
}

/// Connections to the members. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    patience: Duration,
}

#[derive(Debug)]
struct Shared {
    members: Members,
    credentials: Option<Credentials>,
    token: Mutex<Option<MetadataValue<Ascii>>>,
    outside: Outside,
}

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cure {
    /// Ask another member.
    Elsewhere,
    /// Ask again in a moment.
    Later,
    /// Ask for a new token first.
    NewToken,
    /// The answer stands.
    None,
}

impl Cure {
    fn of(status: &Status) -> Cure {
        let says = |text: &str| status.message().contains(text);
        match status.code() {
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Aborted => {
                Cure::Elsewhere
            }
            // Full is no passing trouble; busy is.
            Code::ResourceExhausted if says("too many requests") => Cure::Later,
            Code::FailedPrecondition if says("not leader") => Cure::Elsewhere,
            Code::Unauthenticated => Cure::NewToken,
            Code::InvalidArgument if says("revision of auth store is old") || says("user name is empty") => {
                Cure::NewToken
            }
            _ => Cure::None,
        }
    }
}

impl Client {
    /// Connects lazily: an error here is one of configuration. Must be called inside a tokio runtime.
    pub fn new(endpoints: &[String], tls: Option<&Tls>) -> Result<Client, tonic::transport::Error> {
        Client::through(&Outside::default(), endpoints, tls, None)
    }

    /// The same through this world outside, as this user.
    pub fn through(
        outside: &Outside,
        endpoints: &[String],
        tls: Option<&Tls>,
        credentials: Option<Credentials>,
    ) -> Result<Client, tonic::transport::Error> {
        let members = Members::new(endpoints, tls, outside)?;
        let shared = Shared { members, credentials, token: Mutex::default(), outside: outside.clone() };
        Ok(Client { shared: Arc::new(shared), patience: PATIENCE })
    }

    /// The same connections, with another idea of how long a call is tried again.
    pub fn patient(&self, patience: Duration) -> Client {
        Client { shared: self.shared.clone(), patience }
    }

    pub async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        self.call("/etcdserverpb.KV/Range", request).await
    }

    /// The transaction may be done by an attempt whose answer is lost and then be asked for again: it must compare something
    /// that it changes, or be harmless twice.
    pub async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Status> {
        self.call("/etcdserverpb.KV/Txn", request).await
    }

    /// Drops what was overwritten before `revision`. That it was dropped already is no error.
    pub async fn compact(&self, revision: i64) -> Result<(), Status> {
        let request = CompactionRequest { revision, physical: false };
        match self.call::<_, Ignored>("/etcdserverpb.KV/Compact", request).await {
            Err(status) if is_compacted(&status) => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    pub async fn lease_grant(&self, ttl_seconds: i64) -> Result<LeaseGrantResponse, Status> {
        self.call("/etcdserverpb.Lease/LeaseGrant", LeaseGrantRequest { ttl_seconds }).await
    }

    pub async fn lease_revoke(&self, id: i64) -> Result<Ignored, Status> {
        self.call("/etcdserverpb.Lease/LeaseRevoke", LeaseRevokeRequest { id }).await
    }

    /// Renews a lease by one attempt, which the next one makes elsewhere if it fails; the seconds left, zero when it is gone.
    pub async fn lease_keep_alive(&self, id: i64, limit: Duration) -> Result<i64, Status> {
        let member = self.shared.members.choose();
        let call = async {
            let request = tokio_stream::once(LeaseKeepAliveRequest { id });
            let mut answers: tonic::Streaming<LeaseKeepAliveResponse> =
                self.streaming(member, "/etcdserverpb.Lease/LeaseKeepAlive", request).await?;
            let answer = answers.message().await?.ok_or_else(|| Status::unavailable("the renewal was not answered"))?;
            Ok(answer.ttl_seconds)
        };
        let answer = timeout(self.shared.outside.limit(limit), call).await.unwrap_or_else(|_| Err(timed_out(limit)));
        answer.inspect_err(|status| self.learn(member, Cure::of(status)))
    }

    /// Returns when `key` was deleted at or after `revision`, when the watch broke, or after `limit`: the caller looks again
    /// in any case, so that a connection that fell silent is found out.
    pub async fn deleted(&self, key: Vec<u8>, revision: i64, limit: Duration) -> Result<(), Status> {
        let member = self.shared.members.choose();
        let create = WatchCreateRequest { key, start_revision: revision };
        // The watch lives as long as its requests do, so they never end.
        let requests = tokio_stream::once(WatchRequest { create: Some(create) }).chain(tokio_stream::pending());
        let mut heard = false;
        let watch = async {
            let mut answers: tonic::Streaming<WatchResponse> =
                self.streaming(member, "/etcdserverpb.Watch/Watch", requests).await?;
            while let Some(answer) = answers.message().await? {
                heard = true;
                // Who looks again at once, and is turned away at once, would do nothing else.
                if answer.canceled {
                    sleep(AGAIN_MAX).await;
                    break;
                }
                if answer.events.iter().any(|event| event.kind == 1) {
                    break;
                }
            }
            Ok(())
        };
        let outcome = match timeout(self.shared.outside.limit(limit), watch).await {
            Ok(outcome) => outcome,
            // etcd confirms a watch at once.
            Err(_) if !heard => Err(timed_out(limit)),
            Err(_) => Ok(()),
        };
        outcome.inspect_err(|status| self.learn(member, Cure::of(status)))
    }

    /// How many members there are to ask [`Client::standing`] of.
    pub fn members(&self) -> usize {
        self.shared.members.len()
    }

    /// What one member says of itself, after it has caught up with the others.
    pub async fn standing(&self, member: usize, key: &[u8]) -> Result<StatusResponse, Status> {
        if self.shared.members.is_left_out(member) {
            return Err(Status::unavailable("this member is left out"));
        }
        let read = RangeRequest { key: key.to_vec(), limit: 1, ..RangeRequest::default() };
        let _: RangeResponse = self.attempt(member, "/etcdserverpb.KV/Range", read, ATTEMPT_FIRST).await?;
        self.attempt(member, "/etcdserverpb.Maintenance/Status", StatusRequest {}, ATTEMPT_FIRST).await
    }

    pub fn address(&self, member: usize) -> String {
        self.shared.members.address(member)
    }

    pub async fn alarms(&self, request: AlarmRequest) -> Result<AlarmResponse, Status> {
        self.call("/etcdserverpb.Maintenance/Alarm", request).await
    }

    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + Clone + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let started = self.shared.outside.clock.now();
        let (mut limit, mut pause, mut tokens) = (ATTEMPT_FIRST, AGAIN_FIRST, 0);
        loop {
            let member = self.shared.members.choose();
            let status = match self.attempt(member, path, request.clone(), limit).await {
                Ok(answer) => return Ok(answer),
                Err(status) => status,
            };
            let cure = Cure::of(&status);
            tokens += u32::from(cure == Cure::NewToken);
            if cure == Cure::None
                || tokens > TOKENS_MAX
                || self.shared.outside.clock.since(started) + pause > self.patience
            {
                return Err(status);
            }
            self.learn(member, cure);
            sleep(pause).await;
            limit = (limit * 2).min(ATTEMPT_MAX);
            pause = (pause * 2).min(AGAIN_MAX);
        }
    }

    /// Takes a failure into account for the calls to come.
    fn learn(&self, member: usize, cure: Cure) {
        match cure {
            Cure::Elsewhere => {
                if self.shared.members.leave_out(member) {
                    tokio::spawn(find_back(Arc::downgrade(&self.shared), member));
                }
            }
            Cure::NewToken => *self.shared.token() = None,
            Cure::Later | Cure::None => {}
        }
    }

    async fn attempt<Q, A>(&self, member: usize, path: &'static str, request: Q, limit: Duration) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let call = async {
            let mut request = tonic::Request::new(request);
            self.sign(member, request.metadata_mut()).await?;
            unary(&self.shared.members, member, path, request).await
        };
        timeout(self.shared.outside.limit(limit), call).await.unwrap_or_else(|_| Err(timed_out(limit)))
    }

    async fn streaming<Q, A>(
        &self,
        member: usize,
        path: &'static str,
        requests: impl tokio_stream::Stream<Item = Q> + Send + 'static,
    ) -> Result<tonic::Streaming<A>, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut request = tonic::Request::new(requests);
        self.sign(member, request.metadata_mut()).await?;
        let mut grpc = connection(&self.shared.members, member).await?;
        let path = PathAndQuery::from_static(path);
        Ok(grpc.streaming(request, path, ProstCodec::default()).await?.into_inner())
    }

    /// Who asks, if etcd wants to know; and that a member without a leader need not try.
    async fn sign(&self, member: usize, metadata: &mut MetadataMap) -> Result<(), Status> {
        metadata.insert("hasleader", MetadataValue::from_static("true"));
        let Some(credentials) = &self.shared.credentials else { return Ok(()) };
        let known = self.shared.token().clone();
        let token = match known {
            Some(token) => token,
            None => {
                let Credentials { user, password } = credentials.clone();
                let request = tonic::Request::new(AuthenticateRequest { name: user, password });
                let path = "/etcdserverpb.Auth/Authenticate";
                match unary::<_, AuthenticateResponse>(&self.shared.members, member, path, request).await {
                    Ok(answer) => {
                        let token = MetadataValue::try_from(answer.token)
                            .map_err(|_| Status::internal("etcd's token is none that can be sent"))?;
                        self.shared.token().insert(token).clone()
                    }
                    // As etcd's own clients do: who need not say who they are goes on without.
                    Err(status) if status.message().contains("authentication is not enabled") => return Ok(()),
                    Err(status) => return Err(status),
                }
            }
        };
        metadata.insert("token", token);
        Ok(())
    }
}

impl Shared {
    fn token(&self) -> std::sync::MutexGuard<'_, Option<MetadataValue<Ascii>>> {
        // A token is replaced as a whole.
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks a member that was left out until it answers. Any answer of its own will do; it has to have heard of a leader for one.
async fn find_back(shared: Weak<Shared>, member: usize) {
    loop {
        sleep(PROBE_AFTER).await;
        let Some(shared) = shared.upgrade() else { return };
        let client = Client { shared, patience: PATIENCE };
        let read = RangeRequest { key: b"/bursar/".to_vec(), limit: 1, ..RangeRequest::default() };
        let answer: Result<RangeResponse, Status> =
            client.attempt(member, "/etcdserverpb.KV/Range", read, ATTEMPT_FIRST).await;
        match answer {
            Err(status) if Cure::of(&status) == Cure::Elsewhere => drop(client.shared.members.leave_out(member)),
            _ => return client.shared.members.take_back(member),
        }
    }
}

async fn connection(members: &Members, member: usize) -> Result<Grpc<tonic::transport::Channel>, Status> {
    let channel = members.channel(member).ok_or_else(|| Status::unavailable("there is no such member"))?;
    let mut grpc = Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
    grpc.ready().await.map_err(|error| Status::unavailable(chain(&error)))?;
    Ok(grpc)
}

async fn unary<Q, A>(
    members: &Members,
    member: usize,
    path: &'static str,
    request: tonic::Request<Q>,
) -> Result<A, Status>
where
    Q: prost::Message + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    let mut grpc = connection(members, member).await?;
    Ok(grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::default()).await?.into_inner())
}

/// Whether asking again may help.
pub fn is_passing(status: &Status) -> bool {
    Cure::of(status) != Cure::None
}

/// Whether asking again would change nothing: etcd has understood, and said no.
pub fn is_final(status: &Status) -> bool {
    matches!(status.code(), Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated)
}

/// Whether what was asked for is history that was dropped.
pub fn is_compacted(status: &Status) -> bool {
    status.code() == Code::OutOfRange && status.message().contains("compacted")
}

pub fn timed_out(limit: Duration) -> Status {
    Status::new(Code::DeadlineExceeded, format!("no answer within {limit:?}"))
}

/// The error for people: what etcd said, or what failed on the way to it, down to the cause.
pub fn explain(status: &Status) -> String {
    match status.source() {
        Some(source) => format!("{}: {}", status.message(), chain(source)),
        None => status.message().to_owned(),
    }
}

/// An error with its causes. Those that repeat the one before are left out.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_asked_again_and_what_does_not_is_not() {
        for (code, text, cure) in [
            (Code::Unavailable, "etcdserver: leader changed", Cure::Elsewhere),
            (Code::Unavailable, "etcdserver: request timed out", Cure::Elsewhere),
            (Code::DeadlineExceeded, "no answer within 1s", Cure::Elsewhere),
            (Code::Unknown, "transport error", Cure::Elsewhere),
            (Code::FailedPrecondition, "etcdserver: not leader", Cure::Elsewhere),
            (Code::ResourceExhausted, "etcdserver: too many requests", Cure::Later),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Cure::None),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Cure::NewToken),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", Cure::NewToken),
            (Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password", Cure::None),
            (Code::PermissionDenied, "etcdserver: permission denied", Cure::None),
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", Cure::None),
        ] {
            assert_eq!(Cure::of(&Status::new(code, text)), cure, "{text}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let secret = Credentials { user: "bursar".into(), password: "hunter2".into() };
        assert!(!format!("{secret:?}").contains("hunter2"));
    }
}
