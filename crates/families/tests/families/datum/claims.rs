//! Claims: how they are decided, and what they tell.

use super::*;

const GRANTED: &str = "Ready=True/ClaimGranted Validated=True/ValidationSuccessful QuotaChecked=True/CheckSuccessful \
                       Granted=True/QuotaAvailable";

#[test]
fn a_definition_concerns_those_alone_whose_grants_speak_of_it() {
    let mut desk = desk();
    desk.apply(&projects(), "", "proj-abc", json!({"spec": {"organizationRef": {"name": "acme"}}})).unwrap();
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[limit(CPU, &[("10", json!({}))])])).unwrap();
    let theirs = limit(MEMORY, &[("10", json!({}))]);
    desk.apply(&grants(), "proj-abc", "o", grant("Organization", "acme", &[theirs])).unwrap();
    let foreign = "other.example.com/things";
    assert_eq!(desk.ask("both", &[(CPU, "1"), (foreign, "1")], json!({})), "Denied/UnknownResourceName");
    assert_eq!(desk.ask("two", &[(COUNT, "1"), (foreign, "1")], json!({})), "Denied/UnknownResourceName");
    let now = |desk: &Desk| ["project-proj-abc", "organization-acme"].map(|name| desk.compiled(&effective(), name));
    let before = now(&desk);
    desk.apply(&definitions(), "", "foreign", definition(foreign, "count", None)).unwrap();
    assert_eq!(now(&desk), before, "nobody is counted again");
    // What is told follows all the same, and what is granted of it.
    assert_eq!(desk.phase("proj-abc", "both"), "Denied/GrantNotFound");
    desk.delete(&definitions(), "", "foreign").unwrap();
    assert_eq!(now(&desk), before);
    let more = grant("Project", "proj-abc", &[limit(foreign, &[("10", json!({}))])]);
    desk.apply(&grants(), "proj-abc", "more", more).unwrap();
    let before = now(&desk);
    desk.apply(&definitions(), "", "foreign", definition(foreign, "count", None)).unwrap();
    assert_ne!(now(&desk), before);
    assert_eq!(desk.phase("proj-abc", "both"), "Granted/QuotaAvailable");
}

#[test]
fn a_claim_is_granted_as_a_whole_and_tells_what_it_got() {
    let mut desk = desk();
    let limits =
        [limit(CPU, &[("10", json!({}))]), limit(MEMORY, &[("64", json!({}))]), limit(COUNT, &[("5", json!({}))])];
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &limits)).unwrap();
    let asked = [(CPU, "8"), (MEMORY, "32GiB"), (COUNT, "1")];
    assert_eq!(desk.ask("one", &asked, at("dfw", "datumcloud/d1-standard-2")), "Granted/QuotaAvailable");
    assert_eq!(desk.conditions(&claims(), "proj-abc", "one"), GRANTED);
    let status = desk.status(&claims(), "proj-abc", "one");
    assert_eq!(status["observedGeneration"], 1);
    assert_eq!(status["grantedResources"][1]["quantity"], "32");
    let finalizers = desk.projected(&claims(), "proj-abc", "one")["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!(["quota.datumapis.com/usage-release"]));
    // The last of three does not fit: nothing of the others is taken.
    let asked = [(COUNT, "1"), (MEMORY, "1"), (CPU, "3")];
    assert_eq!(desk.ask("two", &asked, json!({})), "Denied/QuotaExceeded");
    assert_eq!(
        desk.message("proj-abc", "two"),
        format!("{CPU} (cores) of project \"proj-abc\", bucket {{}}: requested 3, used 8, limit 10")
    );
    assert_eq!(
        desk.conditions(&claims(), "proj-abc", "two"),
        "Ready=True/ClaimDenied Validated=True/ValidationSuccessful QuotaChecked=True/CheckSuccessful \
         Granted=False/QuotaExceeded"
    );
    assert_eq!(desk.drawn("project-proj-abc", COUNT), "1/5");
    assert_eq!(desk.drawn("project-proj-abc", MEMORY), "32/64");
    // What the ledger has is what the grant shows.
    let usage = desk.status(&grants(), "proj-abc", "g")["usage"].clone();
    assert_eq!(usage[0]["buckets"][0], json!({"selector": {}, "limit": "10", "used": "8", "available": "2"}));
}

#[test]
fn why_a_claim_is_denied_is_told_by_reason() {
    let mut desk = desk();
    let dfw = json!({"matchLabels": {LOCATION: "dfw"}});
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[limit(CPU, &[("4", dfw)])])).unwrap();
    for (requests, dimensions, expected, conditions) in [
        (
            vec![("storage.example.com/disks", "1")],
            json!({}),
            "Denied/UnknownResourceName",
            "Ready=True/ClaimDenied Validated=False/UnknownResourceName QuotaChecked=Unknown/PendingQuotaCheck \
             Granted=False/ValidationFailed",
        ),
        (
            vec![(CPU, "1")],
            json!({"other.example.com/zone": "a"}),
            "Denied/InvalidDimension",
            "Ready=True/ClaimDenied Validated=False/InvalidDimension QuotaChecked=Unknown/PendingQuotaCheck \
             Granted=False/ValidationFailed",
        ),
        (
            vec![(CPU, "1GiB")],
            json!({}),
            "Denied/InvalidQuantity",
            "Ready=True/ClaimDenied Validated=False/InvalidQuantity QuotaChecked=Unknown/PendingQuotaCheck \
             Granted=False/ValidationFailed",
        ),
        (
            vec![(MEMORY, "1")],
            json!({}),
            "Denied/GrantNotFound",
            "Ready=True/ClaimDenied Validated=True/ValidationSuccessful QuotaChecked=False/GrantNotFound \
             Granted=False/GrantNotFound",
        ),
        (
            vec![(CPU, "1")],
            at("lhr", ""),
            "Denied/NoMatchingBucket",
            "Ready=True/ClaimDenied Validated=True/ValidationSuccessful QuotaChecked=False/NoMatchingBucket \
             Granted=False/NoMatchingBucket",
        ),
    ] {
        assert_eq!(desk.ask("c", &requests, dimensions), expected);
        assert_eq!(desk.conditions(&claims(), "proj-abc", "c"), conditions);
        desk.delete(&claims(), "proj-abc", "c").unwrap();
    }
    assert_eq!(desk.ask("c", &[(CPU, "4")], at("dfw", "")), "Granted/QuotaAvailable");
}

#[test]
fn a_denied_claim_is_granted_when_it_fits_the_oldest_first() {
    let mut desk = desk();
    let with = |cpu: &str| grant("Project", "proj-abc", &[limit(CPU, &[(cpu, json!({}))])]);
    desk.apply(&grants(), "proj-abc", "g", with("4")).unwrap();
    for (name, cpu, expected) in
        [("a", "4", "Granted/QuotaAvailable"), ("b", "3", "Denied/QuotaExceeded"), ("c", "1", "Denied/QuotaExceeded")]
    {
        assert_eq!(desk.ask(name, &[(CPU, cpu)], json!({})), expected);
    }
    desk.apply(&grants(), "proj-abc", "g", with("7")).unwrap();
    assert_eq!(
        (desk.phase("proj-abc", "b"), desk.phase("proj-abc", "c")),
        ("Granted/QuotaAvailable".into(), "Denied/QuotaExceeded".into())
    );
    // Lowering takes nothing from anybody.
    desk.apply(&grants(), "proj-abc", "g", with("1")).unwrap();
    assert_eq!(desk.phase("proj-abc", "a"), "Granted/QuotaAvailable");
    assert_eq!(desk.drawn("project-proj-abc", CPU), "7/1");
    // What is let go of is for others, once there is room.
    desk.delete(&claims(), "proj-abc", "a").unwrap();
    assert_eq!(desk.phase("proj-abc", "c"), "Denied/QuotaExceeded");
    desk.delete(&claims(), "proj-abc", "b").unwrap();
    assert_eq!(desk.phase("proj-abc", "c"), "Granted/QuotaAvailable");
}

#[test]
fn a_definition_or_a_grant_that_appears_decides_who_waited_for_it() {
    let mut desk = Desk::new();
    desk.namespace("proj-abc", &[]);
    assert_eq!(desk.ask("c", &[(CPU, "1")], json!({})), "Denied/UnknownResourceName");
    desk.apply(&definitions(), "", "cpu", definition(CPU, "cores", None)).unwrap();
    assert_eq!(desk.phase("proj-abc", "c"), "Denied/GrantNotFound");
    let all = grant("Project", "proj-abc", &[limit(CPU, &[("1", json!({}))])]);
    desk.apply(&grants(), "elsewhere-not-there", "g", all.clone()).unwrap_err();
    desk.apply(&grants(), "proj-abc", "g", all).unwrap();
    assert_eq!(desk.phase("proj-abc", "c"), "Granted/QuotaAvailable");
    // Granted is granted: neither the grant nor the definition takes it back.
    desk.delete(&grants(), "proj-abc", "g").unwrap();
    assert_eq!(desk.phase("proj-abc", "c"), "Granted/QuotaAvailable");
    desk.delete(&definitions(), "", "cpu").unwrap();
    assert_eq!(desk.phase("proj-abc", "c"), "Granted/QuotaAvailable");
    assert_eq!(desk.ask("d", &[(CPU, "1")], json!({})), "Denied/UnknownResourceName");
    desk.apply(&definitions(), "", "cpu", definition(CPU, "cores", Some("1"))).unwrap();
    assert_eq!(desk.phase("proj-abc", "d"), "Denied/QuotaExceeded", "the one that is granted counts again");
    assert_eq!(desk.drawn("project-proj-abc", CPU), "1/1");
}

#[test]
fn a_scale_replaces_what_a_claim_has_or_leaves_it() {
    let mut desk = desk();
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[limit(CPU, &[("10", json!({}))])])).unwrap();
    assert_eq!(desk.ask("a", &[(CPU, "6")], json!({})), "Granted/QuotaAvailable");
    assert_eq!(desk.ask("a", &[(CPU, "10")], json!({})), "Granted/QuotaAvailable");
    let refused = desk.apply(&claims(), "proj-abc", "a", claim(&[(CPU, "11")], json!({}))).unwrap_err();
    assert_eq!(
        refused,
        format!(
            "quota of project \"proj-abc\" exceeded: {CPU}: requested 1, used 10, limit 10; it needs a larger grant"
        )
    );
    assert_eq!(desk.drawn("project-proj-abc", CPU), "10/10");
    assert_eq!(desk.ask("a", &[(CPU, "500m")], json!({})), "Granted/QuotaAvailable");
    assert_eq!(desk.drawn("project-proj-abc", CPU), "0.5/10");
    // One that waits may ask for less, and gets it.
    assert_eq!(desk.ask("b", &[(CPU, "20")], json!({})), "Denied/QuotaExceeded");
    assert_eq!(desk.ask("b", &[(CPU, "9.5")], json!({})), "Granted/QuotaAvailable");
}

#[test]
fn deletion_releases_through_the_finalizer() {
    let mut desk = desk();
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[limit(CPU, &[("1", json!({}))])])).unwrap();
    assert_eq!(desk.ask("a", &[(CPU, "1")], json!({})), "Granted/QuotaAvailable");
    assert_eq!(desk.ask("b", &[(CPU, "1")], json!({})), "Denied/QuotaExceeded");
    let mut leaving = desk.projected(&claims(), "proj-abc", "a");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    leaving["metadata"]["finalizers"] = json!(["example.com/mine", "quota.datumapis.com/usage-release"]);
    desk.apply(&claims(), "proj-abc", "a", leaving).unwrap();
    assert_eq!(desk.phase("proj-abc", "b"), "Granted/QuotaAvailable", "it is let go of at once");
    let left = desk.projected(&claims(), "proj-abc", "a");
    assert_eq!(left["metadata"]["finalizers"], json!(["example.com/mine"]), "somebody else still holds it");
    assert_eq!(desk.phase("proj-abc", "a"), "Pending/PendingQuotaCheck", "nobody provisions by it any more");
    assert_eq!(desk.message("proj-abc", "a"), "It is on its way out, and has let go of what it had.");
}

#[test]
fn what_is_wrong_is_refused_with_its_place() {
    let mut desk = desk();
    for (spec, expected) in [
        (json!({}), "spec.resourceRef.kind: Required value"),
        (json!({"resources": [{"name": CPU, "quantity": "-1"}]}), "spec.resources[0].quantity: Invalid value: \"-1\""),
        (
            json!({"resources": [{"name": CPU, "quantity": "1"}, {"name": CPU, "quantity": "2"}]}),
            "spec.resources[1].name: Duplicate",
        ),
        (
            json!({"resources": [{"name": CPU, "quantity": "1"}], "dimensions": {"resources.datumapis.com/project": "rich"}}),
            "spec.dimensions[resources.datumapis.com/project]: Forbidden",
        ),
        (json!({"grantRef": {"namespace": "x"}}), "spec.grantRef.name: Required value"),
    ] {
        let refused = desk.apply(&claims(), "proj-abc", "c", json!({"spec": spec})).unwrap_err();
        assert!(refused.contains(expected), "{refused}");
    }
    // Two buckets of the proposal's own grant break its rules.
    let wrong = [
        limit(
            COUNT,
            &[("200", json!({})), ("20", json!({"matchLabels": {"instanceType": "datumcloud/d1-standard-2"}}))],
        ),
        json!({"name": COUNT, "buckets": [{"value": "-5"}, {"value": "3", "selector": {}}]}),
        json!({"name": "network.datumapis.com/gateways", "dimensionLabels": ["resources.datumapis.com/project"], "buckets": [
            {"value": "15", "selector": {}},
            {"value": "3", "selector": {"matchExpressions": [{"key": LOCATION, "operator": "Exists"}]}},
        ]}),
    ];
    let refused = desk.apply(&grants(), "proj-abc", "g", grant("Cluster", "x", &wrong)).unwrap_err();
    for expected in [
        "spec.resourceRef.kind: Unsupported value: \"Cluster\"",
        "spec.limits[0].buckets[1].selector: Invalid value: \"instanceType\": InvalidDimensionSelector",
        "spec.limits[2].buckets[1].selector: Invalid value: \"compute.datumapis.com/location\": InvalidDimensionSelector",
        "spec.limits[1].name: Duplicate value",
        "spec.limits[1].buckets[0].value: Invalid value: \"-5\"",
        "spec.limits[1].buckets[1].selector: Invalid value: \"\": InvalidLimitsConfiguration",
    ] {
        assert!(refused.contains(expected), "{expected} in {refused}");
    }
    let refused = desk.apply(&definitions(), "", "two", definition(CPU, "cores", None)).unwrap_err();
    assert_eq!(refused, format!("resource name {CPU:?} is defined by ServiceQuotaDefinition \"cpu\" already"));
    let refused = desk.apply(&definitions(), "", "cpu", definition(CPU, "count", Some("1.5"))).unwrap_err();
    assert!(
        refused.contains("spec.unit: Invalid value: \"count\"") && refused.contains("spec.defaultLimit.value"),
        "{refused}"
    );
}

#[test]
fn nothing_is_granted_that_could_not_be_counted() {
    let mut desk = desk();
    let limits = [limit(COUNT, &[("unlimited", json!({}))]), limit(MEMORY, &[("4", json!({}))])];
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &limits)).unwrap();
    for (name, quantity) in [(COUNT, "9e28"), (COUNT, "80000000000E"), (MEMORY, "100Ei")] {
        assert_eq!(desk.ask("huge", &[(name, quantity)], json!({})), "Denied/InvalidQuantity", "{quantity}");
    }
    assert_eq!(desk.ask("large", &[(COUNT, "70E")], json!({})), "Granted/QuotaAvailable");
    assert_eq!(desk.drawn("project-proj-abc", COUNT), "70000000000000000000/unlimited");
}

#[test]
fn nobody_grants_a_claim_by_writing_its_status() {
    let mut desk = desk();
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[limit(CPU, &[("4", json!({}))])])).unwrap();
    desk.ask("fits", &[(CPU, "3")], json!({}));
    desk.ask("large", &[(CPU, "5")], json!({}));
    desk.take_records();
    for (name, phase) in [("large", "Granted"), ("fits", "Denied")] {
        let before = desk.status(&claims(), "proj-abc", name);
        let since = json!({"type": "Granted", "status": "True", "reason": "QuotaAvailable",
            "lastTransitionTime": "1970-01-01T00:00:00Z"});
        let status = json!({"phase": phase, "reason": "QuotaAvailable", "project": "other", "conditions": [since]});
        desk.tell(&claims(), "proj-abc", name, status).unwrap();
        // Not even for the moment in which others would look.
        let stored = desk.stored(&claims(), "proj-abc");
        let stored = stored.iter().find(|one| one["metadata"]["name"] == name).unwrap();
        assert_eq!((&stored["status"], &desk.status(&claims(), "proj-abc", name)), (&before, &before));
        desk.tell(&claims(), "proj-abc", name, json!(null)).unwrap();
        assert_eq!(desk.status(&claims(), "proj-abc", name), before);
    }
    assert_eq!(desk.take_records().len(), 0, "nothing was decided");
}

#[test]
fn no_text_is_told_again_that_is_longer_than_what_it_means() {
    let mut desk = desk();
    let long = "9".repeat(300);
    for (path, field) in [
        ("/spec/resources/0/quantity", "spec.resources[0].quantity"),
        ("/spec/resources/0/name", "spec.resources[0].name"),
        ("/spec/resourceRef/name", "spec.resourceRef.name"),
        ("/spec/grantRef/name", "spec.grantRef.name"),
    ] {
        let mut asked = claim(&[(CPU, "1")], json!({}));
        asked["spec"]["grantRef"] = json!({"name": "g"});
        *asked.pointer_mut(path).unwrap() = json!(long);
        let refused = desk.apply(&claims(), "proj-abc", "long", asked).unwrap_err();
        assert!(refused.contains(&format!("{field}: Too long")), "{refused}");
    }
    let refused =
        desk.apply(&claims(), "proj-abc", "long", claim(&[(CPU, "1")], json!({"k".repeat(400): "v"}))).unwrap_err();
    assert!(refused.contains("spec.dimensions: Too long"), "{refused}");
    let large = grant("Project", "proj-abc", &[limit(CPU, &[(&long, json!({}))])]);
    let refused = desk.apply(&grants(), "proj-abc", "g", large).unwrap_err();
    assert!(refused.contains("spec.limits[0].buckets[0].value: Too long"), "{refused}");
}

/// A claim is denied by as many buckets as it asks, and each may be waited for by thousands: it names some of them.
#[test]
fn a_claim_that_is_denied_by_many_buckets_names_some_and_says_how_many_more() {
    let mut desk = Desk::new();
    desk.namespace("proj-abc", &[]);
    let names: Vec<String> = (10..60).map(|number| format!("x.example.com/r{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        desk.apply(&definitions(), "", &format!("d{number}"), definition(name, "count", None)).unwrap();
    }
    let limits: Vec<Value> = names.iter().map(|name| limit(name, &[("1", json!({}))])).collect();
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &limits)).unwrap();
    let asked: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "2")).collect();
    assert_eq!(desk.ask("many", &asked, json!({})), "Denied/QuotaExceeded");
    let message = desk.message("proj-abc", "many");
    assert_eq!(message.matches("requested 2, used 0, limit 1").count(), 16);
    assert!(message.ends_with("; and 34 more"), "{message}");
    assert_eq!(desk.ask("sixteen", &asked[..16], json!({})), "Denied/QuotaExceeded");
    assert!(desk.message("proj-abc", "sixteen").ends_with("requested 2, used 0, limit 1"));
}

/// What was granted means the same amount for as long as it is granted, also while nothing defines it.
#[test]
fn a_definition_is_not_made_again_in_another_unit_while_something_of_it_is_granted() {
    for (was, same, other) in [("cores", "vCPU", "count"), ("GiB", "GiB", "MiB"), ("count", "projects", "B")] {
        let mut desk = Desk::new();
        desk.namespace("proj-abc", &[]);
        desk.apply(&definitions(), "", "d", definition(CPU, was, None)).unwrap();
        desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[limit(CPU, &[("10", json!({}))])]))
            .unwrap();
        assert_eq!(desk.ask("has", &[(CPU, "8")], json!({})), "Granted/QuotaAvailable");
        assert_eq!(desk.ask("waits", &[(CPU, "4")], json!({})), "Denied/QuotaExceeded");
        let granted = desk.status(&claims(), "proj-abc", "has")["grantedResources"].clone();
        assert_eq!((&granted[0]["quantity"], &granted[0]["unit"]), (&json!("8"), &json!(was)));
        desk.delete(&definitions(), "", "d").unwrap();
        // Written again meanwhile, it says the same.
        let mut labelled = desk.projected(&claims(), "proj-abc", "has");
        labelled["metadata"]["labels"] = json!({"a": "b"});
        desk.apply(&claims(), "proj-abc", "has", labelled).unwrap();
        desk.restart();
        assert_eq!(desk.status(&claims(), "proj-abc", "has")["grantedResources"], granted);
        let refused = desk.apply(&definitions(), "", "e", definition(CPU, other, None)).unwrap_err();
        let why = format!("claims such as proj-abc/has were granted {CPU:?} in {was:?}");
        assert!(refused.contains(&why), "{refused}");
        assert_eq!(desk.phase("proj-abc", "waits"), "Denied/UnknownResourceName");
        // In the same unit, by whichever name, it is as it was.
        desk.apply(&definitions(), "", "e", definition(CPU, same, None)).unwrap();
        assert_eq!(desk.drawn("project-proj-abc", CPU), "8/10");
        assert_eq!(desk.phase("proj-abc", "waits"), "Denied/QuotaExceeded");
        desk.delete(&definitions(), "", "e").unwrap();
        // Once nobody has any of it, it may mean anything. Who waits asks for what it means then.
        desk.delete(&claims(), "proj-abc", "has").unwrap();
        desk.apply(&definitions(), "", "d", definition(CPU, other, None)).unwrap();
        assert_eq!(desk.phase("proj-abc", "waits"), "Granted/QuotaAvailable");
        assert_eq!(desk.drawn("project-proj-abc", CPU), "4/10");
    }
}
