//! Events of claims on pools, when their standing changes. Each claim is looked at by itself, so that ten thousand that wait
//! cost nothing.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use controllers::{Failed, drive};
use kinds::conditions;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::Store;
use kube::runtime::{Controller, controller::Action, watcher};
use kube::{Api, Client, Resource, ResourceExt};

use super::super::{GROUP, RESOURCE_POOL_CLAIMS, VERSION};

struct Context {
    claims: ApiResource,
    known: Store<DynamicObject>,
    told: Mutex<HashMap<String, Standing>>,
    recorder: Recorder,
    started: jiff::Timestamp,
}

/// Standings remembered before those of claims that are gone are forgotten.
const TOLD_MIN: usize = 1024;

/// What was last told of a claim: the reasons of its conditions.
#[derive(Clone, PartialEq, Eq, Default)]
struct Standing {
    exhausted: String,
    bound: String,
}

pub async fn run(client: Client) {
    let claims = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(GROUP, VERSION, "ResourcePoolClaim"),
        RESOURCE_POOL_CLAIMS,
    );
    let all_claims: Api<DynamicObject> = Api::all_with(client.clone(), &claims);
    let controller = Controller::new_with(all_claims, watcher::Config::default(), claims.clone());
    let known = controller.store();
    let reporter = Reporter { controller: "resourcepoolclaims".into(), instance: None };
    let context = Context {
        recorder: Recorder::new(client, reporter),
        claims,
        known,
        told: Mutex::default(),
        started: jiff::Timestamp::now(),
    };
    drive(controller, reconcile, Arc::new(context), "claims on pools").await;
}

async fn reconcile(claim: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, Failed> {
    tell(&claim, &context).await;
    Ok(Action::await_change())
}

fn condition<'a>(claim: &'a DynamicObject, of: &str, field: &str) -> &'a str {
    conditions::of(&claim.data, of).and_then(|one| one[field].as_str()).unwrap_or("")
}

/// Records an event where the claim's standing is not what it was.
async fn tell(claim: &DynamicObject, context: &Context) {
    let Some(uid) = claim.uid() else { return };
    let now = Standing {
        exhausted: condition(claim, "Exhausted", "reason").into(),
        bound: condition(claim, "Bound", "reason").into(),
    };
    let before = {
        let mut told = context.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() > TOLD_MIN.max(2 * context.known.len()) {
            let known: HashSet<String> = context.known.state().iter().filter_map(|claim| claim.uid()).collect();
            told.retain(|uid, _| known.contains(uid));
        }
        match claim.metadata.deletion_timestamp {
            Some(_) => told.remove(&uid),
            None => told.insert(uid, now.clone()),
        }
    };
    let changed_since = |of: &str| {
        let moment: Option<jiff::Timestamp> = condition(claim, of, "lastTransitionTime").parse().ok();
        moment.is_some_and(|moment| moment.as_second() >= context.started.as_second())
    };
    let mut events = Vec::new();
    match before {
        Some(before) if before == now => return,
        Some(before) => {
            if now == Standing::default() && before != now {
                events.push(event("Disassociated", "Disassociating", "claim is disassociated from the pool", false));
            }
            if before.exhausted != now.exhausted {
                events.extend(standing_event(claim, "Exhausted"));
            }
            if before.bound != now.bound {
                events.extend(standing_event(claim, "Bound"));
            }
        }
        // Seen for the first time: what it was before this process is told already.
        // Of a new one it is news that it waits; what it has, it was asked for.
        None => {
            let news = Some("Exhausted").filter(|of| condition(claim, of, "status") == "True" && changed_since(of));
            events.extend(news.and_then(|of| standing_event(claim, of)));
        }
    }
    for event in events {
        // An event that is lost is no reason to stop.
        if let Err(error) = context.recorder.publish(&event, &claim.object_ref(&context.claims)).await {
            tracing::debug!(%error, "an event was not recorded");
        }
    }
}

/// The event of a condition, with its words. It is a warning where somebody has to wait.
fn standing_event(claim: &DynamicObject, of: &str) -> Option<Event> {
    let (reason, message) = (condition(claim, of, "reason"), condition(claim, of, "message"));
    let waits = of == "Exhausted" && condition(claim, of, "status") == "True";
    // That a waiting claim is not bound is said already.
    let is_news = !reason.is_empty() && reason != "Failed";
    is_news.then(|| event(reason, "Reconciled", message, waits))
}

fn event(reason: &str, action: &str, note: &str, warns: bool) -> Event {
    Event {
        type_: if warns { EventType::Warning } else { EventType::Normal },
        reason: reason.into(),
        note: Some(note.into()),
        action: action.into(),
        secondary: None,
    }
}
