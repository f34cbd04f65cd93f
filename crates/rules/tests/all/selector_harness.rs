//! What must hold for any selector text. The fuzz target and the bounded tests both call this.

use std::collections::BTreeMap;

use rules::selector::{FieldSelector, LabelSelector};

pub fn check_bytes(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let labels: BTreeMap<String, String> = [("a".into(), "b".into()), ("n".into(), "5".into())].into();
    if let Ok(selector) = LabelSelector::parse(text) {
        let normal = selector.to_string();
        let again = LabelSelector::parse(&normal).unwrap_or_else(|error| panic!("{normal:?}: {error}"));
        assert_eq!(again.to_string(), normal);
        assert_eq!(again.matches(&labels), selector.matches(&labels), "{text:?} and {normal:?}");
    }
    if let Ok(selector) = FieldSelector::parse(text) {
        let look_up = |field: &str| if field == "a" { "b" } else { "" };
        let matched = selector.matches(look_up);
        // Only values have escapes: a field with a backslash cannot be written back, here or upstream.
        if selector.terms().iter().all(|term| !term.field.contains('\\')) {
            let normal = selector.to_string();
            let again = FieldSelector::parse(&normal).unwrap_or_else(|error| panic!("{normal:?}: {error}"));
            assert_eq!(again.matches(look_up), matched, "{text:?} and {normal:?}");
        }
    }
    if let Ok(object) = serde_json::from_str(text) {
        let accepted = LabelSelector::from_object(&object);
        // Validation finds something wrong with whatever cannot be compiled.
        if let (Err(error), Ok(problems)) = (&accepted, rules::selector::problems(&object)) {
            assert!(!problems.is_empty(), "{text:?}: {error}");
        }
    }
}
