//! Datum's grants in the engine: what they come to is a policy that nobody writes.

use super::*;

const QUOTA: &str = "quota.datumapis.com";

fn bench() -> Bench {
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    let spec = json!({"serviceRef": {"name": "s"}, "resourceName": "x.example.com/cores", "unit": "cores"});
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
