//! What granted claims, and objects that came with one, may become: nothing that takes what was not granted, in whichever way.

use super::*;

fn things() -> GroupResource {
    resource("configmaps")
}

/// Ten cores anywhere, a hundred of them at dfw.
fn limits(policy: &str) -> Value {
    let mut one = limit(CPU, &[("10", json!({})), ("100", json!({"matchLabels": {LOCATION: "dfw"}}))]);
    one["bucketPolicy"] = json!(policy);
    one
}

/// Claims, and objects that come with one, are asked for in the same way.
#[derive(Clone, Copy, Debug)]
enum By {
    Claim,
    Object,
}

fn granted(policy: &str) -> Desk {
    let mut desk = desk();
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[limits(policy)])).unwrap();
    let resources = json!([{
        "name": CPU, "quantity": "{{ object.data.cpu }}", "dimensions": {LOCATION: "{{ object.data.at }}"},
    }]);
    let policy = json!({"spec": {
        "trigger": {"resource": {"apiVersion": "v1", "kind": "ConfigMap"}},
        "target": {"resourceClaimTemplate": {"spec": {"resources": resources}}},
    }});
    desk.apply(&resource("claimcreationpolicies.quota.datumapis.com"), "", "p", policy).unwrap();
    desk
}

impl Desk {
    fn want(&mut self, by: By, name: &str, cpu: &str, location: &str) -> Result<(), String> {
        match by {
            By::Claim => self.apply(&claims(), "proj-abc", name, claim(&[(CPU, cpu)], at(location, ""))),
            By::Object => self.apply(&things(), "proj-abc", name, json!({"data": {"cpu": cpu, "at": location}})),
        }
    }
}

#[test]
fn what_a_bucket_comes_to_decide_about_has_to_fit_there() {
    for by in [By::Claim, By::Object] {
        let mut desk = granted("MostSpecific");
        desk.want(by, "x", "4", "sjc").unwrap();
        desk.want(by, "y", "50", "dfw").unwrap();
        assert_eq!(desk.drawn("project-proj-abc", CPU), "50/100 54/10");
        // It was counted there all the time, and took no room of it.
        for cpu in ["50", "49", "7", "51"] {
            let refused = desk.want(by, "y", cpu, "sjc").unwrap_err();
            assert!(refused.contains("exceeded: compute.datumapis.com/instances/cpu"), "{refused}");
        }
        let refused = desk.want(by, "y", "7", "sjc").unwrap_err();
        assert!(refused.contains("bucket {}: requested 7, used 4, limit 10"), "{refused}");
        desk.restart();
        assert_eq!(desk.drawn("project-proj-abc", CPU), "50/100 54/10", "{by:?}: a refusal changes nothing");
        // What fits may move, and back, and a part of it may stay.
        desk.want(by, "y", "6", "sjc").unwrap();
        assert_eq!(desk.drawn("project-proj-abc", CPU), "0/100 10/10");
        desk.want(by, "y", "100", "dfw").unwrap();
        desk.want(by, "x", "4", "dfw").unwrap_err();
        assert_eq!(desk.drawn("project-proj-abc", CPU), "100/100 104/10");
    }
    // Of one claim with several resources of a name the part that moves counts.
    let mut desk = granted("MostSpecific");
    let several = |there: &str| {
        let mut claim = claim(&[], json!({}));
        let one = |cpu: &str, location: &str| json!({"name": CPU, "quantity": cpu, "dimensions": {LOCATION: location}});
        claim["spec"]["resources"] = json!([one("5", "sjc"), one("30", "dfw"), one("4", there)]);
        claim
    };
    desk.apply(&claims(), "proj-abc", "several", several("dfw")).unwrap_err();
    let mut two = several("dfw");
    two["spec"]["resources"].as_array_mut().unwrap().pop();
    desk.apply(&claims(), "proj-abc", "several", two.clone()).unwrap();
    assert_eq!(
        desk.phase("proj-abc", "several"),
        "Denied/QuotaExceeded",
        "35 are more than 10 where 5 of them are decided"
    );
    // Where all buckets decide nothing comes to be decided.
    let mut desk = granted("AllMatching");
    assert_eq!(desk.ask("y", &[(CPU, "10")], at("dfw", "")), "Granted/QuotaAvailable");
    desk.want(By::Claim, "y", "10", "sjc").unwrap();
    assert_eq!(desk.drawn("project-proj-abc", CPU), "0/100 10/10");
}

#[test]
fn what_nobody_covers_any_more_does_not_grow() {
    for by in [By::Claim, By::Object] {
        for gone in ["grant", "limit", "definition", "dimension"] {
            let mut desk = granted("MostSpecific");
            desk.want(by, "x", "10", "sjc").unwrap();
            match gone {
                "grant" => desk.delete(&grants(), "proj-abc", "g").unwrap(),
                "limit" => {
                    let other = limit(COUNT, &[("1", json!({}))]);
                    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[other])).unwrap();
                }
                "definition" => desk.delete(&definitions(), "", "cpu").unwrap(),
                _ => {
                    let mut less = definition(CPU, "cores", None);
                    less["spec"]["allowedDimensions"] = json!([TYPE]);
                    desk.apply(&definitions(), "", "cpu", less).unwrap();
                }
            }
            for (cpu, location) in [("11", "sjc"), ("1000000", "sjc"), ("10", "lhr"), ("1000000", "dfw"), ("1k", "sjc")]
            {
                let refused = desk.want(by, "x", cpu, location).unwrap_err();
                let why = match gone {
                    "definition" => "(UnknownResourceName)",
                    "dimension" => "(InvalidDimension)",
                    _ => "no grant of project \"proj-abc\" or of its organization lists",
                };
                assert!(refused.contains(why), "{by:?} {gone}: {refused}");
            }
            // It stays granted, and may become less where that can be told.
            let less = desk.want(by, "x", "9", "sjc");
            assert_eq!(less.is_ok(), gone != "definition", "{by:?} {gone}: {less:?}");
            desk.restart();
            let name = if matches!(by, By::Claim) { "x" } else { "x-claim" };
            assert_eq!(desk.phase("proj-abc", name), "Granted/QuotaAvailable", "{by:?} {gone}");
        }
    }
}

#[test]
fn what_a_claim_was_granted_is_counted_whatever_becomes_of_the_grant_it_names() {
    let all = |amount: &str| [limit(CPU, &[(amount, json!({}))])];
    let named = |name: &str| {
        let mut claim = claim(&[(CPU, "8")], json!({}));
        claim["spec"]["grantRef"] = json!({"name": name});
        claim
    };
    // Another grant of the project has it, its organization's, or the default.
    for rest in ["project", "organization", "default"] {
        for gone in ["deleted", "emptied"] {
            let mut desk = desk();
            desk.apply(&projects(), "", "proj-abc", json!({"spec": {"organizationRef": {"name": "acme"}}})).unwrap();
            desk.apply(&grants(), "proj-abc", "plan", grant("Project", "proj-abc", &all("8"))).unwrap();
            match rest {
                "project" => desk.apply(&grants(), "proj-abc", "other", grant("Project", "proj-abc", &all("8"))),
                "organization" => desk.apply(&grants(), "proj-abc", "other", grant("Organization", "acme", &all("8"))),
                _ => desk.apply(&definitions(), "", "cpu", definition(CPU, "cores", Some("8"))),
            }
            .unwrap();
            desk.apply(&claims(), "proj-abc", "x", named("plan")).unwrap();
            assert_eq!(desk.phase("proj-abc", "x"), "Granted/QuotaAvailable");
            match gone {
                "deleted" => desk.delete(&grants(), "proj-abc", "plan").unwrap(),
                _ => {
                    let other = limit(COUNT, &[("1", json!({}))]);
                    desk.apply(&grants(), "proj-abc", "plan", grant("Project", "proj-abc", &[other])).unwrap();
                }
            }
            let entity = if rest == "organization" { "organization-acme" } else { "project-proj-abc" };
            for _ in 0..2 {
                assert_eq!(desk.drawn(entity, CPU), "8/8", "{rest} {gone}");
                assert_eq!(desk.phase("proj-abc", "x"), "Granted/QuotaAvailable");
                desk.restart();
            }
            assert_eq!(desk.ask("y", &[(CPU, "1")], json!({})), "Denied/QuotaExceeded", "{rest} {gone}");
            // Nobody is granted anything by a grant that is not there.
            desk.delete(&claims(), "proj-abc", "x").unwrap();
            assert_eq!(desk.phase("proj-abc", "y"), "Granted/QuotaAvailable");
            if (rest, gone) != ("project", "emptied") {
                desk.apply(&claims(), "proj-abc", "x", named("plan")).unwrap();
                assert_eq!(desk.phase("proj-abc", "x"), "Denied/GrantNotFound", "{rest} {gone}");
            }
        }
    }
}

#[test]
fn a_dimension_that_is_allowed_no_more_takes_nothing_out_of_the_count() {
    let mut desk = desk();
    let everywhere = json!({"name": CPU, "buckets": [{"value": "10", "selector": {}}]});
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[everywhere])).unwrap();
    assert_eq!(desk.ask("x", &[(CPU, "10")], at("sjc", "")), "Granted/QuotaAvailable");
    let mut less = definition(CPU, "cores", None);
    less["spec"]["allowedDimensions"] = json!([TYPE]);
    desk.apply(&definitions(), "", "cpu", less).unwrap();
    assert_eq!(desk.drawn("project-proj-abc", CPU), "10/10");
    assert_eq!(desk.phase("proj-abc", "x"), "Granted/QuotaAvailable");
    assert_eq!(desk.ask("y", &[(CPU, "1")], json!({})), "Denied/QuotaExceeded");
    desk.restart();
    assert_eq!(desk.ask("z", &[(CPU, "1")], at("sjc", "")), "Denied/InvalidDimension");
    desk.delete(&claims(), "proj-abc", "x").unwrap();
    assert_eq!(
        (desk.phase("proj-abc", "y"), desk.phase("proj-abc", "z")),
        ("Granted/QuotaAvailable".into(), "Denied/InvalidDimension".into(),)
    );
}
