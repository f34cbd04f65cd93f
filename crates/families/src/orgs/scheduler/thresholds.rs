//! Tells when usage comes near to a limit, and when it goes back: what the status of an organization shows becomes an event.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use http::Method;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use super::super::names::*;
use super::run::send;

/// Between two rounds of telling: who comes near and goes back meanwhile is not told of.
const LOOK: Duration = Duration::from_secs(1);

/// Whether what is shown was not told yet.
fn differs(org: &Value) -> bool {
    let of = |value: &Value| value.as_object().filter(|all| !all.is_empty()).cloned();
    of(&org["status"]["warnings"]) != of(&org["spec"]["warned"])
}

pub async fn run(client: Client) {
    let kind = GroupVersionKind::gvk(GROUP, VERSION, kind_of(ORGS));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, ORGS.1));
    let mut stream = Box::pin(watcher(api, watcher::Config::default()).default_backoff());
    let mut waiting: BTreeSet<String> = BTreeSet::new();
    let mut tick = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            event = stream.next() => match event {
                Some(Ok(Event::Apply(org) | Event::InitApply(org))) => {
                    let name = org.name_any();
                    if differs(&org.data) { waiting.insert(name) } else { waiting.remove(&name) };
                }
                Some(Ok(Event::Delete(org))) => drop(waiting.remove(&org.name_any())),
                Some(_) => {}
                None => return,
            },
            _ = tick.tick(), if !waiting.is_empty() => {
                for org in std::mem::take(&mut waiting) {
                    // What is refused is found again when the organization changes next.
                    let _ = send(&client, Method::PUT, &format!("/v1/orgs/{org}/thresholds"), None, None).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_told_twice() {
        for (shown, told, wanted) in [
            (json!({}), Value::Null, false),
            (Value::Null, json!({}), false),
            (json!({"max_apps": 80}), Value::Null, true),
            (json!({"max_apps": 80}), json!({"max_apps": 80}), false),
            (json!({"max_apps": 95}), json!({"max_apps": 80}), true),
            (json!({}), json!({"max_apps": 80}), true),
        ] {
            let org = json!({"status": {"warnings": shown}, "spec": {"warned": told}});
            assert_eq!(differs(&org), wanted, "{org}");
        }
    }
}
