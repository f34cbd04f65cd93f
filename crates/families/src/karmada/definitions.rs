//! The kinds of this family as CustomResourceDefinitions, with the fields of Karmada's that mean something here. What a
//! binding or a policy carries along besides is kept.

use serde_json::{Value, json};

use super::binding::PURGE_MODES;
use super::lending_definitions::{self, when_full};
use super::{CLUSTER_GROUP, POLICY_GROUP, WORK_GROUP};
use crate::definition::{amounts, with_spec};

pub fn definitions() -> Vec<Value> {
    vec![
        federated_resource_quota(),
        lending_definitions::federated_quota_lease(),
        lending_definitions::federated_quota_slice(),
        propagation_policy(),
        cluster_taint_policy(),
        resource_binding(),
        work(),
        cluster(),
    ]
}

/// What a kind of Karmada is called.
pub struct Names {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub short: &'static [&'static str],
    pub scope: &'static str,
}

pub fn definition(names: &Names, spec: Value, status: Option<Value>, columns: Value) -> Value {
    let Names { group, version, kind, plural, short, scope } = *names;
    let names = crate::definition::Names { group, version, kind, plural, short, categories: &["karmada-io"], scope };
    let has_status = status.is_some();
    names.definition(with_spec(spec, status), has_status, columns)
}

pub fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path})
}

pub fn age() -> Value {
    column("AGE", "date", ".metadata.creationTimestamp")
}

fn condition_column(name: &str, of: &str) -> Value {
    column(name, "string", &format!(".status.conditions[?(@.type==\"{of}\")].status"))
}

pub fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn list(of: Value, items_max: usize) -> Value {
    json!({"type": "array", "items": of, "maxItems": items_max})
}

pub fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

pub fn required(names: &[&str], properties: Value) -> Value {
    json!({"type": "object", "required": names, "properties": properties})
}

/// A part that is kept as it is written.
fn anything(description: &str) -> Value {
    json!({"type": "object", "description": description, "x-kubernetes-preserve-unknown-fields": true})
}

fn count(description: &str) -> Value {
    json!({"type": "integer", "format": "int32", "minimum": 0, "maximum": i32::MAX, "description": description})
}

fn conditions() -> Value {
    let condition = required(
        &["type", "status"],
        json!({
            "type": {"type": "string", "maxLength": 316},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string", "maxLength": 1024},
            "message": {"type": "string", "maxLength": 32768},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        }),
    );
    list(condition, 100)
}

fn taints() -> Value {
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let taint = required(
        &["key", "effect"],
        json!({
            "key": {"type": "string", "minLength": 1, "maxLength": 316},
            "value": {"type": "string", "maxLength": 63},
            "effect": {"type": "string", "enum": effects},
            "timeAdded": {"type": "string", "format": "date-time"},
        }),
    );
    list(taint, 100)
}

fn federated_resource_quota() -> Value {
    let assignment = required(
        &["clusterName", "hard"],
        json!({
            "clusterName": text("The cluster that gets a ResourceQuota."),
            "hard": amounts("What it says."),
        }),
    );
    let expression = required(
        &["scopeName", "operator"],
        json!({
            "scopeName": text("PriorityClass."),
            "operator": text("In, NotIn, Exists or DoesNotExist."),
            "values": list(json!({"type": "string"}), 256),
        }),
    );
    let spec = required(
        &["overall"],
        json!({
            "overall": amounts("How much may be used in all clusters together."),
            "staticAssignments": list(assignment, 1000),
            "elastic": object(json!({
                "chunk": amounts("How much more than it uses a member is lent."),
                "clusters": list(text("The members that are lent anything; all when empty."), 1000),
                "whenFull": when_full(),
            })),
            "scopes": list(text("PriorityClass: bindings whose pods have one."), 64),
            "scopeSelector": object(json!({"matchExpressions": list(expression, 64)})),
        }),
    );
    let told = required(
        &["clusterName"],
        json!({
            "clusterName": text("The cluster."),
            "hard": amounts("What its ResourceQuota says."),
            "used": amounts("What is used of that."),
        }),
    );
    let status = object(json!({
        "overall": amounts("What is enforced."),
        "overallUsed": amounts("What is used in all clusters together."),
        "aggregatedStatus": list(told, 1000),
        "conditions": conditions(),
    }));
    let columns = json!([
        column("OVERALL", "string", ".status.overall"),
        column("OVERALL_USED", "string", ".status.overallUsed"),
    ]);
    let names = Names {
        group: POLICY_GROUP,
        version: "v1alpha1",
        kind: "FederatedResourceQuota",
        plural: "federatedresourcequotas",
        short: &[],
        scope: "Namespaced",
    };
    definition(&names, spec, Some(status), columns)
}

fn propagation_policy() -> Value {
    let selector = required(
        &["apiVersion", "kind"],
        json!({
            "apiVersion": {"type": "string", "minLength": 1},
            "kind": {"type": "string", "minLength": 1},
            "namespace": text("The policy's own, which is meant when it is left out."),
            "name": text("One object; all when empty."),
            "labelSelector": anything("Objects with these labels."),
        }),
    );
    let mut selectors = list(selector, 1000);
    selectors["minItems"] = json!(1);
    let spec = required(
        &["resourceSelectors"],
        json!({
            "resourceSelectors": selectors,
            "placement": anything("Where to: clusterAffinity, clusterTolerations, spreadConstraints, replicaScheduling."),
            "priority": {"type": "integer", "format": "int32", "default": 0},
            "schedulerName": {"type": "string", "default": "default-scheduler"},
            "failover": anything("What becomes of a workload whose cluster fails."),
            "conflictResolution": {"type": "string", "enum": ["Abort", "Overwrite"], "default": "Abort"},
            "schedulePriority": anything("Who is served first."),
            "suspension": anything("What is held back."),
            "propagateDeps": {"type": "boolean"},
            "preserveResourcesOnDeletion": {"type": "boolean"},
        }),
    );
    let names = Names {
        group: POLICY_GROUP,
        version: "v1alpha1",
        kind: "PropagationPolicy",
        plural: "propagationpolicies",
        short: &["pp"],
        scope: "Namespaced",
    };
    let columns = json!([
        column("CONFLICT-RESOLUTION", "string", ".spec.conflictResolution"),
        column("PRIORITY", "string", ".spec.priority"),
        age(),
    ]);
    definition(&names, spec, None, columns)
}

fn cluster_taint_policy() -> Value {
    let condition = required(
        &["conditionType", "operator", "statusValues"],
        json!({
            "conditionType": {"type": "string", "minLength": 1},
            "operator": {"type": "string", "enum": ["In", "NotIn"]},
            "statusValues": list(json!({"type": "string", "enum": ["True", "False", "Unknown"]}), 3),
        }),
    );
    let spec = required(
        &["taints"],
        json!({
            "targetClusters": anything("Which clusters: clusterNames, exclude, labelSelector; all when left out."),
            "addOnConditions": list(condition.clone(), 32),
            "removeOnConditions": list(condition, 32),
            "taints": taints(),
        }),
    );
    let names = Names {
        group: POLICY_GROUP,
        version: "v1alpha1",
        kind: "ClusterTaintPolicy",
        plural: "clustertaintpolicies",
        short: &[],
        scope: "Cluster",
    };
    definition(&names, spec, None, json!([age()]))
}

fn requirements() -> Value {
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "resourceRequest": amounts("What one pod requests."),
            "priorityClassName": {"type": "string"},
        },
    })
}

fn resource_binding() -> Value {
    let reference = required(
        &["apiVersion", "kind", "name"],
        json!({
            "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "namespace": {"type": "string"},
            "name": {"type": "string"}, "uid": {"type": "string"}, "resourceVersion": {"type": "string"},
        }),
    );
    let component = required(
        &["name", "replicas"],
        json!({
            "name": {"type": "string", "maxLength": 32},
            "replicas": count("How many pods."),
            "replicaRequirements": requirements(),
        }),
    );
    let own = required(&["name", "replicas"], json!({"name": {"type": "string"}, "replicas": count("How many pods.")}));
    let target = required(
        &["name"],
        json!({
            "name": {"type": "string", "minLength": 1},
            "replicas": count("How many pods this cluster has."),
            "components": list(own, 64),
        }),
    );
    let task = required(
        &["fromCluster", "reason", "producer"],
        json!({
            "fromCluster": {"type": "string", "minLength": 1},
            "purgeMode": {"type": "string", "enum": PURGE_MODES},
            "replicas": count("How many pods the cluster had."),
            "reason": {"type": "string", "maxLength": 32},
            "message": {"type": "string", "maxLength": 1024},
            "producer": {"type": "string"},
            "gracePeriodSeconds": count("How long the old copy may stay."),
            "suppressDeletion": {"type": "boolean"},
            "preservedLabelState": {"type": "object", "additionalProperties": {"type": "string"}},
            "creationTimestamp": {"type": "string", "format": "date-time"},
            "clustersBeforeFailover": list(json!({"type": "string"}), 1000),
        }),
    );
    let spec = required(
        &["resource"],
        json!({
            "resource": reference,
            "propagateDeps": {"type": "boolean"},
            "replicas": count("How many pods are wanted."),
            "replicaRequirements": requirements(),
            "components": list(component, 64),
            "clusters": list(target, 1000),
            "gracefulEvictionTasks": list(task, 1000),
            "placement": anything("Where to."),
            "requiredBy": list(anything("Who needs it."), 1000),
            "schedulerName": {"type": "string"},
            "failover": anything("What becomes of it when a cluster fails."),
            "conflictResolution": {"type": "string", "default": "Abort", "enum": ["Abort", "Overwrite"]},
            "rescheduleTriggeredAt": {"type": "string", "format": "date-time"},
            "suspension": anything("What is held back."),
            "preserveResourcesOnDeletion": {"type": "boolean"},
            "schedulePriority": object(json!({"priority": {"type": "integer", "format": "int32", "default": 0}})),
            "workloadAffinityGroups": anything("Whom it goes with."),
        }),
    );
    let told = required(
        &["clusterName"],
        json!({
            "clusterName": {"type": "string"},
            "status": anything("The object's status there."),
            "applied": {"type": "boolean"},
            "appliedMessage": {"type": "string"},
            "health": {"type": "string", "enum": ["Healthy", "Unhealthy", "Unknown"]},
        }),
    );
    let status = object(json!({
        "schedulerObservedGeneration": {"type": "integer", "format": "int64"},
        "schedulerObservingAffinityName": {"type": "string"},
        "lastScheduledTime": {"type": "string", "format": "date-time"},
        "conditions": conditions(),
        "aggregatedStatus": list(told, 1000),
    }));
    let columns =
        json!([condition_column("SCHEDULED", "Scheduled"), condition_column("FULLYAPPLIED", "FullyApplied"), age(),]);
    let names = Names {
        group: WORK_GROUP,
        version: "v1alpha2",
        kind: "ResourceBinding",
        plural: "resourcebindings",
        short: &["rb"],
        scope: "Namespaced",
    };
    definition(&names, spec, Some(status), columns)
}

fn work() -> Value {
    let manifest = json!({
        "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
    });
    let spec = object(json!({
        "workload": object(json!({"manifests": list(manifest, 16)})),
        "suspendDispatching": {"type": "boolean"},
        "preserveResourcesOnDeletion": {"type": "boolean"},
    }));
    let told = object(json!({
        "identifier": anything("Which manifest."),
        "status": anything("Its status in the member."),
        "health": {"type": "string", "enum": ["Healthy", "Unhealthy", "Unknown"]},
    }));
    let status = object(json!({"conditions": conditions(), "manifestStatuses": list(told, 16)}));
    let columns = json!([
        column("WORKLOAD-KIND", "string", ".spec.workload.manifests[*].kind"),
        column("WORKLOAD-NAME", "string", ".spec.workload.manifests[*].metadata.name"),
        condition_column("APPLIED", "Applied"),
        age(),
    ]);
    let names = Names {
        group: WORK_GROUP,
        version: "v1alpha1",
        kind: "Work",
        plural: "works",
        short: &["wk"],
        scope: "Namespaced",
    };
    definition(&names, spec, Some(status), columns)
}

fn cluster() -> Value {
    let reference =
        required(&["namespace", "name"], json!({"namespace": {"type": "string"}, "name": {"type": "string"}}));
    let spec = required(
        &["syncMode"],
        json!({
            "id": {"type": "string"},
            "syncMode": {"type": "string", "enum": ["Push", "Pull"]},
            "apiEndpoint": text("https://HOST:PORT"),
            "secretRef": reference.clone(),
            "impersonatorSecretRef": reference,
            "insecureSkipTLSVerification": {"type": "boolean"},
            "provider": {"type": "string"},
            "region": {"type": "string"},
            "zone": {"type": "string"},
            "zones": list(json!({"type": "string"}), 100),
            "taints": taints(),
        }),
    );
    let summary = object(json!({
        "allocatable": amounts("What nodes have for pods."),
        "allocating": amounts("What pods without a node request."),
        "allocated": amounts("What pods on nodes request."),
    }));
    let status = object(json!({
        "kubernetesVersion": {"type": "string"},
        "apiEnablements": list(object(json!({
            "groupVersion": {"type": "string"},
            "resources": list(object(json!({"name": {"type": "string"}, "kind": {"type": "string"}})), 1000),
        })), 1000),
        "conditions": conditions(),
        "nodeSummary": object(json!({"totalNum": count("Nodes."), "readyNum": count("Ready ones.")})),
        "resourceSummary": summary,
    }));
    let columns = json!([
        column("VERSION", "string", ".status.kubernetesVersion"),
        column("MODE", "string", ".spec.syncMode"),
        condition_column("READY", "Ready"),
        age(),
    ]);
    let names = Names {
        group: CLUSTER_GROUP,
        version: "v1alpha1",
        kind: "Cluster",
        plural: "clusters",
        short: &[],
        scope: "Cluster",
    };
    definition(&names, spec, Some(status), columns)
}
