//! What must hold for any path text: it compiles or is refused, and answers within its bounds, the same twice. The fuzz
//! target and the bounded tests both call this.

use rules::jsonpath::{JsonPath, MissingKeys, RESULTS_MAX, text, usage};
use serde_json::json;

pub fn check_bytes(bytes: &[u8]) {
    let Ok(source) = std::str::from_utf8(bytes) else { return };
    let Ok(path) = JsonPath::compile(source) else { return };
    let object = json!({
        "metadata": {"name": "web", "labels": {"app.kubernetes.io/name": "web"}},
        "spec": {"replicas": 3, "items": [[1, 2], [3], []], "none": null, "float": 1.5,
                 "containers": [{"name": "a", "cpu": "100m"}, {"name": "b", "cpu": "2"}]},
    });
    for missing in [MissingKeys::Allow, MissingKeys::Refuse] {
        let found = path.find(&object, missing);
        assert_eq!(found, path.find(&object, missing), "{source:?}");
        if let Ok(found) = found {
            assert!(found.len() <= RESULTS_MAX);
            assert!(text(&found).is_some());
            let _ = usage(&found);
        }
    }
}
