//! Applying a plan: tried first, applied whole, verified, and taken back when anything is not as it should be.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use super::plan::{MANAGED_BY, Plan};
use super::tenant::amounts;
use super::verify;

/// The field manager of what is applied.
const MANAGER: &str = "bursar-migrate";
/// Between two looks at whether the server is done.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

pub fn pools(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource("ResourcePool", "resourcepools"))
}

pub fn claims(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource("ResourcePoolClaim", "resourcepoolclaims"))
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("capsule.clastix.io", "v1beta2", kind), plural)
}

/// Looks at what is there already. Claims of an earlier run stay what they are: they were granted. A namespace that has
/// come to terms with a pool of an earlier run by itself gets no claim. What somebody else made is not touched: the
/// problems say so.
pub async fn settle_with_existing(client: &Client, plan: &mut Plan) -> anyhow::Result<Vec<String>> {
    let mut problems = Vec::new();
    let mut migrated = BTreeSet::new();
    for pool in &plan.pools {
        match pools(client).get_opt(&pool.name).await.context("cannot look for pools")? {
            None => {}
            Some(known) if is_ours(&known) => drop(migrated.insert(pool.name.clone())),
            Some(_) => {
                problems.push(format!("there is a ResourcePool {} that this migration did not make", pool.name));
            }
        }
    }
    for mut claim in std::mem::take(&mut plan.claims) {
        let known = claims(client, &claim.namespace).get_opt(&claim.name).await.context("cannot look for claims")?;
        let Some(known) = known else {
            if !(migrated.contains(&claim.pool) && verify::is_covered(client, &claim).await?) {
                plan.claims.push(claim);
            }
            continue;
        };
        if !is_ours(&known) {
            let (namespace, name) = (&claim.namespace, &claim.name);
            problems.push(format!("there is a ResourcePoolClaim {namespace}/{name} that this migration did not make"));
            continue;
        }
        match amounts(known.data.pointer("/spec/claim")) {
            Ok(amounts) => {
                claim.ask_for(amounts);
                plan.claims.push(claim);
            }
            Err(why) => problems.push(format!("ResourcePoolClaim {}/{}: {why}", claim.namespace, claim.name)),
        }
    }
    Ok(problems)
}

fn is_ours(object: &DynamicObject) -> bool {
    object.labels().get(MANAGED_BY.0).is_some_and(|by| by == MANAGED_BY.1)
}

pub async fn run(client: &Client, plan: &Plan, timeout: Duration) -> anyhow::Result<()> {
    // Refusals of any kind (rights, other webhooks, fields of others) show up here, while nothing has changed yet.
    for manifest in plan.manifests() {
        let tried = apply(client, manifest, true).await;
        tried.with_context(|| format!("nothing was changed: {} would be refused", shown(manifest)))?;
    }
    let mut made = Vec::new();
    let outcome = apply_all(client, plan, &mut made, timeout).await;
    let Err(error) = outcome else { return Ok(()) };
    match take_back(client, &made, timeout).await {
        Ok(()) => bail!("{error:#}\nEverything this run made was taken back; the tenants are as they were."),
        Err(left) => bail!("{error:#}\nTaking back what this run made failed too ({left:#}); run it again to finish."),
    }
}

async fn apply_all<'a>(
    client: &Client,
    plan: &'a Plan,
    made: &mut Vec<&'a Value>,
    timeout: Duration,
) -> anyhow::Result<()> {
    for manifest in plan.manifests() {
        let known = api(client, manifest).get_opt(name(manifest)).await?;
        if known.is_none() {
            made.push(manifest);
        }
        let applied = apply(client, manifest, false).await.with_context(|| shown(manifest))?;
        let word = match known {
            None => "created",
            Some(known) if is_same(&known, &applied) => "unchanged",
            Some(_) => "configured",
        };
        println!("{} {word}", shown(manifest));
    }
    let begun = Instant::now();
    loop {
        let report = verify::look(client, plan).await?;
        match report.unmet.first() {
            None => {
                println!("\nVerified:");
                report.met.iter().for_each(|line| println!("  {line}"));
                return Ok(());
            }
            Some(first) if begun.elapsed() > timeout => {
                let more = report.unmet.len() - 1;
                let more = if more == 0 { String::new() } else { format!(" (and {more} more)") };
                return Err(anyhow!("not as it should be after {} seconds: {first}{more}", timeout.as_secs()));
            }
            Some(_) => tokio::time::sleep(LOOK_INTERVAL).await,
        }
    }
}

/// Whether applying changed nothing. Statuses follow usage in their own time, and are no change of ours.
fn is_same(known: &DynamicObject, applied: &DynamicObject) -> bool {
    known.data["spec"] == applied.data["spec"]
        && known.labels() == applied.labels()
        && known.annotations() == applied.annotations()
}

/// Pools go first: a claim that is in use cannot be deleted while its pool is there.
async fn take_back(client: &Client, made: &[&Value], timeout: Duration) -> anyhow::Result<()> {
    let begun = Instant::now();
    for manifest in made.iter().rev() {
        let api = api(client, manifest);
        let deleted = api.delete(name(manifest), &DeleteParams::default()).await;
        if !matches!(&deleted, Err(kube::Error::Api(status)) if status.code == 404) {
            deleted.with_context(|| shown(manifest))?;
        }
        while api.get_opt(name(manifest)).await?.is_some() {
            if begun.elapsed() > timeout {
                bail!("{} is still there", shown(manifest));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
    Ok(())
}

async fn apply(client: &Client, manifest: &Value, dry_run: bool) -> Result<DynamicObject, kube::Error> {
    let params = PatchParams { dry_run, ..PatchParams::apply(MANAGER) };
    api(client, manifest).patch(name(manifest), &params, &Patch::Apply(manifest)).await
}

fn api(client: &Client, manifest: &Value) -> Api<DynamicObject> {
    match manifest.pointer("/metadata/namespace").and_then(Value::as_str) {
        None => pools(client),
        Some(namespace) => claims(client, namespace),
    }
}

fn name(manifest: &Value) -> &str {
    manifest.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

fn shown(manifest: &Value) -> String {
    match manifest.pointer("/metadata/namespace").and_then(Value::as_str) {
        None => format!("resourcepool {}", name(manifest)),
        Some(namespace) => format!("resourcepoolclaim {namespace}/{}", name(manifest)),
    }
}
