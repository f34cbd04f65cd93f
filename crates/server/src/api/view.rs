//! How a stored object is shown: at the version asked for, with the ledger's numbers in a policy's status, as an object,
//! as metadata alone, or as a row of a table.

use std::sync::Arc;

use bytes::Bytes;
use families::{Family, Projected};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::negotiate::Form;
use super::status::ApiError;
use super::table::Table;
use super::{Api, ApiResult, Call};
use crate::core::{Cache, Object};
use crate::registry::Served;

/// What table rows carry of their objects.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Include {
    Nothing,
    Metadata,
    Object,
}

pub(super) struct View {
    pub served: Arc<Served>,
    pub form: Form,
    include: Include,
    table: Option<Table>,
    /// Fills in the status from the ledger.
    family: Option<Arc<dyn Family>>,
    /// How an object begins that is stored as it is asked for; none where it never is.
    beginning: Option<String>,
    now_ms: i64,
}

#[derive(Deserialize)]
struct OnlyMetadata<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

impl Api {
    pub(super) fn view(&self, call: &Call) -> ApiResult<View> {
        let form = super::negotiate::form(&call.headers)?;
        let include = match call.query.get("includeObject") {
            None | Some("" | "Metadata") => Include::Metadata,
            Some("None") => Include::Nothing,
            Some("Object") => Include::Object,
            Some(other) => {
                return Err(ApiError::bad_request(format!("unrecognized includeObject value: {other:?}")));
            }
        };
        let table = (form == Form::Table).then(|| Table::of(&call.served));
        let beginning = match (&call.served.alias, &call.served.custom) {
            (Some(_), _) => None,
            (None, Some(_)) => Some(beginning(&call.served.api_version())),
            (None, None) => Some(String::new()),
        };
        let family = self.inner.projected.get(&call.served.resource).cloned();
        Ok(View { served: call.served.clone(), form, include, table, family, beginning, now_ms: call.now_ms })
    }

    /// The object as a tree, as a reader at this version sees it. One that cannot be read cannot be changed either.
    pub(super) fn tree(&self, served: &Served, object: &Object) -> ApiResult<Value> {
        let mut value = object.read().map_err(ApiError::internal)?;
        rename(served, &mut value);
        if let Value::Object(top) = &mut value {
            top.insert("apiVersion".into(), served.api_version().into());
            top.insert("kind".into(), (*served.kind).into());
        }
        if let Some(family) = self.inner.projected.get(&served.resource) {
            project(&self.parts().cache, &**family, object, &mut value);
        }
        Ok(value)
    }
}

/// How the text of an object begins that is stored under this version. Objects of a custom kind are stored under the
/// version that was the stored one when they were written, whatever has become of it since.
fn beginning(api_version: &str) -> String {
    format!("{{\"apiVersion\":\"{api_version}\"")
}

/// Whether an object is stored under the version that its definition stores objects under now.
pub(super) fn is_current(served: &Served, object: &Object) -> bool {
    served.custom.as_ref().is_none_or(|custom| {
        let version = crate::registry::api_version(&served.resource.group, &custom.stored_version);
        object.json.starts_with(beginning(&version).as_bytes())
    })
}

/// From the stored form to the one asked for.
fn rename(served: &Served, value: &mut Value) {
    match &served.alias {
        Some(alias) => (alias.from_stored)(value),
        None if served.custom.is_some() => value["apiVersion"] = served.api_version().into(),
        None => {}
    }
}

fn project(cache: &Cache, family: &dyn Family, object: &Object, value: &mut Value) -> bool {
    !cache.status_is_written(&object.key) && family.project(&object.key.resource, value, cache) == Projected::Changed
}

impl View {
    /// Whether the stored bytes have to be rewritten, because the object is stored under another version or address.
    pub fn renames(&self, object: &Object) -> bool {
        self.beginning.as_ref().is_none_or(|beginning| !object.json.starts_with(beginning.as_bytes()))
    }

    /// Whether an object has to be read to be shown, and is not sent as it is stored.
    pub fn reads(&self, object: &Object) -> bool {
        self.form != Form::Object || self.family.is_some() || self.renames(object)
    }

    /// The same view without the projection: a watch shows each version as it was published.
    pub fn of_events(mut self) -> View {
        self.family = None;
        self
    }

    fn tree(&self, cache: &Cache, object: &Object) -> Value {
        let mut value = object.value();
        self.adjust(cache, object, &mut value);
        value
    }

    fn adjust(&self, cache: &Cache, object: &Object, value: &mut Value) -> bool {
        let mut changed = self.renames(object);
        rename(&self.served, value);
        if let Some(family) = &self.family {
            changed |= project(cache, &**family, object, value);
        }
        changed
    }

    /// The object by itself or as an item of a list (for a table: a row).
    pub fn item(&self, cache: &Cache, object: &Object) -> Bytes {
        match self.form {
            Form::Object if self.family.is_none() && !self.renames(object) => object.json.clone(),
            Form::Object => {
                let mut value = object.value();
                if self.adjust(cache, object, &mut value) { value.to_string().into() } else { object.json.clone() }
            }
            Form::Metadata => partial(object),
            Form::Table => self.row(&self.tree(cache, object)).to_string().into(),
        }
    }

    pub fn row(&self, value: &Value) -> Value {
        let cells = self.table.as_ref().map(|table| table.cells(value, self.now_ms)).unwrap_or_default();
        match self.include {
            Include::Nothing => json!({"cells": cells}),
            Include::Object => json!({"cells": cells, "object": value}),
            Include::Metadata => {
                let metadata = value.get("metadata").cloned().unwrap_or_default();
                json!({"cells": cells, "object": {
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                }})
            }
        }
    }

    /// The whole answer to a GET of one object, and the object of a watch event.
    pub fn object(&self, cache: &Cache, object: &Object) -> Bytes {
        match self.form {
            Form::Table => {
                let row = self.row(&self.tree(cache, object));
                let table = json!({
                    "kind": "Table",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": {"resourceVersion": object.revision.to_string()},
                    "columnDefinitions": self.columns(),
                    "rows": [row],
                });
                table.to_string().into()
            }
            _ => self.item(cache, object),
        }
    }

    /// As a watch event after the first has it: a table repeats no columns.
    pub fn event_object(&self, cache: &Cache, object: &Object, first: bool) -> Bytes {
        if self.form != Form::Table || first {
            return self.object(cache, object);
        }
        let row = self.row(&self.tree(cache, object));
        let table = json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": object.revision.to_string()},
            "columnDefinitions": null,
            "rows": [row],
        });
        table.to_string().into()
    }

    pub fn columns(&self) -> Value {
        self.table.as_ref().map(Table::columns).unwrap_or_default()
    }

    /// What a bookmark carries: the kind and a version, and nothing else.
    pub fn bookmark(&self, revision: u64, ends_initial_events: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if ends_initial_events {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.form {
            Form::Object => {
                json!({"kind": self.served.kind, "apiVersion": self.served.api_version(), "metadata": metadata})
            }
            Form::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Form::Table => json!({
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": revision.to_string()},
                "columnDefinitions": null,
                "rows": [{"cells": [], "object": {
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                }}],
            }),
        };
        object.to_string().into()
    }
}

/// The metadata of an object, cut out of its bytes without reading the rest into memory.
fn partial(object: &Object) -> Bytes {
    let metadata = serde_json::from_slice::<OnlyMetadata<'_>>(&object.json).map_or("{}", |only| only.metadata.get());
    let mut out = Vec::with_capacity(metadata.len() + 80);
    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":");
    out.extend_from_slice(metadata.as_bytes());
    out.push(b'}');
    out.into()
}
