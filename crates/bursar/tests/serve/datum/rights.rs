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
