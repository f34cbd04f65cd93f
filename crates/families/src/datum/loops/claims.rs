//! Events of claims: that one was denied, and why; that one was granted which had been denied. They outlive the claim.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use controllers::{Failed, drive};
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::Store;
use kube::runtime::{Controller, controller::Action, watcher};
use kube::{Api, Client, Resource, ResourceExt};

use super::super::{CLAIMS, GROUP, VERSION};

struct Context {
    claims: ApiResource,
    known: Store<DynamicObject>,
    /// The reason last told of each claim.
    told: Mutex<HashMap<String, String>>,
    client: Client,
    started: jiff::Timestamp,
}

/// Reasons remembered before those of claims that are gone are forgotten.
const TOLD_MIN: usize = 1024;

pub async fn run(client: Client) {
    let kind = GroupVersionKind::gvk(GROUP, VERSION, "ResourceQuotaClaim");
    let claims = ApiResource::from_gvk_with_plural(&kind, CLAIMS.1);
    let all_claims: Api<DynamicObject> = Api::all_with(client.clone(), &claims);
    let controller = Controller::new_with(all_claims, watcher::Config::default(), claims.clone());
    let known = controller.store();
    let context = Context { client, claims, known, told: Mutex::default(), started: jiff::Timestamp::now() };
    drive(controller, reconcile, Arc::new(context), "claims on quota").await;
}

async fn reconcile(claim: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, Failed> {
    tell(&claim, &context).await;
    Ok(Action::await_change())
}

async fn tell(claim: &DynamicObject, context: &Context) {
    let Some(uid) = claim.uid() else { return };
    let status = |field: &str| claim.data["status"][field].as_str().unwrap_or_default().to_owned();
    let (phase, reason) = (status("phase"), status("reason"));
    let now = format!("{phase}/{reason}");
    let before = {
        let mut told = context.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() > TOLD_MIN.max(2 * context.known.len()) {
            let known: HashSet<String> = context.known.state().iter().filter_map(|claim| claim.uid()).collect();
            told.retain(|uid, _| known.contains(uid));
        }
        told.insert(uid, now.clone())
    };
    // What was so before this process is told already.
    let since: Option<jiff::Timestamp> =
        kinds::conditions::of(&claim.data, "Granted").and_then(|one| one["lastTransitionTime"].as_str()?.parse().ok());
    let is_news = since.is_some_and(|since| since.as_second() >= context.started.as_second());
    if before.as_deref() == Some(&*now) || (before.is_none() && !is_news) {
        return;
    }
    let event = match (before.as_deref(), phase.as_str()) {
        (_, "Denied") => event(&reason, &status("message"), true),
        (Some(before), "Granted") if before.starts_with("Denied") => event("QuotaAvailable", &status("message"), false),
        _ => return,
    };
    // One recorder an event: it looks through all it has recorded before each, and nothing is told here twice.
    let reporter = Reporter { controller: "resourcequotaclaims".into(), instance: None };
    let recorder = Recorder::new(context.client.clone(), reporter);
    // An event that is lost is no reason to stop.
    if let Err(error) = recorder.publish(&event, &claim.object_ref(&context.claims)).await {
        tracing::debug!(%error, "an event was not recorded");
    }
}

fn event(reason: &str, note: &str, warns: bool) -> Event {
    // An event's note has a bound of its own.
    let note: String = note.chars().take(900).collect();
    Event {
        type_: if warns { EventType::Warning } else { EventType::Normal },
        reason: reason.into(),
        note: Some(note),
        action: "Decided".into(),
        secondary: None,
    }
}
