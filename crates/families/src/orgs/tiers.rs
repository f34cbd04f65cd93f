//! Tiers: what an organization gets by the name of its tier. Three are built in; a file says otherwise.

use serde_json::{Value, json};

const GIB: i64 = 1 << 30;

/// The tiers an operator starts with, by name.
pub fn built_in() -> Vec<(String, Value)> {
    let tier = |numbers: [i64; 17], event_mib: i64| {
        let limits: serde_json::Map<String, Value> = super::Dimension::ALL
            .into_iter()
            .zip(numbers)
            .map(|(dimension, number)| (dimension.name().to_owned(), json!(number)))
            .collect();
        json!({"limits": limits, "surge_policy": "drain_first", "event_bytes_per_hour": event_mib << 20})
    };
    vec![
        ("free".into(), tier([5, 4 * GIB, 5, 6, 3, 5, 2, 0, 5, 2, 10 * GIB, 2, 1, 1, 2, 1, 20], 16)),
        (
            "standard".into(),
            tier([50, 64 * GIB, 100, 100, 20, 50, 20, 5, 50, 20, 500 * GIB, 50, 1, 2, 20, 10, 100], 128),
        ),
        (
            "scale".into(),
            tier(
                [500, 1024 * GIB, 1000, 1000, 200, 500, 200, 50, 500, 200, 10 * 1024 * GIB, 500, 2, 10, 100, 50, 1000],
                1024,
            ),
        ),
    ]
}

/// The tiers of a file: `tiers`, by name, each with its `limits`. All of them are read before any is taken.
pub fn read_file(document: &Value) -> Result<Vec<(String, Value)>, String> {
    let tiers = document.get("tiers").and_then(Value::as_object);
    let tiers = tiers.ok_or("the file has no \"tiers\": name each tier under it, with its limits")?;
    if tiers.is_empty() || tiers.len() > TIERS_MAX {
        return Err(format!("there are {} tiers: there may be 1 to {TIERS_MAX}", tiers.len()));
    }
    let mut read = Vec::with_capacity(tiers.len());
    for (name, spec) in tiers {
        if !is_name(name) {
            return Err(format!("{name:?} is no name of a tier: use lower-case letters, digits and dashes"));
        }
        super::limits::Tier::read(spec)
            .map_err(|errors| format!("tier {name:?}: {}", kinds::field_error::join(&errors)))?;
        read.push((name.clone(), spec.clone()));
    }
    Ok(read)
}

/// More are kept apart by nobody.
pub const TIERS_MAX: usize = 64;

/// A DNS label.
pub fn is_name(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.len() <= 63 && text.chars().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_in_can_be_read() {
        for (name, spec) in built_in() {
            super::super::limits::Tier::read(&spec).unwrap_or_else(|errors| panic!("{name}: {errors:?}"));
        }
    }

    #[test]
    fn a_file_is_taken_whole_or_not_at_all() {
        let one = built_in().remove(0).1;
        let file = json!({"tiers": {"small": one.clone(), "large": one.clone()}});
        assert_eq!(read_file(&file).unwrap().len(), 2);
        let mut broken = one.clone();
        broken["limits"]["max_apps"] = json!(-3);
        let error = read_file(&json!({"tiers": {"small": one.clone(), "large": broken}})).unwrap_err();
        assert!(error.contains("tier \"large\"") && error.contains("max_apps"), "{error}");
        for wrong in [json!(null), json!({}), json!({"tiers": {}}), json!({"tiers": {"A b": one}})] {
            assert!(read_file(&wrong).is_err(), "{wrong}");
        }
    }
}
