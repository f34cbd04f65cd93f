//! What is written down with claims: usage for who meters elsewhere, and denials.

use families::{Book, Record};

use super::*;

fn told_of() -> Value {
    let mut definition = definition(CPU, "cores", None);
    definition["spec"]["usageSink"] =
        json!({"type": "OpenMeter", "endpoint": "http://127.0.0.1:1", "meter": "cores_granted"});
    definition
}

fn desk() -> Desk {
    let mut desk = Desk::new();
    desk.namespace("proj-abc", &[]);
    desk.apply(&definitions(), "", "cpu", told_of()).unwrap();
    desk.apply(&definitions(), "", "count", definition(COUNT, "count", None)).unwrap();
    let limits = [limit(CPU, &[("10", json!({}))]), limit(COUNT, &[("5", json!({}))])];
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &limits)).unwrap();
    desk.take_records();
    desk
}

impl Desk {
    fn book(&mut self, of: Book) -> Vec<Value> {
        let records = self.take_records().into_iter();
        records.filter_map(|Record { book, entry }| (book == of).then_some(entry)).collect()
    }

    /// `change project value total` of each line that is to be sent.
    fn told_out(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        for entry in self.book(Book::Outbox) {
            for line in entry["lines"].as_array().unwrap() {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let parts = [&entry["change"], &entry["project"], &line["value"], &line["total"]].map(text);
                said.push(parts.join(" "));
            }
        }
        said
    }
}

#[test]
fn what_was_granted_scaled_and_released_adds_up() {
    let mut desk = desk();
    assert_eq!(desk.ask("a", &[(CPU, "8"), (COUNT, "1")], at("dfw", "")), "Granted/QuotaAvailable");
    let entries = desk.book(Book::Outbox);
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0]["lines"].as_array().unwrap().len(), 1, "of count nobody wants to be told");
    let line = &entries[0]["lines"][0];
    assert_eq!(line["dimensions"], json!({LOCATION: "dfw"}));
    assert_eq!((&line["sink"]["meter"], &line["definition"]), (&json!("cores_granted"), &json!("cpu")));
    // One that waits has nothing.
    assert_eq!(desk.ask("b", &[(CPU, "3")], json!({})), "Denied/QuotaExceeded");
    assert_eq!(desk.told_out(), Vec::<String>::new());
    // A write that changes nothing of it says nothing; a restart neither.
    assert_eq!(desk.ask("a", &[(CPU, "8.0"), (COUNT, "1")], at("dfw", "")), "Granted/QuotaAvailable");
    desk.restart();
    assert_eq!(desk.told_out(), Vec::<String>::new());
    // Less of the one makes room for the other in the same commit.
    assert_eq!(desk.ask("a", &[(CPU, "6500m"), (COUNT, "1")], at("dfw", "")), "Granted/QuotaAvailable");
    assert_eq!(desk.phase("proj-abc", "b"), "Granted/QuotaAvailable");
    assert_eq!(desk.told_out(), ["scaled proj-abc -1.5 6.5", "granted proj-abc 3 3"]);
    // What does not fit changes nothing.
    desk.apply(&claims(), "proj-abc", "a", claim(&[(CPU, "9"), (COUNT, "1")], at("dfw", ""))).unwrap_err();
    assert_eq!(desk.told_out(), Vec::<String>::new());
    // Another place is another series.
    assert_eq!(desk.ask("a", &[(CPU, "6.5"), (COUNT, "1")], at("lhr", "")), "Granted/QuotaAvailable");
    assert_eq!(desk.told_out(), ["scaled proj-abc -6.5 0", "scaled proj-abc 6.5 6.5"]);
    desk.delete(&claims(), "proj-abc", "a").unwrap();
    assert_eq!(desk.told_out(), ["released proj-abc -6.5 0"]);
    // A namespace that goes to another project takes along what it has.
    desk.namespace("proj-abc", &[("resources.datumapis.com/project", "other")]);
    assert_eq!(desk.told_out(), ["released proj-abc -3 0", "granted other 3 3"]);
    desk.delete(&grants(), "proj-abc", "g").unwrap();
    desk.delete(&claims(), "proj-abc", "b").unwrap();
    assert_eq!(desk.told_out(), ["released other -3 0"]);
}

#[test]
fn ids_are_of_the_write_and_of_nothing_else() {
    let mut desk = desk();
    let mut ids = std::collections::BTreeSet::new();
    for cores in ["1", "2", "3"] {
        assert_eq!(desk.ask("a", &[(CPU, cores)], json!({})), "Granted/QuotaAvailable");
    }
    desk.namespace("proj-abc", &[("resources.datumapis.com/project", "other")]);
    let entries = desk.book(Book::Outbox);
    ids.extend(entries.iter().map(|entry| entry["id"].to_string()));
    assert_eq!((ids.len(), entries.len()), (5, 5), "{entries:?}");
}

#[test]
fn what_is_asked_for_at_length_is_written_down_all_the_same() {
    let mut desk = desk();
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[limit(CPU, &[("100", json!({}))])])).unwrap();
    // Quotes are twice as long where they are written down.
    let long = "\"".repeat(253);
    let of = |quantity: &str| {
        let dimensions = |number: usize| json!({LOCATION: format!("{number:02}"), TYPE: long});
        let one = |number| json!({"name": CPU, "quantity": quantity, "dimensions": dimensions(number)});
        let mut claim = claim(&[], json!({}));
        claim["spec"]["resources"] = (0..64).map(one).collect();
        claim
    };
    desk.apply(&claims(), "proj-abc", "fits", of("1")).unwrap();
    let told = desk.book(Book::Outbox);
    let ids: std::collections::BTreeSet<String> = told.iter().map(|entry| entry["id"].to_string()).collect();
    let lines = told.iter().flat_map(|entry| entry["lines"].as_array().unwrap());
    assert_eq!((lines.count(), ids.len()), (64, told.len()), "each line is told once");
    assert!(told.len() > 1 && told.iter().all(|entry| entry.to_string().len() < 40_000), "{}", told.len());
    desk.apply(&claims(), "proj-abc", "large", of("2")).unwrap();
    let denials = desk.book(Book::Denials);
    let (listed, left_out) = (denials[0]["resources"].as_array().unwrap().len(), &denials[0]["resourcesLeftOut"]);
    assert_eq!((denials.len(), &json!(64 - listed)), (1, left_out));
    assert!(listed > 0 && denials[0].to_string().len() < 16_000, "{listed}");
}

#[test]
fn every_denial_is_written_down_once_and_outlives_the_claim() {
    let mut desk = desk();
    assert_eq!(desk.ask("a", &[(CPU, "11")], json!({})), "Denied/QuotaExceeded");
    let denials = desk.book(Book::Denials);
    assert_eq!(denials.len(), 1, "{denials:?}");
    assert_eq!((&denials[0]["reason"], &denials[0]["claim"]["name"]), (&json!("QuotaExceeded"), &json!("a")));
    assert!(denials[0]["message"].as_str().unwrap().ends_with("requested 11, used 0, limit 10"), "{denials:?}");
    // Others come and go, and it is denied as it was.
    assert_eq!(desk.ask("b", &[(CPU, "1")], json!({})), "Granted/QuotaAvailable");
    desk.delete(&claims(), "proj-abc", "b").unwrap();
    desk.restart();
    assert_eq!(desk.book(Book::Denials), Vec::<Value>::new());
    // Another wish, another reason.
    assert_eq!(desk.ask("a", &[(CPU, "12")], json!({})), "Denied/QuotaExceeded");
    assert_eq!(desk.ask("a", &[("x.example.com/none", "1")], json!({})), "Denied/UnknownResourceName");
    let reasons: Vec<Value> = desk.book(Book::Denials).iter().map(|one| one["reason"].clone()).collect();
    assert_eq!(reasons, ["QuotaExceeded", "UnknownResourceName"]);
    // A write that is refused leaves nothing behind but this.
    assert_eq!(desk.ask("c", &[(CPU, "1")], json!({})), "Granted/QuotaAvailable");
    desk.take_records();
    desk.apply(&claims(), "proj-abc", "c", claim(&[(CPU, "20")], json!({}))).unwrap_err();
    let denials = desk.book(Book::Denials);
    assert_eq!(denials.len(), 1, "{denials:?}");
    assert_eq!((&denials[0]["refused"]["name"], &denials[0]["reason"]), (&json!("c"), &json!("QuotaNeverFits")));
}

/// All denials are in one journal of a bounded size: one project's are not kept at the cost of others'.
#[test]
fn whoever_is_denied_without_end_pushes_nobody_else_s_denials_out() {
    let mut desk = desk();
    desk.namespace("loud", &[]);
    // Its second namespace has no part of its own.
    desk.namespace("loud-too", &[("resources.datumapis.com/project", "loud")]);
    let strange = |number: usize| {
        let one =
            |at: usize| json!({"name": format!("x.example.com/{number}-{at}-{}", "y".repeat(200)), "quantity": "1"});
        let mut claim = claim(&[], json!({}));
        claim["spec"]["resources"] = (0..64).map(one).collect();
        claim
    };
    let (mut bytes, mut number) = (0, 0);
    loop {
        let namespace = if number % 2 == 0 { "loud" } else { "loud-too" };
        desk.apply(&claims(), namespace, "c", strange(number)).unwrap();
        number += 1;
        let told = desk.book(Book::Denials);
        if told.is_empty() {
            break;
        }
        bytes += told.iter().map(|entry| entry.to_string().len()).sum::<usize>();
        assert!(bytes < 17 * 1024 * 1024, "{number} denials");
    }
    assert!(bytes > 15 * 1024 * 1024, "{bytes}");
    assert!(desk.sample().contains("quota_denials_left_out_total 1\n"), "{}", desk.sample());
    // It is denied all the same, and nobody else's is left out.
    assert_eq!(desk.phase("loud", "c"), "Denied/UnknownResourceName");
    assert_eq!(desk.ask("a", &[(CPU, "11")], json!({})), "Denied/QuotaExceeded");
    assert_eq!(desk.book(Book::Denials).len(), 1);
    // In the long run it may go on, and it is said how many are missing.
    desk.apply(&claims(), "loud", "d", strange(0)).unwrap();
    assert_eq!(desk.book(Book::Denials), Vec::<Value>::new());
    desk.now_ms += 2_000;
    desk.apply(&claims(), "loud", "d", strange(1)).unwrap();
    let told = desk.book(Book::Denials);
    assert_eq!((told.len(), &told[0]["leftOut"]), (1, &json!(2)));
}

#[test]
fn what_is_asked_for_twice_under_the_same_dimensions_is_told_as_a_whole() {
    let mut desk = desk();
    // Once under the dimensions of all, once under the same of its own.
    let mut both = claim(&[(CPU, "2"), (CPU, "3")], at("dfw", ""));
    both["spec"]["resources"][1]["dimensions"] = at("dfw", "");
    desk.apply(&claims(), "proj-abc", "a", both).unwrap();
    assert_eq!(desk.drawn("project-proj-abc", CPU), "5/10");
    assert_eq!(desk.told_out(), ["granted proj-abc 5 5"]);
    desk.ask("a", &[(CPU, "4")], at("dfw", ""));
    desk.delete(&claims(), "proj-abc", "a").unwrap();
    assert_eq!(desk.told_out(), ["scaled proj-abc -1 4", "released proj-abc -4 0"]);
}

#[test]
fn every_decision_is_counted_once() {
    let mut desk = desk();
    let counted = |desk: &Desk| -> Vec<String> {
        let text = desk.sample();
        let of = |line: &&str| {
            line.starts_with("quota_claims_granted_total") || line.starts_with("quota_claims_denied_total")
        };
        text.lines().filter(of).map(str::to_owned).collect()
    };
    desk.ask("a", &[(CPU, "8")], json!({}));
    desk.ask("b", &[(CPU, "3")], json!({}));
    desk.ask("a", &[(CPU, "7")], json!({}));
    // A write that is refused for its amounts is a claim that was denied.
    desk.apply(&claims(), "proj-abc", "a", claim(&[(CPU, "9")], json!({}))).unwrap_err();
    let expected = ["quota_claims_denied_total{reason=\"QuotaExceeded\"} 2", "quota_claims_granted_total 2"];
    assert_eq!(counted(&desk), expected);
    assert_eq!(desk.ask("c", &[(CPU, "5")], json!({})), "Denied/QuotaExceeded");
    let text = desk.sample();
    let entity = "entity=\"proj-abc\",entity_kind=\"Project\"";
    for line in [
        "quota_claims{phase=\"Denied\",reason=\"QuotaExceeded\"} 1".to_owned(),
        "quota_claims{phase=\"Granted\",reason=\"QuotaAvailable\"} 2".to_owned(),
        format!("quota_bucket_limit{{bucket=\"\",{entity},resource=\"{CPU}\"}} 10"),
        format!("quota_bucket_used{{bucket=\"\",{entity},resource=\"{CPU}\"}} 10"),
        format!("quota_claims_waiting{{{entity}}} 1"),
    ] {
        assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
    }
}
