//! `kubectl auth can-i` and friends answer what the guard would decide.

use serde_json::{Value, json};
use server::authz::{Kind, reviews};
use server::identity::Identity;

use crate::support::bootstrapped;

fn alice() -> Identity {
    Identity::authenticated("alice", ["dev"])
}

fn ask(namespace: &str, verb: &str, resource: &str) -> Value {
    json!({"kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes":
        {"namespace": namespace, "verb": verb, "resource": resource}}})
}

#[test]
fn access_reviews() {
    let rbac = bootstrapped();
    let binding =
        json!({"roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [{"kind": "User", "name": "alice"}]});
    rbac.apply(Kind::RoleBinding, "team-a", "viewers", Some(&binding));
    let yes = reviews::self_subject_access_review(&rbac, &alice(), &ask("team-a", "list", "pods")).expect("an answer");
    assert_eq!(
        yes["status"],
        json!({"allowed": true, "reason": "RBAC: allowed by RoleBinding \"viewers/team-a\" of ClusterRole \"view\" to User \"alice\""})
    );
    assert_eq!(yes["kind"], "SelfSubjectAccessReview");
    let no = reviews::self_subject_access_review(&rbac, &alice(), &ask("team-b", "list", "pods")).expect("an answer");
    assert_eq!(no["status"], json!({"allowed": false}));
    // "Everything" and "nothing at all" are questions too.
    for (verb, resource) in [("*", "*"), ("*", "pods"), ("get", ""), ("", "pods")] {
        let no =
            reviews::self_subject_access_review(&rbac, &alice(), &ask("team-a", verb, resource)).expect("an answer");
        assert_eq!(no["status"]["allowed"], false, "{verb} {resource}");
    }
    let path = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/version"}}});
    let yes = reviews::self_subject_access_review(&rbac, &alice(), &path).expect("an answer");
    assert_eq!(yes["status"]["allowed"], true);
    let both = json!({"spec": {"nonResourceAttributes": {}, "resourceAttributes": {}}});
    for bad in [both, json!({"spec": {}}), json!({})] {
        assert!(reviews::self_subject_access_review(&rbac, &alice(), &bad).is_err(), "{bad}");
    }
}

#[test]
fn reviews_about_others_and_within_a_namespace() {
    let rbac = bootstrapped();
    let binding =
        json!({"roleRef": {"kind": "ClusterRole", "name": "edit"}, "subjects": [{"kind": "Group", "name": "dev"}]});
    rbac.apply(Kind::RoleBinding, "team-a", "devs", Some(&binding));
    let mut review = ask("team-a", "create", "pods");
    review["spec"]["groups"] = json!(["dev"]);
    assert_eq!(reviews::subject_access_review(&rbac, &review).expect("an answer")["status"]["allowed"], true);
    assert_eq!(
        reviews::local_subject_access_review(&rbac, "team-a", &review).expect("an answer")["status"]["allowed"],
        true
    );
    assert!(reviews::local_subject_access_review(&rbac, "team-b", &review).is_err());
    review["spec"]["groups"] = json!([]);
    let error = reviews::subject_access_review(&rbac, &review).expect_err("nobody").to_string();
    assert_eq!(error, "spec.user: Invalid value: \"\": at least one of user or group must be specified");
}

#[test]
fn rules_and_who_am_i() {
    let rbac = bootstrapped();
    let review = json!({"spec": {"namespace": "team-a"}});
    let status = reviews::self_subject_rules_review(&rbac, &alice(), &review).expect("an answer")["status"].take();
    let can_ask =
        json!({"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]});
    assert!(status["resourceRules"].as_array().is_some_and(|rules| rules.contains(&can_ask)), "{status}");
    assert_eq!(status["incomplete"], false);
    assert!(status["nonResourceRules"].as_array().is_some_and(|rules| !rules.is_empty()));
    assert!(reviews::self_subject_rules_review(&rbac, &alice(), &json!({"spec": {}})).is_err());
    let me = reviews::self_subject_review(&alice(), &json!({}));
    assert_eq!(me["status"]["userInfo"], json!({"username": "alice", "groups": ["dev", "system:authenticated"]}));
}
