//! OpenMeter: the total of a meter for a subject.

use http::Method;
use serde_json::Value;

use crate::number::{Fields, field, field_nanos};
use crate::{Condition, Failure, Meter, Question, Reading, escaped, garbage};

pub async fn ask(meter: &Meter, question: &Question) -> Result<Reading, Failure> {
    let text = meter.send(Method::GET, &path(question), None, String::new()).await?;
    let nanos = read(&text, question, meter.empty_is_zero)?;
    Ok(Reading { nanos, at_ms: question.at_ms })
}

/// What has one value is filtered there; whatever else is asked for is grouped, and chosen here.
fn path(question: &Question) -> String {
    let mut path = format!("/api/v1/meters/{}/query?", escaped(&question.meter));
    path.push_str(&match question.entity_label.as_str() {
        "subject" => format!("subject={}", escaped(&question.entity)),
        label => format!("{}={}", escaped(&format!("filterGroupBy[{label}]")), escaped(&question.entity)),
    });
    for (dimension, condition) in &question.conditions {
        path.push('&');
        path.push_str(&match condition {
            Condition::In(values) if values.len() == 1 => {
                format!("{}={}", escaped(&format!("filterGroupBy[{dimension}]")), escaped(&values[0]))
            }
            _ => format!("groupBy={}", escaped(dimension)),
        });
    }
    path
}

fn read(text: &str, question: &Question, empty_is_zero: bool) -> Result<i128, Failure> {
    let answer: Fields<'_> = serde_json::from_str(text).map_err(|_| garbage(text))?;
    let rows: Vec<Fields<'_>> = field(&answer, "data").ok_or_else(|| garbage(text))?;
    let is_single = |condition: &Condition| matches!(condition, Condition::In(values) if values.len() == 1);
    let (mut sum, mut found) = (0i128, false);
    for row in rows {
        let groups: Value = field(&row, "groupBy").unwrap_or_default();
        let grouped = question.conditions.iter().filter(|(_, condition)| !is_single(condition));
        if !grouped.into_iter().all(|(dimension, condition)| condition.holds(groups[dimension].as_str())) {
            continue;
        }
        let nanos = field_nanos(&row, "value").ok_or_else(|| garbage(text))?;
        sum = sum.checked_add(nanos).ok_or_else(|| garbage(text))?;
        found = true;
    }
    match found {
        true => Ok(sum),
        false if empty_is_zero => Ok(0),
        false => Err(Failure::Unavailable("the meter has no numbers".into())),
    }
}
