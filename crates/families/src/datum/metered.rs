//! Usage that somebody else measures: where it is asked for, what was answered, and how much of a bucket that leaves.
//!
//! A meter lags, so that what it says is neither all nor all that is new. Of a sample M taken at t, X is what the ledger had granted
//! long enough before t for the meter to show it; whatever M is above X nobody claimed. That rest is *unseen*, and for as long as the
//! sample counts it is taken off the bucket's limit: used is then max(L, M − R + G) at every moment, L being what is claimed, R what was let go
//! of since t and G what was granted since. Where something cannot be told, the rest is taken for larger.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kinds::field_error::{FieldError, Path};
use kinds::fields::{given, items, text};
use quantity::Amount;
use rules::policy_name;
use serde_json::{Map, Value, json};

use super::catalog::Catalog;
use super::entity::{Entity, Level};
use super::table::{BucketAccount, Limited, Table};
use super::{CLAIMS, EFFECTIVE};
use crate::karmada::loops::kind::fingerprint;
use crate::{Change, Parsed, View};

/// Claims of a bucket that are looked at to tell what its meter has seen; what the others have is taken for unclaimed.
const HOLDERS_MAX: usize = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnavailable {
    Pend,
    Deny,
    LedgerOnly,
}

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    Prometheus,
    Amberflo,
    OpenMeter,
}

/// Where usage is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub kind: SourceKind,
    pub endpoint: String,
    pub meter: String,
    /// The label, dimension or subject that holds the entity's name.
    pub entity_label: String,
    /// The same for organizations; where it is absent, nobody is asked about them.
    pub organization_label: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub lag_ms: i64,
    pub max_age_ms: i64,
    pub timeout_ms: i64,
    pub empty_is_zero: bool,
    pub on_unavailable: OnUnavailable,
    /// Whether grants show what it said.
    pub is_cached: bool,
    /// Namespace, name and key of the secret that opens it.
    pub credentials: Option<(String, String, String)>,
}

impl Source {
    /// Reads one; none where the ledger is the source.
    pub fn read(source: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Option<Source> {
        let source = source?;
        let kind = match text(source, &["type"]) {
            "" | "Ledger" => return None,
            "Prometheus" => SourceKind::Prometheus,
            "Amberflo" => SourceKind::Amberflo,
            "OpenMeter" => SourceKind::OpenMeter,
            other => {
                let known = ["Amberflo", "Ledger", "OpenMeter", "Prometheus"];
                errors.push(FieldError::not_supported(path.child("type"), other, &known));
                return None;
            }
        };
        let endpoint = text(source, &["endpoint"]);
        if !(endpoint.starts_with("http://") || endpoint.starts_with("https://")) {
            let why = "must be an address that begins with http:// or https://";
            errors.push(FieldError::invalid(path.child("endpoint"), endpoint, why));
        }
        let meter = text(source, &["meter"]);
        // Names become a part of what is asked: of a query, or of an address.
        let (meter_signs, label_signs, first_is_digit): (&[u8], &[u8], bool) = match kind {
            SourceKind::Prometheus => (b"_:", b"_", false),
            _ => (b"_:-.", b"_-.", true),
        };
        let is_name = |text: &str, signs: &[u8]| {
            let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || signs.contains(&byte);
            let first = text.bytes().next().is_some_and(|first| first_is_digit || !first.is_ascii_digit());
            first && text.len() <= 253 && text.bytes().all(is_sign)
        };
        let check = |text: &str, signs: &[u8], what: &str, path: Path<'_>, errors: &mut Vec<FieldError>| {
            if !is_name(text, signs) {
                let signs: Vec<String> = signs.iter().map(|sign| format!("'{}'", char::from(*sign))).collect();
                let first = if first_is_digit { "" } else { ", and no digit at its beginning" };
                let why = format!("must be the name of a {what}: letters, digits, {}{first}", signs.join(", "));
                errors.push(FieldError::invalid(path, text, why));
            }
        };
        check(meter, meter_signs, "meter", path.child("meter"), errors);
        let (mut labels, place) = (BTreeMap::new(), path.child("dimensionLabels"));
        for (key, label) in given(source, &["dimensionLabels"]).and_then(Value::as_object).into_iter().flatten() {
            let label = label.as_str().unwrap_or_default();
            check(label, label_signs, "label", place.key(key), errors);
            labels.insert(key.clone(), label.to_owned());
        }
        let entity_label = match (text(source, &["entityLabel"]), kind) {
            ("", SourceKind::Prometheus) => "project",
            ("", SourceKind::Amberflo) => "customerId",
            ("", SourceKind::OpenMeter) => "subject",
            (named, _) => named,
        };
        check(entity_label, label_signs, "label", path.child("entityLabel"), errors);
        let organization_label = Some(text(source, &["organizationLabel"])).filter(|label| !label.is_empty());
        if let Some(label) = organization_label {
            check(label, label_signs, "label", path.child("organizationLabel"), errors);
        }
        let mut time = |field: &str, default_ms: i64, most_ms: i64| match given(source, &[field]) {
            None => default_ms,
            Some(said) => {
                let read = said.as_str().and_then(duration_ms).filter(|ms| *ms <= most_ms);
                read.unwrap_or_else(|| {
                    let why = format!("must be a time such as 500ms, 30s or 5m, of at most {}s", most_ms / 1000);
                    errors.push(FieldError::invalid(path.child(field), said.clone(), why));
                    default_ms
                })
            }
        };
        let (lag_ms, max_age_ms) = (time("lag", 30_000, 86_400_000), time("maxAge", 10_000, 3_600_000));
        let timeout_ms = time("timeout", 2_000, 60_000);
        let mut choice = |field: &str, known: [&'static str; 3]| match text(source, &[field]) {
            "" => known[0],
            said => known.into_iter().find(|one| *one == said && !one.is_empty()).unwrap_or_else(|| {
                let known: Vec<&str> = known.into_iter().filter(|one| !one.is_empty()).collect();
                errors.push(FieldError::not_supported(path.child(field), said, &known));
                known[0]
            }),
        };
        let on_unavailable = match choice("onUnavailable", ["Pend", "Deny", "LedgerOnly"]) {
            "Deny" => OnUnavailable::Deny,
            "LedgerOnly" => OnUnavailable::LedgerOnly,
            _ => OnUnavailable::Pend,
        };
        let empty_is_zero = choice("emptyIs", ["Unavailable", "Zero", ""]) == "Zero";
        let is_cached = choice("cache", ["Enabled", "Disabled", ""]) == "Enabled";
        let credentials = given(source, &["credentialsRef"]).map(|secret| {
            let key = text(secret, &["key"]);
            let key = if key.is_empty() { "token" } else { key };
            (text(secret, &["namespace"]).to_owned(), text(secret, &["name"]).to_owned(), key.to_owned())
        });
        Some(Source {
            kind,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            meter: meter.to_owned(),
            entity_label: entity_label.to_owned(),
            organization_label: organization_label.map(str::to_owned),
            labels,
            lag_ms,
            max_age_ms,
            timeout_ms,
            empty_is_zero,
            on_unavailable,
            is_cached,
            credentials,
        })
    }
}

impl Source {
    /// The meter's name of a dimension. What Prometheus has no sign for in a label is an underscore there.
    pub fn label(&self, key: &str) -> String {
        let last = key.rsplit('/').next().unwrap_or(key);
        let plain = |sign: char| if sign.is_ascii_alphanumeric() { sign } else { '_' };
        let usual = || match self.kind {
            SourceKind::Prometheus => last.chars().map(plain).collect(),
            _ => last.to_owned(),
        };
        self.labels.get(key).cloned().unwrap_or_else(usual)
    }

    /// What tells its answers from those of another meter: who is asked, for what, and by which names.
    pub fn mark(&self) -> String {
        let Source { kind, endpoint, meter, entity_label, organization_label, labels, empty_is_zero, .. } = self;
        let names = format!("{entity_label} {organization_label:?} {labels:?}");
        let asked = format!("{kind:?} {endpoint} {meter} {names} {empty_is_zero}");
        format!("{:016x}", fingerprint(&asked))
    }

    /// The meter's name of whose usage it is.
    pub fn label_of(&self, level: Level) -> Option<&str> {
        match level {
            Level::Project => Some(&self.entity_label),
            Level::Organization => self.organization_label.as_deref(),
        }
    }
}

fn duration_ms(text: &str) -> Option<i64> {
    let (number, each) = match text {
        _ if text.ends_with("ms") => (text.strip_suffix("ms")?, 1),
        _ if text.ends_with('s') => (text.strip_suffix('s')?, 1000),
        _ if text.ends_with('m') => (text.strip_suffix('m')?, 60_000),
        _ if text.ends_with('h') => (text.strip_suffix('h')?, 3_600_000),
        _ => return None,
    };
    let number: u32 = number.parse().ok()?;
    i64::from(number).checked_mul(each)
}

/// What was last answered about a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sample {
    /// So much is used that nobody claimed; known since.
    Measured {
        unseen: Amount,
        value: Amount,
        recorded_ms: i64,
    },
    Unavailable {
        message: String,
    },
}

/// Answers by resource and account.
#[derive(Debug, Default)]
pub struct Samples {
    by_account: BTreeMap<String, Sample>,
}

impl Samples {
    pub fn read(object: &Value) -> Samples {
        let mut by_account = BTreeMap::new();
        for entry in items(object, &["spec", "usage"]) {
            let nanos = |field: &str| text(entry, &[field]).parse::<i128>().ok().map(Amount::from_nanos);
            let sample = match (nanos("unseenNanos"), nanos("valueNanos"), entry["recordedAtMs"].as_i64()) {
                (Some(unseen), Some(value), Some(recorded_ms)) => Sample::Measured { unseen, value, recorded_ms },
                _ => Sample::Unavailable { message: text(entry, &["error"]).to_owned() },
            };
            by_account.insert(text(entry, &["account"]).to_owned(), sample);
        }
        Samples { by_account }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &Sample)> {
        self.by_account.iter()
    }

    pub fn get(&self, account: &str) -> Option<&Sample> {
        self.by_account.get(account)
    }
}

/// Whether some meter began to answer, or ceased to: whoever waits is then not only told other numbers, but decided or not.
pub fn turns(change: &Change<'_>) -> bool {
    let answers = |object: &Value| -> BTreeMap<String, bool> {
        let entries = items(object, &["spec", "usage"]).iter();
        entries.map(|entry| (text(entry, &["account"]).to_owned(), entry.get("error").is_none())).collect()
    };
    change.new.is_some_and(|new| answers(change.old) != answers(new))
}

/// Usage that is older than this is said to be.
const STALE_AFTER_MS: i64 = 300_000;

pub fn is_stale(recorded_ms: i64, now_ms: i64) -> bool {
    now_ms.saturating_sub(recorded_ms) > STALE_AFTER_MS
}

/// How far an account may rise, and until when that is so.
pub struct Allowed {
    pub limit: Option<Amount>,
    pub until_ms: Option<i64>,
}

/// What a meter leaves of a bucket's limit. Without an answer that still counts nothing more is granted.
pub fn allowed(limited: &Limited, bucket: &BucketAccount, samples: &Samples, now_ms: i64) -> Allowed {
    let whole = bucket.limit;
    let (Some(source), Some(limit)) = (&limited.definition.source, bucket.limit) else {
        return Allowed { limit: whole, until_ms: None };
    };
    let unmeasured = if source.on_unavailable == OnUnavailable::LedgerOnly { whole } else { Some(Amount::ZERO) };
    let Some(Sample::Measured { unseen, recorded_ms, .. }) = samples.get(&bucket.name) else {
        return Allowed { limit: unmeasured, until_ms: None };
    };
    let left = limit.checked_sub(*unseen).unwrap_or(Amount::ZERO).max(Amount::ZERO);
    // Both when it does not count any more, and when that has been so for long, something else is told.
    let ends = [source.max_age_ms, STALE_AFTER_MS].map(|age_ms| recorded_ms.saturating_add(age_ms));
    let until_ms = ends.into_iter().filter(|end| *end >= now_ms).min().map(|end| end.saturating_add(1));
    Allowed { limit: if now_ms > ends[0] { unmeasured } else { Some(left) }, until_ms }
}

/// What is taken off a bucket's limit at this moment. What was measured too long ago still is, unless the ledger alone decides then.
pub fn unseen(limited: &Limited, bucket: &BucketAccount, samples: &Samples, now_ms: i64) -> Amount {
    let Some(source) = &limited.definition.source else { return Amount::ZERO };
    let is_old = |recorded_ms: i64| now_ms > recorded_ms.saturating_add(source.max_age_ms);
    match samples.get(&bucket.name) {
        Some(Sample::Measured { recorded_ms, .. })
            if source.on_unavailable == OnUnavailable::LedgerOnly && is_old(*recorded_ms) =>
        {
            Amount::ZERO
        }
        Some(Sample::Measured { unseen, .. }) => *unseen,
        _ => Amount::ZERO,
    }
}

/// The answers that an object keeps: of buckets that are there, by the meter that is asked about them now. One that has just come in gets
/// its moment, and what it says beyond what is claimed.
pub fn kept_samples(object: &Value, spec: &Map<String, Value>, entity: &Entity, view: &dyn View) -> Value {
    let written = items(object, &["spec", "usage"]);
    if written.is_empty() {
        return json!([]);
    }
    let shaped = json!({"spec": spec});
    let table = Table::read(&entity.object_name(), &shaped, Catalog::of(view));
    let accounts = table.accounts();
    let mut seen = BTreeSet::new();
    let mut kept = Vec::new();
    for entry in written {
        let name = text(entry, &["account"]);
        // What another meter says may be on its way yet when a definition names this one.
        let is_of = |source: &Source| entry["of"].as_str().is_none_or(|of| of == source.mark());
        let account = accounts
            .iter()
            .find(|(limited, bucket)| &*bucket.name == name && limited.definition.source.as_ref().is_some_and(is_of));
        let Some((limited, bucket)) = account.filter(|_| seen.insert(name.to_owned())) else { continue };
        let mut entry = entry.clone();
        let value = text(&entry, &["valueNanos"]).parse::<i128>().ok().filter(|value| *value >= 0);
        if let Some(value) = value
            && entry["recordedAtMs"].is_null()
        {
            let taken_ms = entry["takenAtMs"].as_i64().unwrap_or(0).min(view.now_ms());
            let lag_ms = limited.definition.source.as_ref().map_or(0, |source| source.lag_ms);
            let shown = shown_by_meter(&table, limited, bucket, taken_ms.saturating_sub(lag_ms), view);
            let unseen = value.saturating_sub(shown.nanos()).max(0);
            entry["unseenNanos"] = json!(unseen.to_string());
            entry["recordedAtMs"] = json!(view.now_ms());
        }
        kept.push(entry);
    }
    Value::Array(kept)
}

/// What was granted of a bucket at or before a moment, and is there still. A claim is its project's from the moment on that it says so,
/// and an organization's from the one on that its project is. The meter of an organization shows what its projects have by grants of
/// their own, too: where these have the same bucket, that is what is claimed of it there.
fn shown_by_meter(table: &Table, limited: &Limited, bucket: &BucketAccount, before_ms: i64, view: &dyn View) -> Amount {
    let resource = &limited.definition.resource_name;
    let apart = table.namespaces.values().filter(|(_, lists)| lists.contains(resource));
    let apart: BTreeSet<String> = match table.entity.level {
        Level::Organization => apart.map(|(project, _)| Entity::project(project).object_name()).collect(),
        Level::Project => BTreeSet::new(),
    };
    let names = [table.entity.object_name()].into_iter().chain(apart);
    let policies = names.map(|name| policy_name(&EFFECTIVE.resource(), "", &name));
    let holders = policies.flat_map(|policy| view.holders(&policy, &bucket.name, "", HOLDERS_MAX));
    let mut shown = Amount::ZERO;
    for holder in holders.filter(|holder| holder.account == bucket.name).take(HOLDERS_MAX) {
        // Of thousands of claims few are others than when the meter was asked last.
        let read = |claim: &Value| -> Parsed { Arc::new(granted_since(claim)) };
        let since = view.parsed_one(&CLAIMS.resource(), &holder.namespace, &holder.name, &read);
        let since = since.as_ref().and_then(|since| since.downcast_ref::<Option<Since>>()?.as_ref());
        // One that says yet that it is another project's has just come.
        let project = table.namespaces.get(&*holder.namespace).map(|(project, _)| project);
        let since = since.filter(|since| project == Some(&since.project));
        let joined_ms = project.and_then(|project| table.since_ms.get(project)).copied().unwrap_or(i64::MIN);
        // Times of claims are written in seconds: it may have been at the end of that one.
        if since.is_some_and(|since| since.at_ms.saturating_add(999).max(joined_ms) <= before_ms) {
            shown = shown.checked_add(holder.amount).unwrap_or(shown);
        }
    }
    shown
}

/// Since when a claim is granted, and to which project.
struct Since {
    at_ms: i64,
    project: String,
}

fn granted_since(claim: &Value) -> Option<Since> {
    let granted = kinds::conditions::of(claim, "Granted").filter(|one| one["status"] == "True")?;
    let at_ms = kinds::time::read_ms(granted["lastTransitionTime"].as_str()?)?;
    Some(Since { at_ms, project: text(claim, &["status", "project"]).to_owned() })
}
