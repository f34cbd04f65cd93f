//! Pools at work: the ResourceQuota of each pool in each of its namespaces, and the finalizer that keeps a pool
//! until they are gone.
//!
//! Who gets what is decided with each write, and so is what each of those ResourceQuotas allows; this only sees to it
//! that they are there, and that no other namespace has one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use controllers::{Failed, Guarded, drive, exists_is_fine, gone_is_fine, readable};
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, controller::Action, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::super::{GROUP, RESOURCE_POOLS, VERSION, provision};

/// On a pool while it has namespaces or claims.
const FINALIZER: &str = "controller.projectcapsule.dev/finalize";

struct Context {
    client: Client,
    pools: ApiResource,
}

pub(super) fn api_resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, kind), plural)
}

pub async fn run(client: Client) {
    let pools = api_resource("ResourcePool", RESOURCE_POOLS);
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &pools);
    let by_label = watcher::Config::default().labels(provision::POOL_LABEL);
    let of_pool = pools.clone();
    let controller = Controller::new_with(all, watcher::Config::default(), pools.clone()).watches(
        Api::<Guarded<ResourceQuota>>::all(client.clone()),
        by_label,
        move |quota| {
            let name = quota.labels().get(provision::POOL_LABEL).cloned();
            name.map(|name| ObjectRef::new_with(&name, of_pool.clone()))
        },
    );
    drive(controller, reconcile, Arc::new(Context { client, pools }), "resource pools").await;
}

async fn reconcile(pool: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, Failed> {
    // The watch may lag behind what an event of a ResourceQuota already tells.
    let api: Api<DynamicObject> = Api::all_with(context.client.clone(), &context.pools);
    let Some(pool) = api.get_opt(&pool.name_any()).await? else { return Ok(Action::await_change()) };
    let tree = serde_json::to_value(&pool).map_err(|error| Failed::Unexpected(error.to_string()))?;
    let leaves = pool.metadata.deletion_timestamp.is_some();
    let namespaces: BTreeSet<String> =
        if leaves { BTreeSet::new() } else { provision::namespaces(&tree).into_iter().collect() };
    let count = |field: &str| tree["status"][field].as_u64().unwrap_or(0);
    let is_in_service = !leaves && count("namespaceCount") + count("claimCount") > 0;
    if is_in_service {
        hold(&api, &pool, true).await?;
    }
    provision_quotas(&context, &tree, &pool.name_any(), &namespaces).await?;
    if !is_in_service {
        hold(&api, &pool, false).await?;
    }
    Ok(Action::await_change())
}

/// Puts the finalizer on the pool, or takes it off.
async fn hold(api: &Api<DynamicObject>, pool: &DynamicObject, wanted: bool) -> Result<(), Failed> {
    let mut finalizers = pool.finalizers().to_vec();
    if finalizers.iter().any(|one| one == FINALIZER) == wanted {
        return Ok(());
    }
    finalizers.retain(|one| one != FINALIZER);
    if wanted {
        finalizers.push(FINALIZER.into());
    }
    let finalizers = if finalizers.is_empty() { Value::Null } else { json!(finalizers) };
    // With the version that was read: another finalizer that came meanwhile is not lost.
    let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": pool.resource_version()}});
    gone_is_fine(api.patch(&pool.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await)?;
    Ok(())
}

/// Every namespace of the pool has its ResourceQuota, and no other namespace has one. What fails in one namespace is told when all
/// others have been looked at.
async fn provision_quotas(
    context: &Context,
    pool: &Value,
    name: &str,
    namespaces: &BTreeSet<String>,
) -> Result<(), Failed> {
    let all: Api<Guarded<ResourceQuota>> = Api::all(context.client.clone());
    // By its name: labels are for anybody to write who may write quotas in a namespace.
    let of_pool = ListParams::default().fields(&format!("metadata.name={}", provision::quota_name(name)));
    let mut present: BTreeMap<String, ResourceQuota> = BTreeMap::new();
    for quota in readable(&all, &of_pool, "resource pools").await? {
        present.insert(quota.namespace().unwrap_or_default(), quota);
    }
    let mut outcome = Ok(());
    for namespace in namespaces {
        let done = provide(context, pool, namespace, present.remove(namespace)).await;
        outcome = outcome.and(done);
    }
    for (namespace, quota) in present {
        let done = withdraw(context, pool, &namespace, &quota).await;
        outcome = outcome.and(done);
    }
    outcome
}

/// Sees to it that a namespace has the pool's ResourceQuota, marked as the pool's.
async fn provide(context: &Context, pool: &Value, namespace: &str, known: Option<ResourceQuota>) -> Result<(), Failed> {
    let wanted = provision::resource_quota(pool, namespace);
    let wanted: ResourceQuota =
        serde_json::from_value(wanted).map_err(|error| Failed::Unexpected(error.to_string()))?;
    let api: Api<ResourceQuota> = Api::namespaced(context.client.clone(), namespace);
    let Some(known) = known else {
        // What the status says may be old, or written by somebody.
        if !serves(context, pool, namespace).await? {
            return Ok(());
        }
        return match api.create(&PostParams::default(), &wanted).await {
            // The namespace may be on its way out by now; then it needs no quota any more.
            Err(kube::Error::Api(status)) if [403, 404].contains(&status.code) => Ok(()),
            // Made meanwhile: its event brings us back.
            created => exists_is_fine(created).map(|_| ()),
        };
    };
    let is_marked = wanted.labels().iter().all(|(label, value)| known.labels().get(label) == Some(value));
    if is_marked && known.owner_references() == wanted.owner_references() {
        return Ok(());
    }
    let marks = json!({"labels": wanted.metadata.labels, "ownerReferences": wanted.metadata.owner_references});
    let patch = Patch::Merge(json!({"metadata": marks}));
    gone_is_fine(api.patch(&known.name_any(), &PatchParams::default(), &patch).await)?;
    Ok(())
}

/// Removes the pool's ResourceQuota where the pool has nothing to say any longer. One that merely has the name stays.
async fn withdraw(context: &Context, pool: &Value, namespace: &str, quota: &ResourceQuota) -> Result<(), Failed> {
    let name = pool.pointer("/metadata/name").and_then(Value::as_str);
    let is_ours = quota.labels().get(provision::POOL_LABEL).map(String::as_str) == name;
    let leaves = pool.pointer("/metadata/deletionTimestamp").is_some();
    if !is_ours || (!leaves && serves(context, pool, namespace).await?) {
        return Ok(());
    }
    let api: Api<ResourceQuota> = Api::namespaced(context.client.clone(), namespace);
    gone_is_fine(api.delete(&quota.name_any(), &DeleteParams::default()).await)?;
    Ok(())
}

/// Whether the pool serves a namespace by its labels as they are; the status may be older.
async fn serves(context: &Context, pool: &Value, namespace: &str) -> Result<bool, Failed> {
    let known: Option<Namespace> = Api::all(context.client.clone()).get_opt(namespace).await?;
    Ok(known.is_some_and(|known| provision::serves(pool, known.labels())))
}
