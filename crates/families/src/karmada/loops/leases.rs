//! Lending: each member with pods that appear at run time is told how much they may take: what they take, and a chunk more. The
//! quota's ledger is charged for it before the member is told, and let go of after: a member that is cut off may use what it was
//! lent and no more, and that stays charged. How much is worked out in [`lending`](super::super::lending).
//!
//! Each member is seen to by a task of its own: one that is slow keeps nobody else waiting.
//!
//! What is idle in one member while another has nothing left goes round: a member that does not use what it got gives it back after
//! a while. A member that knows slices is told until when it may use what it was lent; a cluster that failed and whose time is over
//! has nothing any more.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use quantity::Quantity;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::super::Settings;
use super::super::lease::{self, Elastic, is_lent};
use super::super::lending::{Amounts, KEEP, Next, Standing, affordable, kept};
use super::super::quota::{Overall, overall};
use super::kind::{clusters, is_leaving, leases, namespace_of, quotas, slices, within};
use super::lender::{Shown, Terms, Told, read};
use super::members::Clients;
use super::standing::{is_ready, kept_until, now_ms, patch_status};
use super::watch::{Mirror, Watch};

/// How often members are asked what they use. Nothing else tells when pods come and go there.
const BEAT: Duration = Duration::from_millis(500);
const REST: Duration = Duration::from_secs(3600);
/// Quotas of which one member is asked at the same time.
const QUOTAS_AT_ONCE: usize = 8;

pub struct Leases {
    client: Client,
    settings: Arc<Settings>,
    quotas: Mirror,
    clusters: Mirror,
    leases: Mirror,
    pub members: Clients,
    seen: Mutex<Seen>,
}

/// What was seen lately, by namespace and name.
#[derive(Default)]
struct Seen {
    /// When each lease last grew, and when it was last made less although somebody waits there.
    grown: HashMap<Key, Instant>,
    given: HashMap<Key, Instant>,
    /// Quotas of which some member has nothing left: which, and when that was seen.
    hungry: HashMap<Key, (String, Instant)>,
}

type Key = (String, String);

impl Seen {
    /// Forgets what means nothing any more.
    fn forget(&mut self) {
        self.grown.retain(|_, since| since.elapsed() <= KEEP);
        self.given.retain(|_, since| since.elapsed() <= KEEP);
        self.hungry.retain(|_, (_, since)| since.elapsed() < KEEP);
    }
}

pub async fn run(client: Client, settings: Arc<Settings>) {
    let (watch, mirrors) = Watch::begin(&client, [quotas(), clusters(), leases()]).await;
    let this = Arc::new(Leases::new(client, settings, mirrors));
    let mut visits = Visits::default();
    loop {
        let is_idle = this.look(&mut visits).await;
        watch.rung(if is_idle { REST } else { BEAT }).await;
    }
}

/// Members that are being seen to. What is dropped sees to nobody any more.
#[derive(Default)]
pub struct Visits {
    tasks: JoinSet<String>,
    under_way: HashSet<String>,
}

impl Visits {
    #[cfg(test)]
    pub fn is_under_way(&mut self, name: &str) -> bool {
        self.finished();
        self.under_way.contains(name)
    }

    fn finished(&mut self) {
        while let Some(done) = self.tasks.try_join_next() {
            let name = done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
            self.under_way.remove(&name);
        }
    }
}

fn say(error: kube::Error) -> String {
    error.to_string()
}

/// Whether an administrator, or a policy of one, has given up what runs in a cluster.
fn is_given_up(cluster: &DynamicObject) -> bool {
    let taints = cluster.data["spec"]["taints"].as_array();
    taints.into_iter().flatten().any(|taint| taint["effect"] == "NoExecute")
}

/// Whether a member has the kind that ends by itself.
fn knows_slices(cluster: &DynamicObject) -> bool {
    let kind = slices();
    let served = cluster.data["status"]["apiEnablements"].as_array().into_iter().flatten();
    let mut kinds = served
        .filter(|one| one["groupVersion"] == *kind.api_version)
        .flat_map(|one| one["resources"].as_array().into_iter().flatten());
    kinds.any(|one| one["kind"] == *kind.kind)
}

impl Leases {
    pub fn new(client: Client, settings: Arc<Settings>, [quotas, clusters, leases]: [Mirror; 3]) -> Leases {
        let (members, seen) = (Clients::default(), Mutex::default());
        Leases { client, settings, quotas, clusters, leases, members, seen }
    }

    /// Begins to see to every member that nobody sees to already; whether nothing is lent to anybody.
    pub async fn look(self: &Arc<Self>, visits: &mut Visits) -> bool {
        visits.finished();
        self.seen.lock().await.forget();
        let (clusters, leases) = (self.clusters.all(), self.leases.all());
        self.members.retain(|name| clusters.iter().any(|cluster| cluster.name_any() == name)).await;
        let is_idle = leases.is_empty() && !self.quotas.all().iter().any(|quota| self.lends(quota).is_some());
        let of_lease = |lease: &Arc<DynamicObject>| lease.data["spec"]["clusterName"].as_str().unwrap_or("").to_owned();
        let mut names: Vec<String> = clusters.iter().map(|cluster| cluster.name_any()).collect();
        names.extend(leases.iter().map(of_lease));
        names.retain(|_| !is_idle);
        for name in names {
            if visits.under_way.insert(name.clone()) {
                let this = self.clone();
                visits.tasks.spawn(async move {
                    this.visit(&name).await;
                    name
                });
            }
        }
        is_idle
    }

    /// How a quota lends. One that is not enforced charges nothing, and lends nothing either.
    fn lends(&self, quota: &DynamicObject) -> Option<Elastic> {
        let lends = self.settings.enforcement && !is_leaving(quota);
        Elastic::read(&json!({"spec": quota.data["spec"]})).filter(|_| lends)
    }

    /// Sees to one member: what it is lent of every quota, and what is lent to it no more. Never twice at a time.
    async fn visit(&self, name: &str) {
        // One that does not answer keeps what it was lent. Until one has told what it serves, it is told nothing.
        let is_told = |cluster: &Arc<DynamicObject>| {
            !is_leaving(cluster) && is_ready(cluster) && cluster.data["status"]["apiEnablements"].is_array()
        };
        if let Some(cluster) = self.clusters.get("", name).filter(is_told) {
            let lending = self.quotas.all().into_iter().filter_map(|quota| Some((self.lends(&quota)?, quota)));
            let lending = lending.filter(|(elastic, _)| elastic.means(name));
            let tended = futures::stream::iter(lending).for_each_concurrent(QUOTAS_AT_ONCE, |(elastic, quota)| {
                let cluster = cluster.clone();
                async move {
                    if let Err(why) = self.tend(&quota, &elastic, &cluster).await {
                        tracing::debug!(why, cluster = cluster.name_any(), "a lease is looked at again");
                    }
                }
            });
            tended.await;
        }
        let all = self.leases.all();
        for lease in all.iter().filter(|lease| !is_leaving(lease) && lease.data["spec"]["clusterName"] == *name) {
            self.end(lease).await;
        }
    }

    async fn tend(&self, quota: &DynamicObject, elastic: &Elastic, cluster: &DynamicObject) -> Result<(), String> {
        let (namespace, member) = (namespace_of(quota), self.members.of(&self.client, cluster).await?);
        let name = lease::name(&quota.name_any(), &cluster.name_any());
        let api = within(&self.client, &self.leases.kind, &namespace);
        let stored = match api.get_opt(&name).await.map_err(say)? {
            Some(lease) => lease,
            None => self.begin(quota, cluster, &name).await.map_err(say)?,
        };
        if is_leaving(&stored) {
            return Ok(());
        }
        let limits = overall(&json!({"spec": quota.data["spec"]})).unwrap_or_default();
        let names: Vec<String> = limits.iter().map(|(name, _)| name.to_string()).filter(|name| is_lent(name)).collect();
        let told = Told::of(&member, &namespace, &quota.name_any(), knows_slices(cluster), &names);
        let lease = Lease { api: &api, name: &name, names: &names };
        let valid_until = self.renewed(&stored, &told, &lease).await?;
        let Shown { terms, version, used, waiting } = told.shown().await?;
        let version = version.as_deref();
        let (own_key, quota_key) = ((namespace.clone(), name.clone()), (namespace.clone(), quota.name_any()));
        let (others_starve, is_rested, has_given) = {
            let seen = self.seen.lock().await;
            let starves = seen.hungry.get(&quota_key).filter(|(_, since)| since.elapsed() < KEEP);
            let is_lately = |when: &HashMap<Key, Instant>| when.get(&own_key).is_some_and(|at| at.elapsed() <= KEEP);
            (starves.is_some_and(|(who, _)| *who != name), !is_lately(&seen.grown), is_lately(&seen.given))
        };
        let own = |field: &str| read(&stored.data["spec"][field], &names, str::to_owned);
        let standing = Standing {
            lent: own("hard"),
            base: own("base"),
            covered: own("covered"),
            told: terms.as_ref().map(|terms| terms.hard.clone()),
            used: used.clone(),
            waiting: waiting.clone(),
            chunk: elastic.chunk.iter().cloned().collect(),
            over: over(quota, &limits, &names),
            others_starve,
            is_rested,
            has_given,
        };
        let gates = elastic.gates && told.knows_slices();
        let with = |hard: Amounts| Terms { hard, valid_until: valid_until.clone(), gates, others: Vec::new() };
        let current = with(standing.lent.clone());
        if terms.as_ref() != Some(&current) {
            let others = terms.map(|terms| terms.others).unwrap_or_default();
            return told.tell(&Terms { others, ..current }, version).await;
        }
        match standing.next().ok_or("more than can be counted")? {
            Next::Grow { wanted, is_starved } => match self.grow(quota, &lease, &standing, wanted).await? {
                Some(granted) => {
                    self.seen.lock().await.grown.insert(own_key, Instant::now());
                    told.tell(&with(granted), version).await?;
                }
                None if is_starved => {
                    self.seen.lock().await.hungry.insert(quota_key, (name.clone(), Instant::now()));
                }
                None => {}
            },
            Next::Shrink(less) => {
                // First the member may do less; what it has done until then is what stays charged.
                told.tell(&with(less.clone()), version).await?;
                let used = told.enforced(&less).await?;
                lease.write(&kept(&less, &used)).await.map_err(say)?;
                if waiting.values().any(|amount| *amount > Quantity::ZERO) {
                    self.seen.lock().await.given.insert(own_key, Instant::now());
                }
            }
            Next::Tell | Next::Rest => {}
        }
        self.show(&stored, &used, &waiting, &names).await
    }

    /// Until when the member may use what it was lent: written down here before it is told.
    async fn renewed(&self, stored: &DynamicObject, told: &Told, lease: &Lease<'_>) -> Result<Option<String>, String> {
        if !told.knows_slices() {
            return Ok(None);
        }
        let term = Duration::from_secs(self.settings.lease_seconds);
        let known = stored.data["spec"]["validUntil"].as_str().unwrap_or("");
        if *known > *kept_until(term / 2) {
            return Ok(Some(known.to_owned()));
        }
        let until = kept_until(term);
        lease.patch(json!({ "validUntil": until })).await.map_err(say)?;
        Ok(Some(until))
    }

    async fn show(
        &self,
        lease: &DynamicObject,
        used: &Amounts,
        waiting: &Amounts,
        names: &[String],
    ) -> Result<(), String> {
        // What was told lately is not told again: a write of our own would be the next thing to look at.
        let grace = Duration::from_secs(self.settings.grace_seconds);
        let status = &lease.data["status"];
        let is = |field: &str, amounts: &Amounts| read(&status[field], names, str::to_owned) == *amounts;
        let until = status["renewUntil"].as_str().unwrap_or("");
        if *until > *kept_until(grace / 2) && is("used", used) && is("waiting", waiting) {
            return Ok(());
        }
        let status = json!({"used": shown(used), "waiting": shown(waiting), "renewUntil": kept_until(grace)});
        patch_status(&self.client, lease, &self.leases.kind, status).await.map(drop).map_err(say)
    }

    /// Charges more, or as much of it as there is; `None` where there is nothing.
    async fn grow(
        &self,
        quota: &DynamicObject,
        lease: &Lease<'_>,
        standing: &Standing,
        wanted: Amounts,
    ) -> Result<Option<Amounts>, String> {
        match lease.write(&wanted).await {
            Ok(()) => return Ok(Some(wanted)),
            Err(kube::Error::Api(status)) if status.code == 403 => {}
            Err(error) => return Err(error.to_string()),
        }
        let fresh = within(&self.client, &self.quotas.kind, &namespace_of(quota)).get(&quota.name_any()).await;
        let fresh = fresh.map_err(say)?;
        let limits = overall(&json!({"spec": fresh.data["spec"]})).unwrap_or_default();
        let used = read(&fresh.data["status"]["overallUsed"], lease.names, str::to_owned);
        let left = limits.iter().filter_map(|(name, limit)| {
            let left = limit.checked_sub(used.get(&**name)?)?;
            Some((name.to_string(), left))
        });
        let left = left.collect();
        let Some(granted) = affordable(&standing.lent, &standing.base, &wanted, &left) else { return Ok(None) };
        // Somebody may have been faster.
        Ok(lease.write(&granted).await.is_ok().then_some(granted))
    }

    async fn begin(&self, quota: &DynamicObject, cluster: &DynamicObject, name: &str) -> kube::Result<DynamicObject> {
        let object = json!({
            "apiVersion": self.leases.kind.api_version, "kind": self.leases.kind.kind, "metadata": {"name": name},
            "spec": {"quota": quota.name_any(), "clusterName": cluster.name_any(), "hard": {}},
        });
        let object: DynamicObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
        within(&self.client, &self.leases.kind, &namespace_of(quota)).create(&PostParams::default(), &object).await
    }

    /// A lease of a quota that lends no more goes when the member was told so; that of a cluster that is not registered any more at
    /// once, and so does that of a cluster that was given up, when its time is over.
    async fn end(&self, lease: &DynamicObject) {
        let (namespace, spec) = (namespace_of(lease), &lease.data["spec"]);
        let of = |field: &str| spec[field].as_str().unwrap_or("").to_owned();
        let quota = self.quotas.get(&namespace, &of("quota"));
        let lends = quota.and_then(|one| self.lends(&one)).is_some_and(|one| one.means(&of("clusterName")));
        let cluster = self.clusters.get("", &of("clusterName"));
        let is_over = cluster.as_ref().is_some_and(|cluster| self.is_over(cluster, &of("validUntil")));
        if lends && cluster.is_some() && !is_over {
            return;
        }
        if let Some(cluster) = cluster.filter(|_| !is_over) {
            let Ok(member) = self.members.of(&self.client, &cluster).await else { return };
            let told = Told::of(&member, &namespace, &of("quota"), knows_slices(&cluster), &[]);
            if !told.withdraw().await {
                return;
            }
        }
        let api = within(&self.client, &self.leases.kind, &namespace);
        let _ = api.delete(&lease.name_any(), &DeleteParams::default()).await;
    }

    /// Whether a member that does not answer and was given up can use nothing more of what it was lent. Its clock may differ from
    /// ours by as much as it may be silent.
    fn is_over(&self, cluster: &DynamicObject, valid_until: &str) -> bool {
        let grace_ms = i64::try_from(self.settings.grace_seconds).unwrap_or(i64::MAX).saturating_mul(1000);
        let until_ms = kinds::time::read_ms(valid_until).map(|until_ms| until_ms.saturating_add(grace_ms));
        self.settings.evict
            && !is_ready(cluster)
            && is_given_up(cluster)
            && until_ms.is_some_and(|until_ms| until_ms < now_ms())
    }
}

/// The names of which more is charged than a quota has.
fn over(quota: &DynamicObject, limits: &Overall, names: &[String]) -> BTreeSet<String> {
    let used = read(&quota.data["status"]["overallUsed"], names, str::to_owned);
    let is_over = |(name, limit): &&(Arc<str>, Quantity)| used.get(&**name).is_some_and(|used| used > limit);
    limits.iter().filter(is_over).map(|(name, _)| name.to_string()).collect()
}

/// A lease as it is written.
struct Lease<'a> {
    api: &'a Api<DynamicObject>,
    name: &'a str,
    names: &'a [String],
}

impl Lease<'_> {
    async fn write(&self, hard: &Amounts) -> kube::Result<()> {
        self.patch(json!({"hard": shown(hard)})).await
    }

    async fn patch(&self, spec: Value) -> kube::Result<()> {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.api.patch(self.name, &PatchParams::default(), &patch).await.map(drop)
    }
}

fn shown(list: &Amounts) -> Value {
    let text = |amount: &Quantity| json!(amount.canonical().to_string());
    Value::Object(list.iter().map(|(name, amount)| (name.clone(), text(amount))).collect::<Map<_, _>>())
}
