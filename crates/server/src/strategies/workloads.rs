//! Kinds that make pods: Deployments, ReplicaSets, ReplicationControllers, StatefulSets, DaemonSets, Jobs.

use kinds::field_error::FieldError;
use serde_json::{Value, json};

use super::Strategy;
use super::fill::{absent, blank, each, given, text, within};
use super::pod_spec::default_template;

/// The kinds of this file differ in defaults and little else.
pub struct Workload {
    default: fn(&mut Value),
    returns: bool,
    orphans: bool,
    selector_is_final: bool,
}

pub static DEPLOYMENTS: Workload =
    Workload { default: deployment, returns: false, orphans: false, selector_is_final: true };
pub static REPLICA_SETS: Workload =
    Workload { default: replica_set, returns: false, orphans: false, selector_is_final: true };
pub static REPLICATION_CONTROLLERS: Workload =
    Workload { default: replication_controller, returns: false, orphans: true, selector_is_final: false };
pub static STATEFUL_SETS: Workload =
    Workload { default: stateful_set, returns: false, orphans: false, selector_is_final: true };
pub static DAEMON_SETS: Workload =
    Workload { default: daemon_set, returns: false, orphans: false, selector_is_final: true };
pub static JOBS: Workload = Workload { default: job, returns: false, orphans: true, selector_is_final: true };
pub static CRON_JOBS: Workload =
    Workload { default: cron_job, returns: false, orphans: false, selector_is_final: false };

impl Strategy for Workload {
    fn default(&self, object: &mut Value) {
        (self.default)(object);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(replicas) = object.pointer("/spec/replicas").and_then(Value::as_i64).filter(|number| *number < 0) {
            errors.push(FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0"));
        }
        let selector = object.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
        if let Some(selector) = selector {
            let labels = object.pointer("/spec/template/metadata/labels").and_then(Value::as_object);
            let matches = selector.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value));
            if !matches {
                let shown = json!(labels);
                let detail = "`selector` does not match template `labels`";
                errors.push(FieldError::invalid("spec.template.metadata.labels", shown, detail));
            }
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let selector = object.pointer("/spec/selector");
        if self.selector_is_final && selector != old.pointer("/spec/selector") {
            let shown = selector.cloned().unwrap_or_default();
            return vec![FieldError::invalid("spec.selector", shown, "field is immutable")];
        }
        Vec::new()
    }

    fn counts_generations(&self) -> bool {
        true
    }

    fn returns_deleted_object(&self) -> bool {
        self.returns
    }

    fn orphans_by_default(&self) -> bool {
        self.orphans
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["status.replicas", "status.successful"]
    }
}

fn deployment(object: &mut Value) {
    let Some(spec) = within(object, "spec") else { return };
    absent(spec, "replicas", 1);
    absent(spec, "revisionHistoryLimit", 10);
    absent(spec, "progressDeadlineSeconds", 600);
    if let Some(strategy) = within(spec, "strategy") {
        blank(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = within(strategy, "rollingUpdate")
        {
            absent(rolling, "maxUnavailable", "25%");
            absent(rolling, "maxSurge", "25%");
        }
    }
    default_template(spec);
}

fn replica_set(object: &mut Value) {
    let Some(spec) = within(object, "spec") else { return };
    absent(spec, "replicas", 1);
    default_template(spec);
}

/// Labels and selector default to the template's labels.
fn replication_controller(object: &mut Value) {
    let labels = object.pointer("/spec/template/metadata/labels").cloned();
    let Some(spec) = within(object, "spec") else { return };
    absent(spec, "replicas", 1);
    if let Some(labels) = labels.filter(|labels| labels.as_object().is_some_and(|map| !map.is_empty())) {
        if spec.get("selector").and_then(Value::as_object).is_none_or(serde_json::Map::is_empty) {
            spec["selector"] = labels.clone();
        }
        default_template(spec);
        if let Some(metadata) = within(object, "metadata")
            && metadata.get("labels").and_then(Value::as_object).is_none_or(serde_json::Map::is_empty)
        {
            metadata["labels"] = labels;
        }
    } else {
        default_template(spec);
    }
}

fn stateful_set(object: &mut Value) {
    let Some(spec) = within(object, "spec") else { return };
    absent(spec, "replicas", 1);
    absent(spec, "revisionHistoryLimit", 10);
    blank(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = within(spec, "updateStrategy") {
        blank(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = within(strategy, "rollingUpdate")
        {
            absent(rolling, "partition", 0);
        }
    }
    if let Some(policy) = within(spec, "persistentVolumeClaimRetentionPolicy") {
        blank(policy, "whenDeleted", "Retain");
        blank(policy, "whenScaled", "Retain");
    }
    each(spec, "volumeClaimTemplates", |claim| {
        blank(claim, "apiVersion", "v1");
        blank(claim, "kind", "PersistentVolumeClaim");
        if let Some(spec) = within(claim, "spec") {
            absent(spec, "volumeMode", "Filesystem");
        }
        if let Some(status) = within(claim, "status") {
            blank(status, "phase", "Pending");
        }
    });
    default_template(spec);
}

fn daemon_set(object: &mut Value) {
    let Some(spec) = within(object, "spec") else { return };
    absent(spec, "revisionHistoryLimit", 10);
    if let Some(strategy) = within(spec, "updateStrategy") {
        blank(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = within(strategy, "rollingUpdate")
        {
            absent(rolling, "maxUnavailable", 1);
            absent(rolling, "maxSurge", 0);
        }
    }
    default_template(spec);
}

fn job(object: &mut Value) {
    let Some(spec) = within(object, "spec") else { return };
    job_spec(spec);
}

fn job_spec(spec: &mut Value) {
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        spec["completions"] = 1.into();
        spec["parallelism"] = 1.into();
    }
    absent(spec, "parallelism", 1);
    absent(spec, "backoffLimit", 6);
    absent(spec, "completionMode", "NonIndexed");
    absent(spec, "suspend", false);
    absent(spec, "manualSelector", false);
    let policy = if spec.get("podFailurePolicy").is_some() { "Failed" } else { "TerminatingOrFailed" };
    absent(spec, "podReplacementPolicy", policy);
    default_template(spec);
}

fn cron_job(object: &mut Value) {
    let Some(spec) = within(object, "spec") else { return };
    blank(spec, "concurrencyPolicy", "Allow");
    absent(spec, "suspend", false);
    absent(spec, "successfulJobsHistoryLimit", 3);
    absent(spec, "failedJobsHistoryLimit", 1);
    if let Some(job) = given(spec, "jobTemplate").and_then(|template| given(template, "spec")) {
        default_template(job);
    }
}
