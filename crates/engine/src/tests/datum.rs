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
