//! LimitRange: defaults, smallest and largest, by container, pod and volume claim. Without it a quota on compute refuses
//! every pod whose author stated nothing.
//!
//! [`admit`] fills in and refuses; [`defaults`] completes a LimitRange that is being written; [`validate`] checks it.

pub(super) mod check;
mod range;
mod validate;

use std::sync::Arc;

use kinds::fields::{at, text};
use kinds::resources::UsageError;
use rules::GroupResource;
use serde_json::{Map, Value, json};

use crate::{Admission, Operation, Parsed, World};

pub use range::Range;
pub use validate::validate;

/// Says which requests and limits were filled in.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Applies the namespace's LimitRanges to a pod or a volume claim.
pub fn admit(request: &mut Admission<'_>, limit_ranges: &GroupResource, world: &dyn World) -> Result<(), String> {
    let Some(what) = What::of(request) else { return Ok(()) };
    if request.old.is_some_and(|old| at(old, &["metadata", "deletionTimestamp"]).is_some()) {
        return Ok(());
    }
    let ranges = world.parsed(limit_ranges, request.namespace, &|range| -> Parsed { Arc::new(Range::read(range)) });
    let ranges = ranges.iter().filter_map(|made| made.downcast_ref::<Result<Range, UsageError>>());
    let ranges: Vec<&Range> =
        ranges.map(Result::as_ref).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    if what == What::NewPod {
        ranges.iter().for_each(|range| fill_in(request.object, range));
    }
    for range in ranges {
        let wrong = match what {
            What::NewPod | What::ResizedPod => check::pod(range, request.object),
            What::VolumeClaim => check::volume_claim(range, request.object),
        };
        let wrong = wrong.map_err(|error| error.to_string())?;
        if !wrong.is_empty() {
            return Err(aggregate(wrong));
        }
    }
    Ok(())
}

/// The writes that LimitRanges look at. The containers of a pod cannot change otherwise, and a status reports what
/// already happened.
#[derive(Copy, Clone, PartialEq, Eq)]
enum What {
    NewPod,
    ResizedPod,
    VolumeClaim,
}

impl What {
    fn of(request: &Admission<'_>) -> Option<What> {
        if !request.resource.group.is_empty() {
            return None;
        }
        match (&*request.resource.resource, request.subresource, request.operation) {
            ("pods", "", Operation::Create) => Some(What::NewPod),
            ("pods", "resize", Operation::Update) => Some(What::ResizedPod),
            ("persistentvolumeclaims", "", Operation::Create | Operation::Update) => Some(What::VolumeClaim),
            _ => None,
        }
    }
}

/// Several complaints as one, each said once.
fn aggregate(mut complaints: Vec<String>) -> String {
    let mut seen = std::collections::BTreeSet::new();
    complaints.retain(|complaint| seen.insert(complaint.clone()));
    match complaints.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// Gives every container the defaults it does not state, and says so in an annotation.
pub(super) fn fill_in(pod: &mut Value, range: &Range) {
    let Range { requests, limits, .. } = range;
    if requests.is_empty() && limits.is_empty() {
        return;
    }
    let mut done = Vec::new();
    for (list, kind) in [("containers", "container"), ("initContainers", "init container")] {
        let containers = pod.get_mut("spec").and_then(|spec| spec.get_mut(list)).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let name = text(container, &["name"]).to_string();
            for (field, word, defaults) in [("requests", "request", requests), ("limits", "limit", limits)] {
                let set = complete(container, field, defaults);
                if !set.is_empty() {
                    done.push(format!("{} {word} for {kind} {name}", set.join(", ")));
                }
            }
        }
    }
    if !done.is_empty() {
        annotate(pod, format!("LimitRanger plugin set: {}", done.join("; ")));
    }
}

/// The names that were missing in a container's list, now set.
fn complete(container: &mut Value, field: &str, defaults: &Map<String, Value>) -> Vec<String> {
    let known = |name: &str| at(container, &["resources", field, name]).is_some();
    let missing: Vec<String> = defaults.keys().filter(|name| !known(name)).cloned().collect();
    if missing.is_empty() || !container.is_object() {
        return Vec::new();
    }
    let resources = object_in(container, "resources");
    let list = object_in(resources, field);
    for name in &missing {
        list[name] = defaults[name].clone();
    }
    missing
}

/// The object in a field, made where there is none.
fn object_in<'a>(value: &'a mut Value, field: &str) -> &'a mut Value {
    let inner = &mut value[field];
    if !inner.is_object() {
        *inner = json!({});
    }
    inner
}

fn annotate(pod: &mut Value, said: String) {
    let metadata = object_in(pod, "metadata");
    object_in(metadata, "annotations")[ANNOTATION] = Value::String(said);
}

/// Completes a LimitRange as the API server does: a container's default limit is its maximum, its default request is
/// the default limit, else the minimum.
pub fn defaults(range: &mut Value) {
    let limits = range.get_mut("spec").and_then(|spec| spec.get_mut("limits")).and_then(Value::as_array_mut);
    for item in limits.into_iter().flatten().filter(|item| text(item, &["type"]) == "Container") {
        inherit(item, "default", "max");
        inherit(item, "defaultRequest", "default");
        inherit(item, "defaultRequest", "min");
    }
}

fn inherit(item: &mut Value, field: &str, from: &str) {
    let Some(from) = item.get(from).and_then(Value::as_object).filter(|from| !from.is_empty()).cloned() else { return };
    let list = object_in(item, field);
    for (name, value) in from {
        if list.get(&name).is_none() {
            list[name] = value;
        }
    }
}
