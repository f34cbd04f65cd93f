//! What the accounts of Datum's grants must say, counted from definitions, grants, claims, projects and namespaces alone: nothing of
//! what the family keeps is believed but the samples of meters, which are judged when they are written.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::naive::{Expected, ONE, Stored, Strings, name_of, namespace_of, nanos, strings, uid};

pub const EFFECTIVE: &str = "effectivequotagrants.quota.datumapis.com";
pub const CLAIMS: &str = "resourcequotaclaims.quota.datumapis.com";
pub const PROJECT_LABEL: &str = "resources.datumapis.com/project";
/// How long a sample counts, and how far its meter is behind.
pub const MAX_AGE_MS: i64 = 20_000;
pub const LAG_MS: i64 = 5_000;

type Key = (String, String, String);

/// A part of what is granted of a resource: whom it is about, and how much; `None` without limit.
struct Bucket {
    account: String,
    labels: Strings,
    limit: Option<i128>,
}

/// What all grants of somebody say of a resource.
#[derive(Default)]
struct Granted {
    all_matching: bool,
    buckets: Vec<Bucket>,
}

/// Who is asked, as policies are named.
fn entity(kind: &str, name: &str) -> String {
    format!("{EFFECTIVE}//{}-{name}", kind.to_lowercase())
}

/// Billionths of a value of a bucket.
fn value(text: &Value) -> Option<i128> {
    (*text != "unlimited").then(|| nanos(text))
}

impl Stored {
    fn definition(&self, resource: &str) -> Option<&Value> {
        let all = self.all("servicequotadefinitions.quota.datumapis.com").iter();
        all.map(|one| &**one).find(|one| one["spec"]["resourceName"] == resource)
    }

    /// The project of a namespace that is there.
    pub fn project_of(&self, namespace: &str) -> Option<String> {
        let mut all = self.namespaces().filter(|(name, ..)| *name == namespace);
        all.next().map(|(name, labels, _)| {
            let labelled = labels.get(PROJECT_LABEL).filter(|label| !label.is_empty());
            labelled.cloned().unwrap_or_else(|| name.to_owned())
        })
    }

    fn organization_of(&self, project: &str) -> Option<&str> {
        let object = self.named("projects.resources.datumapis.com", "", project)?;
        object["spec"]["organizationRef"]["name"].as_str().filter(|name| !name.is_empty())
    }

    /// What the grants of somebody come to, resource by resource, with the definition's default where nothing is said of the rest.
    fn granted(&self, kind: &str, name: &str) -> BTreeMap<String, Granted> {
        let mut all: BTreeMap<String, Granted> = BTreeMap::new();
        for grant in self.all("resourcequotagrants.quota.datumapis.com") {
            let of = &grant["spec"]["resourceRef"];
            if of["kind"] != kind || of["name"] != name {
                continue;
            }
            for limit in grant["spec"]["limits"].as_array().into_iter().flatten() {
                let resource = limit["name"].as_str().unwrap_or("").to_owned();
                let granted = all.entry(resource.clone()).or_default();
                granted.all_matching |= limit["bucketPolicy"] == "AllMatching";
                for bucket in limit["buckets"].as_array().into_iter().flatten() {
                    let (labels, more) = (strings(bucket, "/selector/matchLabels"), value(&bucket["value"]));
                    match granted.buckets.iter_mut().find(|known| known.labels == labels) {
                        Some(known) => known.limit = known.limit.zip(more).map(|(one, other)| one + other),
                        None => {
                            let account = account(&resource, &labels);
                            granted.buckets.push(Bucket { account, labels, limit: more });
                        }
                    }
                }
            }
        }
        for (resource, granted) in &mut all {
            let default = self.definition(resource).map(|one| &one["spec"]["defaultLimit"]["value"]);
            let is_whole = granted.buckets.iter().any(|bucket| bucket.labels.is_empty());
            if let Some(default) = default.filter(|default| !default.is_null() && !is_whole) {
                let (account, labels) = (resource.clone(), Strings::new());
                granted.buckets.push(Bucket { account, labels, limit: Some(nanos(default)) });
            }
        }
        all
    }

    /// What a meter leaves of a limit.
    fn left(&self, entity: &str, resource: &str, bucket: &Bucket) -> Option<i128> {
        let limit = bucket.limit?;
        let definition = self.definition(resource)?;
        if definition["spec"]["usageSource"].is_null() {
            return Some(limit);
        }
        let name = entity.rsplit('/').next().unwrap_or("");
        let kept = self.named(EFFECTIVE, "", name).map(|kept| &kept["spec"]["usage"]);
        let mut samples = kept.and_then(Value::as_array).into_iter().flatten();
        let sample = samples.find(|sample| sample["account"] == bucket.account.as_str());
        let unseen = sample.and_then(|sample| {
            let recorded = sample["recordedAtMs"].as_i64()?;
            let unseen: i128 = sample["unseenNanos"].as_str()?.parse().ok()?;
            (self.now_ms <= recorded + MAX_AGE_MS).then_some(unseen)
        });
        Some(unseen.map_or(0, |unseen| (limit - unseen).max(0)))
    }

    fn list(&self, entity: &str, granted: &BTreeMap<String, Granted>, out: &mut Expected) {
        out.limits.insert((entity.to_owned(), "#uncovered".into()), Some(0));
        for (resource, granted) in granted.iter().filter(|(resource, _)| self.definition(resource).is_some()) {
            for bucket in &granted.buckets {
                let left = self.left(entity, resource, bucket);
                out.limits.insert((entity.to_owned(), bucket.account.clone()), left);
            }
        }
    }

    pub fn datum(&self, out: &mut Expected) {
        let definitions = self.all("servicequotadefinitions.quota.datumapis.com");
        if definitions.is_empty() && self.all(EFFECTIVE).is_empty() {
            return;
        }
        let mut projects: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (namespace, ..) in self.namespaces() {
            let project = self.project_of(namespace).unwrap_or_default();
            projects.entry(project).or_default().insert(namespace.to_owned());
        }
        let mut members: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
        for project in projects.keys() {
            if let Some(organization) = self.organization_of(project) {
                members.entry(organization).or_default().push(project);
            }
        }
        let mut organizations = BTreeMap::new();
        for organization in members.into_keys() {
            let (granted, name) = (self.granted("Organization", organization), entity("organization", organization));
            // One that had grants is kept when the last of them goes.
            if !granted.is_empty() || self.named(EFFECTIVE, "", &format!("organization-{organization}")).is_some() {
                self.list(&name, &granted, out);
                organizations.insert(organization, (name, granted));
            }
        }
        let none = (String::new(), BTreeMap::new());
        for (project, namespaces) in &projects {
            let policy = entity("project", project);
            let mut own = self.granted("Project", project);
            let (organization, theirs) =
                self.organization_of(project).and_then(|name| organizations.get(name)).unwrap_or(&none);
            let listed: BTreeSet<String> = own.keys().cloned().collect();
            for definition in definitions {
                let (resource, default) =
                    (definition["spec"]["resourceName"].as_str().unwrap_or(""), &definition["spec"]["defaultLimit"]);
                if !default.is_null() && !own.contains_key(resource) && !theirs.contains_key(resource) {
                    let (account, limit) = (resource.to_owned(), Some(nanos(&default["value"])));
                    let bucket = Bucket { account, labels: Strings::new(), limit };
                    own.insert(resource.to_owned(), Granted { all_matching: false, buckets: vec![bucket] });
                }
            }
            self.list(&policy, &own, out);
            out.limits.insert((policy.clone(), "#claims".into()), None);
            for claim in self.all(CLAIMS).iter().filter(|claim| namespaces.contains(namespace_of(claim))) {
                let mut asks = Asks { policy: &policy, id: uid(claim), out };
                asks.put(&policy, "#claims", ONE, true);
                let requests = claim["spec"]["resources"].as_array().cloned().unwrap_or_default();
                let name = |request: &Value| request["name"].as_str().unwrap_or("").to_owned();
                if requests.iter().any(|request| self.definition(&name(request)).is_none()) {
                    // Nobody can tell what it comes to.
                    asks.uncovered(&policy);
                    let is_theirs = |request: &Value| {
                        self.definition(&name(request)).is_none() && theirs.contains_key(&name(request))
                    };
                    if requests.iter().any(is_theirs) {
                        asks.uncovered(organization);
                    }
                }
                for request in requests.iter().filter(|request| self.definition(&name(request)).is_some()) {
                    let name = name(request);
                    let dimensions = strings(request, "/dimensions");
                    let (level, granted) = match (own.get(&name), theirs.get(&name)) {
                        (own @ Some(_), _) if listed.contains(&name) => (policy.as_str(), own),
                        (_, theirs @ Some(_)) => (organization.as_str(), theirs),
                        (own, None) => (policy.as_str(), own),
                    };
                    asks.request(level, granted, &dimensions, nanos(&request["quantity"]));
                }
            }
        }
    }
}

/// Charges of one claim.
struct Asks<'a> {
    policy: &'a str,
    id: u128,
    out: &'a mut Expected,
}

impl Asks<'_> {
    fn request(&mut self, level: &str, granted: Option<&Granted>, dimensions: &Strings, amount: i128) {
        let buckets = granted.map_or(&[][..], |granted| &granted.buckets);
        let holds = |bucket: &&Bucket| bucket.labels.iter().all(|(key, wanted)| dimensions.get(key) == Some(wanted));
        let mut matching: Vec<&Bucket> = buckets.iter().filter(holds).collect();
        if matching.is_empty() {
            let level = if granted.is_some() { level } else { self.policy };
            return self.uncovered(level);
        }
        matching.sort_by_key(|bucket| std::cmp::Reverse(bucket.labels.len()));
        let all = granted.is_some_and(|granted| granted.all_matching);
        for (place, bucket) in matching.into_iter().enumerate() {
            self.put(level, &bucket.account, amount, place == 0 || all);
        }
    }

    /// Once, for however many requests.
    fn uncovered(&mut self, policy: &str) {
        let key: Key = (policy.to_owned(), "#uncovered".into(), String::new());
        if !self.out.claimed.entry(self.id).or_default().contains_key(&key) {
            self.put(policy, "#uncovered", ONE, true);
        }
    }

    fn put(&mut self, policy: &str, account: &str, amount: i128, decides: bool) {
        let key: Key = (policy.to_owned(), account.to_owned(), String::new());
        *self.out.claimed.entry(self.id).or_default().entry(key.clone()).or_default() += amount;
        if decides {
            self.out.deciding.entry(self.id).or_default().insert(key);
        }
    }
}

/// The account of a bucket. Selectors here speak of one dimension at most.
pub fn account(resource: &str, labels: &Strings) -> String {
    match labels.iter().next() {
        None => resource.to_owned(),
        Some((key, value)) => format!("{resource}{{{key}={value}}}"),
    }
}

/// Whether a claim says that it is granted.
pub fn is_granted(claim: &Value) -> bool {
    claim["status"]["phase"] == "Granted"
}

/// `namespace/name`, as events name it.
pub fn full_name(claim: &Value) -> String {
    format!("{}/{}", namespace_of(claim), name_of(claim))
}
