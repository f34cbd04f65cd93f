//! What may be written in bindings, policies and clusters beyond their schema.

use std::collections::BTreeSet;

use kinds::field_error::{FieldError, Path};
use kinds::fields::{at, items, text};
use kinds::resources::quantity_of;
use rules::selector::LabelSelector;
use serde_json::{Map, Value};

use super::POLICIES;
use super::binding::{BindingSpec, PURGE_MODES, Requirements, usage};
use super::policy::SELECTORS_MAX;
use super::quota::cluster_name;
use crate::{Admission, World};

const DEPENDENCIES: &str = "resourcebinding.karmada.io/dependencies";
/// How long each part of a policy may be, as JSON, that every binding under it has a copy of; of `placement` it has two, and annotations
/// have no more room than 256 KiB.
const COPIED_BYTES_MAX: usize = 64 << 10;
const COPIED: [&str; 3] = ["placement", "failover", "suspension"];

/// A binding that is stored can be counted: no amount below zero, nothing that overflows, no cluster twice. It is for a template of
/// its own namespace: whoever may write here has no say in what others run.
pub fn binding(object: &Value, old: Option<&Value>, namespace: &str) -> Vec<FieldError> {
    let spec_path = Path::new("spec");
    let spec = match BindingSpec::read(object) {
        Ok(spec) => spec,
        Err(why) => return vec![FieldError::invalid(spec_path, Value::Null, why)],
    };
    let mut errors = copied(object, old);
    let dependencies = text(object, &["metadata", "annotations", DEPENDENCIES]);
    if !dependencies.is_empty() && serde_json::from_str::<Value>(dependencies).is_err() {
        let path = Path::new("metadata");
        let path = path.child("annotations");
        errors.push(FieldError::invalid(path.key(DEPENDENCIES), dependencies, "annotation value must be a valid JSON"));
    }
    let of = &spec.resource.namespace;
    if !of.is_empty() && of != namespace {
        let resource = spec_path.child("resource");
        let why = "a ResourceBinding is for a template of its own namespace";
        errors.push(FieldError::invalid(resource.child("namespace"), &**of, why));
    }
    requests(spec.replica_requirements.as_ref(), &spec_path.child("replicaRequirements"), &mut errors);
    let components = spec_path.child("components");
    let mut names = BTreeSet::new();
    for (place, component) in spec.components.iter().enumerate() {
        let at = components.index(place);
        let why = match (component.name.is_empty(), names.insert(&*component.name)) {
            (true, _) => Some("component names must be non-empty"),
            (false, false) => Some("component names must be unique"),
            (false, true) => None,
        };
        errors.extend(why.map(|why| FieldError::invalid(at.child("name"), &*component.name, why)));
        requests(component.replica_requirements.as_ref(), &at.child("replicaRequirements"), &mut errors);
    }
    let clusters = spec_path.child("clusters");
    let mut seen = BTreeSet::new();
    for (place, target) in spec.clusters.iter().enumerate() {
        let at = clusters.index(place);
        errors.extend(cluster_name(&target.name, &at.child("name")));
        if !seen.insert(&*target.name) {
            errors.push(FieldError::duplicate(at.child("name"), &*target.name));
        }
        let own = at.child("components");
        let mut once = BTreeSet::new();
        for (place, component) in target.components.iter().enumerate() {
            let at = own.index(place);
            if !names.contains(&*component.name) {
                errors.push(FieldError::not_found(at.child("name"), &*component.name));
            }
            if !once.insert(&*component.name) {
                errors.push(FieldError::duplicate(at.child("name"), &*component.name));
            }
        }
    }
    let tasks = spec_path.child("gracefulEvictionTasks");
    let mut seen = BTreeSet::new();
    for (place, task) in spec.graceful_eviction_tasks.iter().enumerate() {
        let at = tasks.index(place);
        errors.extend(cluster_name(&task.from_cluster, &at.child("fromCluster")));
        if !seen.insert(&*task.from_cluster) {
            errors.push(FieldError::duplicate(at.child("fromCluster"), &*task.from_cluster));
        }
    }
    if errors.is_empty()
        && let Err(error) = usage(&spec, true)
    {
        errors.push(FieldError::invalid(spec_path, Value::Null, format!("more than can be counted: {error}")));
    }
    errors
}

/// What is copied many times has a bound. What was stored before there was one stays as it is.
fn copied(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = Path::new("spec");
    let part = |of: &Value, field: &str| at(of, &["spec", field]).cloned();
    let is_long = |field: &&str| {
        let (is, was) = (part(object, field), old.and_then(|old| part(old, field)));
        is != was && is.is_some_and(|is| is.to_string().len() > COPIED_BYTES_MAX)
    };
    let long = COPIED.into_iter().filter(is_long);
    long.map(|field| FieldError::too_long(spec.child(field), COPIED_BYTES_MAX)).collect()
}

fn requests(requirements: Option<&Requirements>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let nothing = Map::new();
    let list = requirements.map_or(&nothing, |one| &one.resource_request);
    let path = path.child("resourceRequest");
    for (name, value) in list {
        match quantity_of(name, value) {
            Ok(quantity) if quantity.amount().is_negative() => {
                errors.push(FieldError::invalid(path.key(name), value.clone(), "must be greater than or equal to 0"));
            }
            Ok(_) => {}
            Err(error) => errors.push(FieldError::invalid(path.key(name), value.clone(), error.to_string())),
        }
    }
}

/// A policy selects objects of its own namespace.
pub fn propagation_policy(request: &Admission<'_>, world: &dyn World) -> Vec<FieldError> {
    let mut errors = copied(request.object, request.old);
    let spec = Path::new("spec");
    let selectors = spec.child("resourceSelectors");
    let count = |policy: &Value| items(policy, &["spec", "resourceSelectors"]).len();
    let stored = world.list(&POLICIES.resource(), request.namespace);
    let others = stored.iter().filter(|one| text(one, &["metadata", "name"]) != request.name).map(|one| count(one));
    let (own, had) = (count(request.object), request.old.map_or(0, count));
    let all = others.sum::<usize>().saturating_add(own);
    if own > had && all > SELECTORS_MAX {
        let why = format!(
            "the policies of the namespace {} would have {all} selectors together, and may have {SELECTORS_MAX}: select by \
             label, or take out those that nothing needs",
            request.namespace
        );
        errors.push(FieldError::forbidden(spec.child("resourceSelectors"), why));
    }
    for (place, selector) in items(request.object, &["spec", "resourceSelectors"]).iter().enumerate() {
        let at_one = selectors.index(place);
        let namespace = text(selector, &["namespace"]);
        if !namespace.is_empty() && namespace != request.namespace {
            let why = "a PropagationPolicy selects objects of its own namespace only";
            errors.push(FieldError::invalid(at_one.child("namespace"), namespace, why));
        }
        label_selector(selector.get("labelSelector"), &at_one.child("labelSelector"), &mut errors);
    }
    let placement = spec.child("placement");
    let affinity = placement.child("clusterAffinity");
    let written = at(request.object, &["spec", "placement", "clusterAffinity", "labelSelector"]);
    label_selector(written, &affinity.child("labelSelector"), &mut errors);
    let (list, in_turn) = (placement.child("clusterAffinities"), ["spec", "placement", "clusterAffinities"]);
    let mut named = BTreeSet::new();
    for (place, one) in items(request.object, &in_turn).iter().enumerate() {
        let at_one = list.index(place);
        let name = text(one, &["affinityName"]);
        if name.is_empty() {
            errors.push(FieldError::required(
                at_one.child("affinityName"),
                "affinities that are tried in turn have names",
            ));
        } else if !named.insert(name) {
            errors.push(FieldError::duplicate(at_one.child("affinityName"), name));
        }
        label_selector(one.get("labelSelector"), &at_one.child("labelSelector"), &mut errors);
    }
    let is_alone = at(request.object, &["spec", "placement", "clusterAffinity"]).is_some_and(|one| !one.is_null());
    if is_alone && !named.is_empty() {
        errors.push(FieldError::forbidden(list, "clusterAffinities cannot co-exist with clusterAffinity"));
    }
    let scheduling = placement.child("replicaScheduling");
    let known: [(&str, &[&str]); 2] = [
        ("replicaSchedulingType", &["Divided", "Duplicated"]),
        ("replicaDivisionPreference", &["Aggregated", "Weighted"]),
    ];
    for (field, supported) in known {
        let word = text(request.object, &["spec", "placement", "replicaScheduling", field]);
        if !word.is_empty() && !supported.contains(&word) {
            errors.push(FieldError::not_supported(scheduling.child(field), word, supported));
        }
    }
    for part in ["cluster", "application"] {
        let mode = at(request.object, &["spec", "failover", part, "purgeMode"]).filter(|mode| !mode.is_null());
        if let Some(mode) =
            mode.filter(|mode| mode.as_str().is_none_or(|mode| !mode.is_empty() && !PURGE_MODES.contains(&mode)))
        {
            let failover = spec.child("failover");
            let of = failover.child(part);
            errors.push(FieldError::not_supported(of.child("purgeMode"), mode.clone(), &PURGE_MODES));
        }
    }
    let application = ["spec", "failover", "application"];
    if let Some(wish) = at(request.object, &application).filter(|one| !one.is_null()) {
        let failover = spec.child("failover");
        let path = failover.child("application");
        for field in [&["decisionConditions", "tolerationSeconds"][..], &["gracePeriodSeconds"]] {
            let value = at(wish, field).filter(|one| !one.is_null());
            if let Some(value) =
                value.filter(|one| one.as_i64().is_none_or(|one| !(0..=i64::from(i32::MAX)).contains(&one)))
            {
                let why = "must be a whole number of seconds";
                errors.push(FieldError::invalid(format!("{path}.{}", field.join(".")), value.clone(), why));
            }
        }
    }
    let spread = placement.child("spreadConstraints");
    for (place, constraint) in items(request.object, &["spec", "placement", "spreadConstraints"]).iter().enumerate() {
        let field = text(constraint, &["spreadByField"]);
        if !matches!(field, "" | "cluster") {
            let at = spread.index(place);
            errors.push(FieldError::not_supported(at.child("spreadByField"), field, &["cluster"]));
        }
    }
    let preference = scheduling.child("weightPreference");
    let weights_path = preference.child("staticWeightList");
    let weights =
        items(request.object, &["spec", "placement", "replicaScheduling", "weightPreference", "staticWeightList"]);
    for (place, weight) in weights.iter().enumerate() {
        let value = weight.get("weight").and_then(Value::as_i64).unwrap_or(0);
        if !(1..=i64::from(i32::MAX)).contains(&value) {
            let at = weights_path.index(place);
            errors.push(FieldError::invalid(at.child("weight"), value, "must be a whole number above 0"));
        }
    }
    errors
}

/// What a policy says and nobody heeds here.
pub fn unheeded(policy: &Value) -> Vec<String> {
    let said = |path: &[&str]| at(policy, path).filter(|one| !one.is_null());
    let mut warnings = Vec::new();
    let mut warn = |is_said: bool, field: &str, what: &str| {
        if is_said {
            warnings.push(format!("spec.{field} has no effect: {what}"));
        }
    };
    let preserves = said(&["spec", "failover", "application", "statePreservation"]).is_some();
    warn(preserves, "failover.application.statePreservation", "a workload that is placed anew begins anew");
    let overwrites = text(policy, &["spec", "conflictResolution"]) == "Overwrite";
    warn(overwrites, "conflictResolution", "what was in a member before under the same name is left alone");
    let follows = said(&["spec", "propagateDeps"]) == Some(&Value::Bool(true));
    warn(follows, "propagateDeps", "select what a workload needs in resourceSelectors");
    warnings
}

fn label_selector(selector: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some(selector) = selector.filter(|one| !one.is_null())
        && let Err(error) = LabelSelector::from_object(selector)
    {
        errors.push(FieldError::invalid(path, selector.clone(), error.to_string()));
    }
}

pub fn taint_policy(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = Path::new("spec");
    let targets = spec.child("targetClusters");
    label_selector(
        at(object, &["spec", "targetClusters", "labelSelector"]),
        &targets.child("labelSelector"),
        &mut errors,
    );
    errors
}

pub fn cluster(name: &str, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = cluster_name(name, &Path::new("metadata").child("name"));
    let spec = Path::new("spec");
    let is_pulled = |cluster: &Value| text(cluster, &["spec", "syncMode"]) == "Pull";
    if is_pulled(object) && !old.is_some_and(is_pulled) {
        let why = "nobody fetches workloads from here: use Push, with apiEndpoint and secretRef";
        errors.push(FieldError::invalid(spec.child("syncMode"), "Pull", why));
    }
    let endpoint = text(object, &["spec", "apiEndpoint"]);
    let is_url =
        endpoint.strip_prefix("https://").is_some_and(|rest| !rest.is_empty() && !rest.contains(['@', ' ', '?', '#']));
    if !endpoint.is_empty() && !is_url {
        errors.push(FieldError::invalid(spec.child("apiEndpoint"), endpoint, "must be https://HOST:PORT"));
    }
    if text(object, &["spec", "syncMode"]) == "Push" && endpoint.is_empty() {
        errors.push(FieldError::required(spec.child("apiEndpoint"), "a cluster that is pushed to has to be reached"));
    }
    errors
}
