//! Amberflo: the present rate of a meter, or its latest hours where dimensions are asked about.

use http::Method;
use serde_json::{Value, json};

use crate::number::{Fields, field, field_nanos};
use crate::{Condition, Failure, Meter, Question, Reading, escaped, garbage};

pub const KEY: &str = "x-api-key";
/// The dimension by which it knows who uses.
const CUSTOMER: &str = "customerId";
/// Intervals of an answer that are looked at, of which the larger counts.
const INTERVALS: usize = 2;

pub async fn ask(meter: &Meter, question: &Question) -> Result<Reading, Failure> {
    // The rate is asked for by customer, and by nothing else.
    let nanos = match question.conditions.is_empty() && question.entity_label == CUSTOMER {
        true => {
            let (name, entity) = (escaped(&question.meter), escaped(&question.entity));
            let path = format!("/usage/current-usage-rate?meterApiName={name}&customerId={entity}");
            let text = meter.send(Method::GET, &path, Some(KEY), String::new()).await?;
            rate(&text, meter.empty_is_zero)?
        }
        false => {
            let text = meter.send(Method::POST, "/usage", Some(KEY), body(question).to_string()).await?;
            latest(&text, question, meter.empty_is_zero)?
        }
    };
    Ok(Reading { nanos, at_ms: question.at_ms })
}

fn rate(text: &str, empty_is_zero: bool) -> Result<i128, Failure> {
    let answer: Fields<'_> = serde_json::from_str(text).map_err(|_| garbage(text))?;
    match answer.get("rate").map(|rate| rate.get()) {
        None | Some("null") => nothing(empty_is_zero),
        Some(_) => field_nanos(&answer, "rate").ok_or_else(|| garbage(text)),
    }
}

fn nothing(empty_is_zero: bool) -> Result<i128, Failure> {
    if empty_is_zero { Ok(0) } else { Err(Failure::Unavailable("the meter has no numbers".into())) }
}

/// Filters name the values that are let in; whatever else is asked for is grouped, and chosen here.
fn body(question: &Question) -> Value {
    let mut filter = serde_json::Map::new();
    filter.insert(question.entity_label.clone(), json!([question.entity]));
    let mut groups = Vec::new();
    for (dimension, condition) in &question.conditions {
        match condition {
            Condition::In(values) => drop(filter.insert(dimension.clone(), json!(values))),
            _ => groups.push(dimension),
        }
    }
    let now = question.at_ms / 1000;
    json!({
        "meterApiName": question.meter, "aggregation": "MAX", "timeGroupingInterval": "HOUR",
        "timeRange": {"startTimeInSeconds": now - 7200, "endTimeInSeconds": now}, "filter": filter, "groupBy": groups,
    })
}

fn latest(text: &str, question: &Question, empty_is_zero: bool) -> Result<i128, Failure> {
    let answer: Fields<'_> = serde_json::from_str(text).map_err(|_| garbage(text))?;
    let groups: Vec<Fields<'_>> = field(&answer, "clientMeters").ok_or_else(|| garbage(text))?;
    let (mut sum, mut found) = (0i128, false);
    for group in groups {
        let info: Value = field(&group, "group").unwrap_or_default();
        let info = &info["groupInfo"];
        let grouped = question.conditions.iter().filter(|(_, condition)| !matches!(condition, Condition::In(_)));
        if !grouped.into_iter().all(|(dimension, condition)| condition.holds(info[dimension].as_str())) {
            continue;
        }
        let mut values: Vec<Fields<'_>> = field(&group, "values").ok_or_else(|| garbage(text))?;
        // Hours in which nothing was told are filled with nothing, and the one that has begun is such a one at first: what was
        // used in the hour before it is used until something else is told.
        values.sort_by_key(|one| std::cmp::Reverse(field::<i64>(one, "secondsSinceEpochUtc")));
        let latest = values.iter().take(INTERVALS).map(|one| field_nanos(one, "value").ok_or_else(|| garbage(text)));
        let Some(nanos) = latest.collect::<Result<Vec<i128>, Failure>>()?.into_iter().max() else { continue };
        sum = sum.checked_add(nanos).ok_or_else(|| garbage(text))?;
        found = true;
    }
    if found { Ok(sum) } else { nothing(empty_is_zero) }
}
