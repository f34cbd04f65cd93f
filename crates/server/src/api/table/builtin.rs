//! The columns of the built-in kinds, as `kubectl get` users know them. One line a column; what takes more than a path
//! is a function in [`super::cells`].

use super::cells;
use super::{Cell, Column};

/// (name, type, priority, cell). Priority 1 is shown with `-o wide`.
type Line = (&'static str, &'static str, i64, Cell);

use Cell::{Age, Call, Pointer};

const S: &str = "string";
const I: &str = "integer";

const CONTAINERS: Line = ("Containers", S, 1, Call(cells::template_containers));
const IMAGES: Line = ("Images", S, 1, Call(cells::template_images));
const SELECTOR: Line = ("Selector", S, 1, Call(cells::selector));
const AGE: Line = ("Age", S, 0, Age);
const CREATED_AT: Line = ("Created At", "date", 0, Pointer("/metadata/creationTimestamp"));

/// The columns after the name; `None` for kinds that have no printer of their own.
pub fn columns(group: &str, plural: &str) -> Vec<Column> {
    lines(group, plural)
        .iter()
        .map(|(name, kind, priority, cell)| Column::builtin(name, kind, *priority, cell.clone()))
        .collect()
}

/// Kinds whose first column is not the name.
pub fn starts_with_name(group: &str, plural: &str) -> bool {
    !(plural == "events" && matches!(group, "" | "events.k8s.io"))
}

fn lines(group: &str, plural: &str) -> &'static [Line] {
    match (group, plural) {
        ("", "pods") => &[
            ("Ready", S, 0, Call(cells::pod_ready)),
            ("Status", S, 0, Call(cells::pod_status)),
            ("Restarts", S, 0, Call(cells::pod_restarts)),
            AGE,
            ("IP", S, 1, Call(cells::pod_ip)),
            ("Node", S, 1, Call(cells::pod_node)),
            ("Nominated Node", S, 1, Call(cells::pod_nominated_node)),
            ("Readiness Gates", S, 1, Call(cells::none)),
        ],
        ("", "configmaps") => &[("Data", S, 0, Call(cells::data_count)), AGE],
        ("", "secrets") => &[("Type", S, 0, Pointer("/type")), ("Data", S, 0, Call(cells::data_count)), AGE],
        ("", "serviceaccounts") => &[AGE],
        ("", "namespaces") => &[("Status", S, 0, Pointer("/status/phase")), AGE],
        ("", "nodes") => &[
            ("Status", S, 0, Call(cells::node_status)),
            ("Roles", S, 0, Call(cells::node_roles)),
            AGE,
            ("Version", S, 0, Pointer("/status/nodeInfo/kubeletVersion")),
            ("Internal-IP", S, 1, Call(cells::node_internal_ip)),
            ("External-IP", S, 1, Call(cells::node_external_ip)),
            ("OS-Image", S, 1, Call(cells::node_os_image)),
            ("Kernel-Version", S, 1, Call(cells::node_kernel)),
            ("Container-Runtime", S, 1, Call(cells::node_runtime)),
        ],
        ("", "services") => &[
            ("Type", S, 0, Pointer("/spec/type")),
            ("Cluster-IP", S, 0, Call(cells::service_ip)),
            ("External-IP", S, 0, Call(cells::service_external_ip)),
            ("Port(s)", S, 0, Call(cells::service_ports)),
            AGE,
            SELECTOR,
        ],
        ("", "endpoints") => &[("Endpoints", S, 0, Call(cells::endpoints)), AGE],
        ("", "resourcequotas") => {
            &[("Request", S, 0, Call(cells::quota_requests)), ("Limit", S, 0, Call(cells::quota_limits)), AGE]
        }
        ("", "persistentvolumeclaims") => &[
            ("Status", S, 0, Call(cells::claim_status)),
            ("Volume", S, 0, Pointer("/spec/volumeName")),
            ("Capacity", S, 0, Pointer("/status/capacity/storage")),
            ("Access Modes", S, 0, Call(cells::claim_modes)),
            ("StorageClass", S, 0, Pointer("/spec/storageClassName")),
            ("VolumeAttributesClass", S, 0, Call(cells::attributes_class)),
            AGE,
            ("VolumeMode", S, 1, Call(cells::volume_mode)),
        ],
        ("", "persistentvolumes") => &[
            ("Capacity", S, 0, Pointer("/spec/capacity/storage")),
            ("Access Modes", S, 0, Call(cells::volume_modes)),
            ("Reclaim Policy", S, 0, Pointer("/spec/persistentVolumeReclaimPolicy")),
            ("Status", S, 0, Call(cells::claim_status)),
            ("Claim", S, 0, Call(cells::volume_claim)),
            ("StorageClass", S, 0, Pointer("/spec/storageClassName")),
            ("VolumeAttributesClass", S, 0, Call(cells::attributes_class)),
            ("Reason", S, 0, Pointer("/status/reason")),
            AGE,
            ("VolumeMode", S, 1, Call(cells::volume_mode)),
        ],
        ("", "replicationcontrollers") | ("apps", "replicasets") => &[
            ("Desired", I, 0, Call(cells::desired)),
            ("Current", I, 0, Call(cells::current)),
            ("Ready", I, 0, Call(cells::ready)),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        ("apps", "deployments") => &[
            ("Ready", S, 0, Call(cells::ready_of_desired)),
            ("Up-to-date", I, 0, Call(cells::updated)),
            ("Available", I, 0, Call(cells::available)),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        ("apps", "statefulsets") => &[("Ready", S, 0, Call(cells::ready_of_desired)), AGE, CONTAINERS, IMAGES],
        ("apps", "daemonsets") => &[
            ("Desired", I, 0, Pointer("/status/desiredNumberScheduled")),
            ("Current", I, 0, Pointer("/status/currentNumberScheduled")),
            ("Ready", I, 0, Pointer("/status/numberReady")),
            ("Up-to-date", I, 0, Pointer("/status/updatedNumberScheduled")),
            ("Available", I, 0, Pointer("/status/numberAvailable")),
            ("Node Selector", S, 0, Call(cells::node_selector)),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        ("apps", "controllerrevisions") => {
            &[("Controller", S, 0, Call(cells::controller)), ("Revision", S, 0, Pointer("/revision")), AGE]
        }
        ("batch", "jobs") => &[
            ("Status", S, 0, Call(cells::job_status)),
            ("Completions", S, 0, Call(cells::job_completions)),
            ("Duration", S, 0, Call(cells::job_duration)),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        ("batch", "cronjobs") => &[
            ("Schedule", S, 0, Pointer("/spec/schedule")),
            ("Timezone", S, 0, Call(cells::time_zone)),
            ("Suspend", S, 0, Call(cells::suspend)),
            ("Active", I, 0, Call(cells::active_jobs)),
            ("Last Schedule", S, 0, Call(cells::last_schedule)),
            AGE,
        ],
        ("", "events") | ("events.k8s.io", "events") => &[
            ("Last Seen", S, 0, Call(cells::event_last_seen)),
            ("Type", S, 0, Pointer("/type")),
            ("Reason", S, 0, Pointer("/reason")),
            ("Object", S, 0, Call(cells::event_object)),
            ("Message", S, 0, Call(cells::event_message)),
            ("Name", S, 1, Pointer("/metadata/name")),
        ],
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => &[
            ("Role", S, 0, Call(cells::role_ref)),
            AGE,
            ("Users", S, 1, Call(cells::bound_users)),
            ("Groups", S, 1, Call(cells::bound_groups)),
            ("ServiceAccounts", S, 1, Call(cells::bound_accounts)),
        ],
        ("storage.k8s.io", "storageclasses") => &[
            ("Provisioner", S, 0, Pointer("/provisioner")),
            ("ReclaimPolicy", S, 0, Pointer("/reclaimPolicy")),
            ("VolumeBindingMode", S, 0, Pointer("/volumeBindingMode")),
            ("AllowVolumeExpansion", S, 0, Call(cells::allows_expansion)),
            AGE,
        ],
        ("storage.k8s.io", "volumeattributesclasses") => &[("DriverName", S, 0, Pointer("/driverName")), AGE],
        ("scheduling.k8s.io", "priorityclasses") => &[
            ("Value", I, 0, Pointer("/value")),
            ("Global-Default", "boolean", 0, Call(cells::global_default)),
            AGE,
            ("PreemptionPolicy", S, 0, Pointer("/preemptionPolicy")),
        ],
        ("networking.k8s.io", "ingresses") => &[
            ("Class", S, 0, Call(cells::ingress_class)),
            ("Hosts", S, 0, Call(cells::ingress_hosts)),
            ("Address", S, 0, Call(cells::ingress_address)),
            ("Ports", S, 0, Call(cells::ingress_ports)),
            AGE,
        ],
        ("networking.k8s.io", "ingressclasses") => {
            &[("Controller", S, 0, Pointer("/spec/controller")), ("Parameters", S, 0, Call(cells::none)), AGE]
        }
        ("networking.k8s.io", "networkpolicies") => &[("Pod-Selector", S, 0, Call(cells::pod_selector)), AGE],
        ("coordination.k8s.io", "leases") => &[("Holder", S, 0, Pointer("/spec/holderIdentity")), AGE],
        ("node.k8s.io", "runtimeclasses") => &[("Handler", S, 0, Pointer("/handler")), AGE],
        ("policy", "poddisruptionbudgets") => &[
            ("Min Available", S, 0, Call(cells::min_available)),
            ("Max Unavailable", S, 0, Call(cells::max_unavailable)),
            ("Allowed Disruptions", I, 0, Pointer("/status/disruptionsAllowed")),
            AGE,
        ],
        ("autoscaling", "horizontalpodautoscalers") => &[
            ("Reference", S, 0, Call(cells::scale_target)),
            ("MinPods", S, 0, Pointer("/spec/minReplicas")),
            ("MaxPods", I, 0, Pointer("/spec/maxReplicas")),
            ("Replicas", I, 0, Pointer("/status/currentReplicas")),
            AGE,
        ],
        ("admissionregistration.k8s.io", _) => &[("Webhooks", I, 0, Call(cells::webhooks_count)), AGE],
        ("resource.k8s.io", "resourceclaims") => &[("State", S, 0, Call(cells::resource_claim_state)), AGE],
        ("resource.k8s.io", _) | ("discovery.k8s.io", _) => &[AGE],
        _ => &[CREATED_AT],
    }
}
