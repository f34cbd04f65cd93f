//! How deep and how large the trees are that this project works on.
//!
//! Every tree comes from a reader (JSON, YAML, protobuf), from the store or from a patch, and each of those holds to
//! [`DEPTH_MAX`]. That is what allows every walk over a tree, its clone and its drop to be plain recursion. Defaults are
//! the only thing that grows a tree after it was read; they stop at a [`Room`].

use serde_json::Value;

/// How deep objects and lists may nest, in everything that is read, patched or stored, managedFields included. The deepest
/// built-in kinds, CRD schemas aside, need about 20. Readers in Rust stop at 127 levels, and a list, a watch event, a table
/// or an AdmissionReview puts up to four around an object: what is stored here can be read by everyone.
pub const DEPTH_MAX: usize = 120;

/// How many values one body, and what defaults add to it, may hold. The smallest object with a field takes eight bytes of
/// text and some 650 of memory; this bounds what a body of nothing but those costs. The largest CRDs in use have about
/// half as many.
pub const VALUES_MAX: usize = 200_000;

/// How long a stored object may be as JSON. etcd takes requests of 1.5 MiB, which is the bound that users of Kubernetes
/// know; a row needs a little for itself.
pub const OBJECT_BYTES_MAX: usize = 1_500_000;

/// Whether a tree nests deeper than `levels`. A scalar has no level, an empty list one. Looks no deeper than it has to.
pub fn is_deeper(value: &Value, levels: usize) -> bool {
    let is_below = |child: &Value| is_deeper(child, levels - 1);
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => true,
        Value::Array(items) => items.iter().any(is_below),
        Value::Object(fields) => fields.values().any(is_below),
        _ => false,
    }
}

/// The same for a text that is known to be JSON.
pub fn is_text_deeper(json: &[u8], levels: usize) -> bool {
    // Hardly any object has as many brackets as levels are allowed, and counting them is much quicker than reading.
    if json.iter().filter(|byte| matches!(byte, b'{' | b'[')).count() <= levels {
        return false;
    }
    let (mut depth, mut in_string) = (0_usize, false);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if in_string => {
                bytes.next();
            }
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > levels {
                    return true;
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// About how long a value is as JSON, and of how many values it consists. Counting instead of printing, because the
/// answer may be "too long".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    pub bytes: usize,
    pub values: usize,
}

impl Weight {
    pub fn of(value: &Value) -> Weight {
        let mut weight = Weight::default();
        weight.add(value);
        weight
    }

    fn add(&mut self, value: &Value) {
        self.values += 1;
        self.bytes += match value {
            Value::Null | Value::Bool(_) => 5,
            Value::Number(_) => 8,
            Value::String(text) => text.len() + 2,
            Value::Array(items) => {
                items.iter().for_each(|item| self.add(item));
                items.len() + 2
            }
            Value::Object(fields) => {
                fields.values().for_each(|field| self.add(field));
                fields.keys().map(|name| name.len() + 4).sum::<usize>() + 2
            }
        };
    }
}

/// The room that is left for what defaults add to one object.
#[derive(Debug)]
pub struct Room {
    bytes: usize,
    values: usize,
}

/// Defaults would make an object larger than any may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("with its defaults the object would be larger than {OBJECT_BYTES_MAX} bytes or {VALUES_MAX} values")]
pub struct TooLarge;

impl Default for Room {
    fn default() -> Self {
        Room { bytes: OBJECT_BYTES_MAX, values: VALUES_MAX }
    }
}

impl Room {
    /// Makes room for a field that is about to be added, or says that there is none.
    pub fn take(&mut self, name: &str, value: &Value) -> Result<(), TooLarge> {
        let weight = Weight::of(value);
        self.bytes = self.bytes.checked_sub(weight.bytes + name.len() + 4).ok_or(TooLarge)?;
        self.values = self.values.checked_sub(weight.values).ok_or(TooLarge)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tree_and_text_agree_about_depth() {
        for (value, depth) in [
            (json!(1), 0),
            (json!("[[[\\\"[["), 0),
            (json!([]), 1),
            (json!({"a": []}), 2),
            (json!({"{[\"": [1, {"b": "}"}], "c": {}}), 3),
            (json!([[], [[]], []]), 3),
        ] {
            let text = value.to_string();
            assert!(!is_deeper(&value, depth) && !is_text_deeper(text.as_bytes(), depth), "{text}");
            if let Some(less) = depth.checked_sub(1) {
                assert!(is_deeper(&value, less) && is_text_deeper(text.as_bytes(), less), "{text}");
            }
        }
    }

    #[test]
    fn a_room_is_used_up() {
        let mut room = Room { bytes: 30, values: 3 };
        assert_eq!(room.take("a", &json!("0123456789")), Ok(()));
        assert_eq!(room.take("a", &json!("0123456789")), Err(TooLarge));
        let mut room = Room { bytes: 1000, values: 3 };
        assert_eq!(room.take("a", &json!([1, 2])), Ok(()));
        assert_eq!(room.take("a", &json!(1)), Err(TooLarge));
    }
}
