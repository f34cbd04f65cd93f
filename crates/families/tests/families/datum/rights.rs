//! What a write takes of its author besides the right to make it, and whose a home is.

use families::Origin;

use super::*;

fn namespaces() -> GroupResource {
    resource("namespaces")
}

fn organizations() -> GroupResource {
    resource("organizations.resources.datumapis.com")
}

fn plans() -> GroupResource {
    resource("quotaplans.quota.datumapis.com")
}

fn labelled(name: &str, project: Option<&str>) -> Value {
    let labels = project.map_or_else(|| json!({}), |project| json!({"resources.datumapis.com/project": project}));
    json!({"metadata": {"name": name, "labels": labels}})
}

#[test]
fn nobody_enters_a_project_by_a_namespace_of_its_name() {
    let asks = |desk: &Desk, name: &str, project: Option<&str>| {
        desk.rights(&namespaces(), "", name, Some(&labelled(name, project))).join(", ")
    };
    let of = |project: &str| format!("move projects.resources.datumapis.com /{project}");
    let mut desk = desk();
    assert_eq!(asks(&desk, "new", None), "", "nobody has heard of it");
    assert_eq!(asks(&desk, "new", Some("proj-abc")), of("proj-abc"));
    assert_eq!(asks(&desk, "proj-abc", None), "", "it is so already");
    assert_eq!(asks(&desk, "proj-abc", Some("b")), format!("{}, {}", of("proj-abc"), of("b")));
    // A project may be there as an object, by a grant alone, and by a label alone.
    desk.apply(&projects(), "", "object", json!({"spec": {}})).unwrap();
    desk.delete(&namespaces(), "", "object").unwrap();
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "granted", &[limit(CPU, &[("10", json!({}))])])).unwrap();
    desk.namespace("home", &[("resources.datumapis.com/project", "label")]);
    for name in ["object", "granted", "label"] {
        assert_eq!(asks(&desk, name, None), of(name));
        assert_eq!(asks(&desk, "x", Some(name)), of(name));
    }
}

#[test]
fn whoever_says_where_a_secret_is_sent_may_read_it() {
    let of = |endpoint: &str, secret: Option<&str>| {
        let mut definition = definition(CPU, "cores", None);
        let mut source = json!({"type": "Prometheus", "endpoint": endpoint, "meter": "m"});
        if let Some(secret) = secret {
            source["credentialsRef"] = json!({"namespace": "vault", "name": secret});
        }
        definition["spec"]["usageSource"] = source;
        definition
    };
    let mut desk = desk();
    let asks = |desk: &Desk, definition: &Value| desk.rights(&definitions(), "", "cpu", Some(definition)).join(", ");
    let (open, key) = (of("http://a", None), of("http://a", Some("key")));
    assert_eq!(asks(&desk, &open), "");
    assert_eq!(asks(&desk, &key), "get secrets vault/key");
    desk.apply(&definitions(), "", "cpu", key.clone()).unwrap();
    assert_eq!(asks(&desk, &key), "", "whoever changes neither asks for nothing");
    assert_eq!(asks(&desk, &of("http://b", Some("key"))), "get secrets vault/key", "it would be sent elsewhere");
    assert_eq!(asks(&desk, &of("http://a", Some("other"))), "get secrets vault/other");
    assert_eq!(asks(&desk, &open), "");
    let mut sink = key.clone();
    sink["spec"]["usageSink"] = json!({
        "type": "OpenMeter", "endpoint": "http://a", "meter": "m", "credentialsRef": {"namespace": "vault", "name": "s"},
    });
    assert_eq!(asks(&desk, &sink), "get secrets vault/s");
    assert_eq!(desk.rights(&definitions(), "", "cpu", None).join(", "), "");
}

#[test]
fn a_home_is_whose_it_was_made_for() {
    let mut desk = desk();
    let plan = json!({"spec": {"limits": [limit(CPU, &[("2", json!({}))])]}});
    desk.apply(&plans(), "", "free", plan).unwrap();
    let planned = json!({"spec": {"plan": "free"}});
    let made = |desk: &Desk| -> Vec<String> {
        let place = |one: &Value| {
            let text = |field: &str| one["metadata"][field].as_str().unwrap().to_owned();
            format!("{}/{} {}", text("namespace"), text("name"), one["spec"]["resourceRef"]["name"].as_str().unwrap())
        };
        desk.all(&grants()).iter().map(place).collect()
    };
    // A project is not called as an organization's home is.
    let refused = desk.apply(&projects(), "", "organization-acme", planned.clone()).unwrap_err();
    assert!(refused.starts_with("metadata.name: Invalid value: \"organization-acme\""), "{refused}");
    desk.apply(&organizations(), "", "acme", planned.clone()).unwrap();
    assert_eq!(made(&desk), ["organization-acme/plan acme"]);
    let taken = labelled("organization-acme", None);
    assert_eq!(desk.rights(&namespaces(), "", "organization-acme", Some(&taken)), Vec::<String>::new());
    // What a tenant had before is not taken over.
    desk.namespace("organization-x", &[]);
    let refused = desk.apply(&organizations(), "", "x", planned.clone()).unwrap_err();
    assert!(refused.contains("namespace \"organization-x\", which is there and not its own"), "{refused}");
    desk.delete(&namespaces(), "", "organization-x").unwrap();
    desk.apply(&organizations(), "", "x", planned.clone()).unwrap();
    assert_eq!(made(&desk), ["organization-acme/plan acme", "organization-x/plan x"]);
    // Nor does anybody put a namespace in the place of a home.
    desk.delete(&organizations(), "", "x").unwrap();
    desk.delete(&namespaces(), "", "organization-x").unwrap();
    desk.apply(&organizations(), "", "x", planned.clone()).unwrap();
    desk.delete(&namespaces(), "", "organization-x").unwrap();
    let asks = desk.rights(&namespaces(), "", "organization-x", Some(&labelled("organization-x", None)));
    assert_eq!(asks, ["move organizations.resources.datumapis.com /x"]);
    desk.namespace("organization-x", &[]);
    assert!(!made(&desk).iter().any(|one| one.ends_with("/plan x")));
    // A namespace of another project is no project's home, until it is its own again.
    desk.namespace("web", &[("resources.datumapis.com/project", "other")]);
    desk.apply(&projects(), "", "web", planned).unwrap();
    assert!(!made(&desk).contains(&"web/plan web".to_owned()), "{:?}", made(&desk));
    desk.namespace("web", &[]);
    assert!(made(&desk).contains(&"web/plan web".to_owned()), "{:?}", made(&desk));
    desk.namespace("web", &[("resources.datumapis.com/project", "other")]);
    assert!(!made(&desk).contains(&"web/plan web".to_owned()), "{:?}", made(&desk));
}

#[test]
fn what_decides_about_a_grant_s_life_takes_leave_to_grant() {
    let mut desk = desk();
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[limit(CPU, &[("10", json!({}))])])).unwrap();
    let stored = desk.projected(&grants(), "proj-abc", "g");
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": kinds::uid::text(ledger::SubjectId(7))}]);
    for (field, value, asked) in [
        ("labels", json!({"a": "b"}), ""),
        ("annotations", json!({"a": "b"}), ""),
        // It would be collected, by who has every right; it would stay for as long as somebody likes; it would go with its plan.
        ("ownerReferences", owner, "grant projects.resources.datumapis.com /proj-abc"),
        ("finalizers", json!(["example.com/mine"]), "grant projects.resources.datumapis.com /proj-abc"),
        ("labels", json!({"quota.datumapis.com/plan": "p"}), "grant projects.resources.datumapis.com /proj-abc"),
    ] {
        let mut changed = stored.clone();
        changed["metadata"][field] = value;
        let mut rights = desk.rights(&grants(), "proj-abc", "g", Some(&changed));
        rights.dedup();
        assert_eq!(rights.join(", "), asked, "{changed}");
    }
}

#[test]
fn a_project_leaves_no_organization_and_takes_over_no_namespace_by_being_made_anew() {
    let mut desk = desk();
    let new = json!({"spec": {}});
    desk.apply(&projects(), "", "web", json!({"spec": {"organizationRef": {"name": "acme"}}})).unwrap();
    desk.apply(&projects(), "", "free", new.clone()).unwrap();
    assert_eq!(desk.rights(&projects(), "", "web", None), ["move organizations.resources.datumapis.com /acme"]);
    assert_eq!(desk.rights(&projects(), "", "free", None), Vec::<String>::new());
    let asks = |desk: &Desk, name: &str| desk.rights(&projects(), "", name, Some(&new)).join(", ");
    let of = |project: &str| format!("move projects.resources.datumapis.com /{project}");
    assert_eq!(asks(&desk, "new"), "");
    assert_eq!(asks(&desk, "proj-abc"), of("proj-abc"), "somebody's namespace is called so");
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "granted", &[limit(CPU, &[("10", json!({}))])])).unwrap();
    assert_eq!(asks(&desk, "granted"), of("granted"));
    desk.delete(&projects(), "", "web").unwrap();
    assert_eq!(asks(&desk, "web"), of("web"), "its namespace was left behind");
}

#[test]
fn a_subnamespace_is_nobody_s_way_into_a_project() {
    let mut desk = desk();
    desk.namespace("bank-1", &[("resources.datumapis.com/project", "bank")]);
    let anchors = resource("subnamespaceanchors.hnc.x-k8s.io");
    let anchored = json!({"metadata": {"annotations": {"hnc.x-k8s.io/subnamespace-of": "proj-abc"}}});
    for (name, is_made) in [("bank", false), ("new", true)] {
        desk.origin = Origin::default();
        desk.apply(&anchors, "proj-abc", name, json!({"spec": {}})).unwrap();
        // As whoever plants it, who may everything.
        desk.origin = Origin::internal("anchors");
        match desk.apply(&namespaces(), "", name, anchored.clone()) {
            Ok(()) => assert!(is_made, "{name}"),
            Err(why) => {
                assert!(
                    !is_made && why.contains("whoever may move projects.resources.datumapis.com \"bank\""),
                    "{why}"
                );
            }
        }
    }
}
