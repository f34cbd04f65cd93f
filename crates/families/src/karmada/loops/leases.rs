//! Lending: each member with pods that appear at run time has a ResourceQuota that allows what it uses and a chunk more. The
//! quota's ledger is charged for it before the member is told, and let go of after: a member that is cut off may use what it was
//! lent and no more, and that stays charged until it answers again.
//!
//! What is idle in one member while another has nothing left goes round: a member that does not use what it got gives it back after
//! a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ResourceQuota;
use kinds::conditions;
use kinds::resources::quantity_of;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use quantity::{Amount, Quantity};
use serde_json::{Map, Value, json};

use super::super::Settings;
use super::super::lease::{self, Elastic, is_lent};
use super::super::quota::overall;
use super::kind::{MANAGED, clusters, is_leaving, leases, namespace_of, quotas, within};
use super::members::access;
use super::standing::{is_passing, kept_until, patch_status};
use super::watch::{Mirror, Watch};

/// How often members are asked what they use. Nothing else tells when pods come and go there.
const BEAT: Duration = Duration::from_millis(500);
const REST: Duration = Duration::from_secs(3600);
/// How long a member keeps what it was given and does not use while others have nothing left.
const KEEP: Duration = Duration::from_secs(3);
/// How long a member may take to enforce what it was told. What it was lent stays charged meanwhile.
const ENFORCED_LOOK: Duration = Duration::from_millis(100);
const ENFORCED_LOOKS_MAX: usize = 30;
const PATIENCE: Duration = Duration::from_secs(5);

/// Amounts by name.
type Amounts = HashMap<String, Quantity>;

struct Leases {
    client: Client,
    settings: Arc<Settings>,
    quotas: Mirror,
    clusters: Mirror,
    leases: Mirror,
    members: HashMap<String, (u64, Client)>,
    /// When each lease last grew.
    grown: HashMap<String, Instant>,
    /// Quotas of which some member has nothing left: which, and when that was seen.
    hungry: HashMap<String, (String, Instant)>,
}

pub async fn run(client: Client, settings: Arc<Settings>) {
    let mut watch = Watch::new();
    let config = watcher::Config::default;
    let quotas = watch.mirror(&client, &quotas(), "", config());
    let clusters = watch.mirror(&client, &clusters(), "", config());
    let leases = watch.mirror(&client, &leases(), "", config());
    for mirror in [&quotas, &clusters, &leases] {
        mirror.ready().await;
    }
    let (members, grown, hungry) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut this = Leases { client, settings, quotas, clusters, leases, members, grown, hungry };
    loop {
        let is_idle = this.look().await;
        watch.rung(if is_idle { REST } else { BEAT }).await;
    }
}

impl Leases {
    /// Looks at every quota that lends; whether there is none.
    async fn look(&mut self) -> bool {
        let mut is_idle = true;
        for quota in self.quotas.all() {
            let object = json!({"spec": quota.data["spec"]});
            let Some(elastic) = Elastic::read(&object).filter(|_| !is_leaving(&quota)) else { continue };
            is_idle = false;
            for cluster in self.clusters.all() {
                let name = cluster.name_any();
                let is_meant = elastic.clusters.is_empty() || elastic.clusters.contains(&name);
                let ready = cluster.data["status"].get("conditions").and_then(|all| conditions::find(all, "Ready"));
                // One that does not answer keeps what it was lent.
                if !is_meant || is_leaving(&cluster) || ready.is_none_or(|one| one["status"] != "True") {
                    continue;
                }
                let done = tokio::time::timeout(PATIENCE, self.tend(&quota, &elastic, &cluster)).await;
                if let Ok(Err(why)) = done {
                    tracing::debug!(why, cluster = name, "a lease is looked at again");
                }
            }
        }
        is_idle & self.end().await
    }

    async fn member(&mut self, cluster: &DynamicObject) -> Result<Client, String> {
        let (mark, client) = access(&self.client, cluster).await?.ok_or("it is not reached from here")?;
        let known = self.members.entry(cluster.name_any()).or_insert_with(|| (mark, client.clone()));
        if known.0 != mark {
            *known = (mark, client);
        }
        Ok(known.1.clone())
    }

    async fn tend(&mut self, quota: &DynamicObject, elastic: &Elastic, cluster: &DynamicObject) -> Result<(), String> {
        let (namespace, member) = (namespace_of(quota), self.member(cluster).await?);
        let name = lease::name(&quota.name_any(), &cluster.name_any());
        let api = within(&self.client, &self.leases.kind, &namespace);
        let say = |error: kube::Error| error.to_string();
        let lease = match api.get_opt(&name).await.map_err(say)? {
            Some(lease) => lease,
            None => self.begin(quota, cluster, &name).await.map_err(say)?,
        };
        if is_leaving(&lease) {
            return Ok(());
        }
        let limits = overall(&json!({"spec": quota.data["spec"]})).unwrap_or_default();
        let names: Vec<String> = limits.iter().map(|(name, _)| name.to_string()).filter(|name| is_lent(name)).collect();
        let there: Api<ResourceQuota> = Api::namespaced(member, &namespace);
        let own = format!("{}-elastic", quota.name_any());
        let lent = read(&lease.data["spec"]["hard"], &names);
        // The member is told what is charged, and nothing else.
        let told = there.get_opt(&own).await.map_err(say)?;
        let shown = told.as_ref().map(|one| serde_json::to_value(one).unwrap_or_default()).unwrap_or_default();
        if told.is_none() || self::told(&shown["spec"]["hard"], &names) != lent {
            return put(&there, &own, &lent, told.is_none()).await;
        }
        let base = read(&lease.data["spec"]["base"], &names);
        let used = self::told(&shown["status"]["used"], &names);
        let chunk: Amounts = elastic.chunk.iter().cloned().collect();
        let key = format!("{namespace}/{}", quota.name_any());
        let of = |list: &Amounts, name: &str| list.get(name).cloned().unwrap_or_default();
        let (mut grow, mut shrink, mut is_starved, mut is_idle) = (lent.clone(), lent.clone(), false, false);
        let starves = self.hungry.get(&key).filter(|(_, since)| since.elapsed() < KEEP);
        let others_starve = starves.is_some_and(|(who, _)| *who != name);
        let is_rested = self.grown.get(&name).is_none_or(|since| since.elapsed() > KEEP);
        for name in &names {
            let (hard, chunk) = (of(&lent, name), of(&chunk, name));
            let floor = of(&base, name);
            let needed = if of(&used, name).amount() > floor.amount() { of(&used, name) } else { floor };
            let wanted = needed.checked_add(&chunk).ok_or("more than can be counted")?;
            let most = wanted.checked_add(&chunk).ok_or("more than can be counted")?;
            if wanted.amount() > hard.amount() && !(others_starve && hard.amount() >= needed.amount()) {
                is_starved |= hard.amount() <= needed.amount() && !chunk.is_zero();
                grow.insert(name.clone(), wanted);
            } else if hard.amount() > most.amount() {
                shrink.insert(name.clone(), wanted);
            } else if others_starve && is_rested && hard.amount() > needed.amount() {
                is_idle = true;
                shrink.insert(name.clone(), needed);
            }
        }
        if grow != lent && !is_idle {
            let granted = self.grow(quota, &api, &name, &lent, grow, &names).await?;
            match granted {
                Some(granted) => {
                    self.grown.insert(name.clone(), Instant::now());
                    put(&there, &own, &granted, false).await?;
                }
                None if is_starved => drop(self.hungry.insert(key, (name.clone(), Instant::now()))),
                None => {}
            }
        } else if shrink != lent {
            // First the member may do less; what it has done until then is what stays charged.
            put(&there, &own, &shrink, false).await?;
            let used = enforced(&there, &own, &shrink, &names).await?;
            for name in &names {
                if of(&used, name).amount() > of(&shrink, name).amount() {
                    shrink.insert(name.clone(), of(&used, name));
                }
            }
            write(&api, &name, &shrink).await.map_err(say)?;
        }
        // What was told lately is not told again: a write of our own would be the next thing to look at.
        let grace = Duration::from_secs(self.settings.grace_seconds);
        let told_until = lease.data["status"]["renewUntil"].as_str().unwrap_or("");
        if *told_until > *kept_until(grace / 2) && read(&lease.data["status"]["used"], &names) == used {
            return Ok(());
        }
        let status = json!({"used": shown_list(&used), "renewUntil": kept_until(grace)});
        patch_status(&self.client, &lease, &self.leases.kind, status).await.map(drop).map_err(say)
    }

    /// Charges more, or as much of it as there is; `None` where there is nothing.
    async fn grow(
        &self,
        quota: &DynamicObject,
        api: &Api<DynamicObject>,
        name: &str,
        lent: &Amounts,
        wanted: Amounts,
        names: &[String],
    ) -> Result<Option<Amounts>, String> {
        match write(api, name, &wanted).await {
            Ok(()) => return Ok(Some(wanted)),
            Err(kube::Error::Api(status)) if status.code == 403 => {}
            Err(error) => return Err(error.to_string()),
        }
        let fresh = within(&self.client, &self.quotas.kind, &namespace_of(quota)).get(&quota.name_any()).await;
        let fresh = fresh.map_err(|error| error.to_string())?;
        let limits = overall(&json!({"spec": fresh.data["spec"]})).unwrap_or_default();
        let mut granted = lent.clone();
        for (resource, limit) in limits.iter().filter(|(resource, _)| names.iter().any(|name| **name == **resource)) {
            let used = read(&fresh.data["status"]["overallUsed"], names).remove(&**resource).unwrap_or_default();
            let left = limit.checked_sub(&used).filter(|left| left.amount() > Amount::ZERO);
            let had = lent.get(&**resource).cloned().unwrap_or_default();
            let more = wanted.get(&**resource).and_then(|one| one.checked_sub(&had)).unwrap_or_default();
            let more = left.map(|left| if left.amount() < more.amount() { left } else { more });
            if let Some(sum) = more.and_then(|more| had.checked_add(&more)) {
                granted.insert(resource.to_string(), sum);
            }
        }
        if granted == *lent {
            return Ok(None);
        }
        Ok(write(api, name, &granted).await.is_ok().then_some(granted))
    }

    async fn begin(&self, quota: &DynamicObject, cluster: &DynamicObject, name: &str) -> kube::Result<DynamicObject> {
        let object = json!({
            "apiVersion": self.leases.kind.api_version, "kind": self.leases.kind.kind, "metadata": {"name": name},
            "spec": {"quota": quota.name_any(), "clusterName": cluster.name_any(), "hard": {}},
        });
        let object: DynamicObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
        within(&self.client, &self.leases.kind, &namespace_of(quota)).create(&PostParams::default(), &object).await
    }

    /// Leases of quotas that lend no more, and of clusters that are not registered any more, go: the first when the member's
    /// ResourceQuota is gone, the second at once. Whether there are none of the first.
    async fn end(&mut self) -> bool {
        let mut is_idle = true;
        for lease in self.leases.all().iter().filter(|lease| !is_leaving(lease)) {
            let (namespace, spec) = (namespace_of(lease), &lease.data["spec"]);
            let of = |field: &str| spec[field].as_str().unwrap_or("").to_owned();
            let quota = self.quotas.get(&namespace, &of("quota"));
            let lends = quota.is_some_and(|one| {
                let elastic = Elastic::read(&json!({"spec": one.data["spec"]}));
                elastic.is_some_and(|one| one.clusters.is_empty() || one.clusters.contains(&of("clusterName")))
            });
            let cluster = self.clusters.get("", &of("clusterName"));
            if lends && cluster.is_some() {
                continue;
            }
            if let Some(cluster) = cluster {
                is_idle = false;
                let Ok(member) = self.member(&cluster).await else { continue };
                let there: Api<ResourceQuota> = Api::namespaced(member, &namespace);
                match there.delete(&format!("{}-elastic", of("quota")), &DeleteParams::default()).await {
                    Err(error) if !is_passing(&error) => continue,
                    _ => {}
                }
            }
            let api = within(&self.client, &self.leases.kind, &namespace);
            let _ = api.delete(&lease.name_any(), &DeleteParams::default()).await;
        }
        is_idle
    }
}

/// As a ResourceQuota names it: extended resources are counted by what is requested of them.
fn quota_name(name: &str) -> String {
    if name.contains('/') && !name.starts_with("requests.") { format!("requests.{name}") } else { name.to_owned() }
}

fn read(list: &Value, names: &[String]) -> Amounts {
    let amount = |name: &String| quantity_of(name, list.get(name).unwrap_or(&Value::Null)).unwrap_or_default();
    names.iter().map(|name| (name.clone(), amount(name).canonical())).collect()
}

/// The same of a member's ResourceQuota.
fn told(list: &Value, names: &[String]) -> Amounts {
    let amount =
        |name: &String| quantity_of(name, list.get(quota_name(name)).unwrap_or(&Value::Null)).unwrap_or_default();
    names.iter().map(|name| (name.clone(), amount(name).canonical())).collect()
}

fn shown_list(list: &Amounts) -> Value {
    Value::Object(list.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string()))).collect::<Map<_, _>>())
}

async fn write(api: &Api<DynamicObject>, name: &str, hard: &Amounts) -> kube::Result<()> {
    let patch = Patch::Merge(json!({"spec": {"hard": shown_list(hard)}}));
    api.patch(name, &PatchParams::default(), &patch).await.map(drop)
}

/// Tells the member what it may use.
async fn put(there: &Api<ResourceQuota>, name: &str, hard: &Amounts, is_new: bool) -> Result<(), String> {
    let hard: Map<String, Value> =
        hard.iter().map(|(name, amount)| (quota_name(name), json!(amount.to_string()))).collect();
    let say = |error: kube::Error| error.to_string();
    if is_new {
        let quota = json!({"metadata": {"name": name, "labels": {MANAGED: "true"}}, "spec": {"hard": hard}});
        let quota: ResourceQuota = serde_json::from_value(quota).map_err(|error| error.to_string())?;
        return there.create(&PostParams::default(), &quota).await.map(drop).map_err(say);
    }
    let patch = Patch::Merge(json!({"spec": {"hard": hard}}));
    there.patch(name, &PatchParams::default(), &patch).await.map(drop).map_err(say)
}

/// Waits until the member enforces what it was told, and returns what it uses then: a kube-apiserver goes by the status, which
/// somebody else writes a moment later.
async fn enforced(there: &Api<ResourceQuota>, name: &str, hard: &Amounts, names: &[String]) -> Result<Amounts, String> {
    for _ in 0..ENFORCED_LOOKS_MAX {
        let quota = there.get(name).await.map_err(|error| error.to_string())?;
        let shown = serde_json::to_value(&quota).unwrap_or_default();
        if told(&shown["status"]["hard"], names) == *hard {
            return Ok(told(&shown["status"]["used"], names));
        }
        tokio::time::sleep(ENFORCED_LOOK).await;
    }
    Err("the member does not enforce yet what it was told".into())
}
