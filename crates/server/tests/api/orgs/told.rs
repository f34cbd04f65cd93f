//! Whether an answer is what the served document says: read from the document alone, and checked by hand.

use http::Method;
use serde_json::{Value, json};
use server::orgs::table::{Lookup, find};

use super::{ENV, done, send, shop};

/// What is wrong with a value, by a schema of the document.
pub fn wrong(document: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let found = document.pointer(name.trim_start_matches('#')).unwrap_or_else(|| panic!("{name} is not there"));
        return wrong(document, found, value, at);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let all: Option<Vec<String>> = any.iter().map(|one| wrong(document, one, value, at)).collect();
        return all.map(|all| all.join(", nor "));
    }
    let is = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fits = |wanted: &Value| wanted == is || (wanted == "number" && is == "integer");
    let typed = match &schema["type"] {
        Value::Null => true,
        Value::Array(types) => types.iter().any(fits),
        one => fits(one),
    };
    if !typed {
        return Some(format!("{at} is of type {is}, not {}", schema["type"]));
    }
    if let Some(fields) = value.as_object() {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                return Some(format!("{at}.{name} is missing"));
            }
        }
        for (name, field) in fields {
            let at = format!("{at}.{name}");
            match schema["properties"].get(name) {
                None if schema["additionalProperties"] == false => return Some(format!("{at} is not told of")),
                None => {}
                Some(schema) => match wrong(document, schema, field, &at) {
                    None => {}
                    wrong => return wrong,
                },
            }
        }
    }
    let items = value.as_array().into_iter().flatten();
    items.into_iter().find_map(|item| wrong(document, &schema["items"], item, &format!("{at}[]")))
}

/// An answer of an endpoint is as the document says.
pub fn check(document: &Value, line: &str, code: u16, value: &Value) {
    let (method, rest) = line.split_once(' ').unwrap();
    let path = rest.split([' ', '?']).next().unwrap();
    let Lookup::Found(found) = find(&Method::from_bytes(method.as_bytes()).unwrap(), path) else { panic!("{line}") };
    let told = &document["paths"][found.endpoint.path][method.to_ascii_lowercase()]["responses"];
    let answer = told.get(code.to_string()).unwrap_or_else(|| panic!("{line}: {code} is not told of"));
    if code == 204 {
        return assert_eq!(*value, Value::Null, "{line}");
    }
    let schema = &answer["content"]["application/json"]["schema"];
    assert_eq!(wrong(document, schema, value, "answer"), None, "{line}: {value}");
}

#[test]
fn the_check_can_fail() {
    let document = json!({"components": {"schemas": {"A": {"type": "object", "required": ["a"],
        "properties": {"a": {"type": ["integer", "null"]}}, "additionalProperties": false}}}});
    let schema = json!({"type": "array", "items": {"$ref": "#/components/schemas/A"}});
    for good in [json!([]), json!([{"a": 1}, {"a": null}])] {
        assert_eq!(wrong(&document, &schema, &good, ""), None);
    }
    for bad in [json!({}), json!([1]), json!([{}]), json!([{"a": "1"}]), json!([{"a": 1.5}]), json!([{"a": 1, "b": 1}])]
    {
        assert!(wrong(&document, &schema, &bad, "").is_some(), "{bad}");
    }
    let either = json!({"anyOf": [{"type": "string"}, {"type": "null"}]});
    assert!(wrong(&document, &either, &json!(1), "").is_some());
}

/// What can be read is as the document says. Commands are checked where all of them are played.
#[tokio::test]
async fn what_is_read_is_what_the_document_tells() {
    let server = shop().await;
    let document = done(&server, "GET /openapi/orgs.json", Value::Null).await;
    done(&server, "POST /v1/orgs/acme/volumes", json!({"size_bytes": 1_i64 << 30})).await;
    done(&server, &format!("POST {ENV}/routes"), json!({"hostname": "shop.example.com"})).await;
    let refused = send(&server, "POST /v1/orgs/acme/volumes", json!({"size_bytes": 1_i64 << 50})).await;
    assert_eq!(refused.value["code"], "quota_exceeded", "{}", refused.text);
    for path in [
        "/v1/events",
        "/v1/views",
        "/v1/nodes",
        "/v1/orgs",
        "/v1/orgs/acme",
        "/v1/orgs/acme/quotas",
        "/v1/orgs/acme/usage",
        "/v1/orgs/acme/events",
        "/v1/orgs/acme/audit",
        "/v1/orgs/acme/apps",
        "/v1/orgs/acme/apps/shop",
        "/v1/orgs/acme/apps/shop/releases",
        "/v1/orgs/acme/apps/shop/envs",
        "/v1/orgs/acme/volumes",
        "/v1/orgs/acme/snapshots",
        "/v1/orgs/acme/restore-jobs",
        "/v1/orgs/acme/instances",
        "/v1/orgs/acme/exec-sessions",
        ENV,
        &format!("{ENV}/status"),
        &format!("{ENV}/deploys"),
        &format!("{ENV}/routes"),
        &format!("{ENV}/volume-attachments"),
    ] {
        let line = format!("GET {path}");
        let answer = send(&server, &line, Value::Null).await;
        check(&document, &line, answer.code.as_u16(), &answer.value);
    }
}
