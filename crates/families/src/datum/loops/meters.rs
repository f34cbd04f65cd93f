//! Asks meters, and writes what they say to where claims are decided by it ([`super::super::metered`]).
//!
//! A bucket is asked about once, however many claims wait for it, and only where somebody waits, objects come with claims on it, or
//! the last answer is old. A meter that fails is said to, at once, so that nothing more is granted by what it said before; and is left
//! alone for a while, so that many buckets of one that is silent do not take as many times its patience.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use metering::{Breaker, Condition, Failure, Meter, Question, Service};
use serde_json::{Value, json};

use super::super::catalog::{Catalog, is_scope};
use super::super::metered::{Sample, Samples, Source, SourceKind};
use super::super::selector::{Asks, Selector};
use super::super::table::Table;
use super::super::units::Unit;
use super::super::{CLAIM_POLICIES, DEFINITIONS, EFFECTIVE, GROUP, VERSION};

/// How often is looked whether somebody waits, where anything is metered, and where nothing is.
const LOOK: Duration = Duration::from_millis(250);
const REST: Duration = Duration::from_secs(1);
/// Buckets that nobody waits for are asked about this often, for what is shown of them.
const SHOWN_EVERY_MS: i64 = 60_000;
/// Questions under way at once.
const ASKED_MAX: usize = 16;

/// By endpoint.
type Breakers = Mutex<HashMap<String, Breaker>>;

pub async fn run(client: Client) {
    let breakers = Breakers::default();
    loop {
        let rest = match round(&client, &breakers).await {
            Ok(true) => LOOK,
            Ok(false) => REST,
            Err(error) => {
                tracing::debug!(%error, "meters could not be looked after");
                REST
            }
        };
        tokio::time::sleep(rest).await;
    }
}

pub(super) fn api(client: &Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, kind), plural);
    Api::all_with(client.clone(), &resource)
}

/// One bucket to be asked about.
struct Asked {
    object: String,
    account: String,
    unit: Unit,
    meter: Meter,
    question: Question,
}

/// Asks about all that is due; whether anything is metered at all.
async fn round(client: &Client, breakers: &Breakers) -> Result<bool, kube::Error> {
    let definitions = api(client, "ServiceQuotaDefinition", DEFINITIONS.1).list(&ListParams::default()).await?;
    let read: Vec<Value> = definitions.items.iter().map(whole).collect();
    let catalog = Arc::new(Catalog::read(&read));
    if !catalog.iter().any(|one| one.source.is_some()) {
        return Ok(false);
    }
    let policies = api(client, "ClaimCreationPolicy", CLAIM_POLICIES.1).list(&ListParams::default()).await?;
    let wanted: Vec<String> =
        policies.items.iter().filter(|one| one.data["spec"]["disabled"] != true).flat_map(named).collect();
    let effective = api(client, "EffectiveQuotaGrant", EFFECTIVE.1);
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let mut due: Vec<Asked> = Vec::new();
    let mut written: HashMap<String, Vec<Value>> = HashMap::new();
    for object in effective.list(&ListParams::default()).await?.items {
        let value = whole(&object);
        let table = Table::read(&object.name_any(), &value, catalog.clone());
        let samples = Samples::read(&value);
        let waits = value["status"]["claimsWaiting"].as_i64().unwrap_or(0) > 0;
        for (limited, bucket) in table.accounts() {
            let (Some(source), Some(_)) = (&limited.definition.source, bucket.limit) else { continue };
            let needed = waits || wanted.iter().any(|name| covers(name, &limited.definition.resource_name));
            if !is_due(samples.get(&bucket.name), source, needed, now_ms) {
                continue;
            }
            if !lets(breakers, &source.endpoint) {
                continue;
            }
            let meter = meter(client, source).await;
            due.push(Asked {
                object: object.name_any(),
                account: bucket.name.to_string(),
                unit: limited.definition.unit,
                question: question(source, &table.entity.name, &bucket.selector, now_ms),
                meter,
            });
        }
        written.insert(object.name_any(), value["spec"]["usage"].as_array().cloned().unwrap_or_default());
    }
    let asking = due.into_iter().map(|asked| async move {
        // Others may have found out meanwhile that it does not answer.
        if !lets(breakers, &asked.meter.endpoint) {
            return None;
        }
        let answer = asked.meter.ask(&asked.question).await;
        let mut breakers = breakers.lock().unwrap_or_else(PoisonError::into_inner);
        let breaker = breakers.entry(asked.meter.endpoint.clone()).or_default();
        match &answer {
            Ok(_) | Err(Failure::Wrong(_)) => breaker.answered(),
            Err(Failure::Unavailable(_)) => breaker.failed(Instant::now()),
        }
        drop(breakers);
        Some((asked, answer))
    });
    let answers: Vec<_> = futures::stream::iter(asking).buffer_unordered(ASKED_MAX).collect().await;
    let mut changed: HashMap<String, Vec<Value>> = HashMap::new();
    for (asked, answer) in answers.into_iter().flatten() {
        let entry = match answer {
            Ok(reading) => match asked.unit.measured(reading.nanos) {
                Some(amount) => json!({
                    "account": asked.account, "valueNanos": amount.nanos().to_string(), "takenAtMs": reading.at_ms,
                }),
                None => json!({"account": asked.account, "error": "more than can be counted"}),
            },
            Err(failure) => json!({"account": asked.account, "error": failure.message()}),
        };
        let before = written.get(&asked.object).cloned().unwrap_or_default();
        // A failure that is known is not told again.
        if entry.get("error").is_some() && before.contains(&entry) {
            continue;
        }
        let usage = changed.entry(asked.object).or_insert(before);
        usage.retain(|one| one["account"] != entry["account"]);
        usage.push(entry);
    }
    for (name, usage) in changed {
        let patch = json!({"spec": {"usage": usage}});
        if let Err(error) = effective.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            tracing::debug!(%error, name, "what a meter said could not be written");
        }
    }
    Ok(true)
}

/// Whether a service may be asked now.
fn lets(breakers: &Breakers, endpoint: &str) -> bool {
    let breakers = breakers.lock().unwrap_or_else(PoisonError::into_inner);
    breakers.get(endpoint).is_none_or(|breaker| breaker.lets(Instant::now()))
}

/// The resources that a policy's claims name. Their objects do not wait: the answer has to be there before they come.
fn named(policy: &DynamicObject) -> Vec<String> {
    let listed = policy.data["spec"]["target"]["resourceClaimTemplate"]["spec"]["resources"].as_array();
    listed.into_iter().flatten().filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
}

/// Whether a name in a template may be a resource's.
fn covers(template: &str, name: &str) -> bool {
    template == name || template.contains("{{")
}

/// An object with its metadata, as the family reads it.
pub(super) fn whole(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

fn is_due(sample: Option<&Sample>, source: &Source, needed: bool, now_ms: i64) -> bool {
    match sample {
        None | Some(Sample::Unavailable { .. }) => true,
        Some(Sample::Measured { recorded_ms, .. }) => {
            let age_ms = now_ms.saturating_sub(*recorded_ms);
            age_ms >= if needed { source.max_age_ms / 2 } else { SHOWN_EVERY_MS }
        }
    }
}

pub(super) async fn meter(client: &Client, source: &Source) -> Meter {
    let secret = match &source.credentials {
        None => None,
        Some((namespace, name, key)) => {
            let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client.clone(), namespace);
            let found = secrets.get_opt(name).await.ok().flatten();
            let bytes = found.and_then(|secret| secret.data?.remove(key));
            bytes.and_then(|bytes| String::from_utf8(bytes.0).ok()).map(|text| text.trim().to_owned())
        }
    };
    Meter {
        service: match source.kind {
            SourceKind::Prometheus => Service::Prometheus,
            SourceKind::Amberflo => Service::Amberflo,
            SourceKind::OpenMeter => Service::OpenMeter,
        },
        endpoint: source.endpoint.clone(),
        secret,
        timeout: Duration::from_millis(u64::try_from(source.timeout_ms).unwrap_or(2_000)),
        empty_is_zero: source.empty_is_zero,
    }
}

fn question(source: &Source, entity: &str, selector: &Selector, at_ms: i64) -> Question {
    // Whose it is, is asked for already.
    let asked = selector.asks().filter(|(key, _)| !is_scope(key));
    let conditions = asked.map(|(key, asks)| {
        let values = |values: &std::collections::BTreeSet<String>| values.iter().cloned().collect::<Vec<_>>();
        let condition = match asks {
            Asks::In(one) => Condition::In(values(one)),
            Asks::NotIn(one) => Condition::NotIn(values(one)),
            Asks::Exists => Condition::Exists,
            Asks::DoesNotExist => Condition::DoesNotExist,
        };
        (source.label(key), condition)
    });
    Question {
        meter: source.meter.clone(),
        entity_label: source.entity_label.clone(),
        entity: entity.to_owned(),
        conditions: conditions.collect(),
        at_ms,
    }
}
