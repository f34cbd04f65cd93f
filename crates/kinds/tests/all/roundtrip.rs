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

#[test]
fn json_and_protobuf_of_every_kind_are_one_object() {
    let seed = 20_261_115;
    let output = Command::new(parts::program("roundtrip")).args([seed.to_string(), ROUNDS.to_string()]).output();
    let output = output.expect("roundtrip starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let mut seen = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let &[api_version, kind, wire, json] = &words[..] else { panic!("four words: {line}") };
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let ty = facts().kind(group, version, kind).unwrap_or_else(|| panic!("{api_version} {kind}"));
        let catalogue = &facts().catalogue;
        let read = |format, bytes: &[u8]| {
            let body = body(format, bytes, catalogue, ty).unwrap_or_else(|error| panic!("{kind}: {error}\n{json}"));
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
        seen += 1;
    }
    assert!(seen > 1000, "{seen} objects");
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
