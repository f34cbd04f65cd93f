//! Keeps [`Rbac`] equal to the stored roles and bindings, and shows readers what aggregation makes of them.

use std::sync::Arc;
use std::time::Duration;

use ::rules::GroupResource;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{Kind, Rbac, Rule, aggregated_rules, parse_rules};
use crate::core::{Cache, Event, EventKind, Object};

/// After a failed write of an aggregated role. The evaluator does not wait for it, only readers do.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Takes up every stored role and binding, then every change before the write that makes it is answered: who was just
/// given a right can use it in the next request. Call it before the first write can come in.
pub fn follow(rbac: &Arc<Rbac>, cache: &Cache) {
    for kind in [Kind::Role, Kind::ClusterRole, Kind::RoleBinding, Kind::ClusterRoleBinding] {
        let listing = cache.list(&resource(kind));
        let objects: Vec<(&Arc<Object>, Value)> =
            listing.range("", None).map(|object| (object, object.value())).collect();
        rbac.apply_all(
            objects.iter().map(|(object, value)| (kind, &*object.key.namespace, &*object.key.name, Some(value))),
        );
    }
    let rbac = Arc::clone(rbac);
    cache.observe(move |event| take(&rbac, event));
}

fn take(rbac: &Rbac, event: &Event) {
    let key = &event.object.key;
    if &*key.resource.group != Kind::GROUP {
        return;
    }
    let Some(kind) = Kind::from_resource(&key.resource.resource) else { return };
    let value = (event.kind != EventKind::Deleted).then(|| event.object.value());
    rbac.apply(kind, &key.namespace, &key.name, value.as_ref());
}

/// Writes the union of the selected roles into each aggregated ClusterRole, as Kubernetes' controller does: `kubectl get
/// clusterrole admin -o yaml` shows what the role allows. Rights do not depend on it.
pub async fn show_aggregates(client: Client, cache: Arc<Cache>) {
    let changed = Arc::new(Notify::new());
    // One wish to look again is kept while a round is under way; a hundred changes make one round.
    changed.notify_one();
    let waker = Arc::clone(&changed);
    cache.observe(move |event| {
        if event.object.key.resource.is(Kind::GROUP, Kind::ClusterRole.resource()) {
            waker.notify_one();
        }
    });
    loop {
        changed.notified().await;
        let listing = cache.list(&resource(Kind::ClusterRole));
        let roles: Vec<Value> = listing.range("", None).map(|object| object.value()).collect();
        for (name, rules) in aggregated_rules(&roles) {
            let shown = roles.iter().find(|role| role["metadata"]["name"] == *name).map(parse_rules);
            if shown.as_ref() == Some(&rules) {
                continue;
            }
            if let Err(error) = write_rules(&client, &name, &rules).await {
                tracing::warn!(%error, role = name, "cannot show the rules of an aggregated role");
                tokio::time::sleep(RETRY_PAUSE).await;
                changed.notify_one();
            }
        }
    }
}

async fn write_rules(client: &Client, name: &str, rules: &[Rule]) -> Result<(), kube::Error> {
    let rules: Vec<Value> = rules.iter().map(Rule::to_value).collect();
    let path = format!("/apis/{}/v1/clusterroles/{}?fieldManager=clusterrole-aggregation", Kind::GROUP, segment(name));
    let request = http::Request::patch(path).header(http::header::CONTENT_TYPE, "application/merge-patch+json");
    let body = json!({"rules": rules}).to_string().into_bytes();
    client.request::<Value>(request.body(body).map_err(kube::Error::HttpError)?).await.map(|_| ())
}

/// A name as it stands in a path. Roles may be called almost anything, and `edit?x` must not end at `edit`.
fn segment(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    name.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn resource(kind: Kind) -> GroupResource {
    GroupResource::new(Kind::GROUP, kind.resource())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_within_its_segment() {
        for (name, written) in
            [("system:x-1.a", "system:x-1.a"), ("edit?x", "edit%3Fx"), ("a#b&c d", "a%23b%26c%20d"), ("é", "%C3%A9")]
        {
            assert_eq!(segment(name), written);
        }
    }
}
