//! What is done in its own time, over Kubernetes APIs and nothing else.
//!
//! ```text
//! template + PropagationPolicy ── detector ──▶ ResourceBinding ── scheduler ──▶ spec.clusters (charged in that commit)
//!        ▲                                          │  ▲                            │
//!        └──────────── status ──── works ◀──────────┘  └── evictions ── taints      ▼ works
//!                                    ▲                                  ▲         Work ── member ──▶ member's API
//!                                    └──────────── what members tell ───┴────────────────┘
//! ```
//!
//! Each loop keeps copies of the objects it looks at ([`watch`]), and looks at all of them again when one has changed: what was
//! missed is found with the next look, and a restart begins with one. None of them counts anything: what a binding may have is
//! decided where it is written.

mod applications;
mod applied;
mod assignments;
mod bounded;
mod detector;
mod difference;
mod ended;
mod evict;
mod evictions;
mod heartbeat;
pub(crate) mod kind;
mod leases;
mod leaving;
mod lender;
mod member;
mod members;
mod promises;
mod resize;
mod scheduler;
mod standing;
mod taints;
mod tellings;
mod watch;
mod works;

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::Client;

use super::Settings;

/// The names under which an operator chooses controllers.
pub const NAMES: [&str; 6] = [
    "karmada-detector",
    "karmada-scheduler",
    "karmada-works",
    "karmada-members",
    "karmada-leases",
    "karmada-quota-sync",
];

/// The chosen loops, each until the process ends.
pub fn start(client: Client, settings: &Settings) -> Vec<BoxFuture<'static, ()>> {
    let settings = Arc::new(settings.clone());
    let mut loops: Vec<BoxFuture<'static, ()>> = Vec::new();
    let promises = promises::Promises::default();
    for name in &settings.loops {
        let (client, settings) = (client.clone(), settings.clone());
        match *name {
            "karmada-detector" => loops.push(Box::pin(detector::run(client, settings, promises.clone()))),
            "karmada-scheduler" => loops.push(Box::pin(scheduler::run(client, settings, promises.clone()))),
            "karmada-works" => loops.push(Box::pin(works::run(client, settings))),
            "karmada-members" => {
                loops.push(Box::pin(members::run(client.clone(), settings.clone())));
                loops.push(Box::pin(applications::run(client.clone())));
                loops.push(Box::pin(taints::run(client, settings)));
            }
            "karmada-leases" => loops.push(Box::pin(leases::run(client, settings))),
            _ => loops.push(Box::pin(assignments::run(client))),
        }
    }
    loops
}

#[cfg(test)]
mod tests;
