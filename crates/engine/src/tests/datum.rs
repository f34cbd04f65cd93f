//! Datum's grants in the engine: what they come to is a policy that nobody writes.

use super::*;

const QUOTA: &str = "quota.datumapis.com";
const RESOURCES: &str = "resources.datumapis.com";
const PROJECT: &str = "resources.datumapis.com/project";

fn bench() -> Bench {
    bench_of(json!({}))
}

fn bench_of(more: Value) -> Bench {
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    let mut spec = json!({"serviceRef": {"name": "s"}, "resourceName": "x.example.com/cores", "unit": "cores"});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    bench.create(QUOTA, "servicequotadefinitions", "", "cores", json!({"spec": spec})).unwrap();
    bench
}

#[test]
fn however_many_projects_there_are_there_is_room_for_quotas_of_others() {
    let mut bench = bench();
    for number in 0..1050 {
        bench.create("", "namespaces", "", &format!("p{number}"), json!({})).unwrap();
    }
    let effective = GroupResource::new(QUOTA, "effectivequotagrants");
    assert!(bench.desk.list(&effective).count() > 1000);
    let quota = json!({"spec": {"limit": "5", "sources": [{"kind": "Pod", "apiVersion": "v1", "path": ".spec.size"}]}});
    bench.create("capsule.clastix.io", "globalcustomquotas", "", "all", quota).unwrap();
    bench.create("", "namespaces", "", "one-more", json!({})).unwrap();
    assert!(bench.desk.get(&ObjectKey::new(effective, "", "project-one-more")).is_some());
}

fn limits(cores: &str) -> Value {
    json!([{"name": "x.example.com/cores", "buckets": [{"value": cores, "selector": {}}]}])
}

impl Bench {
    fn project(&mut self, name: &str, spec: Value) {
        self.create(RESOURCES, "projects", "", name, json!({"spec": spec})).unwrap();
    }

    /// What becomes of a claim of so much.
    fn phase_of_claim(&mut self, namespace: &str, name: &str, cores: &str) -> Value {
        let spec = json!({
            "resourceRef": {"kind": "Thing", "name": "t"}, "resources": [{"name": "x.example.com/cores", "quantity": cores}],
        });
        let written = self.create(QUOTA, "resourcequotaclaims", namespace, name, json!({"spec": spec})).unwrap();
        written.object.value()["status"]["phase"].clone()
    }
}

#[test]
fn grants_that_are_still_to_be_made_limit_from_their_first_moment_and_are_made_after_an_end() {
    let mut bench = bench_of(json!({"defaultLimit": {"value": "100"}}));
    let names: Vec<String> = (0..12).map(|number| format!("p{number:02}")).collect();
    names.iter().for_each(|name| bench.project(name, json!({})));
    bench.create("", "namespaces", "", "elsewhere", json!({"labels": {PROJECT: "p11"}})).unwrap();
    while bench.desk.publish(0) > 0 {}
    bench.desk.engine.set_bounds(Bounds { made: 3, ..Bounds::default() });
    let trigger = json!({"resource": {"apiVersion": "resources.datumapis.com/v1alpha1", "kind": "Project"}});
    let template = json!({"resourceGrantTemplate": {"spec": {"limits": limits("1")}}});
    let policy = json!({"spec": {"trigger": trigger, "target": template}});
    bench.create(QUOTA, "grantcreationpolicies", "", "one", policy).unwrap();
    let made = |bench: &Bench| bench.desk.list(&GroupResource::new(QUOTA, "resourcequotagrants")).count();
    assert_eq!(made(&bench), 3, "the rest was too much for one step");
    assert_eq!(bench.phase_of_claim("p10", "c", "50"), "Denied");
    assert_eq!(bench.phase_of_claim("elsewhere", "c", "50"), "Denied", "its project's grants are in another namespace");
    assert_eq!(made(&bench), 5);
    // An end in the middle of it.
    let mut bench = bench.restart();
    assert_eq!(bench.phase_of_claim("p09", "c", "50"), "Denied");
    while bench.desk.publish(0) > 0 {}
    assert_eq!(made(&bench), 12);
    bench.audit();
}

#[test]
fn grants_that_are_still_to_change_limit_from_that_moment_and_come_first_after_an_end() {
    let mut bench = bench();
    let names: Vec<String> = (0..6).map(|number| format!("p{number}")).collect();
    names.iter().for_each(|name| bench.project(name, json!({})));
    let trigger = json!({"resource": {"apiVersion": "resources.datumapis.com/v1alpha1", "kind": "Project"}});
    let template = json!({"resourceGrantTemplate": {"spec": {"limits": limits("5")}}});
    let policy = json!({"spec": {"trigger": trigger, "target": template}});
    bench.create(QUOTA, "grantcreationpolicies", "", "one", policy).unwrap();
    while bench.desk.publish(0) > 0 {}
    bench.desk.engine.set_bounds(Bounds { bytes: 0, ..Bounds::default() });
    let key = ObjectKey::new(GroupResource::new(QUOTA, "grantcreationpolicies"), "", "one");
    let place = "/spec/target/resourceGrantTemplate/spec/limits";
    bench.change(&key, |policy| *policy.pointer_mut(place).unwrap() = limits("1")).unwrap();
    let says_one = |bench: &Bench| {
        let resource = GroupResource::new(QUOTA, "resourcequotagrants");
        bench.desk.list(&resource).filter(|grant| grant.value()["spec"]["limits"] == limits("1")).count()
    };
    assert_eq!(says_one(&bench), 0, "all of it was too much for one step");
    assert_eq!(bench.phase_of_claim("p4", "c", "3"), "Denied");
    assert_eq!(says_one(&bench), 1);
    let mut bench = bench.restart();
    assert_eq!(bench.phase_of_claim("p5", "c", "3"), "Denied");
    while bench.desk.publish(0) > 0 {}
    assert_eq!(says_one(&bench), 6);
    bench.audit();
}

#[test]
fn whoever_joins_an_organization_has_nobody_else_counted_again() {
    let mut bench = bench();
    let of_acme = || json!({"organizationRef": {"name": "acme"}});
    for name in ["a1", "a2", "a3"] {
        bench.project(name, of_acme());
    }
    let granted = json!({"spec": {"resourceRef": {"kind": "Organization", "name": "acme"}, "limits": limits("10")}});
    bench.create(QUOTA, "resourcequotagrants", "a1", "g", granted).unwrap();
    for name in ["a1", "a2", "a3"] {
        assert_eq!(bench.phase_of_claim(name, "c", "2"), "Granted");
    }
    let compiled = |bench: &Bench| {
        let policy = policy_name(&GroupResource::new(QUOTA, "effectivequotagrants"), "", "organization-acme");
        let rulebook = &bench.desk.engine.rulebook;
        rulebook.compiled(rulebook.id(&policy).unwrap()).unwrap().clone()
    };
    let before = compiled(&bench);
    bench.project("a4", of_acme());
    bench.create("", "namespaces", "", "more", json!({"labels": {PROJECT: "a2"}})).unwrap();
    let places = bench.desk.engine.moved_places(Some(&before), &compiled(&bench));
    let namespaces: Vec<&str> = places.iter().map(|(_, namespace)| &**namespace).collect();
    assert_eq!(namespaces, ["a4", "more"]);
    assert_eq!(bench.phase_of_claim("a4", "c", "5"), "Denied");
    assert_eq!(bench.phase_of_claim("more", "c", "4"), "Granted");
    bench.audit();
}
