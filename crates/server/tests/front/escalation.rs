//! Nobody grants what they do not hold.

use serde_json::{Value, json};
use server::authz::{Denial, Kind, Rbac, RoleChange, check_binding, check_role};
use server::identity::Identity;

fn rules(lines: &[(&[&str], &str, &[&str])]) -> Value {
    let rules: Vec<Value> = lines
        .iter()
        .map(|(verbs, group, resources)| json!({"verbs": verbs, "apiGroups": [group], "resources": resources}))
        .collect();
    json!({"rules": rules})
}

fn bound(rbac: &Rbac, user: &str, role: Value) {
    rbac.apply(Kind::ClusterRole, "", user, Some(&role));
    let binding =
        json!({"roleRef": {"kind": "ClusterRole", "name": user}, "subjects": [{"kind": "User", "name": user}]});
    rbac.apply(Kind::RoleBinding, "team-a", user, Some(&binding));
}

fn person(user: &str) -> Identity {
    Identity::authenticated(user, ["dev"])
}

fn change<'a>(kind: Kind, old: Option<&'a Value>, new: &'a Value) -> RoleChange<'a> {
    let namespace = if matches!(kind, Kind::Role | Kind::RoleBinding) { "team-a" } else { "" };
    RoleChange { kind, namespace, name: "x", old, new }
}

#[test]
fn a_role_needs_its_rules() {
    let rbac = Rbac::new();
    bound(&rbac, "alice", rules(&[(&["get", "list"], "", &["pods"])]));
    let small = rules(&[(&["get"], "", &["pods"])]);
    let big = rules(&[(&["get", "delete", "create"], "", &["pods"]), (&["get"], "apps", &["deployments"])]);
    assert_eq!(check_role(&rbac, &person("alice"), change(Kind::Role, None, &small)), Ok(()));
    let refused = check_role(&rbac, &person("alice"), change(Kind::Role, None, &big)).expect_err("refused");
    assert_eq!(
        refused.to_string(),
        "roles.rbac.authorization.k8s.io \"x\" is forbidden: user \"alice\" (groups=[\"dev\" \"system:authenticated\"]) is \
         attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\" \"create\"]}\n\
         {APIGroups:[\"apps\"], Resources:[\"deployments\"], Verbs:[\"get\"]}"
    );
    // What is there already may stay: only the change is judged.
    assert_eq!(check_role(&rbac, &person("alice"), change(Kind::Role, Some(&big), &big)), Ok(()));
    // Garbage collection needs no rights; a label, by which a role can become part of another, needs the rules.
    let with = |mut role: Value, metadata: Value| {
        role["metadata"] = metadata;
        role
    };
    let plain = with(big.clone(), json!({"name": "x", "resourceVersion": "1"}));
    let released = with(big.clone(), json!({"name": "x", "resourceVersion": "2", "finalizers": ["a/b"]}));
    let labelled = with(big.clone(), json!({"name": "x", "labels": {"aggregate-to-view": "true"}}));
    assert_eq!(check_role(&rbac, &person("alice"), change(Kind::Role, Some(&plain), &released)), Ok(()));
    for kind in [Kind::Role, Kind::ClusterRole] {
        assert!(check_role(&rbac, &person("alice"), change(kind, Some(&plain), &labelled)).is_err(), "{kind:?}");
    }
    // Held in a namespace is not held in the cluster.
    assert!(check_role(&rbac, &person("alice"), change(Kind::ClusterRole, None, &small)).is_err());
    assert_eq!(check_role(&rbac, &Identity::internal("test"), change(Kind::ClusterRole, None, &big)), Ok(()));
}

#[test]
fn escalate_and_bind_are_rights_of_their_own() {
    let rbac = Rbac::new();
    let group = "rbac.authorization.k8s.io";
    bound(&rbac, "eve", rules(&[(&["escalate"], group, &["roles"]), (&["bind"], group, &["clusterroles"])]));
    let big = rules(&[(&["*"], "*", &["*"])]);
    assert_eq!(check_role(&rbac, &person("eve"), change(Kind::Role, None, &big)), Ok(()));
    rbac.apply(Kind::ClusterRole, "", "boss", Some(&big));
    let binding = |role: &str| json!({"roleRef": {"kind": "ClusterRole", "name": role}, "subjects": [{"kind": "User", "name": "eve"}]});
    assert_eq!(check_binding(&rbac, &person("eve"), change(Kind::RoleBinding, None, &binding("boss"))), Ok(()));
    let alice = check_binding(&rbac, &person("alice"), change(Kind::RoleBinding, None, &binding("boss")));
    let message = alice.expect_err("refused").to_string();
    assert!(
        message.ends_with("not currently held:\n{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}"),
        "{message}"
    );
    let missing = check_binding(&rbac, &person("alice"), change(Kind::RoleBinding, None, &binding("nope")));
    assert!(matches!(missing, Err(Denial::NoSuchRole { .. })));
    // Unchanged subjects and role: nothing is granted.
    let boss = binding("boss");
    assert_eq!(check_binding(&rbac, &person("alice"), change(Kind::RoleBinding, Some(&boss), &boss)), Ok(()));
}

#[test]
fn an_aggregation_is_for_who_holds_everything() {
    let rbac = Rbac::new();
    let aggregate = json!({"rules": [], "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
    let refused =
        check_role(&rbac, &person("alice"), change(Kind::ClusterRole, None, &aggregate)).expect_err("refused");
    let expected = "clusterroles.rbac.authorization.k8s.io \"x\" is forbidden: must have cluster-admin privileges to use the aggregationRule";
    assert_eq!(refused.to_string(), expected);
    let everything = json!({"rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]});
    rbac.apply(Kind::ClusterRole, "", "all", Some(&everything));
    let binding =
        json!({"roleRef": {"kind": "ClusterRole", "name": "all"}, "subjects": [{"kind": "User", "name": "root"}]});
    rbac.apply(Kind::ClusterRoleBinding, "", "all", Some(&binding));
    assert_eq!(check_role(&rbac, &person("root"), change(Kind::ClusterRole, None, &aggregate)), Ok(()));
}

#[test]
fn a_hostile_role_is_refused_quickly() {
    let rbac = Rbac::new();
    let many: Vec<String> = (0..2_000).map(|at| format!("r{at}")).collect();
    let role = json!({"rules": [{"verbs": many, "apiGroups": many, "resources": many}]});
    let refused =
        check_role(&rbac, &person("alice"), change(Kind::Role, None, &role)).expect_err("refused").to_string();
    assert!(refused.contains("more than 50000 single permissions"), "{refused}");
}

/// A namespace's administrator can have written both sides of the comparison.
#[test]
fn thousands_of_rules_on_both_sides_are_compared_or_refused() {
    let rbac = Rbac::new();
    let named = |at: usize| json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": [format!("n{at}")]});
    let many = json!({"rules": (0..14_000).map(named).collect::<Vec<_>>()});
    bound(&rbac, "alice", many.clone());
    assert_eq!(check_role(&rbac, &person("alice"), change(Kind::Role, None, &many)), Ok(()));
    // Little to write, and ten thousand permissions.
    let words = |letter: char, count: usize| (0..count).map(|at| format!("{letter}{at}")).collect::<Vec<_>>();
    let wide = json!({"rules": [{"verbs": words('v', 10), "apiGroups": words('g', 10), "resources": words('r', 100)}]});
    let refused =
        check_role(&rbac, &person("alice"), change(Kind::Role, None, &wide)).expect_err("refused").to_string();
    assert!(refused.ends_with("\nand 800 more"), "{}", &refused[refused.len() - 200..]);
    // Every word of the question is held thousands of times, and never together.
    let apart = (0..7_000).flat_map(|at| {
        let own = format!("x{at}");
        [
            json!({"verbs": ["get", own], "apiGroups": [""], "resources": ["secrets"]}),
            json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods", own]}),
        ]
    });
    bound(&rbac, "bob", json!({"rules": apart.collect::<Vec<_>>()}));
    let asked = vec![json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}); 1_000];
    let refused = check_role(&rbac, &person("bob"), change(Kind::Role, None, &json!({"rules": asked})));
    assert!(refused.expect_err("refused").to_string().contains("takes too long"));
}
