//! Settings of Flink and Spark as their operators read them: keys with dots, or the same as a tree.

use std::collections::BTreeMap;

use kinds::fields::at;
use serde_json::Value;

use super::count;

/// Settings by their whole key.
pub struct Conf {
    field: &'static str,
    texts: BTreeMap<String, String>,
}

impl Conf {
    /// Those in one field of a template's spec.
    pub fn of(template: &Value, field: &'static str) -> Conf {
        let mut texts = BTreeMap::new();
        if let Some(written) = at(template, &["spec", field]) {
            flatten("", written, &mut texts);
        }
        Conf { field, texts }
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.texts.get(key).map(|text| text.trim()).filter(|text| !text.is_empty())
    }

    /// How an error names a setting.
    pub fn place(&self, key: &str) -> String {
        format!("spec.{}[{key}]", self.field)
    }

    pub fn is(&self, key: &str) -> bool {
        self.get(key).is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    /// A number of pods.
    pub fn count(&self, key: &str) -> Result<Option<u32>, String> {
        let text = self.get(key).map(Value::from);
        text.map(|text| count(Some(&text), 0, &self.place(key))).transpose()
    }

    /// The keys that begin so, without that, and what they say.
    pub fn under<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.texts.iter().filter_map(move |(key, text)| Some((key.strip_prefix(prefix)?, text.trim())))
    }
}

fn flatten(key: &str, written: &Value, texts: &mut BTreeMap<String, String>) {
    match written {
        Value::Object(fields) => {
            for (field, value) in fields {
                let key = if key.is_empty() { field.clone() } else { format!("{key}.{field}") };
                flatten(&key, value, texts);
            }
        }
        Value::Null => {}
        Value::String(text) => drop(texts.insert(key.to_owned(), text.clone())),
        other => drop(texts.insert(key.to_owned(), other.to_string())),
    }
}
