//! A LimitRange as it is applied: defaults gathered, bounds read. Every pod that is created asks for it, so it is made
//! once for each stored state of the LimitRange.

use kinds::fields::{items, text};
use kinds::resources::{UsageError, quantity_of};
use quantity::Quantity;
use serde_json::{Map, Value};

#[derive(Debug, Default)]
pub struct Range {
    /// What a container gets where it states nothing, as the LimitRange writes it.
    pub requests: Map<String, Value>,
    pub limits: Map<String, Value>,
    pub items: Vec<Item>,
}

#[derive(Debug)]
pub struct Item {
    pub of: Type,
    pub min: Bounds,
    pub max: Bounds,
    pub ratio: Bounds,
}

/// Bounds in the order of their names.
pub type Bounds = Vec<(Box<str>, Quantity)>;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Type {
    Container,
    Pod,
    VolumeClaim,
}

impl Range {
    /// Items of a type that nobody knows limit nothing.
    pub fn read(range: &Value) -> Result<Range, UsageError> {
        let mut read = Range::default();
        for item in items(range, &["spec", "limits"]) {
            let of = match text(item, &["type"]) {
                "Container" => Type::Container,
                "Pod" => Type::Pod,
                "PersistentVolumeClaim" => Type::VolumeClaim,
                _ => continue,
            };
            if of == Type::Container {
                for (field, defaults) in [("defaultRequest", &mut read.requests), ("default", &mut read.limits)] {
                    for (name, value) in item.get(field).and_then(Value::as_object).into_iter().flatten() {
                        defaults.insert(name.clone(), value.clone());
                    }
                }
            }
            let (min, max) = (bounds(item, "min")?, bounds(item, "max")?);
            read.items.push(Item { of, min, max, ratio: bounds(item, "maxLimitRequestRatio")? });
        }
        Ok(read)
    }
}

fn bounds(item: &Value, field: &str) -> Result<Bounds, UsageError> {
    let list = item.get(field).and_then(Value::as_object).into_iter().flatten();
    list.map(|(name, value)| Ok((name.as_str().into(), quantity_of(name, value)?))).collect()
}
