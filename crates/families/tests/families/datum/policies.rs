//! Claims and grants that make themselves: policies, plans, projects with a namespace of their own.

use super::*;

fn instances() -> GroupResource {
    resource("instances.compute.datumapis.com")
}

fn claim_policies() -> GroupResource {
    resource("claimcreationpolicies.quota.datumapis.com")
}

fn grant_policies() -> GroupResource {
    resource("grantcreationpolicies.quota.datumapis.com")
}

fn plans() -> GroupResource {
    resource("quotaplans.quota.datumapis.com")
}

fn claim_policy(constraints: &[&str]) -> Value {
    let constraints: Vec<Value> = constraints.iter().map(|expression| json!({"expression": expression})).collect();
    json!({"spec": {
        "trigger": {
            "resource": {"apiVersion": "compute.datumapis.com/v1alpha1", "kind": "Instance"}, "constraints": constraints,
        },
        "target": {"resourceClaimTemplate": {"spec": {
            "resources": [{"name": CPU, "quantity": "{{ object.spec.cpu }}"}, {"name": COUNT, "quantity": "1"}],
            "dimensions": {LOCATION: "{{ object.spec.location }}"},
        }}},
    }})
}

fn instance(cpu: i64) -> Value {
    json!({"spec": {"cpu": cpu, "location": "dfw"}})
}

fn limited() -> Desk {
    let mut desk = desk();
    let limits = [limit(CPU, &[("10", json!({}))]), limit(COUNT, &[("3", json!({}))])];
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &limits)).unwrap();
    desk.apply(&claim_policies(), "", "instances", claim_policy(&[])).unwrap();
    desk
}

impl Desk {
    fn names(&self, of: &GroupResource) -> Vec<String> {
        self.all(of).iter().map(|one| one["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn an_object_comes_with_its_claim_or_not_at_all() {
    let mut desk = limited();
    desk.apply(&instances(), "proj-abc", "a", instance(8)).unwrap();
    assert_eq!(desk.phase("proj-abc", "a-claim"), "Granted/QuotaAvailable");
    let made = desk.projected(&claims(), "proj-abc", "a-claim");
    let a = desk.projected(&instances(), "proj-abc", "a");
    assert_eq!(made["spec"]["resourceRef"]["uid"], a["metadata"]["uid"]);
    assert_eq!(made["status"]["observedGeneration"], 1);
    let refused = desk.apply(&instances(), "proj-abc", "b", instance(3)).unwrap_err();
    assert_eq!(
        refused,
        format!(
            "quota of project \"proj-abc\" exceeded: {CPU}: requested 3, used 8, limit 10; \
             release something or ask for a larger grant"
        )
    );
    assert_eq!((desk.names(&instances()), desk.names(&claims())), (vec!["a".to_owned()], vec!["a-claim".to_owned()]));
    assert_eq!(desk.drawn("project-proj-abc", CPU), "8/10");
    // The same name twice is still the same name twice, and counts once.
    for _ in 0..3 {
        desk.apply(&instances(), "proj-abc", "a", instance(8)).unwrap();
    }
    assert_eq!(desk.drawn("project-proj-abc", CPU), "8/10");
    // It grows and shrinks with its object, and a growth that does not fit leaves both as they were.
    desk.apply(&instances(), "proj-abc", "a", instance(11)).unwrap_err();
    assert_eq!(desk.projected(&instances(), "proj-abc", "a")["spec"]["cpu"], 8);
    desk.apply(&instances(), "proj-abc", "a", instance(10)).unwrap();
    assert_eq!(
        (desk.drawn("project-proj-abc", CPU), desk.drawn("project-proj-abc", COUNT)),
        ("10/10".into(), "1/3".into())
    );
    assert_eq!(desk.status(&claims(), "proj-abc", "a-claim")["observedGeneration"], 2);
    desk.apply(&instances(), "proj-abc", "a", instance(1)).unwrap();
    desk.apply(&instances(), "proj-abc", "b", instance(3)).unwrap();
    desk.restart();
    desk.delete(&instances(), "proj-abc", "a").unwrap();
    assert_eq!(desk.names(&claims()), ["b-claim"]);
    assert_eq!(desk.drawn("project-proj-abc", CPU), "3/10");
}

#[test]
fn a_claim_that_was_made_belongs_to_its_object() {
    let mut desk = limited();
    desk.apply(&instances(), "proj-abc", "a", instance(8)).unwrap();
    let refused = desk.delete(&claims(), "proj-abc", "a-claim").unwrap_err();
    assert_eq!(refused, "it was made for \"a\", which is there: delete that, or let it take less");
    let mut smaller = desk.projected(&claims(), "proj-abc", "a-claim");
    smaller["spec"]["resources"][0]["quantity"] = json!("1");
    let refused = desk.apply(&claims(), "proj-abc", "a-claim", smaller).unwrap_err();
    assert_eq!(refused, "it was made for \"a\", and changes with it");
    let mut other = desk.projected(&claims(), "proj-abc", "a-claim");
    other["metadata"]["labels"] = json!({});
    desk.apply(&claims(), "proj-abc", "a-claim", other).unwrap_err();
    // On its way out the object lets go of it, as its controller asks.
    let mut leaving = desk.projected(&instances(), "proj-abc", "a");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    leaving["metadata"]["finalizers"] = json!(["quota.datumapis.com/instance-protection"]);
    desk.apply(&instances(), "proj-abc", "a", leaving).unwrap();
    assert_eq!(desk.drawn("project-proj-abc", CPU), "8/10");
    desk.delete(&claims(), "proj-abc", "a-claim").unwrap();
    assert_eq!(desk.drawn("project-proj-abc", CPU), "0/10");
    // A claim of that name by somebody else is in the way, and told.
    desk.ask("z-claim", &[(CPU, "1")], json!({}));
    let refused = desk.apply(&instances(), "proj-abc", "z", instance(1)).unwrap_err();
    assert!(
        refused.contains("it comes with \"z-claim\", which cannot be") && refused.contains("exists already"),
        "{refused}"
    );
    assert_eq!(desk.names(&instances()), ["a"]);
}

#[test]
fn policies_say_which_objects_are_meant() {
    let mut desk = limited();
    desk.apply(&instances(), "proj-abc", "old", instance(8)).unwrap();
    desk.apply(
        &claim_policies(),
        "",
        "instances",
        claim_policy(&["object.spec.cpu > 2", "user.name != 'system:root'"]),
    )
    .unwrap();
    desk.apply(&instances(), "proj-abc", "small", instance(2)).unwrap();
    assert_eq!(desk.names(&claims()), ["old-claim"]);
    // One that is no longer meant has no claim, one that is again has.
    desk.apply(&instances(), "proj-abc", "old", instance(1)).unwrap();
    assert_eq!(desk.names(&claims()), Vec::<String>::new());
    desk.apply(&instances(), "proj-abc", "old", instance(9)).unwrap();
    assert_eq!(desk.names(&claims()), ["old-claim"]);
    // What cannot be evaluated is refused.
    let refused = desk.apply(&instances(), "proj-abc", "odd", json!({"spec": {}})).unwrap_err();
    assert!(refused.starts_with("policy \"instances\" cannot be evaluated (object.spec.cpu > 2): "), "{refused}");
    // One that was there before its policy may be written as long as it asks for no more.
    desk.delete(&claim_policies(), "", "instances").unwrap();
    desk.apply(&instances(), "proj-abc", "huge", instance(50)).unwrap();
    desk.apply(&claim_policies(), "", "instances", claim_policy(&[])).unwrap();
    let mut labelled = instance(50);
    labelled["metadata"] = json!({"labels": {"a": "b"}});
    desk.apply(&instances(), "proj-abc", "huge", labelled).unwrap();
    desk.apply(&instances(), "proj-abc", "huge", instance(51)).unwrap_err();
    // Two policies make two claims, decided together.
    let mut second = claim_policy(&[]);
    second["spec"]["target"]["resourceClaimTemplate"]["metadata"] =
        json!({"name": "{{ object.metadata.name }}-second"});
    desk.apply(&claim_policies(), "", "second", second).unwrap();
    desk.apply(&instances(), "proj-abc", "two", instance(1)).unwrap_err();
    desk.apply(&instances(), "proj-abc", "old", instance(1)).unwrap();
    assert_eq!(desk.names(&claims()), ["old-claim", "old-second"]);
    desk.delete(&instances(), "proj-abc", "old").unwrap();
    assert_eq!(desk.names(&claims()), Vec::<String>::new());
    for (policy, expected) in [
        (json!({"spec": {"trigger": {}}}), "spec.trigger.resource.kind: Required value"),
        (claim_policy(&["object.spec.cpu >"]), "spec.trigger.constraints[0].expression: Invalid value"),
        (claim_policy(&["nobody.name == ''"]), "undeclared reference to 'nobody'"),
    ] {
        let refused = desk.apply(&claim_policies(), "", "wrong", policy).unwrap_err();
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn a_project_has_a_namespace_and_the_grants_of_its_plan() {
    let mut desk = desk();
    let plan = |cpu: &str| json!({"spec": {"limits": [limit(CPU, &[(cpu, json!({}))])]}});
    for (name, cpu) in [("free", "2"), ("pro", "20"), ("max", "unlimited")] {
        desk.apply(&plans(), "", name, plan(cpu)).unwrap();
    }
    let trigger = json!({"resource": {"apiVersion": "resources.datumapis.com/v1alpha1", "kind": "Project"}, "constraints": [
        {"expression": "has(object.spec.organizationRef) && object.spec.organizationRef.name == 'acme'"},
    ]});
    let policy = json!({"spec": {"trigger": trigger, "target": {"resourceGrantTemplate": {
        "metadata": {"annotations": {"why": "for {{ object.metadata.name }}"}},
        "spec": {"limits": [limit(COUNT, &[("5", json!({}))])]},
    }}}});
    desk.apply(&grant_policies(), "", "counts", policy).unwrap();
    let project =
        |plan: &str, organization: &str| json!({"spec": {"plan": plan, "organizationRef": {"name": organization}}});
    desk.apply(&projects(), "", "web", project("free", "acme")).unwrap();
    assert_eq!(desk.names(&grants()), ["plan", "policy-counts"]);
    assert_eq!(desk.projected(&grants(), "web", "policy-counts")["metadata"]["annotations"]["why"], "for web");
    desk.apply(&claims(), "web", "c", claim(&[(CPU, "5"), (COUNT, "1")], json!({}))).unwrap();
    assert_eq!(desk.phase("web", "c"), "Denied/QuotaExceeded");
    desk.apply(&projects(), "", "web", project("pro", "acme")).unwrap();
    assert_eq!(desk.phase("web", "c"), "Granted/QuotaAvailable", "another plan is another grant in the same commit");
    assert_eq!(desk.drawn("project-web", CPU), "5/20");
    desk.apply(&plans(), "", "pro", plan("30")).unwrap();
    assert_eq!(desk.drawn("project-web", CPU), "5/30");
    desk.apply(&projects(), "", "web", project("max", "acme")).unwrap();
    assert_eq!(desk.drawn("project-web", CPU), "5/unlimited");
    // Whoever edits what was made sees it mended; a policy that no longer means the project takes its grant along.
    desk.apply(&grants(), "web", "plan", grant("Project", "web", &[limit(CPU, &[("9999", json!({}))])])).unwrap();
    assert_eq!(desk.drawn("project-web", CPU), "5/unlimited");
    desk.delete(&grants(), "web", "plan").unwrap();
    desk.delete(&grants(), "web", "policy-counts").unwrap();
    assert_eq!(
        (desk.names(&grants()), desk.drawn("project-web", CPU)),
        (vec!["plan".into(), "policy-counts".into()], "5/unlimited".into())
    );
    // Nor is what they come to anybody's to delete.
    let refused = desk.delete(&effective(), "", "project-web").unwrap_err();
    assert!(refused.starts_with("it is what grants come to"), "{refused}");
    desk.apply(&projects(), "", "web", project("none", "other")).unwrap();
    assert_eq!(desk.names(&grants()), Vec::<String>::new());
    assert_eq!(desk.phase("web", "c"), "Granted/QuotaAvailable");
    desk.apply(&projects(), "", "web", project("free", "acme")).unwrap();
    assert_eq!(desk.names(&grants()), ["plan", "policy-counts"]);
    desk.delete(&grant_policies(), "", "counts").unwrap();
    desk.delete(&plans(), "", "free").unwrap();
    assert_eq!(desk.names(&grants()), Vec::<String>::new());
}

#[test]
fn whoever_has_a_name_after_another_has_a_namespace_of_its_own() {
    let namespaces = resource("namespaces");
    let mut desk = desk();
    desk.apply(&plans(), "", "free", json!({"spec": {"limits": [limit(CPU, &[("2", json!({}))])]}})).unwrap();
    let planned = json!({"spec": {"plan": "free"}});
    desk.apply(&projects(), "", "web", planned.clone()).unwrap();
    // Its namespace goes after it, and meanwhile there is another project of its name.
    desk.delete(&projects(), "", "web").unwrap();
    desk.apply(&projects(), "", "web", planned).unwrap();
    desk.delete(&namespaces, "", "web").unwrap();
    let (made, project) = (desk.projected(&namespaces, "", "web"), desk.projected(&projects(), "", "web"));
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], project["metadata"]["uid"]);
    assert_eq!((desk.names(&grants()), desk.drawn("project-web", CPU)), (vec!["plan".into()], "0/2".into()));
    // Whoever deletes a namespace and not its project has none.
    desk.delete(&namespaces, "", "web").unwrap();
    assert!(!desk.names(&namespaces).contains(&"web".to_owned()));
    assert_eq!(desk.names(&grants()), Vec::<String>::new());
}

#[test]
fn nothing_is_made_that_could_not_be_written() {
    let organizations = || resource("organizations.resources.datumapis.com");
    let mut desk = desk();
    let long = |count: usize| "x".repeat(count);
    for (of, name, why) in [
        (projects(), "a.b".to_owned(), "names of namespaces"),
        (projects(), long(64), "names of namespaces"),
        (projects(), "organization-a".into(), "are those of organizations' namespaces"),
        (organizations(), "a.b".into(), "names of namespaces"),
        (organizations(), long(51), "names of namespaces"),
        (plans(), long(64), "must be no more than 63 bytes"),
    ] {
        let refused = desk.apply(&of, "", &name, json!({"spec": {"limits": []}})).unwrap_err();
        assert!(refused.starts_with("metadata.name: Invalid value") && refused.contains(why), "{name}: {refused}");
    }
    for (of, name) in [(projects(), long(63)), (organizations(), long(50))] {
        desk.apply(&of, "", &name, json!({"spec": {}})).unwrap();
    }
    let trigger = |api: &str, kind: &str| json!({"resource": {"apiVersion": api, "kind": kind}});
    let claims = |metadata: Value| {
        let spec = json!({"resources": [{"name": COUNT, "quantity": "1"}]});
        json!({"spec": {"trigger": trigger("v1", "ConfigMap"), "target": {"resourceClaimTemplate": {
            "metadata": metadata, "spec": spec,
        }}}})
    };
    let grants = |metadata: Value| {
        let spec = json!({"limits": [limit(COUNT, &[("1", json!({}))])]});
        let trigger = trigger("resources.datumapis.com/v1alpha1", "Project");
        json!({"spec": {"trigger": trigger, "target": {"resourceGrantTemplate": {"metadata": metadata, "spec": spec}}}})
    };
    type Policy<'a> = &'a dyn Fn(Value) -> Value;
    for (of, template, policy) in [
        (claim_policies(), "resourceClaimTemplate", &claims as Policy<'_>),
        (grant_policies(), "resourceGrantTemplate", &grants),
    ] {
        let refused = desk.apply(&of, "", &long(64), policy(json!({}))).unwrap_err();
        assert!(refused.starts_with("metadata.name: Invalid value"), "{refused}");
        for (metadata, place) in [
            (json!({"labels": {"a b": "c"}}), "labels[a b]"),
            (json!({"labels": {"a": "b c"}}), "labels[a]"),
            (json!({"labels": {"a": long(64)}}), "labels[a]"),
            (json!({"annotations": {"a b": "c"}}), "annotations[a b]"),
            (json!({"annotations": {"a": "{{"}}), "annotations[a]"),
        ] {
            let refused = desk.apply(&of, "", "p", policy(metadata)).unwrap_err();
            let expected = format!("spec.target.{template}.metadata.{place}: Invalid value");
            assert!(refused.starts_with(&expected), "{expected}: {refused}");
        }
        let metadata =
            json!({"labels": {"a": "b", "e": ""}, "annotations": {"Example.com/Why": "{{ object.metadata.name }}"}});
        desk.apply(&of, "", &long(63), policy(metadata)).unwrap();
    }
}
