//! What a service uses: itself, node ports, a load balancer.

use kinds::fields::{at, items, text};
use serde_json::Value;

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ServiceUsage {
    pub node_ports: i64,
    pub load_balancers: i64,
}

/// Node ports are allocated after admission, so what counts is how many the spec will be given.
pub fn service_usage(service: &Value) -> ServiceUsage {
    let ports = items(service, &["spec", "ports"]);
    let counted = |ports: usize| i64::try_from(ports).unwrap_or(i64::MAX);
    match text(service, &["spec", "type"]) {
        "NodePort" => ServiceUsage { node_ports: counted(ports.len()), load_balancers: 0 },
        "LoadBalancer" => {
            let allocates = at(service, &["spec", "allocateLoadBalancerNodePorts"]).and_then(Value::as_bool);
            let node_ports = if allocates == Some(false) {
                let explicit = |port: &&Value| at(port, &["nodePort"]).and_then(Value::as_i64).unwrap_or(0) != 0;
                ports.iter().filter(explicit).count()
            } else {
                ports.len()
            };
            ServiceUsage { node_ports: counted(node_ports), load_balancers: 1 }
        }
        _ => ServiceUsage::default(),
    }
}
