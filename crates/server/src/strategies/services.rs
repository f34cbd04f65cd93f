//! Services. Cluster addresses and node ports are given out by the caller, which knows what is taken.

use kinds::field_error::FieldError;
use serde_json::{Value, json};

use super::fill::{absent, blank, each, text, within};
use super::pod_rules::port_number;
use super::{NameRule, Strategy};

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
        if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
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
            if let Value::Object(map) = spec {
                map.remove("externalTrafficPolicy");
                map.remove("allocateLoadBalancerNodePorts");
            }
            return;
        }
        // Node ports of ports that stay are kept.
        let known: Vec<Value> = old["spec"]["ports"].as_array().cloned().unwrap_or_default();
        each(spec, "ports", |port| {
            let same = known.iter().find(|old| old["port"] == port["port"] && old["protocol"] == port["protocol"]);
            if let Some(number) = same.and_then(|old| old.get("nodePort")) {
                absent(port, "nodePort", number.clone());
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
        let ports = spec.get("ports").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
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
            let name = text(port, "name");
            if !name.is_empty() && ports[..at].iter().any(|other| text(other, "name") == name) {
                errors.push(FieldError::duplicate(format!("spec.ports[{at}].name"), name));
            }
            if ports.len() > 1 && text(port, "name").is_empty() {
                errors.push(FieldError::required(format!("spec.ports[{at}].name"), ""));
            }
        }
        let affinity = text(spec, "sessionAffinity");
        if !matches!(affinity, "ClientIP" | "None") {
            errors.push(FieldError::not_supported("spec.sessionAffinity", affinity, &["ClientIP", "None"]));
        }
        if kind == "ExternalName" && text(spec, "externalName").is_empty() {
            errors.push(FieldError::required("spec.externalName", ""));
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let (new, known) = (text(&object["spec"], "clusterIP"), text(&old["spec"], "clusterIP"));
        if !known.is_empty() && known != new && text(&object["spec"], "type") != "ExternalName" {
            return vec![FieldError::invalid("spec.clusterIPs[0]", new, "may not change once set")];
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

/// Which addresses a Service has: of the one family that is given out here.
fn settle_families(spec: &mut Value) {
    if text(spec, "type") != "ExternalName" {
        absent(spec, "ipFamilyPolicy", "SingleStack");
        absent(spec, "ipFamilies", json!(["IPv4"]));
    }
}
