//! What meters say, and what is granted by it.

use super::*;

fn metered() -> Value {
    let mut definition = definition(CPU, "cores", None);
    definition["spec"]["usageSource"] = json!({
        "type": "Prometheus", "endpoint": "http://127.0.0.1:1", "meter": "cores", "lag": "0s", "maxAge": "10s",
    });
    definition
}

fn desk() -> Desk {
    desk_of(metered())
}

fn desk_of(definition: Value) -> Desk {
    let mut desk = Desk::new();
    desk.namespace("proj-abc", &[]);
    desk.apply(&definitions(), "", "cpu", definition).unwrap();
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[limit(CPU, &[("10", json!({}))])])).unwrap();
    desk
}

impl Desk {
    /// A sample, as whoever asks the meter writes it.
    fn measured(&mut self, cores: i64) {
        let at = self.now_ms;
        self.told(
            json!({"account": CPU, "valueNanos": (i128::from(cores) * 1_000_000_000).to_string(), "takenAtMs": at}),
        );
    }

    fn told(&mut self, sample: Value) {
        let mut object = self.projected(&effective(), "", "project-proj-abc");
        object["spec"]["usage"] = json!([sample]);
        self.apply(&effective(), "", "project-proj-abc", object).unwrap();
    }
}

/// However many wait, none is left undecided when a meter answers again.
#[test]
fn all_who_wait_are_decided_when_the_meter_is_back() {
    let mut desk = desk();
    desk.told(json!({"account": CPU, "error": "status 503"}));
    let names: Vec<String> = (0..1050).map(|number| format!("c{number:04}")).collect();
    for name in &names {
        assert_eq!(desk.ask(name, &[(CPU, "1")], json!({})), "Pending/MeteringServiceUnavailable");
    }
    desk.measured(4);
    for (number, name) in names.iter().enumerate() {
        let expected = if number < 6 { "Granted/QuotaAvailable" } else { "Denied/QuotaExceeded" };
        assert_eq!(desk.phase("proj-abc", name), expected, "{name}");
    }
}

#[test]
fn nothing_is_granted_before_the_meter_was_asked_nor_when_it_fails() {
    let mut desk = desk();
    assert_eq!(desk.ask("a", &[(CPU, "4")], json!({})), "Pending/PendingQuotaCheck");
    assert_eq!(
        desk.conditions(&claims(), "proj-abc", "a"),
        "Ready=False/Processing Validated=True/ValidationSuccessful QuotaChecked=Unknown/PendingQuotaCheck \
         Granted=False/AwaitingDecision"
    );
    desk.told(json!({"account": CPU, "error": "status 503"}));
    assert_eq!(desk.phase("proj-abc", "a"), "Pending/MeteringServiceUnavailable");
    assert_eq!(
        desk.conditions(&claims(), "proj-abc", "a"),
        "Ready=False/Processing Validated=True/ValidationSuccessful QuotaChecked=False/MeteringServiceUnavailable \
         Granted=False/AwaitingDecision"
    );
    assert!(desk.conditions(&grants(), "proj-abc", "g").ends_with("UsageSynchronized=False/SyncFailed"));
    desk.measured(5);
    assert_eq!(desk.phase("proj-abc", "a"), "Granted/QuotaAvailable", "five and four are within ten");
    assert!(desk.conditions(&grants(), "proj-abc", "g").ends_with("UsageSynchronized=True/SyncSuccessful"));
    assert_eq!(desk.drawn("project-proj-abc", CPU), "9/10");
    // What was granted since the sample is added to it.
    assert_eq!(desk.ask("b", &[(CPU, "2")], json!({})), "Denied/QuotaExceeded");
    assert!(desk.message("proj-abc", "b").ends_with("requested 2, used 9, limit 10"));
    assert_eq!(desk.ask("c", &[(CPU, "1")], json!({})), "Granted/QuotaAvailable");
    // What is let go of is free before the meter knows.
    desk.delete(&claims(), "proj-abc", "a").unwrap();
    assert_eq!(desk.phase("proj-abc", "b"), "Granted/QuotaAvailable");
}

/// The values of a metric.
fn metric(desk: &Desk, name: &str) -> Vec<String> {
    let text = desk.sample();
    let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
    lines.filter_map(|line| line.rsplit_once(' ')).map(|(_, value)| value.to_owned()).collect()
}

#[test]
fn usage_is_a_number_of_units_however_it_is_shown() {
    let mut desk = Desk::new();
    desk.namespace("proj-abc", &[]);
    desk.apply(&definitions(), "", "memory", definition(MEMORY, "GiB", None)).unwrap();
    let limits = [limit(MEMORY, &[("2", json!({}))])];
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &limits)).unwrap();
    assert_eq!(desk.ask("a", &[(MEMORY, "1B")], json!({})), "Granted/QuotaAvailable");
    assert_eq!(desk.drawn("project-proj-abc", MEMORY), "1B/2");
    assert_eq!(
        (metric(&desk, "quota_bucket_used"), metric(&desk, "quota_bucket_limit")),
        (vec!["0.000000000931322574615478515625".into()], vec!["2".into()])
    );
}

fn when_unavailable(choice: &str) -> Desk {
    let mut definition = metered();
    definition["spec"]["usageSource"]["onUnavailable"] = json!(choice);
    desk_of(definition)
}

/// How many denials were written down since the last time.
fn denials(desk: &mut Desk) -> usize {
    desk.take_records().iter().filter(|record| record.book == families::Book::Denials).count()
}

#[test]
fn without_an_answer_the_ledger_alone_may_decide() {
    let mut desk = when_unavailable("LedgerOnly");
    assert_eq!(desk.ask("a", &[(CPU, "6")], json!({})), "Granted/QuotaAvailable", "nobody was asked yet");
    desk.told(json!({"account": CPU, "error": "status 503"}));
    assert_eq!(desk.ask("b", &[(CPU, "4")], json!({})), "Granted/QuotaAvailable");
    assert_eq!(denials(&mut desk), 0);
    assert_eq!(desk.ask("c", &[(CPU, "1")], json!({})), "Denied/QuotaExceeded", "it is full, and waits for no meter");
    assert!(desk.message("proj-abc", "c").ends_with("requested 1, used 10, limit 10"));
    assert_eq!(denials(&mut desk), 1);
    let metric = "quota_claims_denied_total{reason=\"QuotaExceeded\"} 1";
    assert!(desk.sample().contains(metric), "{}", desk.sample());
    // An answer is heard for as long as it counts.
    desk.now_ms += 2_000;
    desk.measured(13);
    desk.delete(&claims(), "proj-abc", "b").unwrap();
    assert_eq!(desk.phase("proj-abc", "c"), "Granted/QuotaAvailable");
    assert_eq!(desk.ask("d", &[(CPU, "1")], json!({})), "Denied/QuotaExceeded");
    desk.now_ms += 10_001;
    assert_eq!(desk.ask("e", &[(CPU, "4")], json!({})), "Denied/QuotaExceeded", "the ledger has seven and one of d");
    assert!(
        desk.message("proj-abc", "e").ends_with("requested 4, used 8, limit 10"),
        "{}",
        desk.message("proj-abc", "e")
    );
}

#[test]
fn without_an_answer_claims_may_be_denied() {
    let mut desk = when_unavailable("Deny");
    assert_eq!(desk.ask("a", &[(CPU, "4")], json!({})), "Pending/PendingQuotaCheck");
    desk.told(json!({"account": CPU, "error": "status 503"}));
    assert_eq!(desk.phase("proj-abc", "a"), "Denied/MeteringServiceUnavailable");
    assert_eq!(
        desk.conditions(&claims(), "proj-abc", "a"),
        "Ready=True/ClaimDenied Validated=True/ValidationSuccessful QuotaChecked=False/MeteringServiceUnavailable \
         Granted=False/MeteringServiceUnavailable"
    );
    assert_eq!(denials(&mut desk), 1);
    assert_eq!(desk.ask("b", &[(CPU, "7")], json!({})), "Denied/MeteringServiceUnavailable");
    assert_eq!(denials(&mut desk), 1);
    desk.measured(0);
    assert_eq!(desk.phase("proj-abc", "a"), "Granted/QuotaAvailable");
    assert_eq!(desk.phase("proj-abc", "b"), "Denied/QuotaExceeded");
}

#[test]
fn an_answer_counts_for_as_long_as_it_may() {
    let mut desk = desk();
    desk.measured(0);
    assert_eq!(desk.ask("a", &[(CPU, "1")], json!({})), "Granted/QuotaAvailable");
    desk.now_ms += 10_000;
    assert_eq!(desk.ask("b", &[(CPU, "1")], json!({})), "Granted/QuotaAvailable");
    desk.now_ms += 1;
    assert_eq!(desk.ask("c", &[(CPU, "1")], json!({})), "Pending/PendingQuotaCheck");
    desk.restart();
    assert_eq!(desk.phase("proj-abc", "c"), "Pending/PendingQuotaCheck");
    desk.now_ms += 2_000;
    desk.measured(2);
    assert_eq!(desk.phase("proj-abc", "c"), "Granted/QuotaAvailable");
    // The meter shows what was granted, and nothing else: nothing is counted twice.
    assert_eq!(desk.drawn("project-proj-abc", CPU), "3/10");
    desk.now_ms += 5_000;
    desk.measured(9);
    assert_eq!(desk.drawn("project-proj-abc", CPU), "9/10", "six are used that nobody claimed");
    // One that failed is believed nothing any more, however young.
    desk.told(json!({"account": CPU, "error": "no answer within 5000 ms"}));
    assert_eq!(desk.ask("d", &[(CPU, "1")], json!({})), "Pending/MeteringServiceUnavailable");
}

#[test]
fn parallel_claims_against_a_meter_that_lags_are_granted_up_to_the_limit() {
    let mut desk = desk();
    desk.measured(0);
    let mut granted = 0;
    for index in 0..25 {
        // The meter never shows any of them.
        if index % 5 == 0 {
            desk.now_ms += 1_000;
            desk.measured(0);
        }
        let phase = desk.ask(&format!("c{index}"), &[(CPU, "1")], json!({}));
        granted += usize::from(phase == "Granted/QuotaAvailable");
    }
    assert_eq!(granted, 10);
}

#[test]
fn a_grant_tells_whether_its_usage_is_known() {
    let mut desk = desk();
    let told = |desk: &Desk| {
        let conditions = desk.conditions(&grants(), "proj-abc", "g");
        conditions.rsplit("UsageSynchronized=").next().unwrap_or_default().to_owned()
    };
    assert_eq!(told(&desk), "Unknown/PendingSync");
    desk.measured(3);
    assert_eq!(told(&desk), "True/SyncSuccessful");
    assert_eq!(metric(&desk, "quota_meter_up"), ["1"]);
    let usage = desk.status(&grants(), "proj-abc", "g")["usage"].clone();
    assert_eq!((&usage[0]["buckets"][0]["used"], &usage[0]["buckets"][0]["available"]), (&json!("3"), &json!("7")));
    desk.told(json!({"account": CPU, "error": "no answer"}));
    assert_eq!(told(&desk), "False/SyncFailed");
    desk.measured(3);
    // Nobody has to write it: whatever is written next, elsewhere, finds that it has become old.
    for (later, expected) in [(300_000, "True/SyncSuccessful"), (1, "False/StaleData")] {
        desk.now_ms += later;
        desk.namespace("elsewhere", &[("at", &desk.now_ms.to_string())]);
        assert_eq!(told(&desk), expected);
    }
    assert_eq!(metric(&desk, "quota_meter_up"), ["0"]);
    // What is not shown is decided by all the same.
    let mut hidden = metered();
    hidden["spec"]["usageSource"]["cache"] = json!("Disabled");
    desk.apply(&definitions(), "", "cpu", hidden).unwrap();
    assert_eq!(told(&desk), "Unknown/CachingDisabled");
    assert_eq!(desk.status(&grants(), "proj-abc", "g")["usage"], json!([]));
    desk.measured(3);
    assert_eq!(desk.ask("a", &[(CPU, "8")], json!({})), "Denied/QuotaExceeded");
    assert_eq!(desk.ask("b", &[(CPU, "7")], json!({})), "Granted/QuotaAvailable");
    let mut odd = metered();
    odd["spec"]["usageSource"]["cache"] = json!("Sometimes");
    let refused = desk.apply(&definitions(), "", "cpu", odd).unwrap_err();
    assert!(refused.contains("spec.usageSource.cache: Unsupported value"), "{refused}");
}

#[test]
fn what_moves_to_a_project_is_new_to_a_meter_that_lags() {
    const PROJECT: &str = "resources.datumapis.com/project";
    let mut desk = desk();
    desk.namespace("extra", &[(PROJECT, "other")]);
    desk.apply(&grants(), "extra", "g", grant("Project", "other", &[limit(CPU, &[("10", json!({}))])])).unwrap();
    let mut object = desk.projected(&effective(), "", "project-other");
    object["spec"]["usage"] = json!([{"account": CPU, "valueNanos": "0", "takenAtMs": 0}]);
    desk.apply(&effective(), "", "project-other", object).unwrap();
    desk.apply(&claims(), "extra", "c", claim(&[(CPU, "5")], json!({}))).unwrap();
    assert_eq!(desk.phase("extra", "c"), "Granted/QuotaAvailable");
    // Five are used here that nobody claimed, and the five that come the meter does not know yet.
    desk.now_ms = 60_000;
    desk.namespace("extra", &[(PROJECT, "proj-abc")]);
    desk.measured(5);
    assert_eq!(desk.ask("more", &[(CPU, "1")], json!({})), "Denied/QuotaExceeded");
    assert!(desk.message("proj-abc", "more").ends_with("requested 1, used 10, limit 10"));
    // Once it does they are no more than they are.
    desk.now_ms = 62_000;
    desk.measured(5);
    assert_eq!(desk.phase("proj-abc", "more"), "Granted/QuotaAvailable");
}

/// What an organization's meter shows of a project that joined it begins with that moment, whenever its claims were granted.
#[test]
fn a_project_that_joins_an_organization_is_not_shown_by_its_meter_before_it_lags_behind_that() {
    let mut desk = Desk::new();
    desk.now_ms = 1_000_000;
    for name in ["a", "b"] {
        desk.namespace(name, &[]);
    }
    let mut cpu = metered();
    cpu["spec"]["defaultLimit"] = json!({"value": "8"});
    cpu["spec"]["usageSource"]["lag"] = json!("30s");
    cpu["spec"]["usageSource"]["maxAge"] = json!("60s");
    cpu["spec"]["usageSource"]["organizationLabel"] = json!("org");
    desk.apply(&definitions(), "", "cpu", cpu).unwrap();
    let of = |organization: &str| json!({"spec": {"organizationRef": {"name": organization}}});
    desk.apply(&projects(), "", "b", of("acme")).unwrap();
    let limits = [limit(CPU, &[("10", json!({}))])];
    desk.apply(&grants(), "b", "g", grant("Organization", "acme", &limits)).unwrap();
    sample(&mut desk, "project-a", 0);
    desk.apply(&claims(), "a", "old", claim(&[(CPU, "6")], json!({}))).unwrap();
    assert_eq!(desk.phase("a", "old"), "Granted/QuotaAvailable");
    // An hour later it joins an organization in which four are used that nobody claimed.
    desk.now_ms += 3_600_000;
    desk.apply(&projects(), "", "a", of("acme")).unwrap();
    desk.restart();
    desk.now_ms += 1_000;
    sample(&mut desk, "organization-acme", 4);
    assert_eq!(desk.drawn("organization-acme", CPU), "10/10", "six of the project, and four that are no part of them");
    desk.apply(&claims(), "b", "new", claim(&[(CPU, "1")], json!({}))).unwrap();
    assert_eq!(desk.phase("b", "new"), "Denied/QuotaExceeded");
    // Once the meter must show the project, what it says is the project's.
    desk.now_ms += 30_000;
    sample(&mut desk, "organization-acme", 6);
    assert_eq!(desk.drawn("organization-acme", CPU), "7/10");
    assert_eq!(desk.phase("b", "new"), "Granted/QuotaAvailable");
    // One that leaves and comes back joins anew.
    desk.apply(&projects(), "", "a", of("other")).unwrap();
    desk.apply(&projects(), "", "a", of("acme")).unwrap();
    sample(&mut desk, "organization-acme", 2);
    assert_eq!(desk.drawn("organization-acme", CPU), "9/10");
}

/// What a meter says of an entity at this moment.
fn sample(desk: &mut Desk, entity: &str, cores: i128) {
    let mut object = desk.projected(&effective(), "", entity);
    let (nanos, at) = ((cores * 1_000_000_000).to_string(), desk.now_ms);
    object["spec"]["usage"] = json!([{"account": CPU, "valueNanos": nanos, "takenAtMs": at}]);
    desk.apply(&effective(), "", entity, object).unwrap();
}

/// The meter of an organization shows all of its projects; what they claim by grants of their own is none of what nobody claimed.
#[test]
fn what_projects_have_by_their_own_grants_is_taken_off_no_organization() {
    let mut desk = Desk::new();
    desk.now_ms = 1_000_000;
    for name in ["a", "b"] {
        desk.namespace(name, &[]);
    }
    let mut cpu = metered();
    cpu["spec"]["usageSource"]["organizationLabel"] = json!("org");
    cpu["spec"]["usageSource"]["maxAge"] = json!("60s");
    desk.apply(&definitions(), "", "cpu", cpu).unwrap();
    for name in ["a", "b"] {
        desk.apply(&projects(), "", name, json!({"spec": {"organizationRef": {"name": "acme"}}})).unwrap();
    }
    let ten = [limit(CPU, &[("10", json!({}))])];
    desk.apply(&grants(), "b", "g", grant("Organization", "acme", &ten)).unwrap();
    desk.apply(&grants(), "a", "own", grant("Project", "a", &ten)).unwrap();
    sample(&mut desk, "project-a", 0);
    desk.apply(&claims(), "a", "own", claim(&[(CPU, "6")], json!({}))).unwrap();
    assert_eq!(desk.phase("a", "own"), "Granted/QuotaAvailable");
    // Six that are claimed there, and one that nobody claimed anywhere.
    desk.now_ms += 2_000;
    sample(&mut desk, "organization-acme", 7);
    assert_eq!(desk.drawn("organization-acme", CPU), "1/10");
    desk.apply(&claims(), "b", "nine", claim(&[(CPU, "9")], json!({}))).unwrap();
    assert_eq!(desk.phase("b", "nine"), "Granted/QuotaAvailable");
    // Without its own grant the project is the organization's.
    desk.delete(&grants(), "a", "own").unwrap();
    assert_eq!(desk.drawn("organization-acme", CPU), "16/10");
    desk.now_ms += 2_000;
    sample(&mut desk, "organization-acme", 15);
    assert_eq!(desk.drawn("organization-acme", CPU), "15/10");
}
