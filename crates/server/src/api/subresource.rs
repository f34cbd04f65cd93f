//! The parts of objects that are read and written by themselves.

use std::collections::HashMap;

use axum::body::Body;
use http::Response;
use kinds::{conditions, time};
use rules::GroupResource;
use serde_json::{Map, Value, json};

use super::admit::Reviewed;
use super::change::Change;
use super::managed::Author;
use super::options::{FieldValidation, WriteOptions};
use super::prepare::Expected;
use super::{Api, ApiError, ApiResult, Call, meta, response};
use crate::admission::Operation;
use crate::core::ObjectKey;
use crate::registry::Served;

impl Api {
    pub(super) async fn subresource(&self, call: Call) -> ApiResult<Response<Body>> {
        let sub = call.subresource()?;
        let verb = call.info.verb.clone();
        if call.info.name.is_empty() || !sub.verbs.contains(&&*verb) {
            return Err(ApiError::method_not_allowed());
        }
        match (&*call.info.subresource, &*verb) {
            ("scale", _) => self.scale(call).await,
            ("token", _) => self.token(call),
            ("binding", _) => {
                let name = call.info.name.clone();
                self.bind(call, &name).await
            }
            ("eviction", _) => self.evict(call).await,
            (_, "get") => self.get(call),
            (name, "update") => self.update_as(&call, &Expected::subresource(&call)?, name).await,
            (name, "patch") => self.patch_as(&call, &Expected::subresource(&call)?, name).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// Puts a pod on a node, as a scheduler does.
    pub(super) async fn bind(&self, call: Call, name: &str) -> ApiResult<Response<Body>> {
        let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
        let mut warnings = Vec::new();
        let expected = match call.subresource() {
            Ok(_) => Expected::subresource(&call)?,
            Err(_) => Expected::main(&call.served),
        };
        let binding = self.decode(&call, &expected, FieldValidation::Ignore, &mut warnings)?;
        check_below(&call, &binding, "Binding")?;
        let name = if name.is_empty() { meta::text(&binding, "name").to_owned() } else { name.to_owned() };
        let bound = ObjectKey::new(GroupResource::core("pods"), &call.info.namespace, &name);
        let reviewed = created_below(&call, &bound, options.dry_run);
        let binding = self.review_body(&reviewed, binding, &mut warnings).await?;
        let name = name.as_str();
        let node = binding.pointer("/target/name").and_then(Value::as_str).unwrap_or_default();
        if node.is_empty() {
            let error = kinds::field_error::FieldError::required("target.name", "");
            return Err(ApiError::invalid("", "Binding", name, &[error]));
        }
        let snapshot = self.parts().registry.snapshot();
        let pods = snapshot.resolve("", "v1", "pods").ok_or_else(ApiError::no_such_path)?.clone();
        let key = ObjectKey::new(pods.resource.clone(), &call.info.namespace, name);
        let author = Author::of(&call, &options);
        let call = Call { served: pods, ..call };
        let dry_run = options.dry_run;
        let change = Change { call: &call, key: &key, subresource: "binding", dry_run, author: Some(&author) };
        let changed = self.change(change, &mut warnings, |old, _| {
            if let Some(taken) = old.pointer("/spec/nodeName").and_then(Value::as_str).filter(|node| !node.is_empty()) {
                let why = format!("pod {name} is already assigned to node {taken:?}");
                return Err(ApiError::conflict(&call.served.resource, name, &why));
            }
            let mut new = old.clone();
            new["spec"]["nodeName"] = node.into();
            schedule(&mut new, &time::text(call.now_ms));
            Ok(new)
        });
        changed.await?.ok_or_else(|| ApiError::not_found(&key.resource, name))?;
        Ok(response::created())
    }
}

/// What is posted below an object is about that object and no other.
pub(super) fn check_below(call: &Call, body: &Value, kind: &str) -> ApiResult<()> {
    let (name, namespace) = (meta::text(body, "name"), meta::text(body, "namespace"));
    if !name.is_empty() && !call.info.name.is_empty() && name != call.info.name {
        return Err(ApiError::bad_request(format!("name in URL does not match name in {kind} object")));
    }
    if !namespace.is_empty() && namespace != call.info.namespace {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(why));
    }
    Ok(())
}

/// A body posted to a subresource, which for webhooks is something created.
pub(super) fn created_below<'a>(call: &'a Call, key: &'a ObjectKey, dry_run: bool) -> Reviewed<'a> {
    let (operation, subresource) = (Operation::Create, &*call.info.subresource);
    Reviewed { call, operation, key, subresource, old: None, delete: None, dry_run }
}

fn schedule(pod: &mut Value, now: &str) {
    let mut condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null});
    let before = conditions::of(pod, "PodScheduled");
    conditions::since(&mut condition, "lastTransitionTime", before, &["status"], now);
    if !pod["status"].is_object() {
        pod["status"] = json!({});
    }
    match pod["status"]["conditions"].as_array_mut() {
        Some(list) => conditions::put(list, condition),
        None => pod["status"]["conditions"] = json!([condition]),
    }
}

/// Lets a write touch only what its endpoint is for.
pub(super) fn isolate(new: &mut Value, old: &Value, served: &Served, subresource: &str) {
    let (Value::Object(new), Value::Object(old)) = (new, old) else { return };
    match subresource {
        "" if served.has_status() => restore(new, old, "status"),
        "status" => {
            let parts: Vec<String> = new.keys().chain(old.keys()).cloned().collect();
            for part in
                parts.iter().filter(|part| !matches!(part.as_str(), "status" | "metadata" | "apiVersion" | "kind"))
            {
                restore(new, old, part);
            }
            if served.custom.is_some() {
                restore(new, old, "metadata");
            }
            // Who owns a pod is not what happened to it.
            if served.resource.is("", "pods") {
                restore_metadata(new, old, "ownerReferences");
                keep_class(new, old);
            }
            if served.resource.is("", "namespaces") {
                restore_metadata(new, old, "labels");
            }
        }
        "finalize" => {
            let finalizers = new.get("spec").and_then(|spec| spec.get("finalizers")).cloned();
            restore(new, old, "status");
            restore(new, old, "spec");
            // By its labels a namespace is found by policies. Who may end it, or tell how it is, may not move it.
            restore_metadata(new, old, "labels");
            if let Some(spec) = new.entry("spec").or_insert_with(|| json!({})).as_object_mut() {
                match finalizers {
                    Some(finalizers) => spec.insert("finalizers".into(), finalizers),
                    None => spec.remove("finalizers"),
                };
            }
        }
        "ephemeralcontainers" => {
            let containers = new.get("spec").and_then(|spec| spec.get("ephemeralContainers")).cloned();
            restore_all(new, old);
            if let (Some(containers), Some(spec)) = (containers, new.get_mut("spec").and_then(Value::as_object_mut)) {
                spec.insert("ephemeralContainers".into(), containers);
            }
        }
        "resize" => {
            let asked = new.get("spec").cloned().unwrap_or_default();
            restore_all(new, old);
            if let Some(spec) = new.get_mut("spec") {
                resize(spec, &asked);
            }
        }
        _ => {}
    }
}

fn restore(new: &mut Map<String, Value>, old: &Map<String, Value>, part: &str) {
    match old.get(part) {
        Some(value) => new.insert(part.to_owned(), value.clone()),
        None => new.remove(part),
    };
}

fn restore_metadata(new: &mut Map<String, Value>, old: &Map<String, Value>, field: &str) {
    let Some(Value::Object(metadata)) = new.get_mut("metadata") else { return };
    match old.get("metadata").and_then(|old| old.get(field)) {
        Some(value) => metadata.insert(field.to_owned(), value.clone()),
        None => metadata.remove(field),
    };
}

/// A status that does not speak of the pod's class of service leaves it as it is.
fn keep_class(new: &mut Map<String, Value>, old: &Map<String, Value>) {
    let class = old.get("status").and_then(|status| status.get("qosClass")).filter(|class| !class.is_null());
    let status = new.entry("status").or_insert_with(|| json!({}));
    if let (Some(class), Value::Object(status)) = (class, status)
        && status.get("qosClass").and_then(Value::as_str).unwrap_or_default().is_empty()
    {
        status.insert("qosClass".into(), class.clone());
    }
}

fn restore_all(new: &mut Map<String, Value>, old: &Map<String, Value>) {
    *new = old.clone();
}

/// Takes resources and resize policies over, container by container.
fn resize(spec: &mut Value, asked: &Value) {
    for list in ["containers", "initContainers"] {
        let Some(containers) = spec.get_mut(list).and_then(Value::as_array_mut) else { continue };
        let wanted = asked.get(list).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let name = |one: &Value| one.get("name").and_then(Value::as_str).map(str::to_owned);
        let wanted: HashMap<_, _> = wanted.iter().rev().map(|one| (name(one), one)).collect();
        for container in containers.iter_mut() {
            let Some(source) = wanted.get(&name(container)) else { continue };
            let Some(container) = container.as_object_mut() else { continue };
            for field in ["resources", "resizePolicy"] {
                if let Some(value) = source.get(field) {
                    container.insert(field.into(), value.clone());
                }
            }
        }
    }
    if let (Some(resources), Some(spec)) = (asked.get("resources"), spec.as_object_mut()) {
        spec.insert("resources".into(), resources.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resize_touches_resources_and_nothing_else() {
        let mut spec =
            json!({"nodeName": "n", "containers": [{"name": "a", "image": "i", "resources": {}}, {"name": "b"}]});
        let asked = json!({"nodeName": "m", "containers": [{"name": "a", "image": "j", "resources": {"requests": {"cpu": "1"}}}]});
        resize(&mut spec, &asked);
        let expected = json!({"nodeName": "n", "containers": [
            {"name": "a", "image": "i", "resources": {"requests": {"cpu": "1"}}}, {"name": "b"},
        ]});
        assert_eq!(spec, expected);
    }
}
