//! ClusterRoles made of other ClusterRoles: `aggregationRule` selects by label, the rules are the union.
//!
//! Kubernetes has a controller that writes the union into the role; here the evaluator resolves it at once, so a new
//! labelled role counts with the very next request. [`aggregated_rules`] is the same computation for the controller
//! that shows the union to readers.

use std::collections::{BTreeMap, BTreeSet};

use ::rules::selector::LabelSelector;
use serde_json::Value;

use super::rules::{Rule, parse_rules};

#[derive(Debug, Default)]
pub(super) struct ClusterRoles {
    roles: BTreeMap<String, ClusterRole>,
}

#[derive(Debug)]
struct ClusterRole {
    labels: BTreeMap<String, String>,
    rules: Vec<Rule>,
    /// `None` for an ordinary role. A selector that cannot be read is left out: it must not widen the role.
    selectors: Option<Vec<LabelSelector>>,
}

impl ClusterRoles {
    /// Takes the role's new state; says whether it is one made of others.
    pub fn apply(&mut self, name: &str, object: Option<&Value>) -> bool {
        let Some(object) = object else {
            self.roles.remove(name);
            return false;
        };
        let role = ClusterRole::parse(object);
        let is_aggregate = role.selectors.is_some();
        self.roles.insert(name.to_owned(), role);
        is_aggregate
    }

    /// Every aggregated role with its union, in the order of names.
    pub fn aggregated(&self) -> Vec<(String, Vec<Rule>)> {
        let aggregates = self.roles.iter().filter(|(_, role)| role.selectors.is_some());
        aggregates.map(|(name, _)| (name.clone(), self.resolve(name))).collect()
    }

    fn resolve(&self, name: &str) -> Vec<Rule> {
        let mut rules = Vec::new();
        let mut known = BTreeSet::new();
        // Roles may select each other in circles; each is visited once.
        let mut seen = BTreeSet::from([name]);
        let mut waiting = vec![name];
        while let Some(name) = waiting.pop() {
            let Some(role) = self.roles.get(name) else { continue };
            let Some(selectors) = &role.selectors else {
                rules.extend(role.rules.iter().filter(|rule| known.insert(*rule)).cloned());
                continue;
            };
            let is_selected = |role: &ClusterRole| selectors.iter().any(|selector| selector.matches(&role.labels));
            let selected = self.roles.iter().rev().filter(|(_, other)| is_selected(other));
            waiting.extend(selected.map(|(name, _)| name.as_str()).filter(|name| seen.insert(name)));
        }
        rules
    }
}

/// The `rules` each aggregated ClusterRole of `objects` should show, by name.
pub fn aggregated_rules<'o>(objects: impl IntoIterator<Item = &'o Value>) -> Vec<(String, Vec<Rule>)> {
    let mut roles = ClusterRoles::default();
    for object in objects {
        if let Some(name) = object["metadata"]["name"].as_str() {
            roles.apply(name, Some(object));
        }
    }
    roles.aggregated()
}

impl ClusterRole {
    fn parse(object: &Value) -> ClusterRole {
        let selectors = object["aggregationRule"]["clusterRoleSelectors"].as_array();
        ClusterRole {
            labels: string_map(&object["metadata"]["labels"]),
            rules: parse_rules(object),
            selectors: selectors
                .filter(|selectors| !selectors.is_empty())
                .map(|selectors| selectors.iter().filter_map(|one| LabelSelector::from_object(one).ok()).collect()),
        }
    }
}

fn string_map(value: &Value) -> BTreeMap<String, String> {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(name: &str, label: &str, verb: &str) -> Value {
        json!({"metadata": {"name": name, "labels": {label: "true"}},
               "rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}]})
    }

    fn aggregate(name: &str, label: &str, selects: Value) -> Value {
        json!({"metadata": {"name": name, "labels": {label: "true"}},
               "aggregationRule": {"clusterRoleSelectors": selects}, "rules": []})
    }

    #[test]
    fn unions_reach_through_aggregates_and_survive_circles() {
        let by = |label: &str| json!([{"matchLabels": {label: "true"}}]);
        let objects = [
            role("r-view", "to-view", "get"),
            role("r-edit", "to-edit", "create"),
            role("other", "else", "delete"),
            aggregate("view", "to-edit", by("to-view")),
            aggregate("edit", "to-admin", by("to-edit")),
            aggregate("admin", "to-view", by("to-admin")),
            aggregate("exprs", "", json!([{"matchExpressions": [{"key": "else", "operator": "Exists"}]}])),
            aggregate("odd", "", json!([{"matchExpressions": [{"key": "else", "operator": "Near"}]}])),
        ];
        let verbs: BTreeMap<String, Vec<String>> = aggregated_rules(&objects)
            .into_iter()
            .map(|(name, rules)| (name, rules.into_iter().flat_map(|rule| rule.verbs).collect()))
            .collect();
        let sorted = |name: &str| {
            let mut verbs = verbs[name].clone();
            verbs.sort();
            verbs.join(" ")
        };
        assert_eq!(sorted("view"), "create get");
        assert_eq!(sorted("admin"), "create get");
        assert_eq!(sorted("exprs"), "delete");
        assert_eq!(sorted("odd"), "");
    }
}
