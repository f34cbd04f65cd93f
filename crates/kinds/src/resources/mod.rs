//! ResourceLists as they are added up: amounts by name, exact, with the format Kubernetes would print them in.

pub mod names;
pub mod pod;
mod qos;

use std::collections::BTreeMap;

use quantity::{Amount, Format, Quantity};
use serde_json::Value;

pub use qos::{QosClass, computed_qos_class, qos_class};

/// An amount and the suffixes it is printed with.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct Measured {
    pub amount: Amount,
    pub format: Format,
}

/// Why an object cannot be measured.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UsageError {
    #[error("{resource}: {text:?}: {error}")]
    Quantity { resource: String, text: String, error: String },
    #[error("{resource}: the sum is too large to be counted")]
    TooLarge { resource: String },
}

/// The names that nearly every pod states. They have a place of their own in [`Resources`], so that adding up an
/// ordinary pod looks nothing up and allocates nothing.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Common {
    Cpu,
    Memory,
    EphemeralStorage,
}

pub const COMMON: [Common; 3] = [Common::Cpu, Common::Memory, Common::EphemeralStorage];

impl Common {
    pub fn of(name: &str) -> Option<Common> {
        match name {
            "cpu" => Some(Common::Cpu),
            "memory" => Some(Common::Memory),
            "ephemeral-storage" => Some(Common::EphemeralStorage),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Common::Cpu => "cpu",
            Common::Memory => "memory",
            Common::EphemeralStorage => "ephemeral-storage",
        }
    }

    fn place(self) -> usize {
        match self {
            Common::Cpu => 0,
            Common::Memory => 1,
            Common::EphemeralStorage => 2,
        }
    }
}

impl Measured {
    pub const ZERO: Measured = Measured { amount: Amount::ZERO, format: Format::DecimalSi };
    pub const ONE: Measured = Measured { amount: Amount::from_units(1), format: Format::DecimalSi };

    pub const fn count(units: i64) -> Measured {
        Measured { amount: Amount::from_units(units), format: Format::DecimalSi }
    }

    /// The value of a ResourceList entry, rounded up to a thousandth as the API server does on decoding.
    pub fn read(resource: &str, value: &Value) -> Result<Measured, UsageError> {
        Ok(Measured::of(quantity_of(resource, value)?.round_up_milli()))
    }

    pub fn of(quantity: Quantity) -> Measured {
        Measured { amount: quantity.amount(), format: quantity.format() }
    }

    /// The sum, in the format of the left side unless that is zero.
    pub fn checked_add(self, other: Measured) -> Option<Measured> {
        let format = if self.amount.is_zero() { other.format } else { self.format };
        Some(Measured { amount: self.amount.checked_add(other.amount)?, format })
    }

    pub fn to_quantity(self) -> Quantity {
        Quantity::new(self.amount, self.format)
    }
}

/// A quantity as JSON carries it: a string, a number, or null for zero.
pub fn quantity_of(resource: &str, value: &Value) -> Result<Quantity, UsageError> {
    let parsed = match value {
        Value::String(text) => Quantity::parse(text.trim()).map_err(|error| (text.clone(), error)),
        Value::Null => Ok(Quantity::ZERO),
        other => {
            let text = other.to_string();
            Quantity::parse(&text).map_err(|error| (text, error))
        }
    };
    parsed.map_err(|(text, error)| UsageError::Quantity {
        resource: resource.to_string(),
        text,
        error: error.to_string(),
    })
}

/// Amounts by resource name.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Resources {
    common: [Option<Measured>; COMMON.len()],
    /// Everything else. Ordered, so that a body with a hundred thousand names costs no more than sorting them.
    other: BTreeMap<Box<str>, Measured>,
}

impl Resources {
    /// Reads a ResourceList; an absent one is empty.
    pub fn read(list: Option<&Value>) -> Result<Resources, UsageError> {
        let mut read = Resources::default();
        if let Some(Value::Object(list)) = list {
            for (name, value) in list {
                read.set(name, Measured::read(name, value)?);
            }
        }
        Ok(read)
    }

    #[inline]
    pub fn common(&self, name: Common) -> Option<Measured> {
        self.common[name.place()]
    }

    #[inline]
    pub fn get(&self, name: &str) -> Option<Measured> {
        match Common::of(name) {
            Some(common) => self.common(common),
            None => self.other.get(name).copied(),
        }
    }

    pub fn set(&mut self, name: &str, value: Measured) {
        match Common::of(name) {
            Some(common) => self.common[common.place()] = Some(value),
            None => {
                self.other.insert(name.into(), value);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.common.iter().all(Option::is_none) && self.other.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, Measured)> {
        let common = COMMON.iter().filter_map(|name| self.common(*name).map(|value| (name.name(), value)));
        common.chain(self.other.iter().map(|(name, value)| (&**name, *value)))
    }

    /// Adds every entry of the other list to this one's.
    pub fn add(&mut self, more: &Resources) -> Result<(), UsageError> {
        for (place, value) in more.common.iter().enumerate() {
            let Some(value) = value else { continue };
            self.common[place] = Some(sum(self.common[place], *value, COMMON[place].name())?);
        }
        for (name, value) in &more.other {
            let sum = sum(self.other.get(name).copied(), *value, name)?;
            self.other.insert(name.clone(), sum);
        }
        Ok(())
    }

    /// Raises every entry to at least the other list's.
    pub fn raise_to(&mut self, least: &Resources) {
        let is_less = |had: Option<Measured>, value: &Measured| had.is_none_or(|had| value.amount > had.amount);
        for (place, value) in least.common.iter().enumerate() {
            if value.is_some_and(|value| is_less(self.common[place], &value)) {
                self.common[place] = *value;
            }
        }
        for (name, value) in &least.other {
            if is_less(self.other.get(name).copied(), value) {
                self.other.insert(name.clone(), *value);
            }
        }
    }
}

fn sum(had: Option<Measured>, more: Measured, name: &str) -> Result<Measured, UsageError> {
    match had {
        None => Ok(more),
        Some(had) => had.checked_add(more).ok_or_else(|| UsageError::TooLarge { resource: name.to_string() }),
    }
}

#[cfg(test)]
mod pod_tests;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list(value: Value) -> Resources {
        Resources::read(Some(&value)).unwrap()
    }

    fn shown(resources: &Resources) -> String {
        let parts: Vec<_> = resources.iter().map(|(name, value)| format!("{name}={}", value.to_quantity())).collect();
        parts.join(" ")
    }

    #[test]
    fn entries_are_rounded_up_to_a_thousandth() {
        let read = list(json!({"cpu": "100u", "memory": "1.5Gi", "example.com/gpu": 2, "hugepages-2Mi": null}));
        assert_eq!(shown(&read), "cpu=1m memory=1536Mi example.com/gpu=2 hugepages-2Mi=0");
    }

    #[test]
    fn sums_keep_the_format_of_the_first_that_is_not_zero() {
        let mut sum = list(json!({"memory": "0", "cpu": "1"}));
        sum.add(&list(json!({"memory": "1Gi", "cpu": "500m", "a/b": "1"}))).unwrap();
        sum.add(&list(json!({"memory": "1G"}))).unwrap();
        assert_eq!(shown(&sum), "cpu=1500m memory=2073741824 a/b=1");
    }

    #[test]
    fn raising_takes_the_larger_of_each() {
        let mut most = list(json!({"cpu": "1", "memory": "1Gi"}));
        most.raise_to(&list(json!({"cpu": "2", "memory": "1Mi", "a/b": "3"})));
        assert_eq!(shown(&most), "cpu=2 memory=1Gi a/b=3");
    }

    #[test]
    fn a_sum_beyond_all_bounds_is_an_error() {
        let mut sum = list(json!({"cpu": "9e28"}));
        let more = sum.clone();
        assert_eq!(sum.add(&more), Err(UsageError::TooLarge { resource: "cpu".into() }));
    }

    #[test]
    fn what_is_no_quantity_is_an_error_with_its_text() {
        let error = Resources::read(Some(&json!({"cpu": "much"}))).unwrap_err();
        assert!(error.to_string().starts_with("cpu: \"much\": quantities must match"), "{error}");
        assert!(Resources::read(Some(&json!({"cpu": {}}))).is_err());
    }
}
