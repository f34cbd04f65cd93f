//! RBAC as tables: roles, bindings, questions.

use serde_json::{Value, json};
use server::authz::{Attributes, Decision, Kind, Rbac};
use server::identity::Identity;

/// Lines of
/// `role NS/NAME|NAME VERBS GROUPS RESOURCES [NAMES]` (a further line adds a rule; `url` as group: non-resource),
/// `bind NS/NAME|NAME ROLE SUBJECTS` (ROLE: `role:x`, `cluster:x`; SUBJECTS: `user:a,group:b,sa:ns:c`),
/// `drop-role X`, `drop-bind X`, and questions
/// `can USER[+GROUP…] VERB GROUP RESOURCE[/SUB][=NAME] NS -> yes|no` (`-` for empty; `url PATH` for a path).
fn check(script: &str) {
    let rbac = Rbac::new();
    let mut roles: std::collections::BTreeMap<String, Vec<Value>> = Default::default();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let list = |word: &str| -> Vec<String> { word.split(',').map(|item| item.replace('-', "")).collect() };
        let place = |word: &'_ str| match word.split_once('/') {
            Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
            None => (String::new(), word.to_owned()),
        };
        match words.as_slice() {
            ["role", at, verbs, groups, resources, names @ ..] => {
                let rule = if *groups == "url" {
                    json!({"verbs": list(verbs), "nonResourceURLs": resources.split(',').collect::<Vec<_>>()})
                } else {
                    let names: Vec<&str> = names.first().map(|names| names.split(',').collect()).unwrap_or_default();
                    json!({"verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources), "resourceNames": names})
                };
                let rules = roles.entry((*at).to_owned()).or_default();
                rules.push(rule);
                let (namespace, name) = place(at);
                let kind = if namespace.is_empty() { Kind::ClusterRole } else { Kind::Role };
                rbac.apply(kind, &namespace, &name, Some(&json!({"rules": rules})));
            }
            ["bind", at, role, subjects] => {
                let (kind, role) = role.split_once(':').expect("role:x");
                let kind = if kind == "role" { "Role" } else { "ClusterRole" };
                let subjects: Vec<Value> = subjects
                    .split(',')
                    .map(|subject| match subject.splitn(3, ':').collect::<Vec<_>>()[..] {
                        ["user", name] => json!({"kind": "User", "name": name}),
                        ["group", name] => json!({"kind": "Group", "name": name}),
                        ["group", a, b] => json!({"kind": "Group", "name": format!("{a}:{b}")}),
                        ["sa", "", name] => json!({"kind": "ServiceAccount", "name": name}),
                        ["sa", namespace, name] => {
                            json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
                        }
                        _ => panic!("not a subject: {subject}"),
                    })
                    .collect();
                let binding = json!({"roleRef": {"kind": kind, "name": role}, "subjects": subjects});
                let (namespace, name) = place(at);
                let kind = if namespace.is_empty() { Kind::ClusterRoleBinding } else { Kind::RoleBinding };
                rbac.apply(kind, &namespace, &name, Some(&binding));
            }
            ["drop-role", at] => {
                let (namespace, name) = place(at);
                roles.remove(*at);
                rbac.apply(if namespace.is_empty() { Kind::ClusterRole } else { Kind::Role }, &namespace, &name, None);
            }
            ["drop-bind", at] => {
                let (namespace, name) = place(at);
                let kind = if namespace.is_empty() { Kind::ClusterRoleBinding } else { Kind::RoleBinding };
                rbac.apply(kind, &namespace, &name, None);
            }
            ["can", who, verb, group, what, namespace, "->", answer] => {
                let identity = identity(who);
                let (what, name) = what.split_once('=').unwrap_or((what, ""));
                let (resource, subresource) = what.split_once('/').unwrap_or((what, ""));
                let asked = if *group == "url" {
                    Attributes { verb, path: what, ..Attributes::default() }
                } else {
                    Attributes {
                        verb,
                        group: if *group == "-" { "" } else { group },
                        resource,
                        subresource,
                        namespace: if *namespace == "-" { "" } else { namespace },
                        name,
                        path: "",
                    }
                };
                assert_eq!(rbac.authorize(&identity, &asked).is_allowed(), *answer == "yes", "{line}");
            }
            _ => panic!("not a line: {line}"),
        }
    }
}

fn identity(who: &str) -> Identity {
    let mut parts = who.split('+');
    let user = parts.next().unwrap_or_default();
    Identity { user: user.into(), groups: parts.map(str::to_owned).collect(), ..Identity::default() }
}

#[test]
fn bindings_grant_in_their_namespace_only() {
    check(
        "
        role team-a/reader get,list - pods
        bind team-a/b role:reader user:alice,group:devs
        can alice list - pods team-a -> yes
        can alice list - pods team-b -> no
        can alice list - pods - -> no
        can alice create - pods team-a -> no
        can alice list - secrets team-a -> no
        can bob list - pods team-a -> no
        can bob+devs list - pods team-a -> yes
        # a group is not a user of the same name
        can devs list - pods team-a -> no
        # a Role of another namespace cannot be bound
        bind team-b/b role:reader user:alice
        can alice list - pods team-b -> no
        ",
    );
}

#[test]
fn cluster_roles_reach_as_far_as_their_binding() {
    check(
        "
        role reader get - pods
        role reader get url /metrics
        bind team-a/b cluster:reader user:alice
        bind all cluster:reader user:root
        can alice get - pods team-a -> yes
        can alice get - pods team-b -> no
        can alice get - pods - -> no
        can root get - pods team-b -> yes
        can root get - pods - -> yes
        # non-resource rules count only when bound for the whole cluster
        can alice get url /metrics - -> no
        can root get url /metrics - -> yes
        # a ClusterRoleBinding cannot refer to a Role
        role team-a/local get - secrets
        bind odd role:local user:eve
        can eve get - secrets team-a -> no
        can eve get - secrets - -> no
        ",
    );
}

#[test]
fn service_accounts_are_subjects() {
    check(
        "
        role reader get - pods
        bind team-a/b cluster:reader sa:team-b:ci,sa::local
        can system:serviceaccount:team-b:ci get - pods team-a -> yes
        can system:serviceaccount:team-a:ci get - pods team-a -> no
        # without a namespace it is the binding's
        can system:serviceaccount:team-a:local get - pods team-a -> yes
        bind all cluster:reader group:system:serviceaccounts
        can x+system:serviceaccounts get - pods team-z -> yes
        ",
    );
}

#[test]
fn subresources_names_and_stars() {
    check(
        "
        role status get - */status
        role named get,update - configmaps a,b
        role all * * *
        bind s cluster:status user:s
        bind n cluster:named user:n
        bind a cluster:all user:a
        can s get - pods/status x -> yes
        can s get apps deployments/status x -> no
        can s get - pods x -> no
        can n get - configmaps=a x -> yes
        can n get - configmaps=c x -> no
        can n list - configmaps x -> no
        can a deletecollection any things/deep x -> yes
        can a get url /metrics - -> no
        ",
    );
}

#[test]
fn changes_count_at_once() {
    check(
        "
        bind team-a/b cluster:late user:alice
        can alice get - pods team-a -> no
        role late get - pods
        can alice get - pods team-a -> yes
        role late get - secrets
        can alice get - secrets team-a -> yes
        drop-role late
        can alice get - pods team-a -> no
        role late get - pods
        bind team-a/b cluster:late user:bob
        can alice get - pods team-a -> no
        can bob get - pods team-a -> yes
        bind team-a/c cluster:late user:bob
        drop-bind team-a/b
        can bob get - pods team-a -> yes
        drop-bind team-a/c
        can bob get - pods team-a -> no
        # the same names at the cluster's scope are other objects
        bind b cluster:late user:bob
        drop-bind team-a/b
        can bob get - pods team-a -> yes
        ",
    );
}

#[test]
fn masters_pass_and_health_is_public() {
    check(
        "
        can root+system:masters delete - nodes - -> yes
        can root+system:masters get url /debug/audit - -> yes
        can system:anonymous get url /livez - -> yes
        can system:anonymous get url /readyz/store - -> yes
        can system:anonymous post url /livez - -> no
        can system:anonymous get url /livezz - -> no
        can system:anonymous get url /version - -> no
        ",
    );
}

#[test]
fn a_binding_to_nothing_is_named_in_the_refusal() {
    let rbac = Rbac::new();
    let binding = |name: &str| json!({"roleRef": {"kind": "ClusterRole", "name": name}, "subjects": [{"kind": "User", "name": "u"}]});
    rbac.apply(Kind::ClusterRoleBinding, "", "b", Some(&binding("nope")));
    let asked = Attributes::object("get", "", "pods", "x", "p");
    let Decision::Denied { reason } = rbac.authorize(&identity("u"), &asked) else { panic!("allowed") };
    assert_eq!(reason, r#"RBAC: clusterrole.rbac.authorization.k8s.io "nope" not found"#);
    rbac.apply(Kind::ClusterRoleBinding, "", "c", Some(&binding("gone")));
    let Decision::Denied { reason } = rbac.authorize(&identity("u"), &asked) else { panic!("allowed") };
    assert!(reason.starts_with("RBAC: [clusterrole") && reason.contains("\"gone\" not found"), "{reason}");
}

#[test]
fn ten_thousand_tenants_load_quickly_and_stay_apart() {
    let rbac = Rbac::new();
    let role = json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
    let objects: Vec<(String, Value)> = (0..10_000)
        .map(|tenant| {
            let subject = json!({"kind": "User", "name": format!("user-{tenant}")});
            (format!("team-{tenant}"), json!({"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [subject]}))
        })
        .collect();
    rbac.apply(Kind::ClusterRole, "", "r", Some(&role));
    rbac.apply_all(
        objects.iter().map(|(namespace, binding)| (Kind::RoleBinding, namespace.as_str(), "b", Some(binding))),
    );
    for tenant in [0, 17, 9_999] {
        let who = identity(&format!("user-{tenant}"));
        let may =
            |namespace: &str| rbac.authorize(&who, &Attributes::object("get", "", "pods", namespace, "p")).is_allowed();
        assert!(may(&format!("team-{tenant}")));
        assert!(!may(&format!("team-{}", tenant + 1)));
    }
}

#[test]
fn no_request_looks_at_more_rules_than_anybody_needs() {
    let rbac = Rbac::new();
    let rule = |verb: &str| json!({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]});
    for (role, verbs) in [("a", vec!["list"; 49_999]), ("b", vec!["get", "watch"])] {
        let rules: Vec<Value> = verbs.into_iter().map(rule).collect();
        rbac.apply(Kind::Role, "team-a", role, Some(&json!({"rules": rules})));
        let binding =
            json!({"roleRef": {"kind": "Role", "name": role}, "subjects": [{"kind": "User", "name": "alice"}]});
        rbac.apply(Kind::RoleBinding, "team-a", role, Some(&binding));
    }
    let alice = Identity::authenticated("alice", [""; 0]);
    let ask = |verb| rbac.authorize(&alice, &Attributes::object(verb, "", "pods", "team-a", "p"));
    assert!(ask("list").is_allowed() && ask("get").is_allowed());
    match ask("watch") {
        Decision::Denied { reason } => assert!(reason.contains("more than 50000 rules"), "{reason}"),
        allowed => panic!("{allowed:?}"),
    }
    let (rules, missing) = rbac.rules_for(&alice, "team-a");
    assert_eq!((rules.len(), missing.len()), (50_000, 1), "{missing:?}");
}
