//! The names a quota may list, and what each is counted from.

use kinds::resources::Common;
use kinds::resources::names::is_extended;
use rules::GroupResource;

const STORAGE_CLASS_STORAGE: &str = ".storageclass.storage.k8s.io/requests.storage";
const STORAGE_CLASS_CLAIMS: &str = ".storageclass.storage.k8s.io/persistentvolumeclaims";
const DEVICE_CLASS_DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// A device class asked for as if it were an extended resource.
const IMPLICIT_DEVICES: &str = "deviceclass.resource.kubernetes.io/";

/// Resources that quotas never look at: questions that are not stored, and events, which would fill any quota by
/// themselves.
const IGNORED: [(&str, &str); 10] = [
    ("", "bindings"),
    ("", "componentstatuses"),
    ("", "events"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("events.k8s.io", "events"),
];

/// One thing a quota name is counted from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Counted {
    Pod(PodPart),
    Service(ServicePart),
    Volume(VolumePart),
    Device(DevicePart),
    /// One for each stored object.
    Object(GroupResource),
}

impl Counted {
    /// The resource whose objects are counted.
    pub fn resource(self) -> GroupResource {
        match self {
            Counted::Pod(_) => GroupResource::core("pods"),
            Counted::Service(_) => GroupResource::core("services"),
            Counted::Volume(_) => GroupResource::core("persistentvolumeclaims"),
            Counted::Device(_) => GroupResource::new("resource.k8s.io", "resourceclaims"),
            Counted::Object(resource) => resource,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PodPart {
    /// One for each stored pod.
    Object,
    /// One for each pod that has not ended.
    Live,
    Request(Common),
    Limit(Common),
    /// Requests of huge pages and extended resources.
    RequestOf(Box<str>),
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ServicePart {
    Object,
    NodePorts,
    LoadBalancers,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VolumePart {
    Object,
    Storage,
    ObjectOfClass(Box<str>),
    StorageOfClass(Box<str>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DevicePart {
    Object,
    Class(Box<str>),
    /// The same devices, under the name by which pods ask for them.
    ImplicitClass(Box<str>),
    /// The devices of all classes that go by the name of one extended resource.
    ExtendedClasses(Box<[Box<str>]>),
}

/// What a name is counted from; nothing when no evaluator knows the name.
pub fn counted_from(name: &str) -> Vec<Counted> {
    if let Some(known) = fixed(name) {
        return vec![known];
    }
    if name.starts_with("hugepages-") {
        return vec![Counted::Pod(PodPart::RequestOf(name.into()))];
    }
    if let Some(counted) = name.strip_prefix("count/") {
        return object(counted).into_iter().collect();
    }
    if let Some(asked) = name.strip_prefix("requests.") {
        if asked.starts_with("hugepages-") || is_extended(asked) {
            return vec![Counted::Pod(PodPart::RequestOf(asked.into()))];
        }
        if let Some(class) = asked.strip_prefix(IMPLICIT_DEVICES) {
            return vec![
                Counted::Pod(PodPart::RequestOf(asked.into())),
                Counted::Device(DevicePart::ImplicitClass(class.into())),
            ];
        }
    }
    let class = |suffix: &str| name.strip_suffix(suffix).map(Box::<str>::from);
    if let Some(class) = class(STORAGE_CLASS_STORAGE) {
        return vec![Counted::Volume(VolumePart::StorageOfClass(class))];
    }
    if let Some(class) = class(STORAGE_CLASS_CLAIMS) {
        return vec![Counted::Volume(VolumePart::ObjectOfClass(class))];
    }
    if let Some(class) = class(DEVICE_CLASS_DEVICES) {
        return vec![Counted::Device(DevicePart::Class(class))];
    }
    Vec::new()
}

fn fixed(name: &str) -> Option<Counted> {
    let core = |resource| Counted::Object(GroupResource::core(resource));
    Some(match name {
        "pods" => Counted::Pod(PodPart::Live),
        "cpu" | "requests.cpu" => Counted::Pod(PodPart::Request(Common::Cpu)),
        "memory" | "requests.memory" => Counted::Pod(PodPart::Request(Common::Memory)),
        "ephemeral-storage" | "requests.ephemeral-storage" => Counted::Pod(PodPart::Request(Common::EphemeralStorage)),
        "limits.cpu" => Counted::Pod(PodPart::Limit(Common::Cpu)),
        "limits.memory" => Counted::Pod(PodPart::Limit(Common::Memory)),
        "limits.ephemeral-storage" => Counted::Pod(PodPart::Limit(Common::EphemeralStorage)),
        "services" => Counted::Service(ServicePart::Object),
        "services.nodeports" => Counted::Service(ServicePart::NodePorts),
        "services.loadbalancers" => Counted::Service(ServicePart::LoadBalancers),
        "persistentvolumeclaims" => Counted::Volume(VolumePart::Object),
        "requests.storage" => Counted::Volume(VolumePart::Storage),
        "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas" => core(name),
        _ => return None,
    })
}

/// `RESOURCE` or `RESOURCE.GROUP`, without the version.
fn object(counted: &str) -> Option<Counted> {
    let (resource, group) = counted.split_once('.').unwrap_or((counted, ""));
    if IGNORED.contains(&(group, resource)) || is_cluster_scoped(group, resource) {
        return None;
    }
    Some(match (group, resource) {
        ("", "pods") => Counted::Pod(PodPart::Object),
        ("", "services") => Counted::Service(ServicePart::Object),
        ("", "persistentvolumeclaims") => Counted::Volume(VolumePart::Object),
        ("resource.k8s.io", "resourceclaims") => Counted::Device(DevicePart::Object),
        _ => Counted::Object(GroupResource::new(group, resource)),
    })
}

/// Objects outside of namespaces are never charged to a quota, which lives in one.
fn is_cluster_scoped(group: &str, resource: &str) -> bool {
    let found = kinds::builtin().iter().find(|known| known.group == group && known.plural == resource);
    found.is_some_and(|known| !known.namespaced)
}

#[cfg(test)]
mod tests {
    use kinds::resources::names::is_standard_quota;

    use super::*;

    #[test]
    fn every_name_is_counted_from_what_kubernetes_counts_it_from() {
        let table = "
            pods                                       Pod(Live)
            count/pods                                 Pod(Object)
            cpu                                        Pod(Request(Cpu))
            requests.cpu                               Pod(Request(Cpu))
            memory                                     Pod(Request(Memory))
            requests.memory                            Pod(Request(Memory))
            ephemeral-storage                          Pod(Request(EphemeralStorage))
            requests.ephemeral-storage                 Pod(Request(EphemeralStorage))
            limits.cpu                                 Pod(Limit(Cpu))
            limits.memory                              Pod(Limit(Memory))
            limits.ephemeral-storage                   Pod(Limit(EphemeralStorage))
            hugepages-2Mi                              Pod(RequestOf(\"hugepages-2Mi\"))
            requests.hugepages-2Mi                     Pod(RequestOf(\"hugepages-2Mi\"))
            limits.hugepages-2Mi                       -
            requests.example.com/gpu                   Pod(RequestOf(\"example.com/gpu\"))
            example.com/gpu                            -
            limits.example.com/gpu                     -
            requests.kubernetes.io/batch-cpu           -
            requests.deviceclass.resource.kubernetes.io/gold \
                Pod(RequestOf(\"deviceclass.resource.kubernetes.io/gold\")) Device(ImplicitClass(\"gold\"))
            gold.deviceclass.resource.k8s.io/devices   Device(Class(\"gold\"))
            count/resourceclaims.resource.k8s.io       Device(Object)
            services                                   Service(Object)
            count/services                             Service(Object)
            services.nodeports                         Service(NodePorts)
            services.loadbalancers                     Service(LoadBalancers)
            persistentvolumeclaims                     Volume(Object)
            count/persistentvolumeclaims               Volume(Object)
            requests.storage                           Volume(Storage)
            gold.storageclass.storage.k8s.io/requests.storage        Volume(StorageOfClass(\"gold\"))
            gold.storageclass.storage.k8s.io/persistentvolumeclaims  Volume(ObjectOfClass(\"gold\"))
            configmaps                                 configmaps
            secrets                                    secrets
            replicationcontrollers                     replicationcontrollers
            resourcequotas                             resourcequotas
            count/configmaps                           configmaps
            count/replicasets.apps                     replicasets.apps
            count/widgets.shop.example.com             widgets.shop.example.com
            count/events                               -
            count/events.events.k8s.io                 -
            count/bindings                             -
            count/nodes                                -
            storage                                    -
            limits.storage                             -
        ";
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (name, wanted) = line.split_once(' ').unwrap();
            let found: Vec<String> = counted_from(name)
                .into_iter()
                .map(|counted| match counted {
                    Counted::Object(resource) => resource.to_string(),
                    other => format!("{other:?}"),
                })
                .collect();
            let found = if found.is_empty() { "-".to_string() } else { found.join(" ") };
            assert_eq!(found, wanted.split_whitespace().collect::<Vec<_>>().join(" "), "{name}");
        }
    }

    #[test]
    fn every_standard_name_is_counted_from_something_and_no_other_without_a_prefix() {
        let words = "cpu memory ephemeral-storage storage pods resourcequotas services replicationcontrollers secrets \
            persistentvolumeclaims configmaps services.nodeports services.loadbalancers foo count";
        let prefixed = |prefix: &'static str| words.split_whitespace().map(move |word| format!("{prefix}{word}"));
        for name in prefixed("").chain(prefixed("requests.")).chain(prefixed("limits.")) {
            assert_eq!(fixed(&name).is_some(), is_standard_quota(&name), "{name}");
        }
    }
}
