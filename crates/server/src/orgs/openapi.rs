//! This API as an OpenAPI document, made from the table that requests are routed by.

use std::sync::LazyLock;

use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use super::problem::CONTENT_TYPE;
use super::table::{Action, ENDPOINTS, Endpoint};
use super::{answers, document};

static DOCUMENT: LazyLock<Value> = LazyLock::new(make);

pub fn response() -> Response<Body> {
    document(StatusCode::OK, &DOCUMENT)
}

fn make() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in ENDPOINTS {
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path[endpoint.method.to_ascii_lowercase()] = operation(endpoint);
    }
    let problem = json!({
        "type": "object",
        "required": ["type", "title", "status", "code", "detail", "request_id", "retryable", "retry_after_seconds"],
        "properties": {
            "type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"},
            "code": {"type": "string"}, "detail": {"type": "string"}, "message": {"type": "string"},
            "request_id": {"type": "string"}, "instance": {"type": "string"}, "retryable": {"type": "boolean"},
            "retry_after_seconds": {"type": "integer"}, "details": {},
        },
    });
    let mut schemas = answers::components();
    schemas.insert("Problem".into(), problem);
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Bursar: organizations", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    })
}

fn operation(endpoint: &Endpoint) -> Value {
    let names = endpoint.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = names
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "minLength": 1}}))
        .collect();
    let is_command = matches!(endpoint.action, Action::Run(_));
    if is_command {
        let header = |name: &str| json!({"name": name, "in": "header", "schema": {"type": "string"}});
        parameters.push(header("If-Match"));
        if !endpoint.path.contains("{node}") {
            parameters.push(header("Idempotency-Key"));
        }
        parameters.push(json!({"name": "dry_run", "in": "query", "schema": {"type": "boolean"}}));
    }
    let is_paged = matches!(
        endpoint.action,
        Action::List(_)
            | Action::ListOrgs
            | Action::Events
            | Action::AllEvents
            | Action::Audit
            | Action::AllAudit
            | Action::Views
            | Action::Inventory
    );
    if is_paged {
        parameters.push(json!({"name": "limit", "in": "query", "schema": {"type": "integer"}}));
        parameters.push(json!({"name": "after", "in": "query", "schema": {"type": "string"}}));
    }
    let mut operation = json!({
        "operationId": operation_id(endpoint),
        "summary": endpoint.about,
        "parameters": parameters,
        "responses": responses(endpoint, is_command),
    });
    if !endpoint.fields.is_empty() {
        let properties: Map<String, Value> =
            endpoint.fields.iter().map(|(name, of, _)| ((*name).to_owned(), schema(of))).collect();
        let required: Vec<&str> =
            endpoint.fields.iter().filter(|(.., required)| *required).map(|(name, ..)| *name).collect();
        let mut body = json!({"type": "object", "properties": properties, "additionalProperties": false});
        if !required.is_empty() {
            body["required"] = json!(required);
        }
        operation["requestBody"] =
            json!({"required": !required.is_empty(), "content": {"application/json": {"schema": body}}});
    }
    operation
}

fn schema(of: &str) -> Value {
    match of {
        "any" => json!({}),
        "array" => json!({"type": "array", "items": {}}),
        plain => json!({"type": plain}),
    }
}

fn operation_id(endpoint: &Endpoint) -> String {
    let path = endpoint.path.replace(['/', '{', '}', '-', '.'], "_");
    format!("{}{path}", endpoint.method.to_ascii_lowercase())
}

fn responses(endpoint: &Endpoint, is_command: bool) -> Value {
    let mut responses = Map::new();
    let problem = |about: &str| {
        let schema = json!({"$ref": "#/components/schemas/Problem"});
        json!({"description": about, "content": {CONTENT_TYPE: {"schema": schema}}})
    };
    let schema = answers::schema(endpoint);
    let document = json!({"description": "Done.", "content": {"application/json": {"schema": schema}}});
    match endpoint.action {
        Action::Stream => {
            let stream = json!({"description": "Events as they come.", "content": {"text/event-stream": {"schema": {"type": "string"}}}});
            responses.insert("200".into(), stream);
        }
        Action::Heartbeat => drop(responses.insert("204".into(), json!({"description": "Done."}))),
        _ => drop(responses.insert("200".into(), document.clone())),
    }
    if is_command && matches!(endpoint.method, "POST" | "PUT") {
        responses.insert("201".into(), document);
    }
    if is_command && endpoint.method == "DELETE" {
        responses.insert("204".into(), json!({"description": "Gone."}));
    }
    for (code, about) in [
        ("400", "The request is wrong."),
        ("401", "Nobody knows who asks."),
        ("403", "It is not allowed."),
        ("404", "It is not there."),
        ("405", "Not with this method: `Allow` names those there are."),
        ("408", "The body did not come in time."),
        ("409", "It does not go with the state as it is: `quota_exceeded` and others by `code`."),
        ("413", "The body is too long."),
        ("429", "Too much at once."),
        ("503", "Not now."),
        ("504", "It took too long."),
        ("507", "The store is full."),
    ] {
        responses.insert(code.into(), problem(about));
    }
    Value::Object(responses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_is_described_and_every_description_is_an_endpoint() {
        let document = make();
        let mut described = 0;
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let found = ENDPOINTS.iter().find(|one| one.path == path && one.method.eq_ignore_ascii_case(method));
                let endpoint = found.unwrap_or_else(|| panic!("{method} {path}"));
                let names = path.matches('{').count();
                let given =
                    operation["parameters"].as_array().unwrap().iter().filter(|one| one["in"] == "path").count();
                assert_eq!(names, given, "{path}");
                assert_eq!(operation["summary"], endpoint.about);
                described += 1;
            }
        }
        assert_eq!(described, ENDPOINTS.len());
    }
}
