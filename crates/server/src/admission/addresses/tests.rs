//! Services asking for addresses, one line each.

use super::*;

/// Plays lines of `verb name json [-> expected]`:
/// `create` reserves and stores, `try` reserves and gives back, `delete` removes. What is expected is `address ports…` or
/// the error.
fn check(script: &str) {
    let addresses = Addresses::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (asked, expected) = line.split_once(" -> ").unwrap_or((line, ""));
        let mut words = asked.splitn(3, ' ');
        let (verb, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let place: Place = ("n".into(), name.into());
        if verb == "delete" {
            addresses.store(place, Taken::default());
            continue;
        }
        let mut service = json!({"spec": serde_json::from_str::<Value>(words.next().unwrap_or("{}")).expect(line)});
        let answer = match addresses.allocate("n", name, &mut service) {
            Err(AddressError::Invalid(errors)) => kinds::field_error::join(&errors),
            Err(AddressError::Exhausted(why)) => why,
            Ok(reservation) => {
                if verb == "create" {
                    addresses.store(place, Taken::of(&service));
                }
                drop(reservation);
                let spec = &service["spec"];
                let mut shown = vec![spec["clusterIP"].as_str().unwrap_or("-").to_owned()];
                shown.extend(spec["ports"].as_array().into_iter().flatten().map(|port| node_port(port).to_string()));
                shown.extend(spec["healthCheckNodePort"].as_i64().map(|port| format!("health {port}")));
                shown.join(" ")
            }
        };
        assert_eq!(answer, expected, "{line}");
    }
    let state = addresses.state.lock();
    let stored: usize = state.stored.values().map(|taken| taken.addresses.len() + taken.ports.len()).sum();
    assert_eq!(state.addresses.held() + state.ports.held(), stored, "what is held is what is stored");
}

#[test]
fn addresses_are_given_once_and_come_back() {
    check(
        r#"
        create a {"type": "ClusterIP", "ports": [{"port": 80}]} -> 10.96.1.1 0
        create b {"type": "ClusterIP"} -> 10.96.1.2
        try c {"type": "ClusterIP"} -> 10.96.1.3
        create c {"type": "ClusterIP"} -> 10.96.1.4
        create d {"clusterIP": "10.96.1.2"} -> spec.clusterIPs: Invalid value: ["10.96.1.2"]: failed to allocate IP 10.96.1.2: provided IP is already allocated
        delete b
        create d {"clusterIP": "10.96.1.2"} -> 10.96.1.2
        create d {"clusterIPs": ["10.96.1.2"]} -> 10.96.1.2
        create e {"clusterIP": "10.97.0.1"} -> spec.clusterIPs: Invalid value: ["10.97.0.1"]: failed to allocate IP 10.97.0.1: the provided IP (10.97.0.1) is not in the valid range. The range of valid IPs is 10.96.0.0/16
        create e {"clusterIP": "10.96.0.0"} -> spec.clusterIPs: Invalid value: ["10.96.0.0"]: failed to allocate IP 10.96.0.0: the provided IP (10.96.0.0) is not in the valid range. The range of valid IPs is 10.96.0.0/16
        create e {"clusterIP": "ten"} -> spec.clusterIPs[0]: Invalid value: "ten": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
        create e {"clusterIP": "10.96.0.1"} -> 10.96.0.1
        "#,
    );
}

#[test]
fn headless_and_external_services_have_no_address() {
    check(
        r#"
        create a {"type": "ClusterIP", "clusterIP": "None"} -> None
        create b {"type": "ExternalName", "externalName": "example.com"} -> -
        create c {"type": "ExternalName", "clusterIP": "10.96.0.9"} -> spec.clusterIPs: Forbidden: may not be set for ExternalName services
        create b {"type": "ClusterIP"} -> 10.96.1.1
        create b {"type": "ExternalName", "externalName": "example.com"} -> -
        create d {"clusterIP": "10.96.1.1"} -> 10.96.1.1
        create e {"ipFamilies": ["IPv6"]} -> spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster
        create e {"ipFamilyPolicy": "RequireDualStack"} -> spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services
        "#,
    );
}

#[test]
fn node_ports_follow_the_type() {
    check(
        r#"
        create a {"type": "NodePort", "ports": [{"port": 80}, {"port": 81}]} -> 10.96.1.1 30086 30087
        create b {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30087}]} -> spec.ports[0].nodePort: Invalid value: 30087: provided port is already allocated
        create b {"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]} -> spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767
        create b {"type": "NodePort", "ports": [{"port": 80, "nodePort": -4}]} -> spec.ports[0].nodePort: Invalid value: -4: provided port is not in the valid range. The range of valid ports is 30000-32767
        create b {"type": "NodePort", "clusterIP": "10.96.0.7", "ports": [{"port": 80, "nodePort": 30000}]} -> 10.96.0.7 30000
        create a {"type": "ClusterIP", "clusterIP": "10.96.1.1", "ports": [{"port": 80}]} -> 10.96.1.1 0
        create b {"type": "NodePort", "clusterIP": "10.96.0.7", "ports": [{"port": 80, "nodePort": 30087}]} -> 10.96.0.7 30087
        create c {"type": "ClusterIP", "ports": [{"port": 80, "nodePort": 30000}]} -> spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'
        create d {"type": "NodePort", "clusterIP": "10.96.0.8", "ports": [{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]} -> 10.96.0.8 30088 30088
        create e {"type": "NodePort", "clusterIP": "10.96.0.9", "ports": [{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP", "nodePort": 30001}]} -> 10.96.0.9 30001 30001
        create f {"type": "LoadBalancer", "clusterIP": "10.96.0.10", "allocateLoadBalancerNodePorts": false, "ports": [{"port": 80}]} -> 10.96.0.10 0
        create g {"type": "LoadBalancer", "clusterIP": "10.96.0.11", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]} -> 10.96.0.11 30089 health 30090
        "#,
    );
}

#[test]
fn a_full_range_says_so_and_the_kept_part_goes_last() {
    let mut pool = Pool::new(1, 4, 2);
    let place: Place = ("n".into(), "a".into());
    let given: Vec<_> = std::iter::from_fn(|| pool.next(&place)).collect();
    assert_eq!(given, [3, 4, 1, 2]);
    pool.unreserve(4);
    assert_eq!(pool.next(&place), Some(4));
}
