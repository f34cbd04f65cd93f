//! Prometheus: an instant query, at the moment the question is about.

use http::Method;
use serde_json::Value;

use crate::number::json_nanos;
use crate::{Condition, Failure, Meter, Question, Reading, escaped, garbage, short};

pub async fn ask(meter: &Meter, question: &Question) -> Result<Reading, Failure> {
    let seconds = format!("{}.{:03}", question.at_ms / 1000, question.at_ms % 1000);
    let path = format!("/api/v1/query?query={}&time={seconds}", escaped(&query(question)));
    let text = meter.send(Method::GET, &path, None, String::new()).await?;
    let nanos = read(&text, meter.empty_is_zero)?;
    Ok(Reading { nanos, at_ms: question.at_ms })
}

/// The sum over all series of the entity. Every condition is a matcher.
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
    format!("sum({}{{{}}})", question.meter, matchers.join(","))
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

fn read(text: &str, empty_is_zero: bool) -> Result<i128, Failure> {
    let answer: Value = serde_json::from_str(text).map_err(|_| garbage(text))?;
    if answer["status"] != "success" {
        return Err(Failure::Wrong(short(answer["error"].as_str().unwrap_or("no success"))));
    }
    let result = match answer["data"]["resultType"].as_str() {
        Some("vector") => answer["data"]["result"].as_array().cloned().unwrap_or_default(),
        Some("scalar") => vec![serde_json::json!({"value": answer["data"]["result"]})],
        _ => return Err(garbage(text)),
    };
    match &result[..] {
        [] if empty_is_zero => Ok(0),
        [] => Err(Failure::Unavailable("the meter has no numbers".into())),
        [one] => json_nanos(&one["value"][1]).ok_or_else(|| garbage(text)),
        _ => Err(garbage(text)),
    }
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
        assert_eq!(query(&question(vec![])), "sum(cores{project=\"a\\\"} or vector(0)\"})");
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
        assert_eq!(read(&vector("[{\"metric\":{},\"value\":[1.5,\"42.5\"]}]"), false), Ok(42_500_000_000));
        assert_eq!(read(&vector("[]"), true), Ok(0));
        assert!(matches!(read(&vector("[]"), false), Err(Failure::Unavailable(_))));
        for wrong in
            ["[{\"value\":[1,\"NaN\"]}]", "[{\"value\":[1,\"+Inf\"]}]", "[{\"value\":[1,\"-3\"]}]", "[{}]", "[1,2]"]
        {
            assert!(read(&vector(wrong), true).is_err(), "{wrong}");
        }
        assert!(read("<html>", true).is_err());
        let error = "{\"status\":\"error\",\"errorType\":\"bad_data\",\"error\":\"parse error\"}";
        assert_eq!(read(error, true), Err(Failure::Wrong("parse error".into())));
    }
}
