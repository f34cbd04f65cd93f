//! Resources that may only be used under a quota (the `limitedResources` of a ResourceQuotaConfiguration).

use kinds::fields::{at, items, text};
use kinds::resources::UsageError;
use kinds::resources::names::is_extended;
use kinds::resources::pod::pod_usage;
use ledger::SubjectId;
use quantity::Amount;
use rules::{GroupResource, Subject};
use serde_json::Value;

use super::scopes::{Operator, Requirement, Scopes};
use super::usage::service::service_usage;
use super::usage::{device, volume};

/// One entry of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitedResource {
    pub resource: GroupResource,
    /// Names that contain one of these are limited.
    pub match_contains: Vec<String>,
    /// Objects that match one of these need a quota with a scope of the same name.
    pub match_scopes: Vec<Requirement>,
}

/// Reads a ResourceQuotaConfiguration. Unknown fields and kinds are refused: a limit that is silently not in force is
/// worse than a server that does not start.
pub fn read_configuration(document: &Value) -> Result<Vec<LimitedResource>, String> {
    let kind = (text(document, &["apiVersion"]), text(document, &["kind"]));
    let known = [
        ("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"),
        ("resourcequota.admission.k8s.io/v1beta1", "Configuration"),
        ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"),
    ];
    if !known.contains(&kind) {
        return Err(format!("no kind \"{}\" is known for version \"{}\"", kind.1, kind.0));
    }
    only(document, &["apiVersion", "kind", "limitedResources"])?;
    items(document, &["limitedResources"]).iter().map(LimitedResource::read).collect()
}

fn only(object: &Value, fields: &[&str]) -> Result<(), String> {
    let unknown = object.as_object().into_iter().flatten().find(|(name, _)| !fields.contains(&&***name));
    unknown.map_or(Ok(()), |(name, _)| Err(format!("strict decoding error: unknown field \"{name}\"")))
}

impl LimitedResource {
    fn read(entry: &Value) -> Result<LimitedResource, String> {
        only(entry, &["apiGroup", "resource", "matchContains", "matchScopes"])?;
        let resource = text(entry, &["resource"]);
        if resource.is_empty() {
            return Err("limitedResources: resource: Required value".into());
        }
        let scopes: Result<Vec<_>, _> = items(entry, &["matchScopes"]).iter().map(Requirement::read).collect();
        Ok(LimitedResource {
            resource: GroupResource::new(text(entry, &["apiGroup"]), resource),
            match_contains: items(entry, &["matchContains"]).iter().filter_map(Value::as_str).map(Into::into).collect(),
            match_scopes: scopes.map_err(|name| format!("limitedResources: matchScopes: {name:?} is unknown"))?,
        })
    }
}

/// Why the object may not be written: it uses, or matches, something limited which no quota covers. `quotas` are the
/// ResourceQuotas of its namespace.
pub fn uncovered<'a>(
    limited: &[LimitedResource],
    resource: &GroupResource,
    namespace: &str,
    object: &Value,
    old: Option<&Value>,
    quotas: impl Iterator<Item = &'a Value>,
) -> Result<Option<String>, UsageError> {
    let before = old.map(|old| usage(resource, old)).transpose()?.unwrap_or_default();
    let had = |name: &str| before.iter().find(|(known, _)| known == name).map_or(Amount::ZERO, |(_, amount)| *amount);
    let mut grown = usage(resource, object)?;
    grown.retain(|(name, amount)| *amount > had(name));
    if grown.is_empty() {
        return Ok(None);
    }
    let subject = Subject::new(SubjectId(0), resource, namespace, "", object);
    let (mut names, mut scopes) = needs(limited, &subject, &grown)?;
    for quota in quotas {
        let Ok(of_quota) = Scopes::read(quota.get("spec").unwrap_or(&Value::Null)) else { continue };
        if !matches(&of_quota, &subject)? {
            continue;
        }
        let hard = at(quota, &["spec", "hard"]).and_then(Value::as_object);
        let covers = |name: &str| hard.is_some_and(|hard| hard.contains_key(name));
        if !grown.iter().any(|(name, _)| covers(name)) {
            continue;
        }
        names.retain(|name| !covers(name));
        scopes.retain(|limited| !of_quota.requirements().iter().any(|one| one.scope == limited.scope));
    }
    if !names.is_empty() {
        names.sort();
        return Ok(Some(format!("insufficient quota to consume: {}", names.join(","))));
    }
    let shown: Vec<String> = scopes.iter().map(|scope| show(scope)).collect();
    Ok((!shown.is_empty()).then(|| format!("insufficient quota to match these scopes: [{}]", shown.join(" "))))
}

/// The limited names the object uses, and the limited scopes it matches. Scopes are looked at whatever resource their
/// entry names, as Kubernetes does.
fn needs<'a>(
    limited: &'a [LimitedResource],
    subject: &Subject<'_>,
    grown: &[(String, Amount)],
) -> Result<(Vec<String>, Vec<&'a Requirement>), UsageError> {
    let mut names = Vec::new();
    let mut scopes: Vec<&Requirement> = Vec::new();
    for entry in limited {
        if entry.resource == *subject.resource {
            let limits = |name: &str| entry.match_contains.iter().any(|part| name.contains(&**part));
            names.extend(grown.iter().filter(|(name, _)| limits(name)).map(|(name, _)| name.clone()));
        }
        for scope in &entry.match_scopes {
            if matches_one(scope, subject)? && !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
    }
    names.sort();
    names.dedup();
    Ok((names, scopes))
}

fn matches_one(scope: &Requirement, subject: &Subject<'_>) -> Result<bool, UsageError> {
    if subject.resource.is("", "pods") {
        return scope.matches_pod(subject);
    }
    Ok(subject.resource.is("", "persistentvolumeclaims") && scope.matches_volume_claim(subject.object))
}

fn matches(scopes: &Scopes, subject: &Subject<'_>) -> Result<bool, UsageError> {
    for scope in scopes.requirements() {
        if !matches_one(scope, subject)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn show(requirement: &Requirement) -> String {
    let (operator, values) = match &requirement.operator {
        Operator::Exists => ("Exists", &[][..]),
        Operator::DoesNotExist => ("DoesNotExist", &[][..]),
        Operator::In(values) => ("In", &values[..]),
        Operator::NotIn(values) => ("NotIn", &values[..]),
    };
    format!("{{{} {operator} [{}]}}", requirement.scope.name(), values.join(" "))
}

/// Every name under which an object could be charged, with how much.
fn usage(resource: &GroupResource, object: &Value) -> Result<Vec<(String, Amount)>, UsageError> {
    let one = Amount::from_units(1);
    let mut used: Vec<(String, Amount)> = vec![(format!("count/{resource}"), one)];
    let mut put = |name: String, amount: Amount| {
        if amount > Amount::ZERO {
            used.push((name, amount));
        }
    };
    match (&*resource.group, &*resource.resource) {
        ("", "pods") => {
            let pod = pod_usage(object)?;
            put("pods".into(), if pod.live { one } else { Amount::ZERO });
            for (name, asked) in pod.requests.iter() {
                if !is_extended(name) {
                    put(name.to_string(), asked.amount);
                }
                put(format!("requests.{name}"), asked.amount);
            }
            for name in kinds::resources::COMMON {
                let limit = pod.limits.common(name).map_or(Amount::ZERO, |limit| limit.amount);
                put(format!("limits.{}", name.name()), limit);
            }
        }
        ("", "services") => {
            let service = service_usage(object);
            put("services".into(), one);
            put("services.nodeports".into(), Amount::from_units(service.node_ports));
            put("services.loadbalancers".into(), Amount::from_units(service.load_balancers));
        }
        ("", "persistentvolumeclaims") => {
            let storage = volume::storage(object)?.map_or(Amount::ZERO, |storage| storage.amount);
            let class = volume::storage_class(object);
            put("persistentvolumeclaims".into(), one);
            put("requests.storage".into(), storage);
            if !class.is_empty() {
                put(format!("{class}.storageclass.storage.k8s.io/persistentvolumeclaims"), one);
                put(format!("{class}.storageclass.storage.k8s.io/requests.storage"), storage);
            }
        }
        ("resource.k8s.io", "resourceclaims") => {
            for class in device::classes_of(object) {
                let name = format!("{class}.deviceclass.resource.k8s.io/devices");
                let too_large = || UsageError::TooLarge { resource: name.clone() };
                let count = device::devices(object, class).ok_or_else(too_large)?.amount;
                put(format!("requests.deviceclass.resource.kubernetes.io/{class}"), count);
                put(name, count);
            }
        }
        ("", "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas") => put(resource.to_string(), one),
        _ => {}
    }
    Ok(used)
}
