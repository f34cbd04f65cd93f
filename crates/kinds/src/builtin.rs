//! The built-in resources: what discovery says about each, and which facts describe its objects. One line a resource, so
//! that serving another one is a matter of adding its line (and of writing what it does, where it does anything).
//!
//! Kinds whose meaning is work that nothing here performs (admission policies, certificate signing) are left out: a server
//! which stores them without obeying them would mislead.

use std::sync::LazyLock;

use crate::facts::facts;
use crate::schema::TypeId;

/// A resource as discovery describes it.
#[derive(Clone, Debug)]
pub struct Resource {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub list_kind: String,
    pub plural: &'static str,
    pub singular: String,
    pub short_names: Vec<&'static str>,
    pub categories: Vec<&'static str>,
    pub namespaced: bool,
    pub verbs: &'static [&'static str],
    pub subresources: Vec<Subresource>,
    /// The type of the objects, in the catalogue of [`facts`].
    pub ty: TypeId,
}

/// Something below an object that is read or written by itself.
#[derive(Clone, Debug)]
pub struct Subresource {
    pub name: &'static str,
    /// The kind of the body, which is not always the parent's (`Scale`, `Eviction`, `TokenRequest`).
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub verbs: &'static [&'static str],
    pub ty: TypeId,
}

pub const STORED: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// Namespaces are emptied one by one, so there is no deleting all of them at once.
const NAMESPACE: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const ASKED: &[&str] = &["create"];
const READ_WRITE: &[&str] = &["get", "patch", "update"];
const WRITE: &[&str] = &["update"];

/// group/version, plural, Kind, scope (n namespaced, c cluster, q a question that is never stored), short names,
/// categories, subresources; "-" is none.
const TABLE: &str = "
v1                              bindings                       Binding                        nq -         -              -
v1                              configmaps                     ConfigMap                      n  cm        -              -
v1                              endpoints                      Endpoints                      n  ep        -              -
v1                              events                         Event                          n  ev        -              -
v1                              limitranges                    LimitRange                     n  limits    -              -
v1                              namespaces                     Namespace                      c  ns        -              finalize,status
v1                              nodes                          Node                           c  no        -              status
v1                              persistentvolumeclaims         PersistentVolumeClaim          n  pvc       -              status
v1                              persistentvolumes              PersistentVolume               c  pv        -              status
v1                              pods                           Pod                            n  po        all            binding,ephemeralcontainers,eviction,resize,status
v1                              podtemplates                   PodTemplate                    n  -         -              -
v1                              replicationcontrollers         ReplicationController          n  rc        all            scale,status
v1                              resourcequotas                 ResourceQuota                  n  quota     -              status
v1                              secrets                        Secret                         n  -         -              -
v1                              serviceaccounts                ServiceAccount                 n  sa        -              token
v1                              services                       Service                        n  svc       all            status
admissionregistration.k8s.io/v1 mutatingwebhookconfigurations  MutatingWebhookConfiguration   c  -         api-extensions -
admissionregistration.k8s.io/v1 validatingwebhookconfigurations ValidatingWebhookConfiguration c -         api-extensions -
apiextensions.k8s.io/v1         customresourcedefinitions      CustomResourceDefinition       c  crd,crds  api-extensions status
apps/v1                         controllerrevisions            ControllerRevision             n  -         -              -
apps/v1                         daemonsets                     DaemonSet                      n  ds        all            status
apps/v1                         deployments                    Deployment                     n  deploy    all            scale,status
apps/v1                         replicasets                    ReplicaSet                     n  rs        all            scale,status
apps/v1                         statefulsets                   StatefulSet                    n  sts       all            scale,status
authentication.k8s.io/v1        selfsubjectreviews             SelfSubjectReview              q  -         -              -
authentication.k8s.io/v1        tokenreviews                   TokenReview                    q  -         -              -
authorization.k8s.io/v1         localsubjectaccessreviews      LocalSubjectAccessReview       nq -         -              -
authorization.k8s.io/v1         selfsubjectaccessreviews       SelfSubjectAccessReview        q  -         -              -
authorization.k8s.io/v1         selfsubjectrulesreviews        SelfSubjectRulesReview         q  -         -              -
authorization.k8s.io/v1         subjectaccessreviews           SubjectAccessReview            q  -         -              -
autoscaling/v2                  horizontalpodautoscalers       HorizontalPodAutoscaler        n  hpa       all            status
batch/v1                        cronjobs                       CronJob                        n  cj        all            status
batch/v1                        jobs                           Job                            n  -         all            status
coordination.k8s.io/v1          leases                         Lease                          n  -         -              -
discovery.k8s.io/v1             endpointslices                 EndpointSlice                  n  -         -              -
events.k8s.io/v1                events                         Event                          n  ev        -              -
networking.k8s.io/v1            ingressclasses                 IngressClass                   c  -         -              -
networking.k8s.io/v1            ingresses                      Ingress                        n  ing       -              status
networking.k8s.io/v1            networkpolicies                NetworkPolicy                  n  netpol    -              -
node.k8s.io/v1                  runtimeclasses                 RuntimeClass                   c  -         -              -
policy/v1                       poddisruptionbudgets           PodDisruptionBudget            n  pdb       -              status
rbac.authorization.k8s.io/v1    clusterrolebindings            ClusterRoleBinding             c  -         -              -
rbac.authorization.k8s.io/v1    clusterroles                   ClusterRole                    c  -         -              -
rbac.authorization.k8s.io/v1    rolebindings                   RoleBinding                    n  -         -              -
rbac.authorization.k8s.io/v1    roles                          Role                           n  -         -              -
resource.k8s.io/v1              deviceclasses                  DeviceClass                    c  -         -              -
resource.k8s.io/v1              resourceclaims                 ResourceClaim                  n  -         -              status
resource.k8s.io/v1              resourceclaimtemplates         ResourceClaimTemplate          n  -         -              -
resource.k8s.io/v1              resourceslices                 ResourceSlice                  c  -         -              -
scheduling.k8s.io/v1            priorityclasses                PriorityClass                  c  pc        -              -
storage.k8s.io/v1               csidrivers                     CSIDriver                      c  -         -              -
storage.k8s.io/v1               csinodes                       CSINode                        c  -         -              -
storage.k8s.io/v1               csistoragecapacities           CSIStorageCapacity             n  -         -              -
storage.k8s.io/v1               storageclasses                 StorageClass                   c  sc        -              -
storage.k8s.io/v1               volumeattachments              VolumeAttachment               c  -         -              status
storage.k8s.io/v1               volumeattributesclasses        VolumeAttributesClass          c  vac       -              -
";

static RESOURCES: LazyLock<Vec<Resource>> =
    LazyLock::new(|| TABLE.lines().filter(|line| !line.is_empty()).map(resource).collect());

/// Every built-in resource, by group, version and plural.
pub fn builtin() -> &'static [Resource] {
    &RESOURCES
}

/// One built-in resource by the words of its address.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    let key = (group, version, plural);
    let found = RESOURCES.binary_search_by(|resource| (resource.group, resource.version, resource.plural).cmp(&key));
    found.ok().map(|at| &RESOURCES[at])
}

impl Resource {
    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_string(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Whether objects are kept. The others are questions: posted, answered, forgotten.
    pub fn stored(&self) -> bool {
        self.verbs.len() > 1
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }
}

fn resource(line: &'static str) -> Resource {
    let words: Vec<&'static str> = line.split_whitespace().collect();
    let &[group_version, plural, kind, scope, short_names, categories, subresources] = &words[..] else {
        panic!("seven words wanted: {line}");
    };
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    let ty = |group: &str, version: &str, kind: &str| {
        facts().kind(group, version, kind).unwrap_or_else(|| panic!("no facts about {group}/{version} {kind}"))
    };
    let names = |words: &'static str| words.split(',').filter(|word| *word != "-").collect::<Vec<_>>();
    let subresource = |name: &'static str| {
        let (group, version, kind, verbs) = match name {
            "scale" => ("autoscaling", "v1", "Scale", READ_WRITE),
            "eviction" => ("policy", "v1", "Eviction", ASKED),
            "token" => ("authentication.k8s.io", "v1", "TokenRequest", ASKED),
            "binding" => ("", "v1", "Binding", ASKED),
            "finalize" => (group, version, kind, WRITE),
            _ => (group, version, kind, READ_WRITE),
        };
        Subresource { name, group, version, kind, verbs, ty: ty(group, version, kind) }
    };
    let verbs = match (scope.ends_with('q'), plural) {
        (true, _) => ASKED,
        (false, "namespaces") => NAMESPACE,
        (false, _) => STORED,
    };
    Resource {
        group,
        version,
        kind,
        list_kind: format!("{kind}List"),
        plural,
        singular: kind.to_lowercase(),
        short_names: names(short_names),
        categories: names(categories),
        namespaced: scope.starts_with('n'),
        verbs,
        subresources: names(subresources).into_iter().map(subresource).collect(),
        ty: ty(group, version, kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_so_that_find_can_search_it() {
        assert!(builtin().is_sorted_by_key(|resource| (resource.group, resource.version, resource.plural)));
        for resource in builtin() {
            let found = find(resource.group, resource.version, resource.plural).expect("itself");
            assert_eq!(found.kind, resource.kind);
        }
        assert!(find("", "v1", "nosuch").is_none());
    }

    #[test]
    fn subresources_have_bodies_of_their_own_kind() {
        let deployments = find("apps", "v1", "deployments").unwrap();
        assert_eq!(deployments.subresource("scale").unwrap().kind, "Scale");
        assert_eq!(deployments.subresource("status").unwrap().ty, deployments.ty);
        assert_eq!(deployments.api_version(), "apps/v1");
        assert!(!find("authorization.k8s.io", "v1", "selfsubjectaccessreviews").unwrap().stored());
    }

    #[test]
    fn every_stored_kind_has_a_list_kind_with_facts() {
        for resource in builtin().iter().filter(|resource| resource.stored()) {
            let list = facts().kind(resource.group, resource.version, &resource.list_kind);
            assert!(list.is_some(), "{}", resource.list_kind);
        }
    }
}
