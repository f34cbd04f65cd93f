//! ResourcePool: an amount of each resource that claims from selected namespaces share. A pool is one account for each
//! resource; a claim is a subject that waits in line when the pool has too little.

use std::collections::BTreeMap;
use std::sync::Arc;

use kinds::field_error::{FieldError, Path};
use ledger::{Discipline, Limit, Position, Wait};
use quantity::{Amount, Format, Quantity};
use rules::selector::{LabelSelector, Labels};
use rules::{Account, Compiled, GroupResource, Measure, MeasureError, Reach, Rule, Subject, Verdict};
use serde_json::{Map, Value, json};

use super::selection::read_labels;
use super::{GROUP, RESOURCE_POOL_CLAIMS, at, items, text};
use crate::kubernetes::validate::{amounts, quota_spec};
use crate::{BalanceLine, PolicyObject};

/// The account that counts a pool's claims. No resource can have this name.
pub const CLAIMS: &str = "#claims";
/// Resources in a pool or a claim. A claim is decided for all of them at once.
pub const RESOURCES_MAX: usize = 256;
pub const RELEASE: &str = "projectcapsule.dev/release";

/// Amounts by resource name, in the order of the names.
pub type Amounts = BTreeMap<Arc<str>, Quantity>;

/// A pool's spec, read.
pub struct Pool {
    pub hard: Amounts,
    pub defaults: Amounts,
    selectors: Vec<LabelSelector>,
    is_ordered: bool,
}

impl Pool {
    /// Whether a namespace with these labels may claim.
    pub fn selects(&self, labels: &impl Labels) -> bool {
        self.selectors.iter().any(|selector| selector.matches(labels))
    }

    pub fn read(pool: &Value) -> Result<Pool, Vec<FieldError>> {
        let mut errors = Vec::new();
        let spec = Path::new("spec");
        let hard = read_amounts(at(pool, &["spec", "quota", "hard"]), &spec.child("quota").child("hard"), &mut errors);
        let defaults = read_amounts(at(pool, &["spec", "defaults"]), &spec.child("defaults"), &mut errors);
        let mut selectors = read_labels(items(pool, &["spec", "selectors"]), &spec.child("selectors"), &mut errors);
        // As in Capsule: a pool for everyone is no slip of the pen.
        selectors.retain(|selector| !selector.is_everything());
        let is_ordered = at(pool, &["spec", "config", "orderedQueue"]) == Some(&Value::Bool(true));
        if errors.is_empty() { Ok(Pool { hard, defaults, selectors, is_ordered }) } else { Err(errors) }
    }
}

/// Reads a ResourceList. A negative amount would make room out of nothing.
pub fn read_amounts(list: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Amounts {
    let mut amounts = Amounts::new();
    let entries = list.and_then(Value::as_object);
    if let Some(many) = entries.filter(|entries| entries.len() > RESOURCES_MAX) {
        errors.push(FieldError::too_many(path, many.len(), RESOURCES_MAX));
        return amounts;
    }
    for (name, value) in entries.into_iter().flatten() {
        let read = match value {
            Value::String(text) => Quantity::parse(text.trim()),
            other => Quantity::parse(&other.to_string()),
        };
        match read {
            Ok(amount) if amount.amount().is_negative() => {
                errors.push(FieldError::invalid(path.key(name), value.clone(), "must be greater than or equal to 0"));
            }
            Ok(amount) => drop(amounts.insert(name.as_str().into(), amount)),
            Err(error) => errors.push(FieldError::invalid(path.key(name), value.clone(), error.to_string())),
        }
    }
    amounts
}

/// Writes a ResourceList.
pub fn show_amounts(amounts: impl IntoIterator<Item = (Arc<str>, Quantity)>) -> Value {
    let entries = amounts.into_iter().map(|(name, amount)| (name.to_string(), json!(written(&amount))));
    Value::Object(entries.collect::<Map<_, _>>())
}

/// A sum may have no suffix large enough; then it is written as a power of ten, so that it can be read again.
fn written(amount: &Quantity) -> String {
    let text = amount.clone().canonical().to_string();
    match Quantity::parse(&text) {
        Ok(_) => text,
        Err(_) => Quantity::new(amount.amount(), Format::DecimalExponent).canonical().to_string(),
    }
}

/// The longest name of a pool: it is the value of a label on what the pool provisions.
const NAME_BYTES_MAX: usize = 63;

pub fn validate(name: &str, pool: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Pool::read(pool).err().unwrap_or_default();
    // What it provisions are ResourceQuotas: a scope or a name that none can have would leave its namespaces without
    // limit. What is stored already may be written again.
    let quota = |pool| at(pool, &["spec", "quota"]).cloned().unwrap_or_default();
    if errors.is_empty() && old.is_none_or(|old| quota(old) != quota(pool)) {
        errors.extend(quota_spec(&quota(pool), &Path::new("spec").child("quota")));
        amounts(at(pool, &["spec", "defaults"]), &Path::new("spec").child("defaults"), &mut errors);
    }
    if name.len() > NAME_BYTES_MAX {
        let why = format!("must be no more than {NAME_BYTES_MAX} bytes");
        errors.push(FieldError::invalid(Path::new("metadata").child("name"), name, why));
    }
    errors
}

/// With `defaultsZero`, every resource of the pool starts at nothing in its namespaces.
pub fn default(pool: &mut Value) {
    if at(pool, &["spec", "config", "defaultsZero"]) != Some(&Value::Bool(true)) {
        return;
    }
    let names: Vec<String> = at(pool, &["spec", "quota", "hard"])
        .and_then(Value::as_object)
        .map_or_else(Vec::new, |hard| hard.keys().cloned().collect());
    let Some(spec) = pool.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let defaults = spec.entry("defaults").or_insert_with(|| json!({}));
    if defaults.is_null() {
        *defaults = json!({});
    }
    for name in names {
        if let Some(defaults) = defaults.as_object_mut() {
            defaults.entry(name).or_insert_with(|| json!("0"));
        }
    }
}

/// What of a pool cannot be where its ResourceQuotas are somebody else's API server's.
pub fn check_as_guest(pool: &Value, old: Option<&Value>) -> Result<(), String> {
    if super::jit::is_offered(pool) {
        return Err("spec.config.jitClaims: workloads are refused by the cluster's API server, so that no claim can be made for \
                    them: leave it out, or make the claims yourself"
            .into());
    }
    for field in ["scopes", "scopeSelector"] {
        let of = |pool| at(pool, &["spec", "quota", field]);
        if old.is_some_and(|old| of(old) != of(pool)) {
            let why = format!(
                "spec.quota.{field}: ResourceQuotas keep the scopes that they were made with: make another pool"
            );
            return Err(why);
        }
    }
    Ok(())
}

/// A pool does not shrink below what is claimed of it.
pub fn check_shrinking(new: &Value, lines: &[BalanceLine]) -> Result<(), String> {
    let Ok(pool) = Pool::read(new) else { return Ok(()) };
    let rest = "Remove corresponding claims or keep the resources in the pool";
    for line in lines.iter().filter(|line| line.bucket.is_empty() && &*line.resource != CLAIMS) {
        let used = Quantity::new(line.balance.used, line.balance.format);
        if used.is_zero() {
            continue;
        }
        let name = &line.resource;
        match pool.hard.get(name) {
            // What nodes say is no one's wish.
            _ if super::nodes::sizes(new, name) => {}
            None => return Err(format!("can not remove resource {name} as it is still being allocated. {rest}")),
            Some(hard) if hard.amount() < used.amount() => {
                return Err(format!(
                    "can not reduce {name} usage to {hard} because quantity {used} is claimed . {rest}"
                ));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

pub fn compile(policy: &PolicyObject<'_>) -> Result<Compiled, Vec<FieldError>> {
    let pool = Pool::read(policy.object)?;
    let mut accounts: Vec<Account> = pool
        .hard
        .iter()
        .map(|(name, hard)| Account {
            resource: name.clone(),
            limit: Limit::Enforced(hard.amount()),
            limit_text: hard.to_string().into(),
            discounts: false,
        })
        .collect();
    let count_at = accounts.len();
    let (limit, limit_text) = (Limit::Unlimited, "".into());
    accounts.push(Account { resource: CLAIMS.into(), limit, limit_text, discounts: false });
    let mut fingerprint = vec![u8::from(pool.is_ordered)];
    for name in pool.hard.keys() {
        fingerprint.extend_from_slice(name.as_bytes());
        fingerprint.push(0);
    }
    if let Some(selectors) = at(policy.object, &["spec", "selectors"]) {
        fingerprint.extend_from_slice(selectors.to_string().as_bytes());
    }
    let leaves = at(policy.object, &["metadata", "deletionTimestamp"]).is_some();
    fingerprint.push(u8::from(leaves));
    let measure = ClaimRule {
        leaves,
        pool: policy.name.into(),
        names: pool.hard.keys().cloned().collect(),
        count_at,
        discipline: if pool.is_ordered { Discipline::Ordered } else { Discipline::Greedy },
    };
    let rule = Rule {
        resources: vec![GroupResource::new(GROUP, RESOURCE_POOL_CLAIMS)],
        reach: Reach::Selected(Arc::new(move |namespace| pool.selects(&namespace.labels))),
        measure: Arc::new(measure),
    };
    Ok(Compiled { accounts, rules: vec![rule], fingerprint, until_ms: None })
}

/// What a claim takes from its pool.
struct ClaimRule {
    /// A pool on its way out serves nobody. It still looks at its namespaces, whose claims are told when it is gone.
    leaves: bool,
    pool: Arc<str>,
    /// By account.
    names: Vec<Arc<str>>,
    count_at: usize,
    discipline: Discipline,
}

impl Measure for ClaimRule {
    fn may_change_with_time(&self, _text: &str) -> bool {
        false
    }

    fn measure(&self, subject: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        let claim = subject.object;
        if self.leaves || text(claim, &["spec", "pool"]) != &*self.pool || is_released(claim) {
            return Ok(());
        }
        let mut errors = Vec::new();
        let wanted = read_amounts(at(claim, &["spec", "claim"]), &Path::new("spec").child("claim"), &mut errors);
        if wanted.is_empty() || !errors.is_empty() {
            // Validation lets no bad amount in.
            return Ok(());
        }
        let wanted = wanted.into_iter().filter(|(_, amount)| !amount.is_zero());
        let places = wanted.map(|(name, amount)| Some((self.names.binary_search(&name).ok()?, amount)));
        // A resource the pool does not have is told in the claim's status.
        let Some(places) = places.collect::<Option<Vec<_>>>() else { return Ok(()) };
        // Whoever was created first is served first, whatever the clock said at the time. Claims that are older than
        // the count of creations have only the clock's word.
        let created = text(claim, &["metadata", "creationTimestamp"]);
        let position = Position {
            priority: 0,
            arrived: i64::try_from(subject.born).unwrap_or(i64::MAX),
            tie: format!("{created}\0{}\0{}", subject.name, subject.namespace).into(),
        };
        out.may_wait(Wait { discipline: self.discipline, position });
        let namespace: Arc<str> = subject.namespace.into();
        for (account, amount) in places {
            // The ResourceQuota that it goes into counts in thousandths, rounded up.
            let amount = amount.round_up_milli();
            out.charge(account, amount.amount(), amount.format());
            out.charge_bucket(account, namespace.clone(), amount.amount(), amount.format());
        }
        let one = Amount::from_units(1);
        out.charge(self.count_at, one, Format::DecimalSi);
        out.charge_bucket(self.count_at, namespace, one, Format::DecimalSi);
        Ok(())
    }
}

/// Whether the claim asks to be released.
pub fn is_released(claim: &Value) -> bool {
    text(claim, &["metadata", "annotations", RELEASE]).eq_ignore_ascii_case("true")
}

pub fn created_ms(object: &Value) -> i64 {
    let created: Option<jiff::Timestamp> = text(object, &["metadata", "creationTimestamp"]).parse().ok();
    created.map_or(0, |created| created.as_millisecond())
}
