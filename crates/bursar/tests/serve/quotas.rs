//! ResourceQuota where its meaning depends on other objects, or on how the server was started.

use crate::harness::Server;

const ADMISSION: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: services
      matchContains: [services.loadbalancers]
    - resource: pods
      matchScopes: [{scopeName: PriorityClass, operator: In, values: [precious]}]
";

#[test]
fn limited_resources_need_a_quota_that_covers_them() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("admission.yaml"), ADMISSION).expect("written");
    let config = folder.path().join("config.yaml");
    let text = format!("admissionConfiguration: {}\n", folder.path().join("admission.yaml").display());
    std::fs::write(&config, text).expect("written");
    let server = Server::start_with(&["--config", config.to_str().expect("a path")]);
    server.kubectl("create namespace team");
    server.kubectl("-n team create service clusterip plain --tcp=80");
    let refused = server.kubectl_fails("-n team create service loadbalancer lb --tcp=80");
    let words = r#"services "lb" is forbidden: insufficient quota to consume: services.loadbalancers"#;
    assert!(refused.contains(words), "{refused}");
    server.kubectl("-n team create quota lbs --hard=services.loadbalancers=1");
    server.kubectl("-n team create service loadbalancer lb --tcp=80");
    let refused = server.kubectl_fails("-n team create service loadbalancer lb2 --tcp=80");
    assert!(refused.contains("exceeded quota: lbs"), "{refused}");

    server.kubectl("create priorityclass precious --value=1000");
    let pod = r#"-n team run p --image=i --overrides={"spec":{"priorityClassName":"precious"}}"#;
    let refused = server.kubectl_fails(pod);
    let words = "insufficient quota to match these scopes: [{PriorityClass In [precious]}]";
    assert!(refused.contains(words), "{refused}");
    let quota = "
apiVersion: v1
kind: ResourceQuota
metadata: {name: precious, namespace: team}
spec:
  hard: {pods: '1'}
  scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [precious]}]}
";
    server.kubectl_with("apply -f -", quota);
    server.kubectl(pod);
    server.kubectl("-n team run plain --image=i");
}

#[test]
fn a_pod_whose_deletion_is_overdue_is_not_waited_for() {
    let server = Server::start();
    server.kubectl("create namespace team");
    server.kubectl("-n team create quota q --hard=pods=1,count/pods=9");
    // On a node that does not exist, nobody ends it.
    server.kubectl(r#"-n team run stuck --image=i --overrides={"spec":{"nodeName":"gone"}}"#);
    server.kubectl_fails("-n team run next --image=i");
    server.kubectl("-n team delete pod stuck --grace-period=1 --wait=false");
    server.kubectl_fails("-n team run next --image=i");
    let used = "-n team get quota q -o jsonpath={.status.used.pods},{.status.used.count/pods}";
    server.until(used, |out| out == "0,1");
    server.kubectl("-n team run next --image=i");
    assert!(server.kubectl("-n team get pods -o name").contains("pod/stuck"), "it is still stored");
    let audit = server.kubectl("get --raw /debug/audit");
    assert!(audit.contains(r#""differences":[]"#), "{audit}");
}

/// Device classes, cluster quotas and limit ranges: what they mean changes with the commit that changes them.
#[test]
fn quotas_follow_the_objects_they_depend_on() {
    let server = Server::start();
    server.kubectl("create namespace team");
    server.kubectl("-n team create quota gpus --hard=requests.example.com/gpu=2");
    let claim = |name: &str, count: u32| {
        format!(
            "
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: {name}, namespace: team}}
spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: gold, allocationMode: ExactCount, count: {count}}}}}]}}}}
"
        )
    };
    server.kubectl_with("create -f -", &claim("before", 1));
    let class = "
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gold}
spec: {extendedResourceName: example.com/gpu}
";
    server.kubectl_with("create -f -", class);
    let (ok, _, refused) = server.try_kubectl("create -f -", &claim("large", 2));
    let words = "exceeded quota: gpus, requested: requests.example.com/gpu=2, used: requests.example.com/gpu=1, \
                 limited: requests.example.com/gpu=2";
    assert!(!ok && refused.contains(words), "{refused}");
    server.kubectl_with("create -f -", &claim("fits", 1));

    let range = |cpu: &str| {
        format!(
            "
apiVersion: v1
kind: LimitRange
metadata: {{name: r, namespace: team}}
spec: {{limits: [{{type: Container, default: {{cpu: {cpu}}}, max: {{cpu: '2'}}}}]}}
"
        )
    };
    let cpu = |pod: &str| {
        server.kubectl(&format!("-n team run {pod} --image=i"));
        server.kubectl(&format!("-n team get pod {pod} -o jsonpath={{.spec.containers[0].resources.limits.cpu}}"))
    };
    server.kubectl_with("apply -f -", &range("500m"));
    assert_eq!(cpu("one"), "500m");
    server.kubectl_with("apply -f -", &range("1"));
    assert_eq!(cpu("two"), "1", "an edited range is in force at once");
    server.kubectl("-n team delete limitrange r");
    assert_eq!(cpu("three"), "");

    server.kubectl("create namespace idle");
    server.kubectl("label namespace team idle org=x");
    let quota = "
apiVersion: quota.openshift.io/v1
kind: ClusterResourceQuota
metadata: {name: org-x}
spec:
  selector: {labels: {matchLabels: {org: x}}}
  quota: {hard: {pods: '5'}}
";
    server.kubectl_with("apply -f -", quota);
    let each = "get clusterresourcequota org-x -o \
                jsonpath={range.status.namespaces[*]}{.namespace}={.status.used.pods};{end}";
    server.until(each, |out| out == "idle=0;team=3;");
}
