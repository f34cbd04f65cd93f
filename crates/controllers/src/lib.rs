//! What users of Kubernetes expect to happen by itself, each a small loop over [`kube::Client`] and nothing else.
//!
//! Start reading at [`start`]. In `bursar serve` the client is wired to the server in the same process. What else is a loop,
//! such as a family's, is made with the same [`drive`].

mod adoption;
mod choice;
mod custom_resources;
mod deployments;
mod event_expiry;
mod events;
mod garbage;
pub mod glance;
mod namespaces;
mod pace;
mod pods;
mod replicas;
mod resources;
mod resting;
mod rollout;
mod run;
mod service_accounts;
mod volumes;

use futures::future::BoxFuture;
use kube::Client;
use tokio::task::JoinSet;

pub use choice::{Choice, UnknownController};
pub use run::{Failed, Guarded, drive, exists_is_fine, gone_is_fine, readable};

/// What the loops need to know besides the API.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The certificate authority that every namespace is told of, in PEM.
    pub root_ca_pem: String,
    /// How long an event is kept after it was last told.
    pub event_ttl: std::time::Duration,
    /// Which of them run.
    pub chosen: Choice,
}

/// Starts the chosen controllers. They run until the set is dropped or shut down; each restarts its watches by itself.
pub fn start(client: Client, settings: Settings) -> JoinSet<()> {
    let mut set = JoinSet::new();
    let mut pods = pods::Pods::new();
    let chosen = settings.chosen.clone();
    let mut spawn = |name: &str, task: BoxFuture<'static, ()>| {
        if chosen.runs(name) {
            set.spawn(task);
        }
    };
    spawn("namespace", Box::pin(namespaces::run(client.clone())));
    spawn("event-expiry", Box::pin(event_expiry::run(client.clone(), settings.event_ttl)));
    spawn("serviceaccount", Box::pin(service_accounts::run(client.clone(), settings)));
    spawn("garbagecollector", Box::pin(garbage::run(client.clone())));
    // Who does not listen is not told: a listener that never runs would hold up the others.
    if chosen.runs("persistentvolumeclaim") {
        spawn("persistentvolumeclaim", Box::pin(volumes::claims(client.clone(), pods.claimants(), pods.changes())));
    }
    spawn("persistentvolume", Box::pin(volumes::volumes(client.clone())));
    if chosen.runs("replicaset") {
        spawn("replicaset", Box::pin(replicas::replica_sets(client.clone(), pods.owned(), pods.changes())));
    }
    if chosen.runs("replicationcontroller") {
        let task = replicas::replication_controllers(client.clone(), pods.owned(), pods.changes());
        spawn("replicationcontroller", Box::pin(task));
    }
    spawn("deployment", Box::pin(deployments::run(client.clone())));
    spawn("customresourcedefinition", Box::pin(custom_resources::run(client.clone())));
    if pods.is_heard() {
        set.spawn(pods.run(client));
    }
    set
}
