//! Services. Cluster addresses and node ports are given out by the caller, which knows what is taken.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::Strategy;
use super::fill::{absent, blank, each, text, within};
use super::pod_rules::{items, port_number};
use crate::field_error::FieldError;
use crate::names::{NameRule, name_problems};

pub struct Services;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

impl Strategy for Services {
    fn default(&self, object: &mut Value) {
        let Some(spec) = within(object, "spec") else { return };
        blank(spec, "sessionAffinity", "None");
        blank(spec, "type", "ClusterIP");
        if text(spec, "sessionAffinity") == "ClientIP"
            && let Some(config) = within(spec, "sessionAffinityConfig").and_then(|config| within(config, "clientIP"))
        {
            absent(config, "timeoutSeconds", 10_800);
        }
        if text(spec, "sessionAffinity") == "None"
            && let Value::Object(map) = spec
        {
            map.remove("sessionAffinityConfig");
        }
        each(spec, "ports", |port| {
            blank(port, "protocol", "TCP");
            let number = port.get("port").cloned().unwrap_or_default();
            if matches!(port.get("targetPort"), None | Some(Value::Null))
                || port["targetPort"] == 0
                || port["targetPort"] == ""
            {
                port["targetPort"] = number;
            }
        });
        let kind = text(spec, "type").to_owned();
        if is_outward(spec) {
            blank(spec, "externalTrafficPolicy", "Cluster");
        }
        if kind != "ExternalName" {
            absent(spec, "internalTrafficPolicy", "Cluster");
        }
        if kind == "LoadBalancer" {
            absent(spec, "allocateLoadBalancerNodePorts", true);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({"loadBalancer": {}});
        if let Some(spec) = within(object, "spec") {
            settle_families(spec);
        }
    }

    /// An address once given stays; what no longer applies to the type goes.
    fn prepare_update(&self, object: &mut Value, old: &Value) {
        let kind = text(&object["spec"], "type").to_owned();
        let Some(spec) = within(object, "spec") else { return };
        if kind == "ExternalName" {
            if let Value::Object(map) = spec {
                for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
                    map.remove(field);
                }
            }
            return;
        }
        settle_families(spec);
        // A health check port once given is kept while it is needed, and goes when it no longer is.
        let known = &old["spec"];
        if needs_health_check(spec) && needs_health_check(known) {
            absent(spec, "healthCheckNodePort", known["healthCheckNodePort"].clone());
        } else if needs_health_check(known) && spec.get("healthCheckNodePort") == known.get("healthCheckNodePort") {
            remove(spec, &["healthCheckNodePort"]);
        }
        for field in ["clusterIP", "clusterIPs"] {
            if let Some(known) = old["spec"].get(field) {
                absent(spec, field, known.clone());
            }
        }
        if kind == "ClusterIP" {
            each(spec, "ports", |port| {
                if let Value::Object(port) = port {
                    port.remove("nodePort");
                }
            });
            remove(spec, &["allocateLoadBalancerNodePorts"]);
            if !is_outward(spec) {
                remove(spec, &["externalTrafficPolicy"]);
            }
            return;
        }
        // Node ports of ports that stay are kept.
        let known: HashMap<_, _> = items(&old["spec"], "ports")
            .iter()
            .rev()
            .filter_map(|port| Some((place(port), port.get("nodePort")?)))
            .collect();
        each(spec, "ports", |port| {
            if let Some(number) = known.get(&place(port)) {
                absent(port, "nodePort", (*number).clone());
            }
        });
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let mut errors = Vec::new();
        let headless = text(spec, "clusterIP") == "None";
        let kind = text(spec, "type");
        let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
        if !kinds.contains(&kind) {
            errors.push(FieldError::not_supported("spec.type", kind, &kinds));
        }
        if headless && matches!(kind, "LoadBalancer" | "NodePort") {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid("spec.clusterIPs[0]", "None", detail));
        }
        let ports = items(spec, "ports");
        let (mut names, mut places, mut node_ports) = (HashSet::new(), HashSet::new(), HashSet::new());
        if ports.is_empty() && !headless && kind != "ExternalName" {
            errors.push(FieldError::required("spec.ports", ""));
        }
        for (at, port) in ports.iter().enumerate() {
            let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
            port_number(number, &format!("spec.ports[{at}].port"), &mut errors);
            if let Some(target) = port.get("targetPort").and_then(Value::as_i64) {
                port_number(target, &format!("spec.ports[{at}].targetPort"), &mut errors);
            }
            let protocol = text(port, "protocol");
            if !PROTOCOLS.contains(&protocol) {
                errors.push(FieldError::not_supported(format!("spec.ports[{at}].protocol"), protocol, &PROTOCOLS));
            }
            let (name, path) = (text(port, "name"), format!("spec.ports[{at}].name"));
            if !name.is_empty() {
                let problems = name_problems(name, NameRule::Label);
                errors.extend(problems.into_iter().map(|why| FieldError::invalid(&path, name, why)));
                if !names.insert(name) {
                    errors.push(FieldError::duplicate(path, name));
                }
            } else if ports.len() > 1 {
                errors.push(FieldError::required(path, ""));
            }
            if !places.insert(place(port)) {
                let shown = json!({"Name": "", "Protocol": protocol, "AppProtocol": null, "Port": number, "TargetPort": 0, "NodePort": 0});
                errors.push(FieldError::duplicate(format!("spec.ports[{at}]"), shown));
            }
            let node_port = port.get("nodePort").and_then(Value::as_i64).unwrap_or(0);
            if node_port != 0 && !node_ports.insert((node_port, protocol)) {
                errors.push(FieldError::duplicate(format!("spec.ports[{at}].nodePort"), node_port));
            }
        }
        let affinity = text(spec, "sessionAffinity");
        if !matches!(affinity, "ClientIP" | "None") {
            errors.push(FieldError::not_supported("spec.sessionAffinity", affinity, &["ClientIP", "None"]));
        }
        if kind == "ExternalName" && text(spec, "externalName").is_empty() {
            errors.push(FieldError::required("spec.externalName", ""));
        }
        outward_traffic(spec, &mut errors);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let (new, known) = (text(&object["spec"], "clusterIP"), text(&old["spec"], "clusterIP"));
        if !known.is_empty() && known != new && text(&object["spec"], "type") != "ExternalName" {
            return vec![FieldError::invalid("spec.clusterIPs[0]", new, "may not change once set")];
        }
        let needed = needs_health_check(&object["spec"]) && needs_health_check(&old["spec"]);
        if needed && health_check_port(&object["spec"]) != health_check_port(&old["spec"]) {
            return vec![FieldError::forbidden("spec.healthCheckNodePort", "field is immutable")];
        }
        Vec::new()
    }

    fn name_rule(&self) -> NameRule {
        NameRule::Label
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.clusterIP", "spec.type"]
    }
}

/// Whether it is reached from outside.
fn is_outward(spec: &Value) -> bool {
    match text(spec, "type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !items(spec, "externalIPs").is_empty(),
        _ => false,
    }
}

/// Whether each node is asked for itself whether it has any business with the Service.
fn needs_health_check(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn health_check_port(spec: &Value) -> i64 {
    spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0)
}

/// A port of every node is held only by who needs one: a quota counts them by the Service's type.
fn outward_traffic(spec: &Value, errors: &mut Vec<FieldError>) {
    let policy = text(spec, "externalTrafficPolicy");
    let path = "spec.externalTrafficPolicy";
    if !is_outward(spec) {
        if !policy.is_empty() {
            errors.push(FieldError::invalid(path, policy, "may only be set for externally-accessible services"));
        }
    } else if !matches!(policy, "Cluster" | "Local") {
        errors.push(FieldError::not_supported(path, policy, &["Cluster", "Local"]));
    }
    let number = health_check_port(spec);
    if !needs_health_check(spec) && number != 0 {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(FieldError::invalid("spec.healthCheckNodePort", number, detail));
    }
}

/// What tells the ports of a Service apart.
fn place(port: &Value) -> (i64, &str) {
    (port.get("port").and_then(Value::as_i64).unwrap_or(0), text(port, "protocol"))
}

fn remove(spec: &mut Value, fields: &[&str]) {
    if let Value::Object(map) = spec {
        for field in fields {
            map.remove(*field);
        }
    }
}

/// Which addresses a Service has: of the one family that is given out here.
fn settle_families(spec: &mut Value) {
    if text(spec, "type") != "ExternalName" {
        absent(spec, "ipFamilyPolicy", "SingleStack");
        absent(spec, "ipFamilies", json!(["IPv4"]));
    }
}
