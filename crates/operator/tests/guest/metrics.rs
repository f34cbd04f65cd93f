//! What Prometheus is told.

use operator::metrics::{ALL, Metrics};

use super::town::{Town, claim};
use super::*;

#[test]
fn the_manual_lists_every_metric_of_the_operator() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operator.md");
    let manual = std::fs::read_to_string(path).unwrap();
    let listed: Vec<&str> = manual.lines().filter(|line| line.starts_with("| `bursar_operator_")).collect();
    let row = |metric: &families::metrics::Metric| {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{}` | {} | {} | {} |", metric.name, metric.kind.name(), labels.join(", "), metric.help)
    };
    let told: Vec<String> = ALL.iter().map(|metric| row(metric)).collect();
    assert_eq!(listed, told);
}

#[test]
fn what_is_held_and_kept_back_and_what_pools_have_is_told_by_who_leads() {
    let mut town = Town::new(10, &["a", "b"]);
    town.write(&claim("a", "x"), json!({"spec": {"pool": "gold", "claim": {"limits.cpu": "7"}}})).unwrap();
    town.rest();
    let metrics = Metrics::default();
    metrics.written.add(3);
    let told = |town: &mut Town| {
        let Answer::State(state) = town.bench.ask(Command::State) else { panic!("what metrics tell") };
        metrics.text(Some((&state, &families())), true)
    };
    let says = |text: &str, line: &str| assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    let text = told(&mut town);
    for line in [
        "bursar_operator_leads 1",
        "bursar_operator_holds 0",
        "bursar_operator_kept_back 0",
        "bursar_operator_pushes_total{result=\"written\"} 3",
        "capsule_pool_usage{pool=\"gold\",resource=\"limits.cpu\"} 7",
        "capsule_pool_namespace_usage{pool=\"gold\",resource=\"limits.cpu\",target_namespace=\"a\"} 7",
    ] {
        says(&text, line);
    }
    town.end(&claim("a", "x")).unwrap();
    town.tell_all();
    let text = told(&mut town);
    says(&text, "bursar_operator_kept_back 1");
    says(&text, "capsule_pool_usage{pool=\"gold\",resource=\"limits.cpu\"} 0");
    // Who does not lead tells of itself.
    let text = metrics.text(None, false);
    says(&text, "bursar_operator_leads 0");
    assert!(!text.contains("capsule_") && !text.contains("bursar_operator_holds"));
}
