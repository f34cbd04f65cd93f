//! Defaults of a pod spec, shared by pods and by everything with a template.

use serde_json::{Value, json};

use super::fill::{absent, blank, each, given, text, within};

/// What Kubernetes fills into a pod spec wherever one stands.
pub fn default_pod_spec(spec: &mut Value) {
    blank(spec, "restartPolicy", "Always");
    blank(spec, "dnsPolicy", "ClusterFirst");
    blank(spec, "schedulerName", "default-scheduler");
    absent(spec, "terminationGracePeriodSeconds", 30);
    within(spec, "securityContext");
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        each(spec, list, default_container);
    }
    each(spec, "volumes", default_volume);
    if !text(spec, "serviceAccountName").is_empty() {
        let name = text(spec, "serviceAccountName").to_owned();
        blank(spec, "serviceAccount", &name);
    } else if !text(spec, "serviceAccount").is_empty() {
        let name = text(spec, "serviceAccount").to_owned();
        blank(spec, "serviceAccountName", &name);
    }
}

fn default_container(container: &mut Value) {
    let policy = if is_latest(text(container, "image")) { "Always" } else { "IfNotPresent" };
    blank(container, "imagePullPolicy", policy);
    blank(container, "terminationMessagePath", "/dev/termination-log");
    blank(container, "terminationMessagePolicy", "File");
    within(container, "resources");
    each(container, "ports", |port| blank(port, "protocol", "TCP"));
    each(container, "env", |variable| {
        if let Some(reference) = given(variable, "valueFrom").and_then(|from| given(from, "fieldRef")) {
            blank(reference, "apiVersion", "v1");
        }
    });
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = given(container, probe) {
            default_probe(probe);
        }
    }
    if let Some(lifecycle) = given(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = given(lifecycle, hook) {
                default_http_get(hook);
            }
        }
    }
}

/// A missing request is the limit of the same resource: in pods, not in templates, which become pods first.
pub fn default_pod_requests(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        each(spec, list, |container| {
            if let Some(resources) = given(container, "resources") {
                default_requests(resources);
            }
        });
    }
}

/// In a pod on its node's network a port of a container is a port of the node.
pub fn default_host_ports(spec: &mut Value) {
    if spec.get("hostNetwork").and_then(Value::as_bool) != Some(true) {
        return;
    }
    for list in ["containers", "initContainers"] {
        each(spec, list, |container| {
            each(container, "ports", |port| {
                let number = port.get("containerPort").cloned().unwrap_or_default();
                absent(port, "hostPort", number);
            });
        });
    }
}

/// A missing request is the limit of the same resource.
fn default_requests(resources: &mut Value) {
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    if let Some(requests) = within(resources, "requests").and_then(Value::as_object_mut) {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
        if requests.is_empty()
            && let Value::Object(map) = resources
        {
            map.remove("requests");
        }
    }
}

/// Whether an image is the moving tag: named so, or without tag and digest.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    match image.rsplit('/').next().unwrap_or_default().rsplit_once(':') {
        Some((_, tag)) => tag == "latest",
        None => true,
    }
}

fn default_probe(probe: &mut Value) {
    for (field, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        if probe.get(field).and_then(Value::as_i64).unwrap_or(0) == 0 {
            probe[field] = value.into();
        }
    }
    default_http_get(probe);
    if let Some(grpc) = given(probe, "grpc") {
        absent(grpc, "service", "");
    }
}

fn default_http_get(handler: &mut Value) {
    if let Some(get) = given(handler, "httpGet") {
        blank(get, "path", "/");
        blank(get, "scheme", "HTTP");
    }
}

/// The mode files of a volume get: rw-r--r--.
const FILE_MODE: i64 = 0o644;

fn default_volume(volume: &mut Value) {
    let bare = volume.as_object().is_some_and(|map| map.keys().all(|key| key == "name"));
    if bare {
        volume["emptyDir"] = json!({});
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = given(volume, source) {
            absent(source, "defaultMode", FILE_MODE);
            each(source, "items", default_field_ref);
            each(source, "sources", |projection| {
                if let Some(token) = given(projection, "serviceAccountToken") {
                    absent(token, "expirationSeconds", 3600);
                }
                if let Some(api) = given(projection, "downwardAPI") {
                    each(api, "items", default_field_ref);
                }
            });
        }
    }
    if let Some(path) = given(volume, "hostPath") {
        absent(path, "type", "");
    }
    if let Some(image) = given(volume, "image") {
        let policy = if is_latest(text(image, "reference")) { "Always" } else { "IfNotPresent" };
        blank(image, "pullPolicy", policy);
    }
    if let Some(iscsi) = given(volume, "iscsi") {
        blank(iscsi, "iscsiInterface", "default");
    }
    if let Some(template) = given(volume, "ephemeral").and_then(|source| given(source, "volumeClaimTemplate"))
        && let Some(spec) = given(template, "spec")
    {
        absent(spec, "volumeMode", "Filesystem");
    }
}

fn default_field_ref(item: &mut Value) {
    if let Some(reference) = given(item, "fieldRef") {
        blank(reference, "apiVersion", "v1");
    }
}

/// Defaults of a `template` field.
pub fn default_template(owner_spec: &mut Value) {
    if let Some(spec) = given(owner_spec, "template").and_then(|template| given(template, "spec")) {
        default_pod_spec(spec);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moving_tag_is_pulled_always() {
        for (image, latest) in [
            ("nginx", true),
            ("nginx:latest", true),
            ("nginx:1.2", false),
            ("host:5000/nginx", true),
            ("host:5000/nginx:1", false),
            ("nginx@sha256:abc", false),
        ] {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }
}
