//! `admission.k8s.io/v1` AdmissionReview: the question as a document, and the answer read and checked.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::Request;
use super::matching::Shape;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// Warnings one webhook may attach to one answer, and how long each may be; Kubernetes cuts at the same length.
const WARNINGS_MAX: usize = 32;
const WARNING_CHARS_MAX: usize = 256;

/// What a webhook answered.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub allowed: bool,
    /// The `Status` beside a refusal.
    pub status: Option<Value>,
    /// Operations of a JSON patch.
    pub patch: Option<Value>,
    pub warnings: Vec<String>,
    pub audit_annotations: Option<Map<String, Value>>,
}

/// The request without the objects, as conditions see it.
pub(super) fn describe(request: &Request<'_>, shape: &Shape) -> Value {
    let [group, version, kind] = request.kind;
    let seen = |own: bool, version: &str| match (&shape.version, own) {
        (Some(other), true) => other.to_string(),
        _ => version.to_owned(),
    };
    // A subresource's body is of a kind of its own, which has no other versions.
    let converts = group == &*request.resource.group;
    let kind_as = |shown: bool| json!({"group": group, "version": seen(shown && converts, version), "kind": kind});
    let resource_as = |shown: bool| {
        json!({
            "group": request.resource.group, "version": seen(shown, request.version), "resource": request.resource.resource,
        })
    };
    let mut described = Map::new();
    described.insert("kind".into(), kind_as(true));
    described.insert("resource".into(), resource_as(true));
    described.insert("requestKind".into(), kind_as(false));
    described.insert("requestResource".into(), resource_as(false));
    let texts = [
        ("subResource", request.subresource),
        ("requestSubResource", request.subresource),
        ("name", request.name),
        ("namespace", request.namespace),
    ];
    for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        described.insert(field.into(), text.into());
    }
    described.insert("operation".into(), request.operation.name().into());
    described.insert("userInfo".into(), request.identity.user_info());
    described.insert("dryRun".into(), request.dry_run.into());
    described.insert("options".into(), request.options.clone());
    Value::Object(described)
}

/// The document that is sent. `object` is in the version of `shape` already.
pub(super) fn question(uid: &str, request: &Request<'_>, shape: &Shape, object: &Value) -> Value {
    let mut described = describe(request, shape);
    described["uid"] = uid.into();
    described["object"] = object.clone();
    described["oldObject"] = request.old.map(|old| shape.shown(old).into_owned()).unwrap_or_default();
    json!({"kind": KIND, "apiVersion": API_VERSION, "request": described})
}

/// Reads an answer to the question `uid`. `Err` says what is wrong with it, in Kubernetes' words.
pub(super) fn answer(bytes: &[u8], uid: &str, mutating: bool) -> Result<Answer, String> {
    let mut review: Value = serde_json::from_slice(bytes).map_err(|error| format!("it is not JSON: {error}"))?;
    let Some(Value::Object(mut response)) = review.get_mut("response").map(Value::take) else {
        return Err("webhook response was absent".into());
    };
    let text =
        |map: &Map<String, Value>, field: &str| map.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let given = text(&response, "uid");
    if given != uid {
        return Err(format!("expected response.uid={uid:?}, got {given:?}"));
    }
    let (version, kind) =
        (review["apiVersion"].as_str().unwrap_or_default(), review["kind"].as_str().unwrap_or_default());
    if (version, kind) != (API_VERSION, KIND) {
        return Err(format!("expected webhook response of {API_VERSION}, Kind={KIND}, got {version}, Kind={kind}"));
    }
    let patch = read_patch(&response, mutating)?;
    let warnings = response.get("warnings").and_then(Value::as_array).into_iter().flatten();
    let warnings = warnings.filter_map(Value::as_str).take(WARNINGS_MAX);
    Ok(Answer {
        allowed: response.get("allowed").and_then(Value::as_bool).unwrap_or(false),
        patch,
        warnings: warnings.map(|text| text.chars().take(WARNING_CHARS_MAX).collect()).collect(),
        status: response.remove("status").filter(Value::is_object),
        audit_annotations: match response.remove("auditAnnotations") {
            Some(Value::Object(annotations)) => Some(annotations),
            _ => None,
        },
    })
}

fn read_patch(response: &Map<String, Value>, mutating: bool) -> Result<Option<Value>, String> {
    let patch = response.get("patch").and_then(Value::as_str).filter(|patch| !patch.is_empty());
    let kind = response.get("patchType").and_then(Value::as_str);
    let (patch, kind) = match (patch, kind, mutating) {
        (None, None, _) => return Ok(None),
        (Some(_), _, false) => return Err("validating webhook may not return response.patch".into()),
        (None, Some(_), false) => return Err("validating webhook may not return response.patchType".into()),
        (Some(_), None, true) => return Err("webhook returned response.patch but not response.patchType".into()),
        (None, Some(_), true) => return Err("webhook returned response.patchType but not response.patch".into()),
        (Some(patch), Some(kind), true) => (patch, kind),
    };
    if kind != "JSONPatch" {
        return Err(format!("invalid value of response.patchType: {kind:?}, expected \"JSONPatch\""));
    }
    let bytes = STANDARD.decode(patch).map_err(|error| format!("response.patch is not base64: {error}"))?;
    let patch: Value =
        serde_json::from_slice(&bytes).map_err(|error| format!("response.patch is not JSON: {error}"))?;
    Ok(Some(patch).filter(|patch| patch.as_array().is_none_or(|operations| !operations.is_empty())))
}

/// The `Status` of a refusal: the webhook's own, made to say who refused and never to look like a success.
pub(super) fn denied(name: &str, status: Option<Value>) -> Value {
    let mut status = status.unwrap_or_else(|| json!({}));
    let by = format!("admission webhook {name:?} denied the request");
    let text = |status: &Value, field: &str| status[field].as_str().unwrap_or_default().to_owned();
    let (message, reason) = (text(&status, "message"), text(&status, "reason"));
    let code = status["code"].as_u64().filter(|code| (400..=599).contains(code)).unwrap_or(400);
    status["message"] = match (message.as_str(), reason.as_str()) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    }
    .into();
    status["code"] = code.into();
    status["status"] = "Failure".into();
    status["kind"] = "Status".into();
    status["apiVersion"] = "v1".into();
    if !status["metadata"].is_object() {
        status["metadata"] = json!({});
    }
    status
}
