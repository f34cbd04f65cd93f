//! What is done in its own time, over a Kubernetes API and nothing else.

mod claims;

use futures::future::BoxFuture;
use kube::Client;

/// The names under which an operator chooses controllers. What pools need is done with each write, and by no loop any more; the
/// name is still understood.
pub const NAMES: [&str; 2] = ["resourcepool", "resourcepoolclaim"];

/// The chosen loops, each until the process ends.
pub fn start(client: Client, chosen: &[&str]) -> Vec<BoxFuture<'static, ()>> {
    match chosen.contains(&"resourcepoolclaim") {
        true => vec![Box::pin(claims::run(client))],
        false => Vec::new(),
    }
}
