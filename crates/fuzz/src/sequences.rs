//! Patches one after the other on one object, and several managers that apply in turn.

use kinds::apply::{self, Writer};
use kinds::decode::{fit, json};
use kinds::facts;
use kinds::patch::json_patch;
use serde_json::Value;

/// More lines than this say nothing new.
const LINES_MAX: usize = 16;
/// The deepest value a patch may leave: what the API stores at most, and never beyond what a reader reads back.
const DEPTH_MAX: usize = 128;

fn lines(bytes: &[u8]) -> Vec<Value> {
    let read = |line: &[u8]| json(line, None).ok().map(|read| read.value);
    bytes.split(|byte| *byte == b'\n').take(LINES_MAX).filter_map(read).collect()
}

/// The first line is an object, every further one a JSON patch of what came before it.
pub fn check_json_patch(bytes: &[u8]) {
    let mut lines = lines(bytes).into_iter();
    let Some(mut object) = lines.next() else { return };
    for change in lines {
        let Ok(patched) = json_patch(object.clone(), &change) else { continue };
        assert!(depth(&patched) <= DEPTH_MAX, "a patch leaves {} levels", depth(&patched));
        let text = patched.to_string();
        assert_eq!(
            serde_json::from_str::<Value>(&text).ok().as_ref(),
            Some(&patched),
            "what was patched is read again"
        );
        object = patched;
    }
}

/// Every line is a pod's configuration, applied by one of three managers in turn, by force.
pub fn check_apply(bytes: &[u8]) {
    let ty = facts().kind("", "v1", "Pod").expect("a built-in kind");
    let catalogue = &facts().catalogue;
    let mut live: Option<Value> = None;
    for (turn, mut configuration) in lines(bytes).into_iter().enumerate() {
        let Some(fields) = configuration.as_object_mut() else { continue };
        fields.insert("apiVersion".into(), "v1".into());
        fields.insert("kind".into(), "Pod".into());
        let Ok(fitted) = fit(catalogue, ty, configuration) else { continue };
        let mut configuration = fitted.value;
        // In Kubernetes, too, an empty list that is applied makes nothing of a list that loses its last item by it, and an
        // empty list the second time.
        if has_empty_list(&configuration) {
            continue;
        }
        if let Some(metadata) = configuration.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let by = Writer {
            catalogue,
            ty,
            api_version: "v1",
            kind: "Pod",
            manager: ["a", "b", "c"][turn % 3],
            subresource: "",
            now: "2026-01-01T00:00:00Z",
            reset: &["status"],
        };
        // What was applied becomes an object of its kind, as the server makes it one.
        let applied = |live: Option<&Value>, force| {
            let applied = apply::apply(live, &configuration, &by, force).ok()?;
            Some(fit(catalogue, ty, applied).expect("what was applied is of its kind").value)
        };
        let Some(once) = applied(live.as_ref(), true) else { continue };
        assert_eq!(
            applied(Some(&once), false).as_ref(),
            Some(&once),
            "applying twice changes nothing and conflicts with nobody"
        );
        live = Some(once);
    }
}

fn has_empty_list(value: &Value) -> bool {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) if items.is_empty() => return true,
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => open.extend(fields.values()),
            _ => {}
        }
    }
    false
}

/// How many levels a value has; counted without recursion.
fn depth(value: &Value) -> usize {
    let (mut deepest, mut open) = (0, vec![(value, 1)]);
    while let Some((value, level)) = open.pop() {
        deepest = deepest.max(level);
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, level + 1))),
            Value::Object(fields) => open.extend(fields.values().map(|field| (field, level + 1))),
            _ => {}
        }
    }
    deepest
}
