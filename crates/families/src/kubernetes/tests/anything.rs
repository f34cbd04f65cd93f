//! Whatever is sent, the family answers: bad input is an error, never a panic.

use std::sync::Arc;

use ledger::SubjectId;
use proptest::prelude::*;
use rules::{GroupResource, Rulebook, Subject, policy_name};
use serde_json::Value;

use crate::kubernetes::{Kubernetes, Settings};
use crate::{Admission, BalanceLine, Balances, Family, Nothing, Operation, PolicyObject, World};

/// The field names that mean something somewhere, so that random trees get somewhere.
const FIELDS: &str = "metadata spec status name namespace hard used scopes scopeSelector matchExpressions scopeName \
    operator values containers initContainers resources requests limits overhead cpu memory storage type ports \
    max min default defaultRequest maxLimitRequestRatio selector labels annotations quota parent restartPolicy phase \
    containerStatuses allocatedResources conditions devices exactly firstAvailable count affinity podAffinity \
    requiredDuringSchedulingIgnoredDuringExecution pods hugepages-2Mi a/b namespaces ownerReferences";
const TEXTS: &str = "1 100m 1Gi -1 x Container Pod PersistentVolumeClaim In Exists PriorityClass BestEffort Always \
    LoadBalancer Succeeded gold 9e28 hierarchy";

fn anything() -> impl Strategy<Value = Value> {
    let field = prop::sample::select(FIELDS.split_whitespace().map(str::to_string).collect::<Vec<_>>());
    let word = prop::sample::select(TEXTS.split_whitespace().map(str::to_string).collect::<Vec<_>>());
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        word.prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            3 => prop::collection::btree_map(field.clone(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A world where every list and name leads to the same object.
struct Everywhere(Arc<Value>);

impl World for Everywhere {
    fn list(&self, _: &GroupResource, _: &str) -> Vec<Arc<Value>> {
        vec![self.0.clone()]
    }

    fn get(&self, _: &GroupResource, _: &str, _: &str) -> Option<Arc<Value>> {
        Some(self.0.clone())
    }
}

/// A ledger without accounts.
struct Unused;

impl Balances for Unused {
    fn of(&self, _: &str) -> Vec<BalanceLine> {
        Vec::new()
    }
}

proptest! {
    #[test]
    fn nothing_panics(object in anything(), other in anything()) {
        let family = Kubernetes::new(Settings::default());
        let world = Everywhere(Arc::new(other.clone()));
        let mut resources: Vec<_> = family.manifest().policies.iter().map(crate::Plural::resource).collect();
        resources.extend(["pods", "services", "persistentvolumeclaims", "limitranges"].map(GroupResource::core));
        resources.push(GroupResource::new("resource.k8s.io", "resourceclaims"));
        resources.push(GroupResource::new("hnc.x-k8s.io", "hierarchyconfigurations"));
        for resource in &resources {
            for operation in [Operation::Create, Operation::Update, Operation::Status] {
                let mut object = object.clone();
                let old = (operation != Operation::Create).then_some(&other);
                let mut request = Admission {
                    operation,
                    resource,
                    subresource: "",
                    namespace: "ns",
                    name: "x",
                    object: &mut object,
                    old, origin: &crate::Origin::default() };
                let _ = family.admit(&mut request, &world);
                let _ = family.validate(&request, &world);
                family.project(resource, &mut object, &Unused);
            }
            let policy = PolicyObject { resource, namespace: "ns", name: "x", object: &object, in_force: None };
            if let Ok(compiled) = family.compile(&policy, &world) {
                let mut rulebook = Rulebook::new();
                rulebook.install(policy_name(resource, "ns", "x"), compiled);
                for resource in &resources {
                    let _ = rulebook.measure(&Subject::new(SubjectId(1), resource, "ns", "x", &other));
                }
            }
        }
        for one in family.manifest().virtuals {
            let resource = GroupResource::new(one.group, one.resource);
            let _ = family.virtual_write(&resource, "ns", &object);
            let _ = family.virtual_objects(&resource, "ns", &world, &Unused);
        }
        let _ = crate::kubernetes::limited::read_configuration(&object);
        let _ = family.admit(
            &mut Admission {
                operation: Operation::Create,
                resource: &GroupResource::core("pods"),
                subresource: "",
                namespace: "ns",
                name: "x",
                object: &mut object.clone(),
                old: None, origin: &crate::Origin::default()
            },
            &Nothing,
        );
    }
}
