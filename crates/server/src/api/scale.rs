//! `/scale`: the number of replicas of anything that has them, in one form for all kinds.

use axum::body::Body;
use http::{Response, StatusCode};
use kinds::apply::ApplyError;
use kinds::decode::Format;
use kinds::field_error::FieldError;
use rules::selector::LabelSelector;
use serde_json::{Value, json};

use super::change::{Change, check_uid, check_version};
use super::managed::Author;
use super::negotiate::{PatchType, patch_type};
use super::options::WriteOptions;
use super::patch::Patch;
use super::prepare::{Expected, check_name, parse};
use super::{Api, ApiError, ApiResult, Call, meta, response};
use crate::registry::Served;

impl Api {
    pub(super) async fn scale(&self, call: Call) -> ApiResult<Response<Body>> {
        let key = call.key();
        if call.info.verb == "get" {
            let stored = self.parts().cache.get(&key).ok_or_else(|| call.not_found())?;
            let scale = scale_of(&call.served, &self.tree(&call.served, &stored)?);
            return Ok(response::value(StatusCode::OK, &scale));
        }
        let patched = call.info.verb == "patch";
        let expected = Expected::subresource(&call)?;
        let how = if patched { Some(patch_type(&call.headers, true)?) } else { None };
        let applies = how == Some(PatchType::Apply);
        let kind = if patched { "PatchOptions" } else { "UpdateOptions" };
        let options = WriteOptions::parse(&call.query, kind, applies)?;
        let author = Author::of(&call, &options);
        let (writer, dry_run) = ((!applies).then_some(&author), options.dry_run);
        let change = Change { call: &call, key: &key, subresource: "scale", dry_run, author: writer };
        let mut warnings = Vec::new();
        let changed = self.change(change, &mut warnings, |old, warnings| {
            let scale = match how {
                None => self.decode(&call, &expected, options.field_validation, warnings)?,
                Some(PatchType::Apply) => {
                    let mut scale = parse(Format::Yaml, &call.body, &expected)?.value;
                    expected.check_kind(&mut scale)?;
                    scale
                }
                Some(how) => {
                    let patch = Patch::read(&call, &expected, how)?;
                    let shown = scale_of(&call.served, old);
                    patch.apply(Some(&shown), &call, &expected, &options, &author, "scale", warnings)?
                }
            };
            check_name(&call, &scale)?;
            check_uid(&key.resource, &key.name, &scale, old)?;
            check_version(&key, &scale, old)?;
            let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
            if replicas < 0 {
                let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
                return Err(ApiError::invalid("autoscaling", "Scale", &key.name, &[error]));
            }
            if applies {
                return apply_replicas(&call, old, replicas, &author, options.force);
            }
            let mut new = old.clone();
            set(&mut new, &paths(&call.served).spec, replicas.into());
            Ok(new)
        });
        let object = changed.await?.ok_or_else(|| call.not_found())?;
        let scale = scale_of(&call.served, &object.value());
        Ok(response::object(StatusCode::OK, scale.to_string(), &warnings))
    }
}

/// Applying a Scale is applying the object it stands for, with nothing but the replicas.
fn apply_replicas(call: &Call, old: &Value, replicas: i64, author: &Author, force: bool) -> ApiResult<Value> {
    let mut applied = json!({
        "apiVersion": call.served.api_version(), "kind": call.served.kind, "metadata": {"name": call.info.name},
    });
    set(&mut applied, &paths(&call.served).spec, replicas.into());
    kinds::apply::apply(Some(old), &applied, &author.writer(call, "scale"), force).map_err(|error| match error {
        ApplyError::Conflict(conflicts) => ApiError::apply_conflict(conflicts.to_string(), conflicts.causes()),
        ApplyError::BadRequest(why) => ApiError::bad_request(why),
    })
}

/// Where a kind keeps what a Scale shows, as JSON pointers.
struct Paths {
    spec: String,
    status: String,
    selector: Option<String>,
}

fn paths(served: &Served) -> Paths {
    let pointer = |path: &str| path.replace('.', "/");
    match served.custom.as_ref().and_then(|custom| custom.scale.as_ref()) {
        Some(scale) => Paths {
            spec: pointer(&scale.spec_replicas),
            status: pointer(&scale.status_replicas),
            selector: scale.label_selector.as_deref().map(pointer),
        },
        None => Paths {
            spec: "/spec/replicas".into(),
            status: "/status/replicas".into(),
            selector: Some("/spec/selector".into()),
        },
    }
}

pub(super) fn scale_of(served: &Served, object: &Value) -> Value {
    let paths = paths(served);
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let selector = paths.selector.as_deref().and_then(|pointer| object.pointer(pointer)).map(selector_text);
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        let text = meta::text(object, field);
        if !text.is_empty() {
            metadata[field] = text.into();
        }
    }
    let mut status = json!({"replicas": number(&paths.status)});
    if let Some(selector) = selector.filter(|text| !text.is_empty()) {
        status["selector"] = selector.into();
    }
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {"replicas": number(&paths.spec)}, "status": status,
    })
}

/// Takes the replicas of a Scale over into the object it stands for.
pub(super) fn set_replicas(served: &Served, object: &mut Value, scale: &Value) {
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    set(object, &paths(served).spec, replicas.into());
}

/// A selector as the text of a query: from a LabelSelector, a plain map, or what is text already.
pub(super) fn selector_text(selector: &Value) -> String {
    match selector {
        Value::String(text) => text.clone(),
        Value::Object(map) if map.contains_key("matchLabels") || map.contains_key("matchExpressions") => {
            LabelSelector::from_object(selector).map(|selector| selector.to_string()).unwrap_or_default()
        }
        Value::Object(map) => {
            let terms: Vec<String> =
                map.iter().filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?))).collect();
            terms.join(",")
        }
        _ => String::new(),
    }
}

/// Sets a value deep in an object, making the objects on the way.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for step in pointer.split('/').filter(|step| !step.is_empty()) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[step];
    }
    *at = value;
}
