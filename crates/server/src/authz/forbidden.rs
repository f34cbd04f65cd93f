//! The words of a refusal, letter for letter Kubernetes': people and tools search for them.

use super::Attributes;
use crate::identity::Identity;

/// The message of the 403 for a request that no rule allows; `reason` (may be empty) names roles that do not exist.
pub fn forbidden(identity: &Identity, asked: &Attributes<'_>, reason: &str) -> String {
    let user = &identity.user;
    let mut what = if !asked.is_resource() {
        format!("User {user:?} cannot {} path {:?}", asked.verb, asked.path)
    } else {
        let resource = match asked.subresource {
            "" => asked.resource.to_owned(),
            subresource => format!("{}/{subresource}", asked.resource),
        };
        let scope = match asked.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        format!("User {user:?} cannot {} resource {resource:?} in API group {:?} {scope}", asked.verb, asked.group)
    };
    // The names come from the caller; Kubernetes escapes what a browser might take for markup.
    if what.contains(['&', '<', '>']) {
        what = what.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    }
    if !reason.is_empty() {
        what = format!("{what}: {reason}");
    }
    forbidden_object(asked.group, asked.resource, asked.name, &what)
}

/// `pods "x" is forbidden: …` in its three variants, for any reason to forbid.
pub fn forbidden_object(group: &str, resource: &str, name: &str, why: &str) -> String {
    let qualified = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    match (resource, name) {
        ("", _) => format!("forbidden: {why}"),
        (_, "") => format!("{qualified} is forbidden: {why}"),
        (_, name) => format!("{qualified} {name:?} is forbidden: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_use_kubernetes_words() {
        let user = Identity::authenticated("u", ["g"]);
        let list = Attributes { verb: "list", resource: "resourcequotas", namespace: "x2", ..Attributes::default() };
        let get = Attributes { verb: "get", name: "x", resource: "pods", subresource: "status", ..list };
        let role = Attributes::object("delete", "rbac.authorization.k8s.io", "clusterroles", "", "admin");
        let path = Attributes { verb: "get", path: "/metrics", ..Attributes::default() };
        let markup = Attributes { resource: "<b>", namespace: "", ..list };
        let cases = [
            (
                list,
                r#"resourcequotas is forbidden: User "u" cannot list resource "resourcequotas" in API group "" in the namespace "x2""#,
            ),
            (
                get,
                r#"pods "x" is forbidden: User "u" cannot get resource "pods/status" in API group "" in the namespace "x2""#,
            ),
            (
                role,
                r#"clusterroles.rbac.authorization.k8s.io "admin" is forbidden: User "u" cannot delete resource "clusterroles" in API group "rbac.authorization.k8s.io" at the cluster scope"#,
            ),
            (path, r#"forbidden: User "u" cannot get path "/metrics""#),
            (
                markup,
                r#"<b> is forbidden: User "u" cannot list resource "&lt;b&gt;" in API group "" at the cluster scope"#,
            ),
        ];
        for (asked, expected) in cases {
            assert_eq!(forbidden(&user, &asked, ""), expected);
        }
        assert!(forbidden(&user, &list, "RBAC: role not found").ends_with(r#"namespace "x2": RBAC: role not found"#));
    }
}
