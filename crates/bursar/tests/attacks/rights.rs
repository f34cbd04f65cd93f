//! Doing what one may not: kinds out of reach, verbs one does not have, rights one would give oneself.

use crate::land::Land;

/// Kinds that live in no namespace: group and version, plural, and an object that is there.
const CLUSTER_KINDS: &[(&str, &str, &str)] = &[
    ("/api/v1", "namespaces", "victim"),
    ("/api/v1", "nodes", "n"),
    ("/api/v1", "persistentvolumes", "v"),
    ("/apis/rbac.authorization.k8s.io/v1", "clusterroles", "cluster-admin"),
    ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", "cluster-admin"),
    ("/apis/storage.k8s.io/v1", "storageclasses", "fixed"),
    ("/apis/scheduling.k8s.io/v1", "priorityclasses", "system-cluster-critical"),
    ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", "resourcepools.capsule.clastix.io"),
    ("/apis/admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", "w"),
    ("/apis/quota.openshift.io/v1", "clusterresourcequotas", "gold"),
    ("/apis/capsule.clastix.io/v1beta2", "resourcepools", "shared"),
    ("/apis/capsule.clastix.io/v1beta2", "globalcustomquotas", "g"),
];

/// Whoever has every right in a namespace has none outside of it, and what is in no namespace is not in his.
async fn cluster_kinds_are_not_in_a_namespace(land: &mut Land) {
    for (group, plural, name) in CLUSTER_KINDS {
        let inside = format!("{group}/namespaces/team-a/{plural}");
        let outside = format!("{group}/{plural}");
        let one = format!("{{\"metadata\": {{\"name\": \"{name}\"}}}}");
        for (method, path, form, body) in [
            ("GET", inside.clone(), "", ""),
            ("GET", format!("{inside}/{name}"), "", ""),
            ("POST", inside.clone(), "", &*one),
            ("PUT", format!("{inside}/{name}"), "", &*one),
            ("PATCH", format!("{inside}/{name}"), "merge", "{\"metadata\": {\"labels\": {\"mine\": \"yes\"}}}"),
            ("PATCH", format!("{inside}/{name}?fieldManager=m&force=true"), "apply", &*one),
            ("DELETE", format!("{inside}/{name}"), "", ""),
            ("DELETE", inside.clone(), "", ""),
        ] {
            land.attempt(("star", method, &path, form, body), "404|405").await;
        }
        for (method, path, form, body) in [
            ("GET", outside.clone(), "", ""),
            ("GET", format!("{outside}/{name}"), "", ""),
            ("POST", outside.clone(), "", &*one),
            ("PATCH", format!("{outside}/{name}"), "merge", "{}"),
            ("DELETE", format!("{outside}/{name}"), "", ""),
            ("DELETE", outside.clone(), "", ""),
        ] {
            land.attempt(("star", method, &path, form, body), "403").await;
        }
    }
    for path in ["finalize", "status"] {
        let path = format!("/api/v1/namespaces/team-a/namespaces/victim/{path}");
        land.attempt(("star", "PUT", &path, "", "{\"metadata\": {\"name\": \"victim\"}}"), "404|405").await;
    }
}

const VERBS: &str = r#"
# Patching is not creating.
patcher PATCH /api/v1/namespaces/team-a/configmaps/new?fieldManager=m apply {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}} -> 403 cannot create
patcher PATCH /apis/apps/v1/namespaces/team-a/deployments/new?fieldManager=m&dryRun=All apply {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "new"}} -> 403 cannot create
patcher PATCH /api/v1/namespaces/team-a/configmaps/new merge {"data": {"a": "b"}} -> 404
patcher GET /api/v1/namespaces/team-a/configmaps/own -> 403
patcher DELETE /api/v1/namespaces/team-a/configmaps/own -> 403
patcher PUT /api/v1/namespaces/team-a/configmaps/own {"metadata": {"name": "own"}} -> 403
view POST /api/v1/namespaces/team-a/pods {"metadata": {"name": "p"}} -> 403
view PATCH /api/v1/namespaces/team-a/configmaps/own merge {"data": {"a": "b"}} -> 403
view DELETE /api/v1/namespaces/team-a/configmaps/own -> 403
view GET /api/v1/namespaces/team-a/secrets -> 403
view POST /api/v1/namespaces/team-a/serviceaccounts/ci/token {"spec": {}} -> 403
view POST /api/v1/namespaces/team-a/pods/p/eviction {"metadata": {"name": "p"}} -> 403
edit POST /api/v1/namespaces/team-a/resourcequotas {"metadata": {"name": "mine"}, "spec": {"hard": {"pods": "99"}}} -> 403
edit PATCH /api/v1/namespaces/team-a/resourcequotas/small merge {"spec": {"hard": {"pods": "99"}}} -> 403
edit DELETE /api/v1/namespaces/team-a/resourcequotas/small -> 403
edit PUT /api/v1/namespaces/team-a/resourcequotas/small/status {"metadata": {"name": "small"}, "status": {"used": {"pods": "0"}}} -> 403
admin PATCH /api/v1/namespaces/team-a/resourcequotas/small merge {"spec": {"hard": {"pods": "99"}}} -> 403
admin DELETE /api/v1/namespaces/team-a/resourcequotas/small -> 403
admin POST /api/v1/namespaces/team-a/limitranges {"metadata": {"name": "l"}, "spec": {"limits": []}} -> 403
admin DELETE /api/v1/namespaces/team-a -> 403
admin POST /api/v1/namespaces {"metadata": {"name": "more"}} -> 403
admin POST /apis/hnc.x-k8s.io/v1alpha2/namespaces/team-a/hierarchyconfigurations {"metadata": {"name": "hierarchy"}, "spec": {"parent": "victim"}} -> 403
edit POST /apis/hnc.x-k8s.io/v1alpha2/namespaces/team-a/hierarchyconfigurations {"metadata": {"name": "hierarchy"}, "spec": {"parent": "victim"}} -> 403
star POST /apis/hnc.x-k8s.io/v1alpha2/namespaces/team-a/hierarchyconfigurations {"metadata": {"name": "hierarchy"}, "spec": {"parent": "victim"}} -> 403
star POST /apis/hnc.x-k8s.io/v1alpha2/namespaces/team-a/hierarchyconfigurations {"metadata": {"name": "hierarchy"}, "spec": {"parent": "no-such"}} -> 403
"#;

const ESCALATION: &str = r#"
admin POST /apis/rbac.authorization.k8s.io/v1/namespaces/team-a/rolebindings {"metadata": {"name": "more"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}, "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "admin"}]} -> 403
admin POST /apis/rbac.authorization.k8s.io/v1/namespaces/team-a/roles {"metadata": {"name": "more"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]} -> 403
admin POST /apis/rbac.authorization.k8s.io/v1/namespaces/team-a/roles {"metadata": {"name": "more"}, "rules": [{"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["update"]}]} -> 403
admin PATCH /apis/rbac.authorization.k8s.io/v1/namespaces/team-a/roles/patcher merge {"rules": [{"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["*"]}]} -> 403
admin PATCH /apis/rbac.authorization.k8s.io/v1/namespaces/team-a/roles/more?fieldManager=m apply {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "more"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]} -> 403
admin POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings {"metadata": {"name": "more"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}, "subjects": []} -> 403
star POST /apis/rbac.authorization.k8s.io/v1/clusterroles {"metadata": {"name": "more", "labels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]} -> 403
star PATCH /apis/rbac.authorization.k8s.io/v1/clusterroles/view merge {"rules": []} -> 403
edit POST /apis/rbac.authorization.k8s.io/v1/namespaces/team-a/roles {"metadata": {"name": "r"}, "rules": []} -> 403
edit POST /api/v1/namespaces/victim/serviceaccounts/robot/token {"spec": {}} -> 403
edit POST /api/v1/namespaces/kube-system/serviceaccounts/default/token {"spec": {}} -> 403
star POST /apis/authentication.k8s.io/v1/tokenreviews {"spec": {"token": "edit-token-0123456789"}} -> 403
star POST /apis/authorization.k8s.io/v1/subjectaccessreviews {"spec": {"user": "root", "nonResourceAttributes": {"path": "/", "verb": "get"}}} -> 403
stranger GET /api/v1/namespaces -> 403
stranger GET /api/v1/namespaces/team-a/pods -> 403
stranger GET /metrics -> 403
stranger GET /debug/audit -> 403
star GET /metrics -> 403
star GET /debug/audit -> 403
star GET /logs/ -> 403
nobody GET /api/v1/namespaces/team-a/pods -> 401|403
nobody GET /apis -> 401|403
nobody POST /api/v1/namespaces {"metadata": {"name": "n"}} -> 401|403
liar GET /api/v1/namespaces/team-a/pods -> 401
liar GET /version -> 401
"#;

#[tokio::test]
async fn nobody_does_what_he_may_not() {
    let mut land = Land::start().await;
    cluster_kinds_are_not_in_a_namespace(&mut land).await;
    land.play(VERBS).await;
    land.play(ESCALATION).await;
    assert!(land.end().await >= 200, "a table was cut short");
}
