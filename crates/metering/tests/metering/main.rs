//! The protocols as they are spoken: a real Prometheus that scrapes real numbers, and a server that answers as Amberflo and OpenMeter
//! document it, or does not.

mod prometheus;
mod sent;
mod spoken;

use metering::{Condition, Meter, Question, Service};
use std::time::Duration;

fn meter(service: Service, endpoint: &str) -> Meter {
    let secret = Some("s3cret".to_owned());
    Meter { service, endpoint: endpoint.into(), secret, timeout: Duration::from_secs(10), empty_is_zero: false }
}

fn question(meter: &str, label: &str, conditions: &[(&str, Condition)]) -> Question {
    let conditions = conditions.iter().map(|(label, condition)| ((*label).to_owned(), condition.clone())).collect();
    Question {
        meter: meter.into(),
        entity_label: label.into(),
        entity: "proj-abc".into(),
        conditions,
        at_ms: 1_700_000_000_000,
    }
}

fn one_of(values: &[&str]) -> Condition {
    Condition::In(values.iter().map(|value| (*value).to_owned()).collect())
}
