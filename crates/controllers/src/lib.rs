//! What users of Kubernetes expect to happen by itself, each a small loop over [`kube::Client`] and nothing else.
//!
//! Start reading at [`start`]. In `bursar serve` the client is wired to the server in the same process.

mod custom_resources;
mod deployments;
mod event_expiry;
mod events;
mod garbage;
mod glance;
mod namespaces;
mod pods;
mod pool_claims;
mod replicas;
mod resource_pools;
mod resources;
mod run;
mod service_accounts;
mod volumes;

use kube::Client;
use tokio::task::JoinSet;

pub use run::Failed;

/// What the loops need to know besides the API.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The certificate authority that every namespace is told of, in PEM.
    pub root_ca_pem: String,
    /// How long an event is kept after it was last told.
    pub event_ttl: std::time::Duration,
}

/// Starts every controller. They run until the set is dropped or shut down; each restarts its watches by itself.
pub fn start(client: Client, settings: Settings) -> JoinSet<()> {
    let mut set = JoinSet::new();
    let mut pods = pods::Pods::new();
    set.spawn(namespaces::run(client.clone()));
    set.spawn(event_expiry::run(client.clone(), settings.event_ttl));
    set.spawn(service_accounts::run(client.clone(), settings));
    set.spawn(garbage::run(client.clone()));
    set.spawn(volumes::claims(client.clone(), pods.claimants(), pods.changes()));
    set.spawn(volumes::volumes(client.clone()));
    set.spawn(replicas::replica_sets(client.clone(), pods.changes()));
    set.spawn(replicas::replication_controllers(client.clone(), pods.changes()));
    set.spawn(pods.run(client.clone()));
    set.spawn(deployments::run(client.clone()));
    set.spawn(resource_pools::run(client.clone()));
    set.spawn(pool_claims::run(client.clone()));
    set.spawn(custom_resources::run(client));
    set
}
