//! What an object says beside what it is to say.

use serde_json::{Map, Value};

/// The merge patch that makes of what is there what is wanted and nothing beside it; `None` where that is so. A field that is null is not
/// there.
pub fn difference(there: &Value, wanted: &Value) -> Option<Value> {
    let (Value::Object(had), Value::Object(wanted)) = (there, wanted) else {
        return (!is_same(there, wanted)).then(|| wanted.clone());
    };
    let mut patch = Map::new();
    for (field, value) in wanted {
        let less = difference(had.get(field).unwrap_or(&Value::Null), value);
        patch.extend(less.map(|less| (field.clone(), less)));
    }
    for (field, _) in had.iter().filter(|(field, value)| !wanted.contains_key(*field) && !value.is_null()) {
        patch.insert(field.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let said = |fields: &Map<String, Value>| fields.values().filter(|value| !value.is_null()).count();
            let of = |field: &str| other.get(field).unwrap_or(&Value::Null);
            said(one) == said(other) && one.iter().all(|(field, value)| is_same(value, of(field)))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (one, other) => one == other,
    }
}

/// Whether what is there says all that is wanted, and perhaps more.
pub fn covers(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => {
            wanted.iter().all(|(field, value)| there.get(field).map_or(value.is_null(), |there| covers(there, value)))
        }
        (Value::Array(there), Value::Array(wanted)) => {
            there.len() == wanted.len() && there.iter().zip(wanted).all(|(there, wanted)| covers(there, wanted))
        }
        (there, wanted) => there == wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_wanted_any_more_is_taken_out() {
        for (there, wanted, patch) in [
            (json!({"a": 1}), json!({"a": 1}), Value::Null),
            (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": 1}}), json!({"a": {"c": null}})),
            (json!({"a": {"b": 1}}), json!({"a": {"b": 1, "c": 2}}), json!({"a": {"c": 2}})),
            (json!({"a": {"b": 1}}), json!({"a": {}}), json!({"a": {"b": null}})),
            (json!({"a": {"b": 1}}), json!({"a": null}), json!({"a": null})),
            (json!({}), json!({"a": null}), Value::Null),
            (json!({"a": null}), json!({}), Value::Null),
            (json!({"a": [{"b": 1, "c": 2}]}), json!({"a": [{"b": 1}]}), json!({"a": [{"b": 1}]})),
            (json!({"a": [{"b": 1}]}), json!({"a": [{"b": 1, "c": null}]}), Value::Null),
            (json!({"a": [1]}), json!({"a": [1, 2]}), json!({"a": [1, 2]})),
            (json!({"a": 1}), json!({"a": {"b": 1}}), json!({"a": {"b": 1}})),
        ] {
            assert_eq!(difference(&there, &wanted).unwrap_or_default(), patch, "{there} {wanted}");
        }
    }
}
