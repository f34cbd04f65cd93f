use serde_json::{Value, json};

use super::device::devices;
use super::service::{ServiceUsage, service_usage};
use super::volume::{attributes_classes, storage, storage_class};

#[test]
fn services_use_node_ports_and_load_balancers() {
    let ports = json!([{"port": 80}, {"port": 443, "nodePort": 30443}, {"port": 8080, "nodePort": 0}]);
    for (spec, node_ports, load_balancers) in [
        (json!({"ports": ports}), 0, 0),
        (json!({"type": "ClusterIP", "ports": ports}), 0, 0),
        (json!({"type": "ExternalName", "ports": ports}), 0, 0),
        (json!({"type": "NodePort", "ports": ports}), 3, 0),
        (json!({"type": "NodePort"}), 0, 0),
        (json!({"type": "LoadBalancer", "ports": ports}), 3, 1),
        (json!({"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": true}), 3, 1),
        (json!({"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": false}), 1, 1),
    ] {
        assert_eq!(service_usage(&json!({"spec": spec})), ServiceUsage { node_ports, load_balancers }, "{spec}");
    }
}

#[test]
fn volume_claims_use_whole_bytes_of_a_class() {
    let used = |claim: Value| storage(&claim).unwrap().map(|used| used.to_quantity().to_string());
    let asks = |storage: &str| json!({"spec": {"resources": {"requests": {"storage": storage}}}});
    assert_eq!(used(json!({"spec": {}})), None);
    assert_eq!(used(asks("10Gi")).unwrap(), "10Gi");
    assert_eq!(used(asks("0.1Ki")).unwrap(), "103");
    let mut grown = asks("10Gi");
    grown["status"] = json!({"allocatedResources": {"storage": "20Gi"}});
    assert_eq!(used(grown.clone()).unwrap(), "20Gi");
    grown["status"] = json!({"allocatedResources": {"storage": "5Gi"}});
    assert_eq!(used(grown).unwrap(), "10Gi");

    assert_eq!(storage_class(&json!({"spec": {"storageClassName": "gold"}})), "gold");
    let both = json!({
        "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
        "spec": {"storageClassName": "gold"},
    });
    assert_eq!(storage_class(&both), "old");
    let moving = json!({
        "spec": {"volumeAttributesClassName": "c"},
        "status": {
            "currentVolumeAttributesClassName": "a",
            "modifyVolumeStatus": {"targetVolumeAttributesClassName": "b"},
        },
    });
    assert_eq!(attributes_classes(&moving).collect::<Vec<_>>(), ["c", "a", "b"]);
}

#[test]
fn resource_claims_use_devices_of_classes() {
    let exactly = |class: &str, mode: &str, count: i64| json!({"exactly": {"deviceClassName": class, "allocationMode": mode, "count": count}});
    let claim = json!({"spec": {"devices": {"requests": [
        exactly("gold", "ExactCount", 2),
        exactly("gold", "All", 0),
        exactly("iron", "ExactCount", 1),
        exactly("gold", "Later", 5),
        {"exactly": {"deviceClassName": "gold"}},
        {"firstAvailable": [
            {"deviceClassName": "gold", "allocationMode": "ExactCount", "count": 4},
            {"deviceClassName": "gold", "allocationMode": "ExactCount", "count": 7},
            {"deviceClassName": "iron", "allocationMode": "ExactCount", "count": 1},
        ]},
        {"someday": {}},
    ]}}});
    let used = |class: &str| devices(&claim, class).unwrap().to_quantity().to_string();
    assert_eq!((used("gold"), used("iron"), used("tin")), ("42".into(), "2".into(), "0".into()));
}
