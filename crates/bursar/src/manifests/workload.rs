//! The operator's pods, how they are reached and by whom, and where they keep what they hold.

use serde_json::{Value, json};

use super::{NAME, PORT, Plan, Store, selector};

/// The folder's volume: holds and ledger alone are on it.
const VOLUME_SIZE: &str = "1Gi";
/// What nobody else runs as.
const USER: u32 = 65532;

pub fn objects(plan: &Plan) -> Vec<Value> {
    let here = || json!({"name": NAME, "namespace": plan.namespace});
    let mut objects = Vec::new();
    if plan.is_folder() {
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": here(),
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": VOLUME_SIZE}}},
        }));
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": here(),
            "spec": {
                "selector": selector(),
                "ports": [{"name": "webhook", "port": 443, "targetPort": "webhook", "protocol": "TCP"}],
            },
        }));
    }
    objects.push(json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": here(),
        "spec": {
            "podSelector": {"matchLabels": selector()},
            "policyTypes": ["Ingress"],
            // The webhook, and the probes on the same port. The API server has no name here.
            "ingress": [{"ports": [{"port": "webhook", "protocol": "TCP"}]}],
        },
    }));
    objects.push(json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": here(),
        "spec": {
            "maxUnavailable": 1,
            // A pod that does not work keeps no node from being drained.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector()},
        },
    }));
    objects.push(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": here(),
        "spec": {
            "replicas": plan.replicas,
            "selector": {"matchLabels": selector()},
            "strategy": match plan.is_folder() {
                // The folder is one process's at a time.
                true => json!({"type": "Recreate"}),
                false => json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}),
            },
            "template": {"metadata": {"labels": selector()}, "spec": pod(plan)},
        },
    }));
    objects
}

fn pod(plan: &Plan) -> Value {
    let spread = |topology: &str| {
        json!({
            "maxSkew": 1,
            "topologyKey": topology,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector()},
        })
    };
    let mut pod = json!({
        "serviceAccountName": NAME,
        "automountServiceAccountToken": true,
        "enableServiceLinks": false,
        "priorityClassName": "system-cluster-critical",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container(plan)],
        "topologySpreadConstraints": [spread("kubernetes.io/hostname"), spread("topology.kubernetes.io/zone")],
    });
    let (volume, mount) = match &plan.store {
        Store::Folder => (
            json!({"name": "store", "persistentVolumeClaim": {"claimName": NAME}}),
            json!({"name": "store", "mountPath": "/var/lib/bursar"}),
        ),
        Store::Etcd { secret: Some(secret), .. } => (
            json!({"name": "etcd", "secret": {"secretName": secret, "defaultMode": 0o440}}),
            json!({"name": "etcd", "mountPath": "/etc/bursar/etcd", "readOnly": true}),
        ),
        Store::Etcd { secret: None, .. } => return pod,
    };
    pod["volumes"] = json!([volume]);
    pod["containers"][0]["volumeMounts"] = json!([mount]);
    pod
}

fn container(plan: &Plan) -> Value {
    let mut args = vec!["operator".to_owned()];
    match &plan.store {
        Store::Folder => args.push("--data=/var/lib/bursar/operator".into()),
        Store::Etcd { address, secret } => {
            args.push(format!("--store={address}"));
            if secret.is_some() {
                let files = [("cafile", "ca.crt"), ("certfile", "tls.crt"), ("keyfile", "tls.key")];
                args.extend(files.map(|(option, file)| format!("--etcd-{option}=/etc/bursar/etcd/{file}")));
            }
        }
    }
    args.push(format!("--listen=0.0.0.0:{PORT}"));
    args.push(match plan.is_folder() {
        true => format!("--service={}/{NAME}", plan.namespace),
        // Who leads registers its own address: nothing but the API server has to notice that another one does.
        false => format!("--url=https://$(POD_ADDRESS):{PORT}"),
    });
    args.push(format!("--families={}", plan.families.join(",")));
    args.push(format!("--exempt={}", plan.exempt.join(",")));
    args.push("--log=info".into());
    let get = |path: &str| json!({"scheme": "HTTPS", "path": path, "port": "webhook"});
    let mut container = json!({
        "name": "operator",
        "image": plan.image,
        "imagePullPolicy": "IfNotPresent",
        "args": args,
        "ports": [{"name": "webhook", "containerPort": PORT, "protocol": "TCP"}],
        // A start may take a while, and that is no reason for another one.
        "startupProbe": {"httpGet": get("/healthz"), "periodSeconds": 2, "failureThreshold": 150},
        "livenessProbe": {"httpGet": get("/healthz"), "periodSeconds": 10, "failureThreshold": 3},
        // Where the leader registers its own address, one that stands by is as ready as it can be.
        "readinessProbe": {
            "httpGet": get(if plan.is_folder() { "/readyz" } else { "/healthz" }),
            "periodSeconds": 1,
            "failureThreshold": 2,
        },
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
    });
    if !plan.is_folder() {
        container["env"] = json!([{"name": "POD_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]);
    }
    container
}
