//! Whether a webhook is concerned with a request: rules, then selectors, then conditions, cheapest first.

use std::borrow::Cow;
use std::sync::Arc;

use rules::GroupResource;
use rules::selector::{LabelSelector, Labels};
use serde_json::Value;

use super::hook::{Hook, Rule, Scope};
use super::{Operation, Refusal, Request, Webhooks, review};
use crate::core::{Object, ObjectKey};
use crate::registry::api_version;

/// In which version a webhook is shown the object: the request's, or another that its rules name.
pub(super) struct Shape {
    /// Set when it is another.
    pub version: Option<Arc<str>>,
    api_version: String,
}

impl Shape {
    fn asked() -> Shape {
        Shape { version: None, api_version: String::new() }
    }

    /// The object in this version. Versions of a custom resource differ in their name only; built-in kinds have one.
    pub fn shown<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        if self.version.is_none() || !object.is_object() {
            return Cow::Borrowed(object);
        }
        let mut object = object.clone();
        object["apiVersion"] = self.api_version.as_str().into();
        Cow::Owned(object)
    }

    /// The reverse.
    pub fn taken_back(&self, mut object: Value, request: &Request<'_>) -> Value {
        if self.version.is_some() && object.is_object() {
            object["apiVersion"] = api_version(&request.resource.group, request.version).into();
        }
        object
    }
}

impl Webhooks {
    /// How a hook is to be shown the object; none when it is not concerned.
    pub(super) fn matches(&self, hook: &Hook, request: &Request<'_>, object: &Value) -> Result<Option<Shape>, Refusal> {
        let Some(shape) = self.matches_rules(hook, request) else { return Ok(None) };
        if !self.matches_namespace(&hook.namespaces, request, object) || !matches_object(&hook.objects, request, object)
        {
            return Ok(None);
        }
        if matches_conditions(hook, request, &shape, object)? { Ok(Some(shape)) } else { Ok(None) }
    }

    fn matches_rules(&self, hook: &Hook, request: &Request<'_>) -> Option<Shape> {
        let rules = || hook.rules.iter().filter(|rule| matches_but_version(rule, request));
        if rules().any(|rule| has(&rule.versions, request.version)) {
            return Some(Shape::asked());
        }
        if !hook.equivalent || rules().next().is_none() {
            return None;
        }
        let snapshot = self.registry.snapshot();
        let versions = snapshot.versions(request.resource);
        let other = rules().find_map(|rule| versions.iter().find(|served| has(&rule.versions, &served.version)))?;
        Some(Shape { version: Some(Arc::clone(&other.version)), api_version: other.api_version() })
    }

    fn matches_namespace(&self, selector: &LabelSelector, request: &Request<'_>, object: &Value) -> bool {
        let is_namespace = request.resource.is("", "namespaces");
        if selector.is_everything() || (request.namespace.is_empty() && !is_namespace) {
            return true;
        }
        // The stored namespace does not yet have the labels that this very request gives it.
        if is_namespace && request.subresource.is_empty() && request.operation != Operation::Delete {
            return selector.matches(&object.pointer("/metadata/labels"));
        }
        let key = ObjectKey::new(GroupResource::core("namespaces"), "", request.namespace);
        selector.matches(&LabelsOf(self.cache.get(&key)))
    }
}

fn matches_but_version(rule: &Rule, request: &Request<'_>) -> bool {
    let scope = match rule.scope {
        Scope::All => true,
        Scope::Cluster => is_cluster_scoped(request),
        Scope::Namespaced => !is_cluster_scoped(request),
    };
    let resource = || {
        rule.resources.iter().any(|(resource, subresource)| {
            (resource == "*" || **resource == *request.resource.resource)
                && (subresource == "*" || subresource == request.subresource)
        })
    };
    scope && has(&rule.operations, request.operation.name()) && has(&rule.groups, &request.resource.group) && resource()
}

/// A Namespace's requests carry its name as their namespace, and it is cluster-scoped all the same.
fn is_cluster_scoped(request: &Request<'_>) -> bool {
    request.namespace.is_empty() || request.resource.is("", "namespaces")
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|one| one == "*" || one == wanted)
}

/// Labels before or after the change: an object cannot get away by losing them.
fn matches_object(selector: &LabelSelector, request: &Request<'_>, object: &Value) -> bool {
    let labels = |object: &Value| selector.matches(&object.pointer("/metadata/labels"));
    selector.is_everything() || (object.is_object() && labels(object)) || request.old.is_some_and(labels)
}

/// All conditions must hold. One that is false settles it, even when others fail; a failure alone is treated like a
/// webhook that cannot be asked.
fn matches_conditions(hook: &Hook, request: &Request<'_>, shape: &Shape, object: &Value) -> Result<bool, Refusal> {
    if hook.conditions.is_empty() {
        return Ok(true);
    }
    let shown = shape.shown(object);
    let old = request.old.map(|old| shape.shown(old)).unwrap_or(Cow::Owned(Value::Null));
    let described = review::describe(request, shape);
    let mut failures = Vec::new();
    for condition in &hook.conditions {
        match condition.eval_bool(&[("object", &shown), ("oldObject", &old), ("request", &described)]) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) => failures.push(format!("expression '{}' resulted in error: {error}", condition.source())),
        }
    }
    match (failures.is_empty(), hook.fails_open) {
        (true, _) => Ok(true),
        (false, true) => {
            tracing::warn!(webhook = hook.name, ?failures, "match conditions failed, the webhook is not asked");
            Ok(false)
        }
        (false, false) if failures.len() == 1 => Err(Refusal::Forbidden(failures.remove(0))),
        (false, false) => Err(Refusal::Forbidden(format!("[{}]", failures.join(", ")))),
    }
}

/// The labels of a stored object, which are kept beside its text.
struct LabelsOf(Option<Arc<Object>>);

impl Labels for LabelsOf {
    fn label(&self, key: &str) -> Option<&str> {
        self.0.as_ref().and_then(|object| object.label(key))
    }
}
