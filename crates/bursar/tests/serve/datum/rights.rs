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

/// One of each kind.
const ALL: &str = r#"
apiVersion: quota.datumapis.com/v1alpha1
kind: ServiceQuotaDefinition
metadata: {name: one}
spec: {serviceRef: {name: s}, resourceName: x.example.com/a, unit: count, defaultLimit: {value: 7}}
---
apiVersion: quota.datumapis.com/v1alpha1
kind: ResourceQuotaGrant
metadata: {name: one, namespace: shop}
spec: {resourceRef: {kind: Project, name: shop}, limits: [{name: x.example.com/a, buckets: [{value: 5}]}]}
---
apiVersion: quota.datumapis.com/v1alpha1
kind: ResourceQuotaClaim
metadata: {name: one, namespace: shop}
spec: {resourceRef: {kind: Thing, name: thing}, resources: [{name: x.example.com/a, quantity: 3}]}
---
apiVersion: quota.datumapis.com/v1alpha1
kind: ClaimCreationPolicy
metadata: {name: one}
spec:
  trigger: {resource: {apiVersion: v1, kind: Secret}, constraints: [{expression: "object.metadata.name == 'counted'"}]}
  target: {resourceClaimTemplate: {spec: {resources: [{name: x.example.com/a, quantity: 1}]}}}
---
apiVersion: quota.datumapis.com/v1alpha1
kind: GrantCreationPolicy
metadata: {name: one}
spec:
  trigger: {resource: {apiVersion: resources.datumapis.com/v1alpha1, kind: Project}}
  target: {resourceGrantTemplate: {spec: {limits: [{name: x.example.com/a, buckets: [{value: 1}]}]}}}
"#;

#[test]
fn each_kind_has_a_short_name_and_columns() {
    let server = Server::start();
    server.kubectl_with("apply -f -", STATE);
    server.kubectl_with("apply -f -", ENTITIES);
    server.kubectl_with("apply -f -", ALL);
    for (short, headers, row) in [
        ("sqd", "NAME RESOURCE UNIT DEFAULT READY REASON AGE", "one x.example.com/a count 7 True DefinitionActive"),
        ("rqg -n shop", "NAME KIND FOR READY REASON AGE", "one Project shop True GrantActive"),
        ("rqc -n shop", "NAME PHASE REASON FOR AGE", "one Granted QuotaAvailable thing"),
        ("eqg project-shop", "NAME KIND FOR GRANTS GRANTED WAITING AGE", "project-shop Project shop 1 1 0"),
        ("ccp", "NAME KIND DISABLED AGE", "one Secret false"),
        ("gcp", "NAME KIND DISABLED AGE", "one Project false"),
        ("plan", "NAME SHOWN AGE", "unlimited"),
        ("proj poor", "NAME ORGANIZATION PLAN AGE", "poor"),
        ("organizations", "NAME PLAN AGE", "rich"),
    ] {
        let line = |text: &str, at: usize| -> String {
            text.lines().nth(at).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let shown = server.until(&format!("get {short}"), |text| line(text, 1).starts_with(row));
        assert_eq!(line(&shown, 0), headers, "{short}:\n{shown}");
    }
}

#[test]
fn a_namespace_enters_a_project_by_leave_alone() {
    let server = Server::start();
    server.kubectl_with("apply -f -", STATE);
    server.kubectl_with("apply -f -", ENTITIES);
    let role = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: namespaces}
rules: [{apiGroups: [""], resources: [namespaces], verbs: [create, get, patch, update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: namespaces}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: namespaces}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: maker}]
"#;
    server.kubectl_with("apply -f -", role);
    // A project may be there by a grant alone, or by a namespace that says it is of it.
    let grant = "apiVersion: quota.datumapis.com/v1alpha1\nkind: ResourceQuotaGrant\nmetadata: {name: g, namespace: bank}\n\
                 spec: {resourceRef: {kind: Project, name: granted}, limits: [{name: x.example.com/a, buckets: [{value: 5}]}]}\n";
    server.kubectl_with("create -f -", grant);
    server.kubectl("label namespace bank resources.datumapis.com/project=labelled");
    // Its project has a home, which is not missed while the project is there.
    server.kubectl("delete namespace poor");
    let namespace = |name: &str, labels: &str| {
        let object = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{{labels}}}}}\n");
        server.try_kubectl("create -f - --as=maker", &object)
    };
    for (name, labels, wanted) in [
        ("mine", "", None),
        ("poor", "", Some("poor")),
        ("granted", "", Some("granted")),
        ("labelled", "", Some("labelled")),
        ("other", "resources.datumapis.com/project: poor", Some("poor")),
        ("organization-rich", "", None),
    ] {
        let (is_done, _, err) = namespace(name, labels);
        let is_refused = err.contains("cannot move resource") || err.contains("AlreadyExists");
        assert_eq!(is_done, wanted.is_none() && name != "organization-rich", "{name}: {err}");
        assert!(is_done || is_refused, "{name}: {err}");
        assert!(wanted.is_none_or(|project| err.contains(&format!("\"{project}\""))), "{name}: {err}");
    }
    let label = |of: &str| {
        let line = format!("label namespace mine resources.datumapis.com/project={of} --overwrite --as=maker");
        server.try_kubectl(&line, "")
    };
    let (is_done, _, err) = label("poor");
    assert!(!is_done && err.contains("cannot move resource \"projects\""), "{err}");
    server.kubectl("label namespace mine resources.datumapis.com/project=poor");
    let (is_done, _, err) = label("mine");
    assert!(!is_done && err.contains("cannot move resource \"projects\""), "out of it is a move as well: {err}");
}

#[test]
fn whoever_names_a_secret_for_a_meter_may_read_it() {
    let server = Server::start();
    server.kubectl_with("apply -f -", STATE);
    server.kubectl("create secret generic key -n bank --from-literal=token=t");
    let definition = "apiVersion: quota.datumapis.com/v1alpha1\nkind: ServiceQuotaDefinition\nmetadata: {name: one}\n\
        spec: {serviceRef: {name: s}, resourceName: x.example.com/a, unit: count, usageSource: {type: Prometheus, \
        endpoint: 'http://127.0.0.1:1', meter: m, credentialsRef: {namespace: bank, name: key}}}\n";
    let (is_done, _, err) = server.try_kubectl("create -f - --as=staff", definition);
    assert!(!is_done && err.contains("cannot get resource \"secrets\""), "{err}");
    server.kubectl_with("create -f -", definition);
    // Who has no right on the secret may write all else of it, but not say where it is sent.
    server.kubectl("patch sqd one --type=merge -p '{\"spec\":{\"description\":\"x\"}}' --as=staff");
    let elsewhere =
        "patch sqd one --type=merge -p '{\"spec\":{\"usageSource\":{\"endpoint\":\"http://evil\"}}}' --as=staff";
    let (is_done, _, err) = server.try_kubectl(elsewhere, "");
    assert!(!is_done && err.contains("cannot get resource \"secrets\""), "{err}");
}

const OWN: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: quota-of-shop}
rules:
- apiGroups: [quota.datumapis.com]
  resources: [effectivequotagrants]
  resourceNames: [project-shop]
  verbs: [get, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: quota-of-shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: quota-of-shop}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: viewer}]
"#;

#[test]
fn a_tenant_without_a_grant_sees_what_its_project_uses() {
    let server = Server::start();
    server.kubectl_with("apply -f -", STATE);
    server.kubectl_with("apply -f -", COUNTED);
    server.kubectl_with("apply -f -", OWN);
    for (wish, may) in [
        ("get effectivequotagrants/project-shop", true),
        ("get effectivequotagrants/project-bank", false),
        ("list effectivequotagrants", false),
        ("update effectivequotagrants/project-shop", false),
    ] {
        let (is_allowed, _, err) = server.try_kubectl(&format!("auth can-i {wish} --as=viewer"), "");
        assert_eq!(is_allowed, may, "{wish}: {err}");
    }
    server.kubectl("create configmap counted-one -n shop --as=owner");
    let used = "get eqg project-shop --as=viewer -o jsonpath={.status.resources[0].buckets[0].used}";
    server.until(used, |text| text == "1");
    // It fits or it is refused, with the numbers, for kubectl as for anybody.
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: counted-two, namespace: shop}\n";
    let (is_done, _, err) = server.try_kubectl("apply -f - --as=owner", map);
    assert!(!is_done && err.contains("x.example.com/maps: requested 1, used 1, limit 1"), "{err}");
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
