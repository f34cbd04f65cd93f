//! The review kinds: questions about rights, answered from the same index that decides requests, so `kubectl auth
//! can-i` can never disagree with what happens. Each takes the posted object and returns it with `status` filled.

use serde_json::{Map, Value, json};

use super::{Attributes, Decision, Rbac, Rule};
use crate::identity::Identity;

/// Why a review cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// 422: the field, and what is wrong with it.
    #[error("{field}: Invalid value: {value}: {detail}")]
    Invalid { field: &'static str, value: String, detail: &'static str },
    /// 400.
    #[error("{0}")]
    BadRequest(String),
}

pub fn self_subject_access_review(rbac: &Rbac, identity: &Identity, review: &Value) -> Result<Value, ReviewError> {
    access_review(rbac, identity, review)
}

/// Asks for somebody named in the spec. Groups are taken as given: nothing is added to them.
pub fn subject_access_review(rbac: &Rbac, review: &Value) -> Result<Value, ReviewError> {
    access_review(rbac, &subject_of(review)?, review)
}

/// As [`subject_access_review`], but confined to the namespace of the request.
pub fn local_subject_access_review(rbac: &Rbac, namespace: &str, review: &Value) -> Result<Value, ReviewError> {
    let asked = review["spec"]["resourceAttributes"]["namespace"].as_str().unwrap_or_default();
    if asked != namespace {
        return Err(ReviewError::BadRequest(format!(
            "spec.resourceAttributes.namespace must match namespace: {namespace}"
        )));
    }
    access_review(rbac, &subject_of(review)?, review)
}

/// Everything the caller holds in `spec.namespace`.
pub fn self_subject_rules_review(rbac: &Rbac, identity: &Identity, review: &Value) -> Result<Value, ReviewError> {
    let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(ReviewError::BadRequest("no namespace on request".into()));
    }
    let (rules, missing) = rbac.rules_for(identity, namespace);
    let shown = |keep: fn(&Rule) -> bool| -> Vec<Value> {
        rules.iter().filter(|rule| keep(rule)).map(Rule::to_value).collect()
    };
    let mut status = Map::new();
    status.insert("resourceRules".into(), json!(shown(|rule| !rule.resources.is_empty())));
    status.insert("nonResourceRules".into(), json!(shown(|rule| !rule.non_resource_urls.is_empty())));
    status.insert("incomplete".into(), json!(!missing.is_empty()));
    if !missing.is_empty() {
        status.insert("evaluationError".into(), json!(missing.join(", ")));
    }
    Ok(with_status(review, Value::Object(status)))
}

/// `kubectl auth whoami`.
pub fn self_subject_review(identity: &Identity, review: &Value) -> Value {
    with_status(review, json!({"userInfo": identity.user_info()}))
}

fn access_review(rbac: &Rbac, identity: &Identity, review: &Value) -> Result<Value, ReviewError> {
    let spec = &review["spec"];
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let text = |object: &'_ Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let field = |name| text(resource, name);
    let decision = match (resource.is_object(), path.is_object()) {
        (true, true) => {
            return Err(ReviewError::Invalid {
                field: "spec.nonResourceAttributes",
                value: path.to_string(),
                detail: "cannot specify nonResourceAttributes in combination with resourceAttributes",
            });
        }
        (false, false) => {
            return Err(ReviewError::Invalid {
                field: "spec.resourceAttributes",
                value: resource.to_string(),
                detail: "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            });
        }
        (true, false) => {
            // A question about no resource at all is not a question about a path: it is answered no.
            let resource = match field("resource") {
                empty if empty.is_empty() => "<none>".to_owned(),
                given => given,
            };
            let attributes = Attributes {
                verb: &field("verb"),
                group: &field("group"),
                resource: &resource,
                subresource: &field("subresource"),
                namespace: &field("namespace"),
                name: &field("name"),
                path: "",
            };
            rbac.authorize(identity, &attributes)
        }
        (false, true) => {
            let (verb, path) = (text(path, "verb"), text(path, "path"));
            rbac.authorize(identity, &Attributes { verb: &verb, path: &path, ..Attributes::default() })
        }
    };
    let (allowed, reason) = match decision {
        Decision::Allowed(why) => (true, why.reason()),
        Decision::Denied { reason } => (false, reason),
    };
    let mut status = json!({"allowed": allowed});
    if !reason.is_empty() {
        status["reason"] = json!(reason);
    }
    Ok(with_status(review, status))
}

fn subject_of(review: &Value) -> Result<Identity, ReviewError> {
    let spec = &review["spec"];
    let strings = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
    let identity = Identity {
        user: text("user"),
        uid: text("uid"),
        groups: strings(&spec["groups"]),
        extra: spec["extra"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, list)| (key.clone(), strings(list)))
            .collect(),
    };
    if identity.user.is_empty() && identity.groups.is_empty() {
        return Err(ReviewError::Invalid {
            field: "spec.user",
            value: "\"\"".into(),
            detail: "at least one of user or group must be specified",
        });
    }
    Ok(identity)
}

fn with_status(review: &Value, status: Value) -> Value {
    let mut answer = review.as_object().cloned().unwrap_or_default();
    answer.entry("metadata").or_insert_with(|| json!({}));
    answer.insert("status".into(), status);
    Value::Object(answer)
}
