//! What is done in its own time, over a Kubernetes API and nothing else: meters are asked, decisions are told as events, and usage is
//! told to who meters it elsewhere.

mod claims;
mod gates;
mod meters;
mod outbox;
mod questions;

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::Client;

use super::metrics::Decisions;
use crate::Outbox;

/// The names under which an operator chooses controllers.
pub const NAMES: [&str; 2] = ["quotaclaim", "quotameter"];

/// The chosen loops, each until the process ends. Where meters are looked after, what is written down for them is sent.
pub(super) fn start(
    client: Client,
    outbox: Arc<dyn Outbox>,
    chosen: &[&str],
    decisions: &Decisions,
) -> Vec<BoxFuture<'static, ()>> {
    let mut loops: Vec<BoxFuture<'static, ()>> = Vec::new();
    if chosen.contains(&"quotaclaim") {
        loops.push(Box::pin(claims::run(client.clone())));
    }
    if chosen.contains(&"quotameter") {
        loops.push(Box::pin(meters::run(client.clone())));
        loops.push(Box::pin(outbox::run(client, outbox, decisions.clone())));
    }
    loops
}
