//! How traffic finds pods: endpoints, ingresses, policies. Nothing here routes any.

use serde_json::{Value, json};

use super::Strategy;
use super::fill::{absent, blank, each, given, within};
use crate::field_error::FieldError;

pub struct AllEndpoints;
pub struct EndpointSlices;
pub struct Ingresses;
pub struct IngressClasses;
pub struct NetworkPolicies;

impl Strategy for AllEndpoints {
    fn default(&self, object: &mut Value) {
        each(object, "subsets", |subset| each(subset, "ports", |port| blank(port, "protocol", "TCP")));
    }

    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        vec!["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".into()]
    }
}

impl Strategy for EndpointSlices {
    fn default(&self, object: &mut Value) {
        each(object, "ports", |port| {
            absent(port, "name", "");
            absent(port, "protocol", "TCP");
        });
    }

    fn counts_generations(&self) -> bool {
        true
    }

    fn counts_metadata(&self) -> &'static [&'static str] {
        &["labels"]
    }
}

impl Strategy for Ingresses {
    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({"loadBalancer": {}});
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        if spec["rules"].as_array().is_none_or(Vec::is_empty) && spec.get("defaultBackend").is_none() {
            let detail = "either `defaultBackend` or `rules` must be specified";
            return vec![FieldError::invalid("spec", Value::Null, detail)];
        }
        Vec::new()
    }

    fn counts_generations(&self) -> bool {
        true
    }
}

impl Strategy for IngressClasses {
    fn default(&self, object: &mut Value) {
        if let Some(parameters) = given(object, "spec").and_then(|spec| given(spec, "parameters")) {
            absent(parameters, "scope", "Cluster");
        }
    }

    fn counts_generations(&self) -> bool {
        true
    }
}

impl Strategy for NetworkPolicies {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        const TYPES: [&str; 2] = ["Ingress", "Egress"];
        let types = object["spec"]["policyTypes"].as_array().into_iter().flatten().enumerate();
        let wrong = types.filter(|(_, kind)| !TYPES.iter().any(|known| kind == known));
        wrong
            .map(|(at, kind)| FieldError::not_supported(format!("spec.policyTypes[{at}]"), kind.clone(), &TYPES))
            .collect()
    }

    fn default(&self, object: &mut Value) {
        let Some(spec) = within(object, "spec") else { return };
        let egress = spec.get("egress").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        if spec.get("policyTypes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            spec["policyTypes"] = types;
        }
        for direction in ["ingress", "egress"] {
            each(spec, direction, |rule| each(rule, "ports", |port| absent(port, "protocol", "TCP")));
        }
    }

    fn counts_generations(&self) -> bool {
        true
    }
}
