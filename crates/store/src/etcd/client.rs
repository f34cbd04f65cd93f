//! Calls to etcd over gRPC, without generated code: tonic's generic client and prost's derive need no protoc to build.

use std::time::Duration;

use http::uri::PathAndQuery;
use tokio_stream::StreamExt;
use tonic::client::Grpc;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::messages::{
    Ignored, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest,
    RangeRequest, RangeResponse, TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest, WatchResponse,
};

/// The largest answer accepted. Pages are kept far smaller; this bounds what a strange server can make us allocate.
const ANSWER_BYTES_MAX: usize = 128 * 1024 * 1024;

/// How long one call may take. A member that does not answer in this time is treated like one that is down.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// How often a read is sent again when the member it went to cannot be reached, and how soon. The next one goes to whichever
/// member is connected; half a second is long enough to find it and short beside a lease.
const READ_AGAIN_MAX: u32 = 10;
const READ_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Certificates for TLS, as PEM.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    pub ca: Option<Vec<u8>>,
    /// Certificate and key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

/// A connection to one or several members. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
}

impl Client {
    /// Connects lazily: an error here is one of configuration. Must be called inside a tokio runtime.
    pub fn new(endpoints: &[String], tls: Option<&Tls>) -> Result<Client, tonic::transport::Error> {
        let endpoints = endpoints.iter().map(|address| {
            let mut endpoint = Endpoint::from_shared(address.clone())?.connect_timeout(CALL_TIMEOUT).tcp_nodelay(true);
            if let Some(tls) = tls {
                let mut config = ClientTlsConfig::new();
                if let Some(ca) = &tls.ca {
                    config = config.ca_certificate(Certificate::from_pem(ca));
                }
                if let Some((certificate, key)) = &tls.client {
                    config = config.identity(Identity::from_pem(certificate, key));
                }
                endpoint = endpoint.tls_config(config)?;
            }
            Ok(endpoint)
        });
        let endpoints = endpoints.collect::<Result<Vec<Endpoint>, tonic::transport::Error>>()?;
        let channel = match endpoints.as_slice() {
            [one] => one.connect_lazy(),
            _ => Channel::balance_list(endpoints.into_iter()),
        };
        Ok(Client { channel })
    }

    /// Reads. They may be asked again, so a member that is down does not end what another can answer.
    pub async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        let mut again = READ_AGAIN_MAX;
        loop {
            match self.unary("/etcdserverpb.KV/Range", request.clone()).await {
                Err(status) if status.code() == Code::Unavailable && again > 0 => again -= 1,
                answer => return answer,
            }
            tokio::time::sleep(READ_AGAIN_AFTER).await;
        }
    }

    pub async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Status> {
        self.unary("/etcdserverpb.KV/Txn", request).await
    }

    pub async fn lease_grant(&self, ttl_seconds: i64) -> Result<LeaseGrantResponse, Status> {
        self.unary("/etcdserverpb.Lease/LeaseGrant", LeaseGrantRequest { ttl_seconds }).await
    }

    pub async fn lease_revoke(&self, id: i64) -> Result<Ignored, Status> {
        self.unary("/etcdserverpb.Lease/LeaseRevoke", LeaseRevokeRequest { id }).await
    }

    /// Renews a lease once; the seconds it has left, zero when it is gone.
    pub async fn lease_keep_alive(&self, id: i64) -> Result<i64, Status> {
        let call = async {
            let mut answers: tonic::Streaming<LeaseKeepAliveResponse> = self
                .streaming("/etcdserverpb.Lease/LeaseKeepAlive", tokio_stream::once(LeaseKeepAliveRequest { id }))
                .await?;
            Ok(answers.message().await?.map_or(0, |answer| answer.ttl_seconds))
        };
        tokio::time::timeout(CALL_TIMEOUT, call).await.map_err(|_| timed_out())?
    }

    /// Returns when `key` was deleted at or after `revision`, or when the watch broke: the caller looks again either way.
    pub async fn deleted(&self, key: Vec<u8>, revision: i64) -> Result<(), Status> {
        let create = WatchCreateRequest { key, start_revision: revision };
        // The watch lives as long as its requests do, so they never end.
        let requests = tokio_stream::once(WatchRequest { create: Some(create) }).chain(tokio_stream::pending());
        let mut answers: tonic::Streaming<WatchResponse> =
            self.streaming("/etcdserverpb.Watch/Watch", requests).await?;
        while let Some(answer) = answers.message().await? {
            if answer.canceled || answer.events.iter().any(|event| event.kind == 1) {
                break;
            }
        }
        Ok(())
    }

    async fn unary<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
        let call = async {
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let path = PathAndQuery::from_static(path);
            let answer = grpc.unary(tonic::Request::new(request), path, ProstCodec::default()).await?;
            Ok(answer.into_inner())
        };
        tokio::time::timeout(CALL_TIMEOUT, call).await.map_err(|_| timed_out())?
    }

    async fn streaming<Q, A>(
        &self,
        path: &'static str,
        requests: impl tokio_stream::Stream<Item = Q> + Send + 'static,
    ) -> Result<tonic::Streaming<A>, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::from_static(path);
        Ok(grpc.streaming(tonic::Request::new(requests), path, ProstCodec::default()).await?.into_inner())
    }
}

fn timed_out() -> Status {
    Status::new(Code::DeadlineExceeded, format!("no answer within {CALL_TIMEOUT:?}"))
}
