//! Discovery: what a client may ask for, in the aggregated form of today and the legacy form of old clients.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Served, Snapshot, api_version};

/// A prepared answer and the tag by which a client asks whether it changed.
#[derive(Clone)]
pub struct Document {
    pub body: Bytes,
    pub etag: Arc<str>,
}

impl Document {
    fn new(value: &Value) -> Self {
        Self::of_bytes(value.to_string().into())
    }

    /// A document tagged by its content.
    pub fn of_bytes(body: Bytes) -> Self {
        let mut hasher = std::hash::DefaultHasher::new();
        body.hash(&mut hasher);
        Self { body, etag: format!("\"{:016X}\"", hasher.finish()).into() }
    }
}

/// All discovery documents of one snapshot.
pub struct Discovery {
    /// `/api` and `/apis`, aggregated.
    pub core_aggregated: Document,
    pub groups_aggregated: Document,
    /// `/api` and `/apis`, legacy.
    pub core_versions: Document,
    pub groups: Document,
    /// `/apis/GROUP`.
    pub group: BTreeMap<Arc<str>, Document>,
    /// `/api/v1` and `/apis/GROUP/VERSION`, by (group, version).
    pub resources: BTreeMap<(Arc<str>, Arc<str>), Document>,
}

/// Groups whose names kubectl resolves first, in this order; custom groups follow by name.
const GROUP_ORDER: &[&str] = &[
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
];

type ByVersion<'a> = BTreeMap<Arc<str>, Vec<&'a Arc<Served>>>;
type Versions<'a> = Vec<(Arc<str>, Vec<&'a Arc<Served>>)>;

impl Discovery {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let mut by_group: BTreeMap<Arc<str>, ByVersion<'_>> = BTreeMap::new();
        for served in snapshot.all() {
            let versions = by_group.entry(served.resource.group.clone()).or_default();
            versions.entry(served.version.clone()).or_default().push(served);
        }
        let mut groups: Vec<(Arc<str>, Versions<'_>)> = by_group
            .into_iter()
            .map(|(group, versions)| {
                let mut versions: Versions<'_> = versions.into_iter().collect();
                versions.sort_by(|a, b| newer_first(&a.0, &b.0));
                (group, versions)
            })
            .collect();
        groups.sort_by_key(|(group, _)| {
            (GROUP_ORDER.iter().position(|known| **known == **group).unwrap_or(usize::MAX), group.clone())
        });
        let (core, named): (Vec<_>, Vec<_>) = groups.iter().partition(|(group, _)| group.is_empty());
        Discovery {
            core_aggregated: aggregated(&core),
            groups_aggregated: aggregated(&named),
            core_versions: Document::new(&json!({
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
            })),
            groups: Document::new(&json!({
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": named.iter().map(|(group, versions)| legacy_group(group, versions)).collect::<Vec<_>>(),
            })),
            group: named
                .iter()
                .map(|(group, versions)| {
                    let mut document = legacy_group(group, versions);
                    document["kind"] = "APIGroup".into();
                    document["apiVersion"] = "v1".into();
                    (group.clone(), Document::new(&document))
                })
                .collect(),
            resources: groups
                .iter()
                .flat_map(|(group, versions)| {
                    versions.iter().map(move |(version, all)| {
                        ((group.clone(), version.clone()), Document::new(&legacy_resources(group, version, all)))
                    })
                })
                .collect(),
        }
    }
}

fn aggregated(groups: &[&(Arc<str>, Versions<'_>)]) -> Document {
    let items: Vec<Value> = groups
        .iter()
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|(version, all)| {
                    let resources: Vec<Value> = all.iter().map(|served| aggregated_resource(served)).collect();
                    json!({"version": version, "freshness": "Current", "resources": resources})
                })
                .collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    Document::new(&json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }))
}

fn aggregated_resource(served: &Served) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut resource = json!({
        "resource": served.resource.resource,
        "responseKind": kind(&served.resource.group, &served.version, &served.kind),
        "scope": if served.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": served.singular,
        "verbs": served.verbs,
    });
    if !served.short_names.is_empty() {
        resource["shortNames"] = json!(served.short_names);
    }
    if !served.categories.is_empty() {
        resource["categories"] = json!(served.categories);
    }
    let subresources: Vec<Value> = served
        .subresources
        .iter()
        .map(|one| {
            json!({
                "subresource": one.name,
                "responseKind": kind(&one.group, &one.version, &one.kind),
                "verbs": one.verbs,
            })
        })
        .collect();
    if !subresources.is_empty() {
        resource["subresources"] = json!(subresources);
    }
    resource
}

fn legacy_group(group: &str, versions: &Versions<'_>) -> Value {
    let named = |version: &str| json!({"groupVersion": api_version(group, version), "version": version});
    let all: Vec<Value> = versions.iter().map(|(version, _)| named(version)).collect();
    json!({"name": group, "preferredVersion": all.first().cloned().unwrap_or_default(), "versions": all})
}

fn legacy_resources(group: &str, version: &str, all: &[&Arc<Served>]) -> Value {
    let mut resources = Vec::new();
    for served in all {
        let mut resource = json!({
            "name": served.resource.resource,
            "singularName": served.singular,
            "namespaced": served.namespaced,
            "kind": served.kind,
            "verbs": served.verbs,
        });
        if !served.short_names.is_empty() {
            resource["shortNames"] = json!(served.short_names);
        }
        if !served.categories.is_empty() {
            resource["categories"] = json!(served.categories);
        }
        resources.push(resource);
        for one in &served.subresources {
            let mut resource = json!({
                "name": format!("{}/{}", served.resource.resource, one.name),
                "singularName": "",
                "namespaced": served.namespaced,
                "kind": one.kind,
                "verbs": one.verbs,
            });
            if (&*one.group, &*one.version) != (group, version) {
                resource["group"] = json!(one.group);
                resource["version"] = json!(one.version);
            }
            resources.push(resource);
        }
    }
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version(group, version),
        "resources": resources,
    })
}

/// Kubernetes' order of versions: v2, v1, v1beta2, v1beta1, v1alpha1, then anything else by name.
pub(super) fn newer_first(a: &str, b: &str) -> Ordering {
    version_rank(b).cmp(&version_rank(a)).then_with(|| a.cmp(b))
}

/// (stability, major, minor); stable is 3, beta 2, alpha 1, other 0.
fn version_rank(version: &str) -> (u8, u64, u64) {
    let parse = || -> Option<(u8, u64, u64)> {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major = rest[..digits].parse().ok()?;
        match &rest[digits..] {
            "" => Some((3, major, 0)),
            tail => {
                let (rank, minor) = match (tail.strip_prefix("beta"), tail.strip_prefix("alpha")) {
                    (Some(minor), _) => (2, minor),
                    (_, Some(minor)) => (1, minor),
                    _ => return None,
                };
                Some((rank, major, minor.parse().ok()?))
            }
        }
    };
    parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_preferred_as_kubernetes_does() {
        let mut versions = ["v1alpha1", "v2", "foo1", "v1beta2", "v1", "v10", "v1beta10", "v11alpha2"];
        versions.sort_by(|a, b| newer_first(a, b));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta10", "v1beta2", "v11alpha2", "v1alpha1", "foo1"]);
    }
}
