//! What the accounts of quotas over many clusters must say, counted from quotas, bindings and leases alone: what is placed, what was
//! evicted and is not placed anew, and what members were lent beside it. And those of slices, which are a member's.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::naive::{COUNTED_MAX, Expected, ONE, Stored, name_of, namespace_of, nanos, policy, read_sum, uid};

pub const FEDERATED: &str = "federatedresourcequotas.policy.karmada.io";
pub const BINDINGS: &str = "resourcebindings.work.karmada.io";
pub const LEASES: &str = "federatedquotaleases.policy.karmada.io";
pub const SLICES: &str = "federatedquotaslices.policy.karmada.io";

/// Billionths by name.
pub type Amounts = BTreeMap<String, i128>;

const OBJECTS: [(&str, &str); 2] = [("configmaps", "ConfigMap"), ("services", "Service")];

/// What some copies of a workload take.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    requests: Amounts,
    pods: i128,
    objects: i128,
}

impl Tally {
    fn add(&mut self, requirements: &Value, times: i128) {
        self.pods += times;
        for (name, one) in requirements["resourceRequest"].as_object().into_iter().flatten() {
            *self.requests.entry(name.clone()).or_default() += nanos(one) * times;
        }
    }

    fn join(&mut self, other: &Tally) {
        for (name, amount) in &other.requests {
            *self.requests.entry(name.clone()).or_default() += amount;
        }
        self.pods += other.pods;
        self.objects += other.objects;
    }
}

/// A binding, counted.
pub struct Counted {
    reference: Value,
    pub all: Tally,
    pub on: BTreeMap<String, Tally>,
    pub evicted: BTreeMap<String, Tally>,
}

impl Counted {
    /// `peak`: what was evicted counts beside what replaced it, until its task is gone.
    pub fn of(binding: &Value, peak: bool) -> Counted {
        let spec = &binding["spec"];
        let mut counted = Counted {
            reference: spec["resource"].clone(),
            all: Tally::default(),
            on: BTreeMap::new(),
            evicted: BTreeMap::new(),
        };
        for target in list(&spec["clusters"]) {
            let tally = counted.on.entry(text(&target["name"])).or_default();
            if list(&spec["components"]).is_empty() {
                tally.add(&spec["replicaRequirements"], pods_on(spec, target));
            }
            for component in list(&spec["components"]) {
                let said = list(&target["components"]).iter().find(|one| one["name"] == component["name"]);
                let said = said.map_or(0, |one| whole(&one["replicas"]));
                tally.add(&component["replicaRequirements"], said.max(whole(&component["replicas"])));
            }
            tally.objects = 1;
        }
        for (cluster, copies) in copies_evicted(spec, peak) {
            let tally = counted.evicted.entry(cluster).or_default();
            if list(&spec["components"]).is_empty() {
                tally.add(&spec["replicaRequirements"], copies);
            }
            for component in list(&spec["components"]) {
                tally.add(&component["replicaRequirements"], copies * whole(&component["replicas"]));
            }
        }
        counted.on.values().chain(counted.evicted.values()).for_each(|tally| counted.all.join(tally));
        counted.all.objects += if peak { gone(spec).count() as i128 } else { missing(spec, true) };
        counted
    }

    /// What it takes under a name of a quota.
    pub fn amount(&self, name: &str, tally: &Tally) -> i128 {
        if name == "pods" {
            return tally.pods * ONE;
        }
        if let Some((_, kind)) = OBJECTS.iter().find(|(plural, _)| *plural == name) {
            let is_one = self.reference["kind"] == *kind && self.reference["apiVersion"] == "v1";
            return if is_one { tally.objects * ONE } else { 0 };
        }
        tally.requests.get(name.strip_prefix("requests.").unwrap_or(name)).copied().unwrap_or_default()
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("").to_owned()
}

fn whole(value: &Value) -> i128 {
    i128::from(value.as_i64().unwrap_or(0))
}

/// A Pod is one wherever it is.
pub fn pods_on(spec: &Value, target: &Value) -> i128 {
    let is_pod = spec["resource"]["kind"] == "Pod" && spec["resource"]["apiVersion"] == "v1";
    whole(&target["replicas"]).max(i128::from(is_pod))
}

fn names(list_of: &Value) -> BTreeSet<String> {
    list(list_of).iter().map(|one| text(&one["name"])).collect()
}

/// Tasks whose cluster has nothing of it any more.
fn gone(spec: &Value) -> impl DoubleEndedIterator<Item = &Value> {
    let there = names(&spec["clusters"]);
    list(&spec["gracefulEvictionTasks"]).iter().filter(move |task| !there.contains(&text(&task["fromCluster"])))
}

/// Whether replicas are divided among clusters, and not all of them in each.
pub fn is_divided(spec: &Value) -> bool {
    let scheduling = &spec["placement"]["replicaScheduling"];
    !scheduling.is_null() && scheduling["replicaSchedulingType"] != "Duplicated"
}

/// What a workload lacks that every cluster has as a whole, told as a story: who had it when somebody was evicted, and who came since.
/// `sets`: whole copies are counted, and not pods.
fn missing(spec: &Value, sets: bool) -> i128 {
    let wanted = if sets { 1 } else { whole(&spec["replicas"]) };
    let lost = |task: &Value| if sets { 1 } else { whole(&task["replicas"]).min(wanted) };
    let (mut here, mut told, mut lacking) = (BTreeSet::<String>::new(), BTreeSet::<String>::new(), 0);
    for task in list(&spec["gracefulEvictionTasks"]) {
        let before: BTreeSet<String> = list(&task["clustersBeforeFailover"]).iter().map(text).collect();
        if !before.is_empty() && before != told {
            let newcomers = before.iter().filter(|name| !here.contains(*name)).count() as i128;
            lacking = (lacking - newcomers * wanted).max(0);
            (here, told) = (before.clone(), before);
        }
        lacking += lost(task);
        here.remove(&text(&task["fromCluster"]));
    }
    for target in list(&spec["clusters"]).iter().filter(|target| !here.contains(&text(&target["name"]))) {
        lacking -= if sets { 1 } else { whole(&target["replicas"]) };
    }
    lacking.max(0).min(gone(spec).map(lost).sum())
}

/// How many pods, or whole sets of components, are charged for clusters that had them: what came instead is taken from those that were
/// evicted first.
fn copies_evicted(spec: &Value, peak: bool) -> Vec<(String, i128)> {
    let sets = !list(&spec["components"]).is_empty();
    let wanted = whole(&spec["replicas"]);
    let had = |task: &Value| match (sets, peak || is_divided(spec)) {
        (true, _) => 1,
        (false, true) => whole(&task["replicas"]),
        (false, false) => whole(&task["replicas"]).min(wanted),
    };
    let all: i128 = gone(spec).map(had).sum();
    let placed: i128 = list(&spec["clusters"]).iter().map(|target| pods_on(spec, target)).sum();
    let mut left = match (peak, sets || !is_divided(spec)) {
        (true, _) => all,
        (false, true) => missing(spec, sets),
        (false, false) => all.min((wanted - placed).max(0)),
    };
    let mut evicted = Vec::new();
    for task in gone(spec).rev() {
        let copies = had(task).min(left);
        left -= copies;
        evicted.push((text(&task["fromCluster"]), copies));
    }
    evicted
}

/// Whether bindings tell anything of a name, and whether pods do.
fn is_counted(name: &str) -> bool {
    is_lent(name) || OBJECTS.iter().any(|(plural, _)| *plural == name)
}

pub fn is_lent(name: &str) -> bool {
    matches!(name.strip_prefix("requests.").unwrap_or(name), "cpu" | "memory" | "pods")
}

/// The names of a quota that are counted here.
pub fn names_of(quota: &Value) -> impl Iterator<Item = (&String, &Value)> {
    quota["spec"]["overall"].as_object().into_iter().flatten().filter(|(name, _)| is_counted(name))
}

/// Whether a quota means a binding.
pub fn means(quota: &Value, binding: &Value) -> bool {
    let spec = &binding["spec"];
    let own = std::iter::once(&spec["replicaRequirements"]);
    let all = own.chain(list(&spec["components"]).iter().map(|one| &one["replicaRequirements"]));
    let classes: BTreeSet<String> =
        all.map(|one| text(&one["priorityClassName"])).filter(|one| !one.is_empty()).collect();
    let holds = |expression: &Value| {
        let values: BTreeSet<String> = list(&expression["values"]).iter().map(text).collect();
        match expression["operator"].as_str() {
            Some("Exists") => !classes.is_empty(),
            Some("DoesNotExist") => classes.is_empty(),
            Some("In") => !classes.is_disjoint(&values),
            _ => classes.is_disjoint(&values),
        }
    };
    let scoped = !list(&quota["spec"]["scopes"]).is_empty();
    (!scoped || !classes.is_empty()) && list(&quota["spec"]["scopeSelector"]["matchExpressions"]).iter().all(holds)
}

/// A number of a lease.
pub fn said(lease: &Value, field: &str, name: &str) -> i128 {
    read_sum(&lease["spec"][field][name]).unwrap_or(-1)
}

/// What is lent beyond what bindings are charged for there, or were.
pub fn lent(hard: i128, base: i128, covered: i128) -> i128 {
    (hard - base - covered).max(0)
}

impl Stored {
    pub fn federated(&self, out: &mut Expected) {
        for quota in self.all(FEDERATED) {
            let (account, namespace) = (policy(FEDERATED, quota), namespace_of(quota));
            for (name, limit) in names_of(quota) {
                out.limits.insert((account.clone(), name.clone()), Some(nanos(limit)));
            }
            let mut put = |object: &Value, name: &str, part: String, amount: i128| {
                if amount != 0 {
                    let lines = out.charged.entry(uid(object)).or_default();
                    lines.insert((account.clone(), name.to_owned(), part), amount);
                }
            };
            for binding in self.meant(quota) {
                let counted = Counted::of(binding, self.strict);
                for (name, _) in names_of(quota) {
                    put(binding, name, String::new(), counted.amount(name, &counted.all));
                    for (cluster, tally) in counted.on.iter().filter(|_| is_lent(name)) {
                        put(binding, name, format!("{namespace}/{cluster}"), counted.amount(name, tally));
                    }
                    for (cluster, tally) in counted.evicted.iter().filter(|_| is_lent(name)) {
                        put(binding, name, format!("{namespace}/{cluster}/evicted"), counted.amount(name, tally));
                    }
                }
            }
            for lease in self.leases_of(quota) {
                for (name, _) in names_of(quota) {
                    let [hard, base, covered] = ["hard", "base", "covered"].map(|field| said(lease, field, name));
                    put(lease, name, String::new(), lent(hard, base, covered));
                }
            }
        }
    }

    /// What pods of a namespace may take of a slice, until its time is over.
    pub fn slices(&self, out: &mut Expected) {
        for slice in self.all(SLICES) {
            let account = policy(SLICES, slice);
            let is_over = until_ms(slice).is_some_and(|until_ms| self.now_ms >= until_ms);
            for (name, hard) in slice["spec"]["hard"].as_object().into_iter().flatten() {
                out.limits.insert((account.clone(), name.clone()), Some(if is_over { 0 } else { nanos(hard) }));
                let counted = if name == "pods" { name.clone() } else { format!("requests.{name}") };
                for pod in self.all("pods").iter().filter(|pod| namespace_of(pod) == namespace_of(slice)) {
                    let amount = self.counted(&counted, "pods", pod);
                    if amount != 0 {
                        let lines = out.charged.entry(uid(pod)).or_default();
                        lines.insert((account.clone(), name.clone(), String::new()), amount.min(COUNTED_MAX));
                    }
                }
            }
        }
    }

    fn meant<'a>(&'a self, quota: &'a Value) -> impl Iterator<Item = &'a Value> {
        let all = self.all(BINDINGS).iter().map(|one| &**one);
        all.filter(|binding| namespace_of(binding) == namespace_of(quota) && means(quota, binding))
    }

    pub fn leases_of<'a>(&'a self, quota: &'a Value) -> impl Iterator<Item = &'a Value> {
        let all = self.all(LEASES).iter().map(|one| &**one);
        all.filter(|lease| {
            namespace_of(lease) == namespace_of(quota) && lease["spec"]["quota"] == quota["metadata"]["name"]
        })
    }

    /// What bindings take in the cluster of a lease, and what they took that were evicted from it: of what its quota counts.
    pub fn beside(&self, lease: &Value) -> (Amounts, Amounts) {
        let (mut placed, mut evicted) = (Amounts::new(), Amounts::new());
        let cluster = text(&lease["spec"]["clusterName"]);
        let quota = self.named(FEDERATED, namespace_of(lease), lease["spec"]["quota"].as_str().unwrap_or(""));
        for (quota, binding) in quota.iter().flat_map(|quota| self.meant(quota).map(move |binding| (quota, binding))) {
            let counted = Counted::of(binding, self.strict);
            for (name, _) in names_of(quota).filter(|(name, _)| is_lent(name)) {
                for (tally, sum) in [(&counted.on, &mut placed), (&counted.evicted, &mut evicted)] {
                    let amount = tally.get(&cluster).map_or(0, |tally| counted.amount(name, tally));
                    if amount != 0 {
                        *sum.entry(name.clone()).or_default() += amount;
                    }
                }
            }
        }
        (placed, evicted)
    }

    /// How much of what a lease allows is for workloads that were evicted, if it was `before`: what came was evicted from there, what
    /// the member gave back is not there for them any more.
    pub fn covered(&self, before: Option<&Value>, lease: &Value, name: &str) -> i128 {
        let (placed, evicted) = self.beside(lease);
        let of = |amounts: &Amounts| amounts.get(name).copied().unwrap_or_default();
        let Some(before) = before else { return 0 };
        let hard = said(lease, "hard", name);
        let came = (of(&evicted) - said(before, "evicted", name)).max(0);
        let gave_back = (said(before, "hard", name) - hard).max(0);
        let covered = said(before, "covered", name) + came - gave_back;
        covered.min(of(&evicted)).min(hard - of(&placed)).max(0)
    }
}

/// When the time of a slice is over.
pub fn until_ms(slice: &Value) -> Option<i64> {
    let until: jiff::Timestamp = slice["spec"]["validUntil"].as_str()?.parse().ok()?;
    Some(until.as_millisecond())
}

/// `namespace/name`.
pub fn full_name(object: &Value) -> String {
    format!("{}/{}", namespace_of(object), name_of(object))
}
