//! Claiming what is not so: tokens, versions, identities of objects, and definitions of kinds that are there already.

use crate::land::Land;

const TOKENS: &[&str] = &[
    // No signature, and an algorithm that wants none.
    "eyJhbGciOiJub25lIn0.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6dGVhbS1hOmNpIn0.",
    "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.eyJzdWIiOiJyb290IiwiZ3JvdXBzIjpbInN5c3RlbTptYXN0ZXJzIl19.",
    // A symmetric signature where an asymmetric one is due.
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6dGVhbS1hOmNpIn0.c2lnbmVk",
    "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6dGVhbS1hOmNpIn0.c2lnbmVk",
    "eyJhbGciOiJFUzI1NiIsImtpZCI6Ii4uLy4uL2V0Yy9wYXNzd2QifQ.e30.c2lnbmVk",
    "a.b.c",
    "..",
    "edit-token-0123456780",
    "EDIT-TOKEN-0123456789",
    "edit-token-0123456789,edit,u-edit,",
    "edit-token-012345678",
];

const OBJECTS: &str = r#"
edit PATCH /api/v1/namespaces/team-a/configmaps/own merge {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}} -> 409|422
edit PATCH /api/v1/namespaces/team-a/configmaps/own merge {"metadata": {"resourceVersion": "1"}} -> 409
edit PATCH /api/v1/namespaces/team-a/configmaps/own merge {"metadata": {"resourceVersion": "99999999999999999999999"}} -> 400|409|422
edit PATCH /api/v1/namespaces/team-a/configmaps/own merge {"metadata": {"resourceVersion": "x"}} -> 400|409|422
edit PUT /api/v1/namespaces/team-a/configmaps/own {"metadata": {"name": "own", "uid": "11111111-1111-1111-1111-111111111111"}} -> 409|422
edit PUT /api/v1/namespaces/team-a/configmaps/own {"metadata": {"name": "own", "resourceVersion": "2"}} -> 409
edit DELETE /api/v1/namespaces/team-a/configmaps/own {"preconditions": {"uid": "11111111-1111-1111-1111-111111111111"}} -> 409
edit DELETE /api/v1/namespaces/team-a/configmaps/own {"preconditions": {"resourceVersion": "2"}} -> 409
edit POST /api/v1/namespaces/team-a/configmaps {"metadata": {"name": "x", "resourceVersion": "5"}} -> 400|422
edit POST /api/v1/namespaces/team-a/configmaps {"metadata": {"name": "UPPER"}} -> 422
edit POST /api/v1/namespaces/team-a/configmaps {"metadata": {"name": "a/b"}} -> 422
edit POST /api/v1/namespaces/team-a/configmaps {"metadata": {"name": ".."}} -> 422
edit POST /api/v1/namespaces/team-a/configmaps {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "x"}} -> 400
edit POST /api/v1/namespaces/team-a/configmaps {"kind": "ConfigMap", "apiVersion": "apps/v1", "metadata": {"name": "x"}} -> 400
edit POST /api/v1/namespaces/team-a/serviceaccounts/ci/token {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "no-such"}}} -> 404|409|422
edit POST /api/v1/namespaces/team-a/serviceaccounts/ci/token {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "mine", "uid": "11111111-1111-1111-1111-111111111111"}}} -> 404|409|422
edit POST /api/v1/namespaces/team-a/serviceaccounts/ci/token {"spec": {"expirationSeconds": 1}} -> 400|422
edit POST /api/v1/namespaces/team-a/serviceaccounts/ci/token {"spec": {"expirationSeconds": 99999999999}} -> 400|422
edit POST /api/v1/namespaces/team-a/pods/mine/binding {"metadata": {"name": "mine"}, "target": {"kind": "Node", "name": "n"}} -> 403|404
"#;

const LISTS: &str = r#"
view GET /api/v1/namespaces/team-a/configmaps?limit=1&continue=abc -> 400
view GET /api/v1/namespaces/team-a/configmaps?limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6OTk5OTk5OTksInN0YXJ0IjoiYSJ9 -> 400|410
view GET /api/v1/namespaces/team-a/configmaps?limit=1&continue=%00%01%02 -> 400
view GET /api/v1/namespaces/team-a/configmaps?limit=99999999999999999999 -> 400
view GET /api/v1/namespaces/team-a/configmaps?resourceVersion=-1 -> 400
view GET /api/v1/namespaces/team-a/configmaps?resourceVersion=x -> 400
view GET /api/v1/namespaces/team-a/configmaps?resourceVersion=99999999&timeoutSeconds=1 -> 504 Too large resource version
view GET /api/v1/namespaces/team-a/configmaps?watch=true&resourceVersion=99999999999999999999 -> 400 value out of range
view GET /api/v1/namespaces/team-a/configmaps?watch=true&resourceVersion=x -> 400 invalid syntax
view GET /api/v1/namespaces/team-a/configmaps?watch=true&resourceVersion=-1 -> 400
view GET /api/v1/namespaces/team-a/configmaps?resourceVersionMatch=Exact -> 400|422
view GET /api/v1/namespaces/team-a/configmaps?fieldSelector=spec.secret%3Dx -> 400
view GET /api/v1/namespaces/team-a/configmaps?labelSelector=a+in+( -> 400
"#;

/// Definitions of what is served already, or that would be approved by others.
async fn definitions(land: &mut Land) {
    for (plural, group, kind) in [
        ("roles", "rbac.authorization.k8s.io", "Role"),
        ("clusterroles", "rbac.authorization.k8s.io", "ClusterRole"),
        ("networkpolicies", "networking.k8s.io", "NetworkPolicy"),
        ("deployments", "apps", "Deployment"),
        ("customresourcedefinitions", "apiextensions.k8s.io", "CustomResourceDefinition"),
        ("validatingwebhookconfigurations", "admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
        ("resourcepools", "capsule.clastix.io", "ResourcePool"),
        ("poolz", "capsule.clastix.io", "ResourcePool"),
        ("quantityledgers", "capsule.clastix.io", "QuantityLedger"),
        ("clusterresourcequotas", "quota.openshift.io", "ClusterResourceQuota"),
        ("things", "x.k8s.io", "Thing"),
        ("things", "kubernetes.io", "Thing"),
    ] {
        let definition = serde_json::json!({
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind, "listKind": format!("{kind}List")},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        });
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        // Where a definition of that name is there already it is a conflict; a second kind in a group is stored and serves
        // nothing, so that one is checked by what happens to the first.
        let expected = if plural == "poolz" { "201|403|409|422" } else { "403|409|422" };
        land.attempt(("definer", "POST", path, "", &definition.to_string()), expected).await;
        if plural == "poolz" {
            land.attempt(("root", "DELETE", &format!("{path}/{plural}.{group}"), "", ""), "200|404").await;
        }
    }
}

#[tokio::test]
async fn nobody_is_believed_what_is_not_so() {
    let mut land = Land::start().await;
    for token in TOKENS {
        land.attempt_with_token(token, "/api/v1/namespaces/team-a/pods", "401").await;
        land.attempt_with_token(token, "/version", "401").await;
    }
    for headers in [
        &[("Impersonate-User", "kubernetes-admin")][..],
        &[("Impersonate-User", "x"), ("Impersonate-Group", "system:masters")],
        &[("Impersonate-User", "system:serviceaccount:victim:robot")],
        &[("Impersonate-Group", "system:masters")],
        &[("Impersonate-User", "star"), ("Impersonate-Extra-Scopes", "all")],
        &[("Impersonate-Uid", "u-root")],
    ] {
        for who in ["stranger", "edit", "star"] {
            land.attempt_with_headers(who, headers, "/api/v1/namespaces/victim/secrets", "400|403").await;
        }
    }
    for header in ["X-Remote-User", "X-Forwarded-User", "X-Remote-Group", "X-Real-IP"] {
        land.attempt_with_headers("stranger", &[(header, "system:masters")], "/api/v1/secrets", "403").await;
    }
    land.play(OBJECTS).await;
    land.play(LISTS).await;
    definitions(&mut land).await;
    assert!(land.end().await >= 86, "a table was cut short");
}
