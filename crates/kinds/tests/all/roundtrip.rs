//! Kubernetes' own encoders are the oracle: objects of every kind, filled at random, must read the same from JSON and from
//! protobuf, and what Go wrote must already be in the form we bring objects into.

use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kinds::decode::{Format, body};
use kinds::facts;
use serde_json::Value;

use crate::parts;

/// Objects of each kind. With 10, every field of every kind is filled in some of them; the run takes about a second.
const ROUNDS: u32 = 10;

/// One object as Go encodes it.
pub struct Encoding {
    pub api_version: String,
    pub kind: String,
    /// Where in the facts the kind stands.
    pub kind_index: usize,
    /// Protobuf, in base64.
    pub wire: String,
    pub json: String,
}

/// So many random objects of every kind.
pub fn encodings(seed: u32, rounds: u32) -> Vec<Encoding> {
    let output = Command::new(parts::program("roundtrip")).args([seed.to_string(), rounds.to_string()]).output();
    let output = output.expect("roundtrip starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines()
        .map(|line| {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            let &[api_version, kind, wire, json] = &words[..] else { panic!("four words: {line}") };
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let known = facts().kinds().iter().position(|k| (k.group, k.version, k.kind) == (group, version, kind));
            let kind_index = known.unwrap_or_else(|| panic!("{api_version} {kind}"));
            let (api_version, kind, wire, json) = (api_version.into(), kind.into(), wire.into(), json.into());
            Encoding { api_version, kind, kind_index, wire, json }
        })
        .collect()
}

#[test]
fn json_and_protobuf_of_every_kind_are_one_object() {
    let encodings = encodings(20_261_115, ROUNDS);
    assert!(encodings.len() > 1000, "{} objects", encodings.len());
    for Encoding { api_version, kind, kind_index, wire, json } in &encodings {
        let ty = facts().kinds()[*kind_index].ty;
        let read = |format, bytes: &[u8]| {
            let body = body(format, bytes, &facts().catalogue, ty);
            let body = body.unwrap_or_else(|error| panic!("{kind}: {error}\n{json}"));
            assert_eq!(body.problems, Vec::<String>::new(), "{kind}\n{json}");
            body.value
        };
        let from_json = read(Format::Json, json.as_bytes());
        let from_wire = read(Format::Protobuf, &STANDARD.decode(wire).expect("base64"));
        same(api_version, kind, "JSON and protobuf", &from_json, &from_wire);
        let mut written: Value = serde_json::from_str(json).expect("JSON");
        drop_nulls(&mut written);
        let mut ours = from_json;
        drop_nulls(&mut ours);
        same(api_version, kind, "Go's own form and ours", &written, &ours);
    }
}

/// Go writes null where it means absence; inside of raw JSON the same nulls are dropped on both sides.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, child| !child.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn same(api_version: &str, kind: &str, what: &str, left: &Value, right: &Value) {
    let mut found = Vec::new();
    compare("", left, right, &mut found);
    assert!(found.is_empty(), "{what} differ for {api_version} {kind}:\n{}", found.join("\n"));
}

fn compare(path: &str, left: &Value, right: &Value, found: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                let (a, b) = (a.get(key), b.get(key));
                match (a, b) {
                    (Some(a), Some(b)) => compare(&format!("{path}.{key}"), a, b, found),
                    _ => found.push(format!("{path}.{key}: {a:?} and {b:?}")),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}[{index}]"), a, b, found);
            }
        }
        _ if left != right => found.push(format!("{path}: {left} and {right}")),
        _ => {}
    }
}
