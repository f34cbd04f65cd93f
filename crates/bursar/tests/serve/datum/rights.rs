//! Who may do what, as `kubectl auth can-i` tells it: tenants see their own, staff see and change all.

use crate::harness::Server;

const STATE: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: bank}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewers, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: viewer}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: editors, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: editor}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: admins, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: owner}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: staff}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "bursar:quota-staff"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: staff}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: catalog}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "bursar:quota-catalog"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: viewer}]
"#;

#[test]
fn tenants_see_their_own_and_staff_see_and_change_all() {
    let server = Server::start();
    server.kubectl_with("apply -f -", STATE);
    for (user, may, wish) in [
        ("viewer", true, "get resourcequotaclaims -n shop"),
        ("viewer", true, "list resourcequotagrants -n shop"),
        ("viewer", false, "create resourcequotaclaims -n shop"),
        ("viewer", false, "get resourcequotaclaims -n bank"),
        ("viewer", false, "list resourcequotagrants -n bank"),
        ("viewer", true, "list servicequotadefinitions"),
        ("viewer", false, "list effectivequotagrants"),
        ("editor", true, "create resourcequotaclaims -n shop"),
        ("editor", true, "delete resourcequotaclaims -n shop"),
        ("editor", false, "update resourcequotaclaims --subresource=status -n shop"),
        ("editor", false, "create resourcequotagrants -n shop"),
        ("editor", false, "create resourcequotaclaims -n bank"),
        ("owner", true, "watch resourcequotagrants -n shop"),
        ("owner", false, "update resourcequotagrants -n shop"),
        ("owner", false, "create servicequotadefinitions"),
        ("owner", false, "get /bursar/denials"),
        ("staff", true, "update resourcequotagrants -n bank"),
        ("staff", true, "delete resourcequotaclaims -n shop"),
        ("staff", true, "create servicequotadefinitions"),
        ("staff", true, "patch quotaplans"),
        ("staff", true, "list effectivequotagrants"),
        ("staff", true, "grant projects.resources.datumapis.com"),
        ("staff", true, "move projects.resources.datumapis.com"),
        ("staff", true, "release projects.resources.datumapis.com"),
        ("staff", true, "move organizations.resources.datumapis.com"),
        ("staff", true, "use quotaplans"),
        ("viewer", false, "use quotaplans"),
        ("staff", true, "get /bursar/denials"),
        ("staff", false, "get secrets -n shop"),
        ("nobody", false, "list resourcequotaclaims -n shop"),
    ] {
        let (is_allowed, out, err) = server.try_kubectl(&format!("auth can-i {wish} --as={user}"), "");
        assert_eq!((is_allowed, out.trim()), (may, if may { "yes" } else { "no" }), "{user}: {wish}\n{err}");
    }
    // What can-i says is what happens: the right to write a grant is not the right to give somebody quota.
    let role = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: everything, namespace: shop}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: everything, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: everything}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: star}]
"#;
    server.kubectl_with("apply -f -", role);
    let grant = |project: &str| {
        format!(
            "apiVersion: quota.datumapis.com/v1alpha1\nkind: ResourceQuotaGrant\nmetadata: {{name: g, namespace: shop}}\n\
             spec:\n  resourceRef: {{kind: Project, name: {project}}}\n  limits: [{{name: x.example.com/a, buckets: [{{value: 5}}]}}]\n"
        )
    };
    for project in ["shop", "bank"] {
        let (is_done, _, err) = server.try_kubectl("create -f - --as=star", &grant(project));
        assert!(!is_done && err.contains("grant"), "{err}");
    }
    server.kubectl_with("create -f - --as=staff", &grant("bank"));
}

const ENTITIES: &str = r#"
apiVersion: quota.datumapis.com/v1alpha1
kind: QuotaPlan
metadata: {name: unlimited}
spec: {limits: [{name: x.example.com/a, buckets: [{value: unlimited}]}]}
---
apiVersion: resources.datumapis.com/v1alpha1
kind: Organization
metadata: {name: rich}
spec: {}
---
apiVersion: resources.datumapis.com/v1alpha1
kind: Project
metadata: {name: poor}
spec: {displayName: Poor}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: of-poor}
rules:
- {apiGroups: [resources.datumapis.com], resources: [projects], resourceNames: [poor], verbs: [get, patch, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: of-poor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: of-poor}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: owner}]
"#;

#[test]
fn whoever_may_write_on_a_project_makes_no_quota_of_it() {
    let server = Server::start();
    server.kubectl_with("apply -f -", STATE);
    server.kubectl_with("apply -f -", ENTITIES);
    let patch = |user: &str, spec: &str| {
        server.try_kubectl(&format!("patch project poor --type=merge --as={user} -p '{{\"spec\":{spec}}}'"), "")
    };
    let (joins, chooses) = (r#"{"organizationRef":{"name":"rich"}}"#, r#"{"plan":"unlimited"}"#);
    for (user, spec, may) in [
        ("owner", r#"{"displayName":"Poorer"}"#, true),
        ("owner", joins, false),
        ("owner", chooses, false),
        ("staff", joins, true),
        ("staff", chooses, true),
        // Out of an organization is a move as well; a plan is left as one likes.
        ("owner", r#"{"organizationRef":null}"#, false),
        ("owner", r#"{"plan":null}"#, true),
    ] {
        let (is_done, _, err) = patch(user, spec);
        assert_eq!(is_done, may, "{user}: {spec}\n{err}");
        let asked = if spec.contains("plan") { "quotaplans" } else { "organizations" };
        assert!(may || (err.contains("forbidden") && err.contains(asked)), "{err}");
    }
}

const COUNTED: &str = r#"
apiVersion: quota.datumapis.com/v1alpha1
kind: ServiceQuotaDefinition
metadata: {name: maps}
spec: {serviceRef: {name: s}, resourceName: x.example.com/maps, unit: count, defaultLimit: {value: 1}}
---
apiVersion: quota.datumapis.com/v1alpha1
kind: ClaimCreationPolicy
metadata: {name: maps}
spec:
  trigger:
    resource: {apiVersion: v1, kind: ConfigMap}
    constraints: [{expression: "object.metadata.name.startsWith('counted')"}]
  target: {resourceClaimTemplate: {spec: {resources: [{name: x.example.com/maps, quantity: 1}]}}}
"#;

#[test]
fn an_object_that_is_kept_from_going_keeps_its_quota() {
    let server = Server::start();
    server.kubectl_with("apply -f -", STATE);
    server.kubectl_with("apply -f -", COUNTED);
    let map = |name: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: shop, finalizers: [a.example.com/mine]}}\n"
        )
    };
    server.kubectl_with("create -f - --as=owner", &map("counted-one"));
    server.kubectl_with("delete configmap counted-one -n shop --as=owner --wait=false", "");
    let release = |user: &str| {
        server.try_kubectl(&format!("delete resourcequotaclaim counted-one-claim -n shop --as={user}"), "")
    };
    let (is_done, _, err) = release("owner");
    assert!(!is_done && err.contains("cannot release resource \"projects\""), "{err}");
    let (is_done, _, err) = server.try_kubectl("create -f - --as=owner", &map("counted-two"));
    assert!(!is_done && err.contains("used 1, limit 1"), "{err}");
    // Whoever tears down what the object stands for says when it is gone.
    let (is_done, _, err) = release("staff");
    assert!(is_done, "{err}");
    server.kubectl_with("create -f - --as=owner", &map("counted-two"));
}
