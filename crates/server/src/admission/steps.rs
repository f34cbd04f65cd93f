//! Small admission steps that look at other objects: what Kubernetes has as the plugins Priority, RuntimeClass, DefaultStorageClass,
//! PersistentVolumeClaimResize and NamespaceLifecycle. Pure functions, in Kubernetes' words.
//!
//! Whether a pod's ServiceAccount exists is not asked: nothing here runs pods, so nothing would mount its token.

use std::sync::Arc;

use families::kubernetes::usage::volume::storage_class;
use families::{Admission, Operation, Parsed, World};
use kinds::resources::{Resources, quantity_of};
use rules::GroupResource;
use serde_json::{Value, json};

/// Namespaces the system itself lives in.
const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Classes that exist without being stored, with their values.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

const PREEMPTS: &str = "PreemptLowerPriority";

const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// Fills in what depends on other objects, and refuses what contradicts them. `Err` is the text behind
/// `<resource> "<name>" is forbidden: `. Running it again changes nothing more.
pub fn admit(request: &mut Admission<'_>, world: &dyn World) -> Result<(), String> {
    if !request.subresource.is_empty() {
        return Ok(());
    }
    match (&*request.resource.group, &*request.resource.resource, request.operation) {
        ("", "pods", Operation::Create) => {
            prioritize(request.object, world)?;
            take_overhead(request.object, world)
        }
        ("", "pods", Operation::Update) => {
            keep_priority(request.object, request.old);
            Ok(())
        }
        ("", "persistentvolumeclaims", Operation::Create) => {
            default_storage_class(request.object, world);
            Ok(())
        }
        ("", "persistentvolumeclaims", Operation::Update) => may_grow(request.object, request.old, world),
        ("scheduling.k8s.io", "priorityclasses", Operation::Create | Operation::Update) => {
            one_global_default(request.name, request.object, world)
        }
        _ => Ok(()),
    }
}

/// Whether an object may be deleted at all.
pub fn admit_delete(resource: &GroupResource, name: &str) -> Result<(), String> {
    if resource.is("", "namespaces") && IMMORTAL_NAMESPACES.contains(&name) {
        return Err("this namespace may not be deleted".into());
    }
    Ok(())
}

/// What a class gives a pod.
#[derive(Clone)]
struct Class {
    name: String,
    value: i64,
    preemption: String,
    is_default: bool,
}

impl Class {
    fn of(object: &Value) -> Class {
        Class {
            name: object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().into(),
            value: object.get("value").and_then(Value::as_i64).unwrap_or(0),
            preemption: object.get("preemptionPolicy").and_then(Value::as_str).unwrap_or(PREEMPTS).into(),
            is_default: is_global_default(object),
        }
    }

    fn named(name: &str, world: &dyn World) -> Option<Class> {
        let stored = world.get(&priority_classes(), "", name).map(|object| Class::of(&object));
        stored.or_else(|| {
            let (name, value) = SYSTEM_CLASSES.into_iter().find(|(known, _)| *known == name)?;
            Some(Class { name: name.into(), value, preemption: PREEMPTS.into(), is_default: false })
        })
    }

    /// The class of pods that name none. Should several claim to be it, the least important wins. Every new pod asks for
    /// it, so that each class is read once for each of its states.
    fn global_default(world: &dyn World) -> Class {
        let classes = world.parsed(&priority_classes(), "", &|class| -> Parsed { Arc::new(Class::of(class)) });
        let default = classes.iter().filter_map(|made| made.downcast_ref::<Class>()).filter(|class| class.is_default);
        let least = default.min_by(|a, b| (a.value, &a.name).cmp(&(b.value, &b.name)));
        let none = || Class { name: String::new(), value: 0, preemption: PREEMPTS.into(), is_default: false };
        least.cloned().unwrap_or_else(none)
    }
}

fn priority_classes() -> GroupResource {
    GroupResource::new("scheduling.k8s.io", "priorityclasses")
}

fn is_global_default(class: &Value) -> bool {
    class.get("globalDefault").and_then(Value::as_bool) == Some(true)
}

fn prioritize(pod: &mut Value, world: &dyn World) -> Result<(), String> {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    let class = match spec.get("priorityClassName").and_then(Value::as_str).unwrap_or_default() {
        "" => Class::global_default(world),
        name => Class::named(name, world).ok_or_else(|| format!("no PriorityClass with name {name} was found"))?,
    };
    let Class { name, value, preemption, .. } = class;
    if let Some(given) = spec.get("priority").and_then(Value::as_i64).filter(|given| *given != value) {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed \
             {value} from the given PriorityClass name"
        ));
    }
    let given = spec.get("preemptionPolicy").and_then(Value::as_str);
    if let Some(given) = given.filter(|given| *given != preemption) {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller \
             computed {preemption} from the given PriorityClass name"
        ));
    }
    if !name.is_empty() {
        spec.insert("priorityClassName".into(), name.into());
    }
    spec.insert("priority".into(), value.into());
    spec.insert("preemptionPolicy".into(), preemption.into());
    Ok(())
}

/// A client that does not know these fields sends them back empty.
fn keep_priority(pod: &mut Value, old: Option<&Value>) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for field in ["priority", "preemptionPolicy"] {
        let known = old.and_then(|old| old.get("spec")).and_then(|spec| spec.get(field));
        if let (Some(known), true) = (known, spec.get(field).is_none_or(Value::is_null)) {
            spec.insert(field.into(), known.clone());
        }
    }
}

/// What a pod's RuntimeClass costs is charged to the pod: in full, and nothing else is.
fn take_overhead(pod: &mut Value, world: &dyn World) -> Result<(), String> {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    let class = match spec.get("runtimeClassName").and_then(Value::as_str) {
        None => None,
        Some(name) => {
            let found = world.get(&GroupResource::new("node.k8s.io", "runtimeclasses"), "", name);
            Some(found.ok_or_else(|| format!("pod rejected: RuntimeClass {name:?} not found"))?)
        }
    };
    let cost = class.as_ref().and_then(|class| class.get("overhead")).filter(|overhead| !overhead.is_null());
    let given = spec.get("overhead").filter(|overhead| !overhead.is_null());
    let Some(cost) = cost.map(|overhead| overhead.get("podFixed").cloned().unwrap_or_default()) else {
        // An amount that could not be anybody's is told as what it is, by validation.
        let is_amount = |list: &Value| {
            Resources::read(Some(list)).is_ok_and(|list| list.iter().all(|(_, one)| !one.amount.is_negative()))
        };
        return match given {
            Some(given) if is_amount(given) => {
                Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".into())
            }
            _ => Ok(()),
        };
    };
    let differs = |given: &Value| given.as_object().is_some_and(|list| !list.is_empty()) && !is_same_list(given, &cost);
    if given.is_some_and(differs) {
        return Err("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".into());
    }
    match cost {
        Value::Null => spec.remove("overhead"),
        cost => spec.insert("overhead".into(), cost),
    };
    Ok(())
}

/// Whether two lists state the same amounts.
fn is_same_list(one: &Value, other: &Value) -> bool {
    let read = |list: &Value| Resources::read(Some(list)).ok();
    read(one).is_some() && read(one) == read(other)
}

/// A bound claim grows where its class says that its volumes can. One that is not bound does not grow at all, which is not
/// said here: its spec is final.
fn may_grow(claim: &Value, old: Option<&Value>, world: &dyn World) -> Result<(), String> {
    let Some(old) = old else { return Ok(()) };
    let size = |claim: &Value| {
        let size = claim.pointer("/spec/resources/requests/storage")?;
        quantity_of("storage", size).ok().map(|quantity| quantity.amount())
    };
    let is_bound = old.pointer("/status/phase").and_then(Value::as_str) == Some("Bound");
    if !is_bound || size(claim) <= size(old) {
        return Ok(());
    }
    let class = storage_class(old);
    let found = world.get(&GroupResource::new("storage.k8s.io", "storageclasses"), "", class);
    let expands = found.is_some_and(|class| class.get("allowVolumeExpansion").and_then(Value::as_bool) == Some(true));
    if class.is_empty() || storage_class(claim) != class || !expands {
        return Err(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
                    support resize"
                .into(),
        );
    }
    Ok(())
}

fn one_global_default(name: &str, class: &Value, world: &dyn World) -> Result<(), String> {
    if !is_global_default(class) {
        return Ok(());
    }
    let classes = world.list(&priority_classes(), "");
    let other = classes.iter().filter(|class| is_global_default(class)).map(|class| Class::of(class).name);
    match other.into_iter().find(|other| other != name) {
        Some(other) => Err(format!("PriorityClass {other} is already marked as default. Only one default can exist")),
        None => Ok(()),
    }
}

fn default_storage_class(claim: &mut Value, world: &dyn World) {
    let annotated = |object: &Value, key: &str| object["metadata"]["annotations"].get(key).cloned();
    // An empty name is an answer too: no class at all.
    if claim["spec"].get("storageClassName").is_some_and(Value::is_string)
        || annotated(claim, CLASS_ANNOTATION).is_some()
    {
        return;
    }
    let classes = world.list(&GroupResource::new("storage.k8s.io", "storageclasses"), "");
    let is_default = |class: &&Arc<Value>| DEFAULT_CLASS.iter().any(|key| annotated(class, key) == Some(json!("true")));
    let text = |class: &Value, field: &str| class["metadata"][field].as_str().unwrap_or_default().to_owned();
    // The newest wins, as in Kubernetes, so that a default can be moved by adding one. Times are all in one form, whose
    // order is that of the texts.
    let newest = classes.iter().filter(is_default).max_by(|a, b| {
        let by_time = text(a, "creationTimestamp").cmp(&text(b, "creationTimestamp"));
        by_time.then_with(|| text(b, "name").cmp(&text(a, "name")))
    });
    if let (Some(class), Some(spec)) = (newest, claim.get_mut("spec").and_then(Value::as_object_mut)) {
        spec.insert("storageClassName".into(), text(class, "name").into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some objects, each with its resource.
    struct Few(Vec<(GroupResource, Value)>);

    impl World for Few {
        fn list(&self, resource: &GroupResource, _namespace: &str) -> Vec<Arc<Value>> {
            self.0.iter().filter(|(of, _)| of == resource).map(|(_, object)| Arc::new(object.clone())).collect()
        }

        fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Value>> {
            self.list(resource, namespace).into_iter().find(|object| object["metadata"]["name"] == name)
        }
    }

    fn class(name: &str, value: i64, default: bool) -> (GroupResource, Value) {
        let object = json!({"metadata": {"name": name}, "value": value, "globalDefault": default,
            "preemptionPolicy": if value < 0 { "Never" } else { PREEMPTS }});
        (priority_classes(), object)
    }

    fn run(resource: &GroupResource, operation: Operation, object: &mut Value, world: &Few) -> Result<(), String> {
        let mut request = Admission {
            operation,
            resource,
            subresource: "",
            namespace: "n",
            name: "x",
            object,
            old: None,
            origin: &families::Origin::default(),
        };
        admit(&mut request, world)
    }

    #[test]
    fn pods_get_the_priority_of_their_class() {
        let plain = Few(vec![class("high", 1000, false), class("low", -5, false)]);
        let defaulted = Few(vec![class("b", 7, true), class("a", 9, true), class("high", 1000, false)]);
        let cases = [
            (&plain, json!({}), json!({"priority": 0, "preemptionPolicy": PREEMPTS})),
            (
                &plain,
                json!({"priorityClassName": "low"}),
                json!({"priorityClassName": "low", "priority": -5, "preemptionPolicy": "Never"}),
            ),
            (
                &plain,
                json!({"priorityClassName": "system-node-critical"}),
                json!({"priorityClassName": "system-node-critical", "priority": 2_000_001_000, "preemptionPolicy": PREEMPTS}),
            ),
            (&defaulted, json!({}), json!({"priorityClassName": "b", "priority": 7, "preemptionPolicy": PREEMPTS})),
            (&plain, json!({"priorityClassName": "none"}), json!("no PriorityClass with name none was found")),
            (
                &plain,
                json!({"priorityClassName": "high", "priority": 3}),
                json!(
                    "the integer value of priority (3) must not be provided in pod spec; priority admission controller \
                     computed 1000 from the given PriorityClass name"
                ),
            ),
            (
                &plain,
                json!({"preemptionPolicy": "Never"}),
                json!(
                    "the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission \
                     controller computed PreemptLowerPriority from the given PriorityClass name"
                ),
            ),
        ];
        for (world, spec, expected) in cases {
            let mut pod = json!({"spec": spec});
            let answer = match run(&GroupResource::core("pods"), Operation::Create, &mut pod, world) {
                Ok(()) => pod["spec"].clone(),
                Err(why) => json!(why),
            };
            assert_eq!(answer, expected, "{spec}");
        }
    }

    #[test]
    fn there_is_one_global_default_class() {
        let world = Few(vec![class("b", 7, true)]);
        let resource = priority_classes();
        let error = run(&resource, Operation::Create, &mut json!({"globalDefault": true}), &world).unwrap_err();
        assert_eq!(error, "PriorityClass b is already marked as default. Only one default can exist");
        assert!(run(&resource, Operation::Create, &mut json!({"globalDefault": false}), &world).is_ok());
    }

    #[test]
    fn claims_get_the_newest_default_class() {
        let class = |name: &str, at: &str, default: &str| {
            let annotations = json!({"storageclass.kubernetes.io/is-default-class": default});
            let object = json!({"metadata": {"name": name, "creationTimestamp": at, "annotations": annotations}});
            (GroupResource::new("storage.k8s.io", "storageclasses"), object)
        };
        let world = Few(vec![
            class("old", "2025-01-01T00:00:00Z", "true"),
            class("b", "2025-02-01T00:00:00Z", "true"),
            class("a", "2025-02-01T00:00:00Z", "true"),
            class("newest", "2025-03-01T00:00:00Z", "false"),
        ]);
        let cases = [
            (json!({"spec": {}}), json!("a")),
            (json!({"spec": {"storageClassName": ""}}), json!("")),
            (json!({"spec": {"storageClassName": "old"}}), json!("old")),
            (json!({"metadata": {"annotations": {CLASS_ANNOTATION: "x"}}, "spec": {}}), Value::Null),
        ];
        for (mut claim, expected) in cases {
            run(&GroupResource::core("persistentvolumeclaims"), Operation::Create, &mut claim, &world).unwrap();
            assert_eq!(claim["spec"].get("storageClassName").cloned().unwrap_or_default(), expected);
        }
    }

    #[test]
    fn the_systems_namespaces_stay() {
        for (name, allowed) in [("default", false), ("kube-system", false), ("kube-public", false), ("team-a", true)] {
            assert_eq!(admit_delete(&GroupResource::core("namespaces"), name).is_ok(), allowed, "{name}");
        }
        assert!(admit_delete(&GroupResource::core("configmaps"), "default").is_ok());
    }
}
