//! Which bucket decides: the worked cases of the proposal's cpu limit.

use super::*;

fn cpu(policy: &str) -> Value {
    let several = json!({"matchExpressions": [{"key": LOCATION, "operator": "In", "values": ["dfw", "lhr", "dls"]}]});
    let one = json!({"matchLabels": {LOCATION: "dfw", TYPE: "datumcloud/d1-standard-2"}});
    let mut limit = limit(CPU, &[("1000", json!({})), ("300", several), ("40", one)]);
    limit["bucketPolicy"] = json!(policy);
    limit
}

/// Claims `location/type amount`, one after the other; G or D for each.
fn decided(policy: &str, asked: &[(&str, &str, &str)]) -> String {
    let mut desk = desk();
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[cpu(policy)])).unwrap();
    let mut said = String::new();
    for (index, (location, kind, amount)) in asked.iter().enumerate() {
        let phase = desk.ask(&format!("c{index}"), &[(CPU, amount)], at(location, kind));
        said.push(phase.chars().next().unwrap());
    }
    said
}

#[test]
fn the_narrowest_decides_or_all_do() {
    const D1: &str = "datumcloud/d1-standard-2";
    for (asked, narrowest, all) in [
        (vec![("dfw", D1, "40"), ("dfw", D1, "1")], "GD", "GD"),
        (vec![("dfw", "other", "300"), ("dfw", "other", "1")], "GD", "GD"),
        (vec![("sjc", "", "1000"), ("sjc", "", "1")], "GD", "GD"),
        (vec![("sjc", "", "1000"), ("dfw", D1, "10")], "GG", "GD"),
        (vec![("lhr", "", "300"), ("dfw", D1, "10")], "GG", "GD"),
        (vec![("dfw", D1, "40"), ("dfw", "other", "261")], "GD", "GD"),
        (vec![("dfw", D1, "40"), ("dfw", "other", "260")], "GG", "GG"),
        (vec![("", "", "8")], "G", "G"),
    ] {
        assert_eq!(decided("MostSpecific", &asked), narrowest, "{asked:?}");
        assert_eq!(decided("AllMatching", &asked), all, "{asked:?}");
    }
}

#[test]
fn every_bucket_that_matches_counts_and_the_policy_can_be_changed() {
    let mut desk = desk();
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[cpu("MostSpecific")])).unwrap();
    assert_eq!(desk.ask("wide", &[(CPU, "1000")], at("sjc", "")), "Granted/QuotaAvailable");
    assert_eq!(desk.ask("narrow", &[(CPU, "10")], at("dfw", "datumcloud/d1-standard-2")), "Granted/QuotaAvailable");
    assert_eq!(desk.drawn("project-proj-abc", CPU), "10/40 10/300 1010/1000");
    assert_eq!(desk.ask("more", &[(CPU, "5")], at("dfw", "datumcloud/d1-standard-2")), "Granted/QuotaAvailable");
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[cpu("AllMatching")])).unwrap();
    assert_eq!(desk.drawn("project-proj-abc", CPU), "15/40 15/300 1015/1000");
    assert_eq!(desk.ask("late", &[(CPU, "1")], at("dfw", "datumcloud/d1-standard-2")), "Denied/QuotaExceeded");
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[cpu("MostSpecific")])).unwrap();
    assert_eq!(desk.phase("proj-abc", "late"), "Granted/QuotaAvailable");
    // A bucket that comes later counts who is there, and takes nothing from them.
    let mut narrower = cpu("MostSpecific");
    let lhr = json!({"value": "1", "selector": {"matchLabels": {LOCATION: "sjc"}}});
    narrower["buckets"].as_array_mut().unwrap().push(lhr);
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[narrower])).unwrap();
    assert_eq!(desk.drawn("project-proj-abc", CPU), "16/40 1000/1 16/300 1016/1000");
    assert_eq!(desk.phase("proj-abc", "wide"), "Granted/QuotaAvailable");
}

#[test]
fn a_default_is_the_widest_bucket_where_a_grant_has_none() {
    let mut desk = desk();
    desk.apply(&definitions(), "", "disks", definition("storage.example.com/disks", "count", Some("3"))).unwrap();
    let disks = "storage.example.com/disks";
    assert_eq!(desk.ask("a", &[(disks, "3")], json!({})), "Granted/QuotaAvailable");
    assert_eq!(desk.ask("b", &[(disks, "1")], json!({})), "Denied/QuotaExceeded");
    assert!(desk.message("proj-abc", "b").contains("default limit: requested 1, used 3, limit 3"));
    let dfw = json!({"matchLabels": {LOCATION: "dfw"}});
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[limit(disks, &[("9", dfw)])])).unwrap();
    assert_eq!(desk.drawn("project-proj-abc", disks), "0/9 3/3");
    assert_eq!(desk.ask("c", &[(disks, "5")], at("dfw", "")), "Granted/QuotaAvailable", "a bucket may be larger");
    desk.apply(&grants(), "proj-abc", "h", grant("Project", "proj-abc", &[limit(disks, &[("unlimited", json!({}))])]))
        .unwrap();
    assert_eq!(desk.phase("proj-abc", "b"), "Granted/QuotaAvailable");
}

#[test]
fn selectors_that_read_alike_have_an_account_each() {
    let mut desk = desk();
    let odd = format!("dfw,{TYPE}=d1");
    let buckets =
        [("1", json!({"matchLabels": at("dfw", "d1")})), ("5", json!({"matchLabels": at(&odd, "")})), ("9", json!({}))];
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[limit(CPU, &buckets)])).unwrap();
    assert_eq!(desk.ask("odd", &[(CPU, "5")], at(&odd, "")), "Granted/QuotaAvailable");
    assert_eq!(desk.ask("one", &[(CPU, "1")], at("dfw", "d1")), "Granted/QuotaAvailable");
    assert_eq!(desk.drawn("project-proj-abc", CPU), "1/1 5/5 6/9");
    // The other one of the same words.
    let values = |list: Value| json!({"matchExpressions": [{"key": LOCATION, "operator": "NotIn", "values": list}]});
    let buckets = [("2", values(json!(["a,b", "c"]))), ("3", values(json!(["a", "b,c"])))];
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[limit(CPU, &buckets)])).unwrap();
    desk.delete(&claims(), "proj-abc", "odd").unwrap();
    assert_eq!(desk.drawn("project-proj-abc", CPU), "1/2 1/3");
}
