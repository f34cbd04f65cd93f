//! Rows that a store would not take: they are refused one by one and never reach a commit, which is everybody's.

use serde_json::json;

use super::*;

#[test]
fn a_key_that_no_row_can_have_refuses_its_own_write_and_no_other() {
    let mut bench = Bench::new();
    bench.cap("cap", json!({"limit": 2})).unwrap();
    let longest = "x".repeat(NAMES_BYTES_MAX - "configmaps".len() - "a".len());
    for name in [format!("{longest}x"), "x".repeat(100_000), "a\0b".to_owned()] {
        let refused = bench.map(&name).unwrap_err();
        assert!(matches!(refused, Refused::Invalid(_)), "{refused:?}");
    }
    assert_eq!(bench.used("cap").as_deref(), Some("0"));
    bench.map(&longest).unwrap();
    let mut bench = bench.restart();
    assert!(bench.desk.get(&ObjectKey::new(GroupResource::core("configmaps"), "a", &longest)).is_some());
    assert_eq!(bench.used("cap").as_deref(), Some("1"));
    bench.audit();
}

#[test]
fn a_step_stops_looking_at_statuses_when_it_has_read_and_written_much() {
    let mut bench = Bench::new();
    let note = "x".repeat(31_000);
    for number in 0..20 {
        bench.cap(&format!("cap-{number}"), json!({"limit": 1, "note": note})).unwrap();
    }
    assert_eq!(bench.desk.publish(0), 3);
    assert_eq!(bench.desk.publish(0), 0);
    let shown = |number| bench.desk.get(&cap_key(&format!("cap-{number}"))).unwrap().value()["status"]["used"].clone();
    assert!((0..20).all(|number| shown(number) == "0"));
}

#[test]
fn a_charge_of_no_stored_object_goes_with_the_version_that_made_it() {
    let mut bench = Bench::new();
    bench.cap("cap", json!({"limit": 2})).unwrap();
    bench.map("a").unwrap();
    let (stranger, account) = (ledger::SubjectId(7), bench.desk.engine.ledger.balances().next().unwrap().1.account);
    let one = ledger::Charge::new(account, Amount::from_units(1), Format::DecimalSi);
    let _ = bench.desk.engine.ledger.charge(stranger, &[one], &ledger::Standing::Stored).unwrap();
    // Sealed with the next group, and told apart from what this version measures.
    bench.desk.engine.measuring = !bench.desk.engine.measuring;
    bench.desk.engine.measuring_unsaved = true;
    bench.desk.publish(0);
    let mut bench = bench.restart();
    assert!(!bench.desk.engine.ledger.is_live(stranger));
    bench.desk.publish(0);
    assert_eq!(bench.used("cap").as_deref(), Some("1"));
    bench.audit();
}
