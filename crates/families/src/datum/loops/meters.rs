//! Asks meters, and writes what they say to where claims are decided by it ([`super::super::metered`]).
//!
//! A bucket is asked about once, however many claims wait for it, and only where somebody waits, objects come with claims on it, or
//! the last answer is old. Each answer is written as it comes: who is slow holds up nobody else's. A meter that fails is said to, at
//! once, so that nothing more is granted by what it said before; and is left alone for a while ([`super::gates`]), so that many
//! buckets of one that is silent do not take as many times its patience.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use metering::{Failure, Meter, Question, Reading};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::super::catalog::Catalog;
use super::super::metered::{Sample, Samples, Source};
use super::super::table::Table;
use super::super::units::Unit;
use super::super::{CLAIM_POLICIES, DEFINITIONS, EFFECTIVE, GROUP, VERSION};
use super::gates::Gates;
use super::questions::{Secrets, meter, question};

/// How often is looked whether somebody waits, where anything is metered, and where nothing is.
const LOOK: Duration = Duration::from_millis(250);
const REST: Duration = Duration::from_secs(1);
/// Buckets that nobody waits for are asked about this often, for what is shown of them.
const SHOWN_EVERY_MS: i64 = 60_000;
/// Objects that answers are written to at once.
const WRITTEN_MAX: usize = 8;

pub async fn run(client: Client) {
    let mut asking = Asking {
        client,
        gates: Gates::default(),
        due: VecDeque::new(),
        under_way: HashSet::new(),
        tasks: JoinSet::new(),
    };
    let mut look_at = tokio::time::Instant::now();
    loop {
        // While nothing is asked there is nothing to wait for but the next look.
        let answered = async {
            match asking.tasks.join_next().await {
                Some(answered) => answered,
                None => std::future::pending().await,
            }
        };
        match tokio::time::timeout_at(look_at, answered).await {
            Ok(first) => {
                let mut answers: Vec<Answered> = first.into_iter().collect();
                while let Some(next) = asking.tasks.try_join_next() {
                    answers.extend(next);
                }
                asking.take(answers).await;
            }
            Err(_) => look_at = tokio::time::Instant::now() + asking.look().await,
        }
        asking.ask();
    }
}

pub(super) fn api(client: &Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, kind), plural);
    Api::all_with(client.clone(), &resource)
}

/// One bucket: the object that keeps what is said of it, and its account.
type Bucket = (String, String);

/// One bucket to be asked about.
struct Asked {
    bucket: Bucket,
    /// Whose answer it will be.
    of: String,
    unit: Unit,
    meter: Meter,
    question: Question,
}

type Answered = (Asked, Result<Reading, Failure>);

struct Asking {
    client: Client,
    gates: Gates,
    /// In the order in which they are asked about.
    due: VecDeque<Asked>,
    /// Asked about, and not written yet: nobody asks again before that.
    under_way: HashSet<Bucket>,
    tasks: JoinSet<Answered>,
}

impl Asking {
    /// Looks for all that is due, and says when to look again.
    async fn look(&mut self) -> Duration {
        match self.find_due().await {
            Ok(true) => LOOK,
            Ok(false) => REST,
            Err(error) => {
                tracing::debug!(%error, "meters could not be looked after");
                REST
            }
        }
    }

    /// Whether anything is metered at all.
    async fn find_due(&mut self) -> Result<bool, kube::Error> {
        let client = &self.client;
        self.due.clear();
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
        let (mut secrets, mut unaskable) = (Secrets::default(), HashMap::new());
        for object in effective.list(&ListParams::default()).await?.items {
            let value = whole(&object);
            let table = Table::read(&object.name_any(), &value, catalog.clone());
            let samples = Samples::read(&value);
            let waits = value["status"]["claimsWaiting"].as_i64().unwrap_or(0) > 0;
            for (limited, bucket) in table.accounts() {
                let (Some(source), Some(_)) = (&limited.definition.source, bucket.limit) else { continue };
                let place = (object.name_any(), bucket.name.to_string());
                let needed = waits || wanted.iter().any(|name| covers(name, &limited.definition.resource_name));
                let is_asked = self.under_way.contains(&place);
                if is_asked || !is_due(samples.get(&bucket.name), source, needed, now_ms) {
                    continue;
                }
                match question(source, &table, &bucket.selector, now_ms) {
                    Ok(question) => {
                        let (unit, meter) = (limited.definition.unit, meter(client, source, &mut secrets).await);
                        self.due.push_back(Asked { bucket: place, of: source.mark(), unit, meter, question });
                    }
                    Err(why) if is_told(samples.get(&bucket.name), &why) => {}
                    Err(why) => {
                        let entry = json!({"account": place.1, "of": source.mark(), "error": why});
                        unaskable.entry(place.0).or_insert_with(Vec::new).push(entry);
                    }
                }
            }
        }
        write(client, unaskable).await;
        Ok(true)
    }

    /// Asks all who may be asked now.
    fn ask(&mut self) {
        let now = Instant::now();
        for asked in std::mem::take(&mut self.due) {
            if !self.gates.enter(&asked.meter, &asked.question, now) {
                self.due.push_back(asked);
                continue;
            }
            self.under_way.insert(asked.bucket.clone());
            self.tasks.spawn(async move {
                let answer = asked.meter.ask(&asked.question).await;
                (asked, answer)
            });
        }
    }

    /// Writes what was answered.
    async fn take(&mut self, answers: Vec<Answered>) {
        let mut entries: HashMap<String, Vec<Value>> = HashMap::new();
        for (asked, answer) in &answers {
            self.gates.leave(&asked.meter, &asked.question, answer, Instant::now());
            let (object, account) = &asked.bucket;
            let mut entry = match answer {
                Ok(reading) => match asked.unit.measured(reading.nanos) {
                    Some(amount) => json!({
                        "account": account, "valueNanos": amount.nanos().to_string(), "takenAtMs": reading.at_ms,
                    }),
                    None => json!({"account": account, "error": "more than can be counted"}),
                },
                Err(failure) => json!({"account": account, "error": failure.message()}),
            };
            entry["of"] = json!(asked.of);
            entries.entry(object.clone()).or_default().push(entry);
        }
        write(&self.client, entries).await;
        for (asked, _) in answers {
            self.under_way.remove(&asked.bucket);
        }
    }
}

/// Writes what is said of buckets, by object. Nobody else writes it, and each object is written once at a time.
async fn write(client: &Client, entries: HashMap<String, Vec<Value>>) {
    let effective = api(client, "EffectiveQuotaGrant", EFFECTIVE.1);
    let writing = futures::stream::iter(entries).for_each_concurrent(WRITTEN_MAX, |(name, entries)| {
        let effective = effective.clone();
        async move {
            if let Err(error) = write_one(&effective, &name, entries).await {
                tracing::debug!(%error, name, "what a meter said could not be written");
            }
        }
    });
    writing.await;
}

async fn write_one(effective: &Api<DynamicObject>, name: &str, entries: Vec<Value>) -> Result<(), kube::Error> {
    let Some(object) = effective.get_opt(name).await? else { return Ok(()) };
    let mut usage = object.data["spec"]["usage"].as_array().cloned().unwrap_or_default();
    // A failure that is known is not told again.
    let news: Vec<Value> =
        entries.into_iter().filter(|entry| entry.get("error").is_none() || !usage.contains(entry)).collect();
    if news.is_empty() {
        return Ok(());
    }
    usage.retain(|one| !news.iter().any(|entry| entry["account"] == one["account"]));
    usage.extend(news);
    let patch = json!({"spec": {"usage": usage}});
    effective.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
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

fn is_told(sample: Option<&Sample>, why: &str) -> bool {
    matches!(sample, Some(Sample::Unavailable { message }) if message == why)
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
