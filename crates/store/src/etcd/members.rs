//! The members of an etcd, and which of them is asked.
//!
//! Every member has a connection of its own. One that does not answer, or says that it has no leader, is left out until it
//! has answered a probe: a frozen member costs one wait, not one in three calls. When all are left out they are asked in
//! turn, because then nobody knows better.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::outside::{Connector, Outside};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(1);

/// A connection with calls under way that is silent for this long is asked for a sign of life, and closed without one. Calls
/// have shorter limits of their own; this ends what they leave behind. etcd closes connections that ask more often than
/// every five seconds.
const KEEPALIVE: Duration = Duration::from_secs(6);
const KEEPALIVE_ANSWER: Duration = Duration::from_secs(2);

/// Certificates for TLS, as PEM.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    pub ca: Option<Vec<u8>>,
    /// Certificate and key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

#[derive(Debug)]
struct Member {
    endpoint: Endpoint,
    connector: Option<Connector>,
    channel: Mutex<Channel>,
    left_out: AtomicBool,
}

/// A connection that comes about when it is used.
fn connect(endpoint: &Endpoint, connector: Option<&Connector>) -> Channel {
    match connector {
        None => endpoint.connect_lazy(),
        Some(connector) => endpoint.connect_with_connector_lazy(connector.clone()),
    }
}

#[derive(Debug)]
pub struct Members {
    all: Vec<Member>,
    /// Who is asked, as long as it answers.
    current: AtomicUsize,
}

impl Members {
    /// Connects lazily: an error here is one of configuration. Must be called inside a tokio runtime.
    pub fn new(endpoints: &[String], tls: Option<&Tls>, outside: &Outside) -> Result<Members, tonic::transport::Error> {
        let all = endpoints.iter().map(|address| {
            let mut endpoint = Endpoint::from_shared(address.clone())?
                .connect_timeout(CONNECT)
                .http2_keep_alive_interval(outside.limit(KEEPALIVE))
                .keep_alive_timeout(KEEPALIVE_ANSWER)
                .tcp_nodelay(true);
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
            let connector = outside.network.clone().map(Connector);
            let channel = Mutex::new(connect(&endpoint, connector.as_ref()));
            Ok(Member { endpoint, connector, channel, left_out: AtomicBool::new(false) })
        });
        Ok(Members { all: all.collect::<Result<_, tonic::transport::Error>>()?, current: AtomicUsize::new(0) })
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The one to ask now.
    pub fn choose(&self) -> usize {
        let current = self.current.load(Ordering::Relaxed);
        let in_turn = (0..self.len()).map(|step| (current + step) % self.len());
        in_turn.clone().find(|&index| !self.is_left_out(index)).unwrap_or(current % self.len().max(1))
    }

    /// It did not answer: others are asked from now on, and its connection is not used again. `true`: it was not left out
    /// already, so somebody has to find out when it is back.
    pub fn leave_out(&self, index: usize) -> bool {
        let Some(member) = self.all.get(index) else { return false };
        let next = (index + 1) % self.len();
        // Only the first of several calls that failed on it moves on; the others must not skip a healthy one.
        let _moved = self.current.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
        *lock(&member.channel) = connect(&member.endpoint, member.connector.as_ref());
        !member.left_out.swap(true, Ordering::Relaxed)
    }

    pub fn take_back(&self, index: usize) {
        if let Some(member) = self.all.get(index) {
            member.left_out.store(false, Ordering::Relaxed);
        }
    }

    pub fn is_left_out(&self, index: usize) -> bool {
        self.all.get(index).is_some_and(|member| member.left_out.load(Ordering::Relaxed))
    }

    pub fn channel(&self, index: usize) -> Option<Channel> {
        self.all.get(index).map(|member| lock(&member.channel).clone())
    }

    /// For people.
    pub fn address(&self, index: usize) -> String {
        self.all.get(index).map(|member| member.endpoint.uri().to_string()).unwrap_or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A channel is replaced as a whole, so a poisoned lock still guards a good one.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_silent_member_is_left_out_until_it_answers() {
        let addresses = ["http://a:1", "http://b:1", "http://c:1"].map(str::to_owned);
        let members = Members::new(&addresses, None, &Outside::default()).unwrap();
        assert_eq!(members.choose(), 0);
        assert!(members.leave_out(0));
        assert!(!members.leave_out(0), "one probe is enough");
        assert_eq!(members.choose(), 1, "a second failure on the same member skips nobody");
        members.leave_out(1);
        assert_eq!(members.choose(), 2);
        members.take_back(0);
        assert_eq!(members.choose(), 2, "there is no reason to move");
        members.leave_out(2);
        assert_eq!(members.choose(), 0);
        members.leave_out(0);
        // Nobody is known to answer: in turn.
        assert_eq!(members.choose(), 1);
        members.leave_out(1);
        assert_eq!(members.choose(), 2);
    }
}
