//! The default roles do what their names promise.

use serde_json::json;
use server::authz::{Attributes, Kind, bootstrap};
use server::identity::Identity;

use crate::support::bootstrapped;

#[test]
fn admin_edit_and_view_differ_as_in_kubernetes() {
    let rbac = bootstrapped();
    for role in ["admin", "edit", "view"] {
        let binding =
            json!({"roleRef": {"kind": "ClusterRole", "name": role}, "subjects": [{"kind": "User", "name": role}]});
        rbac.apply(Kind::RoleBinding, "team-a", role, Some(&binding));
    }
    // verb, group, resource, subresource → who may
    let cases = [
        ("get", "", "pods", "", "admin edit view"),
        ("create", "", "pods", "", "admin edit"),
        ("patch", "", "pods", "resize", "admin edit"),
        ("get", "", "secrets", "", "admin edit"),
        ("get", "", "resourcequotas", "", "admin edit view"),
        ("update", "", "resourcequotas", "", ""),
        ("update", "", "resourcequotas", "status", ""),
        ("delete", "", "limitranges", "", ""),
        ("update", "apps", "deployments", "scale", "admin edit"),
        ("create", "", "serviceaccounts", "token", "admin edit"),
        ("get", "", "namespaces", "", "admin edit view"),
        ("delete", "", "namespaces", "", ""),
        ("create", "rbac.authorization.k8s.io", "rolebindings", "", "admin"),
        ("create", "authorization.k8s.io", "localsubjectaccessreviews", "", "admin"),
    ];
    for (verb, group, resource, subresource, expected) in cases {
        let may = |user: &&str| {
            let asked = Attributes { subresource, ..Attributes::object(verb, group, resource, "team-a", "") };
            rbac.authorize(&Identity::authenticated(*user, [""; 0]), &asked).is_allowed()
        };
        let allowed: Vec<&str> = ["admin", "edit", "view"].into_iter().filter(may).collect();
        assert_eq!(allowed.join(" "), expected, "{verb} {resource}/{subresource}");
    }
}

#[test]
fn everybody_known_may_discover_and_ask_about_themselves() {
    let rbac = bootstrapped();
    let (known, unknown) = (Identity::authenticated("x", [""; 0]), Identity::anonymous());
    for path in ["/api", "/apis/apps/v1", "/openapi/v3", "/version"] {
        let asked = Attributes { verb: "get", path, ..Attributes::default() };
        assert!(rbac.authorize(&known, &asked).is_allowed(), "{path}");
        assert!(!rbac.authorize(&unknown, &asked).is_allowed(), "{path}");
    }
    let review = Attributes::object("create", "authorization.k8s.io", "selfsubjectaccessreviews", "", "");
    assert!(rbac.authorize(&known, &review).is_allowed());
    assert!(!rbac.authorize(&unknown, &review).is_allowed());
}

#[test]
fn objects_are_whole() {
    for object in bootstrap::objects() {
        assert_eq!(object["apiVersion"], "rbac.authorization.k8s.io/v1");
        assert_eq!(object["metadata"]["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults");
        match bootstrap::key(object).expect("a kind and a name").0 {
            Kind::ClusterRole => assert!(object["rules"].is_array()),
            _ => assert_eq!(object["roleRef"]["apiGroup"], "rbac.authorization.k8s.io"),
        }
        assert!(object.as_object().is_some_and(|fields| fields.values().all(|value| !value.is_null())), "{object}");
    }
}
