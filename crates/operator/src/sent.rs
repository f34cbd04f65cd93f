//! Objects as the API server sends them. It stores what nests deeper than anything here reads, and one such object must not keep all
//! others of its kind from being seen: what is deeper is read as nothing.

use std::borrow::Cow;
use std::fmt;

use kinds::bounds::DEPTH_MAX;
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope, ObjectMeta};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// An object as text, and what a watch has to know of it.
#[derive(Clone, Debug)]
pub struct Sent {
    metadata: ObjectMeta,
    text: Box<RawValue>,
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
    #[serde(default)]
    namespace: Option<String>,
}

impl<'de> Deserialize<'de> for Sent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sent, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let Named { metadata } = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        let Names { uid, resource_version, name, namespace } = metadata;
        let metadata = ObjectMeta { uid, resource_version, name, namespace, ..ObjectMeta::default() };
        Ok(Sent { metadata, text })
    }
}

impl Sent {
    /// The object, as far as it nests no deeper than what can be kept.
    pub fn read(&self) -> Value {
        read(self.text.get())
    }
}

fn read(text: &str) -> Value {
    let mut reader = serde_json::Deserializer::from_str(text);
    // It is JSON: it was found to be when it arrived.
    Shallow(DEPTH_MAX).deserialize(&mut reader).unwrap_or_default()
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
struct Shallow(usize);

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
        let Some(levels) = self.0.checked_sub(1) else {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        let mut read = Vec::new();
        while let Some(item) = items.next_element_seed(Shallow(levels))? {
            read.push(item);
        }
        Ok(Value::Array(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let Some(levels) = self.0.checked_sub(1) else {
            while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        let mut read = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let value = fields.next_value_seed(Shallow(levels))?;
            read.insert(name, value);
        }
        Ok(Value::Object(read))
    }
}

#[cfg(test)]
mod tests {
    use kinds::bounds::is_deeper;

    use super::*;

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
            let read = sent.read();
            assert!(!is_deeper(&read, DEPTH_MAX), "{levels}");
            assert_eq!(read["size"], serde_json::json!([1, -2, 0.5, "a", null, true]));
            assert_eq!(read["metadata"]["name"], "x");
        }
        let sent: Sent = serde_json::from_str(&object(100)).unwrap();
        assert_eq!(sent.read(), serde_json::from_str::<Value>(&object(100)).unwrap());
    }
}
