//! What is done in its own time, over a Kubernetes API and nothing else.

mod claims;
mod pools;

use futures::future::BoxFuture;
use kube::Client;

/// The loops by the names under which an operator chooses controllers.
pub const NAMES: [&str; 2] = ["resourcepool", "resourcepoolclaim"];

/// The chosen loops, each until the process ends.
pub fn start(client: Client, chosen: &[&str]) -> Vec<BoxFuture<'static, ()>> {
    let all: [BoxFuture<'static, ()>; 2] = [Box::pin(pools::run(client.clone())), Box::pin(claims::run(client))];
    NAMES.into_iter().zip(all).filter(|(name, _)| chosen.contains(name)).map(|(_, run)| run).collect()
}
