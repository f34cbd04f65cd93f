//! PropagationPolicy: which policy a template is under, and what its binding says.

use std::collections::BTreeMap;

use kinds::fields::{items, text};
use rules::selector::LabelSelector;
use serde_json::{Value, json};

use super::interpret::Wants;

/// Selectors that the policies of one namespace may have together: every template there is held against each of them.
pub const SELECTORS_MAX: usize = 4096;

/// A policy, read once for all templates that ask.
pub struct Policy {
    pub object: Value,
    priority: i64,
    selectors: Vec<Selector>,
}

struct Selector {
    api_version: String,
    kind: String,
    means: Means,
}

/// Which objects of a kind are meant.
enum Means {
    All,
    Named(String),
    Labelled(LabelSelector),
    /// What cannot be read selects nothing.
    Nobody,
}

impl Policy {
    pub fn read(object: Value) -> Policy {
        let priority = object.pointer("/spec/priority").and_then(Value::as_i64).unwrap_or(0);
        let selectors = items(&object, &["spec", "resourceSelectors"]).iter().map(Selector::read).collect();
        Policy { object, priority, selectors }
    }

    fn name(&self) -> &str {
        text(&self.object, &["metadata", "name"])
    }

    fn closeness(&self, template: &Value, labels: &BTreeMap<String, String>) -> Option<Closeness> {
        let close = self.selectors.iter().filter_map(|selector| selector.selects(template, labels)).max();
        close.map(|close| (self.priority, close))
    }
}

impl Selector {
    fn read(written: &Value) -> Selector {
        let of = |field: &str| text(written, &[field]).to_owned();
        let labels = written.get("labelSelector").filter(|one| !one.is_null());
        let means = match (of("name"), labels) {
            (name, _) if !name.is_empty() => Means::Named(name),
            (_, None) => Means::All,
            (_, Some(labels)) => LabelSelector::from_object(labels).map_or(Means::Nobody, Means::Labelled),
        };
        Selector { api_version: of("apiVersion"), kind: of("kind"), means }
    }

    fn selects(&self, template: &Value, labels: &BTreeMap<String, String>) -> Option<u8> {
        if text(template, &["apiVersion"]) != self.api_version || text(template, &["kind"]) != self.kind {
            return None;
        }
        match &self.means {
            Means::All => Some(1),
            Means::Labelled(selector) => selector.matches(labels).then_some(2),
            Means::Named(name) => (*name == text(template, &["metadata", "name"])).then_some(3),
            Means::Nobody => None,
        }
    }
}

/// How closely a policy means an object: its priority, then by name, by labels, or just its kind.
type Closeness = (i64, u8);

/// The policy a template is under: the highest priority, then the closest, then the first by name.
pub fn best<'a>(template: &Value, policies: impl Iterator<Item = &'a Policy>) -> Option<&'a Policy> {
    let labels = template.pointer("/metadata/labels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten().map(|(key, value)| (key.clone(), value.as_str().unwrap_or("").into()));
    let labels: BTreeMap<String, String> = labels.collect();
    let close = policies.filter_map(|policy| Some((policy.closeness(template, &labels)?, policy)));
    let best = close.max_by(|(one, a), (other, b)| one.cmp(other).then_with(|| b.name().cmp(a.name())));
    best.map(|(_, policy)| policy)
}

/// The kinds a policy names, as apiVersion and kind.
pub fn kinds(policy: &Value) -> impl Iterator<Item = (&str, &str)> {
    let selectors = items(policy, &["spec", "resourceSelectors"]);
    selectors.iter().map(|one| (text(one, &["apiVersion"]), text(one, &["kind"])))
}

/// Where the binding of an object is found.
pub fn binding_name(kind: &str, name: &str) -> String {
    format!("{name}-{kind}").to_lowercase().replace(':', ".")
}

/// What a binding's spec says of its template and policy. What was scheduled is not part of it. A field that is null is
/// taken out of the binding.
pub fn binding_spec(template: &Value, policy: &Value, wants: &Wants) -> Value {
    let metadata = |field: &str| text(template, &["metadata", field]);
    let of_policy = |field: &str| policy.pointer(&format!("/spec/{field}")).cloned().unwrap_or(Value::Null);
    let requirements = wants.requirements.as_ref();
    json!({
        "resource": {
            "apiVersion": text(template, &["apiVersion"]), "kind": text(template, &["kind"]),
            "namespace": metadata("namespace"), "name": metadata("name"), "uid": metadata("uid"),
        },
        "replicas": if wants.components.is_empty() { json!(wants.replicas) } else { Value::Null },
        "replicaRequirements": requirements.map_or(Value::Null, |one| json!(one)),
        "components": if wants.components.is_empty() { Value::Null } else { json!(wants.components) },
        "placement": policy.pointer("/spec/placement").cloned().unwrap_or_else(|| json!({})),
        "schedulerName": of_policy("schedulerName"),
        "failover": of_policy("failover"),
        "suspension": of_policy("suspension"),
        "schedulePriority": policy.pointer("/spec/schedulePriority/priority").map_or(Value::Null, |one| json!({"priority": one})),
        "preserveResourcesOnDeletion": of_policy("preserveResourcesOnDeletion"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str, priority: i64, selector: Value) -> Policy {
        Policy::read(
            json!({"metadata": {"name": name}, "spec": {"priority": priority, "resourceSelectors": [selector]}}),
        )
    }

    #[test]
    fn the_closest_policy_wins_and_priority_before_that() {
        let web =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"a": "b"}}});
        let of = |more: Value| {
            let mut selector = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
            more.as_object().unwrap().iter().for_each(|(key, value)| selector[key] = value.clone());
            selector
        };
        let all = policy("z-all", 0, of(json!({})));
        let other = policy("other", 9, of(json!({"name": "api"})));
        let labels = policy("labels", 0, of(json!({"labelSelector": {"matchLabels": {"a": "b"}}})));
        let exact = policy("exact", 0, of(json!({"name": "web"})));
        let high = policy("high", 1, of(json!({})));
        let twin = policy("a-all", 0, of(json!({})));
        let odd = policy("odd", 5, of(json!({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "?"}]}})));
        let name = |list: &[&Policy]| best(&web, list.iter().copied()).map(|one| one.name().to_owned());
        assert_eq!(name(&[&all, &other, &labels, &exact, &odd]).as_deref(), Some("exact"));
        assert_eq!(name(&[&exact, &high, &labels]).as_deref(), Some("high"));
        assert_eq!(name(&[&all, &labels]).as_deref(), Some("labels"));
        assert_eq!(name(&[&all, &twin]).as_deref(), Some("a-all"));
        assert_eq!(name(&[&other, &odd]), None);
        assert_eq!(binding_name("Deployment", "a:B"), "a.b-deployment");
    }
}
