//! Which objects a list or watch is about: a namespace, a label selector, a field selector.

use std::sync::Arc;

use rules::selector::{FieldSelector, LabelSelector, Labels};

use serde_json::Value;

use super::long::LONG_BYTES_MIN;
use super::options::ListOptions;
use super::status::{ApiError, ApiResult};
use crate::core::Object;
use crate::registry::Served;

pub struct Selection {
    /// Empty for all namespaces.
    pub namespace: String,
    labels: LabelSelector,
    fields: FieldSelector,
    /// Some field other than name and namespace is asked for, so that objects have to be parsed.
    parses: bool,
    served: Arc<Served>,
}

struct LabelsOf<'a>(&'a Object);

impl Labels for LabelsOf<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        self.0.label(key)
    }
}

struct LabelsIn<'a>(&'a Value);

impl Labels for LabelsIn<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(Value::as_str)
    }
}

impl Selection {
    pub fn new(served: &Arc<Served>, namespace: &str, options: &ListOptions) -> ApiResult<Selection> {
        let labels = LabelSelector::parse(&options.label_selector)
            .map_err(|error| ApiError::bad_request(format!("unable to parse requirement: {error}")))?;
        let fields =
            FieldSelector::parse(&options.field_selector).map_err(|error| ApiError::bad_request(error.to_string()))?;
        let mut parses = false;
        for term in fields.terms() {
            match term.field.as_str() {
                "metadata.name" => {}
                "metadata.namespace" if served.namespaced => {}
                other if selectable(served, other) => parses = true,
                other => return Err(ApiError::bad_request(format!("field label not supported: {other}"))),
            }
        }
        Ok(Selection { namespace: namespace.to_owned(), labels, fields, parses, served: served.clone() })
    }

    /// Whether every object of the namespace is meant.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// Whether choosing among these objects is long work: they have to be read, and are long together.
    pub fn is_long<'o>(&self, objects: impl Iterator<Item = &'o Arc<Object>>) -> bool {
        let mut bytes = 0;
        self.parses
            && objects.map(|object| object.json.len()).any(|more| {
                bytes += more;
                bytes > LONG_BYTES_MIN
            })
    }

    /// Whether this object has to be read, and is long.
    pub fn reads_long(&self, object: &Object) -> bool {
        self.parses && object.json.len() > LONG_BYTES_MIN
    }

    /// The one object that can match, when the selector names it.
    pub fn name(&self) -> Option<&str> {
        self.fields.exact("metadata.name")
    }

    pub fn accepts(&self, object: &Object) -> bool {
        (self.namespace.is_empty() || *object.key.namespace == *self.namespace) && self.accepts_anywhere(object)
    }

    /// The same for an object that is stored nowhere.
    pub fn accepts_value(&self, object: &Value) -> bool {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let fields = self.fields.terms().iter().all(|term| {
            let equal = match term.field.as_str() {
                "metadata.name" => text("name") == term.value,
                "metadata.namespace" => text("namespace") == term.value,
                other => self.served.strategy.selectable_field(object, other) == term.value,
            };
            equal != term.negated
        });
        fields && self.labels.matches(&LabelsIn(&object["metadata"]["labels"]))
    }

    fn accepts_anywhere(&self, object: &Object) -> bool {
        if !self.labels.is_everything() && !self.labels.matches(&LabelsOf(object)) {
            return false;
        }
        if self.fields.is_everything() {
            return true;
        }
        let value = if self.parses { object.value() } else { Value::Null };
        self.fields.terms().iter().all(|term| {
            let equal = match term.field.as_str() {
                "metadata.name" => *object.key.name == *term.value,
                "metadata.namespace" => *object.key.namespace == *term.value,
                other => self.served.strategy.selectable_field(&value, other) == term.value,
            };
            equal != term.negated
        })
    }
}

fn selectable(served: &Served, field: &str) -> bool {
    served.strategy.selectable_fields().contains(&field)
        || served.custom.as_ref().is_some_and(|custom| custom.selectable_fields.iter().any(|known| **known == *field))
}
