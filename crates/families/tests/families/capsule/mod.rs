//! Capsule: custom quotas, pools and claims.

use rules::GroupResource;

use crate::desk::{Desk, resource};

mod custom_quotas;
mod metrics;
mod pools;
mod validation;

fn quotas() -> GroupResource {
    resource("customquotas.capsule.clastix.io")
}

fn global_quotas() -> GroupResource {
    resource("globalcustomquotas.capsule.clastix.io")
}

fn pools() -> GroupResource {
    resource("resourcepools.capsule.clastix.io")
}

fn claims() -> GroupResource {
    resource("resourcepoolclaims.capsule.clastix.io")
}

fn desk_with(capsule: families::capsule::Settings) -> Desk {
    Desk::with(families::Settings { capsule, ..families::Settings::default() })
}

impl Desk {
    /// `used/available` of a custom quota.
    fn usage(&self, of: &GroupResource, namespace: &str, name: &str) -> String {
        let usage = &self.status(of, namespace, name)["usage"];
        format!("{}/{}", usage["used"].as_str().unwrap(), usage["available"].as_str().unwrap())
    }
}
