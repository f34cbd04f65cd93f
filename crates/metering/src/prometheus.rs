//! Prometheus: an instant query, at the moment the question is about.
//!
//! What it answers may be minutes old: it looks back for the last sample of each series. So the moments of the samples are asked
//! for in the same query, and the oldest of them is when it was so.

use http::Method;
use serde_json::Value;

use crate::number::nanos;
use crate::{Condition, Failure, Meter, Question, Reading, escaped, garbage, short};

pub async fn ask(meter: &Meter, question: &Question) -> Result<Reading, Failure> {
    let seconds = format!("{}.{:03}", question.at_ms / 1000, question.at_ms % 1000);
    let path = format!("/api/v1/query?query={}&time={seconds}", escaped(&query(question)));
    let text = meter.send(Method::GET, &path, None, String::new()).await?;
    let reading = read(&text)?.or_else(|| meter.empty_is_zero.then_some(Reading { nanos: 0, at_ms: question.at_ms }));
    let reading = reading.ok_or_else(|| Failure::Unavailable("the meter has no numbers".into()))?;
    Ok(Reading { at_ms: reading.at_ms.min(question.at_ms), ..reading })
}

/// Tells the two numbers of an answer apart.
const PART: &str = "bursar";

/// The sum over all series of the entity, and the moment of the oldest sample in it. Every condition is a matcher.
pub fn query(question: &Question) -> String {
    let text = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pattern = |values: &[String]| text(&values.iter().map(|value| literal(value)).collect::<Vec<_>>().join("|"));
    let mut matchers = vec![format!("{}=\"{}\"", question.entity_label, text(&question.entity))];
    for (label, condition) in &question.conditions {
        matchers.push(match condition {
            Condition::In(values) if values.len() == 1 => format!("{label}=\"{}\"", text(&values[0])),
            Condition::In(values) => format!("{label}=~\"{}\"", pattern(values)),
            Condition::NotIn(values) => format!("{label}!~\"{}\"", pattern(values)),
            Condition::Exists => format!("{label}!=\"\""),
            Condition::DoesNotExist => format!("{label}=\"\""),
        });
    }
    let series = format!("{}{{{}}}", question.meter, matchers.join(","));
    let part = |name: &str, of: String| format!("label_replace({of},\"{PART}\",\"{name}\",\"\",\"\")");
    format!("{} or {}", part("value", format!("sum({series})")), part("at", format!("min(timestamp({series}))")))
}

/// A value as a pattern that matches nothing else.
fn literal(value: &str) -> String {
    let mut out = String::new();
    for one in value.chars() {
        if "\\.+*?()|[]{}^$".contains(one) {
            out.push('\\');
        }
        out.push(one);
    }
    out
}

/// None where there are no numbers.
fn read(text: &str) -> Result<Option<Reading>, Failure> {
    let answer: Value = serde_json::from_str(text).map_err(|_| garbage(text))?;
    if answer["status"] != "success" {
        return Err(Failure::Wrong(short(answer["error"].as_str().unwrap_or("no success"))));
    }
    let result = answer["data"]["result"].as_array().filter(|_| answer["data"]["resultType"] == "vector");
    let result = result.ok_or_else(|| garbage(text))?;
    let part = |name: &str| -> Result<i128, Failure> {
        let mut parts = result.iter().filter(|one| one["metric"][PART] == name);
        match (parts.next(), parts.next()) {
            (Some(one), None) => one["value"][1].as_str().and_then(nanos).ok_or_else(|| garbage(text)),
            _ => Err(garbage(text)),
        }
    };
    if result.is_empty() {
        return Ok(None);
    }
    let at_ms = i64::try_from(part("at")? / 1_000_000).map_err(|_| garbage(text))?;
    Ok(Some(Reading { nanos: part("value")?, at_ms }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_become_matchers_and_cannot_escape() {
        let question = |conditions| Question {
            meter: "cores".into(),
            entity_label: "project".into(),
            entity: "a\"} or vector(0)".into(),
            conditions,
            at_ms: 0,
        };
        let series = "cores{project=\"a\\\"} or vector(0)\"}";
        assert_eq!(
            query(&question(vec![])),
            format!(
                "label_replace(sum({series}),\"bursar\",\"value\",\"\",\"\") or \
                 label_replace(min(timestamp({series})),\"bursar\",\"at\",\"\",\"\")"
            )
        );
        let conditions = vec![
            ("loc".to_owned(), Condition::In(vec!["dfw".into()])),
            ("kind".to_owned(), Condition::In(vec!["d1.x".into(), "a|b".into()])),
            ("tier".to_owned(), Condition::NotIn(vec!["x".into()])),
            ("gpu".to_owned(), Condition::Exists),
            ("old".to_owned(), Condition::DoesNotExist),
        ];
        let said = query(&question(conditions));
        assert!(said.contains("loc=\"dfw\",kind=~\"d1\\\\.x|a\\\\|b\",tier!~\"x\",gpu!=\"\",old=\"\""), "{said}");
    }

    #[test]
    fn answers_are_numbers_or_nothing() {
        let vector = |result: &str| {
            format!("{{\"status\":\"success\",\"data\":{{\"resultType\":\"vector\",\"result\":{result}}}}}")
        };
        let parts = |value: &str, at: &str| {
            let part =
                |name: &str, said: &str| format!("{{\"metric\":{{\"bursar\":\"{name}\"}},\"value\":[9,\"{said}\"]}}");
            vector(&format!("[{},{}]", part("value", value), part("at", at)))
        };
        let expected = Reading { nanos: 42_500_000_000, at_ms: 1_500 };
        assert_eq!(read(&parts("42.5", "1.5009")), Ok(Some(expected)), "at the moment of the sample, or before");
        assert_eq!(read(&vector("[]")), Ok(None));
        for wrong in ["NaN", "+Inf", "-3", ""] {
            assert!(read(&parts(wrong, "1")).is_err() && read(&parts("1", wrong)).is_err(), "{wrong}");
        }
        for wrong in ["[{}]", "[1,2]", "[{\"metric\":{},\"value\":[1,\"5\"]}]"] {
            assert!(read(&vector(wrong)).is_err(), "{wrong}");
        }
        assert!(read("<html>").is_err());
        let error = "{\"status\":\"error\",\"errorType\":\"bad_data\",\"error\":\"parse error\"}";
        assert_eq!(read(error), Err(Failure::Wrong("parse error".into())));
    }
}
