//! What the store has of the world outside of it: the time, and connections.

use std::fmt::Debug;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::Service;

use crate::clock::{Clock, MachineClock};

/// The machine's own, unless a simulation brings others. Timers are tokio's in any case.
#[derive(Clone, Debug)]
pub struct Outside {
    pub clock: Arc<dyn Clock>,
    /// `None`: sockets, by the endpoints' addresses.
    pub network: Option<Arc<dyn Network>>,
    /// Whether whoever falls silent is waited for without an end: never, but where it is shown what would come of that.
    pub waits_for_ever: bool,
}

/// Longer than anybody looks.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Outside {
    /// How long is waited for what may take so long.
    pub(super) fn limit(&self, limit: Duration) -> Duration {
        if self.waits_for_ever { FOR_EVER } else { limit }
    }
}

impl Default for Outside {
    fn default() -> Outside {
        Outside { clock: Arc::new(MachineClock), network: None, waits_for_ever: false }
    }
}

/// Makes connections to the members of an etcd.
pub trait Network: Debug + Send + Sync {
    fn connect(&self, member: Uri) -> Connecting;
}

pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Wire>>> + Send>>;

/// Bytes in both directions.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// A network as tonic wants to be handed one.
#[derive(Clone, Debug)]
pub struct Connector(pub Arc<dyn Network>);

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Wire>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Box<dyn Wire>>>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, member: Uri) -> Self::Future {
        let connecting = self.0.connect(member);
        Box::pin(async move { connecting.await.map(TokioIo::new) })
    }
}
