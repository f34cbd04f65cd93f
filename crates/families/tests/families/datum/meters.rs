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
    let mut desk = Desk::new();
    desk.namespace("proj-abc", &[]);
    desk.apply(&definitions(), "", "cpu", metered()).unwrap();
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
    let usage = desk.status(&grants(), "proj-abc", "g")["usage"].clone();
    assert_eq!((&usage[0]["buckets"][0]["used"], &usage[0]["buckets"][0]["available"]), (&json!("3"), &json!("7")));
    desk.told(json!({"account": CPU, "error": "no answer"}));
    assert_eq!(told(&desk), "False/SyncFailed");
    desk.measured(3);
    desk.now_ms += 300_001;
    let same = desk.projected(&grants(), "proj-abc", "g");
    desk.apply(&grants(), "proj-abc", "g", same).unwrap();
    assert_eq!(told(&desk), "False/StaleData");
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
