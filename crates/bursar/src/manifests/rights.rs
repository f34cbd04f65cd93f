//! Who the operator is, and what it may do: no more than it does.

use std::collections::BTreeMap;

use families::{Families, Settings};
use operator::{guests, registration};
use rules::GroupResource;
use serde_json::{Value, json};

use super::{NAME, Plan};

/// What quotas may count where nothing else is said: the kinds of workloads. Whoever counts others gives the operator the right to list
/// them.
const COUNTED: &[(&str, &[&str])] = &[
    ("", &["configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "services"]),
    ("apps", &["daemonsets", "deployments", "replicasets", "statefulsets"]),
    ("batch", &["cronjobs", "jobs"]),
    ("networking.k8s.io", &["ingresses"]),
];

/// The families of a plan, as the operator runs them.
pub fn guests_of(plan: &Plan) -> Families {
    guests::guests(&Settings::default(), |name| plan.families.contains(&name))
}

pub fn objects(plan: &Plan) -> Vec<Value> {
    let counted = format!("{NAME}-counted");
    let counted_rules = COUNTED.iter().map(|(group, resources)| rule(group, resources, &["get", "list", "watch"]));
    vec![
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": NAME, "namespace": plan.namespace},
            // The operator's pods alone mount a token.
            "automountServiceAccountToken": false,
        }),
        role(NAME, own(plan)),
        role(&counted, counted_rules.collect()),
        binding(NAME, plan),
        binding(&counted, plan),
    ]
}

fn rule(group: &str, resources: &[impl AsRef<str>], verbs: &[&str]) -> Value {
    let resources: Vec<&str> = resources.iter().map(AsRef::as_ref).collect();
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// What it does for itself, and for the families that are switched on.
fn own(plan: &Plan) -> Vec<Value> {
    let (hooks, configurations) = ("admissionregistration.k8s.io", ["validatingwebhookconfigurations"]);
    // By server-side apply, which creates under a name that is known.
    let mut registration = rule(hooks, &configurations, &["create", "get", "patch"]);
    registration["resourceNames"] = json!([registration::CONFIGURATION]);
    let mut rules = vec![
        // Namespaces are picked by their labels.
        rule("", &["namespaces"], &["list", "watch"]),
        registration,
        // How long others may take to answer, before what they may still refuse is looked for.
        rule(hooks, &configurations, &["list"]),
        rule("apiextensions.k8s.io", &["customresourcedefinitions"], &["create", "get"]),
    ];
    for name in &plan.families {
        let families = guests::guests(&Settings::default(), |chosen| chosen == *name);
        // Its own kinds, what they show, and what of them it fills in.
        for (group, own) in by_group(guests::own(&families)) {
            let statuses: Vec<String> = own.iter().map(|one| format!("{one}/status")).collect();
            rules.push(rule(&group, &own, &["list", "watch"]));
            rules.push(rule(&group, &statuses, &["update"]));
        }
        for (group, filled_in) in by_group(guests::filled_in(&families)) {
            rules.push(rule(&group, &filled_in, &["update"]));
        }
        for (group, kept) in by_group(guests::kept_by(&families)) {
            rules.push(rule(&group, &kept, &["create", "delete", "list", "update", "watch"]));
        }
        for (group, resources) in by_group(guests::explained_by(&families)) {
            rules.push(rule(&group, &resources, &["list", "watch"]));
        }
    }
    rules
}

fn by_group(resources: Vec<GroupResource>) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for resource in resources {
        groups.entry(resource.group.to_string()).or_default().push(resource.resource.to_string());
    }
    groups
}

fn role(name: &str, rules: Vec<Value>) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    })
}

fn binding(role: &str, plan: &Plan) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": plan.namespace}],
    })
}
