//! What is done in its own time, over a Kubernetes API and nothing else: meters are asked, and decisions are told as events.

mod claims;
mod meters;

use futures::future::BoxFuture;
use kube::Client;

use super::metrics::Decisions;

/// The names under which an operator chooses controllers.
pub const NAMES: [&str; 2] = ["quotaclaim", "quotameter"];

/// The chosen loops, each until the process ends.
pub(super) fn start(client: Client, chosen: &[&str], decisions: &Decisions) -> Vec<BoxFuture<'static, ()>> {
    let mut loops: Vec<BoxFuture<'static, ()>> = Vec::new();
    if chosen.contains(&"quotaclaim") {
        loops.push(Box::pin(claims::run(client.clone(), decisions.clone())));
    }
    if chosen.contains(&"quotameter") {
        loops.push(Box::pin(meters::run(client)));
    }
    loops
}
