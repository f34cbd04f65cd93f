//! Datum's quotas in this world: definitions, grants, claims, projects, an object that comes with a claim, and a meter that lags, jumps
//! and fails. And what must be so of them beside what every account says.

use std::collections::BTreeMap;

use ledger::SubjectId;
use serde_json::{Value, json};
use server::core::{Expect, ObjectKey};

use rules::GroupResource;
use store::Journal;

use super::answers::{Said, Step};
use super::durable::{Durable, Kept};
use super::judge::Found;
use super::naive::{self, ONE, name_of, nanos};
use super::naive_datum::{self, EFFECTIVE, LAG_MS, PROJECT_LABEL, full_name, is_granted};
use super::request::Verb;
use super::weather::{NAMESPACES, Script};

/// Seeds from here on play Datum's quotas, and no organizations; up to those of quotas over many clusters.
pub const SEEDS: u64 = 1 << 33;

const GROUP: &str = "quota.datumapis.com";
const RESOURCES: &str = "resources.datumapis.com";
const CPU: &str = "example.com/cpu";
const COUNT: &str = "example.com/count";
const LOCATION: &str = "example.com/location";
const PROJECTS: [&str; 3] = ["n0", "n1", "alpha"];

impl Script<'_> {
    /// How a world with Datum's quotas begins. Of instances somebody is told; of cores, in half of the worlds, a meter tells.
    pub(super) fn begin_datum(&mut self) {
        let sink = json!({"type": "OpenMeter", "endpoint": "http://nobody", "meter": "count"});
        self.defines("count", COUNT, json!({"usageSink": sink}));
        self.cores(true);
        self.claim_policy("gold", 1, false);
        self.put(RESOURCES, "projects", "", "n0", json!({"spec": {"organizationRef": {"name": "acme"}}}));
        for _ in 0..4 {
            self.grant();
        }
    }

    fn defines(&mut self, name: &str, resource: &str, more: Value) {
        let mut spec = json!({
            "serviceRef": {"name": "example"}, "resourceName": resource, "unit": "count",
            "allowedDimensions": [LOCATION],
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        self.put(GROUP, "servicequotadefinitions", "", name, json!({"spec": spec}));
    }

    fn cores(&mut self, begins: bool) {
        let stored = self.seen.get(GROUP, "servicequotadefinitions", "", "cpu");
        let is_metered = stored.is_some_and(|kept| kept.value["spec"]["usageSource"].is_object());
        let mut more = json!({});
        if if begins { self.chance(2) } else { is_metered != self.chance(8) } {
            more["usageSource"] = json!({
                "type": "Prometheus", "endpoint": "http://nobody", "meter": "cores", "lag": "5s", "maxAge": "20s",
            });
        }
        if self.chance(3) {
            more["defaultLimit"] = json!({"value": self.rng.below(5).to_string()});
        }
        self.defines("cpu", CPU, more);
    }

    /// Secrets of a tier come with a claim of so many times their size.
    fn claim_policy(&mut self, tier: &str, times: u64, disabled: bool) {
        let policy = json!({
            "disabled": disabled,
            "trigger": {
                "resource": {"apiVersion": "v1", "kind": "Secret"},
                "constraints": [{"expression": format!("object.data.tier == '{tier}'")}],
            },
            "target": {"resourceClaimTemplate": {"spec": {
                "resources": [{"name": COUNT, "quantity": format!("{{{{ int(object.data.size) * {times} }}}}")}],
            }}},
        });
        self.put(GROUP, "claimcreationpolicies", "", "secrets", json!({"spec": policy}));
    }

    /// Policies are edited, switched off, and deleted.
    fn edit_policy(&mut self) {
        match self.rng.below(6) {
            0 => {
                let (plural, name) = if self.chance(2) {
                    ("claimcreationpolicies", "secrets")
                } else {
                    ("grantcreationpolicies", "counts")
                };
                self.remove(ObjectKey::new(GroupResource::new(GROUP, plural), "", name));
            }
            1 | 2 => {
                let limits = json!([{"name": COUNT, "dimensionLabels": [], "buckets": [{"value": self.rng.below(5).to_string(), "selector": {}}]}]);
                let policy = json!({
                    "disabled": self.chance(4),
                    "trigger": {"resource": {"apiVersion": "resources.datumapis.com/v1alpha1", "kind": "Project"}},
                    "target": {"resourceGrantTemplate": {"spec": {"limits": limits}}},
                });
                self.put(GROUP, "grantcreationpolicies", "", "counts", json!({"spec": policy}));
            }
            _ => {
                let (tier, times) = (self.one_of(&["gold", "gold", "iron"]), 1 + self.rng.below(2));
                let disabled = self.chance(5);
                self.claim_policy(tier, times, disabled);
            }
        }
    }

    /// The labels of a namespace: some say whose it is.
    pub(super) fn namespace_labels(&mut self) -> Value {
        let mut labels = self.labels();
        if self.datum && self.chance(3) {
            labels[PROJECT_LABEL] = json!(self.one_of(&PROJECTS));
        }
        labels
    }

    pub(super) fn datum(&mut self) {
        match self.rng.below(21) {
            20 => self.edit_policy(),
            0..=6 => self.quota_claim(),
            7 | 8 => self.quota_removal(),
            9..=11 => self.grant(),
            12 if self.chance(4) => {
                let resource = GroupResource::new(GROUP, "servicequotadefinitions");
                self.remove(ObjectKey::new(resource, "", "cpu"));
            }
            12 => self.cores(false),
            13 => self.project(),
            14 => self.relabel(),
            15..=17 => self.secret(),
            _ => self.sample(),
        }
    }

    fn quota_claim(&mut self) {
        let (namespace, name) = (self.one_of(&NAMESPACES), format!("c{}", self.rng.below(6)));
        let mut resources = Vec::new();
        for resource in [CPU, COUNT] {
            if self.chance(2) || (resource == COUNT && resources.is_empty()) {
                let mut one = json!({"name": resource, "quantity": (1 + self.rng.below(4)).to_string()});
                if self.chance(2) {
                    one["dimensions"] = json!({LOCATION: self.one_of(&["x", "y"])});
                }
                resources.push(one);
            }
        }
        let spec = json!({"resourceRef": {"kind": "Thing", "name": "t"}, "resources": resources});
        self.put(GROUP, "resourcequotaclaims", namespace, &name, json!({"spec": spec}));
    }

    fn quota_removal(&mut self) {
        let plural = self.one_of(&["resourcequotaclaims", "resourcequotaclaims", "resourcequotagrants"]);
        let keys: Vec<ObjectKey> = self.seen.of(GROUP, plural).map(|kept| kept.key.clone()).collect();
        if !keys.is_empty() {
            let key = keys[self.rng.index(keys.len())].clone();
            self.remove(key);
        }
    }

    fn grant(&mut self) {
        let (kind, of) = match self.rng.below(4) {
            0 => ("Organization", "acme"),
            _ => ("Project", self.one_of(&PROJECTS)),
        };
        let mut limits = Vec::new();
        for resource in [CPU, COUNT] {
            if !self.chance(3) {
                let mut buckets = Vec::new();
                if !self.chance(4) {
                    let most = if self.chance(12) { "unlimited".to_owned() } else { self.rng.below(10).to_string() };
                    buckets.push(json!({"value": most, "selector": {}}));
                }
                if buckets.is_empty() || self.chance(3) {
                    let selector = json!({"matchLabels": {LOCATION: self.one_of(&["x", "y"])}});
                    buckets.push(json!({"value": self.rng.below(6).to_string(), "selector": selector}));
                }
                let policy = self.one_of(&["MostSpecific", "MostSpecific", "AllMatching"]);
                limits.push(json!({
                    "name": resource, "dimensionLabels": [LOCATION], "buckets": buckets, "bucketPolicy": policy,
                }));
            }
        }
        let spec = json!({"resourceRef": {"kind": kind, "name": of}, "limits": limits});
        let name = format!("g{}", self.rng.below(3));
        self.put(GROUP, "resourcequotagrants", "n0", &name, json!({"spec": spec}));
    }

    fn project(&mut self) {
        if self.chance(3) {
            let limits = json!([{"name": COUNT, "dimensionLabels": [], "buckets": [{"value": self.rng.below(5).to_string(), "selector": {}}]}]);
            return self.put(GROUP, "quotaplans", "", "small", json!({"spec": {"limits": limits}}));
        }
        let name = self.one_of(&PROJECTS);
        if self.chance(4) {
            return self.remove(ObjectKey::new(GroupResource::new(RESOURCES, "projects"), "", name));
        }
        let mut spec = json!({});
        if self.chance(2) {
            spec["organizationRef"] = json!({"name": self.one_of(&["acme", "acme", "other"])});
        }
        if self.chance(3) {
            spec["plan"] = json!("small");
        }
        self.put(RESOURCES, "projects", "", name, json!({"spec": spec}));
    }

    /// An object that comes with a claim, or not.
    fn secret(&mut self) {
        let (namespace, name) = (self.one_of(&NAMESPACES), format!("s{}", self.rng.below(4)));
        if self.chance(4) {
            return self.remove(ObjectKey::new(GroupResource::core("secrets"), namespace, &name));
        }
        let data = json!({"tier": self.one_of(&["gold", "gold", "iron"]), "size": (1 + self.rng.below(4)).to_string()});
        self.put("", "secrets", namespace, &name, json!({"data": data}));
    }

    /// What a meter says of somebody's cores: a little ago, and sometimes nothing like what it said before.
    fn sample(&mut self) {
        let kept: Vec<&Kept> = self.seen.of(GROUP, "effectivequotagrants").collect();
        if kept.is_empty() {
            return;
        }
        let kept = kept[self.rng.index(kept.len())];
        let (key, mut value) = (kept.key.clone(), Value::clone(&kept.value));
        let mut usage = Vec::new();
        for account in [CPU.to_owned(), format!("{CPU}{{{LOCATION}=x}}"), format!("{CPU}{{{LOCATION}=y}}")] {
            let taken = self.now_ms - i64::try_from(self.rng.below(9_000)).unwrap_or(0);
            let most = if self.chance(6) { 40 } else { 5 };
            let used = i128::from(self.rng.below(most)) * ONE;
            usage.push(match self.rng.below(5) {
                0 => json!({"account": account, "error": "it does not answer"}),
                _ => json!({"account": account, "valueNanos": used.to_string(), "takenAtMs": taken}),
            });
        }
        value["spec"]["usage"] = json!(usage);
        let expect = Expect { revision: Some(kept.revision), uid: None };
        self.ask(key, Verb::Update { value, expect, status: false });
    }
}

/// Whatever was written last: what claims say, what their objects come with, what others are told.
pub fn judge(durable: &Durable, found: &Found) -> Result<(), String> {
    let stored = durable.stored();
    for kept in durable.of(GROUP, "resourcequotaclaims") {
        let claim = &kept.value;
        let is_charged = found.charged.contains_key(&kept.uid) && !found.waiting.contains(&kept.uid);
        if is_granted(claim) != is_charged {
            return Err(format!("D1: {} says {}, charged: {is_charged}", kept.key, claim["status"]["phase"]));
        }
    }
    for claim in stored.all(naive_datum::CLAIMS) {
        let made_for = name_of(claim).strip_suffix("-claim");
        if let Some(of) = made_for.filter(|of| stored.named("secrets", naive::namespace_of(claim), of).is_none()) {
            return Err(format!("D2: {} was made for {of}, which is gone", full_name(claim)));
        }
        if made_for.is_some() && !is_granted(claim) {
            return Err(format!("D2: {} was made, and is not granted", full_name(claim)));
        }
    }
    judge_plans(durable)?;
    judge_told(durable)
}

/// Everybody with a plan has what it grants.
fn judge_plans(durable: &Durable) -> Result<(), String> {
    for project in durable.of(RESOURCES, "projects") {
        let name = &project.key.name;
        let plan = project.value["spec"]["plan"].as_str().unwrap_or("");
        let plan = durable.get(GROUP, "quotaplans", "", plan).map(|plan| &plan.value["spec"]["limits"]);
        // A namespace of another project is nobody's home.
        let is_its = durable.stored().project_of(name).as_deref() == Some(name);
        let home = durable.get("", "namespaces", "", name).filter(|_| is_its);
        let is_open = home.is_some_and(|home| !home.value["metadata"]["deletionTimestamp"].is_string());
        let grant = durable.get(GROUP, "resourcequotagrants", name, "plan").map(|grant| &grant.value["spec"]["limits"]);
        if is_open && grant != plan {
            return Err(format!("D3: project {name} has {grant:?}, and its plan says {plan:?}"));
        }
        let policy = durable.get(GROUP, "grantcreationpolicies", "", "counts").map(|policy| &policy.value["spec"]);
        let policy = policy.filter(|policy| policy["disabled"] != true);
        let limits = policy.map(|policy| &policy["target"]["resourceGrantTemplate"]["spec"]["limits"]);
        let grant = durable
            .get(GROUP, "resourcequotagrants", name, "policy-counts")
            .map(|grant| &grant.value["spec"]["limits"]);
        if is_open && grant != limits {
            return Err(format!("D3: project {name} has {grant:?}, and the policy says {limits:?}"));
        }
    }
    Ok(())
}

/// All that others were told of a claim adds up to what it has.
fn judge_told(durable: &Durable) -> Result<(), String> {
    let mut told: BTreeMap<String, i128> = BTreeMap::new();
    for entry in &durable.metering {
        let event: Value = serde_json::from_slice(entry).map_err(|error| error.to_string())?;
        let uid = event["id"].as_str().and_then(|id| id.split('.').next()).unwrap_or("").to_owned();
        for line in event["lines"].as_array().into_iter().flatten() {
            let text = line["value"].as_str().map_or_else(|| line["value"].to_string(), str::to_owned);
            *told.entry(uid.clone()).or_default() +=
                text.parse::<i128>().map_err(|_| format!("D4: {line} is no number"))?;
        }
    }
    for kept in durable.of(GROUP, "resourcequotaclaims").filter(|kept| is_granted(&kept.value)) {
        let resources = kept.value["spec"]["resources"].as_array().into_iter().flatten();
        let has: i128 = resources.filter(|one| one["name"] == COUNT).map(|one| nanos(&one["quantity"]) / ONE).sum();
        let uid = kept.value["metadata"]["uid"].as_str().unwrap_or("");
        let said = told.remove(uid).unwrap_or_default();
        if said != has {
            return Err(format!("D4: of {} others were told {said}, and it has {has}", kept.key));
        }
    }
    match told.iter().find(|(_, said)| **said != 0) {
        None => Ok(()),
        Some((uid, said)) => Err(format!("D4: others were told {said} of {uid}, which has nothing")),
    }
}

/// How much a policy asks for a secret; nothing where it does not mean it.
fn asked(policy: &Value, secret: &Value) -> Option<i128> {
    let condition = policy["trigger"]["constraints"][0]["expression"].as_str()?;
    let quantity = policy["target"]["resourceClaimTemplate"]["spec"]["resources"][0]["quantity"].as_str()?;
    let times = if quantity.contains("* 2") { 2 } else { 1 };
    let is_meant = condition.split('\'').nth(1) == secret["data"]["tier"].as_str();
    is_meant.then(|| nanos(&secret["data"]["size"]) * times)
}

/// A secret that was written comes with what its policy asks at that moment, whoever had asked what before.
fn judge_company(step: &Step<'_>, after: &Durable) -> Result<(), String> {
    let key = &step.request.key;
    let (true, Said::Written(_), None) = (key.resource.is("", "secrets"), step.said, &step.request.together) else {
        return Ok(());
    };
    let Some(secret) = after.objects.get(key) else { return Ok(()) };
    let resource = GroupResource::new(GROUP, "resourcequotaclaims");
    let place = ObjectKey::new(resource, &key.namespace, &format!("{}-claim", key.name));
    let has = |durable: &Durable| {
        durable.objects.get(&place).map(|claim| nanos(&claim.value["spec"]["resources"][0]["quantity"]))
    };
    let (had, has) = (has(step.before), has(after));
    let policy = step.before.get(GROUP, "claimcreationpolicies", "", "secrets").map(|policy| &policy.value["spec"]);
    let expected = match policy.filter(|policy| policy["disabled"] != true) {
        None => had,
        Some(policy) => {
            let wanted = asked(policy, &secret.value);
            let before = step.before.objects.get(key).and_then(|old| asked(policy, &old.value));
            // What was there before its policy is asked for nothing as long as it asks for nothing else.
            wanted.filter(|_| had.is_some() || before != wanted)
        }
    };
    match has == expected {
        true => Ok(()),
        false => Err(format!("D9: {key} comes with {has:?}, and {expected:?} are asked by {policy:?}")),
    }
}

/// What one command did, alone in its group: who is granted had room, who was granted still is, a sample says what it must,
/// and denials are written down.
pub fn judge_step(step: &Step<'_>, after: &Durable) -> Result<(), String> {
    let resource = step.request.key.resource.to_string();
    // What is moved is counted wherever it then belongs, room or not.
    let moves = ["namespaces", "projects", "servicequotadefinitions"];
    let moves = step.request.together.is_some() || moves.iter().any(|one| resource.starts_with(one));
    let expected = after.stored().expected();
    for kept in after.of(GROUP, "resourcequotaclaims") {
        let before = step.before.objects.get(&kept.key).filter(|before| before.uid == kept.uid);
        let was = before.is_some_and(|before| is_granted(&before.value));
        if was && !is_granted(&kept.value) {
            return Err(format!("D5: {} was granted, and is not any more", kept.key));
        }
        if is_granted(&kept.value) && !was && !moves {
            for key in expected.deciding.get(&kept.uid.0).into_iter().flatten() {
                let limit = step.found.limits.get(&(key.0.clone(), key.1.clone())).copied().flatten();
                let used = step.found.used.get(key).copied().unwrap_or_default();
                if limit.is_some_and(|limit| used > limit) {
                    return Err(format!("D6: {} is granted, and {key:?} is {used} of {limit:?}", kept.key));
                }
            }
        }
    }
    let denials = step.added.batch.entries().filter(|entry| entry.journal == Journal::DENIALS).count();
    if let (Said::Refused(_, server::core::Refused::Denied(by)), false) = (step.said, step.request.dry_run) {
        let of_datum = by.iter().filter(|denial| denial.policy.starts_with(EFFECTIVE)).count();
        if denials < of_datum {
            return Err(format!("D7: {of_datum} denials, and {denials} written down"));
        }
    }
    judge_company(step, after)?;
    judge_sample(step, after)
}

/// A sample that came in is compared with what was granted long enough before it.
fn judge_sample(step: &Step<'_>, after: &Durable) -> Result<(), String> {
    let (Said::Written(_), true) = (step.said, step.request.key.resource.to_string() == EFFECTIVE) else {
        return Ok(());
    };
    let wrote = step.request.verb.value().map(|value| value["spec"]["usage"].clone()).unwrap_or_default();
    let Some(kept) = after.objects.get(&step.request.key) else { return Ok(()) };
    let policy = format!("{EFFECTIVE}//{}", kept.key.name);
    let stored = step.before.stored();
    let is_member = |project: &str| {
        let mut projects = kept.value["spec"]["projects"].as_array().into_iter().flatten();
        projects.any(|one| one["name"] == project)
    };
    for entry in kept.value["spec"]["usage"].as_array().into_iter().flatten() {
        let is_it = |one: &&Value| one["account"] == entry["account"] && one["recordedAtMs"].is_null();
        let Some(said) = wrote.as_array().into_iter().flatten().find(is_it) else { continue };
        let (Some(value), Some(taken)) =
            (said["valueNanos"].as_str().and_then(|text| text.parse::<i128>().ok()), said["takenAtMs"].as_i64())
        else {
            continue;
        };
        let key = (policy.clone(), entry["account"].as_str().unwrap_or("").to_owned(), String::new());
        let seen_until = taken.min(after.told_ms) - LAG_MS;
        // Of an organization's projects what they have by grants of their own is seen, too, and each since it joined.
        let is_organization = kept.key.name.starts_with("organization-");
        let project = |claim: &Kept| stored.project_of(&claim.key.namespace).unwrap_or_default();
        let joined = |claim: &Kept| {
            let mut projects = kept.value["spec"]["projects"].as_array().into_iter().flatten();
            let named = projects.find(|one| is_organization && one["name"] == project(claim).as_str());
            named.and_then(|one| one["since"].as_i64()).unwrap_or(i64::MIN)
        };
        let shown = |claim: &&Kept| {
            let conditions = claim.value["status"]["conditions"].as_array().into_iter().flatten();
            let granted = conditions.filter(|one| one["type"] == "Granted" && one["status"] == "True");
            let mut since =
                granted.filter_map(|one| one["lastTransitionTime"].as_str()?.parse::<jiff::Timestamp>().ok());
            since.next().is_some_and(|since| (since.as_millisecond() + 999).max(joined(claim)) <= seen_until)
        };
        let charged = |claim: &Kept| {
            let charged = step.found_before.charged.get(&SubjectId(claim.uid.0))?;
            let own = (format!("{EFFECTIVE}//project-{}", project(claim)), key.1.clone(), String::new());
            let apart = charged.get(&own).filter(|_| is_organization && is_member(&project(claim)));
            Some(charged.get(&key).copied().unwrap_or_default() + apart.copied().unwrap_or_default())
        };
        let claims = step.before.of(GROUP, "resourcequotaclaims").filter(shown);
        let unseen = (value - claims.filter_map(charged).sum::<i128>()).max(0);
        if entry["unseenNanos"] != unseen.to_string().as_str() || entry["recordedAtMs"] != after.told_ms {
            return Err(format!("D8: of {said} {unseen} was not claimed at {}, and it is {entry}", after.told_ms));
        }
    }
    Ok(())
}
