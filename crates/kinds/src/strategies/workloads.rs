//! Kinds that make pods: Deployments, ReplicaSets, ReplicationControllers, StatefulSets, DaemonSets, Jobs.

use serde_json::{Value, json};

use super::Strategy;
use super::fill::{absent, blank, each, given, text, within};
use super::pod_rules::template_spec;
use super::pod_spec::default_template;
use crate::field_error::FieldError;

/// The kinds of this file differ in defaults and little else.
pub struct Workload {
    default: fn(&mut Value),
    check: fn(&Value, &mut Vec<FieldError>),
    create: fn(&mut Value),
    update: fn(&mut Value, &Value),
    counted: &'static [&'static str],
    returns: bool,
    orphans: bool,
    selector_is_final: bool,
}

/// What most of them are.
const USUAL: Workload = Workload {
    default: deployment,
    check: selected_template,
    create: |_| {},
    update: |_, _| {},
    counted: &[],
    returns: false,
    orphans: false,
    selector_is_final: true,
};

pub static DEPLOYMENTS: Workload = Workload { counted: &["annotations"], ..USUAL };
pub static REPLICA_SETS: Workload = Workload { default: replica_set, ..USUAL };
pub static REPLICATION_CONTROLLERS: Workload = Workload {
    default: replication_controller,
    check: labelled_template,
    orphans: true,
    selector_is_final: false,
    ..USUAL
};
pub static STATEFUL_SETS: Workload = Workload { default: stateful_set, ..USUAL };
pub static DAEMON_SETS: Workload =
    Workload { default: daemon_set, create: first_template, update: next_template, ..USUAL };
pub static JOBS: Workload = Workload { default: job, check: checked_job, create: own_pods, orphans: true, ..USUAL };
pub static CRON_JOBS: Workload =
    Workload { default: cron_job, check: checked_cron_job, selector_is_final: false, ..USUAL };
pub static POD_TEMPLATES: Workload = Workload {
    default: default_template,
    check: |object, errors| errors.extend(template_spec(&object["template"]["spec"], "template.spec")),
    returns: true,
    ..USUAL
};

impl Strategy for Workload {
    fn default(&self, object: &mut Value) {
        (self.default)(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        (self.create)(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        (self.update)(object, old);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(replicas) = object.pointer("/spec/replicas").and_then(Value::as_i64).filter(|number| *number < 0) {
            errors.push(FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0"));
        }
        (self.check)(object, &mut errors);
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

    fn counts_metadata(&self) -> &'static [&'static str] {
        self.counted
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

/// A selector that finds the pods of the template, and a template of pods that can run for ever.
fn selected_template(object: &Value, errors: &mut Vec<FieldError>) {
    let selector = object.pointer("/spec/selector").filter(|selector| !selector.is_null());
    let kind = text(object, "kind").to_lowercase();
    match selector.map(rules::selector::LabelSelector::from_object) {
        // Over there this one has forgotten the first complaint.
        None if kind == "daemonset" => {}
        None => errors.push(FieldError::required("spec.selector", "")),
        Some(Ok(selector)) if selector.is_everything() => {
            let detail = format!("empty selector is invalid for {kind}");
            errors.push(FieldError::invalid("spec.selector", json!({}), detail));
        }
        Some(_) => {}
    }
    let labels = object.pointer("/spec/template/metadata/labels").and_then(Value::as_object);
    let wanted = object.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let found =
        wanted.into_iter().flatten().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value));
    if selector.is_none() || !found {
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", json!(labels), detail));
    }
    errors.extend(template_spec(&object["spec"]["template"]["spec"], "spec.template.spec"));
    restarts(object, errors);
}

fn restarts(object: &Value, errors: &mut Vec<FieldError>) {
    let policy = text(&object["spec"]["template"]["spec"], "restartPolicy");
    if matches!(policy, "OnFailure" | "Never") {
        errors.push(FieldError::not_supported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
}

/// A ReplicationController's template; its selector is filled in from it.
fn labelled_template(object: &Value, errors: &mut Vec<FieldError>) {
    let Some(template) = object.pointer("/spec/template").filter(|template| !template.is_null()) else {
        errors.push(FieldError::required("spec.template", ""));
        return;
    };
    let labels = template.pointer("/metadata/labels").and_then(Value::as_object);
    let wanted = object.pointer("/spec/selector").and_then(Value::as_object);
    let found =
        wanted.into_iter().flatten().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value));
    if !found {
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", json!(labels), detail));
    }
    errors.extend(template_spec(&template["spec"], "spec.template.spec"));
    restarts(object, errors);
}

fn checked_job(object: &Value, errors: &mut Vec<FieldError>) {
    job_rules(&object["spec"], "spec", errors);
}

fn checked_cron_job(object: &Value, errors: &mut Vec<FieldError>) {
    let schedule = text(&object["spec"], "schedule");
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if schedule.is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    } else if !schedule.starts_with('@') && fields.len() != 5 {
        let detail = format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" "));
        errors.push(FieldError::invalid("spec.schedule", schedule, detail));
    }
    job_rules(&object["spec"]["jobTemplate"]["spec"], "spec.jobTemplate.spec", errors);
}

fn job_rules(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for field in ["parallelism", "completions", "backoffLimit"] {
        if let Some(number) = spec.get(field).and_then(Value::as_i64).filter(|number| *number < 0) {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(format!("{path}.{field}"), number, detail));
        }
    }
    let pod = &spec["template"]["spec"];
    errors.extend(template_spec(pod, &format!("{path}.template.spec")));
    if text(pod, "restartPolicy") == "Always" {
        let detail = "valid values: \"OnFailure\", \"Never\"";
        errors.push(FieldError::required(format!("{path}.template.spec.restartPolicy"), detail));
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

/// How often a DaemonSet's template has changed, for clients of ten years ago.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn template_generation(object: &Value) -> i64 {
    let text = object["metadata"]["annotations"].get(TEMPLATE_GENERATION).and_then(Value::as_str);
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn set_template_generation(object: &mut Value, generation: i64) {
    if let Some(annotations) = within(object, "metadata").and_then(|metadata| within(metadata, "annotations")) {
        annotations[TEMPLATE_GENERATION] = generation.to_string().into();
    }
}

fn first_template(object: &mut Value) {
    let given = template_generation(object);
    set_template_generation(object, given.max(1));
}

fn next_template(object: &mut Value, old: &Value) {
    let changed = object.pointer("/spec/template") != old.pointer("/spec/template");
    set_template_generation(object, template_generation(old).saturating_add(i64::from(changed)));
}

fn daemon_set(object: &mut Value) {
    let given = template_generation(object);
    set_template_generation(object, given);
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

/// Labels default to the template's.
fn job(object: &mut Value) {
    let labels = object.pointer("/spec/template/metadata/labels").cloned();
    if let (Some(labels), Some(metadata)) = (labels, within(object, "metadata"))
        && metadata.get("labels").and_then(Value::as_object).is_none_or(serde_json::Map::is_empty)
    {
        metadata["labels"] = labels;
    }
    let Some(spec) = within(object, "spec") else { return };
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        spec["completions"] = 1.into();
        spec["parallelism"] = 1.into();
    }
    absent(spec, "parallelism", 1);
    let retries = if spec.get("backoffLimitPerIndex").is_some() { i64::from(i32::MAX) } else { 6 };
    absent(spec, "backoffLimit", retries);
    absent(spec, "completionMode", "NonIndexed");
    absent(spec, "suspend", false);
    absent(spec, "manualSelector", false);
    let policy = if spec.get("podFailurePolicy").is_some() { "Failed" } else { "TerminatingOrFailed" };
    absent(spec, "podReplacementPolicy", policy);
    default_failure_policy(spec);
    default_template(spec);
}

fn default_failure_policy(spec: &mut Value) {
    let Some(policy) = given(spec, "podFailurePolicy") else { return };
    each(policy, "rules", |rule| each(rule, "onPodConditions", |condition| blank(condition, "status", "True")));
}

/// Labels and a selector by which a Job finds its pods and nobody else's. The Job's own labels follow when they are the
/// template's.
fn own_pods(object: &mut Value) {
    if object.pointer("/spec/manualSelector").and_then(Value::as_bool) == Some(true) {
        return;
    }
    let (name, uid) = (text(&object["metadata"], "name").to_owned(), text(&object["metadata"], "uid").to_owned());
    let shared = object.pointer("/metadata/labels").is_some()
        && object.pointer("/metadata/labels") == object.pointer("/spec/template/metadata/labels");
    let label = |labels: &mut Value| {
        for (key, value) in [
            ("job-name", &name),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", &uid),
            ("batch.kubernetes.io/controller-uid", &uid),
        ] {
            absent(labels, key, value.as_str());
        }
    };
    let Some(spec) = within(object, "spec") else { return };
    let template = within(spec, "template").and_then(|template| within(template, "metadata"));
    if let Some(labels) = template.and_then(|metadata| within(metadata, "labels")) {
        label(labels);
    }
    if let Some(selector) = within(spec, "selector").and_then(|selector| within(selector, "matchLabels")) {
        absent(selector, "batch.kubernetes.io/controller-uid", uid.as_str());
    }
    if shared && let Some(labels) = within(object, "metadata").and_then(|metadata| within(metadata, "labels")) {
        label(labels);
    }
}

fn cron_job(object: &mut Value) {
    let Some(spec) = within(object, "spec") else { return };
    blank(spec, "concurrencyPolicy", "Allow");
    absent(spec, "suspend", false);
    absent(spec, "successfulJobsHistoryLimit", 3);
    absent(spec, "failedJobsHistoryLimit", 1);
    if let Some(job) = given(spec, "jobTemplate").and_then(|template| given(template, "spec")) {
        default_failure_policy(job);
        default_template(job);
    }
}
