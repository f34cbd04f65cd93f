//! Reading a request's document: known fields only, each as it has to be.

use serde_json::{Map, Value};

use super::super::numbers;
use super::super::tiers::is_name;
use super::problem::Problem;

/// Text that people write: reasons, names to show.
pub const TEXT_BYTES_MAX: usize = 512;

pub struct Body<'a>(Option<&'a Map<String, Value>>);

impl<'a> Body<'a> {
    /// A document with no other fields than these. None at all is one without fields.
    pub fn of(value: &'a Value, known: &[&str]) -> Result<Body<'a>, Problem> {
        let fields = match value {
            Value::Null => return Ok(Body(None)),
            Value::Object(fields) => fields,
            _ => return Err(Problem::invalid("body", "it is not a JSON object")),
        };
        match fields.keys().find(|name| !known.contains(&name.as_str())) {
            Some(unknown) => {
                let shown: String = unknown.chars().take(64).collect();
                let why = format!("there is no such field; those are {}", known.join(", "));
                Err(Problem::invalid(&shown, why))
            }
            None => Ok(Body(Some(fields))),
        }
    }

    pub fn get(&self, field: &str) -> Option<&'a Value> {
        self.0?.get(field).filter(|value| !value.is_null())
    }

    pub fn required(&self, field: &str) -> Result<&'a Value, Problem> {
        self.get(field).ok_or_else(|| Problem::invalid(field, "it is missing"))
    }

    pub fn text(&self, field: &str) -> Result<Option<&'a str>, Problem> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control) => {
                Ok(Some(text))
            }
            Some(_) => Err(Problem::invalid(field, format!("it is not a text of at most {TEXT_BYTES_MAX} bytes"))),
        }
    }

    pub fn needed_text(&self, field: &str) -> Result<&'a str, Problem> {
        self.text(field)?.filter(|text| !text.is_empty()).ok_or_else(|| Problem::invalid(field, "it is missing"))
    }

    /// A name that objects can have.
    pub fn name(&self, field: &str) -> Result<&'a str, Problem> {
        let name = self.needed_text(field)?;
        check_name(field, name)?;
        Ok(name)
    }

    pub fn whole(&self, field: &str, least: i64, most: i64) -> Result<Option<i64>, Problem> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let number = numbers::whole(value).ok().filter(|number| (least..=most).contains(number));
        let wrong = || Problem::invalid(field, format!("it is not a whole number from {least} to {most}"));
        number.map(Some).ok_or_else(wrong)
    }

    pub fn flag(&self, field: &str) -> Result<Option<bool>, Problem> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(Problem::invalid(field, "it is neither true nor false")),
        }
    }

    /// One of some words.
    pub fn word<'w>(&self, field: &str, words: &[&'w str]) -> Result<Option<&'w str>, Problem> {
        let Some(text) = self.text(field)? else { return Ok(None) };
        let found = words.iter().find(|word| **word == text).copied();
        found.map(Some).ok_or_else(|| Problem::invalid(field, format!("use one of {}", words.join(", "))))
    }
}

pub fn check_name(field: &str, name: &str) -> Result<(), Problem> {
    let why = "use at most 63 lower-case letters, digits and dashes, with a letter or digit at both ends";
    if is_name(name) { Ok(()) } else { Err(Problem::invalid(field, why)) }
}
