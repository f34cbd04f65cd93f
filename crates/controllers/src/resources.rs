//! Which resources there are, asked of the server: the controllers know no list of kinds.

use kube::Client;
use kube::core::ApiResource;
use kube::discovery::{ApiCapabilities, Discovery, Scope, verbs};

/// Resources that are never somebody's content: they describe others and go with them.
const IGNORED: &[(&str, &str)] = &[("", "bindings"), ("events.k8s.io", "events")];

/// A resource and whether its objects live in namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub api: ApiResource,
    pub namespaced: bool,
}

/// Every resource that can be listed, watched and deleted, each at its preferred version.
pub async fn deletable(client: &Client) -> kube::Result<Vec<Found>> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let mut found: Vec<Found> = discovery
        .groups()
        .flat_map(|group| group.recommended_resources())
        .filter(|(api, can)| is_deletable(api, can))
        .map(|(api, can)| Found { api, namespaced: can.scope == Scope::Namespaced })
        .collect();
    found.sort_by(|a, b| (&a.api.group, &a.api.plural).cmp(&(&b.api.group, &b.api.plural)));
    Ok(found)
}

fn is_deletable(api: &ApiResource, can: &ApiCapabilities) -> bool {
    [verbs::LIST, verbs::WATCH, verbs::DELETE].iter().all(|verb| can.supports_operation(verb))
        && !IGNORED.contains(&(&api.group, &api.plural))
}
