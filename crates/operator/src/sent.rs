//! Objects as the API server sends them. It stores what nests deeper than anything here reads, and one such object must not keep all
//! others of its kind from being seen: what is deeper is read as nothing. And it says who wrote which field, at length: that is skipped
//! over, for nobody here looks at it.

use std::borrow::Cow;
use std::fmt;

use kinds::bounds::DEPTH_MAX;
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope, ObjectMeta};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// An object, as far as it nests no deeper than what can be kept, and what a watch has to know of it.
#[derive(Clone, Debug)]
pub struct Sent {
    metadata: ObjectMeta,
    value: Value,
}

/// What identifies an object in one version. The rest is skipped over, not read.
#[derive(Debug, Deserialize)]
pub struct Named {
    pub metadata: Names,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Names {
    #[serde(default)]
    pub uid: Option<String>,
    #[serde(default)]
    pub resource_version: Option<String>,
    #[serde(default)]
    pub name: Option<String>,
}

impl<'de> Deserialize<'de> for Sent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sent, D::Error> {
        let value = Shallow { levels: DEPTH_MAX, of: Part::Whole }.deserialize(deserializer)?;
        let metadata = &value["metadata"];
        let text = |field: &str| metadata[field].as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            name: text("name"),
            namespace: text("namespace"),
            ..ObjectMeta::default()
        };
        Ok(Sent { metadata, value })
    }
}

impl Sent {
    pub fn into_value(self) -> Value {
        self.value
    }
}

/// Reads a text that is known to nest no deeper than what can be kept.
pub fn read(text: &str) -> serde_json::Result<Value> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Shallow { levels: DEPTH_MAX, of: Part::Whole }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

impl Resource for Sent {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        of.kind.as_str().into()
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        of.group.as_str().into()
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        of.version.as_str().into()
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        of.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Reads a value with so many levels below it.
struct Shallow {
    levels: usize,
    of: Part,
}

/// What of an object is being read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Metadata,
    Other,
}

impl Part {
    fn below(self, field: &str) -> Part {
        if self == Part::Whole && field == "metadata" { Part::Metadata } else { Part::Other }
    }

    fn skips(self, field: &str) -> bool {
        self == Part::Metadata && field == "managedFields"
    }
}

impl<'de> DeserializeSeed<'de> for Shallow {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Shallow {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        // Skipping takes no stack, however deep it is.
        let Some(levels) = self.levels.checked_sub(1) else {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        let mut read = Vec::new();
        while let Some(item) = items.next_element_seed(Shallow { levels, of: Part::Other })? {
            read.push(item);
        }
        Ok(Value::Array(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let Some(levels) = self.levels.checked_sub(1) else {
            while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        let mut read = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if self.of.skips(&name) {
                fields.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = fields.next_value_seed(Shallow { levels, of: self.of.below(&name) })?;
            read.insert(name, value);
        }
        Ok(Value::Object(read))
    }
}

#[cfg(test)]
mod tests {
    use kinds::bounds::is_deeper;
    use kube::core::{ObjectList, WatchEvent};

    use super::*;
    use crate::sight::slim;

    fn object(levels: usize) -> String {
        let metadata = r#"{"name":"x","namespace":"a","uid":"u","resourceVersion":"7","managedFields":[DEEP]}"#;
        let deep = format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"metadata":{},"spec":{deep},"size":[1,-2,0.5,"a",null,true]}}"#, metadata.replace("DEEP", &deep))
    }

    #[test]
    fn what_nests_too_deep_is_seen_all_the_same_and_so_is_what_stands_beside_it() {
        for levels in [1, 100, 118, 119, 120, 127, 128, 100_000] {
            let sent: Sent = serde_json::from_str(&object(levels)).unwrap();
            assert_eq!(
                (sent.metadata.name.as_deref(), sent.metadata.resource_version.as_deref()),
                (Some("x"), Some("7"))
            );
            let read = sent.into_value();
            assert!(!is_deeper(&read, DEPTH_MAX), "{levels}");
            assert_eq!(read["size"], serde_json::json!([1, -2, 0.5, "a", null, true]));
            assert_eq!(read["metadata"]["name"], "x");
        }
        let sent: Sent = serde_json::from_str(&object(100)).unwrap();
        let mut whole: Value = serde_json::from_str(&object(100)).unwrap();
        slim(&mut whole);
        assert_eq!(sent.into_value(), whole);
        assert_eq!(read(&object(100)).unwrap(), whole);
    }

    /// As they come: in a watch, and in a list.
    #[test]
    fn what_nests_too_deep_is_read_wherever_it_stands() {
        for levels in [100, 120, 100_000] {
            let event = format!(r#"{{"type":"ADDED","object":{}}}"#, object(levels));
            assert!(matches!(serde_json::from_str(&event).unwrap(), WatchEvent::<Sent>::Added(_)), "{levels}");
            let list = format!(r#"{{"metadata":{{}},"items":[{}]}}"#, object(levels));
            let list: ObjectList<Sent> = serde_json::from_str(&list).unwrap();
            assert!(list.items[0].value["spec"][0].is_array(), "{levels}");
        }
    }
}
