//! Whose grant decides: the one a claim names, the project's, the organization's, the default.

use super::*;

fn project(organization: &str) -> Value {
    json!({"spec": {"organizationRef": {"name": organization}}})
}

fn cpu(amount: &str) -> [Value; 1] {
    [limit(CPU, &[(amount, json!({}))])]
}

/// Two projects of one organization, one of them with two namespaces.
fn organized() -> Desk {
    let mut desk = desk();
    desk.namespace("a1", &[("resources.datumapis.com/project", "a")]);
    desk.namespace("a2", &[("resources.datumapis.com/project", "a")]);
    desk.namespace("b", &[]);
    desk.apply(&projects(), "", "a", project("acme")).unwrap();
    desk.apply(&projects(), "", "b", project("acme")).unwrap();
    desk
}

impl Desk {
    fn ask_in(&mut self, namespace: &str, name: &str, cpu: &str) -> String {
        self.apply(&claims(), namespace, name, claim(&[(CPU, cpu)], json!({}))).unwrap();
        self.phase(namespace, name)
    }
}

const YES: &str = "Granted/QuotaAvailable";
const NO: &str = "Denied/QuotaExceeded";

#[test]
fn a_grant_is_the_project_s_however_many_namespaces_it_has() {
    let mut desk = organized();
    desk.apply(&grants(), "a1", "g", grant("Project", "a", &cpu("4"))).unwrap();
    assert_eq!(desk.ask_in("a1", "one", "3"), YES);
    assert_eq!(desk.ask_in("a2", "two", "2"), NO);
    assert_eq!(desk.ask_in("b", "other", "1"), "Denied/GrantNotFound");
    // A second grant is added.
    desk.apply(&grants(), "a2", "h", grant("Project", "a", &cpu("1"))).unwrap();
    assert_eq!(desk.phase("a2", "two"), YES);
    assert_eq!(desk.drawn("project-a", CPU), "5/5");
    // A namespace that leaves takes its use along, and what it was granted stays so.
    desk.apply(&grants(), "b", "g", grant("Project", "b", &cpu("1"))).unwrap();
    desk.namespace("a2", &[("resources.datumapis.com/project", "b")]);
    assert_eq!((desk.drawn("project-a", CPU), desk.drawn("project-b", CPU)), ("3/5".into(), "3/1".into()));
    assert_eq!((desk.phase("a2", "two"), desk.ask_in("b", "more", "1")), (YES.into(), NO.into()));
}

#[test]
fn an_organization_s_grant_is_for_projects_without_one_of_their_own() {
    let mut desk = organized();
    desk.apply(&grants(), "b", "org", grant("Organization", "acme", &cpu("10"))).unwrap();
    assert_eq!(desk.ask_in("a1", "one", "6"), YES);
    assert_eq!(desk.ask_in("b", "two", "6"), NO);
    assert!(desk.message("b", "two").contains("of organization \"acme\", bucket {}: requested 6, used 6, limit 10"));
    assert_eq!(desk.drawn("organization-acme", CPU), "6/10");
    // The project's own grant comes first: its claims are counted there, and the organization has more left.
    desk.apply(&grants(), "a1", "own", grant("Project", "a", &cpu("2"))).unwrap();
    assert_eq!((desk.drawn("project-a", CPU), desk.drawn("organization-acme", CPU)), ("6/2".into(), "6/10".into()));
    assert_eq!((desk.phase("a1", "one"), desk.phase("b", "two")), (YES.into(), YES.into()));
    // Without it they are the organization's again, and nobody is granted what is not there.
    assert_eq!(desk.ask_in("a2", "three", "3"), NO);
    desk.delete(&grants(), "a1", "own").unwrap();
    assert_eq!(desk.drawn("organization-acme", CPU), "12/10");
    assert_eq!(desk.phase("a2", "three"), NO);
    // A project that leaves takes its use along.
    desk.apply(&projects(), "", "a", project("other")).unwrap();
    assert_eq!(desk.drawn("organization-acme", CPU), "6/10");
    assert_eq!((desk.phase("a1", "one"), desk.phase("a2", "three")), (YES.into(), "Denied/GrantNotFound".into()));
    // Without the organization's grant there is none, and who was granted keeps it.
    desk.delete(&grants(), "b", "org").unwrap();
    assert_eq!(desk.phase("b", "two"), YES);
    assert_eq!(desk.ask_in("b", "four", "1"), "Denied/GrantNotFound");
}

#[test]
fn a_claim_may_name_a_grant_of_its_project_or_organization_and_of_nobody_else() {
    let mut desk = organized();
    desk.apply(&grants(), "b", "org", grant("Organization", "acme", &cpu("10"))).unwrap();
    desk.apply(&grants(), "a1", "own", grant("Project", "a", &cpu("2"))).unwrap();
    desk.apply(&grants(), "b", "theirs", grant("Project", "b", &cpu("100"))).unwrap();
    for (name, namespace, grant, expected) in [
        ("from-org", "b", "org", YES),
        ("from-own", "a1", "own", NO),
        ("from-neighbour", "b", "theirs", "Denied/GrantNotFound"),
        ("from-nowhere", "a1", "none", "Denied/GrantNotFound"),
    ] {
        let mut asked = claim(&[(CPU, "5")], json!({}));
        asked["spec"]["grantRef"] = json!({"namespace": namespace, "name": grant});
        desk.apply(&claims(), "a1", name, asked).unwrap();
        assert_eq!(desk.phase("a1", name), expected, "{name}");
    }
    assert_eq!((desk.drawn("organization-acme", CPU), desk.drawn("project-b", CPU)), ("5/10".into(), "0/100".into()));
}

#[test]
fn a_grant_tells_what_is_the_matter_with_it() {
    let mut desk = organized();
    desk.apply(&grants(), "a1", "g", grant("Project", "nobody", &cpu("1"))).unwrap();
    assert_eq!(
        desk.conditions(&grants(), "a1", "g"),
        "Ready=False/NotEnforced LimitsValid=True/ValidationSuccessful UsageSynchronized=Unknown/PendingSync"
    );
    desk.apply(&grants(), "a1", "g", grant("Project", "a", &[limit("x.example.com/y", &[("1", json!({}))])])).unwrap();
    assert_eq!(
        desk.conditions(&grants(), "a1", "g"),
        "Ready=False/InvalidLimitsConfiguration LimitsValid=False/ResourceNotDefined UsageSynchronized=True/SyncSuccessful"
    );
    desk.apply(&definitions(), "", "y", definition("x.example.com/y", "count", None)).unwrap();
    assert_eq!(
        desk.conditions(&grants(), "a1", "g"),
        "Ready=True/GrantActive LimitsValid=True/ValidationSuccessful UsageSynchronized=True/SyncSuccessful"
    );
    let mut fewer = definition("x.example.com/y", "count", None);
    fewer["spec"]["allowedDimensions"] = json!([]);
    desk.apply(&definitions(), "", "y", fewer).unwrap();
    assert_eq!(
        desk.conditions(&grants(), "a1", "g"),
        "Ready=False/InvalidLimitsConfiguration LimitsValid=False/InvalidDimensionSelector \
         UsageSynchronized=True/SyncSuccessful"
    );
    // Until it is mended nothing of that resource is granted.
    desk.apply(&claims(), "a1", "c", claim(&[("x.example.com/y", "1")], json!({}))).unwrap();
    assert_eq!(desk.phase("a1", "c"), "Denied/GrantInvalid");
    assert_eq!(
        desk.conditions(&definitions(), "", "cpu"),
        "Ready=True/DefinitionActive DefinitionValid=True/ValidationSuccessful"
    );
}
