//! Events have two addresses, `v1` and `events.k8s.io/v1`, and are one object: the fields are the same under other names.
//! Stored is the core form, which kubectl lists; recorders of newer clients write the other.

use serde_json::Value;

/// Name in events.k8s.io/v1, name in v1. All other fields are called the same in both.
const NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

const CORE: &str = "v1";
const NEWER: &str = "events.k8s.io/v1";

/// An event of events.k8s.io/v1 as the core event it is.
pub fn to_core(event: &mut Value) {
    rename(event, NAMES, CORE);
}

/// A core event as events.k8s.io/v1 shows it.
pub fn from_core(event: &mut Value) {
    rename(event, NAMES.map(|(newer, core)| (core, newer)), NEWER);
}

fn rename(event: &mut Value, names: [(&str, &str); 7], api_version: &str) {
    let Value::Object(map) = event else { return };
    for (from, to) in names {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
    map.insert("apiVersion".to_owned(), api_version.into());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decode::fit;
    use crate::facts;

    #[test]
    fn an_event_is_the_same_under_both_addresses() {
        let newer = json!({
            "apiVersion": NEWER, "kind": "Event", "metadata": {"name": "e"},
            "eventTime": "2026-11-15T08:00:00.000001Z", "reportingController": "c", "reportingInstance": "i",
            "action": "Bind", "reason": "Bound", "regarding": {"kind": "Pod", "name": "p"}, "note": "it is bound",
            "type": "Normal", "deprecatedCount": 2, "deprecatedSource": {"component": "c"},
        });
        let mut event = newer.clone();
        to_core(&mut event);
        assert_eq!(event["involvedObject"]["name"], "p");
        assert_eq!(event["message"], "it is bound");
        let core = facts().kind("", "v1", "Event").unwrap();
        let fitted = fit(&facts().catalogue, core, event.clone()).unwrap();
        assert_eq!(fitted.unknown, Vec::<String>::new());
        from_core(&mut event);
        assert_eq!(event, newer);
    }

    #[test]
    fn every_field_that_differs_is_named() {
        let names = |group, version| {
            let ty = facts().kind(group, version, "Event").unwrap();
            let crate::schema::Shape::Object(object) = facts().catalogue.shape(ty) else { panic!("an object") };
            object.fields().iter().map(|field| field.name.to_string()).collect::<Vec<_>>()
        };
        let (core, newer) = (names("", "v1"), names("events.k8s.io", "v1"));
        for name in &newer {
            let renamed = NAMES.iter().find(|(newer, _)| newer == name).map_or(name.as_str(), |(_, core)| core);
            assert!(core.iter().any(|core| core == renamed), "{name}");
        }
        assert_eq!(core.len(), newer.len());
    }
}
