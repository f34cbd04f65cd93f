//! Capsule's pools at work: the ResourceQuota of each pool in each of its namespaces, and what their claims need from
//! somebody awake: a pool where none is named, the end of a release, an owner where they go with their pool.
//!
//! Who gets what is decided with each write, not here; this only carries a pool's status into its namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use families::capsule::{GROUP, RESOURCE_POOL_CLAIMS, RESOURCE_POOLS, VERSION, is_released, provision};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, controller::Action, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::run::{Failed, drive, exists_is_fine, gone_is_fine};

struct Context {
    client: Client,
    pools: ApiResource,
    claims: ApiResource,
}

fn api_resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, kind), plural)
}

pub async fn run(client: Client) {
    let pools = api_resource("ResourcePool", RESOURCE_POOLS);
    let claims = api_resource("ResourcePoolClaim", RESOURCE_POOL_CLAIMS);
    let all_pools: Api<DynamicObject> = Api::all_with(client.clone(), &pools);
    let all_claims: Api<DynamicObject> = Api::all_with(client.clone(), &claims);
    let controller = Controller::new_with(all_pools, watcher::Config::default(), pools.clone());
    let known = controller.store();
    let by_label = watcher::Config::default().labels(provision::POOL_LABEL);
    let of_pool = pools.clone();
    let controller = controller
        .watches_with(all_claims, claims.clone(), watcher::Config::default(), {
            let pools = pools.clone();
            move |claim: DynamicObject| {
                // A claim without a pool may fit into any.
                let named = claim.data.pointer("/spec/pool").and_then(Value::as_str).unwrap_or("").to_string();
                let names: Vec<String> = match named.as_str() {
                    "" => known.state().iter().map(|pool| pool.name_any()).collect(),
                    _ => vec![named],
                };
                let pools = pools.clone();
                names.into_iter().map(move |name| ObjectRef::new_with(&name, pools.clone()))
            }
        })
        .watches(Api::<ResourceQuota>::all(client.clone()), by_label, move |quota| {
            let name = quota.labels().get(provision::POOL_LABEL).cloned();
            name.map(|name| ObjectRef::new_with(&name, of_pool.clone()))
        });
    let context = Arc::new(Context { client, pools, claims });
    drive(controller, reconcile, context, "resource pools").await;
}

async fn reconcile(pool: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, Failed> {
    // The watch may lag behind what a claim's own event already tells.
    let api: Api<DynamicObject> = Api::all_with(context.client.clone(), &context.pools);
    let Some(pool) = api.get_opt(&pool.name_any()).await? else { return Ok(Action::await_change()) };
    if pool.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let tree = serde_json::to_value(&pool).map_err(|error| Failed::Unexpected(error.to_string()))?;
    let namespaces: BTreeSet<String> = provision::namespaces(&tree).into_iter().collect();
    provision_quotas(&context, &tree, &pool.name_any(), &namespaces).await?;
    tend_claims(&context, &tree, &pool.name_any(), &namespaces).await?;
    Ok(Action::await_change())
}

/// Every namespace of the pool has its ResourceQuota as the claims there want it, and no other namespace has one.
async fn provision_quotas(
    context: &Context,
    pool: &Value,
    name: &str,
    namespaces: &BTreeSet<String>,
) -> Result<(), Failed> {
    let all: Api<ResourceQuota> = Api::all(context.client.clone());
    let of_pool = ListParams::default().labels(&format!("{}={name}", provision::POOL_LABEL));
    let mut present: BTreeMap<String, ResourceQuota> = BTreeMap::new();
    for quota in all.list(&of_pool).await? {
        present.insert(quota.namespace().unwrap_or_default(), quota);
    }
    for namespace in namespaces {
        let wanted = provision::resource_quota(pool, namespace);
        let wanted: ResourceQuota =
            serde_json::from_value(wanted).map_err(|error| Failed::Unexpected(error.to_string()))?;
        let api: Api<ResourceQuota> = Api::namespaced(context.client.clone(), namespace);
        match present.remove(namespace) {
            Some(known) if known.spec == wanted.spec && known.owner_references() == wanted.owner_references() => {}
            Some(known) if scopes(&known) != scopes(&wanted) => {
                // The scopes of a ResourceQuota never change: it is made anew.
                gone_is_fine(api.delete(&known.name_any(), &DeleteParams::default()).await)?;
                exists_is_fine(api.create(&PostParams::default(), &wanted).await)?;
            }
            Some(known) => {
                let mut next = known.clone();
                next.spec = wanted.spec;
                next.metadata.owner_references = wanted.metadata.owner_references;
                gone_is_fine(api.replace(&known.name_any(), &PostParams::default(), &next).await)?;
            }
            None => {
                // The namespace may be on its way out by now; then it needs no quota any more.
                let created = api.create(&PostParams::default(), &wanted).await;
                if !matches!(&created, Err(kube::Error::Api(status)) if [403, 404].contains(&status.code)) {
                    exists_is_fine(created)?;
                }
            }
        }
    }
    for (namespace, quota) in present {
        let api: Api<ResourceQuota> = Api::namespaced(context.client.clone(), &namespace);
        gone_is_fine(api.delete(&quota.name_any(), &DeleteParams::default()).await)?;
    }
    Ok(())
}

fn scopes(quota: &ResourceQuota) -> Option<(Option<Vec<String>>, Value)> {
    let spec = quota.spec.as_ref()?;
    Some((spec.scopes.clone(), serde_json::to_value(&spec.scope_selector).unwrap_or_default()))
}

async fn tend_claims(context: &Context, pool: &Value, name: &str, namespaces: &BTreeSet<String>) -> Result<(), Failed> {
    let owns = pool.pointer("/spec/config/deleteBoundResources") == Some(&Value::Bool(true));
    for namespace in namespaces {
        let api: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), namespace, &context.claims);
        for claim in api.list(&ListParams::default()).await? {
            let tree = serde_json::to_value(&claim).map_err(|error| Failed::Unexpected(error.to_string()))?;
            let named = tree.pointer("/spec/pool").and_then(Value::as_str).unwrap_or("");
            let mine = named == name;
            let patch = if named.is_empty() && provision::has_what_is_claimed(pool, &tree) {
                json!({"spec": {"pool": name}})
            } else if mine && is_released(&tree) {
                // It has been released with the write that asked for it; without the mark it stands in line again.
                json!({"metadata": {"annotations": {"projectcapsule.dev/release": null}}})
            } else if mine && owns != claim.owner_references().iter().any(|owner| owner.kind == "ResourcePool") {
                let mut owners = claim.owner_references().to_vec();
                owners.retain(|owner| owner.kind != "ResourcePool");
                let mut owners = serde_json::to_value(owners).unwrap_or_default();
                if let (true, Some(list)) = (owns, owners.as_array_mut()) {
                    list.push(json!({
                        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ResourcePool", "name": name,
                        "uid": pool["metadata"]["uid"],
                    }));
                }
                json!({"metadata": {"ownerReferences": owners}})
            } else {
                continue;
            };
            let params = PatchParams::default();
            gone_is_fine(api.patch(&claim.name_any(), &params, &Patch::Merge(&patch)).await)?;
        }
    }
    Ok(())
}
