//! Objects and policies at random, view enough to real ones that most of them mean something.

use serde_json::{Map, Value, json};

/// A small generator; the same seed always gives the same questions.
pub struct Random(pub u64);

const AMOUNTS: [&str; 16] = [
    "0", "1", "2", "100m", "250m", "1500u", "1Gi", "1.5Gi", "0.1Ki", "1e3", "12.3e4", "1G", "01", "+1", "1.500", "3Mi",
];
/// Amounts that print as they are written.
const PLAIN: [&str; 9] = ["0", "1", "2", "3", "100m", "250m", "1500m", "1Gi", "3Gi"];
const ASKED: [&str; 6] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "hugepages-2Mi",
    "example.com/gpu",
    "deviceclass.resource.kubernetes.io/gold",
];
const CLASSES: [&str; 3] = ["", "gold", "iron"];

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() >> 11) as usize % end
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn amounts(&mut self, names: &[&str], of: &[&str]) -> Value {
        let mut list = Map::new();
        for name in names {
            if self.one_in(2) {
                list.insert(name.to_string(), json!(self.pick(of)));
            }
        }
        Value::Object(list)
    }

    fn resources(&mut self, of: &[&str]) -> Value {
        let mut resources = json!({});
        for side in ["requests", "limits"] {
            if !self.one_in(3) {
                resources[side] = self.amounts(&ASKED, of);
            }
        }
        resources
    }

    fn container(&mut self, name: String, of: &[&str]) -> Value {
        json!({"name": name, "resources": self.resources(of)})
    }

    fn pod(&mut self, of: &[&str]) -> Value {
        let mut spec = json!({});
        let apps = self.below(4);
        spec["containers"] = (0..apps).map(|at| self.container(format!("c{at}"), of)).collect();
        let inits = self.below(4);
        let inits: Vec<Value> = (0..inits)
            .map(|at| {
                let mut container = self.container(format!("i{at}"), of);
                if self.one_in(2) {
                    container["restartPolicy"] = json!("Always");
                }
                container
            })
            .collect();
        spec["initContainers"] = json!(inits);
        if self.one_in(3) {
            spec["overhead"] = self.amounts(&["cpu", "memory"], of);
        }
        if self.one_in(4) {
            spec["resources"] = json!({
                "requests": self.amounts(&["cpu", "memory", "hugepages-2Mi"], of),
                "limits": self.amounts(&["cpu", "memory", "hugepages-2Mi"], of),
            });
        }
        if self.one_in(3) {
            spec["activeDeadlineSeconds"] = json!(self.below(3) as i64 - 1);
        }
        spec["priorityClassName"] = json!(self.pick(&CLASSES));
        if self.one_in(3) {
            spec["affinity"] = self.affinity();
        }
        json!({"metadata": {"name": "x", "namespace": "ns"}, "spec": spec})
    }

    fn affinity(&mut self) -> Value {
        let mut term = json!({"topologyKey": "zone"});
        match self.below(4) {
            0 => term["namespaces"] = json!([]),
            1 => term["namespaces"] = json!(["b"]),
            2 => term["namespaceSelector"] = json!({}),
            _ => {}
        }
        let kind = self.pick(&["podAffinity", "podAntiAffinity"]);
        if self.one_in(2) {
            json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
        } else {
            json!({kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}})
        }
    }

    fn pod_status(&mut self) -> Value {
        let mut status =
            json!({"phase": self.pick(&["Pending", "Running", "Running", "Running", "Failed", "Succeeded"])});
        for (list, prefix) in [("containerStatuses", "c"), ("initContainerStatuses", "i")] {
            let count = self.below(3);
            let of: Vec<Value> = (0..count)
                .map(|at| {
                    let mut one = json!({"name": format!("{prefix}{at}")});
                    if self.one_in(2) {
                        one["resources"] = self.resources(&AMOUNTS);
                    }
                    if self.one_in(2) {
                        one["allocatedResources"] = self.amounts(&ASKED, &AMOUNTS);
                    }
                    one
                })
                .collect();
            status[list] = json!(of);
        }
        if self.one_in(3) {
            let reason = self.pick(&["Infeasible", "Deferred"]);
            status["conditions"] = json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
        }
        if self.one_in(6) {
            status["qosClass"] = json!(self.pick(&["BestEffort", "Burstable", "Guaranteed"]));
        }
        status
    }

    fn volume_claim(&mut self, of: &[&str]) -> Value {
        let mut claim = json!({"metadata": {"name": "x", "namespace": "ns"}, "spec": {"resources": {}}, "status": {}});
        if !self.one_in(4) {
            claim["spec"]["resources"]["requests"] = json!({"storage": self.pick(of)});
        }
        if self.one_in(2) {
            claim["spec"]["storageClassName"] = json!(self.pick(&CLASSES));
        }
        if self.one_in(4) {
            let name = "volume.beta.kubernetes.io/storage-class";
            claim["metadata"]["annotations"] = json!({name: self.pick(&CLASSES)});
        }
        if self.one_in(3) {
            claim["status"]["allocatedResources"] = json!({"storage": self.pick(of)});
        }
        if self.one_in(2) {
            claim["spec"]["volumeAttributesClassName"] = json!(self.pick(&CLASSES));
        }
        if self.one_in(3) {
            claim["status"]["currentVolumeAttributesClassName"] = json!(self.pick(&CLASSES));
        }
        if self.one_in(4) {
            claim["status"]["modifyVolumeStatus"] =
                json!({"targetVolumeAttributesClassName": self.pick(&CLASSES), "status": "Pending"});
        }
        claim
    }

    fn service(&mut self) -> Value {
        let count = self.below(4);
        let ports: Vec<Value> = (0..count)
            .map(|at| {
                let mut port = json!({"name": format!("p{at}"), "port": at + 1});
                if self.one_in(2) {
                    port["nodePort"] = json!(self.below(2) * 30_000);
                }
                port
            })
            .collect();
        let mut spec = json!({"ports": ports});
        if !self.one_in(5) {
            spec["type"] = json!(self.pick(&["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]));
        }
        if self.one_in(2) {
            spec["allocateLoadBalancerNodePorts"] = json!(self.one_in(2));
        }
        json!({"spec": spec})
    }

    fn device_request(&mut self) -> Value {
        let mut request = json!({"name": "r", "deviceClassName": self.pick(&["gold", "iron"])});
        if !self.one_in(3) {
            request["allocationMode"] = json!(self.pick(&["ExactCount", "ExactCount", "All", "Later"]));
        }
        if !self.one_in(3) {
            request["count"] = json!(self.below(5) + 1);
        }
        request
    }

    fn resource_claim(&mut self) -> Value {
        let count = self.below(4);
        let requests: Vec<Value> = (0..count)
            .map(|at| {
                let name = format!("r{at}");
                if self.one_in(2) {
                    return json!({"name": name, "exactly": self.device_request()});
                }
                let alternatives = self.below(3) + 1;
                let list: Vec<Value> = (0..alternatives).map(|_| self.device_request()).collect();
                json!({"name": name, "firstAvailable": list})
            })
            .collect();
        json!({"spec": {"devices": {"requests": requests}}})
    }

    pub fn object(&mut self) -> (&'static str, Value) {
        match self.below(8) {
            0 => ("services", self.service()),
            1 => ("persistentvolumeclaims", self.volume_claim(&AMOUNTS)),
            2 => ("resourceclaims", self.resource_claim()),
            _ => {
                let mut pod = self.pod(&AMOUNTS);
                if self.one_in(2) {
                    pod["status"] = self.pod_status();
                }
                ("pods", pod)
            }
        }
    }

    pub fn limited_object(&mut self) -> (&'static str, Value) {
        if self.one_in(5) {
            return ("persistentvolumeclaims", self.volume_claim(&PLAIN));
        }
        ("pods", self.pod(&PLAIN))
    }

    /// A quota which can say something about this resource.
    pub fn quota_for(&mut self, resource: &str) -> Value {
        let names: &[&str] = match resource {
            "pods" => &[
                "pods",
                "count/pods",
                "cpu",
                "requests.cpu",
                "memory",
                "requests.memory",
                "limits.cpu",
                "limits.memory",
                "ephemeral-storage",
                "requests.ephemeral-storage",
                "limits.ephemeral-storage",
                "hugepages-2Mi",
                "requests.hugepages-2Mi",
                "requests.example.com/gpu",
                "example.com/gpu",
                "limits.example.com/gpu",
                "requests.deviceclass.resource.kubernetes.io/gold",
                "services",
            ],
            "services" => &["services", "count/services", "services.nodeports", "services.loadbalancers", "pods"],
            "persistentvolumeclaims" => &[
                "persistentvolumeclaims",
                "count/persistentvolumeclaims",
                "requests.storage",
                "gold.storageclass.storage.k8s.io/requests.storage",
                "gold.storageclass.storage.k8s.io/persistentvolumeclaims",
                "pods",
            ],
            _ => &["gold.deviceclass.resource.k8s.io/devices", "requests.deviceclass.resource.kubernetes.io/gold"],
        };
        let mut hard = self.amounts(names, &["5"]);
        if resource == "resourceclaims" {
            hard["count/resourceclaims.resource.k8s.io"] = json!("5");
        }
        let mut spec = json!({"hard": hard});
        if self.one_in(2) {
            spec["scopes"] = self.scopes();
        }
        if self.one_in(3) {
            spec["scopeSelector"] = json!({"matchExpressions": [self.expression(false)]});
        }
        spec
    }

    fn scopes(&mut self) -> Value {
        let count = self.below(3);
        json!((0..count).map(|_| self.pick(&SCOPES)).collect::<Vec<_>>())
    }

    fn expression(&mut self, anything: bool) -> Value {
        let scope = self.pick(&SCOPES);
        let classed = matches!(scope, "PriorityClass" | "VolumeAttributesClass");
        let operator =
            if classed || anything { self.pick(&["In", "NotIn", "Exists", "DoesNotExist"]) } else { "Exists" };
        let mut expression = json!({"scopeName": scope, "operator": operator});
        if matches!(operator, "In" | "NotIn") && !(anything && self.one_in(3)) || anything && self.one_in(5) {
            expression["values"] = json!([self.pick(&["gold", "iron"])]);
        }
        if anything && self.one_in(8) {
            expression["operator"] = json!("Gt");
        }
        if anything && self.one_in(8) {
            expression["scopeName"] = json!("Foo");
        }
        expression
    }

    /// A quota as somebody might write it, mistakes included.
    pub fn written_quota(&mut self) -> Value {
        let metadata = json!({"name": "q", "namespace": "ns", "resourceVersion": "1"});
        json!({"metadata": metadata, "spec": self.written_spec()})
    }

    pub fn old_quota(&mut self) -> Value {
        if self.one_in(2) { Value::Null } else { self.written_quota() }
    }

    fn written_spec(&mut self) -> Value {
        const NAMES: [&str; 26] = [
            "pods",
            "cpu",
            "requests.memory",
            "limits.cpu",
            "services",
            "services.nodeports",
            "configmaps",
            "persistentvolumeclaims",
            "requests.storage",
            "ephemeral-storage",
            "hugepages-2Mi",
            "requests.hugepages-1Gi",
            "limits.hugepages-2Mi",
            "storage",
            "foo",
            "Foo_bar",
            "count/deployments.apps",
            "count/pods",
            "example.com/gpu",
            "requests.example.com/gpu",
            "limits.example.com/gpu",
            "a/b/c",
            "/x",
            "-x",
            "UPPER.example/x",
            "gold.storageclass.storage.k8s.io/requests.storage",
        ];
        let mut hard = Map::new();
        for _ in 0..self.below(4) {
            let value = if self.one_in(6) { "-1500m" } else { self.pick(&AMOUNTS) };
            let name = if self.one_in(3) { self.pick(&NAMES[12..]) } else { self.pick(&NAMES[..12]) };
            hard.insert(name.to_string(), json!(value));
        }
        if self.one_in(40) {
            hard.insert("x".repeat(64), json!("1"));
        }
        let mut spec = json!({"hard": hard});
        if self.one_in(4) {
            spec["scopes"] = self.scopes();
            if self.one_in(4) {
                spec["scopes"] = json!(["Foo"]);
            }
        }
        if self.one_in(4) {
            let count = self.below(2) + 1;
            let expressions: Vec<Value> = (0..count).map(|_| self.expression(true)).collect();
            spec["scopeSelector"] = json!({"matchExpressions": expressions});
        }
        spec
    }

    pub fn limit_range(&mut self) -> Value {
        let count = self.below(3) + 1;
        let items: Vec<Value> = (0..count)
            .map(|_| {
                let kind = self.pick(&["Container", "Container", "Pod", "PersistentVolumeClaim"]);
                let names: &[&str] = match kind {
                    "PersistentVolumeClaim" => &["storage"],
                    _ => &["cpu", "memory", "example.com/gpu"],
                };
                let mut item = json!({"type": kind});
                if self.one_in(60) {
                    item["type"] = json!("Nothing");
                }
                for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
                    if self.one_in(if kind == "Pod" && field.starts_with("default") { 20 } else { 4 }) {
                        item[field] = self.amounts(names, &PLAIN);
                    }
                }
                item
            })
            .collect();
        json!({"metadata": {"name": "r", "namespace": "ns"}, "spec": {"limits": items}})
    }
}

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];
