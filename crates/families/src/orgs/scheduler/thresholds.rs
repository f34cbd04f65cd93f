//! Tells what changes without a command: usage that comes near to a limit or goes back from it, overrides that end, tiers that say
//! otherwise. What is seen of an organization becomes an event.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use controllers::glance::Unread;
use futures::StreamExt;
use http::Method;
use kinds::fields::given;
use kinds::time;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::names::*;
use super::run::{Undone, now_ms, send};
use crate::Plural;

/// Between two rounds of telling: who comes near and goes back meanwhile is not told of.
const LOOK: Duration = Duration::from_secs(1);

/// What of an organization is looked at: it changes with everything that is taken in it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Seen {
    spec: Said,
    status: Shown,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
    tier: String,
    overrides: Option<Map<String, Value>>,
    warned: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Shown {
    warnings: Value,
}

/// What is known of organizations, and of whom there is something to tell.
#[derive(Default)]
struct Telling {
    tiers: BTreeMap<String, String>,
    /// By organization, when the next of its overrides ends.
    ends_ms: BTreeMap<String, i64>,
    waiting: BTreeSet<String>,
}

impl Telling {
    fn org(&mut self, name: &str, org: Seen) {
        let is_different = differs(&org);
        // What its tier said before somebody listened is told, too.
        let is_new = self.tiers.insert(name.to_owned(), org.spec.tier).is_none();
        let overrides = org.spec.overrides.unwrap_or_default();
        let ends = overrides.values().filter_map(|own| given(own, &["expires_at"])?.as_str().and_then(time::read_ms));
        match ends.min() {
            Some(at) => drop(self.ends_ms.insert(name.to_owned(), at)),
            None => drop(self.ends_ms.remove(name)),
        }
        if is_new || is_different {
            self.waiting.insert(name.to_owned());
        }
    }

    fn gone(&mut self, name: &str) {
        self.tiers.remove(name);
        self.ends_ms.remove(name);
        self.waiting.remove(name);
    }

    fn tier(&mut self, name: &str) {
        let having = self.tiers.iter().filter(|(_, tier)| *tier == name);
        self.waiting.extend(having.map(|(org, _)| org.clone()));
    }

    /// Of whom there is something to tell by this moment.
    fn take(&mut self, now_ms: i64) -> BTreeSet<String> {
        let ended = self.ends_ms.iter().filter(|(_, at)| **at <= now_ms);
        self.waiting.extend(ended.map(|(org, _)| org.clone()));
        std::mem::take(&mut self.waiting)
    }

    /// What came to nothing is tried again.
    fn again(&mut self, org: String) {
        if self.tiers.contains_key(&org) {
            self.waiting.insert(org);
        }
    }
}

/// Whether what is shown was not told yet.
fn differs(org: &Seen) -> bool {
    let of = |value: &Value| value.as_object().filter(|all| !all.is_empty()).cloned();
    of(&org.status.warnings) != of(&org.spec.warned)
}

fn follow(client: &Client, plural: Plural) -> impl futures::Stream<Item = watcher::Result<Event<Unread>>> {
    let kind = GroupVersionKind::gvk(GROUP, VERSION, kind_of(plural));
    let api: Api<Unread> = Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural.1));
    watcher(api, watcher::Config::default()).default_backoff()
}

pub async fn run(client: Client) {
    let (mut orgs, mut tiers) = (Box::pin(follow(&client, ORGS)), Box::pin(follow(&client, TIERS)));
    let mut telling = Telling::default();
    let mut tick = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            event = orgs.next() => match event {
                Some(Ok(Event::Apply(org) | Event::InitApply(org))) => {
                    if let Ok(seen) = org.read() {
                        telling.org(&org.name_any(), seen);
                    }
                }
                Some(Ok(Event::Delete(org))) => telling.gone(&org.name_any()),
                Some(_) => {}
                None => return,
            },
            event = tiers.next() => match event {
                Some(Ok(Event::Apply(tier))) => telling.tier(&tier.name_any()),
                Some(_) => {}
                None => return,
            },
            _ = tick.tick() => {
                for org in telling.take(now_ms()) {
                    let path = format!("/v1/orgs/{org}/thresholds");
                    if let Err(Undone::Failed) = send(&client, Method::PUT, &path, None, None).await {
                        telling.again(org);
                    }
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
    fn what_time_and_tiers_change_is_told_of_those_it_concerns() {
        let org = |tier: &str, ends: &str| {
            let spec = json!({"tier": tier, "overrides": {"max_apps": {"expires_at": ends}}});
            serde_json::from_value::<Seen>(json!({"spec": spec})).expect("an organization")
        };
        let mut telling = Telling::default();
        let names = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>();
        telling.org("a", org("free", "1970-01-01T00:00:10Z"));
        telling.org("b", org("scale", ""));
        assert_eq!(names(telling.take(0)), ["a", "b"], "what was before is not known");
        telling.org("a", org("free", "1970-01-01T00:00:10Z"));
        assert!(telling.take(9_999).is_empty());
        assert_eq!(names(telling.take(10_000)), ["a"]);
        telling.org("a", org("free", ""));
        telling.tier("scale");
        telling.tier("none");
        assert_eq!(names(telling.take(20_000)), ["b"]);
        telling.again("b".into());
        assert_eq!(names(telling.take(20_000)), ["b"]);
        telling.tier("scale");
        telling.gone("b");
        telling.again("b".into());
        assert!(telling.take(20_000).is_empty());
    }

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
            assert_eq!(differs(&serde_json::from_value(org.clone()).unwrap()), wanted, "{org}");
        }
    }
}
