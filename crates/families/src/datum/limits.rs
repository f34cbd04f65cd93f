//! What a ResourceQuotaGrant says: for each resource, buckets with a value, and which requests each is about.

use std::collections::BTreeSet;

use kinds::field_error::{FieldError, Path};
use kinds::fields::{given, items, text};
use quantity::Amount;
use serde_json::Value;

use super::catalog::{Catalog, Definition, as_text, check_resource_name};
use super::claim::{QUANTITY_BYTES_MAX, check_length};
use super::selector::{Selector, check_key};

/// Resources of one grant, and buckets of one resource.
const LIMITS_MAX: usize = 256;
const BUCKETS_MAX: usize = 64;
const LABELS_MAX: usize = 32;
/// A bucket of this value limits nothing.
pub const UNLIMITED: &str = "unlimited";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum BucketPolicy {
    /// The narrowest bucket that matches decides.
    #[default]
    MostSpecific,
    /// Every bucket that matches has to have room.
    AllMatching,
}

impl BucketPolicy {
    pub fn name(self) -> &'static str {
        match self {
            BucketPolicy::MostSpecific => "MostSpecific",
            BucketPolicy::AllMatching => "AllMatching",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub selector: Selector,
    /// As it is written, to be handed on.
    pub written: Value,
    /// Of one grant one value; of several with the same selector one each, which are added up.
    pub values: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub name: String,
    pub policy: BucketPolicy,
    pub labels: BTreeSet<String>,
    pub buckets: Vec<Bucket>,
}

/// Reads `spec.limits`, of a grant or of what several come to, where `values` stands for `value`.
pub fn read(spec: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Vec<Limits> {
    let Some(spec) = spec else { return Vec::new() };
    let listed = items(spec, &["limits"]);
    let limits = path.child("limits");
    if listed.len() > LIMITS_MAX {
        errors.push(FieldError::too_many(limits, listed.len(), LIMITS_MAX));
    }
    let mut known = BTreeSet::new();
    let mut read = Vec::new();
    for (index, entry) in listed.iter().take(LIMITS_MAX).enumerate() {
        let place = limits.index(index);
        let one = read_one(entry, &place, errors);
        if !known.insert(one.name.clone()) {
            errors.push(FieldError::duplicate(place.child("name"), one.name.as_str()));
        }
        read.push(one);
    }
    read
}

fn read_one(entry: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Limits {
    let name = text(entry, &["name"]);
    check_resource_name(name, &path.child("name"), errors);
    let policy = match given(entry, &["bucketPolicy"]).map(as_text).as_deref() {
        None | Some("MostSpecific") => BucketPolicy::MostSpecific,
        Some("AllMatching") => BucketPolicy::AllMatching,
        Some(other) => {
            let known = [BucketPolicy::MostSpecific.name(), BucketPolicy::AllMatching.name()];
            errors.push(FieldError::not_supported(path.child("bucketPolicy"), other, &known));
            BucketPolicy::AllMatching
        }
    };
    let mut labels = BTreeSet::new();
    let (listed, place) = (items(entry, &["dimensionLabels"]), path.child("dimensionLabels"));
    if listed.len() > LABELS_MAX {
        errors.push(FieldError::too_many(place, listed.len(), LABELS_MAX));
    }
    for (index, key) in listed.iter().take(LABELS_MAX).enumerate() {
        let key = key.as_str().unwrap_or_default();
        check_key(key, &place.index(index), errors);
        labels.insert(key.to_owned());
    }
    let (listed, place) = (items(entry, &["buckets"]), path.child("buckets"));
    if listed.is_empty() {
        errors.push(FieldError::required(place, "at least one bucket"));
    }
    if listed.len() > BUCKETS_MAX {
        errors.push(FieldError::too_many(place, listed.len(), BUCKETS_MAX));
    }
    let mut buckets: Vec<Bucket> = Vec::new();
    for (index, bucket) in listed.iter().take(BUCKETS_MAX).enumerate() {
        let place = place.index(index);
        let selector = Selector::read(given(bucket, &["selector"]), &place.child("selector"), errors);
        for key in selector.keys().filter(|key| !labels.contains(*key)) {
            let why = "InvalidDimensionSelector: must be one of the limit's dimensionLabels";
            errors.push(FieldError::invalid(place.child("selector"), key, why));
        }
        if buckets.iter().any(|known| known.selector == selector) {
            let why = "InvalidLimitsConfiguration: another bucket of this limit selects the same";
            errors.push(FieldError::invalid(place.child("selector"), selector.text(), why));
        }
        let values = match given(bucket, &["values"]) {
            Some(values) => values.as_array().into_iter().flatten().map(as_text).collect(),
            None => given(bucket, &["value"]).map(as_text).into_iter().collect::<Vec<_>>(),
        };
        if values.is_empty() {
            errors.push(FieldError::required(place.child("value"), "how much there is, or \"unlimited\""));
        }
        for value in &values {
            check_length(value, QUANTITY_BYTES_MAX, &place.child("value"), errors);
        }
        for value in values.iter().filter(|value| value.starts_with('-')) {
            errors.push(FieldError::invalid(
                place.child("value"),
                value.as_str(),
                "must be greater than or equal to 0",
            ));
        }
        let written = given(bucket, &["selector"]).cloned().unwrap_or_else(|| Value::Object(Default::default()));
        buckets.push(Bucket { selector, written, values });
    }
    Limits { name: name.to_owned(), policy, labels, buckets }
}

/// Why limits mean nothing beside the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub reason: &'static str,
    /// Where in the limits it is.
    pub path: String,
    pub why: String,
}

impl Limits {
    /// All that is wrong with it.
    pub fn problems(&self, catalog: &Catalog) -> Vec<Problem> {
        let problem = |reason, path: String, why: String| Problem { reason, path, why };
        let Some(definition) = catalog.get(&self.name) else {
            let why = format!("no ServiceQuotaDefinition defines {:?}", self.name);
            return vec![problem("ResourceNotDefined", "name".into(), why)];
        };
        let strange = self.labels.iter().filter(|key| !definition.allows(key)).map(|key| {
            let allowed = definition.dimensions.iter().cloned().collect::<Vec<_>>().join(", ");
            let why = format!("{key:?} is no allowed dimension of {:?} ({allowed})", self.name);
            problem("InvalidDimensionSelector", "dimensionLabels".into(), why)
        });
        let odd = self.buckets.iter().enumerate().filter_map(|(index, bucket)| {
            let why = bucket.amount(definition).err()?;
            Some(problem("InvalidLimitsConfiguration", format!("buckets[{index}].value"), why))
        });
        strange.chain(odd).collect()
    }
}

impl Bucket {
    /// How much all its values come to; none where one is without limit.
    pub fn amount(&self, definition: &Definition) -> Result<Option<Amount>, String> {
        let mut sum = Amount::ZERO;
        for value in &self.values {
            if value == UNLIMITED {
                return Ok(None);
            }
            let amount = definition.unit.read(value).map_err(|why| format!("{value:?} {why}"))?;
            // More than can be counted limits nothing that can be.
            sum = sum.checked_add(amount).unwrap_or(Amount::from_nanos(i128::MAX));
        }
        Ok(Some(sum))
    }
}

/// Adds what several grants say of the same resource. Where one asks for all buckets, all are asked.
pub fn merged(lists: impl Iterator<Item = Limits>) -> Vec<Limits> {
    let mut all: Vec<Limits> = Vec::new();
    for one in lists {
        let Some(known) = all.iter_mut().find(|known| known.name == one.name) else {
            all.push(one);
            continue;
        };
        known.policy = known.policy.max(one.policy);
        known.labels.extend(one.labels);
        for bucket in one.buckets {
            match known.buckets.iter_mut().find(|known| known.selector == bucket.selector) {
                Some(known) => known.values.extend(bucket.values),
                None => known.buckets.push(bucket),
            }
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Limits as `spec.limits` of what several grants come to.
pub fn written(limits: &[Limits]) -> Value {
    let bucket = |bucket: &Bucket| serde_json::json!({"selector": bucket.written, "values": bucket.values});
    let one = |one: &Limits| {
        serde_json::json!({
            "name": one.name, "bucketPolicy": one.policy.name(), "dimensionLabels": one.labels,
            "buckets": one.buckets.iter().map(bucket).collect::<Vec<_>>(),
        })
    };
    limits.iter().map(one).collect()
}
