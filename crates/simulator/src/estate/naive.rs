//! What every account must say, counted from the stored objects alone by code that shares nothing with what charges:
//! its own reading of quantities and selectors, its own list of what each policy looks at.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::season::{SEASONS, TICKETS};
use super::weather::TREE_LABEL;

pub type Strings = BTreeMap<String, String>;

/// Everything stored, by resource as policies name it (`widgetz.example.com`).
#[derive(Clone)]
pub struct Stored {
    pub objects: BTreeMap<String, Vec<Arc<Value>>>,
    /// The latest time the engine was told.
    pub now_ms: i64,
    /// Whether Capsule's releases are followed: a number that is missing cannot be counted, instead of being none, and no
    /// limit is zero. Then also what was evicted from a cluster counts until its task is done, and templates are refused early.
    pub strict: bool,
}

/// (policy, resource, bucket) → billionths.
pub type Sums = BTreeMap<(String, String, String), i128>;

#[derive(Default)]
pub struct Expected {
    /// What each account without bucket is limited to; `None` without limit.
    pub limits: BTreeMap<(String, String), Option<i128>>,
    /// What objects that do not wait are charged, by uid.
    pub charged: BTreeMap<u128, Sums>,
    /// What claims are charged, or wait for.
    pub claimed: BTreeMap<u128, Sums>,
    /// Of those that name them: the accounts that have a say. The others only count.
    pub deciding: BTreeMap<u128, BTreeSet<(String, String, String)>>,
    /// Policies that cannot be evaluated, with where they would look: nothing is let in there.
    pub broken: Vec<Broken>,
}

pub struct Broken {
    pub policy: String,
    pub resources: Vec<&'static str>,
    pub reach: BTreeSet<String>,
}

impl Stored {
    pub fn all(&self, resource: &str) -> &[Arc<Value>] {
        self.objects.get(resource).map_or(&[], Vec::as_slice)
    }

    pub fn named(&self, resource: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.all(resource).iter().map(|one| &**one).find(|one| namespace_of(one) == namespace && name_of(one) == name)
    }

    pub fn namespaces(&self) -> impl Iterator<Item = (&str, Strings, Strings)> {
        let all = self.all("namespaces").iter();
        all.map(|one| (name_of(one), strings(one, "/metadata/labels"), strings(one, "/metadata/annotations")))
    }

    /// The namespaces a predicate accepts.
    fn chosen(&self, accepts: impl Fn(&str, &Strings, &Strings) -> bool) -> BTreeSet<String> {
        let chosen = self.namespaces().filter(|(name, labels, notes)| accepts(name, labels, notes));
        chosen.map(|(name, ..)| name.to_owned()).collect()
    }

    pub fn expected(&self) -> Expected {
        let mut expected = Expected::default();
        for quota in self.all("resourcequotas") {
            let reach = BTreeSet::from([namespace_of(quota).to_owned()]);
            self.quota("resourcequotas", quota, &quota["spec"], &reach, false, &mut expected);
        }
        for quota in self.all(CLUSTER) {
            let (labels, notes) =
                (strings(quota, "/spec/selector/labels/matchLabels"), strings(quota, "/spec/selector/annotations"));
            let reach = self.chosen(|_, has, noted| {
                !(labels.is_empty() && notes.is_empty()) && holds(has, &labels) && holds(noted, &notes)
            });
            self.quota(CLUSTER, quota, &quota["spec"]["quota"], &reach, true, &mut expected);
        }
        for quota in self.all(TREE) {
            let reach = self.chosen(|name, _, _| self.is_below(name, namespace_of(quota)));
            self.quota(TREE, quota, &quota["spec"], &reach, false, &mut expected);
        }
        for quota in self.all(CUSTOM) {
            self.custom(CUSTOM, quota, &BTreeSet::from([namespace_of(quota).to_owned()]), &mut expected);
        }
        for quota in self.all(GLOBAL) {
            let selectors = quota["spec"]["namespaceSelectors"].as_array().cloned().unwrap_or_default();
            let reach = self.chosen(|_, labels, _| {
                selectors.is_empty() || selectors.iter().any(|one| holds(labels, &strings(one, "/matchLabels")))
            });
            self.custom(GLOBAL, quota, &reach, &mut expected);
        }
        for pool in self.all(POOLS) {
            self.pool(pool, &mut expected);
        }
        for season in self.all(SEASONS) {
            self.season(season, &mut expected);
        }
        self.orgs(&mut expected);
        self.datum(&mut expected);
        self.federated(&mut expected);
        self.slices(&mut expected);
        expected
    }

    /// Tickets take seats, or wait for them, until their time is over.
    fn season(&self, season: &Value, out: &mut Expected) {
        let policy = policy(SEASONS, season);
        let is_closed = season["spec"]["opensMs"].as_i64().is_some_and(|opens_ms| self.now_ms < opens_ms);
        let limit = if is_closed { 0 } else { nanos(&season["spec"]["seats"]) };
        out.limits.insert((policy.clone(), "seats".into()), Some(limit));
        for ticket in self.all(TICKETS) {
            if ticket["spec"]["untilMs"].as_i64().is_some_and(|until_ms| self.now_ms >= until_ms) {
                continue;
            }
            let lines = out.claimed.entry(uid(ticket)).or_default();
            for bucket in ["", namespace_of(ticket)] {
                lines.insert((policy.clone(), "seats".into(), bucket.into()), nanos(&ticket["spec"]["seats"]));
            }
        }
    }

    /// Whether a namespace is another, or below it by what HierarchyConfigurations say.
    fn is_below(&self, name: &str, above: &str) -> bool {
        let mut at = name.to_owned();
        for _ in 0..10 {
            if at == above {
                return true;
            }
            let Some(configuration) = self.named("hierarchyconfigurations.hnc.x-k8s.io", &at, "hierarchy") else {
                return false;
            };
            at = configuration["spec"]["parent"].as_str().unwrap_or("").to_owned();
        }
        false
    }

    fn quota(
        &self,
        kind: &str,
        quota: &Value,
        spec: &Value,
        reach: &BTreeSet<String>,
        by_namespace: bool,
        out: &mut Expected,
    ) {
        let policy = policy(kind, quota);
        let scoped = spec["scopes"].as_array().is_some_and(|scopes| !scopes.is_empty());
        for (name, hard) in spec["hard"].as_object().into_iter().flatten() {
            out.limits.insert((policy.clone(), name.clone()), Some(nanos(hard)));
            for (resource, objects) in &self.objects {
                for object in objects.iter().filter(|object| reach.contains(namespace_of(object))) {
                    if scoped && (resource != "pods" || object["spec"]["activeDeadlineSeconds"].is_i64()) {
                        continue;
                    }
                    let amount = self.counted(name, resource, object).min(COUNTED_MAX);
                    if amount == 0 {
                        continue;
                    }
                    let lines = out.charged.entry(uid(object)).or_default();
                    lines.insert((policy.clone(), name.clone(), String::new()), amount);
                    if by_namespace {
                        lines.insert((policy.clone(), name.clone(), namespace_of(object).to_owned()), amount);
                    }
                }
            }
        }
    }

    /// What an object adds to a number of this name.
    pub fn counted(&self, name: &str, resource: &str, object: &Value) -> i128 {
        let live = || {
            let overdue = overdue_ms(object).is_some_and(|overdue_ms| self.now_ms > overdue_ms);
            !overdue && !matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
        };
        let request = |of: &str, what: &str| -> i128 {
            let containers = object["spec"]["containers"].as_array().into_iter().flatten();
            containers.map(|container| nanos(&container["resources"][of][what])).sum()
        };
        match (name, resource) {
            ("pods", "pods") => i128::from(live()) * ONE,
            ("requests.cpu", "pods") if live() => request("requests", "cpu"),
            ("requests.memory", "pods") if live() => request("requests", "memory"),
            ("services.nodeports", "services") if object["spec"]["type"] == "NodePort" => {
                object["spec"]["ports"].as_array().map_or(0, Vec::len) as i128 * ONE
            }
            ("requests.storage", "persistentvolumeclaims") => {
                nanos(&object["spec"]["resources"]["requests"]["storage"])
            }
            ("configmaps" | "services" | "persistentvolumeclaims" | "resourcequotas", _) if name == resource => ONE,
            _ if name.strip_prefix("count/") == Some(resource) => ONE,
            _ => 0,
        }
    }

    fn custom(&self, kind: &str, quota: &Value, reach: &BTreeSet<String>, out: &mut Expected) {
        let policy = policy(kind, quota);
        let scopes = quota["spec"]["scopeSelectors"].as_array().cloned().unwrap_or_default();
        let sources = quota["spec"]["sources"].as_array().cloned().unwrap_or_default();
        let is_defined = self.defines_widgets();
        let limit = nanos(&quota["spec"]["limit"]);
        if self.strict && limit == 0 {
            let looked_at =
                COUNTED_KINDS.iter().filter(|(_, kind)| sources.iter().any(|source| source["kind"] == *kind));
            let resources =
                looked_at.map(|(resource, _)| *resource).filter(|one| *one != WIDGETS || is_defined).collect();
            return out.broken.push(Broken { policy, resources, reach: reach.clone() });
        }
        out.limits.insert((policy.clone(), "usage".into()), Some(limit));
        out.limits.insert((policy.clone(), "unevaluated".into()), None);
        for (resource, kind) in COUNTED_KINDS {
            let sources: Vec<&Value> = sources.iter().filter(|source| source["kind"] == kind).collect();
            if sources.is_empty() || (resource == WIDGETS && !is_defined) {
                continue;
            }
            for object in self.all(resource).iter().filter(|object| reach.contains(namespace_of(object))) {
                let labels = strings(object, "/metadata/labels");
                if !scopes.is_empty() && !scopes.iter().any(|one| holds(&labels, &strings(one, "/matchLabels"))) {
                    continue;
                }
                let mut usage = Some(0);
                for source in &sources {
                    let path = if kind == "Widget" { "/spec/size" } else { "/spec/hard/pods" };
                    let found = || {
                        let found = object.pointer(path).filter(|found| !found.is_null() || !self.strict);
                        if self.strict { read(found?) } else { read(found.unwrap_or(&Value::Null)) }
                    };
                    let one = if source["op"] == "count" { Some(ONE) } else { found() };
                    let sign = if source["op"] == "sub" { -1 } else { 1 };
                    usage = usage.zip(one).map(|(sum, one)| sum + sign * one);
                }
                let (name, amount) = usage.map_or(("unevaluated", ONE), |usage| ("usage", usage));
                if amount != 0 {
                    let lines = out.charged.entry(uid(object)).or_default();
                    lines.insert((policy.clone(), name.into(), String::new()), amount);
                }
            }
        }
    }

    fn defines_widgets(&self) -> bool {
        let mut definitions = self.all("customresourcedefinitions.apiextensions.k8s.io").iter();
        definitions.any(|one| one["spec"]["names"]["kind"] == "Widget" && one["spec"]["versions"][0]["served"] == true)
    }

    fn pool(&self, pool: &Value, out: &mut Expected) {
        let policy = policy(POOLS, pool);
        let hard = pool["spec"]["quota"]["hard"].as_object().cloned().unwrap_or_default();
        for (name, hard) in &hard {
            out.limits.insert((policy.clone(), name.clone()), Some(nanos(hard)));
        }
        out.limits.insert((policy.clone(), "#claims".into()), None);
        let reach = self.served(pool);
        if pool["metadata"]["deletionTimestamp"].is_string() {
            return;
        }
        for claim in self.all(CLAIMS).iter().filter(|claim| reach.contains(namespace_of(claim))) {
            let wanted = claim["spec"]["claim"].as_object().cloned().unwrap_or_default();
            let released = claim["metadata"]["annotations"]["projectcapsule.dev/release"] == "true";
            let other = claim["spec"]["pool"] != pool["metadata"]["name"];
            let amounts = wanted.iter().map(|(name, amount)| (name.clone(), nanos(amount)));
            // Of what nothing is claimed the pool need have none.
            let lacks = amounts.clone().any(|(name, amount)| amount > 0 && !hard.contains_key(&name));
            if wanted.is_empty() || released || other || lacks {
                continue;
            }
            let lines = out.claimed.entry(uid(claim)).or_default();
            for (name, amount) in amounts.chain([("#claims".to_owned(), ONE)]).filter(|(_, amount)| *amount > 0) {
                lines.insert((policy.clone(), name.clone(), String::new()), amount);
                lines.insert((policy.clone(), name, namespace_of(claim).to_owned()), amount);
            }
        }
    }

    /// The namespaces a pool serves.
    pub fn served(&self, pool: &Value) -> BTreeSet<String> {
        let selectors = pool["spec"]["selectors"].as_array().cloned().unwrap_or_default();
        let by_tree = selectors.iter().any(|one| one["matchExpressions"][0]["key"] == TREE_LABEL);
        let selectors: Vec<Strings> = selectors.iter().map(|one| strings(one, "/matchLabels")).collect();
        self.chosen(|_, labels, _| {
            let chosen = selectors.iter().any(|one| !one.is_empty() && holds(labels, one));
            chosen || (by_tree && labels.contains_key(TREE_LABEL))
        })
    }
}

pub const ONE: i128 = 1_000_000_000;
pub const CLUSTER: &str = "clusterresourcequotas.quota.openshift.io";
pub const TREE: &str = "hierarchicalresourcequotas.hnc.x-k8s.io";
pub const CUSTOM: &str = "customquotas.capsule.clastix.io";
pub const GLOBAL: &str = "globalcustomquotas.capsule.clastix.io";
pub const POOLS: &str = "resourcepools.capsule.clastix.io";
pub const CLAIMS: &str = "resourcepoolclaims.capsule.clastix.io";
pub const WIDGETS: &str = "widgetz.example.com";

/// What quantities end at.
const QUANTITY_MAX: i128 = i64::MAX as i128 * ONE;

/// As much as is counted of one object.
pub const COUNTED_MAX: i128 = 1 << 96;

/// What custom quotas here look at.
const COUNTED_KINDS: [(&str, &str); 4] =
    [("configmaps", "ConfigMap"), ("pods", "Pod"), (WIDGETS, "Widget"), ("resourcequotas", "ResourceQuota")];

pub fn policy(kind: &str, object: &Value) -> String {
    format!("{kind}/{}/{}", namespace_of(object), name_of(object))
}

pub fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or("")
}

pub fn namespace_of(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or("")
}

pub fn uid(object: &Value) -> u128 {
    let digits = object["metadata"]["uid"].as_str().unwrap_or("").replace('-', "");
    u128::from_str_radix(&digits, 16).unwrap_or_default()
}

/// After which moment a pod that is being deleted no longer counts.
pub fn overdue_ms(pod: &Value) -> Option<i64> {
    let deleted: jiff::Timestamp = pod["metadata"]["deletionTimestamp"].as_str()?.parse().ok()?;
    let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_i64()?;
    Some(deleted.as_millisecond() + grace * 1000)
}

pub fn strings(object: &Value, at: &str) -> Strings {
    let map = object.pointer(at).and_then(Value::as_object);
    map.into_iter().flatten().map(|(name, value)| (name.clone(), value.as_str().unwrap_or("").to_owned())).collect()
}

fn holds(has: &Strings, wanted: &Strings) -> bool {
    wanted.iter().all(|(name, value)| has.get(name) == Some(value))
}

/// Billionths of what is written, as far as quantities go; none when that is no quantity.
pub fn read(value: &Value) -> Option<i128> {
    read_sum(value).map(|sum| sum.min(QUANTITY_MAX))
}

/// The same for sums, which go further.
pub fn read_sum(value: &Value) -> Option<i128> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Some(0),
    };
    let units = [
        ("n", 1),
        ("u", 1000),
        ("m", ONE / 1000),
        ("Ki", ONE << 10),
        ("Mi", ONE << 20),
        ("Gi", ONE << 30),
        ("Ti", ONE << 40),
        ("Pi", ONE << 50),
        ("Ei", ONE << 60),
        ("k", ONE * 1000),
    ];
    let (digits, unit) =
        units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit))).unwrap_or((&text, ONE));
    digits.parse::<i128>().ok().map(|digits| digits * unit)
}

/// The same where everything is one.
pub fn nanos(value: &Value) -> i128 {
    read(value).unwrap_or_default()
}
