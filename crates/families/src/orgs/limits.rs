//! Limits: what a tier says, what an operator says of one organization, and which of both is in force. Commands, the scheduler
//! and the accounts all ask here.

use kinds::field_error::{FieldError, Path};
use kinds::fields::{given, text};
use kinds::time;
use ledger::Limit;
use quantity::Amount;
use serde_json::{Map, Value};

use super::dimensions::{COUNT, Dimension};
use super::numbers;

/// How much there may be of one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    Most(Amount),
    /// Somebody said so. Silence never means it.
    Unlimited,
    /// The dimension is optional and nobody said anything.
    NotEnforced,
}

impl Cap {
    pub fn limit(self) -> Limit {
        match self {
            Cap::Most(amount) => Limit::Enforced(amount),
            Cap::Unlimited | Cap::NotEnforced => Limit::Unlimited,
        }
    }

    /// A number, or nothing where nothing is enforced.
    pub fn shown(self) -> Value {
        match self {
            Cap::Most(amount) => numbers::shown(amount),
            Cap::Unlimited | Cap::NotEnforced => Value::Null,
        }
    }

    /// As it is written.
    pub fn text(self) -> String {
        match self {
            Cap::Most(amount) => numbers::text(amount),
            Cap::Unlimited => "unlimited".into(),
            Cap::NotEnforced => "not enforced".into(),
        }
    }
}

/// Reads a limit: a number, or the word `unlimited`. Zero is a limit, and nothing below it is one.
pub fn read_cap(dimension: Dimension, value: &Value) -> Result<Cap, String> {
    if value.as_str() == Some("unlimited") {
        return Ok(Cap::Unlimited);
    }
    if dimension.is_fractional() {
        return numbers::decimal(value).map(Cap::Most).map_err(|why| format!("{why}, nor \"unlimited\""));
    }
    let whole = numbers::whole(value).map_err(|why| format!("{why}, nor \"unlimited\""))?;
    Ok(Cap::Most(Amount::from_units(whole)))
}

/// What becomes of a rollout for whose surge there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SurgePolicy {
    #[default]
    DrainFirst,
    Reject,
}

impl SurgePolicy {
    pub fn read(value: Option<&Value>) -> Result<Option<SurgePolicy>, String> {
        match value.map(|value| value.as_str().unwrap_or_default()) {
            None => Ok(None),
            Some("drain_first") => Ok(Some(SurgePolicy::DrainFirst)),
            Some("reject") => Ok(Some(SurgePolicy::Reject)),
            Some(_) => Err("use drain_first or reject".into()),
        }
    }
}

/// Bytes of events that may be told of an organization in an hour; as many as there are, where none are named. It is no dimension: what
/// is over is refused for a while, and by the service alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventBytes(pub Option<i64>);

/// Where a tier is silent.
const EVENT_BYTES: i64 = 128 << 20;
/// Less than a few of the longest events is no rate.
const EVENT_BYTES_MIN: i64 = 1 << 20;

impl Default for EventBytes {
    fn default() -> EventBytes {
        EventBytes(Some(EVENT_BYTES))
    }
}

impl EventBytes {
    /// Reads it from the spec of a tier.
    pub fn read(tier: &Value) -> Result<EventBytes, String> {
        let said = given(tier, &["event_bytes_per_hour"]);
        match said {
            None => Ok(EventBytes::default()),
            Some(Value::String(word)) if word == "unlimited" => Ok(EventBytes(None)),
            Some(value) => match numbers::whole(value) {
                Ok(bytes) if bytes >= EVENT_BYTES_MIN => Ok(EventBytes(Some(bytes))),
                _ => Err(format!("use a whole number from {EVENT_BYTES_MIN} on, or \"unlimited\"")),
            },
        }
    }
}

/// What a tier gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    pub caps: [Cap; COUNT],
    pub surge_policy: SurgePolicy,
}

impl Tier {
    /// Reads a tier's spec: all dimensions that are not optional, and none that is not known.
    pub fn read(spec: &Value) -> Result<Tier, Vec<FieldError>> {
        let spec_path = Path::new("spec");
        let path = spec_path.child("limits");
        let none = Map::new();
        let limits = given(spec, &["limits"]).and_then(Value::as_object).unwrap_or(&none);
        let mut errors = Vec::new();
        for name in limits.keys().filter(|name| Dimension::parse(name).is_none()).take(8) {
            errors.push(FieldError::invalid(path.child(name).to_string(), name.as_str(), "there is no such dimension"));
        }
        let caps = Dimension::ALL.map(|dimension| {
            let at = path.child(dimension.name()).to_string();
            match limits.get(dimension.name()).filter(|value| !value.is_null()) {
                None if dimension.is_required() => {
                    errors.push(FieldError::required(at, "every tier says how much, or \"unlimited\""));
                    Cap::NotEnforced
                }
                None => Cap::NotEnforced,
                Some(value) => read_cap(dimension, value).unwrap_or_else(|why| {
                    errors.push(FieldError::invalid(at, value.clone(), why));
                    Cap::NotEnforced
                }),
            }
        });
        let surge_policy = SurgePolicy::read(given(spec, &["surge_policy"])).unwrap_or_else(|why| {
            errors.push(FieldError::invalid("spec.surge_policy", spec["surge_policy"].clone(), why));
            None
        });
        if let Err(why) = EventBytes::read(spec) {
            errors.push(FieldError::invalid("spec.event_bytes_per_hour", spec["event_bytes_per_hour"].clone(), why));
        }
        if errors.is_empty() { Ok(Tier { caps, surge_policy: surge_policy.unwrap_or_default() }) } else { Err(errors) }
    }
}

/// Where a limit comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Tier,
    Override,
}

impl Source {
    pub fn word(self) -> &'static str {
        match self {
            Source::Tier => "tier",
            Source::Override => "override",
        }
    }
}

/// The limits in force for one organization at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    pub caps: [Cap; COUNT],
    pub sources: [Source; COUNT],
    pub surge_policy: SurgePolicy,
    /// When an override ends.
    pub until_ms: Option<i64>,
}

impl Effective {
    pub fn cap(&self, dimension: Dimension) -> Cap {
        self.caps[dimension.at()]
    }
}

/// An override that has not ended by now, with when it will.
fn override_of(org: &Value, dimension: Dimension, now_ms: i64) -> Option<(&Value, Option<i64>)> {
    let one = given(org, &["spec", "overrides", dimension.name()])?;
    let expires_ms = given(one, &["expires_at"]).and_then(Value::as_str).and_then(time::read_ms);
    (expires_ms.is_none_or(|at| now_ms < at)).then_some((given(one, &["limit"])?, expires_ms))
}

/// The one computation: an override that is in force, else what the tier says.
pub fn effective(org: &Value, tier: &Tier, now_ms: i64) -> Result<Effective, Vec<FieldError>> {
    let mut errors = check_overrides(org);
    let (mut caps, mut sources, mut until_ms) = (tier.caps, [Source::Tier; COUNT], None);
    for dimension in Dimension::ALL {
        let Some((limit, expires_ms)) = override_of(org, dimension, now_ms) else { continue };
        if let Ok(cap) = read_cap(dimension, limit) {
            (caps[dimension.at()], sources[dimension.at()]) = (cap, Source::Override);
        }
        until_ms = [until_ms, expires_ms].into_iter().flatten().min();
    }
    let surge_policy = SurgePolicy::read(given(org, &["spec", "surge_policy"])).unwrap_or_else(|why| {
        errors.push(FieldError::invalid("spec.surge_policy", org["spec"]["surge_policy"].clone(), why));
        None
    });
    let surge_policy = surge_policy.unwrap_or(tier.surge_policy);
    if errors.is_empty() { Ok(Effective { caps, sources, surge_policy, until_ms }) } else { Err(errors) }
}

/// What is wrong with the overrides of an organization, those that have ended included.
fn check_overrides(org: &Value) -> Vec<FieldError> {
    let spec_path = Path::new("spec");
    let path = spec_path.child("overrides");
    let overrides = given(org, &["spec", "overrides"]).and_then(Value::as_object);
    let mut errors = Vec::new();
    for (name, one) in overrides.into_iter().flatten() {
        let at = path.child(name);
        let Some(dimension) = Dimension::parse(name) else {
            errors.push(FieldError::invalid(at.to_string(), name.as_str(), "there is no such dimension"));
            continue;
        };
        let limit = one.get("limit").unwrap_or(&Value::Null);
        if let Err(why) = read_cap(dimension, limit) {
            errors.push(FieldError::invalid(at.child("limit").to_string(), limit.clone(), why));
        }
        if given(one, &["expires_at"]).is_some() && time::read_ms(text(one, &["expires_at"])).is_none() {
            let why = "it is no moment: write 2027-01-31T12:00:00Z";
            errors.push(FieldError::invalid(at.child("expires_at").to_string(), one["expires_at"].clone(), why));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::orgs::tiers;

    fn standard() -> Tier {
        let tier = tiers::built_in().into_iter().find(|(name, _)| name == "standard").expect("standard").1;
        Tier::read(&tier).expect("it is complete")
    }

    #[test]
    fn an_override_counts_until_it_ends() {
        let org = json!({"spec": {"overrides": {
            "max_instances": {"limit": 7, "expires_at": "1970-01-01T00:00:10Z"},
            "max_total_cpu_request": {"limit": "0.5"},
            "max_apps": {"limit": 0},
            "max_routes": {"limit": "unlimited"},
        }}});
        let before = effective(&org, &standard(), 9_999).unwrap();
        assert_eq!(before.cap(Dimension::Instances), Cap::Most(Amount::from_units(7)));
        assert_eq!(before.until_ms, Some(10_000));
        assert_eq!(before.cap(Dimension::Cpu), Cap::Most(Amount::from_millis(500)));
        assert_eq!(before.cap(Dimension::Apps), Cap::Most(Amount::ZERO));
        assert_eq!(before.cap(Dimension::Routes), Cap::Unlimited);
        let after = effective(&org, &standard(), 10_000).unwrap();
        assert_eq!(after.cap(Dimension::Instances), Cap::Most(Amount::from_units(50)));
        assert_eq!((after.until_ms, after.sources[0]), (None, Source::Tier));
    }

    #[test]
    fn tricks_with_limits_are_named() {
        for (limit, said) in [
            (json!(-1), "not a whole number"),
            (json!(1.5), "not a whole number"),
            (json!("5"), "not a whole number"),
            (json!(null), "not a whole number"),
            (json!(u64::MAX), "not a whole number"),
            (json!([1]), "not a whole number"),
        ] {
            let org = json!({"spec": {"overrides": {"max_instances": {"limit": limit}}}});
            let errors = effective(&org, &standard(), 0).unwrap_err();
            assert!(errors[0].to_string().contains(said), "{}", errors[0]);
        }
        let org = json!({"spec": {"overrides": {"max_instance": {"limit": 1}}}});
        assert!(effective(&org, &standard(), 0).unwrap_err()[0].to_string().contains("no such dimension"));
        let org = json!({"spec": {"overrides": {"max_apps": {"limit": 1, "expires_at": "tomorrow"}}}});
        assert!(effective(&org, &standard(), 0).unwrap_err()[0].to_string().contains("no moment"));
    }

    #[test]
    fn a_rate_of_events_is_a_number_or_a_word() {
        let with = |value: Value| {
            let mut spec = tiers::built_in().remove(0).1;
            spec["event_bytes_per_hour"] = value;
            (EventBytes::read(&spec), Tier::read(&spec).is_ok())
        };
        assert_eq!(with(json!(1 << 20)), (Ok(EventBytes(Some(1 << 20))), true));
        assert_eq!(with(json!("unlimited")), (Ok(EventBytes(None)), true));
        assert_eq!(with(json!(null)), (Ok(EventBytes::default()), true));
        for wrong in [json!(0), json!(-1), json!(1.5), json!("1Mi"), json!([1]), json!(u64::MAX)] {
            let (read, is_tier) = with(wrong.clone());
            assert!(read.is_err() && !is_tier, "{wrong}");
        }
    }

    #[test]
    fn an_incomplete_tier_is_no_tier() {
        let mut spec = tiers::built_in().remove(0).1;
        spec["limits"].as_object_mut().unwrap().remove("max_volumes");
        let errors = Tier::read(&spec).unwrap_err();
        assert!(errors[0].to_string().starts_with("spec.limits.max_volumes: Required"), "{}", errors[0]);
        assert!(Tier::read(&json!(null)).unwrap_err().len() >= 13);
        let mut more = tiers::built_in().remove(0).1;
        more["limits"]["max_pods"] = json!(1);
        assert!(Tier::read(&more).is_err());
    }
}
