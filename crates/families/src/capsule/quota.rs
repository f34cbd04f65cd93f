//! CustomQuota and GlobalCustomQuota: from a spec to one limited account and one rule for each kind it names.

use std::collections::BTreeMap;
use std::sync::Arc;

use kinds::field_error::{FieldError, Path};
use ledger::Limit;
use quantity::{Amount, Format, Quantity};
use rules::cel::{self, Budget};
use rules::jsonpath;
use rules::selector::LabelSelector;
use rules::{Account, Compiled, GroupResource, Measure, MeasureError, Reach, Rule, Subject, Verdict};
use serde_json::Value;

use super::selection::{any_matches, conditions, read_labels};
use super::source::{EXPRESSION_BYTES_MAX, EXPRESSIONS_MAX, Op, SOURCES_MAX, Source, TRIED_STEPS_MAX};
use super::targets::Target;
use super::{GROUP, Kind, Reading, Settings, at, items, text};
use crate::{BalanceLine, PolicyObject, World};

/// The account with the limit.
pub const USAGE: &str = "usage";
/// The account that counts objects which cannot be evaluated. Unlimited.
pub const UNEVALUATED: &str = "unevaluated";
const USAGE_AT: usize = 0;
const UNEVALUATED_AT: usize = 1;

/// Steps that all paths of one quota together may take on one object.
const QUOTA_STEPS_MAX: u64 = 100_000;

/// A quota's spec, read.
pub struct Spec {
    pub limit: Quantity,
    pub sources: Vec<Source>,
    scope: Vec<LabelSelector>,
    /// `None` without namespaceSelectors: everything, objects without a namespace included.
    namespaces: Option<Vec<LabelSelector>>,
}

impl Spec {
    pub fn read(kind: Kind, quota: &Value, settings: &Settings) -> Result<Spec, Vec<FieldError>> {
        let mut errors = Vec::new();
        let path = Path::new("spec");
        let limit = read_limit(quota, settings, &path, &mut errors);
        let list = items(quota, &["spec", "sources"]);
        let sources_path = path.child("sources");
        if list.len() > SOURCES_MAX {
            return Err(vec![FieldError::too_many(sources_path, list.len(), SOURCES_MAX)]);
        }
        check_sum(list, &sources_path)?;
        let sources = list.iter().enumerate();
        let sources = sources.filter_map(|(n, one)| Source::read(one, &sources_path.index(n), &mut errors));
        let sources: Vec<Source> = jsonpath::within_steps(TRIED_STEPS_MAX, || sources.collect());
        let scope = read_labels(items(quota, &["spec", "scopeSelectors"]), &path.child("scopeSelectors"), &mut errors);
        let selectors = items(quota, &["spec", "namespaceSelectors"]);
        let namespaces = (kind == Kind::GlobalCustomQuota && !selectors.is_empty()).then(|| {
            let mut read = read_labels(selectors, &path.child("namespaceSelectors"), &mut errors);
            // As in Capsule: an entry that names nothing selects nothing. Without any entry the quota is for all.
            read.retain(|selector| !selector.is_everything());
            read
        });
        if errors.is_empty() { Ok(Spec { limit, sources, scope, namespaces }) } else { Err(errors) }
    }
}

/// How much there is of all sources together, before any is compiled.
fn check_sum(sources: &[Value], path: &Path<'_>) -> Result<(), Vec<FieldError>> {
    let (mut count, mut bytes) = (0, 0);
    for source in sources {
        let (conditions, length) = conditions(source);
        count += 1 + conditions;
        bytes += length + text(source, &["path"]).len() + text(source, &["cel"]).len();
    }
    if count > EXPRESSIONS_MAX {
        let why = format!("has {count} paths and expressions, selectors included: must have at most {EXPRESSIONS_MAX}");
        return Err(vec![FieldError::invalid(path, count, why)]);
    }
    if bytes > EXPRESSION_BYTES_MAX {
        let why = format!("has {bytes} bytes of paths and expressions: must have at most {EXPRESSION_BYTES_MAX}");
        return Err(vec![FieldError::invalid(path, bytes, why)]);
    }
    Ok(())
}

pub fn limit_of(quota: &Value) -> Result<Quantity, String> {
    let read = |text: &str| Quantity::parse(text).map_err(|error| error.to_string());
    match at(quota, &["spec", "limit"]) {
        Some(Value::String(text)) => read(text.trim()),
        Some(Value::Number(number)) => read(&number.to_string()),
        _ => Err("must be a quantity".into()),
    }
}

fn read_limit(quota: &Value, settings: &Settings, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Quantity {
    let bad = at(quota, &["spec", "limit"]).cloned().unwrap_or(Value::Null);
    let path = path.child("limit");
    match limit_of(quota) {
        Err(why) => {
            errors.push(FieldError::invalid(path, bad, why));
            Quantity::ZERO
        }
        Ok(limit) => {
            let too_low = limit.amount().is_negative() || (limit.is_zero() && settings.reading == Reading::Releases);
            if too_low {
                let or_zero = if settings.reading == Reading::Releases { " or 0" } else { "" };
                let why = format!("invalid spec.limit: quantity must not be negative{or_zero}: \"{limit}\"");
                errors.push(FieldError::invalid(path, bad, why));
            }
            limit
        }
    }
}

/// Asks Capsule to count again; there, the mark goes when that is done.
const RECOUNT: &str = "reconcile.projectcapsule.dev/requestedAt";

/// Answers a request to count again: usage is never anything but counted.
pub fn admit(quota: &mut Value) {
    if let Some(annotations) = quota.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(RECOUNT);
    }
}

pub fn validate(kind: Kind, quota: &Value, old: Option<&Value>, settings: &Settings) -> Vec<FieldError> {
    let mut errors = Spec::read(kind, quota, settings).err().unwrap_or_default();
    let sources = |quota| items(quota, &["spec", "sources"]);
    // What is stored already may be written again.
    if errors.is_empty() && old.is_none_or(|old| sources(old) != sources(quota)) {
        let path = Path::new("spec");
        let path = path.child("sources");
        let told = sources(quota).iter().enumerate().filter(|(_, source)| reads_what_is_told(source));
        errors.extend(told.map(|(number, source)| {
            let why = "the status of quotas, pools and claims is what is told of them, and is not counted";
            FieldError::invalid(path.index(number), source.clone(), why)
        }));
    }
    errors
}

/// Whether a source looks at the status of what has its status from quotas.
fn reads_what_is_told(source: &Value) -> bool {
    const TOLD: [(&str, &str); 7] = [
        ("", "ResourceQuota"),
        ("quota.openshift.io", "ClusterResourceQuota"),
        ("hnc.x-k8s.io", "HierarchicalResourceQuota"),
        (GROUP, "CustomQuota"),
        (GROUP, "GlobalCustomQuota"),
        (GROUP, "ResourcePool"),
        (GROUP, "ResourcePoolClaim"),
    ];
    let target = Target::read(source);
    if !TOLD.contains(&(&*target.group, &*target.kind)) {
        return false;
    }
    let selectors = items(source, &["selectors"]).iter();
    let conditions = selectors.flat_map(|one| ["fieldSelectors", "celExpressions"].map(|list| items(one, &[list])));
    let conditions = conditions.flatten().filter_map(Value::as_str);
    let texts = [text(source, &["path"]), text(source, &["cel"])].into_iter().chain(conditions);
    texts.into_iter().any(|text| text.starts_with(".status") || text.contains("object.status"))
}

/// What expressions may take to tell why one object cannot be evaluated.
const TOLD_COST_MAX: u64 = 1000;

/// Why an object cannot be evaluated, for those the quota's condition names.
pub struct Diagnosis {
    rules: BTreeMap<GroupResource, SourceRule>,
}

impl Diagnosis {
    pub fn of(kind: Kind, quota: &Value, settings: &Settings, world: &dyn World) -> Option<Diagnosis> {
        let spec = Spec::read(kind, quota, settings).ok()?;
        let shared = Arc::new(Quota {
            kind,
            name: text(quota, &["metadata", "name"]).into(),
            scope: Vec::new(),
            reading: settings.reading,
            observe_only: settings.observe_only,
        });
        let mut rules: BTreeMap<GroupResource, SourceRule> = BTreeMap::new();
        for source in spec.sources {
            let resource = source.target.resolve(world).resource;
            let rule = SourceRule { quota: shared.clone(), sources: Vec::new(), essence: Vec::new() };
            rules.entry(resource).or_insert(rule).sources.push(source);
        }
        Some(Diagnosis { rules })
    }

    /// None where that cannot be told in no time.
    pub fn why(&self, resource: &GroupResource, object: &Value) -> Option<String> {
        let rule = self.rules.get(resource)?;
        let mut budget = Budget { here: TOLD_COST_MAX, elsewhere: 0 };
        let (usage, put_off) = cel::within(&mut budget, &mut None, object, || rule.usage(object));
        usage.err().filter(|_| put_off.is_none())
    }
}

/// What is used of a quota: never less than nothing, however much is discounted.
pub fn shown_usage(line: &BalanceLine) -> Quantity {
    Quantity::new(line.balance.used.max(Amount::ZERO), line.balance.format)
}

/// What Capsule's releases do not let happen to a quota that is in use.
pub fn check_change(kind: Kind, old: &Value, new: &Value, lines: &[BalanceLine]) -> Result<(), String> {
    let Some(line) = lines.iter().find(|line| &*line.resource == USAGE) else { return Ok(()) };
    let used = shown_usage(line);
    if used.is_zero() {
        return Ok(());
    }
    let essence = |quota: &Value| -> Vec<(Target, Value, Value)> {
        let sources = items(quota, &["spec", "sources"]).iter();
        sources.map(|source| (Target::read(source), source["path"].clone(), source["op"].clone())).collect()
    };
    if essence(old) != essence(new) {
        let kind = kind.name();
        return Err(format!(
            "spec.sources cannot be changed while usage is recorded (usage: {used}); create a new {kind} instead"
        ));
    }
    match limit_of(new) {
        Ok(limit) if limit.amount() < used.amount() => {
            Err(format!("spec.limit cannot be lowered below current usage ({used}); requested limit: {limit}"))
        }
        _ => Ok(()),
    }
}

pub fn compile(
    kind: Kind,
    policy: &PolicyObject<'_>,
    settings: &Settings,
    world: &dyn World,
) -> Result<Compiled, Vec<FieldError>> {
    let resolved = resolve(kind, policy, world);
    let fingerprint = fingerprint(policy.object, resolved.iter().map(|(resource, part)| (resource, part.namespaced)));
    let taken_over = policy.in_force.filter(|in_force| in_force.fingerprint == fingerprint);
    let (limit, spec) = match taken_over {
        None => Spec::read(kind, policy.object, settings).map(|spec| (spec.limit.clone(), Some(spec)))?,
        Some(_) => {
            let mut errors = Vec::new();
            let limit = read_limit(policy.object, settings, &Path::new("spec"), &mut errors);
            if !errors.is_empty() {
                return Err(errors);
            }
            (limit, None)
        }
    };
    let (amount, limit_text) = (limit.amount(), limit.to_string());
    let limit = if settings.observe_only { Limit::Observed(amount) } else { Limit::Enforced(amount) };
    let account = |resource: &str, limit, limit_text: String, discounts| Account {
        resource: resource.into(),
        limit,
        limit_text: limit_text.into(),
        discounts,
    };
    let accounts =
        vec![account(USAGE, limit, limit_text, true), account(UNEVALUATED, Limit::Unlimited, String::new(), false)];
    let rules = match (taken_over, spec) {
        (Some(in_force), _) => in_force.rules.clone(),
        (None, spec) => spec.map_or_else(Vec::new, |spec| rules(kind, policy, settings, spec, resolved)),
    };
    Ok(Compiled { accounts, rules, fingerprint, until_ms: None })
}

/// What a quota says of one resource, not yet compiled.
struct Part {
    namespaced: bool,
    /// The places of its sources among all.
    sources: Vec<usize>,
    /// All that its rule is made of.
    essence: Vec<u8>,
}

fn resolve(kind: Kind, policy: &PolicyObject<'_>, world: &dyn World) -> BTreeMap<GroupResource, Part> {
    let mut parts: BTreeMap<GroupResource, Part> = BTreeMap::new();
    for (place, source) in items(policy.object, &["spec", "sources"]).iter().enumerate().take(SOURCES_MAX) {
        let resolved = Target::read(source).resolve(world);
        let part = parts.entry(resolved.resource).or_insert_with(|| {
            let essence = format!("{kind:?} {} {}", policy.namespace, resolved.namespaced).into_bytes();
            Part { namespaced: resolved.namespaced, sources: Vec::new(), essence }
        });
        part.sources.push(place);
        push_field(&mut part.essence, Some(source));
    }
    for part in parts.values_mut() {
        for field in ["scopeSelectors", "namespaceSelectors"] {
            push_field(&mut part.essence, at(policy.object, &["spec", field]));
        }
    }
    parts
}

fn push_field(bytes: &mut Vec<u8>, value: Option<&Value>) {
    bytes.push(0);
    if let Some(value) = value {
        bytes.extend_from_slice(value.to_string().as_bytes());
    }
}

/// One rule for each resource; those that are in force already are taken over.
fn rules(
    kind: Kind,
    policy: &PolicyObject<'_>,
    settings: &Settings,
    spec: Spec,
    resolved: BTreeMap<GroupResource, Part>,
) -> Vec<Rule> {
    let quota = Arc::new(Quota {
        kind,
        name: policy.name.into(),
        scope: spec.scope,
        reading: settings.reading,
        observe_only: settings.observe_only,
    });
    let mut sources: Vec<Option<Source>> = spec.sources.into_iter().map(Some).collect();
    let in_force = policy.in_force.map_or(&[][..], |in_force| &in_force.rules);
    let mut rules = Vec::new();
    let namespaces = spec.namespaces.map(Arc::new);
    for (resource, Part { namespaced, sources: places, essence }) in resolved {
        let is_it = |rule: &&Rule| rule.measure.essence() == essence && rule.resources[..] == [resource.clone()];
        if let Some(rule) = in_force.iter().find(is_it) {
            rules.push(rule.clone());
            continue;
        }
        let reach = match (kind, namespaced, &namespaces) {
            (Kind::CustomQuota, true, _) => Reach::Namespace(policy.namespace.into()),
            (Kind::GlobalCustomQuota, true, None) => Reach::Selected(Arc::new(|_| true)),
            (Kind::GlobalCustomQuota, true, Some(selectors)) => {
                let selectors = selectors.clone();
                Reach::Selected(Arc::new(move |namespace| {
                    selectors.iter().any(|selector| selector.matches(&namespace.labels))
                }))
            }
            (Kind::GlobalCustomQuota, false, None) => Reach::Cluster,
            // What is in no namespace is in none that could be selected; the status says so.
            (_, false, _) | (Kind::ResourcePool | Kind::ResourcePoolClaim, ..) => continue,
        };
        let sources = places.into_iter().filter_map(|place| sources.get_mut(place)?.take()).collect();
        let measure = Arc::new(SourceRule { quota: quota.clone(), sources, essence });
        rules.push(Rule { resources: vec![resource], reach, measure });
    }
    rules
}

/// Every kind that a source names, wherever the quota could reach it.
pub fn would_look_at(kind: Kind, policy: &PolicyObject<'_>, world: &dyn World) -> Vec<(GroupResource, Reach)> {
    let sources = items(policy.object, &["spec", "sources"]).iter().take(SOURCES_MAX);
    sources
        .map(|source| {
            let resolved = Target::read(source).resolve(world);
            let reach = match (kind, resolved.namespaced) {
                (Kind::GlobalCustomQuota, true) => Reach::Selected(Arc::new(|_| true)),
                (Kind::GlobalCustomQuota, false) => Reach::Cluster,
                _ => Reach::Namespace(policy.namespace.into()),
            };
            (resolved.resource, reach)
        })
        .collect()
}

/// Everything but the limit and the options.
fn fingerprint<'a>(quota: &Value, resources: impl Iterator<Item = (&'a GroupResource, bool)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in ["sources", "scopeSelectors", "namespaceSelectors"] {
        push_field(&mut bytes, at(quota, &["spec", field]));
    }
    for (resource, namespaced) in resources {
        bytes.push(u8::from(namespaced));
        bytes.extend_from_slice(resource.to_string().as_bytes());
    }
    bytes
}

/// What all rules of one quota have in common.
struct Quota {
    kind: Kind,
    name: Arc<str>,
    scope: Vec<LabelSelector>,
    reading: Reading,
    observe_only: bool,
}

/// The sources of a quota that name one kind.
struct SourceRule {
    quota: Arc<Quota>,
    sources: Vec<Source>,
    essence: Vec<u8>,
}

impl Measure for SourceRule {
    fn may_change_with_time(&self, _text: &str) -> bool {
        false
    }

    fn evaluates(&self) -> bool {
        self.sources.iter().any(Source::evaluates)
    }

    fn essence(&self) -> &[u8] {
        &self.essence
    }

    fn measure(&self, subject: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        if !any_matches(&self.quota.scope, at(subject.object, &["metadata", "labels"])) {
            return Ok(());
        }
        match self.usage(subject.object) {
            Ok(None) => {}
            Ok(Some(usage)) => out.charge(USAGE_AT, usage.amount(), usage.format()),
            Err(why) => {
                out.charge(UNEVALUATED_AT, Amount::from_units(1), Format::DecimalSi);
                if !self.quota.observe_only {
                    out.refuse(self.refusal(subject, &why));
                }
            }
        }
        Ok(())
    }
}

impl SourceRule {
    /// All sources together: what is added less what is subtracted. Below zero it discounts what other objects take.
    fn usage(&self, object: &Value) -> Result<Option<Quantity>, String> {
        let (mut added, mut discount, mut meant) = (Quantity::ZERO, Quantity::ZERO, false);
        // All are asked, so that expressions which take long are asked for together.
        let all = self.sources.iter().map(|source| source.measure(object, self.quota.reading));
        let measured: Vec<_> = jsonpath::within_steps(QUOTA_STEPS_MAX, || all.collect());
        for (source, measured) in self.sources.iter().zip(measured) {
            let measured =
                measured.map_err(|why| format!("{} did not resolve to a valid quantity: {why}", source.describe()))?;
            let Some(value) = measured else { continue };
            meant = true;
            let sum = if source.op == Op::Sub { &mut discount } else { &mut added };
            *sum = sum.checked_add(&value).ok_or("the sum of the sources is too large")?;
        }
        if !meant {
            return Ok(None);
        }
        added.checked_sub(&discount).map(Some).ok_or_else(|| "the sum of the sources is too large".into())
    }

    fn refusal(&self, subject: &Subject<'_>, why: &str) -> String {
        let (kind, name) = (self.quota.kind.name(), &self.quota.name);
        let object = match subject.namespace {
            "" => subject.name.to_string(),
            namespace => format!("{namespace}/{}", subject.name),
        };
        let target = self.sources.first().map(|source| source.target.to_string()).unwrap_or_default();
        format!(
            "resource {object} ({target}) cannot be admitted because custom quota usage could not be calculated: \
             {kind} \"{name}\" {why}"
        )
    }
}
