//! What is wrong, told with its place: of what is refused, and of what was stored by a version that refused other things.

use super::*;

/// The object with this at a place.
fn with(mut object: Value, path: &str, value: Value) -> Value {
    let (parent, field) = path.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

fn metered() -> Value {
    let source = json!({"type": "Prometheus", "endpoint": "http://a", "meter": "cores"});
    with(definition(CPU, "cores", None), "/spec/usageSource", source)
}

#[test]
fn every_error_of_a_definition_names_its_place() {
    let mut desk = Desk::new();
    let sink = json!({"type": "Prometheus", "endpoint": "http://a", "meter": "m"});
    for (path, value, place) in [
        ("/spec/serviceRef/name", json!(""), "spec.serviceRef.name: Required value"),
        ("/spec/resourceName", json!("cpu"), "spec.resourceName: Invalid value"),
        ("/spec/description", json!("x".repeat(501)), "spec.description: Too long"),
        ("/spec/unit", json!(""), "spec.unit: Required value"),
        ("/spec/defaultLimit", json!({"value": "1Gi"}), "spec.defaultLimit.value: Invalid value"),
        ("/spec/allowedDimensions", json!([LOCATION, "a b"]), "spec.allowedDimensions[1]: Invalid value"),
        ("/spec/allowedDimensions", json!([LOCATION, LOCATION]), "spec.allowedDimensions[1]: Duplicate value"),
        ("/spec/usageSource/type", json!("Abacus"), "spec.usageSource.type: Unsupported value"),
        ("/spec/usageSource/endpoint", json!("a:80"), "spec.usageSource.endpoint: Invalid value"),
        ("/spec/usageSource/meter", json!("cores-used"), "spec.usageSource.meter: Invalid value"),
        ("/spec/usageSource/meter", json!("cores.used"), "spec.usageSource.meter: Invalid value"),
        ("/spec/usageSource/meter", json!("0cores"), "spec.usageSource.meter: Invalid value"),
        ("/spec/usageSource/entityLabel", json!("a-b"), "spec.usageSource.entityLabel: Invalid value: \"a-b\""),
        ("/spec/usageSource/organizationLabel", json!("a b"), "spec.usageSource.organizationLabel: Invalid value"),
        (
            "/spec/usageSource/dimensionLabels",
            json!({LOCATION: "a.b"}),
            "spec.usageSource.dimensionLabels[compute.datumapis.com/location]: Invalid value",
        ),
        ("/spec/usageSource/lag", json!("soon"), "spec.usageSource.lag: Invalid value"),
        ("/spec/usageSource/maxAge", json!("2h"), "spec.usageSource.maxAge: Invalid value"),
        ("/spec/usageSource/timeout", json!("61s"), "spec.usageSource.timeout: Invalid value"),
        ("/spec/usageSource/emptyIs", json!("Full"), "spec.usageSource.emptyIs: Unsupported value"),
        ("/spec/usageSource/onUnavailable", json!("Grant"), "spec.usageSource.onUnavailable: Unsupported value"),
        ("/spec/usageSink", sink, "spec.usageSink.type: Unsupported value: \"Prometheus\""),
    ] {
        let refused = desk.apply(&definitions(), "", "cpu", with(metered(), path, value)).unwrap_err();
        assert!(refused.starts_with(place) && !refused.contains("; spec"), "{place}: {refused}");
    }
    // The others' names have other signs.
    let other = with(metered(), "/spec/usageSource/type", json!("OpenMeter"));
    desk.apply(&definitions(), "", "cpu", with(other, "/spec/usageSource/meter", json!("0cores.used-now"))).unwrap();
}

#[test]
fn a_stored_definition_that_means_nothing_says_so() {
    let mut desk = desk();
    let foreign = |name: &str| definition(&format!("x.example.com/{name}"), "count", None);
    desk.store(&definitions(), "", "missing", with(foreign("missing"), "/spec/unit", json!("")));
    desk.store(&definitions(), "", "odd", with(foreign("odd"), "/spec/defaultLimit", json!({"value": "1Gi"})));
    desk.store(&definitions(), "", "fine", foreign("fine"));
    for (name, expected) in [
        ("missing", "Ready=False/InvalidDefinition DefinitionValid=False/MissingRequiredField"),
        ("odd", "Ready=False/InvalidDefinition DefinitionValid=False/InvalidFormat"),
        ("fine", "Ready=True/DefinitionActive DefinitionValid=True/ValidationSuccessful"),
    ] {
        assert_eq!(desk.conditions(&definitions(), "", name), expected);
    }
    let message = desk.status(&definitions(), "", "odd")["conditions"][1]["message"].clone();
    assert!(message.as_str().unwrap().starts_with("spec.defaultLimit.value: "), "{message}");
    // What is not ready is not defined.
    assert_eq!(desk.ask("c", &[("x.example.com/odd", "1")], json!({})), "Denied/UnknownResourceName");
}

#[test]
fn of_two_definitions_of_one_resource_that_were_stored_elsewhere_the_second_says_so() {
    let mut desk = desk();
    let foreign = || definition("x.example.com/two", "count", None);
    for name in ["one", "two"] {
        desk.see(&definitions(), "", name, foreign());
    }
    assert_eq!(
        desk.conditions(&definitions(), "", "one"),
        "Ready=True/DefinitionActive DefinitionValid=True/ValidationSuccessful"
    );
    let second = "Ready=False/InvalidDefinition DefinitionValid=False/DuplicateResourceName";
    assert_eq!(desk.conditions(&definitions(), "", "two"), second);
    // Here it is refused.
    let refused = desk.apply(&definitions(), "", "three", foreign()).unwrap_err();
    assert!(refused.contains("is defined by ServiceQuotaDefinition \"one\" already"), "{refused}");
}

#[test]
fn a_stored_claim_that_cannot_be_read_is_denied() {
    let mut desk = desk();
    let claim = || claim(&[(CPU, "1")], json!({}));
    for (name, path, value) in [
        ("nobody", "/spec/resourceRef", json!({"kind": "Instance"})),
        ("nothing", "/spec/resources", json!([])),
        ("too-much", "/spec/resources", Value::Array(vec![json!({"name": CPU, "quantity": "1"}); 65])),
    ] {
        desk.store(&claims(), "proj-abc", name, with(claim(), path, value));
        assert_eq!(desk.phase("proj-abc", name), "Denied/InvalidResourceRef");
        assert_eq!(
            desk.conditions(&claims(), "proj-abc", name),
            "Ready=True/ClaimDenied Validated=False/InvalidResourceRef QuotaChecked=Unknown/PendingQuotaCheck \
             Granted=False/ValidationFailed"
        );
    }
}

#[test]
fn a_grant_tells_all_that_is_wrong_with_it_and_where() {
    let mut desk = desk();
    let mut second = limit(CPU, &[("1Gi", json!({})), ("5", json!({"matchLabels": {LOCATION: "dfw"}}))]);
    second["dimensionLabels"] = json!([LOCATION, "x.example.com/b", "x.example.com/a"]);
    let limits = [limit(MEMORY, &[("1", json!({}))]), second, limit("x.example.com/none", &[("1", json!({}))])];
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &limits)).unwrap();
    assert_eq!(
        desk.conditions(&grants(), "proj-abc", "g"),
        "Ready=False/InvalidLimitsConfiguration LimitsValid=False/InvalidDimensionSelector \
         UsageSynchronized=True/SyncSuccessful"
    );
    let told = desk.status(&grants(), "proj-abc", "g")["conditions"][1]["message"].as_str().unwrap().to_owned();
    for place in [
        "spec.limits[1].dimensionLabels: \"x.example.com/a\"",
        "spec.limits[1].dimensionLabels: \"x.example.com/b\"",
        "spec.limits[1].buckets[0].value: ",
        "spec.limits[2].name: no ServiceQuotaDefinition defines",
    ] {
        assert!(told.contains(place), "{place} in {told}");
    }
    // One limit that means nothing grants nothing; the others are in force.
    assert_eq!(desk.ask("cpu", &[(CPU, "1")], json!({})), "Denied/GrantInvalid");
    assert_eq!(
        desk.conditions(&claims(), "proj-abc", "cpu"),
        "Ready=True/ClaimDenied Validated=True/ValidationSuccessful QuotaChecked=False/GrantInvalid \
         Granted=False/GrantInvalid"
    );
    assert_eq!(desk.ask("memory", &[(MEMORY, "1")], json!({})), "Granted/QuotaAvailable");
    let odd = grant("Project", "proj-abc", &[limit(CPU, &[("1Gi", json!({}))])]);
    desk.apply(&grants(), "proj-abc", "g", odd).unwrap();
    assert!(desk.conditions(&grants(), "proj-abc", "g").contains("LimitsValid=False/InvalidLimitsConfiguration"));
}
