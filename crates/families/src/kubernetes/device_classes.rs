//! Device classes that pods may ask for under the name of an extended resource (`spec.extendedResourceName`): a claim of
//! such a class is charged under that name too, or whoever asks by claim would pass the quota on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use kinds::fields::text;
use rules::GroupResource;

use super::spec::QuotaSpec;
use crate::World;

pub fn resource() -> GroupResource {
    GroupResource::new("resource.k8s.io", "deviceclasses")
}

/// The classes behind each name that a quota lists, by that name (`requests.<extended resource>`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes(BTreeMap<Arc<str>, Vec<Box<str>>>);

impl Classes {
    /// The classes whose extended resources this quota limits. Most quotas limit none, and then nothing is looked up.
    pub fn of(spec: &QuotaSpec, world: &dyn World) -> Classes {
        let listed = |name: &Arc<str>| name.strip_prefix("requests.").is_some_and(|asked| asked.contains('/'));
        let names: Vec<&Arc<str>> = spec.hard.iter().map(|(name, _)| name).filter(|name| listed(name)).collect();
        let mut classes = Classes::default();
        if names.is_empty() {
            return classes;
        }
        for class in world.list(&resource(), "") {
            let extended = text(&class, &["spec", "extendedResourceName"]);
            if extended.is_empty() {
                continue;
            }
            let behind = names.iter().find(|name| name.strip_prefix("requests.") == Some(extended));
            if let Some(name) = behind {
                let class = text(&class, &["metadata", "name"]).into();
                classes.0.entry(Arc::clone(name)).or_default().push(class);
            }
        }
        classes
    }

    pub fn behind(&self, name: &str) -> Option<&[Box<str>]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// Part of what decides who is charged: see [`rules::Compiled::fingerprint`].
    pub fn write(&self, fingerprint: &mut Vec<u8>) {
        for (name, classes) in &self.0 {
            for word in std::iter::once(&**name).chain(classes.iter().map(|class| &**class)) {
                fingerprint.extend_from_slice(word.as_bytes());
                fingerprint.push(2);
            }
        }
    }
}
