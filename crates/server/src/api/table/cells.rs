//! Cells that take more than a path: how pods, services, quotas … summarise themselves in a word.

use kinds::{conditions, time};
use serde_json::{Value, json};

use super::age;

/// What kubectl prints where there is nothing.
const NONE: &str = "<none>";
/// Endpoints shown before "+ 3 more...".
const ENDPOINTS_SHOWN: usize = 3;

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn len(object: &Value, pointer: &str) -> usize {
    match object.pointer(pointer) {
        Some(Value::Object(map)) => map.len(),
        Some(Value::Array(list)) => list.len(),
        _ => 0,
    }
}

fn or_none(text: impl Into<String>) -> Value {
    let text = text.into();
    if text.is_empty() { NONE.into() } else { text.into() }
}

fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> Value {
    or_none(texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(","))
}

pub fn none(_: &Value, _: i64) -> Value {
    NONE.into()
}

pub fn pod_ready(pod: &Value, _: i64) -> Value {
    let sidecars =
        list(pod, "/spec/initContainers").iter().filter(|one| text(one, "/restartPolicy") == "Always").count();
    let total = list(pod, "/spec/containers").len() + sidecars;
    let ready = |status: &&Value| status["ready"] == true;
    let containers = list(pod, "/status/containerStatuses").iter().filter(ready).count();
    format!("{containers}/{total}").into()
}

pub fn pod_status(pod: &Value, _: i64) -> Value {
    let mut status = match text(pod, "/status/reason") {
        "" => text(pod, "/status/phase"),
        reason => reason,
    };
    for container in list(pod, "/status/containerStatuses") {
        for pointer in ["/state/waiting/reason", "/state/terminated/reason"] {
            if !text(container, pointer).is_empty() {
                status = text(container, pointer);
            }
        }
    }
    if pod.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string) {
        let lost = text(pod, "/status/reason") == "NodeLost";
        status = if lost { "Unknown" } else { "Terminating" };
    }
    status.into()
}

pub fn pod_restarts(pod: &Value, _: i64) -> Value {
    let restarts: i64 = list(pod, "/status/containerStatuses").iter().map(|one| number(one, "/restartCount")).sum();
    restarts.to_string().into()
}

pub fn pod_ip(pod: &Value, _: i64) -> Value {
    or_none(text(pod, "/status/podIP"))
}

pub fn pod_node(pod: &Value, _: i64) -> Value {
    or_none(text(pod, "/spec/nodeName"))
}

pub fn pod_nominated_node(pod: &Value, _: i64) -> Value {
    or_none(text(pod, "/status/nominatedNodeName"))
}

pub fn data_count(object: &Value, _: i64) -> Value {
    (len(object, "/data") + len(object, "/binaryData")).into()
}

pub fn node_internal_ip(node: &Value, _: i64) -> Value {
    node_address(node, "InternalIP")
}

pub fn node_external_ip(node: &Value, _: i64) -> Value {
    node_address(node, "ExternalIP")
}

fn node_address(node: &Value, kind: &str) -> Value {
    let address = list(node, "/status/addresses").iter().find(|one| one["type"] == kind);
    address.map_or("<none>", |one| text(one, "/address")).into()
}

pub fn node_os_image(node: &Value, _: i64) -> Value {
    known(node, "/status/nodeInfo/osImage")
}

pub fn node_kernel(node: &Value, _: i64) -> Value {
    known(node, "/status/nodeInfo/kernelVersion")
}

pub fn node_runtime(node: &Value, _: i64) -> Value {
    known(node, "/status/nodeInfo/containerRuntimeVersion")
}

fn known(node: &Value, pointer: &str) -> Value {
    match text(node, pointer) {
        "" => "<unknown>".into(),
        text => text.into(),
    }
}

pub fn node_status(node: &Value, _: i64) -> Value {
    let mut status = match conditions::of(node, "Ready").map(|one| text(one, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    status.into()
}

pub fn node_roles(node: &Value, _: i64) -> Value {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    joined(labels.into_iter().flatten().filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/")))
}

pub fn service_ip(service: &Value, _: i64) -> Value {
    or_none(text(service, "/spec/clusterIP"))
}

pub fn service_external_ip(service: &Value, _: i64) -> Value {
    let given = || list(service, "/spec/externalIPs").iter().filter_map(Value::as_str);
    match text(service, "/spec/type") {
        "ExternalName" => or_none(text(service, "/spec/externalName")),
        "LoadBalancer" => {
            let ingress = list(service, "/status/loadBalancer/ingress").iter();
            let assigned =
                ingress.map(|one| if text(one, "/ip").is_empty() { text(one, "/hostname") } else { text(one, "/ip") });
            match joined(assigned.chain(given())) {
                nothing if nothing == NONE => "<pending>".into(),
                addresses => addresses,
            }
        }
        _ => joined(given()),
    }
}

pub fn service_ports(service: &Value, _: i64) -> Value {
    let ports: Vec<String> = list(service, "/spec/ports")
        .iter()
        .map(|port| {
            let protocol = if text(port, "/protocol").is_empty() { "TCP" } else { text(port, "/protocol") };
            match number(port, "/nodePort") {
                0 => format!("{}/{protocol}", number(port, "/port")),
                node => format!("{}:{node}/{protocol}", number(port, "/port")),
            }
        })
        .collect();
    or_none(ports.join(","))
}

pub fn endpoints(endpoints: &Value, _: i64) -> Value {
    let mut all = Vec::new();
    for subset in list(endpoints, "/subsets") {
        for address in list(subset, "/addresses") {
            let ports = list(subset, "/ports");
            match ports {
                [] => all.push(text(address, "/ip").to_owned()),
                ports => {
                    all.extend(ports.iter().map(|port| format!("{}:{}", text(address, "/ip"), number(port, "/port"))))
                }
            }
        }
    }
    let more = all.len().saturating_sub(ENDPOINTS_SHOWN);
    all.truncate(ENDPOINTS_SHOWN);
    let shown = all.join(",");
    if more > 0 { format!("{shown} + {more} more...").into() } else { or_none(shown) }
}

pub fn quota_requests(quota: &Value, _: i64) -> Value {
    quota_cell(quota, |name| !name.starts_with("limits."))
}

pub fn quota_limits(quota: &Value, _: i64) -> Value {
    quota_cell(quota, |name| name.starts_with("limits."))
}

/// `name: used/hard` of what the status says, sorted by name.
fn quota_cell(quota: &Value, is_shown: impl Fn(&str) -> bool) -> Value {
    let hard = quota.pointer("/status/hard").and_then(Value::as_object);
    let mut names: Vec<(&String, &Value)> = hard.into_iter().flatten().filter(|(name, _)| is_shown(name)).collect();
    names.sort_by_key(|(name, _)| *name);
    let cells: Vec<String> = names
        .into_iter()
        .map(|(name, hard)| {
            let used =
                quota.pointer("/status/used").and_then(|used| used.get(name)).and_then(Value::as_str).unwrap_or("0");
            format!("{name}: {used}/{}", hard.as_str().unwrap_or_default())
        })
        .collect();
    cells.join(", ").into()
}

pub fn claim_status(claim: &Value, _: i64) -> Value {
    if claim.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string) {
        return "Terminating".into();
    }
    text(claim, "/status/phase").into()
}

fn short_modes(modes: &[Value]) -> Value {
    let short = |mode: &'_ Value| match mode.as_str().unwrap_or_default() {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        _ => "",
    };
    modes.iter().map(short).filter(|mode| !mode.is_empty()).collect::<Vec<_>>().join(",").into()
}

pub fn claim_modes(claim: &Value, _: i64) -> Value {
    short_modes(list(claim, "/status/accessModes"))
}

pub fn volume_modes(volume: &Value, _: i64) -> Value {
    short_modes(list(volume, "/spec/accessModes"))
}

pub fn attributes_class(object: &Value, _: i64) -> Value {
    match text(object, "/spec/volumeAttributesClassName") {
        "" => "<unset>".into(),
        class => class.into(),
    }
}

pub fn volume_mode(object: &Value, _: i64) -> Value {
    match text(object, "/spec/volumeMode") {
        "" => "<unset>".into(),
        mode => mode.into(),
    }
}

pub fn volume_claim(volume: &Value, _: i64) -> Value {
    match text(volume, "/spec/claimRef/name") {
        "" => "".into(),
        name => format!("{}/{name}", text(volume, "/spec/claimRef/namespace")).into(),
    }
}

pub fn desired(object: &Value, _: i64) -> Value {
    number(object, "/spec/replicas").into()
}

pub fn current(object: &Value, _: i64) -> Value {
    number(object, "/status/replicas").into()
}

pub fn ready(object: &Value, _: i64) -> Value {
    number(object, "/status/readyReplicas").into()
}

pub fn ready_of_desired(object: &Value, _: i64) -> Value {
    format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas")).into()
}

pub fn updated(object: &Value, _: i64) -> Value {
    number(object, "/status/updatedReplicas").into()
}

pub fn available(object: &Value, _: i64) -> Value {
    number(object, "/status/availableReplicas").into()
}

fn template_fields(object: &Value, field: &str) -> Value {
    joined(list(object, "/spec/template/spec/containers").iter().map(|one| text(one, field)))
}

pub fn template_containers(object: &Value, _: i64) -> Value {
    template_fields(object, "/name")
}

pub fn template_images(object: &Value, _: i64) -> Value {
    template_fields(object, "/image")
}

pub fn selector(object: &Value, _: i64) -> Value {
    selector_text(object.pointer("/spec/selector"))
}

pub fn pod_selector(object: &Value, _: i64) -> Value {
    selector_text(object.pointer("/spec/podSelector"))
}

fn selector_text(selector: Option<&Value>) -> Value {
    or_none(selector.map(super::super::scale::selector_text).unwrap_or_default())
}

pub fn node_selector(object: &Value, _: i64) -> Value {
    selector_text(object.pointer("/spec/template/spec/nodeSelector"))
}

pub fn controller(object: &Value, _: i64) -> Value {
    let owner = list(object, "/metadata/ownerReferences").iter().find(|owner| owner["controller"] == true);
    or_none(
        owner
            .map(|owner| format!("{}/{}", text(owner, "/kind").to_lowercase(), text(owner, "/name")))
            .unwrap_or_default(),
    )
}

pub fn job_status(job: &Value, _: i64) -> Value {
    let is = |kind: &str| conditions::holds(&job["status"]["conditions"], kind);
    let word = match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if job.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string) => "Terminating",
        () => "Running",
    };
    word.into()
}

pub fn job_completions(job: &Value, _: i64) -> Value {
    let done = number(job, "/status/succeeded");
    match (job.pointer("/spec/completions").and_then(Value::as_i64), number(job, "/spec/parallelism")) {
        (Some(wanted), _) => format!("{done}/{wanted}").into(),
        (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}").into(),
        (None, _) => format!("{done}/1").into(),
    }
}

pub fn job_duration(job: &Value, now_ms: i64) -> Value {
    let Some(start_ms) = time::read_ms(text(job, "/status/startTime")) else { return "".into() };
    let end_ms = time::read_ms(text(job, "/status/completionTime")).unwrap_or(now_ms);
    age::human(end_ms.div_euclid(1000).saturating_sub(start_ms.div_euclid(1000))).into()
}

pub fn time_zone(job: &Value, _: i64) -> Value {
    or_none(text(job, "/spec/timeZone"))
}

pub fn suspend(job: &Value, _: i64) -> Value {
    let suspended = job.pointer("/spec/suspend").and_then(Value::as_bool).unwrap_or(false);
    if suspended { "True".into() } else { "False".into() }
}

pub fn active_jobs(job: &Value, _: i64) -> Value {
    len(job, "/status/active").into()
}

pub fn last_schedule(job: &Value, now_ms: i64) -> Value {
    match text(job, "/status/lastScheduleTime") {
        "" => NONE.into(),
        at => age::since(at, now_ms).into(),
    }
}

pub fn event_last_seen(event: &Value, now_ms: i64) -> Value {
    let times = [
        "/series/lastObservedTime",
        "/lastTimestamp",
        "/deprecatedLastTimestamp",
        "/eventTime",
        "/metadata/creationTimestamp",
    ];
    let at = times.iter().map(|pointer| text(event, pointer)).find(|at| !at.is_empty()).unwrap_or_default();
    age::since(at, now_ms).into()
}

pub fn event_object(event: &Value, _: i64) -> Value {
    let about = event.get("involvedObject").or_else(|| event.get("regarding")).unwrap_or(&Value::Null);
    format!("{}/{}", text(about, "/kind").to_lowercase(), text(about, "/name")).into()
}

pub fn event_message(event: &Value, _: i64) -> Value {
    let message = if text(event, "/message").is_empty() { text(event, "/note") } else { text(event, "/message") };
    message.trim().into()
}

pub fn role_ref(binding: &Value, _: i64) -> Value {
    format!("{}/{}", text(binding, "/roleRef/kind"), text(binding, "/roleRef/name")).into()
}

fn subjects(binding: &Value, kind: &str) -> Value {
    let names: Vec<String> = list(binding, "/subjects")
        .iter()
        .filter(|subject| subject["kind"] == kind)
        .map(|subject| match (kind, text(subject, "/namespace")) {
            ("ServiceAccount", namespace) => format!("{namespace}/{}", text(subject, "/name")),
            _ => text(subject, "/name").to_owned(),
        })
        .collect();
    names.join(", ").into()
}

pub fn bound_users(binding: &Value, _: i64) -> Value {
    subjects(binding, "User")
}

pub fn bound_groups(binding: &Value, _: i64) -> Value {
    subjects(binding, "Group")
}

pub fn bound_accounts(binding: &Value, _: i64) -> Value {
    subjects(binding, "ServiceAccount")
}

pub fn allows_expansion(class: &Value, _: i64) -> Value {
    class.get("allowVolumeExpansion").and_then(Value::as_bool).unwrap_or(false).to_string().into()
}

pub fn global_default(class: &Value, _: i64) -> Value {
    class.get("globalDefault").and_then(Value::as_bool).unwrap_or(false).into()
}

pub fn ingress_class(ingress: &Value, _: i64) -> Value {
    or_none(text(ingress, "/spec/ingressClassName"))
}

pub fn ingress_hosts(ingress: &Value, _: i64) -> Value {
    match joined(list(ingress, "/spec/rules").iter().map(|rule| text(rule, "/host"))) {
        nothing if nothing == NONE => "*".into(),
        hosts => hosts,
    }
}

pub fn ingress_address(ingress: &Value, _: i64) -> Value {
    let all = list(ingress, "/status/loadBalancer/ingress").iter();
    let one = |one: &'_ Value| {
        if text(one, "/ip").is_empty() { text(one, "/hostname").to_owned() } else { text(one, "/ip").to_owned() }
    };
    all.map(one).collect::<Vec<_>>().join(",").into()
}

pub fn ingress_ports(ingress: &Value, _: i64) -> Value {
    if len(ingress, "/spec/tls") > 0 { "80, 443".into() } else { "80".into() }
}

fn or_not_available(value: Option<&Value>) -> Value {
    match value {
        Some(Value::String(text)) => text.as_str().into(),
        Some(Value::Number(number)) => number.to_string().into(),
        _ => "N/A".into(),
    }
}

pub fn min_available(budget: &Value, _: i64) -> Value {
    or_not_available(budget.pointer("/spec/minAvailable"))
}

pub fn max_unavailable(budget: &Value, _: i64) -> Value {
    or_not_available(budget.pointer("/spec/maxUnavailable"))
}

pub fn scale_target(scaler: &Value, _: i64) -> Value {
    format!("{}/{}", text(scaler, "/spec/scaleTargetRef/kind"), text(scaler, "/spec/scaleTargetRef/name")).into()
}

pub fn webhooks_count(configuration: &Value, _: i64) -> Value {
    len(configuration, "/webhooks").into()
}

pub fn resource_claim_state(claim: &Value, _: i64) -> Value {
    let allocated = claim.pointer("/status/allocation").is_some_and(|one| !one.is_null());
    let reserved = len(claim, "/status/reservedFor") > 0;
    let mut states = Vec::new();
    if claim.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string) {
        states.push("deleted");
    }
    match (allocated, reserved) {
        (true, true) => states.extend(["allocated", "reserved"]),
        (true, false) => states.push("allocated"),
        (false, _) => states.push("pending"),
    }
    json!(states.join(","))
}
