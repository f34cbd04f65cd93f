//! Telling users what happened, as events about the objects concerned. The same thing told again is counted in the event
//! that told it first, whoever was running then: an event's name is made of what it says.

use std::hash::{Hash, Hasher};

use k8s_openapi::api::core::v1::{Event, ObjectReference};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;

use crate::run::now;

/// Where events about objects without a namespace are.
const DEFAULT_NAMESPACE: &str = "default";
/// An event's name ends in this many characters of a hash; the rest is the object's name, cut to what fits.
const NAME_BYTES_MAX: usize = 253 - 17;

/// One controller's voice.
pub struct Events<'a> {
    client: &'a Client,
    component: &'static str,
}

impl<'a> Events<'a> {
    pub fn new(client: &'a Client, component: &'static str) -> Events<'a> {
        Events { client, component }
    }

    pub async fn normal<K: Resource<DynamicType = ()>>(&self, about: &K, reason: &str, message: &str) {
        self.tell(about.object_ref(&()), "Normal", reason, message).await;
    }

    pub async fn warning<K: Resource<DynamicType = ()>>(&self, about: &K, reason: &str, message: &str) {
        self.tell(about.object_ref(&()), "Warning", reason, message).await;
    }

    /// An event that is lost is no reason to stop, so nothing is returned.
    async fn tell(&self, about: ObjectReference, kind: &str, reason: &str, message: &str) {
        if let Err(error) = self.record(about, kind, reason, message).await {
            tracing::debug!(%error, reason, "an event was not recorded");
        }
    }

    async fn record(&self, about: ObjectReference, kind: &str, reason: &str, message: &str) -> kube::Result<()> {
        let namespace = about.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let name = name(&about, &[self.component, kind, reason, message]);
        let now = now();
        let event = json!({
            "metadata": {"name": name},
            "involvedObject": about,
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        });
        let event: Event = serde_json::from_value(event).map_err(kube::Error::SerdeError)?;
        match events.create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let Some(known) = events.get_opt(&name).await? else { return Ok(()) };
                let count = known.count.unwrap_or(1).saturating_add(1);
                let again = Patch::Merge(json!({"count": count, "lastTimestamp": now}));
                events.patch(&known.name_any(), &PatchParams::default(), &again).await.map(|_| ())
            }
            other => other.map(|_| ()),
        }
    }
}

fn name(about: &ObjectReference, said: &[&str]) -> String {
    let mut hasher = std::hash::DefaultHasher::new();
    (&about.uid, said).hash(&mut hasher);
    let object = about.name.as_deref().unwrap_or_default();
    let mut end = object.len().min(NAME_BYTES_MAX);
    while !object.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}.{:016x}", &object[..end], hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_again_has_the_same_name() {
        let about = |uid: &str| ObjectReference {
            name: Some("web".into()),
            uid: Some(uid.into()),
            ..ObjectReference::default()
        };
        let first = name(&about("1"), &["c", "Normal", "Scaled", "up"]);
        assert!(first.starts_with("web.") && first.len() == 4 + 16, "{first}");
        assert_eq!(name(&about("1"), &["c", "Normal", "Scaled", "up"]), first);
        assert_ne!(name(&about("2"), &["c", "Normal", "Scaled", "up"]), first);
        assert_ne!(name(&about("1"), &["c", "Normal", "Scaled", "down"]), first);
        let long = ObjectReference { name: Some("a".repeat(300)), ..ObjectReference::default() };
        assert_eq!(name(&long, &[]).len(), 253);
    }
}
