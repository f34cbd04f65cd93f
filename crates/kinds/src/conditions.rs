//! Conditions of a status: a list with one entry a type, each with the time since when it has said what it says.

use serde_json::{Value, json};

/// What Kubernetes calls a transition: that the condition holds, or does not any more.
pub const TRANSITION: &[&str] = &["status"];
/// Anything a condition says.
pub const NEWS: &[&str] = &["status", "reason", "message"];

/// A condition that has no time yet ([`since`]).
pub fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message})
}

/// The condition of a type in a list of conditions; none where there is no list.
pub fn find<'a>(conditions: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions.as_array()?.iter().find(|one| one["type"] == kind)
}

/// The condition of a type in the status of an object.
pub fn of<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    find(object.get("status")?.get("conditions")?, kind)
}

/// Whether a condition is in a list of conditions, and true.
pub fn holds(conditions: &Value, kind: &str) -> bool {
    find(conditions, kind).is_some_and(|one| one["status"] == "True")
}

/// Gives a condition its time: the one it had before where all of `same` is what it was, else now.
pub fn since(condition: &mut Value, time_field: &str, before: Option<&Value>, same: &[&str], now: &str) {
    let kept = before.filter(|before| same.iter().all(|field| before[*field] == condition[*field]));
    let since = kept.and_then(|before| before[time_field].as_str()).unwrap_or(now);
    condition[time_field] = since.into();
}

/// Puts a condition in its place in a list, beside those of other types.
pub fn put(conditions: &mut Vec<Value>, condition: Value) {
    match conditions.iter_mut().find(|one| one["type"] == condition["type"]) {
        Some(place) => *place = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_moves_when_what_is_looked_at_does() {
        let before =
            json!({"type": "Ready", "status": "True", "reason": "A", "message": "m", "lastTransitionTime": "t0"});
        let stamped = |reason: &str, before: Option<&Value>, same: &[&str]| {
            let mut now = condition("Ready", "True", reason, "m");
            since(&mut now, "lastTransitionTime", before, same, "t1");
            now["lastTransitionTime"].as_str().unwrap().to_owned()
        };
        assert_eq!(stamped("A", Some(&before), NEWS), "t0");
        assert_eq!(stamped("B", Some(&before), NEWS), "t1");
        assert_eq!(stamped("B", Some(&before), TRANSITION), "t0");
        assert_eq!(stamped("A", None, TRANSITION), "t1");
        let timeless = json!({"type": "Ready", "status": "True"});
        assert_eq!(stamped("A", Some(&timeless), TRANSITION), "t1");
    }

    #[test]
    fn a_condition_has_one_place_in_its_list() {
        let mut list = vec![condition("A", "True", "", ""), condition("B", "True", "", "")];
        put(&mut list, condition("A", "False", "", ""));
        put(&mut list, condition("C", "True", "", ""));
        let list = Value::Array(list);
        let shown: Vec<String> = ["A", "B", "C", "D"].iter().map(|kind| holds(&list, kind).to_string()).collect();
        assert_eq!(shown.join(" "), "false true true false");
        assert_eq!((list.as_array().unwrap().len(), &list[0]["type"]), (3, &json!("A")));
        let object = json!({"status": {"conditions": list}});
        assert!(of(&object, "B").is_some() && of(&object, "D").is_none());
        for odd in [json!(null), json!({"status": []}), json!({"status": {"conditions": {"type": "A"}}})] {
            assert!(of(&odd, "A").is_none(), "{odd}");
        }
    }
}
