//! What claims on pools need from somebody awake: a pool where none is named, the end of a release, an owner
//! where they go with their pool, and an event when their standing changes. Each claim is looked at by itself, so that ten
//! thousand that wait cost nothing.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use controllers::{Failed, drive, gone_is_fine};
use kinds::conditions;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{Controller, WatchStreamExt, controller::Action, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};

use super::super::{GROUP, RESOURCE_POOL_CLAIMS, RESOURCE_POOLS, VERSION, is_released, provision};
use super::pools::api_resource;

struct Context {
    client: Client,
    claims: ApiResource,
    pools: Store<DynamicObject>,
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
    let (pools, claims) =
        (api_resource("ResourcePool", RESOURCE_POOLS), api_resource("ResourcePoolClaim", RESOURCE_POOL_CLAIMS));
    let all_pools: Api<DynamicObject> = Api::all_with(client.clone(), &pools);
    let all_claims: Api<DynamicObject> = Api::all_with(client.clone(), &claims);
    let writer = reflector::store::Writer::new(pools);
    let known_pools = writer.as_reader();
    let changes = watcher(all_pools, watcher::Config::default()).default_backoff();
    let changes = reflector::reflector(writer, changes).touched_objects();
    let controller = Controller::new_with(all_claims, watcher::Config::default(), claims.clone());
    let (known, known_claims) = (controller.store(), controller.store());
    let of_claims = claims.clone();
    let controller = controller.watches_stream_with(
        changes,
        move |pool: DynamicObject| {
            let waiting = known_claims.state().into_iter().filter(move |claim| is_concerned(claim, &pool));
            let of_claims = of_claims.clone();
            waiting.map(move |claim| ObjectRef::from_obj_with(&*claim, of_claims.clone())).collect::<Vec<_>>()
        },
        api_resource("ResourcePool", RESOURCE_POOLS),
    );
    let reporter = Reporter { controller: "resourcepoolclaims".into(), instance: None };
    let context = Context {
        recorder: Recorder::new(client.clone(), reporter),
        client,
        claims,
        pools: known_pools,
        known,
        told: Mutex::default(),
        started: jiff::Timestamp::now(),
    };
    drive(controller, reconcile, Arc::new(context), "claims on pools").await;
}

/// Whether a change of the pool may mean something to the claim: it has no pool yet, or its owner may have to change.
fn is_concerned(claim: &DynamicObject, pool: &DynamicObject) -> bool {
    match pool_name(claim) {
        "" => true,
        name => name == pool.name_any() && owner_should_change(claim, pool),
    }
}

async fn reconcile(claim: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, Failed> {
    tell(&claim, &context).await;
    if claim.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    if let Some(patch) = needed(&claim, &context.pools) {
        let namespace = claim.namespace().unwrap_or_default();
        let api: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), &namespace, &context.claims);
        gone_is_fine(api.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await)?;
    }
    Ok(Action::await_change())
}

/// The change that the claim needs now, if any.
fn needed(claim: &DynamicObject, pools: &Store<DynamicObject>) -> Option<Value> {
    let tree = serde_json::to_value(claim).ok()?;
    let name = pool_name(claim);
    if name.is_empty() {
        let namespace = claim.namespace().unwrap_or_default();
        let fits = |pool: &Arc<DynamicObject>| {
            serde_json::to_value(&**pool).is_ok_and(|pool| {
                provision::namespaces(&pool).contains(&namespace) && provision::has_what_is_claimed(&pool, &tree)
            })
        };
        // Which pool it is to be is decided where it is decided for new claims: when the claim is written.
        return pools.state().iter().any(fits).then(|| json!({"spec": {"pool": ""}}));
    }
    if is_released(&tree) {
        // It has been released with the write that asked for it; without the mark it stands in line again.
        return Some(json!({"metadata": {"annotations": {"projectcapsule.dev/release": null}}}));
    }
    let pool = pools.state().into_iter().find(|pool| pool.name_any() == name)?;
    if !owner_should_change(claim, &pool) {
        return None;
    }
    let mut owners = claim.owner_references().to_vec();
    owners.retain(|owner| owner.kind != "ResourcePool");
    let mut owners = serde_json::to_value(owners).unwrap_or_default();
    if let (true, Some(list)) = (goes_with_pool(claim, &pool), owners.as_array_mut()) {
        list.push(json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ResourcePool", "name": name, "uid": pool.uid(),
        }));
    }
    Some(json!({"metadata": {"ownerReferences": owners}}))
}

/// A claim that has its resources is deleted with a pool that says so; one that waits is not.
fn goes_with_pool(claim: &DynamicObject, pool: &DynamicObject) -> bool {
    let deletes = pool.data.pointer("/spec/config/deleteBoundResources") == Some(&Value::Bool(true));
    deletes && condition(claim, "Exhausted", "status") == "False"
}

fn owner_should_change(claim: &DynamicObject, pool: &DynamicObject) -> bool {
    // Once the pool is on its way out, what goes with it is settled.
    let owned = claim.owner_references().iter().any(|owner| Some(&owner.uid) == pool.metadata.uid.as_ref());
    pool.metadata.deletion_timestamp.is_none() && owned != goes_with_pool(claim, pool)
}

fn pool_name(claim: &DynamicObject) -> &str {
    claim.data.pointer("/spec/pool").and_then(Value::as_str).unwrap_or("")
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
