//! The registration, kept as it has to be: by who leads, and by nobody else.

use std::time::SystemTime;

use families::Families;
use http::Method;
use kube::Client;
use serde_json::Value;

use crate::certificates::Certificates;
use crate::cluster::call;
use crate::registration::{self, Address, Asked};
use crate::run::OperatorError;

/// Keeps the registration as it has to be.
pub struct Registrar {
    client: Client,
    address: Address,
    pub certificates: Certificates,
    left_out: Vec<String>,
    /// Another one for every start, so that no two leaders ever write the same.
    started: String,
    /// As it was written last, and for whose sake.
    written: Option<Written>,
    is_free: bool,
}

struct Written {
    resources: Vec<Asked>,
    authorities: String,
    configuration: Value,
}

impl Registrar {
    pub fn new(client: Client, address: Address, certificates: Certificates, left_out: Vec<String>) -> Registrar {
        let started = uuid::Uuid::new_v4().to_string();
        Registrar { client, address, certificates, left_out, started, written: None, is_free: false }
    }

    /// Two operators with a store each would both give the same room.
    pub async fn check_alone(&self, identity: &str) -> Result<(), OperatorError> {
        let registered = registration::registered(&self.client).await?;
        match registered.as_ref().and_then(registration::owner) {
            Some(other) if other != identity => Err(OperatorError::Another { other: other.to_owned() }),
            _ => Ok(()),
        }
    }

    /// Two that decide about the same quotas write the same statuses, and one refuses by its own count.
    pub async fn check_without_capsule(&self, families: &Families) -> Result<(), OperatorError> {
        if !families.iter().any(|family| family.manifest().name == "capsule") {
            return Ok(());
        }
        let all = call(&self.client, Method::GET, registration::CONFIGURATIONS, None).await?;
        match registration::of_capsule(&all) {
            Some((configuration, webhook)) => Err(OperatorError::BesideCapsule { configuration, webhook }),
            None => Ok(()),
        }
    }

    /// Writes it where it says something else than it should; whether it is as it has to be. Whoever took it away set the cluster
    /// free, until the next start. One that belongs to another operator ends this one. `leads` says whether this replica leads still,
    /// asking whoever would know better.
    pub async fn write(
        &mut self,
        identity: &str,
        leads: impl AsyncFnOnce() -> bool,
        resources: Vec<Asked>,
        looks: bool,
    ) -> Result<bool, OperatorError> {
        let authorities = self.certificates.authorities();
        let is_same = |written: &&Written| written.resources == resources && written.authorities == authorities;
        let same = self.written.as_ref().filter(is_same);
        if same.is_some() && !looks {
            return Ok(true);
        }
        let there = match registration::registered(&self.client).await {
            Ok(there) => there,
            Err(error) => {
                tracing::warn!(%error, "the registration could not be read, and is looked at again");
                return Ok(same.is_some());
            }
        };
        match there.as_ref().and_then(registration::owner) {
            Some(other) if other != identity => return Err(OperatorError::Another { other: other.to_owned() }),
            _ => {}
        }
        match (&there, same) {
            (None, _) if self.written.is_some() => {
                if !std::mem::replace(&mut self.is_free, true) {
                    tracing::warn!("the registration was taken away: nobody asks any more, until the next start");
                }
                return Ok(true);
            }
            (Some(there), Some(written)) if registration::says(there, &written.configuration) => return Ok(true),
            (_, Some(_)) => tracing::warn!("somebody changed the registration; it is written again"),
            (_, None) => {}
        }
        // Whoever was replaced may have stood still since it read: then the next one wrote, and a write that rests on what was there
        // before is refused.
        if !leads().await {
            return Ok(false);
        }
        let configuration = registration::configuration(
            identity,
            &self.started,
            &self.address,
            &authorities,
            &self.left_out,
            &resources,
        );
        match registration::register(&self.client, &configuration, there.as_ref()).await {
            Ok(()) => {
                self.written = Some(Written { resources, authorities, configuration });
                self.certificates.registered(SystemTime::now());
                Ok(true)
            }
            Err(error) => {
                tracing::warn!(%error, "the webhook could not be registered, and is tried again");
                Ok(false)
            }
        }
    }
}
